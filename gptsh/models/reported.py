"""A provider's usage in our names, whichever shape it comes in, and its reasons for ending."""

from typing import Any

from gptsh.jsonio import as_dict
from gptsh.messages import Message, Usage, token_count

REASONS = {"tool_use": "tool_calls", "max_tokens": "length"}  # Anthropic's for ending, for which there are usual words
_CACHED = ("prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
WINDOW = "context_length"  # under ``raw``: what Ollama says of the window of an answer that was cut for its length
_FULL = 0.97  # of a window
_WRITTEN = ("cache_write_tokens", "cache_creation_tokens")


def filled_window(message: Message) -> int | None:
    """The window in tokens that an answer has filled up with its prompt, where the provider tells it; else None."""
    usage = as_dict(message.get("usage"))
    window, total = token_count(as_dict(usage.get("raw")).get(WINDOW)), token_count(usage.get("total"))
    return window if window and total and total >= _FULL * window else None


def usage_from(raw: dict[str, Any]) -> Usage:
    """The provider's usage in our names; ``raw`` is OpenAI's shape, Anthropic's or Ollama's."""
    if "prompt_tokens" not in raw and "input_tokens" in raw:
        return _of_anthropic(raw)
    if "prompt_tokens" not in raw and {"prompt_eval_count", "eval_count"} & set(raw):
        return _of_ollama(raw)
    prompt_details, completion_details = (as_dict(raw.get(f"{way}_tokens_details")) for way in ("prompt", "completion"))
    prompt, completion, total = (token_count(raw.get(f"{key}_tokens")) for key in ("prompt", "completion", "total"))
    reasoning = _first(completion_details.get("reasoning_tokens"), raw.get("reasoning_tokens"))
    if reasoning and None not in (prompt, completion) and total == (prompt or 0) + (completion or 0) + reasoning:
        completion = (completion or 0) + reasoning  # xai counts reasoning beside the completion
    if total is None and prompt is not None and completion is not None:
        total = prompt + completion
    return {
        "prompt": prompt,
        "completion": completion,
        "total": total,
        "reasoning_tokens": reasoning,
        "cached_tokens": _first(prompt_details.get("cached_tokens"), *map(raw.get, _CACHED)),
        "cache_write_tokens": _first(*map(prompt_details.get, _WRITTEN), raw.get("cache_creation_input_tokens")),
        "raw": raw,
    }


def _of_anthropic(raw: dict[str, Any]) -> Usage:
    """Whose ``input_tokens`` are those of the prompt that no cache had a part in."""
    fresh, completion = token_count(raw["input_tokens"]), token_count(raw.get("output_tokens"))
    read, written = (token_count(raw.get(f"cache_{way}_input_tokens")) for way in ("read", "creation"))
    prompt = None if fresh is None else fresh + (read or 0) + (written or 0)
    usage = _summed(prompt, completion, raw)
    usage["reasoning_tokens"] = token_count(as_dict(raw.get("output_tokens_details")).get("thinking_tokens"))
    usage["cached_tokens"], usage["cache_write_tokens"] = read, written
    return usage


def _of_ollama(raw: dict[str, Any]) -> Usage:
    """A prompt that the server had in its cache may be counted nowhere."""
    return _summed(token_count(raw.get("prompt_eval_count")) or None, token_count(raw.get("eval_count")), raw)


def _summed(prompt: int | None, completion: int | None, raw: dict[str, Any]) -> Usage:
    """Of a provider that tells no total."""
    return {
        "prompt": prompt,
        "completion": completion,
        "total": None if prompt is None or completion is None else prompt + completion,
        "reasoning_tokens": None,
        "cached_tokens": None,
        "cache_write_tokens": None,
        "raw": raw,
    }


def _first(*counts: object) -> int | None:
    """The first that is there, if it is a count."""
    return next((token_count(count) for count in counts if count is not None), None)
