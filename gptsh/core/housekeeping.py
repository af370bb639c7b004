"""Old sessions put away by themselves, where that is configured: never deleted, never the one just used."""

import contextlib
import heapq
import os
import time
from collections.abc import Iterator

from gptsh.config.settings import Housekeeping
from gptsh.core import archive, files
from gptsh.core.archive import Target
from gptsh.core.listing import brought_in, found, summary_of
from gptsh.core.references import FILENAME, get_archive_dir, get_sessions_dir, names_in

_DAY = 86400
_LONGEST = 100_000  # days; more is never
_MOST = 1000  # sessions put away at once; the next new session goes on


def put_away_old(rules: Housekeeping, just_used: str) -> None:
    """Move to the archive what was not used for so many days, and the longest unused beyond so many sessions.

    ``just_used`` is a file name. Where another process is saving it is left for the next time.
    Raises StoreError, OSError where the folder cannot be read.
    """
    going: list[Target] = []
    dated, taken = sorted(_dated()), {just_used, *names_in(get_archive_dir())}
    beyond = len(dated) - rules.max_sessions if rules.max_sessions else 0
    since = time.time() - min(rules.archive_after_days, _LONGEST) * _DAY if rules.archive_after_days else 0.0
    for used, target in _longest_unused([entry for entry in dated if entry[1] not in taken]):
        if (len(going) >= beyond and used >= since) or len(going) == _MOST:
            break
        going.append(target)
    for _ in archive.put_away(going, wait=0) if going else ():
        pass


def _dated() -> Iterator[tuple[float, str]]:
    """When each session's file was written, in seconds, and its name."""
    with os.scandir(get_sessions_dir()) as entries:
        for entry in entries:
            if FILENAME.fullmatch(entry.name) and not entry.is_symlink():
                with contextlib.suppress(FileNotFoundError):  # deleted since
                    yield entry.stat().st_mtime, entry.name


def _longest_unused(dated: list[tuple[float, str]]) -> Iterator[tuple[float, Target]]:
    """The sessions by last use: the latest of a file's time, what stands in it, and when it was imported.

    A head is read when the file's time has come: who takes a few reads a few. What cannot be read stays where it is.
    """
    waiting: list[tuple[float, Target]] = []  # a heap
    for written, filename in dated:
        while waiting and waiting[0][0] <= written:
            yield heapq.heappop(waiting)
        head = found(f"{get_sessions_dir()}/{filename}", files.read_head)
        if not isinstance(head, dict):
            continue
        summary = summary_of(head, None, filename)
        if used := archive.last_used(summary):
            known = max(written, used.timestamp(), brought_in(head.get("meta", {})))
            heapq.heappush(waiting, (known, Target(filename, summary["updated_at"])))
    while waiting:
        yield heapq.heappop(waiting)
