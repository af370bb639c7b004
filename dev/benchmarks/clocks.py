"""Measure new processes: run time, time to the first byte, peak memory; and many processes at once."""

import contextlib
import os
import pty
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence

Command = Sequence[str]
Env = Mapping[str, str]

# The peak of a child includes the memory of its parent at the start: exec does not reset it. So a small process starts
# the child, with spawn and not with fork.
_LAUNCHER = """
import os, sys
quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet)
_, status, usage = os.wait4(child, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""
PROMPT = rb"\x1b\[\?2004h.*> ?\x1b.*\x1b\[\?25h"  # bracketed paste on, the prompt, cursor shown
_RSS_UNITS = (
    1 << 20 if sys.platform == "darwin" else 1 << 10
)  # per MiB: macOS counts bytes, Linux KiB


class MeasurementError(Exception):
    """A command did not do its work, so the measurement is not valid."""


def _check(command: Command, code: int, errors: bytes) -> None:
    if code:
        lines = errors.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        message = lines[-1 if lines[0].startswith("Traceback") else 0]
        raise MeasurementError(f"{os.path.basename(command[0])} ended with {code}: {message}")


def run_time(command: Command, env: Env) -> float:
    """Seconds from start to exit; the output is discarded."""
    with tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        done = subprocess.run(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            check=False,
        )
        took = time.perf_counter() - started
        errors.seek(0)
        _check(command, done.returncode, errors.read())
    return took


def first_byte(command: Command, env: Env) -> float:
    """Seconds from the start of the process to the first byte on its stdout."""
    with tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        with subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        ) as process:
            assert process.stdout
            first = os.read(process.stdout.fileno(), 1)
            took = time.perf_counter() - started
            process.stdout.read()
        errors.seek(0)
        _check(command, process.returncode, errors.read())
    if not first:
        raise MeasurementError(f"{os.path.basename(command[0])} wrote nothing")
    return took


def first_word(command: Command, env: Env, word: str) -> float:
    """Seconds from the start of the process, in a new terminal, until a word is on the screen."""
    started = time.perf_counter()
    pid, terminal = pty.fork()
    if not pid:
        os.execvpe(command[0], [*command], {**env, "TERM": "xterm-256color"})
    seen = _read_until(terminal, word.encode())
    took = time.perf_counter() - started
    _await_end(command, pid, terminal, seen)
    return took


class Finish(threading.Event):
    """A step of a scripted answer that does not wait; ``moment`` is when the server reached it."""

    moment = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        self.moment = time.perf_counter()
        return True


def after_answer(command: Command, env: Env, finish: Finish, *, terminal: bool) -> float:
    """Seconds from the end of the server's answer to the end of the process, in a pipe or in a new terminal."""
    if terminal:
        first_word(command, env, "You")
    else:
        first_byte(command, env)
    return time.perf_counter() - finish.moment


def prompt_ready(command: Command, env: Env) -> float:
    """Seconds from the start of the process, in a new terminal, until its prompt is drawn.

    A letter typed then must appear. Ctrl-C and Ctrl-D end the process.
    """
    started = time.perf_counter()
    pid, terminal = pty.fork()
    if not pid:
        os.execvpe(command[0], [*command], {**env, "TERM": "xterm-256color"})
    seen = _read_until(terminal, PROMPT)
    took = time.perf_counter() - started
    os.write(terminal, b"w")
    seen += _read_until(terminal, b"w")
    os.write(terminal, b"\x03\x04")
    _await_end(command, pid, terminal, seen)
    return took


def _await_end(command: Command, pid: int, terminal: int, seen: bytes) -> None:
    """Read the rest that a process writes to its terminal, and check that it succeeded."""
    with contextlib.suppress(OSError):  # Linux reports the other end's exit as EIO
        while more := os.read(terminal, 1 << 16):
            seen += more
    os.close(terminal)
    _check(command, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen)


def _read_until(terminal: int, pattern: bytes) -> bytes:
    """The output up to a pattern. Raises MeasurementError if the process ends before that."""
    output = b""
    while not re.search(pattern, output, re.DOTALL):
        try:
            output += os.read(terminal, 1 << 16)
        except OSError as err:
            text = output.decode("utf-8", "replace")[-200:]
            raise MeasurementError(f"ended before the expected output: {text}") from err
    return output


def peak_memory(command: Command, env: Env) -> float:
    """The peak memory of a run, in MiB."""
    return printed_number([sys.executable, "-I", "-S", "-c", _LAUNCHER, *command], env) / _RSS_UNITS


def printed_number(command: Command, env: Env) -> float:
    """The number that a run prints to stdout."""
    done = subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    _check(command, done.returncode, done.stderr)
    return float(done.stdout)


def run_parallel(commands: Sequence[Command], env: Env) -> float:
    """Seconds until all runs, started at once, have ended. A note is no failure: on a slow machine a save may wait."""
    started = time.perf_counter()
    running = [
        subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for command in commands
    ]
    outputs = [process.communicate()[1] for process in running]
    took = time.perf_counter() - started
    for process, command, errors in zip(running, commands, outputs, strict=True):
        _check(command, process.returncode, errors)
    return took
