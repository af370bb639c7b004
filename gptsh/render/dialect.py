"""The Markdown that is read: CommonMark, tables, strikethrough, and mathematics left as it is written."""

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, reference, table
from markdown_it.rules_inline import StateInline

DEEPEST = 20  # levels; markdown-it leaves out what lies deeper
_LONGEST = 1000  # characters of a formula
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
