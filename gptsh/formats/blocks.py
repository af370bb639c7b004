"""What several formats share: content in Anthropic's blocks as messages of ours, names of providers, calls, images."""

import json
import re
from collections.abc import Mapping
from typing import Any

from gptsh.content.foreign import translated
from gptsh.core import document
from gptsh.formats.draft import SOURCE, Draft, word
from gptsh.formats.source import Source
from gptsh.jsonio import as_dict
from gptsh.messages import Call, Part, parts_of
from gptsh.models.cost import REASONS, usage_from
from gptsh.models.providers import PROVIDERS

_NAMES = {"claude": "anthropic", "codex": "openai", "google": "gemini"}  # of providers, elsewhere
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+")
_STREAMS = ("stdout", "stderr", "interrupted", "isImage")  # what a shell's result is told by


def provider_name(name: object) -> str | None:
    """A provider as we call it, where it is known; else as it is called there."""
    own = word(name)
    plain = (own or "").lower().replace(" ", "_")
    return _NAMES.get(plain) or (plain if plain in PROVIDERS else own)


def is_sound(content: object) -> bool:
    """Whether a content is one that a message can have: text, or parts."""
    try:
        document.check_message({"role": "user", "content": content})
    except ValueError:
        return False
    return True


def without(record: Mapping[str, Any], *known: str) -> dict[str, Any]:
    """What else a record says, null left out."""
    return {key: value for key, value in record.items() if key not in known and value is not None}


def whole(source: Source) -> Any:
    """The one JSON value that a source is; None for lines of them."""
    return source.json if len(source.first) <= 1 else None


# ---- Anthropic's blocks


def take(draft: Draft, message: Mapping[str, Any], line: int | None = None, beside: object = None) -> None:
    """Take a message whose calls, thinking and results of tools stand in its content; each result becomes a message.

    ``beside`` is what the source says of the first result beside it.
    """
    if not is_sound(message.get("content")):
        draft.add(message, line)  # which tells why
        return
    own: Any = dict(message)
    results = [part for part in parts_of(own) if own["role"] == "user" and part.get("type") == "tool_result"]
    shared = {key: own[key] for key in ("timestamp", SOURCE) if key in own}
    for at, said in enumerate(translated(own)):
        more = {**shared, **_beside(results[at], None if at else beside)} if at < len(results) else {}
        draft.add({**said, **more, **({"id": None} if at else {})}, line)


def _beside(part: Part, said: object) -> dict[str, Any]:
    """Of a result: whether it is an error, where its part says so, and what its tool gave beside the content."""
    failed = part.get("is_error", 0)
    said = part.get("tool_use_result") if said is None else said
    found: dict[str, Any] = {"is_error": failed} if failed is None or isinstance(failed, bool) else {}
    if isinstance(said, dict) and any(key in said for key in _STREAMS):
        found["raw"] = said
    elif said is not None:
        found["raw"] = {"structured": said}
    return found


def told(message: Mapping[str, Any]) -> dict[str, Any]:
    """What an answer of Anthropic's shape says of itself: model, its id, why it ended, what it used."""
    found: dict[str, Any] = {}
    if model := word(message.get("model")):
        found["model"] = model
    if isinstance(message.get("id"), str):
        found["response_id"] = message["id"]
    if isinstance(reason := message.get("stop_reason"), str):
        found["finish_reason"] = REASONS.get(reason, reason)
    if isinstance(used := message.get("usage"), dict):
        found["usage"] = usage_from(used)
    return found


# ---- calls and images of other shapes


def call_of(record: Mapping[str, Any], arguments: str) -> Call:
    """A tool call whose arguments, an object or a text, stand under a key of its own beside ``id`` and ``name``."""
    given = record.get(arguments)
    text = given if isinstance(given, str) else json.dumps({} if given is None else given, ensure_ascii=False)
    return {"id": record.get("id"), "type": "function", "function": {"name": record.get("name"), "arguments": text}}


def image_part(image: object, media_type: str, name: str) -> Part:
    """An image whose base64 is under ``data``, its type and its name under these keys; of another shape as it came."""
    table = as_dict(image)
    kind, data, source = table.get(media_type), table.get("data"), table.get(name)
    if not isinstance(data, str) or not isinstance(kind, str) or not _MEDIA_TYPE.fullmatch(kind):
        return {"type": "image", "image": image}
    part: Part = {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
    return {**part, "source": source} if isinstance(source, str) else part
