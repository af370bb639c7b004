"""An emulated terminal: the screen and the scrollback after some output."""

from typing import Any

import pyte
from hypothesis import strategies as st


class Emulator:
    """A screen with columns and rows."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=100_000)
        self.size = columns, rows
        self._stream = pyte.Stream(self.screen)

    def draw(self, text: str) -> None:
        """Process the output of a program; a line feed also returns the carriage, as in a terminal driver."""
        self._stream.feed(text.replace("\r\n", "\n").replace("\n", "\r\n"))

    write = draw

    @property
    def cells(self) -> list[list[tuple[object, ...]]]:
        """All rows, the scrollback first: each cell with its character and its style."""
        return [[tuple(row[column]) for column in range(self.size[0])] for row in self._rows()]

    @property
    def all_rows(self) -> list[str]:
        """All rows as text, without trailing blanks."""
        return [*map(self._text, self._rows())]

    @property
    def rows(self) -> list[str]:
        """``all_rows`` without the empty rows at the end."""
        return "\n".join(self.all_rows).rstrip("\n").split("\n")

    def scrollback(self, start: int) -> list[str]:
        """The rows of the scrollback, from ``start`` on."""
        top = self.screen.history.top
        return [self._text(top[row]) for row in range(start, len(top))]

    def _rows(self) -> list[Any]:
        return [*self.screen.history.top, *(self.screen.buffer[row] for row in range(self.size[1]))]

    def _text(self, row: Any) -> str:
        return "".join(row[column].data for column in range(self.size[0])).rstrip()


def emulate(text: str, columns: int = 80, rows: int = 24) -> Emulator:
    """A screen after this output."""
    emulator = Emulator(columns, rows)
    emulator.draw(text)
    return emulator


# Markdown of every kind, also incomplete and hostile.
PIECES = st.sampled_from(
    ["- ", "1. ", "2) ", "> ", "---|---\n", "a | b\n", "--|--\n",
     "\\(", "\\)", "$", "$$", "```\nx\n```\n",
     "```\n", "```py\n", "~~~\n", "\n", "\n\n", "  ", "    ", "\t", "a", "b c", "word ", "# ",
     "---\n", "===\n", "| a | b |\n", "|---|---|\n", "|1|`x|y`|\n", "`", "**", "*", "~~", "[x](http://a/b)", "[r]",
     "[r]: http://ref/\n", '"title', "[q]:\n", "<div>", "</div>\n", "<!-- ", "-->", "<b>", "&#27;", "\\", "![i](u)",
     "\r\n", "\r", "漢字", "x" * 70, "\x1b[31m", "<http://a.b/%1b>", "\n- ", "\n   ", "\u2028", "\ud800", "\x85"]
)  # fmt: skip
DOCUMENTS = st.lists(PIECES | st.text(max_size=5), max_size=40).map("".join)
