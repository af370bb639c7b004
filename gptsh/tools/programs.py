"""Run tool servers that are programs: their process, their pipes, their stderr."""

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from itertools import groupby
from typing import IO, TYPE_CHECKING, NamedTuple

import anyio
from mcp.client import IncomingMessage
from mcp.server.stdio import stdio_server
from pydantic import ValidationError

from gptsh.config.schema import mask
from gptsh.config.tool_servers import ToolServer
from gptsh.errors import ToolServerError
from gptsh.jsonio import as_dict

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams


# ---- many parts
#
# Shorten messages of tool servers with too many parts: the SDK needs 2 kB of memory for each.

_MAX_PARTS = 10_000  # of a list in a result


def shorten_message(message: str) -> str:
    """Return a message of JSON-RPC; where a list of its result is too long, with a shorter one.

    Of the parts of a tool's result, texts in a row become one, a line each; what is still too much
    is cut, and a part says so. A list of tools is cut, too, and refused where it is read.
    """
    if message.count("{") <= _MAX_PARTS:
        return message
    try:
        content = json.loads(message)
        result = content["result"]
        long_lists = {key: items for key, items in result.items() if _is_long(items)}
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return message  # the SDK reports what is wrong with it
    if not long_lists:
        return message
    for key, items in long_lists.items():
        result[key] = _fewer(items) if key == "content" else items[:_MAX_PARTS]
    return json.dumps(content, ensure_ascii=False)


def _is_long(value: object) -> bool:
    return isinstance(value, list) and len(value) > _MAX_PARTS


def _fewer(parts: list[object]) -> list[object]:
    fewer: list[object] = []
    for is_text, group in groupby(parts, _is_text):
        if is_text:
            fewer.append(_text("\n".join(as_dict(part)["text"] for part in group)))
        else:
            fewer.extend(group)
    if len(fewer) > _MAX_PARTS:
        more = len(fewer) - _MAX_PARTS
        fewer[_MAX_PARTS:] = [_text(f"[gptsh: {more:,} more parts are left out here]")]
    return fewer


def _is_text(part: object) -> bool:
    fields = as_dict(part)
    return fields.get("type") == "text" and isinstance(fields.get("text"), str)


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


# ---- processes
#
# The processes of tool servers that are programs: what they inherit of the environment, how they
# start and end.

# The variables that servers inherit. Those that a server needs besides, as for a key or a proxy, are in its config.
_INHERITED = re.compile("PATH|HOME|LANG|LANGUAGE|TZ|TMPDIR|USER|LOGNAME|SHELL|TERM|LC_.*")
_EXIT_SECONDS = 1.0  # for servers to end after their stdin was closed
_SIGTERM_SECONDS = 0.5  # then, for them to end after SIGTERM
_SIGKILL_SECONDS = 0.3  # then, for the system to remove them


class Program(NamedTuple):
    """A server that was started: its process, and the file with its stderr."""

    process: "subprocess.Popen[str]"
    stderr: IO[bytes]

    def send_signal(self, signum: int) -> None:
        """Send a signal to the process group of the server."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS refuses if all are dead
            os.killpg(self.process.pid, signum)

    def has_ended(self) -> bool:
        """Whether no process of the server's process group runs."""
        if self.process.poll() is None:
            return False
        try:
            os.killpg(self.process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return True
        return False


class Processes:
    """The programs that were started, by the names of their servers. One thread starts them, another one ends them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._programs: dict[str, Program] = {}
        self._start_lock = threading.Lock()  # around each start, so that ``end`` misses none
        self._may_start = True

    def start(self, config: ToolServer) -> None:
        """Start a server, unless the servers are being ended. Raises ToolServerError."""
        with self._start_lock:
            if self._may_start:
                self._programs[config.name] = self._started(config)

    def start_again(self, config: ToolServer) -> Program:
        """Start a program again, in place of its process. Raises ToolServerError."""
        with self._start_lock:
            if not self._may_start:
                raise ToolServerError(f"tool server {config.name} is being ended")
            old = self._programs[config.name]
            old.send_signal(signal.SIGKILL)
            old.stderr.close()
            program = self._programs[config.name] = self._started(config)
        return program

    def _started(self, config: ToolServer) -> Program:
        """Start a server with its stderr in a file, in a new process session, which Ctrl-C does not reach."""
        inherited = {name: value for name, value in self._environ.items() if _INHERITED.fullmatch(name)}
        stderr_file = tempfile.TemporaryFile()  # noqa: SIM115 - closed in ``end`` or ``start_again``
        try:
            process = subprocess.Popen(
                [str(config.command), *config.args],
                env={**inherited, **config.env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr_file,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
        except (OSError, ValueError) as err:
            stderr_file.close()
            why = err.strerror if isinstance(err, OSError) else err
            what = f"tool server {config.name} cannot be started: {why}: {config.command}"
            has_words = isinstance(err, FileNotFoundError) and " " in str(config.command)
            advice = "command is the program alone: put its arguments into args" if has_words else ""
            raise ToolServerError(mask(what, config.secrets), advice) from None
        return Program(process, stderr_file)

    def get(self, name: str) -> Program | None:
        """The program of a server; None if it was not started."""
        return self._programs.get(name)

    def forbid_starts(self) -> None:
        """Start nothing from now on."""
        with self._start_lock:
            self._may_start = False

    def close_stdin(self) -> None:
        """Close the stdin of each program, at which it should end."""
        for program in list(self._programs.values()):
            if program.process.stdin:
                program.process.stdin.close()

    def end(self, is_served: Callable[[], bool]) -> None:
        """Wait until all programs have ended, whose stdin is closed, and end those that do not.

        ``is_served``: whether another thread still reads from them.
        """
        programs = list(self._programs.values())
        processes = [program.process for program in programs]
        _wait(_EXIT_SECONDS, lambda: not is_served() and None not in [process.poll() for process in processes])
        for signum, seconds in ((signal.SIGTERM, _SIGTERM_SECONDS), (signal.SIGKILL, _SIGKILL_SECONDS)):
            if not all(map(Program.has_ended, programs)):
                for program in programs:
                    program.send_signal(signum)
                _wait(seconds, lambda: all(map(Program.has_ended, programs)))
        for program in programs:
            program.stderr.close()

    def kill(self) -> None:
        """Kill all programs at once."""
        for program in list(self._programs.values()):
            program.send_signal(signal.SIGKILL)

    def any_ended(self, besides: Collection[str]) -> bool:
        """Whether a program has ended, ``besides`` those of these servers."""
        programs = [program for name, program in self._programs.items() if name not in besides]
        return any(program.process.poll() is not None for program in programs)


def _wait(seconds: float, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)


# ---- pipes
#
# The transport to a tool server that is a program: MCP over its stdin and stdout; why it ended,
# with its stderr.

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
    async def streams(self) -> AsyncIterator["TransportStreams"]:
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
        return shorten_message(_LONE_SURROGATE.sub(lambda match: match[1] or r"\ufffd", line))


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
