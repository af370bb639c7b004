"""Parse Markdown into blocks while it arrives, and find the blocks of code in an answer."""

import re
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cache, partial
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, table
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from gptsh.text import visible

# ---- markdown parser
#
# The Markdown that gptsh reads: CommonMark, tables, strikethrough, formulas as they are written;
# its code blocks.

_DEEPEST = 20  # levels; markdown-it drops deeper content
_LONGEST_FORMULA = 1000  # characters of a formula
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
        end = source.find(closing, at + 2, min(at + _LONGEST_FORMULA, state.posMax)) + 2
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


# ---- blocks
#
# A document of Markdown that grows while it arrives, split into blocks that no later line can
# change.
#
# Only complete lines are parsed, and every block but the last is closed. The last one is closed by
# its own end: the end of a fence, the blank line after a paragraph. Every item of a list but the
# last is closed.
#
# An open block is parsed and drawn again and again. One that becomes too long for that is closed,
# and what follows of it is plain: each of its lines is a block.

_CLOSED_BY_LAST_LINE = ("heading_open", "hr")
_CLOSED_BY_BLANK = ("paragraph_open", "table_open", "raw", "blockquote_open", "html_block")
_CODE = ("fence", "code_block")
_LONGEST_BLOCK, _MOST_LINES = 50_000, 1_000  # characters and lines of a block that is read as Markdown
# The beginning of a line that may still become anything: it has only marks, or opens a code block.
_UNCLEAR = re.compile(r"[\s>]*+(([-+*]|\d{1,9}[.)])\s++)*+([-+*=_#|:`~\s]*|\d{1,9}[.)]?|(`{3}|~{3}).*)")


class Block(NamedTuple):
    """A block at the top level, or one item of a top-level list. It will not change unless it is open."""

    tokens: list[Token]  # empty if it is plain: nested too deeply, or too long, to be read as Markdown
    lines: list[str]  # its source; the maps of the tokens count in these
    spaced: bool  # a blank line belongs before it
    is_open: bool = False


def is_code(block: Block) -> bool:
    """Whether a block ends with code."""
    return next((token.type in _CODE for token in reversed(block.tokens) if token.nesting >= 0), False)


class Blocks:
    """A growing document; ``add`` and ``finish`` return the blocks that are closed now."""

    def __init__(self) -> None:
        self._pieces: list[str] = []  # of the incomplete last line
        self._pending = 0  # characters in these
        self._lines: list[str] = []  # complete lines of the open block; none if it is plain
        self._size = 0  # characters in these
        self._before = ""  # the line before these
        self._in_list = False  # these lines continue a list
        self._is_plain = False  # the open block is too long
        self._fence: re.Pattern[str] | None = None  # matches the end of the open code block
        self._ends_at_blank = False  # whether a blank line closes the open block; not in a list or an open comment
        self._enough = 0  # lines; more of them are parsed again in any case

    def add(self, text: str) -> list[Block]:
        """Add a piece of the document. Return the blocks that it closes."""
        closed: list[Block] = []
        for start in range(0, len(text), _LONGEST_BLOCK):
            for line in self._complete_lines(text[start : start + _LONGEST_BLOCK]):
                closed += self._add_line(visible(f"{line}\n")[:-1])
        return closed

    def _complete_lines(self, piece: str) -> list[str]:
        """Add to the last line; return the lines that are complete now. A line that is too long is broken."""
        self._pieces.append(piece)
        self._pending += len(piece)
        if "\n" not in piece and self._pending <= _LONGEST_BLOCK:
            return []
        *lines, rest = "".join(self._pieces).split("\n")
        if len(rest) > _LONGEST_BLOCK:
            length = rest.rfind(" ") + 1 or len(rest)
            lines.append(rest[:length])
            rest = rest[length:]
        self._pieces, self._pending = [rest], len(rest)
        return lines

    def _add_line(self, line: str) -> list[Block]:
        """Add a complete line. Return the blocks that it closes."""
        if self._is_plain:
            return self._add_plain_line(line)
        self._lines.append(line)
        self._size += len(line) + 1
        if self._fence:
            may_close = self._fence.fullmatch(line) is not None
        else:
            may_close = len(self._lines) > self._enough or (self._ends_at_blank and not line.strip())
        closed = self._closed(final=False) if may_close else []
        if not self._is_too_long():
            return closed
        if not may_close:
            closed = self._closed(final=False)
        if self._is_too_long():
            closed.append(self._block(0, len(self._lines), is_code=self._fence is not None))
            self._before, self._lines, self._size = line, [], 0
            self._is_plain, self._in_list = True, False
        return closed

    def _is_too_long(self) -> bool:
        """Whether the open block is too long to be read as Markdown."""
        return self._size > _LONGEST_BLOCK or len(self._lines) > _MOST_LINES

    def _add_plain_line(self, line: str) -> list[Block]:
        """Add a line of a block that is plain, or the first line after it.

        Code ends with its fence, anything else before a line that is not indented and follows a blank one.
        """
        before, self._before = self._before, line
        if self._fence:
            self._is_plain = self._fence.fullmatch(line) is None
            return [Block([], [line], spaced=False)] if self._is_plain else []
        if not line.strip():
            return []
        if not before.strip() and not line[0].isspace():
            self._is_plain, self._before = False, before
            return self._add_line(line)
        return [Block([], [line], spaced=not before.strip())]

    def whole(self, text: str) -> list[Block]:
        """Return all blocks of a complete document; ``add`` would parse it again for each of them."""
        self._lines = visible(f"{text.removesuffix(chr(10))}\n")[:-1].split("\n")
        if len(self._lines) == 1 and text.strip():  # one block: most pieces of a transcript
            return [self._block(0, 1)]
        return self._closed(final=True)

    def look(self) -> list[Block]:
        """The blocks that are closed by now, without waiting for another line."""
        return [] if self._fence else self._closed(final=False)

    def open(self) -> list[Block]:
        """The open blocks as if the document ended here; of code only complete lines."""
        unclear = _UNCLEAR.fullmatch("".join(self._pieces)) is not None
        blocks = copy(self).finish(whole_lines=unclear)
        if blocks and is_code(blocks[-1]) and not unclear:
            blocks = copy(self).finish(whole_lines=True)
        return [*blocks[:-1], *(block._replace(is_open=True) for block in blocks[-1:])]

    def finish(self, *, whole_lines: bool = False) -> list[Block]:
        """Close and return all blocks. ``whole_lines`` leaves out the incomplete last line."""
        rest, self._pieces, self._pending = "".join(self._pieces), [], 0
        closed: list[Block] = []
        if rest and not whole_lines:
            line = visible(f"{rest}\n")[:-1]
            self._lines = [*self._lines]  # ``open`` shares them
            if self._is_plain:
                closed = self._add_plain_line(line)
            else:
                self._lines.append(line)
        self._is_plain = False
        return closed + self._closed(final=True)

    def _closed(self, *, final: bool) -> list[Block]:
        """Take the blocks that are closed, all if this is ``final``, and the items of a list; the rest stays open."""
        closed: list[Block] = []
        done = 0  # lines that are closed
        tops = self._tops()
        self._fence, self._ends_at_blank = None, False
        for top, items in tops:
            start, end = _lines_of(top)
            is_whole = final or top is not tops[-1][0] or self._has_ended(top, start, end)
            ends = items[1:]  # of each item but the last
            if is_whole:
                ends.append(end)
            for stop in ends:
                closed.append(self._block(done, stop, is_code=top.type in _CODE))
                done, self._in_list = stop, top.type.endswith("list_open")
            self._in_list = self._in_list and not is_whole
        self._before = self._lines[done - 1] if done else self._before
        self._lines = self._lines[done:]
        self._size = sum(map(len, self._lines)) + len(self._lines)
        self._enough = len(self._lines) * 9 // 8
        return closed

    def _tops(self) -> list[tuple[Token, list[int]]]:
        """The first token of each block in the lines, and the first line of each item if it is a list."""
        tops: list[tuple[Token, list[int]]] = []
        for token in outline_parser().parse("".join(f"{line}\n" for line in self._lines)):
            if token.map and token.level == 0:
                tops.append((token, []))
            elif token.map and token.level == 1 and token.type == "list_item_open":
                tops[-1][1].append(token.map[0])
        return tops

    def _block(self, start: int, end: int, *, is_code: bool = False) -> Block:
        """The block of these lines; only code may be longer than what is read as Markdown."""
        lines = self._lines[start:end]
        before = self._lines[start - 1] if start else self._before
        is_spaced = not before.strip() or not self._in_list
        source = "".join(f"{line}\n" for line in lines)
        is_plain = not is_code and (len(source) > _LONGEST_BLOCK or len(lines) > _MOST_LINES)
        return Block([] if is_plain else parse(whole_parser(), source), lines, is_spaced)

    def _has_ended(self, last: Token, start: int, end: int) -> bool:
        """Whether the last block is complete."""
        if last.type == "fence":
            ending = re.compile(rf" {{0,3}}{re.escape(last.markup)}{last.markup[0]}*[ \t]*")
            if end - start > 1 and ending.fullmatch(self._lines[end - 1]):
                return True
            self._fence = ending
        self._ends_at_blank = last.type in _CLOSED_BY_BLANK and all(map(str.strip, self._lines[start:]))
        return last.type in _CLOSED_BY_LAST_LINE or (last.type in _CLOSED_BY_BLANK and end < len(self._lines))


def _lines_of(token: Token) -> tuple[int, int]:
    """The first line of a token, and the line after its last one."""
    start, end = token.map or (0, 0)
    return start, end
