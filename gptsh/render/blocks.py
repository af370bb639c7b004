"""A growing Markdown document, cut into blocks that no later line can change.

The block structure of Markdown is decided line by line, so only whole lines are parsed, and every block but the last is
closed. The last one is closed where its own end has come: the end of a fence, the blank line behind a paragraph.
"""

import re
from collections import deque
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from gptsh.render.dialect import DEEPEST, parser
from gptsh.text import visible

_BIG = 1 << 12  # characters of an open block, from which on it is not parsed for every line
BIGGEST = 1 << 16  # characters of a block, from which on nothing within its lines is parsed: that takes seconds
_FRACTION = 8  # a big block is parsed again when it has grown by this part of itself, the biggest when it has doubled
_AT_ONCE = ("heading_open", "hr")  # closed by their last line
_BY_A_BLANK = ("paragraph_open", "table_open", "blockquote_open", "html_block", "definition")  # a fence by its own end
_CODE = ("fence", "code_block")


class Block(NamedTuple):
    """A block at the top level, or one item of a list there. It will not change any more."""

    tokens: list[Token]  # empty where it is nested too deeply or too big to be read as Markdown
    lines: list[str]  # its source, in which the tokens' maps count
    spaced: bool  # a blank line belongs before it


class _Top(NamedTuple):
    """A block as the outline shows it: its lines, and where the items of a list begin."""

    token: Token
    start: int
    end: int
    items: list[int]


class Blocks:
    """``add`` text as it comes, ``finish`` at its end; closed blocks gather in ``ready``, from where they are taken."""

    def __init__(self) -> None:
        self.ready: deque[Block] = deque()
        self._outline = parser().disable("inline")
        self._parser = parser()
        self._definitions: dict[str, Any] = {}  # markdown-it's env: link definitions seen so far
        self._pieces: list[str] = []  # of a line that has not ended
        self._pending: list[str] = []  # the lines from the last block on
        self._before = ""  # the line before them
        self._listing = False  # they begin with an item of a list that has begun
        self._open: _Top | None = None  # the last block, when it was last parsed
        self._outlasts = False  # it goes on behind a blank line, which its kind usually does not
        self._again: list[str] = []  # the opening of a fence that was shown before its end
        self._torn = False  # what comes next goes on with what was shown
        self._size = self._parsed = 0  # characters of pending: now, and when it was last parsed

    def add(self, text: str) -> None:
        """Take the next piece of the document."""
        if "\n" not in text:
            self._pieces.append(text)
            return
        *lines, rest = "".join([*self._pieces, text]).split("\n")
        self._pieces = [rest]
        if self._take(lines):
            self._advance(final=False)

    def finish(self, *, parses: int | None = None) -> None:
        """Every block is closed. What comes all the same is a block of its own, in a fence that is open still code.

        More than ``parses`` characters are one block as they came.
        """
        rest, self._pieces = "".join(self._pieces), []
        self._take([rest] if rest else [])
        if not self._pending:
            return
        if parses is not None and self._size > parses:
            self.ready.append(Block([], self._pending, spaced=True))
            self._pending, self._size = [], 0
            return
        last = self._pending[-1]
        self._advance(final=True)
        self._torn = bool(last.strip())
        token = self.ready[-1].tokens[-1] if self.ready and self.ready[-1].tokens else None
        if token and token.type == "fence" and not _ends_fence(last, token.markup):
            self._again = [self.ready[-1].lines[(token.map or [0])[0]]]

    def _take(self, lines: list[str]) -> bool:
        """Append whole lines; whether they are worth a look for closed blocks."""
        safe = [visible(f"{line}\n")[:-1] for line in lines]
        if safe and self._again:
            self._pending, self._again = self._again, []
        self._pending += safe
        self._size += sum(len(line) + 1 for line in safe)
        if not any(self._may_close(line) for line in safe):
            return False
        kind = self._open.token.type if self._open else ""
        if kind == "fence" or (kind in _BY_A_BLANK and not self._outlasts and not all(map(str.strip, safe))):
            return True
        grown = self._parsed if self._size > BIGGEST else self._parsed // _FRACTION
        return self._size <= _BIG or self._size >= self._parsed + grown

    def _may_close(self, line: str) -> bool:
        """Whether a line may close a block. A wrong no only delays it; a wrong yes only costs time."""
        if self._open is None:
            return True
        token = self._open.token
        if token.type == "fence":
            return _ends_fence(line, token.markup)
        if self._open.items:
            return bool(line.strip()) and _indent(line) < _indent(self._pending[self._open.items[-1]]) + 2
        if token.type == "paragraph_open":
            return not line.lstrip()[:1].isalpha()
        inside = {"table_open": "|", "blockquote_open": ">", "code_block": "    "}.get(token.type)
        return not line.strip() or inside is None or not line.startswith(inside)

    def _tops(self) -> list[_Top]:
        """The blocks that are pending; definitions that follow each other are one."""
        tops: list[_Top] = []
        for token in self._outline.parse(_joined(self._pending), {}):
            start, end = token.map or (0, 0)
            if token.level == 0 and token.type == "definition" and tops and _continues(tops[-1], token):
                tops[-1] = tops[-1]._replace(end=end)
            elif end and token.level == 0:
                tops.append(_Top(token, start, end, []))
            elif end and token.level == 1 and token.type == "list_item_open":
                tops[-1].items.append(start)
        return tops

    def _advance(self, *, final: bool) -> None:
        """Move what is closed from pending to ready."""
        tops = self._tops()
        done = 0
        for at, top in enumerate(tops):
            whole = final or self._is_whole(tops, at)
            for end in [*top.items[1:], top.end] if whole else top.items[1:]:
                self.ready.append(self._block(done, end, top.token.type))
                done, self._listing = end, bool(top.items)
            self._listing = self._listing and not whole
            if not whole:
                break
        self._before = self._pending[done - 1] if done else self._before
        self._pending = self._pending[done:]
        self._size = self._parsed = sum(len(line) + 1 for line in self._pending)
        self._open = _moved(tops[-1], done) if self._listing or (tops and tops[-1].end > done) else None
        self._outlasts = self._open is not None and not all(map(str.strip, self._pending[self._open.start :]))

    def _is_whole(self, tops: list[_Top], at: int) -> bool:
        """Whether no later line can change a block. A definition's title may still be taken for a paragraph."""
        if at + 1 == len(tops):
            return self._is_closed(tops[at])
        title = at + 2 == len(tops) and tops[at].token.type == "definition" and tops[at].end == tops[at + 1].start
        return not title or tops[at + 1].token.type != "paragraph_open" or self._is_closed(tops[at + 1])

    def _is_closed(self, top: _Top) -> bool:
        """Whether the last block has had its end."""
        if top.token.type in _AT_ONCE:
            return True
        if top.end < len(self._pending):
            return top.token.type in (*_BY_A_BLANK, "fence")
        long = top.end - top.start > 1
        return top.token.type == "fence" and long and _ends_fence(self._pending[-1], top.token.markup)

    def _block(self, start: int, end: int, kind: str) -> Block:
        lines = self._pending[start:end]
        before = self._pending[start - 1] if start else self._before
        spaced = not before.strip() or not (self._listing or self._torn)
        self._torn = self._torn and not any(map(str.strip, lines))
        big = kind not in _CODE and sum(map(len, lines)) > BIGGEST
        return Block([] if big else whole(self._parser, lines, self._definitions), lines, spaced)


def whole(markdown: MarkdownIt, lines: list[str], definitions: dict[str, Any]) -> list[Token]:
    """The tokens of lines, with the definitions seen so far; none where they would not show all of them."""
    try:
        tokens = markdown.parse(_joined(lines), definitions)
    except RecursionError:  # images within images
        return []
    shown = {at for token in tokens if token.level == 0 and token.map for at in range(*token.map)}
    lost = any(line.strip() for at, line in enumerate(lines) if at not in shown)
    return [] if lost or any(token.level >= DEEPEST - 1 for token in tokens) else tokens


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _continues(top: _Top, definition: Token) -> bool:
    return top.token.type == "definition" and definition.map is not None and definition.map[0] == top.end


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _ends_fence(line: str, markup: str) -> bool:
    return re.fullmatch(rf" {{0,3}}{re.escape(markup)}{markup[0]}*[ \t]*", line) is not None


def _moved(top: _Top, by: int) -> _Top:
    """The block, its lines counted from ``by`` on."""
    return top._replace(start=top.start - by, end=top.end - by, items=[at - by for at in top.items if at >= by])
