"""A terminal's modes of the line that is typed, for a while others than they were."""

import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_LOCAL = 3  # where a terminal's modes have them


@contextmanager
def line_modes(terminal: int, *, on: int = 0, off: int = 0) -> Iterator[None]:
    """A stretch with these of ``termios``'s local modes on or off; behind it all are as before.

    Raises termios.error where they cannot be set; that the terminal went away meanwhile is none.
    """
    before = termios.tcgetattr(terminal)
    modes = [*before]
    modes[_LOCAL] = modes[_LOCAL] & ~off | on
    termios.tcsetattr(terminal, termios.TCSANOW, modes)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSANOW, before)
