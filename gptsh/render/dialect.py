"""The Markdown that is read: CommonMark, tables, strikethrough, and mathematics left as it is written."""

import re
from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, reference, table
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

DEEPEST = 20  # levels; markdown-it leaves out what lies deeper
_LONGEST = 1000  # characters of a formula
# Characters of code, and of a line of it, that are highlighted: on what they cannot read some lexers take the square.
_LONGEST_CODE, _LONGEST_LINE = 1 << 13, 1000
_CLOSING = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}
_DOLLARS = re.compile(r"\$(?![\s$])[^`$]{0,1000}(?<![\s\\])\$(?![\w$])")  # not the dollars of two prices


def parser() -> MarkdownIt:
    """A parser whose tables and definitions have their source, without what a container puts before it, as content."""
    markdown = MarkdownIt("commonmark", {"maxNesting": DEEPEST, "inline_definitions": True}).enable("strikethrough")
    # Before a paragraph, not before all: a line that begins a heading or an item is that, whatever the next one is.
    markdown.block.ruler.before("lheading", "grid", _table, {"alt": ["paragraph", "reference"]})
    markdown.block.ruler.at("reference", _reference)
    markdown.inline.ruler.before("escape", "formula", _formula)
    return markdown


def siblings(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Each element of a flat run of tokens, from its opening to its closing one."""
    start = depth = 0
    for at, token in enumerate(tokens):
        depth += token.nesting
        if depth == 0:
            yield tokens[start : at + 1]
            start = at + 1


def is_ragged(table: Sequence[Token]) -> bool:
    """Whether a row of a table has more cells than there are columns: they would not be shown."""
    columns = sum(token.type == "th_open" for token in table)
    source = table[0].content.split("\n")
    return any(map(str.strip, (cell for row in source for cell in _cells(row)[columns:])))


def _cells(row: str) -> list[str]:
    cells: list[str] = escapedSplit(row.strip())
    return cells[1:] if cells[0] == "" else cells


def is_quick(code: str) -> bool:
    """Whether code is so short that any lexer is quick with it."""
    return len(code) <= _LONGEST_CODE and max(map(len, code.split("\n"))) <= _LONGEST_LINE


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    at = len(state.tokens)
    if not table(state, start, end, silent):
        return False
    if not silent:
        state.tokens[at].content = state.getLines(start, state.line, state.blkIndent, False)
    return True


def _reference(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    if not reference(state, start, end, silent):
        return False
    if not silent:
        state.tokens[-1].content = state.getLines(start, state.line, state.blkIndent, False)
    return True


def _formula(state: StateInline, silent: bool) -> bool:
    r"""Text as it is written: ``\(a_1\)``, ``\[ \frac{a}{b} \]``, ``$$ … $$``, ``$a*b*c$``."""
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
