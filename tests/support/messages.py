"""Messages and their parts, as sessions hold them."""

from typing import Any


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def parts(*pieces: str) -> list[dict[str, Any]]:
    return [text(piece) for piece in pieces]


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, "source": "a.png"}


def thinking(thought: str, signed: str | None = None) -> dict[str, Any]:
    return {"type": "thinking", "thinking": thought} | ({"signature": signed} if signed else {})


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content[0] if len(content) == 1 else list(content)}


def assistant(content: Any = "a", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def call(call_id: str, name: Any = "ls", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def calling(*made: dict[str, Any], content: Any = None, **more: Any) -> dict[str, Any]:
    """An answer that calls tools."""
    return assistant(content, tool_calls=list(made), **more)


def result(call_id: str, content: Any = "out", **more: Any) -> dict[str, Any]:
    """A tool's result."""
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}
