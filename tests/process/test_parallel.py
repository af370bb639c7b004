"""Many at once, and killed at any moment: every turn that was acknowledged is there, and every file is whole."""

import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.home import Home, read_until, texts, wait_for_exit, wait_until
from tests.support.server import ModelServer
from tests.support.sessions import lock_held

WAITED = b"gptsh: waiting to save: another process uses the sessions\n"  # on a busy machine


def at_once(home: Home, count: int, *args: str) -> None:
    """So many runs start, each with its own question; all succeed."""
    processes = [home.start(*args, f"turn {number}") for number in range(count)]
    for process in processes:
        out, err = process.communicate(timeout=100)
        notes = err.replace(b"gptsh: @new is a new session\n", b"").replace(WAITED, b"")
        assert process.returncode == 0
        assert notes == b""
        assert out.startswith(b"You said: turn ")


def all_together(doc: dict[str, Any], turns: int) -> None:
    """Each answer follows its own question, and no message is there twice."""
    lines = texts(doc)
    assert doc["stats"]["turns"] == turns
    assert len({message["id"] for message in doc["messages"]}) == 2 * turns
    for question, reply in zip(lines[::2], lines[1::2], strict=True):
        assert reply == f"assistant: You said: {question.removeprefix('user: ')}"


@pytest.mark.parametrize("count", [5, pytest.param(16, marks=pytest.mark.slow)])
def test_runs_starting_and_resuming_one_name_at_once_share_one_session(
    lab: Home, count: int
) -> None:
    for times in (1, 2):
        at_once(lab, count, "-s", "@new")
        all_together(lab.doc(), times * count)
    assert not list(lab.sessions.glob("*.tmp"))


@pytest.mark.parametrize("how", ["--no-stream", "-x", '--schema={"type": "string"}', "-ojson"])
def test_lines_of_parallel_runs_without_streaming_do_not_mix(
    lab: Home, model: ModelServer, how: str
) -> None:
    text = f'"{"w" * 20_000}"'
    model.say(text)
    ours, theirs = socket.socketpair(
        socket.AF_UNIX, socket.SOCK_DGRAM
    )  # each write arrives as one message
    with ours, theirs:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
        assert wait_for_exit(lab.start(how, "hi", stdout=theirs)) == 0
        ours.setblocking(False)
        only = ours.recv(1 << 17).decode()
        with pytest.raises(BlockingIOError):
            ours.recv(1)
    assert only == f"{text}\n" or json.loads(only)["text"] == text
    assert only.endswith("\n")


def words(model: ModelServer) -> list[str]:
    """The messages of the newest request."""
    return [message["content"] for message in model.sent[-1]["messages"]]


def test_a_question_that_another_run_is_asking_is_no_part_of_a_request(
    lab: Home, model: ModelServer
) -> None:
    lab.run("-s", "@s", "begin")
    release = model.halt("the cat", model="m")
    other = lab.start("-s", "@s", "translate cat")
    wait_until(lambda: len(model.requests) == 2)
    assert lab.run("-s", "@s").stdout == "You said: begin\n"  # no question is left to be asked
    assert lab.run("-s", "@s", "translate dog").stdout == "You said: translate dog\n"
    assert words(model) == ["begin", "You said: begin", "translate dog"]
    release.set()
    assert other.wait(timeout=30) == 0
    lab.run("-s", "@s", "and then?")
    pairs = [
        "begin",
        "You said: begin",
        "translate cat",
        "the cat",
        "translate dog",
        "You said: translate dog",
    ]
    assert words(model) == [*pairs, "and then?"]


def test_a_question_whose_run_was_killed_goes_along(lab: Home, model: ModelServer) -> None:
    release = model.halt(model="m")
    other = lab.start("-s", "@s", "translate cat")
    wait_until(lambda: model.requests)
    other.kill()
    other.wait()
    release.set()
    lab.run("-s", "@s", "and dog")
    assert words(model) == ["translate cat\n\nand dog"]


@pytest.mark.slow
@pytest.mark.timeout(400)  # on a machine that others use a run takes seconds
def test_40_killed_saves_lose_no_acknowledged_turn(home: Home) -> None:
    home.run(
        "-m", "echo", "-s", "@k", stdin="lorem ipsum " * 170_000
    )  # a file so large that saving is half of the run
    seed = random.Random(4711)
    acknowledged = []
    killed = 0
    usual = 1.0
    for number in range(300):
        started = time.monotonic()
        process = home.start(
            "-s", "@k", f"turn {number}", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        if number % 5:
            time.sleep(usual * seed.uniform(0.5, 1.1))
            process.send_signal(signal.SIGKILL)
        code = process.wait()
        usual = (
            usual if number % 5 else time.monotonic() - started
        )  # every fifth is let live and timed
        assert code in (0, -signal.SIGKILL)
        killed += code != 0
        acknowledged += [number] if code == 0 else []
        if killed == 40:
            break
    assert killed == 40
    assert home.run("--list-sessions").stderr == ""
    lines = texts(home.doc())
    for (
        done
    ) in acknowledged:  # an answer may hold the unanswered questions of killed runs before its own
        assert lines[lines.index(f"user: turn {done}") + 1].endswith(f"turn {done}")


@pytest.mark.slow
@pytest.mark.timeout(400)  # on a machine that others use a run takes seconds
@pytest.mark.parametrize("ref", ["@work", None], ids=["one session", "many sessions"])
def test_of_150_runs_32_at_once_none_is_lost_or_starves(home: Home, ref: str | None) -> None:
    home.run("-m", "echo", "-s", "@work", "first")
    is_over = threading.Event()

    def clean_up() -> None:
        while not is_over.wait(0.01):
            for path in home.state.glob(".*lock*"):
                path.unlink(missing_ok=True)

    def run(number: int) -> tuple[float, int, bytes]:
        begun = time.monotonic()
        session = ["-s", ref] if ref else ["-m", "echo"]
        process = home.start(*session, f"turn {number}")
        _, err = process.communicate(timeout=300)
        return time.monotonic() - begun, process.returncode, err

    cleaner = threading.Thread(target=clean_up)
    cleaner.start()
    with ThreadPoolExecutor(32) as threads:
        runs = list(threads.map(run, range(150)))
    is_over.set()
    cleaner.join()
    assert [run for run in runs if run[1] or run[2] not in (b"", WAITED)] == []
    seconds = sorted(run[0] for run in runs)
    assert seconds[-1] < 4 * seconds[75]
    docs = [json.loads(path.read_text()) for path in home.files()]
    assert sum(len(doc["messages"]) for doc in docs) == 302


WAITER = """
import sys, time
from pathlib import Path
from gptsh.core.locks import locked
print("waits", flush=True)
with locked(Path(sys.argv[1]), wait=None):
    with open(sys.argv[2], "a") as served:
        served.write(sys.argv[3])
"""


def test_those_who_wait_for_the_store_get_it_in_turn(lab: Home) -> None:
    lab.run("first")
    served = lab.cwd / "served"
    with lock_held(lab):
        waiting = []
        for number in "123456":
            args = [sys.executable, "-c", WAITER, str(lab.state), str(served), number]
            waiting.append(subprocess.Popen(args, env=lab.env, stdout=subprocess.PIPE))
            assert read_until(waiting[-1].stdout, b"\n") == b"waits\n"
            time.sleep(0.05)
    for process in waiting:
        process.communicate(timeout=30)
    assert served.read_text() == "123456"


def test_who_waits_for_a_run_that_is_killed_goes_on(lab: Home) -> None:
    lab.run("first")
    program = WAITER.replace("    with open", "    time.sleep(60)\n    with open")
    args = [sys.executable, "-c", program, str(lab.state), "", ""]
    holder = subprocess.Popen(args, env=lab.env, stdout=subprocess.PIPE)
    assert read_until(holder.stdout, b"\n") == b"waits\n"
    process = lab.start("-s", "0", "second")
    assert read_until(process.stderr, b"\n") == WAITED
    assert process.poll() is None
    holder.kill()
    holder.communicate()
    assert process.communicate(timeout=30) == (b"You said: second\n", b"")
    assert lab.doc()["stats"]["turns"] == 2
