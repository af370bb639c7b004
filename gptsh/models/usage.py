"""Read every provider's token counts in one form, and compute what an answer cost."""

import re
from collections.abc import Mapping

from gptsh.jsonio import JsonObject, as_dict, as_dicts, is_cost
from gptsh.messages import Message, Usage, token_count
from gptsh.models.facts import Entry, Facts

# ---- token usage
#
# Usage: the token counts that a provider reports of an answer, in gptsh's names; and its finish
# reason, likewise.

FINISH_REASONS = {"tool_use": "tool_calls", "max_tokens": "length"}  # Anthropic's, by OpenAI's names
WINDOW_KEY = "context_length"  # of ``raw``: Ollama's window, for an answer truncated by length
_TIER_KEYS = ("service_tier", "serviceTier", "trafficType")  # of usage: Anthropic's, Google's, and Vertex AI's
_FULL = 0.97  # share of a window


def usage_from(raw: JsonObject, service_tier: object = None, searches: int = 0) -> Usage:
    """Return the provider's usage in our names; ``raw`` has the shape of OpenAI, Anthropic, Google or Ollama.

    ``service_tier`` and ``searches`` are those that the answer names outside its usage.
    """
    usage = _counts_from(raw)
    for tier in (service_tier, *map(raw.get, _TIER_KEYS)):
        if tier and isinstance(tier, str):
            usage["service_tier"] = tier
            break
    if count := searches or token_count(as_dict(raw.get("server_tool_use")).get("web_search_requests")):
        usage["searches"] = count
    return usage


def filled_window(message: Message) -> int | None:
    """Return the window in tokens if prompt and answer filled it and the provider reports it; else None."""
    usage = as_dict(message.get("usage"))
    window, total = token_count(as_dict(usage.get("raw")).get(WINDOW_KEY)), token_count(usage.get("total"))
    return window if window and total and total >= _FULL * window else None


# ---- the counts, in the form of each API


def _counts_from(raw: JsonObject) -> Usage:
    """Return the counts; the keys of ``raw`` tell which API it is from."""
    names = raw.keys()
    if "input_tokens" in names and names & {"total_tokens", "input_tokens_details"}:
        return _of_responses(raw)
    if "prompt_tokens" in names:
        return _of_chat(raw)
    if "input_tokens" in names:
        return _of_anthropic(raw)
    if names & {"promptTokenCount", "totalTokenCount"}:
        return _of_google(raw)
    if names & {"prompt_eval_count", "eval_count"}:
        return _of_ollama(raw)
    return _of_chat(raw)


def _usage(
    raw: JsonObject,
    prompt: int | None,
    completion: int | None,
    total: int | None = None,
    *,
    reasoning: int | None = None,
    cache_reads: int | None = None,
    cache_writes: int | None = None,
) -> Usage:
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
    prompt, completion = token_count(raw.get("prompt_tokens")), token_count(raw.get("completion_tokens"))
    total = token_count(raw.get("total_tokens"))
    of_prompt, of_completion = as_dict(raw.get("prompt_tokens_details")), as_dict(raw.get("completion_tokens_details"))
    reasoning = _first_count(of_completion.get("reasoning_tokens"), raw.get("reasoning_tokens"))
    rest = (total or 0) - (prompt or 0) - (completion or 0)
    if prompt is not None and rest > 0 and rest == reasoning:  # xAI counts reasoning apart from the completion
        completion = (completion or 0) + rest
    cache_reads = _first_count(
        of_prompt.get("cached_tokens"),
        raw.get("prompt_cache_hit_tokens"),
        raw.get("cached_tokens"),
        raw.get("cache_read_input_tokens"),
    )
    cache_writes = _first_count(
        of_prompt.get("cache_write_tokens"),
        of_prompt.get("cache_creation_tokens"),
        raw.get("cache_creation_input_tokens"),
    )
    return _usage(
        raw, prompt, completion, total, reasoning=reasoning, cache_reads=cache_reads, cache_writes=cache_writes
    )


def _of_responses(raw: JsonObject) -> Usage:
    """Return the counts of OpenAI's Responses API."""
    of_input, of_output = as_dict(raw.get("input_tokens_details")), as_dict(raw.get("output_tokens_details"))
    return _usage(
        raw,
        token_count(raw.get("input_tokens")),
        token_count(raw.get("output_tokens")),
        token_count(raw.get("total_tokens")),
        reasoning=token_count(of_output.get("reasoning_tokens")),
        cache_reads=token_count(of_input.get("cached_tokens")),
        cache_writes=token_count(of_input.get("cache_write_tokens")),
    )


def _of_anthropic(raw: JsonObject) -> Usage:
    """Return the counts of Anthropic's API, whose ``input_tokens`` exclude those read from and written to the cache."""
    fresh = token_count(raw["input_tokens"])
    cache_reads = token_count(raw.get("cache_read_input_tokens"))
    cache_writes = token_count(raw.get("cache_creation_input_tokens"))
    return _usage(
        raw,
        None if fresh is None else fresh + (cache_reads or 0) + (cache_writes or 0),
        token_count(raw.get("output_tokens")),
        reasoning=token_count(as_dict(raw.get("output_tokens_details")).get("thinking_tokens")),
        cache_reads=cache_reads,
        cache_writes=cache_writes,
    )


def _of_google(raw: JsonObject) -> Usage:
    """Return the counts of Google's API, which leaves out a count of 0.

    Its prompt excludes what its own tools read, and its candidates exclude the thoughts.
    """
    reasoning = token_count(raw.get("thoughtsTokenCount"))
    return _usage(
        raw,
        (token_count(raw.get("promptTokenCount")) or 0) + (token_count(raw.get("toolUsePromptTokenCount")) or 0),
        (token_count(raw.get("candidatesTokenCount")) or 0) + (reasoning or 0),
        token_count(raw.get("totalTokenCount")),
        reasoning=reasoning,
        cache_reads=token_count(raw.get("cachedContentTokenCount")),
    )


def _of_ollama(raw: JsonObject) -> Usage:
    """Return the counts of Ollama's API, which may omit the count of a cached prompt."""
    return _usage(raw, token_count(raw.get("prompt_eval_count")) or None, token_count(raw.get("eval_count")))


def _first_count(*counts: object) -> int | None:
    """Return the first value that is not None, if it is a count."""
    return next((token_count(count) for count in counts if count is not None), None)


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


def _reported_cost(raw: JsonObject) -> float | None:
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


def _surcharge(facts: Facts, raw: JsonObject) -> float:
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


def _with_range(rates: dict[str, float], ranges: list[Entry], prompt: int) -> dict[str, float]:
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


def _limits(entry: Entry) -> list[tuple[int, str]]:
    """Return the prompt sizes above which other prices apply, ascending, with the endings of these prices' keys."""
    matches = [match for key in entry if (match := re.fullmatch(_ABOVE, key))]
    return sorted((int(match[2]) * (1000 if match[3] else 1), match[1]) for match in matches)


def _prices_of_tier(entry: Entry, ending: str, tier: str) -> dict[str, float]:
    """Return the prices of a service tier, else the default ones; reasoning costs as output in a tier."""
    prices = _prices_in(entry, ending)
    tier_prices = _prices_in(entry, ending + tier) if tier else {}
    if "output" in tier_prices:
        prices.pop("reasoning", None)
    return prices | tier_prices


def _prices_in(prices: Entry, ending: str = "") -> dict[str, float]:
    """Return the prices in an entry of the model table by kind; ``ending`` is a suffix of its keys."""
    values = {kind: prices.get(key + ending) for kind, key in PRICE_KEYS.items()}
    return {kind: price for kind, price in values.items() if isinstance(price, (int, float))}
