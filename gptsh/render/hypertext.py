"""Text, Markdown and code as HTML in which nothing is obeyed: the tags are of this file, all else is escaped."""

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from html import escape
from typing import Any

from markdown_it.token import Token
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Literal, Name, Operator
from pygments.util import ClassNotFound

from gptsh.render.markdown import is_quick, is_ragged, parse, parser, siblings
from gptsh.text import visible

_LINK = re.compile(r"(?:https?://|mailto:)\S+", re.IGNORECASE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_BLOCKS = ("p", "blockquote", "ul", "ol", "li", "thead", "tbody", "tr", "th", "td")
_INLINE = ("em", "strong", "s")
_OUTER = 2  # levels of headings that the page has for itself
_LOWEST = 6
_ALIGNED = ("right", "center")
_CLASSES = (  # of the style sheet, by what a lexer calls it; the first that fits counts
    (Comment, "c"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Name.Decorator, "k"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Tag, "k"),
    (Name.Attribute, "f"),
    (Name.Builtin, "f"),
    (Literal.String, "s"),
    (Literal.Number, "n"),
    (Generic.Deleted, "d"),
    (Generic.Inserted, "i"),
    (Generic.Heading, "f"),
    (Generic.Subheading, "k"),
)


def plain(text: str) -> str:
    """The text as it is shown: control characters and halves of a character made visible, nothing of it HTML."""
    return escape(_shown(text))


def _shown(text: str) -> str:
    return _SURROGATE.sub("\ufffd", visible(text))


def is_link(url: str) -> bool:
    """Whether a browser may be led there: to the web, or to a letter."""
    return _LINK.fullmatch(url) is not None


def link(url: str, label: str) -> str:
    """A link that says nothing about where it was followed from; what is none is shown."""
    if not is_link(url):
        return f"{plain(label)} ({plain(url)})"
    return f'<a href="{plain(url)}" rel="noopener noreferrer nofollow">{plain(label)}</a>'


def markdown(text: str) -> str:
    """Markdown as HTML. What is nested too deeply to be read as such stands there as it came."""
    text = _shown(text)
    tokens = parse(parser(), text)
    return "".join(_elements(tokens)) if tokens else _raw(text.strip("\n")) if text.strip() else ""


def code(text: str, language: str = "") -> str:
    """Code, highlighted where its language is known and it is not too long; else the language stands above it."""
    text = _shown(text).removesuffix("\n")
    lexer = _lexer(language.partition(" ")[0])
    body = _highlighted(text, lexer) if lexer and is_quick(text) else None
    label = f'<div class="language">{escape(language)}</div>' if language and not lexer else ""
    return f'{label}<pre tabindex="0"><code>{escape(text) if body is None else body}</code></pre>\n'


@lru_cache(maxsize=64)
def _lexer(language: str) -> Any:
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=True) if language else None
    except ClassNotFound:
        return None


def _highlighted(text: str, lexer: Any) -> str | None:
    """The code in colours; None where the lexer changes it."""
    pieces: list[tuple[str, str]] = []
    for kind, piece in lexer.get_tokens(f"{text}\n"):
        look = _class_of(kind)
        if pieces and pieces[-1][0] == look:
            pieces[-1] = look, pieces[-1][1] + piece
        else:
            pieces.append((look, piece))
    if "".join(piece for _, piece in pieces) != f"{text}\n":
        return None
    spans = (f'<span class="{look}">{escape(piece)}</span>' if look else escape(piece) for look, piece in pieces)
    return "".join(spans)


@cache
def _class_of(kind: Any) -> str:
    return next((name for token, name in _CLASSES if kind in token), "")


def _raw(text: str) -> str:
    return f'<p class="raw">{plain(text)}</p>\n'


def _elements(tokens: Sequence[Token]) -> Iterator[str]:
    for element in siblings(tokens):
        token = element[0]
        match token.type:
            case "inline":
                yield "".join(_inline(token))
            case "fence" | "code_block":
                yield code(token.content, token.info.strip())
            case "html_block":
                yield _raw(token.content.rstrip("\n"))
            case "table_open" if is_ragged(element):
                yield _raw(token.content)
            case "table_open":
                yield f'<div class="table"><table>{"".join(_elements(element[1:-1]))}</table></div>\n'
            case "hr":
                yield "<hr>\n"
            case _:
                yield from _element(element)


def _element(element: Sequence[Token]) -> Iterator[str]:
    """An element that has others within."""
    token = element[0]
    inside = "".join(_elements(element[1:-1]))
    if token.type == "heading_open":
        tag = f"h{min(_LOWEST, int(token.tag[1]) + _OUTER)}"
    elif token.hidden or token.tag not in _BLOCKS:
        yield inside
        return
    else:
        tag = token.tag
    yield f"<{tag}{_attributes(token)}>{inside}</{tag}>\n"


def _attributes(token: Token) -> str:
    """Where a list begins, how a cell is aligned."""
    start, style = token.attrs.get("start"), str(token.attrs.get("style", ""))
    if isinstance(start, int):
        return f' start="{start}"'
    return next((f' class="{name}"' for name in _ALIGNED if style == f"text-align:{name}"), "")


def _inline(token: Token) -> Iterator[str]:
    closing: list[str] = []
    for part in token.children or ():
        if part.nesting == 1:
            opened, closed = _around(part)
            closing.append(closed)
            yield opened
        elif part.nesting == -1:
            yield closing.pop()
        elif part.type == "image":
            url, alt = str(part.attrs.get("src", "")), part.content or "image"
            yield f"{plain(alt)} ({plain(url)})" if "</a>" in closing else link(url, alt)
        else:
            yield _leaf(part)


def _around(part: Token) -> tuple[str, str]:
    """What stands before and behind a stretch of text."""
    if part.type == "link_open":
        url = str(part.attrs.get("href", ""))
        return (link(url, "").removesuffix("</a>"), "</a>") if is_link(url) else ("", f" ({plain(url)})")
    return (f"<{part.tag}>", f"</{part.tag}>") if part.tag in _INLINE else ("", "")


def _leaf(part: Token) -> str:
    match part.type:
        case "softbreak" | "hardbreak":
            return "<br>\n"
        case "code_inline":
            return f"<code>{plain(part.content)}</code>"
    return plain(part.content)  # text, HTML
