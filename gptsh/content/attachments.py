"""Attach images, PDF, audio and video to messages; recognise types of files by their bytes."""

import re
from binascii import b2a_base64
from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple

from gptsh.jsonio import as_dict
from gptsh.messages import Message, Part, is_text, text_part
from gptsh.text import format_size

# ---- file types
#
# The type of attached or piped data by its bytes: text, an image, PDF, audio, video (WebM, MP4);
# what can be sent.

PDF = "application/pdf"
_OTHER_NAMES = {  # of ``filetype`` for a type: the registered one
    "image/apng": "image/png",  # a viewer without animation shows its first image
    "audio/x-wav": "audio/wav",
}
SENDABLE = {
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    PDF,
    "audio/mpeg",
    "audio/wav",
    "video/mp4",
    "video/webm",
    "video/mpeg",
}
UTF_16 = "UTF-16 text"
BINARY = "binary data"

_HEAD = 1 << 16  # bytes that are examined; NUL bytes are searched everywhere
# Control characters that text does not use. It uses white space, backspace (man pages), ESC
# (colours), and the four separators of fields and records.
_CONTROLS = bytes([*range(0x01, 0x08), 0x0B, *range(0x0E, 0x1B), 0x7F])
_PDF_END = re.compile(rb"startxref\s+\d+\s+%%EOF")  # text about PDF has no such line
_MAX_CONTROLS = 0.05  # share of the head; compressed or random bytes have more


def detect_type(data: bytes | bytearray) -> str | None:
    """Return the type of bytes: a MIME type, UTF_16 or BINARY; None for text.

    The types in SENDABLE can be sent. Text is UTF-8 or an older encoding with one byte per letter.
    Single NUL bytes may separate its fields, as in the output of ``find -print0``.
    """
    head = bytes(data[:_HEAD])
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return UTF_16
    tail = bytes(data[-1024:])
    if head.startswith(b"%PDF-") and b"%%EOF" in tail:  # a PDF may be all ASCII
        return PDF
    has_header = may_be_pdf(head)
    controls = len(head) - len(head.translate(None, _CONTROLS))
    has_nul = b"\0" in data
    is_utf8 = _is_utf8(head)
    is_odd = controls > _MAX_CONTROLS * len(head)
    if has_nul:
        has_wide_letters = 3 * head.count(0) > len(head)  # of two bytes, of which one is NUL
        is_odd = controls > 0 or not is_utf8 or b"\0\0" in data or has_wide_letters
    if is_utf8 and not is_odd and not (has_header and _PDF_END.search(tail)):
        return None
    # Text in an older encoding may begin like a file signature, but has no control characters.
    if controls or has_nul or has_header:
        import filetype  # type: ignore[import-untyped]

        mime_type: str | None = filetype.guess_mime(head)
        if mime_type:
            return _OTHER_NAMES.get(mime_type, mime_type)
        if has_header and b"%%EOF" in tail:
            return PDF
    return BINARY if is_odd else None


def may_be_pdf(head: bytes | bytearray) -> bool:
    """Return whether a header of PDF begins in the first 1,024 bytes, where its readers look for it."""
    return b"%PDF-" in head[: 1023 + len(b"%PDF-")]


def _is_utf8(head: bytes) -> bool:
    """Return whether the bytes are UTF-8; the last character may be incomplete."""
    try:
        head.decode()
    except UnicodeDecodeError as err:
        return err.reason == "unexpected end of data"
    return True


# ---- attachments
#
# Attachments: images, PDF documents, audio and video as parts of messages; a text for those that
# are not sent.
#
# Parts have the shapes of OpenAI's chat API; ``shapes`` converts those of other tools.

Kind = Literal["image", "document", "audio", "video"]

# The ability that a model needs for a kind, as the model table names it.
ABILITIES: dict[Kind, str] = {
    "image": "vision",
    "document": "pdf_input",
    "audio": "audio_input",
    "video": "video_input",
}
# The kind as errors name it.
NAMES: dict[Kind, str] = {
    "image": "images",
    "document": "PDF documents",
    "audio": "audio",
    "video": "video",
}
AUDIO = {"audio/wav": "wav", "audio/mpeg": "mp3"}  # by MIME type, as OpenAI names it
_DATA_URL = r"(?i)data:([^;,]*)(?:;[^,]*)?;base64,"


class Media(NamedTuple):
    """The content of a part: ``data`` (base64) or a ``url``.

    ``media_type`` is None if unknown, as for most URLs.
    """

    kind: Kind
    media_type: str | None
    data: str | None = None
    url: str | None = None
    title: str | None = None

    @property
    def description(self) -> str:
        """Such as ``image/png, 34.1 kB``."""
        what = self.media_type or self.kind
        if self.data is not None:
            padding = self.data[-2:].count("=")
            size = 3 * (len(self.data) - padding) // 4
            return f"{what}, {format_size(size)}"
        if self.url:
            return f"{what}, {self.url}"
        return what

    @property
    def file_name(self) -> str:
        """The document's name without folders; a PDF, or one of unknown type, gets ``.pdf``."""
        _, _, name = (self.title or "").rpartition("/")
        name = name or "document"
        media_type = self.media_type or PDF
        if media_type.lower() == PDF and not name.lower().endswith(".pdf"):
            name += ".pdf"
        return name

    def __str__(self) -> str:
        """Such as ``[image/png, 34.1 kB]``."""
        return f"[{self.description}]"


def media_part(source: str, media_type: str, data: bytes | bytearray) -> Part:
    """Return a part with the data, which came from ``source``: a file's name, or ``stdin``."""
    base64_data = b2a_base64(data, newline=False).decode()
    if media_type in AUDIO:
        audio = {"data": base64_data, "format": AUDIO[media_type]}
        return {"type": "input_audio", "input_audio": audio, "source": source}
    return url_part(media_type, f"data:{media_type};base64,{base64_data}", source)


def url_part(media_type: str, url: str, source: str | None) -> Part:
    """Return a part with a URL (also a data URL): an image, else a file (document or video)."""
    if media_type.startswith("image/"):
        part: Part = {"type": "image_url", "image_url": {"url": url}}
    else:
        document = Media("document", media_type, title=source)
        part = {"type": "file", "file": {"filename": document.file_name, "file_data": url}}
    return part if source is None else {**part, "source": source}


def media_of(part: Part) -> Media | None:
    """Return the media in a part, or None for text and for a part of unknown type or shape."""
    match part:
        case {"type": "input_audio", "input_audio": {"data": str(data), **audio}}:
            media_types = {name: media_type for media_type, name in AUDIO.items()}
            media_type = media_types.get(str(audio.get("format")))
            return Media("audio", media_type, data=data)
        case {"type": "image_url", "image_url": str(url) | {"url": str(url)}}:
            return _media_at(url, "image", None)
        case {"type": "file", "file": {"file_data": str(url), **file}}:
            title = file.get("filename")
            if not isinstance(title, str):
                title = None
            return _media_at(url, "document", title)
    return None


def _media_at(url: str, kind: Kind, title: str | None) -> Media:
    """Return the media of a URL, which is not fetched, or of a data URL."""
    match = re.match(_DATA_URL, url)
    if match is None:
        return Media(kind, None, url=url, title=title)
    media_type = match[1]
    if kind == "document" and media_type.lower().startswith("video/"):
        kind = "video"
    data = url[match.end() :]
    return Media(kind, media_type or None, data=data, title=title)


def media_in(message: Message) -> Iterator[tuple[Part, Media]]:
    """Yield the parts of a message that are media, each with its media."""
    content = message.get("content")
    if isinstance(content, list):
        for part in content:
            media = media_of(part)
            if media:
                yield part, media


def name_of(part: Part) -> str | None:
    """Return the origin of a part: a file's name, or ``stdin``; None if unknown."""
    for name in (part.get("source"), as_dict(part.get("file")).get("filename")):
        if isinstance(name, str):
            return name
    return None


def part_label(part: Part) -> str:
    """Return a part for people: its text, or for media such as ``[image/png, 34.1 kB]``."""
    if is_text(part):
        return str(part["text"])
    return str(media_of(part) or f"[{part.get('type') or 'part'}]")


# ---- text instead of a part


def without_media(message: Message, unsupported_kinds: Collection[Kind]) -> Message:
    """Return the message with text instead of each part that this, or any, model would refuse."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    of_tool = message["role"] == "tool"
    parts = [_part_or_text(part, unsupported_kinds, of_tool=of_tool) for part in content]
    return {**message, "content": parts}


def _part_or_text(part: Part, unsupported_kinds: Collection[Kind], *, of_tool: bool) -> Part:
    media = media_of(part)
    if media is None:
        return part
    if media.kind in unsupported_kinds:
        return not_sent(part, f"this model does not accept {NAMES[media.kind]}")
    if media.data is None:  # the provider gets it from its URL
        return part
    # The provider may accept another document of the user; a tool result may contain anything.
    is_checked = of_tool or media.kind == "image"
    is_odd = is_checked and media.media_type is not None and media.media_type not in SENDABLE
    if is_odd or not media.data:
        return as_text(part, str(media))
    return part


def not_sent(part: Part, why: str) -> Part:
    """Return the text that the model reads instead of a part, with the part's name."""
    media = media_of(part)
    what = part.get("type") or "a part"
    if media:
        what = media.description
    return as_text(part, f"[gptsh: {what}, not sent: {why}]")


def as_text(part: Part, text: str) -> Part:
    """Return a text part with the part's name."""
    name = name_of(part)
    return text_part(name, text) if name else {"type": "text", "text": text}
