"""Chat messages as OpenAI shapes them and others extend them: read into our vocabulary, and written."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from gptsh.content.chat_parts import question
from gptsh.content.media import AUDIO, Kind, Media, is_misnamed, is_pdf, media_of, named, shown
from gptsh.formats.blocks import call_of
from gptsh.jsonio import as_dict, as_dicts
from gptsh.messages import REASONING_FIELDS, THINKING, Call, Message, Part, parts_of
from gptsh.models.providers import PROVIDERS
from gptsh.text import is_unicode

_SHARED = ("role", "content", "tool_calls", "tool_call_id", "name", "refusal", "timestamp")
_OURS = frozenset(Message.__annotations__).difference(_SHARED) | {"source"}


def own(value: Mapping[str, Any]) -> dict[str, Any]:
    """A chat message in our vocabulary: reasoning under our names, what nobody knows as it came.

    What has a name of ours is left out, since it means something else there: no file can say what an answer cost.
    """
    blocks, listed = value.get(THINKING), as_dicts(value.get(THINKING))
    found: dict[str, Any] = {
        "thinking": listed if listed == blocks else [],
        "replay": {key: value[key] for key in REASONING_FIELDS if isinstance(value.get(key), str)},
    }
    read = {*found["replay"], *([THINKING] if found["thinking"] else [])}
    rest = {key: said for key, said in value.items() if key not in _OURS and key not in read}
    return rest | {key: said for key, said in found.items() if said}


def content_of(message: Message, kinds: Collection[Kind]) -> str | list[Part]:
    """What a message carries: one text where it is all text, else parts in OpenAI's shapes.

    What is not of ``kinds``, and what has no shape there, is a text that names it.
    """
    parts = [part if _goes(part, kinds) else named(part, shown(part)) for part in parts_of(message)]
    return question({**message, "content": parts}, PROVIDERS["openai"])


def _goes(part: Part, kinds: Collection[Kind]) -> bool:
    if part.get("type") == "text":
        return isinstance(part.get("text"), str)
    media = media_of(part)
    if media is None:
        return part.get("type") == "file" and "document" in kinds and _is_by_id(part)
    return media.text is not None or (media.kind in kinds and _is_taken(part, media))


def _is_taken(part: Part, media: Media) -> bool:
    """Whether a server knows its type. A file that was one there before is taken for what it says it is."""
    match media.kind:
        case "audio":
            return media.media_type in AUDIO
        case "document":
            return is_pdf(media) or (part.get("type") == "file" and not is_misnamed(media))
    return True


def _is_by_id(part: Part) -> bool:
    """Whether a file is one that the provider keeps."""
    return isinstance(as_dict(part.get("file")).get("file_id"), str)


def call(given: Call) -> Call:
    """A call with nothing that only its model knows."""
    return call_of({**given["function"], "id": given["id"]}, "arguments")


def line(value: object) -> str:
    """JSON on one line, UTF-8 as it is; a lone surrogate as its escape, since no file can hold it."""
    text = json.dumps(value, ensure_ascii=False)
    return text if is_unicode(text) else text.encode("utf-8", "backslashreplace").decode()
