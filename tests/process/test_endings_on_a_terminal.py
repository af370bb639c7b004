"""How a run ends on a real terminal: Ctrl-C, a window that is closed; and what it shows meanwhile."""

import os
import re
import signal

import pytest

from tests.support.home import Home, texts
from tests.support.server import ModelServer, chunk, event
from tests.support.terminal import Terminal

FIRST = event(chunk({"content": "first "}))


def in_the_answer(lab: Home, model: ModelServer) -> Terminal:
    model.script(FIRST, 30.0)
    terminal = Terminal(lab, "-o", "text", "go")
    terminal.until(rb"first ")
    return terminal


def test_a_terminal_is_not_read_as_stdin(lab: Home, model: ModelServer) -> None:
    assert Terminal(lab, "hello").close()[1] == 0
    assert model.sent[0]["messages"][-1]["content"] == "hello"
    seen, code = Terminal(lab).close()
    assert (code, b"no prompt" in seen) == (2, True)


def test_ctrl_c_keeps_the_partial_answer(lab: Home, model: ModelServer) -> None:
    terminal = in_the_answer(lab, model)
    terminal.write("\x03")
    seen, code = terminal.close()
    assert code == 130
    assert re.search(rb"first \^C\r\ngptsh: what arrived is kept in session \w{4}", seen)
    assert texts(lab.doc())[1] == "assistant: first "


def test_a_window_that_is_closed_loses_nothing(lab: Home, model: ModelServer) -> None:
    terminal = in_the_answer(lab, model)
    os.close(terminal.fd)  # SIGHUP
    code = os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1])
    assert -code == signal.SIGHUP
    assert texts(lab.doc()) == ["user: go", "assistant: first "]


# ---- what is shown meanwhile


@pytest.mark.slow
def test_no_line_of_the_spinner_wraps(lab: Home, model: ModelServer) -> None:
    said = "请求过于频繁" * 9 + "\ta\tb"
    model.refuse(429, {"error": {"message": said}}, {"Retry-After": "1"})
    terminal = Terminal(lab, "-m", "lab/a\n\tb", "hello")
    terminal.resize(40)
    seen, code = terminal.close()
    frames = seen.decode().split("\r\x1b[K")
    assert code == 0
    assert any(said[:4] in frame for frame in frames)
    for frame in frames[:-1]:
        assert len(frame) + len(re.findall("[\u3000-\u9fff]", frame)) < 40
        assert not set(frame) & {"\t", "\n", "␊"}


def test_control_characters_are_shown_on_a_terminal_and_kept_in_the_file(lab: Home, model: ModelServer) -> None:
    evil = "\x1b]52;c;ZXZpbA==\x07\x9b31mred\x7f\ttab"
    model.say(evil)
    seen, _ = Terminal(lab, "-o", "text", "go", "--title", "t\x1b[31m").close()
    assert not set(seen) & (set(range(0x20)) - set(b"\r\n\t") | {0x7F})
    assert "␛]52;c;ZXZpbA==␇\\x9b31mred␡\ttab".encode() in seen
    assert lab.doc()["messages"][1]["content"] == evil
    model.refuse(400, b"\x1b]0;PWNED\x07")
    for args in (["--list-sessions"], ["--show-session", "0", "-o", "text"], ["-s", "no\x1b[31msuch", "x"],
                 ["--debug", "hi"]):  # fmt: skip
        shown, _ = Terminal(lab, *args, env={"PAGER": "cat", "TERM": "dumb"}).close()
        assert b"\x1b" not in shown
        assert "␛".encode() in shown or rb"\x1b" in shown
    (path,) = (path for path in lab.files() if b"ZXZpbA" in path.read_bytes())
    assert lab.run("--show-session", path.name).stdout.count(evil) == 1  # a pipe gets the bytes
