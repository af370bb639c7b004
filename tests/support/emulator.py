"""A terminal that is emulated: what stands on the screen and in the scrollback behind the bytes that came."""

from typing import Any

import pyte
from hypothesis import strategies as st


class Emulator:
    """A screen of so many columns and rows."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=100_000)
        self.size = columns, rows
        self._stream = pyte.Stream(self.screen)

    def draw(self, text: str) -> None:
        """Take what a program writes, as a terminal's driver passes it on."""
        self._stream.feed(text.replace("\r\n", "\n").replace("\n", "\r\n"))

    write = draw

    @property
    def cells(self) -> list[list[tuple[object, ...]]]:
        """All that is to be seen, the scrollback first: each cell with its character and its style."""
        return [[tuple(row[column]) for column in range(self.size[0])] for row in self._rows()]

    @property
    def all_rows(self) -> list[str]:
        """The same as text, without the blanks at the end of a row."""
        return [*map(self._text, self._rows())]

    @property
    def rows(self) -> list[str]:
        """The same down to the last row that has something."""
        return "\n".join(self.all_rows).rstrip("\n").split("\n")

    def scrollback(self, start: int) -> list[str]:
        """What has left the screen, from a row on."""
        top = self.screen.history.top
        return [self._text(top[row]) for row in range(start, len(top))]

    def _rows(self) -> list[Any]:
        return [*self.screen.history.top, *(self.screen.buffer[row] for row in range(self.size[1]))]

    def _text(self, row: Any) -> str:
        return "".join(row[column].data for column in range(self.size[0])).rstrip()


def emulate(text: str, columns: int = 80, rows: int = 24) -> Emulator:
    """A screen behind a text."""
    emulator = Emulator(columns, rows)
    emulator.draw(text)
    return emulator


# Markdown of every kind, also torn and nasty.
PIECES = st.sampled_from(
    ["- ", "1. ", "2) ", "> ", "---|---\n", "a | b\n", "--|--\n",
     "\\(", "\\)", "$", "$$", "```\nx\n```\n",
     "```\n", "```py\n", "~~~\n", "\n", "\n\n", "  ", "    ", "\t", "a", "b c", "word ", "# ",
     "---\n", "===\n", "| a | b |\n", "|---|---|\n", "|1|`x|y`|\n", "`", "**", "*", "~~", "[x](http://a/b)", "[r]",
     "[r]: http://ref/\n", '"title', "[q]:\n", "<div>", "</div>\n", "<!-- ", "-->", "<b>", "&#27;", "\\", "![i](u)",
     "\r\n", "\r", "漢字", "x" * 70, "\x1b[31m", "<http://a.b/%1b>", "\n- ", "\n   ", "\u2028", "\ud800", "\x85"]
)  # fmt: skip
DOCUMENTS = st.lists(PIECES | st.text(max_size=5), max_size=40).map("".join)
