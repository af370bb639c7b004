"""How a run may end: signals, the deadline and readers that leave or stall, at any place, in any form. Nothing is lost.

Real processes; those on a terminal are in ``terminal/``.
"""

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.support.home import (
    COMMAND,
    Home,
    read_until,
    start_answer,
    texts,
    wait_for_exit,
    wait_until,
)
from tests.support.programs import needs
from tests.support.server import Hold, ModelServer, answer, chunk, event
from tests.support.stages import (
    EXPECTED,
    FIRST,
    FULL,
    LONG,
    at_a_reader,
    at_the_lock,
    at_the_pipe,
    before_the_first_byte,
    in_the_answer,
    unread_bytes,
)

CODES = {"SIGINT": 130, "SIGINT twice": 130, "SIGTERM": 143, "SIGHUP": 129, "deadline": 124}
JSON = ("-o", "json")
JSONL = ("-o", "jsonl")
MARKDOWN = ("-o", "markdown")
SLOW = pytest.mark.slow
CASES: list[Any] = [  # signal, place, form
    *[("SIGINT", place, ()) for place in EXPECTED],
    *[(how, before_the_first_byte, ()) for how in ("SIGTERM", "deadline")],
    *[(how, in_the_answer, ()) for how in ("SIGINT twice", "SIGHUP")],
    *[("SIGINT", in_the_answer, form) for form in (JSON, MARKDOWN, ("-x",))],
    ("SIGTERM", in_the_answer, JSON), ("SIGTERM", at_the_lock, JSONL),
    *[pytest.param(*case, marks=SLOW) for case in [
        ("SIGHUP", before_the_first_byte, ()), ("SIGINT", before_the_first_byte, JSON), ("SIGTERM", in_the_answer, ()),
        ("SIGINT", in_the_answer, JSONL), ("SIGHUP", in_the_answer, JSONL),
        ("SIGINT", at_the_lock, JSON), ("SIGINT", at_the_pipe, JSON),
        ("deadline", at_the_pipe, ()), ("SIGTERM", at_a_reader, ()), ("deadline", at_a_reader, ()),
    ]],
]  # fmt: skip


def name_of(value: Any) -> str:
    if callable(value):
        return str(value.__name__)
    if isinstance(value, tuple):
        return value[-1] if value else "text"
    return str(value)


@pytest.mark.parametrize(("how", "place", "form"), CASES, ids=name_of)
def test_what_ends_a_run_loses_nothing(
    lab: Home, model: ModelServer, how: str, place: Any, form: Any
) -> None:
    hold = Hold()
    kept, finish, said = EXPECTED[place]
    if how == "deadline":
        process = place(lab, model, hold, *form, "--timeout", "1.5")
        finish = "timeout"
    else:
        process = place(lab, model, hold, *form)
        name, _, twice = how.partition(" ")
        signum = getattr(signal, name)
        process.send_signal(signum)
        if twice:
            process.send_signal(signum)
    wait_for_exit(process)  # though nobody reads
    hold.set()
    out, err = process.communicate()
    if how == "deadline":
        assert process.returncode == 124
        assert err.count(b"timed out") == 1
    else:  # ended by the signal itself, so that a shell's loop stops too
        assert process.returncode == -signum
    assert said in err.decode()
    docs = lab.docs()
    saved = texts(docs[0]) if docs else []
    assert len(saved) == len(kept)
    assert all(map(str.startswith, saved, kept))
    if len(saved) > 1:
        assert docs[0]["messages"][1]["finish_reason"] == finish
    if form in (JSON, JSONL):
        told = json.loads(out.splitlines()[-1])
        assert told["error"]["exit_code"] == CODES[how]
        assert told["session"] == (docs[0]["id"] if docs else None)
    elif place is in_the_answer:
        assert out == {(): b"\n", MARKDOWN: b"first\n", ("-x",): b""}[form]  # it has read "first "
        assert err.startswith(b"first ") == ("-x" in form)  # which prints nothing of half a block


def test_a_session_goes_on_behind_a_signal(lab: Home, model: ModelServer) -> None:
    process, release = start_answer(lab, model)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    release.set()
    ident = lab.doc()["id"]
    assert (
        err.decode()
        == f"gptsh: the partial answer is saved: continue with 'gptsh -s {ident} PROMPT'\n"
    )
    assert lab.run("-s", "0", "go on").code == 0
    assert [m["content"] for m in model.sent[1]["messages"]] == ["go", "first ", "go on"]


@needs("bash")
def test_ctrl_c_stops_a_shells_loop(lab: Home, model: ModelServer) -> None:
    hold = Hold()
    model.script(FIRST, hold)
    process = subprocess.Popen(
        ["bash", "-c", f"for i in 1 2 3; do {shlex.join(COMMAND)} $i </dev/null; done"],
        env=lab.env, cwd=lab.cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    read_until(process.stdout, b"first ")
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    hold.set()
    assert wait_for_exit(process) == 130
    assert len(model.requests) == 1


def test_what_nohup_ignores_stays_ignored(lab: Home, model: ModelServer) -> None:
    process, release = start_answer(
        lab, model, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    release.set()
    assert process.communicate(timeout=30)[0] == b"second\n"
    assert process.returncode == 0


# ---- readers that leave, are not there, or stall

SHELL: dict[str, tuple[str, str, int, str]] = {  # a line of bash, its stdout, its code, how the answer ended
    "leaves after a line": ("gptsh go </dev/null | head -1", "line 0\n", 0, "interrupted"),
    "leaves after an event": ("gptsh -o jsonl go </dev/null | head -1 | cut -c 1-25", '{"type":"session_created"\n', 0,
                              "interrupted"),
    "leaves with the last word": ("gptsh -m echo go </dev/null | head -c 12", "You said: go", 0, "stop"),
    "no stdout": ("gptsh -m echo go </dev/null >&-", "", 1, "interrupted"),
    "no stdin": ("gptsh -m echo go <&-", "You said: go\n", 0, "stop"),
    "a full disk": ("gptsh -m echo go </dev/null >/dev/full", "", 1, "interrupted"),
}  # fmt: skip


@needs("bash")
@pytest.mark.parametrize("name", SHELL)
def test_a_reader_that_leaves_or_is_not_there_costs_no_answer(
    lab: Home, model: ModelServer, name: str
) -> None:
    line, stdout, code, finish = SHELL[name]
    lines = answer(*(f"line {number}\n" for number in range(2000)))
    model.script(*lines[:1000], 0.3, *lines[1000:])
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f'gptsh() {{ {shlex.join(COMMAND)} "$@"; }}; {line}'],
        env=lab.env, cwd=lab.cwd, capture_output=True, text=True, check=False, timeout=30, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.stdout == stdout
    assert done.returncode == code
    why = "the stream is closed" if name == "no stdout" else "No space left on device"
    assert (
        (f"the answer cannot be written: {why}" in done.stderr) == bool(done.stderr) == (code == 1)
    )
    reply = lab.doc()["messages"][1]
    assert reply["content"].startswith("line 0\n" if "echo" not in line else "You said: ")
    assert reply["finish_reason"] == finish


def test_a_stderr_that_fails_costs_neither_the_answer_nor_the_exit_code(
    lab: Home, model: ModelServer
) -> None:
    model.script(event(chunk({"reasoning": "hm"})), *answer("42"))
    model.say("cut", finish="length")
    for args, out, code in ((["why"], b"42\n", 0), (["why"], b"cut\n", 5), (["--bogus"], b"", 2)):
        with open("/dev/full", "wb") as full:
            process = lab.start(*args, stderr=full)
        assert process.communicate(timeout=30)[0] == out
        assert process.returncode == code
    assert "assistant: 42" in [line for doc in lab.docs() for line in texts(doc)]


def test_a_stdout_that_does_not_wait_gets_all(lab: Home, model: ModelServer) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    model.say(LONG)
    process = lab.start("go", stdout=writer)
    os.close(writer)
    wait_until(lambda: unread_bytes(reader) > FULL)
    with open(reader, "rb") as pipe:
        assert pipe.read().decode() == f"{LONG}\n"
    process.communicate(timeout=30)
    assert process.returncode == 0


@pytest.mark.parametrize("code", [0, 1])
def test_a_job_does_all_of_its_work_where_its_output_cannot_be_written(
    home: Home, code: int
) -> None:
    """Exit 1 for a full disk, 0 for a reader that has left."""
    for _ in range(2):
        assert home.run("-m", "echo", "hi").code == 0
    home.sessions.rename(home.cwd / "in")
    for job, left in (
        ("--import-session in", 2),
        ("--delete-session 0 --delete-session 1 --yes", 0),
        ("--import-session in", 2),
        ("--prune-sessions --keep 0 --yes", 0),
        ("--import-session in", 2),
        ("--archive-session 0 --archive-session 1", 0),
    ):
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "wb") as closed, open("/dev/full", "wb") as full:
            process = home.start(*job.split(), stdout=full if code else closed)
        error = process.communicate(timeout=30)[1].decode()
        assert process.returncode == code
        assert ("gptsh: the output cannot be written: No space" in error) == (code == 1)
        assert len(home.files()) == left, job


# ---- what cannot be saved


def test_a_full_disk_costs_a_note_and_exit_1_but_no_answer(lab: Home) -> None:
    def no_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    lab.sessions.mkdir(parents=True)
    process = lab.start("x" * 5000, preexec_fn=no_room, env={"PYTHONDONTWRITEBYTECODE": "1"})
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert out == b"You said: " + b"x" * 5000 + b"\n"
    assert err.count(b"\n") == 1
    assert b"File too large" in err
    assert not [path for path in lab.sessions.iterdir() if path.suffix != ".tmp"]


def test_a_disk_with_room_for_the_question_alone_says_how_to_ask_it_again(lab: Home) -> None:
    def little_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2800, 2800))

    lab.sessions.mkdir(parents=True)
    env = {"PYTHONDONTWRITEBYTECODE": "1"}
    process = lab.start("-o", "json", "x" * 1000, preexec_fn=little_room, env=env)
    answered = json.loads(process.communicate(timeout=30)[0])
    session = lab.doc()["id"]
    assert process.returncode == 1
    assert answered["text"] == "You said: " + "x" * 1000
    hint = f"only the question is saved: 'gptsh -s {session}' asks it again"
    assert answered["error"]["hint"] == hint
    assert lab.run("-s", session).stdout == answered["text"] + "\n"


AT_A_CALL = """
import os, signal, sys
from gptsh.cli.entrypoint import main
left = None
def profile(frame, event, arg):
    global left
    if event == "c_call" and arg is os.write and left is None:
        left = int(sys.argv.pop(1))
    elif left and event == "call":
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGINT)
sys.setprofile(profile)
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("calls", [4, 10, 13, 16, 19, 22])
def test_wherever_a_signal_meets_the_program_all_that_is_saved_is_shown(
    home: Home, calls: int
) -> None:
    """It comes so many calls of functions behind the first word."""
    args = [sys.executable, "-c", AT_A_CALL, str(calls), "gptsh", "-m", "echo", "one two"]
    run = subprocess.run(
        args, env=home.env, cwd=home.cwd, capture_output=True, stdin=subprocess.DEVNULL, check=False
    )
    said = home.doc()["messages"][1]["content"]
    assert run.stdout.decode() == f"{said}\n"
