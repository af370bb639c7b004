"""Deleted sessions leave a mark that a sync tool takes along: what other machines have of them is deleted, too."""

import json
import os
import time
from pathlib import Path

import pytest

from tests.support.home import Home, texts
from tests.support.sessions import archived, put, session_ids
from tests.support.travel import DROPBOX, named, questions, shown


def marks(home: Home) -> list[Path]:
    return sorted(home.sessions.glob("*.deleted"))


@pytest.fixture
def back(home: Home) -> Path:
    """A session that was deleted; its file came back from another machine as it was."""
    home.run("-m", "echo", "--title", "A secret", "one")
    (path,) = home.files()
    data = path.read_bytes()
    assert home.run("--delete-session", "0", "--yes").code == 0
    path.write_bytes(data)
    return path


def test_the_mark_has_ids_and_times_and_no_content(home: Home, back: Path) -> None:
    doc = json.loads(back.read_bytes())
    (mark,) = marks(home)
    assert (mark.name[:20], mark.stat().st_mode & 0o777) == (back.name[:20], 0o600)
    content = json.loads(mark.read_bytes())
    assert sorted(content) == ["created_at", "deleted_at", "id", "messages", "version"]
    assert (content["id"], content["created_at"]) == (doc["id"], doc["created_at"])
    assert content["messages"] == [message["id"] for message in doc["messages"]]


def test_a_deleted_session_that_a_sync_tool_brought_back_is_in_no_list_and_not_found(home: Home, back: Path) -> None:
    ident = back.name[16:20]
    assert home.run("--list-sessions").stdout == ""
    assert home.run("--search-sessions", "one").code == 1
    assert json.loads(home.run("--usage", "-o", "json").stdout)["total"]["answers"] == 0
    for ref in ("0", ident, back.name):
        assert home.run("--show-session", ref).code == 2
    assert home.run("-m", "echo", "-s", ident, "more").code == 2


def test_join_copies_or_a_new_session_removes_it(home: Home, back: Path) -> None:
    data, copy = back.read_bytes(), named(back, DROPBOX)
    copy.write_bytes(data)
    ident = back.name[16:20]
    assert home.run("--join-copies") == (f"deleted {ident} A secret (1 turn): another machine did\n", "", 0)
    assert [*home.sessions.iterdir()] == marks(home)
    back.write_bytes(data)
    home.run("-m", "echo", "another")
    assert [texts(doc)[0] for doc in home.docs()] == ["user: another"]


@pytest.mark.parametrize("as_copy", [False, True])
def test_a_session_that_another_machine_continued_comes_back_with_a_note(home: Home, back: Path, as_copy: bool) -> None:
    (mark,) = marks(home)
    mark.rename(home.cwd / mark.name)
    data = back.read_bytes()
    home.run("-s", "0", "there")
    if as_copy:
        back.rename(named(back, DROPBOX))
        back.write_bytes(data)
    (home.cwd / mark.name).rename(mark)
    assert shown(home) == ["one", "there"]
    run = home.run("-s", "0", "more")
    note = f"gptsh: session {back.name[16:20]} is back: it was deleted on one machine and continued on another\n"
    assert (run.stderr, run.code) == (note, 0)
    assert (questions(home.doc()), marks(home)) == (["one", "there", "more"], [])
    assert home.run("-s", "0", "again").stderr == ""


def test_join_copies_notes_what_is_back(home: Home, back: Path) -> None:
    doc = json.loads(back.read_bytes())
    doc["messages"].append({"role": "user", "content": "more", "id": "other"})
    back.write_text(json.dumps(doc))
    run = home.run("--join-copies")
    assert "is back: it was deleted on one machine and continued on another" in run.stderr
    assert (run.code, marks(home), len(home.files())) == (0, [], 1)


def test_an_archived_session_is_deleted_too(home: Home, back: Path) -> None:
    (home.state / "archive").mkdir()
    back.rename(home.state / "archive" / back.name)
    assert home.run("--list-sessions", "--archived").stdout == ""
    home.run("--join-copies")
    assert archived(home) == []


def test_an_import_brings_it_back(home: Home, back: Path) -> None:
    back.rename(home.cwd / "saved.json")
    (mark,) = marks(home)
    data = mark.read_bytes()
    assert home.run("--import-session", "saved.json").code == 0
    assert (texts(home.doc()), marks(home)) == (["user: one", "assistant: You said: one"], [])
    mark.write_bytes(data)  # rsync brings it back
    assert shown(home) == ["one"]


def test_another_session_of_the_same_name_stays(home: Home, back: Path) -> None:
    doc = json.loads(back.read_bytes())
    back.write_text(json.dumps({**doc, "created_at": "2020-01-01T00:00:00.000Z"}))
    home.run("--join-copies")
    assert home.files() == [back]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"messages":7}', b'{"messages":[{}]}'])
def test_a_mark_that_is_not_readable_deletes_nothing(home: Home, back: Path, content: bytes) -> None:
    (mark,) = marks(home)
    mark.write_bytes(content)
    assert shown(home) == ["one"]


def test_what_cannot_be_read_leaves_no_mark(home: Home) -> None:
    put(home, "aaaa", 1).write_bytes(b"not JSON")
    assert home.run("--delete-session", "aaaa").code == 0
    assert [*home.sessions.iterdir()] == []


def test_marks_go_after_ninety_days(home: Home, back: Path) -> None:
    back.unlink()
    (mark,) = marks(home)
    old = time.time() - 91 * 86400
    os.utime(mark, (old, old))
    put(home, "aaaa", 1)
    home.run("--delete-session", "aaaa")
    assert [each.name[16:20] for each in marks(home)] == ["aaaa"]
    assert session_ids(home) == []
