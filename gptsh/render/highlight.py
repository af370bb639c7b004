"""Code blocks on a terminal: in colours where their language is known. Lines are neither wrapped nor changed."""

from functools import cache, lru_cache

from markdown_it.token import Token
from pygments.lexer import Lexer
from rich.segment import Segment
from rich.syntax import ANSISyntaxTheme, Syntax

from gptsh.render.markdown_parser import count_quick
from gptsh.render.styled_lines import Line, plain_lines
from gptsh.render.theme import DIM, TOKENS
from gptsh.text import visible

_THEME = ANSISyntaxTheme({tuple(kind.split(".")): style for style, kinds in TOKENS.items() for kind in kinds.split()})


def code_lines(token: Token) -> list[Line]:
    """The lines of code to copy: nothing added. The name of a language that is highlighted is not shown."""
    lines = visible(token.content).removesuffix("\n").split("\n")
    language, _, rest = token.info.strip().partition(" ")
    colored = _highlighted(language, "\n".join(lines[: count_quick(lines)])) if language else None
    label = token.info.strip() if colored is None else rest.strip()
    label_lines = [[Segment(label, DIM)]] if label else []
    colored = colored or []
    return [*label_lines, *colored, *plain_lines(lines[len(colored) :])]


@lru_cache(maxsize=4)
def _highlighted(language: str, code: str) -> list[Line] | None:
    """Highlighted lines of code; empty if the lexer changes the code, None without a lexer."""
    lexer = _lexer(language)
    if lexer is None:
        return None
    if not code:
        return []
    lines: list[Line] = [[]]
    for kind, text in lexer.get_tokens(f"{code}\n"):
        first, *more = text.split("\n")
        style = _THEME.get_style_for_token(kind)
        lines[-1].append(Segment(first, style))
        lines += ([Segment(part, style)] for part in more)
    if "\n".join("".join(segment.text for segment in line) for line in lines) != f"{code}\n":
        return []
    return [[segment for segment in Segment.simplify(line) if segment.text] for line in lines[:-1]]


@cache
def _lexer(language: str) -> Lexer | None:
    return Syntax("", language, tab_size=0).lexer
