"""``-r``: real keys on a list of sessions, and what becomes of the run."""

import os
import re
import signal
import sys
import termios

import pytest

from tests.support.home import Home, texts, wait_until
from tests.support.screens import Tmux, needs_tmux
from tests.support.sessions import put, session_ids
from tests.support.terminal import Terminal

NEEDS = "gptsh: -r needs a terminal: --list-sessions shows the sessions, -s REF names one\n"


def fill(home: Home) -> None:
    """Three sessions of this project, the last used first, and one of another one."""
    here = {"meta": {"tags": [], "project": str(home.cwd)}}
    put(home, "aaaa", 2, title="Nginx proxy", **here)
    put(home, "1111", 8, title="日本語 \x1b[31m\u202e docker", **here)
    put(
        home,
        "cccc",
        400,
        title=None,
        stats={"turns": 1, "messages": 1, "preview": "how to dance"},
        **here,
    )
    put(
        home,
        "dddd",
        1,
        title="Elsewhere",
        meta={"tags": [], "project": "/elsewhere", "forked_from": "aaaa@aaaa-1"},
    )


def chosen(tmux: Tmux) -> str:
    """The row that is marked."""
    (line,) = re.findall("^> (.*)$", tmux.screen(), re.MULTILINE)
    return str(line)


@needs_tmux
def test_rows_keys_and_a_narrow_screen(home: Home) -> None:
    fill(home)
    with Tmux(home, "-r", "-m", "echo", "x") as tmux:
        seen = tmux.until(r"^>   2d  Nginx proxy +1 turn  echo")
        assert [line[:8].strip(" >") for line in seen.splitlines()[1:4]] == ["2d", "1w", "1y"]
        assert "1d  elsewhere: Elsewhere" in seen.splitlines()[4]
        assert "日本語 ␛[31m\\u202e docker" in seen
        tmux.keys("Down", "C-n", "C-n")
        tmux.until("^>   1d  elsewhere: Elsewhere")
        tmux.keys("Home", "End", "Up", "C-p", "PageUp", "PageDown", "Up")
        tmux.until('^>   1y  "how to dance" +1 turn')
        tmux.resize(40, 8)
        seen = tmux.until("^↑↓  Enter resume  letters filter")
        assert "1 turn" not in seen
        assert "how to dance" in chosen(tmux)
        tmux.keys("C-c")
        assert tmux.code() == 130


@needs_tmux
def test_a_filter_on_titles_and_contents_and_a_deletion(home: Home) -> None:
    fill(home)
    with Tmux(home, "-r", "-m", "echo", "go on") as tmux:
        tmux.until("Nginx proxy")
        tmux.write("nginx")
        assert "Elsewhere" not in tmux.until(r"^Filter: nginx +1 of 4$")
        tmux.keys("DC")
        tmux.until(r"^Delete aaaa Nginx proxy\? \(y/N\)")
        tmux.keys("Enter")
        tmux.until("^not deleted")
        assert len(session_ids(home)) == 4
        tmux.write("x")
        assert "not deleted" not in tmux.until(r"^Filter: nginxx")
        tmux.keys("BSpace", "DC")
        tmux.until("^Delete aaaa")
        tmux.write("y")
        tmux.until(r"^deleted aaaa Nginx proxy \(1 turn\)$")
        assert session_ids(home) == ["1111", "cccc", "dddd"]
        tmux.keys("C-u")
        tmux.until("^Filter: +3$")
        tmux.write("question cc")  # which is in the messages alone
        tmux.until(r"^Filter: question cc +1 of 3$")
        assert "how to dance" in chosen(tmux)
        tmux.keys("Escape")
        tmux.until("^Filter: +3$")
        tmux.write("docker")
        tmux.until(r"^Filter: docker +1 of 3$")
        tmux.keys("Enter")
        tmux.until(
            "^go on$"
        )  # the answer's last line: tmux scrolls by a line as soon as the command has ended
        assert tmux.code() == 0
    (doc,) = (doc for doc in home.docs() if doc["id"] == "1111")
    assert texts(doc)[:2] == ["user: question of 1111", "user: go on"]


@needs_tmux
def test_of_many_sessions_the_first_are_drawn_and_the_others_are_read_on(home: Home) -> None:
    for number in range(450):
        put(home, f"a{number:03}", 1 + number, title=f"title {number:03}")
    with Tmux(home, "-r", "-m", "echo", "go on") as tmux:
        tmux.until(r"^Filter: +450$")
        tmux.keys("End")
        tmux.until("^> .*title 449")
        tmux.write("title 448")
        tmux.until(r"^Filter: title 448 +1 of 450$")
        tmux.keys("Enter")
        assert tmux.code() == 0


@needs_tmux
def test_a_conversation_goes_on_with_what_is_picked(home: Home) -> None:
    fill(home)
    with Tmux(home, "-r", "-m", "echo") as tmux:
        tmux.until("Nginx proxy")
        tmux.keys("Enter")
        tmux.until("^> *$")
        tmux.say("and now")
        tmux.until("^You said: ")
        tmux.until("^> *$")
        tmux.say("/resume")
        tmux.until("^>  now  Nginx proxy|^> .*Nginx proxy")
        tmux.keys("DC")
        tmux.until("the session of this conversation cannot be deleted here")
        tmux.keys("C-c")
        tmux.until("^gptsh: interrupted")
        tmux.until("^> *$")
        tmux.say("/resume")
        tmux.until("^> .*Nginx proxy")
        tmux.keys("End", "Enter")
        tmux.until("^> *$")
        tmux.keys("C-d")
        assert tmux.code() == 0
        assert "gptsh -i -s dddd" in tmux.screen()
    assert len(session_ids(home)) == 4


@pytest.mark.parametrize("keys", ["\x14", "x\x04\r"])
def test_a_new_session_where_there_is_none_at_all(home: Home, keys: str) -> None:
    terminal = Terminal(home, "-r", "-m", "echo", "first", env={"GPTSH_SESSION": "@work"})
    terminal.until(b"there is no session yet")
    terminal.write(keys)
    assert terminal.close()[1] == 0
    assert texts(home.doc()) == ["user: first", "assistant: You said: first"]
    assert not (home.state / "names").exists()


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("\x03", 130),
        ("\x1b", 0),
        (signal.SIGTERM, 143),
        *[
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [(signal.SIGINT, 130), (signal.SIGHUP, 129)]
        ],
    ],
)
def test_what_ends_it_leaves_the_terminal_as_it_was(home: Home, end: str | int, code: int) -> None:
    fill(home)
    terminal = Terminal(home, "-r", "-m", "echo", "hi")
    before = termios.tcgetattr(terminal.fd)
    terminal.until(b"Nginx")
    assert termios.tcgetattr(terminal.fd) != before
    if isinstance(end, str):
        terminal.write(end)
    else:
        os.kill(terminal.pid, end)
    terminal.until(rb"\x1b\[\?1049l")
    wait_until(lambda: termios.tcgetattr(terminal.fd) == before)
    seen, ended = terminal.close()
    assert ended == code
    assert seen.count(b"\x1b[?1049h") == seen.count(b"\x1b[?1049l") == 1
    assert b"You said" not in seen
    assert b"Traceback" not in seen
    assert len(session_ids(home)) == 4


def test_a_pipe_and_a_file_leave_it_the_terminal(home: Home) -> None:
    fill(home)
    torn = home.sessions / "20260101-000000-torn.json"
    torn.write_text("{")
    script = 'echo piped | "$0" -m gptsh -r -m echo review > answer.txt'
    terminal = Terminal(home, command=["sh", "-c", script, sys.executable])
    terminal.until(b"Nginx")
    terminal.write("\r")
    seen, code = terminal.close()
    assert code == 0, seen
    assert b"torn" not in seen
    assert (home.cwd / "answer.txt").read_text().startswith("You said: ")
    torn.unlink()
    (doc,) = (doc for doc in home.docs() if doc["id"] == "aaaa")
    assert "user: review|piped\n" in texts(doc)


def test_without_a_terminal_it_names_the_list(home: Home) -> None:
    assert home.run("-r", "hi") == ("", NEEDS, 2)
    seen, code = Terminal(home, "-r", "hi", env={"TERM": "dumb"}).close()
    assert seen.replace(b"\r\n", b"\n").decode() == NEEDS
    assert code == 2
    command = ["sh", "-c", '"$0" -m gptsh -r > out', sys.executable]
    seen, code = Terminal(home, command=command, env={"NO_COLOR": "1"}, columns=200).close()
    assert code == 2
    assert b"stdout is not one" in seen
    assert b"1049" not in seen  # nothing is picked first
