"""Limit cost: compare each request with ``--max-cost`` and ``per_day``."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date

from gptsh import files
from gptsh.config.settings import Settings, cost_of
from gptsh.content.answer import Answer
from gptsh.context import tokens
from gptsh.core import locks, usage_report
from gptsh.core.folders import make_private, sessions_folder
from gptsh.errors import ConfigError, StoreError, TooExpensive, UsageError
from gptsh.jsonio import as_dict, encode_json, parse_json
from gptsh.manage.lists import Filters
from gptsh.manage.usage import counted
from gptsh.messages import Request
from gptsh.models.facts import split_model
from gptsh.models.usage import usage_from
from gptsh.terminal import stdio
from gptsh.text import format_usd

_ANSWER_TOKENS = 4096  # of an answer that no parameter limits
_LEDGER = "spent.json"
_MAX_LEDGER = 10_000  # bytes


class Budget:
    """What requests may still cost: ``max_cost`` of this turn, ``per_day`` of all runs.

    A request counts with its expected price while it runs, then with its actual cost.
    Several threads may use it.
    """

    def __init__(self, config: Settings, max_cost: float | None) -> None:
        """Begin the budget of a turn; at least one of the two ceilings is set.

        Raises UsageError for a negative ``max_cost``.
        """
        if max_cost is not None and max_cost < 0:
            raise UsageError(f"max_cost is {max_cost}", "it must be an amount in USD, 0 or more")
        self._settings = config
        self._max_cost = max_cost
        self._per_day = config.limits.per_day
        self._spent = 0.0  # of this turn
        self._lock = threading.Lock()

    @property
    def remaining(self) -> float | None:
        """USD that this turn may still spend; None without ``max_cost``."""
        return None if self._max_cost is None else self._max_cost - self._spent

    def check(self, request: Request) -> None:
        """Raise TooExpensive if a request may cost too much, ConfigError if nobody knows it."""
        price = self._expected_price(request)
        _refuse_above("max_cost", self._max_cost, self._spent, request, price)
        if self._per_day is not None:
            _refuse_above("per_day", self._per_day, _spent_today(), request, price)

    @contextmanager
    def spending(self, request: Request, answer: Answer) -> Iterator[None]:
        """Count a request, which is sent inside the block.

        Raises as ``check``, and StoreError: without its ledger a limit of the day cannot be kept.
        """
        price = self._expected_price(request)
        day = date.today().isoformat()
        with self._lock:
            _refuse_above("max_cost", self._max_cost, self._spent, request, price)
            self._reserve_today(request, price)
            self._spent += price
        try:
            yield
        finally:
            cost = None
            if answer.usage:
                cost = cost_of(self._settings, request.model, answer.usage)
            if cost is None and answer.message("error") is None:  # nothing has arrived
                cost = 0.0
            if cost is not None:  # else the expected price stays counted
                self._correct(cost - price, day)

    def _reserve_today(self, request: Request, price: float) -> None:
        """Count a request in the ledger of the day, unless that would exceed ``per_day``."""
        if self._per_day is None:
            return

        def add(spent: float) -> float:
            _refuse_above("per_day", self._per_day, spent, request, price)
            return spent + price

        _change_spent_today(add)

    def _correct(self, difference: float, day: str) -> None:
        """Add what a request has cost more or less; a ledger that fails keeps the expected price."""
        with self._lock:
            self._spent += difference
        if self._per_day is None or date.today().isoformat() != day:
            return  # past midnight the ledger has nothing of this request
        try:
            _change_spent_today(lambda spent: max(0.0, spent + difference))
        except StoreError as err:
            stdio.note(str(err))

    def _expected_price(self, request: Request) -> float:
        """Return what a request may cost: with an answer that is as long as a parameter allows.

        Without such a parameter it counts as ``_ANSWER_TOKENS`` long. A web search counts once,
        where its fee is known.

        Raises ConfigError if its price is unknown, unless ``allow_unknown`` is set.
        """
        provider = split_model(request.model)[0]
        if provider == "echo":
            return 0.0
        prompt_tokens = tokens.count_tools(request.tools)
        prompt_tokens += sum(map(tokens.count_message, request.messages))
        limit = _limit(request, "max_tokens") or _limit(request, "max_completion_tokens")
        answer_tokens = limit or _ANSWER_TOKENS
        answers = _limit(request, "n") or 1
        counts = usage_from(
            {"prompt_tokens": prompt_tokens, "completion_tokens": answer_tokens * answers},
            request.params.get("service_tier"),
        )
        if request.web:
            counts["searches"] = 1
        price = cost_of(self._settings, request.model, counts)
        if price is None and not self._settings.limits.allow_unknown:
            ceiling = "max_cost" if self._max_cost is not None else "per_day"
            raise ConfigError(
                f"{ceiling} is set, but the price of {request.model} is unknown",
                f"set [providers.{provider}.prices], or allow_unknown = true under [limits]",
            )
        return price or 0.0


def _limit(request: Request, name: str) -> int | None:
    """Return the value of a parameter that limits the answer.

    Raises UsageError for a negative one.
    """
    value = request.params.get(name)
    if type(value) is not int:
        return None
    if value < 0:
        raise UsageError(f"{name} is {value}, but with a cost limit it must be 0 or more")
    return value


def _refuse_above(
    name: str,
    ceiling: float | None,
    spent: float,
    request: Request,
    price: float,
) -> None:
    """Raise TooExpensive if a request may bring what is spent above a ceiling."""
    if ceiling is None or price <= ceiling - spent:
        return
    left = format_usd(max(0.0, ceiling - spent))
    raise TooExpensive(
        f"a request to {request.model} may cost {format_usd(price)}, "
        f"but only {left} of {name} ({format_usd(ceiling)}) is left",
        f"shorten it, lower max_tokens, choose another model with -m, or raise {name}",
    )


# ---- the ledger of the day
#
# Each run writes it before it sends a request. So parallel runs, deleted sessions and those that
# are not saved count, too.


def _spent_today() -> float:
    """Return what was spent today, in USD; without a ledger, what the saved answers have cost."""
    today = date.today().isoformat()
    ledger = {}
    with contextlib.suppress(OSError, ValueError, RecursionError):
        path = sessions_folder().parent / _LEDGER
        ledger = as_dict(parse_json(files.read_bytes(path, _MAX_LEDGER).decode()))
    day = ledger.get("day")
    spent = ledger.get("usd")
    # A day in the future counts as today, or a clock set back could pass the limit.
    if isinstance(day, str) and day >= today and isinstance(spent, (int, float)):
        return spent
    total = 0.0
    for row in usage_report.count(counted(None, Filters()), limit=1).days:
        if row["day"] == today:
            total += row["cost"] or 0.0
    return total


def _change_spent_today(change: Callable[[float], float]) -> None:
    """Replace what was spent today by the result of ``change``, unless that raises.

    Raises StoreError if the ledger cannot be written.
    """
    folder = sessions_folder().parent
    with files.as_store_error("today's cost cannot be recorded", folder):
        make_private(folder)
        with locks.locked(folder, wait=None, note=stdio.note):
            spent = change(_spent_today())
            ledger = {"day": date.today().isoformat(), "usd": round(spent, 10)}
            files.replace(folder / _LEDGER, encode_json(ledger), fsync=False)
