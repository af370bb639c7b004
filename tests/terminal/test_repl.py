"""``-i``: each line a turn, asked and kept as a run of its own would; nothing is lost, however it ends."""

import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import COMMAND, Home, lab_config, texts
from tests.support.screens import Tmux, needs_tmux
from tests.support.server import ModelServer, chunk, event
from tests.support.sessions import comparable
from tests.support.terminal import Terminal
from tests.support.tools import call, calling, configure, is_running, roles

pytestmark = needs_tmux
PROMPT = r"^>$"
ECHOED = ["user: one", "assistant: You said: one", "user: two", "assistant: You said: two"]


def halted(model: ModelServer, *pieces: str, name: str = "") -> threading.Event:
    """Queue an answer that says the pieces, and goes on when the event is set."""
    hold = threading.Event()
    model.script(*(event(chunk({"content": piece})) for piece in pieces), hold, event(chunk({}, "stop")), model=name)
    return hold


def kept(home: Home, count: int, seconds: float = 10) -> dict[str, Any]:
    """The only session, once it has so many messages."""
    end = time.monotonic() + seconds
    while not (home.files() and home.doc()["stats"]["messages"] >= count):
        assert time.monotonic() < end, [texts(doc) for doc in home.docs()]
        time.sleep(0.02)
    return home.doc()


# ---- the turns


def test_repl_preload_and_append(lab: Home, model: ModelServer) -> None:
    lab.run("one")
    with Tmux(lab, "-i", "-s", "0") as tmux:
        tmux.until(PROMPT)
        tmux.say("two")
        tmux.until(r"You said: two\n+>$")
        assert texts(lab.doc()) == ECHOED
        tmux.say("three")
        tmux.until(r"You said: three\n+>$")
        tmux.keys("C-d")
        assert tmux.code() == 0
        assert f"gptsh -i -s {lab.doc()['id']}" in tmux.screen()
    assert [len(sent["messages"]) for sent in model.sent] == [1, 3, 5]
    assert lab.doc()["stats"]["turns"] == 3


def test_words_of_the_command_line_are_the_first_turn(lab: Home) -> None:
    with Tmux(lab, "-i", "--title", "By Hand", "one", "and", "more") as tmux:
        tmux.until(r"You said: one and more\n+>$")
        tmux.say("two")
        tmux.until(r"You said: two\n+>$")
    doc = lab.doc()
    assert (doc["title"], doc["stats"]["turns"]) == ("By Hand", 2)


def test_a_pipe_is_the_first_turn_and_the_terminal_goes_on(lab: Home) -> None:
    (lab.cwd / "diff").write_text("+ a line\n")
    with Tmux(lab, "-i", "review", shell="cat diff | {}") as tmux:
        tmux.until(r"a line\n+>$")
        tmux.say("two")
        tmux.until(r"You said: two\n+>$")
        tmux.keys("C-d")
    first = lab.doc()["messages"][0]
    assert [part.get("source") for part in first["content"]] == [None, "stdin"]
    assert lab.doc()["stats"]["turns"] == 2


@pytest.mark.slow
def test_the_same_turns_make_the_same_session(home: Home, model: ModelServer, tmp_path: Path) -> None:
    """At the prompt and by runs of their own: with a file, a tool, another model, a failure, a title."""
    configure(home, model, more='[agents.other]\nmodel = "lab/n"\nsystem = "Be brief."\n')
    home.config.write_text(home.config.read_text().replace('titles = "off"', 'titles = "model"'))
    (home.cwd / "notes.txt").write_text("a note\n")
    other = home.elsewhere()

    def script() -> None:
        model.say("Read.", model="m")
        model.say("A Title", model="m")
        model.script(*calling(call("add", a=2, b=3), text="Let me add."), model="m")
        model.say("It is 5.", model="m")
        model.refuse(401, {"error": {"message": "no"}}, model="n")
        model.say("Brief.", model="n")

    script()
    for args in (["-f", "notes.txt", "read it"], ["-s", "0", "2 + 3?"], ["-s", "0", "-a", "other", "go"], ["-s", "0"]):
        home.run(*args)
    script()
    converse(other)
    assert home.doc()["title"] == "A Title"
    assert roles(home.doc()).count("tool") == 1
    assert comparable(home.doc()) == comparable(other.doc())
    assert list(home.doc()) == list(other.doc())


def converse(home: Home) -> None:
    """Those turns at the prompt."""
    with Tmux(home, "-i", "-f", "notes.txt", "read it") as tmux:
        tmux.until(r"Read.\n+>$")
        tmux.say("2 + 3?")
        tmux.until(r"It is 5.\n+>$")
        tmux.say("/agent other")
        tmux.until(r"/agent other\n(.*\n)+>$")
        tmux.say("go")
        tmux.until("refused|401|no")
        tmux.until(PROMPT)
        tmux.say("/retry")
        tmux.until(r"Brief.\n+>$")
        tmux.keys("C-d")
        assert tmux.code() == 0


@pytest.mark.slow
def test_two_conversations_on_one_session_keep_all_turns_of_both(lab: Home, model: ModelServer) -> None:
    lab.run("zero")
    with Tmux(lab, "-i", "-s", "0") as one, Tmux(lab, "-i", "-s", "0") as two:
        one.until(PROMPT)
        two.until(PROMPT)
        for number in range(3):
            one.say(f"one {number}")
            two.say(f"two {number}")
            kept(lab, 4 * number + 6)
            one.until(PROMPT)
            two.until(PROMPT)
        one.say("what do you know")
        kept(lab, 16)
    said = {f"user: {who} {number}" for who in ("one", "two") for number in range(3)}
    assert said <= set(texts(lab.doc()))
    assert lab.doc()["stats"]["messages"] == 16
    known = {message["content"] for message in model.sent[-1]["messages"]}
    assert {line.removeprefix("user: ") for line in said} <= known


def test_without_saving_the_conversation_goes_on_in_memory(lab: Home, model: ModelServer) -> None:
    with Tmux(lab, "-i", "--no-save", "one") as tmux:
        tmux.until(r"You said: one\n+>$")
        tmux.say("two")
        tmux.until(r"You said: two\n+>$")
        tmux.keys("C-d")
        assert tmux.code() == 0
        assert "gptsh -i -s" not in tmux.screen()
    assert len(model.sent[1]["messages"]) == 3
    assert not lab.files()


@pytest.mark.slow
def test_a_store_that_cannot_be_written_loses_nothing_once_it_can(lab: Home, model: ModelServer) -> None:
    lab.state.mkdir(parents=True)
    (lab.state / "sessions").write_text("no folder")
    with Tmux(lab, "-i", "one") as tmux:
        tmux.until(r"cannot be saved(.*\n)+>$")
        tmux.say("two")
        tmux.until(r"You said: two\n(.*\n)*>$")
        (lab.state / "sessions").unlink()
        tmux.say("three")
        tmux.until(r"You said: three\n+>$")
        assert [len(sent["messages"]) for sent in model.sent] == [1, 3, 5]
        assert texts(lab.doc())[:4] == ECHOED
        tmux.keys("C-d")
        assert tmux.code() == 0
    assert lab.doc()["stats"]["turns"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("mended", [True, False])
def test_leaving_tries_once_more_to_keep_what_could_not_be(lab: Home, *, mended: bool) -> None:
    lab.state.mkdir(parents=True)
    (lab.state / "sessions").write_text("no folder")
    with Tmux(lab, "-i", "one") as tmux:
        tmux.until(r"You said: one\n(.*\n)*>$")
        if mended:
            (lab.state / "sessions").unlink()
        tmux.keys("C-d")
        assert tmux.code() == (0 if mended else 1)
        assert ("not on disk" in tmux.screen()) is not mended
    assert [texts(doc) for doc in lab.docs()] == [ECHOED[:2]] * mended


def test_a_question_that_cannot_be_asked_stands_in_the_next_line(lab: Home) -> None:
    with Tmux(lab, "-i", "-m", "nobody/m") as tmux:
        tmux.until(PROMPT)
        tmux.say("a long question")
        tmux.until(r"gptsh: .*nobody")
        tmux.until(r"^> a long question$")
    assert not lab.files()


# ---- Ctrl-C, at every stage


def test_ctrl_c_while_answering_keeps_what_came_and_the_prompt_comes_back(lab: Home, model: ModelServer) -> None:
    with Tmux(lab, "-i") as tmux:
        tmux.until(PROMPT)
        hold = halted(model)
        tmux.say("one")
        kept(lab, 1)
        tmux.until("waiting for")
        tmux.keys("C-c")
        tmux.until(r"/retry asks it again\n+>$")
        hold.set()
        hold = halted(model, "half\n\n")
        tmux.say("two")
        tmux.until("half")
        tmux.keys("C-c", "C-c", "C-c")
        tmux.until(r"what arrived is kept\n+>$")
        hold.set()
        assert texts(lab.doc()) == ["user: one", "user: two", "assistant: half\n\n"]
        assert lab.doc()["messages"][-1]["finish_reason"] == "interrupted"
        tmux.write("half a line")
        tmux.keys("C-c")
        tmux.say("three")
        tmux.until(r"You said: three\n+>$")
        tmux.keys("C-d")
        assert tmux.code() == 0
    assert texts(lab.doc())[-2:] == ["user: three", "assistant: You said: three"]


@pytest.mark.slow
def test_ctrl_c_while_a_title_is_waited_for_keeps_the_answer(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, "").replace("[providers", 'model_small = "lab/small"\n[providers'))
    hold = halted(model, name="small")
    with Tmux(home, "-i", "one") as tmux:
        kept(home, 2)
        time.sleep(0.3)
        tmux.keys("C-c")
        tmux.until(PROMPT, seconds=3)
        hold.set()
        tmux.say("two")
        tmux.until(r"You said: two\n+>$")
    assert texts(home.doc()) == ECHOED


@pytest.mark.slow
def test_ctrl_c_while_a_tool_runs_ends_the_call_and_the_server_goes_on(home: Home, model: ModelServer) -> None:
    configure(home, model)
    told = home.folder / "told"
    model.script(*calling(call("hang", path=str(told))))
    with Tmux(home, "-i", "go") as tmux:
        tmux.until("running")
        while not told.exists():
            time.sleep(0.02)
        tmux.keys("C-c")
        tmux.until(r"kept.*\n+>$")
        model.script(*calling(call("environment")))
        model.say("done")
        tmux.say("again")
        tmux.until(r"done\n+>$")
        tmux.keys("C-d")
        assert tmux.code() == 0
    assert [m["role"] for m in home.doc()["messages"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


@pytest.mark.slow
def test_tool_servers_live_as_long_as_the_conversation(home: Home, model: ModelServer) -> None:
    configure(home, model)
    with Tmux(home, "-i", "one") as tmux:
        tmux.until(r"You said: one\n+>$")
        (first,) = servers_of(tmux.pid)
        tmux.say("two")
        tmux.until(r"You said: two\n+>$")
        assert servers_of(tmux.pid) == [first]
        os.kill(first, signal.SIGKILL)  # while it has nothing to do
        while is_running(first):
            time.sleep(0.01)
        time.sleep(0.1)
        model.script(*calling(call("add", a=1, b=1)))
        model.say("It is 2.")
        tmux.say("three")
        tmux.until(r"It is 2.\n+>$")
        (again,) = servers_of(tmux.pid)
        tmux.keys("C-d")
        assert tmux.code() == 0
    assert not is_running(again)


def servers_of(pid: int) -> list[int]:
    """The children of a process, on Linux."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


@pytest.mark.slow
def test_ctrl_c_held_down_never_ends_the_conversation(lab: Home, model: ModelServer) -> None:
    with Tmux(lab, "-i") as tmux:
        tmux.until(PROMPT)
        for number in range(5):
            hold = halted(model, f"part {number}\n\n")
            tmux.say(f"turn {number}")
            tmux.until(f"part {number}")
            tmux.keys(*["C-c"] * 30)
            tmux.until(PROMPT)
            hold.set()
        tmux.say("last")
        tmux.until(r"You said: last\n+>$")
        tmux.keys("C-d")
        assert tmux.code() == 0
    assert texts(lab.doc())[1::2] == [
        *(f"assistant: part {number}\n\n" for number in range(5)),
        "assistant: You said: last",
    ]


# ---- its end from outside


def test_a_killed_terminal_loses_nothing_of_an_answer(lab: Home, model: ModelServer) -> None:
    hold = halted(model, "first ")
    terminal = Terminal(lab, "-i", "-o", "text", "go")
    terminal.until(rb"first ")
    os.close(terminal.fd)  # the window is closed: SIGHUP
    code = os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1])
    hold.set()
    assert -code == signal.SIGHUP
    assert texts(lab.doc()) == ["user: go", "assistant: first "]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_it_with_what_arrived(lab: Home, model: ModelServer, signum: signal.Signals) -> None:
    hold = halted(model, "first\n\n")
    modes = "{}; code=$?; stty -a | grep -oE ' (icanon|echo)( |$)'; (exit $code)"
    with Tmux(lab, "-i", "go", shell=modes) as tmux:
        tmux.until("first")
        os.kill(tmux.pid, signum)
        assert tmux.code() == 128 + signum
        tmux.until(r"^ icanon *\n echo *$")
        assert f"gptsh -i -s {lab.doc()['id']}" in tmux.screen()
    hold.set()
    assert texts(lab.doc()) == ["user: go", "assistant: first\n\n"]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_at_the_prompt_ends_it_and_leaves_the_terminal_as_it_was(lab: Home, signum: signal.Signals) -> None:
    with Tmux(lab, "-i", "one", shell="{}; echo code $?; stty -a | grep -o ' icanon'; sleep 60") as tmux:
        tmux.until(r"You said: one\n+>$")
        os.kill(tmux.pid, signum)
        tmux.until(rf"code {128 + signum}\n icanon")
    assert texts(lab.doc()) == ECHOED[:2]


def test_an_interrupt_from_outside_at_the_prompt_clears_the_line(lab: Home) -> None:
    with Tmux(lab, "-i") as tmux:
        tmux.until(PROMPT)
        tmux.write("half a")
        tmux.until("half a")
        os.kill(tmux.pid, signal.SIGINT)
        time.sleep(0.2)
        tmux.say("one")
        tmux.until(r"You said: one\n+>$")
    assert texts(lab.doc()) == ECHOED[:2]


# ---- the terminal


@pytest.mark.slow
def test_it_follows_the_size_of_the_terminal(lab: Home, model: ModelServer) -> None:
    words = "word " * 30
    with Tmux(lab, "-i") as tmux:
        tmux.until(PROMPT)
        tmux.write("a line that is longer than forty columns are, by far")
        tmux.resize(40, 12)
        tmux.until(r"^> a line that is longer than forty colu")
        tmux.resize(120, 30)
        tmux.until(r"^> a line that is longer than forty columns are, by far$")
        tmux.keys("C-c")
        hold = halted(model, f"{words}\n\n")
        tmux.say("one")
        tmux.until("word word")
        tmux.resize(50, 12)
        hold.set()
        tmux.until(PROMPT)
        model.say(words)
        tmux.say("two")
        tmux.until(r"^(word ){9}word$")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-i"], "-i answers on a terminal, and standard output is none"),
        (["-i", "-o", "json"], "-o json is for programs, and -i for a person"),
        (["-i", "-x", "hi"], "-x does not go with -i: leave out -i to ask once"),
        (["-i", "--list-sessions"], "-i does not go with --list-sessions"),
        (["-i", "--dry-run"], "--dry-run does not go with -i"),
        (["-c", "-r"], "-c and -r exclude each other"),
    ],
)
def test_what_it_does_not_go_with_is_exit_2(lab: Home, args: list[str], said: str) -> None:
    run = lab.run(*args)
    assert run.code == 2
    assert said in run.stderr
    assert not lab.files()


def test_what_is_wrong_at_the_start_ends_it_with_2(home: Home) -> None:
    for args, said in (([], b"no model is chosen"), (["-m", "echo", "-s", "zzzz"], b"no session 'zzzz'")):
        seen, code = Terminal(home, "-i", *args).close()
        assert code == 2
        assert re.search(rb"^gptsh: " + said, seen)


def test_the_prompt_imports_nothing_that_only_an_answer_needs(lab: Home) -> None:
    lab.run("one")
    command = ["sh", "-c", 'exec "$0" -X importtime -m gptsh "$@" 2>imported', *COMMAND[:1]]
    terminal = Terminal(lab, "-i", "-s", "0", command=command)
    terminal.until(rb"(?s)\x1b\[\?2004h.*\x1b\[\?25h")
    terminal.write("\x04")
    assert terminal.close()[1] == 0
    names = [line.rpartition("|")[2].strip() for line in (lab.cwd / "imported").read_text().splitlines()]
    first = {*names[: names.index("gptsh.cli.repl") + 1]}  # what comes behind it is loaded while a line is typed
    assert "prompt_toolkit" in first
    unwanted = {
        "litellm",
        "urllib3",
        "rich",
        "pygments",
        "markdown_it",
        "jsonschema",
        "mcp",
        "gptsh.llm",
        "gptsh.cli.ask",
    }
    assert not first & unwanted
