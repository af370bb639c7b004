"""Many at once, and killed at any moment: every turn that was acknowledged is there, and every file is whole."""

import random
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.home import Home, texts


def at_once(home: Home, count: int, *args: str) -> None:
    """So many runs start, each with a question of its own; all succeed."""
    processes = [home.start(*args, f"turn {number}") for number in range(count)]
    for process in processes:
        out, err = process.communicate(timeout=100)
        assert (process.returncode, err) == (0, b"")
        assert out.startswith(b"You said: turn ")


def all_together(doc: dict[str, Any], turns: int) -> None:
    """Each answer stands behind its own question, and no message is there twice."""
    lines = texts(doc)
    assert (doc["stats"]["turns"], len({message["id"] for message in doc["messages"]})) == (turns, 2 * turns)
    for question, reply in zip(lines[::2], lines[1::2], strict=True):
        # a question that another run was still asking when this one started is part of what this one sent
        assert reply.startswith("assistant: You said: ")
        assert reply.endswith(question.removeprefix("user: "))


def test_8_processes_starting_one_name_at_once_share_one_session(lab: Home) -> None:
    at_once(lab, 8, "-s", "@new")
    all_together(lab.doc(), 8)


@pytest.mark.slow
def test_32_processes_resuming_one_session_at_once_keep_all_turns(lab: Home) -> None:
    lab.run("begin")
    at_once(lab, 32, "-s", "0")
    all_together(lab.doc(), 33)
    assert not list(lab.sessions.glob("*.tmp"))


@pytest.mark.slow
def test_16_new_sessions_at_once_are_16_sessions(lab: Home) -> None:
    at_once(lab, 16)
    docs = lab.docs()
    assert (len({doc["id"] for doc in docs}), [doc["stats"]["turns"] for doc in docs]) == (16, [1] * 16)


@pytest.mark.slow
@pytest.mark.timeout(400)  # on a machine that others use a run takes seconds
def test_40_killed_saves_lose_no_acknowledged_turn(home: Home) -> None:
    home.run("-m", "echo", "-s", "@k", stdin="x" * 2_000_000)  # a file so large that saving is half of the run
    seed = random.Random(4711)

    def attempt(number: int, until_killed: float | None) -> tuple[int, int, float]:
        started = time.monotonic()
        process = home.start("-s", "@k", f"turn {number}", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if until_killed is not None:
            time.sleep(until_killed)
            process.send_signal(signal.SIGKILL)
        return number, process.wait(), time.monotonic() - started

    acknowledged, killed, number = [], 0, 0
    with ThreadPoolExecutor(2) as pool:
        while killed < 40:
            assert number < 300, f"only {killed} of {number} runs were killed"
            usual = sorted(pool.map(lambda n: attempt(n, None)[2], [number, number + 1, number + 2]))[1]
            acknowledged += range(number, number + 3)
            numbers = range(number + 3, number + 13)
            number += 13
            for done, code, _ in pool.map(lambda n, u=usual: attempt(n, u * seed.uniform(0.5, 1.1)), numbers):
                assert code in (0, -signal.SIGKILL)
                killed += code != 0
                acknowledged += [done] if code == 0 else []
            assert home.run("--list-sessions").stderr == ""
    lines = texts(home.doc())
    for done in acknowledged:  # an answer may hold the unanswered questions of killed runs before its own
        assert lines[lines.index(f"user: turn {done}") + 1].endswith(f"turn {done}")
