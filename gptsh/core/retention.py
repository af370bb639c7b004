"""Sessions deleted, archived and pruned under the store's lock, by hand or automatically.

A session is what its file name says, whatever the file holds. Its forks stay, and what an agent's memory has of it.
"""

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Literal, NamedTuple

from gptsh.config.settings import Sessions
from gptsh.core import files, references
from gptsh.core.listing import SessionSummary, imported_at, summary_at, summary_of, try_read
from gptsh.core.references import FILENAME, archive_folder, make_private, names_in, sessions_folder
from gptsh.jsonio import as_dict

_AT_ONCE = 1000  # sessions that one run archives automatically; the next run continues


class Change(NamedTuple):
    """What became of a session. ``was`` is its list row, None for an unreadable file; ``names`` pointed at it.

    ``used``: it stays, since it was used or archived meanwhile. ``gone``: it was deleted meanwhile.
    """

    filename: str
    state: Literal["deleted", "archived", "already archived", "used", "gone"]
    was: SessionSummary | None = None
    names: Sequence[str] = ()


def remove(
    sessions: Mapping[str, str | None], *, archive: bool = False, wait: float = files.LOCK_WAIT
) -> Iterator[Change]:
    """Delete the sessions of these file names, or archive them: one at each step of the iterator.

    With an ``updated_at`` beside its name a session stays where that changed meanwhile. The names of a deleted one
    become free; those of an archived one go on pointing at it.
    Raises StoreBusy where the lock is not free after ``wait`` seconds, else StoreError.
    """
    folders = folder, away = sessions_folder(), archive_folder()
    names = references.names_by_file()
    leftovers = [place / name for place in folders for name in names_in(place) if name.endswith(".tmp")]
    try:
        for filename, updated_at in sessions.items():
            what = f"the session cannot be {'archived' if archive else 'deleted'}"
            with files.as_store_error(what, folder), files.locked(folder.parent / ".lock", wait):
                path, archived = references.path_of(filename), away / filename
                was = summary_at(filename)
                change = Change(filename, "deleted", was, names.get(filename, ()))
                if not os.path.lexists(path):
                    change = Change(filename, "gone")
                elif updated_at and (path == archived or not was or was["updated_at"] != updated_at):
                    change = Change(filename, "used", was)
                elif archive and path == archived:
                    change = change._replace(state="already archived")
                elif archive:
                    if os.path.lexists(archived):  # somebody copied it there; which one is wanted, nobody here knows
                        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(archived))
                    make_private(away)
                    path.rename(archived)
                    change = change._replace(state="archived")
                else:
                    ours = [file for file in leftovers if file.name.startswith(filename)]
                    for file in (folder / filename, archived, *ours, *map(references.pointer_of, change.names)):
                        file.unlink(missing_ok=True)
            yield change
    finally:
        with contextlib.suppress(OSError):  # what was removed is removed; only a power cut may bring it back
            for place in filter(os.path.isdir, folders):
                files.sync(place)


# ---- which of them


def last_used(summary: SessionSummary) -> datetime | None:
    """The time of ``updated_at``; None where that is no time."""
    try:
        return datetime.fromisoformat(summary["updated_at"]).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None


def to_prune(
    items: Iterable[SessionSummary], keep: int | None, before: datetime | None, limit: int | None
) -> list[SessionSummary]:
    """The sessions to prune, least recently used first, ``limit`` at most.

    The ``keep`` sessions used last stay, and those used since ``before``; so does one without a time.
    """
    dated = [(used, item["filename"], item) for item in items if (used := last_used(item)) is not None]
    dated.sort(key=lambda entry: entry[:2], reverse=True)
    pruned = [item for used, _, item in dated[keep or 0 :] if before is None or used < before]
    return pruned[::-1][:limit]


def archive_old(rules: Sessions, just_used: str) -> None:
    """Archive what was not used for so many days, and the least recently used beyond so many sessions.

    A session was last used when its file was written, when it says so, or when it was imported: the latest counts.
    ``just_used`` is the file name of the one that stays. Raises StoreError, and OSError for an unreadable folder.
    """
    since = time.time() - rules.archive_after_days * 86400 if rules.archive_after_days else 0.0
    with os.scandir(sessions_folder()) as entries:
        own = [entry for entry in entries if FILENAME.fullmatch(entry.name) and not entry.is_symlink()]
    beyond = len(own) - rules.max_sessions if rules.max_sessions else 0
    staying = {just_used, *names_in(archive_folder())}
    dated: list[tuple[float, str, str]] = []
    for entry in own:
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
            written = entry.stat().st_mtime
            if entry.name in staying or not (beyond > 0 or written < since):
                continue
            head = try_read(entry.path, files.read_head)
            if isinstance(head, dict):
                summary = summary_of(head, None, entry.name)
                if used := last_used(summary):
                    latest = max(written, used.timestamp(), imported_at(as_dict(head.get("meta"))))
                    dated.append((latest, entry.name, summary["updated_at"]))
    dated.sort()
    old = {name: updated for at, (used, name, updated) in enumerate(dated) if at < beyond or used < since}
    for _ in remove(dict(islice(old.items(), _AT_ONCE)), archive=True, wait=0):
        pass
