"""Another process that holds the lock of the store, and a clock that is far off."""

import signal
import subprocess
import sys
import time

import pytest

from tests.support.home import Home, read_until, start_answer, wait_for_exit
from tests.support.server import ModelServer
from tests.support.sessions import lock_held

WAITING = b"gptsh: waiting to save: another process uses the sessions\n"


@pytest.mark.slow
def test_an_answer_waits_for_the_lock_as_long_as_it_takes_and_says_so_after_a_second(
    lab: Home, model: ModelServer
) -> None:
    model.say("hello", model="m")
    lab.run("first")
    model.say("an answer", model="m")
    with lock_held(lab) as release:
        started = time.monotonic()
        process = lab.start("-s", "0", "hi")
        assert read_until(process.stderr, b"\n") == WAITING
        assert 0.9 < time.monotonic() - started < 3
        assert (
            read_until(process.stdout, b"answer") == b"an answer"
        )  # its question is not saved yet
        time.sleep(7)
        assert process.poll() is None
        released = time.monotonic()
        release()
        assert wait_for_exit(process) == 0
        assert time.monotonic() - released < 2
    assert process.stderr
    assert process.stderr.read() == b""
    assert len(lab.doc()["messages"]) == 4


def test_a_second_ctrl_c_ends_the_wait_for_the_lock(lab: Home, model: ModelServer) -> None:
    process, more = start_answer(lab, model)
    with lock_held(lab):
        more.set()
        assert read_until(process.stderr, b"\n") == WAITING
        process.send_signal(signal.SIGINT)
        time.sleep(1)  # one within 0.25 s counts as the same
        process.send_signal(signal.SIGINT)
        assert wait_for_exit(process) == 130


@pytest.mark.slow
def test_a_session_is_not_deleted_while_another_process_holds_the_lock(
    lab: Home, model: ModelServer
) -> None:
    lab.run("first")
    with lock_held(lab):
        started = time.monotonic()
        run = lab.run("--delete-session", lab.files()[0].name)
        assert 4 < time.monotonic() - started < 10
        assert run.stdout == ""
        assert run.code == 1
        assert run.stderr == f"gptsh: {lab.state} is locked by another process: try again\n"
    assert len(lab.files()) == 1


@pytest.mark.slow
def test_an_import_waits_for_the_lock_as_long_as_it_takes(lab: Home) -> None:
    lab.run("first")
    (lab.cwd / "b.json").write_text(
        '[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]'
    )
    with lock_held(lab) as release:
        process = lab.start("--import-session", "b.json")
        assert read_until(process.stderr, b"\n") == WAITING
        time.sleep(6)
        assert process.poll() is None
        release()
        assert wait_for_exit(process) == 0
    assert len(lab.files()) == 2


@pytest.mark.parametrize("seconds", ["253402300799.9997", "253402200000", "300000000000"])
def test_a_clock_beyond_the_year_9000_is_one_line(home: Home, seconds: str) -> None:
    clock = f"""
import datetime, sys, time
class Late(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp({seconds}, tz)
time.time = lambda: {seconds}
datetime.datetime = Late
from gptsh.cli.entrypoint import main
sys.exit(main(["-m", "echo", "hi"]))
"""
    run = subprocess.run(
        [sys.executable, "-c", clock],
        env=home.env,
        cwd=home.cwd,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert run.stdout == ""
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith("gptsh: the clock of this machine is wrong: ")


@pytest.mark.slow
def test_ctrl_c_while_the_question_waits_to_be_saved_says_that_it_is_not(
    lab: Home, model: ModelServer
) -> None:
    model.say("hello", model="m")
    lab.run("first")
    with lock_held(lab):
        process = lab.start("-s", "0", "hi")
        assert read_until(process.stderr, b"\n") == WAITING
        process.send_signal(signal.SIGINT)
        assert wait_for_exit(process) == 130
        assert process.stderr.read() == b"gptsh: nothing of this turn is saved: ask again\n"
    assert len(model.requests) == 1
