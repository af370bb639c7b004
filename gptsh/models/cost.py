"""What an answer costs: a provider's usage and a model's prices to USD, as LiteLLM 1.106.2 computes it.

Not covered: service tiers, images and audio, fees of web searches and of a provider's other tools, cache writes for an
hour, regions of providers other than Anthropic.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gptsh.config.settings import Settings, facts_of
from gptsh.jsonio import as_dict
from gptsh.messages import Usage
from gptsh.models.facts import Facts, price
from gptsh.models.reported import usage_from

_ABOVE = re.compile(r"input_cost_per_token(_above_([0-9]+)(k?)_tokens)")
_HOURS = re.compile("([0-9]{2}:[0-9]{2})-([0-9]{2}:[0-9]{2})")
_XAI_TICK = 1e-10  # USD
_FIREWORKS_CACHED = 0.5  # of the input price, where the table has no price for cached tokens


class _Tokens(NamedTuple):
    prompt: int
    read: int  # of the prompt, from the cache
    written: int  # of the prompt, into the cache
    completion: int
    reasoning: int  # of the completion


class _Rates(NamedTuple):
    """USD per token; None is not known."""

    prompt: float | None
    completion: float | None
    read: float | None
    written: float | None
    reasoning: float | None


def of_call(settings: Settings, model: str, usage: Usage) -> float | None:
    """USD for one call of a model; None where it is not known."""
    return cost(facts_of(settings, model), usage["raw"])


def cost(known: Facts, raw: Mapping[str, Any], at: datetime | None = None) -> float | None:
    """USD for one answer; ``raw`` is the usage as the provider sent it, ``at`` when it was (now).

    None where the price is not known.
    """
    stated = _stated(known.provider, raw)
    if stated is not None:
        return stated
    tokens, rates = _counted(known.provider, raw), _rates(known.entry)
    if known.provider == "fireworks_ai" and rates.read is None and rates.prompt is not None:
        rates = rates._replace(read=rates.prompt * _FIREWORKS_CACHED)
    rates = _tiered(known, rates, tokens.prompt)
    off_peak = as_dict(known.entry.get("off_peak_pricing"))
    if _is_off_peak(off_peak, at or datetime.now(UTC)):
        rates = _rates(off_peak, "", rates)
    if rates.prompt is None and rates.completion is None:
        return None
    return _sum(known.provider, tokens, rates) * _factor(known, raw)


def _stated(provider: str, raw: Mapping[str, Any]) -> float | None:
    """What the provider itself says that it charged."""
    said: Any = raw.get("cost")
    if provider == "perplexity" and isinstance(said, Mapping):
        said = said.get("total_cost")
    if provider == "xai" and (ticks := price(raw.get("cost_in_usd_ticks"))) is not None:
        said = ticks * _XAI_TICK
    return price(said) if provider in ("perplexity", "xai", "openrouter") else None


def _factor(known: Facts, raw: Mapping[str, Any]) -> float:
    """What Anthropic asks more for where a model ran (``inference_geo``), and for its fast mode (``speed``)."""
    dearer = as_dict(known.entry.get("provider_specific_entry")) if known.provider == "anthropic" else {}
    where, speed = str(raw.get("inference_geo")).lower(), raw.get("speed")
    of_place = price(dearer.get(where)) if where != "fast" else None
    of_speed = price(dearer.get("fast")) if speed == "fast" else None
    return (of_place or 1.0) * (of_speed or 1.0)


def _counted(provider: str, raw: Mapping[str, Any]) -> _Tokens:
    usage = usage_from(dict(raw))
    prompt, completion = usage["prompt"] or 0, usage["completion"] or 0
    read, written = usage["cached_tokens"] or 0, usage["cache_write_tokens"] or 0
    if provider == "perplexity":  # no price of its own for cached tokens
        read = written = 0
    return _Tokens(prompt, read, written, completion, min(usage["reasoning_tokens"] or 0, completion))


def _rates(prices: Mapping[str, Any], tier: str = "", base: _Rates | None = None) -> _Rates:
    """The prices under the keys with this ending, where they are missing those of ``base``."""
    named = (
        prices.get(f"input_cost_per_token{tier}"),
        prices.get(f"output_cost_per_token{tier}"),
        prices.get(f"cache_read_input_token_cost{tier}"),
        prices.get(f"cache_creation_input_token_cost{tier}"),
        None if tier else prices.get("output_cost_per_reasoning_token"),
    )
    found = [price(value) for value in named]
    return _Rates(*(new if new is not None else old for new, old in zip(found, base or (None,) * 5, strict=True)))


def _tiered(known: Facts, rates: _Rates, prompt: int) -> _Rates:
    """The prices for a prompt of this length: the highest tier that it has crossed replaces all of them."""
    listed = known.entry.get("tiered_pricing")
    ranges = [tier for tier in map(as_dict, listed if isinstance(listed, list) else ()) if _range(tier)]
    if ranges and prompt:
        return _in_range(sorted(ranges, key=_range), rates, prompt)
    found = (_ABOVE.fullmatch(key) for key in known.entry)
    for above, ending in sorted((int(m[2]) * (1000 if m[3] else 1), m[1]) for m in found if m):
        if prompt > above or (known.provider == "xai" and prompt == above):
            rates = _rates(known.entry, ending, rates)
    return rates


def _range(tier: Mapping[str, Any]) -> tuple[float, ...]:
    """From, to; empty where the tier does not say."""
    said = tier.get("range")
    bounds = [price(bound) for bound in said] if isinstance(said, list) else []
    known = tuple(bound for bound in bounds if bound is not None)
    return known if len(known) == len(bounds) == 2 else ()  # from, to


def _in_range(ranges: list[Mapping[str, Any]], rates: _Rates, prompt: int) -> _Rates:
    tier = next((tier for tier in ranges if _range(tier)[0] < prompt <= _range(tier)[1]), ranges[-1])
    if "input_cost_per_token" not in tier:
        return rates
    new = _rates(tier)
    if new.completion is None:
        new = new._replace(completion=rates.completion, reasoning=rates.reasoning)
    return new


def _is_off_peak(pricing: Mapping[str, Any], at: datetime) -> bool:
    """Whether the moment lies in one of the windows, each of hours (UTC) on some days of the week (1 is Monday)."""
    windows = pricing.get("windows")
    rules = [as_dict(rule) for rule in windows] if isinstance(windows, list) else []
    now = at.astimezone(UTC)
    return any(_within(rule, now) for rule in [{"hours_utc": pricing.get("hours_utc")}, *rules])


def _within(rule: Mapping[str, Any], now: datetime) -> bool:
    hours, days = rule.get("hours_utc"), rule.get("weekdays")
    windows = [hours] if isinstance(hours, str) else hours if isinstance(hours, list) else []
    if isinstance(days, list) and now.isoweekday() not in days:
        return False
    found = (_HOURS.fullmatch(window) for window in windows if isinstance(window, str))
    clock = f"{now:%H:%M}"
    return any(m[1] <= clock < m[2] if m[1] < m[2] else clock >= m[1] or clock < m[2] for m in found if m)


def _sum(provider: str, tokens: _Tokens, rates: _Rates) -> float:
    prompt, completion = rates.prompt or 0.0, rates.completion or 0.0
    read = prompt if rates.read is None else rates.read  # 0.0 is a price
    written = prompt if rates.written is None else rates.written
    reasoning = completion if rates.reasoning is None or provider == "xai" else rates.reasoning
    return (
        max(tokens.prompt - tokens.read - tokens.written, 0) * prompt
        + tokens.read * read
        + tokens.written * written
        + (tokens.completion - tokens.reasoning) * completion
        + tokens.reasoning * reasoning
    )
