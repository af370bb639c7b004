"""Count tokens and cost by day and model, at each save; make the rows of ``--usage``.

A session counts its own answers: those that a fork inherited count in the session that they come from.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, NamedTuple, Required, TypedDict, cast

from gptsh.core import document
from gptsh.core.document import TOKEN_KEYS, Document
from gptsh.jsonio import as_dict
from gptsh.messages import Message, full_name, matches_model, token_count

if TYPE_CHECKING:
    from gptsh.core.document import Head
    from gptsh.core.document_types import Days, Field, Sums

FIELDS: tuple["Field", ...] = ("answers", *TOKEN_KEYS, "cost", "unpriced")


class Row(TypedDict, total=False):
    """The sums of a ``day``, of a ``model`` or of all; None is unknown."""

    by: str
    day: str
    model: str | None
    answers: Required[float]
    prompt: Required[float | None]
    completion: Required[float | None]
    total: Required[float | None]
    reasoning_tokens: Required[float | None]
    cached_tokens: Required[float | None]
    cost: Required[float | None]
    unpriced: Required[float]


class Report(NamedTuple):
    """Local days, newest first; models by cost, then by tokens, highest first; and one row for all."""

    days: list[Row]
    models: list[Row]
    total: Row


# ---- one session


def update_totals(doc: Document) -> None:
    """Compute the totals that a file keeps: those of all messages, and those by day and model."""
    document.update_totals(doc)
    doc["stats"]["days"] = sums_by_day(doc)


def read_days(path: str) -> "tuple[Head, Days]":
    """Return the head of a file as ``read_head`` does, and what the session used.

    Raises ValueError if the file is not a session, OSError if it cannot be read.
    """
    head = document.read_head(path)
    if "messages" in head:  # another program wrote the file, and may have kept our sums
        return head, sums_by_day(cast(Document, head))
    days = checked_days(as_dict(head.get("stats")).get("days"))
    if days is not None:
        return head, days
    doc, _ = document.read_document(path, document.LIST_LIMIT)
    return doc, sums_by_day(doc)


def sums_by_day(doc: Document) -> "Days":
    """Return what a complete document used: its own answers, calls of the small model, and what it carries."""
    days: Days = {}
    first_day = _local_day(doc["created_at"]) or ""
    for moment, model, counts in _entries(doc):
        if counts:
            day = _local_day(moment) or first_day
            sums = days.setdefault(day, {}).setdefault(model or "", {})
            _add(sums, counts)
    return days


def checked_days(value: object) -> "Days | None":
    """Return a value from a file if it can be the result of ``sums_by_day``, else None."""
    if not isinstance(value, dict):
        return None
    for models in value.values():
        if not isinstance(models, dict):
            return None
        for sums in models.values():
            if not isinstance(sums, dict):
                return None
            if not {int, float}.issuperset(map(type, sums.values())):
                return None
    return value


def _entries(doc: Document) -> "Iterator[tuple[str | None, str | None, Sums]]":
    """All that a document counts: a time in ISO 8601, the full name of a model, and counts."""
    usage, provider = doc["usage"], doc["provider"].get("name")
    model = usage.get("carried_model") or full_name(doc["agent"].get("model"), provider)
    small_model = full_name(doc["agent"].get("model_small"), provider) or model
    has_carried = usage.get("carried") is not None
    for message in _own_messages(doc):
        own_model = full_name(message.get("model"), message.get("provider"))
        yield message.get("timestamp"), own_model or model, _message_counts(message, has_carried=has_carried)
    for call in usage["calls"]:
        counts = _known_counts(call.get("tokens"), call.get("cost"))
        yield call.get("at"), full_name(call.get("model"), provider) or small_model, counts
    yield doc["created_at"], model, _known_counts(usage.get("carried_tokens"), usage.get("carried"))


def _own_messages(doc: Document) -> Iterable[Message]:
    """The messages of the session itself: a fork is created after those that it inherited."""
    messages = doc["messages"]
    if not doc["meta"].get("forked_from"):
        return messages
    return [message for message in messages if (message.get("timestamp") or "") >= doc["created_at"]]


def _message_counts(message: Message, *, has_carried: bool) -> "Sums":
    """The known counts of a message; the cost of an answer without usage may be part of what the session carries."""
    counts = _known_counts(message.get("usage"), message.get("cost"))
    if message["role"] == "assistant":
        counts["answers"] = 1
        if "cost" not in counts and not (has_carried and "usage" not in message):
            counts["unpriced"] = 1
    return counts


def _known_counts(tokens: Mapping[str, object] | None, cost: float | None) -> "Sums":
    """Return the known token counts and cost."""
    known: Sums = {}
    for key in TOKEN_KEYS:
        count = token_count((tokens or {}).get(key))
        if count is not None:
            known[key] = count
    if "total" not in known and "prompt" in known and "completion" in known:
        known["total"] = known["prompt"] + known["completion"]
    if cost is not None:
        known["cost"] = cost
    return known


def _add(sums: "Sums", counts: "Sums") -> None:
    for field, number in counts.items():
        sums[field] = sums.get(field, 0) + number
    if "cost" in counts:
        sums["cost"] = round(sums["cost"], 10)


def _local_day(moment: str | None) -> str | None:
    """The local day of a time in ISO 8601, at most today; None for none, and for a year that no date can have."""
    try:
        day = datetime.fromisoformat(moment or "").astimezone().date()
        return min(day, date.today()).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


# ---- many sessions


def count(sessions: "Iterable[Days]", model: str | None = None, limit: int | None = None) -> Report:
    """Return the sums over sessions.

    ``model`` selects a model (see ``matches_model``); ``limit`` is the number of days, newest first. ``cost`` is the
    sum of known costs in USD; ``unpriced`` counts the answers without a known cost.
    """
    all_days: Days = {}
    for days in sessions:
        for day, models in days.items():
            for name, counts in models.items():
                if matches_model(name, model):
                    _add(all_days.setdefault(day, {}).setdefault(name, {}), counts)
    newest = sorted(all_days, reverse=True)[:limit]
    by_day: dict[str, Sums] = {}
    by_model: dict[str, Sums] = {}
    total: Sums = {}
    for day in newest:
        for name, counts in all_days[day].items():
            for sums in (by_day.setdefault(day, {}), by_model.setdefault(name, {}), total):
                _add(sums, counts)
    ranked = sorted(by_model.items(), key=_rank)
    return Report(
        days=[{"day": day, **_row(sums)} for day, sums in by_day.items()],
        models=[{"model": name or None, **_row(sums)} for name, sums in ranked],
        total=_row(total),
    )


def _rank(model: "tuple[str, Sums]") -> tuple[float, float, str]:
    """Return the key that sorts models by cost, then by tokens, highest first, then by name."""
    name, sums = model
    return -sums.get("cost", 0), -sums.get("total", 0), name


def _row(sums: "Sums") -> Row:
    return {
        "answers": sums.get("answers", 0),
        "prompt": sums.get("prompt"),
        "completion": sums.get("completion"),
        "total": sums.get("total"),
        "reasoning_tokens": sums.get("reasoning_tokens"),
        "cached_tokens": sums.get("cached_tokens"),
        "cost": sums.get("cost"),
        "unpriced": sums.get("unpriced", 0),
    }


def rows(report: Report) -> Iterator[Row]:
    """Yield the rows of a report; ``by`` is ``day``, ``model`` or ``total``."""
    for row in report.days:
        yield {"by": "day", **row}
    for row in report.models:
        yield {"by": "model", **row}
    yield {"by": "total", **report.total}
