"""Usage: the token counts that a provider reports of an answer, in gptsh's names; and its finish reason, likewise."""

from typing import Any

from gptsh.jsonio import as_dict
from gptsh.messages import Message, Usage, token_count

FINISH_REASONS = {"tool_use": "tool_calls", "max_tokens": "length"}  # Anthropic's, by OpenAI's names
WINDOW_KEY = "context_length"  # of ``raw``: Ollama's window, for an answer truncated by length
_TIER_KEYS = ("service_tier", "serviceTier", "trafficType")  # of usage: Anthropic's, Google's, and Vertex AI's
_FULL = 0.97  # share of a window


def usage_from(raw: dict[str, Any], service_tier: object = None, searches: int = 0) -> Usage:
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


def _counts_from(raw: dict[str, Any]) -> Usage:
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
    raw: dict[str, Any],
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


def _of_chat(raw: dict[str, Any]) -> Usage:
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


def _of_responses(raw: dict[str, Any]) -> Usage:
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


def _of_anthropic(raw: dict[str, Any]) -> Usage:
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


def _of_google(raw: dict[str, Any]) -> Usage:
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


def _of_ollama(raw: dict[str, Any]) -> Usage:
    """Return the counts of Ollama's API, which may omit the count of a cached prompt."""
    return _usage(raw, token_count(raw.get("prompt_eval_count")) or None, token_count(raw.get("eval_count")))


def _first_count(*counts: object) -> int | None:
    """Return the first value that is not None, if it is a count."""
    return next((token_count(count) for count in counts if count is not None), None)
