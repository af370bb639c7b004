"""One session as a value: completed, cut at a point, merged with another copy of it, counted. No files here.

docs/file-format.md describes each key.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from gptsh.content.foreign import translated
from gptsh.content.passages import gist_of
from gptsh.jsonio import as_dict, is_cost
from gptsh.messages import (
    Message,
    is_empty,
    new_message_id,
    starts_turn,
    sum_costs,
    timestamp,
)
from gptsh.models.names import full_name
from gptsh.text import counted, shortened

VERSION = 1
PREVIEW_WIDTH = 100
TOKEN_KEYS = ("prompt", "completion", "total", "reasoning_tokens", "cached_tokens")
_SUMMARIES = 5  # kept in a session, besides the one that its compaction uses

Document = dict[str, Any]

# Order in the file. Unknown keys follow these, and messages are last, so a listing reads the head alone.
_KEYS = ("version", "id", "title", "created_at", "updated_at", "provider", "usage", "stats", "meta", "agent", "context")


def blank(ident: str, moment: str) -> Document:
    """A document without messages."""
    return {
        "version": VERSION,
        "id": ident,
        "title": None,
        "created_at": moment,
        "updated_at": moment,
        "provider": {"name": None},
        "usage": {"tokens": dict.fromkeys(TOKEN_KEYS), "cost": None, "calls": []},
        "stats": {"turns": 0, "messages": 0, "preview": ""},
        "meta": {},
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


def _list_of(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _is(*kinds: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kinds)


def _record(*, text: str = "", number: str = "", table: str = "", cost: str = "") -> Callable[[object], bool]:
    """A table in which each named key has its type, or null, or is absent."""
    kinds: dict[str, Callable[[object], bool]] = dict.fromkeys(text.split(), _text)
    kinds |= dict.fromkeys(number.split(), _is(int)) | dict.fromkeys(table.split(), _is(dict))
    kinds |= dict.fromkeys(cost.split(), is_cost)
    return lambda value: (
        isinstance(value, dict)
        and all(item is None or key not in kinds or kinds[key](item) for key, item in value.items())
    )


def _identified(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: fits(value) and isinstance(as_dict(value).get("id"), str)


def _is_cut(value: object) -> bool:
    """Which part of a message, and from where to where its text is left out."""
    return isinstance(value, list) and len(value) == 3 and all(isinstance(item, int) for item in value)


_text = _is(str)
# What the code relies on, but for messages; null and absent are always right. A name with a dot is a key of a table.
_SHAPE: dict[str, Callable[[object], bool]] = {
    "version": _is(int), "title": _text, "created_at": _is_time, "updated_at": _is_time,
    **dict.fromkeys(("provider", "usage", "stats", "meta", "agent", "context"), _is(dict)),
    **dict.fromkeys(("provider.name", "agent.name", "agent.model", "agent.model_small", "agent.system"), _text),
    **dict.fromkeys(("meta.output", "meta.cwd", "meta.project", "meta.forked_from", "meta.imported_at"), _text),
    **dict.fromkeys(("agent.params", "meta.imported", "usage.tokens", "usage.carried_tokens"), _is(dict)),
    "context.cuts": lambda value: isinstance(value, dict) and all(map(_list_of(_is_cut), value.values())),
    "usage.cost": is_cost, "usage.carried": is_cost, "usage.carried_model": _text, "context.consolidated": _text,
    "context.compaction": _record(text="id at strategy upto summary pruned", number="before after room budget kept"),
}  # fmt: skip
# Lists of which a malformed item is left out, and the others stay.
_LISTS: dict[str, Callable[[object], bool]] = {
    "usage.calls": _identified(_record(text="kind model at", table="tokens", cost="cost")),
    "context.summaries": _identified(_record(text="created_at first last until text model", number="messages tokens")),
    **dict.fromkeys(("meta.tags", "meta.mcp_allowed_servers", "meta.mcp_approved"), _text),
    "context.snapshots": _identified(_record(text="name created_at message reason", number="tokens")),
}
# Of a message; all other keys are kept as they are.
_MESSAGE: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(["id", "parent", "timestamp", "agent", "provider", "model", "resolved_model"], _text),
    **dict.fromkeys(["request_id", "response_id"], _text),
    **dict.fromkeys(["finish_reason", "stop_sequence", "compaction", "tool_call_id", "name", "refusal"], _text),
    **dict.fromkeys(("thinking", "order"), _is(list)),
    **dict.fromkeys(("usage", "replay"), _is(dict)),
    "duration_ms": _is(int, float), "cost": is_cost,
}  # fmt: skip


def complete(value: object, ident: str | None = None, moment: str | None = None) -> tuple[Document, list[str]]:
    """What a file holds as a document with all its keys, and the names of its malformed keys, which are left out.

    ``ident`` and ``moment`` come from the file's name: the first is the session's id whatever the file says, the second
    the time of a session that has none. A version of 0, or none, is the first gptsh: seconds in its times, no ids on
    its messages. Their ids are derived, so that every reader of one file gives a message the same one.
    Raises ValueError for what has no readable messages.
    """
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        raise ValueError("not a session: no JSON object with a list of 'messages'")
    given, malformed = _sound(value)
    ident = ident or str(given.get("id") or "")
    began = given.get("created_at") or (moment if _is_time(moment) else None)
    new = blank(ident, began or "1970-01-01T00:00:00.000Z")
    for key, item in given.items():
        if isinstance(item, dict) and isinstance(new.get(key), dict):
            new[key] = {
                **new[key],
                **{name: inner for name, inner in item.items() if inner is not None or name not in new[key]},
            }
        elif item is not None or key not in new:
            new[key] = item
    new |= {"id": ident, "version": max(given.get("version") or 0, VERSION)}
    read: list[Message] = []
    for at, message in enumerate(value["messages"]):
        sound, wrong = check_message(message)
        malformed += [f"messages[{at}].{key}" for key in wrong]
        read += translated(sound)
    messages: list[Message] = []
    seen: set[str] = set()
    for at, sound in enumerate(read):
        own = sound.get("id")
        if not own or own in seen:
            from uuid import NAMESPACE_URL, uuid5  # noqa: PLC0415 - 2 ms that few files need

            own = str(uuid5(NAMESPACE_URL, f"gptsh:{ident} {new['created_at']} {at}"))
            sound = {**sound, "id": own}
        seen.add(own)
        messages.append(sound)
    new["messages"] = messages
    if not given.get("version"):
        _carry(new)
    new["stats"] = {**new["stats"], **stats(messages)}
    return new, malformed


def _sound(value: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The document without its malformed keys, its messages aside, and the names of these keys."""
    sound, malformed = dict(value), []
    for name, fits in _SHAPE.items():
        table, _, key = name.rpartition(".")
        holder = sound.get(table) if table else sound
        if isinstance(holder, dict) and holder.get(key) is not None and not fits(holder[key]):
            malformed.append(name)
            rest = {other: item for other, item in holder.items() if other != key}
            sound = {**sound, table: rest} if table else rest
    for name, fits in _LISTS.items():
        table, _, key = name.rpartition(".")
        items = as_dict(sound.get(table)).get(key)
        if items is not None and not _list_of(fits)(items):
            malformed.append(name)
            left = [item for item in items if fits(item)] if isinstance(items, list) else []
            sound = {**sound, table: {**sound[table], key: left}}
    return sound, malformed


def check_message(value: object) -> tuple[Message, list[str]]:
    """A message without its malformed keys, and their names.

    Raises ValueError where its role, its content or its tool calls are malformed: then it cannot be read.
    """
    message: Any = value
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise ValueError("not a session: a message without a role")
    content, calls = message.get("content"), message.get("tool_calls")
    parts = content if isinstance(content, list) else (None,)
    if not isinstance(content, (str, type(None))) and not all(isinstance(part, dict) for part in parts):
        raise ValueError("not a session: a message whose content is neither text nor parts")
    for call in () if calls is None else calls if isinstance(calls, list) else (calls,):
        if (
            not isinstance(call, dict)
            or not isinstance(call.get("id"), str)
            or not isinstance(call.get("function"), dict)
        ):
            raise ValueError("not a session: a message whose 'tool_calls' are none")
    wrong = [key for key, item in message.items() if key in _MESSAGE and item is not None and not _MESSAGE[key](item)]
    sound: Any = {key: item for key, item in message.items() if key not in wrong} if wrong else message
    return sound, wrong


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


def ordered(doc: Document) -> Document:
    """The document in the order of the file: known keys, unknown keys, messages."""
    known = {key: doc[key] for key in _KEYS if key in doc}
    return {**known, **{k: v for k, v in doc.items() if k != "messages"}, "messages": doc["messages"]}


# ---- counting


def turns(messages: Sequence[Message]) -> list[int]:
    """Positions at which a turn starts."""
    return [at for at, message in enumerate(messages) if starts_turn(message)]


def stats(messages: Sequence[Message]) -> dict[str, Any]:
    """``turns``, ``messages`` and a ``preview`` of the first question."""
    starts = turns(messages)
    preview = shortened(gist_of(messages[starts[0]]), PREVIEW_WIDTH) if starts else ""
    return {"turns": len(starts), "messages": len(messages), "preview": preview}


def add_call(doc: Document, kind: str, model: str, tokens: Mapping[str, Any] | None, cost: float | None) -> None:
    """Enter a call of the small model into the session's ledger, the only place that has its cost.

    ``kind`` is ``title``, ``summary`` or ``memory``; of ``tokens`` the TOKEN_KEYS count; ``cost`` is USD.
    """
    known = {key: tokens[key] for key in TOKEN_KEYS if key in tokens} if tokens else None
    call = {"id": new_message_id(), "kind": kind, "model": model, "tokens": known, "cost": cost, "at": timestamp()}
    doc["usage"] = {**doc["usage"], "calls": [*doc["usage"]["calls"], call]}


def count(doc: Document) -> None:
    """Bring ``stats`` and ``usage.cost`` up to date with messages and calls. Counting twice counts once."""
    usage = doc["usage"]
    doc["stats"] = {**doc["stats"], **stats(doc["messages"])}
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


def approved_tools(doc: Document) -> list[str]:
    """The tools that the user has allowed for good in this session."""
    return doc["meta"].get("mcp_approved") or []


def tags_of(doc: Document) -> list[str]:
    """The tags of a document."""
    return doc["meta"].get("tags") or []


def is_imported(message: Message) -> bool:
    """Whether a message was imported, and not asked or answered here."""
    return as_dict(as_dict(message).get("source")).get("imported") is True


# ---- cutting


def at_point(doc: Document, point: str) -> Document:
    """The document as it stood at a point: ``N`` after turn N, ``-N`` without the last N turns, a snapshot, or "".

    Raises ValueError saying what there is instead.
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
        raise ValueError(f"it has {counted(len(starts), 'turn')} and no snapshot named {point!r}")
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


def same_session(one: Document, other: Document) -> bool:
    """Whether two documents with one id are copies of one session, not two that share an id by chance."""
    if one["created_at"] == other["created_at"]:
        return True
    ids = {message["id"] for message in one["messages"]}
    return any(message["id"] in ids for message in other["messages"])


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
    if approved := [*approved_tools(theirs), *approved_tools(ours)]:
        new["meta"]["mcp_approved"] = list(dict.fromkeys(approved))
    if tags:
        new["meta"]["tags"] = list(dict.fromkeys([*tags_of(new), *tags]))
    calls = {call["id"]: call for doc in (theirs, ours) for call in doc["usage"]["calls"]}
    new["usage"] = {**ours["usage"], **theirs["usage"], "calls": [*calls.values()]}
    grows = len(new["messages"]) > len(theirs["messages"])
    if grows:
        new["usage"]["tokens"] = ours["usage"]["tokens"]
    if grows or moves:
        new["agent"], new["provider"] = ours["agent"], ours["provider"]
        new["meta"] |= {key: ours["meta"][key] for key in ("mcp_allowed_servers", "output") if key in ours["meta"]}
    new["context"] = _merged_context(ours, theirs, new["messages"], keep_snapshots)
    return new


def _merged_context(ours: Document, theirs: Document, messages: Sequence[Message], keep: int | None) -> dict[str, Any]:
    own, known = ours["context"], theirs["context"]
    new = {**own, **known, "cuts": {**known["cuts"], **own["cuts"]}}
    compactions = [record for record in (known["compaction"], own["compaction"]) if record]
    new["compaction"] = max(compactions, key=lambda record: record.get("at") or "", default=None)
    summaries = {item["id"]: item for item in (*known["summaries"], *own["summaries"])}
    newest = sorted(summaries.values(), key=lambda item: item.get("created_at") or "")[-_SUMMARIES:]
    used = (new["compaction"] or {}).get("summary")
    new["summaries"] = [item for item in summaries.values() if item in newest or item["id"] == used]
    if own["snapshots"] or known["snapshots"]:
        from gptsh.core import snapshots  # noqa: PLC0415 - few sessions have any

        new["snapshots"] = snapshots.merge(ours, theirs, keep)
    places = {message["id"]: place for place, message in enumerate(messages)}
    marks: list[str] = [mark for mark in (known["consolidated"], own["consolidated"]) if mark]
    new["consolidated"] = max(marks, key=lambda mark: places.get(mark, -1), default=None)
    return new


def join_messages(ours: Sequence[Message], theirs: Sequence[Message]) -> list[Message]:
    """All of theirs, and each of ours that they lack after the last message of its own turn.

    So two turns asked at once stand as question, answer, question, answer.
    """
    known = {message["id"] for message in theirs}
    turns_by_question: dict[str | None, list[Message]] = {None: []}  # in order; None: what stands before any question
    for turn in (_by_turn(theirs), _by_turn(ours, without=known)):
        for question, messages in turn.items():
            turns_by_question.setdefault(question, []).extend(messages)
    return [message for messages in turns_by_question.values() for message in messages]


def _by_turn(messages: Sequence[Message], without: Collection[str] = ()) -> dict[str | None, list[Message]]:
    """The messages under the id of the question that began their turn."""
    found: dict[str | None, list[Message]] = {}
    question: str | None = None
    for message in messages:
        if starts_turn(message):
            question = message["id"]
        if message["id"] not in without:
            found.setdefault(question, []).append(message)
    return found


def end_of_turn(messages: Sequence[Message], member: str | None) -> int:
    """Where the turn of a message ends, given its id; the end of all for None and for an unknown one."""
    last = len(messages) - 1
    at = next((place for place in range(last, -1, -1) if messages[place]["id"] == member), last) + 1
    while at < len(messages) and not starts_turn(messages[at]):
        at += 1
    return at
