"""A growing Markdown document, cut into blocks that no later line can change.

The block structure of Markdown is decided line by line, so only whole lines are parsed, and every block but the last is
closed. The last one is closed where its own end has come: the end of a fence, the blank line behind a paragraph.
"""

import re
from collections import deque
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from gptsh.render.visible import visible

_DEEPEST = 20  # levels; markdown-it leaves out what lies deeper, so such a block is shown as it came
_BIG = 1 << 12  # characters of an open block, from which on it is not parsed for every line
_FRACTION = 8  # a big block is parsed again when it has grown by this part of itself
_AT_ONCE = ("heading_open", "hr")  # closed by their last line
_BY_A_BLANK = ("paragraph_open", "table_open", "blockquote_open", "html_block", "fence")  # closed where lines are left


class Block(NamedTuple):
    """A block at the top level, or one item of a list there. It will not change any more."""

    tokens: list[Token]  # empty where it is nested too deeply to be read as Markdown
    lines: list[str]  # its source, in which the tokens' maps count
    spaced: bool  # a blank line belongs before it
    number: int  # of an item in an ordered list


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
        self._outline = _parser().disable("inline")
        self._parser = _parser()
        self._definitions: dict[str, Any] = {}  # markdown-it's env: link definitions seen so far
        self._pieces: list[str] = []  # of a line that has not ended
        self._pending: list[str] = []  # the lines from the last block on
        self._before = ""  # the line before them
        self._next: int | None = None  # the number of the item that they begin with, in a list that has begun
        self._open: _Top | None = None  # the last block, when it was last parsed
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

    def finish(self) -> None:
        """No more will come: every block is closed."""
        rest, self._pieces = "".join(self._pieces), []
        self._take([rest] if rest else [])
        self._advance(final=True)

    def _take(self, lines: list[str]) -> bool:
        """Append whole lines; whether they are worth a look for closed blocks."""
        safe = [visible(line.removesuffix("\r")) for line in lines]
        self._pending += safe
        self._size += sum(len(line) + 1 for line in safe)
        if not any(self._may_close(line) for line in safe):
            return False
        fenced = self._open is not None and self._open.token.type == "fence"
        return fenced or self._size <= _BIG or self._size >= self._parsed + self._parsed // _FRACTION

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
        tops: list[_Top] = []
        for token in self._outline.parse(_joined(self._pending), {}):
            start, end = token.map or (0, 0)
            if end and token.level == 0:
                tops.append(_Top(token, start, end, []))
            elif end and token.level == 1 and token.type == "list_item_open":
                tops[-1].items.append(start)
        return tops

    def _advance(self, *, final: bool) -> None:
        """Move what is closed from pending to ready."""
        tops = self._tops()
        closed: list[Block] = []
        done, going = 0, self._next
        for top in tops:
            number = int(top.token.attrs.get("start", 1)) if going is None else going
            ends = top.items[1:]
            if whole := final or top is not tops[-1] or self._is_closed(top):
                ends.append(top.end)
            for end in ends:
                closed.append(self._block(done, end, number, goes_on=going is not None))
                done, number = end, number + 1
                going = number
            going = None if whole else going
        self.ready.extend(closed)
        self._before = self._pending[done - 1] if done else self._before
        self._pending, self._next = self._pending[done:], going
        self._size = self._parsed = sum(len(line) + 1 for line in self._pending)
        self._open = _moved(tops[-1], done) if going is not None or (tops and tops[-1].end > done) else None

    def _is_closed(self, top: _Top) -> bool:
        """Whether the last block has had its end."""
        if top.token.type in _AT_ONCE:
            return True
        if top.end < len(self._pending):
            return top.token.type in _BY_A_BLANK
        long = top.end - top.start > 1
        return top.token.type == "fence" and long and _ends_fence(self._pending[-1], top.token.markup)

    def _block(self, start: int, end: int, number: int, *, goes_on: bool) -> Block:
        lines = self._pending[start:end]
        before = self._pending[start - 1] if start else self._before
        return Block(self._parse(lines), lines, not goes_on or not before.strip(), number)

    def _parse(self, lines: list[str]) -> list[Token]:
        try:
            tokens = self._parser.parse(_joined(lines), self._definitions)
        except RecursionError:  # images within images
            return []
        return [] if any(token.level >= _DEEPEST - 1 for token in tokens) else tokens


def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable(["table", "strikethrough"])


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _ends_fence(line: str, markup: str) -> bool:
    return re.fullmatch(rf" {{0,3}}{re.escape(markup)}{markup[0]}*[ \t]*", line) is not None


def _moved(top: _Top, by: int) -> _Top:
    """The block, its lines counted from ``by`` on."""
    return top._replace(start=top.start - by, end=top.end - by, items=[at - by for at in top.items if at >= by])
