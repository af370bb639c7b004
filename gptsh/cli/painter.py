"""An answer as Markdown, drawn by a thread of its own: on a terminal as it is written.

No signal breaks off a frame there, and words that came within a frame's time are shown though no others follow.
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

from gptsh.cli import stdio
from gptsh.cli.interrupts import shielded, waiting
from gptsh.render.live import Region, plain_rows
from gptsh.render.plain import Look, ReasoningStream, Sink, Writer

if TYPE_CHECKING:
    from gptsh.render.terminal import Canvas

_FRAME = 0.05  # seconds between two frames
_SHARE = 3  # times as long as a frame took nothing is drawn behind it
_HEAD_START = 0.1  # seconds that the request gets before the import of rich takes half of its time
_LOOK = 0.002  # seconds between two looks at the thread; no lock: a signal could leave it locked

_Item = str | Callable[[], None] | None  # a piece of the answer; something to be done; the end


class Painter(Writer):
    """Shows an answer as Markdown; on a terminal the cursor of which can be moved, words before their block is closed.

    Words that come before rich is imported are shown as they are, until the next frame.
    """

    def __init__(self, out: Sink, reasoning: ReasoningStream, look: Look, stream: TextIO | None) -> None:
        super().__init__(out, reasoning)
        self._look, self._stream = look, stream
        self._terminal = stream.fileno() if stream is not None and stdio.shows_frames(stream) else -1
        self._region = Region() if self._terminal >= 0 and stdio.is_foreground(self._terminal) else None
        self._canvas: Canvas | None = None
        self._failure: BaseException | None = None
        self._queue: SimpleQueue[_Item] = SimpleQueue()
        self._works, self._has_said = True, False  # the thread; since all was drawn
        threading.Thread(target=self._work, daemon=True).start()

    # ---- for the answer

    def _write_text(self, text: str) -> None:
        if self._reasoning.separate() and self._canvas:
            self._canvas.begun = False
        self._raise()
        with shielded():
            self._has_said = True
            self._queue.put(text)

    def _begin_reasoning(self) -> None:
        """What is shown on the same terminal is in the order in which it came."""
        if self._reasoning.shared:
            self._end_answer()
            if self._canvas and self._canvas.begun:
                self._canvas.begun = False
                self._reasoning.write("\n")

    def _end_answer(self) -> None:
        if self._has_said:
            with waiting():  # for its reader
                self._do(self._finish)
            self._has_said = False
            self._raise()

    def close(self) -> None:
        """Show what is left. Raises OSError where its reader does not take it."""
        self._reasoning.end()
        self._end_answer()

    def _raise(self) -> None:
        if self._failure:
            failure, self._failure = self._failure, None
            raise failure

    def _do(self, what: Callable[[], object], patience: float = math.inf) -> None:
        """Have the thread do something behind what it draws, and wait for that, at most so many seconds."""
        done: list[object] = []
        self._queue.put(lambda: done.append(what()))
        end = time.monotonic() + patience
        while self._works and not done and time.monotonic() < end:
            time.sleep(_LOOK)

    # ---- for the terminal

    @contextlib.contextmanager
    def exclusive(self, before_kill: list[Callable[[], object]]) -> Iterator[None]:
        """A stretch in which the terminal draws nothing of what is typed, and Ctrl-Z leaves whole blocks alone on it.

        ``before_kill`` learns how the terminal is mended, should the process be about to be killed.
        """
        terminal = self._terminal

        def stop(signum: int, _frame: FrameType | None) -> None:
            self._do(self._hide, stdio.READER_WAIT)
            with contextlib.suppress(termios.error):
                modes = termios.tcgetattr(terminal)
                signal.signal(signum, signal.SIG_DFL)
                signal.raise_signal(signum)
                signal.signal(signum, stop)
                if stdio.is_foreground(terminal):
                    termios.tcsetattr(terminal, termios.TCSANOW, modes)
            if not stdio.is_foreground(terminal):
                self._region = None
                if self._canvas:
                    self._canvas.region = None
            self._queue.put("")

        with contextlib.ExitStack() as mended:
            mended.callback(self._queue.put, None)
            before_kill.append(mended.close)
            with contextlib.suppress(termios.error, OSError):  # the terminal is gone
                if self._region:
                    mended.enter_context(stdio.line_modes(terminal, off=termios.ECHO))
                    if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
                        mended.callback(signal.signal, signal.SIGTSTP, signal.signal(signal.SIGTSTP, stop))
            yield

    def _finish(self) -> None:
        if self._canvas:
            self._canvas.finish()

    def _hide(self) -> None:
        """Take what is open off the screen."""
        if self._region:
            self._out.draw(self._region.frame((), (), stdio.width(self._stream)))

    # ---- the thread

    def _work(self) -> None:
        try:
            self._draw()
        except BaseException as err:  # noqa: BLE001 - it is raised where the answer comes from
            self._failure = err
        self._works = False

    def _draw(self) -> None:
        item: _Item = ""
        with contextlib.suppress(Empty):
            item = self._queue.get(timeout=_HEAD_START)
        if item is None:
            return
        width, height = stdio.size(self._stream)
        if isinstance(item, str) and item and self._region:
            self._out.draw(self._region.frame((), plain_rows(item, width)[1 - height :], width))
        from gptsh.render.terminal import Canvas  # noqa: PLC0415 - 0.15 s that only rendering costs

        canvas = self._canvas = Canvas(self._out, self._look, lambda: stdio.size(self._stream), self._region)
        due, is_stale = 0.0, False
        while item is not None:
            if isinstance(item, str):
                canvas.add(item)
                is_stale = True
            else:
                item()
                is_stale = False
            began = time.monotonic()
            if is_stale and began >= due:
                canvas.draw()
                is_stale, now = False, time.monotonic()
                due = now + max(_FRAME, _SHARE * (now - began))
            try:
                item = self._queue.get(timeout=max(0.0, due - time.monotonic()) if is_stale else None)
            except Empty:
                item = ""  # the next frame is due
