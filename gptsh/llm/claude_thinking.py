"""Thinking (reasoning) of Claude in a request: ask for it to be shown, and leave out what the API would refuse.

Newer models refuse thinking before which something else stands than when it arrived; older ones refuse some in a loop
of tool calls.
"""

import json
from collections.abc import Collection, Sequence
from typing import Any

from gptsh.jsonio import as_dict
from gptsh.llm.anthropic_answers import THINKING_TYPES
from gptsh.messages import Part, Request
from gptsh.models.facts import likely_facts
from gptsh.models.vendors import Provider


def show_thinking(params: dict[str, Any], request: Request, provider: Provider, refusals: Collection[str]) -> None:
    """Ask for summaries of thinking where they are wanted, in place: newer models send none unasked.

    Beside tools, newer models write even their remarks between two calls as thinking.
    """
    entry = likely_facts(provider.name, provider.model).entry
    thinks_unasked = entry.get("thinking_always_on") or entry.get("thinking_on_by_default")
    is_wanted = (request.shows_reasoning or request.tools or request.web) and "tool_choice" not in params
    is_refused = "adaptive" in refusals or "display" in refusals
    if thinks_unasked and is_wanted and not is_refused and "thinking" not in params:
        params["thinking"] = {"type": "adaptive", "display": "summarized"}
    thinking = params.get("thinking")
    if isinstance(thinking, dict) and "display" in refusals:
        params["thinking"] = {key: value for key, value in thinking.items() if key != "display"}


def fit_to_tool_loop(params: dict[str, Any], messages: list[Part], provider: Provider) -> None:
    """Make thinking agree with an unfinished loop of tool calls, in place: else the API refuses the request.

    A model with a thinking budget thinks once, at the start of the loop. If it did not, thinking is turned off.
    """
    loop = _answers_of_turn(messages)
    kind = as_dict(params.get("thinking")).get("type")
    if kind == "enabled" and loop and loop[0]["content"][0]["type"] not in THINKING_TYPES:
        del params["thinking"]
        kind = "disabled"
    facts = likely_facts(provider.name, provider.model)
    thinks_by_default = facts.can("adaptive_thinking") or not facts.can("reasoning")
    if kind == "disabled" or (kind is None and not thinks_by_default):
        for message in loop:
            message["content"] = without_thinking(message["content"])


def _answers_of_turn(messages: list[Part]) -> list[Part]:
    """The answers since the last question that has no tool results."""
    answers: list[Part] = []
    for message in reversed(messages):
        if message["role"] == "assistant":
            answers.insert(0, message)
        elif all(block["type"] != "tool_result" for block in message["content"]):
            break
    return answers


def drop_unbound(head: dict[str, Any], messages: list[Part], prefixes: Sequence[str | None]) -> None:
    """Drop thinking before which something else stood when it arrived, in place: newer models refuse it.

    ``head`` has the system prompt and the tools. ``prefixes``: what stood before each message then; None if unknown. So
    a changed system prompt, a compaction or a missing tool drops the thinking of all answers before; later thinking
    goes back again.
    """
    if not any(prefixes):
        return
    digest = _head_digest(head)
    for message, expected in zip(messages, prefixes, strict=True):
        if expected is not None and expected != digest.hexdigest():
            message["content"] = without_thinking(message["content"])
        _add_message(digest, message)


def prefix(payload: dict[str, Any]) -> str:
    """A digest of a request: the thinking in its answer is bound to it. Cache marks do not count."""
    digest = _head_digest(payload)
    for message in payload["messages"]:
        _add_message(digest, message)
    return str(digest.hexdigest())


def _head_digest(payload: dict[str, Any]) -> Any:
    """The digest of a system prompt and tools."""
    import hashlib

    head = [_without_marks(payload.get(name)) for name in ("system", "tools")]
    return hashlib.blake2b(json.dumps(head).encode(), digest_size=8)


def _add_message(digest: Any, message: Part) -> None:
    digest.update(json.dumps([message["role"], _without_marks(message["content"])]).encode())


def _without_marks(blocks: Any) -> Any:
    """The blocks without their cache marks."""
    if isinstance(blocks, list):
        return [_without_marks(block) for block in blocks]
    if isinstance(blocks, dict):
        return {key: value for key, value in blocks.items() if key != "cache_control"}
    return blocks


def without_thinking(blocks: list[Part]) -> list[Part]:
    """The blocks of an answer that are no thinking."""
    return [block for block in blocks if block["type"] not in THINKING_TYPES]
