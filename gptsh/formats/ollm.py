"""OLLM-CLI's sessions, histories and snapshots: a JSON file each."""

import json
from collections.abc import Iterator
from typing import Any

from gptsh.core.document import Document
from gptsh.formats.conversation import Conversation, call_of, provider_name, utc, without
from gptsh.formats.source import Source, Unread
from gptsh.jsonio import as_dict, as_dicts

NAME = "ollm"
ASIDE = r"/snapshots-index\.json$|/snapshot-map\.json$"
_SESSION = {"sessionId", "startTime", "messages", "toolCalls"}
_HISTORY = {"sessionId", "messages", "checkpointRecords"}
_SNAPSHOT = {"id", "sessionId", "timestamp", "messages", "userMessages"}
_KNOWN = ("id", "role", "content", "parts", "timestamp", "toolCalls", "toolCallId", "name")


def read(source: Source) -> Iterator[Document | Unread] | None:
    """The session of one of the three layouts; a snapshot is one of its own. None where it is none of them."""
    value = source.value
    keys = value.keys() if isinstance(value, dict) and isinstance(value.get("messages"), list) else set()
    if not any(keys >= layout for layout in (_SESSION, _HISTORY, _SNAPSHOT)):
        return None
    about = as_dict(value.get("metadata"))
    session = Conversation(source, NAME, str(value["sessionId"]))
    session.created_at = value.get("startTime", about.get("startTime"))
    session.updated_at = value.get("lastActivity", about.get("lastUpdate"))
    model = value.get("model", about.get("model"))
    session.model = None if model == "unknown" else model
    session.provider = provider_name(value.get("provider"))
    records = list(value["messages"])
    if keys >= _SNAPSHOT:
        session.key, session.title, session.updated_at = (
            f"{session.key}/{value['id']}",
            value.get("summary"),
            value["timestamp"],
        )
        present = {as_dict(record).get("id") for record in records}
        earlier = as_dicts(value.get("archivedUserMessages")) + as_dicts(value["userMessages"])
        records = _in_time([*(one for one in earlier if one.get("id") not in present), *records])
    elif keys >= _SESSION:  # its calls stand apart
        records = _in_time([*records, *as_dicts(value["toolCalls"])])
    for record in records:
        if isinstance(record, dict) and "args" in record:
            session.take(_call, record)
            if record.get("result") is not None:
                session.take(_result, record)
        else:
            session.take(_message, record)
    return session.results()


def _in_time(records: list[Any]) -> list[Any]:
    """The records by their times, in their order within one; what has no time stays behind the one before it."""
    last, times = "", []
    for record in records:
        last = utc(as_dict(record).get("timestamp")) or last
        times.append(last)
    return [record for _, record in sorted(zip(times, records, strict=True), key=lambda pair: pair[0])]


def _message(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        key: record[key] for key in ("id", "role", "timestamp", "name", "content") if key in record
    }
    if parts := record.get("parts"):
        found["content"] = parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else parts
    if record.get("toolCalls"):
        found["tool_calls"] = [call_of(call["id"], call["name"], call["args"]) for call in record["toolCalls"]]
    if record.get("toolCallId") is not None:
        found["tool_call_id"] = record["toolCallId"]
    rest = without(record, *_KNOWN)
    return found | ({"source": rest} if rest else {})


def _call(record: dict[str, Any]) -> dict[str, Any]:
    """A call that stands apart, as an answer."""
    calls = [call_of(record["id"], record["name"], record["args"])]
    return {"role": "assistant", "content": None, "tool_calls": calls, "timestamp": record.get("timestamp")}


def _result(record: dict[str, Any]) -> dict[str, Any]:
    given = record["result"]
    content = given["llmContent"] if isinstance(given, dict) else given
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    result = {"role": "tool", "tool_call_id": record["id"], "name": record["name"], "content": text}
    beside = without(as_dict(given), "llmContent")
    return {**result, "timestamp": record.get("timestamp"), **({"raw": beside} if beside else {})}
