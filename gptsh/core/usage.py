"""``--usage``: tokens and cost of sessions, summed by day and by model.

An id counts once, in whichever document it is: a fork copies messages with their ids.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Any

from gptsh.core.document import TOKEN_KEYS, Document
from gptsh.core.message_usage import MessageUsage, known_counts, message_usage
from gptsh.messages import sum_costs
from gptsh.models.facts import with_provider
from gptsh.models.names import full_name, matches_model
from gptsh.records import NamedTuple

FIELDS = ("answers", *TOKEN_KEYS, "cost", "unpriced")

_LAST_DAY = "9999-12-31"  # of a file whose time is in no year that a date can have
Row = dict[str, Any]  # FIELDS after a "day" or a "model"; tokens and cost are None if unknown
Sums = Counter[str]  # the known values of FIELDS
Counted = tuple[Document, list[MessageUsage]]  # a document, with or without its messages, and what they used


class Report(NamedTuple):
    """Local days, newest first; models by cost, then by tokens, highest first; and one row for all."""

    days: list[Row]
    models: list[Row]
    total: Row


def counted(doc: Document) -> Counted:
    """Return a complete document with the usage of its messages."""
    return doc, message_usage(doc)


def count(items: Iterable[tuple[float, Counted]], model: str | None = None, limit: int | None = None) -> Report:
    """Return the sums over documents, one at a time; each comes with the time of its last change since 1970.

    ``model`` selects a model (see ``matches_model``); ``limit`` is the number of days, newest first. With a limit, the
    items must come newest first: those that changed before the days in question are not read. ``cost`` is the sum of
    known costs in USD; ``unpriced`` counts the answers without a known cost.
    """
    cells: dict[tuple[str, str | None], Sums] = defaultdict(Counter)  # by day and model
    seen: set[str] = set()
    for doc, messages in _of_newest_days(items, cells, limit):
        for key, moment, name, counts in _entries(doc, messages):
            if not counts or key in seen:
                continue
            seen.add(key)
            if matches_model(name, model):
                day = _local_day(moment) or _local_day(doc["created_at"]) or ""
                sums = cells[day, name]
                for field, number in counts.items():  # in half the time of ``Counter.update``
                    sums[field] += number
    return _report(cells, limit)


def _of_newest_days(
    items: Iterable[tuple[float, Counted]], cells: Mapping[tuple[str, str | None], Sums], limit: int | None
) -> Iterator[Counted]:
    """Yield documents until ``cells``, which the caller fills from them, has the newest ``limit`` days complete."""
    last_change = ""
    for changed, item in items:
        changed_on = _day_of(changed) or _LAST_DAY
        if limit is not None and changed_on != last_change:
            last_change, newest = changed_on, sorted({day for day, _ in cells}, reverse=True)[:limit]
            if len(newest) == limit and (not newest or changed_on < newest[-1]):
                return
        yield item


def _report(cells: Mapping[tuple[str, str | None], Sums], limit: int | None) -> Report:
    """Sum the cells by day and by model, for the newest ``limit`` days."""
    days: dict[str, Sums] = {day: Counter() for day in sorted({day for day, _ in cells}, reverse=True)[:limit]}
    models: dict[str | None, Sums] = {}
    total: Sums = Counter()
    for (day, name), counts in cells.items():
        if day in days:
            for sums in (days[day], models.setdefault(name, Counter()), total):
                sums.update(counts)
    ranked = sorted(models.items(), key=lambda item: (-item[1]["cost"], -item[1]["total"], item[0] or ""))
    day_rows = [{"day": day, **_row(sums)} for day, sums in days.items()]
    model_rows = [{"model": name, **_row(sums)} for name, sums in ranked]
    return Report(day_rows, model_rows, _row(total))


def rows(report: Report) -> Iterator[Row]:
    """Yield the rows of a report; ``by`` is ``day``, ``model`` or ``total``."""
    yield from ({"by": "day", **row} for row in report.days)
    yield from ({"by": "model", **row} for row in report.models)
    yield {"by": "total", **report.total}


def _entries(doc: Document, messages: list[MessageUsage]) -> Iterator[MessageUsage]:
    """All that a document counts: its messages, its calls of the small model, and what it carries."""
    usage, agent, provider = doc["usage"], doc["agent"], doc["provider"].get("name")
    model = usage.get("carried_model") or full_name(agent.get("model"), provider)  # for answers that name no model
    small_model = _full_name(agent.get("model_small"), provider) or model
    carried_tokens, carried = usage.get("carried_tokens"), usage.get("carried")
    for ident, moment, own_model, counts in messages:
        yield ident, moment, own_model or model, counts
    for call in usage.get("calls") or ():
        counts = known_counts(call.get("tokens"), call.get("cost"))
        yield call["id"], call.get("at"), _full_name(call.get("model")) or small_model, counts
    if carried_tokens is None and not any(set(TOKEN_KEYS) & set(counts) for *_, counts in messages):
        carried_tokens = usage.get("tokens")  # gptsh-cli 0.8 stored them only there
    carried_id = f"carried by {doc['id']} {doc['created_at']}"  # the same in an archived copy
    yield carried_id, doc["created_at"], model, known_counts(carried_tokens, carried)


@cache
def _full_name(model: str | None, provider: str | None = None) -> str | None:
    """Return ``with_provider`` of a model, cached by name."""
    return with_provider(model, provider) if model else None


def _local_day(moment: str | None) -> str | None:
    try:
        return _day_of(datetime.fromisoformat(moment or "").timestamp())
    except (ValueError, OverflowError, OSError):
        return None


def _day_of(seconds: float) -> str | None:
    """The local day of a time since 1970; None for a year that no date can have."""
    try:
        return datetime.fromtimestamp(seconds).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return None


def _row(sums: Sums) -> Row:
    row = {key: sums.get(key) for key in FIELDS}
    counts = {key: sums[key] for key in ("answers", "unpriced")}
    return {**row, **counts, "cost": sum_costs([sums.get("cost")])}
