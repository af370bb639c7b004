"""Delete and archive sessions: by command, by ``--prune-sessions``, and old ones after a turn."""

import contextlib
import errno
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

from gptsh import files
from gptsh.config.settings import Sessions
from gptsh.core import approvals, document, folders, locks
from gptsh.core.document import read_head
from gptsh.core.folders import archive_folder, names_in, sessions_folder
from gptsh.core.listing import (
    SessionSummary,
    Unreadable,
    by_file_time,
    imported_at,
    summary_at,
    summary_of,
    try_read,
    used_at,
)
from gptsh.core.turns import merge
from gptsh.core.usage import write_session
from gptsh.jsonio import as_dict
from gptsh.messages import starts_turn, typed_text

_MAX_TYPED = 100_000_000  # bytes of the file of typed lines

# ---- archive
#
# The archive: a session moves there and back, on another disk too: each folder may be a link to
# one.


def move_session(source: Path, folder: Path) -> Path:
    """Move a session file into a folder, and return its new path. Its times remain. Raises OSError.

    On another file system it is copied; the copy is on disk before the original is removed.
    """
    target = folder / source.name
    try:
        source.rename(target)
    except OSError as err:
        if err.errno != errno.EXDEV:
            raise
        status = source.stat()
        files.replace(target, files.read_bytes(source), fsync=True)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
        source.unlink()
    return target


def move_to_archive(path: Path) -> None:
    """Move a session file to the archive. An older file of the session there gets what is new.

    Raises OSError; FileExistsError if the file in the archive is another session.
    """
    folder = archive_folder()
    folders.make_private(folder)
    target = folder / path.name
    if os.path.lexists(target) and not os.path.samefile(path, target):
        if not is_same_session(path, target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        current, _ = document.read_document(path)
        older, _ = document.read_document(target)
        status = path.stat()
        times = (status.st_atime_ns, status.st_mtime_ns)
        write_session(path, merge(older, current), fsync=True, times=times)
    move_session(path, folder)


def is_same_session(path: Path, other: Path) -> bool:
    """Return whether two files of one name are versions of one session.

    Return False if one of them cannot be read.
    """
    try:
        created = {document.read_head(str(file))["created_at"] for file in (path, other)}
    except (OSError, ValueError, KeyError):
        return False
    return len(created) == 1


# ---- retention
#
# Delete, archive and prune sessions, by command or automatically (``archive_after_days``), under
# the lock.
#
# The file name alone decides which session a file is. Its forks remain, and so does an agent's
# memory of it.

_AT_ONCE = 1000  # sessions that one run archives automatically; the next run continues


# ``used``: it was kept, because another process used or archived it. ``gone``: another process
# deleted it.
State = Literal["deleted", "archived", "already archived", "used", "gone"]


class Change(NamedTuple):
    """What happened to a session; its list row (None: unreadable), and its names."""

    filename: str
    state: State
    was: SessionSummary | None
    names: Sequence[str]


Report = Callable[[Change], object]  # gets each change once it is made


def delete(
    sessions: Mapping[str, str | None],
    report: Report,
    *,
    from_archive: bool = False,
) -> None:
    """Delete the sessions with these file names one by one; ``report`` gets each change.

    A session with an ``updated_at`` is kept if that has changed since, or if it was moved: it
    is expected among the sessions, or ``from_archive`` in the archive. The names of a deleted
    session become free.
    Raises StoreBusy if the lock is not free in time, else StoreError. What was changed before is
    reported.
    """
    expected_folder = archive_folder() if from_archive else sessions_folder()
    names = folders.names_by_file()
    leftovers = _leftovers()
    with _synced_folders():
        for filename, updated_at in sessions.items():
            with _locked("the session cannot be deleted", locks.LOCK_WAIT):
                was = summary_at(filename)
                state = _state_if_kept(filename, was, updated_at, expected_folder)
                if state is None:
                    _delete(folders.path_of(filename), leftovers)
                    folders.free_names(names.get(filename, ()), filename)
                    state = "deleted"
            report(Change(filename, state, was=was, names=names.get(filename, ())))


def archive(
    sessions: Mapping[str, str | None],
    report: Report | None = None,
    *,
    wait: float = locks.LOCK_WAIT,
) -> None:
    """Archive the sessions with these file names one by one; ``report`` gets each change.

    A session is kept in the cases in which ``delete`` keeps it. Its names still point at it.
    Raises StoreBusy if the lock is not free after ``wait`` seconds, else StoreError. What was
    changed before is reported.
    """
    names = folders.names_by_file()
    with _synced_folders():
        for filename, updated_at in sessions.items():
            with _locked("the session cannot be archived", wait):
                path = folders.path_of(filename)
                was = summary_at(filename)
                state = _state_if_kept(filename, was, updated_at, sessions_folder())
                if state is None and path.parent == archive_folder():
                    state = "already archived"
                elif state is None:
                    move_to_archive(path)
                    state = "archived"
            if report:
                report(Change(filename, state, was=was, names=names.get(filename, ())))


@contextlib.contextmanager
def _locked(problem: str, wait: float) -> Iterator[None]:
    """Hold the store's lock while the block changes a session. Raises StoreBusy or StoreError."""
    folder = sessions_folder()
    with files.as_store_error(problem, folder), locks.locked(folder.parent, wait):
        yield


@contextlib.contextmanager
def _synced_folders() -> Iterator[None]:
    """Wait after the block until its changes are on disk."""
    try:
        yield
    finally:
        # The files are removed; only a power cut may bring them back.
        with contextlib.suppress(OSError):
            for folder in (sessions_folder(), archive_folder()):
                if folder.is_dir():
                    files.sync(folder)


def _state_if_kept(
    filename: str,
    was: SessionSummary | None,
    updated_at: str | None,
    expected_folder: Path,
) -> State | None:
    """Return why a session is not to be changed; None if it is to be changed."""
    if not folders.exists(filename):
        return "gone"
    if updated_at is None:
        return None
    is_moved = folders.path_of(filename).parent != expected_folder
    is_changed = was is None or was["updated_at"] != updated_at
    return "used" if is_moved or is_changed else None


def _leftovers() -> list[Path]:
    """Return the temporary files of killed processes, which contain messages."""
    leftovers = []
    for folder in (sessions_folder(), archive_folder()):
        for name in names_in(folder):
            if files.is_temporary(name):
                leftovers.append(folder / name)
    return leftovers


def _delete(path: Path, leftovers: Iterable[Path]) -> None:
    """Remove a session from both folders, with all that other files keep of it. Raises OSError."""
    _forget_questions(path)
    for folder in (sessions_folder(), archive_folder()):
        (folder / path.name).unlink(missing_ok=True)
    for leftover in leftovers:
        if leftover.name.startswith(path.name):
            leftover.unlink(missing_ok=True)
    approvals.forget_approvals(path.name)


def _forget_questions(path: Path) -> None:
    """Remove the questions of a session from those that the prompt of a conversation remembers."""
    if not os.path.lexists(folders.typed_file()):
        return
    with contextlib.suppress(OSError, ValueError):
        doc, _ = document.read_document(path)
        questions = filter(starts_turn, doc["messages"])
        _forget_typed({typed_text(question) for question in questions})


def _forget_typed(texts: Collection[str]) -> None:
    """Remove the entries with these texts. The caller holds the store's lock. Raises OSError."""
    data = files.read_bytes(folders.typed_file(), _MAX_TYPED)
    content = data.decode("utf-8", "surrogateescape")
    remaining = []
    for entry in content.split("\n# "):  # a time; the lines after it begin with a plus sign
        lines = [line[1:] for line in entry.split("\n")[1:] if line.startswith("+")]
        if "\n".join(lines) not in texts:
            remaining.append(entry)
    new = "\n# ".join(remaining)
    if new != content:
        new_data = new.encode("utf-8", "surrogateescape")
        files.replace(folders.typed_file(), new_data, fsync=False)


# ---- which sessions to prune or archive


def select_to_prune(
    items: Iterable[SessionSummary],
    keep: int | None,
    before: datetime | None,
    limit: int | None,
) -> list[SessionSummary]:
    """Return the sessions to prune, least recently used first, at most ``limit``.

    The ``keep`` most recently used remain, those used since ``before``, and those without a valid
    time.
    """
    dated: list[tuple[datetime, str, SessionSummary]] = []
    for item in items:
        used = used_at(item)
        if used is not None:
            dated.append((used, item["filename"], item))
    dated.sort(key=lambda entry: entry[:2], reverse=True)

    pruned = []
    for used, _, item in dated[keep or 0 :]:
        if before is None or used < before:
            pruned.append(item)
    pruned.reverse()
    return pruned[:limit]


def archive_old(rules: Sessions, just_used: str) -> None:
    """Archive sessions older than ``archive_after_days``, and those beyond ``max_sessions``.

    ``just_used`` is the file name of a session that is kept. The age of an imported session counts
    from its import. Raises StoreError, or BadSession for an unreadable folder.
    """
    archive(_old_sessions(rules, just_used), wait=0)


def _old_sessions(rules: Sessions, just_used: str) -> dict[str, str | None]:
    """Return the file names of the sessions to archive, oldest first, with their ``updated_at``."""
    since = 0.0
    if rules.archive_after_days:
        since = time.time() - rules.archive_after_days * 86400
    oldest_first = by_file_time(sessions_folder())[::-1]
    excess = 0
    if rules.max_sessions:
        excess = len(oldest_first) - rules.max_sessions
    archived = set(names_in(archive_folder()))

    old: dict[str, str | None] = {}
    for position, (file_time, name) in enumerate(oldest_first):
        if len(old) == _AT_ONCE:
            break
        is_beyond = position < excess
        is_recent = not is_beyond and file_time >= since
        if is_recent or name == just_used:
            continue
        path = folders.path_of(name)
        # If another session has this name in the archive, nobody knows which of the two is to stay.
        if name in archived and not is_same_session(path, archive_folder() / name):
            continue
        head = try_read(str(path), read_head)
        if head is None or isinstance(head, Unreadable):
            continue
        if is_beyond or imported_at(as_dict(head.get("meta"))) < since:
            old[name] = summary_of(head, None, name)["updated_at"]
    return old
