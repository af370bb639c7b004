"""Split a session into turns, cut it at an earlier point, and join two versions of it."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, cast

from gptsh.core.document import Document, stats
from gptsh.errors import UnknownSession, UsageError
from gptsh.jsonio import as_dict
from gptsh.messages import Message, is_empty, starts_turn, timestamp
from gptsh.text import quantity

if TYPE_CHECKING:
    from gptsh.core.document_types import Compaction, ContextState, LedgerEntry, Summary

# ---- turns
#
# The turns of a session: where they start, which have no answer yet, the session cut at a point
# (``REF@POINT``).


def starts_of(messages: Sequence[Message]) -> list[int]:
    """Return the index of each message that starts a turn."""
    return [index for index, message in enumerate(messages) if starts_turn(message)]


def unanswered(messages: Sequence[Message]) -> bool:
    """Return whether the last question has no answer, not even a partial one."""
    starts = starts_of(messages)
    return bool(starts) and all(map(is_empty, messages[starts[-1] + 1 :]))


def unfinished(messages: Sequence[Message]) -> bool:
    """Return whether the model has to answer: a question, a tool result, or open calls."""
    for message in reversed(messages):
        if message["role"] != "assistant" or message.get("tool_calls"):
            return any(map(starts_turn, messages))
        if not is_empty(message):
            break
    return False


def unfinished_turns(messages: Sequence[Message]) -> list[str]:
    """Return the ids of the questions whose turns the model has not finished."""
    return [turn[0]["id"] for turn in split_turns(messages) if unfinished(turn)]


def split_turns(messages: Sequence[Message]) -> list[Sequence[Message]]:
    """Return the messages of each turn, the question first."""
    ranges = pairwise([*starts_of(messages), len(messages)])
    return [messages[start:end] for start, end in ranges]


def without_turns(messages: Sequence[Message], questions: Collection[str]) -> list[Message]:
    """Return the messages without the turns that begin with these questions, by id."""
    remaining = []
    for question, message in _by_question(messages):
        if question not in questions:
            remaining.append(message)
    return remaining


def _by_question(messages: Iterable[Message]) -> Iterator[tuple[str | None, Message]]:
    """Yield each message after the id of its turn's question; None before the first question."""
    question = None
    for message in messages:
        if starts_turn(message):
            question = message["id"]
        yield question, message


def question_index(messages: Sequence[Message]) -> int:
    """Return the index of the question to be answered; the number of messages for none."""
    if not unfinished(messages):
        return len(messages)
    return starts_of(messages)[-1]


def last_turn(messages: Sequence[Message]) -> tuple[list[Message], str]:
    """Return the messages of the last turn, and the point before it. Raises UsageError for none."""
    starts = starts_of(messages)
    if not starts:
        raise UsageError("there is no turn yet")
    turn = list(messages[starts[-1] :])
    point = str(len(starts) - 1)
    return turn, point


def asked_again(question: Message) -> Message:
    """Return a new question with the words and attachments of another one."""
    again = {key: question[key] for key in ("role", "content", "input") if key in question}
    return cast(Message, again)


def is_imported(message: Message) -> bool:
    """Return whether a message was imported rather than asked or answered here."""
    return as_dict(message.get("source")).get("imported") is True


# ---- cutting


def at_point(doc: Document, point: str) -> Document:
    """Return the document at a point.

    A point is after turn ``N``, before the last N turns (``-N``), at a snapshot, or now ("").
    Raises UnknownSession, which names the number of turns, if there is no such point.
    """
    from gptsh.core import snapshots

    messages = doc["messages"]
    snapshot = None
    end: int | None = None
    if not point:
        end = len(messages)
    elif is_numbered(point):
        end = _end_of_turn(messages, point)
    else:
        snapshot = snapshots.find(doc["context"], point)
        if snapshot:
            # A program may have removed the message: then the snapshot is no point.
            end = count_up_to(messages, snapshot.get("message")) or None
    if end is None:
        turns = quantity(len(starts_of(messages)), "turn")
        available = f"it has {turns} and no snapshot of this name"
        raise UnknownSession(f"session {doc['id']} has no point {point!r}", available)

    remaining = messages[:end]
    return {
        **doc,
        "messages": remaining,
        "stats": stats(remaining),
        "context": snapshots.context_at(doc["context"], messages, end, snapshot),
    }


def count_up_to(messages: Sequence[Message], message_id: str | None) -> int:
    """Return the number of messages up to and including one; 0 if there is none with this id."""
    for number, message in enumerate(messages, start=1):
        if message["id"] == message_id:
            return number
    return 0


def _end_of_turn(messages: Sequence[Message], point: str) -> int | None:
    """Return how many messages there are up to turn ``N``, or before the last N turns (``-N``)."""
    starts = starts_of(messages)
    ends = [0]
    if starts:
        # A turn ends where the next one starts, the last one at the end of the session.
        ends += [*starts[1:], len(messages)]
    number = int(point)
    if point.startswith("-"):
        number += len(starts)
    return ends[number] if 0 <= number < len(ends) else None


def is_numbered(point: str) -> bool:
    """Return whether a point is a number of turns rather than a snapshot's name."""
    return bool(re.fullmatch("-?[0-9]{1,9}", point))


# ---- merge
#
# The union of two versions of one session, as each save joins its document with the file: no
# message is ever lost.

_MAX_SUMMARIES = 5  # in a session, besides the one that its compaction uses
_MAX_PROJECTS = 20  # in which a session was used; more would make its head slow to read


def merge(ours: Document, theirs: Document) -> Document:
    """Merge our document with the copy on disk, which may have grown since ours was read.

    All messages, uses and calls of the small model are kept, and the first title. If ours adds a
    message, its ``agent``, ``provider`` and token counts win. All other keys come from the disk.
    """
    messages = join_messages(ours["messages"], theirs["messages"])
    calls: dict[str, LedgerEntry] = {}
    for call in (*theirs["usage"]["calls"], *ours["usage"]["calls"]):
        stored_call = calls.get(call["id"])
        if stored_call is None or stored_call.get("late"):  # another process answered a late one
            calls[call["id"]] = call
    new: Document = {
        **ours,
        **theirs,
        "title": theirs["title"] or ours["title"],
        "usage": {
            **ours["usage"],
            **theirs["usage"],
            "calls": list(calls.values()),
        },
        "meta": {**ours["meta"], **theirs["meta"]},
        "context": _merge_context(ours, theirs, messages),
        "messages": messages,
    }
    used_in = _latest_uses(theirs["meta"].get("used_in"), ours["meta"].get("used_in"))
    if used_in:  # a session that was imported has none
        new["meta"]["used_in"] = used_in
    if len(messages) > len(theirs["messages"]):  # the latest answer is ours
        new["usage"]["tokens"] = ours["usage"]["tokens"]
        take_agent(new, ours)
    return new


def take_agent(doc: Document, source: Document) -> None:
    """Let the next turn of ``doc`` be answered by the agent, provider and tools of ``source``."""
    doc["agent"] = source["agent"]
    doc["provider"] = source["provider"]
    meta = source["meta"]
    if "mcp_allowed_servers" in meta:
        doc["meta"]["mcp_allowed_servers"] = meta["mcp_allowed_servers"]
    if "output" in meta:
        doc["meta"]["output"] = meta["output"]


def record_use(doc: Document, project: str) -> None:
    """Record that a turn begins now in this project, for ``-c``."""
    used_in = _latest_uses(doc["meta"].get("used_in"), {project: timestamp()})
    doc["meta"] = {**doc["meta"], "used_in": used_in}


def _latest_uses(uses: dict[str, str] | None, others: dict[str, str] | None) -> dict[str, str]:
    """Return the time of the last turn in each project; only the projects that were used last."""
    latest: dict[str, str] = {}
    now = timestamp()
    for table in (uses or {}, others or {}):
        for project, used in table.items():
            used = min(used, now)  # the clock of another machine may be ahead
            latest[project] = max(used, latest.get(project, ""))

    by_time = sorted(latest, key=lambda project: latest[project])
    newest = by_time[-_MAX_PROJECTS:]
    return {project: latest[project] for project in newest}


def _merge_context(ours: Document, theirs: Document, messages: Sequence[Message]) -> "ContextState":
    """Join the contexts of two documents, whose ``messages`` are joined already.

    The result has the newer compaction, its summary and the newest ones, all cuts and noted texts,
    and the later end of the memory.
    """
    own = ours["context"]
    stored = theirs["context"]
    compaction = _newer_compaction(own, stored)
    snapshots = stored["snapshots"]
    if own["snapshots"]:
        from gptsh.core.snapshots import join_new

        snapshots = join_new(snapshots, own["snapshots"], ours["updated_at"])
    return {
        **own,
        **stored,
        "compaction": compaction,
        "summaries": _join_summaries(own, stored, compaction),
        "snapshots": snapshots,
        "cuts": {**stored["cuts"], **own["cuts"]},
        "noted": {**stored["noted"], **own["noted"]},
        "consolidated": _last_consolidated(own, stored, messages),
    }


def _newer_compaction(own: "ContextState", stored: "ContextState") -> "Compaction | None":
    """Return the newer compaction of two contexts, the stored one if both have the same time."""
    mine = own["compaction"]
    other = stored["compaction"]
    if not mine or not other:
        return mine or other or None
    is_newer = (mine.get("at") or "") > (other.get("at") or "")
    return mine if is_newer else other


def _join_summaries(
    own: "ContextState",
    stored: "ContextState",
    compaction: "Compaction | None",
) -> "list[Summary]":
    """Return the newest summaries of both contexts, and that of the compaction."""
    summaries = {item["id"]: item for item in (*stored["summaries"], *own["summaries"])}
    by_age = sorted(summaries.values(), key=lambda item: item.get("created_at") or "")
    kept_ids = {item["id"] for item in by_age[-_MAX_SUMMARIES:]}
    if compaction and compaction.get("summary"):
        kept_ids.add(str(compaction["summary"]))
    return [item for item in summaries.values() if item["id"] in kept_ids]


def _last_consolidated(
    own: "ContextState",
    stored: "ContextState",
    messages: Sequence[Message],
) -> str | None:
    """Return the id of the last message that the memory has, by either context."""
    ends = (stored["consolidated"], own["consolidated"])
    for message in reversed(messages):
        if message["id"] in ends:
            return message["id"]
    return ends[0] or ends[1]


def add_keys(theirs: list[Message], ours: Sequence[Message]) -> None:
    """Give their messages the keys that only ours have, as a program may add some.

    Others stay as they are on disk.
    """
    our_messages = {message["id"]: message for message in ours}
    for index, message in enumerate(theirs):
        our_message = our_messages.get(message["id"])
        if our_message is not None and not our_message.keys() <= message.keys():
            theirs[index] = {**our_message, **message}


def join_messages(ours: Sequence[Message], theirs: Sequence[Message]) -> list[Message]:
    """Return theirs, with each of ours that they lack after the last message of its own turn.

    Two turns asked in parallel become question, answer, question, answer.
    """
    their_ids = {message["id"] for message in theirs}
    # The turns in order, by the id of their question; None is for what is before the first one.
    turns: dict[str | None, list[Message]] = {None: []}
    for question, message in _by_question(theirs):
        turns.setdefault(question, []).append(message)
    for question, message in _by_question(ours):
        if message["id"] not in their_ids:
            turns.setdefault(question, []).append(message)
    return list(chain.from_iterable(turns.values()))
