"""A lock for a folder: writers get it in turn. It ends with its process, however that ends."""

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from gptsh.errors import StoreBusy
from gptsh.files import is_due, open_own

LOCK_WAIT = 5.0  # seconds; a save holds the lock for milliseconds
_USUAL_WAIT = 1.0  # seconds that a save may wait for other saves before the user is told
SHORT_LOCK_WAIT = 3.0  # seconds; for a save before the model is asked
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)  # some NFS, FUSE and WSL mounts
_DAY = 86_400  # seconds


@contextlib.contextmanager
def locked(folder: Path, wait: float = LOCK_WAIT, note: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the lock of a folder while the block runs.

    The lock is on the folder itself, so that nobody can remove it, and no file that is replaced: that would leave it
    on a dead inode. Where the file system cannot lock folders it is on ``.lock`` in it, and where it has no locks at
    all there is none: then ``note`` receives a line, once a day.
    ``note`` also receives one after a second of waiting. Raises StoreBusy if ``wait`` seconds pass in which no other
    process gets the lock, OSError if the folder cannot be opened.
    """
    with contextlib.ExitStack() as stack:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(_close, descriptor)
        _open.add(descriptor)
        is_free = _try_lock(descriptor)
        if is_free is None:
            descriptor = open_own(folder / ".lock", os.O_RDWR | os.O_CREAT)
            stack.callback(_close, descriptor)
            _open.add(descriptor)
            is_free = _try_lock(descriptor)
        if is_free is None:
            if note and is_due(folder / ".unlocked.noted", _DAY):
                note(f"{folder} is on a file system without locks: do not use gptsh twice at once there")
        elif not is_free:
            _wait_in_turn(descriptor, folder, wait, note)
        with contextlib.suppress(OSError):  # owned by another user, who shares it
            os.utime(descriptor)  # for those who wait: somebody got the lock
        yield


_open: set[int] = set()  # descriptors of this process that have a lock, or wait for it


def _close(descriptor: int) -> None:
    if descriptor in _open:
        _open.discard(descriptor)
        os.close(descriptor)


def _close_all() -> None:
    """In a forked child: have no lock, which would last as long as the child."""
    for descriptor in [*_open]:
        _close(descriptor)


os.register_at_fork(after_in_child=_close_all)


def _try_lock(descriptor: int) -> bool | None:
    """Lock an open file or folder; False if another process has locked it, None if it cannot be locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as err:
        if err.errno in (errno.EBADF, *_NO_LOCKS):  # NFS locks no folder
            return None
        raise
    return True


def _wait_in_turn(descriptor: int, folder: Path, wait: float, note: Callable[[str], None] | None) -> None:
    """Wait in the kernel's queue for the lock. Raises StoreBusy after ``wait`` seconds without a change of owner."""
    own = os.dup(descriptor)
    _open.add(own)
    taken = threading.Event()

    def take() -> None:
        try:
            fcntl.flock(own, fcntl.LOCK_EX)
            taken.set()
        finally:
            _close(own)  # the last one if the wait was given up: then this releases the lock

    threading.Thread(target=take, daemon=True).start()
    changed = os.fstat(descriptor).st_mtime_ns
    if taken.wait(min(wait, _USUAL_WAIT)):
        return
    if note and wait > _USUAL_WAIT:
        note("waiting to save: another process uses the sessions")
    while not taken.wait(max(0.0, wait - _USUAL_WAIT)):
        before, changed = changed, os.fstat(descriptor).st_mtime_ns
        if changed == before:
            raise StoreBusy(f"{folder} is locked by another process", "try again")
