"""Images, documents and audio that a message carries: one view of the shapes in which they stand there.

What gptsh attaches itself has OpenAI's shapes; those of Anthropic, in which other tools keep theirs, are read too. Each
dialect of ``llm/`` says in its own shape what it sees here.
"""

import re
from binascii import b2a_base64
from collections.abc import Collection, Iterator
from typing import Any, Literal, NamedTuple

from gptsh.content.kinds import SENDABLE
from gptsh.jsonio import as_dict, as_dicts
from gptsh.messages import Message, Part, text_part, words_of
from gptsh.text import shown_size

Kind = Literal["image", "document", "audio"]

_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^,]*)?;base64,", re.IGNORECASE)
_PIECE = 3 << 16  # bytes that are encoded at once
_PDF, _PDF_TYPE = ".pdf", "application/pdf"
# What a model can do that takes them, as the model table calls it, and how that is told.
ABILITIES: dict[Kind, str] = {"image": "vision", "document": "pdf_input", "audio": "audio_input"}
NAMES: dict[Kind, str] = {"image": "images", "document": "PDF documents", "audio": "audio"}
AUDIO = {"audio/wav": "wav", "audio/mpeg": "mp3"}  # by media type, as OpenAI calls it


class Media(NamedTuple):
    """What a part carries: of ``data`` (base64), ``url`` and ``text`` one is set.

    ``media_type`` is None where nothing tells it, as with most URLs. ``context`` is what is said about a document.
    """

    kind: Kind
    media_type: str | None
    data: str | None = None
    url: str | None = None
    text: str | None = None
    title: str | None = None
    context: str | None = None

    @property
    def size(self) -> int | None:
        """Bytes; None for a URL."""
        if self.data is not None:
            return (len(self.data) - self.data[-2:].count("=")) * 3 // 4
        return None if self.text is None else len(self.text.encode("utf-8", "surrogatepass"))

    @property
    def described(self) -> str:
        """Such as ``image/png, 34.1 kB``."""
        known = [self.media_type or self.kind, self.url if self.size is None else shown_size(self.size)]
        return ", ".join(filter(None, known))

    def __str__(self) -> str:
        """Such as ``[image/png, 34.1 kB]``."""
        return f"[{self.described}]"


def media_part(source: str, media_type: str, data: bytes | bytearray) -> Part:
    """A part that carries the data, which came from ``source``: a file's name, or ``stdin``."""
    url = f"data:{media_type};base64,"
    if media_type in AUDIO:
        part: Part = {"type": "input_audio", "input_audio": {"data": _encoded("", data), "format": AUDIO[media_type]}}
    elif media_type.startswith("image/"):
        part = {"type": "image_url", "image_url": {"url": _encoded(url, data)}}
    else:
        part = {"type": "file", "file": {"filename": pdf_name(source), "file_data": _encoded(url, data)}}
    return {**part, "source": source}


def _encoded(start: str, data: bytes | bytearray) -> str:
    """The data in base64 behind ``start``; in pieces, so that the whole stands there no more often than it must."""
    text = bytearray(start.encode())
    with memoryview(data) as view:
        for at in range(0, len(view), _PIECE):
            text += b2a_base64(view[at : at + _PIECE], newline=False)
    return text.decode()


def pdf_name(title: str | None) -> str:
    """A name for a document where one must end as PDF files do: that of a path without its folders, or a title."""
    name = _last(title)
    return name if name.lower().endswith(_PDF) else name + _PDF


def _last(title: str | None) -> str:
    return (title or "").rpartition("/")[2] or "document"


def file_name(media: Media) -> str:
    """A name for a document, which ends as PDF files do where it is one as far as is known, and else as it does."""
    return pdf_name(media.title) if is_pdf(media) else _last(media.title)


def is_pdf(media: Media) -> bool:
    """Whether a document is a PDF, as far as is known: nothing may tell its type."""
    return (media.media_type or _PDF_TYPE).lower() == _PDF_TYPE


def is_misnamed(media: Media) -> bool:
    """Whether a document has the name of a PDF and is none."""
    return not is_pdf(media) and (media.title or "").lower().endswith(_PDF)


def media_of(part: Part) -> Media | None:
    """What a part carries; None for text, and for a part of a type or shape that nobody knows."""
    kind = part.get("type")
    inner: Any = part.get(kind) if isinstance(kind, str) else None
    if kind == "image_url":
        return _from_url("image", inner if isinstance(inner, str) else as_dict(inner).get("url"), None)
    if kind == "file":
        return _from_url("document", as_dict(inner).get("file_data"), as_dict(inner).get("filename"))
    if kind == "input_audio":
        data, form = as_dict(inner).get("data"), as_dict(inner).get("format")
        named = next((media_type for media_type, name in AUDIO.items() if name == form), None)
        return Media("audio", named, data=data) if isinstance(data, str) else None
    return _from_source(part, kind) if kind in ("image", "document", "audio") else None


def _from_url(kind: Kind, url: Any, title: Any) -> Media | None:
    if not isinstance(url, str):
        return None
    title, found = title if isinstance(title, str) else None, _DATA_URL.match(url)
    if found:
        return Media(kind, found[1] or None, data=url[found.end() :], title=title)
    return Media(kind, None, url=url, title=title)


_HELD = {"base64": ("data", "data"), "url": ("url", "url"), "text": ("text", "data")}  # by type of source: as, under


def _from_source(part: Part, kind: Kind) -> Media | None:
    """Anthropic's shape: ``{"type", "source": {"type": "base64", "url" or "text", …}, "title"?, "context"?}``."""
    source = as_dict(part.get("source"))
    said = {name: part[name] for name in ("title", "context") if isinstance(part.get(name), str)}
    media_type = source.get("media_type")
    held, key = _HELD.get(str(source.get("type")), ("", ""))
    if not held or not isinstance(source.get(key), str):
        return None
    if held == "url" and (found := _DATA_URL.match(source[key])):
        return Media(kind, found[1] or None, data=source[key][found.end() :], **said)
    return Media(kind, media_type if isinstance(media_type, str) else None, **{held: source[key]}, **said)


# ---- what a message carries


def media_in(message: Message) -> Iterator[tuple[Part, Media]]:
    """The parts that a model must be able to take, each with what it carries; those of a tool's result too."""
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        for inner in (part, *_results(part)):
            media = media_of(inner)
            if media and media.text is None:
                yield inner, media


def without(message: Message, lacks: Collection[Kind]) -> Message:
    """The message with a line of text in the place of each part of a kind that its model, or any, does not take."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    parts = [_without(part, lacks, of_tool=message["role"] == "tool") for part in content]
    is_same = all(new is part for new, part in zip(parts, content, strict=True))
    return message if is_same else {**message, "content": parts}


def _without(part: Part, lacks: Collection[Kind], *, of_tool: bool) -> Part:
    if inner := _results(part):
        return {**part, "content": [_without(item, lacks, of_tool=True) for item in inner]}
    media = media_of(part)
    if media is None or media.text is not None:
        return part
    if media.kind in lacks:
        return not_sent(part, f"this model takes no {NAMES[media.kind]}")
    if not _is_refused(media, of_tool=of_tool):
        return part
    return named(part, str(media))


def not_sent(part: Part, why: str) -> Part:
    """What a model reads in the place of a part that it does not get, under the part's name."""
    media = media_of(part)
    what = media.described if media else part.get("type")
    return named(part, f"[gptsh: {what if what and isinstance(what, str) else 'a part'}, not sent: {why}]")


def named(part: Part, text: str) -> Part:
    """A text in the place of a part, under the part's name."""
    name = name_of(part)
    return text_part(name, text) if name else {"type": "text", "text": text}


def _is_refused(media: Media, *, of_tool: bool) -> bool:
    """Whether a model would refuse it, and with it the session for good: no data, or an image of an odd type.

    A document that a user attached elsewhere may be known to its provider; what a tool gave may be anything.
    """
    if media.data is None:
        return False
    strict = of_tool or media.kind == "image"
    return not media.data or (strict and media.media_type not in (None, *SENDABLE))


def _results(part: Part) -> list[Part]:
    """The parts of a tool's result in another tool's dress."""
    content = part.get("content")
    return as_dicts(content) if part.get("type") == "tool_result" else []


def name_of(part: Part) -> str | None:
    """Where a part came from: a file's name, ``stdin``, or what another tool calls it."""
    names = (part.get("source"), part.get("title"), as_dict(part.get("file")).get("filename"))
    return next((name for name in names if isinstance(name, str)), None)


def shown(part: Part) -> str:
    """A part for people: its text, or in the place of what it carries such as ``[image/png, 34.1 kB]``."""
    text = part.get("text")
    if part.get("type") == "text" and isinstance(text, str):
        return text
    if inner := _results(part):
        return "\n".join(map(shown, inner))
    media = media_of(part)
    if media is None:
        return f"[{part.get('type') or 'part'}]"
    return str(media) if media.text is None else media.text


def gist_of(message: Message) -> str:
    """What a question is about: its words, else its text, else what stands in the place of what it carries."""
    return words_of(message) or " ".join(str(media) for _, media in media_in(message))
