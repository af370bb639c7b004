"""A session whose messages are readable can be listed, shown, resumed and deleted, whatever is in any other key."""

import contextlib
import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.home import Home
from tests.support.sessions import put_file

DOC: dict[str, Any] = {
    "version": 1, "id": "7x2m", "title": "T", "created_at": "2026-01-01T00:00:00.000Z",
    "updated_at": "2026-01-02T00:00:00.000Z", "provider": {"name": "echo"},
    "usage": {"tokens": {"prompt": 1, "completion": 2, "total": 3}, "cost": 0.5,
              "calls": [{"id": "c", "kind": "title", "model": "m", "tokens": {"total": 1}, "cost": 0.1, "at": "x"}]},
    "stats": {"turns": 1, "messages": 2, "preview": "q"},
    "meta": {"output": "text", "cwd": "/", "project": "/", "tags": ["t"], "forked_from": "a@1",
             "mcp_allowed_servers": [], "imported": {"format": "llm", "key": "k"},
             "imported_at": "2026-01-01T00:00:00.000Z"},
    "agent": {"name": "default", "model": "echo", "model_small": None, "params": {"seed": 1}, "system": "Be brief."},
    "context": {
        "compaction": {"id": "k", "at": "x", "strategy": "summary", "upto": "q", "summary": "s",
                       "before": 9, "after": 5},
        "summaries": [{"id": "s", "created_at": "x", "first": "q", "last": "q", "text": "t", "tokens": 1,
                       "messages": 1}],
        "snapshots": [{"id": "n", "name": "here", "created_at": "x", "message": "a", "tokens": 3, "reason": "asked"}],
        "cuts": {}, "noted": {"q": {"memory": "m"}}, "consolidated": "q"},
    "messages": [
        {"id": "q", "parent": None, "timestamp": "2026-01-01T00:00:00.000Z", "role": "user", "content": "q"},
        {"id": "a", "parent": "q", "timestamp": "2026-01-01T00:00:01.000Z", "role": "assistant", "content": "a",
         "agent": "default", "provider": "echo", "model": "echo", "resolved_model": "e", "request_id": "r",
         "response_id": "r", "finish_reason": "stop", "stop_sequence": "x", "usage": {"prompt": 1, "total": 3},
         "cost": 0.1, "duration_ms": 5, "compaction": "k", "thinking": [], "order": ["text:0"], "replay": {}},
    ],
}  # fmt: skip
UNREADABLE = {"messages", "role", "content", "tool_calls"}  # without these there is no conversation
Place = tuple[str | int, ...]


def places(value: Any, before: Place = ()) -> list[Place]:
    """Where a value is in a document: that of each key, and each item of a list."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    inside = [
        place for key, item in items for place in ((*before, key), *places(item, (*before, key)))
    ]
    return [
        place for place in inside if place[-1] not in UNREADABLE and place[:-1] != ("messages",)
    ]


PLACES = sorted(set(places(DOC)), key=str)
_scalar = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
_any = st.recursive(
    _scalar,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
_odd = st.dictionaries(st.sampled_from(PLACES), _any, min_size=1, max_size=4)


def costs_a_note_and_no_message(home: Home, odd: dict[Place, Any]) -> None:
    doc: Any = copy.deepcopy(DOC)
    for place, value in odd.items():
        table = doc
        with contextlib.suppress(
            KeyError, IndexError, TypeError
        ):  # the table went with an earlier change
            for key in place[:-1]:
                table = table[key]
            table[place[-1]] = value
    if isinstance(doc["version"], int) and doc["version"] > 1:
        doc["version"] = 1  # newer ones are read and never written
    path = put_file(home, "20260101-000000-7x2m", doc)
    for args in (
        "--list-sessions", "--list-sessions -o json", "--show-session 0", "--show-session 0 -o json", "--usage",
        "--search-sessions q", "--export-session 0 --format html", "--prune-sessions --keep 0", "--show-session 0@1",
        "-s 0 -m echo --dry-run more", "-s 0 --tag t",
    ):  # fmt: skip
        run = home.run(*args.split())
        assert run.code == 0, args
        assert run.stderr.count("malformed") <= 1, args
        assert "Traceback" not in run.stderr, args
        assert "[0] 7x2m" in run.stdout or args != "--list-sessions"
    assert home.run("--archive-session", "7x2m").stdout.startswith("archived 7x2m ")
    run = home.run("-s", "7x2m", "-m", "echo", "more")  # a tool server that is gone is a note
    assert run.stdout == "You said: more\n"
    assert run.code == 0
    assert "malformed" not in run.stderr
    kept = json.loads(path.read_bytes())["messages"]
    assert [(message["role"], message["content"]) for message in kept[:2]] == [
        ("user", "q"),
        ("assistant", "a"),
    ]
    assert [message["content"] for message in kept[2:]] == ["more", "You said: more"]
    run = home.run("--delete-session", "0", "--yes")
    assert run.code == 0
    assert run.stderr == ""
    assert run.stdout.startswith("deleted 7x2m ")
    for mark in home.sessions.glob("*.deleted"):  # the next example writes the same messages again
        mark.unlink()


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(_odd)
@example({("stats",): [], ("title",): None})
@example({("stats", "preview"): None, ("stats", "turns"): "x", ("title",): None})
@example({(key,): 7 for key in DOC if key not in UNREADABLE and key != "version"})
@example({("meta", "mcp_allowed_servers"): [""]})
@example(
    {("created_at",): "0001-01-01T00:00:00Z", ("updated_at",): "9999-12-31T23:59:59.999+14:00"}
)
def test_any_value_in_any_derived_key_costs_a_note_and_no_message(
    home: Home, odd: dict[Place, Any]
) -> None:
    costs_a_note_and_no_message(home, odd)


@pytest.mark.slow
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(_odd)
def test_the_same_of_many_values(home: Home, odd: dict[Place, Any]) -> None:
    costs_a_note_and_no_message(home, odd)
