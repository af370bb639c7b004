"""Chat messages as OpenAI shapes them and others extend them: read into our vocabulary, and written."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from gptsh.content.attachments import AUDIO, Kind, media_of, named, shown
from gptsh.content.openai_parts import question
from gptsh.formats.blocks import call_of
from gptsh.jsonio import as_dicts
from gptsh.messages import REASONING_FIELDS, THINKING, Call, Message, Part, is_text, parts_of
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
    return question({**message, "content": parts}, "openai")


def _goes(part: Part, kinds: Collection[Kind]) -> bool:
    media = media_of(part)
    if media is None:
        return is_text(part)
    return media.kind in kinds and (media.kind != "audio" or media.media_type in AUDIO)


def call(given: Call) -> Call:
    """A call with nothing that only its model knows."""
    return call_of({**given["function"], "id": given["id"]}, "arguments")


def line(value: object) -> str:
    """JSON on one line, UTF-8 as it is; a lone surrogate as its escape, since no file can hold it."""
    text = json.dumps(value, ensure_ascii=False)
    return text if is_unicode(text) else text.encode("utf-8", "backslashreplace").decode()
