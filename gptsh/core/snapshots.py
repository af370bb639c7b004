"""Take, find and delete snapshots: bookmarks of what a session was at one point."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gptsh.core.document import Document
from gptsh.errors import UsageError
from gptsh.messages import Message, just_after, new_message_id, timestamp

if TYPE_CHECKING:
    from gptsh.core.document_types import Compaction, ContextState, Snapshot, Summary

SessionEvent = tuple[str, Mapping[str, object]]  # the type and the fields

_NAME = "(?!auto-)[A-Za-z][A-Za-z0-9._:-]{0,63}"
_AUTOMATIC = re.compile("auto-([0-9]{1,9})")


def check(name: str, messages: Sequence[Message]) -> None:
    """Raise UsageError if the user cannot take a snapshot of this name, or there is no message."""
    if not re.fullmatch(_NAME, name):
        form = (
            "it has letters, digits, '.', '_', ':' and '-', a letter first, at most 64 characters; "
            "'auto-' is for automatic snapshots"
        )
        raise UsageError(f"{name!r} is not a valid snapshot name", form)
    if not messages:
        problem = "a new session has no messages to take a snapshot of"
        raise UsageError(problem, "leave out --snapshot")


def record(doc: Document, name: str, *, keep: int, tokens: int) -> list[SessionEvent]:
    """Take a snapshot of the session, in place of an older one of that name.

    Return what happened, as the newest ``keep`` automatic snapshots remain. ``tokens`` is the size
    of the session. Raises UsageError as ``check`` does.
    """
    messages = doc["messages"]
    check(name, messages)
    snapshot: Snapshot = {
        "id": new_message_id(),
        "name": name,
        "created_at": max(timestamp(), _next_moment(doc)),
        "message": messages[-1]["id"],
        "tokens": tokens,
        "reason": "asked",
    }
    return _add(doc, snapshot, keep)


def record_automatic(
    doc: Document,
    end: int | None,
    *,
    keep: int,
    tokens: int | None,
) -> list[SessionEvent]:
    """Take the next ``auto-N``, of the first ``end`` messages; return what happened.

    The newest ``keep`` of these remain, here and by ``keep_newest`` in the document that is saved;
    with 0 none is taken.
    """
    if not keep:
        return []
    snapshot: Snapshot = {
        "id": new_message_id(),
        "name": None,
        # It is of the session before the compaction, whose summary was made since.
        "created_at": _next_moment(doc),
        "message": doc["messages"][:end][-1]["id"],
        "tokens": tokens,
        "reason": "auto",
    }
    return _add(doc, snapshot, keep)


def _next_moment(doc: Document) -> str:
    """Return a time after the last save: ``join_new`` recognizes new snapshots by it."""
    return just_after(doc["updated_at"])


def _add(doc: Document, snapshot: "Snapshot", keep: int) -> list[SessionEvent]:
    """Add a snapshot to the document, remove old automatic ones, and return what happened."""
    old = doc["context"]["snapshots"]
    doc["context"] = {**doc["context"], "snapshots": _added(old, snapshot)}
    keep_newest(doc, keep)

    remaining = doc["context"]["snapshots"]
    is_automatic = snapshot["reason"] == "auto"
    events: list[SessionEvent] = [
        ("snapshot_created", {"snapshot": snapshot, "auto": is_automatic}),
    ]
    for item in old:
        name = item.get("name")
        is_replaced = name == snapshot["name"]
        if name and item not in remaining and not is_replaced:
            events.append(("snapshot_deleted", {"snapshot": name}))
    return events


def _added(snapshots: "Sequence[Snapshot]", new: "Snapshot") -> "list[Snapshot]":
    """Return the snapshots with the new one, without those of its name.

    An automatic one gets the next number, unless it has one that is still free.
    """
    if new["reason"] == "auto":
        used_numbers = [_number_of(item) for item in snapshots]
        number = _number_of(new)
        if number == 0 or number in used_numbers:  # another run may have taken its number
            new["name"] = f"auto-{1 + max(used_numbers, default=0)}"
    others = [item for item in snapshots if item.get("name") != new["name"]]
    return [*others, new]


def _number_of(snapshot: "Snapshot") -> int:
    """Return the number in a name such as ``auto-3``, from 1; 0 for any other name."""
    match = _AUTOMATIC.fullmatch(snapshot.get("name") or "")
    return int(match[1]) if match else 0


def keep_newest(doc: Document, keep: int) -> None:
    """Remove the oldest automatic snapshots, so that ``keep`` remain; 0 keeps all."""
    snapshots = doc["context"]["snapshots"]
    automatic = [item["id"] for item in snapshots if item.get("reason") == "auto"]
    removed = automatic[:-keep] if keep else []
    remaining = [item for item in snapshots if item["id"] not in removed]
    doc["context"] = {**doc["context"], "snapshots": remaining}


def join_new(
    theirs: "list[Snapshot]",
    ours: "Sequence[Snapshot]",
    read_at: str,
) -> "list[Snapshot]":
    """Return the snapshots on disk, and those that we took since: our others were deleted."""
    joined = theirs
    known_ids = {item["id"] for item in theirs}
    for item in ours:
        is_new = (item.get("created_at") or "") > read_at
        if is_new and item["id"] not in known_ids:
            joined = _added(joined, item)
    return joined


def delete(doc: Document, name: str) -> None:
    """Remove the snapshots with this name. Raises UsageError if there is none."""
    snapshots = doc["context"]["snapshots"]
    remaining = [item for item in snapshots if item.get("name") != name]
    if remaining == snapshots:
        names = ", ".join(str(item.get("name")) for item in reversed(snapshots))
        advice = f"choose from {names}" if names else "it has none"
        raise UsageError(f"there is no snapshot named {name!r}", advice)
    doc["context"] = {**doc["context"], "snapshots": remaining}


def automatic_at(doc: Document, end: int | None) -> str | None:
    """Return the name of the automatic snapshot after ``end`` messages (None: all), if any."""
    messages = doc["messages"][:end]
    automatic = [item for item in doc["context"]["snapshots"] if item.get("reason") == "auto"]
    if not automatic or not messages:
        return None
    newest = automatic[-1]
    return newest.get("name") if newest.get("message") == messages[-1]["id"] else None


def find(context: "ContextState", name: str) -> "Snapshot | None":
    """Return the newest snapshot with that name, or None."""
    snapshots = [item for item in context["snapshots"] if item.get("name") == name]
    return snapshots[-1] if snapshots else None


def context_at(
    context: "ContextState",
    messages: Sequence[Message],
    end: int,
    snapshot: "Snapshot | None" = None,
) -> "ContextState":
    """Return the context of the first ``end`` messages, without references to the others.

    At a ``snapshot``, a later compaction and later summaries are left out too; each automatic
    snapshot was taken before a compaction.
    ``consolidated`` moves to the last remaining message, so that no message is remembered twice.
    """
    ids = [message["id"] for message in messages[:end]]
    later_ids = [message["id"] for message in messages[end:]]
    summaries = _summaries_at(context, ids, snapshot)
    compaction = context["compaction"]
    if compaction:
        kept = 0  # without later messages, the newest are the same as they were then
        if later_ids:
            kept = compaction.get("kept") or 0
        has_summary = _has_summary(compaction, summaries)
        if not has_summary or not _still_applies(compaction, ids, kept, snapshot):
            compaction = None
    consolidated = context["consolidated"]
    if consolidated in later_ids and ids:
        consolidated = ids[-1]
    elif consolidated not in ids:
        consolidated = None
    return {
        **context,
        "compaction": compaction,
        "summaries": summaries,
        "snapshots": [item for item in context["snapshots"] if item.get("message") in ids],
        "cuts": {key: cuts for key, cuts in context["cuts"].items() if key in ids},
        "noted": {key: texts for key, texts in context["noted"].items() if key in ids},
        "consolidated": consolidated,
    }


def _summaries_at(
    context: "ContextState",
    ids: Sequence[str],
    snapshot: "Snapshot | None",
) -> "list[Summary]":
    """Return the summaries of the messages with these ids, made before the snapshot, if any."""
    summaries = []
    for summary in context["summaries"]:
        is_inside = summary.get("first") in ids and summary.get("last") in ids
        if is_inside and (snapshot is None or _is_before(summary.get("created_at"), snapshot)):
            summaries.append(summary)
    return summaries


def _has_summary(compaction: "Compaction", summaries: "Sequence[Summary]") -> bool:
    """Return whether the summary that a compaction uses, if any, is among these."""
    summary_id = compaction.get("summary")
    return summary_id is None or any(item["id"] == summary_id for item in summaries)


def _is_before(moment: str | None, snapshot: "Snapshot") -> bool:
    return (moment or "") < (snapshot.get("created_at") or "")


def _still_applies(
    compaction: "Compaction",
    ids: Sequence[str],
    kept: int,
    snapshot: "Snapshot | None",
) -> bool:
    """Return whether a compaction applies to a session of which the messages with these ids remain.

    ``kept`` messages were not shortened then, as they were the newest.
    """
    if compaction.get("upto") not in ids:
        return False
    later_count = len(ids) - 1 - ids.index(compaction["upto"])
    if later_count < kept:
        return False
    if snapshot is None:
        return True
    was_made_before = (compaction.get("at") or "") <= (snapshot.get("created_at") or "")
    return was_made_before and snapshot.get("reason") != "auto"
