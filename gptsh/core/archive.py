"""Sessions deleted for good or put away under the store's lock, and what of a deleted one stays.

Nothing is read or moved but files of the store; a session is what its file name says, whatever stands in it.
"""

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple

from gptsh.core import files, references
from gptsh.core.listing import SessionSummary, found, origin_of, scan_heads, summary_of
from gptsh.core.references import FILENAME, ID, get_archive_dir, get_sessions_dir, make_private, names_in
from gptsh.errors import StoreBusy, StoreError

_BATCH = 100  # sessions for which the lock is taken once: some milliseconds, and one wait for the disk
_FILENAME_END = 25  # characters of a session's file name
_AGE = re.compile("([0-9]{1,6})([hdwy])")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24, "y": 365 * 24}
_LONGEST = 100 * _HOURS["y"]

State = Literal["deleted", "archived", "already archived", "used", "gone"]


class Target(NamedTuple):
    """The file name of a session. ``unless_used``: it stays where its ``updated_at`` is not this any more, or it was
    put away.
    """

    filename: str
    unless_used: str | None = None


class Change(NamedTuple):
    """What became of a session: ``was`` is what a list told of it, None where it cannot be read.

    ``names`` pointed at it. What stays of a deleted one: the ids of its ``forks``, the agents in whose ``memory`` it
    is, and the file that it was only a ``link`` to.
    """

    filename: str
    state: State
    was: SessionSummary | None = None
    names: Sequence[str] = ()
    forks: Sequence[str] = ()
    memory: Sequence[str] = ()
    link: str | None = None


# ---- deleting, putting away


def delete(targets: Sequence[Target]) -> Iterator[Change]:
    """Delete sessions, wherever they are, and let their names go, as it is taken. Raises StoreError."""
    forks = _forks({target.filename for target in targets})
    memories = {target.filename: _remembered(target.filename) for target in targets}
    for change in _in_batches(targets, _delete, "deleted", files.LOCK_WAIT):
        name = change.filename
        is_gone = change.state == "deleted"
        yield change._replace(forks=forks.get(name[ID], ()), memory=memories[name]) if is_gone else change


def put_away(targets: Sequence[Target], wait: float = files.LOCK_WAIT) -> Iterator[Change]:
    """Move sessions into the archive, as it is taken; their names go on pointing at them.

    Raises StoreBusy where the lock is not free after ``wait`` seconds, else StoreError.
    """
    return _in_batches(targets, _put_away, "archived", wait)


class _Shelf(NamedTuple):
    """What is known of the store while its lock is held."""

    names: dict[str, list[str]]
    leftovers: dict[str, list[Path]]  # temporary files that killed writers left, by file name


def _in_batches(
    targets: Sequence[Target], change: Callable[[Target, _Shelf], Change], what: str, wait: float
) -> Iterator[Change]:
    """What became of each. The lock is free whenever one is told: who hears of it may take their time."""
    for start in range(0, len(targets), _BATCH):
        done: list[Change] = []
        failure: StoreError | None = None
        try:
            _change(targets[start : start + _BATCH], change, done, wait)
        except StoreBusy as err:
            failure = err
        except OSError as err:
            filename = err.filename2 or err.filename or get_sessions_dir()
            failure = StoreError(f"the session cannot be {what}: {filename}: {err.strerror}")
        yield from done
        if failure:
            raise failure


def _change(
    targets: Sequence[Target], change: Callable[[Target, _Shelf], Change], done: list[Change], wait: float
) -> None:
    with files.locked(get_sessions_dir().parent / ".lock", wait):
        shelf = _Shelf(references.names_by_file(), _leftovers())
        try:
            for target in targets:
                done.append(_unless_used(target, shelf, change))
        finally:
            for folder in filter(os.path.isdir, (get_archive_dir(), get_sessions_dir())):
                files.sync_folder(folder)


def _unless_used(target: Target, shelf: _Shelf, change: Callable[[Target, _Shelf], Change]) -> Change:
    path = references.path_of(target.filename)
    if not os.path.lexists(path):
        return Change(target.filename, "gone")
    head = found(str(path), files.read_head)
    was = summary_of(head, None, target.filename) if isinstance(head, dict) else None
    if target.unless_used is not None and (
        path.parent != get_sessions_dir() or was is None or was["updated_at"] != target.unless_used
    ):
        return Change(target.filename, "used", was)
    return change(target, shelf)._replace(was=was, names=shelf.names.get(target.filename, ()))


def _delete(target: Target, shelf: _Shelf) -> Change:
    link = None
    for folder in (get_sessions_dir(), get_archive_dir()):
        path = folder / target.filename
        link = os.path.realpath(path) if path.is_symlink() else link
        path.unlink(missing_ok=True)
    for leftover in shelf.leftovers.get(target.filename, ()):  # no writer is in the middle: the lock is ours
        leftover.unlink(missing_ok=True)
    for name in shelf.names.get(target.filename, ()):
        references.free_name(name)
    return Change(target.filename, "deleted", link=link)


def _put_away(target: Target, _: _Shelf) -> Change:
    path, archived = (folder / target.filename for folder in (get_sessions_dir(), get_archive_dir()))
    if not os.path.lexists(path):
        return Change(target.filename, "already archived")
    if os.path.lexists(archived):  # copied by hand: which of the two is to go, nobody here knows
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(archived))
    make_private(archived.parent)
    path.rename(archived)
    return Change(target.filename, "archived")


def _leftovers() -> dict[str, list[Path]]:
    paths: dict[str, list[Path]] = {}
    for folder in (get_sessions_dir(), get_archive_dir()):
        for name in names_in(folder):
            if name.endswith(".tmp") and FILENAME.fullmatch(name[:_FILENAME_END]):
                paths.setdefault(name[:_FILENAME_END], []).append(folder / name)
    return paths


# ---- what stays


def _forks(going: set[str]) -> dict[str, list[str]]:
    """The ids of the sessions that were forked from each, by its id, without those that go as well."""
    forks: dict[str, list[str]] = {}
    for filename, head in scan_heads(b'"forked_from":"'):
        origin = origin_of(head)
        if origin and filename not in going:
            forks.setdefault(origin, []).append(head["id"])
    return forks


def _remembered(filename: str) -> list[str]:
    """The agents whose memory has been told something of a session."""
    path = str(references.path_of(filename))
    head = found(path, files.read_head)
    if not isinstance(head, dict) or not head.get("context", {}).get("consolidated"):
        return []
    doc = found(path, files.read_document)
    messages = doc["messages"] if isinstance(doc, dict) else []
    agents = {message.get("agent") or head.get("agent", {}).get("name") or "default" for message in messages}
    return sorted(one for one in agents if isinstance(one, str) and references.memory_folder(one).is_dir())


# ---- which of them


def age(text: str) -> timedelta:
    """A time such as ``12h``, ``30d``, ``2w`` or ``1y``. Raises ValueError saying what was expected."""
    given = _AGE.fullmatch(text)
    hours = int(given[1]) * _HOURS[given[2]] if given else 0
    if not 0 < hours <= _LONGEST:
        raise ValueError(f"expected hours, days, weeks or years, such as 12h, 30d, 2w or 1y, not {text[:20]!r}")
    return timedelta(hours=hours)


def last_used(summary: SessionSummary) -> datetime | None:
    """When a session was last used, by its own word; None where it has none."""
    try:
        return datetime.fromisoformat(summary["updated_at"]).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None


def to_prune(
    items: Iterable[SessionSummary], keep: int | None, before: datetime | None, limit: int | None
) -> list[SessionSummary]:
    """Those that go, the one not used for longest first: beyond the ``keep`` last used, and not used since ``before``.

    None says nothing. ``limit`` is how many go at most. Who does not say when it was used stays.
    """
    dated = [(used, item["filename"], item) for item in items if (used := last_used(item)) is not None]
    dated.sort(key=lambda entry: entry[:2], reverse=True)
    going = [item for used, _, item in dated[keep or 0 :] if before is None or used < before]
    return going[::-1][:limit]
