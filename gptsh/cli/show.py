"""How an answer reaches its reader: in which form, by which writer, how decorated, and the spinner beside it."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import NamedTuple

from gptsh.cli import stdio
from gptsh.config.forms import STRUCTURED
from gptsh.context.answer_schema import Shape
from gptsh.messages import Event
from gptsh.render.plain import Aside, PlainWriter, Sink, Writer, look
from gptsh.render.spinner import Spinner


class Form(NamedTuple):
    """What reaches stdout of an answer: ``output`` is text, markdown, json or jsonl.

    With ``extract`` its first fenced block alone, with ``shape`` the JSON that conforms to it.
    """

    output: str
    extract: bool = False
    shape: Shape | None = None
    reasoning: bool = True

    @property
    def structured(self) -> bool:
        """Whether a program reads it."""
        return self.output in STRUCTURED

    @property
    def held(self) -> bool:
        """Whether nothing is shown of an answer that is not whole."""
        return self.output == "json" or (self.output != "jsonl" and (self.extract or self.shape is not None))

    def of(self, text: str) -> str:
        """What it takes of an answer."""
        if not (self.extract or self.shape):
            return text
        from gptsh.render.fences import first_block  # noqa: PLC0415 - most answers are taken whole

        block = first_block(text)
        return text if block is None else block


class Screen:
    """The streams that an answer is shown on, and the spinner that turns there while something is waited for."""

    def __init__(self) -> None:
        self._out = stdio.Sink(stdio.answers_to(), interruptible=True)
        self._err = stdio.Sink(sys.stderr, interruptible=True)
        self._seen = self._err if stdio.shows_frames(sys.stderr) else None
        self.spinner = self.turning("")

    def turning(self, text: str) -> Spinner:
        """The spinner of one wait, which turns for as long as it is entered."""
        self.spinner = Spinner(self._seen, lambda: stdio.width(sys.stderr), text, patience=stdio.PATIENCE)
        return self.spinner

    def writer(self, form: Form) -> Writer:
        """The writer of an answer, its reasoning to stderr. Between blocks of Markdown the spinner goes on."""
        person = stdio.is_terminal(stdio.answers_to())
        markdown = form.output == "markdown" and not form.held
        again = markdown and person  # in a pipe the terminal may be that of a pager
        dimmed = stdio.is_terminal(sys.stderr) and look(os.environ, terminal=True).styles
        err = _Beside(self._err, self, again=again) if form.reasoning and form.output != "jsonl" else None
        aside = Aside(err, dimmed=dimmed, shared=person and stdio.is_terminal(sys.stderr) and not form.held)
        out = _Beside(self._out, self, again=again)
        if form.held or form.structured:
            return _for_programs(out, aside, form)
        if not markdown:
            return PlainWriter(out, aside)

        def make() -> Writer:
            from gptsh.render.terminal import TerminalWriter  # noqa: PLC0415 - 0.15 s that only rendering costs

            how = look(os.environ, terminal=person)
            return TerminalWriter(out, aside, how, lambda: stdio.width(stdio.answers_to()))

        return _Late(out, aside, make)

    def ready(self) -> None:
        """Wait for the reader of the answer. Raises OSError where it is gone."""
        self._out.ready()

    def finish(self) -> None:
        """Write the rest of what was begun of the answer. Raises OSError where its reader does not take it."""
        self._out.finish()

    @property
    def finished(self) -> bool:
        """Whether nothing of what was begun of the answer is left."""
        return self._out.finished

    def lose_patience(self) -> None:
        """No reader is waited for any more."""
        self._out.lose_patience()
        self._err.lose_patience()


def _for_programs(out: Sink, aside: Aside, form: Form) -> Writer:
    from gptsh.render.structured import EventWriter, HeldWriter  # noqa: PLC0415 - a person's answer needs neither

    return HeldWriter(out, aside) if form.held else EventWriter(out, aside, reasoning=form.reasoning)


class _Beside:
    """A sink that hides the spinner while it writes; ``again``: until the line that it writes has ended."""

    def __init__(self, sink: Sink, screen: Screen, *, again: bool) -> None:
        self._sink, self._screen, self._again = sink, screen, again

    def ready(self) -> None:
        self._screen.spinner.hide()
        self._sink.ready()

    def write(self, text: str) -> None:
        self._around(self._sink.write, text)

    def draw(self, text: str) -> None:
        self._around(self._sink.draw, text)

    def _around(self, put: Callable[[str], None], text: str) -> None:
        self._screen.spinner.hide()
        put(text)
        if self._again and text.endswith("\n"):
            self._screen.spinner.show()


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
