"""The parts of a message in the OpenAI dialect: images, documents, audio, and what only others know."""

import re
from collections.abc import Iterable

from gptsh.content.media import AUDIO, Media, file_name, media_in, media_of, name_of, not_sent, shown
from gptsh.jsonio import as_dict
from gptsh.messages import Message, Part, labelled, parts_of, text_of, text_part, text_parts_of
from gptsh.models.providers import Endpoint

_PDF = "application/pdf"
_KNOWN = ("image_url", "file", "input_audio")
# Types that no server takes in this dialect: those that are known here, where such a part says nothing; those of
# Anthropic's API; those of reasoning, tools and answers.
_NOT_HERE = re.compile(
    "text|image_url|file|input_audio|image|document|audio|refusal|search_result|container_upload|.*_delta"
    "|.*(?:thinking|reasoning|tool|function|_call).*"
)


def question(message: Message, endpoint: Endpoint) -> str | list[Part]:
    """The content of a question: one text where it is all text, as every server takes it, else a list of parts.

    A part of a type that nobody knows goes as it came, since the user put it there.
    """
    parts = parts_of(message)
    if text_parts_of(message) != parts:
        message = {**message, "content": [_part(part, endpoint) for part in parts]}
    if text_parts_of(message) == parts_of(message):
        return text_of(message)
    texts = {id(part): {"type": "text", "text": labelled(part)} for part in text_parts_of(message)}
    sent = [texts.get(id(part), part) for part in parts_of(message)]
    return [part for part in sent if part.get("text") != ""]


def spread(messages: Iterable[Message]) -> list[Message]:
    """The messages, what tools gave besides text in a question behind their results: these are text alone here."""
    sent: list[Message] = []
    carried: list[Part] = []
    for message in messages:
        if message["role"] != "tool":
            _put(sent, carried, message)
            carried = []
        elif found := list(media_in(message)):
            sent.append({**message, "content": "\n".join(map(shown, parts_of(message)))})
            of = message.get("name") or message.get("tool_call_id")
            for part, media in found:
                carried += [{"type": "text", "text": f"{media.kind} of the tool result above ({of}):"}, part]
        else:
            sent.append(message)
    _put(sent, carried, None)
    return sent


def _put(sent: list[Message], carried: list[Part], message: Message | None) -> None:
    """Add what tools gave as a question, or in front of the one that follows: roles alternate."""
    if carried and message and message["role"] == "user":
        message = {**message, "content": [*carried, *parts_of(message)]}
    elif carried:
        sent.append({"role": "user", "content": carried})
    if message:
        sent.append(message)


def _part(part: Part, endpoint: Endpoint) -> Part:
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return part
    media = media_of(part)
    if media is None:
        return _unknown(part)
    if media.text is not None:
        said = [f"{media.title}:" if media.title else None, media.context, media.text]
        return {"type": "text", "text": "\n".join(filter(None, said))}
    return _shape(part, media, endpoint) or _text(part, str(media))


def takes(part: Part, endpoint: Endpoint) -> bool:
    """Whether the provider has a shape for what a part carries."""
    media = media_of(part)
    return media is not None and _shape(part, media, endpoint) is not None


def _unknown(part: Part) -> Part:
    """A part that carries nothing known: as it came where a server may know its type."""
    kind = part.get("type")
    if not isinstance(kind, str) or not kind:
        return not_sent(part, "nobody knows its type")
    by_id = kind == "file" and as_dict(part.get("file")).get("file_id")
    if _NOT_HERE.fullmatch(kind) and not by_id:
        return not_sent(part, "this API does not take it")
    return {key: value for key, value in part.items() if key != "source"}


def _text(part: Part, text: str) -> Part:
    name = name_of(part)
    return text_part(name, text) if name else {"type": "text", "text": text}


def _shape(part: Part, media: Media, endpoint: Endpoint) -> Part | None:
    """What the part carries, in the provider's shape; None where that has no place for it."""
    kind = part["type"]
    if endpoint.parts == "mistral" and (theirs := _for_mistral(media)):
        return theirs
    if kind in _KNOWN:
        inner = part[kind]
        return {"type": kind, kind: inner if isinstance(inner, dict) else {"url": inner}}
    if media.kind == "image":
        return {"type": "image_url", "image_url": {"url": _url(media, "image/png")}}
    return None if media.data is None else _of_data(media, media.data)


def _of_data(media: Media, data: str) -> Part:
    if media.kind == "document":
        return {"type": "file", "file": {"filename": file_name(media), "file_data": _url(media, _PDF)}}
    form = AUDIO.get(media.media_type or "", (media.media_type or "").rpartition("/")[2])
    return {"type": "input_audio", "input_audio": {"data": data, "format": form}}


def _for_mistral(media: Media) -> Part | None:
    if media.kind == "document":
        return {"type": "document_url", "document_url": _url(media, _PDF)}
    return {"type": "input_audio", "input_audio": media.data} if media.kind == "audio" and media.data else None


def _url(media: Media, usual: str) -> str:
    """The URL of what is carried; one that holds its data where it has no other."""
    return media.url if media.url is not None else f"data:{media.media_type or usual};base64,{media.data}"
