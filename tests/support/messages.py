"""Messages and their parts in our format."""

from typing import Any


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def parts(*pieces: str) -> list[dict[str, Any]]:
    return [text(piece) for piece in pieces]


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, "source": "a.png"}


def thinking(thought: str, signature: str | None = None) -> dict[str, Any]:
    return {"type": "thinking", "thinking": thought} | (
        {"signature": signature} if signature else {}
    )


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content[0] if len(content) == 1 else list(content)}


def assistant(content: Any = "a", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def call(call_id: str, name: Any = "ls", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
        **more,
    }


def calling(*calls: dict[str, Any], content: Any = None, **more: Any) -> dict[str, Any]:
    """An answer with tool calls."""
    return assistant(content, tool_calls=list(calls), **more)


def result(call_id: str, content: Any = "out", **more: Any) -> dict[str, Any]:
    """A tool result."""
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}
