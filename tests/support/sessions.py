"""Write, change and list sessions."""

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gptsh.core import sessions
from tests.support.home import Home

START = datetime(2025, 1, 1, tzinfo=UTC)


def put(home: Home, ident: str, days: float, **more: Any) -> Path:
    """Write a session from START, last used so many days ago; ``more`` are keys of its document."""
    used = (
        (datetime.now(UTC) - timedelta(days=days))
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
    message = {
        "id": f"{ident}-1",
        "role": "user",
        "content": f"question of {ident}",
        "timestamp": used,
    }
    doc = {"version": 1, "id": ident, "title": f"Title of {ident}", "created_at": START.isoformat(), "updated_at": used,
           "provider": {"name": "echo"}, "usage": {"tokens": {}, "cost": None},
           "stats": {"turns": 1, "messages": 1, "preview": ""}, "meta": {"tags": []},
           "agent": {"name": "default", "model": "echo"}, "context": {}, **more, "messages": [message]}  # fmt: skip
    home.sessions.mkdir(parents=True, exist_ok=True)
    path = home.sessions / f"{START:%Y%m%d-%H%M%S}-{ident}.json"
    path.write_text(json.dumps(doc))
    return path


def compact(value: Any) -> bytes:
    """JSON on one line, with an escape for what is no text."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def in_lines(doc: dict[str, Any]) -> bytes:
    """A document as gptsh writes it: a line for the head, the context and each message."""
    first = {key: doc[key] for key in doc if key not in ("context", "messages")}
    head = (compact(first)[:-1], b'"context":' + compact(doc["context"]), b'"messages":[')
    return b",\n".join(head) + b"\n" + b",\n".join(map(compact, doc["messages"])) + b"\n]}"


@contextlib.contextmanager
def lock_held(home: Home) -> Iterator[Callable[[], None]]:
    """Hold the lock of the store in the block, or until the function that this yields is called."""
    descriptor = os.open(home.state, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield lambda: fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def put_file(home: Home, name: str, doc: dict[str, Any] | bytes) -> Path:
    """Write any file to the sessions folder; its name is ``DATE-TIME-ID``."""
    home.sessions.mkdir(parents=True, exist_ok=True)
    path = home.sessions / f"{name}.json"
    path.write_bytes(doc if isinstance(doc, bytes) else json.dumps(doc).encode())
    return path


def change(path: Path, place: str, value: object) -> None:
    """Set the value at a path of a session's file, such as ``meta.tags``."""
    doc = table = json.loads(path.read_bytes())
    *tables, key = place.split(".")
    for name in tables:
        table = table[name]
    table[key] = value
    path.write_text(json.dumps(doc))


def archived(home: Home) -> list[str]:
    folder = home.state / "archive"
    return sorted(os.listdir(folder)) if folder.is_dir() else []


def session_ids(home: Home) -> list[str]:
    """The ids of the sessions that are not archived."""
    return sorted(path.name[16:20] for path in home.files())


Store = Callable[[], list[dict[str, Any]]]


def new_doc(title: str | None = None, *questions: str) -> dict[str, Any]:
    agent = {"name": "default", "model": "lab/m", "model_small": None, "params": {}, "system": None}
    doc = sessions.new_session_doc(agent, {"name": "lab"}, output=None, mcp_allowed_servers=None)
    doc["title"] = title
    for question in questions:
        append_turn(doc, question)
    return doc


def append_turn(doc: dict[str, Any], question: str, answer: str | None = None) -> None:
    sessions.append_messages(doc, [{"role": "user", "content": question}], None)
    if answer is not None:
        sessions.append_messages(doc, [{"role": "assistant", "content": answer}], None)
