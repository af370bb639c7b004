"""Limit cost: compare each request with ``--max-cost`` and ``per_day``; keep what today's runs have spent."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from gptsh import files
from gptsh.config.settings import Settings, cost_of
from gptsh.content.answer import Answer
from gptsh.context import tokens
from gptsh.core import locks, usage
from gptsh.core.folders import make_private, sessions_folder
from gptsh.errors import ConfigError, StoreError, TooExpensive, UsageError
from gptsh.jsonio import JsonObject, as_dict, encode_json, parse_json
from gptsh.manage.lists import Filters
from gptsh.manage.usage import counted
from gptsh.messages import Request
from gptsh.models.facts import split_model
from gptsh.models.usage import usage_from
from gptsh.terminal import stdio
from gptsh.text import format_usd

# ---- spending
#
# What the runs of this day may have spent: a small ledger that each run writes before it sends a
# request.
#
# So parallel runs, deleted sessions and those that are not saved count, too.

_MAX_SPENDING = 10_000  # bytes


def reserve_cost(change: Callable[[float], float], saved: Callable[[], float]) -> str:
    """Replace what was spent today, in USD, by the result of ``change``; return the day of the ledger.

    What ``change`` raises leaves it as it is. ``saved`` returns what today's sessions have cost, where nothing was
    recorded today. Raises StoreError.
    """
    folder = sessions_folder().parent
    with files.as_store_error("what is spent today cannot be recorded", folder):
        make_private(folder)
        with locks.locked(folder):
            day, spent = _today(saved)
            new = change(spent)
            files.replace(_spending_path(), encode_json({"day": day, "usd": round(new, 10)}), fsync=False)
            return day


def settle_cost(day: str, difference: float) -> None:
    """Add what a request of this day has cost less or more than was reserved. Raises StoreError."""

    def add(spent: float) -> float:
        return max(0.0, spent + difference) if _ledger().get("day") == day else spent  # it is past midnight

    reserve_cost(add, lambda: 0.0)


def spent_today(saved: Callable[[], float]) -> float:
    """Return what was spent today, in USD."""
    return _today(saved)[1]


def _today(saved: Callable[[], float]) -> tuple[str, float]:
    """The day and what was spent on it. A day in the future counts as today, or a clock set back could pass it."""
    today = date.today().isoformat()
    ledger = _ledger()
    day, spent = ledger.get("day"), ledger.get("usd")
    if isinstance(day, str) and day >= today and isinstance(spent, (int, float)):
        return today, spent
    return today, saved()


def _ledger() -> JsonObject:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return as_dict(parse_json(files.read_bytes(_spending_path(), _MAX_SPENDING).decode()))
    return {}


def _spending_path() -> Path:
    return sessions_folder().parent / "spent.json"


# ---- budget
#
# The ceilings of cost: before each request, what it costs at most is compared with what may still
# be spent.

_ANSWER_TOKENS = 4096  # of an answer without a limit of its own


class Budget:
    """What requests may still cost: ``max_cost`` of this turn, ``per_day`` of all runs. Several threads may use it."""

    def __init__(self, config: Settings, max_cost: float | None) -> None:
        self._settings = config
        self._max_cost = max_cost
        self._per_day = config.limits.per_day
        self._spent = 0.0  # with what running requests cost at most
        self._lock = threading.Lock()

    @property
    def remaining(self) -> float | None:
        """USD that this turn may still spend; None without ``max_cost``."""
        return None if self._max_cost is None else self._max_cost - self._spent

    def check(self, request: Request) -> None:
        """Raise TooExpensive if a request may cost too much, ConfigError if its price is unknown."""
        at_most = self._price_of(request)
        self._check_turn(request, at_most)
        if self._per_day is not None:
            spent = spent_today(_saved_today)
            _check(request, at_most, name="per_day", limit=self._per_day, spent=spent)

    @contextmanager
    def spending(self, request: Request, answer: Answer) -> Iterator[None]:
        """Count a request while it runs with what it costs at most, then with its actual cost.

        Raises as ``check``, and StoreError: without its ledger a limit of the day cannot be kept.
        """
        at_most = self._price_of(request)
        with self._lock:
            self._check_turn(request, at_most)
            self._spent += at_most
        day = ""
        if self._per_day is not None:
            try:
                day = self._reserve_today(request, at_most)
            except (TooExpensive, StoreError):
                with self._lock:
                    self._spent -= at_most
                raise
        try:
            yield
        finally:
            cost = cost_of(self._settings, request.model, answer.usage) if answer.usage else None
            if cost is None and answer.message("error") is None:  # nothing has arrived
                cost = 0.0
            if cost is not None:
                with self._lock:
                    self._spent += cost - at_most
                if day:
                    _settle(day, cost - at_most)

    def _check_turn(self, request: Request, at_most: float) -> None:
        if self._max_cost is not None:
            _check(request, at_most, name="max_cost", limit=self._max_cost, spent=self._spent)

    def _reserve_today(self, request: Request, at_most: float) -> str:
        """Count what a request may cost in the ledger, unless that would exceed ``per_day``; return its day."""
        limit = self._per_day or 0.0

        def add(spent: float) -> float:
            _check(request, at_most, name="per_day", limit=limit, spent=spent)
            return spent + at_most

        return reserve_cost(add, _saved_today)

    def _price_of(self, request: Request) -> float:
        """What a request costs at most, with one search of the web where its fee is known; echo costs nothing."""
        provider = split_model(request.model)[0]
        if provider == "echo":
            return 0.0
        prompt = sum(map(tokens.count_message, request.messages)) + tokens.count_tools(request.tools)
        answer = _limit(request, "max_tokens") or _limit(request, "max_completion_tokens") or _ANSWER_TOKENS
        answers = _limit(request, "n") or 1
        counts = usage_from(
            {"prompt_tokens": prompt, "completion_tokens": answer * answers}, request.params.get("service_tier")
        )
        if request.web:
            counts["searches"] = 1
        price = cost_of(self._settings, request.model, counts)
        if price is None and not self._settings.limits.allow_unknown:
            ceiling = "max_cost" if self._max_cost is not None else "per_day"
            ways = f"set [providers.{provider}.prices], or allow_unknown = true under [limits]"
            raise ConfigError(f"{ceiling} is set, and the price of {request.model} is unknown", ways)
        return price or 0.0


def _settle(day: str, difference: float) -> None:
    """Correct the ledger; where that fails, the answer counts with what it may have cost."""
    try:
        settle_cost(day, difference)
    except StoreError as err:
        stdio.note(str(err))


def _limit(request: Request, name: str) -> int | None:
    """The value of a parameter that limits the answer. Raises UsageError for a negative one."""
    value = request.params.get(name)
    if type(value) is not int:
        return None
    if value < 0:
        raise UsageError(f"{name} is {value}, and a ceiling of cost is set", f"{name} needs a positive number")
    return value


def _check(request: Request, at_most: float, *, name: str, limit: float, spent: float) -> None:
    left = limit - spent
    if not at_most <= left:  # also for a ceiling that is no number
        what = f"a request to {request.model} may cost {format_usd(at_most)}, and {format_usd(max(0.0, left))}"
        raise TooExpensive(
            f"{what} of {name} ({format_usd(limit)}) are left",
            f"shorten it, lower max_tokens, choose another model with -m, or raise {name}",
        )


def budget_of(config: Settings, max_cost: float | None) -> Budget | None:
    """Return a new budget of ``max_cost`` and what is left of ``per_day``; None if there is no ceiling.

    Raises UsageError for a negative one.
    """
    if max_cost is not None and max_cost < 0:
        raise UsageError(f"max_cost is {max_cost}", "it is an amount in USD, 0 or more")
    if max_cost is None and config.limits.per_day is None:
        return None
    return Budget(config, max_cost)


def _saved_today() -> float:
    """USD of today's answers, as far as they are saved and their cost is known."""
    days = usage.count(counted(None, Filters()), limit=1).days
    return sum(row["cost"] or 0.0 for row in days if row["day"] == date.today().isoformat())
