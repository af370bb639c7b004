"""The text of a paragraph, a heading or a table cell on a terminal: emphasis, links with their URLs, code, images."""

from markdown_it.token import Token
from rich.style import Style
from rich.text import Text

from gptsh.render.theme import CODE, DIM, INLINE, PLAIN
from gptsh.terminal.stdio import Look
from gptsh.text import visible

_BREAKS = ("<br>", "<br/>")  # in HTML; common in tables


def inline_text(token: Token, base: Style, look: Look) -> Text:
    """The styled text of a token with inline content. A line break in the source is one on the terminal."""
    text = Text(end="")
    styles = [base]
    links: list[tuple[int, Token]] = []  # where the text of each begins
    for part in token.children or ():
        if part.nesting == 1:
            styles.append(styles[-1] + INLINE.get(part.tag, PLAIN))
            if part.type == "link_open":
                links.append((len(text), part))
        elif part.nesting == -1:
            styles.pop()
            if part.type == "link_close":
                start, link = links.pop()
                _append(text, _target(link, "href", text.plain[start:]), styles[-1] + DIM)
        else:
            _append_leaf(text, part, styles[-1], look)
    return text


def _append_leaf(text: Text, part: Token, style: Style, look: Look) -> None:
    match part.type:
        case "softbreak" | "hardbreak":
            _append(text, "\n", style)
        case "html_inline" if part.content.lower().replace(" ", "") in _BREAKS:
            _append(text, "\n", style)
        case "code_inline" if look.colors:
            _append(text, part.content, style + CODE)
        case "code_inline":
            _append(text, f"`{part.content}`", style)
        case "image":
            _append(text, part.content or "image", style)
            _append(text, _target(part, "src", part.content), style + DIM)
        case _:  # text, HTML
            _append(text, part.content, style)


def _append(text: Text, more: str, style: Style) -> None:
    text.append(visible(more), style)


def _target(token: Token, key: str, shown: str) -> str:
    """The URL of a link or an image in parentheses; nothing if its text is the URL."""
    url, title = str(token.attrs.get(key, "")), token.attrs.get("title")
    if url in (shown, f"mailto:{shown}"):
        return ""
    return f' ({url} "{title}")' if title else f" ({url})"
