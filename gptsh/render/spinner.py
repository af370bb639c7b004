"""A sign of life on stderr while nothing has come yet; on a terminal only."""

import contextlib
import math
import threading
import time
from collections.abc import Callable
from types import TracebackType

from gptsh.render.plain import Sink
from gptsh.text import beginning, one_line, visible

_FRAMES = "|/-\\"
_DELAY = 0.3  # seconds: what answers at once needs no spinner
_PERIOD = 0.12  # seconds
_ERASE = "\r\x1b[K"


class Spinner:
    """Turns until ``stop``; the line it used is then blank. ``screen`` None: a spinner that nobody sees.

    ``hide`` before anything else is written, ``show`` behind its newline. A terminal that is halted halts nobody.
    """

    def __init__(self, screen: Sink | None, width: Callable[[], int], text: str) -> None:
        self._screen, self._width, self._text = screen, width, text
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._turn, daemon=True)
        self._drawing = False  # no lock: a signal may be raised anywhere, also between taking one and giving it back
        self._since = 0.0  # when the first frame may be drawn
        self._drawn = False

    def __enter__(self) -> "Spinner":
        if self._screen:
            self.show()
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def set_text(self, text: str) -> None:
        """Show another text from the next frame on."""
        self._text = text

    def hide(self) -> None:
        """Leave the terminal to others: nothing is drawn until ``show``."""
        if self._screen and not self._stopped.is_set() and self._draws_from(math.inf):
            with contextlib.suppress(OSError):  # the terminal is gone
                self._screen.draw(_ERASE)
            self._drawn = False

    def show(self) -> None:
        """Turn again, if nothing hides it before the delay is over."""
        self._draws_from(time.monotonic() + _DELAY)

    def stop(self) -> None:
        """End it before anything else is written to the terminal. What that does not take at once is left."""
        self._stopped.set()
        if self._screen and self._thread.is_alive():
            self._thread.join()
            if self._drawn:
                self._screen.offer(_ERASE)

    def _draws_from(self, moment: float) -> bool:
        """Set when the next frame may be drawn; whether one stands there that is now to be erased."""
        self._since = moment
        while self._drawing:
            time.sleep(0.001)
        return self._drawn

    def _turn(self) -> None:
        frame = 0
        while self._screen and not self._stopped.wait(_PERIOD):
            self._drawing = True  # before the look at the time, so that who changed that waits for this frame
            if time.monotonic() >= self._since:
                line = f"{_FRAMES[frame % len(_FRAMES)]} {visible(one_line(self._text))}"
                self._drawn |= self._screen.offer(f"{_ERASE}{beginning(line, self._width() - 1)}")
                frame += 1
            self._drawing = False
