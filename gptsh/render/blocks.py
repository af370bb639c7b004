"""A document of Markdown that grows while it arrives, split into blocks that no later line can change.

Only complete lines are parsed, and every block but the last is closed. The last one is closed by its own end: the end
of a fence, the blank line after a paragraph. Every item of a list but the last is closed.
"""

import re
from copy import copy

from markdown_it.token import Token

from gptsh.records import NamedTuple
from gptsh.render.markdown_parser import outline_parser, parse, whole_parser
from gptsh.text import visible

_CLOSED_BY_LAST_LINE = ("heading_open", "hr")
_CLOSED_BY_BLANK = ("paragraph_open", "table_open", "raw", "blockquote_open", "html_block")
_CODE = ("fence", "code_block")
# The beginning of a line that may still become anything: it has only marks, or opens a code block.
_UNCLEAR = re.compile(r"[\s>]*+(([-+*]|\d{1,9}[.)])\s++)*+([-+*=_#|:`~\s]*|\d{1,9}[.)]?|(`{3}|~{3}).*)")


class Block(NamedTuple):
    """A block at the top level, or one item of a top-level list. It will not change unless it is open."""

    tokens: list[Token]  # empty if it is nested too deeply to be read as Markdown
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
        self._lines: list[str] = []  # complete lines of the open block
        self._before = ""  # the line before these
        self._in_list = False  # these lines continue a list
        self._fence: re.Pattern[str] | None = None  # matches the end of the open code block
        self._ends_at_blank = False  # whether a blank line closes the open block; not in a list or an open comment
        self._enough = 0  # lines; more of them are parsed again in any case

    def add(self, text: str) -> list[Block]:
        """Add a piece of the document. Return the blocks that it closes."""
        self._pieces.append(text)
        if "\n" not in text:
            return []
        *lines, rest = "".join(self._pieces).split("\n")
        self._pieces = [rest]
        closed: list[Block] = []
        for line in lines:
            self._lines.append(shown := visible(f"{line}\n")[:-1])
            if self._fence:
                may_close = self._fence.fullmatch(shown) is not None
            else:
                may_close = len(self._lines) > self._enough or (self._ends_at_blank and not shown.strip())
            if may_close:
                closed += self._closed(final=False)
        return closed

    def whole(self, text: str) -> list[Block]:
        """Return all blocks of a complete document; ``add`` would parse it again for each of them."""
        self._lines = visible(f"{text.removesuffix(chr(10))}\n")[:-1].split("\n")
        if len(self._lines) == 1 and text.strip():  # one block: most pieces of a transcript
            return [Block(parse(whole_parser(), f"{self._lines[0]}\n"), self._lines, spaced=True)]
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
        rest, self._pieces = "".join(self._pieces), []
        if rest and not whole_lines:
            self._lines = [*self._lines, visible(f"{rest}\n")[:-1]]
        return self._closed(final=True)

    def _closed(self, *, final: bool) -> list[Block]:
        """Take the blocks that are closed, all if this is ``final``, and the items of a list; the rest stays open."""
        tokens = [token for token in outline_parser().parse("".join(f"{line}\n" for line in self._lines)) if token.map]
        items = [_lines_of(token) for token in tokens if token.level == 1 and token.type == "list_item_open"]
        tops = [token for token in tokens if token.level == 0]
        closed: list[Block] = []
        done = 0  # lines that are closed
        self._fence, self._ends_at_blank = None, False
        for top in tops:
            start, end = _lines_of(top)
            ends = [first for first, _ in items if start < first < end]  # of each item but the last
            is_whole = final or top is not tops[-1] or self._has_ended(top, start, end)
            if is_whole:
                ends.append(end)
            for stop in ends:
                closed.append(self._block(done, stop))
                done, self._in_list = stop, top.type.endswith("list_open")
            self._in_list = self._in_list and not is_whole
        self._before = self._lines[done - 1] if done else self._before
        self._lines = self._lines[done:]
        self._enough = len(self._lines) * 9 // 8
        return closed

    def _block(self, start: int, end: int) -> Block:
        """The block of these lines."""
        lines = self._lines[start:end]
        before = self._lines[start - 1] if start else self._before
        is_spaced = not before.strip() or not self._in_list
        return Block(parse(whole_parser(), "".join(f"{line}\n" for line in lines)), lines, is_spaced)

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
