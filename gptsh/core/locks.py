"""Lock the store while it is changed; claim a turn or title, so that no other run does it too."""

import contextlib
import contextvars
import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

from gptsh.core.folders import make_private, sessions_folder
from gptsh.errors import StoreBusy
from gptsh.files import open_own, stamp_if_due

# ---- locks
#
# A lock for a folder. It ends with its process, however that ends.

LOCK_WAIT = 5.0  # seconds; for what the user can do again; a save holds the lock for milliseconds
SHORT_LOCK_WAIT = 3.0  # seconds; for a save before the model is asked
_USUAL_WAIT = 1.0  # seconds that a save may wait for other saves before the user is told
_PAUSE = 0.005  # seconds between two attempts
_EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB
# NFS locks no folder; some NFS, FUSE and WSL mounts lock nothing.
_NO_LOCKS = (errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)
_DAY = 86_400  # seconds

_lock_descriptors: set[int] = set()  # of this process, each with a lock or waiting for it


@contextlib.contextmanager
def locked(
    folder: Path,
    wait: float | None = LOCK_WAIT,
    note: Callable[[str], None] | None = None,
) -> Iterator[None]:
    """Hold the lock of a folder while the block runs.

    ``wait`` is for how many seconds to try; None waits as long as it takes, and those who wait so
    get the lock in the order in which they came. ``note`` receives a line after a second, and once
    a day where there are no locks.
    Raises StoreBusy if the lock is not free in time, OSError if the folder cannot be opened.

    The lock is on the folder itself, so that nobody can remove it, and no file that is replaced:
    that would leave it on a dead inode. Where folders cannot be locked it is on ``.lock`` in it.
    """
    with contextlib.ExitStack() as stack:
        for path, flags in (
            (folder, os.O_RDONLY | os.O_DIRECTORY),
            (folder / ".lock", os.O_RDWR | os.O_CREAT),
        ):
            descriptor = open_own(path, flags)
            _lock_descriptors.add(descriptor)
            stack.callback(_close, descriptor)
            if _lock(descriptor, folder, wait, note):
                break
        else:
            if note and stamp_if_due(folder / ".unlocked.noted", _DAY):
                advice = "do not run gptsh twice at the same time there"
                note(f"{folder} is on a file system without locks: {advice}")
        with contextlib.suppress(OSError):
            os.utime(descriptor)  # tells those who wait that somebody got the lock
        yield


def _close(descriptor: int) -> None:
    if descriptor in _lock_descriptors:  # not in a forked child, where it is closed already
        _lock_descriptors.remove(descriptor)
        os.close(descriptor)


def _lock(
    descriptor: int,
    folder: Path,
    wait: float | None,
    note: Callable[[str], None] | None,
) -> bool:
    """Lock an open file or folder; False if it cannot be locked. Raises StoreBusy."""
    try:
        if _try_lock(descriptor):
            return True
        with _noted_late(note):
            if wait is None:
                fcntl.flock(descriptor, fcntl.LOCK_EX)  # the kernel lets one after the other
                return True
            changed = os.fstat(descriptor).st_mtime_ns
            until = time.monotonic() + wait
            while time.monotonic() < until:
                time.sleep(_PAUSE)
                if _try_lock(descriptor):
                    return True
                now = os.fstat(descriptor).st_mtime_ns
                if now != changed:  # somebody got the lock: the others are at work, not hanging
                    changed = now
                    until = time.monotonic() + wait
    except OSError as err:
        if err.errno in _NO_LOCKS:
            return False
        raise
    raise StoreBusy(f"{folder} is locked by another process", "try again")


def _try_lock(descriptor: int) -> bool:
    """Lock an open file or folder, if nobody has it locked. Raises OSError."""
    try:
        fcntl.flock(descriptor, _EXCLUSIVE)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _noted_late(note: Callable[[str], None] | None) -> Iterator[None]:
    """Note that a save waits, if the block takes more than a moment."""
    if note is None:
        yield
        return
    line = "waiting to save: another process uses the sessions"
    context = contextvars.copy_context()  # a program may collect its notes there
    timer = threading.Timer(_USUAL_WAIT, context.run, (note, line))
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # no thread can start
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


# ---- claims
#
# Claims: which turn or title a running process is working on, so that no other run does the same.
#
# A claim is a lock on one byte of a file beside the sessions. It ends with its process, however
# that ends. The locks of a file are those of the process, and closing any descriptor of the file
# ends them all: so it is opened once, and ``_own`` says what the threads of this process have
# claimed.

BACKGROUND_CLAIM = 2 << 32  # the process that makes titles
_TURNS = 1 << 32  # the first bytes are turns, then come the titles of sessions
_ATTEMPTS = 5  # a process that looks at a claim holds it for microseconds

_guard = threading.RLock()  # of both variables, for microseconds
_own: set[int] = set()
_claims_file: tuple[Path, int] | None = None  # the path and the descriptor


def _descriptor(flags: int = 0) -> int:
    """Return the descriptor of the file of the claims. Raises OSError."""
    global _claims_file
    path = sessions_folder().parent / ".claims"
    if _claims_file is None or _claims_file[0] != path:
        descriptor = open_own(path, os.O_RDWR | flags)
        if _claims_file is not None:
            os.close(_claims_file[1])
        _claims_file = path, descriptor
        _own.clear()
    return _claims_file[1]


def claim_of_turn(question_id: str) -> int:
    """Return the claim on the turn that begins with this question."""
    return crc32(question_id.encode("utf-8", "surrogatepass"))


def claim_of_title(filename: str) -> int:
    """Return the claim on the title of a session."""
    return _TURNS + crc32(filename.encode())


def take_claim(claim: int) -> bool:
    """Claim something until ``release_claim`` or the end of the process; False if it is taken.

    Return True also where files cannot be locked.
    """
    with _guard:
        if claim in _own:
            return False
        for _ in range(_ATTEMPTS):
            try:
                make_private(sessions_folder().parent)
                fcntl.lockf(_descriptor(os.O_CREAT), _EXCLUSIVE, 1, claim)
            except (BlockingIOError, PermissionError):  # POSIX allows both
                time.sleep(_PAUSE)
                continue
            except OSError:  # files cannot be locked
                pass
            _own.add(claim)
            return True
        return False


def release_claim(claim: int) -> None:
    """End a claim of this process, if it has it."""
    with _guard:
        if claim in _own:
            _own.remove(claim)
            with contextlib.suppress(OSError):
                fcntl.lockf(_descriptor(), fcntl.LOCK_UN, 1, claim)


@contextlib.contextmanager
def claim(claim: int) -> Iterator[None]:
    """Claim something inside this block, if nobody else has claimed it."""
    is_own = take_claim(claim)
    try:
        yield
    finally:
        if is_own:
            release_claim(claim)


def is_claimed(first: int, count: int = 1) -> bool:
    """Return whether a run, this one or another, has one of so many claims."""
    with _guard:
        if any(first <= claim < first + count for claim in _own):
            return True  # to ask the file would end that claim
        try:
            descriptor = _descriptor()
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, count, first)
            fcntl.lockf(descriptor, fcntl.LOCK_UN, count, first)
        except (BlockingIOError, PermissionError):
            return True
        except OSError:  # no such file, or files cannot be locked
            return False
        return False


def is_any_turn_claimed() -> bool:
    """Return whether a run asks a turn of any session."""
    return is_claimed(0, _TURNS)


def _forget_all() -> None:
    """In a forked child: have no lock, which would last as long as the child, and no claim."""
    global _guard, _claims_file
    for descriptor in [*_lock_descriptors]:
        _close(descriptor)
    _guard = threading.RLock()
    _own.clear()
    _claims_file = None


os.register_at_fork(after_in_child=_forget_all)
