"""The ceilings of cost: before each request, what it costs at most is compared with what may still be spent."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date

from gptsh.config import pricing
from gptsh.config.settings import Settings
from gptsh.content.answer import Answer
from gptsh.context import tokens
from gptsh.core import usage
from gptsh.errors import ConfigError, TooExpensive
from gptsh.manage import sums
from gptsh.manage.lists import Filters
from gptsh.messages import Request
from gptsh.models.facts import split_model
from gptsh.models.token_usage import usage_from
from gptsh.records import NamedTuple
from gptsh.text import format_usd

_ANSWER_TOKENS = 4096  # of an answer without a limit of its own


class Ceiling(NamedTuple):
    """A limit in USD by its name, and what was spent before this budget began."""

    name: str
    limit: float
    before: float = 0.0


class Budget:
    """What requests may still cost. Several threads may use it."""

    def __init__(self, config: Settings, ceilings: list[Ceiling]) -> None:
        self._settings, self._ceilings = config, ceilings
        self._spent = 0.0  # with what running requests cost at most
        self._lock = threading.Lock()

    @property
    def remaining(self) -> float:
        """USD that may still be spent."""
        return min(ceiling.limit - ceiling.before for ceiling in self._ceilings) - self._spent

    def check(self, request: Request) -> float:
        """Return what a request costs at most. Raises TooExpensive, and ConfigError if its price is unknown."""
        at_most = self._price_of(request)
        for ceiling in self._ceilings:
            left = ceiling.limit - ceiling.before - self._spent
            if not at_most <= left:  # also for a ceiling that is no number
                what = f"a request to {request.model} may cost {format_usd(at_most)}, and {format_usd(max(0.0, left))}"
                raise TooExpensive(
                    f"{what} of {ceiling.name} ({format_usd(ceiling.limit)}) are left",
                    f"shorten it, lower max_tokens, choose another model with -m, or raise {ceiling.name}",
                )
        return at_most

    @contextmanager
    def spending(self, request: Request, answer: Answer) -> Iterator[None]:
        """Count a request while it runs with what it costs at most, then with its actual cost. Raises as ``check``."""
        with self._lock:
            at_most = self.check(request)
            self._spent += at_most
        try:
            yield
        finally:
            cost = pricing.cost_of(self._settings, request.model, answer.usage) if answer.usage else None
            if cost is None and answer.message("error") is None:  # nothing has arrived
                cost = 0.0
            with self._lock:
                self._spent += (at_most if cost is None else cost) - at_most

    def _price_of(self, request: Request) -> float:
        provider = split_model(request.model)[0]
        if provider == "echo":
            return 0.0
        prompt = sum(map(tokens.count_message, request.messages)) + tokens.count_tools(request.tools)
        limits = (request.params.get(name) for name in ("max_tokens", "max_completion_tokens"))
        answer = next((limit for limit in limits if type(limit) is int), _ANSWER_TOKENS)
        counts = usage_from({"prompt_tokens": prompt, "completion_tokens": answer}, request.params.get("service_tier"))
        price = pricing.cost_of(self._settings, request.model, counts)
        if price is None and not self._settings.limits.allow_unknown:
            ways = f"set [providers.{provider}.prices], or allow_unknown = true under [limits]"
            raise ConfigError(f"{self._ceilings[0].name} is set, and the price of {request.model} is unknown", ways)
        return price or 0.0


def budget_of(config: Settings, max_cost: float | None) -> Budget | None:
    """Return a new budget of ``max_cost`` and what is left of ``per_day``; None if there is no ceiling."""
    ceilings = [] if max_cost is None else [Ceiling("max_cost", max_cost)]
    if config.limits.per_day is not None:
        ceilings.append(Ceiling("per_day", config.limits.per_day, _spent_today()))
    return Budget(config, ceilings) if ceilings else None


def _spent_today() -> float:
    """USD of today's answers, as far as they are saved and their cost is known."""
    days = usage.count(sums.counted(None, Filters()), limit=1).days
    today = [row["cost"] or 0.0 for row in days if row["day"] == date.today().isoformat()]
    return sum(today)
