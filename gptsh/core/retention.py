"""Delete and archive sessions: by command, by ``--prune-sessions``, and old ones after a turn."""

import contextlib
import errno
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from gptsh.core.usage import update_totals
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
        joined = merge(older, current)
        update_totals(joined)
        document.write_document(path, joined, fsync=True)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    move_session(path, folder)


def is_same_session(path: Path, other: Path) -> bool:
    """Whether two files of one name are versions of one session, as far as they can be read."""
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


# ``used``: it was kept, because it was used or archived meanwhile. ``gone``: another process
# deleted it.
State = Literal["deleted", "archived", "already archived", "used", "gone"]


class Change(NamedTuple):
    """What happened to a session; its list row (None: unreadable), and its names."""

    filename: str
    state: State
    was: SessionSummary | None
    names: Sequence[str]


def remove(
    sessions: Mapping[str, str | None],
    *,
    archive: bool = False,
    from_archive: bool = False,
    wait: float = locks.LOCK_WAIT,
) -> Iterator[Change]:
    """Delete the sessions with these file names, or archive them: one at each step of the iterator.

    A session with an ``updated_at`` is kept if that has changed meanwhile, or if it was moved: it
    is expected among the sessions, or ``from_archive`` in the archive. The names of a deleted
    session become free; those of an archived one still point at it.
    Raises StoreBusy if the lock is not free after ``wait`` seconds, else StoreError.
    """
    places = (sessions_folder(), archive_folder())
    names = folders.names_by_file()
    problem = f"the session cannot be {'archived' if archive else 'deleted'}"
    leftovers: list[Path] = []  # temporary files of killed processes, which contain messages
    for place in places:
        leftovers += [place / name for name in names_in(place) if files.is_temporary(name)]
    try:
        for filename, updated_at in sessions.items():
            with (
                files.as_store_error(problem, places[0]),
                locks.locked(places[0].parent, wait),
            ):
                path = folders.path_of(filename)
                is_archived = path.parent == places[1]
                was = summary_at(filename)
                is_changed = (
                    is_archived != from_archive or not was or was["updated_at"] != updated_at
                )
                state: State
                if not folders.exists(filename):
                    state = "gone"
                elif updated_at and is_changed:
                    state = "used"
                elif archive and is_archived:
                    state = "already archived"
                elif archive:
                    move_to_archive(path)
                    state = "archived"
                else:
                    _delete(path, leftovers)
                    folders.free_names(names.get(filename, ()), filename)
                    state = "deleted"
            yield Change(filename, state, was, names.get(filename, ()))
    finally:
        # The files are removed; only a power cut may bring them back.
        with contextlib.suppress(OSError):
            for place in places:
                if place.is_dir():
                    files.sync(place)


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
    since = 0.0
    if rules.archive_after_days:
        since = time.time() - rules.archive_after_days * 86400
    dated = by_file_time(sessions_folder())[::-1]
    excess = len(dated) - rules.max_sessions if rules.max_sessions else 0
    archived = set(names_in(archive_folder()))
    old: dict[str, str | None] = {}
    for position, (file_time, name) in enumerate(dated):
        is_beyond = position < excess
        if not is_beyond and file_time >= since:
            continue
        if name == just_used or len(old) == _AT_ONCE:
            continue
        path = folders.path_of(name)
        # If another session has this name in the archive, nobody knows which of the two is to stay.
        if name in archived and not is_same_session(path, archive_folder() / name):
            continue
        head = try_read(str(path), read_head)
        if isinstance(head, Unreadable) or head is None:
            continue
        if is_beyond or imported_at(as_dict(head.get("meta"))) < since:
            old[name] = summary_of(head, None, name)["updated_at"]
    for _ in remove(old, archive=True, wait=0):  # each step archives one
        pass
