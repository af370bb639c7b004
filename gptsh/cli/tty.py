"""The terminal as prompt_toolkit sees it: keys from it wherever standard input comes from, and a screen to draw on.

One of the files that import prompt_toolkit.
"""

import os
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import Input
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


def keys() -> Input:
    """What is typed. Raises UsageError where there is no terminal."""
    if stdio.is_terminal(sys.stdin):
        return Vt100Input(sys.stdin)
    return Vt100Input(_opened())


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


@contextmanager
def without_carets() -> Iterator[None]:
    """A stretch in which the terminal does not draw ``^C`` where it is pressed: the prompt begins its line."""
    stream = stdio.answers_to()
    assert stream is not None  # it is a terminal
    before = termios.tcgetattr(stream)
    modes = [*before]
    modes[3] &= ~termios.ECHOCTL
    termios.tcsetattr(stream, termios.TCSANOW, modes)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(stream, termios.TCSANOW, before)


def screen(stream: TextIO) -> Screen:
    """A terminal to draw on, with the colours that the environment allows."""
    colors = None if look(os.environ, terminal=True).colors else ColorDepth.MONOCHROME

    def size() -> Size:
        columns, rows = os.get_terminal_size(stream.fileno())
        return Size(rows=rows, columns=columns) if rows and columns else _USUAL

    return Screen(stream, size, term=os.environ.get("TERM"), default_color_depth=colors, enable_cpr=False)
