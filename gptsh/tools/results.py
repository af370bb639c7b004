"""What a tool gave, as the message that the model will read."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from gptsh.content.kinds import decoded, kind_of
from gptsh.content.media import media_part
from gptsh.jsonio import as_dict, as_dicts
from gptsh.messages import Call, Message, Part
from gptsh.text import shown_size

_UNKNOWN = "application/octet-stream"
_RAW = ("stdout", "stderr", "interrupted", "isImage")  # what other programs keep of a tool's result


def message(call: Call, result: Mapping[str, Any], duration_ms: int) -> Message:
    """A result in the shape of MCP's ``CallToolResult`` as the message of the role ``tool``.

    ``raw`` has what the tool said beside its content, where that is more than its text once again, and under
    ``blocks`` those of its content that can only be named to a model.
    """
    blocks, structured = result.get("content"), result.get("structuredContent")
    content, left = _content(as_dicts(blocks))
    if not content and structured is not None:
        content = _json(structured)
    elif blocks not in (None, as_dicts(blocks)):
        content = _json(result)
    raw = {**_raw(structured, content), **({"blocks": left} if left else {})}
    return _message(call, content, raw, is_error=result.get("isError") is True, duration_ms=duration_ms)


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


def _content(blocks: list[dict[str, Any]]) -> tuple[str | list[Part], list[dict[str, Any]]]:
    """Texts alone as one text, else a part for each block; and the blocks that are only named there."""
    parts = [_part(block) for block in blocks]
    left = [block for block, part in zip(blocks, parts, strict=True) if part is None]
    if all(block.get("type") == "text" for block in blocks):
        return "\n".join(part["text"] for part in parts if part), left
    return [part or _text(_named(block)) for block, part in zip(blocks, parts, strict=True)], left


def _part(block: Mapping[str, Any]) -> Part | None:
    """A block as a model takes it; None for what none takes."""
    match block.get("type"):
        case "text":
            return _text(block.get("text"))
        case "image" | "audio":
            return _media(block.get("data"))
        case "resource":
            held = as_dict(block.get("resource"))
            uri = str(held.get("uri", ""))
            return _media(held["blob"], uri) if "blob" in held else _text(f"{uri}:\n{held.get('text', '')}")
        case "resource_link":
            said = (block.get("title") or block.get("name"), block.get("uri"), block.get("description"))
            return _text(" ".join(str(item) for item in said if item))
    return None


def _text(text: Any) -> Part:
    return {"type": "text", "text": text if isinstance(text, str) else ""}


def _media(data: Any, uri: str | None = None) -> Part | None:
    """Data as ``-f`` would attach them: by their bytes, whatever they are called. Only a file may be text, too."""
    found = _bytes(data)
    kind = kind_of(found) if found else None
    if found and kind is None and uri is not None:
        return _text(f"{uri}:\n{decoded(bytearray(found))}")
    if found is None or kind is None or kind.media_type is None:
        return None
    part = media_part(uri or "", kind.media_type, found)
    if uri is None:
        part.pop("source")
    return part


def _bytes(data: Any) -> bytes | None:
    try:
        return base64.b64decode(data, validate=True)
    except (TypeError, ValueError):
        return None


def _named(block: Mapping[str, Any]) -> str:
    """What the model reads in the place of a block, such as ``[application/zip, 3 bytes]``; a file under its URI."""
    kind, held = block.get("type"), as_dict(block.get("resource")) or block
    if kind not in ("image", "audio", "resource"):
        return f"[{kind}, which gptsh does not know]"
    found = _bytes(held.get("blob", held.get("data")))
    size = "no base64" if found is None else shown_size(len(found))
    said = f"[{held.get('mimeType') or _UNKNOWN}, {size}]"
    return f"{held['uri']}:\n{said}" if held.get("uri") else said


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


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
