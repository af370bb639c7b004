"""What the answers of sessions used and cost: documents in, sums by day and by model out.

What has an id counts once, in whichever document it stands, since a fork copies messages with their ids.
"""

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
_Sums = dict[str, float]  # of FIELDS those that are known


class Report(NamedTuple):
    """Local days, the newest first; models, the dearest first, then those of most tokens; and all of it in one row."""

    days: list[Row]
    models: list[Row]
    total: Row


class _Spent(NamedTuple):
    """What one call used. ``key`` counts once; ``at`` is ISO 8601; ``model`` is a full name."""

    key: str
    at: str | None
    model: str | None
    sums: _Sums


def count(documents: Iterable[Document], model: str | None = None, limit: int | None = None) -> Report:
    """The sums over whole documents, each let go before the next one is taken.

    ``model`` leaves all others out (see ``is_named``); ``limit`` is how many days count, the newest ones. A cost is
    the sum of what is known, in USD; ``unpriced`` counts the answers whose cost is not.
    """
    cells: dict[tuple[str, str | None], _Sums] = {}
    seen: set[str] = set()
    for doc in documents:
        for spent in _spendings(doc):
            if spent.sums and spent.key not in seen:
                seen.add(spent.key)
                if is_named(spent.model, model):
                    day = _local_day(spent.at) or _local_day(doc["created_at"]) or ""
                    _add(cells.setdefault((day, spent.model), {}), spent.sums)
    newest = sorted({day for day, _ in cells}, reverse=True)[:limit]
    days: dict[str, _Sums] = {day: {} for day in newest}
    models: dict[str | None, _Sums] = {}
    total: _Sums = {}
    for (day, name), sums in cells.items():
        if day in days:
            for place in (days[day], models.setdefault(name, {}), total):
                _add(place, sums)
    ranked = sorted(models.items(), key=lambda item: (-item[1].get("cost", 0), -item[1].get("total", 0), item[0] or ""))
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
    carried = _cost(usage.get("carried"))
    for message in messages:
        is_answer = message["role"] == "assistant"
        if is_answer or message.get("cost") is not None:
            sums = {**_tokens(message.get("usage")), **_cost(message.get("cost"))}
            if is_answer:
                is_priced = "cost" in sums or (carried and "usage" not in message)  # it came with what was carried
                sums |= {"answers": 1, "unpriced": int(not is_priced)}
            named = full_name(message.get("model"), message.get("provider"))
            yield _Spent(message["id"], message.get("timestamp"), named or model, sums)
    for call in usage["calls"]:
        sums = {**_tokens(call.get("tokens")), **_cost(call.get("cost"))}
        yield _Spent(call["id"], call.get("at"), _full(call.get("model")) or small, sums)
    tokens = usage.get("carried_tokens")
    if tokens is None and not any(_tokens(message.get("usage")) for message in messages):
        tokens = usage["tokens"]  # the first gptsh kept them there alone
    own = f"{doc['id']} {doc['created_at']}"  # the same in a copy that lies in the archive
    yield _Spent(f"carried by {own}", doc["created_at"], model, {**_tokens(tokens), **carried})


@cache
def _full(model: str | None, provider: str | None = None) -> str | None:
    """As ``with_provider``, each name looked up once."""
    return with_provider(model, provider) if model else None


def _tokens(usage: Mapping[str, Any] | None) -> _Sums:
    counts = {key: token_count((usage or {}).get(key)) for key in TOKEN_KEYS}
    known: _Sums = {key: number for key, number in counts.items() if number is not None}
    if "total" not in known and "prompt" in known and "completion" in known:
        known["total"] = known["prompt"] + known["completion"]
    return known


def _cost(cost: float | None) -> _Sums:
    return {} if cost is None else {"cost": cost}


def _local_day(moment: str | None) -> str | None:
    try:
        return datetime.fromisoformat(moment or "").astimezone().date().isoformat()
    except (ValueError, OverflowError):
        return None


def _add(sums: _Sums, more: _Sums) -> None:
    for key, number in more.items():
        sums[key] = sums.get(key, 0) + number


def _row(sums: _Sums) -> Row:
    row: Row = {key: sums.get(key) for key in FIELDS}
    return {
        **row,
        "answers": sums.get("answers", 0),
        "cost": sum_costs([sums.get("cost")]),
        "unpriced": sums.get("unpriced", 0),
    }
