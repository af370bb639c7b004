"""Errors of strict servers for the messages of a request, in addition to those of ``tests/support/server.py``."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from tests.support.server import complaint

IDS = {"mistral": "[a-zA-Z0-9]{9}", "openai": "[!-~]{1,40}"}  # of tool calls
PROVIDER_KEYS = {
    "reasoning_content", "reasoning", "reasoning_text", "reasoning_details", "extra_content", "annotations",
}  # fmt: skip


def strict(provider: str) -> Callable[[dict[str, Any]], str | None]:
    """A function that returns why this provider would refuse a body, or None."""
    return lambda body: next(_complaints(body["messages"], provider), None)


def _complaints(messages: list[dict[str, Any]], provider: str) -> Iterator[str]:
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    if len({call["id"] for call in calls}) < len(calls):
        yield "the same id twice"
    yield from (
        f"bad call {call}" for call in calls if not _is_valid(call, IDS.get(provider, ".+"))
    )
    for before, message in pairwise(messages):
        if provider == "mistral" and (before["role"], message["role"]) == ("tool", "user"):
            yield "user after tool"
    for message in messages:
        content = message.get("content")
        if message["role"] in ("assistant", "tool") and not isinstance(content, (str, type(None))):
            yield "parts instead of a string"
        if provider == "groq" and None in message.values():
            yield "null"
    plain = [
        {key: _plain(value) for key, value in m.items() if key not in PROVIDER_KEYS}
        for m in messages
    ]
    if wrong := complaint({"messages": plain}):
        yield wrong


def _plain(value: Any) -> Any:
    """The value without media, which are not checked here."""
    return (
        "" if isinstance(value, list) and not all("function" in item for item in value) else value
    )


def _is_valid(call: dict[str, Any], ids: str) -> bool:
    function = call["function"]
    return (
        re.fullmatch(ids, call["id"]) is not None
        and call["type"] == "function"
        and re.fullmatch("[a-zA-Z0-9_-]{1,64}", function["name"]) is not None
        and isinstance(json.loads(function["arguments"]), dict)
    )
