"""How an answer reaches its reader: which writer, how decorated, and the spinner beside it."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable

from gptsh.cli import stdio
from gptsh.core.messages import Event
from gptsh.render.look import look
from gptsh.render.plain import Aside, PlainWriter, Sink, Writer
from gptsh.render.spinner import Spinner


class Screen:
    """The streams that an answer is shown on, and the spinner that turns there until it comes.

    ``waiting``: what is entered for as long as a reader may let a write wait.
    """

    def __init__(self, text: str, waiting: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        self._out, self._err = stdio.Sink(stdio.answers_to(), waiting), stdio.Sink(sys.stderr, waiting)
        seen = self._err if stdio.shows_frames(sys.stderr) else None
        self.spinner = Spinner(seen, lambda: stdio.width(sys.stderr), text, patience=stdio.PATIENCE)

    def writer(self, *, markdown: bool, reasoning: bool) -> Writer:
        """The writer of an answer, its reasoning to stderr. Between blocks of Markdown the spinner goes on."""
        person = stdio.is_terminal(stdio.answers_to())
        again = markdown and person  # in a pipe the terminal may be that of a pager
        dimmed = stdio.is_terminal(sys.stderr) and look(os.environ, terminal=True).styles
        err = _Beside(self._err, self.spinner, again=again) if reasoning else None
        aside = Aside(err, dimmed=dimmed, shared=person and stdio.is_terminal(sys.stderr))
        out = _Beside(self._out, self.spinner, again=again)
        if not markdown:
            return PlainWriter(out, aside)

        def make() -> Writer:
            from gptsh.render.terminal import TerminalWriter  # noqa: PLC0415 - 0.15 s that only rendering costs

            how = look(os.environ, terminal=person)
            return TerminalWriter(out, aside, how, lambda: stdio.width(stdio.answers_to()))

        return _Late(out, aside, make)

    def lose_patience(self) -> None:
        """No reader is waited for any more."""
        self._out.lose_patience()
        self._err.lose_patience()


class _Beside:
    """A sink that hides the spinner while it writes; ``again``: until the line that it writes has ended."""

    def __init__(self, sink: Sink, turning: Spinner, *, again: bool) -> None:
        self._sink, self._spinner, self._again = sink, turning, again

    def ready(self) -> None:
        self._spinner.hide()
        self._sink.ready()

    def write(self, text: str) -> None:
        self._around(self._sink.write, text)

    def draw(self, text: str) -> None:
        self._around(self._sink.draw, text)

    def _around(self, put: Callable[[str], None], text: str) -> None:
        self._spinner.hide()
        put(text)
        if self._again and text.endswith("\n"):
            self._spinner.show()


class _Late(Writer):
    """A writer that is made when the first event comes; what it needs is imported beside the waiting."""

    def __init__(self, out: Sink, aside: Aside, make: Callable[[], Writer]) -> None:
        super().__init__(out, aside)
        self._make = make
        self._writer: Writer | None = None
        threading.Thread(target=_import, daemon=True).start()

    def write(self, event: Event) -> None:
        if self._writer is None:
            self._writer = self._make()
        self._writer.write(event)

    def close(self) -> None:
        if self._writer:
            self._writer.close()


def _import() -> None:
    with contextlib.suppress(ImportError):  # who needs it will tell
        import gptsh.render.terminal  # noqa: F401, PLC0415 - for ``make`` above, beside the waiting
