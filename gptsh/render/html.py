"""A session as one HTML file that needs nothing else: no script, no network, nothing of a model's that is obeyed."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from gptsh.content.attachments import Media
from gptsh.content.passages import Passage, partial, passages, speaker
from gptsh.core.document import Document
from gptsh.core.listing import title_of
from gptsh.messages import Message
from gptsh.render.details import Detail
from gptsh.render.markdown import count_quick, parse, parser
from gptsh.text import local_time, one_line, visible

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")  # SVG could hold a script
_FILES = {"application/pdf": "pdf", "audio/wav": "wav", "audio/mpeg": "mp3"}  # that can be taken out again
_ANY = "application/octet-stream"  # of what is never shown, only taken out
_LONGEST_NAME = 100
_UNSAFE = re.compile(r"[^\w.() -]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_ROLES = ("user", "assistant", "tool", "system")
_LINK = re.compile(r"(?:https?://|mailto:)\S+", re.IGNORECASE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_REL = "noopener noreferrer nofollow"  # a link that says nothing about where it was followed from
_STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
_OUTER, _LOWEST = 2, 6  # levels of headings: those that the page has for itself, and the last


def page(doc: Document, facts: Sequence[Detail]) -> Iterator[str]:
    """The file in pieces, as text that is valid UTF-8. ``facts`` stand at its head."""
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
    ending = _FILES.get(kind) or kind.rpartition("/")[2].partition("+")[0]
    named = f"{'recording' if media.kind == 'audio' else media.kind}.{ending}"
    named = media.file_name.rpartition("\\")[2] if media.kind == "document" else named
    return _UNSAFE.sub("_", named)[-_LONGEST_NAME:].strip(". ") or media.kind


# ---- Markdown and code


def plain(text: str) -> str:
    """The text as it is shown: control characters and halves of a character made visible, nothing of it HTML."""
    return escape(_shown(text))


def _shown(text: str) -> str:
    return _SURROGATE.sub("\ufffd", visible(text))


def is_link(url: str) -> bool:
    """Whether it is an http, https or mailto URL."""
    return _LINK.fullmatch(url) is not None


def link(url: str, label: str) -> str:
    """A link to a URL that is one."""
    return f'<a href="{plain(url)}" rel="{_REL}">{plain(label)}</a>'


def markdown(text: str) -> str:
    """Markdown as HTML. What is nested too deeply to be read as such stands there as it came."""
    markdown = _parser()
    tokens = parse(markdown, _shown(text))
    if not tokens:
        return _raw(text.strip("\n")) if text.strip() else ""
    return _shown(markdown.renderer.render(tokens, markdown.options, {}))  # entities may stand for control characters


def _raw(text: str) -> str:
    return f'<p class="raw">{plain(text)}</p>\n'


def code(text: str, language: str = "") -> str:
    """Code, highlighted where its language is known and it is not too long; else the language stands above it."""
    text = _shown(text).removesuffix("\n")
    name = language.partition(" ")[0]
    try:
        lexer = get_lexer_by_name(name, stripnl=False) if name else None
    except ClassNotFound:
        lexer = None
    body = escape(text)
    if lexer and count_quick(lines := text.split("\n")) == len(lines):
        pieces = list(lexer.get_tokens(f"{text}\n"))
        if "".join(piece for _, piece in pieces) == f"{text}\n":  # some lexers change it
            colored = StringIO()
            HtmlFormatter(nowrap=True).format(pieces, colored)
            body = colored.getvalue()
    label = f'<div class="language">{escape(language)}</div>' if language and not lexer else ""
    return f'{label}<pre tabindex="0"><code>{body}</code></pre>\n'


@cache
def _parser() -> MarkdownIt:
    markdown = parser()
    markdown.options["xhtmlOut"] = False
    setattr(markdown, "validateLink", is_link)  # noqa: B010 - meant to be replaced; other links stay as they are written
    markdown.core.ruler.push("page", _fit_page)
    renderer: Any = markdown.renderer
    rules = renderer.rules
    rules["fence"] = rules["code_block"] = lambda tokens, at, *_: code(tokens[at].content, tokens[at].info.strip())
    rules["raw"] = rules["html_block"] = lambda tokens, at, *_: _raw(tokens[at].content.rstrip("\n"))
    rules["html_inline"] = lambda tokens, at, *_: escape(tokens[at].content)
    rules["softbreak"] = lambda *_: "<br>\n"
    rules["table_open"] = lambda *_: '<div class="table"><table>'
    rules["table_close"] = lambda *_: "</table></div>\n"
    rules["image"] = _image
    return markdown


def _image(tokens: Sequence[Token], at: int, *_: Any) -> str:
    """An image as a link to it, since nothing is loaded; within a link its words alone."""
    label = tokens[at].content or "image"
    opened = [token.nesting for token in tokens[:at] if token.type in ("link_open", "link_close")]
    return plain(label) if sum(opened) else link(str(tokens[at].attrs["src"]), label)


def _fit_page(state: StateCore) -> None:
    """Headings below the page's own, links that tell nothing of it, no style but by class."""
    for token in state.tokens:
        if token.type.startswith("heading_"):
            token.tag = f"h{min(_LOWEST, int(token.tag[1]) + _OUTER)}"
        style = str(token.attrs.pop("style", "")).removeprefix("text-align:")
        if style in ("right", "center"):
            token.attrs["class"] = style
        for child in token.children or ():
            if child.type == "link_open":
                child.attrs = {"href": child.attrs["href"], "rel": _REL}
