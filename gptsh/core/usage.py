"""What the answers of all sessions used and cost: documents in, sums by day and by model out.

What has an id counts once, in whichever document it stands, since a fork copies messages with their ids.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from gptsh.core.document import TOKEN_KEYS, Document
from gptsh.messages import Message, sum_costs, token_count
from gptsh.models.facts import with_provider
from gptsh.models.names import full_name, is_named

FIELDS = ("answers", *TOKEN_KEYS, "cost", "unpriced")
_UNIT = 10**12  # to a USD: sums of whole numbers are exact, in whatever order they are made

Row = dict[str, Any]  # FIELDS behind a "day" or a "model"; tokens and cost are None where nothing is known
_Sums = dict[str, int]  # of FIELDS those that are known, the cost in units


class Report(NamedTuple):
    """Local days, the newest first; models, the dearest first, then those of most tokens; and all of it in one row."""

    days: list[Row]
    models: list[Row]
    total: Row


class _Spent(NamedTuple):
    """What one call used, or a cost that stands beside the answers.

    ``key`` counts once; ``at`` is ISO 8601; ``model`` is a full name.
    """

    key: str
    at: str | None
    model: str | None
    sums: _Sums


def count(documents: Iterable[Document], model: str | None = None, limit: int | None = None) -> Report:
    """The sums over whole documents in today's shape, each let go before the next one is taken.

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
    return _report(cells, limit)


def rows(report: Report) -> Iterator[Row]:
    """The rows of a report one after the other, each told apart by ``by``: ``day``, ``model`` or ``total``."""
    yield from ({"by": "day", **row} for row in report.days)
    yield from ({"by": "model", **row} for row in report.models)
    yield {"by": "total", **report.total}


# ---- a document


def _spendings(doc: Document) -> Iterator[_Spent]:
    usage, messages = doc["usage"], doc["messages"]
    model, small = _models(doc)
    carried = _cost(usage, "carried")
    for message in messages:
        is_answer = message["role"] == "assistant"
        if is_answer or message.get("cost") is not None:
            is_priced = bool(carried) and "usage" not in message  # it came with the history that was carried
            sums = _of_message(message, is_answer=is_answer, is_priced=is_priced)
            named = full_name(_name(message.get("model")), _name(message.get("provider")))
            yield _Spent(message["id"], message.get("timestamp"), named or model, sums)
    for item in doc["context"].get("summaries", ()):
        named = _whole(_name(item.get("model"))) or small
        yield _Spent(item["id"], _name(item.get("created_at")), named, {**_tokens(item.get("usage")), **_cost(item)})
    for item in usage.get("memory_costs") or ():
        yield _Spent(item["id"], _name(item.get("at")), _whole(_name(item.get("model"))) or small, _cost(item))
    own = f"{doc['id']} {doc['created_at']}"  # the same in a copy that lies in the archive
    titled = _whole(_name(usage.get("title_model"))) or small
    yield _Spent(f"title of {own}", doc["created_at"], titled, _cost(usage, "title_cost"))
    yield _Spent(f"carried by {own}", doc["created_at"], model, {**_unsaid(doc), **carried})


def _models(doc: Document) -> tuple[str | None, str | None]:
    """Whose what names no model is: the session's model, for small jobs the small one."""
    agent, provider = doc["agent"], _name(doc["provider"].get("name"))
    model = _name(doc["usage"].get("carried_model")) or full_name(_name(agent.get("model")), provider)
    return model, _whole(_name(agent.get("model_small")), provider) or model


@cache
def _whole(model: str | None, provider: str | None = None) -> str | None:
    """As ``with_provider``, each name looked up once."""
    return with_provider(model, provider) if model else None


def _of_message(message: Message, *, is_answer: bool, is_priced: bool) -> _Sums:
    sums = {**_tokens(message.get("usage")), **_cost(message)}
    if is_answer:
        sums["answers"] = 1
        sums["unpriced"] = int("cost" not in sums and not is_priced)
    return sums


def _unsaid(doc: Document) -> _Sums:
    """Tokens that the document knows and no message says: the first gptsh kept them there alone."""
    usage = doc["usage"]
    if "carried_tokens" in usage:
        return _tokens(usage["carried_tokens"])
    said = any(_tokens(message.get("usage")) for message in doc["messages"])
    return {} if said else _tokens(usage["tokens"])


def _tokens(usage: object) -> _Sums:
    if not isinstance(usage, Mapping):
        return {}
    counts = {key: token_count(usage.get(key)) for key in TOKEN_KEYS}
    known = {key: number for key, number in counts.items() if number is not None}
    if "total" not in known and "prompt" in known and "completion" in known:
        known["total"] = known["prompt"] + known["completion"]
    return known


def _cost(table: Mapping[str, Any], key: str = "cost") -> _Sums:
    cost = table.get(key)
    return {} if cost is None else {"cost": round(cost * _UNIT)}


def _name(value: object) -> str | None:
    return value if value and isinstance(value, str) else None


def _local_day(moment: str | None) -> str | None:
    try:
        return datetime.fromisoformat(moment or "").astimezone().date().isoformat()
    except (ValueError, OverflowError):
        return None


# ---- sums


def _add(sums: _Sums, more: _Sums) -> None:
    for key, number in more.items():
        sums[key] = sums.get(key, 0) + number


def _report(cells: Mapping[tuple[str, str | None], _Sums], limit: int | None) -> Report:
    newest = sorted({day for day, _ in cells}, reverse=True)[:limit]
    days: dict[str, _Sums] = {day: {} for day in newest}
    models: dict[str | None, _Sums] = {}
    total: _Sums = {}
    for (day, model), sums in cells.items():
        if day in days:
            for place in (days[day], models.setdefault(model, {}), total):
                _add(place, sums)
    return Report(
        [{"day": day, **_row(sums)} for day, sums in days.items()],
        [{"model": model, **_row(models[model])} for model in sorted(models, key=lambda name: _rank(name, models))],
        _row(total),
    )


def _rank(model: str | None, models: Mapping[str | None, _Sums]) -> tuple[int, int, str]:
    sums = models[model]
    return -sums.get("cost", 0), -sums.get("total", 0), model or ""


def _row(sums: _Sums) -> Row:
    row: Row = {key: sums.get(key) for key in FIELDS}
    cost = sum_costs([sums["cost"] / _UNIT]) if "cost" in sums else None
    return {**row, "answers": sums.get("answers", 0), "cost": cost, "unpriced": sums.get("unpriced", 0)}
