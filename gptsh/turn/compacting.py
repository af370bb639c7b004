"""Save a compaction: with a snapshot of the session before it, notes of what it saves and leaves out, its event."""

from collections.abc import Sequence
from typing import Any

from gptsh.context.tokens import Choice, omissions
from gptsh.core import snapshots, turns
from gptsh.core.document import Document
from gptsh.messages import Message
from gptsh.render.session import omitted_words
from gptsh.terminal import stdio
from gptsh.turn.turn_session import TurnSession


def save_compaction(
    session: TurnSession, choice: Choice, messages: Sequence[Message], keep_snapshots: int, *, fsync: bool
) -> None:
    """Save a new compaction of these messages, and print a note of its size and of what it leaves out newly."""
    doc, record = session.doc, choice.record or {}
    previous = doc["context"]["compaction"] or {}
    end = _snapshot_end(doc, messages)
    events = []
    name = snapshots.automatic_at(doc, end)
    if not name and end != 0:  # one snapshot a turn, though it may compact again; none before the first question
        events = snapshots.record(doc, keep_snapshots, tokens=record.get("before"), end=end)
        name = events[0][1]["snapshot"]["name"] if events else None
    doc["context"]["compaction"] = record
    is_saved = session.save(*events, fsync=fsync)
    report = f"~{record['before']:,} tokens of the session are sent as ~{record['after']:,} ({record['strategy']})"
    stdio.note(f"{report}; snapshot {doc['id']}@{name}" if name and is_saved else report)
    left_out = omitted_words(record["omitted"])
    if left_out and record["omitted"] != previous.get("omitted"):
        stdio.note(f"left out, since the session outgrew the window: {left_out}")
    session.emit("compressed", **compaction_report(choice))


def _snapshot_end(doc: Document, messages: Sequence[Message]) -> int | None:
    """Before which message the snapshot ends: before an open question, which a user who returns to it asks again.

    None: at the end of the session.
    """
    if not turns.unfinished(messages):
        return None
    question = messages[turns.question_index(messages)].get("id")
    return next((at for at, message in enumerate(doc["messages"]) if message["id"] == question), None)


def compaction_report(choice: Choice) -> dict[str, Any]:
    """The result of a compaction, for events and JSON."""
    record, prompt = choice.record or {}, choice.prompt
    sizes = {key: record.get(key) for key in ("reason", "before", "after")}
    counts = {"included": prompt.included, "summarized": prompt.summarized, "left_out": prompt.left_out}
    return {"strategy": choice.strategy, **sizes, **counts, "omitted": omissions(prompt)}
