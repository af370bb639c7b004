"""A session as one HTML file that needs nothing else: no script, no network, nothing of a model's that is obeyed."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence

from gptsh.content.foreign import translated
from gptsh.content.media import Media, file_name
from gptsh.content.passages import Passage, partial, passages, speaker
from gptsh.core.document import Document
from gptsh.core.listing import Fact, portrait, title_of
from gptsh.messages import Message
from gptsh.render.hypertext import code, is_link, link, markdown, plain
from gptsh.render.stylesheet import STYLE
from gptsh.text import local_time, one_line

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")  # SVG could hold a script
_FILES = {"application/pdf": "pdf", "audio/wav": "wav", "audio/mpeg": "mp3"}  # that can be taken out again
_ANY = "application/octet-stream"  # of what is never shown, only taken out
_LONGEST_NAME = 100
_UNSAFE = re.compile(r"[^\w.() -]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_ROLES = ("user", "assistant", "tool", "system")


def page(doc: Document, facts: Sequence[Fact] | None = None) -> Iterator[str]:
    """The file in pieces, as text that is valid UTF-8. ``facts`` stand at its head; by default those it knows."""
    title = plain(one_line(title_of(doc)))
    yield _head(title)
    yield f"<header>\n<h1>{title}</h1>\n{_facts(portrait(doc) if facts is None else facts)}"
    if system := doc["agent"].get("system"):
        yield _details("system", "System prompt", f'<div class="words" dir="auto">{markdown(system)}</div>')
    yield "</header>\n"
    for message in doc["messages"]:
        for own in translated(message):
            yield from _message(own)
    yield "</main>\n</body>\n</html>\n"


def _head(title: str) -> str:
    style = b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
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
<style>{STYLE}</style>
</head>
<body>
<main>
"""


def _facts(facts: Sequence[Fact]) -> str:
    rows = (f"<dt>{plain(label)}</dt><dd>{plain(one_line(value))}</dd>\n" for label, value in facts)
    return f"<dl>\n{''.join(rows)}</dl>\n"


def _message(message: Message) -> Iterator[str]:
    role = message["role"] if message["role"] in _ROLES else "user"
    moment, early = message.get("timestamp"), partial(message)
    at = f" <time>{plain(local_time(moment))}</time>" if moment else ""
    note = f' <span class="note">{plain(one_line(early))}</span>' if early else ""
    yield f'<article class="{role}">\n<h2>{plain(one_line(speaker(message)))}{at}{note}</h2>\n'
    yield from map(_passage, passages(message))
    yield "</article>\n"


def _passage(passage: Passage) -> str:
    text, line = passage.text or "", plain(one_line(passage.line))
    match passage.kind:
        case "words" | "refusal":
            return f'<div class="words" dir="auto">{markdown(text)}</div>\n'
        case "media":
            return _media(passage.media[0], passage.title) if passage.media else f'<p class="line">{line}</p>\n'
        case "thinking":
            inside = f'<div class="words" dir="auto">{markdown(text)}</div>' if text else ""
        case _:
            inside = code(text, passage.language) if text else ""
    inside += "".join(_media(media, media.described) for media in passage.media)
    return _details(passage.kind, line, inside)


def _details(kind: str, line: str, inside: str) -> str:
    """What is folded; a line alone where there is nothing to unfold."""
    if not inside:
        return f'<p class="line">{line}</p>\n'
    return f'<details class="{kind}">\n<summary>{line}</summary>\n{inside}\n</details>\n'


def _media(media: Media, title: str) -> str:
    """An image, a document or a recording to take out, or a link where it lies elsewhere: nothing is loaded."""
    shown, data = plain(one_line(title)), "".join((media.data or "").split())
    kind = (media.media_type or "").lower()
    if not _BASE64.fullmatch(data):
        inside = link(media.url, one_line(title)) if media.url and is_link(media.url) else shown
    elif kind in _IMAGES:
        inside = f'<img src="data:{kind};base64,{data}" alt="{shown}">\n<figcaption>{shown}</figcaption>'
    else:
        of = kind if kind in _FILES else _ANY
        inside = f'<a href="data:{of};base64,{data}" download="{plain(_filename(media, kind))}">{shown}</a>'
    return f"<figure>{inside}</figure>\n"


def _filename(media: Media, kind: str) -> str:
    """A name under which it can be taken out: no folder in it, no sign that means something to a shell or a reader."""
    if media.kind == "document":
        named = _UNSAFE.sub("_", file_name(media).rpartition("\\")[2]).strip(". ")
        stem, dot, ending = named.rpartition(".")
        return f"{stem[:_LONGEST_NAME]}{dot}{ending[:_LONGEST_NAME]}" if stem else named[:_LONGEST_NAME] or media.kind
    ending = _FILES.get(kind) or _UNSAFE.sub("", kind.rpartition("/")[2].partition("+")[0])[:_LONGEST_NAME]
    name = "recording" if media.kind == "audio" else media.kind
    return f"{name}.{ending}" if ending else name
