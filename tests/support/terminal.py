"""gptsh in a pseudo-terminal, and its interactive conversation there."""

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from types import TracebackType

from tests.support import forked
from tests.support.home import COMMAND, Home

_PROMPT = rb"(?<![^\n])> \Z"
_QUESTION = rb"(\[y\]es, \[n\]o: |\[y/N\] )\Z"
Expected = str | tuple[str, ...] | re.Pattern[str]  # of an output: a part, several, or a pattern


class Terminal:
    """gptsh in a pseudo-terminal; ``seen`` is its output."""

    def __init__(
        self,
        home: Home,
        *args: str,
        env: dict[str, str] | None = None,
        command: list[str] | None = None,
        columns: int = 0,
    ) -> None:
        self.seen = b""
        argv = [*(command or COMMAND), *args]
        whole_env = {**home.env, "TERM": "xterm", **(env or {})}
        forks = command is None and home.can_fork(whole_env)
        self.pid, self.fd = pty.fork()
        if not self.pid:
            if columns:
                _resize(0, columns)
            os.chdir(home.cwd)
            if forks:
                forked.become_gptsh(args, whole_env)
            os.execvpe(argv[0], argv, whole_env)

    def resize(self, columns: int) -> None:
        """Set the number of columns."""
        _resize(self.fd, columns)

    def write(self, text: str) -> None:
        """Press keys."""
        os.write(self.fd, text.encode())

    def until(self, pattern: bytes, seconds: float = 20) -> bytes:
        """Read until the output matches; return all output so far."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.seen):
            assert time.monotonic() < end, self.seen
            if select.select([self.fd], [], [], 0.1)[0]:
                self.seen += os.read(self.fd, 4096)
        return self.seen

    def close(self) -> tuple[bytes, int]:
        """Wait for the end; return all output and the exit code as a shell reports it."""
        pieces = [self.seen]
        while pieces[-1] or len(pieces) == 1:
            try:
                pieces.append(os.read(self.fd, 65536))
            except OSError:  # Linux reports the other end's exit as EIO
                break
        self.seen = b"".join(pieces)
        os.close(self.fd)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.seen, code if code >= 0 else 128 - code


def _resize(descriptor: int, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def _has(output: str, expected: Expected) -> bool:
    if isinstance(expected, str):
        return expected in output
    if isinstance(expected, tuple):
        return all(part in output for part in expected)
    return bool(expected.search(output))


class Conversation(Terminal):
    """``gptsh -i`` in a terminal without escape sequences: enter a line, get the output up to the next prompt.

    Starting the process is slow, so one conversation can run a table of lines. ``greeting`` is the output before the
    first prompt, ``last`` that of the last line.
    """

    def __init__(self, home: Home, *args: str, columns: int = 200, **env: str) -> None:
        super().__init__(
            home, "-i", *args, env={"TERM": "dumb", "PAGER": "cat", **env}, columns=columns
        )
        self.code: int | None = None
        self.last = self.greeting = self.printed()

    def printed(self, end: bytes = _PROMPT) -> str:
        """Read up to the next prompt; return the output without the prompt."""
        self.seen = b""
        while True:
            seen = self.until(end)
            if not select.select([self.fd], [], [], 0)[0]:
                return re.sub(end, b"", seen).decode().replace("\r\n", "\n").rstrip("\n")

    def asks(self, line: str) -> str:
        """Enter a line after which gptsh asks something; return that question."""
        self.write(f"{line}\n")
        return self.printed(_QUESTION).partition("\n")[2]

    def does(self, line: str, answer: str | None = None) -> str:
        """Enter a line; return its output. ``answer`` is the reply if the command asks something."""
        question = self.asks(line) if answer is not None else ""
        self.write(f"{line if answer is None else answer}\n")
        self.last = question + self.printed().partition("\n")[2]
        return self.last

    def interrupt(self) -> str:
        """Press Ctrl-C; return the output up to the next prompt."""
        self.write("\x03")
        self.last = self.printed()
        return self.last

    def plays(self, *rows: tuple[str, Expected] | tuple[str, Expected, str]) -> None:
        """Enter the lines; each row has a line, its expected output, and the reply if the command asks something."""
        for line, expected, *answer in rows:
            output = self.does(line, *answer)
            assert _has(output, expected), f"{line}: {expected!r} is not in:\n{output}"

    def leave(self) -> int:
        """Press Ctrl-D; return the exit code. ``last`` is the final output."""
        if self.code is None:
            self.seen = b""
            self.write("\x04")
            seen, self.code = self.close()
            self.last = seen.decode().replace("\r\n", "\n")
        return self.code

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is not None and self.code is None:  # do not wait after a failure
            os.kill(self.pid, 9)
        self.leave()
