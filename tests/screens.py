"""gptsh in tmux: real keys go in, and what is seen is what a screen shows."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from types import TracebackType

import pytest

from tests.conftest import COMMAND, Home

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Tmux:
    """One pane of a tmux server of its own, with gptsh in it."""

    def __init__(
        self, home: Home, *args: str, size: tuple[int, int] = (80, 24), env: dict[str, str] | None = None
    ) -> None:
        self._folder = tempfile.mkdtemp(prefix="gptsh-")  # a socket's path must be short
        self._env = {**home.env, **(env or {}), "TERM": "xterm-256color"}
        inside = shlex.join(["env", *(f"{k}={v}" for k, v in {**home.env, **(env or {})}.items()), *COMMAND, *args])
        self._do("new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), "-c", str(home.cwd), "sleep 600")
        self._do("set-option", "-g", "remain-on-exit", "on")
        self._do("set-option", "-s", "set-clipboard", "on")
        self._do("set-option", "-s", "escape-time", "10")
        self._do("respawn-pane", "-k", "-c", str(home.cwd), inside)

    def _do(self, *args: str, data: bytes | None = None) -> str:
        command = ["tmux", "-S", f"{self._folder}/socket", "-f", "/dev/null", *args]
        done = subprocess.run(command, env=self._env, input=data, capture_output=True, check=True, timeout=30)
        return done.stdout.decode("utf-8", "replace")

    def keys(self, *names: str) -> None:
        """Press keys by tmux's names: ``Enter``, ``C-c``, ``M-Enter``, ``Tab``, ``Up``."""
        self._do("send-keys", *names)

    def write(self, text: str) -> None:
        """Type a text, letter by letter."""
        self._do("send-keys", "-l", "--", text)

    def say(self, text: str) -> None:
        """Type a line, and press Enter."""
        self.write(text)
        self.keys("Enter")

    def paste(self, text: str) -> None:
        """Paste a text, in brackets where the program asks for them."""
        self._do("load-buffer", "-", data=text.encode())
        self._do("paste-buffer", "-p")

    def resize(self, columns: int, rows: int) -> None:
        """Another size of the screen."""
        self._do("resize-window", "-x", str(columns), "-y", str(rows))

    def screen(self, *, styles: bool = False, history: bool = False) -> str:
        """What is to be seen, with ``styles`` its escape sequences, with ``history`` what has scrolled away, too."""
        return self._do("capture-pane", "-p", *["-e"] * styles, *["-S", "-"] * history)

    def until(self, pattern: str, seconds: float = 20) -> str:
        """The screen, once the pattern is on it."""
        end = time.monotonic() + seconds
        while not re.search(pattern, seen := self.screen(), re.MULTILINE):
            assert time.monotonic() < end, f"{pattern!r} was not seen:\n{seen}"
            time.sleep(0.05)
        return seen

    def clipboard(self) -> str:
        """What was copied last."""
        return self._do("show-buffer")

    @property
    def pid(self) -> int:
        """The process in the pane."""
        return int(self._do("display-message", "-p", "#{pane_pid}"))

    def code(self, seconds: float = 20) -> int:
        """The exit code, once the process has ended; for a signal as a shell sees it."""
        end = time.monotonic() + seconds
        while not (ended := self._do("display-message", "-p", "#{pane_dead_status}/#{pane_dead_signal}").strip(" \n/")):
            assert time.monotonic() < end, f"still there:\n{self.screen()}"
            os.kill(int(self._do("display-message", "-p", "#{pid}")), signal.SIGCHLD)  # tmux 3.3 may miss one
            time.sleep(0.05)
        shown = self._do("display-message", "-p", "#{pane_dead_status}").strip()
        return int(ended) if shown else 128 + int(ended)

    def __enter__(self) -> "Tmux":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._do("kill-server")
        shutil.rmtree(self._folder, ignore_errors=True)
