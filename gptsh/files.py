"""Read and replace single files safely, and find the XDG folders that gptsh uses."""

import contextlib
import errno
import functools
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, ParamSpec, TypeVar

from platformdirs.unix import Unix

from gptsh.errors import ConfigError, StoreError
from gptsh.text import format_size

# ---- files
#
# A file is replaced in one step: a reader sees the old file or the new one, and a killed process
# leaves at most a temporary file. A link that another user made is never followed.

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")

MAX_SIZE = 1_000_000_000  # bytes; a larger file is not read
READ = os.O_RDONLY | os.O_NONBLOCK  # O_NONBLOCK: do not wait for a named pipe in the folder
_TEMPORARY = re.compile(r".+\.[0-9]+\.[0-9a-f]{6}\.tmp", re.DOTALL)  # see ``replace_pieces``
STALE_AFTER = 3600  # seconds; an older temporary file was left by a killed process
# What O_NOFOLLOW says of a link: on FreeBSD the second, with O_DIRECTORY the third.
_IS_LINK = (errno.ELOOP, errno.EMLINK, errno.ENOTDIR)
_BUFFER = 1 << 18  # bytes that are written at once
_LEVELS = 4  # folders from a file of the store up to the state folder
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP)  # CIFS and FUSE, for a folder: its names are written


def refuse_foreign_links(path: Path | str) -> None:
    """Raise OSError if the path, or a folder of the store that leads to it, is a foreign link.

    Such a link could have a file of this user overwritten. One's own links lead to a synced folder,
    or to another disk.
    """
    for place in (Path(path), *Path(path).parents[:_LEVELS]):
        with contextlib.suppress(FileNotFoundError):
            status = place.lstat()
            if stat.S_ISLNK(status.st_mode) and is_foreign(status):
                raise OSError(errno.ELOOP, "a link of another user", str(place))


def is_foreign(status: os.stat_result) -> bool:
    """Return whether a file belongs neither to this user nor to root."""
    return status.st_uid not in (os.geteuid(), 0)


def open_own(path: Path | str, flags: int) -> int:
    """Open a file, with mode 0600 if it is new; by a link only if it is this user's, or root's.

    Raises OSError.
    """
    try:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as err:
        if err.errno not in _IS_LINK:
            raise
    refuse_foreign_links(path)
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def stamp_if_due(stamp: Path, seconds: float) -> bool:
    """Touch an empty file, the stamp, unless it is younger than so many seconds.

    Return whether it was touched, or cannot be.
    """
    with contextlib.suppress(OSError):
        if stamp.exists() and time.time() - stamp.stat().st_mtime < seconds:
            return False
        stamp.touch(mode=0o600)
    return True


def again_if_stale(work: Callable[_Args, _Result]) -> Callable[_Args, _Result]:
    """Let a function run once more after ESTALE: another machine of a network replaced a file."""

    @functools.wraps(work)
    def call(*args: _Args.args, **more: _Args.kwargs) -> _Result:
        try:
            return work(*args, **more)
        except OSError as err:
            if err.errno != errno.ESTALE:
                raise
        return work(*args, **more)

    return call


@again_if_stale
def replace(path: Path, data: bytes, *, fsync: bool) -> None:
    """Replace the file, or the target of one's own link, atomically with mode 0600.

    ``fsync`` waits for the disk. Raises OSError: the file is the old one, or not on disk yet.
    """
    replace_pieces(path, [data], fsync=fsync)


def replace_pieces(path: Path, pieces: Iterable[bytes], *, fsync: bool) -> None:
    """Replace a file as ``replace`` does, with pieces one after the other. Raises OSError."""
    refuse_foreign_links(path)
    target = os.path.realpath(path)
    temporary = f"{target}.{os.getpid()}.{os.urandom(3).hex()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb", buffering=_BUFFER) as file:
            file.writelines(pieces)
            file.flush()
            if fsync:
                _fsync(descriptor)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if fsync:
        sync(os.path.dirname(target))


def _fsync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as err:
        if err.errno not in _NO_SYNC:
            raise


@again_if_stale
def sync(path: Path | str) -> None:
    """Wait until a file, or the names in a folder, are on disk, if the file system can wait.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def as_store_error(problem: str, folder: Path) -> Iterator[None]:
    """Raise an OSError of the block as StoreError, with the file or else ``folder``."""
    try:
        yield
    except OSError as err:
        place = err.filename2 or err.filename or folder
        raise StoreError(f"{problem}: {place}: {err.strerror}") from err


def sweep(folder: Path, names: list[str]) -> None:
    """Remove the temporary files among ``names`` that a killed process left."""
    for name in names:
        path = folder / name
        with contextlib.suppress(OSError):  # another process swept it first
            if is_temporary(name) and time.time() - path.stat().st_mtime > STALE_AFTER:
                path.unlink()


def is_temporary(name: str) -> bool:
    """Return whether a file is one that ``replace_pieces`` writes before it replaces another."""
    return bool(_TEMPORARY.fullmatch(name))


@again_if_stale
def read_bytes(path: Path | str, limit: int = MAX_SIZE) -> bytes:
    """Return the bytes of a file, in half the time of ``Path.read_bytes``.

    Raises OSError, also if it is no regular file, or larger than the limit.
    """
    descriptor = open_own(path, READ)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if status.st_size > limit:
            raise OSError(errno.EFBIG, f"larger than {format_size(limit)}")
        data = b""
        while piece := os.read(descriptor, status.st_size - len(data)):  # usually one
            data += piece
        return data
    finally:
        os.close(descriptor)


# ---- folders
#
# Where gptsh keeps its files: the XDG folders for state, config and cache, on macOS too.


def app_folder(kind: Literal["state", "config", "cache"]) -> Path:
    """Return ``${XDG_STATE_HOME:-~/.local/state}/gptsh``, or another folder; it may not exist.

    Raises ConfigError if the user has no home folder.
    """
    try:
        return Path(getattr(Unix("gptsh", appauthor=False), f"user_{kind}_dir"))
    except RuntimeError as err:
        ways = "set HOME, or XDG_STATE_HOME and XDG_CONFIG_HOME; --no-save needs none"
        raise ConfigError("this user has no home folder", ways) from err


# ---- text file
#
# Read a text file that the user or the configuration names: of at most 1 MB, as a rule.

_MAX_BYTES = 1_000_000


def read_text(path: Path, *, max_bytes: int = _MAX_BYTES, may_be_pipe: bool = False) -> str:
    """Return the text of a file in UTF-8, without its byte order mark.

    ``may_be_pipe``: the user named it on the command line, as in ``--config <(…)``. Raises
    OSError, also for a file that is too large or no regular file, and UnicodeDecodeError.
    """
    if not may_be_pipe and not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe may wait
        raise OSError(errno.EINVAL, "not a regular file")
    with open(path, "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {format_size(max_bytes)}")
    return data.decode("utf-8-sig")
