"""gptsh under a pseudo-terminal, and a conversation there."""

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from types import TracebackType

from tests.support.home import COMMAND, Home

_PROMPT, _QUESTION = rb"(?<![^\n])> \Z", rb"(\[y\]es, \[n\]o: |\[y/N\] )\Z"
Said = str | tuple[str, ...] | re.Pattern[str]  # what is to be printed: a part, several, or what a pattern finds


class Terminal:
    """gptsh under a pseudo-terminal: what a person sees."""

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
        self.pid, self.fd = pty.fork()
        if not self.pid:
            if columns:
                _resize(0, columns)
            os.chdir(home.cwd)
            os.execvpe(argv[0], argv, {**home.env, "TERM": "xterm", **(env or {})})

    def resize(self, columns: int) -> None:
        """Make it so many columns wide."""
        _resize(self.fd, columns)

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


def _resize(descriptor: int, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


class Conversation(Terminal):
    """``gptsh -i`` where no escape sequence is obeyed: a line goes in, and what is printed until the prompt comes out.

    Its process is what costs: one conversation may carry out a whole table of lines. ``begun`` is what stands above the
    first prompt, ``last`` what came since the last one.
    """

    def __init__(self, home: Home, *args: str, columns: int = 200, **env: str) -> None:
        super().__init__(home, "-i", *args, env={"TERM": "dumb", "PAGER": "cat", **env}, columns=columns)
        self.code: int | None = None
        self.last = self.begun = self.printed()

    def printed(self, end: bytes = _PROMPT) -> str:
        """What is printed until a line is awaited, without what says so."""
        self.seen = b""
        while True:
            seen = self.until(end)
            if not select.select([self.fd], [], [], 0)[0]:
                return re.sub(end, b"", seen).decode().replace("\r\n", "\n").rstrip("\n")

    def asks(self, line: str) -> str:
        """Type a line that comes to a question; the question."""
        self.write(f"{line}\n")
        return self.printed(_QUESTION).partition("\n")[2]

    def does(self, line: str, answer: str | None = None) -> str:
        """What a line comes to; ``answer`` is what is said to the question of that command."""
        asked = self.asks(line) if answer is not None else ""
        self.write(f"{line if answer is None else answer}\n")
        self.last = asked + self.printed().partition("\n")[2]
        return self.last

    def interrupt(self) -> str:
        """Press Ctrl-C; what is printed until the prompt is back."""
        self.write("\x03")
        self.last = self.printed()
        return self.last

    def plays(self, *rows: tuple[str, Said] | tuple[str, Said, str]) -> None:
        """Type line after line; each row has what is to be printed behind it, and what is answered where it asks."""
        for line, said, *answer in rows:
            shown = self.does(line, *answer)
            parts = (said,) if isinstance(said, str) else said
            found = parts.search(shown) if isinstance(parts, re.Pattern) else all(part in shown for part in parts)
            assert found, f"{line}: {said!r} is not in:\n{shown}"

    def leave(self) -> int:
        """End it by Ctrl-D; the exit code. ``last`` is what was printed then."""
        if self.code is None:
            self.seen = b""
            self.write("\x04")
            seen, self.code = self.close()
            self.last = seen.decode().replace("\r\n", "\n")
        return self.code

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None and self.code is None:  # what has failed is not waited for
            os.kill(self.pid, 9)
        self.leave()
