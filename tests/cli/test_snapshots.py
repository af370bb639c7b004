"""Snapshots: named positions of a session, taken, told, gone back to."""

import json
from typing import Any

import pytest

from tests.support.answers import events
from tests.support.home import Home, texts
from tests.support.long_sessions import Talker, chat, configure, requests_to, save
from tests.support.server import ModelServer
from tests.support.sessions import change


def named(doc: dict[str, Any]) -> list[str]:
    return [item["name"] for item in doc["context"]["snapshots"]]


@pytest.fixture
def one(home: Home) -> Home:
    """A home with one session of echo."""
    home.configure('[agents.default]\nmodel = "echo"\n')
    home.run("one")
    return home


def test_a_snapshot_without_a_prompt_is_taken_and_nothing_is_asked(
    lab: Home, model: ModelServer
) -> None:
    lab.run("one")
    lab.run("-s", "0", "two")
    before = len(model.requests)
    run = lab.run("-s", "0", "--snapshot", "Before:it.all_1-x", "--title", "T", "--tag", "t")
    assert run == ("", "", 0)
    assert len(model.requests) == before
    doc = lab.doc()
    (taken,) = doc["context"]["snapshots"]
    assert doc["title"] == "T"
    assert doc["meta"]["tags"] == ["t"]
    assert doc["stats"]["turns"] == 2
    assert taken["name"] == "Before:it.all_1-x"
    assert taken["reason"] == "asked"
    assert taken["message"] == doc["messages"][-1]["id"]
    assert 0 < taken["tokens"] < 200


def test_a_snapshot_with_a_prompt_is_before_the_question_and_forks_there(
    lab: Home, model: ModelServer
) -> None:
    lab.run("one")
    assert lab.run("-s", "0", "--snapshot", "before", "two").stdout == "You said: two\n"
    lab.run("-s", "0", "three")
    origin = lab.doc()
    assert origin["context"]["snapshots"][0]["message"] == origin["messages"][1]["id"]
    assert lab.run("-s", "0@before", "other").code == 0
    fork, old = lab.docs()
    assert old == origin
    assert texts(fork) == [
        "user: one",
        "assistant: You said: one",
        "user: other",
        "assistant: You said: other",
    ]
    assert fork["meta"]["forked_from"] == f"{origin['id']}@before"
    assert [message["content"] for message in model.sent[-1]["messages"]] == [
        "one",
        "You said: one",
        "other",
    ]
    assert named(fork) == ["before"]  # it can be gone back to from there, too


def test_events_tell_of_snapshots(lab: Home) -> None:
    lab.run("one")
    created = events(lab.run("-o", "jsonl", "-s", "0", "--snapshot", "a", "more"))[0]
    (taken,), origin = lab.doc()["context"]["snapshots"], lab.doc()["id"]
    assert created == {"type": "snapshot_created", "snapshot": taken, "auto": False}
    restored = events(lab.run("-o", "jsonl", "-s", "0@a", "other"))[1]
    assert restored == {"type": "snapshot_restored", "snapshot": "a", "session": origin}


REFUSED = [
    (["-s", "0", "--snapshot", "a@b"], "letters, digits"),
    (["-s", "0", "--snapshot", "a" * 65], "at most 64 characters"),
    (["-s", "0", "--snapshot", "auto-7", "hi"], "automatic"),
    (["--snapshot", "a", "hi"], "has no messages"),
    (["--snapshot", "a"], "no prompt"),
    (["-s", "0@1", "--snapshot", "a"], "a point cannot be labelled"),
    (["-s", "0", "--no-save", "--snapshot", "a"], "save"),
    (["-s", "0@nothing", "hi"], "no snapshot of this name"),
]


@pytest.mark.parametrize(("args", "why"), REFUSED)
def test_what_cannot_be_a_snapshot_is_refused_before_anything_is_saved(
    one: Home, args: list[str], why: str
) -> None:
    before = one.files()[0].read_bytes()
    run = one.run(*args)
    assert run.stdout == ""
    assert run.code == 2
    assert run.stderr.count("\n") == 1
    assert why in run.stderr
    assert [path.read_bytes() for path in one.files()] == [before]


def test_a_name_taken_again_by_hand_moves_and_is_shown(one: Home) -> None:
    one.run("-s", "0", "--snapshot", "here")
    one.run("-s", "0", "two")
    one.run("-s", "0", "--snapshot", "here", "three")
    (taken,) = one.doc()["context"]["snapshots"]
    line = one.run("--show-session", "0").stdout.partition("\n\n##")[0].splitlines()[-1]
    when = taken["created_at"].replace("T", " ")[:16]
    assert (
        line
        == f"- snapshot: here, {when}, after turn 2 (4 messages), ~{taken['tokens']} tokens, by hand"
    )
    one.run("-s", "0@here", "four")
    fork, origin = one.docs()
    assert named(origin) == ["here"]
    assert fork["stats"]["turns"] == 3


def test_one_by_hand_is_deleted_from_the_command_line_and_no_message_goes(one: Home) -> None:
    one.run("-s", "0", "--snapshot", "here")
    one.run("-s", "0", "--snapshot", "there", "two")
    ident = one.doc()["id"]
    messages = one.doc()["messages"]
    shown = one.run("--show-session", "0").stdout
    assert shown.index("snapshot: there") < shown.index("snapshot: here")  # newest first
    assert one.run("--delete-snapshot", "0@here") == (
        f"deleted snapshot here of session {ident}\n",
        "",
        0,
    )
    assert named(one.doc()) == ["there"]
    assert one.doc()["messages"] == messages
    again = one.run("--delete-snapshot", f"{ident}@here")
    assert again.stdout == ""
    assert again.code == 2
    assert "choose from there" in again.stderr
    done = json.loads(one.run("--delete-snapshot", "0@there", "-o", "json").stdout)
    assert done == [{"session": ident, "snapshot": "there", "state": "deleted"}]
    assert [one.run("--delete-snapshot", ref).code for ref in ("0", "0@", "zzzz@there")] == [
        2,
        2,
        2,
    ]


# ---- automatic ones


def test_automatic_ones_roll_and_those_by_hand_stay(home: Home, talker: Talker) -> None:
    configure(home, talker)
    save(home, chat(12))
    home.run("-s", "0", "--snapshot", "mine")
    talker.words = 700
    while "auto-6" not in named(home.doc()):
        assert home.run("-s", "0", "--compact", "--apply", "more " * 40).code == 0
        assert len(requests_to(talker)) < 40
    automatic = [name for name in named(home.doc()) if name.startswith("auto-")]
    assert "mine" in named(home.doc())
    assert automatic == [f"auto-{at}" for at in range(2, 7)]
    for name in ("mine", automatic[0], automatic[-1]):
        assert home.run("-s", f"0@{name}", "--dry-run", "and?").code == 0


def test_a_fork_whose_mark_of_the_memory_names_no_message_has_none(one: Home) -> None:
    one.run("-s", "0", "two")
    change(one.files()[0], "context.consolidated", "gone")
    assert one.run("-s", "0@1", "other").code == 0
    assert [doc["context"]["consolidated"] for doc in one.docs()] == [None, "gone"]
