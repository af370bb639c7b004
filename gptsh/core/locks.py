"""The lock: one writer at a time, also among processes. It is a lock on a file beside the sessions (``.lock``)."""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gptsh.core.files import is_due, open_own
from gptsh.errors import StoreBusy

LOCK_WAIT = 5.0  # seconds; a save holds the lock for milliseconds
SHORT_LOCK_WAIT = 3.0  # seconds; for a save before the model is asked
_PAUSE, _LONG_PAUSE = 0.005, 0.05  # seconds between two attempts; each costs a network file system several messages
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)  # some NFS, FUSE and WSL mounts
_DAY = 86_400  # seconds


@contextlib.contextmanager
def locked(path: Path, wait: float = LOCK_WAIT, note: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the lock file while the block runs.

    It is no session file: replacing that would leave the lock on a dead inode. A file system without locks gets a
    file beside it; ``note`` receives a line about that, once a day. Raises StoreBusy if another process holds the lock
    for more than ``wait`` seconds, OSError if it cannot be created.
    """
    with contextlib.ExitStack() as stack:
        descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
        stack.callback(os.close, descriptor)
        if os.fstat(descriptor).st_mode & 0o077:
            with contextlib.suppress(PermissionError):  # owned by another user, who shares it on purpose
                os.fchmod(descriptor, 0o600)
        try:
            _take(lambda: _flock(descriptor), path, wait, _PAUSE)
        except OSError as err:
            if err.errno not in _NO_LOCKS:
                raise
            from gptsh.core.lock_files import LockFile

            lock = LockFile(path)
            _take(lock.take, path, wait, _LONG_PAUSE)
            stack.callback(lock.release)
            if note and is_due(path.with_name(f"{path.name}.noted"), _DAY):
                note(f"{path.parent} is on a file system without locks: gptsh uses a lock file there")
        yield


def _take(take: Callable[[], bool], path: Path, wait: float, longest: float) -> None:
    """Try to take a lock until it is taken, with pauses of at most ``longest`` seconds. Raises StoreBusy."""
    deadline, pause = time.monotonic() + wait, 0.001
    while not take():
        if time.monotonic() > deadline:
            raise StoreBusy(f"{path} is locked by another process", "try again")
        time.sleep(pause)
        pause = min(pause * 1.5, longest)


def _flock(descriptor: int) -> bool:
    """Lock an open file; False if another process has locked it. Raises OSError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
