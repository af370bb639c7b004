"""Nine failures that were measured in tools of this kind (llm 0.36, the first gptsh 0.8.3, shell-gpt 1.5.1): none here.

One test each, named after the failure. How each was measured stood in the research that this project began with.
"""

import re
import signal
import stat
import subprocess
from importlib.metadata import requires

import pytest

from tests.support.home import COMMAND, Home, in_mid_answer, lab_config, texts, wait_for
from tests.support.server import ModelServer
from tests.support.terminal import Terminal

FINAL = {"x-should-retry": "false"}


@pytest.mark.slow
def test_1_parallel_runs_fail_because_the_store_is_locked(lab: Home) -> None:
    processes = [lab.start(f"question {number}") for number in range(20)]
    ends = [(process.communicate(timeout=60), process.returncode) for process in processes]
    assert [code for _, code in ends] == [0] * 20
    assert all(err == b"" for (_, err), _ in ends)
    assert {texts(doc)[0] for doc in lab.docs()} == {f"user: question {number}" for number in range(20)}
    assert len({doc["id"] for doc in lab.docs()}) == 20


@pytest.mark.slow
def test_2_ctrl_c_and_a_closed_pipe_lose_question_and_answer(lab: Home, model: ModelServer) -> None:
    process, release = in_mid_answer(lab, model)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    release.set()
    assert wait_for(process) == 130
    assert texts(lab.doc()) == ["user: go", "assistant: first "]
    assert lab.doc()["messages"][-1]["finish_reason"] == "interrupted"

    model.say("one\n", "two\n" * 50_000)
    done = shell(lab, "gptsh -s 0 'again' | head -1")
    assert (done.stdout, done.stderr, done.returncode) == ("one\n", "", 0)
    assert texts(lab.doc())[2] == "user: again"
    assert texts(lab.doc())[3].startswith("assistant: one\n")


@pytest.mark.slow
def test_3_parallel_turns_on_one_session_overwrite_each_other(lab: Home) -> None:
    lab.run("begin")
    processes = [lab.start("-s", "0", f"turn {number}") for number in range(4)]
    assert [wait_for(process) for process in processes if process.communicate(timeout=60)] == [0] * 4
    said = texts(lab.doc())
    assert {line for line in said if line.startswith("user: turn")} == {f"user: turn {number}" for number in range(4)}
    for number in range(4):  # each answer behind its own question
        assert said[said.index(f"user: turn {number}") + 1].endswith(f"turn {number}")


def test_4_ctrl_c_leaves_an_empty_stdout_a_wrong_code_and_an_empty_session(lab: Home, model: ModelServer) -> None:
    process, release = in_mid_answer(lab, model)  # it has read "first ", which no newline follows
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    release.set()
    assert wait_for(process) == 130
    assert lab.doc()["stats"]["messages"] == 2

    process = lab.start("never answered", stdin=subprocess.PIPE)
    with pytest.raises(subprocess.TimeoutExpired):  # it waits for standard input
        process.wait(0.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert wait_for(process) == 130
    assert len(lab.files()) == 1


def test_5_a_title_delays_the_save_and_its_failure_stands_on_stdout(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, '[providers.small]\nbase_url = "http://127.0.0.1:9/v1"\n').replace(
        'model = "lab/m"', 'model = "lab/m"\nmodel_small = "small/s"'
    ))  # fmt: skip
    run = home.run("hello")
    assert (run.stdout, run.stderr, run.code) == ("You said: hello\n", "", 0)
    assert home.doc()["title"] is None
    assert len(model.asked) == 1


MARKED_UP = "[bold]not bold[/bold] :smile: [/etc/passwd] " + "a word " * 40


def test_6_text_is_wrapped_and_what_looks_like_markup_is_eaten(lab: Home, model: ModelServer) -> None:
    for args in ([], ["-o", "text"]):
        model.say(MARKED_UP)
        assert lab.run(*args, "go").stdout == MARKED_UP + "\n"


def test_7_errors_are_tracebacks_or_stand_on_stdout_and_files_are_open_to_all(lab: Home, model: ModelServer) -> None:
    for args in (["-s", "zzzz", "go on"], ["--show-session", "zzzz"]):
        run = lab.run(*args)
        assert (run.stdout, run.code) == ("", 2)
        assert re.fullmatch(r"gptsh: no session 'zzzz': .+\n", run.stderr)
    assert lab.files() == []
    model.refuse(401, {"error": {"message": "wrong key"}}, FINAL)
    run = lab.run("hello")
    assert (run.stdout, run.code) == ("", 1)
    assert run.stderr.startswith("gptsh: lab refused the key (401): wrong key")
    assert texts(lab.doc()) == ["user: hello"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in (lab.files()[0], lab.sessions)] == [0o600, 0o700]


def test_8_a_fresh_install_is_dead_on_arrival(home: Home) -> None:
    """Unbounded requirements resolve to what does not fit. CI installs into a fresh environment and runs this there."""
    needed = [line for line in requires("gptsh") or () if "extra ==" not in line]
    assert needed
    assert [line for line in needed if "<" not in line] == []
    run = home.run("-m", "echo", "hello")
    assert (run.stdout, run.stderr, run.code) == ("You said: hello\n", "", 0)


@pytest.mark.slow
def test_9_escape_sequences_of_the_model_reach_the_terminal(lab: Home, model: ModelServer) -> None:
    hostile = "\x1b]52;c;ZXZpbA==\x07\x1b[31mred\x1b[2J\x9b5m"
    for args in ([], ["-o", "text"], ["-o", "json"], ["-x"]):
        model.say(hostile)
        seen, code = Terminal(lab, *args, "go").close()
        assert code == 0
        assert not re.search(rb"\x1b\]|\x1b\[31m|\x1b\[2J|\xc2\x9b|\x07", seen), seen
    model.say(hostile)
    assert lab.run("go").stdout == hostile + "\n"  # in a pipe, byte for byte


def shell(home: Home, line: str) -> "subprocess.CompletedProcess[str]":
    """A line of bash with pipefail, in which gptsh is the command under test."""
    function = "gptsh() { " + " ".join(COMMAND) + ' "$@"; }'
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{function}; {line}"],
        env=home.env, cwd=home.cwd, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
