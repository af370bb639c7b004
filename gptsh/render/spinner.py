"""A sign of life on stderr while nothing has come yet; on a terminal only."""

import threading
from types import TracebackType
from typing import TextIO

from gptsh.render.visible import visible

_FRAMES = "|/-\\"
_DELAY = 0.3  # seconds: what answers at once needs no spinner
_PERIOD = 0.12  # seconds


class Spinner:
    """Turns until ``stop``; the line it used is then blank. ``stream`` None: a spinner that nobody sees."""

    def __init__(self, stream: TextIO | None, text: str) -> None:
        self._stream, self._text = stream, text
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._turn, daemon=True)

    def __enter__(self) -> "Spinner":
        if self._stream:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def say(self, text: str) -> None:
        """Show another text from the next frame on."""
        self._text = text

    def stop(self) -> None:
        """End it before anything else is written to the terminal."""
        if self._thread.is_alive():
            self._stopped.set()
            self._thread.join()

    def _turn(self) -> None:
        assert self._stream is not None
        frame = 0
        pause = _DELAY
        while not self._stopped.wait(pause):
            self._stream.write(f"\r\x1b[K{_FRAMES[frame % len(_FRAMES)]} {visible(self._text)}")
            self._stream.flush()
            frame, pause = frame + 1, _PERIOD
        if frame:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
