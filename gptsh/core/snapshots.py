"""Snapshots: bookmarks of positions in a session, and the context of a session at one. No files here."""

import re
from collections.abc import Sequence
from typing import Any

from gptsh.core.document import Document
from gptsh.errors import UsageError
from gptsh.messages import Message, just_after, new_message_id, timestamp

Snapshot = dict[str, Any]  # docs/file-format.md has its keys
Happening = tuple[str, dict[str, Any]]  # an event's type and its fields

_NAME = "(?!auto-)[A-Za-z][A-Za-z0-9._:-]{0,63}"


def check_name(name: str) -> None:
    """Raise UsageError for a name that no snapshot by hand can have."""
    if not re.fullmatch(_NAME, name):
        expected = "it has letters, digits, '.', '_', ':' and '-', a letter first, 64 of them at most"
        raise UsageError(f"{name!r} is no name of a snapshot", f"{expected}; 'auto-' begins those of automatic ones")


def check_position(messages: Sequence[Message]) -> None:
    """Raise UsageError where there is no message yet."""
    if not messages:
        raise UsageError("a new session has nothing yet to take a snapshot of", "leave out --snapshot")


def record(
    doc: Document, keep: int, *, name: str | None = None, tokens: int | None = None, end: int | None = None
) -> list[Happening]:
    """Take a snapshot of the session, or of its first ``end`` messages, and return the events to report.

    With a ``name`` it replaces the one of that name; without, it is the next ``auto-N``, and of these the newest
    ``keep`` stay: ``sessions.save_session`` needs the same figure. Raises UsageError as the checks do.
    """
    if name is None and not keep:
        return []
    messages, known = doc["messages"][:end], doc["context"]["snapshots"]
    if name is not None:
        check_name(name)
    check_position(messages)
    snapshot: Snapshot = {
        "id": new_message_id(),
        "name": name,
        "created_at": max(timestamp(), just_after(doc["updated_at"])),  # by which ``merge`` finds what is new
        "message": messages[-1]["id"],
        "tokens": tokens,
        "reason": "asked" if name else "auto",
    }
    left = _added(known, snapshot, keep)
    doc["context"] = {**doc["context"], "snapshots": left}
    ids = {item["id"] for item in left}
    rolled = [item["name"] for item in known if item["id"] not in ids and item.get("name") != name]
    created: Happening = ("snapshot_created", {"snapshot": left[-1], "auto": name is None})
    return [created, *(("snapshot_deleted", {"snapshot": other}) for other in rolled)]


def _added(known: Sequence[Snapshot], new: Snapshot, keep: int | None) -> list[Snapshot]:
    """The snapshots with one more, without those that it replaces or pushes out."""
    if new["reason"] == "auto":
        numbers = [re.fullmatch("auto-([0-9]{1,9})", item.get("name") or "") for item in known]
        taken = {int(found[1]) for found in numbers if found}
        if new["name"] is None or int(new["name"].removeprefix("auto-")) in taken:  # by another run
            new["name"] = f"auto-{1 + max(taken, default=0)}"
    others = [item for item in known if item.get("name") != new["name"]]
    automatic = [item["id"] for item in (*others, new) if item.get("reason") == "auto"]
    rolled = automatic[: -keep or None] if keep else []
    return [item for item in (*others, new) if item["id"] not in rolled]


def merge(ours: Document, theirs: Document, keep: int | None) -> list[Snapshot]:
    """The snapshots on disk, and those that we took since ours was read. None and 0 roll nothing away.

    Any other one that the disk lacks was deleted, or rolled away.
    """
    joined: list[Snapshot] = theirs["context"]["snapshots"]
    known = {item["id"] for item in joined}
    for item in ours["context"]["snapshots"]:
        if item["id"] not in known and (item.get("created_at") or "") > ours["updated_at"]:
            joined = _added(joined, item, keep)
    return joined


def delete(doc: Document, name: str) -> None:
    """Remove the snapshots of a name. Raises UsageError where there is none."""
    known = doc["context"]["snapshots"]
    left = [item for item in known if item.get("name") != name]
    if left == known:
        names = ", ".join(str(item.get("name")) for item in reversed(known))
        raise UsageError(f"there is no snapshot named {name!r}", f"there is {names or 'none'}")
    doc["context"] = {**doc["context"], "snapshots": left}


def automatic_at(doc: Document, end: int | None) -> str | None:
    """The name of the newest automatic snapshot, where it stands at the end of so many messages (None: all)."""
    automatic = [item for item in doc["context"]["snapshots"] if item.get("reason") == "auto"]
    last = doc["messages"][:end][-1:]
    here = automatic and last and automatic[-1].get("message") == last[0]["id"]
    return automatic[-1].get("name") if here else None


def named(context: dict[str, Any], name: str) -> Snapshot | None:
    """The newest snapshot of that name."""
    found: list[Snapshot] = [item for item in context["snapshots"] if item.get("name") == name]
    return found[-1] if found else None


def as_of(
    context: dict[str, Any], messages: Sequence[Message], end: int, snapshot: Snapshot | None = None
) -> dict[str, Any]:
    """The context of a session of which the first ``end`` messages are left, without what refers to the others.

    At a ``snapshot`` a later compaction is left out, too: each automatic one was taken before one.

    The mark of what is in the agent's memory moves to the last message left: none of them goes there again.
    """
    ids = [message["id"] for message in messages[:end]]
    left = set(ids)
    summaries = [item for item in context["summaries"] if {item.get("first"), item.get("last")} <= left]
    compaction, consolidated = context["compaction"], context["consolidated"]
    usable = {None, *(item["id"] for item in summaries)}
    if compaction and not (compaction.get("upto") in left and compaction.get("summary") in usable):
        compaction = None
    if compaction and end < len(messages) and end - 1 - ids.index(compaction["upto"]) < (compaction.get("kept") or 0):
        compaction = None  # it would shorten what were the newest messages then
    if compaction and snapshot:
        is_later = (compaction.get("at") or "") > (snapshot.get("created_at") or "")
        compaction = None if is_later or snapshot.get("reason") == "auto" else compaction
    if consolidated not in left:
        is_later = any(message["id"] == consolidated for message in messages[end:])
        consolidated = ids[-1] if is_later and ids else None
    return {
        **context,
        "compaction": compaction,
        "summaries": summaries,
        "snapshots": [item for item in context["snapshots"] if item.get("message") in left],
        "cuts": {ident: cut for ident, cut in context["cuts"].items() if ident in left},
        "consolidated": consolidated,
    }
