"""Moves between the folder of sessions and the archive, and the writing of a session that has copies.

A session is in both folders if a process died between the two steps of a move to another disk, or if a program that
syncs folders brought an old file back. Each folder may be a link to another file system.
"""

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gptsh.core import copies, deletions, files, locks, session_files
from gptsh.core.copies import Whole
from gptsh.core.document import VERSION, Document
from gptsh.core.references import (
    FILENAME,
    archive_folder,
    beside,
    copies_in,
    files_of,
    is_deleted,
    make_private,
    marks_of,
    names_in,
    path_of,
    sessions_folder,
)

_LATER = 1_000_000_000  # nanoseconds


def move(source: Path, folder: Path) -> Path:
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
    """Move a session file to the archive; if it has copies, join them there.

    Raises OSError; FileExistsError if the file in the archive is not a copy of this session.
    """
    folder = archive_folder()
    make_private(folder)
    target = folder / path.name
    if files_of(path.name) == [path]:
        move(path, folder)
        return
    whole = copies.read(path)
    if target in (other for other, _ in whole.left_alone):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    write_whole(whole, path, target)


def write_whole(whole: Whole, path: Path, target: Path) -> None:
    """Write a session that was read from ``path`` to ``target``, then remove its other files.

    Its file time is a second after theirs, since ``rsync -u`` goes by seconds. Raises OSError, StoreError.
    """
    times = max((os.stat(file) for file in (path, *whole.copies) if os.path.exists(file)), key=lambda of: of.st_mtime)
    session_files.write_document(target, whole.doc, fsync=True)
    os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns + _LATER))
    for file in {path, *whole.copies} - {target}:
        file.unlink(missing_ok=True)


def mark_deleted(filename: str) -> None:
    """Write a mark for other machines that this session is deleted, unless it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        deletions.write_mark(sessions_folder(), copies.read(path_of(filename)).doc, filename)


def sweep_marks() -> None:
    """Remove old marks of deleted sessions."""
    folder = sessions_folder()
    deletions.sweep(folder / mark for marks in beside(folder).marks.values() for mark in marks)


def remove_deleted(filename: str) -> None:
    """Remove the files of a session that another machine deleted. Raises OSError."""
    for file in copies.to_delete(filename):
        file.unlink(missing_ok=True)


class Join(NamedTuple):
    """What became of a session with copies or marks: ``copies`` were joined and removed.

    ``left_alone`` are other files, and why. ``doc`` is None if the session itself is one of them. ``deleted``: another
    machine had deleted it, and now it is deleted here. ``is_back``: another machine went on, so the marks were removed.
    """

    filename: str
    doc: Document | None = None
    copies: Sequence[Path] = ()
    left_alone: Sequence[tuple[Path, str]] = ()
    deleted: bool = False
    is_back: bool = False


def join_all() -> Iterator[Join]:
    """Join each session in either folder with its copies, one at each step of the iterator, oldest first.

    Sessions that another machine deleted are deleted, and old marks removed.
    Raises StoreError, StoreBusy, or BadSession for an unreadable folder.
    """
    folder, archive_path = sessions_folder(), archive_folder()
    sweep_marks()
    names, archived = {*names_in(folder)}, {*names_in(archive_path)}
    in_both = filter(FILENAME.fullmatch, names & archived)
    with_copies = {*copies_in(folder), *copies_in(archive_path)}
    for filename in sorted({*in_both, *with_copies, *beside(folder).marks.keys() & (names | archived)}):
        saving = files.as_store_error("the session cannot be saved", folder)
        with saving, locks.locked(folder.parent / ".lock"):
            join = _join(path_of(filename))
        yield join


def _join(path: Path) -> Join:
    """Join a session with its copies, under the lock. Raises OSError, StoreError."""
    filename = path.name
    try:
        whole = copies.read(path)
    except FileNotFoundError:  # deleted meanwhile
        return Join(filename)
    except (OSError, ValueError) as err:
        return Join(filename, left_alone=[(path, getattr(err, "strerror", None) or str(err))])
    if whole.doc["version"] > VERSION:
        return Join(filename, left_alone=[(path, "it was written by a newer gptsh")])
    if is_deleted(filename):
        remove_deleted(filename)
        return Join(filename, whole.doc, deleted=True)
    if whole.copies:
        write_whole(whole, path, path)
    marks = marks_of(filename)
    for mark in marks:
        mark.unlink(missing_ok=True)
    return Join(filename, whole.doc, whole.copies, whole.left_alone, is_back=bool(marks))
