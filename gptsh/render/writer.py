"""Write the text of an answer as it arrives, and show the spinner until then."""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol

from gptsh.messages import Event, Finished, Reasoning, Refusal, Text
from gptsh.text import VisiblePieces, one_line, truncate_end

# ---- writer
#
# An answer shown as it arrives: text byte for byte on stdout, reasoning on stderr; the base class
# of the writers.


class Sink(Protocol):
    """An output stream for text. Its methods raise OSError as the stream does."""

    def write(self, text: str) -> None:
        """Write all of the text at once; on a terminal with its control characters made visible."""

    def draw(self, text: str) -> None:
        """Write text that is already safe for a terminal, escape sequences included."""

    def offer(self, text: str) -> bool:
        """Draw a short text unless that would block or fails. Return whether it was drawn."""

    def abandon(self) -> None:
        """Write nothing more, not even the rest of what another thread is writing."""


class ReasoningStream:
    """Writes reasoning to ``err`` as it arrives, on separate lines; nothing if ``err`` is None or fails.

    ``shared``: the same terminal shows the answer.
    """

    def __init__(self, err: Sink | None, *, dimmed: bool = False, shared: bool = False) -> None:
        self._err, self._dimmed = err, dimmed
        self._shared, self._pieces = shared, VisiblePieces()
        self._last, self._begun = "\n", False

    @property
    def shared(self) -> bool:
        """Whether the reasoning appears on the terminal of the answer."""
        return self._shared and self._err is not None

    def write(self, text: str) -> None:
        """Write a piece of the reasoning."""
        if self._err is None:
            return
        self._last, self._begun = text[-1], True
        try:
            if self._dimmed:
                shown = self._pieces.visible(text)
                words = shown.rstrip("\n")
                self._err.draw(f"\x1b[2m{words}\x1b[0m{shown[len(words) :]}" if words else shown)
            else:
                self._err.write(text)
        except OSError:
            self._err, self._last = None, "\n"

    def end(self) -> None:
        """End the line, before anything else is written."""
        if self._last != "\n":
            self.write("\n")

    def separate(self) -> bool:
        """End the line before the answer continues, with a blank line on a shared terminal. Return whether it did."""
        self.end()
        adds_line, self._begun = self.shared and self._begun, False
        if adds_line:
            self.write("\n")
            self._begun = False
        return adds_line


class Writer:
    """Shows an answer: the text on ``out``, the reasoning on ``reasoning``. Raises OSError as ``out`` does."""

    def __init__(self, out: Sink, reasoning: ReasoningStream) -> None:
        self._out, self._reasoning = out, reasoning

    def write(self, event: Event) -> None:
        """Show one event, if it has anything to show."""
        match event:
            case Text(text) | Refusal(text) if text:
                self._write_text(text)
            case Reasoning(text) if text:
                self._begin_reasoning()
                self._reasoning.write(text)
            case Finished():
                self._end_answer()

    def close(self) -> None:
        """Show the rest and end the line. A second call does nothing."""
        raise NotImplementedError

    def emit(self, kind: str, **fields: object) -> None:
        """Record an event beside the answer. Only ``-o jsonl`` prints it, with the next output."""

    def deliver(self, text: str) -> None:
        """Write the buffered answer, once it is complete."""

    def conclude(self, result: Mapping[str, object]) -> None:
        """Write the answer as the final JSON object."""

    def _write_text(self, text: str) -> None:
        """Write a piece of the answer."""
        raise NotImplementedError

    def _begin_reasoning(self) -> None:
        """Prepare for reasoning, which is about to be written."""

    def _end_answer(self) -> None:
        """Finish drawing: the answer is complete, though its usage may still be missing."""


class PlainWriter(Writer):
    """Writes each piece of an answer as it arrives; unless ``streamed``, all of it in one write, with its newline."""

    def __init__(self, out: Sink, reasoning: ReasoningStream, *, streamed: bool) -> None:
        super().__init__(out, reasoning)
        self._streamed = streamed
        self._pending: list[str] = []
        self._last = "\n"

    def _write_text(self, text: str) -> None:
        self._reasoning.separate()
        self._last = text[-1]
        if self._streamed:
            self._out.write(text)
        else:
            self._pending.append(text)

    def close(self) -> None:
        """Write what is pending, and a final newline if the answer has none."""
        self._reasoning.end()
        rest = "".join(self._pending)
        self._pending = []
        if self._last != "\n":
            self._last = "\n"
            rest += "\n"
        if rest:
            self._out.write(rest)


# ---- spinner
#
# A spinner on stderr while nothing has arrived yet, only on a terminal; those who wait set its
# words.

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
