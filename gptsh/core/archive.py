"""The archive: a session moves there and back, on another disk too: each folder may be a link to one."""

import errno
import os
from pathlib import Path

from gptsh import files
from gptsh.core import session_files
from gptsh.core.merge import merge
from gptsh.core.session_folders import archive_folder, make_private, same_folder


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
    """Move a session file to the archive. If an older file of the session is there, that gets what is new.

    Raises OSError; FileExistsError if the file in the archive is another session.
    """
    folder = archive_folder()
    make_private(folder)
    target = folder / path.name
    if not os.path.lexists(target) or same_folder(path.parent, folder):
        move(path, folder)
        return
    if not is_same_session(path, target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    current, _ = session_files.read_document(path)
    older, _ = session_files.read_document(target)
    status = path.stat()
    session_files.write_document(target, merge(older, current), fsync=True)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    path.unlink()


def is_same_session(path: Path, other: Path) -> bool:
    """Whether two files of one name are versions of one session, as far as they can be read."""
    try:
        created = {session_files.read_head(str(file))["created_at"] for file in (path, other)}
    except (OSError, ValueError, KeyError):
        return False
    return len(created) == 1
