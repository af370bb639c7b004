"""A session document as a value: migrated, cut at a point, counted, and united with another copy.

No files here. ``core/sessions.py`` keeps documents on disk and calls these under its lock.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gptsh.content.media import gist_of
from gptsh.jsonio import as_dict, is_cost
from gptsh.messages import Message, is_empty, just_after, starts_turn, sum_costs, timestamp
from gptsh.models.names import full_name
from gptsh.text import counted, shortened

VERSION = 1
PREVIEW_WIDTH = 100
TOKEN_KEYS = ("prompt", "completion", "total", "reasoning_tokens", "cached_tokens")

Document = dict[str, Any]

# Order in the file. Unknown keys stand behind these, and messages are last, so a listing reads the head alone.
_KEYS = ("version", "id", "title", "created_at", "updated_at", "provider", "usage", "stats", "meta", "agent", "context")


def migrate(doc: Document) -> Document:
    """A document of any older version in today's shape: a new dict, the old one untouched.

    Version 0 is the first gptsh: seconds in its times, no ids on its messages, no stats. The ids are derived,
    so that every reader of the same file gives a message the same one.
    """
    from gptsh.core import snapshots  # noqa: PLC0415 - a list reads no session whole

    moment = doc.get("created_at") or "1970-01-01T00:00:00Z"
    blank: Document = {
        "version": VERSION,
        "title": None,
        "created_at": moment,
        "updated_at": moment,
        "provider": {"name": None},
        "usage": {"tokens": dict.fromkeys(TOKEN_KEYS), "cost": None},
        "meta": {},
        "agent": {},
        "context": snapshots.blank_context(),
    }
    new = {**blank, **doc, "version": max(doc.get("version", 0), VERSION)}
    for table in ("usage", "context"):
        given = {key: value for key, value in new[table].items() if value is not None or key not in blank[table]}
        new[table] = {**blank[table], **given}
    if is_unsaved(new):
        new["updated_at"] = just_after(moment)
    if not doc.get("version"):
        _carry(new)
    new["messages"] = _with_ids(doc["messages"], f"{doc['id']} {moment}")
    new["stats"] = {**new.get("stats", {}), **stats(new["messages"])}
    return new


def _carry(doc: Document) -> None:
    """Note what the first gptsh knew of the session as a whole, where it is looked for now.

    The next turn takes the place of its usage elsewhere: ``carried`` is USD, ``carried_tokens`` has TOKEN_KEYS,
    ``carried_model`` made the answers that name no model.
    """
    usage = doc["usage"]
    if not any(message.get("cost") for message in doc["messages"]):
        usage.setdefault("carried", usage["cost"] if is_cost(usage["cost"]) else None)
    if not any(message.get("usage") for message in doc["messages"]):
        usage.setdefault("carried_tokens", usage["tokens"])
    usage.setdefault("carried_model", full_name(doc["agent"].get("model"), doc["provider"].get("name")))
    prompt = doc["agent"].get("prompt_system")
    if isinstance(prompt, str):
        doc["agent"] = {"system": prompt, **doc["agent"]}


def _with_ids(messages: Sequence[Message], place: str) -> list[Message]:
    """The messages, one without an id or with another's given one from its position."""
    seen: set[str] = set()
    identified: list[Message] = []
    for at, message in enumerate(messages):
        own = message.get("id")
        ident = own if own and own not in seen else _derived_id(f"{place} {at}")
        seen.add(ident)
        identified.append(message if ident == own else {**message, "id": ident})
    return identified


def _derived_id(place: str) -> str:
    from uuid import NAMESPACE_URL, uuid5  # noqa: PLC0415 - 2 ms that only an old file needs

    return str(uuid5(NAMESPACE_URL, f"gptsh:{place}"))


def is_unsaved(doc: Document) -> bool:
    """Whether the document was never on disk: saving always moves ``updated_at`` beyond ``created_at``."""
    return bool(doc["updated_at"] == doc["created_at"])


def touch(doc: Document) -> None:
    """Set ``updated_at`` to now."""
    now = timestamp()
    doc["updated_at"] = now if now > doc["created_at"] else just_after(doc["created_at"])


def turns(messages: Sequence[Message]) -> list[int]:
    """Positions at which a turn starts."""
    return [at for at, message in enumerate(messages) if starts_turn(message)]


def stats(messages: Sequence[Message]) -> dict[str, Any]:
    """``turns``, ``messages`` and a ``preview`` of the first question."""
    starts = turns(messages)
    preview = shortened(gist_of(messages[starts[0]]), PREVIEW_WIDTH) if starts else ""
    return {"turns": len(starts), "messages": len(messages), "preview": preview}


def count(doc: Document) -> None:
    """Bring ``stats`` and ``usage.cost`` up to date with the messages. Counting twice counts once."""
    usage, context = doc["usage"], doc["context"]
    doc["stats"] = {**doc.get("stats", {}), **stats(doc["messages"])}
    costs = [item.get("cost") for item in (*doc["messages"], *context.get("summaries", ()))]
    costs += [item.get("cost") for item in usage.get("memory_costs") or ()]
    usage["cost"] = sum_costs([*costs, usage.get("title_cost"), usage.get("carried")])


def ordered(doc: Document) -> Document:
    """The document in the order of the file: known keys, unknown keys, messages."""
    known = {key: doc[key] for key in _KEYS if key in doc}
    return {**known, **{k: v for k, v in doc.items() if k != "messages"}, "messages": doc["messages"]}


def same_session(one: Document, other: Document) -> bool:
    """Whether two documents with one id are copies of one session, not two that share an id by chance."""
    if one["created_at"] == other["created_at"]:
        return True
    ids = {message["id"] for message in one["messages"]}
    return any(message["id"] in ids for message in other["messages"])


def unanswered(messages: Sequence[Message]) -> bool:
    """Whether the last question has no answer, not even a partial one."""
    starts = turns(messages)
    return bool(starts) and all(is_empty(message) for message in messages[starts[-1] + 1 :])


def unfinished(messages: Sequence[Message]) -> bool:
    """Whether the model has the word: behind a question, a tool's result, or calls whose results never came."""
    said = [message for message in messages if message["role"] != "assistant" or not is_empty(message)]
    return bool(said and turns(said)) and (said[-1]["role"] != "assistant" or bool(said[-1].get("tool_calls")))


def at_point(doc: Document, point: str) -> Document:
    """The document as it stood at a point: ``N`` after turn N, ``-N`` without the last N turns, a snapshot, or "".

    Raises ValueError saying what there is instead.
    """
    from gptsh.core import snapshots  # noqa: PLC0415 - as above

    messages, snapshot = doc["messages"], None
    end = len(messages) if not point else _end_of_numbered(messages, point)
    if end is None:
        snapshot = snapshots.named(doc["context"], point)
        at = {message["id"]: place for place, message in enumerate(messages, 1)}
        end = at.get(snapshot.get("message", "")) if snapshot else None
    if end is None:
        raise ValueError(f"it has {counted(len(turns(messages)), 'turn')} and no snapshot named {point!r}")
    left, context = messages[:end], snapshots.as_of(doc["context"], messages, end, snapshot)
    return {**doc, "messages": left, "stats": stats(left), "context": context}


def is_numbered(point: str) -> bool:
    """Whether a point is a number of turns, and no snapshot's name."""
    return bool(re.fullmatch("-?[0-9]{1,9}", point))


def _end_of_numbered(messages: Sequence[Message], point: str) -> int | None:
    if not is_numbered(point):
        return None
    starts = turns(messages)
    turn = len(starts) + int(point) if point.startswith("-") else int(point)
    if not 0 <= turn <= len(starts):
        return None
    return [0, *starts[1:], len(messages)][turn] if starts else 0


def union(
    ours: Document,
    theirs: Document,
    *,
    title: str | None,
    tags: Sequence[str],
    keep_snapshots: int | None = None,
    moves: bool = False,
) -> Document:
    """Our document joined with the copy on disk, which may have grown since ours was read.

    Every message of either is kept. ``title`` is one set by hand, ``tags`` are added; else the first title wins. Who
    brings a message brings ``agent``, ``provider`` and the latest tokens; who ``moves`` the session, the first two.
    Summaries, snapshots and the compaction join as ``snapshots.united`` says, what was truncated counts of both; all
    else is of the copy on disk.
    """
    from gptsh.core import snapshots  # noqa: PLC0415 - as above

    new = {**ours, **theirs}
    new["messages"] = join_messages(ours["messages"], theirs["messages"])
    new["title"] = title or theirs["title"] or ours["title"]
    new["meta"] = {**ours["meta"], **theirs["meta"]}
    if allowed := [*approved_tools(theirs), *approved_tools(ours)]:
        new["meta"]["mcp_approved"] = list(dict.fromkeys(allowed))
    if tags:
        new["meta"]["tags"] = list(dict.fromkeys([*tags_of(new), *tags]))
    new["usage"] = {**_without_title(ours["usage"], theirs["usage"]), **theirs["usage"]}
    grows = len(new["messages"]) > len(theirs["messages"])
    if grows:
        new["usage"]["tokens"] = ours["usage"]["tokens"]
    if grows or moves:
        new["agent"], new["provider"] = ours["agent"], ours["provider"]
        if "mcp_allowed_servers" in ours["meta"]:
            new["meta"]["mcp_allowed_servers"] = ours["meta"]["mcp_allowed_servers"]
    new["context"] = {**ours["context"], **theirs["context"], **snapshots.united(ours, theirs, keep_snapshots)}
    new["context"]["cuts"] = {**(theirs["context"].get("cuts") or {}), **(ours["context"].get("cuts") or {})}
    new["context"]["consolidated"] = further(new["messages"], ours, theirs)
    paid = {item["id"]: item for doc in (theirs, ours) for item in doc["usage"].get("memory_costs") or ()}
    if paid:
        new["usage"]["memory_costs"] = [*paid.values()]
    return new


def further(messages: Sequence[Message], ours: Document, theirs: Document) -> str | None:
    """Of both copies' positions in the agent's memory the one behind the other."""
    at = {message["id"]: place for place, message in enumerate(messages)}
    known: list[str] = [ident for doc in (theirs, ours) if (ident := doc["context"].get("consolidated"))]
    return max(known, key=lambda ident: at.get(ident, -1), default=None)


def only_remembered(new: Document, old: Document) -> bool:
    """Whether all that a copy has beyond the other is how far the agent's memory has come, and what that cost."""
    return new != old and _without_memory(new) == _without_memory(old)


def _without_memory(doc: Document) -> Document:
    aside = {"context": "consolidated", "usage": "memory_costs"}
    inner = {name: {key: value for key, value in doc[name].items() if key != own} for name, own in aside.items()}
    return {**doc, **inner}


def approved_tools(doc: Document) -> list[str]:
    """The tools that the user has allowed for good in this session."""
    known = doc["meta"].get("mcp_approved")
    return [name for name in known if isinstance(name, str)] if isinstance(known, list) else []


def _without_title(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Our usage without the model of a title whose cost is not ours: the two belong together."""
    return {key: value for key, value in ours.items() if key != "title_model" or "title_cost" not in theirs}


def join_messages(ours: Sequence[Message], theirs: Sequence[Message]) -> list[Message]:
    """All of theirs, and each of ours that they lack behind the last message of its own turn.

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


def tags_of(head: Mapping[str, Any]) -> list[str]:
    """The tags of a document or of its head."""
    return [tag for tag in head["meta"].get("tags") or () if isinstance(tag, str)]


def is_imported(message: Message) -> bool:
    """Whether a message was brought in from elsewhere, and not said here."""
    return as_dict(as_dict(message).get("source")).get("imported") is True
