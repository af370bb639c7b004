"""Write a session as one HTML page."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from gptsh.content.passages import Passage, partial_reason, passages, speaker
from gptsh.core.document import Document
from gptsh.core.listing import title_of
from gptsh.messages import Message
from gptsh.render.markdown import count_quick, parse, parser
from gptsh.render.session import Detail
from gptsh.text import local_time, one_line, visible

# ---- html markdown
#
# Markdown and code as HTML: escaped, with highlighted code; no images or links that load or run
# anything.

_LINK = re.compile(r"(?:https?://|mailto:)\S+", re.IGNORECASE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_REL = "noopener noreferrer nofollow"  # a link does not reveal where it was followed from
_OUTER_LEVELS = 2  # of headings, which the page uses itself
_LOWEST_LEVEL = 6


def plain(text: str) -> str:
    """Return the text escaped for HTML, control characters and lone surrogates made visible."""
    return escape(_shown(text))


def _shown(text: str) -> str:
    return _SURROGATE.sub("\ufffd", visible(text))


def is_link(url: str) -> bool:
    """Return whether this is an http, https or mailto URL."""
    return _LINK.fullmatch(url) is not None


def link(url: str, label: str) -> str:
    """Return a link to a URL for which ``is_link`` is true."""
    return f'<a href="{plain(url)}" rel="{_REL}">{plain(label)}</a>'


def markdown(text: str) -> str:
    """Return Markdown as HTML; text that is nested too deeply is shown as it is."""
    markdown = _parser()
    tokens = parse(markdown, _shown(text))
    if not tokens:
        return _raw(text.strip("\n")) if text.strip() else ""
    page = markdown.renderer.render(tokens, markdown.options, {})
    return _shown(page)  # entities may mean control characters


def _raw(text: str) -> str:
    return f'<p class="raw">{plain(text)}</p>\n'


def code(text: str, language: str = "") -> str:
    """Return code, highlighted if its language is known and it is not too long.

    The name of an unknown language is shown above it.
    """
    text = _shown(text).removesuffix("\n")
    lexer = _lexer(language.partition(" ")[0])
    body = escape(text)
    lines = text.split("\n")
    if lexer and count_quick(lines) == len(lines):
        tokens = list(lexer.get_tokens(f"{text}\n"))
        if "".join(value for _, value in tokens) == f"{text}\n":  # some lexers change the code
            colored = StringIO()
            HtmlFormatter(nowrap=True).format(tokens, colored)
            body = colored.getvalue()
    label = f'<div class="language">{escape(language)}</div>' if language and not lexer else ""
    return f'{label}<pre tabindex="0"><code>{body}</code></pre>\n'


def _lexer(name: str) -> Any:
    """Return the lexer of a language; None if it is unknown."""
    try:
        return get_lexer_by_name(name, stripnl=False)
    except ClassNotFound:
        return None


@cache
def _parser() -> MarkdownIt:
    markdown = parser()
    markdown.options["xhtmlOut"] = False
    # It is documented to be replaced. Other links are shown as text.
    setattr(markdown, "validateLink", is_link)  # noqa: B010
    markdown.core.ruler.push("page", _fit_page)
    # Its own annotation allows only bound methods.
    rules: dict[str, Callable[..., str]] = vars(markdown.renderer)["rules"]
    rules["fence"] = rules["code_block"] = _code
    rules["raw"] = rules["html_block"] = _raw_block
    rules["html_inline"] = lambda tokens, index, *_: escape(tokens[index].content)
    rules["softbreak"] = lambda *_: "<br>\n"
    rules["table_open"] = lambda *_: '<div class="table"><table>'
    rules["table_close"] = lambda *_: "</table></div>\n"
    rules["image"] = _image
    return markdown


def _code(tokens: Sequence[Token], index: int, *_: object) -> str:
    return code(tokens[index].content, tokens[index].info.strip())


def _raw_block(tokens: Sequence[Token], index: int, *_: object) -> str:
    return _raw(tokens[index].content.rstrip("\n"))


def _image(tokens: Sequence[Token], index: int, *_: object) -> str:
    """Return an image as a link, since nothing is loaded; inside a link only its description."""
    label = tokens[index].content or "image"
    links = [token for token in tokens[:index] if token.type in ("link_open", "link_close")]
    if links and links[-1].type == "link_open":
        return plain(label)
    return link(str(tokens[index].attrs["src"]), label)


def _fit_page(state: StateCore) -> None:
    """Move headings below those of the page, add ``rel`` to links, replace styles by classes."""
    for token in state.tokens:
        if token.type.startswith("heading_"):
            level = int(token.tag[1]) + _OUTER_LEVELS
            token.tag = f"h{min(level, _LOWEST_LEVEL)}"
        style = str(token.attrs.pop("style", "")).removeprefix("text-align:")
        if style in ("right", "center"):
            token.attrs["class"] = style
        for child in token.children or ():
            if child.type == "link_open":
                child.attrs = {"href": child.attrs["href"], "rel": _REL}


# ---- html
#
# The HTML export: a session as one file, styled by page.css; no script, no network, no active
# content from a model.

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")  # SVG could hold a script
_FILES = {"application/pdf": "pdf", "audio/wav": "wav", "audio/mpeg": "mp3"}  # offered as downloads
_ANY = "application/octet-stream"  # for a download that is never displayed
_LONGEST_NAME = 100
_UNSAFE = re.compile(r"[^\w.() -]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_ROLES = ("user", "assistant", "tool", "system")
_STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def page(doc: Document, facts: Sequence[Detail]) -> Iterator[str]:
    """Yield the file in pieces of valid Unicode. ``facts`` are listed at its top."""
    yield from pages([(doc, facts)], title_of(doc))


def pages(
    sessions: Iterable[tuple[Document, Sequence[Detail]]], title: str = "Sessions"
) -> Iterator[str]:
    """Yield one file with several sessions, each under its own heading and facts."""
    yield _head(plain(one_line(title)))
    for doc, facts in sessions:
        yield from _session(doc, facts)
    yield "</main>\n</body>\n</html>\n"


def _session(doc: Document, facts: Sequence[Detail]) -> Iterator[str]:
    yield f"<header>\n<h1>{plain(one_line(title_of(doc)))}</h1>\n<dl>\n"
    for label, words in facts:
        yield f"<dt>{plain(label)}</dt><dd>{plain(one_line(words))}</dd>\n"
    yield "</dl>\n"
    system = doc["agent"].get("system")
    if system:
        yield _details("system", "System prompt", _words(system))
    yield "</header>\n"
    for message in doc["messages"]:
        yield from _message(message)


def _head(title: str) -> str:
    style = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    allowed = (
        f"default-src 'none'; style-src 'sha256-{style}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
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
    heading = plain(one_line(speaker(message)))
    moment = message.get("timestamp")
    if moment:
        heading += f" <time>{plain(local_time(moment))}</time>"
    reason = partial_reason(message)
    if reason:
        heading += f' <span class="note">{plain(one_line(reason))}</span>'
    yield f'<article class="{role}">\n<h2>{heading}</h2>\n'
    yield from map(_passage, passages(message))
    yield "</article>\n"


def _words(text: str) -> str:
    return f'<div class="words" dir="auto">{markdown(text)}</div>'


def _passage(passage: Passage) -> str:
    text = passage.text or ""
    line = plain(one_line(passage.line))
    match passage.kind:
        case "words" | "refusal" | "pages":
            return f"{_words(text)}\n"
        case "media":
            if passage.media:
                return _media(passage.media[0], passage.title)
            content = ""
        case "thinking":
            content = _words(text) if text else ""
        case _:
            content = code(text, passage.language) if text else ""
    content += "".join(_media(media, media.description) for media in passage.media)
    return _details(passage.kind, line, content)


def _details(kind: str, line: str, content: str) -> str:
    """Return a foldable section under a line; only the line if there is no content."""
    if not content:
        return f'<p class="line">{line}</p>\n'
    return f'<details class="{kind}">\n<summary>{line}</summary>\n{content}\n</details>\n'


def _media(media: Media, title: str) -> str:
    """Return an image, or a download of a document or a recording; a link if it is elsewhere.

    So the page loads nothing.
    """
    label = one_line(title)
    data = "".join((media.data or "").split())
    kind = (media.media_type or "").lower()
    if _BASE64.fullmatch(data):
        content = _embedded(media, kind, data, plain(label))
    elif media.url and is_link(media.url):
        content = link(media.url, label)
    else:
        content = plain(label)
    return f"<figure>{content}</figure>\n"


def _embedded(media: Media, kind: str, data: str, label: str) -> str:
    if kind in _IMAGES:
        image = f'<img src="data:{kind};base64,{data}" alt="{label}">'
        return f"{image}\n<figcaption>{label}</figcaption>"
    download_type = kind if kind in _FILES else _ANY
    name = plain(_filename(media, kind))
    return f'<a href="data:{download_type};base64,{data}" download="{name}">{label}</a>'


def _filename(media: Media, kind: str) -> str:
    """Return a name for the download without folders or characters special to a shell."""
    if media.kind == "document":
        name = media.file_name.rpartition("\\")[2]
    else:
        stem = "recording" if media.kind == "audio" else media.kind
        ending = _FILES.get(kind) or kind.rpartition("/")[2].partition("+")[0]
        name = f"{stem}.{ending}"
    return _UNSAFE.sub("_", name)[-_LONGEST_NAME:].strip(". ") or media.kind
