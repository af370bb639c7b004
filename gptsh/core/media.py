"""Images, documents and audio that a message carries: one view of the shapes in which they stand there.

What gptsh attaches itself has OpenAI's shapes; those of Anthropic, in which other tools keep theirs, are read too. Each
dialect of ``llm/`` says in its own shape what it sees here.
"""

import base64
import re
from typing import Any, Literal, NamedTuple

from gptsh.core.kinds import shown_size
from gptsh.core.loose import as_dict
from gptsh.core.messages import Part

Kind = Literal["image", "document", "audio"]

_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^,]*)?;base64,", re.IGNORECASE)
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
            return len(self.data.rstrip("=")) * 3 // 4
        return None if self.text is None else len(self.text.encode("utf-8", "surrogatepass"))

    def __str__(self) -> str:
        """Such as ``[image/png, 34.1 kB]``."""
        known = [self.media_type or self.kind, self.url if self.size is None else shown_size(self.size)]
        return f"[{', '.join(filter(None, known))}]"


def media_part(source: str, media_type: str, data: bytes | bytearray) -> Part:
    """A part that carries the data, which came from ``source``: a file's name, or ``stdin``."""
    text = base64.b64encode(data).decode()
    if media_type in AUDIO:
        part: Part = {"type": "input_audio", "input_audio": {"data": text, "format": AUDIO[media_type]}}
    elif media_type.startswith("image/"):
        part = {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{text}"}}
    else:
        name = source.rpartition("/")[2]
        part = {"type": "file", "file": {"filename": name, "file_data": f"data:{media_type};base64,{text}"}}
    return {**part, "source": source}


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
    return Media(kind, media_type if isinstance(media_type, str) else None, **{held: source[key]}, **said)
