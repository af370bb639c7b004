"""OLLM-CLI's sessions, histories and snapshots: a JSON file each, beside an index and a map that hold no messages."""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gptsh.core.document import Document
from gptsh.formats import blocks
from gptsh.formats.draft import SOURCE, Draft, utc
from gptsh.formats.source import Reader, Source, Unread
from gptsh.jsonio import as_dict, as_dicts

NAME = "ollm"
_SESSION = {"sessionId", "startTime", "messages", "toolCalls"}
_HISTORY = {"sessionId", "messages", "checkpointRecords"}
_SNAPSHOT = {"id", "sessionId", "timestamp", "messages", "userMessages"}
_SNAPSHOT_ID = re.compile(r"snap_[0-9]+_\w+")
_INDEX, _MAP = "snapshots-index.json", "snapshot-map.json"
_EARLIER = ("archivedUserMessages", "userMessages")  # of a snapshot: some of them are among its messages too
_KNOWN = ("id", "role", "content", "parts", "timestamp", "toolCalls", "toolCallId", "name")
_NO_MODEL = "unknown"  # of a snapshot


def _recognises(source: Source) -> bool:
    value = blocks.whole(source)
    return isinstance(value, dict) and (_has_messages(value) or _is_companion(source, value))


def _has_messages(value: dict[str, Any]) -> bool:
    shapes = (_SESSION, _HISTORY, _SNAPSHOT)
    return any(value.keys() >= shape for shape in shapes) and isinstance(value["messages"], list)


def _is_companion(source: Source, value: dict[str, Any]) -> bool:
    """Whether it is an index of snapshots, or the map of their sessions. An empty one is told by its name."""
    name = source.path.name if source.path else ""
    if value.keys() == {"version", "snapshots"}:
        listed = value["snapshots"]
        sound = isinstance(listed, list) and all("sessionId" in as_dict(one) for one in listed)
        return sound and (bool(listed) or name == _INDEX)
    return (bool(value) or name == _MAP) and all(_SNAPSHOT_ID.fullmatch(key) for key in value)


def _read(source: Source) -> Iterator[Document | Unread]:
    value = blocks.whole(source)
    if not _has_messages(value):
        return iter(())
    if value.keys() >= _SNAPSHOT:
        return _snapshot(source, value).results()
    return (_history if value.keys() >= _HISTORY else _session)(source, value).results()


READER = Reader(NAME, _recognises, _read)


# ---- the three layouts


def _session(source: Source, value: dict[str, Any]) -> Draft:
    """A session, whose tool calls stand apart from its messages: each goes to its place in time."""
    draft = Draft(source, NAME, str(value["sessionId"]), created_at=value["startTime"])
    draft.updated_at, draft.model = value.get("lastActivity"), value.get("model")
    draft.provider, about = blocks.provider_name(value.get("provider")), as_dict(value.get("metadata"))
    draft.kept = {key: about[key] for key in ("tokenCount", "compressionCount") if about.get(key)}
    if modes := as_dicts(about.get("modeHistory")):
        draft.kept["mode"] = modes[-1].get("to")
    calls = value["toolCalls"] if isinstance(value["toolCalls"], list) else []
    made = [_called(as_dict(call)) for call in calls]
    return _with(draft, _in_time(list(map(_message, value["messages"])), made, "~"))


def _history(source: Source, value: dict[str, Any]) -> Draft:
    """A history, whose messages have their calls."""
    about = as_dict(value.get("metadata"))
    draft = Draft(source, NAME, str(value["sessionId"]), kept={"checkpointRecords": value["checkpointRecords"]})
    draft.created_at, draft.updated_at = about.get("startTime"), about.get("lastUpdate")
    return _with(draft, map(_message, value["messages"]))


def _snapshot(source: Source, value: dict[str, Any]) -> Draft:
    """A snapshot is a session of its own; what was said before it begins stands in lists beside its messages."""
    about, key = as_dict(value.get("metadata")), f"{value['sessionId']}/{value['id']}"
    draft = Draft(source, NAME, key, title=value.get("summary"), updated_at=value["timestamp"])
    draft.model = None if about.get("model") == _NO_MODEL else about.get("model")
    kept = {"session": value["sessionId"], "purpose": about.get("purpose"), "checkpoints": value.get("checkpoints")}
    draft.kept = blocks.without(kept)
    seen = {item["id"] for item in as_dicts(value["messages"]) if isinstance(item.get("id"), str)}
    earlier = []
    for record in (record for name in _EARLIER for record in _listed(value.get(name))):
        ident = as_dict(record).get("id")
        if not isinstance(ident, str) or ident not in seen:
            earlier.append([_message(record)])
            seen.update([ident] if isinstance(ident, str) else [])
    return _with(draft, _in_time(list(map(_message, value["messages"])), earlier, ""))


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _with(draft: Draft, messages: Iterable[dict[str, Any]]) -> Draft:
    for message in messages:
        draft.add(message)
    return draft


def _in_time(
    messages: list[dict[str, Any]], others: list[list[dict[str, Any]]], otherwise: str
) -> Iterator[dict[str, Any]]:
    """The messages in their order, each group of others behind those that are not later than it.

    ``otherwise`` is the time of one that has none.
    """
    times: list[str] = []
    for message in messages:
        times.append(max(_moment(message, ""), times[-1] if times else ""))
    at = 0
    for group in sorted(others, key=lambda group: _moment(group[0], otherwise)):
        place = bisect_right(times, _moment(group[0], otherwise))
        yield from messages[at:place]
        yield from group
        at = max(at, place)
    yield from messages[at:]


def _moment(message: Mapping[str, Any], otherwise: str) -> str:
    return utc(message.get("timestamp")) or otherwise


# ---- messages


def _message(record: object) -> dict[str, Any]:
    """A message; what is none of a shape that is refused."""
    given = as_dict(record)
    found: dict[str, Any] = {key: given[key] for key in ("id", "role", "timestamp", "name") if key in given}
    found["content"] = _plain(given["parts"]) if "parts" in given else given.get("content")
    if given.get("toolCalls"):
        calls = given["toolCalls"]
        sound = isinstance(calls, list) and all(isinstance(call, dict) for call in calls)
        found["tool_calls"] = [blocks.call_of(call, "args") for call in calls] if sound else calls
    if given.get("toolCallId") is not None:
        found["tool_call_id"] = given["toolCallId"]
    rest = blocks.without(given, *_KNOWN)
    return found | ({SOURCE: rest} if rest else {})


def _plain(parts: Any) -> Any:
    """Parts that are one text as that text."""
    alone = as_dict(parts[0]) if isinstance(parts, list) and len(parts) == 1 else {}
    return alone["text"] if alone.keys() == {"type", "text"} and isinstance(alone["text"], str) else parts


def _called(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A call that stands apart, as an answer, and what its tool gave, where it gave something."""
    moment = {"timestamp": record["timestamp"]} if "timestamp" in record else {}
    asked = {"role": "assistant", "content": None, "tool_calls": [blocks.call_of(record, "args")], **moment}
    given = record.get("result")
    if given is None:
        return [asked]
    content = as_dict(given).get("llmContent", "" if isinstance(given, dict) else given)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    result = {"role": "tool", "tool_call_id": record.get("id"), "name": record.get("name"), "content": text, **moment}
    beside = blocks.without(as_dict(given), "llmContent")
    return [asked, result | ({"raw": beside} if beside else {})]
