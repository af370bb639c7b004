"""The state of a conversation: what goes where, whatever fails or happens beside it; nothing is lost."""

import json
import os
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.answers import memory_answer
from tests.support.home import Home, lab_config, texts
from tests.support.server import ModelServer
from tests.support.terminal import Conversation
from tests.support.tools import call, calling, configure, roles

REFUSED = {"error": {"message": "no"}}
ONE = ["user: one", "assistant: You said: one"]
TWO = ["user: two", "assistant: You said: two"]


def block(home: Home) -> None:
    """From now on nothing can be saved, and all can be read."""
    home.sessions.mkdir(parents=True, exist_ok=True)
    if os.geteuid():
        home.sessions.chmod(0o500)
        return
    elsewhere = home.sessions.rename(
        home.state / "elsewhere"
    )  # root may write everywhere, but not by such a link
    home.sessions.symlink_to(elsewhere)
    os.lchown(home.sessions, 65534, 65534)


def unblock(home: Home) -> None:
    if os.geteuid():
        home.sessions.chmod(0o700)
        return
    home.sessions.unlink()
    (home.state / "elsewhere").rename(home.sessions)


def labels(doc: dict[str, Any]) -> tuple[str | None, list[str], list[str]]:
    """Its title, its tags, the names of its snapshots."""
    return doc["title"], doc["meta"]["tags"], [item["name"] for item in doc["context"]["snapshots"]]


# ---- forks


def test_a_question_without_an_answer_is_asked_again_in_place(
    lab: Home, model: ModelServer
) -> None:
    model.refuse(401, REFUSED)
    lab.run("one")
    with Conversation(lab, "-s", "0") as talk:
        assert "the last question has no answer yet; /retry asks it again" in talk.greeting
        talk.plays(("/retry", "You said: one"))
        assert texts(lab.doc()) == ONE
        model.refuse(401, REFUSED)
        talk.plays(
            ("two", "/retry asks it again"), ("/fork", "a fork"), ("/retry", "You said: two")
        )
    assert texts(lab.docs()[0]) == [*ONE, *TWO]


def test_a_model_that_a_retry_names_answers_it_and_what_follows(
    lab: Home, model: ModelServer
) -> None:
    lab.run("one")
    with Conversation(lab, "-s", "0") as talk:
        talk.plays(
            ("/retry nobody/x", "unknown provider 'nobody' in 'nobody/x'"),
            (
                "/retry lab/other",
                ("lab/other will answer from now on", "a fork from the beginning", "You said: one"),
            ),
            ("two", "You said: two"),
        )
    assert [request["model"] for request in model.sent] == ["m", "other", "other"]
    assert sorted(doc["stats"]["turns"] for doc in lab.docs()) == [1, 2]


def test_a_retry_of_which_nothing_comes_stays_where_it_is(lab: Home) -> None:
    lab.run("one")
    before = lab.doc()
    with Conversation(lab, "-s", "0", "-m", "nobody/x") as talk:
        talk.plays(
            ("/retry", "nobody"),
            ("/session info", re.compile(rf"^session +{before['id']}$", re.MULTILINE)),
        )
    assert lab.doc() == before


def test_a_retry_of_which_nothing_comes_keeps_the_labels_of_an_unsaved_fork(lab: Home) -> None:
    lab.run("one")
    with Conversation(lab, "-s", "0@1", "-m", "nobody/x", "--tag", "kept") as talk:
        talk.plays(
            ("/retry", "nobody"),
            ("/model lab/m", "lab/m will answer from now on"),
            ("two", "You said: two"),
        )
    assert lab.docs()[0]["meta"]["tags"] == ["kept"]


def test_a_fork_opened_by_index_is_of_that_session_whatever_comes_later(lab: Home) -> None:
    lab.run("one")
    ident = lab.doc()["id"]
    with Conversation(lab, "-s", "0@1") as talk:
        talk.does("/session info")
        lab.run("another session, now number 0")
        talk.plays(("/undo", f"/resume {ident}"), ("two", "You said: two"))
    assert lab.docs()[0]["meta"]["forked_from"] == f"{ident}@0"


# ---- a session that others use, too


def test_a_session_that_was_used_while_delete_asked_stays(lab: Home) -> None:
    lab.run("one")
    with Conversation(lab, "-s", "0") as talk:
        talk.asks("/session delete")
        lab.run("-s", "0", "two")
        talk.write("y\n")
        assert "was kept: another process has used" in talk.printed()
        assert texts(lab.doc()) == [*ONE, *TWO]
        talk.plays(("three", "You said: three"))
    assert lab.doc()["stats"]["turns"] == 3


def test_two_conversations_on_one_session_keep_all_turns_of_both(
    lab: Home, model: ModelServer
) -> None:
    lab.run("zero")
    with Conversation(lab, "-s", "0") as one, Conversation(lab, "-s", "0") as two:
        for number in range(3):
            one.does(f"one {number}")
            two.does(f"two {number}")
        one.does("what do you know")
    said = {f"{who} {number}" for who in ("one", "two") for number in range(3)}
    assert said <= {message["content"] for message in model.sent[-1]["messages"]}
    assert lab.doc()["stats"]["messages"] == 16


def test_a_session_deleted_meanwhile_stays_in_memory_and_goes_on_in_a_fork(lab: Home) -> None:
    with Conversation(lab) as talk:
        talk.does("one")
        ident = lab.doc()["id"]
        lab.files()[0].unlink()
        talk.plays(
            ("two", ("/fork continues it", "/session export FILE", "again:\ntwo")),
            ("/history", "You said: one"),
            ("/session export kept.md", "written to kept.md"),
        )
        assert lab.files() == []  # what was deleted does not come back by itself
        talk.plays(("/fork", "a fork"), ("two", "You said: two"))  # nothing is lost: no question
        assert talk.leave() == 0
    assert "You said: one" in (lab.cwd / "kept.md").read_text()
    assert texts(lab.doc()) == [*ONE, *TWO]
    assert lab.doc()["meta"]["forked_from"] == f"{ident}@"


def test_a_session_damaged_meanwhile_stays_in_memory_and_goes_on_in_a_fork(lab: Home) -> None:
    with Conversation(lab, columns=400) as talk:  # a note with a path in one row
        talk.does("one")
        (damaged,) = lab.files()
        whole = damaged.read_bytes()
        damaged.write_bytes(whole[:50])
        talk.plays(
            ("two", ("the file was not changed", "/fork continues it", "again:\ntwo")),
            ("/new", "this session could not be saved, so it stays open"),
            ("two", ("You said: two", "the file was not changed")),
        )
        damaged.write_bytes(whole)
        talk.plays(("/undo", "a fork after turn 1; /resume"), ("/resume 0", "You said: two"))
        assert texts(lab.doc()) == [*ONE, *TWO]
        damaged.write_bytes(whole[:50])
        talk.plays(
            ("/undo", "the file was not changed"),
            ("/fork", "a fork after turn 2"),
            ("three", "You said: three"),
        )
        assert talk.leave() == 0
        damaged.unlink()
    assert texts(lab.doc())[:4] == [*ONE, *TWO]


def test_a_name_that_another_run_creates_first_is_read_before_the_first_question(lab: Home) -> None:
    with Conversation(lab, "-s", "@work") as talk:
        lab.run("-s", "@work", "one")
        talk.does("two")
    assert texts(lab.doc()) == [*ONE, *TWO]


# ---- a store that cannot be written


def test_a_store_that_cannot_be_written_loses_nothing_once_it_can(
    lab: Home, model: ModelServer
) -> None:
    block(lab)
    with Conversation(lab, "one") as talk:
        assert "cannot be saved" in talk.greeting
        talk.plays(("two", "You said: two"))
        unblock(lab)
        talk.plays(("three", "You said: three"))
        assert talk.leave() == 0
    assert [len(sent["messages"]) for sent in model.sent] == [1, 3, 5]
    assert texts(lab.doc())[:4] == [*ONE, *TWO]


def test_leaving_tries_once_more_to_keep_what_could_not_be(lab: Home) -> None:
    block(lab)
    with Conversation(lab, "one") as talk:
        talk.plays(("/session rename By Hand", "this session is not on disk"))
        unblock(lab)
        assert talk.leave() == 0
    assert texts(lab.doc()) == ONE


def test_what_cannot_be_kept_is_not_left_by_a_command(lab: Home) -> None:
    block(lab)
    with Conversation(lab, "one") as talk:
        talk.plays(
            ("/new", "this session could not be saved, so it stays open: /session export FILE"),
            ("/history", "You said: one"),
            ("/fork", "a fork after turn 1"),
        )
        unblock(lab)
        talk.plays(("two", "You said: two"), ("/new", "is saved"))
        block(lab)
        talk.plays(("lost", "cannot be saved"))
        assert talk.leave() == 1
        assert "this conversation could not be saved" in talk.last
    assert texts(lab.doc()) == [*ONE, *TWO]


# ---- labels


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "in memory"])
def test_labels_of_the_command_line_are_set_once(lab: Home, *, kept: bool) -> None:
    lab.run("zero")
    with Conversation(
        lab, "-s", "0", "--title", "By Hand", "--tag", "x", "--snapshot", "here"
    ) as talk:
        if not kept:
            block(lab)
        talk.does("one")
        if not kept:
            unblock(lab)
            talk.does("two")
        assert labels(lab.doc()) == ("By Hand", ["x"], ["here"])
        assert lab.doc()["context"]["snapshots"][0]["message"] == lab.doc()["messages"][1]["id"]
        lab.run("-s", "0", "--title", "Another")
        talk.does("three")
    assert labels(lab.doc()) == ("Another", ["x"], ["here"])


def test_a_conversation_removes_a_tag_once(lab: Home) -> None:
    lab.run("--tag", "x", "zero")
    with Conversation(lab, "-s", "0", "--untag", "x") as talk:
        assert lab.doc()["meta"]["tags"] == []
        lab.run("-s", "0", "--tag", "x")
        talk.does("one")
    assert lab.doc()["meta"]["tags"] == ["x"]


NONE = (None, [], [])


@pytest.mark.parametrize(
    ("args", "lines", "expected"),
    [
        (
            ["-s", "0", "--snapshot", "s", "-m", "no/m"],
            ["failing", "/model lab/m", "one"],
            [("T", ["x"], ["s"])],
        ),
        (["-s", "0"], ["/fork", "one"], [("T", ["x"], []), ("T", ["x"], [])]),
        ([], ["/resume 0", "one"], [NONE]),
    ],
    ids=[
        "wait for a turn that comes to something",
        "a fork inherits them",
        "are not another session's",
    ],
)
def test_labels(lab: Home, args: list[str], lines: list[str], expected: list[object]) -> None:
    lab.run("zero")
    with Conversation(lab, "--title", "T", "--tag", "x", *args) as talk:
        for line in lines:
            talk.does(line)
    assert [labels(doc) for doc in lab.docs()] == expected


# ---- the same turns, each by its own run


@pytest.fixture
def both_ways(home: Home, model: ModelServer) -> Callable[..., tuple[Home, Home]]:
    """Carries out the same by runs and at the prompt, each in its own state, the model scripted for both."""

    def carried(
        script: Callable[[], None], runs: list[list[str]], lines: list[str]
    ) -> tuple[Home, Home]:
        other = home.elsewhere()
        script()
        for args in runs:
            home.run(*args)
        sent = [body["messages"] for body in model.sent if "messages" in (body or {})]
        model.requests.clear()
        model._scripts.clear()
        script()
        first, *rest = lines
        with Conversation(other, *first.split("\t")) as talk:
            for line in rest:
                talk.does(line)
        assert sent == [body["messages"] for body in model.sent if "messages" in (body or {})]
        assert normal(home) == normal(other)
        return home, other

    return carried


def normal(home: Home) -> Any:
    """Sessions and memories without what differs: ids, times, how long things took, the form that a terminal gets."""
    memories = {
        path.name: path.read_text() for path in sorted((home.state / "memory").rglob("*.md"))
    }
    text = json.dumps([home.docs(), memories])
    for doc in home.docs():
        text = text.replace(doc["id"], "ID")
        for number, message in enumerate(doc["messages"]):
            text = text.replace(message["id"], f"m{number}")
    text = re.sub(r"\b[0-9a-f]{8}\b(?!-)|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:[0-9.]+Z)?", "TIME", text)
    return json.loads(re.sub(r'"(duration_ms|output)": [^,}]+', r'"\1": 0', text))


@pytest.mark.slow
def test_the_same_turns_make_the_same_session(
    home: Home, model: ModelServer, both_ways: Any
) -> None:
    """With a file, a tool, another model, a failure."""
    configure(home, model, more='[agents.other]\nmodel = "lab/n"\nsystem = "Be brief."\n')
    (home.cwd / "notes.txt").write_text("a note\n")

    def script() -> None:
        model.say("Read.", model="m")
        model.script(*calling(call("add", a=2, b=3), text="Let me add."), model="m")
        model.say("It is 5.", model="m")
        model.refuse(401, REFUSED, model="n")
        model.say("Brief.", model="n")

    runs = [
        ["-f", "notes.txt", "read it"],
        ["-s", "0", "2 + 3?"],
        ["-s", "0", "-a", "other", "go"],
        ["-s", "0"],
    ]
    both_ways(script, runs, ["-f\tnotes.txt\tread it", "2 + 3?", "/agent other", "go", "/retry"])
    assert roles(home.doc()).count("tool") == 1


LONG = [f"question {number}: {'lorem ipsum dolor ' * 40}" for number in range(10)]
COMPACTING = 'context_window = 2800\n[context]\nkeep_messages = 2\nsnapshots = 3\n[sessions]\ntitles = "off"\n'
REMEMBERING = '[context]\nmemory_window = 4\nkeep_messages = 2\n[sessions]\ntitles = "off"\n'


@pytest.mark.slow
@pytest.mark.parametrize(("more", "agent", "said"), [
    (COMPACTING, "", [f"Summary {number}." for number in range(9)]),
    (REMEMBERING, "memory = true\n", [memory_answer(f"- fact {number}", f"Entry {number}.") for number in range(9)]),
], ids=["compaction", "memory"])  # fmt: skip
def test_a_long_conversation_makes_what_runs_of_their_own_make(
    home: Home, model: ModelServer, both_ways: Any, more: str, agent: str, said: list[str]
) -> None:
    home.configure(
        lab_config(model, more).replace('"lab/m"\n', f'"lab/m"\nmodel_small = "lab/small"\n{agent}')
    )

    def script() -> None:
        for text in said:
            model.unstreamed(text, model="small")

    runs = [
        [*["-s", "0"] * bool(number), "--", words.rstrip()] for number, words in enumerate(LONG)
    ]
    both_ways(script, runs, [f"--\t{LONG[0].rstrip()}", *(words.rstrip() for words in LONG[1:])])
    context = home.doc()["context"]
    assert context["summaries"] if more is COMPACTING else context["consolidated"]
