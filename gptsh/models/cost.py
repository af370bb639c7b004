"""What a provider reports of an answer: its usage in our names, its reasons for ending, and what the answer costs.

Costs are those that LiteLLM 1.106.2 computes. Not covered: service tiers, images and audio, fees of web searches and of
a provider's other tools, cache writes for an hour.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gptsh.jsonio import as_dict, as_dicts, is_cost
from gptsh.messages import Message, Usage, token_count
from gptsh.models.facts import Facts

REASONS = {"tool_use": "tool_calls", "max_tokens": "length"}  # Anthropic's for ending, for which there are usual words
WINDOW = "context_length"  # under ``raw``: what Ollama says of the window of an answer that was cut for its length
_FULL = 0.97  # of a window


# ---- usage


def usage_from(raw: dict[str, Any]) -> Usage:
    """The provider's usage in our names; ``raw`` is OpenAI's shape, Anthropic's or Ollama's."""
    prompt, completion, total, reasoning, cached, written = [None] * 6
    if "prompt_tokens" not in raw and "input_tokens" in raw:
        # Anthropic's input_tokens are those that were neither read from the cache nor written to it.
        fresh, completion = token_count(raw["input_tokens"]), token_count(raw.get("output_tokens"))
        cached, written = (token_count(raw.get(f"cache_{way}_input_tokens")) for way in ("read", "creation"))
        prompt = None if fresh is None else fresh + (cached or 0) + (written or 0)
        reasoning = token_count(as_dict(raw.get("output_tokens_details")).get("thinking_tokens"))
    elif "prompt_tokens" not in raw and {"prompt_eval_count", "eval_count"} & set(raw):
        # Ollama may count a prompt that it had in its cache nowhere.
        prompt, completion = token_count(raw.get("prompt_eval_count")) or None, token_count(raw.get("eval_count"))
    else:
        prompt, completion, total = (token_count(raw.get(f"{way}_tokens")) for way in ("prompt", "completion", "total"))
        of_prompt = as_dict(raw.get("prompt_tokens_details"))
        of_completion = as_dict(raw.get("completion_tokens_details"))
        reasoning = _first(of_completion.get("reasoning_tokens"), raw.get("reasoning_tokens"))
        if reasoning and None not in (prompt, completion) and total == (prompt or 0) + (completion or 0) + reasoning:
            completion = (completion or 0) + reasoning  # xAI counts reasoning beside the completion
        cached_keys = ("prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
        cached = _first(of_prompt.get("cached_tokens"), *map(raw.get, cached_keys))
        written_keys = ("cache_write_tokens", "cache_creation_tokens")
        written = _first(*map(of_prompt.get, written_keys), raw.get("cache_creation_input_tokens"))
    if total is None and prompt is not None and completion is not None:
        total = prompt + completion
    return {
        "prompt": prompt,
        "completion": completion,
        "total": total,
        "reasoning_tokens": reasoning,
        "cached_tokens": cached,
        "cache_write_tokens": written,
        "raw": raw,
    }


def _first(*counts: object) -> int | None:
    """The first that is there, if it is a count."""
    return next((token_count(count) for count in counts if count is not None), None)


def filled_window(message: Message) -> int | None:
    """The window in tokens that an answer has filled up with its prompt, where the provider reports it; else None."""
    usage = as_dict(message.get("usage"))
    window, total = token_count(as_dict(usage.get("raw")).get(WINDOW)), token_count(usage.get("total"))
    return window if window and total and total >= _FULL * window else None


# ---- cost

# The kinds of tokens that have a price of their own, and the model table's keys for them, in USD per token.
KEYS = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "reasoning": "output_cost_per_reasoning_token",
}
_ABOVE = r"input_cost_per_token(_above_([0-9]+)(k?)_tokens)"


def cost(known: Facts, usage: Usage, at: datetime | None = None) -> float | None:
    """USD for one answer of a model: what the provider states, else its tokens at the model's prices.

    Prices of the config file stand against a stated 0, which a proxy gives for a model whose price it does not know.
    ``at`` is when, now by default. None where the price is not known.
    """
    raw = usage["raw"]
    stated = raw.get("cost")  # OpenRouter, LiteLLM's proxy
    if isinstance(stated, dict):  # Perplexity
        stated = stated.get("total_cost")
    if (ticks := token_count(raw.get("cost_in_usd_ticks"))) is not None:  # xAI
        stated = ticks / 1e10
    if stated is not None and is_cost(stated) and (stated > 0 or (stated == 0 and not known.has_own_prices)):
        return float(stated)

    prompt, completion = usage["prompt"] or 0, usage["completion"] or 0
    cached, written = usage["cached_tokens"] or 0, usage["cache_write_tokens"] or 0
    if known.provider == "perplexity":  # it has no price of its own for cached tokens
        cached = written = 0
    reasoning = min(usage["reasoning_tokens"] or 0, completion)
    rates = _rates(known, prompt, at or datetime.now(UTC)) if known.entry else {}
    if not {"input", "output"} & rates.keys():
        return None
    rate_in, rate_out = rates.get("input", 0.0), rates.get("output", 0.0)
    total = (
        max(prompt - cached - written, 0) * rate_in
        + cached * rates.get("cached", rate_in)
        + written * rates.get("cache_write", rate_in)
        + (completion - reasoning) * rate_out
        + reasoning * (rate_out if known.provider == "xai" else rates.get("reasoning", rate_out))
    )
    surcharges = as_dict(known.entry.get("provider_specific_entry"))  # Anthropic's, for a region and its fast mode
    for asked in {str(raw.get("inference_geo")).lower(), str(raw.get("speed")).lower()} & surcharges.keys():
        total *= surcharges[asked]
    return total


def _rates(known: Facts, prompt: int, at: datetime) -> dict[str, float]:
    """USD per token by kind, for a prompt of so many tokens at this time. A kind without a price is missing."""
    entry = known.entry
    rates = _listed(entry)
    if known.provider == "fireworks_ai" and "input" in rates:
        rates.setdefault("cached", rates["input"] / 2)
    tiers = [tier for tier in as_dicts(entry.get("tiered_pricing")) if len(tier.get("range") or ()) == 2]
    if tiers and prompt:
        tiers.sort(key=lambda tier: tier["range"])
        fitting = (tier for tier in tiers if tier["range"][0] < prompt <= tier["range"][1])
        found = _listed(next(fitting, tiers[-1]))
        if "input" in found:  # its prices are for the whole prompt; a cache without a price costs as input
            rest = {} if "output" in found else {kind: rates[kind] for kind in ("output", "reasoning") if kind in rates}
            rates = rest | found
    else:
        above = filter(None, (re.fullmatch(_ABOVE, key) for key in entry))
        for limit, ending in sorted((int(m[2]) * (1000 if m[3] else 1), m[1]) for m in above):
            if prompt > limit or (known.provider == "xai" and prompt == limit):
                rates |= _listed(entry, ending)
    off_peak = as_dict(entry.get("off_peak_pricing"))  # in windows of hours (UTC) on days of the week; 1 is Monday
    now = at.astimezone(UTC)
    clock = f"{now:%H:%M}"
    for window in as_dicts(off_peak.get("windows")):
        hours = window.get("hours_utc") or []
        for begin, _, end in (span.partition("-") for span in ([hours] if isinstance(hours, str) else hours)):
            inside = begin <= clock < end if begin < end else clock >= begin or clock < end
            if inside and now.isoweekday() in window.get("weekdays", range(1, 8)):
                rates |= _listed(off_peak)
    return rates


def _listed(prices: Mapping[str, Any], ending: str = "") -> dict[str, float]:
    """The prices of an entry of the model table by kind; ``ending`` is that of its keys."""
    found = {kind: prices.get(key + ending) for kind, key in KEYS.items()}
    return {kind: price for kind, price in found.items() if isinstance(price, (int, float))}
