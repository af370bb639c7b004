"""How a run may end: signals, a closed pipe, the deadline, on pipes and on a real terminal. Nothing is lost."""

import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest

from gptsh.core.files import locked
from tests.support.home import COMMAND, Home, full_pipe, in_mid_answer, lab_config, read_until, texts, wait_for
from tests.support.server import ModelServer, answer, chunk, event
from tests.support.terminal import Terminal

SHELL_CODE = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.mark.parametrize("signum", SHELL_CODE)
def test_a_signal_in_mid_answer_keeps_the_partial_answer(lab: Home, model: ModelServer, signum: signal.Signals) -> None:
    process, release = in_mid_answer(lab, model)
    process.send_signal(signum)
    out, err = process.communicate(timeout=30)
    release.set()
    assert -process.returncode == signum  # ended by the signal itself, so that a shell's loop stops too
    assert wait_for(process) == SHELL_CODE[signum]
    assert out == b"\n"
    doc = lab.doc()
    assert texts(doc) == ["user: go", "assistant: first "]
    assert doc["messages"][1]["finish_reason"] == "interrupted"
    assert (
        err.decode()
        == f"gptsh: what arrived is kept in session {doc['id']}: go on with 'gptsh -s {doc['id']} PROMPT'\n"
    )
    assert lab.run("-s", "0", "go on").code == 0
    assert [m["content"] for m in model.sent[1]["messages"]] == ["go", "first ", "go on"]


@pytest.mark.parametrize("signum", SHELL_CODE)
def test_a_signal_before_the_first_token_keeps_the_question(
    lab: Home, model: ModelServer, signum: signal.Signals
) -> None:
    model.delay = 3.0
    process = lab.start("go")
    while not model.asked:
        time.sleep(0.01)
    process.send_signal(signum)
    _, err = process.communicate(timeout=30)
    assert -process.returncode == signum
    assert b"the question is kept" in err
    assert texts(lab.doc()) == ["user: go"]
    model.delay = 0
    assert lab.run("-s", "0").stdout == "You said: go\n"


def test_ctrl_c_stops_a_shells_loop(lab: Home, model: ModelServer) -> None:
    hold = threading.Event()
    model.script(event(chunk({"content": "first "})), hold)
    command = " ".join(COMMAND)
    process = subprocess.Popen(
        ["bash", "-c", f"for i in 1 2 3; do {command} $i </dev/null; done"],
        env=lab.env, cwd=lab.cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    read_until(process.stdout, b"first ")
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    hold.set()
    assert wait_for(process) == 130
    assert len(model.asked) == 1


def test_what_nohup_ignores_stays_ignored(lab: Home, model: ModelServer) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    process, release = in_mid_answer(lab, model, preexec_fn=ignore)
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    release.set()
    assert process.communicate(timeout=30)[0] == b"second\n"
    assert process.returncode == 0


def test_ctrl_c_while_python_starts_leaves_no_traceback(home: Home) -> None:
    for delay in (0.005, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08):
        process = home.start("--list-sessions")
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert b"entrypoint" not in err, err  # from gptsh's first line on there is no traceback


def test_ctrl_c_while_reading_stdin_ends_and_saves_nothing(lab: Home) -> None:
    process = lab.start("go", stdin=subprocess.PIPE)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert wait_for(process) == 130
    process.communicate()
    assert not lab.state.exists()


def test_ctrl_c_while_waiting_for_the_title_ends_with_0(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, "").replace("[providers", 'model_small = "lab/small"\n[providers'))
    hold = threading.Event()
    model.script(hold, model="small")
    process = home.start("hi")
    read_until(process.stdout, b"You said: hi\n")
    while home.doc()["stats"]["messages"] < 2:
        time.sleep(0.01)
    time.sleep(0.2)  # the answer is on disk before its save is over
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=4)
    hold.set()
    assert (out, err, process.returncode) == (b"", b"", 0)
    assert home.doc()["title"] is None


@pytest.mark.slow
def test_a_title_is_waited_for_five_seconds_at_most(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, "").replace("[providers", 'model_small = "lab/small"\n[providers'))
    hold = threading.Event()
    model.script(hold, model="small")
    started = time.monotonic()
    assert home.process("hi") == ("You said: hi\n", "", 0)
    assert 4.5 < time.monotonic() - started < 9
    hold.set()


def test_a_reader_that_leaves_early_is_success_and_the_answer_is_kept(lab: Home, model: ModelServer) -> None:
    lines = [f"line {i}\n" for i in range(2000)]
    model.script(*answer(*lines)[:1000], 0.3, *answer(*lines)[1000:])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {' '.join(COMMAND)} go </dev/null | head -1"],
        env=lab.env, cwd=lab.cwd, capture_output=True, check=False, timeout=30,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == (b"line 0\n", b"", 0)
    reply = lab.doc()["messages"][1]
    assert reply["content"].startswith("line 0\nline 1\n")
    assert reply["finish_reason"] == "interrupted"


def test_a_closed_stdout_is_no_failure(lab: Home) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(COMMAND)} go </dev/null >&-"],
        env=lab.env,
        cwd=lab.cwd,
        capture_output=True,
        check=False,
    )
    assert (done.stderr, done.returncode) == (b"", 0)
    assert texts(lab.doc())[1] == "assistant: You said: go"


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_closed_streams_are_nobody(lab: Home, closed: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(COMMAND)} go {closed}"],
        env=lab.env, cwd=lab.cwd, capture_output=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == (b"You said: go\n", 0)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["deadline", "SIGTERM", "SIGINT"])
def test_a_reader_that_stalls_does_not_hold_the_answer_hostage(lab: Home, model: ModelServer, how: str) -> None:
    """The final newline once went to the full pipe before the answer was saved, with signals held."""
    model.script(*answer(*["x" * 1000] * 300))
    process = lab.start(*(["--timeout", "2"] if how == "deadline" else []), "go")
    time.sleep(2 if how != "deadline" else 0)
    if how != "deadline":
        process.send_signal(getattr(signal, how))
    code = wait_for(process)  # nobody has read a byte
    assert code == {"deadline": 124, "SIGTERM": 143, "SIGINT": 130}[how]
    process.communicate()
    reply = lab.doc()["messages"][1]
    assert len(reply["content"]) > 60_000
    assert reply["finish_reason"] == ("timeout" if how == "deadline" else "interrupted")


@pytest.mark.parametrize("pause", [0.0, 0.01])
def test_a_double_tap_keeps_the_partial_answer(lab: Home, model: ModelServer, pause: float) -> None:
    process, release = in_mid_answer(lab, model)
    process.send_signal(signal.SIGINT)
    time.sleep(pause)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    release.set()
    assert -process.returncode == signal.SIGINT
    assert texts(lab.doc()) == ["user: go", "assistant: first "]


@pytest.mark.parametrize("timeout", [[], ["--timeout", "60"]], ids=["", "deadline"])
def test_a_second_ctrl_c_waits_for_no_lock(lab: Home, model: ModelServer, timeout: list[str]) -> None:
    hold = threading.Event()
    model.script(event(chunk({"content": "first "})), hold)
    process = lab.start(*timeout, "go")
    read_until(process.stdout, b"first ")
    with locked(lab.state / ".lock"):
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert process.poll() is None  # it waits for the lock
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=1)
    hold.set()
    assert -process.returncode == signal.SIGINT
    assert texts(lab.doc()) == ["user: go"]  # whole as it was


@pytest.mark.slow
def test_a_second_ctrl_c_waits_for_no_lock_of_the_question(lab: Home, model: ModelServer) -> None:
    lab.run("hi")
    with locked(lab.state / ".lock"):
        process = lab.start("-s", "0", "again")
        time.sleep(0.8)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        process.communicate(timeout=1)
    assert -process.returncode == signal.SIGINT
    assert len(model.asked) == 1


@pytest.mark.slow
def test_a_second_ctrl_c_waits_for_no_reader(lab: Home, model: ModelServer) -> None:
    """Nobody reads the answer, nor the line that says where it is kept."""
    model.script(*answer(*["x" * 1000] * 300))
    reader, writer = full_pipe()
    process = lab.start("go", stderr=writer)
    time.sleep(2)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    wait_for(process)
    assert time.monotonic() - started < 0.9  # one second of patience for each of the two
    process.communicate()
    for end in (reader, writer):
        os.close(end)
    assert -process.returncode == signal.SIGINT
    assert lab.doc()["messages"][1]["finish_reason"] == "interrupted"


@pytest.mark.slow
@pytest.mark.parametrize("args", [[], ["-x"], ["-o", "json"]])
def test_a_deadline_while_a_whole_answer_waits_to_be_saved_is_none(
    lab: Home, model: ModelServer, args: list[str]
) -> None:
    release = threading.Event()
    model.script(event(chunk({"content": "first "})), release, *answer("second")[1:])
    process = lab.start("--timeout", "1.5", *args, "go")
    while not (lab.files() and model.asked):
        time.sleep(0.01)
    with locked(lab.state / ".lock"):
        release.set()
        time.sleep(1.9)
    out, err = process.communicate(timeout=30)
    assert (wait_for(process), err) == (0, b"")
    assert b"first second" in out


@pytest.mark.slow
def test_what_arrived_waits_for_no_reader_of_stderr(lab: Home, model: ModelServer) -> None:
    """It was written for ever, behind the deadline and with signals held."""
    model.say("x" * 300_000, finish="length")
    process = lab.start("-x", "--timeout", "1", "go")
    assert process.wait(timeout=10) == 5  # nobody has read a byte
    out, err = process.communicate()
    assert (out, err.strip(b"x")) == (b"", b"")


@pytest.mark.slow
def test_a_signal_in_mid_save_leaves_no_torn_session(lab: Home, model: ModelServer) -> None:
    lab.run("-m", "echo", "-s", "@big", stdin="x" * 5_000_000)
    for pause in (0.0, 0.01, 0.03, 0.06, 0.1):
        hold = threading.Event()
        model.script(event(chunk({"content": "first "})), hold)
        process = lab.start("-m", "lab/m", "-s", "@big", "again")
        read_until(process.stdout, b"first ")
        process.send_signal(signal.SIGINT)
        time.sleep(pause)
        process.send_signal(signal.SIGINT)
        time.sleep(pause)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        hold.set()
        assert wait_for(process) in (130, 143)
        assert len(lab.doc()["messages"][0]["content"][0]["text"]) == 5_000_000


def test_ctrl_c_twice_at_a_terminal_ends_at_once_while_the_lock_is_held(lab: Home, model: ModelServer) -> None:
    hold = threading.Event()
    model.script(event(chunk({"content": "first "})), hold)
    terminal = Terminal(lab, "-o", "text", "go")
    terminal.until(rb"first ")
    with locked(lab.state / ".lock"):
        os.write(terminal.fd, b"\x03")
        time.sleep(0.3)
        started = time.monotonic()
        os.write(terminal.fd, b"\x03")
        assert terminal.close()[1] == 130
        assert time.monotonic() - started < 1
    hold.set()


@pytest.mark.parametrize("stderr", ["/dev/full", "closed pipe"])
def test_a_stderr_that_fails_costs_neither_the_answer_nor_the_exit_code(
    lab: Home, model: ModelServer, stderr: str
) -> None:
    def run(*args: str) -> tuple[bytes, int]:
        if stderr == "/dev/full":
            target = os.open("/dev/full", os.O_WRONLY)
        else:
            reader, target = os.pipe()
            os.close(reader)
        process = lab.start(*args, stderr=target)
        os.close(target)
        return process.communicate(timeout=30)[0], process.returncode

    model.script(event(chunk({"reasoning": "hm"})), event(chunk({"content": "42"})), event(chunk({}, "stop")))
    assert run("why") == (b"42\n", 0)
    assert texts(lab.doc())[1] == "assistant: 42"
    model.say("cut", finish="length")
    assert run("why") == (b"cut\n", 5)
    model.refuse(400, {})
    assert run("why") == (b"", 1)
    assert run("--bogus") == (b"", 2)


@pytest.mark.parametrize(
    "args", [["--help"], ["-h"], ["--version"], ["--list-sessions"], ["--show-session", "0"], ["--list-agents"]]
)
def test_a_full_disk_behind_stdout_is_one_line_and_exit_1(lab: Home, args: list[str]) -> None:
    lab.run("hi")
    with open("/dev/full", "wb") as full:
        process = lab.start(*args, stdout=full)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert err == b"gptsh: the output cannot be written: No space left on device\n"


def test_a_pipe_that_does_not_wait_is_read_to_its_end(lab: Home, model: ModelServer) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.write(writer, b"first half ")
    process = lab.start("go", stdin=reader)
    time.sleep(0.5)
    os.write(writer, b"second half")
    os.close(writer)
    os.close(reader)
    process.communicate(timeout=30)
    assert model.sent[0]["messages"][0]["content"] == "go\n\nfirst half second half"


@pytest.mark.slow
def test_a_stdout_that_does_not_wait_gets_the_whole_answer(lab: Home, model: ModelServer) -> None:
    model.script(*answer(*["x" * 1000] * 300))
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    process = lab.start("go", stdout=writer)
    os.close(writer)
    time.sleep(1)
    seen = b""
    while more := os.read(reader, 1 << 16):
        seen += more
    os.close(reader)
    process.communicate(timeout=30)
    assert (process.returncode, len(seen)) == (0, 300_001)


def test_nohup_opens_stdin_for_writing_only(lab: Home) -> None:
    with open("/dev/null", "wb") as nohup:
        process = lab.start("go", stdin=nohup)
    assert process.communicate(timeout=30) == (b"You said: go\n", b"")


@pytest.mark.slow
def test_a_stderr_that_stalls_holds_nothing_up(lab: Home, model: ModelServer) -> None:
    """A note that nobody reads once kept the answer from being asked for, saved and given up."""
    lab.state.parent.mkdir(exist_ok=True)
    lab.state.write_text("not a folder: every save is worth a note")
    reader, writer = full_pipe()
    process = lab.start("go", stderr=writer)
    out, _ = process.communicate(timeout=20)
    assert (out, process.returncode) == (b"You said: go\n", 1)
    model.script(5.0)
    process = lab.start("--timeout", "1", "go", stderr=writer)
    process.communicate(timeout=20)
    assert process.returncode == 124
    for end in (reader, writer):
        os.close(end)


@pytest.mark.slow
def test_a_signal_says_more_than_the_deadline(lab: Home) -> None:
    lab.run("hi")
    with locked(lab.state / ".lock"):
        process = lab.start("--timeout", "1.2", "-s", "0", "q")
        time.sleep(0.6)
        process.send_signal(signal.SIGTERM)
        time.sleep(1.0)
    process.communicate(timeout=30)
    assert wait_for(process) == 143


def test_a_reader_that_leaves_with_the_last_word_has_had_a_whole_answer(lab: Home, model: ModelServer) -> None:
    model.say("hello world")
    subprocess.run(
        ["bash", "-c", f"{' '.join(COMMAND)} go </dev/null | head -c 11"], env=lab.env, cwd=lab.cwd,
        capture_output=True, check=False,
    )  # fmt: skip
    assert lab.doc()["messages"][1]["finish_reason"] == "stop"


def test_a_full_output_file_is_exit_1_and_the_answer_is_kept(lab: Home) -> None:
    with open("/dev/full", "wb") as full:
        process = lab.start("go", stdout=full)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert b"the answer cannot be written: No space left on device" in err
    assert lab.doc()["messages"][1]["finish_reason"] == "interrupted"


def test_the_deadline_keeps_the_partial_answer(lab: Home, model: ModelServer) -> None:
    model.script(event(chunk({"content": "half "})), 10.0)
    started = time.monotonic()
    run = lab.run("--timeout", "1.5", "go")
    assert time.monotonic() - started < 8
    assert (run.stdout, run.code) == ("half \n", 124)
    assert run.stderr.startswith(
        "gptsh: timed out: --timeout and GPTSH_TIMEOUT set the limit\ngptsh: what arrived is kept"
    )
    assert lab.doc()["messages"][1]["finish_reason"] == "timeout"


@pytest.mark.slow
def test_the_deadline_bounds_a_stream_that_drips(lab: Home, model: ModelServer) -> None:
    drips = [step for _ in range(100) for step in (event(chunk({"content": "."})), 0.1)]
    model.script(*drips)
    run = lab.run("go", env={"GPTSH_TIMEOUT": "1.5"})
    assert run.code == 124
    assert 3 < len(run.stdout) < 20


def test_the_deadline_bounds_reading_stdin(lab: Home) -> None:
    process = lab.start("--timeout", "0.5", "go", stdin=subprocess.PIPE)
    assert wait_for(process) == 124
    assert b"timed out" in process.communicate()[1]


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon", "1e400"])
def test_a_timeout_that_is_none_is_exit_2(lab: Home, seconds: str) -> None:
    assert lab.run(f"--timeout={seconds}", "go").code == 2
    assert lab.run("go", env={"GPTSH_TIMEOUT": seconds}).code == 2


# ---- a real terminal


@pytest.mark.slow
def test_a_spinner_turns_on_a_terminal_until_the_first_token(lab: Home, model: ModelServer) -> None:
    model.delay = 0.8
    terminal = Terminal(lab, "hello")
    terminal.until(rb"waiting for lab/m")
    seen, code = terminal.close()
    assert code == 0
    assert seen.endswith(b"\r\x1b[KYou said: hello\r\n")


@pytest.mark.slow
@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_dumb_terminal_has_no_spinner(lab: Home, model: ModelServer, term: str) -> None:
    model.delay = 0.8
    assert Terminal(lab, "hello", env={"TERM": term}).close() == (b"You said: hello\r\n", 0)


def test_a_terminal_is_not_read_as_stdin(lab: Home, model: ModelServer) -> None:
    assert Terminal(lab, "hello").close()[1] == 0
    assert model.sent[0]["messages"][-1]["content"] == "hello"
    seen, code = Terminal(lab).close()
    assert (code, b"no prompt" in seen) == (2, True)


def test_ctrl_c_on_a_terminal_keeps_the_partial_answer(lab: Home, model: ModelServer) -> None:
    hold = threading.Event()
    model.script(event(chunk({"content": "first "})), hold)
    terminal = Terminal(lab, "-o", "text", "go")
    terminal.until(rb"first ")
    os.write(terminal.fd, b"\x03")
    seen, code = terminal.close()
    hold.set()
    assert code == 130
    assert re.search(rb"first \^C\r\ngptsh: what arrived is kept in session \w{4}", seen)
    assert texts(lab.doc())[1] == "assistant: first "


def test_a_killed_terminal_loses_nothing(lab: Home, model: ModelServer) -> None:
    hold = threading.Event()
    model.script(event(chunk({"content": "first "})), hold)
    terminal = Terminal(lab, "-o", "text", "go")
    terminal.until(rb"first ")
    os.close(terminal.fd)  # the window is closed: SIGHUP
    code = os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1])
    hold.set()
    assert -code == signal.SIGHUP
    assert texts(lab.doc()) == ["user: go", "assistant: first "]


@pytest.mark.slow
@pytest.mark.parametrize("how", [*SHELL_CODE, "deadline"])
def test_a_halted_terminal_does_not_hold_the_end(lab: Home, model: ModelServer, how: signal.Signals | str) -> None:
    """Ctrl-S while the spinner turned: its thread held the lock that the end waited for."""
    hold = threading.Event()
    model.script(1.5, event(chunk({"reasoning": "hm"})), event(chunk({"content": "one\n\ntwo"})), hold)
    terminal = Terminal(lab, *(["--timeout", "3"] if how == "deadline" else []), "go")
    terminal.until(rb"waiting for")
    os.write(terminal.fd, b"\x13")
    time.sleep(2.5)
    if isinstance(how, signal.Signals):
        os.kill(terminal.pid, how)
    end = time.monotonic() + 12
    while not (ended := os.waitpid(terminal.pid, os.WNOHANG))[0] and time.monotonic() < end:
        time.sleep(0.05)
    if not ended[0]:
        os.kill(terminal.pid, signal.SIGKILL)
        os.waitpid(terminal.pid, 0)
    os.close(terminal.fd)
    hold.set()
    code = os.waitstatus_to_exitcode(ended[1])
    assert (ended[0], code if code >= 0 else 128 - code) == (
        terminal.pid,
        124 if how == "deadline" else SHELL_CODE[signal.Signals(how)],
    )
    assert texts(lab.doc())[0] == "user: go"


@pytest.mark.slow
def test_ctrl_c_at_a_halted_terminal_shows_what_came(lab: Home, model: ModelServer) -> None:
    hold = threading.Event()
    model.script(1.0, event(chunk({"content": "one\n\ntwo"})), hold)
    terminal = Terminal(lab, "go")
    terminal.until(rb"waiting for")
    os.write(terminal.fd, b"\x13")
    time.sleep(1.5)
    os.write(terminal.fd, b"\x03")  # the terminal goes on with it
    seen, code = terminal.close()
    hold.set()
    assert code == 130
    assert re.search(rb"one\r\n\r\ntwo\r\ngptsh: what arrived", seen)


@pytest.mark.slow
def test_wide_letters_and_tabs_of_the_spinner_do_not_wrap(lab: Home, model: ModelServer) -> None:
    model.refuse(429, {"error": {"message": "请求过于频繁" * 9 + "\ta\tb"}}, {"Retry-After": "1"})
    terminal = Terminal(lab, "-m", "lab/a\n\tb", "hello")
    terminal.resize(40)
    frames = terminal.close()[0].decode().split("\r\x1b[K")
    assert any("频繁" in frame for frame in frames)
    for frame in frames[:-1]:
        assert len(frame) + len(re.findall("[\u3000-\u9fff]", frame)) < 40
        assert not set(frame) & {"\t", "\n", "␊"}


@pytest.mark.slow
def test_a_carriage_return_before_a_newline_is_no_control_character(lab: Home, model: ModelServer) -> None:
    for args in (["-o", "text"], []):
        model.script(
            event(chunk({"reasoning": "x\r"})), event(chunk({"reasoning": "\ny"})), *answer("a\r", "\nb\r\n\rc")
        )
        seen, _ = Terminal(lab, *args, "go").close()
        text = re.sub(r"\x1b\[[0-9;]*[mK]", "", seen.decode())
        assert text.replace("\r\n", "\n").removeprefix("\r") == "x\ny\n\na\nb\n␍c\n"
    assert b"\xe2\x90\x8d\r" not in Terminal(lab, "--show-session", "0").close()[0]
    model.say("a\r\nb")
    assert lab.run("go").stdout == "a\r\nb\n"


@pytest.mark.slow
def test_a_long_line_of_the_spinner_does_not_wrap(lab: Home, model: ModelServer) -> None:
    model.refuse(429, {"error": {"message": "slow down " * 60}}, {"Retry-After": "1"})
    terminal = Terminal(lab, "hello")
    terminal.resize(40)
    seen, code = terminal.close()
    assert code == 0
    frames = seen.split(b"\r\x1b[K")
    assert len(frames) > 3
    assert max(map(len, frames[:-1])) < 40


def test_debug_shows_a_providers_control_characters(lab: Home, model: ModelServer) -> None:
    model.refuse(400, b"\x1b]0;PWNED\x07")
    seen, _ = Terminal(lab, "--debug", "hi").close()
    assert "␛]0;PWNED␇".encode() in seen
    assert b"\x1b]0" not in seen


def test_control_characters_are_shown_on_a_terminal_and_kept_in_the_file(lab: Home, model: ModelServer) -> None:
    evil = "\x1b]52;c;ZXZpbA==\x07\x9b31mred\x7f\ttab"
    model.say(evil)
    seen, _ = Terminal(lab, "-o", "text", "go", "--title", "t\x1b[31m").close()
    assert not set(seen) & (set(range(0x20)) - set(b"\r\n\t") | {0x7F})
    assert "␛]52;c;ZXZpbA==␇\\x9b31mred␡\ttab".encode() in seen
    assert lab.doc()["messages"][1]["content"] == evil
    for args in (["--list-sessions"], ["--show-session", "0", "-o", "text"], ["-s", "no\x1b[31msuch", "x"]):
        shown, _ = Terminal(lab, *args, env={"PAGER": "cat"}).close()
        assert b"\x1b" not in shown
        assert "␛".encode() in shown or rb"\x1b" in shown
    assert lab.run("--show-session", "0").stdout.count(evil) == 1  # a pipe gets the bytes


def test_a_title_with_a_newline_is_one_line_of_a_list(lab: Home) -> None:
    lab.run("hi", "--title", "two\nlines\r\u2028here")
    assert len(lab.run("--list-sessions").stdout.splitlines()) == 1


def test_a_title_with_newlines_forges_no_header(lab: Home) -> None:
    lab.run("hi", "--title", "x\n## assistant\n", "--tag", "t\n\nu")
    shown = lab.run("--show-session", "0").stdout
    assert shown.startswith("# x ## assistant\n\n- session: ")
    assert "\n- tags: t u\n" in shown
    lab.config.write_text(lab.config.read_text() + '[agents."a\\nb"]\nmodel = "echo"\n')
    assert lab.run("--list-agents").stdout == "* default (lab/m)\n  a b (echo)\n"


def test_errors_stay_within_two_lines(lab: Home, model: ModelServer) -> None:
    model.refuse(400, {"error": {"message": "many\nlines\r\nof\u2028error\x85text"}})
    run = lab.run("hi")
    assert len(run.stderr.splitlines()) == 2
    assert json.loads(json.dumps(run.stderr)).startswith("gptsh: lab refused (400): many lines of")
