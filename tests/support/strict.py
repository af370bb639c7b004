"""What strict servers refuse about the messages of a request, beside what ``tests/support/server.py`` does."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from tests.support.server import complaint

IDS = {"mistral": "[a-zA-Z0-9]{9}", "openai": "[!-~]{1,40}"}  # of calls
ONLY_SOME_TAKE = {
    "reasoning_content", "reasoning", "reasoning_text", "reasoning_details", "extra_content", "annotations",
}  # fmt: skip


def strict(provider: str) -> Callable[[dict[str, Any]], str | None]:
    """A server's eye for what this provider would refuse."""
    return lambda asked: next(_complaints(asked["messages"], provider), None)


def _complaints(messages: list[dict[str, Any]], provider: str) -> Iterator[str]:
    made = [call for message in messages for call in message.get("tool_calls", ())]
    if len({call["id"] for call in made}) < len(made):
        yield "the same id twice"
    yield from (f"bad call {call}" for call in made if not _takes(call, IDS.get(provider, ".+")))
    for before, message in pairwise(messages):
        if provider == "mistral" and (before["role"], message["role"]) == ("tool", "user"):
            yield "user after tool"
    for message in messages:
        content = message.get("content")
        if message["role"] in ("assistant", "tool") and not isinstance(content, (str, type(None))):
            yield "parts where a string is wanted"
        if provider == "groq" and None in message.values():
            yield "null"
    plain = [{key: _plain(value) for key, value in m.items() if key not in ONLY_SOME_TAKE} for m in messages]
    if wrong := complaint({"messages": plain}):
        yield wrong


def _plain(value: Any) -> Any:
    """What a dialect makes of media is not looked at here."""
    return "" if isinstance(value, list) and not all("function" in item for item in value) else value


def _takes(call: dict[str, Any], ids: str) -> bool:
    function = call["function"]
    return (
        re.fullmatch(ids, call["id"]) is not None
        and call["type"] == "function"
        and re.fullmatch("[a-zA-Z0-9_-]{1,64}", function["name"]) is not None
        and isinstance(json.loads(function["arguments"]), dict)
    )
