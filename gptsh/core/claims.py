"""Claims: which turn or title a running process is working on, so that no other run does the same.

A claim is a lock on one byte of a file beside the sessions. It ends with its process, however that ends.
"""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from zlib import crc32

from gptsh import files
from gptsh.core.session_folders import make_private, sessions_folder

BACKGROUND = 2 << 32  # the process that makes titles
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


def _forget() -> None:
    """In a forked child: it claims nothing, since these locks are those of its parent."""
    global _claims
    _claims.close()
    _claims = _Claims()


os.register_at_fork(after_in_child=_forget)


def turn_of(question_id: str) -> int:
    """The claim on the turn that begins with this question."""
    return crc32(question_id.encode("utf-8", "surrogatepass"))


def title_of(filename: str) -> int:
    """The claim on the title of a session."""
    return _TURNS + crc32(filename.encode())


def take(claim: int) -> bool:
    """Claim something until ``release`` or the end of the process; False if another run has claimed it.

    True also where files cannot be locked.
    """
    return _claims.take(claim)


def release(claim: int) -> None:
    """End a claim of this process, if it has it."""
    _claims.release(claim)


@contextlib.contextmanager
def held(claim: int) -> Iterator[None]:
    """Claim something inside this block, if nobody else has claimed it."""
    is_own = take(claim)
    try:
        yield
    finally:
        if is_own:
            release(claim)


def is_taken(claim: int) -> bool:
    """Whether a run has this claim, in this process or another one."""
    return _claims.is_any_taken(1, claim)


def is_any_turn_taken() -> bool:
    """Whether a run asks a turn of any session."""
    return _claims.is_any_taken(_TURNS, 0)
