"""A session as one HTML file that needs nothing else: no script, no network, nothing of a model's that is obeyed."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from io import StringIO
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
from gptsh.render.markdown import count_quick, is_ragged, parse, parser
from gptsh.render.portrait import Fact
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
_OUTER, _LOWEST = 2, 6  # levels of headings: those that the page has for itself, and the last


def page(doc: Document, facts: Sequence[Fact]) -> Iterator[str]:
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
    if media.kind == "document":
        named = _UNSAFE.sub("_", media.file_name.rpartition("\\")[2]).strip(". ")
        stem, dot, ending = named.rpartition(".")
        return f"{stem[:_LONGEST_NAME]}{dot}{ending[:_LONGEST_NAME]}" if stem else named[:_LONGEST_NAME] or media.kind
    ending = _FILES.get(kind) or _UNSAFE.sub("", kind.rpartition("/")[2].partition("+")[0])[:_LONGEST_NAME]
    name = "recording" if media.kind == "audio" else media.kind
    return f"{name}.{ending}" if ending else name


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
    rules["html_block"] = lambda tokens, at, *_: _raw(tokens[at].content.rstrip("\n"))
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
    """Headings below the page's own, links that tell nothing of it, no style but by class, ragged tables as text."""
    tokens = state.tokens
    for at in [at for at, token in enumerate(tokens) if token.type == "table_open"][::-1]:
        behind = next(end for end in range(at, len(tokens)) if tokens[end].type == "table_close") + 1
        if is_ragged(tokens[at:behind]):
            tokens[at:behind] = [Token("html_block", "", 0, content=tokens[at].content)]
    for token in tokens:
        if token.type.startswith("heading_"):
            token.tag = f"h{min(_LOWEST, int(token.tag[1]) + _OUTER)}"
        style = str(token.attrs.pop("style", "")).removeprefix("text-align:")
        if style in ("right", "center"):
            token.attrs["class"] = style
        for child in token.children or ():
            if child.type == "link_open":
                child.attrs = {"href": child.attrs["href"], "rel": _REL}


_STYLE = """
:root {
  color-scheme: light dark;
  --ground: #fff; --ink: #1d1f23; --soft: #5c6370; --line: #d9dce1; --panel: #f5f6f8; --user: #e9f0fb; --link: #0a58ca;
  --comment: #5f6773; --keyword: #a0187c; --name: #1f4fa3; --string: #18652c; --number: #9a3e00;
  --gone: #a61b1b; --new: #18652c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #16181c; --ink: #e4e6ea; --soft: #a0a7b3; --line: #363b44; --panel: #202329; --user: #1d2b40;
    --link: #8ab8ff; --comment: #9aa3b0; --keyword: #f291d3; --name: #93bdff; --string: #8fd69e; --number: #f5b078;
    --gone: #ff9c94; --new: #8fd69e;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); overflow-wrap: anywhere;
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 48rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0 1rem; }
h2 { font-size: 1rem; margin: 0 0 .4rem; }
h3 { font-size: 1.25rem; } h4 { font-size: 1.1rem; } h5, h6 { font-size: 1rem; }
h3, h4, h5, h6 { line-height: 1.3; margin: 1.2em 0 .5em; }
time, .note { color: var(--soft); font-weight: normal; font-size: .85rem; margin-left: .5em; }
time, .note { display: inline-block; }
.note { border: 1px solid var(--line); border-radius: .3rem; padding: 0 .35em; }
a { color: var(--link); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0; font-size: .9rem; }
dt { color: var(--soft); } dd { margin: 0; }
header { border-bottom: 1px solid var(--line); padding-bottom: 1rem; margin-bottom: 1rem; }
article { margin: 1.2rem 0; }
article.user { background: var(--user); border-radius: .6rem; padding: .8rem 1rem; }
article.tool, article.system { border-left: 3px solid var(--line); padding-left: .8rem; }
.words > :first-child { margin-top: 0; } .words > :last-child { margin-bottom: 0; }
.words + .words { margin-top: .8em; }
article > :last-child { margin-bottom: 0; }
p { margin: .7em 0; }
.raw { white-space: pre-wrap; }
.line, summary { font-size: .85rem; color: var(--soft); font-family: ui-monospace, Menlo, Consolas, monospace; }
details, .line { margin: .6rem 0; }
details { border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .7rem; background: var(--ground); }
summary { cursor: pointer; }
details[open] > summary { margin-bottom: .5rem; }
ul, ol { padding-left: 1.6em; margin: .7em 0; }
li > ul, li > ol { margin: 0; }
blockquote { margin: .7em 0; padding-left: .9em; border-left: 3px solid var(--line); color: var(--soft); }
hr { border: 0; border-top: 1px solid var(--line); }
code { font: .875em/1.5 ui-monospace, Menlo, Consolas, monospace; }
:not(pre) > code { background: var(--panel); border-radius: .25rem; padding: .1em .3em; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: .4rem; padding: .7rem .8rem;
  margin: .7em 0; overflow-x: auto; overflow-wrap: normal; max-height: 40rem; }
details pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.language { font-size: .75rem; color: var(--soft); margin: .7em 0 -.5em; }
.table { overflow-x: auto; overflow-wrap: normal; margin: .7em 0; }
table { border-collapse: collapse; }
th, td { border: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top; }
th { background: var(--panel); } .right { text-align: right; } .center { text-align: center; }
figure { margin: .7em 0; }
img { max-width: 100%; height: auto; border-radius: .3rem; }
figcaption { font-size: .8rem; color: var(--soft); }
code [class^=c] { color: var(--comment); font-style: italic; }
code [class^=k], .ow, .nd, .nt, .gu { color: var(--keyword); }
.nf, .nc, .na, .nb, .gh { color: var(--name); } code [class^=s] { color: var(--string); }
code [class^=m] { color: var(--number); } .gd { color: var(--gone); } .gi { color: var(--new); }
"""
