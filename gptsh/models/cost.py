"""What an answer costs in USD: its tokens at the model's prices by kind, prompt size and service tier; its searches.

Costs equal those of LiteLLM 1.106.2. They leave out prices that depend on the hour, what images and audio cost more
than text, processing in a region at OpenAI, and a provider's other tools than its search.
"""

import re
from collections.abc import Mapping
from typing import Any

from gptsh.jsonio import as_dict, as_dicts, is_cost
from gptsh.messages import Usage, token_count
from gptsh.models.facts import Facts

# Kinds of tokens with a price, and the model table's keys for them, in USD per token.
PRICE_KEYS = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "cache_write_1h": "cache_creation_input_token_cost_above_1hr",
    "reasoning": "output_cost_per_reasoning_token",
}
_ABOVE = r"input_cost_per_token(_above_([0-9]+)(k?)_tokens)"
# Service tiers, as answers name them, and the endings of their keys in the table; ``ON_DEMAND_`` is Vertex AI's.
_TIERS = {
    "flex": "_flex", "priority": "_priority", "fast": "_priority", "ultrafast": "_ultrafast", "balanced": "_balanced",
    "batch": "_batches",
}  # fmt: skip


def cost(facts: Facts, usage: Usage) -> float | None:
    """Return the cost of one answer in USD: the one that the provider reports, else its tokens at the model's prices.

    Prices in the config file override a reported 0, which a proxy sends for a model with an unknown price. None if the
    price is unknown. What the account has free is not known.
    """
    reported = _reported_cost(usage["raw"])
    if reported is not None and (reported > 0 or not facts.has_config_prices):
        return reported
    tier = usage.get("service_tier", "").lower().removeprefix("on_demand_")
    rates = _rates(facts, usage["prompt"] or 0, _TIERS.get(tier, ""))
    if not {"input", "output"} & rates.keys():
        return None
    return _cost_of_tokens(facts, usage, rates) + _search_fee(facts, usage.get("searches", 0))


def _reported_cost(raw: Mapping[str, Any]) -> float | None:
    """Return the cost that the provider reports, in USD."""
    usd = raw.get("cost")  # OpenRouter, LiteLLM's proxy
    if isinstance(usd, dict):  # Perplexity
        usd = usd.get("total_cost")
    ticks = token_count(raw.get("cost_in_usd_ticks"))  # xAI
    if ticks is not None:
        usd = ticks / 1e10
    return float(usd) if usd is not None and is_cost(usd) else None


def _cost_of_tokens(facts: Facts, usage: Usage, rates: Mapping[str, float]) -> float:
    """Return the sum over all kinds of tokens. A kind without a price costs as the one that it is part of."""
    rate_in, rate_out = rates.get("input", 0.0), rates.get("output", 0.0)
    rate_write = rates.get("cache_write", rate_in)
    rate_hour_write = rates.get("cache_write_1h", rate_write)
    rate_reasoning = rate_out if facts.provider == "xai" else rates.get("reasoning", rate_out)

    prompt, completion = usage["prompt"] or 0, usage["completion"] or 0
    reads, writes = usage["cached_tokens"] or 0, usage["cache_write_tokens"] or 0
    if facts.provider == "perplexity":  # it has no separate price for cached tokens
        reads = writes = 0
    hour_writes = token_count(as_dict(usage["raw"].get("cache_creation")).get("ephemeral_1h_input_tokens")) or 0
    hour_writes = min(hour_writes, writes)
    reasoning = min(usage["reasoning_tokens"] or 0, completion)

    total = max(prompt - reads - writes, 0) * rate_in
    total += reads * rates.get("cached", rate_in)
    total += (writes - hour_writes) * rate_write
    total += hour_writes * rate_hour_write
    total += (completion - reasoning) * rate_out
    total += reasoning * rate_reasoning
    return total * _surcharge(facts, usage["raw"])


def _surcharge(facts: Facts, raw: Mapping[str, Any]) -> float:
    """Return the factor of Anthropic's region and of its fast mode."""
    factors = as_dict(facts.entry.get("provider_specific_entry"))
    surcharge = 1.0
    for feature in {str(raw.get("inference_geo")).lower(), str(raw.get("speed")).lower()}:
        surcharge *= factors.get(feature, 1.0)
    return surcharge


def _search_fee(facts: Facts, searches: int) -> float:
    """Return what the provider's own searches cost in USD: each of them, or with Google's older models all of them."""
    fee = as_dict(facts.entry.get("search_context_cost_per_query")).get("search_context_size_medium")
    if not isinstance(fee, (int, float)):
        return 0.0
    is_once = facts.provider == "gemini" and facts.entry.get("web_search_billing_unit") != "per_query"
    return fee * (min(searches, 1) if is_once else searches)


# ---- prices by kind of token


def _rates(facts: Facts, prompt: int, tier: str) -> dict[str, float]:
    """Return USD per token by kind, for a prompt of this length. A kind without a price is missing.

    ``tier`` is the ending of a service tier's keys. Where it has no price of its own, the default one counts.
    """
    rates = _prices_of_tier(facts.entry, "", tier)
    if facts.provider == "fireworks_ai" and "input" in rates:
        rates.setdefault("cached", rates["input"] / 2)
    ranges = [prices for prices in as_dicts(facts.entry.get("tiered_pricing")) if len(prices.get("range") or ()) == 2]
    if ranges and prompt:
        return _with_range(rates, ranges, prompt)
    for limit, ending in _limits(facts.entry):
        if prompt > limit:
            rates |= _prices_of_tier(facts.entry, ending, tier)
    return rates


def _with_range(rates: dict[str, float], ranges: list[dict[str, Any]], prompt: int) -> dict[str, float]:
    """Return the prices of the range that holds the prompt, else of the last one: they apply to the whole prompt.

    A cache without a price there costs as input.
    """
    ranges = sorted(ranges, key=lambda prices: prices["range"])
    matching = [prices for prices in ranges if prices["range"][0] < prompt <= prices["range"][1]]
    prices = _prices_in(matching[0] if matching else ranges[-1])
    if "input" not in prices:
        return rates
    shared_kinds = () if "output" in prices else ("output", "reasoning")
    return {kind: rates[kind] for kind in shared_kinds if kind in rates} | prices


def _limits(entry: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return the prompt sizes above which other prices apply, ascending, with the endings of these prices' keys."""
    matches = [match for key in entry if (match := re.fullmatch(_ABOVE, key))]
    return sorted((int(match[2]) * (1000 if match[3] else 1), match[1]) for match in matches)


def _prices_of_tier(entry: Mapping[str, Any], ending: str, tier: str) -> dict[str, float]:
    """Return the prices of a service tier, else the default ones; reasoning costs as output in a tier."""
    prices = _prices_in(entry, ending)
    tier_prices = _prices_in(entry, ending + tier) if tier else {}
    if "output" in tier_prices:
        prices.pop("reasoning", None)
    return prices | tier_prices


def _prices_in(prices: Mapping[str, Any], ending: str = "") -> dict[str, float]:
    """Return the prices in an entry of the model table by kind; ``ending`` is a suffix of its keys."""
    values = {kind: prices.get(key + ending) for kind, key in PRICE_KEYS.items()}
    return {kind: price for kind, price in values.items() if isinstance(price, (int, float))}
