"""Count the tokens and the cost of a session by day and model; write its file with these totals.

A session counts its own answers: what a fork inherited counts in its origin.
"""

import os
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from gptsh.core import document
from gptsh.core.document import TOKEN_KEYS, Document
from gptsh.jsonio import as_dict
from gptsh.messages import Message, full_name, token_count

if TYPE_CHECKING:
    from gptsh.core.document import Head
    from gptsh.core.document_types import Days, Sums


def write_session(
    path: Path,
    doc: Document,
    *,
    fsync: bool,
    times: tuple[int, int] | None = None,
) -> None:
    """Replace a session's file; its totals, of all messages and by day and model, are computed.

    ``times`` are the file's last access and last change (ns); None: now. The caller holds the
    store's lock. Raises as ``write_document``.
    """
    document.recount(doc)
    doc["stats"]["days"] = sums_by_day(doc)
    document.write_document(path, doc, fsync=fsync)
    if times:
        os.utime(path, ns=times)


def read_days(path: str) -> "tuple[Head, Days]":
    """Return the head of a file as ``read_head`` does, and what the session used.

    Raises ValueError if the file is not a session, OSError if it cannot be read.
    """
    head = document.read_head(path)
    if "messages" in head:  # another program wrote the file, and may have kept our sums
        return head, sums_by_day(cast(Document, head))
    days = as_dict(head.get("stats")).get("days")
    if _are_days(days):
        return head, cast("Days", days)
    doc, _ = document.read_document(path, document.LIST_LIMIT)
    return doc, sums_by_day(doc)


def _are_days(value: Any) -> bool:
    """Return whether a value from a file can be the result of ``sums_by_day``."""
    try:
        for models in value.values():
            for sums in models.values():
                for number in sums.values():
                    if type(number) not in (int, float):
                        return False
    except AttributeError:  # no table
        return False
    return True


def sums_by_day(doc: Document) -> "Days":
    """Return what a document used: its answers, calls of the small model, what it carries."""
    days: Days = {}
    first_day = _local_day(doc["created_at"]) or ""
    for entry in _entries(doc):
        if entry.counts:
            day = _local_day(entry.moment) or first_day
            models = days.setdefault(day, {})
            sums = models.setdefault(entry.model or "", {})
            add_counts(sums, entry.counts)
    return days


class _Entry(NamedTuple):
    """What a message, or a call of the small model, used."""

    moment: str | None  # ISO 8601
    model: str | None  # its full name
    counts: "Sums"  # those that are known


def _entries(doc: Document) -> Iterator[_Entry]:
    """Yield all that a document counts."""
    usage = doc["usage"]
    provider = doc["provider"].get("name")
    model = usage.get("carried_model") or full_name(doc["agent"].get("model"), provider)
    carried = usage.get("carried")
    for message in _own_messages(doc):
        counts = _known_counts(message.get("usage"), message.get("cost"))
        if message["role"] == "assistant":
            counts["answers"] = 1
            is_carried = carried is not None and "usage" not in message
            if "cost" not in counts and not is_carried:
                counts["unpriced"] = 1
        own_model = full_name(message.get("model"), message.get("provider"))
        yield _Entry(message.get("timestamp"), own_model or model, counts=counts)

    small_model = full_name(doc["agent"].get("model_small"), provider) or model
    for call in usage["calls"]:
        counts = _known_counts(call.get("tokens"), call.get("cost"))
        own_model = full_name(call.get("model"), provider)
        yield _Entry(call.get("at"), own_model or small_model, counts=counts)

    counts = _known_counts(usage.get("carried_tokens"), carried)
    yield _Entry(doc["created_at"], model, counts=counts)


def _own_messages(doc: Document) -> Iterator[Message]:
    """Yield the messages without those that a fork inherited, which are older than the fork."""
    is_fork = bool(doc["meta"].get("forked_from"))
    for message in doc["messages"]:
        is_inherited = is_fork and (message.get("timestamp") or "") < doc["created_at"]
        if not is_inherited:
            yield message


def _known_counts(tokens: Mapping[str, object] | None, cost: float | None) -> "Sums":
    """Return the known token counts and cost."""
    counts: Sums = {}
    if tokens:
        for key in TOKEN_KEYS:
            count = token_count(tokens.get(key))
            if count is not None:
                counts[key] = count
        if "total" not in counts and "prompt" in counts and "completion" in counts:
            counts["total"] = counts["prompt"] + counts["completion"]
    if cost is not None:
        counts["cost"] = cost
    return counts


def add_counts(sums: "Sums", counts: "Sums") -> None:
    """Add counts to sums, in place."""
    for field, number in counts.items():
        sums[field] = sums.get(field, 0) + number
    if "cost" in counts:
        sums["cost"] = round(sums["cost"], 10)


def _local_day(moment: str | None) -> str | None:
    """Return the local day of a time in ISO 8601, at most today; None for an impossible one."""
    try:
        day = datetime.fromisoformat(moment or "").astimezone().date()
        return min(day, date.today()).isoformat()
    except (ValueError, OverflowError, OSError):
        return None
