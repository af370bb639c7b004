"""The command as a user runs it: in a temporary home, with a model on loopback."""

import contextlib
import copy
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import forked, inprocess
from tests.support.paths import ROOT
from tests.support.server import ModelServer

COMMAND = [sys.executable, "-m", "gptsh"]


class Result(NamedTuple):
    """The output of a run, and its exit code as a shell reports it."""

    stdout: str
    stderr: str
    code: int


class Home:
    """A user's home in a temporary folder, and the environment for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cwd = folder / "work"
        self.cwd.mkdir()
        self.state = folder / "state" / "gptsh"
        self.sessions = self.state / "sessions"
        self.config = folder / "config" / "gptsh" / "config.toml"
        self.started: list[subprocess.Popen[bytes]] = []
        self.litellm = False  # whether a run in this process may import it
        self.forks = False  # whether a process may be a fork of this one, not a new interpreter
        self.env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "error",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }
        for name, value in os.environ.items():
            if name.startswith("COVERAGE_"):  # ``make coverage`` measures started processes, too
                self.env[name] = value

    def configure(self, text: str) -> None:
        """Write config.toml."""
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(text)

    def start(
        self, *args: str, env: dict[str, str] | None = None, **more: Any
    ) -> "subprocess.Popen[bytes]":
        """Start gptsh as a process; stdin is /dev/null by default."""
        options: dict[str, Any] = {
            "cwd": self.cwd,
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **more,
        }
        whole_env = {**self.env, **(env or {})}
        if self.can_fork(whole_env) and "preexec_fn" not in more:
            keep = more.get("pass_fds", ())
            options["preexec_fn"] = lambda: forked.become_gptsh(args, whole_env, keep)
        process = subprocess.Popen([*COMMAND, *args], env=whole_env, **options)
        self.started.append(process)
        return process

    def can_fork(self, env: dict[str, str]) -> bool:
        """Whether gptsh may run in a fork, for which everything is imported then."""
        return self.forks and forked.can_fork(env)

    def end(self) -> None:
        """Kill the processes that still run."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()

    def run(
        self,
        *args: str,
        stdin: str | bytes | None = None,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Result:
        """Run gptsh in this process: twenty times as fast as ``process``."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        out, err, code = inprocess.run(
            args, data, {**self.env, **(env or {})}, cwd or self.cwd, litellm=self.litellm
        )
        return Result(out.decode("utf-8", "surrogateescape"), err.decode("utf-8", "replace"), code)

    def process(
        self,
        *args: str,
        stdin: str | bytes | None = None,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Result:
        """Run gptsh as a process, for tests of signals, of closed streams and of litellm."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        source = subprocess.DEVNULL if data is None else subprocess.PIPE
        process = self.start(*args, env=env, cwd=cwd or self.cwd, stdin=source)
        out, err = process.communicate(data, timeout=60)
        return Result(
            out.decode("utf-8", "surrogateescape"),
            err.decode("utf-8", "replace"),
            as_shell_reports(process.returncode),
        )

    def files(self) -> list[Path]:
        """The session files, newest first."""
        return sorted(self.sessions.glob("*.json"), reverse=True)

    def elsewhere(self) -> "Home":
        """The same home with another state folder."""
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


def peak_of(home: Home, *args: str) -> tuple[str, int]:
    """The stderr of a run, and its largest use of memory in bytes."""
    script = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    command = [sys.executable, "-c", script, *COMMAND, *args]
    done = subprocess.run(
        command, env=home.env, cwd=home.cwd, capture_output=True, text=True, check=True
    )
    unit = 1 if sys.platform == "darwin" else 1024
    return done.stderr, int(done.stdout) * unit


def lab_config(model: ModelServer, more: str = '[sessions]\ntitles = "off"\n') -> str:
    """A config for the model server."""
    return (
        f'[agents.default]\nmodel = "lab/m"\n[providers.lab]\nbase_url = "{model.base_url}"\n{more}'
    )


def session_shape(doc: dict[str, Any]) -> object:
    """The keys of a session and of its messages, which do not depend on the provider."""
    optional = {"replay", "thinking", "tool_calls"}
    messages = []
    for message in doc["messages"]:
        keys = sorted(set(message) - optional)
        usage = sorted(message.get("usage") or ())
        messages.append((message["role"], type(message["content"]), keys, usage))
    tables = {key: sorted(value) for key, value in doc.items() if isinstance(value, dict)}
    return sorted(doc), tables, messages


def texts(doc: dict[str, Any]) -> list[str]:
    """Each message of a session as ``role: text``."""
    found = []
    for message in doc["messages"]:
        content = message["content"]
        if not isinstance(content, str):
            content = "|".join(part["text"] for part in content)
        found.append(f"{message['role']}: {content}")
    return found


def wait_for_exit(process: "subprocess.Popen[bytes]") -> int:
    """Wait for the exit code, as a shell reports it."""
    return as_shell_reports(process.wait(timeout=100))


def as_shell_reports(code: int) -> int:
    """The exit code of a process as a shell reports it: 128 and the number of the signal that ended it."""
    return code if code >= 0 else 128 - code


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for a condition, for at most twenty seconds."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def read_until(stream: Any, text: bytes) -> bytes:
    """Read from a pipe up to a text."""
    data = b""
    while text not in data:
        more = os.read(stream.fileno(), 4096)
        assert more, f"the stream ended before {text!r}: {data!r}"
        data += more
    return data


def start_answer(
    lab: Home, model: ModelServer, *args: str, **more: Any
) -> "tuple[subprocess.Popen[bytes], threading.Event]":
    """Start a run that has printed ``first``; the answer continues when the event is set."""
    release = model.halt("first ", "second", after=1, model="m")
    process = lab.start(*args, "go", **more)
    read_until(process.stdout, b"first ")
    return process, release
