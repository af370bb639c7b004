"""Named positions of a session, and what of its context goes with one: taken, rolled away, united, restored.

No files here. A context is the table of that name in a document: its summaries, its snapshots and the ids of those that
were deleted by hand, the compaction in force, and how far it was consolidated.
"""

import re
from collections.abc import Iterable, Sequence, Set
from typing import Any, Literal

from gptsh.errors import UsageError
from gptsh.messages import Message, just_after, new_message_id, timestamp

Snapshot = dict[str, Any]  # "id", "name", "created_at", "message", "tokens", "messages", "summaries", "compaction", …
Happening = tuple[str, dict[str, Any]]  # an event's type and its fields

_NAME = "[A-Za-z][A-Za-z0-9._:-]{0,63}"  # compiled where it is wanted: few runs have snapshots
_AUTOMATIC = "auto-([0-9]{1,9})"
_RECENT = 3  # summaries that keep their text though nothing names them
_DELETED = "snapshots_deleted"  # the key of a context
_TOLD = ("text", "first", "last", "messages", "tokens")  # of a summary; what is left says what was paid


def blank_context() -> dict[str, Any]:
    """The context of a session that has none."""
    return {"summaries": [], "snapshots": [], "compaction": None, "cuts": {}, "consolidated": None}


# ---- taking


def check_name(name: str, keep: int) -> None:
    """Raise UsageError for a name that no snapshot taken by hand can have, and where none are kept."""
    if not keep:
        raise UsageError("snapshots are turned off", "set snapshots under [context] to how many are kept")
    if not re.fullmatch(_NAME, name):
        raise UsageError(
            f"{name!r} is no name of a snapshot",
            "it has letters, digits, '.', '_', ':' and '-', a letter first, 64 of them at most",
        )
    if name.startswith("auto-"):
        raise UsageError(f"{name!r}: names that begin with 'auto-' are those of automatic snapshots")


def check_position(messages: Sequence[Message]) -> None:
    """Raise UsageError where there is no message yet."""
    if not messages:
        raise UsageError("a new session has nothing yet to take a snapshot of", "leave out --snapshot")


def take(
    doc: dict[str, Any],
    *,
    name: str | None,
    reason: Literal["auto", "asked"],
    tokens: int | None,
    end: int | None = None,
) -> Snapshot:
    """Add a snapshot of the position as it is, or of its first ``end`` messages. ``name`` None is the next ``auto-N``.

    Returns it. One of the same name that was taken by hand gives way. Raises UsageError where there is no message yet.
    """
    context, messages = doc["context"], doc["messages"][:end]
    check_position(messages)
    taken, compaction = context.get("snapshots", ()), context.get("compaction")
    snapshot: Snapshot = {
        "id": new_message_id(),
        "name": name or _next_name(taken),
        # Behind all that the file knew: that is how ``united`` tells it from one that was rolled away.
        "created_at": max([timestamp(), just_after(doc["updated_at"]), *map(_age, taken)]),
        "message": messages[-1]["id"],
        "tokens": tokens,
        "messages": len(messages),
        "summaries": _worth_keeping(context.get("summaries", ()), messages, compaction),
        "compaction": compaction,
        "reason": reason,
    }
    kept = _with(taken, snapshot)
    doc["context"] = {**context, "snapshots": kept}
    return next(item for item in kept if item["id"] == snapshot["id"])


def _worth_keeping(
    summaries: Sequence[dict[str, Any]], messages: Sequence[Message], compaction: dict[str, Any] | None
) -> list[str]:
    """The ids of the summaries that a fork from here needs: the compaction's, and the newest of these messages.

    No others, or none would ever be trimmed: each compaction makes one, and takes a snapshot.
    """
    told = [summary for summary in summaries if _has_text(summary)]
    newest = sorted(_within(told, {message["id"] for message in messages}), key=_age)[-1:]
    needed = {(compaction or {}).get("summary"), *(summary["id"] for summary in newest)}
    return [summary["id"] for summary in told if summary["id"] in needed]


def record(
    doc: dict[str, Any], keep: int, *, name: str | None = None, tokens: int | None = None, end: int | None = None
) -> list[Happening]:
    """Take a snapshot, by hand under a ``name``, automatic without one, and roll older ones away: what to tell of it.

    ``keep`` is ``context.snapshots`` of the settings, and has to be given to ``sessions.save_session`` as well, or what
    is rolled away comes back. With 0 no automatic one is taken. Raises UsageError as ``check_name`` and ``take`` do.
    """
    if name is not None:
        check_name(name, keep)
    elif not keep:
        return []
    snapshot = take(doc, name=name, reason="auto" if name is None else "asked", tokens=tokens, end=end)
    kept, dropped = rolled(doc["context"]["snapshots"], keep)
    doc["context"]["snapshots"] = kept
    created: Happening = ("snapshot_created", {"snapshot": snapshot, "auto": name is None})
    return [created, *(("snapshot_deleted", {"snapshot": item.get("name")}) for item in dropped)]


def delete(doc: dict[str, Any], name: str) -> list[Happening]:
    """Remove the snapshots of a name, for good: what to tell of it. Raises UsageError where there is none.

    Their ids stay, or a copy of the session that still has them would bring them back.
    """
    context = doc["context"]
    taken = context.get("snapshots", ())
    gone = [item["id"] for item in taken if item.get("name") == name]
    if not gone:
        raise UsageError(f"there is no snapshot named {name!r}", f"there {_listed(taken)}")
    left = [item for item in taken if item["id"] not in gone]
    doc["context"] = {**context, "snapshots": left, _DELETED: _each([*_deleted(context), *gone])}
    return [("snapshot_deleted", {"snapshot": name}) for _ in gone]


def _listed(taken: Iterable[Snapshot]) -> str:
    names = ", ".join(str(item.get("name")) for item in taken)
    return f"is {names}" if names else "is none"


def _deleted(context: dict[str, Any]) -> list[str]:
    """The ids of the snapshots that were deleted by hand."""
    known = context.get(_DELETED)
    return [ident for ident in known if isinstance(ident, str)] if isinstance(known, list) else []


def _each(idents: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(idents))


def automatic_at(doc: dict[str, Any], end: int | None) -> str | None:
    """The name of the newest automatic snapshot, if it stands where the session has so many messages (None: all)."""
    messages = doc["messages"][:end]
    taken = [item for item in doc["context"].get("snapshots", ()) if _is_automatic(item)]
    newest = max(taken, key=_age, default=None)
    return newest.get("name") if newest and messages and newest.get("message") == messages[-1]["id"] else None


def rolled(items: Sequence[Snapshot], keep: int) -> tuple[list[Snapshot], list[Snapshot]]:
    """The snapshots that are kept, and those that are not: the newest ``keep`` automatic ones and as many by hand stay.

    So an automatic one never pushes out one that was taken by hand.
    """
    ordered = sorted(items, key=_age)
    kinds = ([item for item in ordered if _is_automatic(item) is automatic] for automatic in (True, False))
    kept = {item["id"] for kind in kinds for item in kind[max(0, len(kind) - keep) :]}
    return [item for item in ordered if item["id"] in kept], [item for item in ordered if item["id"] not in kept]


def _with(items: Iterable[Snapshot], new: Snapshot) -> list[Snapshot]:
    """The snapshots with one more, oldest first.

    Of two by hand with one name the newer counts; an automatic one gets another name than those that are there.
    """
    others = list(items)
    if _is_automatic(new):
        taken = {item.get("name") for item in others}
        new = {**new, "name": _next_name(others)} if new.get("name") in taken else new
        return sorted([*others, new], key=_age)
    same = sorted([*(item for item in others if _is_same(item, new)), new], key=_age)
    return sorted([*(item for item in others if not _is_same(item, new)), same[-1]], key=_age)


def _is_same(one: Snapshot, other: Snapshot) -> bool:
    return not _is_automatic(one) and one.get("name") == other.get("name")


def _is_automatic(snapshot: Snapshot) -> bool:
    return snapshot.get("reason") == "auto"


def _next_name(items: Iterable[Snapshot]) -> str:
    found = (re.fullmatch(_AUTOMATIC, item.get("name") or "") for item in items)
    return f"auto-{1 + max((int(match[1]) for match in found if match), default=0)}"


def _age(record: dict[str, Any]) -> str:
    return record.get("created_at") or ""


# ---- uniting


def united(ours: dict[str, Any], theirs: dict[str, Any], keep: int | None) -> dict[str, Any]:
    """What both copies of a session come to in their context: ``summaries``, ``snapshots`` and ``compaction``.

    Of snapshots the file (``theirs``) decides: one that it lacks was rolled away, unless it was taken since ours was
    read or saved. Where we bring such a one, the newest ``keep`` of each kind stay; None and 0 roll nothing away. What
    was deleted by hand in either copy is in neither.
    Summaries are joined by id; those that nothing uses any more keep only what says what was paid.
    """
    known = theirs["context"]
    deleted = _each([*_deleted(known), *_deleted(ours["context"])])
    snapshots = [item for item in known.get("snapshots", ()) if item["id"] not in deleted]
    ids = {*deleted, *(item["id"] for item in snapshots)}
    since = ours["updated_at"]
    fresh = [item for item in ours["context"].get("snapshots", ()) if item["id"] not in ids and _age(item) > since]
    for item in fresh:
        snapshots = _with(snapshots, item)
    if fresh and keep:
        snapshots, _ = rolled(snapshots, keep)
    both = [record for record in (known.get("compaction"), ours["context"].get("compaction")) if record]
    compaction = max(both, key=lambda record: record.get("at") or "", default=None)
    summaries = _joined(ours["context"].get("summaries", ()), known.get("summaries", ()))
    return {
        "summaries": _trimmed(summaries, snapshots, compaction),
        "snapshots": snapshots,
        "compaction": compaction,
        **({_DELETED: deleted} if deleted else {}),
    }


def _joined(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The summaries of both, with their text where either has it: a compaction may use one that another run trimmed."""
    told = {item["id"]: item for item in ours if _has_text(item)}
    known = {item["id"] for item in theirs}
    kept = [item if _has_text(item) else told.get(item["id"], item) for item in theirs]
    return [*kept, *(item for item in ours if item["id"] not in known)]


def _trimmed(
    summaries: Sequence[dict[str, Any]], snapshots: Sequence[Snapshot], compaction: dict[str, Any] | None
) -> list[dict[str, Any]]:
    newest = {item["id"] for item in sorted(summaries, key=_age)[-_RECENT:]}
    used = newest | _named_by(snapshots, compaction)
    return [
        item if item["id"] in used else {key: value for key, value in item.items() if key not in _TOLD}
        for item in summaries
    ]


def _named_by(snapshots: Iterable[Snapshot], compaction: dict[str, Any] | None) -> set[object]:
    """The ids of the summaries that a compaction uses, and that snapshots and their compactions do."""
    taken = list(snapshots)
    compactions = (compaction, *(item.get("compaction") for item in taken))
    return {
        *(ident for item in taken for ident in item.get("summaries") or ()),
        *(record.get("summary") for record in compactions if record),
    }


def _has_text(summary: dict[str, Any]) -> bool:
    return summary.get("text") is not None


def _within(summaries: Iterable[dict[str, Any]], ids: Set[str]) -> list[dict[str, Any]]:
    """The summaries of messages with these ids."""
    return [summary for summary in summaries if {summary.get("first"), summary.get("last")} <= ids]


# ---- restoring


def named(context: dict[str, Any], name: str) -> Snapshot | None:
    """The newest snapshot of that name."""
    found = [item for item in context.get("snapshots", ()) if item.get("name") == name]
    return max(reversed(found), key=_age) if found else None


def as_of(
    context: dict[str, Any], messages: Sequence[Message], end: int, snapshot: Snapshot | None = None
) -> dict[str, Any]:
    """The context of a session of which the first ``end`` messages are left; at a ``snapshot`` the compaction of then.

    Of summaries all stay that tell of nothing else, also newer ones: they were paid for. What refers to other messages
    goes, or, where it is the mark of what was consolidated, moves to the last one left: none of them is to be
    consolidated again.
    """
    ids = [message["id"] for message in messages[:end]]
    left = set(ids)
    taken = list(context.get("snapshots", ()))
    if snapshot:
        taken = taken[: 1 + [item["id"] for item in taken].index(snapshot["id"])]
    taken = [item for item in taken if item.get("message") in left]
    compaction = (snapshot or context).get("compaction")
    summaries = _within(context.get("summaries", ()), left)
    told = {None, *(item["id"] for item in summaries if _has_text(item))}
    if compaction and not (compaction.get("upto") in left and compaction.get("summary") in told):
        compaction = None
    if compaction and end < len(messages) and _lacks_recent(compaction, ids):
        compaction = None
    consolidated = context.get("consolidated")
    if consolidated not in left:
        is_behind = any(message["id"] == consolidated for message in messages[end:])
        consolidated = messages[end - 1]["id"] if is_behind and end else None
    of_then = {"summaries": summaries, "snapshots": taken, "compaction": compaction, "consolidated": consolidated}
    return {**context, **of_then}


def _lacks_recent(compaction: dict[str, Any], ids: Sequence[str]) -> bool:
    """Whether fewer messages are left behind what a compaction shortens than it was made with: it was not in force."""
    return len(ids) - 1 - ids.index(compaction["upto"]) < (compaction.get("kept") or 0)
