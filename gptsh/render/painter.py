"""Run the thread that draws an answer as Markdown while it arrives, and handle Ctrl-Z.

So no signal interrupts a frame, and the last words are drawn in time even if no others follow.
"""

import contextlib
import math
import signal
import termios
import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from gptsh.render.live import BREAK_OFF, Region, plain_rows
from gptsh.render.writer import ReasoningStream, Writer
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import shielded, waiting
from gptsh.terminal.stdio import Sink, TerminalStyle

if TYPE_CHECKING:
    from gptsh.render.drawing import Canvas


_FRAME = 0.05  # seconds between two frames
_PAUSE_FACTOR = 3  # the pause after a frame is at least so many times the time it took
_HEAD_START = 0.1  # seconds until the import of rich, which would slow down the request
# Seconds; a terminal wraps its rows again some time before or after it reports a new size.
_RESIZE_PAUSE = 0.4
# Seconds for what is left to draw after a signal: a long answer has been saved by then.
_LAST_FRAMES = 0.5
_POLL = 0.002  # seconds between two checks of the thread; no lock: a signal could leave it locked

_Item = str | Callable[[], None] | None  # a piece of the answer, a callback, or the end


class Painter(Writer):
    """Shows an answer as Markdown; where the cursor can move, also the block that is still open.

    Text that arrives before rich is imported is shown unrendered until the next frame.
    ``is_running`` is false if its thread cannot start: then it shows nothing.
    """

    def __init__(
        self, out: Sink, reasoning: ReasoningStream, style: TerminalStyle, stream: TextIO | None
    ) -> None:
        super().__init__(out, reasoning)
        self._style = style
        self._stream = stream
        self._terminal = -1  # its descriptor
        if stream is not None and stdio.shows_frames(stream):
            self._terminal = stream.fileno()
        self._region: Region | None = None
        if self._terminal >= 0 and stdio.is_foreground(self._terminal):
            self._region = Region()
        self._canvas: Canvas | None = None
        self._failure: BaseException | None = None
        self._queue: SimpleQueue[_Item] = SimpleQueue()
        self._has_undrawn_text = False
        self._patience = math.inf  # seconds to wait for the thread
        self.is_running = True  # the thread
        threading.Thread(target=self._run, daemon=True).start()

    # ---- for the answer

    def _write_text(self, text: str) -> None:
        if self._reasoning.separate() and self._canvas:
            self._canvas.has_begun = False
        self._raise_failure()
        with shielded():
            self._has_undrawn_text = True
            self._queue.put(text)

    def _begin_reasoning(self) -> None:
        """On a shared terminal draw the text so far: it appears in the order of arrival."""
        if self._reasoning.shared:
            self._end_answer()
            if self._canvas and self._canvas.has_begun:
                self._canvas.has_begun = False
                self._reasoning.write("\n")

    def _end_answer(self) -> None:
        if self._has_undrawn_text:
            with waiting():  # for a slow reader
                is_drawn = self._call_in_thread(self._finish, self._patience)
            self._has_undrawn_text = False
            self._raise_failure()
            if self.is_running and not is_drawn:
                self._give_up()

    def close(self) -> None:
        """Show the rest. Raises OSError if the reader does not accept it."""
        self._reasoning.end()
        self._end_answer()

    def limit_waiting(self) -> None:
        """From now on give up what cannot be drawn in a moment."""
        self._patience = _LAST_FRAMES

    def _finish(self) -> None:
        if self._canvas:
            self._canvas.finish()

    def _give_up(self) -> None:
        """Let the thread draw nothing more, wherever it is, and end the frame that it has begun."""
        self._out.abandon()
        if not self._region:
            return
        sink = stdio.Sink(self._stream)
        sink.limit_waiting()
        with contextlib.suppress(OSError):  # the terminal is gone, or does not read
            sink.draw(BREAK_OFF)

    def _raise_failure(self) -> None:
        failure = self._failure
        if failure:  # else the thread may set it now, and it would be lost
            self._failure = None
            raise failure

    def _call_in_thread(self, callback: Callable[[], object], max_wait: float) -> bool:
        """Let the thread run a callback after what it draws; return whether it has.

        ``max_wait``: for so many seconds of drawing, which begins when rich has been imported.
        """
        results: list[object] = []
        self._queue.put(lambda: results.append(callback()))
        end = math.inf
        while self.is_running and not results and time.monotonic() < end:
            time.sleep(_POLL)
            if self._canvas and end == math.inf:
                end = time.monotonic() + max_wait
        return bool(results)

    # ---- for the terminal

    @contextlib.contextmanager
    def exclusive(self, before_kill: list[Callable[[], object]]) -> Iterator[None]:
        """Within the block the terminal echoes no keys, and Ctrl-Z first erases the open block.

        ``before_kill`` gets the callback that restores the terminal before the process is killed.
        """
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(self._queue.put, None)
            before_kill.append(cleanup.close)
            with contextlib.suppress(termios.error, OSError):  # the terminal is gone
                if self._region:
                    cleanup.enter_context(stdio.line_modes(self._terminal, off=termios.ECHO))
                    if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
                        signal.signal(signal.SIGTSTP, self._stop)
                        cleanup.callback(signal.signal, signal.SIGTSTP, signal.SIG_DFL)
            yield

    def _stop(self, signum: int, _frame: FrameType | None) -> None:
        """Handle Ctrl-Z: erase the open block and stop; go on as the terminal is after ``fg``."""
        self._call_in_thread(self._erase_open_block, stdio.READER_WAIT)
        with contextlib.suppress(termios.error):
            modes = termios.tcgetattr(self._terminal)
            signal.signal(signum, signal.SIG_DFL)
            signal.raise_signal(signum)  # returns once the process is continued
            signal.signal(signum, self._stop)
            if stdio.is_foreground(self._terminal):
                termios.tcsetattr(self._terminal, termios.TCSANOW, modes)
        if not stdio.is_foreground(self._terminal):  # after ``bg`` nothing can be redrawn
            self._region = None
            if self._canvas:
                self._canvas.region = None
        self._queue.put("")

    def _erase_open_block(self) -> None:
        if self._region:
            self._out.draw(self._region.frame((), (), stdio.width(self._stream)))

    # ---- the thread

    def _run(self) -> None:
        try:
            first = self._show_first_words()
            if first is not None:
                self._draw_items(first)
        except BaseException as err:  # noqa: BLE001 - the main thread raises it again
            self._failure = err
        self.is_running = False

    def _show_first_words(self) -> _Item:
        """Show what arrives before rich is imported as it is; return it."""
        item: _Item = ""
        with contextlib.suppress(Empty):
            item = self._queue.get(timeout=_HEAD_START)
        if isinstance(item, str) and item and self._region:
            width, height = stdio.size(self._stream)
            screenful = item[-width * height :]
            rows = plain_rows(screenful, width)
            self._out.draw(self._region.frame((), rows[1 - height :], width))
        return item

    def _draw_items(self, item: _Item) -> None:
        from gptsh.render.drawing import Canvas

        def size() -> tuple[int, int]:
            return stdio.size(self._stream)

        self._canvas = Canvas(self._out, self._style, size, self._region)
        next_frame = 0.0
        is_stale = False  # something has arrived that is not drawn
        last_size = size()
        while item is not None:
            if isinstance(item, str):
                self._canvas.add(item)
                is_stale = True
            else:
                item()
                is_stale = False

            start = time.monotonic()
            if size() != last_size:
                last_size = size()
                next_frame = start + _RESIZE_PAUSE
            if is_stale and start >= next_frame:
                self._canvas.draw()
                is_stale = False
                end = time.monotonic()
                next_frame = end + max(_FRAME, _PAUSE_FACTOR * (end - start))
            item = self._next_item(next_frame if is_stale else math.inf)

    def _next_item(self, next_frame: float) -> _Item:
        """Return the next item, or an empty text when the next frame is due."""
        pause = None if next_frame == math.inf else max(0.0, next_frame - time.monotonic())
        try:
            return self._queue.get(timeout=pause)
        except Empty:
            return ""
