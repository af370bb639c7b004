"""The terminal as prompt_toolkit sees it: keys from it wherever standard input comes from, and a screen to draw on.

One of the files that import prompt_toolkit.
"""

import os
import sys
from typing import TextIO

from prompt_toolkit.data_structures import Size
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from gptsh.cli import stdio
from gptsh.errors import UsageError
from gptsh.render.look import look

_CONTROLLING = "/dev/tty"
_USUAL = Size(rows=24, columns=80)


class Screen(Vt100_Output):
    """A terminal that is never asked where its cursor is: not each one answers, and an answer may come too late."""

    def get_rows_below_cursor_position(self) -> int:
        """At least the line that it is in; more are made by scrolling."""
        return 1


class Keys(Vt100Input):
    """What is typed, from standard input or from a file of its own."""

    def close(self) -> None:
        """Let go of a terminal that was opened for this."""
        if self.stdin is not sys.stdin:
            self.stdin.close()


def keys() -> Keys:
    """What is typed. Raises UsageError where there is no terminal."""
    return Keys(sys.stdin if stdio.is_terminal(sys.stdin) else _opened())


def _opened() -> TextIO:
    """The terminal for reading: under its own name, since macOS cannot wait for what is read by ``/dev/tty``."""
    names = [_CONTROLLING]
    for stream in (stdio.answers_to(), sys.stderr):
        if stream is not None and stdio.is_terminal(stream):
            names.insert(-1, os.ttyname(stream.fileno()))
    for name in names:
        try:
            return open(name, encoding="utf-8", errors="surrogateescape")
        except OSError:  # of another user, after su
            continue
    raise UsageError("there is no terminal to read from")


def screen(stream: TextIO) -> Screen:
    """A terminal to draw on, with the colours that the environment allows."""
    colors = None if look(os.environ, terminal=True).colors else ColorDepth.MONOCHROME

    def size() -> Size:
        columns, rows = os.get_terminal_size(stream.fileno())
        return Size(rows=rows, columns=columns) if rows and columns else _USUAL

    return Screen(stream, size, term=os.environ.get("TERM"), default_color_depth=colors, enable_cpr=False)
