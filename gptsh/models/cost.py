"""What a provider reports of an answer, in our names: its usage, its finish reason, and its cost.

Costs equal those of LiteLLM 1.106.2. They leave out what images and audio cost more than text, processing in a region
at OpenAI, and a provider's other tools than its search.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gptsh.jsonio import as_dict, as_dicts, is_cost
from gptsh.messages import Message, Usage, token_count
from gptsh.models.facts import Facts

FINISH_REASONS = {"tool_use": "tool_calls", "max_tokens": "length"}  # Anthropic's, by OpenAI's names
_TIER_KEYS = ("service_tier", "serviceTier", "trafficType")  # of usage: Anthropic's, Google's, and Vertex AI's
WINDOW_KEY = "context_length"  # of ``raw``: Ollama's window, for an answer truncated by length
_FULL = 0.97  # share of a window


# ---- usage


def usage_from(raw: dict[str, Any], service_tier: object = None, searches: int = 0) -> Usage:
    """Return the provider's usage in our names; ``raw`` has the shape of OpenAI, Anthropic, Google or Ollama.

    ``service_tier`` and ``searches`` are those that the answer names outside its usage.
    """
    prompt, completion, total, reasoning, reads, writes = [None] * 6
    if "input_tokens" in raw and {"total_tokens", "input_tokens_details"} & raw.keys():  # OpenAI's Responses API
        prompt, completion, total = (token_count(raw.get(f"{key}_tokens")) for key in ("input", "output", "total"))
        details = as_dict(raw.get("input_tokens_details"))
        reads, writes = (token_count(details.get(key)) for key in ("cached_tokens", "cache_write_tokens"))
        reasoning = token_count(as_dict(raw.get("output_tokens_details")).get("reasoning_tokens"))
    elif "prompt_tokens" not in raw and "input_tokens" in raw:
        # Anthropic's input_tokens exclude those read from the cache and those written to it.
        fresh, completion = token_count(raw["input_tokens"]), token_count(raw.get("output_tokens"))
        reads, writes = (token_count(raw.get(f"cache_{kind}_input_tokens")) for kind in ("read", "creation"))
        prompt = None if fresh is None else fresh + (reads or 0) + (writes or 0)
        reasoning = token_count(as_dict(raw.get("output_tokens_details")).get("thinking_tokens"))
    elif "prompt_tokens" not in raw and {"promptTokenCount", "totalTokenCount"} & raw.keys():
        # Google leaves out a count of 0. Its prompt excludes what its own tools read, its answer excludes the thoughts.
        asked, read_by_tools, answered, reasoning, reads, total = (
            token_count(raw.get(f"{key}TokenCount"))
            for key in ("prompt", "toolUsePrompt", "candidates", "thoughts", "cachedContent", "total")
        )
        prompt, completion = (asked or 0) + (read_by_tools or 0), (answered or 0) + (reasoning or 0)
    elif "prompt_tokens" not in raw and {"prompt_eval_count", "eval_count"} & set(raw):
        # Ollama may omit the count of a cached prompt.
        prompt, completion = token_count(raw.get("prompt_eval_count")) or None, token_count(raw.get("eval_count"))
    else:
        prompt, completion, total = (token_count(raw.get(f"{key}_tokens")) for key in ("prompt", "completion", "total"))
        prompt_details = as_dict(raw.get("prompt_tokens_details"))
        completion_details = as_dict(raw.get("completion_tokens_details"))
        reasoning = _first_count(completion_details.get("reasoning_tokens"), raw.get("reasoning_tokens"))
        rest = (total or 0) - (prompt or 0) - (completion or 0)
        if prompt is not None and rest > 0 and rest == reasoning:  # xAI counts reasoning apart from the completion
            completion = (completion or 0) + rest
        cached_keys = ("prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
        reads = _first_count(prompt_details.get("cached_tokens"), *map(raw.get, cached_keys))
        written_keys = ("cache_write_tokens", "cache_creation_tokens")
        writes = _first_count(*map(prompt_details.get, written_keys), raw.get("cache_creation_input_tokens"))
    if total is None and prompt is not None and completion is not None:
        total = prompt + completion
    usage: Usage = {
        "prompt": prompt,
        "completion": completion,
        "total": total,
        "reasoning_tokens": reasoning,
        "cached_tokens": reads,
        "cache_write_tokens": writes,
        "raw": raw,
    }
    tiers = (service_tier, *map(raw.get, _TIER_KEYS))
    if tier := next((tier for tier in tiers if tier and isinstance(tier, str)), None):
        usage["service_tier"] = tier
    if count := searches or token_count(as_dict(raw.get("server_tool_use")).get("web_search_requests")):
        usage["searches"] = count
    return usage


def _first_count(*counts: object) -> int | None:
    """Return the first value that is not None, if it is a count."""
    return next((token_count(count) for count in counts if count is not None), None)


def filled_window(message: Message) -> int | None:
    """Return the window in tokens if prompt and answer filled it and the provider reports it; else None."""
    usage = as_dict(message.get("usage"))
    window, total = token_count(as_dict(usage.get("raw")).get(WINDOW_KEY)), token_count(usage.get("total"))
    return window if window and total and total >= _FULL * window else None


# ---- cost

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


def cost(facts: Facts, usage: Usage, moment: datetime | None = None) -> float | None:
    """Return the cost of one answer in USD: the one that the provider reports, else its tokens at the model's prices.

    Prices in the config file override a reported 0, which a proxy sends for a model with an unknown price. ``moment``
    is the time of the answer, now by default. None if the price is unknown. What the account has free is not known.
    """
    raw = usage["raw"]
    usd = raw.get("cost")  # OpenRouter, LiteLLM's proxy
    if isinstance(usd, dict):  # Perplexity
        usd = usd.get("total_cost")
    if (ticks := token_count(raw.get("cost_in_usd_ticks"))) is not None:  # xAI
        usd = ticks / 1e10
    if usd is not None and is_cost(usd) and (usd > 0 or not facts.has_config_prices):
        return float(usd)

    prompt, completion = usage["prompt"] or 0, usage["completion"] or 0
    cache_reads, cache_writes = usage["cached_tokens"] or 0, usage["cache_write_tokens"] or 0
    if facts.provider == "perplexity":  # it has no separate price for cached tokens
        cache_reads = cache_writes = 0
    hour_writes = token_count(as_dict(raw.get("cache_creation")).get("ephemeral_1h_input_tokens")) or 0
    hour_writes = min(hour_writes, cache_writes)
    reasoning = min(usage["reasoning_tokens"] or 0, completion)
    tier = usage.get("service_tier", "").lower().removeprefix("on_demand_")
    rates = _rates(facts, prompt, moment or datetime.now(UTC), _TIERS.get(tier, "")) if facts.entry else {}
    if not {"input", "output"} & rates.keys():
        return None
    rate_in, rate_out = rates.get("input", 0.0), rates.get("output", 0.0)
    total = (
        max(prompt - cache_reads - cache_writes, 0) * rate_in
        + cache_reads * rates.get("cached", rate_in)
        + (cache_writes - hour_writes) * rates.get("cache_write", rate_in)
        + hour_writes * rates.get("cache_write_1h", rates.get("cache_write", rate_in))
        + (completion - reasoning) * rate_out
        + reasoning * (rate_out if facts.provider == "xai" else rates.get("reasoning", rate_out))
    )
    surcharges = as_dict(facts.entry.get("provider_specific_entry"))  # Anthropic's, by region and for its fast mode
    for feature in {str(raw.get("inference_geo")).lower(), str(raw.get("speed")).lower()} & surcharges.keys():
        total *= surcharges[feature]
    return total + _search_fee(facts, usage.get("searches", 0))


def _search_fee(facts: Facts, searches: int) -> float:
    """Return what the provider's own searches cost in USD: each of them, or with Google's older models all of them."""
    fee = as_dict(facts.entry.get("search_context_cost_per_query")).get("search_context_size_medium")
    if not isinstance(fee, (int, float)):
        return 0.0
    is_once = facts.provider == "gemini" and facts.entry.get("web_search_billing_unit") != "per_query"
    return fee * (min(searches, 1) if is_once else searches)


def _rates(facts: Facts, prompt: int, moment: datetime, tier: str) -> dict[str, float]:
    """Return USD per token by kind, for a prompt of this length at this time. A kind without a price is missing.

    ``tier`` is the ending of a service tier's keys. Where it has no price of its own, the default one counts.
    """
    entry = facts.entry
    rates = _prices_of_tier(entry, "", tier)
    if facts.provider == "fireworks_ai" and "input" in rates:
        rates.setdefault("cached", rates["input"] / 2)
    tiers = [tier for tier in as_dicts(entry.get("tiered_pricing")) if len(tier.get("range") or ()) == 2]
    if tiers and prompt:
        tiers.sort(key=lambda tier: tier["range"])
        matches = (tier for tier in tiers if tier["range"][0] < prompt <= tier["range"][1])
        tier_rates = _prices_in(next(matches, tiers[-1]))
        if "input" in tier_rates:  # a tier's prices apply to the whole prompt; a cache without a price costs as input
            shared_kinds = () if "output" in tier_rates else ("output", "reasoning")
            rates = {kind: rates[kind] for kind in shared_kinds if kind in rates} | tier_rates
    else:
        above = filter(None, (re.fullmatch(_ABOVE, key) for key in entry))
        for limit, ending in sorted((int(match[2]) * (1000 if match[3] else 1), match[1]) for match in above):
            if prompt > limit or (facts.provider == "xai" and prompt == limit):
                rates |= _prices_of_tier(entry, ending, tier)
    off_peak = as_dict(entry.get("off_peak_pricing"))  # hours (UTC) on days of the week; 1 is Monday
    now = moment.astimezone(UTC)
    clock = f"{now:%H:%M}"
    for window in as_dicts(off_peak.get("windows")):
        hours = window.get("hours_utc") or []
        for begin, _, end in (span.partition("-") for span in ([hours] if isinstance(hours, str) else hours)):
            is_inside = begin <= clock < end if begin < end else clock >= begin or clock < end
            if is_inside and now.isoweekday() in window.get("weekdays", range(1, 8)):
                rates |= _prices_in(off_peak)
    return rates


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
