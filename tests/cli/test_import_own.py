"""Sessions of gptsh itself, of every version: read as they are."""

import json
from pathlib import Path
from typing import Any

import pytest

from gptsh.core import document, sessions
from gptsh.formats.gptsh import READER
from gptsh.formats.source import Source
from tests.support.home import Home
from tests.support.paths import HISTORIES

FIRST = HISTORIES / "gptsh/sessions/20251027-091530-7x2m.json"


def read(doc: Any, tmp_path: Path, name: str = "20251027-091530-ab1c.json") -> list[Any]:
    path = tmp_path / name
    path.write_text(json.dumps(doc))
    source = Source(name, path)
    assert READER.recognises(source)
    return list(READER.read(source))


def test_a_session_of_the_first_gptsh_is_migrated(tmp_path: Path) -> None:
    doc = json.loads(FIRST.read_bytes())
    assert read(doc, tmp_path) == [document.migrate(doc)]
    del doc["id"]  # which the first gptsh took from the file's name
    assert [found["id"] for found in read(doc, tmp_path)] == ["ab1c"]


def test_a_cost_that_is_none_does_not_make_a_session_that_cannot_be_read_again(home: Home) -> None:
    doc = json.loads(FIRST.read_bytes())
    doc["usage"]["cost"] = "dear"
    (home.folder / "one.json").write_text(json.dumps(doc))
    assert home.run("--import-session", str(home.folder / "one.json")).code == 0
    assert home.run("--show-session", "0").code == 0


def test_a_session_of_today_is_yielded_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    doc = sessions.new_session_doc({"model": "echo"}, {"name": "echo"}, output=None, mcp_allowed_servers=None)
    doc["messages"] = [{"role": "user", "content": "hello", "id": "m1", "odd": {"kept": None}}]
    doc["meta"]["imported"] = {"format": "nanobot", "key": "telegram:1"}
    (found,) = read({**doc, "odd": ["kept"]}, tmp_path)
    assert found == {
        **doc,
        "odd": ["kept"],
        "updated_at": found["updated_at"],
        "stats": {"turns": 1, "messages": 1, "preview": "hello"},
    }


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"version": document.VERSION + 1, "messages": [7]}, "of version 2, by a newer gptsh"),
        ({"messages": [7]}, "not a session: a message without a role"),
        ({"created_at": "soon"}, "Invalid isoformat string: 'soon'"),
        ({"created_at": "0001-01-01T00:00:00Z"}, "not a session: 'created_at' is out of range"),
        ({"version": True}, "not a session: no 'id', no 'messages' or no version"),
        ({"title": 7}, "not a session: 'title' has the wrong type"),
    ],
)
def test_what_is_no_session_is_told(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    (unread,) = read({"version": 1, "id": "ab1c", "messages": [], **change}, tmp_path)
    assert unread.why == why


def test_what_the_json_form_of_a_session_shows_can_be_brought_back(home: Home) -> None:
    home.run("-m", "echo", "hello")
    shown = home.run("--show-session", "0", "-o", "json").stdout
    (kept,) = home.docs()
    known = home.run("--import-session", "-", stdin=shown)
    assert (known.code, known.stdout.split()[0]) == (0, "known")
    other = home.elsewhere()
    assert other.run("--import-session", "-", stdin=shown).code == 0
    brought = other.doc()
    assert (brought["id"], brought["title"]) == (kept["id"], kept["title"])
    assert brought["messages"] == [{**message, "source": {"imported": True}} for message in kept["messages"]]


@pytest.mark.parametrize("other", ["[]", "{}", "7", '{"messages": 7}', '{"version": 1, "messages": []}', "{"])
def test_what_is_something_else_is_left_to_others(tmp_path: Path, other: str) -> None:
    (tmp_path / "one.json").write_text(other)
    assert not READER.recognises(Source("one.json", tmp_path / "one.json"))
