"""Sessions deleted, archived and pruned under the store's lock, by hand or automatically.

A session is what its file name says, whatever the file holds. Its forks stay, and what an agent's memory has of it.
"""

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from gptsh.config.settings import Sessions
from gptsh.core import files, references
from gptsh.core.listing import SessionSummary, by_file_time, imported_at, summary_at, summary_of, try_read
from gptsh.core.references import archive_folder, make_private, names_in, sessions_folder
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


def to_prune(
    items: Iterable[SessionSummary], keep: int | None, before: datetime | None, limit: int | None
) -> list[SessionSummary]:
    """The sessions to prune, least recently used first, ``limit`` at most.

    The ``keep`` sessions used last stay, and those used since ``before``; so does one without a time.
    """
    dated: list[tuple[datetime, str, SessionSummary]] = []
    for item in items:
        with contextlib.suppress(ValueError, OverflowError, OSError):
            dated.append((datetime.fromisoformat(item["updated_at"]).astimezone(UTC), item["filename"], item))
    dated.sort(key=lambda entry: entry[:2], reverse=True)
    pruned = [item for used, _, item in dated[keep or 0 :] if before is None or used < before]
    return pruned[::-1][:limit]


def archive_old(rules: Sessions, just_used: str) -> None:
    """Archive what was not written for so many days, and what was written longest ago beyond so many sessions.

    ``just_used`` is the file name of the one that stays. What was imported counts as written then. Raises StoreError,
    and BadSession for an unreadable folder.
    """
    since = time.time() - rules.archive_after_days * 86400 if rules.archive_after_days else 0.0
    dated = by_file_time(sessions_folder())[::-1]
    beyond = len(dated) - rules.max_sessions if rules.max_sessions else 0
    staying = {just_used, *names_in(archive_folder())}
    old: dict[str, str | None] = {}
    for at, (written, name) in enumerate(dated):
        if name not in staying and (at < beyond or written < since) and len(old) < _AT_ONCE:
            head = try_read(str(references.path_of(name)), files.read_head)
            if isinstance(head, dict) and (at < beyond or imported_at(as_dict(head.get("meta"))) < since):
                old[name] = summary_of(head, None, name)["updated_at"]
    for _ in remove(old, archive=True, wait=0):
        pass
