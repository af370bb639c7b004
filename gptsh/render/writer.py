"""Write the text of an answer as it arrives, and show the spinner until then."""

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Mapping

from gptsh.messages import Event, Finished, Reasoning, Refusal, Text
from gptsh.terminal import stdio
from gptsh.terminal.stdio import DIM, Sink, styled
from gptsh.text import VisiblePieces, one_line, truncate_end

# ---- writer
#
# An answer shown as it arrives: text byte for byte on stdout, reasoning on stderr; the base class
# of the writers.


class ReasoningStream:
    """Writes reasoning to ``err`` on separate lines as it arrives; nothing if it is None or fails.

    ``shared``: the same terminal shows the answer.
    """

    def __init__(self, err: Sink | None, *, dimmed: bool = False, shared: bool = False) -> None:
        self.shared = shared and err is not None
        self._err = err
        self._is_dimmed = dimmed
        self._pieces = VisiblePieces()
        self._last = "\n"
        self._has_begun = False

    def write(self, text: str) -> None:
        """Write a piece of the reasoning."""
        if self._err is None:
            return
        self._last = text[-1]
        self._has_begun = True
        try:
            if self._is_dimmed:
                visible_text = self._pieces.visible(text)
                words = visible_text.rstrip("\n")
                self._err.draw(styled(words, DIM) + visible_text[len(words) :])
            else:
                self._err.write(text)
        except OSError:
            self._err = None
            self._last = "\n"
            self.shared = False

    def end(self) -> None:
        """End the line, before anything else is written."""
        if self._last != "\n":
            self.write("\n")

    def separate(self) -> bool:
        """End the line before the answer continues, with a blank line on a shared terminal.

        Return whether there is one.
        """
        self.end()
        adds_line = self.shared and self._has_begun
        if adds_line:
            self.write("\n")
        self._has_begun = False
        return adds_line


class Writer:
    """Shows an answer: the text on ``out``, the reasoning on ``reasoning``.

    Raises OSError as ``out`` does.
    """

    def __init__(self, out: Sink, reasoning: ReasoningStream) -> None:
        self._out = out
        self._reasoning = reasoning

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
    """Writes each piece of an answer as it arrives.

    Unless ``streamed``, it writes all of it at once, with its newline.
    """

    def __init__(self, out: Sink, reasoning: ReasoningStream, *, streamed: bool) -> None:
        super().__init__(out, reasoning)
        self._is_streamed = streamed
        self._pending: list[str] = []
        self._last = "\n"

    def _write_text(self, text: str) -> None:
        self._reasoning.separate()
        self._last = text[-1]
        if self._is_streamed:
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

_ASCII_FRAMES = "|/-\\"
_BRAILLE_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_HINT_AFTER = 10  # seconds until the spinner says how to stop
_DELAY = 0.3  # seconds: a fast answer needs no spinner
_PERIOD = 0.12  # seconds
_ERASE = "\r\x1b[K"


class Spinner:
    """Spins on stderr, in a thread, inside its ``with`` block, and counts the seconds.

    The spinner is not shown if stderr is no terminal. Call ``hide`` before other output and
    ``show`` after its newline. At the end it leaves a blank line. A terminal paused by Ctrl-S does
    not block it.
    """

    def __init__(self, text: str) -> None:
        self.is_visible = stdio.shows_frames(sys.stderr)
        self._sink = stdio.Sink(sys.stderr)
        self._text = text
        self._reason = ""  # of the wait, in place of the first text
        self._is_waiting = True  # ``set_text`` has not been called
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._is_drawing = False  # no lock: a signal could come between acquiring and releasing it
        self._since = 0.0  # when the first frame may be drawn
        self._is_drawn = False
        self._start = 0.0
        speaks_utf8 = stdio.speaks_utf8(os.environ)
        self._frames = _BRAILLE_FRAMES if speaks_utf8 else _ASCII_FRAMES
        self._separator = " · " if speaks_utf8 else " - "

    def __enter__(self) -> "Spinner":
        self._start = time.monotonic()
        if self.is_visible:
            self.show()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it before other output; its frame stays if the terminal accepts none at once."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
            if self._is_drawn:
                self._sink.offer(_ERASE)

    def set_text(self, text: str) -> None:
        """Show this text from the next frame on."""
        self._is_waiting = False
        self._text = text

    def explain(self, reason: str) -> None:
        """Show why it takes so long, unless ``set_text`` was called. For other threads."""
        self._reason = reason

    def still_waits(self, seconds: float) -> bool:
        """Return after some seconds whether it still waits; at once if the spinner ends."""
        return not self._stopped.wait(seconds) and self._is_waiting

    def hide(self) -> None:
        """Erase the spinner and draw nothing until ``show``."""
        if not self.is_visible or self._stopped.is_set():
            return
        self._since = math.inf
        while self._is_drawing:
            time.sleep(0.001)
        if self._is_drawn:
            with contextlib.suppress(OSError):  # the terminal is gone
                self._sink.draw(_ERASE)
            self._is_drawn = False

    def show(self) -> None:
        """Spin again after the delay, unless ``hide`` comes first."""
        self._since = time.monotonic() + _DELAY

    def _spin(self) -> None:
        frame = 0
        while not self._stopped.wait(_PERIOD):
            self._is_drawing = True  # before reading the time: ``hide`` then waits for this frame
            if time.monotonic() >= self._since:
                text = self._reason if self._is_waiting and self._reason else self._text
                symbol = self._frames[frame % len(self._frames)]
                clock = self._clock()
                free = stdio.width(sys.stderr) - 1 - len(clock)
                line = truncate_end(f"{symbol} {one_line(text)}", free)
                if self._sink.offer(f"{_ERASE}{line}{clock}"):
                    self._is_drawn = True
                frame += 1
            self._is_drawing = False

    def _clock(self) -> str:
        """Return the end of the line: the seconds so far, and after some how to stop."""
        seconds = int(time.monotonic() - self._start)
        if not seconds:
            return ""
        hint = f"{self._separator}Ctrl-C stops" if seconds >= _HINT_AFTER else ""
        return f"{self._separator}{seconds} s{hint}"
