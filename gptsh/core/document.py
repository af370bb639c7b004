"""One session as a value: completed, cut at a point, merged with another copy of it, counted. No files here.

docs/file-format.md describes each key.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gptsh.content.foreign import translated
from gptsh.content.passages import gist_of
from gptsh.errors import UnknownSession
from gptsh.jsonio import as_dict, is_cost
from gptsh.messages import Message, is_empty, new_message_id, starts_turn, sum_costs, timestamp
from gptsh.models.names import full_name
from gptsh.text import counted, shortened

VERSION = 1
PREVIEW_WIDTH = 100
TOKEN_KEYS = ("prompt", "completion", "total", "reasoning_tokens", "cached_tokens")
_SUMMARIES = 5  # kept in a session, besides the one that its compaction uses

Document = dict[str, Any]


def blank(ident: str, moment: str) -> Document:
    """A document without messages, its keys in the order of the file."""
    return {
        "version": VERSION,
        "id": ident,
        "title": None,
        "created_at": moment,
        "updated_at": moment,
        "provider": {"name": None},
        "usage": {"tokens": dict.fromkeys(TOKEN_KEYS), "cost": None, "calls": []},
        "stats": {"turns": 0, "messages": 0, "preview": ""},
        "meta": {"tags": []},
        "agent": {},
        "context": {"compaction": None, "summaries": [], "snapshots": [], "cuts": {}, "consolidated": None},
        "messages": [],
    }


# ---- what a file holds


def _is_time(value: object) -> bool:
    """ISO 8601, within the years that can be shown in any time zone."""
    try:
        return isinstance(value, str) and 1900 <= datetime.fromisoformat(value).year <= 9000
    except ValueError:
        return False


def _are_cuts(value: object) -> bool:
    """By message id: the place of a part, and from where to where its text is left out."""
    return isinstance(value, dict) and all(
        isinstance(cuts, list) and all(isinstance(cut, list) and [*map(type, cut)] == [int] * 3 for cut in cuts)
        for cuts in value.values()
    )


# What the code relies on, by key: a type, a test, the shape of a table, or in a list that of each item. Absent and null
# are right everywhere, but a record in a list has an id.
Shape = dict[str, Any]
_CALL: Shape = {"id": str, "kind": str, "model": str, "tokens": dict, "cost": is_cost, "at": str}
_SUMMARY: Shape = {
    "id": str, "created_at": str, "model": str, "first": str, "last": str, "until": str, "text": str,
    "messages": int, "tokens": int,
}  # fmt: skip
_SNAPSHOT: Shape = {"id": str, "name": str, "created_at": str, "message": str, "reason": str, "tokens": int}
_COMPACTION: Shape = {
    "id": str, "at": str, "strategy": str, "upto": str, "summary": str, "pruned": str,
    "before": int, "after": int, "room": int, "budget": int, "kept": int,
}  # fmt: skip
_DOCUMENT: Shape = {
    "version": int, "title": str, "created_at": _is_time, "updated_at": _is_time,
    "provider": {"name": str},
    "usage": {
        "tokens": dict, "cost": is_cost, "calls": [_CALL],
        "carried": is_cost, "carried_tokens": dict, "carried_model": str,
    },
    "stats": {},
    "meta": {
        "output": str, "cwd": str, "project": str, "tags": [str], "forked_from": str,
        "mcp_allowed_servers": [str], "mcp_approved": [str], "imported": dict, "imported_at": str,
    },
    "agent": {"name": str, "model": str, "model_small": str, "system": str, "params": dict},
    "context": {
        "compaction": _COMPACTION, "summaries": [_SUMMARY], "snapshots": [_SNAPSHOT],
        "cuts": _are_cuts, "consolidated": str,
    },
}  # fmt: skip
_MESSAGE: Shape = {
    "id": str, "parent": str, "timestamp": str, "agent": str, "provider": str, "model": str, "resolved_model": str,
    "request_id": str, "response_id": str, "finish_reason": str, "stop_sequence": str, "compaction": str,
    "tool_call_id": str, "name": str, "refusal": str, "thinking": list, "order": list, "usage": dict, "replay": dict,
    "duration_ms": (int, float), "cost": is_cost,
}  # fmt: skip


def _sound(value: Any, shape: Any, place: str, malformed: list[str]) -> Any:
    """The value without what has another shape, whose places go to ``malformed``; None where it is that itself."""
    if isinstance(shape, dict) and isinstance(value, dict):
        table = value
        for key, item in value.items():
            expected = shape.get(key)
            if item is None or expected is None or type(item) is expected:
                continue
            sound = _sound(item, expected, f"{place}.{key}" if place else key, malformed)
            if sound is None:
                table = {other: value for other, value in table.items() if other != key}
            elif sound is not item:
                table = {**table, key: sound}
        return table
    if isinstance(shape, list) and isinstance(value, list):
        items = []
        for at, item in enumerate(value):
            sound = _sound(item, shape[0], f"{place}[{at}]", malformed)
            if isinstance(sound, dict) and not sound.get("id"):
                malformed.append(f"{place}[{at}].id")
            elif sound is not None:
                items.append(sound)
        return items
    fits = isinstance(value, shape) if isinstance(shape, (type, tuple)) else callable(shape) and shape(value)
    if not fits:
        malformed.append(place)
    return value if fits else None


def complete(value: object, ident: str | None = None, moment: str | None = None) -> tuple[Document, list[str]]:
    """What a file holds as a document with all its keys, and the places of what is malformed, which is left out.

    ``ident`` and ``moment`` come from the file's name: the first is the session's id whatever the file says, the second
    the time of a session that has none. A version of 0, or none, is the first gptsh: seconds in its times, no ids on
    its messages. Their ids are derived, so that every reader of one file gives a message the same one.
    Raises ValueError for what has no readable messages.
    """
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        raise ValueError("not a session: no JSON object with a list of 'messages'")
    malformed: list[str] = []
    given = _sound({key: item for key, item in value.items() if key != "messages"}, _DOCUMENT, "", malformed)
    ident = ident or str(given.get("id") or "")
    began = given.get("created_at") or (moment if _is_time(moment) else None)
    new = blank(ident, began or "1970-01-01T00:00:00.000Z")
    for key, item in given.items():
        if key in _DOCUMENT and isinstance(item, dict):
            table = {inner: new[key].get(inner) if value is None else value for inner, value in item.items()}
            new[key] = table | {inner: value for inner, value in new[key].items() if inner not in table}
        elif item is not None or key not in new:
            new[key] = item
    new |= {"id": ident, "version": max(given.get("version") or 0, VERSION)}
    read: list[Message] = []
    for at, message in enumerate(value["messages"]):
        read += translated(_sound(checked_message(message), _MESSAGE, f"messages[{at}]", malformed))
    seen: set[str] = set()
    for at, message in enumerate(read):
        own = message.get("id")
        if not own or own in seen:
            from uuid import NAMESPACE_URL, uuid5  # noqa: PLC0415 - 2 ms that few files need

            own = str(uuid5(NAMESPACE_URL, f"gptsh:{ident} {new['created_at']} {at}"))
            message = {**message, "id": own}
        seen.add(own)
        new["messages"].append(message)
    if not given.get("version"):
        _carry(new)
    new["stats"] |= stats(new["messages"], new["stats"]["preview"])
    return new, [*dict.fromkeys(malformed)]


def checked_message(value: Any) -> Message:
    """The message. Raises ValueError where its role, its content or its tool calls are malformed."""
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        raise ValueError("not a session: a message without a role")
    message: Any = value
    content, calls = message.get("content"), message.get("tool_calls")
    parts = content if isinstance(content, list) else [None]
    if not isinstance(content, (str, type(None))) and not all(isinstance(part, dict) for part in parts):
        raise ValueError("not a session: a message whose content is neither text nor parts")
    for call in () if calls is None else calls if isinstance(calls, list) else [None]:
        if not isinstance(call, dict) or not (
            isinstance(call.get("id"), str) and isinstance(call.get("function"), dict)
        ):
            raise ValueError("not a session: a message whose 'tool_calls' are none")
    found: Message = message
    return found


def clean_message(value: object) -> Message:
    """A message without its malformed keys. Raises as ``checked_message``."""
    message: Message = _sound(checked_message(value), _MESSAGE, "", [])
    return message


def _carry(doc: Document) -> None:
    """Keep what the first gptsh knew of the session as a whole, since its messages have no usage.

    ``carried`` is USD, ``carried_tokens`` has TOKEN_KEYS, ``carried_model`` made the answers that name no model.
    """
    usage = doc["usage"]
    if not any(message.get("cost") for message in doc["messages"]):
        usage.setdefault("carried", usage["cost"])
    if not any(message.get("usage") for message in doc["messages"]):
        usage.setdefault("carried_tokens", usage["tokens"])
    usage.setdefault("carried_model", full_name(doc["agent"].get("model"), doc["provider"].get("name")))
    prompt = doc["agent"].get("prompt_system")
    if isinstance(prompt, str):
        doc["agent"] = {"system": prompt, **doc["agent"]}


def is_unsaved(doc: Document) -> bool:
    """Whether the document was never on disk: saving always moves ``updated_at`` beyond ``created_at``."""
    return bool(doc["updated_at"] == doc["created_at"])


# ---- counting


def turns(messages: Sequence[Message]) -> list[int]:
    """Positions at which a turn starts."""
    return [at for at, message in enumerate(messages) if starts_turn(message)]


def stats(messages: Sequence[Message], preview: object = None) -> dict[str, Any]:
    """``turns``, ``messages`` and a ``preview`` of the first question, unless that is known."""
    questions = [message for message in messages if starts_turn(message)]
    if not isinstance(preview, str) or not preview:
        preview = shortened(gist_of(questions[0]), PREVIEW_WIDTH) if questions else ""
    return {"turns": len(questions), "messages": len(messages), "preview": preview}


def add_call(doc: Document, kind: str, model: str, tokens: Mapping[str, Any] | None, cost: float | None) -> None:
    """Enter a call of the small model into the session's ledger, the only place that has its cost.

    ``kind`` is ``title``, ``summary`` or ``memory``; of ``tokens`` the TOKEN_KEYS count; ``cost`` is USD.
    """
    known = {key: tokens[key] for key in TOKEN_KEYS if key in tokens} if tokens else None
    call = {"id": new_message_id(), "kind": kind, "model": model, "tokens": known, "cost": cost, "at": timestamp()}
    doc["usage"] = {**doc["usage"], "calls": [*doc["usage"]["calls"], call]}


def update_totals(doc: Document) -> None:
    """Bring ``stats`` and ``usage.cost`` up to date with messages and calls. Counting twice counts once."""
    usage = doc["usage"]
    doc["stats"] = {**doc["stats"], **stats(doc["messages"], doc["stats"]["preview"])}
    costs = [item.get("cost") for item in (*doc["messages"], *usage["calls"])]
    usage["cost"] = sum_costs([*costs, usage.get("carried")])


def unanswered(messages: Sequence[Message]) -> bool:
    """Whether the last question has no answer, not even a partial one."""
    starts = turns(messages)
    return bool(starts) and all(is_empty(message) for message in messages[starts[-1] + 1 :])


def unfinished(messages: Sequence[Message]) -> bool:
    """Whether the model is to answer: after a question, a tool's result, or calls whose results never came."""
    filled = [message for message in messages if message["role"] != "assistant" or not is_empty(message)]
    return bool(filled and turns(filled)) and (filled[-1]["role"] != "assistant" or bool(filled[-1].get("tool_calls")))


def question_index(messages: Sequence[Message]) -> int:
    """Where the question stands that is to be answered; behind all messages where none is."""
    return turns(messages)[-1] if unfinished(messages) else len(messages)


def is_imported(message: Message) -> bool:
    """Whether a message was imported, and not asked or answered here."""
    return as_dict(as_dict(message).get("source")).get("imported") is True


# ---- cutting


def at_point(doc: Document, point: str) -> Document:
    """The document as it stood at a point: ``N`` after turn N, ``-N`` without the last N turns, a snapshot, or "".

    Raises UnknownSession saying what there is instead.
    """
    from gptsh.core import snapshots  # noqa: PLC0415 - few sessions are cut

    messages, starts, snapshot = doc["messages"], turns(doc["messages"]), None
    end: int | None = None
    if not point:
        end = len(messages)
    elif is_numbered(point):
        turn = len(starts) + int(point) if point.startswith("-") else int(point)
        if 0 <= turn <= len(starts):
            end = [0, *starts[1:], len(messages)][turn] if starts else 0
    elif snapshot := snapshots.named(doc["context"], point):
        at = {message["id"]: place for place, message in enumerate(messages, 1)}
        end = at.get(snapshot.get("message"))
    if end is None:
        there = f"it has {counted(len(starts), 'turn')} and no snapshot named {point!r}"
        raise UnknownSession(f"session {doc['id']} has no point {point!r}", there)
    left = messages[:end]
    return {
        **doc,
        "messages": left,
        "stats": stats(left),
        "context": snapshots.as_of(doc["context"], messages, end, snapshot),
    }


def is_numbered(point: str) -> bool:
    """Whether a point is a number of turns, and no snapshot's name."""
    return bool(re.fullmatch("-?[0-9]{1,9}", point))


# ---- merging


def merge(
    ours: Document,
    theirs: Document,
    *,
    title: str | None = None,
    tags: Sequence[str] = (),
    keep_snapshots: int | None = None,
    moves: bool = False,
) -> Document:
    """Our document joined with the copy on disk, which may have grown since ours was read.

    Every message and every call of the small model of either is kept. ``title`` is one set by hand, ``tags`` are added;
    else the first title wins. A document that brings a message brings ``agent``, ``provider`` and the latest tokens;
    one that ``moves`` the session, the first two. Of both compactions the newer counts; the newest five summaries stay.
    All else is that of the copy on disk.
    """
    new = {**ours, **theirs}
    new["messages"] = join_messages(ours["messages"], theirs["messages"])
    new["title"] = title or theirs["title"] or ours["title"]
    new["meta"] = {**ours["meta"], **theirs["meta"]}
    for key, more in (("mcp_approved", ours["meta"].get("mcp_approved") or ()), ("tags", tags)):
        if more:
            new["meta"][key] = list(dict.fromkeys([*(new["meta"].get(key) or ()), *more]))
    calls = {call["id"]: call for doc in (theirs, ours) for call in doc["usage"]["calls"]}
    new["usage"] = {**ours["usage"], **theirs["usage"], "calls": [*calls.values()]}
    grows = len(new["messages"]) > len(theirs["messages"])
    if grows:
        new["usage"]["tokens"] = ours["usage"]["tokens"]
    if grows or moves:
        new["agent"], new["provider"] = ours["agent"], ours["provider"]
        new["meta"] |= {key: ours["meta"][key] for key in ("mcp_allowed_servers", "output") if key in ours["meta"]}
    own, known = ours["context"], theirs["context"]
    compactions = [record for record in (known["compaction"], own["compaction"]) if record]
    compaction = max(compactions, key=lambda record: record.get("at") or "", default=None)
    summaries = {item["id"]: item for item in (*known["summaries"], *own["summaries"])}
    newest = sorted(summaries.values(), key=lambda item: item.get("created_at") or "")[-_SUMMARIES:]
    used = compaction and compaction.get("summary")
    places = {message["id"]: place for place, message in enumerate(new["messages"])}
    marks: list[str] = [mark for mark in (known["consolidated"], own["consolidated"]) if mark]
    new["context"] = {
        **own,
        **known,
        "compaction": compaction,
        "summaries": [item for item in summaries.values() if item in newest or item["id"] == used],
        "cuts": {**known["cuts"], **own["cuts"]},
        "consolidated": max(marks, key=lambda mark: places.get(mark, -1), default=None),
    }
    if own["snapshots"] or known["snapshots"]:
        from gptsh.core import snapshots  # noqa: PLC0415 - few sessions have any

        new["context"]["snapshots"] = snapshots.merge(ours, theirs, keep_snapshots)
    return new


def join_messages(ours: Sequence[Message], theirs: Sequence[Message]) -> list[Message]:
    """All of theirs, and each of ours that they lack after the last message of its own turn.

    So two turns asked at once stand as question, answer, question, answer.
    """
    known = {message["id"] for message in theirs}
    by_question: dict[str | None, list[Message]] = {None: []}  # in order; None: what stands before any question
    for messages, skipped in ((theirs, set()), (ours, known)):
        question: str | None = None
        for message in messages:
            if starts_turn(message):
                question = message["id"]
            if message["id"] not in skipped:
                by_question.setdefault(question, []).append(message)
    return [message for turn in by_question.values() for message in turn]
