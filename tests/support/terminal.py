"""gptsh under a pseudo-terminal."""

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time

from tests.support.home import COMMAND, Home


class Terminal:
    """gptsh under a pseudo-terminal: what a person sees."""

    def __init__(
        self, home: Home, *args: str, env: dict[str, str] | None = None, command: list[str] | None = None
    ) -> None:
        self.seen = b""
        argv = [*(command or COMMAND), *args]
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.chdir(home.cwd)
            os.execvpe(argv[0], argv, {**home.env, "TERM": "xterm", **(env or {})})

    def resize(self, columns: int) -> None:
        """Make it so many columns wide."""
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def write(self, text: str) -> None:
        """Press keys."""
        os.write(self.fd, text.encode())

    def until(self, pattern: bytes, seconds: float = 20) -> bytes:
        """Read until the pattern was seen; everything seen so far."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.seen):
            assert time.monotonic() < end, self.seen
            if select.select([self.fd], [], [], 0.1)[0]:
                self.seen += os.read(self.fd, 4096)
        return self.seen

    def close(self) -> tuple[bytes, int]:
        """All that was seen, and the exit code as a shell sees it."""
        while True:
            try:
                more = os.read(self.fd, 4096)
            except OSError:  # Linux reports the other end's exit as EIO
                break
            if not more:
                break
            self.seen += more
        os.close(self.fd)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.seen, code if code >= 0 else 128 - code
