"""Take, find and delete snapshots: bookmarks of what a session was at one point."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gptsh.core.document import Document
from gptsh.errors import UsageError
from gptsh.messages import Message, just_after, new_message_id, timestamp

if TYPE_CHECKING:
    from gptsh.core.document_types import Compaction, ContextState, Snapshot

SessionEvent = tuple[str, Mapping[str, object]]  # the type and the fields

_NAME = "(?!auto-)[A-Za-z][A-Za-z0-9._:-]{0,63}"
_AUTOMATIC = re.compile("auto-([0-9]{1,9})")


def check(name: str, messages: Sequence[Message]) -> None:
    """Raise UsageError if the user cannot take a snapshot of this name, or there is no message."""
    if not re.fullmatch(_NAME, name):
        raise UsageError(
            f"{name!r} is not a valid snapshot name",
            "it has letters, digits, '.', '_', ':' and '-', a letter first, at most 64 characters; "
            "'auto-' is for automatic snapshots",
        )
    if not messages:
        raise UsageError(
            "a new session has no messages to take a snapshot of", "leave out --snapshot"
        )


def record(
    doc: Document,
    keep: int,
    *,
    name: str | None = None,
    tokens: int | None = None,
    end: int | None = None,
) -> list[SessionEvent]:
    """Take a snapshot of the session, or of its first ``end`` messages; return what happened.

    A snapshot with a ``name`` replaces an older one of that name. Without, it is the next
    ``auto-N``; the newest ``keep`` of these remain, here and by ``keep_newest`` in the document
    that is saved. Raises UsageError as ``check`` does.
    """
    messages = doc["messages"][:end]
    # ``join_new`` recognizes new snapshots by their time. An automatic one is of the session before
    # the compaction, whose summary was made since.
    created_at = just_after(doc["updated_at"])
    if name is not None:
        check(name, messages)
        created_at = max(timestamp(), created_at)
    elif not keep:
        return []
    snapshot: Snapshot = {
        "id": new_message_id(),
        "name": name,
        "created_at": created_at,
        "message": messages[-1]["id"],
        "tokens": tokens,
        "reason": "asked" if name else "auto",
    }
    old = doc["context"]["snapshots"]
    doc["context"] = {**doc["context"], "snapshots": _added(old, snapshot)}
    keep_newest(doc, keep)
    remaining = doc["context"]["snapshots"]
    events: list[SessionEvent] = [
        ("snapshot_created", {"snapshot": snapshot, "auto": name is None}),
    ]
    for item in old:
        if item not in remaining and item.get("name") != name:
            events.append(("snapshot_deleted", {"snapshot": item["name"]}))
    return events


def _added(snapshots: "Sequence[Snapshot]", new: "Snapshot") -> "list[Snapshot]":
    """Return the snapshots with the new one, without those of its name."""
    if new["reason"] == "auto":
        matches = [_AUTOMATIC.fullmatch(item.get("name") or "") for item in snapshots]
        numbers = [int(match[1]) for match in matches if match]
        match = _AUTOMATIC.fullmatch(new["name"] or "")
        if match is None or int(match[1]) in numbers:  # another run may have taken its number
            new["name"] = f"auto-{1 + max(numbers, default=0)}"
    return [*(item for item in snapshots if item.get("name") != new["name"]), new]


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
    known_ids = {item["id"] for item in theirs}
    for item in ours:
        if item["id"] not in known_ids and (item.get("created_at") or "") > read_at:
            theirs = _added(theirs, item)
    return theirs


def delete(doc: Document, name: str) -> None:
    """Remove the snapshots with this name. Raises UsageError if there is none."""
    snapshots = doc["context"]["snapshots"]
    remaining = [item for item in snapshots if item.get("name") != name]
    if remaining == snapshots:
        names = ", ".join(str(item.get("name")) for item in reversed(snapshots))
        known = f"choose from {names}" if names else "it has none"
        raise UsageError(f"there is no snapshot named {name!r}", known)
    doc["context"] = {**doc["context"], "snapshots": remaining}


def automatic_at(doc: Document, end: int | None) -> str | None:
    """Return the name of the automatic snapshot after ``end`` messages (None: all), if any."""
    automatic = [item for item in doc["context"]["snapshots"] if item.get("reason") == "auto"]
    last = doc["messages"][:end][-1:]
    if automatic and last and automatic[-1].get("message") == last[0]["id"]:
        return automatic[-1].get("name")
    return None


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
    ``consolidated`` moves to the last remaining message: none is remembered twice.
    """
    ids = [message["id"] for message in messages[:end]]
    later_ids = {message["id"] for message in messages[end:]}
    summaries = [
        item for item in context["summaries"] if {item.get("first"), item.get("last")} <= set(ids)
    ]
    if snapshot is not None:
        taken_at = snapshot.get("created_at") or ""
        summaries = [item for item in summaries if (item.get("created_at") or "") < taken_at]
    compaction = context["compaction"]
    if compaction:
        summary_ids = {None, *(item["id"] for item in summaries)}
        has_summary = compaction.get("summary") in summary_ids
        kept = compaction.get("kept") or 0 if later_ids else 0
        if not (has_summary and _still_applies(compaction, ids, kept, snapshot)):
            compaction = None
    consolidated = context["consolidated"]
    if consolidated not in ids:
        consolidated = ids[-1] if ids and consolidated in later_ids else None
    return {
        **context,
        "compaction": compaction,
        "summaries": summaries,
        "snapshots": [item for item in context["snapshots"] if item.get("message") in ids],
        "cuts": {key: cuts for key, cuts in context["cuts"].items() if key in ids},
        "noted": {key: texts for key, texts in context["noted"].items() if key in ids},
        "consolidated": consolidated,
    }


def _still_applies(
    compaction: "Compaction",
    ids: Sequence[str],
    kept: int,
    snapshot: "Snapshot | None",
) -> bool:
    """Whether a compaction applies to a session of which the messages with these ids remain.

    ``kept`` messages were not shortened then, as they were the newest.
    """
    if compaction.get("upto") not in ids:
        return False
    if len(ids) - 1 - ids.index(compaction["upto"]) < kept:
        return False
    if snapshot is None:
        return True
    was_made_before = (compaction.get("at") or "") <= (snapshot.get("created_at") or "")
    return was_made_before and snapshot.get("reason") != "auto"
