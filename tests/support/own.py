"""Documents of our own, written to be imported, and what an import said of each."""

import json
from pathlib import Path
from typing import Any

from tests.support.home import Home, Result
from tests.support.paths import HISTORIES

SAMPLES = HISTORIES
MOMENT = "2025-10-27T09:15:30.120Z"


def question(text: str, ident: str = "m1") -> dict[str, Any]:
    return {"id": ident, "parent": None, "timestamp": MOMENT, "role": "user", "content": text}


def session(ident: str = "7x2m", *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A session as another machine's gptsh left it."""
    return {
        "version": 1,
        "id": ident,
        "title": "From elsewhere",
        "created_at": MOMENT,
        "updated_at": "2025-10-27T10:00:00.000Z",
        "provider": {"name": "openai"},
        "usage": {"tokens": {}, "cost": None},
        "meta": {"cwd": "/home/u", "project": "/home/u", "tags": []},
        "agent": {"name": "default", "model": "gpt-4.1"},
        "context": {"summaries": [], "snapshots": [], "consolidated": None},
        "messages": list(messages) or [question("hello"), answer("hi")],
        **more,
    }


def answer(text: str, ident: str = "m2") -> dict[str, Any]:
    return {**question(text, ident), "role": "assistant", "model": "gpt-4.1", "parent": "m1"}


def written(folder: Path, doc: Any, name: str = "one.json") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(doc))
    return str(path)


def states(run: Result) -> list[str]:
    return [line.split()[0] for line in run.stdout.splitlines()]


def snapshot(home: Home) -> dict[str, bytes]:
    """All that the state folder holds."""
    return {str(p.relative_to(home.state)): p.read_bytes() for p in home.state.rglob("*") if p.is_file()}
