"""OLLM-CLI's sessions, histories and snapshots: a JSON file each."""

import json
from collections.abc import Iterator
from typing import Any

from gptsh.formats.conversation import Conversation, provider_name, tool_call, utc, without
from gptsh.formats.source import Results, Source
from gptsh.jsonio import as_dict, as_dicts

NAME = "ollm"
IGNORED_PATHS = r"/snapshots-index\.json$|/snapshot-map\.json$"
_LAYOUTS = ({"startTime", "toolCalls"}, {"checkpointRecords"}, {"id", "timestamp", "userMessages"})
_KNOWN = ("id", "role", "content", "parts", "timestamp", "toolCalls", "toolCallId", "name")


def read(source: Source) -> Results | None:
    """The session of one of the three layouts; a snapshot is one of its own."""
    value = source.value
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list) or "sessionId" not in value:
        return None
    if not any(value.keys() >= layout for layout in _LAYOUTS):
        return None
    about, ident = as_dict(value.get("metadata")), [value["sessionId"], *([value["id"]] if "id" in value else [])]
    model = value.get("model", about.get("model"))
    session = Conversation(
        source, NAME, "/".join(map(str, ident)), title=value.get("summary"),
        model=None if model == "unknown" else model, provider=provider_name(value.get("provider")),
        created_at=value.get("startTime", about.get("startTime")),
        updated_at=value.get("lastActivity", about.get("lastUpdate", value.get("timestamp"))),
    )  # fmt: skip
    present = {str(one.get("id")) for one in as_dicts(value["messages"])}  # a snapshot has older questions beside them
    older = [*as_dicts(value.get("archivedUserMessages")), *as_dicts(value.get("userMessages"))]
    older = [one for one in older if str(one.get("id")) not in present]
    records = _in_time([*older, *value["messages"], *as_dicts(value.get("toolCalls"))])  # a session has calls beside
    for record in records:
        session.add_record(_call if "args" in as_dict(record) else _message, record)
    return session.results()


def _in_time(records: list[Any]) -> list[Any]:
    """The records by their times, in their order within one; what has no time stays behind the one before it."""
    last, times = "", []
    for record in records:
        last = utc(as_dict(record).get("timestamp")) or last
        times.append(last)
    return [record for _, record in sorted(zip(times, records, strict=True), key=lambda pair: pair[0])]


def _message(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    names = ("id", "role", "timestamp", "name", "content")
    found: dict[str, Any] = {name: record[name] for name in names if name in record}
    if parts := record.get("parts"):
        found["content"] = parts[0]["text"] if len(parts) == 1 and parts[0].keys() == {"type", "text"} else parts
    if record.get("toolCalls"):
        found["tool_calls"] = [tool_call(call["id"], call["name"], call["args"]) for call in record["toolCalls"]]
    if record.get("toolCallId") is not None:
        found["tool_call_id"] = record["toolCallId"]
    rest = without(record, *_KNOWN)
    yield found | ({"source": rest} if rest else {})


def _call(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A call that stands apart, as an answer, and its result, where it has one."""
    moment, calls = record.get("timestamp"), [tool_call(record["id"], record["name"], record["args"])]
    yield {"role": "assistant", "content": None, "tool_calls": calls, "timestamp": moment}
    if record.get("result") is not None:
        given = record["result"] if isinstance(record["result"], dict) else {"llmContent": record["result"]}
        content = given["llmContent"]
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        beside = {"raw": raw} if (raw := without(given, "llmContent")) else {}
        result = {"role": "tool", "tool_call_id": record["id"], "name": record["name"], "content": text}
        yield {**result, "timestamp": moment, **beside}
