"""The turns of a session: where they start, which have no answer yet, the session cut at a point (``REF@POINT``)."""

import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any, cast

from gptsh.core.document import Document, stats
from gptsh.errors import UnknownSession, UsageError
from gptsh.jsonio import as_dict
from gptsh.messages import Message, is_empty, starts_turn
from gptsh.text import quantity


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
    again: Any = {key: value for key, value in question.items() if key in ("role", "content", "input")}
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
