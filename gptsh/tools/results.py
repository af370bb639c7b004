"""The result of a tool as a message for the model: its text, its media, what no model accepts."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from gptsh.content.attachments import SENDABLE, detect_type, media_part
from gptsh.messages import Call, Message, Part
from gptsh.text import format_size


def message(call: Call, result: Mapping[str, Any], duration_ms: int) -> Message:
    """Turn a ``CallToolResult`` of MCP into a message with the role ``tool``.

    ``raw`` has structured content that the text does not repeat, and the ``blocks`` that no model accepts.
    """
    blocks: list[dict[str, Any]] = result.get("content") or []
    structured = result.get("structuredContent")
    parts = [_part(block) for block in blocks]
    content: str | list[Part] = [part or _text(_placeholder(block)) for block, part in zip(blocks, parts, strict=True)]
    if all(block["type"] == "text" for block in blocks):
        content = "\n".join(block["text"] for block in blocks)
        if not content and structured is not None:
            content = json.dumps(structured, ensure_ascii=False)
    result_message: Message = {
        "role": "tool",
        "tool_call_id": call["id"],
        "name": call["function"]["name"],
        "content": content,
        "is_error": result.get("isError") is True,
        "duration_ms": duration_ms,
    }
    raw: dict[str, Any] = {}
    if structured is not None and not _repeats(content, structured):
        raw["structured"] = structured
    if unsent := [block for block, part in zip(blocks, parts, strict=True) if part is None]:
        raw["blocks"] = unsent
    if raw:
        result_message["raw"] = raw
    return result_message


def _part(block: Mapping[str, Any]) -> Part | None:
    """A block as a part of a message; None for a type that no model accepts."""
    match block:
        case {"type": "text", "text": text}:
            return _text(text)
        case {"type": "image" | "audio", "data": data}:
            return _media(data)
        case {"type": "resource", "resource": {"uri": uri, "blob": data}}:
            return _media(data, uri)
        case {"type": "resource", "resource": {"uri": uri, "text": text}}:
            return _text(f"{uri}:\n{text}")
    link = (block.get("title") or block.get("name"), block.get("uri"), block.get("description"))
    return _text(" ".join(item for item in link if item))


def _text(text: str) -> Part:
    return {"type": "text", "text": text}


def _media(data: str, uri: str = "") -> Part | None:
    """A part for base64 data. As with ``-f`` the bytes decide the type; only data with a URI may be text."""
    content = _bytes(data)
    kind = detect_type(content) if content else None
    if content and kind is None and uri:
        return _text(f"{uri}:\n{content.decode(errors='surrogateescape')}")
    if content is None or kind not in SENDABLE:
        return None
    part = media_part(uri, kind, content)
    if not uri:
        part.pop("source")
    return part


def _bytes(data: str) -> bytes | None:
    """Decode base64; None if it is not valid."""
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        return None


def _placeholder(block: Mapping[str, Any]) -> str:
    """The text that replaces data for the model, such as ``[application/zip, 3 bytes]``, after the URI of a file."""
    data = block.get("resource", block)
    content = _bytes(data.get("blob") or data.get("data", ""))
    size = "no base64" if content is None else format_size(len(content))
    placeholder = f"[{data.get('mimeType') or 'application/octet-stream'}, {size}]"
    return f"{data['uri']}:\n{placeholder}" if "uri" in data else placeholder


def _repeats(content: str | list[Part], structured: Any) -> bool:
    """Whether the text repeats the structured content; the SDK wraps a bare value as ``{"result": …}``."""
    if not isinstance(content, str):
        return False
    values = [structured]
    if isinstance(structured, dict) and set(structured) == {"result"}:
        values.append(structured["result"])
    try:
        return content in values or json.loads(content) in values
    except (ValueError, RecursionError):
        return False
