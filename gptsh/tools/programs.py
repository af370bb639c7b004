"""Run tool servers that are programs: start them, read their stderr, end them."""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import IO, NamedTuple

from gptsh.config.schema import mask
from gptsh.config.tool_servers import ToolServer
from gptsh.errors import ToolServerError

# The variables that servers inherit. Others, as for a key or a proxy, are in a server's config.
_INHERITED = "PATH|HOME|LANG|LANGUAGE|TZ|TMPDIR|USER|LOGNAME|SHELL|TERM|LC_.*"
_EXIT_SECONDS = 1.0  # for servers to end after their stdin was closed
_SIGTERM_SECONDS = 0.5  # then, for them to end after SIGTERM
_SIGKILL_SECONDS = 0.3  # then, for the system to remove them


class Program(NamedTuple):
    """A server that was started: its process, and the file with its stderr."""

    process: "subprocess.Popen[str]"
    stderr: IO[bytes]

    def send_signal(self, signum: int) -> None:
        """Send a signal to the process group of the server."""
        # macOS refuses if all are dead
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signum)

    def has_ended(self) -> bool:
        """Return whether no process of the server's process group runs."""
        if self.process.poll() is None:
            return False
        try:
            os.killpg(self.process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return True
        return False


class Programs:
    """The programs that were started, by the names of their servers.

    One thread starts them, another one ends them.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        inherited = [name for name in environ if re.fullmatch(_INHERITED, name)]
        self._environ = {name: environ[name] for name in inherited}
        self._programs: dict[str, Program] = {}
        self._start_lock = threading.Lock()  # around each start, so that ``end`` misses none
        self._may_start = True

    def start(self, server: ToolServer) -> None:
        """Start a server, unless the servers are being ended. Raises ToolServerError."""
        with self._start_lock:
            if self._may_start:
                self._programs[server.name] = self._start(server)

    def start_again(self, server: ToolServer) -> Program:
        """Start a program again, in place of its process. Raises ToolServerError."""
        with self._start_lock:
            if not self._may_start:
                raise ToolServerError(f"tool server {server.name} is shutting down")
            old = self._programs[server.name]
            old.send_signal(signal.SIGKILL)
            old.stderr.close()
            program = self._programs[server.name] = self._start(server)
        return program

    def _start(self, server: ToolServer) -> Program:
        """Start a server in a process session of its own, which Ctrl-C does not reach."""
        stderr_file = tempfile.TemporaryFile()  # noqa: SIM115 - closed in ``end``, ``start_again``
        try:
            process = subprocess.Popen(
                [str(server.command), *server.args],
                env={**self._environ, **server.env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr_file,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
        except (OSError, ValueError) as err:
            stderr_file.close()
            reason = err.strerror if isinstance(err, OSError) else err
            problem = f"tool server {server.name} cannot be started: {reason}: {server.command}"
            advice = ""
            if isinstance(err, FileNotFoundError) and " " in str(server.command):
                advice = "command is only the program; put its arguments into args"
            raise ToolServerError(mask(problem, server.secrets), advice) from None
        return Program(process, stderr_file)

    def __contains__(self, name: str) -> bool:
        """Return whether the program of a server was started."""
        return name in self._programs

    def __getitem__(self, name: str) -> Program:
        """Return the program of a server."""
        return self._programs[name]

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

        def is_over() -> bool:
            processes = [program.process.poll() for program in programs]
            return None not in processes and not is_served()

        def have_ended() -> bool:
            return all(map(Program.has_ended, programs))

        _wait(_EXIT_SECONDS, is_over)
        for signum, seconds in (
            (signal.SIGTERM, _SIGTERM_SECONDS),
            (signal.SIGKILL, _SIGKILL_SECONDS),
        ):
            if not have_ended():
                self._send_signal(signum)
                _wait(seconds, have_ended)
        for program in programs:
            program.stderr.close()

    def kill(self) -> None:
        """Kill all programs at once."""
        self._send_signal(signal.SIGKILL)

    def _send_signal(self, signum: int) -> None:
        for program in list(self._programs.values()):
            program.send_signal(signum)

    def any_ended(self, besides: Collection[str]) -> bool:
        """Return whether a program has ended, ``besides`` those of these servers."""
        for name, program in self._programs.items():
            if name not in besides and program.process.poll() is not None:
                return True
        return False


def _wait(seconds: float, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
