"""Documents of every older version: read in today's shape, and written only when something is saved."""

import json
from typing import Any

import pytest

from gptsh.core import sessions
from gptsh.core.document import VERSION
from gptsh.core.snapshots import blank_context
from tests.support.home import Home, texts
from tests.support.sessions import Store

OLD: dict[int, dict[str, Any]] = {  # by version, a document as it was written then
    0: {
        "id": "04a1",
        "title": "Old",
        "created_at": "2025-10-27T09:15:30Z",
        "updated_at": "2025-10-27T09:15:31Z",
        "agent": {"name": "default", "model": "m", "model_small": None, "params": {}},
        "provider": {"name": "echo"},
        "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
        "usage": {"tokens": {"prompt": 3, "completion": 2, "total": 5}, "cost": 0.5},
        "meta": {"output": "markdown", "mcp_allowed_servers": []},
    },
}


def test_there_is_a_document_of_every_older_version() -> None:
    assert set(OLD) == set(range(VERSION))


@pytest.mark.parametrize("version", range(VERSION))
def test_an_older_document_is_read_as_it_is_and_written_by_a_save_alone(store: Store, home: Home, version: int) -> None:
    home.sessions.mkdir(parents=True)
    path = home.sessions / "20251027-091530-04a1.json"
    path.write_text(json.dumps(OLD[version], indent=2))
    before, changed = path.read_bytes(), path.stat().st_mtime_ns
    doc = sessions.load_session("0")
    assert doc["version"] == VERSION
    assert doc["context"] == blank_context()
    assert doc["stats"]["turns"] == 1
    for args in (["--list-sessions"], ["--show-session", "0"], ["--usage"], ["-s", "0", "-m", "echo", "--dry-run", "x"],
                 ["-s", "0", "-m", "echo", "--no-save", "x"], ["-s", "0@", "-m", "echo", "x"]):  # fmt: skip
        assert home.run(*args).code == 0, args
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, changed)
    assert home.run("-s", "04a1", "-m", "echo", "more").code == 0
    saved = json.loads(path.read_bytes())
    assert (saved["version"], saved["context"], saved["usage"]["cost"]) == (VERSION, blank_context(), 0.5)
    assert texts(saved) == ["user: q", "assistant: a", "user: more", "assistant: You said: more"]


def test_a_document_from_before_compaction_gets_what_it_lacks(store: Store, home: Home) -> None:
    """Version 1 was written before ``compaction`` was a key of its context."""
    home.run("-m", "echo", "q")
    path, doc = home.files()[0], home.doc()
    doc["context"] = {"summaries": [], "snapshots": [], "consolidated": None}
    path.write_text(json.dumps(doc))
    assert sessions.load_session("0")["context"] == blank_context()
