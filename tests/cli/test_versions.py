"""Documents of every older version: read in today's shape, and written only when something is saved."""

import json
from typing import Any

import pytest

from gptsh.core.document import VERSION
from tests.support.home import Home, texts

OLD: dict[int, dict[str, Any]] = {0: {  # by version, a document as it was written then
    "id": "04a1", "title": "Old", "created_at": "2025-10-27T09:15:30Z", "updated_at": "2025-10-27T09:15:31Z",
    "agent": {"name": "default", "model": "m", "model_small": None, "params": {}}, "provider": {"name": "echo"},
    "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
    "usage": {"tokens": {"prompt": 3, "completion": 2, "total": 5}, "cost": 0.5},
    "meta": {"output": "markdown", "mcp_allowed_servers": []},
}}  # fmt: skip
READING = (
    ["--list-sessions"], ["--show-session", "0"], ["--usage"], ["-s", "0", "-m", "echo", "--dry-run", "x"],
    ["-s", "0", "-m", "echo", "--no-save", "x"], ["-s", "0@", "-m", "echo", "x"],
)  # fmt: skip


@pytest.mark.parametrize("version", range(VERSION))
def test_an_older_document_is_read_as_it_is_and_written_by_a_save_alone(home: Home, version: int) -> None:
    home.sessions.mkdir(parents=True)
    path = home.sessions / "20251027-091530-04a1.json"
    path.write_text(json.dumps(OLD[version], indent=2))
    before, changed = path.read_bytes(), path.stat().st_mtime_ns
    for args in READING:
        assert home.run(*args).code == 0, args
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, changed)
    new = json.loads(home.run("--show-session", "0", "-o", "json").stdout)  # the fork, from this version
    old = json.loads(home.run("--show-session", "04a1", "-o", "json").stdout)
    assert (old["version"], set(old), old["stats"]["turns"]) == (VERSION, set(new), 1)
    assert home.run("-s", "04a1", "-m", "echo", "more").code == 0
    saved = json.loads(path.read_bytes())
    assert (saved["version"], set(saved["context"]), saved["usage"]["cost"]) == (VERSION, set(new["context"]), 0.5)
    assert texts(saved) == ["user: q", "assistant: a", "user: more", "assistant: You said: more"]
