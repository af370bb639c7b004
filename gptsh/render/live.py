"""Redraw the rows at the bottom of a terminal while an answer arrives; no line appears twice.

The open block is drawn as far as it has arrived, and redrawn with each frame. Only the rows in
``Region`` are redrawn, at most all rows of the screen but one. So no row that may change leaves the
screen, and the scrollback never holds a line twice. An open block taller than the screen shows its
last rows, and is drawn whole once it is closed. Lines of code are final: the first ones scroll
away.
"""

import math
import re
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from gptsh.terminal.stdio import END_OF_FRAME, ERASE_DOWN
from gptsh.text import columns, row_starts, visible

# One write is one frame: terminals with synchronised updates (DEC 2026) show it at once, others
# ignore the sequence.
_BEGIN = "\x1b[?2026h"
# Terminals differ in how wide an emoji is: a row wider than expected loses its end, and does not
# wrap.
_CUT = "\x1b[?7l"
_WRAP = "\x1b[?7h"
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
        """Return how many of the first rows have left a screen that has become smaller."""
        visible_count = count_fitting(reversed(self._heights(width)), height)
        return len(self._rows) - visible_count

    def _heights(self, width: int) -> list[int]:
        """Return into how many rows the terminal has wrapped each: a narrower one wraps again."""
        if width >= self.width:
            return [1] * len(self._rows)
        heights = []
        for row in self._rows:
            row_width = columns(_STYLE.sub("", row))
            heights.append(max(1, math.ceil(row_width / width)))
        return heights

    def frame(self, final: Sequence[str], rows: Sequence[str], width: int) -> str:
        """Return what replaces the region by ``final`` lines, and a new region below them.

        Rows that do not change are not redrawn; it is "" if all is as before.
        """
        old = self._rows
        new = [*final, *rows]
        kept = _equal_at_start(old, new) if width == self.width else 0
        if rows and kept == len(new) < len(old):
            kept -= 1  # the cursor must end after the last row
        rows_up = sum(self._heights(width)) - 1 - kept  # from the cursor to the first that changes
        self._rows = list(rows)
        self.width = width

        move = ""
        if kept < len(old):
            if rows_up:
                move = f"\x1b[{rows_up}A"
            move += f"\r{ERASE_DOWN}"
        elif old and (kept < len(new) or not rows):
            move = "\n"  # there is nothing to erase
        drawn = "".join(f"{line}\n" for line in final[kept:])
        changed = rows[max(0, kept - len(final)) :]
        if changed:
            drawn += _CUT + "\n".join(changed) + _WRAP
        if not move and not drawn:
            return ""
        return f"{_BEGIN}{move}{drawn}{END_OF_FRAME}"


def count_fitting(heights: Iterable[int], height: int) -> int:
    """Return how many of the first lines, each of which has so many rows, fit in ``height``."""
    return sum(total <= height for total in accumulate(heights))


def _equal_at_start(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many of the first rows are the same."""
    count = 0
    for before, after in zip(old, new, strict=False):
        if before != after:
            break
        count += 1
    return count


def plain_rows(text: str, width: int) -> list[str]:
    """Return a text as rows of at most ``width`` columns."""
    rows = []
    for line in visible(text).split("\n"):
        for start, end in pairwise([0, *row_starts(line, width), len(line)]):
            rows.append(line[start:end])
    return rows
