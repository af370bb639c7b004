"""Sum up what sessions used, by day and by model, for ``--usage``."""

from collections.abc import Iterable, Iterator
from datetime import date
from typing import TYPE_CHECKING, NamedTuple, Required, TypedDict, cast

from gptsh.core.document import TOKEN_KEYS
from gptsh.core.usage import add_counts
from gptsh.messages import matches_model

if TYPE_CHECKING:
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
    """Local days, newest first; models by cost, then tokens, highest first; one row for all."""

    days: list[Row]
    models: list[Row]
    total: Row


def count(
    sessions: "Iterable[Days]",
    model: str | None = None,
    limit: int | None = None,
    since: date | None = None,
) -> Report:
    """Return the sums over sessions.

    ``model`` selects models (see ``matches_model``); ``since`` is the first day, and ``limit`` the
    number of days, newest first. ``cost`` is the sum of known costs in USD;
    ``unpriced`` counts the other answers.
    """
    all_days = _join_days(sessions, model, since.isoformat() if since else "")
    by_day: dict[str, Sums] = {}
    by_model: dict[str, Sums] = {}
    total: Sums = {}
    for day in sorted(all_days, reverse=True)[:limit]:
        for name, counts in all_days[day].items():
            add_counts(by_day.setdefault(day, {}), counts)
            add_counts(by_model.setdefault(name, {}), counts)
            add_counts(total, counts)
    ranked = sorted(by_model.items(), key=_rank)
    return Report(
        days=[{"day": day, **_row(sums)} for day, sums in by_day.items()],
        models=[{"model": name or None, **_row(sums)} for name, sums in ranked],
        total=_row(total),
    )


def _join_days(sessions: "Iterable[Days]", model: str | None, first_day: str) -> "Days":
    """Return the sums of all sessions from a day on, for the models that match."""
    joined: Days = {}
    for days in sessions:
        for day, models in days.items():
            if day < first_day:
                continue
            for name, counts in models.items():
                if matches_model(name, model):
                    joined_models = joined.setdefault(day, {})
                    add_counts(joined_models.setdefault(name, {}), counts)
    return joined


def _rank(entry: "tuple[str, Sums]") -> tuple[float, float, str]:
    """Sort models by cost, then by tokens, highest first, then by name."""
    name, sums = entry
    return -sums.get("cost", 0), -sums.get("total", 0), name


def _row(sums: "Sums") -> Row:
    # A count that no answer reported is unknown, but these two are 0.
    fields = {**dict.fromkeys(FIELDS), "answers": 0, "unpriced": 0, **sums}
    return cast(Row, fields)


def rows(report: Report) -> Iterator[Row]:
    """Yield the rows of a report; ``by`` is ``day``, ``model`` or ``total``."""
    for row in report.days:
        yield {"by": "day", **row}
    for row in report.models:
        yield {"by": "model", **row}
    yield {"by": "total", **report.total}
