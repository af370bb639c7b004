"""Commands at the prompt about sessions: real keys in tmux, and what is on disk behind them."""

import json
import re
from typing import Any

import pytest

from tests.support.home import Home, lab_config, texts
from tests.support.screens import Tmux, needs_tmux
from tests.support.server import ModelServer

pytestmark = needs_tmux
READY = r"^> *$"


def started(home: Home, *args: str, **more: Any) -> Tmux:
    tmux = Tmux(home, "-i", *args, **{"size": (100, 40), **more})
    tmux.until(READY)
    return tmux


def do(tmux: Tmux, line: str, pattern: str) -> str:
    """Type a line on a cleared screen; the screen, once the pattern is there and the prompt is back."""
    tmux.keys("C-l")
    tmux.until(r"\A> *$")
    tmux.say(line)
    return tmux.until(rf"(?s)(?:{pattern}).*^> *$")


def answered(tmux: Tmux, line: str, said: str, pattern: str) -> str:
    """The same where the user is asked."""
    tmux.keys("C-l")
    tmux.until(r"\A> *$")
    tmux.say(line)
    tmux.until(r"\[y\]es, \[n\]o: *$")
    tmux.say(said)
    return tmux.until(rf"(?s){pattern}.*^> *$")


def talked(home: Home, *questions: str) -> str:
    """The id of a session of these questions."""
    home.run("-m", "echo", questions[0])
    for question in questions[1:]:
        home.run("-m", "echo", "-s", "0", question)
    return str(home.docs()[0]["id"])


def in_store(home: Home) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in home.state.rglob("*.json")}


@pytest.mark.slow
def test_what_shows_and_what_fails_changes_nothing(home: Home) -> None:
    first, second = talked(home, "alpha one", "alpha two", "alpha three"), talked(home, "beta")
    before = in_store(home)
    with started(home, "-s", first) as tmux:
        seen = tmux.screen()
        assert "1 earlier turn: /history shows all\n> alpha two\nYou said: alpha two\n" in seen
        assert "alpha one" not in seen
        assert re.search(r"\x1b\[2m[^\n]*\n?> alpha two", tmux.screen(styles=True))
        seen = do(tmux, "/sessions", r"\[1\]")
        assert re.search(rf"^\* \[1\] {first} ", seen, re.MULTILINE)
        assert re.search(rf"^  \[0\] {second} ", seen, re.MULTILINE)
        assert "expected nothing, or all" in do(tmux, "/sessions none", "expected")
        assert re.search(r"^turns +3 \(6 messages\)$", do(tmux, "/session info", "file "), re.MULTILINE)
        assert "alpha one" in do(tmux, "/history", "alpha three")
        assert f"[1] {first}" in do(tmux, "/search three alpha", "user: alpha three")
        for line, why in FAILING:
            do(tmux, line, why)
        answered(tmux, "/session delete", "n", "nothing was deleted")
        do(tmux, "/new", f"session {first} is kept")
        do(tmux, "/new", "gptsh: a new session")
        for line in ("/session info", "/undo", "/retry", "/fork", "/snapshot a", "/copy", "/session archive"):
            do(tmux, line, "there is no session yet")
    assert in_store(home) == before


FAILING = [
    ("/search nowhere", "no session has all of these words"),
    ("/search", "/search needs words"),
    ("/snapshot", "there is no snapshot yet"),
    ("/resume zzz9", "no session 'zzz9': /sessions lists them, /search finds by words"),
    ("/fork 7", "has no point '7': it has 3 turns"),
    ("/session archive other", "/session archive takes nothing behind it"),
    ("/undo 2", "/undo takes nothing behind it"),
    ("/snapshot delete x", "no snapshot named 'x'"),
    ("/snapshot delete", "needs a name"),
    ("/snapshot 1st", "letters, digits"),
    ("/session rename", "needs a title"),
    ("/history x", "expected nothing, or full"),
]


def test_forks_write_nothing_before_their_question(lab: Home, model: ModelServer) -> None:
    (lab.cwd / "notes.txt").write_text("from a file")
    lab.run("one")
    lab.run("-s", "0", "two", "-f", "notes.txt")
    origin = lab.doc()
    before, ident = in_store(lab), origin["id"]
    with started(lab, "-s", "0") as tmux:
        assert f"session {ident} keeps all: /resume {ident}" in do(tmux, "/fork 1", "a fork after turn 1")
        do(tmux, f"/resume {ident}", "> two")
        tmux.say("/undo")
        seen = tmux.until(r"(?s)without the last turn.*^> two *$")
        assert "1 attachment of the question left out" in seen
        assert f"/resume {ident}" in seen
        tmux.keys("C-u")
        tmux.say("/undo")
        tmux.until(r"(?s)(without the last turn.*){2}^> one *$")
        assert in_store(lab) == before
        tmux.keys("C-u")
        do(tmux, "other", "You said: other")
        fork = lab.docs()[0]
        assert (fork["meta"]["forked_from"], texts(fork)[0]) == (f"{ident}@0", "user: other")
        do(tmux, f"/resume {ident}", "> two")
        do(tmux, "/retry", "You said: two")
        again, *others = lab.docs()
        assert again["messages"][2]["content"] == origin["messages"][2]["content"]
        assert again["messages"][2]["id"] != origin["messages"][2]["id"]
        assert (again["meta"]["forked_from"], len(again["messages"])) == (f"{ident}@1", 4)
        assert others[-1] == origin


def test_a_retry_of_what_has_no_answer_is_in_place(lab: Home, model: ModelServer) -> None:
    model.refuse(401, {"error": {"message": "no"}})
    lab.run("one")
    with started(lab, "-s", "0") as tmux:
        assert "the last question has no answer yet: /retry asks it" in tmux.screen()
        do(tmux, "/retry", "You said: one")
        assert texts(lab.doc()) == ["user: one", "assistant: You said: one"]


@pytest.mark.slow
def test_a_retry_of_which_nothing_comes_stays_where_it_is(home: Home) -> None:
    first = talked(home, "one", "two")
    before = in_store(home)
    with started(home, "-s", first, "-m", "nobody/x") as tmux:
        do(tmux, "/retry", "gptsh: .*nobody")
        assert re.search(rf"^session +{first}$", do(tmux, "/session info", "file "), re.MULTILINE)
    assert in_store(home) == before


@pytest.mark.slow
def test_snapshots_are_taken_and_deleted_for_good(home: Home) -> None:
    first = talked(home, "one", "two")
    with started(home, "-s", first) as tmux:
        do(tmux, "/snapshot here", "snapshot here taken")
        do(tmux, "/snapshot there", "snapshot there taken")
        seen = do(tmux, "/snapshot", "there, ")
        assert re.search(
            r"^here, [-0-9]+ [:0-9]+, after turn 2 \(4 messages\), ~\d+ tokens, by hand$", seen, re.MULTILINE
        )
        do(tmux, "/snapshot here", "snapshot here moved")
        do(tmux, "/fork here", "a fork as it is, saved with your next question")
        do(tmux, "/fork 0", "a fork from the beginning")
        do(tmux, f"/resume {first}", "You said: two")
        do(tmux, "/snapshot delete here", "snapshot here deleted")
        do(tmux, "three", "You said: three")
    doc = home.doc()
    assert [item["name"] for item in doc["context"]["snapshots"]] == ["there"]
    assert doc["stats"]["turns"] == 3


@pytest.mark.slow
def test_an_export_writes_new_files_only(home: Home) -> None:
    first = talked(home, "one")
    (home.cwd / "taken.md").write_text("mine")
    (home.cwd / "my docs").mkdir()
    with started(home, "-s", first) as tmux:
        do(tmux, "/session export", f"written to gptsh-{first}.md")
        do(tmux, "/session export taken.md", "is there already, and stays as it is")
        do(tmux, "/session export a.xyz", "a.xyz does not say in which format: end it in .md")
        do(tmux, "/session export html -", "- is no file")
        do(tmux, "/session export 'my docs/' out.md", "is more than one file")
        do(tmux, "/session export 'my docs/'out.md", "written to my docs/out.md")
        do(tmux, "/session export html my docs", f"written to my docs/gptsh-{first}.html")
        do(tmux, "/session export no/where.md", "No such file")
        do(tmux, "/session export ~/my page.HTML", "written to .*/my page.HTML")
        do(tmux, "/session export d.json", "written to d.json")
        assert "/session export json has" in do(tmux, "/session export openai o.txt", "written to o.txt")
    assert (home.cwd / "taken.md").read_text() == "mine"
    assert json.loads((home.cwd / "d.json").read_bytes()) == home.doc()
    assert (home.cwd / f"gptsh-{first}.md").read_text() == home.run("--export-session", "0").stdout
    assert "<html" in (home.folder / "my page.HTML").read_text()
    assert [m["content"] for m in json.loads((home.cwd / "o.txt").read_bytes())] == ["one", "You said: one"]
    assert {path.name for path in home.cwd.rglob("*")} == {
        "d.json", f"gptsh-{first}.md", "o.txt", "taken.md", "my docs", "out.md", f"gptsh-{first}.html",
    }  # fmt: skip


@pytest.mark.slow
def test_rename_archive_delete_and_what_goes_on_behind(home: Home) -> None:
    first = talked(home, "one")
    talked(home, "two")
    with started(home, "-s", first, "-m", "echo") as tmux:
        do(tmux, "/session rename  My   title", "the title is My title")
        assert [doc["title"] for doc in home.docs()] == [None, "My title"]
        do(tmux, "/session archive", f"archived {first} My title")
        do(tmux, "/session info", "there is no session yet")
        do(tmux, "/resume 0", "You said: two")
        answered(tmux, "/session delete", "y", "deleted ")
        assert home.files() == []
        do(tmux, "/session rename Before", "the title is Before")
        assert home.files() == []
        tmux.say("what -m said is forgotten")
        tmux.until("no model is chosen")
    assert home.files() == []


@pytest.mark.slow
def test_a_title_given_before_the_first_turn_is_that_of_the_session(home: Home) -> None:
    with started(home, "-m", "echo") as tmux:
        do(tmux, "/session rename Before", "the title is Before")
        do(tmux, "hello", "You said: hello")
    assert home.doc()["title"] == "Before"


@pytest.mark.slow
def test_what_was_piped_comes_back_with_a_retry_alone(home: Home) -> None:
    home.run("-m", "echo", "look", stdin="from a pipe")
    first = home.doc()["id"]
    with started(home, "-s", first) as tmux:
        tmux.say("/undo")
        seen = tmux.until("(?s)without the last turn.*^> look *$")
        assert f"1 attachment of the question left out: in session {first} /retry asks with all of it" in seen


@pytest.mark.slow
def test_the_dates_of_a_fork_never_run_backwards(home: Home) -> None:
    first = talked(home, "one", "two")
    doc = home.doc()
    for message in doc["messages"]:
        message["timestamp"] = "2020-01-01T00:00:00.000Z"
    home.files()[0].write_text(json.dumps(doc))
    with started(home, "-s", f"{first}@1", "-m", "echo") as tmux:
        start, end = re.findall(r"(?m)^dates +(.*) to (.*)$", do(tmux, "/session info", "dates"))[0]
        assert start <= end.strip()


@pytest.mark.slow
def test_what_is_in_memory_alone_can_be_shown_forked_and_exported(home: Home) -> None:
    with started(home, "-m", "echo", "--no-save") as tmux:
        do(tmux, "one", "You said: one")
        do(tmux, "two", "You said: two")
        do(tmux, "/session info", r"not on disk +the session")
        do(tmux, "/session rename In memory", "the title is")
        assert "In memory" in do(tmux, "/history", "You said: two")
        do(tmux, "/snapshot here", "taken")
        do(tmux, "/fork here", "a fork as it is, in memory alone")
        tmux.say("/undo")
        assert "what was there is on no disk" in tmux.until("^> two *$")
        tmux.keys("C-u")
        do(tmux, "/fork here", "no point 'here'")
        do(tmux, "/session export out.json", "written to out.json")
        do(tmux, "/session archive", "cannot be archived")
        do(tmux, "/retry", "You said: one")
        answered(tmux, "/session delete", "yes", "")
        do(tmux, "/history", "there is no session yet")
    assert not home.sessions.exists()
    assert len(json.loads((home.cwd / "out.json").read_bytes())["messages"]) == 2


@pytest.mark.slow
def test_a_session_that_cannot_be_kept_is_left_only_where_the_user_says_so(home: Home) -> None:
    home.state.mkdir(parents=True)
    home.sessions.write_text("in the way")
    with started(home, "-m", "echo") as tmux:
        do(tmux, "one", "You said: one")
        assert "would be lost" in answered(tmux, "/new", "n", "the session stays")
        do(tmux, "/history", "You said: one")
        do(tmux, "/fork", "a fork as it is, in memory until it can be saved")
        home.sessions.unlink()
        do(tmux, "two", "You said: two")
        do(tmux, "/new", "is kept")
    assert texts(home.doc()) == ["user: one", "assistant: You said: one", "user: two", "assistant: You said: two"]


@pytest.mark.slow
def test_copy_puts_what_was_chosen_into_the_clipboard(lab: Home, model: ModelServer) -> None:
    said = "Do \x1b[31mthis:\n```sh\nls\n```\nor\n```sh\nrm x\n```\n"
    model.say(said)
    lab.run("one")
    model.say("no code")
    lab.run("-s", "0", "two")
    with started(lab, "-s", "0@1") as tmux:
        do(tmux, "/copy", "sent to the clipboard")
        assert tmux.clipboard() == said
        do(tmux, "/copy code", "5 characters sent")
        assert tmux.clipboard() == "rm x\n"
        do(tmux, "/copy code 1", "3 characters sent")
        assert tmux.clipboard() == "ls\n"
        do(tmux, "/copy code 3", "no block 3")
        do(tmux, "/copy that", "expected nothing")
        do(tmux, "/resume 0", "no code")
        do(tmux, "/copy code", "has no block of code")
        do(tmux, "/copy 3", "there is no turn 3")
        do(tmux, "/copy 1", "sent to the clipboard")
        assert tmux.clipboard() == said


@pytest.mark.slow
def test_copy_tells_what_may_keep_it_back(lab: Home, model: ModelServer) -> None:
    model.say("x" * 100_000)
    lab.run("one")
    with started(lab, "-s", "0") as tmux:
        assert "some terminals refuse" in do(tmux, "/copy", "100,000 characters sent")
        assert "tmux" not in tmux.screen()
        tmux._do("set-option", "-s", "set-clipboard", "external")
        do(tmux, "/copy", "tmux keeps it back: 'tmux set -s set-clipboard on'")
    with started(lab, "-s", "0", env={"TERM": "linux"}) as tmux:
        do(tmux, "/copy", "this terminal has no clipboard")


WITH_MEMORY = 'model = "lab/m"\nmodel_small = "lab/s"\nmemory = true'


@pytest.mark.slow
def test_new_remembers_first_and_comes_whatever_becomes_of_that(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model).replace('model = "lab/m"', WITH_MEMORY))
    home.run("I like tea")
    with started(home, "-s", "0") as tmux:
        model.refuse(401, {"error": {"message": "no"}}, model="s")
        do(tmux, "/new", r"session \w+: .*no.*is kept")
        do(tmux, "/history", "there is no session yet")
        do(tmux, "/resume 0", "I like tea")
        model.script(30.0, model="s")
        tmux.keys("C-l")
        tmux.say("/new")
        tmux.until("remembering")
        tmux.keys("C-c")
        tmux.until("(?s)not all is remembered yet.*is kept")
        do(tmux, "/history", "there is no session yet")
        do(tmux, "/resume 0", "I like tea")
        model.say('{"history_entry": "[2026-01-01 00:00] tea", "memory_update": "- likes tea"}', model="s")
        do(tmux, "/new", "agent default remembers 2 messages")
        do(tmux, "/resume 0", "I like tea")
        asked = len(model.asked)
        do(tmux, "/new", "is kept")
        assert len(model.asked) == asked  # nothing is due


@pytest.mark.slow
def test_a_narrow_terminal_and_long_texts(home: Home) -> None:
    first = talked(home, "\n".join(f"line {number}" for number in range(30)), "x" * 2000)
    with started(home, "-s", first, size=(40, 40)) as tmux:
        seen = tmux.screen()
        assert "22 more lines" in seen
        assert len(re.findall("^ *>? *x+…?$", seen, re.MULTILINE)) <= 16
        do(tmux, "/session info", "file ")
