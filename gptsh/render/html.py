"""The HTML export: a session as one file, styled by page.css; no script, no network, no active content from a model."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path

from gptsh.content.attachments import Media
from gptsh.content.passages import Passage, partial_reason, passages, speaker
from gptsh.core.document import Document
from gptsh.core.listing import title_of
from gptsh.messages import Message
from gptsh.render.details import Detail
from gptsh.render.html_markdown import code, is_link, link, markdown, plain
from gptsh.text import local_time, one_line

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")  # SVG could hold a script
_FILES = {"application/pdf": "pdf", "audio/wav": "wav", "audio/mpeg": "mp3"}  # offered as downloads
_ANY = "application/octet-stream"  # for a download that is never displayed
_LONGEST_NAME = 100
_UNSAFE = re.compile(r"[^\w.() -]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_ROLES = ("user", "assistant", "tool", "system")
_STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def page(doc: Document, facts: Sequence[Detail]) -> Iterator[str]:
    """The file in pieces of valid Unicode. ``facts`` are listed at its top."""
    title = plain(one_line(title_of(doc)))
    yield _head(title)
    rows = (f"<dt>{plain(label)}</dt><dd>{plain(one_line(value))}</dd>\n" for label, value in facts)
    yield f"<header>\n<h1>{title}</h1>\n<dl>\n{''.join(rows)}</dl>\n"
    if system := doc["agent"].get("system"):
        yield _details("system", "System prompt", f'<div class="words" dir="auto">{markdown(system)}</div>')
    yield "</header>\n"
    for message in doc["messages"]:
        yield from _message(message)
    yield "</main>\n</body>\n</html>\n"


def _head(title: str) -> str:
    style = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    allowed = f"default-src 'none'; style-src 'sha256-{style}'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{allowed}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{_STYLE}</style>
</head>
<body>
<main>
"""


def _message(message: Message) -> Iterator[str]:
    role = message["role"] if message["role"] in _ROLES else "user"
    moment, early = message.get("timestamp"), partial_reason(message)
    at = f" <time>{plain(local_time(moment))}</time>" if moment else ""
    note = f' <span class="note">{plain(one_line(early))}</span>' if early else ""
    yield f'<article class="{role}">\n<h2>{plain(one_line(speaker(message)))}{at}{note}</h2>\n'
    yield from map(_passage, passages(message))
    yield "</article>\n"


def _passage(passage: Passage) -> str:
    text, line = passage.text or "", plain(one_line(passage.line))
    match passage.kind:
        case "words" | "refusal" | "pages":
            return f'<div class="words" dir="auto">{markdown(text)}</div>\n'
        case "media":
            return _media(passage.media[0], passage.title) if passage.media else f'<p class="line">{line}</p>\n'
        case "thinking":
            content = f'<div class="words" dir="auto">{markdown(text)}</div>' if text else ""
        case _:
            content = code(text, passage.language) if text else ""
    content += "".join(_media(media, media.description) for media in passage.media)
    return _details(passage.kind, line, content)


def _details(kind: str, line: str, content: str) -> str:
    """A foldable section under a line; only the line if there is no content."""
    if not content:
        return f'<p class="line">{line}</p>\n'
    return f'<details class="{kind}">\n<summary>{line}</summary>\n{content}\n</details>\n'


def _media(media: Media, title: str) -> str:
    """An image, or a download of a document or a recording; a link if the data is elsewhere: nothing is loaded."""
    shown, data = plain(one_line(title)), "".join((media.data or "").split())
    kind = (media.media_type or "").lower()
    if not _BASE64.fullmatch(data):
        content = link(media.url, one_line(title)) if media.url and is_link(media.url) else shown
    elif kind in _IMAGES:
        content = f'<img src="data:{kind};base64,{data}" alt="{shown}">\n<figcaption>{shown}</figcaption>'
    else:
        mime = kind if kind in _FILES else _ANY
        content = f'<a href="data:{mime};base64,{data}" download="{plain(_filename(media, kind))}">{shown}</a>'
    return f"<figure>{content}</figure>\n"


def _filename(media: Media, kind: str) -> str:
    """A name for the download without folders and without characters that are special to a shell or a file system."""
    ending = _FILES.get(kind) or kind.rpartition("/")[2].partition("+")[0]
    named = f"{'recording' if media.kind == 'audio' else media.kind}.{ending}"
    named = media.file_name.rpartition("\\")[2] if media.kind == "document" else named
    return _UNSAFE.sub("_", named)[-_LONGEST_NAME:].strip(". ") or media.kind
