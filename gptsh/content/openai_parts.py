"""The parts of a message in the shapes of OpenAI's chat API, and of others that follow it."""

import re
from collections.abc import Iterable
from typing import Any

from gptsh.content.attachments import media_in, media_of, not_sent, part_label
from gptsh.messages import Message, Part, is_text, labelled_text, parts_of, text_of


def question_content(message: Message, shapes: str) -> str | list[Part]:
    """Return the content of a question: a string if all of it is text, as every server accepts, else a list of parts.

    ``shapes`` selects the shapes of documents and audio: ``openai`` or ``mistral``.
    """
    parts = [part if is_text(part) else _api_part(part, shapes) for part in parts_of(message)]
    if all(map(is_text, parts)):
        return text_of({**message, "content": parts})
    texts = [{"type": "text", "text": labelled_text(part)} if is_text(part) else part for part in parts]
    return [part for part in texts if part.get("text") != ""]


def author_name(message: Message) -> dict[str, str]:
    """Return the message's ``name`` under this key, or an empty dict if OpenAI would refuse it."""
    name: Any = message.get("name")
    return {"name": name} if isinstance(name, str) and re.fullmatch(r"[^\s<|\\/>]{1,64}", name) else {}


def accepts(part: Part, shapes: str) -> bool:
    """Whether the API can carry the media of a part: only Mistral's accepts documents by URL."""
    media = media_of(part)
    if media is None or media.kind == "video":
        return False
    return media.data is not None or media.kind == "image" or shapes == "mistral"


def _api_part(part: Part, shapes: str) -> Part:
    """Return a media part in the API's shape, or a text that says what is not sent."""
    media = media_of(part)
    if media is None or not accepts(part, shapes):
        return not_sent(part, "this API does not take it")
    if shapes == "mistral" and media.kind == "document":
        return {"type": "document_url", "document_url": part["file"]["file_data"]}
    if shapes == "mistral" and media.kind == "audio":
        return {"type": "input_audio", "input_audio": media.data}
    kind = part["type"]
    value = part[kind]
    return {"type": kind, kind: value if isinstance(value, dict) else {"url": value}}


def move_tool_media(messages: Iterable[Message]) -> list[Message]:
    """Move the media of tool results into a question after them: this API's results are text only."""
    result: list[Message] = []
    media_parts: list[Part] = []
    for message in messages:
        if message["role"] == "tool":
            if tool_media := list(media_in(message)):
                source = message.get("name") or message.get("tool_call_id")
                for part, media in tool_media:
                    label = f"{media.kind} of the tool result above ({source}):"
                    media_parts += [{"type": "text", "text": label}, part]
                message = {**message, "content": "\n".join(map(part_label, parts_of(message)))}
        elif media_parts and message["role"] == "user":  # before its own parts: roles must alternate
            message = {**message, "content": [*media_parts, *parts_of(message)]}
            media_parts = []
        elif media_parts:
            result.append({"role": "user", "content": media_parts})
            media_parts = []
        result.append(message)
    return [*result, {"role": "user", "content": media_parts}] if media_parts else result
