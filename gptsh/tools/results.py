"""What a tool returned, as the message that the model will read."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from gptsh.content.attachments import SENDABLE, detect_type, media_part
from gptsh.messages import Call, Message, Part
from gptsh.text import format_size


def message(call: Call, result: Mapping[str, Any], duration_ms: int) -> Message:
    """A result in the shape of MCP's ``CallToolResult`` as the message of the role ``tool``.

    ``raw`` has structured content that says more than its text, and the ``blocks`` that can only be named to a model.
    """
    blocks: list[dict[str, Any]] = result.get("content") or []
    structured = result.get("structuredContent")
    parts = [_part(block) for block in blocks]
    content: str | list[Part] = [part or _text(_placeholder(block)) for block, part in zip(blocks, parts, strict=True)]
    if all(block["type"] == "text" for block in blocks):
        content = "\n".join(block["text"] for block in blocks)
        if not content and structured is not None:
            content = json.dumps(structured, ensure_ascii=False)
    made: Message = {
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
    if left := [block for block, part in zip(blocks, parts, strict=True) if part is None]:
        raw["blocks"] = left
    if raw:
        made["raw"] = raw
    return made


def _part(block: Mapping[str, Any]) -> Part | None:
    """A block as a model takes it; None for what none takes."""
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
    """Data as ``-f`` would attach them: by their bytes, whatever they are called. Only a file may be text, too."""
    found = _bytes(data)
    kind = detect_type(found) if found else None
    if found and kind is None and uri:
        return _text(f"{uri}:\n{found.decode(errors='surrogateescape')}")
    if found is None or kind not in SENDABLE:
        return None
    part = media_part(uri, kind, found)
    if not uri:
        part.pop("source")
    return part


def _bytes(data: str) -> bytes | None:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        return None


def _placeholder(block: Mapping[str, Any]) -> str:
    """What the model reads in the place of data, such as ``[application/zip, 3 bytes]``; a file under its URI."""
    data = block.get("resource", block)
    found = _bytes(data.get("blob") or data.get("data", ""))
    size = "no base64" if found is None else format_size(len(found))
    named = f"[{data.get('mimeType') or 'application/octet-stream'}, {size}]"
    return f"{data['uri']}:\n{named}" if "uri" in data else named


def _repeats(content: str | list[Part], structured: Any) -> bool:
    """Whether structured content is just what the text says; the SDK wraps a bare value as ``{"result": …}``."""
    if not isinstance(content, str):
        return False
    same = [structured]
    if isinstance(structured, dict) and set(structured) == {"result"}:
        same.append(structured["result"])
    try:
        return content in same or json.loads(content) in same
    except (ValueError, RecursionError):
        return False
