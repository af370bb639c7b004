"""The Markdown that gptsh reads: CommonMark, tables, strikethrough, formulas as they are written; its code blocks."""

import re
from collections.abc import Iterator, Sequence
from functools import cache, partial

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, table
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from gptsh.records import NamedTuple

_DEEPEST = 20  # levels; markdown-it drops deeper content
_LONGEST = 1000  # characters of a formula
# Characters of code, and of one line, that are highlighted: some lexers take quadratic time for code they cannot read.
_LONGEST_CODE, _LONGEST_LINE = 1 << 13, 1000
_CLOSING = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}
_DOLLARS = re.compile(r"\$(?![\s$])[^`$]{0,1000}(?<![\s\\])\$(?![\w$])")  # not the dollars of two prices


# ---- the parser


def parser(*rules_off: str) -> MarkdownIt:
    """A parser whose table tokens have their source as content. Link definitions are text: they may arrive too late."""
    markdown = (
        MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable("strikethrough").disable(["reference", *rules_off])
    )
    # Directly before paragraphs: a line that begins a heading or an item is not the head of a table.
    markdown.block.ruler.before("lheading", "grid", _table, {"alt": ["paragraph"]})
    markdown.inline.ruler.before("escape", "formula", _formula)
    return markdown


# Creating a parser takes longer than parsing a message.
whole_parser, outline_parser = cache(parser), cache(partial(parser, "inline"))


def parse(markdown: MarkdownIt, text: str) -> list[Token]:
    """The tokens of a text; empty if it is nested too deeply to be read as Markdown."""
    try:
        tokens = markdown.parse(text)
    except RecursionError:  # images within images
        return []
    return [] if any(token.level >= _DEEPEST - 1 for token in tokens) else tokens


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a table and keep its source; a ``raw`` token if a row has more cells than columns, which would be lost."""
    at = len(state.tokens)
    if not table(state, start, end, silent):
        return False
    if not silent:
        opening, columns = state.tokens[at], sum(token.type == "th_open" for token in state.tokens[at:])
        opening.content = state.getLines(start, state.line, state.blkIndent, False)
        rows: list[list[str]] = [escapedSplit(row.strip()) for row in opening.content.split("\n")]
        if any(any(map(str.strip, cells[columns + (cells[0] == "") :])) for cells in rows):
            raw = Token("raw", "", 0, map=opening.map, level=opening.level, content=opening.content, block=True)
            state.tokens[at:] = [raw]
    return True


def _formula(state: StateInline, silent: bool) -> bool:
    r"""Parse a formula as literal text: ``\(a_1\)``, ``\[ \frac{a}{b} \]``, ``$$ … $$``, ``$a*b*c$``."""
    at, source = state.pos, state.src
    if source[at] not in "\\$":
        return False
    end = -1
    if closing := _CLOSING.get(source[at : at + 2]):
        end = source.find(closing, at + 2, min(at + _LONGEST, state.posMax)) + 2
    elif match := _DOLLARS.match(source, at, state.posMax):
        end = match.end()
    if end < at + 2 or "`" in source[at:end]:
        return False
    if not silent:
        state.push("text", "", 0).content = source[at:end]
    state.pos = end
    return True


# ---- reading tokens


def siblings(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Each element of a flat list of tokens, from its opening to its closing token."""
    start = depth = 0
    for at, token in enumerate(tokens):
        depth += token.nesting
        if depth == 0:
            yield tokens[start : at + 1]
            start = at + 1


def count_quick(lines: Sequence[str]) -> int:
    """How many of the first lines of code are short enough for any lexer."""
    total = 0
    for at, line in enumerate(lines):
        total += len(line) + 1
        if total > _LONGEST_CODE or len(line) > _LONGEST_LINE:
            return at
    return len(lines)


class CodeBlock(NamedTuple):
    """A fenced code block. ``is_cut_off``: it has no closing fence, and so extends to the end of the text."""

    content: str
    language: str  # in lower case; "" without one
    is_cut_off: bool


def code_blocks(text: str) -> list[CodeBlock]:
    """The fenced code blocks, nested ones included."""
    return [_code_block(token, text) for token in outline_parser().parse(text) if token.type == "fence"]


def _code_block(token: Token, text: str) -> CodeBlock:
    start, end = token.map or (0, 0)
    fences = end - start - len(token.content.removesuffix("\n").split("\n") if token.content else ())
    is_cut_off = fences < 2 and not "".join(re.split(r"\r\n?|\n", text)[end:]).strip()
    language = next(iter(token.info.lower().split()), "")
    return CodeBlock(token.content, language, is_cut_off)
