"""What the answers of sessions used and cost: documents in, sums by day and by model out.

What has an id counts once, in whichever document it stands, since a fork copies messages with their ids.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from gptsh.core.document import TOKEN_KEYS, Document
from gptsh.messages import sum_costs, token_count
from gptsh.models.facts import with_provider
from gptsh.models.names import full_name, is_named

FIELDS = ("answers", *TOKEN_KEYS, "cost", "unpriced")

Row = dict[str, Any]  # FIELDS behind a "day" or a "model"; tokens and cost are None where nothing is known
Sums = Counter[str]  # of FIELDS those that are known
# What counts once; when, in ISO 8601; the model's full name; and what it used.
_Spent = tuple[str, str | None, str | None, dict[str, Any]]


class Report(NamedTuple):
    """Local days, the newest first; models, the dearest first, then those of most tokens; and all of it in one row."""

    days: list[Row]
    models: list[Row]
    total: Row


def count(documents: Iterable[Document], model: str | None = None, limit: int | None = None) -> Report:
    """The sums over whole documents, each let go before the next one is taken.

    ``model`` leaves all others out (see ``is_named``); ``limit`` is how many days count, the newest ones. A cost is
    the sum of what is known, in USD; ``unpriced`` counts the answers whose cost is not.
    """
    cells: dict[tuple[str, str | None], Sums] = {}
    seen: set[str] = set()
    for doc in documents:
        for key, at, name, used in _spendings(doc):
            if used and key not in seen:
                seen.add(key)
                if is_named(name, model):
                    day = _local_day(at) or _local_day(doc["created_at"]) or ""
                    cells.setdefault((day, name), Counter()).update(used)
    days: dict[str, Sums] = {day: Counter() for day in sorted({day for day, _ in cells}, reverse=True)[:limit]}
    models: dict[str | None, Sums] = {}
    total: Sums = Counter()
    for (day, name), used in cells.items():
        if day in days:
            for sums in (days[day], models.setdefault(name, Counter()), total):
                sums.update(used)
    ranked = sorted(models.items(), key=lambda item: (-item[1]["cost"], -item[1]["total"], item[0] or ""))
    return Report(
        [{"day": day, **_row(sums)} for day, sums in days.items()],
        [{"model": name, **_row(sums)} for name, sums in ranked],
        _row(total),
    )


def rows(report: Report) -> Iterator[Row]:
    """The rows of a report one after the other, each told apart by ``by``: ``day``, ``model`` or ``total``."""
    yield from ({"by": "day", **row} for row in report.days)
    yield from ({"by": "model", **row} for row in report.models)
    yield {"by": "total", **report.total}


def _spendings(doc: Document) -> Iterator[_Spent]:
    usage, messages, agent = doc["usage"], doc["messages"], doc["agent"]
    provider = doc["provider"].get("name")
    model = usage.get("carried_model") or full_name(agent.get("model"), provider)  # of an answer that names none
    small = _full(agent.get("model_small"), provider) or model
    tokens, carried = usage.get("carried_tokens"), usage.get("carried")
    for message in messages:
        used = _used(message.get("usage"), message.get("cost"))
        if message["role"] == "assistant":
            is_priced = "cost" in used or (carried is not None and "usage" not in message)  # with what was carried
            used |= {"answers": 1, "unpriced": int(not is_priced)}
        if used:
            named = full_name(message.get("model"), message.get("provider"))
            yield message["id"], message.get("timestamp"), named or model, used
    for call in usage["calls"]:
        yield call["id"], call.get("at"), _full(call.get("model")) or small, _used(call.get("tokens"), call.get("cost"))
    if tokens is None and not any(_used(message.get("usage"), None) for message in messages):
        tokens = usage["tokens"]  # the first gptsh kept them there alone
    own = f"carried by {doc['id']} {doc['created_at']}"  # the same in a copy that lies in the archive
    yield own, doc["created_at"], model, _used(tokens, carried)


@cache
def _full(model: str | None, provider: str | None = None) -> str | None:
    """As ``with_provider``, each name looked up once."""
    return with_provider(model, provider) if model else None


def _used(tokens: Mapping[str, Any] | None, cost: float | None) -> dict[str, Any]:
    """The tokens and the cost that are known."""
    counts = {key: token_count((tokens or {}).get(key)) for key in TOKEN_KEYS}
    known: dict[str, Any] = {key: number for key, number in counts.items() if number is not None}
    if "total" not in known and "prompt" in known and "completion" in known:
        known["total"] = known["prompt"] + known["completion"]
    return known if cost is None else {**known, "cost": cost}


def _local_day(moment: str | None) -> str | None:
    try:
        return datetime.fromisoformat(moment or "").astimezone().date().isoformat()
    except (ValueError, OverflowError):
        return None


def _row(sums: Sums) -> Row:
    known = {key: sums.get(key) for key in FIELDS}
    counts = {key: sums[key] for key in ("answers", "unpriced")}
    return {**known, **counts, "cost": sum_costs([sums.get("cost")])}
