"""How an answer reaches its reader: in which form, by which writer, how decorated, and the spinner beside it."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TextIO

from gptsh.cli import stdio
from gptsh.cli.interrupts import waiting
from gptsh.config.forms import STRUCTURED
from gptsh.render.plain import END_OF_FRAME, PlainWriter, ReasoningStream, Writer, look
from gptsh.render.spinner import Spinner

if TYPE_CHECKING:
    from gptsh.cli.painter import Painter
    from gptsh.context.answer_schema import AnswerSchema


class Form(NamedTuple):
    """What reaches stdout of an answer: ``output`` is text, markdown, json or jsonl.

    With ``extract`` its first fenced block alone, with ``shape`` the JSON that conforms to it.
    """

    output: str
    extract: bool = False
    shape: "AnswerSchema | None" = None
    reasoning: bool = True

    @property
    def structured(self) -> bool:
        """Whether a program reads it."""
        return self.output in STRUCTURED

    @property
    def is_buffered(self) -> bool:
        """Whether nothing is shown of an answer that is not whole."""
        return self.output == "json" or (self.output != "jsonl" and (self.extract or self.shape is not None))

    def select(self, text: str) -> str:
        """What it takes of an answer."""
        if not (self.extract or self.shape):
            return text
        from gptsh.render.markdown import code_blocks  # noqa: PLC0415 - most answers are taken whole

        return next(iter(code_blocks(text)), text)


_TEXT = Form("text")


class Screen:
    """The streams that answers of a form are shown on, and the spinner that turns there while something is waited for.

    ``writer`` shows an answer, its reasoning on stderr. Between blocks of Markdown the spinner goes on.
    """

    def __init__(self, form: Form = _TEXT) -> None:
        self._form = form
        self._painter: Painter | None = None
        self.is_showing = False
        self._person = stdio.is_terminal(stdio.stdout())
        # In a pipe the terminal may be that of a pager.
        again = form.output == "markdown" and not form.is_buffered and self._person
        self._out, self._err = _Sink(stdio.stdout(), self, again=again), _Sink(sys.stderr, self, again=again)
        self._frames = stdio.Sink(sys.stderr) if stdio.shows_frames(sys.stderr) else None
        self.spinner = self.spinning("")

    def spinning(self, text: str) -> Spinner:
        """The spinner of one wait, which turns for as long as it is entered."""
        self.spinner = Spinner(self._frames, lambda: stdio.width(sys.stderr), text)
        return self.spinner

    @cached_property
    def writer(self) -> Writer:
        """What shows the answer; made when it is wanted first."""
        form, out = self._form, self._out
        beside = stdio.is_terminal(sys.stderr)
        aside = ReasoningStream(
            self._err if form.reasoning and form.output != "jsonl" else None,
            dimmed=beside and look(os.environ, terminal=True).styles,
            shared=self._person and beside and not form.is_buffered,
        )
        if form.is_buffered or form.structured:
            from gptsh.render.structured import BufferedWriter, EventWriter  # noqa: PLC0415 - most answers need neither

            return (
                BufferedWriter(out, aside)
                if form.is_buffered
                else EventWriter(out, aside, shows_reasoning=form.reasoning)
            )
        if form.output != "markdown":
            return PlainWriter(out, aside)
        from gptsh.cli.painter import Painter  # noqa: PLC0415 - a pipe has none

        self._painter = Painter(out, aside, look(os.environ, terminal=self._person), stdio.stdout())
        return self._painter

    def exclusive(self, before_kill: list[Callable[[], object]]) -> contextlib.AbstractContextManager[None]:
        """The stretch of a turn. Where its answers are drawn again, they have the terminal for themselves."""
        return self._painter.exclusive(before_kill) if self.writer is self._painter else contextlib.nullcontext()

    @contextlib.contextmanager
    def showing(self) -> Iterator[None]:
        """A stretch within a shield in which something is shown: the waiting for its reader may be interrupted."""
        self.is_showing = True
        try:
            yield
        finally:
            self.is_showing = False

    def finish(self) -> None:
        """Write the rest of what was begun of the answer. Raises OSError where its reader does not take it."""
        if self._painter:
            self._painter.close()
        self._out.finish()

    @property
    def finished(self) -> bool:
        """Whether nothing of what was begun of the answer is left."""
        return self._out.finished

    def limit_waiting(self) -> None:
        """No reader is waited for any more."""
        self._out.limit_waiting()
        self._err.limit_waiting()


class _Sink(stdio.Sink):
    """Hides the spinner while it writes; with ``again`` until the line that it writes has ended."""

    def __init__(self, stream: TextIO | None, screen: Screen, *, again: bool) -> None:
        super().__init__(stream)
        self._screen, self._again = screen, again

    def draw(self, text: str) -> None:
        """Write text that is safe for a terminal, its escape sequences included. Raises OSError as the stream does."""
        self._screen.spinner.hide()
        super().draw(text)
        if self._again and text.endswith(("\n", f"\n{END_OF_FRAME}")):
            self._screen.spinner.show()

    def is_writable(self, wait: float | None) -> bool:
        """Whether a short text can be written without waiting longer than ``wait`` seconds (None: for ever)."""
        with waiting() if self._screen.is_showing else contextlib.nullcontext():
            return super().is_writable(wait)
