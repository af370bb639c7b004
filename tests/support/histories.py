"""Sessions of other tools: write their files, import them, print and check the result, corrupt them."""

import contextlib
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.support import vocabulary
from tests.support.apis import APIS, STRICT, exercise, request
from tests.support.home import Home, Result
from tests.support.paths import HISTORIES

MOMENT = "2025-10-27T09:15:30.120Z"
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP438AAAAQBAYD718vxAAAAAElFTkSuQmCC"
)

# ---- documents of gptsh


def question(text: str, ident: str = "m1") -> dict[str, Any]:
    """A user message."""
    return {"id": ident, "parent": None, "timestamp": MOMENT, "role": "user", "content": text}


def answer(text: str, ident: str = "m2") -> dict[str, Any]:
    """An answer."""
    return {**question(text, ident), "role": "assistant", "model": "gpt-4.1", "parent": "m1"}


def text_part(text: str) -> dict[str, Any]:
    """A text part."""
    return {"type": "text", "text": text}


def session(ident: str = "7x2m", *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A session document of gptsh on another machine."""
    return {
        "version": 1, "id": ident, "title": "From elsewhere", "created_at": MOMENT,
        "updated_at": "2025-10-27T10:00:00.000Z", "provider": {"name": "openai"}, "usage": {"tokens": {}, "cost": None},
        "meta": {"cwd": "/home/u", "project": "/home/u", "tags": []}, "agent": {"name": "default", "model": "gpt-4.1"},
        "context": {"summaries": [], "snapshots": [], "consolidated": None},
        "messages": list(messages) or [question("hello"), answer("hi")], **more,
    }  # fmt: skip


def session_of(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A session of these messages; a message without an id or a time gets one."""
    identified = [
        {"id": f"m{at}", "timestamp": f"2025-10-27T09:15:{at:02}.120Z", **m}
        for at, m in enumerate(messages)
    ]
    return session("7x2m", **{**more, "messages": identified})


def put(home: Home, doc: dict[str, Any]) -> Path:
    """Write a document to the store."""
    return Path(write(home.sessions, doc, f"20251027-091530-{doc['id']}.json"))


# ---- files, and their import


class Script(str):
    """SQL that creates a database."""


def write(folder: Path, value: Any, name: str = "one.json") -> str:
    """Write a value as JSON, a tuple as lines, bytes or text unchanged, a Script as a database; return the path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(value, Script):
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript(f"PRAGMA synchronous=OFF; PRAGMA journal_mode=MEMORY; {value}")
        return str(path)
    if not isinstance(value, (str, bytes)):
        value = lines(*value) if isinstance(value, tuple) else json.dumps(value)
    path.write_bytes(value.encode() if isinstance(value, str) else value)
    return str(path)


def lines(*values: Any) -> str:
    """Values as lines of JSON; a string is a line itself."""
    return "".join(
        f"{value if isinstance(value, str) else json.dumps(value)}\n" for value in values
    )


def read_sample(sample: str) -> Any:
    """The JSON of a sample file; for JSON Lines a tuple."""
    text = (HISTORIES / sample).read_text()
    return (
        tuple(map(json.loads, text.split("\n")[:-1])) if sample.endswith("l") else json.loads(text)
    )


def import_file(home: Home, path: str | Path) -> Result:
    """Run ``--import-session``."""
    return home.run("--import-session", str(path))


def states(run: Result) -> list[str]:
    """The state of each session: imported, grown or known."""
    return [line.split()[0] for line in run.stdout.splitlines()]


def import_notes(run: Result, path: str | Path) -> list[str]:
    """The notes of an import without the path, such as ``:3: not a JSON object``; not those on names and totals."""
    notes = [
        line.removeprefix("gptsh: ").replace(str(path), "") for line in run.stderr.splitlines()
    ]
    return [line for line in notes if not re.match("with --keep-keys|[0-9]+ sessions: ", line)]


def imported_docs(home: Home, path: str | Path) -> list[dict[str, Any]]:
    """Import a file: its sessions in order. All of the file must be readable, and all requests valid."""
    run = home.run("--import-session", str(path), "-o", "jsonl")
    assert run.code == 0
    assert import_notes(run, path) == []
    ids = [json.loads(line)["session"] for line in run.stdout.splitlines()]
    docs = {doc["id"]: doc for doc in home.docs()}
    for ident in ids:
        check_requests(docs[ident])
    return [docs[ident] for ident in ids]


def state_files(home: Home) -> dict[str, bytes]:
    """The files of the state folder: path and content."""
    return {
        str(p.relative_to(home.state)): p.read_bytes() for p in home.state.rglob("*") if p.is_file()
    }


# ---- a session as text, a line a message

_ABBREVIATIONS = {
    'Grüße, 世界 🐍! Read config.json and list /nope\nzwei: naïve “quotes” \\ "x" </script> \u2028 end': "ASKED",
    "I'll do both — reading first.": "READING",
    '{"port": 8080, "név": "é"}': "FOUND",
    "The port is 8080; /nope does not exist. ✓": "TOLD",
    "And what is in these two?": "TWO",
    "An orange pixel and an empty PDF.": "LOOKED",
    "The user wants two things; both calls are independent.": "PLAN",
    '{"path": "config.json", "limit": 10}': "{CONFIG}",
    '{"path": "/nope"}': "{NOPE}",
    "toolu_01SynthAAAAAAAAAAAAAAAAA": "A",
    "toolu_01SynthBBBBBBBBBBBBBBBBB": "B",
}  # texts that all samples have


def transcript_of(doc: dict[str, Any]) -> str:
    """A line for each message, such as ``assistant: (hm; signed) I look. ls{"a": 1}=c1`` or ``tool c1 failed: x``."""
    return "".join(
        _short(" ".join([_who(message), *_pieces(message)])) + "\n" for message in doc["messages"]
    )


def _who(message: dict[str, Any]) -> str:
    error = {True: "failed", False: "well"}.get(message.get("is_error"))
    return " ".join(filter(None, (message["role"], message.get("tool_call_id"), error))) + ":"


def _pieces(message: dict[str, Any]) -> Iterator[str]:
    for block in message.get("thinking") or ():
        thought = block.get("thinking", block["type"])
        yield f"({thought}; signed)" if block.get("signature") else f"({thought})"
    yield from (f"({thought})" for thought in (message.get("replay") or {}).values())
    content = message["content"]
    for part in [{"text": content}] if isinstance(content, str) else content or ():
        medium = re.search(r'(?:data:|"media_type": ")([a-z]+/[a-z-]+)', json.dumps(part))
        yield part["text"] if "text" in part else f"[{medium[1] if medium else part['type']}]"
    for call in message.get("tool_calls") or ():
        yield f"{call['function']['name']}{call['function']['arguments']}={call['id']}"


def _short(text: str) -> str:
    for long, short in _ABBREVIATIONS.items():
        text = text.replace(long, short)
    return text.strip()


def at(doc: Any, place: str) -> Any:
    """The value at a path in a document, such as ``messages.1.usage.completion``; None if there is none."""
    for key in place.split("."):
        doc = doc[int(key)] if isinstance(doc, list) else (doc or {}).get(key)
    return doc


# ---- requests of a session; corrupted values


def check_requests(doc: dict[str, Any]) -> None:
    """Build the requests of a session in every API; strict servers must accept them."""
    exercise(doc)
    for name, refused in STRICT.items():
        sent = json.loads(APIS[name](request(doc["messages"], name)))
        assert refused(sent) is None, (name, sent)


_CHANGES: st.SearchStrategy[Any] = st.just("gone") | vocabulary.JSON.map(lambda value: [value])


def corrupted(value: Any) -> st.SearchStrategy[Any]:
    """The value with a few of its items, at any depth, replaced or removed."""
    changes = st.lists(st.tuples(st.integers(0, 10**6), _CHANGES), max_size=4)
    return changes.map(lambda some: _changed(value, some))


def _changed(value: Any, changes: list[tuple[int, Any]]) -> Any:
    new = json.loads(json.dumps(value))
    for where, change in changes:
        if places := list(_places(new)):
            container, key = places[where % len(places)]
            if change == "gone":
                del container[key]
            else:
                container[key] = change[0]
    return new


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = (
        list(value)
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    )
    for key in keys:
        yield value, key
        yield from _places(value[key])
