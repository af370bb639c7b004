"""gptsh in tmux: tests press real keys and read the screen."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.support.home import COMMAND, Home
from tests.support.programs import needs

needs_tmux = needs("tmux")


class Tmux:
    """A new tmux server with gptsh in its only pane; ``shell`` is the command line around gptsh.

    ``options`` are tmux's own.
    """

    def __init__(
        self,
        home: Home,
        *args: str,
        size: tuple[int, int] = (80, 24),
        env: dict[str, str] | None = None,
        shell: str = "{}",
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = tempfile.mkdtemp(prefix="gptsh-")  # a socket's path must be short
        self._env = {**home.env, **(env or {}), "TERM": "xterm-256color"}
        variables = [f"{name}={value}" for name, value in {**home.env, **(env or {})}.items()]
        inside = shlex.join(["env", *variables, *COMMAND, *args])
        self._do(
            "new-session",
            "-d",
            "-x",
            str(size[0]),
            "-y",
            str(size[1]),
            "-c",
            str(home.cwd),
            "sleep 600",
        )
        self._do("set-option", "-g", "remain-on-exit", "on")
        self._do("set-option", "-s", "set-clipboard", "on")
        self._do("set-option", "-s", "escape-time", "10")
        for name, value in (options or {}).items():
            self._do("set-option", "-g", name, value)
        self._do(
            "respawn-pane",
            "-k",
            "-c",
            str(home.cwd),
            f"trap : INT; {shell.format(inside)}; echo $? >{self._folder}/code",
        )

    def _do(self, *args: str, data: bytes | None = None) -> str:
        command = ["tmux", "-S", f"{self._folder}/socket", "-f", "/dev/null", *args]
        done = subprocess.run(
            command, env=self._env, input=data, capture_output=True, check=True, timeout=30
        )
        return done.stdout.decode("utf-8", "replace")

    def keys(self, *names: str) -> None:
        """Press keys by tmux's names: ``Enter``, ``C-c``, ``M-Enter``, ``Tab``, ``Up``."""
        self._do("send-keys", *names)

    def write(self, text: str) -> None:
        """Type a text."""
        self._do("send-keys", "-l", "--", text)

    def say(self, text: str) -> None:
        """Type a line and press Enter."""
        self.write(text)
        self.keys("Enter")

    def paste(self, text: str) -> None:
        """Paste a text, bracketed if the program has asked for it."""
        self._do("load-buffer", "-", data=text.encode())
        self._do("paste-buffer", "-p")

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the screen."""
        self._do("resize-window", "-x", str(columns), "-y", str(rows))

    def screen(self, *, styles: bool = False, history: bool = False) -> str:
        """The text of the screen; ``styles`` adds escape sequences and all blanks, ``history`` the scrollback."""
        return self._do("capture-pane", "-p", *["-e", "-N"] * styles, *["-S", "-"] * history)

    @property
    def cursor(self) -> tuple[int, int, bool]:
        """The column and row of the cursor, and whether it is visible."""
        text = self._do("display-message", "-p", "#{cursor_x} #{cursor_y} #{cursor_flag}")
        column, row, flag = map(int, text.split())
        return column, row, bool(flag)

    def until(self, pattern: str, seconds: float = 20) -> str:
        """Wait for a pattern; return the screen."""
        end = time.monotonic() + seconds
        while not re.search(pattern, screen := self.screen(), re.MULTILINE):
            assert time.monotonic() < end, f"{pattern!r} did not appear:\n{screen}"
            time.sleep(0.05)
        return screen

    def did(self, line: str) -> str:
        """Clear the screen, enter a line, and return the output up to the next prompt."""
        self.until(r"^> *$")
        self.keys("C-l")
        self.until(r"\A> *$")
        self.say(line)
        _, _, below = self.until(r"^>(?! *$)(?s:.*)^> *$").partition("\n")
        output, _, _ = below.rpartition("\n>")
        return output.rstrip("\n")

    def clipboard(self) -> str:
        """The text that was copied last."""
        return self._do("show-buffer")

    @property
    def pid(self) -> int:
        """The id of the process that the shell of the pane started."""
        shell = self._do("display-message", "-p", "#{pane_pid}").strip()
        return int(Path(f"/proc/{shell}/task/{shell}/children").read_text().split()[0])

    def code(self, seconds: float = 20) -> int:
        """Wait for the exit code, as a shell reports it. tmux 3.3 itself can miss it."""
        end = time.monotonic() + seconds
        file = Path(self._folder, "code")
        while not (file.exists() and (text := file.read_text())):
            assert time.monotonic() < end, f"still there:\n{self.screen()}"
            os.kill(
                int(self._do("display-message", "-p", "#{pid}")), signal.SIGCHLD
            )  # tmux 3.3 may miss one
            time.sleep(0.05)
        return int(text)

    def __enter__(self) -> "Tmux":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._do("kill-server")
        shutil.rmtree(self._folder, ignore_errors=True)
