"""Lock the store while it is changed; claim a turn or title, and tell whether another run has claimed it."""

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

from gptsh import files
from gptsh.core.folders import make_private, sessions_folder
from gptsh.errors import StoreBusy
from gptsh.files import is_due, open_own

# ---- locks
#
# A lock for a folder: writers get it in turn. It ends with its process, however that ends.

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


# ---- claims
#
# Claims: which turn or title a running process is working on, so that no other run does the same.
#
# A claim is a lock on one byte of a file beside the sessions. It ends with its process, however
# that ends.

BACKGROUND_CLAIM = 2 << 32  # the process that makes titles
_TURNS = 1 << 32  # the first bytes are turns, then come the titles of sessions
_ATTEMPTS, _PAUSE = 5, 0.002  # a process that looks at a claim holds it for microseconds
_SHARED, _EXCLUSIVE = fcntl.LOCK_SH | fcntl.LOCK_NB, fcntl.LOCK_EX | fcntl.LOCK_NB


class _Claims:
    """The claims of this process, whose threads may ask several turns at once.

    The locks of a file are those of the process: so ``_own`` says what its threads have claimed.
    """

    def __init__(self) -> None:
        self._guard = threading.RLock()  # of this object, for microseconds
        self._own: set[int] = set()
        # Path and descriptor. Closing any descriptor of the file ends all claims of the process.
        self._opened: tuple[str, int] | None = None

    def take(self, claim: int) -> bool:
        """Claim something; False if another run has claimed it."""
        with self._guard:
            if claim in self._own or not self._lock(claim):
                return False
            self._own.add(claim)
            return True

    def _lock(self, claim: int) -> bool:
        for _ in range(_ATTEMPTS):
            try:
                fcntl.lockf(self._descriptor(create=True), _EXCLUSIVE, 1, claim)
            except (BlockingIOError, PermissionError):  # POSIX allows both
                time.sleep(_PAUSE)
            except OSError:  # files cannot be locked
                return True
            else:
                return True
        return False

    def release(self, claim: int) -> None:
        """End a claim, if this process has it."""
        with self._guard:
            self._own.discard(claim)
            if self._opened is not None:
                with contextlib.suppress(OSError):
                    fcntl.lockf(self._opened[1], fcntl.LOCK_UN, 1, claim)

    def is_any_taken(self, length: int, start: int) -> bool:
        """Whether one of these claims is taken: by a thread of this process, or by another process."""
        with self._guard:
            if any(start <= claim and (length == 0 or claim < start + length) for claim in self._own):
                return True  # to ask the file would end that claim
            try:
                fcntl.lockf(self._descriptor(create=False), _SHARED, length, start)
            except (BlockingIOError, PermissionError):
                return True
            except OSError:  # no such file, or files cannot be locked
                return False
            fcntl.lockf(self._descriptor(create=False), fcntl.LOCK_UN, length, start)
            return False

    def close(self) -> None:
        """Close the file, which ends all claims of the process."""
        if self._opened is not None:
            os.close(self._opened[1])
            self._opened = None

    def _descriptor(self, *, create: bool) -> int:
        """The file of the claims, opened once. Raises OSError."""
        folder = sessions_folder().parent
        path = str(folder / ".claims")
        if self._opened is None or self._opened[0] != path:
            if create:
                make_private(folder)
            descriptor = files.open_own(path, os.O_RDWR | (os.O_CREAT if create else 0))
            if self._opened is not None:
                os.close(self._opened[1])
            self._opened = path, descriptor
            self._own.clear()
        return self._opened[1]


_claims = _Claims()


def _forget_claims() -> None:
    """In a forked child: it claims nothing, since these locks are those of its parent."""
    global _claims
    _claims.close()
    _claims = _Claims()


os.register_at_fork(after_in_child=_forget_claims)


def claim_of_turn(question_id: str) -> int:
    """The claim on the turn that begins with this question."""
    return crc32(question_id.encode("utf-8", "surrogatepass"))


def claim_of_title(filename: str) -> int:
    """The claim on the title of a session."""
    return _TURNS + crc32(filename.encode())


def take_claim(claim: int) -> bool:
    """Claim something until ``release`` or the end of the process; False if another run has claimed it.

    True also where files cannot be locked.
    """
    return _claims.take(claim)


def release_claim(claim: int) -> None:
    """End a claim of this process, if it has it."""
    _claims.release(claim)


@contextlib.contextmanager
def claim(claim: int) -> Iterator[None]:
    """Claim something inside this block, if nobody else has claimed it."""
    is_own = take_claim(claim)
    try:
        yield
    finally:
        if is_own:
            release_claim(claim)


def is_claimed(claim: int) -> bool:
    """Whether a run has this claim, in this process or another one."""
    return _claims.is_any_taken(1, claim)


def is_any_turn_claimed() -> bool:
    """Whether a run asks a turn of any session."""
    return _claims.is_any_taken(_TURNS, 0)
