"""Moves between the folder of sessions and the archive, and the session that is in both of them.

A session is in both if a process died between the two steps of a move to another disk, or if a program that syncs
folders brought an old file back. Each folder may be a link to another file system.
"""

import contextlib
import errno
import os
from pathlib import Path

from gptsh.core import document, files
from gptsh.core.document import Document
from gptsh.core.references import archive_folder, make_private, sessions_folder


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
    """Move a session file to the archive; if the archive has a copy of it, join the two there.

    Raises OSError; FileExistsError if the file in the archive is not a copy of this session.
    """
    folder = archive_folder()
    make_private(folder)
    target = folder / path.name
    if not os.path.lexists(target):
        move(path, folder)
        return
    copy = copy_of(path)
    if copy is None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    status = path.stat()
    files.write_document(target, join(files.read_document(path)[0], copy), fsync=True)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    path.unlink()


def copy_of(path: Path) -> Document | None:
    """Return the archive's copy of a session among the others; None if it has none, or another session of this name."""
    other = archive_folder() / path.name
    if path.parent != sessions_folder() or not os.path.lexists(other):
        return None
    with contextlib.suppress(OSError, ValueError):
        if not os.path.samefile(path, other):
            copy = files.read_document(other)[0]
            if copy["created_at"] == files.read_head(str(path)).get("created_at"):
                return copy
    return None


def join(doc: Document, copy: Document) -> Document:
    """Return the union of a session and a copy of it. What only one of them can decide, the newer one does."""
    older, newer = sorted((doc, copy), key=lambda each: str(each["updated_at"]))
    return {**document.merge(newer, older), "updated_at": newer["updated_at"]}
