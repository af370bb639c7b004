"""Whether a value is a session document that the code can trust, whoever wrote it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeGuard

from gptsh.core.document import Document
from gptsh.jsonio import is_cost

_YEARS = (1900, 9000)  # what can be shown in any time zone
# What must hold for the code to trust a document.
_SHAPE: dict[str, type | tuple[type, ...]] = {
    "version": int,
    "id": str,
    "title": (str, type(None)),
    "created_at": str,
    "updated_at": str,
    "provider": dict,
    "usage": dict,
    "stats": dict,
    "meta": dict,
    "agent": dict,
    "context": dict,
    "messages": list,
}
_LISTED: tuple[tuple[str, str, type], ...] = (  # of the inner tables, what a list shows; null is always allowed
    ("provider", "name", str),
    ("usage", "tokens", dict),
    ("meta", "tags", list),
    ("meta", "project", str),
    ("agent", "name", str),
    ("agent", "model", str),
)
_INNER = (
    *_LISTED,
    ("agent", "model_small", str),
    ("agent", "system", str),
    ("agent", "params", dict),
    ("context", "summaries", list),
    ("context", "snapshots", list),
    ("context", "compaction", dict),
    ("context", "cuts", dict),
    ("context", "consolidated", str),
    ("usage", "memory_costs", list),
)
# Of what a context holds; null and absent are always allowed.
_RECORDS: dict[str, dict[str, type]] = {
    "summaries": {**dict.fromkeys(("created_at", "first", "last", "text"), str), "messages": int, "tokens": int},
    "snapshots": {**dict.fromkeys(("name", "created_at", "message", "reason"), str), "tokens": int, "messages": int,
                  "summaries": list, "compaction": dict},
    "compaction": {**dict.fromkeys(("id", "at", "strategy", "upto", "summary", "pruned"), str),
                   **dict.fromkeys(("before", "after", "room", "budget", "kept"), int)},
}  # fmt: skip
_NONE: dict[str, Any] = {}
_SOUND: set[tuple[object, ...]] = set()  # keys and types of documents that were found to be right


def check(doc: object, *, head: bool = False) -> Document:
    """The same document, if it is one. ``head``: its messages were not read.

    Raises ValueError saying why it is no session.
    """
    if not isinstance(doc, dict):
        raise ValueError("not a session: not a JSON object")
    _check_types(doc, _LISTED if head else _INNER)
    if "id" not in doc or not (head or "messages" in doc) or doc.get("version") is True:
        raise ValueError("not a session: no 'id', no 'messages' or no version")
    for key in ("created_at", "updated_at"):
        if key in doc and not _YEARS[0] <= datetime.fromisoformat(doc[key]).year <= _YEARS[1]:
            raise ValueError(f"not a session: {key!r} is out of range")
    if not head:
        _check_inside(doc)
    return doc


def _check_types(doc: Document, inner: tuple[tuple[str, str, type], ...]) -> None:
    outline = (*doc, *map(type, doc.values()))
    if outline not in _SOUND:  # most of 10,000 look alike
        for key, kind in _SHAPE.items():
            if key in doc and not isinstance(doc[key], kind):
                raise ValueError(f"not a session: {key!r} has the wrong type")
        _SOUND.add(outline)
    for table, key, kind in inner:
        value = doc.get(table, _NONE).get(key)
        if value is not None and not isinstance(value, kind):
            raise ValueError(f"not a session: '{table}.{key}' has the wrong type")


def _check_inside(doc: Document) -> None:
    """What only a reader of the whole document relies on."""
    for message in doc["messages"]:
        check_message(message)
    if not all(is_cost(doc.get("usage", {}).get(key)) for key in ("title_cost", "carried")):
        raise ValueError("not a session: a cost in 'usage' is no number")
    paid = doc.get("usage", {}).get("memory_costs") or []
    if not _are_tables(paid) or not all(isinstance(one.get("id"), str) and is_cost(one.get("cost")) for one in paid):
        raise ValueError("not a session: 'usage.memory_costs' holds something else")
    _check_context(doc.get("context", {}))


def _check_context(context: dict[str, Any]) -> None:
    for key in ("summaries", "snapshots"):
        items = context.get(key) or []
        if not _are_tables(items) or not all(isinstance(item.get("id"), str) for item in items):
            raise ValueError(f"not a session: 'context.{key}' holds something else")
        if not all(is_cost(item.get("cost")) for item in items):
            raise ValueError(f"not a session: a cost in 'context.{key}' is no number")
        _check_records(f"context.{key}", items, _RECORDS[key])
    taken = context.get("snapshots") or []
    if not all(isinstance(ident, str) for item in taken for ident in item.get("summaries") or ()):
        raise ValueError("not a session: a snapshot whose 'summaries' are no ids")
    in_force = [context, *taken]
    _check_records(
        "compaction", [found for item in in_force if (found := item.get("compaction"))], _RECORDS["compaction"]
    )


def _check_records(where: str, items: Sequence[dict[str, Any]], kinds: dict[str, type]) -> None:
    for key, kind in kinds.items():
        if not all(isinstance(item.get(key), (kind, type(None))) for item in items):
            raise ValueError(f"not a session: '{where}.{key}' has the wrong type")


def check_message(message: object) -> None:
    """Raise ValueError for what is no message that the code can trust."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise ValueError("not a session: a message without a role")
    for key in ("id", "timestamp", "tool_call_id", "refusal", "finish_reason"):
        if not isinstance(message.get(key), (str, type(None))):
            raise ValueError(f"not a session: a message whose {key!r} is no text")
    content, calls = message.get("content"), message.get("tool_calls")
    if not isinstance(content, (str, type(None))) and not _are_tables(content):
        raise ValueError("not a session: a message whose content is neither text nor parts")
    if calls is not None and not (_are_tables(calls) and all(map(_is_call, calls))):
        raise ValueError("not a session: a message whose 'tool_calls' are none")
    if not is_cost(message.get("cost")):
        raise ValueError("not a session: a message whose 'cost' is no number")


def _are_tables(value: object) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _is_call(call: dict[str, Any]) -> bool:
    return isinstance(call.get("id"), str) and isinstance(call.get("function"), dict)
