"""What may be relied on, whatever stands in a session file and wherever the suite runs, through the command."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Home

# ---- malformed values in a session that is deleted, blocks with keys that an API refuses, signals that are ignored

ODD: list[Any] = [5, "x", None, [1], {"turns": "x"}, True]
DERIVED = [(), ("turns",), ("messages",), ("preview",)]  # paths in ``stats``
OTHERS = [("title",), ("usage",), ("usage", "tokens"), ("usage", "cost"), ("meta",), ("meta", "tags")]


def put(home: Home, ident: str, messages: list[Any], **more: Any) -> Path:
    """Write a session that was begun and last used in 2025; ``more`` are keys of its document."""
    doc = {"version": 1, "id": ident, "title": None, "created_at": "2025-10-27T09:15:30.120Z",
           "updated_at": "2025-10-27T09:15:31.120Z", "provider": {"name": "echo"},
           "usage": {"tokens": {}, "cost": None}, "stats": {"turns": 1, "messages": 1, "preview": "hi"},
           "meta": {"tags": []}, "agent": {"name": "default", "model": "echo"}, "context": {}, **more,
           "messages": messages}  # fmt: skip
    home.sessions.mkdir(parents=True, exist_ok=True)
    path = home.sessions / f"20251027-091530-{ident}.json"
    path.write_text(json.dumps(doc, separators=(",", ":")))
    return path


def put_malformed(home: Home) -> dict[str, bool]:
    """Sessions that have each odd value at each place. By id, whether it stands inside of ``stats``."""
    inside = {}
    for path in [("stats", *rest) for rest in DERIVED] + OTHERS:
        for value in ODD:
            more: dict[str, Any] = {path[0]: value}
            if path[1:]:
                sound = {"stats": {"turns": 1, "messages": 1, "preview": "hi"}, "usage": {}, "meta": {}}
                more = {path[0]: {**sound[path[0]], path[1]: value}}
            ident = f"t{len(inside):03}"
            put(home, ident, [{"role": "user", "content": "hi"}], **more)
            inside[ident] = path[0] == "stats" and len(path) > 1
    return inside


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize(("option", "state"), [("--delete-session", "deleted"), ("--archive-session", "archived")])
def test_a_session_with_malformed_values_is_deleted_or_archived_and_reported(
    home: Home, option: str, state: str, output: str
) -> None:
    idents = sorted(put_malformed(home))
    run = home.run(*(word for ident in idents for word in (option, ident)), "-o", output)
    assert (run.stderr, run.code, home.files()) == ("", 0, [])
    if output == "json":
        assert [(one["state"], one["session"]) for one in json.loads(run.stdout)] == [(state, one) for one in idents]
    else:
        assert [line.split()[:2] for line in run.stdout.splitlines()] == [[state, ident] for ident in idents]
    archived = list((home.state / "archive").glob("*.json"))
    assert len(archived) == (len(idents) if state == "archived" else 0)


@pytest.mark.parametrize("archives", [False, True])
def test_pruning_reports_what_goes_and_what_it_cannot_read(home: Home, archives: bool) -> None:
    inside = put_malformed(home)
    run = home.run("--prune-sessions", "--older-than", "1d", "--yes", *(["--archive"] if archives else []))
    left = {path.stem[-4:] for path in home.files()}
    assert run.code == 0
    assert {line.split()[1] for line in run.stdout.splitlines()} == set(inside) - left
    assert not {ident for ident in left if inside[ident]}
    assert all(f"-{ident}.json: " in run.stderr for ident in left)
    assert len(run.stderr.splitlines()) == len(left)
