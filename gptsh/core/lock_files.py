"""The lock where a file system has none (some NFS, FUSE): a file that only one process can create.

It names its owner, a process on a machine. It is taken over when that process is gone, or when it is two minutes old:
from here nobody can see whether a process of another machine still runs, and a save takes milliseconds.
"""

import contextlib
import os
from pathlib import Path

_ABANDONED_AFTER = 120  # seconds


class LockFile:
    """A lock beside the file that could not be locked, ``path``."""

    def __init__(self, path: Path) -> None:
        self._clock = path  # its time is set by the machine that has the files, as is that of the lock
        self._path = path.with_name(f"{path.name}.owner")
        self._machine = _machine()
        self._owner = f"{self._machine} {os.getpid()} {os.urandom(8).hex()}\n".encode()

    def take(self) -> bool:
        """Take the lock; False if another process has it. Raises OSError."""
        return self._create() or (self._remove_abandoned() and self._create())

    def release(self) -> None:
        """Release the lock, unless another process has taken it over."""
        with contextlib.suppress(OSError):  # it is taken over when this process is gone
            if self._path.read_bytes() == self._owner:
                self._path.unlink()

    def _create(self) -> bool:
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return False
        try:
            os.write(descriptor, self._owner)
        except OSError:  # the disk is full
            self._path.unlink()
            raise
        finally:
            os.close(descriptor)
        return True

    def _remove_abandoned(self) -> bool:
        """Remove the lock of another process if it is abandoned; whether it is gone now."""
        aside = self._path.with_name(f"{self._path.name}.{os.getpid()}.{os.urandom(3).hex()}.tmp")
        try:
            owner = self._path.read_bytes()
            if not self._is_abandoned(owner):
                return False
            self._path.rename(aside)
        except FileNotFoundError:  # released meanwhile
            return True
        if aside.read_bytes() != owner:  # a third process took it over meanwhile: it is that one's now
            aside.rename(self._path)
            return False
        aside.unlink()
        return True

    def _is_abandoned(self, owner: bytes) -> bool:
        with contextlib.suppress(PermissionError):  # then the lock looks younger than it is
            os.utime(self._clock)
        if self._clock.stat().st_mtime - self._path.stat().st_mtime > _ABANDONED_AFTER:
            return True
        machine, _, rest = owner.decode("utf-8", "replace").partition(" ")
        pid = rest.partition(" ")[0]
        return machine == self._machine and pid.isdecimal() and not _runs(int(pid))


def _machine() -> str:
    """A name without blanks for where process numbers count: a container may share its machine's name."""
    name = os.uname().nodename.replace(" ", "-")
    with contextlib.suppress(OSError):  # only Linux has namespaces
        name += "/" + os.readlink("/proc/self/ns/pid")
    return name


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
