"""Parts, sessions and models of Anthropic, as its requests are built of."""

from typing import Any

SONNET, OPUS, LATEST = "anthropic/claude-sonnet-4-5", "anthropic/claude-opus-4-7", "anthropic/claude-sonnet-5-5"
KEY = "sk-ant-very-secret"
PNG = "iVBORw0KGgo="


def call(call_id: str, name: str, arguments: str, **more: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def thinking(text: str, signed: str | None = None) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text} | ({"signature": signed} if signed else {})


def parts(*pieces: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": piece} for piece in pieces]


def bare(made: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The messages without the marks."""
    return [
        (m["role"], [{k: v for k, v in part.items() if k != "cache_control"} for part in m["content"]])
        for m in made["messages"]
    ]


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, "source": "a.png"}


OPEN = {"type": "object", "properties": {"n": {"type": "integer"}}}
CLOSED = {**OPEN, "additionalProperties": False}
