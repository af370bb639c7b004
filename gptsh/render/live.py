"""Redraw the rows at the bottom of a terminal while an answer arrives; no line appears twice.

The open block is drawn as far as it has arrived, and redrawn with each frame. Only the rows in
``Region`` are redrawn, at most all rows of the screen but one. So no row that may change leaves the
screen, and the scrollback never holds a line twice. An open block taller than the screen shows its
last rows, and is drawn whole once it is closed. Lines of code are final: the first ones scroll
away.
"""

import re
from collections.abc import Sequence
from itertools import accumulate, takewhile

from gptsh.terminal.stdio import END_OF_FRAME, ERASE_DOWN
from gptsh.text import columns, row_starts, visible

# One write is one frame: terminals with synchronised updates (DEC 2026) show it at once, others
# ignore the sequence.
_BEGIN = "\x1b[?2026h"
# Terminals differ in how wide an emoji is: a row wider than expected loses its end, and does not
# wrap.
_CUT, _WRAP = "\x1b[?7l", "\x1b[?7h"
# Ends a frame of which only the beginning was written.
BREAK_OFF = f"\x1b[0m{_WRAP}{END_OF_FRAME}\n"
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


class Region:
    """The last rows of the screen, which may be redrawn; the cursor is after their last character.

    ``width``: the columns of the screen when they were drawn.
    """

    def __init__(self) -> None:
        self._rows: list[str] = []
        self.width = 0

    def lost(self, width: int, height: int) -> int:
        """How many of the first rows have scrolled off a screen that has become smaller."""
        return sum(1 for rows in accumulate(reversed(self._heights(width))) if rows > height)

    def _heights(self, width: int) -> list[int]:
        """Return into how many rows the terminal has wrapped each: a narrower one wraps again."""
        if width >= self.width:
            return [1] * len(self._rows)
        return [max(1, -(-columns(_STYLE.sub("", row)) // width)) for row in self._rows]

    def frame(self, done: Sequence[str], rows: Sequence[str], width: int) -> str:
        """Return what replaces the region by final lines (``done``) and a new region below them.

        Rows that do not change are not redrawn.
        """
        old, new = self._rows, [*done, *rows]
        keep = _equal_at_start(old, new) if width == self.width else 0
        if rows and keep == len(new) < len(old):
            keep -= 1  # the cursor must end after the last row
        up = sum(self._heights(width)) - 1 - keep  # from the cursor to the first row that changes
        self._rows, self.width = [*rows], width
        drawn = "".join(f"{line}\n" for line in done[keep:])
        if changed := rows[max(0, keep - len(done)) :]:
            drawn += f"{_CUT}{chr(10).join(changed)}{_WRAP}"
        if not old:
            moved = ""
        elif keep < len(old):
            moved = (f"\x1b[{up}A\r" if up else "\r") + ERASE_DOWN
        else:  # nothing to erase, only to go on in the next row
            moved = "\n" if new[keep:] or not rows else ""
        return f"{_BEGIN}{moved}{drawn}{END_OF_FRAME}" if moved or drawn else ""


def _equal_at_start(old: Sequence[str], new: Sequence[str]) -> int:
    """How many of the first rows are the same."""
    pairs = zip(old, new, strict=False)
    return len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])


def plain_rows(text: str, width: int) -> list[str]:
    """A text as rows of at most ``width`` columns."""
    rows = []
    for line in visible(text).split("\n"):
        starts = [0, *row_starts(line, width)]
        rows += [line[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
    return rows
