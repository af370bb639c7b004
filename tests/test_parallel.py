"""Many at once, and killed at any moment: every turn that was acknowledged is there, and every file is whole."""

import random
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from tests.conftest import Home, texts
from tests.server import ModelServer


def test_32_processes_resuming_one_session_at_once_keep_all_turns(lab: Home, model: ModelServer) -> None:
    lab.run("begin")
    processes = [lab.start("-s", "0", f"turn {i}") for i in range(32)]
    for process in processes:
        out, err = process.communicate(timeout=100)
        assert (process.returncode, err) == (0, b"")
        assert out.startswith(b"You said: turn ")
    doc = lab.doc()
    assert doc["stats"] == {"turns": 33, "messages": 66, "preview": "begin"}
    lines = texts(doc)
    for question, reply in zip(lines[::2], lines[1::2], strict=True):  # each answer behind its own question
        assert reply == question.replace("user: ", "assistant: You said: ")
    assert len({m["id"] for m in doc["messages"]}) == 66
    assert not list(lab.sessions.glob("*.tmp"))


def test_16_processes_starting_one_name_at_once_share_one_session(lab: Home) -> None:
    processes = [lab.start("-s", "@new", f"turn {i}") for i in range(16)]
    for process in processes:
        assert process.communicate(timeout=100)[1] == b""
        assert process.returncode == 0
    assert lab.doc()["stats"]["turns"] == 16


def test_16_new_sessions_at_once_are_16_sessions(lab: Home) -> None:
    processes = [lab.start(f"turn {i}") for i in range(16)]
    for process in processes:
        assert process.communicate(timeout=100)[1] == b""
        assert process.returncode == 0
    docs = lab.docs()
    assert len({doc["id"] for doc in docs}) == 16
    assert all(doc["stats"]["turns"] == 1 for doc in docs)


def test_100_killed_saves_lose_no_acknowledged_turn(home: Home) -> None:
    home.run("-m", "echo", "-s", "@k", "x" * 300_000)  # a file large enough to be caught while it is written
    seed = random.Random(4711)
    started = time.monotonic()
    home.run("-s", "@k", "measure")
    usual = time.monotonic() - started
    acknowledged, killed = [], 0

    def attempt(number: int) -> tuple[int, int]:
        process = home.start("-s", "@k", f"turn {number}", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=seed.uniform(0.4, 2.2) * usual)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        return number, process.wait()

    numbers = iter(range(1000))
    with ThreadPoolExecutor(2) as pool:
        while killed < 100:
            batch = [next(numbers) for _ in range(10)]
            for number, code in pool.map(attempt, batch):
                assert code in (0, -signal.SIGKILL)
                killed += code != 0
                acknowledged += [number] if code == 0 else []
            assert home.run("--list-sessions").stderr == ""
    (doc,) = [doc for doc in home.docs() if doc["messages"][0]["content"].startswith("xxx")]
    kept = set(texts(doc))
    for number in acknowledged:
        assert {f"user: turn {number}", f"assistant: You said: turn {number}"} <= kept
    assert acknowledged, "every run was killed: the test proves nothing"
