"""Markdown and code as HTML: escaped, with highlighted code; no images or links that load or run anything."""

import re
from collections.abc import Sequence
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

from gptsh.render.markdown_parser import count_quick, parse, parser
from gptsh.text import visible

_LINK = re.compile(r"(?:https?://|mailto:)\S+", re.IGNORECASE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_REL = "noopener noreferrer nofollow"  # a link does not reveal where it was followed from
_OUTER, _LOWEST = 2, 6  # heading levels: those that the page uses itself, and the lowest


def plain(text: str) -> str:
    """The text escaped for HTML, with control characters and lone surrogates made visible."""
    return escape(_shown(text))


def _shown(text: str) -> str:
    return _SURROGATE.sub("\ufffd", visible(text))


def is_link(url: str) -> bool:
    """Whether this is an http, https or mailto URL."""
    return _LINK.fullmatch(url) is not None


def link(url: str, label: str) -> str:
    """A link to a URL for which ``is_link`` is true."""
    return f'<a href="{plain(url)}" rel="{_REL}">{plain(label)}</a>'


def markdown(text: str) -> str:
    """Markdown as HTML; text that is nested too deeply is shown as it is."""
    markdown = _parser()
    tokens = parse(markdown, _shown(text))
    if not tokens:
        return _raw(text.strip("\n")) if text.strip() else ""
    return _shown(markdown.renderer.render(tokens, markdown.options, {}))  # entities may mean control characters


def _raw(text: str) -> str:
    return f'<p class="raw">{plain(text)}</p>\n'


def code(text: str, language: str = "") -> str:
    """Code, highlighted if its language is known and it is not too long; else under the name of the language."""
    text = _shown(text).removesuffix("\n")
    name = language.partition(" ")[0]
    try:
        lexer = get_lexer_by_name(name, stripnl=False) if name else None
    except ClassNotFound:
        lexer = None
    body = escape(text)
    if lexer and count_quick(lines := text.split("\n")) == len(lines):
        pieces = list(lexer.get_tokens(f"{text}\n"))
        if "".join(piece for _, piece in pieces) == f"{text}\n":  # some lexers change the code
            colored = StringIO()
            HtmlFormatter(nowrap=True).format(pieces, colored)
            body = colored.getvalue()
    label = f'<div class="language">{escape(language)}</div>' if language and not lexer else ""
    return f'{label}<pre tabindex="0"><code>{body}</code></pre>\n'


@cache
def _parser() -> MarkdownIt:
    markdown = parser()
    markdown.options["xhtmlOut"] = False
    setattr(markdown, "validateLink", is_link)  # noqa: B010 - documented to be replaced; other links are shown as text
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
    """An image as a link, since nothing is loaded; inside a link only its description."""
    label = tokens[at].content or "image"
    opened = [token.nesting for token in tokens[:at] if token.type in ("link_open", "link_close")]
    return plain(label) if sum(opened) else link(str(tokens[at].attrs["src"]), label)


def _fit_page(state: StateCore) -> None:
    """Move headings below those of the page, add ``rel`` to links, replace styles by classes."""
    for token in state.tokens:
        if token.type.startswith("heading_"):
            token.tag = f"h{min(_LOWEST, int(token.tag[1]) + _OUTER)}"
        style = str(token.attrs.pop("style", "")).removeprefix("text-align:")
        if style in ("right", "center"):
            token.attrs["class"] = style
        for child in token.children or ():
            if child.type == "link_open":
                child.attrs = {"href": child.attrs["href"], "rel": _REL}
