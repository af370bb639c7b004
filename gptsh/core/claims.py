"""What running processes work on: a turn that is being asked, a title that is being made.

A claim is a lock on one byte of a file beside the sessions. It ends with its process, however that ends.
"""

import contextlib
import fcntl
import os
import time
from zlib import crc32

from gptsh.core import files
from gptsh.core.references import make_private, sessions_folder

OWN_TITLE = 2 << 32  # asking a server of one's own for a title
NEXT_TITLE = OWN_TITLE + 1  # waiting for that
_TURNS = 1 << 32  # the first bytes are turns, then come the titles of sessions
_ATTEMPTS, _PAUSE = 5, 0.002  # a process that looks at a claim holds it for microseconds
_SHARED, _EXCLUSIVE = fcntl.LOCK_SH | fcntl.LOCK_NB, fcntl.LOCK_EX | fcntl.LOCK_NB

_opened: tuple[str, int] | None = None  # path and descriptor; closing any descriptor of the file ends all its claims


def turn_of(question_id: str) -> int:
    """The claim on the turn that begins with this question."""
    return crc32(question_id.encode("utf-8", "surrogatepass"))


def title_of(filename: str) -> int:
    """The claim on the title of a session."""
    return _TURNS + crc32(filename.encode())


def take(claim: int) -> bool:
    """Claim something until ``release`` or the end of the process; False if another process has claimed it.

    True also where files cannot be locked.
    """
    for _ in range(_ATTEMPTS):
        try:
            fcntl.lockf(_descriptor(create=True), _EXCLUSIVE, 1, claim)
        except (BlockingIOError, PermissionError):  # POSIX allows both
            time.sleep(_PAUSE)
        except OSError:
            return True
        else:
            return True
    return False


def release(claim: int) -> None:
    """End a claim of this process, if it has it."""
    if _opened is not None:
        with contextlib.suppress(OSError):
            fcntl.lockf(_opened[1], fcntl.LOCK_UN, 1, claim)


def is_taken(claim: int) -> bool:
    """Whether another process has this claim."""
    return _others_hold(1, claim)


def is_any_turn_taken() -> bool:
    """Whether another process asks a turn of any session. Do not call it with a claim on a turn: it would end."""
    return _others_hold(_TURNS, 0)


def _others_hold(length: int, start: int) -> bool:
    try:
        fcntl.lockf(_descriptor(create=False), _SHARED, length, start)
    except (BlockingIOError, PermissionError):
        return True
    except OSError:  # no such file, or files cannot be locked
        return False
    fcntl.lockf(_descriptor(create=False), fcntl.LOCK_UN, length, start)
    return False


def _descriptor(*, create: bool) -> int:
    """The file of the claims, opened once. Raises OSError."""
    global _opened
    folder = sessions_folder().parent
    path = str(folder / ".claims")
    if _opened is None or _opened[0] != path:
        if create:
            make_private(folder)
        descriptor = files.open_own(path, os.O_RDWR | (os.O_CREAT if create else 0))
        if _opened is not None:
            os.close(_opened[1])
        _opened = path, descriptor
    return _opened[1]
