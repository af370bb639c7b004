"""A spinner on stderr while nothing has arrived yet, only on a terminal; those who wait set its words."""

import contextlib
import math
import threading
import time
from collections.abc import Callable
from types import TracebackType

from gptsh.render.writer import Sink
from gptsh.text import one_line, truncate_end

_FRAMES = "|/-\\"
_DELAY = 0.3  # seconds: a fast answer needs no spinner
_PERIOD = 0.12  # seconds
_ERASE = "\r\x1b[K"


class Spinner:
    """Spins in a thread until ``stop``, and leaves a blank line. With ``screen`` None it draws nothing.

    Call ``hide`` before other output and ``show`` after its newline. A terminal paused by Ctrl-S does not block it.
    """

    def __init__(self, screen: Sink | None, width: Callable[[], int], text: str) -> None:
        self._screen, self._width, self._text = screen, width, text
        self._reason = ""  # of the wait, in place of the first text
        self._waits = True  # the first text stands
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._drawing = False  # not a lock: a signal could interrupt between acquiring and releasing it
        self._since = 0.0  # when the first frame may be drawn
        self._drawn = False

    def __enter__(self) -> "Spinner":
        if self._screen:
            self.show()
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def is_visible(self) -> bool:
        """Whether there is a screen to draw on."""
        return self._screen is not None

    def set_text(self, text: str) -> None:
        """Show this text from the next frame on."""
        self._waits, self._text = False, text

    def explain(self, reason: str) -> None:
        """Show why it takes so long, as long as the first text stands. For other threads."""
        self._reason = reason

    def still_waits(self, seconds: float) -> bool:
        """Return after some seconds whether the first text still stands; at once if the spinner ends."""
        return not self._stopped.wait(seconds) and self._waits

    def hide(self) -> None:
        """Erase the spinner and draw nothing until ``show``."""
        if self._screen and not self._stopped.is_set() and self._draw_from(math.inf):
            with contextlib.suppress(OSError):  # the terminal is gone
                self._screen.draw(_ERASE)
            self._drawn = False

    def show(self) -> None:
        """Spin again after the delay, unless ``hide`` comes first."""
        self._draw_from(time.monotonic() + _DELAY)

    def stop(self) -> None:
        """End the spinner before other output. Its frame remains if the terminal does not accept output at once."""
        self._stopped.set()
        if self._screen and self._thread.is_alive():
            self._thread.join()
            if self._drawn:
                self._screen.offer(_ERASE)

    def _draw_from(self, moment: float) -> bool:
        """Set when the next frame may be drawn. Return whether a frame is on the screen."""
        self._since = moment
        while self._drawing:
            time.sleep(0.001)
        return self._drawn

    def _spin(self) -> None:
        frame = 0
        while self._screen and not self._stopped.wait(_PERIOD):
            self._drawing = True  # before reading the time: ``_draw_from`` then waits for this frame
            if time.monotonic() >= self._since:
                text = self._reason if self._waits and self._reason else self._text
                line = f"{_FRAMES[frame % len(_FRAMES)]} {one_line(text)}"
                self._drawn |= self._screen.offer(f"{_ERASE}{truncate_end(line, self._width() - 1)}")
                frame += 1
            self._drawing = False
