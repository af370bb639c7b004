"""The state of a conversation: each defect that it had has its test, most of them in this process, through ``Talk``."""

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from gptsh.cli.signals import Endings

from gptsh.cli.options import Flags, build
from gptsh.cli.recap import show_recap
from gptsh.cli.reporter import Reporter
from gptsh.cli.slash.commands import carry_out
from gptsh.cli.talk import Talk
from gptsh.errors import GptshError, SessionGone, UsageError
from tests.support.answers import answer_of, small_says
from tests.support.home import Home, lab_config, texts
from tests.support.screens import Tmux, needs_tmux
from tests.support.server import ModelServer
from tests.support.sessions import comparable
from tests.support.terminal import Terminal

Begin = Callable[..., Talk]
REFUSED = {"error": {"message": "no"}}
ECHOED = ["user: one", "assistant: You said: one"]


def begin_in(home: Home, *argv: str) -> Talk:
    """A conversation as ``-i`` with these options begins it, without its loop."""
    given = build().make_context("gptsh", ["-i", *argv]).params
    flags = Flags(**{name: value for name, value in given.items() if name in Flags._fields})
    talk = Talk(flags, home.env, Reporter(argv))
    talk.begin()
    return talk


@pytest.fixture
def inside(home: Home, store: object, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home whose store and folder are those of this process."""
    for name, value in home.env.items():
        if name.startswith(("HOME", "XDG")):
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(home.cwd)
    return home


@pytest.fixture
def begin(inside: Home, model: ModelServer) -> Begin:
    """Begins conversations with the model server, in this process."""
    inside.configure(lab_config(model))
    return lambda *argv: begin_in(inside, *argv)


def failing(do: Callable[[], object], kind: type[GptshError] = GptshError) -> str:
    """What fails says, and the way that it tells."""
    with pytest.raises(kind) as caught:
        do()
    return f"{caught.value}: {caught.value.hint}"


def leave(talk: Talk) -> int:
    with Endings(None, stays=True) as endings:
        return talk.leave(endings)


def block(home: Home) -> None:
    """From now on nothing can be saved, and all can be read."""
    home.state.mkdir(parents=True, exist_ok=True)
    lock = home.state / ".lock"
    lock.unlink(missing_ok=True)
    lock.mkdir()


def unblock(home: Home) -> None:
    (home.state / ".lock").rmdir()


# ---- forks


def test_a_fork_without_turns_can_be_resumed(begin: Begin, home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    first = begin()
    first.ask("one")
    talk = begin("-s", "0@0")
    show_recap(talk)
    assert capfd.readouterr().out.endswith("You said: one\n")
    for command in ("/history", "/session info", "/context", "/usage"):
        carry_out(talk, command)
    for command in ("/undo", "/retry", "/copy"):
        failing(lambda command=command: carry_out(talk, command), UsageError)  # type: ignore[misc]
    talk.ask("two")
    assert [texts(doc) for doc in home.docs()] == [["user: two", "assistant: You said: two"], ECHOED]


@needs_tmux
def test_the_prompt_comes_for_a_fork_without_turns(home: Home) -> None:
    home.run("-m", "echo", "one")
    with Tmux(home, "-i", "-s", "0@0") as tmux:
        tmux.until(r"^>$")
        tmux.say("/undo")
        tmux.until("there is no turn to undo")


def test_the_recap_of_a_fork_counts_its_turns(
    begin: Begin, model: ModelServer, capfd: pytest.CaptureFixture[str]
) -> None:
    talk = begin()
    for number in range(4):
        talk.ask(f"q{number}")
    carry_out(talk, "/fork -1")
    capfd.readouterr()
    show_recap(talk)
    said = capfd.readouterr()
    assert re.sub("\x1b\\[[0-9]*m", "", said.out).splitlines()[:2] == ["… 1 earlier turn: /history shows all", "> q1"]
    assert said.err == ""


def test_the_recap_says_retry_where_the_last_question_has_no_answer(
    begin: Begin, model: ModelServer, capfd: pytest.CaptureFixture[str]
) -> None:
    talk = begin()
    talk.ask("one")
    model.refuse(401, REFUSED)
    failing(lambda: talk.ask("two"))
    carry_out(talk, "/fork")
    capfd.readouterr()
    show_recap(talk)
    assert "the last question has no answer yet: /retry asks it" in capfd.readouterr().err
    carry_out(talk, "/retry")
    assert texts(talk.doc or {})[-2:] == ["user: two", "assistant: You said: two"]


def test_a_fork_opened_by_index_is_of_that_session_whatever_comes_later(begin: Begin, home: Home) -> None:
    talk = begin()
    talk.ask("one")
    ident = home.doc()["id"]
    fork = begin("-s", "0@1")
    carry_out(fork, "/session info")
    begin().ask("another session, now number 0")
    assert fork.origin == ident
    carry_out(fork, "/undo")  # still a fork of that session, and not of the newer one
    assert fork.opened.ref == f"{ident}@0"
    fork.ask("two")
    assert fork.doc is not None
    assert fork.doc["meta"]["forked_from"] == f"{ident}@0"


# ---- a session that is gone, or was used meanwhile


@pytest.mark.slow
@needs_tmux
def test_a_session_that_was_used_while_delete_asked_stays(lab: Home) -> None:
    lab.run("one")
    with Tmux(lab, "-i", "-s", "0") as tmux:
        tmux.until(r"^>$")
        tmux.say("/session delete")
        tmux.until(r"\[y\]es, \[n\]o:")
        lab.run("-s", "0", "meanwhile")
        tmux.say("y")
        tmux.until(r"stays: it was used(.*\n)+>$")
        assert texts(lab.doc())[2:] == ["user: meanwhile", "assistant: You said: meanwhile"]
        tmux.say("three")
        tmux.until(r"You said: three\n+>$")
    assert lab.doc()["stats"]["turns"] == 3


def test_a_session_deleted_meanwhile_stays_in_memory(
    begin: Begin, home: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    talk = begin()
    talk.ask("one")
    home.files()[0].unlink()
    said = failing(lambda: talk.ask("two"), SessionGone)
    assert "/fork goes on" in said
    assert "/session export FILE" in said
    assert talk.suggested == "two"
    carry_out(talk, "/history")
    carry_out(talk, "/session export kept.md")
    assert "You said: one" in (home.cwd / "kept.md").read_text()
    capfd.readouterr()
    assert leave(talk) == 1
    assert "this conversation is not on disk: " in capfd.readouterr().err
    assert home.files() == []  # what was deleted does not come back by itself


def test_a_session_deleted_meanwhile_goes_on_in_a_fork(begin: Begin, home: Home) -> None:
    talk = begin()
    talk.ask("one")
    ident = home.doc()["id"]
    home.files()[0].unlink()
    failing(lambda: talk.ask("two"), SessionGone)
    carry_out(talk, "/fork")  # which nobody is asked about, since nothing is lost
    talk.ask("two")
    assert texts(home.doc()) == [*ECHOED, "user: two", "assistant: You said: two"]
    assert home.doc()["meta"]["forked_from"] == f"{ident}@"
    assert leave(talk) == 0


def test_a_name_that_another_run_creates_first_is_read_before_the_first_question(
    begin: Begin, home: Home, model: ModelServer
) -> None:
    talk = begin("-s", "@work")
    home.run("-s", "@work", "first")
    talk.ask("second")
    assert [message["content"] for message in model.sent[-1]["messages"]] == ["first", "You said: first", "second"]
    assert home.doc()["stats"]["turns"] == 2


def test_what_only_a_fork_still_has_is_kept_when_it_is_left(begin: Begin, home: Home) -> None:
    block(home)
    talk = begin()
    talk.ask("one")
    carry_out(talk, "/fork")
    unblock(home)
    assert leave(talk) == 0
    assert texts(home.doc()) == ECHOED


# ---- labels


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "in memory"])
def test_labels_of_the_command_line_go_with_the_first_turn_once(begin: Begin, home: Home, *, kept: bool) -> None:
    begin().ask("zero")
    talk = begin("-s", "0", "--title", "By Hand", "--tag", "x", "--snapshot", "here")
    if not kept:
        block(home)
    talk.ask("one")
    if not kept:
        unblock(home)
        talk.ask("two")
    doc = home.doc()
    assert (doc["title"], doc["meta"]["tags"]) == ("By Hand", ["x"])
    assert [(item["name"], item["messages"]) for item in doc["context"]["snapshots"]] == [("here", 2)]
    home.run("-s", "0", "--title", "Another")
    talk.ask("three")
    assert home.doc()["title"] == "Another"
    assert len(home.doc()["context"]["snapshots"]) == 1


def test_labels_wait_for_a_turn_of_which_something_comes(begin: Begin, home: Home) -> None:
    begin().ask("zero")
    talk = begin("-s", "0", "--title", "By Hand", "--tag", "x", "--snapshot", "here", "-m", "nobody/m")
    failing(lambda: talk.ask("one"))
    assert talk.suggested == "one"
    carry_out(talk, "/model lab/m")
    talk.ask("one")
    assert (home.doc()["title"], home.doc()["meta"]["tags"]) == ("By Hand", ["x"])
    assert [item["name"] for item in home.doc()["context"]["snapshots"]] == ["here"]


def test_labels_stay_with_a_fork_that_is_made_before_the_turn(begin: Begin, home: Home) -> None:
    begin().ask("one")
    talk = begin("-s", "0", "--title", "By Hand", "--tag", "x")
    carry_out(talk, "/fork")
    talk.ask("two")
    fork, origin = home.docs()
    assert (fork["title"], fork["meta"]["tags"]) == ("By Hand", ["x"])
    assert (origin["title"], origin["meta"]["tags"]) == (None, [])


def test_labels_of_one_session_are_not_those_of_another(begin: Begin, home: Home) -> None:
    begin().ask("one")
    talk = begin("--title", "By Hand", "--tag", "x")
    carry_out(talk, "/resume 0")
    talk.ask("two")
    assert (home.doc()["title"], home.doc()["meta"]["tags"], home.doc()["context"]["snapshots"]) == (None, [], [])


def test_a_title_given_in_memory_arrives_when_leaving_can_keep_it(begin: Begin, home: Home) -> None:
    block(home)
    talk = begin()
    talk.ask("one")
    carry_out(talk, "/session rename By Hand")
    unblock(home)
    assert leave(talk) == 0
    assert (home.doc()["title"], texts(home.doc())) == ("By Hand", ECHOED)


def test_a_title_given_in_memory_is_that_of_its_fork(begin: Begin, home: Home) -> None:
    block(home)
    talk = begin()
    talk.ask("one")
    carry_out(talk, "/session rename By Hand")
    carry_out(talk, "/fork")
    unblock(home)
    talk.ask("two")
    assert home.doc()["title"] == "By Hand"


# ---- the first question, and what comes of none


@pytest.mark.slow
@needs_tmux
def test_a_first_question_that_is_refused_stands_in_the_line(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, SMALL))
    (home.cwd / "long.txt").write_text("word " * 2000)
    with Tmux(home, "-i", "-f", "long.txt", "sum", "it", "up") as tmux:  # exit 6
        tmux.until("^> sum it up$")
        tmux.keys("C-u")
        assert "long.txt" in tmux.did("/file")
        tmux.did("/file -")
        tmux.say("two")
        tmux.until(r"You said: two\n+>$")
        tmux.keys("C-d")
        assert tmux.code() == 0
    assert texts(home.doc()) == ["user: two", "assistant: You said: two"]
    with Tmux(home, "-i", "-m", "nobody/m", "a", "question") as tmux:  # exit 2
        tmux.until(r"(?s)gptsh: .*nobody.*^> a question$")
    assert len(home.files()) == 1


@needs_tmux
@pytest.mark.parametrize(("args", "code"), [(["-i"], 6), (["-i", "-m", "nobody/m", "words"], 2)])
def test_what_was_piped_and_is_refused_ends_as_a_run_that_asks_once(
    home: Home, model: ModelServer, args: list[str], code: int
) -> None:
    home.configure(lab_config(model, SMALL))
    (home.cwd / "long.txt").write_text("word " * 2000)
    with Tmux(home, *args, shell="cat long.txt | {}") as tmux:
        assert tmux.code() == code
    assert not home.files()


SMALL = 'context_window = 300\n[context]\ncompact = "off"\n[sessions]\ntitles = "off"\n'


@needs_tmux
def test_ctrl_c_before_the_question_is_saved_puts_its_words_back(home: Home, model: ModelServer) -> None:
    command = "test -e waiting || { touch waiting; exec sleep 20; }; echo a-key"
    home.configure(lab_config(model, f'api_key_command = "{command}"\n[sessions]\ntitles = "off"\n'))
    (home.cwd / "notes.txt").write_text("from a file")
    with Tmux(home, "-i", "-f", "notes.txt", "one") as tmux:
        end = time.monotonic() + 10
        while not (home.cwd / "waiting").exists():
            assert time.monotonic() < end, tmux.screen()
            time.sleep(0.02)
        tmux.keys("C-c")
        tmux.until("^> one$")
        assert not home.files()
        tmux.keys("Enter")
        tmux.until(r"from a file(.*\n)+>$")
    assert [part.get("source") for part in home.doc()["messages"][0]["content"]] == [None, "notes.txt"]


def test_a_refused_question_that_is_not_to_be_kept_can_be_asked_again(begin: Begin, model: ModelServer) -> None:
    talk = begin("--no-save")
    model.refuse(401, REFUSED)
    assert "/retry asks it again" in failing(lambda: talk.ask("one"))
    carry_out(talk, "/retry")
    assert texts(talk.doc or {}) == ECHOED


@pytest.mark.parametrize(("args", "said"), [
    (["--timeout", "soon"], rb"gptsh: --timeout: "),
    (["--timeout", "-1", "words"], rb"gptsh: --timeout: "),
    (["--no-save", "--snapshot", "here"], rb"gptsh: a snapshot that is not saved is none"),
    (["--snapshot", "1st"], rb"letters, digits"),
    (["--snapshot", "here"], rb"a new session has nothing yet to take a snapshot of"),
])  # fmt: skip
def test_what_no_turn_could_take_ends_it_at_the_start(home: Home, args: list[str], said: bytes) -> None:
    seen, code = Terminal(home, "-i", "-m", "echo", *args).close()
    assert code == 2
    assert said in seen
    assert b"\n> " not in seen


# ---- lines and answers


@needs_tmux
def test_leading_blanks_are_sent(lab: Home) -> None:
    with Tmux(lab, "-i") as tmux:
        tmux.until("^>$")
        tmux.say("  /model is a word here")
        tmux.until(r"here\n+>$")
    assert lab.doc()["messages"][0]["content"] == "  /model is a word here"


@pytest.mark.slow
@needs_tmux
def test_a_configured_form_for_programs_is_none_at_the_prompt(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model).replace('"lab/m"\n', '"lab/m"\noutput = "json"\n'))
    for env in ({}, {"GPTSH_OUTPUT": "json"}, {"GPTSH_OUTPUT": "jsonl"}):
        with Tmux(home, "-i", env=env) as tmux:
            tmux.until("^>$")
            assert tmux.did("/resume zzz9").startswith("gptsh: no session 'zzz9'")
            assert tmux.did("**one**") == "You said: one"
            assert "{" not in tmux.did("/session rename") + tmux.did("/usage")


def test_a_failure_at_the_start_is_told_to_a_person(home: Home) -> None:
    seen, code = Terminal(home, "-i", env={"GPTSH_OUTPUT": "json"}).close()
    assert (code, b"{" in seen) == (2, False)


# ---- the same turns by runs of their own


LONG = [f"question {number}: {'lorem ipsum dolor ' * 40}" for number in range(10)]
COMPACTING = 'context_window = 2800\n[context]\nkeep_messages = 2\nsnapshots = 3\n[sessions]\ntitles = "off"\n'
REMEMBERING = '[context]\nmemory_window = 4\nkeep_messages = 2\n[sessions]\ntitles = "off"\n'


def normal(home: Home) -> Any:
    """Sessions and memories without what differs from one run to the next: ids, times, how long things took."""
    memories = {path.name: path.read_text() for path in sorted((home.state / "memory").rglob("*.md"))}
    text = json.dumps([*map(comparable, home.docs()), memories])
    for ident in (doc["id"] for doc in home.docs()):
        text = text.replace(ident, "ID")
    text = re.sub(r"\b[0-9a-f]{8}\b(?!-)|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "ID", text)
    return json.loads(re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:[0-9.]+Z)?", "TIME", text))


@pytest.mark.slow
@pytest.mark.parametrize(("more", "agent", "said"), [
    (COMPACTING, "", [f"Summary {number}." for number in range(9)]),
    (REMEMBERING, "memory = true\n", [answer_of(f"- fact {number}", f"Entry {number}.") for number in range(9)]),
], ids=["compaction", "memory"])  # fmt: skip
def test_a_conversation_makes_what_runs_of_their_own_make(
    inside: Home, model: ModelServer, monkeypatch: pytest.MonkeyPatch, more: str, agent: str, said: list[str]
) -> None:
    inside.configure(lab_config(model, more).replace('"lab/m"\n', f'"lab/m"\nmodel_small = "lab/small"\n{agent}'))
    for text in said:
        small_says(model, text)
    for number, words in enumerate(LONG):
        inside.run(*["-s", "0"] * bool(number), "--", words)
    sent = [*model.sent]
    model.asked.clear()
    model._scripts.clear()
    for text in said:
        small_says(model, text)
    other = inside.elsewhere()
    monkeypatch.setenv("XDG_STATE_HOME", other.env["XDG_STATE_HOME"])
    talk = begin_in(other)
    for words in LONG:
        talk.ask(words)
    assert leave(talk) == 0
    context = inside.doc()["context"]
    assert context["summaries"] if more is COMPACTING else context["consolidated"]
    assert normal(inside) == normal(other)
    assert [body["messages"] for body in sent if "messages" in (body or {})] == [
        body["messages"] for body in model.sent if "messages" in (body or {})
    ]


# ---- whatever comes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_a_random_walk_loses_nothing(home: Home, seed: int) -> None:
    command = [sys.executable, "-m", "tests.support.walk", str(seed), "80"]
    terminal = Terminal(home, command=command, env={"PAGER": "cat", "TERM": "dumb"})
    answer_all(terminal)
    seen, code = terminal.close()
    assert code == 0, seen[-8000:].decode("utf-8", "replace")
    assert b"the walk is done" in seen


def answer_all(terminal: Terminal) -> None:
    """Read to the end, and answer each question as the walk has said before."""
    asked = 0
    with contextlib.suppress(OSError):  # the end, on Linux
        while more := os.read(terminal.fd, 1 << 16):
            terminal.seen += more
            while terminal.seen.count(b"[y]es, [n]o: ") > asked:
                asked += 1
                terminal.write(re.findall(rb"answers: (yes|no)", terminal.seen)[-1].decode() + "\n")
