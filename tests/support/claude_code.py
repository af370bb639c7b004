"""Lines of Claude Code's session files."""

from typing import Any


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def line(
    number: int, content: Any, kind: str = "user", after: int | None = None, **more: Any
) -> dict[str, Any]:
    """A line whose parent is the line before, or ``after``; ``message`` has more keys of its message."""
    message = {"role": kind, "content": content, **more.pop("message", {})}
    parent = uuid(number - 1 if after is None else after) if number > 1 else None
    return {
        "parentUuid": parent, "isSidechain": False, "sessionId": "s1", "cwd": "/w", "version": "2", "type": kind,
        "uuid": uuid(number), "timestamp": f"2025-12-23T08:51:{number:02}.000Z", "message": message, **more,
    }  # fmt: skip


def reply(number: int, *content: Any, **more: Any) -> dict[str, Any]:
    """A line of an answer; strings become text parts."""
    message = {"id": "m", "model": "claude-a", **more.pop("message", {})}
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    return line(number, parts, "assistant", message=message, **more)


def tool(ident: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": "ls", "input": {}}


def result(ident: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": ident, "content": ident, **more}
