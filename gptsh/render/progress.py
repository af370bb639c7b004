"""A progress bar on stderr for work that takes longer than a second; only on a terminal."""

import time
from collections.abc import Callable

from gptsh.render.writer import Sink
from gptsh.text import one_line, truncate_end, visible

_DELAY = 1.0  # seconds: short work needs no bar
_PERIOD = 0.1  # seconds between two drawings of a bar that nothing has erased
_CELLS = 20
_ERASE = "\r\x1b[K"


class Bar:
    """Draws how much of the work is done. With ``screen`` None it draws nothing.

    Call ``hide`` before other output. A terminal paused by Ctrl-S does not block it.
    """

    def __init__(self, screen: Sink | None, width: Callable[[], int]) -> None:
        self._screen, self._width = screen, width
        self._since = time.monotonic() + _DELAY
        self._is_drawn = False

    def draw(self, share: float, text: str) -> None:
        """Draw the share of the work that is done, from 0 to 1, and a text behind it."""
        if self._screen and (now := time.monotonic()) >= self._since:
            self._since = now + _PERIOD
            cells = round(share * _CELLS)
            line = f"[{'#' * cells}{'-' * (_CELLS - cells)}] {share:.0%}, {visible(one_line(text))}"
            self._is_drawn |= self._screen.offer(f"{_ERASE}{truncate_end(line, self._width() - 1)}")

    def hide(self) -> None:
        """Erase the bar until it is drawn again."""
        if self._screen and self._is_drawn:
            self._is_drawn = not self._screen.offer(_ERASE)
            self._since = 0.0
