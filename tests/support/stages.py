"""Start runs and stop at a stage, at which a test ends them: each function returns when the run has reached it."""

import fcntl
import struct
import subprocess
import termios
import threading
import time
from pathlib import Path
from typing import Any

from gptsh.core.locks import locked
from tests.support.home import Home, read_until, wait_until
from tests.support.server import Hold, ModelServer, answer, chunk, event
from tests.support.tools import call, calling, configure

LONG = "x" * 300_000  # more than a pipe can hold
FULL = 60_000  # bytes in a pipe that is nearly full
FIRST = event(chunk({"content": "first "}))


def settle(process: Any) -> None:
    """Wait until all threads of the process sleep, so that its input is read."""
    looks = 0  # in a row at which all sleep
    while looks < 5:
        time.sleep(0.05)
        looks = looks + 1 if _sleeps(process.pid) else 0


def _sleeps(pid: int) -> bool:
    """Whether no thread of a process runs; true except on Linux."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        state = stat.read_text().rpartition(")")[2].split()[0]
        if state != "S":
            return False
    return True


def unread_bytes(pipe: Any) -> int:
    """The number of unread bytes in a pipe."""
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0])


# ---- stages


def before_the_first_byte(lab: Home, model: ModelServer, hold: Hold, *args: str) -> Any:
    model.script(hold, *answer("late"))
    process = lab.start(*args, "go")
    assert hold.reached.wait(20)
    return process


def in_the_answer(lab: Home, model: ModelServer, hold: Hold, *args: str) -> Any:
    model.script(FIRST, hold, *answer("second")[1:])
    process = lab.start(*args, "go")
    if not args:
        read_until(process.stdout, b"first ")
    elif "jsonl" in args:
        read_until(process.stdout, b'"text":"first "')
    else:  # the output is empty so far
        assert hold.reached.wait(20)
        settle(process)
    return process


def at_the_lock(lab: Home, model: ModelServer, hold: Hold, *args: str) -> Any:
    """The answer is complete and waits for the lock."""
    process = in_the_answer(lab, model, hold, *args)
    lock = locked(lab.state)
    lock.__enter__()
    hold.set()
    settle(process)
    assert "json" not in args or not unread_bytes(process.stdout)  # printed after the save
    threading.Timer(0.4, lock.__exit__, (None, None, None)).start()
    return process


def at_a_tool(lab: Home, model: ModelServer, _hold: Hold, *args: str) -> Any:
    marker = lab.cwd / "marker"
    configure(lab, model)
    model.script(*calling(call("hang", path=str(marker))))
    process = lab.start(*args, "go")
    wait_until(marker.exists)
    return process


def at_the_pipe(lab: Home, _model: ModelServer, _hold: Hold, *args: str) -> Any:
    """Standard input has started and does not end."""
    process = lab.start(*args, "go", stdin=subprocess.PIPE)
    process.stdin.write(b"x")
    process.stdin.flush()
    wait_until(lambda: not unread_bytes(process.stdin))
    return process


def at_a_reader(_lab: Home, model: ModelServer, _hold: Hold, *args: str) -> Any:
    """The reader does not read, and the pipe is full."""
    model.say(LONG, "tail")
    process = _lab.start(*args, "go")
    wait_until(lambda: unread_bytes(process.stdout) > FULL)
    return process


# Of each stage: the texts on disk, the finish reason, a part of stderr.
EXPECTED: dict[Any, tuple[list[str], str | None, str]] = {
    before_the_first_byte: (["user: go"], None, "the question is saved"),
    in_the_answer: (
        ["user: go", "assistant: first "],
        "interrupted",
        "the partial answer is saved",
    ),
    at_the_lock: (["user: go", "assistant: first second"], "stop", ""),
    at_a_tool: (["user: go", "assistant: "], "tool_calls", "the partial answer is saved"),
    at_the_pipe: ([], None, ""),
    at_a_reader: (["user: go", "assistant: xxx"], "interrupted", "the partial answer is saved"),
}
