"""``@NAME``s of sessions: where they are shown, what begins one, and what moves one."""

import json

import pytest

from tests.support.home import Home, texts
from tests.support.sessions import put

ECHO = ("-m", "echo")
NEW = "gptsh: @work is a new session\n"


def owner(home: Home, name: str) -> str:
    """The first message of the session that has a name."""
    run = home.run("--show-session", name, "-o", "json")
    return texts(json.loads(run.stdout))[0] if run.code == 0 else ""


def test_lists_their_json_and_a_shown_session_have_the_names(home: Home) -> None:
    home.run(*ECHO, "-s", "@work", "--title", "A Talk", "needle")
    home.run(*ECHO, "-s", "@work@1", "--name", "@b:2", "fork")
    fork, first = (doc["id"] for doc in home.docs())
    home.run("-s", "@work", "--name", "@also")
    rows = [
        f" (default|echo) [@b:2] [fork of {first}@1]",
        " (default|echo) [@also] [@work]",
    ]
    listed = home.run("--list-sessions").stdout.splitlines()
    found = home.run("--search-sessions", "needle").stdout.splitlines()[::2]  # without the passages
    assert [line.split("A Talk")[1] for line in listed] == rows
    assert [line.split("A Talk")[1] for line in found] == rows
    for args in (["--list-sessions"], ["--search-sessions", "needle"]):
        items = json.loads(home.run(*args, "-o", "json").stdout)
        assert [item["names"] for item in items] == [["@b:2"], ["@also", "@work"]]
    home.run("--archive-session", "@b:2")
    assert "[@b:2]" in home.run("--list-sessions", "--archived").stdout
    for ref, names in (("@work", "- names: @also, @work"), (fork, "- name: @b:2")):
        assert names in home.run("--show-session", ref).stdout.splitlines()


def test_an_unreadable_name_hides_no_session(home: Home) -> None:
    put(home, "aaaa", 1)
    (home.state / "names" / "work").mkdir(parents=True)
    run = home.run("--list-sessions")
    assert run.stdout.split()[1] == "aaaa"
    assert run.stderr == ""
    assert run.code == 0


def test_a_note_says_that_a_name_begins_a_session(home: Home) -> None:
    begun = home.run(*ECHO, "-s", "@work", "one")
    assert begun == ("You said: one\n", NEW, 0)
    continued = home.run(*ECHO, "-s", "@work", "two")
    assert continued.stderr == ""
    misspelt = home.run(*ECHO, "-s", "@wrok", "oh")
    assert misspelt.stderr == "gptsh: @wrok is a new session; did you mean @work?\n"
    refused = home.run(*ECHO, "-n", "-f", "none", "bad", env={"GPTSH_SESSION": "@x"})
    assert refused.stderr.count("\n") == 1
    in_variable = home.run(*ECHO, "hi", env={"GPTSH_SESSION": "@home"})
    assert in_variable.stderr == "gptsh: @home is a new session\n"
    unasked = home.run(*ECHO, "-s", "@none")
    assert unasked.stderr.startswith("gptsh: session @none does not exist yet")


@pytest.mark.parametrize("ref", ["work", "@wrok", "wrok"])
def test_a_reference_without_a_session_is_told_of_a_similar_name(home: Home, ref: str) -> None:
    put(home, "aaaa", 1)
    home.run("-s", "aaaa", "--name", "@work")
    for args in (("--show-session", ref), ("-s", ref, "--tag", "t"), ("--delete-session", ref)):
        run = home.run(*args)
        assert run.code == 2, run.stderr
        assert run.stderr.endswith("did you mean @work?\n")
    assert "see gptsh --list-sessions" in home.run("--show-session", "nothing").stderr


def test_a_name_moves_with_and_without_a_question(home: Home) -> None:
    for words in ("old", "other"):
        home.run(*ECHO, words)
    other, old = (doc["id"] for doc in home.docs())
    before = [path.read_bytes()[-200:] for path in home.files()]
    assert home.run("-s", "1", "--name", "@work") == ("", "", 0)
    assert owner(home, "@work") == "user: old"
    moved = home.run("-s", "0", "--name", "@work")
    assert moved.stderr == f"gptsh: @work moved here from session {old}\n"
    assert owner(home, "@work") == "user: other"
    assert [path.read_bytes()[-200:] for path in home.files()] == before
    run = home.run(*ECHO, "-n", "--name", "@work", "start again", env={"GPTSH_SESSION": "@work"})
    assert run == ("You said: start again\n", f"gptsh: @work moved here from session {other}\n", 0)
    home.run(*ECHO, "-s", "@work", "more")
    assert texts(home.docs()[0])[::2] == ["user: start again", "user: more"]
    assert home.run(*ECHO, "-s", "@work", "--name", "@work", "again").stderr == ""
    assert home.run(*ECHO, "-s", "@new", "--name", "@too", "x").code == 0
    assert owner(home, "@new") == owner(home, "@too") == "user: x"


@pytest.mark.parametrize(
    "args", [["--name", "work"], ["--name", "@"], ["--name", ""], ["--name", "@a", "--no-save"]]
)
def test_what_is_no_name_or_not_saved_is_exit_2_and_asks_nothing(
    home: Home, args: list[str]
) -> None:
    put(home, "aaaa", 1)
    for more in (("hi",), ("-s", "aaaa"), ("-s", "aaaa", "hi")):
        run = home.run(*ECHO, *args, *more)
        assert run.stdout == ""
        assert run.code == 2
        assert len(run.stderr.splitlines()) == 1
    assert not (home.state / "names").exists()
    assert len(home.files()) == 1
