"""Split a session into turns, show it as it was at an earlier point, and join two versions of it."""

import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from gptsh.core.document import Document, stats
from gptsh.errors import UnknownSession, UsageError
from gptsh.jsonio import as_dict
from gptsh.messages import Message, is_empty, starts_turn, timestamp
from gptsh.text import quantity

if TYPE_CHECKING:
    from gptsh.core.document_types import ContextState, LedgerEntry, Meta

# ---- turns
#
# The turns of a session: where they start, which have no answer yet, the session cut at a point
# (``REF@POINT``).


def starts_of(messages: Sequence[Message]) -> list[int]:
    """The index of each message that starts a turn."""
    return [index for index, message in enumerate(messages) if starts_turn(message)]


def unanswered(messages: Sequence[Message]) -> bool:
    """Whether the last question has no answer, not even a partial one."""
    starts = starts_of(messages)
    return bool(starts) and all(is_empty(message) for message in messages[starts[-1] + 1 :])


def unfinished(messages: Sequence[Message]) -> bool:
    """Whether the model has to answer: after a question, a tool result, or tool calls without results."""
    for message in reversed(messages):
        if message["role"] != "assistant" or message.get("tool_calls"):
            return any(map(starts_turn, messages))
        if not is_empty(message):
            break
    return False


def unfinished_turns(messages: Sequence[Message]) -> list[str]:
    """The ids of the questions whose turns the model has not finished."""
    ranges = pairwise([*starts_of(messages), len(messages)])
    return [messages[start]["id"] for start, end in ranges if unfinished(messages[start:end])]


def without_turns(messages: Sequence[Message], questions: Collection[str]) -> list[Message]:
    """Return the messages without the turns that begin with these questions, by id."""
    remaining, is_left_out = [], False
    for message in messages:
        if starts_turn(message):
            is_left_out = message["id"] in questions
        if not is_left_out:
            remaining.append(message)
    return remaining


def question_index(messages: Sequence[Message]) -> int:
    """The index of the question that the model has to answer, or the number of messages if there is none."""
    return starts_of(messages)[-1] if unfinished(messages) else len(messages)


def last_turn(messages: Sequence[Message]) -> tuple[list[Message], str]:
    """Return the messages of the last turn, and the point before it. Raises UsageError if there is no turn."""
    starts = starts_of(messages)
    if not starts:
        raise UsageError("there is no turn yet")
    return [*messages[starts[-1] :]], str(len(starts) - 1)


def asked_again(question: Message) -> Message:
    """Return a new question with the words and attachments of another one."""
    again = {key: value for key, value in question.items() if key in ("role", "content", "input")}
    return cast(Message, again)


def is_imported(message: Message) -> bool:
    """Whether a message was imported rather than asked or answered here."""
    return as_dict(as_dict(message).get("source")).get("imported") is True


# ---- cutting


def at_point(doc: Document, point: str) -> Document:
    """Return the document at a point: after turn ``N``, without the last N turns (``-N``), at a snapshot, or "" (now).

    Raises UnknownSession, which names the number of turns, if there is no such point.
    """
    from gptsh.core import snapshots

    messages, snapshot = doc["messages"], None
    if not point:
        end: int | None = len(messages)
    elif is_numbered(point):
        end = _end_of_turn(messages, point)
    else:
        snapshot = snapshots.find(doc["context"], point)
        last = snapshot.get("message") if snapshot else None
        end = next((length for length, message in enumerate(messages, 1) if message["id"] == last), None)
    if end is None:
        available = f"it has {quantity(len(starts_of(messages)), 'turn')} and no snapshot of this name"
        raise UnknownSession(f"session {doc['id']} has no point {point!r}", available)
    context = snapshots.context_at(doc["context"], messages, end, snapshot)
    return {**doc, "messages": messages[:end], "stats": stats(messages[:end]), "context": context}


def _end_of_turn(messages: Sequence[Message], number: str) -> int | None:
    """Return how many messages the first N turns have; with ``-N`` those before the last N. None: not so many turns."""
    starts = starts_of(messages)
    turn = len(starts) + int(number) if number.startswith("-") else int(number)
    if not 0 <= turn <= len(starts):
        return None
    if turn == 0:
        return 0
    return [*starts, len(messages)][turn]


def is_numbered(point: str) -> bool:
    """Whether a point is a number of turns rather than a snapshot's name."""
    return bool(re.fullmatch("-?[0-9]{1,9}", point))


# ---- merge
#
# The union of two versions of one session, as each save joins its document with the file: no
# message is ever lost.

_MAX_SUMMARIES = 5  # in a session, besides the one that its compaction uses
_MAX_PROJECTS = 20  # in which a session was used; more would make its head slow to read


def merge(ours: Document, theirs: Document) -> Document:
    """Merge our document with the copy on disk, which may have grown since ours was read.

    All messages, uses and calls of the small model are kept, and the first title. If ours adds a message, its
    ``agent``, ``provider`` and token counts win. All other keys come from the disk.
    """
    messages = join_messages(ours["messages"], theirs["messages"])
    title = theirs["title"] or ours["title"]
    new: Document = {**ours, **theirs, "title": title, "messages": messages}
    calls: dict[str, LedgerEntry] = {}
    for call in (*theirs["usage"]["calls"], *ours["usage"]["calls"]):
        if call["id"] not in calls or calls[call["id"]].get("late"):  # another process has answered a late one
            calls[call["id"]] = call
    new["usage"] = {**ours["usage"], **theirs["usage"], "calls": [*calls.values()]}
    new["meta"] = _merge_meta(ours["meta"], theirs["meta"])
    new["context"] = _merge_context(ours["context"], theirs["context"], messages)
    if ours["context"]["snapshots"] or theirs["context"]["snapshots"]:
        from gptsh.core import snapshots

        new["context"]["snapshots"] = snapshots.merge(ours, theirs)
    if len(messages) > len(theirs["messages"]):
        new["usage"]["tokens"] = ours["usage"]["tokens"]
        take_agent(new, ours)
    return new


def take_agent(doc: Document, source: Document) -> None:
    """Let the next turn of ``doc`` be answered as that of ``source``: by the same agent, provider and tools."""
    doc["agent"], doc["provider"] = source["agent"], source["provider"]
    meta = source["meta"]
    if "mcp_allowed_servers" in meta:
        doc["meta"]["mcp_allowed_servers"] = meta["mcp_allowed_servers"]
    if "output" in meta:
        doc["meta"]["output"] = meta["output"]


def _merge_meta(ours: "Meta", theirs: "Meta") -> "Meta":
    """The labels and uses on disk, with our uses."""
    new: Meta = {**ours, **theirs}
    if used_in := _join_uses(theirs.get("used_in"), ours.get("used_in")):
        new["used_in"] = used_in
    return new


def record_use(doc: Document, project: str) -> None:
    """Record that a turn begins now in this project: ``-c`` continues the session last used there."""
    doc["meta"] = {**doc["meta"], "used_in": _join_uses(doc["meta"].get("used_in"), {project: timestamp()})}


def _join_uses(*tables: dict[str, str] | None) -> dict[str, str]:
    """Return the time of the last turn in each project; only the projects that were used last."""
    latest: dict[str, str] = {}
    now = timestamp()
    for project, at in (use for table in tables for use in (table or {}).items()):
        latest[project] = max(min(at, now), latest.get(project, ""))
    return dict(sorted(latest.items(), key=lambda use: use[1])[-_MAX_PROJECTS:])


def _merge_context(
    ours: "ContextState",
    theirs: "ContextState",
    messages: Sequence[Message],
) -> "ContextState":
    """The newer compaction, the newest summaries and the used one, all cuts and texts, the later end of the memory."""
    compactions = [record for record in (theirs["compaction"], ours["compaction"]) if record]
    compaction = max(compactions, key=lambda record: record.get("at") or "", default=None)
    used_summary = compaction and compaction.get("summary")
    summaries = {item["id"]: item for item in (*theirs["summaries"], *ours["summaries"])}
    newest = sorted(summaries.values(), key=lambda item: item.get("created_at") or "")[-_MAX_SUMMARIES:]
    indexes = {message["id"]: index for index, message in enumerate(messages)}
    consolidated = [last for last in (theirs["consolidated"], ours["consolidated"]) if last]
    return {
        **ours,
        **theirs,
        "compaction": compaction,
        "summaries": [item for item in summaries.values() if item in newest or item["id"] == used_summary],
        "cuts": {**theirs["cuts"], **ours["cuts"]},
        "noted": {**theirs["noted"], **ours["noted"]},
        "consolidated": max(consolidated, key=lambda message_id: indexes.get(message_id, -1), default=None),
    }


def add_keys(theirs: list[Message], ours: Sequence[Message]) -> None:
    """Give their messages the keys that only ours have, such as the memory with which a saved question is asked again.

    A key that both have stays as it is on disk.
    """
    our_messages = {message["id"]: message for message in ours}
    for index, message in enumerate(theirs):
        our_message = our_messages.get(message["id"])
        if our_message is not None and not our_message.keys() <= message.keys():
            theirs[index] = {**our_message, **message}


def join_messages(ours: Sequence[Message], theirs: Sequence[Message]) -> list[Message]:
    """Return all messages of theirs, with each of ours that they lack after the last message of its own turn.

    Two turns asked in parallel become question, answer, question, answer.
    """
    their_ids = {message["id"] for message in theirs}
    by_question: dict[str | None, list[Message]] = {None: []}  # in order; None: before the first question
    for messages, skipped in ((theirs, set()), (ours, their_ids)):
        question: str | None = None
        for message in messages:
            if starts_turn(message):
                question = message["id"]
            if message["id"] not in skipped:
                by_question.setdefault(question, []).append(message)
    return [message for turn in by_question.values() for message in turn]
