"""What is measured of a fresh process: its time, its first byte, its memory; and many processes at once."""

import contextlib
import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

Command = Sequence[str]
Env = Mapping[str, str]

# A child's peak counts what its parent had in memory when it started it: exec does not begin at zero. So a process
# smaller than anything measured here starts it, with spawn and not with fork.
_LAUNCHER = """
import os, sys
quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet)
_, status, usage = os.wait4(child, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""
_PROMPT = rb"\x1b\[\?2004h.*> ?\x1b.*\x1b\[\?25h"  # pastes are bracketed from now on; the cursor is shown behind it
_RSS_UNITS = 1 << 20 if sys.platform == "darwin" else 1 << 10  # per MiB: macOS counts bytes, Linux KiB


class Failed(Exception):
    """A command did not do its work, so its time means nothing."""


def _check(command: Command, code: int, errors: bytes) -> None:
    if code:
        lines = errors.decode("utf-8", "replace").strip().splitlines() or ["no word"]
        word = lines[-1 if lines[0].startswith("Traceback") else 0]
        raise Failed(f"{os.path.basename(command[0])} ended with {code}: {word}")


def whole(command: Command, env: Env) -> float:
    """Seconds of a whole run, its output thrown away."""
    with tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, check=False
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
        raise Failed(f"{os.path.basename(command[0])} wrote nothing")
    return took


def first_word(command: Command, env: Env, word: str) -> float:
    """Seconds from the start of the process, on a terminal of its own, until a word is on the screen."""
    started = time.perf_counter()
    pid, terminal = pty.fork()
    if not pid:
        os.execvpe(command[0], [*command], {**env, "TERM": "xterm-256color"})
    seen = _read_until(terminal, word.encode())
    took = time.perf_counter() - started
    with contextlib.suppress(OSError):  # Linux reports the other end's exit as EIO
        while more := os.read(terminal, 1 << 16):
            seen += more
    os.close(terminal)
    _check(command, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen)
    return took


def prompt_ready(command: Command, env: Env) -> float:
    """Seconds from the start of the process until its prompt is drawn. A letter typed then must appear.

    It runs on a terminal of its own, which it leaves by Ctrl-C and Ctrl-D.
    """
    started = time.perf_counter()
    pid, terminal = pty.fork()
    if not pid:
        os.execvpe(command[0], [*command], {**env, "TERM": "xterm-256color"})
    seen = _read_until(terminal, _PROMPT)
    took = time.perf_counter() - started
    os.write(terminal, b"w")
    seen += _read_until(terminal, b"w")
    os.write(terminal, b"\x03\x04")
    with contextlib.suppress(OSError):  # Linux reports the other end's exit as EIO
        while more := os.read(terminal, 1 << 16):
            seen += more
    os.close(terminal)
    _check(command, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen)
    return took


def _read_until(terminal: int, pattern: bytes) -> bytes:
    """What is drawn until a pattern is seen. Raises Failed where the process ends before."""
    seen = b""
    while not re.search(pattern, seen, re.DOTALL):
        try:
            seen += os.read(terminal, 1 << 16)
        except OSError as err:
            raise Failed(f"it ended before it was seen: {seen.decode('utf-8', 'replace')[-200:]}") from err
    return seen


def peak_memory(command: Command, env: Env) -> float:
    """The most memory a run held, in MiB."""
    return told([sys.executable, "-I", "-S", "-c", _LAUNCHER, *command], env) / _RSS_UNITS


def told(command: Command, env: Env) -> float:
    """The number that a run prints."""
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    _check(command, done.returncode, done.stderr)
    return float(done.stdout)


def together(commands: Sequence[Command], env: Env) -> float:
    """Seconds until all of the runs have ended, started at once. A word on stderr is a failure too."""
    started = time.perf_counter()
    running = [
        subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for command in commands
    ]
    said = [process.communicate()[1] for process in running]
    took = time.perf_counter() - started
    for process, command, errors in zip(running, commands, said, strict=True):
        _check(command, process.returncode or bool(errors), errors)
    return took
