"""Read every provider's token counts in one form, and compute what an answer cost."""

import re
from collections.abc import Mapping

from gptsh.jsonio import JsonObject, as_dict, as_dicts, is_cost
from gptsh.messages import Message, Usage, token_count
from gptsh.models.facts import Entry, Facts

# ---- token usage
#
# The token counts that a provider reports of an answer, in gptsh's names.

# Anthropic's, by OpenAI's names.
FINISH_REASONS = {"tool_use": "tool_calls", "max_tokens": "length"}
WINDOW_KEY = "context_length"  # of ``raw``: Ollama's window, for an answer truncated by length
# Keys of a usage for its service tier: Anthropic's, Google's, and Vertex AI's.
_TIER_KEYS = ("service_tier", "serviceTier", "trafficType")
_FULL = 0.97  # share of a window


def usage_from(raw: JsonObject, service_tier: object = None, searches: int = 0) -> Usage:
    """Return the provider's usage in our names.

    ``service_tier`` and ``searches`` are those that the answer names outside its usage.
    """
    usage = _counts_in(raw)
    tiers = [service_tier]
    tiers += [raw.get(key) for key in _TIER_KEYS]
    for tier in tiers:
        if tier and isinstance(tier, str):
            usage["service_tier"] = tier
            break
    searches = searches or _count(raw, "server_tool_use.web_search_requests") or 0
    if searches:
        usage["searches"] = searches
    return usage


def filled_window(message: Message) -> int | None:
    """Return the window in tokens if prompt and answer filled it and the provider reports it."""
    usage = as_dict(message.get("usage"))
    window = _count(usage, f"raw.{WINDOW_KEY}")
    total = _count(usage, "total")
    return window if window and total and total >= _FULL * window else None


# ---- the counts, in the form of each API
#
# ``prompt`` counts all that the model read, also from a cache; ``completion`` all that it wrote,
# also its reasoning. The other counts are parts of these two.


def _counts_in(raw: JsonObject) -> Usage:
    """Return the counts. Their keys tell which API they are from."""
    names = raw.keys()
    has_tokens = bool(names & {"input_tokens", "output_tokens"})
    if has_tokens and names & {"total_tokens", "input_tokens_details"}:
        return _of_responses(raw)
    if "prompt_tokens" in names:  # even if Anthropic's names are there, too
        return _of_chat(raw)
    if has_tokens:
        return _of_anthropic(raw)
    if names & {"promptTokenCount", "totalTokenCount", "candidatesTokenCount"}:
        return _of_google(raw)
    if names & {"prompt_eval_count", "eval_count"}:
        return _of_ollama(raw)
    return _of_chat(raw)


def _count(raw: JsonObject, *paths: str) -> int | None:
    """Return the value at the first of these paths that has one; None if it is not a count."""
    for path in paths:
        value: object = raw
        for name in path.split("."):
            value = as_dict(value).get(name)
        if value is not None:
            return token_count(value)
    return None


def _usage(
    raw: JsonObject,
    prompt: int | None,
    completion: int | None,
    *,
    reasoning: int | None = None,
    cache_reads: int | None = None,
    cache_writes: int | None = None,
) -> Usage:
    """Return the counts in our names. The total is the provider's, else the sum if both are known."""
    total = _count(raw, "total_tokens", "totalTokenCount")
    if total is None and prompt is not None and completion is not None:
        total = prompt + completion
    return {
        "prompt": prompt,
        "completion": completion,
        "total": total,
        "reasoning_tokens": reasoning,
        "cached_tokens": cache_reads,
        "cache_write_tokens": cache_writes,
        "raw": raw,
    }


def _of_chat(raw: JsonObject) -> Usage:
    """Return the counts of chat completions, by OpenAI or another provider."""
    reasoning = _count(raw, "completion_tokens_details.reasoning_tokens", "reasoning_tokens")
    return _usage(
        raw,
        _count(raw, "prompt_tokens"),
        _completion_of_chat(raw, reasoning),
        reasoning=reasoning,
        cache_reads=_count(
            raw,
            "prompt_tokens_details.cached_tokens",
            "prompt_cache_hit_tokens",
            "cached_tokens",
            "cache_read_input_tokens",
        ),
        cache_writes=_count(
            raw,
            "prompt_tokens_details.cache_write_tokens",
            "prompt_tokens_details.cache_creation_tokens",
            "cache_creation_input_tokens",
        ),
    )


def _completion_of_chat(raw: JsonObject, reasoning: int | None) -> int | None:
    """Return the tokens of an answer with its reasoning.

    xAI counts the reasoning apart. Then the total is larger than prompt and completion, by it.
    """
    prompt = _count(raw, "prompt_tokens")
    completion = _count(raw, "completion_tokens")
    total = _count(raw, "total_tokens")
    if prompt is None or total is None or not reasoning:
        return completion
    with_reasoning = (completion or 0) + reasoning
    return with_reasoning if prompt + with_reasoning == total else completion


def _of_responses(raw: JsonObject) -> Usage:
    """Return the counts of OpenAI's Responses API."""
    return _usage(
        raw,
        _count(raw, "input_tokens"),
        _count(raw, "output_tokens"),
        reasoning=_count(raw, "output_tokens_details.reasoning_tokens"),
        cache_reads=_count(raw, "input_tokens_details.cached_tokens"),
        cache_writes=_count(raw, "input_tokens_details.cache_write_tokens"),
    )


def _of_anthropic(raw: JsonObject) -> Usage:
    """Return the counts of Anthropic's API.

    The ``input_tokens`` of this API exclude those read from and written to the cache.
    """
    prompt = _count(raw, "input_tokens")
    cache_reads = _count(raw, "cache_read_input_tokens")
    cache_writes = _count(raw, "cache_creation_input_tokens")
    if prompt is not None:
        prompt += (cache_reads or 0) + (cache_writes or 0)
    return _usage(
        raw,
        prompt,
        _count(raw, "output_tokens"),
        reasoning=_count(raw, "output_tokens_details.thinking_tokens"),
        cache_reads=cache_reads,
        cache_writes=cache_writes,
    )


def _of_google(raw: JsonObject) -> Usage:
    """Return the counts of Google's API, which leaves out a count of 0.

    The count of the prompt excludes what its own tools read, and its candidates exclude the
    thoughts.
    """
    prompt = _count(raw, "promptTokenCount") or 0
    tool_prompt = _count(raw, "toolUsePromptTokenCount") or 0
    candidates = _count(raw, "candidatesTokenCount") or 0
    reasoning = _count(raw, "thoughtsTokenCount")
    return _usage(
        raw,
        prompt + tool_prompt,
        candidates + (reasoning or 0),
        reasoning=reasoning,
        cache_reads=_count(raw, "cachedContentTokenCount"),
    )


def _of_ollama(raw: JsonObject) -> Usage:
    """Return the counts of Ollama's API, which may omit the count of a cached prompt, or say 0."""
    prompt = _count(raw, "prompt_eval_count") or None
    return _usage(raw, prompt, _count(raw, "eval_count"))


# ---- cost
#
# What an answer costs in USD: its tokens at the model's prices by kind, prompt size and service
# tier; its searches.
#
# Costs equal those of LiteLLM 1.106.2. They leave out prices that depend on the hour, what images
# and audio cost more than text, processing in a region at OpenAI, and a provider's other tools than
# its search.

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
# Service tiers, as answers name them, and the endings of their keys in the table.
_TIERS = {
    "flex": "_flex",
    "priority": "_priority",
    "fast": "_priority",
    "ultrafast": "_ultrafast",
    "balanced": "_balanced",
    "batch": "_batches",
}


def cost(facts: Facts, usage: Usage) -> float | None:
    """Return the cost of one answer in USD; None if the price is unknown.

    The cost is the one that the provider reports, or else that of the tokens at the model's prices.
    Prices in the config file override a reported 0, which a proxy sends for a model whose price it
    does not know. What the account has free is not known.
    """
    reported = _reported_cost(usage["raw"])
    if reported is not None and (reported > 0 or not facts.has_config_prices):
        return reported
    tier = usage.get("service_tier", "").lower().removeprefix("on_demand_")  # of Vertex AI
    rates = _rates(facts, usage["prompt"] or 0, _TIERS.get(tier, ""))
    if not {"input", "output"} & rates.keys():
        return None
    return _cost_of_tokens(facts, usage, rates) + _search_fee(facts, usage.get("searches", 0))


def _reported_cost(raw: JsonObject) -> float | None:
    """Return the cost that the provider reports, in USD."""
    usd = raw.get("cost")  # OpenRouter, LiteLLM's proxy
    if isinstance(usd, dict):  # Perplexity
        usd = usd.get("total_cost")
    ticks = token_count(raw.get("cost_in_usd_ticks"))  # xAI
    if ticks is not None:
        usd = ticks / 1e10
    if usd is None or not is_cost(usd):
        return None
    total = float(usd)
    upstream = as_dict(raw.get("cost_details")).get("upstream_inference_cost")
    # With a key of one's own, OpenRouter's cost is its fee alone.
    if raw.get("is_byok") is True and upstream is not None and is_cost(upstream):
        total += upstream
    return total


def _cost_of_tokens(facts: Facts, usage: Usage, rates: Mapping[str, float]) -> float:
    """Return what all kinds of tokens cost in USD.

    A kind without a price costs as the one that it is part of.
    """
    rate_in = rates.get("input", 0.0)
    rate_out = rates.get("output", 0.0)
    rate_write = rates.get("cache_write", rate_in)
    rate_reasoning = rate_out if facts.provider == "xai" else rates.get("reasoning", rate_out)

    prompt = usage["prompt"] or 0
    completion = usage["completion"] or 0
    reads = usage["cached_tokens"] or 0
    writes = usage["cache_write_tokens"] or 0
    if facts.provider == "perplexity":  # it has no separate price for cached tokens
        reads = 0
        writes = 0
    hour_writes = _count(usage["raw"], "cache_creation.ephemeral_1h_input_tokens") or 0
    hour_writes = min(hour_writes, writes)
    reasoning = min(usage["reasoning_tokens"] or 0, completion)

    usd = max(prompt - reads - writes, 0) * rate_in
    usd += reads * rates.get("cached", rate_in)
    usd += (writes - hour_writes) * rate_write
    usd += hour_writes * rates.get("cache_write_1h", rate_write)
    usd += (completion - reasoning) * rate_out
    usd += reasoning * rate_reasoning

    # Anthropic's region, and its fast mode.
    factors: dict[str, float] = as_dict(facts.entry.get("provider_specific_entry"))
    for key in ("inference_geo", "speed"):
        choice = str(usage["raw"].get(key)).lower()
        usd *= factors.get(choice, 1.0)
    return usd


def _search_fee(facts: Facts, searches: int) -> float:
    """Return what the provider's own searches cost in USD.

    Each search costs, or with Google's older models all of them together.
    """
    fees = as_dict(facts.entry.get("search_context_cost_per_query"))
    fee = fees.get("search_context_size_medium")
    if not isinstance(fee, (int, float)):
        return 0.0
    is_per_query = facts.entry.get("web_search_billing_unit") == "per_query"
    if facts.provider == "gemini" and not is_per_query:
        searches = min(searches, 1)
    return fee * searches


# ---- prices by kind of token


def _rates(facts: Facts, prompt: int, tier: str) -> dict[str, float]:
    """Return USD per token by kind, for a prompt of this length.

    A kind without a price is missing. ``tier`` is the ending of a service tier's keys. Where it has
    no price of its own, the default one counts.
    """
    entry = facts.entry
    rates = _prices(entry, tier=tier)
    if facts.provider == "fireworks_ai" and "input" in rates:
        rates.setdefault("cached", rates["input"] / 2)

    tiers = as_dicts(entry.get("tiered_pricing"))
    ranges = [prices for prices in tiers if len(prices.get("range") or ()) == 2]
    if ranges and prompt:
        return _with_range(rates, ranges, prompt)

    for limit, ending in _limits_in(entry):
        if prompt > limit:
            rates |= _prices(entry, ending, tier)
    return rates


def _limits_in(entry: Entry) -> list[tuple[int, str]]:
    """Return the lengths of prompts above which tokens cost more, and the endings of their keys."""
    limits = []
    for key in entry:
        match = re.fullmatch(_ABOVE, key)
        if match:
            ending, digits, thousands = match.groups()
            limit = int(digits) * 1000 if thousands else int(digits)
            limits.append((limit, ending))
    return sorted(limits)


def _with_range(rates: dict[str, float], ranges: list[Entry], prompt: int) -> dict[str, float]:
    """Return the prices of the range that holds the prompt, else of the last one.

    The prices apply to the whole prompt. A cache without a price there costs as input.
    """
    ranges = sorted(ranges, key=lambda prices: prices["range"])
    own_range = ranges[-1]
    for candidate in ranges:
        least, most = candidate["range"]
        if least < prompt <= most:
            own_range = candidate
            break
    prices = _prices(own_range)
    if "input" not in prices:
        return rates
    if "output" not in prices:
        for kind in {"output", "reasoning"} & rates.keys():
            prices.setdefault(kind, rates[kind])
    return prices


def _prices(entry: Entry, ending: str = "", tier: str = "") -> dict[str, float]:
    """Return the prices in an entry of the model table by kind; ``ending`` is that of its keys.

    The prices of a service tier replace the others. There, reasoning costs as output.
    """
    prices = {}
    for kind, key in PRICE_KEYS.items():
        price = entry.get(key + ending)
        if isinstance(price, (int, float)):
            prices[kind] = price
    if tier:
        tier_prices = _prices(entry, ending + tier)
        if "output" in tier_prices:
            prices.pop("reasoning", None)
        prices |= tier_prices
    return prices
