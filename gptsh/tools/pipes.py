"""The transport to a tool server that is a program: MCP over its stdin and stdout; why it ended, with its stderr."""

import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from typing import IO, Any

import anyio
from mcp.client import IncomingMessage
from mcp.server.stdio import stdio_server
from pydantic import ValidationError

from gptsh.tools.many_parts import shorten
from gptsh.tools.processes import Program

_MAX_LINE = 1 << 26  # characters
_STDERR_TAIL = 20_000  # bytes at the end of stderr that errors quote from
# In JSON: an escaped backslash or a surrogate pair (group 1), else a lone surrogate, which the SDK's parser refuses.
_LONE_SURROGATE = re.compile(r"(\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F]..")


class Pipes:
    """The pipes of a program. ``start_again`` starts it again, and returns it."""

    secrets: frozenset[str] = frozenset()  # the config has all of a program's

    def __init__(self, program: Program, start_again: Callable[[], Program]) -> None:
        self._program, self._start_again = program, start_again
        self._stray_line = ""  # the last line on its stdout that is not a message
        self.fault = ""  # what was wrong with its output: the predicate of a sentence with its name

    def start_again(self) -> None:
        """Start the program again, which ended when asked for the new protocol. Raises ToolServerError."""
        self._program = self._start_again()

    @contextlib.asynccontextmanager
    async def streams(self) -> AsyncIterator[Any]:
        """The SDK's streams over the pipes; the stdin of the process is closed at the end.

        This uses the SDK's stdio transport for servers, which accepts any two files. The one for clients starts the
        process itself, only once the SDK is loaded, and hides the process id that is needed to kill it.
        """
        process = self._program.process
        assert process.stdin
        assert process.stdout
        with process.stdout:
            async with stdio_server(_Lines(process.stdout, self._on_endless_line), _Requests(process.stdin)) as streams:
                try:
                    yield streams
                finally:
                    with contextlib.suppress(BrokenPipeError):
                        process.stdin.close()

    async def on_message(self, message: IncomingMessage) -> None:
        """Remember a line that is not a message, such as a banner; kill a process that writes a broken message."""
        if isinstance(message, ValidationError):
            line = str(message.errors(include_url=False)[0]["input"]).strip()
            self._stray_line = line or self._stray_line
            if re.search("[\"']jsonrpc[\"']", line):  # the line as text, or the repr of the parsed JSON
                self.fault = f"sent a broken message: {line!r}"
                self._program.send_signal(signal.SIGKILL)

    def _on_endless_line(self) -> None:
        self.fault = "sent a line without end"

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._program.process.poll() is not None

    def reason(self, _err: BaseException) -> str:
        """What the program did wrong: the predicate of a sentence with its name; "" if nothing is known."""
        status = self._program.process.poll()
        if self.fault or status is None:
            return self.fault
        return f"was ended by {signal.strsignal(-status)}" if status < 0 else f"ended with exit status {status}"

    def last_lines(self) -> list[str]:
        """The last lines of stderr; if it has none, what else the program printed."""
        file = self._program.stderr.fileno()
        size = os.fstat(file).st_size
        # Not with ``seek``: the process shares the position in the file.
        data = os.pread(file, _STDERR_TAIL, max(0, size - _STDERR_TAIL))
        if size > _STDERR_TAIL:
            data = data.partition(b"\n")[2]  # a partial line may start within a key, which could not be masked
        lines = [line.strip() for line in data.decode("utf-8", "replace").split("\n") if line.strip()]
        if not lines and self._stray_line and not self.fault:
            lines = [f"printed {self._stray_line!r}"]
        return lines


class _Lines(anyio.AsyncFile[str]):
    """The stdout of a process, line by line, with lone surrogates as U+FFFD, and no endless lists.

    At a line that would fill the memory, it calls ``on_endless_line`` and ends.
    """

    def __init__(self, stdout: IO[str], on_endless_line: Callable[[], None]) -> None:
        super().__init__(stdout)
        self._on_endless_line = on_endless_line

    async def readline(self) -> str:
        line = await anyio.to_thread.run_sync(self.wrapped.readline, _MAX_LINE)
        if len(line) == _MAX_LINE:
            self._on_endless_line()
            return ""
        return shorten(_LONE_SURROGATE.sub(lambda match: match[1] or r"\ufffd", line))


class _Requests(anyio.AsyncFile[str]):
    """The stdin of a process. What a process does not read is dropped: the end of its stdout shows that it ended.

    Raised from here, the error would end the SDK's tasks at once, with the reason still unread on stdout.
    """

    async def write(self, b: str) -> int:
        with contextlib.suppress(BrokenPipeError):
            await super().write(b)
        return len(b)

    async def flush(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            await super().flush()
