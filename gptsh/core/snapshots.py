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


def check_name(name: str) -> None:
    """Raise UsageError if the name is not valid for a snapshot of the user."""
    if not re.fullmatch(_NAME, name):
        expected = "it has letters, digits, '.', '_', ':' and '-', a letter first, at most 64 characters"
        raise UsageError(f"{name!r} is not a valid snapshot name", f"{expected}; 'auto-' is for automatic snapshots")


def check_position(messages: Sequence[Message]) -> None:
    """Raise UsageError if the session has no messages."""
    if not messages:
        raise UsageError("a new session has no messages to take a snapshot of", "leave out --snapshot")


def record(
    doc: Document, keep: int, *, name: str | None = None, tokens: int | None = None, end: int | None = None
) -> list[SessionEvent]:
    """Take a snapshot of the session, or of its first ``end`` messages, and return the events to report.

    A snapshot with a ``name`` replaces an older one of that name. Without, it is the next ``auto-N``; the newest
    ``keep`` of these remain, here and by ``keep_newest`` in the document that is saved.
    Raises UsageError as the checks do.
    """
    if name is None and not keep:
        return []
    messages, old = doc["messages"][:end], doc["context"]["snapshots"]
    if name is not None:
        check_name(name)
    check_position(messages)
    # ``merge`` recognizes new snapshots by their time. An automatic one is of the session before the compaction, whose
    # summary was made since.
    created_at = just_after(doc["updated_at"])
    if name is not None:
        created_at = max(timestamp(), created_at)
    snapshot: Snapshot = {
        "id": new_message_id(),
        "name": name,
        "created_at": created_at,
        "message": messages[-1]["id"],
        "tokens": tokens,
        "reason": "asked" if name else "auto",
    }
    remaining = _newest(_added(old, snapshot), keep)
    doc["context"] = {**doc["context"], "snapshots": remaining}
    remaining_ids = {item["id"] for item in remaining}
    removed = [item["name"] for item in old if item["id"] not in remaining_ids and item.get("name") != name]
    created: SessionEvent = ("snapshot_created", {"snapshot": remaining[-1], "auto": name is None})
    return [created, *(("snapshot_deleted", {"snapshot": other}) for other in removed)]


def _added(snapshots: "Sequence[Snapshot]", new: "Snapshot") -> "list[Snapshot]":
    """Return the snapshots with the new one, without those of its name."""
    if new["reason"] == "auto":
        matches = [re.fullmatch("auto-([0-9]{1,9})", item.get("name") or "") for item in snapshots]
        numbers_in_use = {int(match[1]) for match in matches if match}
        # Another run may have taken its number.
        match = re.fullmatch("auto-([0-9]{1,9})", new["name"] or "")
        if match is None or int(match[1]) in numbers_in_use:
            new["name"] = f"auto-{1 + max(numbers_in_use, default=0)}"
    return [*(item for item in snapshots if item.get("name") != new["name"]), new]


def keep_newest(doc: Document, keep: int) -> None:
    """Remove the oldest automatic snapshots, so that ``keep`` remain; 0 keeps all."""
    doc["context"] = {**doc["context"], "snapshots": _newest(doc["context"]["snapshots"], keep)}


def _newest(snapshots: "list[Snapshot]", keep: int) -> "list[Snapshot]":
    automatic = [item["id"] for item in snapshots if item.get("reason") == "auto"]
    removed = automatic[:-keep] if keep else []
    return [item for item in snapshots if item["id"] not in removed]


def merge(ours: Document, theirs: Document) -> "list[Snapshot]":
    """Return the snapshots on disk, and those that we took since ours was read: our others were deleted."""
    snapshots = theirs["context"]["snapshots"]
    known_ids = {item["id"] for item in snapshots}
    for item in ours["context"]["snapshots"]:
        if item["id"] not in known_ids and (item.get("created_at") or "") > ours["updated_at"]:
            snapshots = _added(snapshots, item)
    return snapshots


def delete(doc: Document, name: str) -> None:
    """Remove the snapshots with this name. Raises UsageError if there is none."""
    snapshots = doc["context"]["snapshots"]
    remaining = [item for item in snapshots if item.get("name") != name]
    if remaining == snapshots:
        names = ", ".join(str(item.get("name")) for item in reversed(snapshots))
        raise UsageError(f"there is no snapshot named {name!r}", f"known are {names}" if names else "it has none")
    doc["context"] = {**doc["context"], "snapshots": remaining}


def automatic_at(doc: Document, end: int | None) -> str | None:
    """Return the name of the newest automatic snapshot if it is at the end of ``end`` messages (None: all)."""
    automatic = [item for item in doc["context"]["snapshots"] if item.get("reason") == "auto"]
    last = doc["messages"][:end][-1:]
    is_at_end = automatic and last and automatic[-1].get("message") == last[0]["id"]
    return automatic[-1].get("name") if is_at_end else None


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
    """Return the context of a session cut to its first ``end`` messages, without references to the others.

    At a ``snapshot``, a later compaction and later summaries are left out too; each automatic snapshot was taken before
    a compaction.
    ``consolidated`` moves to the last remaining message: none is remembered twice.
    """
    ids = [message["id"] for message in messages[:end]]
    remaining = set(ids)
    summaries = [item for item in context["summaries"] if {item.get("first"), item.get("last")} <= remaining]
    if snapshot is not None:
        taken_at = snapshot.get("created_at") or ""
        summaries = [item for item in summaries if (item.get("created_at") or "") < taken_at]
    compaction, consolidated = context["compaction"], context["consolidated"]
    if compaction and not _still_applies(compaction, ids, summaries, snapshot, is_cut=end < len(messages)):
        compaction = None
    if consolidated not in remaining:
        is_later = any(message["id"] == consolidated for message in messages[end:])
        consolidated = ids[-1] if is_later and ids else None
    return {
        **context,
        "compaction": compaction,
        "summaries": summaries,
        "snapshots": [item for item in context["snapshots"] if item.get("message") in remaining],
        "cuts": {message_id: cut for message_id, cut in context["cuts"].items() if message_id in remaining},
        "noted": {message_id: texts for message_id, texts in context["noted"].items() if message_id in remaining},
        "consolidated": consolidated,
    }


def _still_applies(
    compaction: "Compaction",
    ids: Sequence[str],
    summaries: "Sequence[Summary]",
    snapshot: "Snapshot | None",
    *,
    is_cut: bool,
) -> bool:
    """Whether a compaction applies to a session of which the messages with these ids and these summaries remain."""
    summary_ids = {None, *(item["id"] for item in summaries)}
    if compaction.get("upto") not in ids or compaction.get("summary") not in summary_ids:
        return False
    newer = len(ids) - 1 - ids.index(compaction["upto"])
    if is_cut and newer < (compaction.get("kept") or 0):
        return False  # it would shorten the messages that were the newest then
    if snapshot is None:
        return True
    was_made_before = (compaction.get("at") or "") <= (snapshot.get("created_at") or "")
    return was_made_before and snapshot.get("reason") != "auto"
