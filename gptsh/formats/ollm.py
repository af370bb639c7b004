"""OLLM-CLI's sessions, histories and snapshots, each a JSON file."""

import json
from collections.abc import Iterator
from typing import Any

from gptsh.formats.conversation import Conversation, provider_name, tool_call, utc, without
from gptsh.formats.source import Results, Source
from gptsh.jsonio import as_dict, as_dicts

NAME = "ollm"
IGNORED_PATHS = r"/snapshots-index\.json$|/snapshot-map\.json$"
_LAYOUTS = ({"startTime", "toolCalls"}, {"checkpointRecords"}, {"id", "timestamp", "userMessages"})
_MESSAGE_KEYS = ("id", "role", "content", "parts", "timestamp", "toolCalls", "toolCallId", "name")


def read(source: Source) -> Results | None:
    """The session, in one of the three layouts; a snapshot is also a session."""
    value = source.value
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list) or "sessionId" not in value:
        return None
    if not any(value.keys() >= layout for layout in _LAYOUTS):
        return None
    metadata, ids = as_dict(value.get("metadata")), [value["sessionId"], *([value["id"]] if "id" in value else [])]
    model = value.get("model", metadata.get("model"))
    session = Conversation(
        source, NAME, "/".join(map(str, ids)), title=value.get("summary"),
        model=None if model == "unknown" else model, provider=provider_name(value.get("provider")),
        created_at=value.get("startTime", metadata.get("startTime")),
        updated_at=value.get("lastActivity", metadata.get("lastUpdate", value.get("timestamp"))),
    )  # fmt: skip
    present = {str(record.get("id")) for record in as_dicts(value["messages"])}
    older = [*as_dicts(value.get("archivedUserMessages")), *as_dicts(value.get("userMessages"))]  # of a snapshot
    older = [record for record in older if str(record.get("id")) not in present]
    calls = as_dicts(value.get("toolCalls"))  # of a session
    records = _sorted_by_time([*older, *value["messages"], *calls])
    for record in records:
        session.add_record(_call if "args" in as_dict(record) else _message, record)
    return session.results()


def _sorted_by_time(records: list[Any]) -> list[Any]:
    """The records sorted by time, stable; a record without a time has that of the record before it."""
    last, times = "", []
    for record in records:
        last = utc(as_dict(record).get("timestamp")) or last
        times.append(last)
    return [record for _, record in sorted(zip(times, records, strict=True), key=lambda pair: pair[0])]


def _message(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    names = ("id", "role", "timestamp", "name", "content")
    message: dict[str, Any] = {name: record[name] for name in names if name in record}
    if parts := record.get("parts"):
        message["content"] = parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else parts
    if record.get("toolCalls"):
        message["tool_calls"] = [tool_call(call["id"], call["name"], call["args"]) for call in record["toolCalls"]]
    if record.get("toolCallId") is not None:
        message["tool_call_id"] = record["toolCallId"]
    rest = without(record, *_MESSAGE_KEYS)
    yield message | ({"source": rest} if rest else {})


def _call(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """An answer with a single tool call, and the result, if there is one."""
    moment, calls = record.get("timestamp"), [tool_call(record["id"], record["name"], record["args"])]
    yield {"role": "assistant", "content": None, "tool_calls": calls, "timestamp": moment}
    if record.get("result") is not None:
        result = record["result"] if isinstance(record["result"], dict) else {"llmContent": record["result"]}
        content = result["llmContent"]
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        raw = without(result, "llmContent")
        message = {"role": "tool", "tool_call_id": record["id"], "name": record["name"], "content": text}
        yield {**message, "timestamp": moment, **({"raw": raw} if raw else {})}
