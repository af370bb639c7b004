"""The process of a tool server: started with little environment, its last words kept, ended with all it has started."""

import contextlib
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gptsh.config.mcp_servers import ToolServer, is_inherited
from gptsh.config.secret import masked

_LAST_LINES = 20  # of stderr that are kept
_LONGEST_LINE = 1000  # bytes of each
_OF_ITSELF = 1.0  # seconds for ending once its input has ended
_AT_SIGTERM = 0.5  # seconds more
_AT_SIGKILL = 0.3  # seconds until the system has taken it away
_LOOK = 0.01  # seconds between two looks


def environment(server: ToolServer, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that a server is started with."""
    return {**{name: value for name, value in environ.items() if is_inherited(name)}, **server.env}


class Tail:
    """The last lines of a stream that may never end, without the ``secrets``."""

    def __init__(self, secrets: Collection[str] = ()) -> None:
        self._secrets = secrets
        self._margin = max((len(secret.encode("utf-8", "surrogatepass")) for secret in secrets), default=0)
        self._lines: deque[bytes] = deque(maxlen=_LAST_LINES)
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take what was read."""
        *lines, rest = (self._rest + data).split(b"\n")
        kept = _LONGEST_LINE + self._margin  # so that a secret at the end is whole, to be masked
        self._lines.extend(line[:kept] for line in lines if line.strip())
        self._rest = rest[:kept]

    @property
    def lines(self) -> list[str]:
        """The lines so far, the oldest first."""
        last = [self._rest] if self._rest.strip() else []
        return [self._shown(line) for line in (*self._lines, *last)]

    def _shown(self, line: bytes) -> str:
        text = masked(line.decode("utf-8", "replace"), self._secrets)
        # Of a line that was cut, the margin may end within another secret.
        return (text if len(line) <= _LONGEST_LINE else text[: max(0, len(text) - self._margin)]).strip()


class Process:
    """A server's process in a session of its own, so that the terminal's Ctrl-C does not reach it.

    Starting it raises OSError and ValueError as subprocess does.
    """

    def __init__(self, server: ToolServer, environ: Mapping[str, str]) -> None:
        self._running = subprocess.Popen(
            [server.command or "", *server.args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environment(server, environ),
            start_new_session=True,
        )
        self.secrets = server.secrets
        self.stderr = Tail(self.secrets)
        self.noise = ""  # the last line on its stdout that was no message
        pipes = (self._running.stdin, self._running.stdout, self._running.stderr)
        self.input, self.output, self.errors = (pipe.fileno() if pipe else -1 for pipe in pipes)
        os.set_blocking(self.input, False)

    def close_input(self) -> None:
        """Tell it that nothing more is asked."""
        if self._running.stdin:
            with contextlib.suppress(OSError):
                self._running.stdin.close()

    def close(self) -> None:
        """Let go of its streams."""
        self.close_input()
        for pipe in (self._running.stdout, self._running.stderr):
            if pipe:
                pipe.close()

    @property
    def ended(self) -> str | None:
        """How it has ended, in words; None while it runs."""
        status = self._running.poll()
        if status is None or status >= 0:
            return None if status is None else f"ended with exit status {status}"
        named = next((known.name for known in signal.Signals if known == -status), f"signal {-status}")
        return f"was ended by {named}"

    def send(self, signum: int) -> None:
        """Send a signal to it and to all that it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._running.pid, signum)

    @property
    def is_gone(self) -> bool:
        """Whether neither it nor anything that it has started runs any more."""
        if self._running.poll() is None:
            return False
        try:
            os.killpg(self._running.pid, 0)
        except (ProcessLookupError, PermissionError):  # macOS refuses where all are dead
            return True
        return False


def end(processes: Sequence[Process]) -> None:
    """End the processes, whose input has ended: they get a second, SIGTERM and half of one, SIGKILL."""
    _wait(processes, _OF_ITSELF, lambda process: process.ended is not None)
    for signum, seconds in ((signal.SIGTERM, _AT_SIGTERM), (signal.SIGKILL, _AT_SIGKILL)):
        left = [process for process in processes if not process.is_gone]
        for process in left:
            process.send(signum)
        _wait(left, seconds, lambda process: process.is_gone)


def _wait(processes: Iterable[Process], seconds: float, done: Callable[[Process], bool]) -> None:
    until = time.monotonic() + seconds
    for process in processes:
        while not done(process) and time.monotonic() < until:
            time.sleep(_LOOK)
