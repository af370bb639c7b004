"""Many at once, and killed at any moment: every turn that was acknowledged is there, and every file is whole."""

import random
import signal
import subprocess
import time
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


@pytest.mark.parametrize("count", [5, pytest.param(16, marks=pytest.mark.slow)])
def test_runs_starting_and_resuming_one_name_at_once_share_one_session(lab: Home, count: int) -> None:
    for times in (1, 2):
        at_once(lab, count, "-s", "@new")
        all_together(lab.doc(), times * count)
    assert not list(lab.sessions.glob("*.tmp"))


@pytest.mark.slow
@pytest.mark.timeout(400)  # on a machine that others use a run takes seconds
def test_40_killed_saves_lose_no_acknowledged_turn(home: Home) -> None:
    home.run("-m", "echo", "-s", "@k", stdin="lorem ipsum " * 170_000)  # a file so large that saving is half of the run
    seed, acknowledged, killed, usual = random.Random(4711), [], 0, 1.0
    for number in range(300):
        started = time.monotonic()
        process = home.start("-s", "@k", f"turn {number}", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if number % 5:
            time.sleep(usual * seed.uniform(0.5, 1.1))
            process.send_signal(signal.SIGKILL)
        code = process.wait()
        usual = usual if number % 5 else time.monotonic() - started  # every fifth is let live and timed
        assert code in (0, -signal.SIGKILL)
        killed += code != 0
        acknowledged += [number] if code == 0 else []
        if killed == 40:
            break
    assert (killed, home.run("--list-sessions").stderr) == (40, "")
    lines = texts(home.doc())
    for done in acknowledged:  # an answer may hold the unanswered questions of killed runs before its own
        assert lines[lines.index(f"user: turn {done}") + 1].endswith(f"turn {done}")
