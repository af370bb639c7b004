"""What a tool gave, as the message that the model will read."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from gptsh.core.loose import as_dict, as_dicts
from gptsh.core.media import media_part
from gptsh.core.messages import Call, Message, Part

_RAW = ("stdout", "stderr", "interrupted", "isImage")  # what other programs keep of a tool's result


def refusal(call: Call, what: str) -> Message:
    """The result of a call that was not made: why, for the model to do better."""
    return _message(call, f"error: {what}", {}, is_error=True, duration_ms=0)


def message(call: Call, result: Mapping[str, Any], duration_ms: int) -> Message:
    """A result in the shape of MCP's ``CallToolResult`` as the message of the role ``tool``.

    ``raw`` has what the tool said beside its content, where that is more than its text once again.
    """
    content = _content(as_dicts(result.get("content")))
    structured = result.get("structuredContent")
    if not content and structured is not None:
        content = json.dumps(structured, ensure_ascii=False)
    return _message(
        call, content, _raw(structured, content), is_error=result.get("isError") is True, duration_ms=duration_ms
    )


def _message(
    call: Call, content: str | list[Part], raw: dict[str, Any], *, is_error: bool, duration_ms: int
) -> Message:
    made: Message = {
        "role": "tool",
        "tool_call_id": call["id"],
        "name": call["function"]["name"],
        "content": content,
        "is_error": is_error,
        "duration_ms": duration_ms,
    }
    if raw:
        made["raw"] = raw
    return made


def _content(blocks: list[dict[str, Any]]) -> str | list[Part]:
    """Texts alone as one text, else a part for each block."""
    parts = [_part(block) for block in blocks]
    if all(block.get("type") == "text" for block in blocks):
        return "\n".join(part["text"] for part in parts)
    return parts


def _part(block: Mapping[str, Any]) -> Part:
    match block.get("type"):
        case "text":
            return _text(block.get("text"))
        case "image" | "audio" as kind:
            return _media(block.get("data"), block.get("mimeType"), f"an {kind}")
        case "resource":
            return _resource(as_dict(block.get("resource")))
        case "resource_link":
            said = (block.get("title") or block.get("name"), block.get("uri"), block.get("description"))
            return _text(" ".join(str(item) for item in said if item))
        case kind:
            return _text(f"[{kind}, which gptsh does not know]")


def _resource(held: Mapping[str, Any]) -> Part:
    """A text under its URI, as a file's stands under its name; other data by what they are."""
    uri = str(held.get("uri", ""))
    if "blob" in held:
        return _media(held["blob"], held.get("mimeType") or "application/octet-stream", uri, source=uri)
    return _text(f"{uri}:\n{held.get('text', '')}")


def _text(text: Any) -> Part:
    return {"type": "text", "text": text if isinstance(text, str) else ""}


def _media(data: Any, media_type: Any, what: str, source: str = "") -> Part:
    """A part as gptsh attaches it itself; a text that says so where the data are none."""
    try:
        found = media_part(source or what, str(media_type), base64.b64decode(data, validate=True))
    except (TypeError, ValueError):
        return _text(f"[{what} that is no base64]")
    if not source:
        found.pop("source")
    return found


def _raw(structured: Any, content: str | list[Part]) -> dict[str, Any]:
    if structured is None or _is_again(structured, content):
        return {}
    table = as_dict(structured)
    raw = {key: table[key] for key in _RAW if key in table}
    return raw if raw and len(raw) == len(table) else {**raw, "structured": structured}


def _is_again(structured: Any, content: str | list[Part]) -> bool:
    """Whether structured content is just what the text says, if wrapped as the SDK does it: ``{"result": …}``."""
    if not isinstance(content, str):
        return False
    same = [
        structured,
        *(structured.values() if isinstance(structured, dict) and set(structured) == {"result"} else ()),
    ]
    try:
        return content in same or json.loads(content) in same
    except (ValueError, RecursionError):
        return False
