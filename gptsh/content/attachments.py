"""Attachments: images, PDF documents, audio and video as parts of messages; a text for those that are not sent.

Parts have the shapes of OpenAI's chat API; ``foreign`` converts those of other tools.
"""

import re
from binascii import b2a_base64
from collections.abc import Collection, Iterator
from typing import Any, Literal

from gptsh.content.file_types import PDF, SENDABLE
from gptsh.jsonio import as_dict
from gptsh.messages import Message, Part, is_text, text_part
from gptsh.records import NamedTuple
from gptsh.text import format_size

Kind = Literal["image", "document", "audio", "video"]

# The ability that a model needs for a kind, as the model table names it, and the kind as errors name it.
ABILITIES: dict[Kind, str] = {
    "image": "vision", "document": "pdf_input", "audio": "audio_input", "video": "video_input",
}  # fmt: skip
NAMES: dict[Kind, str] = {"image": "images", "document": "PDF documents", "audio": "audio", "video": "video"}
AUDIO = {"audio/wav": "wav", "audio/mpeg": "mp3"}  # by MIME type, as OpenAI names it
_DATA_URL = r"(?i)data:([^;,]*)(?:;[^,]*)?;base64,"


class Media(NamedTuple):
    """The content of a part: ``data`` (base64) or a ``url``. ``media_type`` is None if unknown, as for most URLs."""

    kind: Kind
    media_type: str | None
    data: str | None = None
    url: str | None = None
    title: str | None = None

    @property
    def description(self) -> str:
        """Such as ``image/png, 34.1 kB``."""
        size = None if self.data is None else format_size((len(self.data) - self.data[-2:].count("=")) * 3 // 4)
        return ", ".join(filter(None, (self.media_type or self.kind, size or self.url)))

    @property
    def file_name(self) -> str:
        """The document's name without folders; a PDF, or a document of unknown type, gets ``.pdf``."""
        name = (self.title or "").rpartition("/")[2] or "document"
        is_pdf = (self.media_type or PDF).lower() == PDF
        return f"{name}.pdf" if is_pdf and not name.lower().endswith(".pdf") else name

    def __str__(self) -> str:
        """Such as ``[image/png, 34.1 kB]``."""
        return f"[{self.description}]"


def media_part(source: str, media_type: str, data: bytes | bytearray) -> Part:
    """Return a part with the data, which came from ``source``: a file's name, or ``stdin``."""
    base64_data = b2a_base64(data, newline=False).decode()
    if media_type in AUDIO:
        return {
            "type": "input_audio",
            "input_audio": {"data": base64_data, "format": AUDIO[media_type]},
            "source": source,
        }
    return url_part(media_type, f"data:{media_type};base64,{base64_data}", source)


def url_part(media_type: str, url: str, source: str | None) -> Part:
    """Return a part with a URL (also a data URL): an image, or else a file: a document or a video."""
    if media_type.startswith("image/"):
        part: Part = {"type": "image_url", "image_url": {"url": url}}
    else:
        document = Media("document", media_type, title=source)
        part = {"type": "file", "file": {"filename": document.file_name, "file_data": url}}
    return part if source is None else {**part, "source": source}


def media_of(part: Part) -> Media | None:
    """Return the media in a part, or None for text and for a part of unknown type or shape."""
    kind = part.get("type")
    inner: Any = part.get(kind) if isinstance(kind, str) else None
    if kind == "input_audio":
        data, audio_format = as_dict(inner).get("data"), as_dict(inner).get("format")
        media_type = next((media_type for media_type, name in AUDIO.items() if name == audio_format), None)
        return Media("audio", media_type, data=data) if isinstance(data, str) else None
    if kind == "image_url":
        url, title = inner if isinstance(inner, str) else as_dict(inner).get("url"), None
    else:
        url, title = as_dict(inner).get("file_data"), as_dict(inner).get("filename")
    if kind not in ("image_url", "file") or not isinstance(url, str):
        return None
    media_kind: Kind = "image" if kind == "image_url" else "document"
    title = title if isinstance(title, str) else None
    if match := re.match(_DATA_URL, url):
        if media_kind == "document" and match[1].lower().startswith("video/"):
            media_kind = "video"
        return Media(media_kind, match[1] or None, data=url[match.end() :], title=title)
    return Media(media_kind, None, url=url, title=title)


def media_in(message: Message) -> Iterator[tuple[Part, Media]]:
    """Yield the parts of a message that are media, each with its media."""
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if media := media_of(part):
            yield part, media


def name_of(part: Part) -> str | None:
    """Return the origin of a part: a file's name, or ``stdin``; None if unknown."""
    names = (part.get("source"), as_dict(part.get("file")).get("filename"))
    return next((name for name in names if isinstance(name, str)), None)


def part_label(part: Part) -> str:
    """Return a part for people: its text, or for media such as ``[image/png, 34.1 kB]``."""
    return str(part["text"] if is_text(part) else media_of(part) or f"[{part.get('type') or 'part'}]")


# ---- text instead of a part


def without_media(message: Message, unsupported_kinds: Collection[Kind]) -> Message:
    """Return the message with text instead of each part that this model, or any model, would refuse."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    of_tool = message["role"] == "tool"
    return {**message, "content": [_part_or_text(part, unsupported_kinds, of_tool=of_tool) for part in content]}


def _part_or_text(part: Part, unsupported_kinds: Collection[Kind], *, of_tool: bool) -> Part:
    media = media_of(part)
    if media is None:
        return part
    if media.kind in unsupported_kinds:
        return not_sent(part, f"this model takes no {NAMES[media.kind]}")
    # The provider may accept another document of the user; a tool result may contain anything.
    is_odd = media.media_type not in (None, *SENDABLE) and (of_tool or media.kind == "image")
    return as_text(part, str(media)) if media.data is not None and (is_odd or not media.data) else part


def not_sent(part: Part, why: str) -> Part:
    """Return the text that the model reads instead of a part, with the part's name."""
    media = media_of(part)
    return as_text(part, f"[gptsh: {media.description if media else part.get('type') or 'a part'}, not sent: {why}]")


def as_text(part: Part, text: str) -> Part:
    """Return a text part with the part's name."""
    name = name_of(part)
    return text_part(name, text) if name else {"type": "text", "text": text}
