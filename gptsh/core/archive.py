"""The archive: a session moves there and back, on another disk too; its copies are joined into it and removed.

A session is in both folders if a process died between the two steps of a move to another disk, or if a program that
syncs folders brought an old file back. Each folder may be a link to another file system.
"""

import errno
import os
from pathlib import Path

from gptsh.core import copies, files, session_files
from gptsh.core.copies import Whole
from gptsh.core.session_folders import archive_folder, files_of, make_private

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
