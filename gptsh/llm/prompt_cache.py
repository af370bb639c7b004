"""Mark where a prompt is cached (``cache_control``) for Claude, in Anthropic's API and in chat completions.

So a session pays for its history once. A first question without tools gets no mark: caching it costs a quarter more,
and most are not continued. OpenAI's Responses API has a ``prompt_cache_key`` instead, in ``responses.py``.
"""

from collections.abc import Sequence
from typing import Any

from gptsh.messages import Part
from gptsh.models.vendors import Provider


def mark_payload(payload: dict[str, Any], messages: list[Part], starts: Sequence[int], provider: Provider) -> None:
    """Mark a request of Anthropic's API, in place: its beginning, and the ends of some messages.

    The mark at the end is for the next request; the marks before it find the cache of the last one. ``starts`` are the
    indexes of the messages that begin a turn.
    """
    if not _is_worth_it(messages, has_tools=bool(payload.get("tools"))):
        return
    for name in ("system", "tools"):
        blocks = payload.get(name)
        if blocks and isinstance(blocks, list):
            payload[name] = _with_mark(blocks, provider)
            break
    questions = [at for at, message in enumerate(messages) if message["role"] == "user"]
    for at in {*questions[-2:], *starts[-2:-1]}:
        messages[at] = {**messages[at], "content": _with_mark(messages[at]["content"], provider)}


def mark_chat(messages: list[dict[str, Any]], provider: Provider, *, has_tools: bool) -> None:
    """Mark the messages of chat completions, in place: the system prompt and the last two questions."""
    if not _is_worth_it(messages, has_tools=has_tools):
        return
    system = [message for message in messages[:1] if message["role"] == "system"]
    questions = [message for message in messages if message["role"] == "user"]
    for message in (*system, *questions[-2:]):
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else [*content]
        texts = [at for at, part in enumerate(parts) if part.get("type") == "text" and part.get("text")]
        if texts:
            parts[texts[-1]] = {**parts[texts[-1]], "cache_control": _mark(provider)}
            message["content"] = parts


def _is_worth_it(messages: list[Any], *, has_tools: bool) -> bool:
    return has_tools or any(message["role"] == "assistant" for message in messages)


def _with_mark(blocks: list[Any], provider: Provider) -> list[Any]:
    """The blocks with a mark at their end: the prompt up to there is cached."""
    if not isinstance(blocks[-1], dict):
        return blocks
    return [*blocks[:-1], {**blocks[-1], "cache_control": _mark(provider)}]


def _mark(provider: Provider) -> dict[str, str]:
    time = {} if provider.cache == "5m" else {"ttl": provider.cache}  # the shorter one is the default
    return {"type": "ephemeral", **time}
