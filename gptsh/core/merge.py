"""The union of two versions of one session, as each save joins its document with the file: no message is ever lost."""

from collections.abc import Sequence
from typing import Any

from gptsh.core.document import Document
from gptsh.messages import Message, starts_turn, timestamp

_MAX_SUMMARIES = 5  # in a session, besides the one that its compaction uses
_MAX_PROJECTS = 20  # in which a session was used; more would make its head slow to read

Context = dict[str, Any]  # the key of a document


def merge(ours: Document, theirs: Document) -> Document:
    """Merge our document with the copy on disk, which may have grown since ours was read.

    All messages, uses and calls of the small model are kept, and the first title. If ours adds a message, its
    ``agent``, ``provider`` and token counts win. All other keys come from the disk.
    """
    messages = join_messages(ours["messages"], theirs["messages"])
    new = {**ours, **theirs, "title": theirs["title"] or ours["title"], "messages": messages}
    calls: dict[str, dict[str, Any]] = {}
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
    doc["meta"] |= {key: source["meta"][key] for key in ("mcp_allowed_servers", "output") if key in source["meta"]}


def _merge_meta(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """The labels and uses on disk, with our uses."""
    new = {**ours, **theirs}
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


def _merge_context(ours: Context, theirs: Context, messages: Sequence[Message]) -> Context:
    """The newer compaction, the newest summaries and the one that it uses, all cuts, the later end of the memory."""
    compactions = [record for record in (theirs["compaction"], ours["compaction"]) if record]
    compaction = max(compactions, key=lambda record: record.get("at") or "", default=None)
    used_summary = compaction and compaction.get("summary")
    summaries = {item["id"]: item for item in (*theirs["summaries"], *ours["summaries"])}
    newest = sorted(summaries.values(), key=lambda item: item.get("created_at") or "")[-_MAX_SUMMARIES:]
    indexes = {message["id"]: index for index, message in enumerate(messages)}
    consolidated: list[str] = [last for last in (theirs["consolidated"], ours["consolidated"]) if last]
    return {
        **ours,
        **theirs,
        "compaction": compaction,
        "summaries": [item for item in summaries.values() if item in newest or item["id"] == used_summary],
        "cuts": {**theirs["cuts"], **ours["cuts"]},
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
