"""The command as a user runs it: a real process, a home of its own, a model on loopback."""

import contextlib
import copy
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from tests.hosted import Hosted
from tests.server import ModelServer, answer

settings.register_profile("gptsh", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gptsh")

# A shell starts what runs in the background with SIGINT and SIGQUIT ignored, nohup with SIGHUP, and a process of a test
# would inherit that. Where there is a handler it gets the default instead; SIGHUP still does not end the suite.
for _signum in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(_signum) is signal.SIG_IGN:
        signal.signal(_signum, lambda _signum, _frame: None)
signal.signal(signal.SIGINT, signal.default_int_handler)

COMMAND = [sys.executable, "-m", "gptsh"]


class Result(NamedTuple):
    """What a run left: both streams, and the exit code as a shell sees it."""

    stdout: str
    stderr: str
    code: int


class Home:
    """A user's home in a temporary folder, with the environment that points there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cwd = folder / "work"
        self.cwd.mkdir()
        self.state = folder / "state" / "gptsh"
        self.sessions = self.state / "sessions"
        self.config = folder / "config" / "gptsh" / "config.toml"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "PYTHONPATH": str(Path(__file__).parent.parent),
            "PYTHONWARNINGS": "error",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
        }

    def configure(self, text: str) -> None:
        """Write config.toml."""
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(text)

    def start(self, *args: str, env: dict[str, str] | None = None, **more: Any) -> "subprocess.Popen[bytes]":
        """A process that is still running; stdin is closed unless told otherwise."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        return subprocess.Popen([*COMMAND, *args], env={**self.env, **(env or {})}, cwd=self.cwd, **pipes)

    def run(
        self, *args: str, stdin: str | bytes | None = None, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> Result:
        """A whole run."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [*COMMAND, *args],
            input=data,
            stdin=subprocess.DEVNULL if data is None else None,
            capture_output=True,
            env={**self.env, **(env or {})},
            cwd=cwd or self.cwd,
            timeout=60,
            check=False,
        )
        code = done.returncode if done.returncode >= 0 else 128 - done.returncode
        return Result(done.stdout.decode("utf-8", "surrogateescape"), done.stderr.decode("utf-8", "replace"), code)

    def files(self) -> list[Path]:
        """The session files, newest first."""
        return sorted(self.sessions.glob("*.json"), reverse=True) if self.sessions.is_dir() else []

    def elsewhere(self) -> "Home":
        """The same user with another state folder."""
        other = copy.copy(self)
        other.state = self.folder / "elsewhere" / "gptsh"
        other.sessions = other.state / "sessions"
        other.env = {**self.env, "XDG_STATE_HOME": str(self.folder / "elsewhere")}
        return other

    def docs(self) -> list[dict[str, Any]]:
        """The sessions, newest first; each must be valid JSON."""
        docs = [json.loads(path.read_bytes()) for path in self.files()]
        return sorted(docs, key=lambda doc: str(doc["created_at"]), reverse=True)

    def doc(self) -> dict[str, Any]:
        """The only session."""
        (doc,) = self.docs()
        return doc


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home without a config file."""
    return Home(tmp_path)


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """A model server of the test's own."""
    server = ModelServer()
    yield server
    server.close()


@pytest.fixture
def hosted(home: Home, model: ModelServer) -> Iterator[Home]:
    """A home whose default model is ``openai/gpt-4.1``, titled by ``gpt-4.1-mini``; both are the model server."""
    vendor = Hosted(model, home.folder)
    home.env |= vendor.env
    home.configure('[agents.default]\nmodel = "openai/gpt-4.1"\nmodel_small = "openai/gpt-4.1-mini"\n')
    yield home
    vendor.close()


@pytest.fixture
def lab(home: Home, model: ModelServer) -> Home:
    """A home whose default model is ``lab/m`` on the model server; no titles."""
    home.configure(lab_config(model))
    return home


def lab_config(model: ModelServer, more: str = '[sessions]\ntitles = "off"\n') -> str:
    """A config for the model server."""
    return f'[agents.default]\nmodel = "lab/m"\n[providers.lab]\nbase_url = "{model.base_url}"\n{more}'


def kind_of_session(doc: dict[str, Any]) -> object:
    """What two sessions have in common, whoever answered: every key, and what is known of each message."""
    optional = {"replay", "thinking", "tool_calls"}
    messages = [
        (m["role"], type(m["content"]).__name__, sorted(set(m) - optional), sorted(m.get("usage") or ()))
        for m in doc["messages"]
    ]
    return {key: sorted(value) for key, value in doc.items() if isinstance(value, dict)}, sorted(doc), messages


def texts(doc: dict[str, Any]) -> list[str]:
    """Each message of a session as ``role: text``."""
    lines = []
    for message in doc["messages"]:
        content = message["content"]
        text = content if isinstance(content, str) else "|".join(part["text"] for part in content)
        lines.append(f"{message['role']}: {text}")
    return lines


def wait_for(process: "subprocess.Popen[bytes]") -> int:
    """The exit code as a shell sees it."""
    code = process.wait(timeout=30)
    return code if code >= 0 else 128 - code


def read_until(stream: Any, text: bytes) -> bytes:
    """Read from a pipe until the text has come."""
    seen = b""
    while text not in seen:
        more = os.read(stream.fileno(), 4096)
        assert more, f"the stream ended before {text!r}: {seen!r}"
        seen += more
    return seen


def full_pipe() -> tuple[int, int]:
    """Both ends of a pipe that takes nothing more until it is read; its content is blanks."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b" " * 4096)
    os.set_blocking(writer, True)
    return reader, writer


@pytest.fixture
def store(home: Home, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """The store in this process, its state folder that of the home; returns the documents on disk."""
    monkeypatch.setenv("XDG_STATE_HOME", home.env["XDG_STATE_HOME"])
    monkeypatch.setenv("TZ", "UTC")
    return home.docs


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


def in_mid_answer(lab: Home, model: ModelServer, **more: Any) -> "tuple[subprocess.Popen[bytes], threading.Event]":
    """A run that has shown ``first`` and waits for the rest, and the event that lets it come."""
    release = threading.Event()
    first, *rest = answer("first ", "second")[1:]
    model.script(first, release, *rest, model="m")
    process = lab.start("go", **more)
    read_until(process.stdout, b"first ")
    return process, release
