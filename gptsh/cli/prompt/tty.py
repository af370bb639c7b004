"""The terminal as prompt_toolkit sees it: keys from it wherever standard input comes from, and a screen to draw on.

One of the files that import prompt_toolkit.
"""

import os
import select
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import TextIO

from prompt_toolkit.data_structures import Size
from prompt_toolkit.input.posix_utils import PosixStdinReader
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from gptsh.cli import stdio
from gptsh.errors import UsageError
from gptsh.render.plain import able, look

_CONTROLLING = "/dev/tty"
_USUAL = Size(rows=24, columns=80)
_TYPED = 32  # letters that a person types between two reads, at most
_PIECE = 1 << 16  # bytes of a read: a paste comes in few


class Screen(Vt100_Output):
    """A terminal that is never asked where its cursor is: not each one answers, and an answer may come too late.

    Nothing is left in a buffer where it is gone.
    """

    def flush(self) -> None:
        """Draw what was written. Raises OSError as the terminal does."""
        drawn, self._buffer = "".join(self._buffer), []
        stdio.Sink(self.stdout).draw(drawn)

    def get_rows_below_cursor_position(self) -> int:
        """At least the line that it is in; more are made by scrolling."""
        return 1


class _Reader(PosixStdinReader):
    """What comes from a terminal. One that fails is closed: it would be read for ever."""

    def read(self, count: int = _PIECE) -> str:
        """What is there to be read; nothing where there is nothing, or no terminal any more."""
        try:
            ready = not self.closed and bool(select.select([self.stdin_fd], [], [], 0)[0])
            data = os.read(self.stdin_fd, count) if ready else b""
        except BlockingIOError:  # a parent handed down a stream that does not wait
            return ""
        except OSError:
            ready, data = True, b""
        self.closed = self.closed or (ready and not data)
        return self._stdin_decoder.decode(data)


class Typed(Vt100Input):
    """What is typed, from standard input or from a file of its own."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.stdin_reader = _Reader(stream.fileno())

    def read_keys(self) -> list[KeyPress]:
        """The keys of one read, a long run of letters among them as if it were pasted: each alone takes its time."""
        presses: list[KeyPress] = []
        for is_run, group in groupby(super().read_keys(), key=_is_letter):
            run = [*group]
            if is_run and len(run) > _TYPED:
                run = [KeyPress(Keys.BracketedPaste, "".join(press.data for press in run))]
            presses += run
        return presses

    def close(self) -> None:
        """Let go of a terminal that was opened for this."""
        if self.stdin is not sys.stdin:
            self.stdin.close()


def _is_letter(press: KeyPress) -> bool:
    return not isinstance(press.key, Keys) and press.data.isprintable()


def keys() -> Typed:
    """What is typed. Raises UsageError where there is no terminal."""
    return Typed(typed_on())


def typed_on() -> TextIO:
    """The terminal that is typed on, wherever standard input comes from. Raises UsageError where there is none."""
    return sys.stdin if stdio.is_terminal(sys.stdin) else _opened()


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
    if stream is None or not able(os.environ):  # it draws the prompt itself
        yield
        return
    with stdio.line_modes(stream.fileno(), off=termios.ECHOCTL):
        yield


def screen(stream: TextIO) -> Screen:
    """A terminal to draw on, with the colours that the environment allows."""
    colors = None if look(os.environ, terminal=True).colors else ColorDepth.MONOCHROME

    def size() -> Size:
        columns, rows = os.get_terminal_size(stream.fileno())
        return Size(rows=rows, columns=columns) if rows and columns else _USUAL

    return Screen(stream, size, term=os.environ.get("TERM"), default_color_depth=colors, enable_cpr=False)
