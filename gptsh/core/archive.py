"""Moves between the folder of sessions and the archive, and the writing of a session that has copies.

A session is in both folders if a process died between the two steps of a move to another disk, or if a program that
syncs folders brought an old file back. Each folder may be a link to another file system.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gptsh.core import copies, files
from gptsh.core.copies import Whole
from gptsh.core.document import VERSION, Document
from gptsh.core.references import (
    archive_folder,
    copies_in,
    files_of,
    make_private,
    path_of,
    session_names,
    sessions_folder,
)


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
    """Write a session that was read from ``path`` to ``target``, then remove its other files. Its file time remains.

    Raises OSError, StoreError.
    """
    times = max((os.stat(file) for file in (path, *whole.copies) if os.path.exists(file)), key=lambda of: of.st_mtime)
    files.write_document(target, whole.doc, fsync=True)
    os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
    for file in {path, *whole.copies} - {target}:
        file.unlink(missing_ok=True)


class Join(NamedTuple):
    """One session, joined with its copies: these were removed. ``left_alone`` are other files, and why.

    ``doc`` is None if the session itself was left alone.
    """

    filename: str
    doc: Document | None
    copies: list[Path]
    left_alone: list[tuple[Path, str]]


def join_all() -> Iterator[Join]:
    """Join each session in either folder with its copies, one at each step of the iterator, oldest first.

    Raises StoreError, StoreBusy, or BadSession for an unreadable folder.
    """
    folder = sessions_folder()
    in_both = {*session_names(folder)} & {*session_names(archive_folder())}
    for filename in sorted({*in_both, *copies_in(folder), *copies_in(archive_folder())}):
        saving = files.as_store_error("the session cannot be saved", folder)
        with saving, files.locked(folder.parent / ".lock"):
            join = _join(path_of(filename))
        yield join


def _join(path: Path) -> Join:
    """Join a session with its copies, under the lock. Raises OSError, StoreError."""
    try:
        whole = copies.read(path)
    except FileNotFoundError:  # deleted meanwhile
        return Join(path.name, None, [], [])
    except (OSError, ValueError) as err:
        return Join(path.name, None, [], [(path, getattr(err, "strerror", None) or str(err))])
    if whole.doc["version"] > VERSION:
        return Join(path.name, None, [], [(path, "it was written by a newer gptsh")])
    if whole.copies:
        write_whole(whole, path, path)
    return Join(path.name, whole.doc, whole.copies, whole.left_alone)
