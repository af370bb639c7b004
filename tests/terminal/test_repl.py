"""``-i``: how it begins, how it ends, and Ctrl-C at every stage; nothing is lost, however it ends."""

import os
import re
import signal
import sys
import termios
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import COMMAND, Home, lab_config, texts, wait_until
from tests.support.server import ModelServer
from tests.support.terminal import Conversation, Terminal
from tests.support.tools import call, calling, configure, is_running, roles

ECHOED = ["user: one", "assistant: You said: one", "user: two", "assistant: You said: two"]
SMALL = 'context_window = 300\n[context]\ncompact = "off"\n[sessions]\ntitles = "off"\n'


def kept(home: Home, count: int) -> dict[str, Any]:
    """The only session, once it has so many messages."""
    wait_until(lambda: home.files() and home.doc()["stats"]["messages"] >= count)
    return home.doc()


# ---- how it begins


def test_a_session_goes_on_and_its_name_is_told_at_the_end(lab: Home, model: ModelServer) -> None:
    lab.run("one")
    with Conversation(lab, "-s", "0") as talk:
        talk.plays(("two", "You said: two"))
        assert texts(lab.doc()) == ECHOED
        talk.plays(("three", "You said: three"))
        assert talk.leave() == 0
        assert (
            talk.last
            == f"\ngptsh: the session is saved; 'gptsh -i -s {lab.doc()['id']}' continues it\n"
        )
    assert [len(sent["messages"]) for sent in model.sent] == [1, 3, 5]
    assert lab.doc()["stats"]["turns"] == 3


def test_words_of_the_command_line_are_the_first_turn(lab: Home) -> None:
    with Conversation(lab, "--title", "By Hand", "one", "and", "more") as talk:
        assert talk.greeting == "You said: one and more"
        talk.does("two")
    assert lab.doc()["title"] == "By Hand"
    assert lab.doc()["stats"]["turns"] == 2


def piped(home: Home, *args: str) -> Terminal:
    """A conversation that is piped into; what is typed comes from the terminal."""
    command = ["sh", "-c", 'cat piped | "$0" -m gptsh "$@"', sys.executable, "-i", *args]
    return Terminal(home, command=command)


def test_a_pipe_is_the_first_turn_and_the_terminal_goes_on(lab: Home) -> None:
    (lab.cwd / "piped").write_text("+ a line\n")
    terminal = piped(lab, "review")
    terminal.until(rb"a line(.|\n)*lab/m")
    terminal.write("two\r")
    terminal.until(rb"You said: two(.|\n)*lab/m")
    terminal.write("\x04")
    assert terminal.close()[1] == 0
    first = lab.doc()["messages"][0]
    assert [part.get("source") for part in first["content"]] == [None, "stdin"]
    assert lab.doc()["stats"]["turns"] == 2


@pytest.mark.parametrize(("args", "code"), [([], 6), (["-m", "nobody/m", "words"], 2)])
def test_what_was_piped_and_is_refused_ends_as_a_run_that_asks_once(
    home: Home, model: ModelServer, args: list[str], code: int
) -> None:
    home.configure(lab_config(model, SMALL))
    (home.cwd / "piped").write_text("word " * 2000)
    assert piped(home, *args).close()[1] == code
    assert not home.files()


def test_a_first_question_that_is_refused_is_to_be_asked_again(
    home: Home, model: ModelServer
) -> None:
    home.configure(lab_config(model, SMALL))
    (home.cwd / "long.txt").write_text("word " * 2000)
    with Conversation(home, "-f", "long.txt", "sum", "it", "up") as talk:
        assert talk.greeting.endswith("again:\nsum it up")
        talk.plays(("/file", "long.txt"), ("/file -", "no file"), ("two", "You said: two"))
        assert talk.leave() == 0
    assert texts(home.doc()) == ECHOED[2:]
    with Conversation(home, "-m", "nobody/m", "a", "question") as talk:
        assert "nobody" in talk.greeting
        assert talk.greeting.endswith("again:\na question")
    assert len(home.files()) == 1


@pytest.mark.parametrize(("args", "said"), [
    ([], "no model is chosen"),
    (["-m", "echo", "-s", "zzzz"], "no session 'zzzz'"),
    (["-m", "echo", "--timeout", "-1", "words"], "--timeout: "),
    (["-m", "echo", "--snapshot", "here"], "a new session has no messages to take a snapshot of"),
])  # fmt: skip
def test_what_is_wrong_at_the_start_ends_it_with_2(home: Home, args: list[str], said: str) -> None:
    """And is told to a person, whatever form is configured."""
    seen, code = Terminal(home, "-i", *args, env={"GPTSH_OUTPUT": "json", "NO_COLOR": "1"}).close()
    assert code == 2
    assert seen.startswith(b"gptsh: ")
    assert said.encode() in seen
    assert b"{" not in seen
    assert b"\n> " not in seen


def test_the_prompt_imports_nothing_that_only_an_answer_needs(lab: Home) -> None:
    command = ["sh", "-c", 'exec "$0" -X importtime -m gptsh "$@" 2>imported', *COMMAND[:1]]
    terminal = Terminal(lab, "-i", command=command)
    terminal.until(rb"(?s)\x1b\[\?2004h.*\x1b\[\?25h")
    needed = ("gptsh.turn.turn", "gptsh.chat.slash", "gptsh.llm.http", "gptsh.render.drawing")
    wait_until(
        lambda: all(f" {name}\n" in (lab.cwd / "imported").read_text() for name in needed)
    )  # while a line is typed
    terminal.write("\x04")
    assert terminal.close()[1] == 0
    names = [
        line.rpartition("|")[2].strip() for line in (lab.cwd / "imported").read_text().splitlines()
    ]
    first = {
        *names[: names.index("gptsh.chat.repl") + 1]
    }  # what comes behind it is loaded while a line is typed
    assert "prompt_toolkit" in first
    assert not first & {
        "litellm",
        "urllib3",
        "rich",
        "pygments",
        "markdown_it",
        "jsonschema",
        "mcp",
        "gptsh.llm.client",
    }


def test_the_prompt_comes_before_the_recap_which_is_drawn_above_it(home: Home) -> None:
    home.run("-m", "echo", "one")
    terminal = Terminal(home, "-i", "-s", "0")
    terminal.until(rb"echo")
    terminal.write("typed")
    terminal.until(rb"You said: (.|\n)*typed")
    assert terminal.seen.index(b"2004h") < terminal.seen.index(b"You said: ")
    terminal.write(" on\r")
    terminal.until(rb"You said: typed on(.|\n)*echo")
    terminal.write("\x04")
    assert terminal.close()[1] == 0


# ---- Ctrl-C, at every stage


def test_ctrl_c_keeps_what_came_and_the_prompt_comes_back(lab: Home, model: ModelServer) -> None:
    with Conversation(lab) as talk:
        hold = model.halt()
        talk.write("one\n")
        kept(lab, 1)
        wait_until(lambda: model.requests)
        assert "/retry asks it again" in talk.interrupt()
        hold.set()
        for number in range(3):
            hold = model.halt(f"part {number}\n\n")
            talk.write("two\n")
            talk.until(b"part %d" % number)
            talk.write("\x03" * 20)  # held down
            talk.until(rb"the partial answer is kept(.|\n)*\n> \Z")
            hold.set()
        assert lab.doc()["messages"][-1]["finish_reason"] == "interrupted"
        talk.write("half a line\x03")
        talk.printed()
        talk.plays(("three", "You said: three"))
        assert talk.leave() == 0
    parts = [line for number in range(3) for line in ("user: two", f"assistant: part {number}\n\n")]
    assert texts(lab.doc()) == ["user: one", *parts, "user: three", "assistant: You said: three"]


def test_ctrl_c_before_the_question_is_saved_leaves_its_words_and_files(
    home: Home, model: ModelServer
) -> None:
    command = "test -e waiting || { touch waiting; exec sleep 20; }; echo a-key"
    home.configure(
        lab_config(model, f'api_key_command = "{command}"\n[sessions]\ntitles = "off"\n')
    )
    (home.cwd / "notes.txt").write_text("from a file")
    with Conversation(home) as talk:
        talk.does("/file notes.txt")
        talk.write("one\n")
        wait_until((home.cwd / "waiting").exists)
        assert talk.interrupt().endswith("again:\none")
        assert not home.files()
        talk.plays(("one", "from a file"))
    assert [part.get("source") for part in home.doc()["messages"][0]["content"]] == [
        None,
        "notes.txt",
    ]


def test_ctrl_c_while_new_remembers_goes_on_to_the_new_session(
    home: Home, model: ModelServer
) -> None:
    memory = 'model = "lab/m"\nmodel_small = "lab/s"\nmemory = true'
    home.configure(lab_config(model).replace('model = "lab/m"', memory))
    home.run("I like tea")
    asked = len(model.requests)
    with Conversation(home, "-s", "0") as talk:
        hold = threading.Event()
        model.script(hold, model="s")
        talk.write("/new\n")
        wait_until(lambda: len(model.requests) > asked)
        shown = talk.interrupt()
        hold.set()
        assert re.search("(?s)the memory does not cover the whole session yet.*is saved", shown)
        talk.plays(("/history", "there is no session yet"))


def test_ctrl_c_while_a_tool_runs_ends_the_call_and_the_server_goes_on(
    home: Home, model: ModelServer
) -> None:
    configure(home, model)
    told = home.folder / "told"
    model.script(*calling(call("hang", path=str(told))))
    with Conversation(home) as talk:
        talk.write("go\n")
        wait_until(told.exists)
        (server,) = servers_of(talk.pid)
        assert "kept" in talk.interrupt()
        assert servers_of(talk.pid) == [server]
        model.script(*calling(call("environment")))
        model.say("done")
        talk.plays(("again", "done"))
        assert talk.leave() == 0
    assert not is_running(server)
    assert roles(home.doc()) == ["user", "assistant", "user", "assistant", "tool", "assistant"]


def servers_of(pid: int) -> list[int]:
    """The children of a process, on Linux."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


# ---- its end from outside

ENDINGS = [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]


@pytest.mark.parametrize("signum", ENDINGS)
def test_a_signal_ends_it_with_what_arrived(
    lab: Home, model: ModelServer, signum: signal.Signals
) -> None:
    hold = model.halt("first\n\n")
    terminal = Terminal(lab, "-i", "go")
    before = termios.tcgetattr(terminal.fd)
    terminal.until(b"first")
    os.kill(terminal.pid, signum)
    terminal.until(b"gptsh -i -s ")
    wait_until(lambda: termios.tcgetattr(terminal.fd) == before)
    assert terminal.close()[1] == 128 + signum
    hold.set()
    assert texts(lab.doc()) == ["user: go", "assistant: first\n\n"]


@pytest.mark.parametrize("signum", ENDINGS)
@pytest.mark.parametrize("term", ["xterm", pytest.param("dumb", marks=pytest.mark.slow)])
def test_a_signal_at_the_prompt_keeps_the_draft_and_restores_the_terminal(
    home: Home, signum: signal.Signals, term: str
) -> None:
    terminal = Terminal(home, "-i", "-m", "echo", env={"TERM": term})
    before = termios.tcgetattr(terminal.fd)
    terminal.until(b"> " if term == "dumb" else b"echo")
    terminal.write("not sent\\\r")
    terminal.until(rb"\n  \Z" if term == "dumb" else b"")
    terminal.write("but dear")
    terminal.until(b"but dear")
    os.kill(terminal.pid, signum)
    wait_until(lambda: termios.tcgetattr(terminal.fd) == before)
    seen, code = terminal.close()
    assert code == 128 + signum
    assert b"Traceback" not in seen
    typed = (home.state / "typed").read_text()
    assert "\n+not sent\n" + ("" if term == "dumb" else "+but dear\n") in typed
    assert not home.files()


@pytest.mark.parametrize("said", ["", "first "], ids=["at the prompt", "in mid-answer"])
def test_a_terminal_that_goes_away_ends_it_and_loses_nothing(
    lab: Home, model: ModelServer, said: str
) -> None:
    hold = model.halt(said)
    terminal = Terminal(lab, "-i", "-o", "text", *["go"] * bool(said))
    terminal.until(said.encode() or b"lab/m")
    if not said:
        terminal.write("not sent")
        terminal.until(b"not sent")
    os.close(terminal.fd)  # the window is closed: SIGHUP
    code = os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1])
    hold.set()
    assert -code == signal.SIGHUP
    if said:
        assert texts(lab.doc()) == ["user: go", "assistant: first "]
    else:
        assert "\n+not sent\n" in (lab.state / "typed").read_text()
