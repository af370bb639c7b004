"""Shorten messages of tool servers with too many parts: the SDK needs 2 kB of memory for each."""

import json
from itertools import groupby
from typing import Any

_MAX_PARTS = 10_000  # of a list in a result


def shorten(message: str) -> str:
    """Return a message of JSON-RPC; where a list of its result is too long, with a shorter one.

    Of the parts of a tool's result, texts in a row become one, a line each; what is still too much
    is cut, and a part says so. A list of tools is cut, too, and refused where it is read.
    """
    if message.count("{") <= _MAX_PARTS:
        return message
    try:
        content = json.loads(message)
        result = content["result"]
        long_lists = {key: items for key, items in result.items() if _is_long(items)}
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return message  # the SDK reports what is wrong with it
    if not long_lists:
        return message
    for key, items in long_lists.items():
        result[key] = _fewer(items) if key == "content" else items[:_MAX_PARTS]
    return json.dumps(content, ensure_ascii=False)


def _is_long(value: Any) -> bool:
    return isinstance(value, list) and len(value) > _MAX_PARTS


def _fewer(parts: list[Any]) -> list[Any]:
    fewer: list[Any] = []
    for is_text, group in groupby(parts, _is_text):
        if is_text:
            fewer.append(_text("\n".join(part["text"] for part in group)))
        else:
            fewer.extend(group)
    if len(fewer) > _MAX_PARTS:
        more = len(fewer) - _MAX_PARTS
        fewer[_MAX_PARTS:] = [_text(f"[gptsh: {more:,} more parts are left out here]")]
    return fewer


def _is_text(part: Any) -> bool:
    is_text = isinstance(part, dict) and part.get("type") == "text"
    return is_text and isinstance(part.get("text"), str)


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
