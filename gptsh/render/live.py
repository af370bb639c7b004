"""The rows at the bottom of a terminal that are drawn again while an answer comes.

Words are shown before they have found their final place: the block that is open is drawn as far as it came, and again
with each frame. Only what stands in ``Region`` is drawn over, at most all rows of the screen but one: nothing that may
change ever leaves the screen, so that the scrollback holds no line twice. Of an open block that is taller the last rows
are shown, and the whole of it once it is closed; of code, the lines of which are final, the first ones scroll away.
"""

import re
from collections.abc import Sequence
from itertools import accumulate, takewhile

from gptsh.render.plain import END_OF_FRAME
from gptsh.text import columns, row_starts, visible

# One write is one frame: terminals that know it (DEC 2026) show nothing of it before its end, the others skip it.
_BEGIN = "\x1b[?2026h"
# Terminals differ in how wide an emoji is: a row that is wider than expected loses its end, and does not wrap.
_CUT, _WRAP = "\x1b[?7l", "\x1b[?7h"
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


class Region:
    """What stands in the last rows of the screen and may be drawn again, the cursor behind its last character.

    ``width``: the columns of the screen when it was drawn.
    """

    def __init__(self) -> None:
        self._rows: list[str] = []
        self.width = 0

    def lost(self, width: int, height: int) -> int:
        """How many of its first rows have left a screen that is smaller now."""
        return sum(1 for below in accumulate(reversed(self._tall(width))) if below > height)

    def _tall(self, width: int) -> list[int]:
        """How many rows the terminal has made of each: at another width than before it has laid them out again."""
        if width >= self.width:
            return [1] * len(self._rows)
        return [max(1, -(-columns(_STYLE.sub("", row)) // width)) for row in self._rows]

    def frame(self, done: Sequence[str], rows: Sequence[str], width: int) -> str:
        """What draws lines that stay in place of the region, and the rows of a new one below them.

        Rows that stand are left alone.
        """
        old, new, keep = self._rows, [*done, *rows], 0
        if width == self.width:
            keep = len([*takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))])
        up = sum(self._tall(width)) - 1 - keep
        if rows and keep == len(new) < len(old):
            keep, up = keep - 1, up + 1  # the cursor belongs behind the last row
        self._rows, self.width = [*rows], width
        drawn = "".join(f"{line}\n" for line in done[keep:])
        if rows := rows[max(0, keep - len(done)) :]:
            drawn += f"{_CUT}{chr(10).join(rows)}{_WRAP}"
        if not old:
            erased = ""
        elif keep == len(old):
            erased = "\n" if new[keep:] or not self._rows else ""
        else:
            # The first row for itself: tmux keeps in its scrollback what is erased of a whole screen.
            erased = f"\x1b[{up}A\r\x1b[K\n\x1b[J\x1b[A" if up else "\r\x1b[J"
        return f"{_BEGIN}{erased}{drawn}{END_OF_FRAME}" if erased or drawn else ""


def plain_rows(text: str, width: int) -> list[str]:
    """A text as rows of so many columns."""
    rows = []
    for line in visible(text).split("\n"):
        starts = [0, *row_starts(line, width)]
        rows += [line[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
    return rows
