"""A sign of life on stderr while nothing has come yet; on a terminal only."""

import contextlib
import math
import os
import threading
import time
from types import TracebackType
from typing import TextIO

from gptsh.render.visible import visible

_FRAMES = "|/-\\"
_DELAY = 0.3  # seconds: what answers at once needs no spinner
_PERIOD = 0.12  # seconds
_USUAL_WIDTH = 80
_PATIENCE = 1.0  # seconds for a terminal that was halted with Ctrl-S
_ERASE = "\r\x1b[K"


class Spinner:
    """Turns until ``stop``; the line it used is then blank. ``stream`` None: a spinner that nobody sees.

    ``hide`` before anything is written to the terminal, ``show`` when that has ended with a newline.
    """

    def __init__(self, stream: TextIO | None, text: str) -> None:
        self._stream, self._text = stream, text
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._turn, daemon=True)
        self._lock = threading.Lock()  # whoever draws holds it, and so does who changes what follows
        self._since = 0.0  # when the first frame may be drawn
        self._drawn = False

    def __enter__(self) -> "Spinner":
        if self._stream:
            self.show()
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def say(self, text: str) -> None:
        """Show another text from the next frame on."""
        self._text = text

    def hide(self) -> None:
        """Leave the terminal to others: nothing is drawn until ``show``."""
        if self._thread.is_alive():
            with self._lock:
                self._since = math.inf
                self._erase()

    def show(self) -> None:
        """Turn again, if nothing hides it before the delay is over."""
        with self._lock:
            self._since = time.monotonic() + _DELAY

    def stop(self) -> None:
        """End it before anything else is written to the terminal."""
        if self._thread.is_alive():
            self._stopped.set()
            self._thread.join(_PATIENCE)

    def _turn(self) -> None:
        frame = 0
        while not self._stopped.wait(_PERIOD):
            with self._lock:
                if time.monotonic() >= self._since:
                    line = f"{_FRAMES[frame % len(_FRAMES)]} {visible(self._text)}"
                    self._draw(f"{_ERASE}{line[: self._width() - 1]}")
                    self._drawn = True
                    frame += 1
        with self._lock:
            self._erase()

    def _erase(self) -> None:
        if self._drawn:
            self._drawn = False
            self._draw(_ERASE)

    def _draw(self, text: str) -> None:
        if self._stream:
            with contextlib.suppress(OSError):  # the terminal is gone
                os.write(self._stream.fileno(), text.encode("utf-8", "replace"))

    def _width(self) -> int:
        """Columns of the terminal: a line that wraps could not be drawn over."""
        if self._stream:
            with contextlib.suppress(OSError):
                return os.get_terminal_size(self._stream.fileno()).columns or _USUAL_WIDTH
        return _USUAL_WIDTH
