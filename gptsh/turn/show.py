"""Show an answer: its output form, its code block (``-x``), the writer for it, and the spinner while gptsh waits."""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from gptsh.errors import Incomplete
from gptsh.records import NamedTuple
from gptsh.render.writer import PlainWriter, ReasoningStream, Spinner, Writer
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import waiting
from gptsh.terminal.stdio import END_OF_FRAME, STRUCTURED, look

if TYPE_CHECKING:
    from gptsh.context.answer_schema import AnswerSchema
    from gptsh.render.markdown import CodeBlock
    from gptsh.render.painter import Painter


_LAST = "last"  # as a value of --block


class Form(NamedTuple):
    """The form of an answer on stdout: ``output`` is text, markdown, json or jsonl.

    ``block``: only one code block: the first (""), the last ("last"), that of a number, or the first of a language.
    ``schema``: only the JSON that conforms to it. ``streamed``: text is shown as it arrives. ``on_event`` gets the
    events of jsonl instead of stdout.
    """

    output: str
    block: str | None = None
    schema: "AnswerSchema | None" = None
    reasoning: bool = True
    streamed: bool = True
    on_event: Callable[[dict[str, Any]], object] | None = None

    @property
    def is_structured(self) -> bool:
        """Whether the output is for a program: JSON."""
        return self.output in STRUCTURED

    @property
    def is_buffered(self) -> bool:
        """Whether the answer is shown only once it is complete."""
        return self.output == "json" or (self.output != "jsonl" and (self.block is not None or self.schema is not None))

    def select(self, text: str) -> str:
        """The part of an answer that is shown; all of it if it has no such code block."""
        if self.block is None and not self.schema:
            return text
        block = self._find_block(text)
        return block.content if block else text

    def check_block(self, text: str) -> None:
        """Raise Incomplete if the answer's code block has no end, or if it has none of the language that is asked."""
        block = self._find_block(text) if self.block is not None else None
        if block and block.is_cut_off:
            problem = "the answer is incomplete: its code block has no end"
            raise Incomplete(problem, "ask again, or without -x and --block for all of the answer")
        if self.block and not block:
            from gptsh.render.markdown import code_blocks

            languages = ", ".join(dict.fromkeys(other.language or "no language" for other in code_blocks(text)))
            wanted = "code block"
            if self.block != _LAST:
                wanted += f" {self.block}" if self._block_number() else f" of {self.block}"
            raise Incomplete(f"the answer has no {wanted}", f"it has {languages or 'none'}")

    def _find_block(self, text: str) -> "CodeBlock | None":
        from gptsh.render.markdown import code_blocks

        blocks = code_blocks(text)
        if self.block == _LAST:
            blocks = blocks[-1:]
        elif number := self._block_number():
            blocks = blocks[number - 1 :]
        elif self.block:
            blocks = [block for block in blocks if block.language == self.block.lower()]
        return next(iter(blocks), None)

    def _block_number(self) -> int | None:
        """The number of the code block that is asked, from 1; None if it is asked by its language or place."""
        return int(self.block) if self.block and re.fullmatch("[1-9][0-9]{0,8}", self.block) else None


_TEXT = Form("text")


class Screen:
    """Shows answers of one form on stdout, reasoning on stderr, and a spinner while gptsh waits.

    The spinner continues between blocks of Markdown.
    """

    def __init__(self, form: Form = _TEXT) -> None:
        self._form = form
        self._painter: Painter | None = None
        self.is_showing = False  # whether ``showing`` is entered
        self._on_terminal = stdio.is_terminal(stdio.stdout())
        # Not in a pipe: a pager may use the terminal.
        resumes = form.output == "markdown" and not form.is_buffered and self._on_terminal
        self._out = _Sink(stdio.stdout(), self, resumes_spinner=resumes)
        self._err = _Sink(sys.stderr, self, resumes_spinner=resumes)
        self._spinner_sink = stdio.Sink(sys.stderr) if stdio.shows_frames(sys.stderr) else None
        self.spinning("")

    def spinning(self, text: str) -> Spinner:
        """Set and return the spinner for one wait; it turns inside its ``with`` block."""
        self.spinner = Spinner(self._spinner_sink, lambda: stdio.width(sys.stderr), text)
        return self.spinner

    @cached_property
    def writer(self) -> Writer:
        """The writer of the answer, created on first use."""
        form, out = self._form, self._out
        err_on_terminal = stdio.is_terminal(sys.stderr)
        reasoning = ReasoningStream(
            self._err if form.reasoning and form.output != "jsonl" else None,
            dimmed=err_on_terminal and look(os.environ, terminal=True).styles,
            shared=self._on_terminal and err_on_terminal and not form.is_buffered,
        )
        if form.is_buffered or form.is_structured:
            from gptsh.render import structured

            if form.on_event:
                return structured.EventListener(out, reasoning, form.on_event)
            if form.is_buffered:
                return structured.BufferedWriter(out, reasoning)
            return structured.EventWriter(out, reasoning, shows_reasoning=form.reasoning)
        if form.output != "markdown":
            return PlainWriter(out, reasoning, streamed=form.streamed)
        from gptsh.render.painter import Painter

        painter = Painter(out, reasoning, look(os.environ, terminal=self._on_terminal), stdio.stdout())
        if not painter.is_running:
            return PlainWriter(out, reasoning, streamed=form.streamed)
        self._painter = painter
        return painter

    def exclusive(self, before_kill: list[Callable[[], object]]) -> contextlib.AbstractContextManager[None]:
        """Reserve the terminal for the answers of a turn, if they are drawn as Markdown. See ``Painter.exclusive``."""
        return self._painter.exclusive(before_kill) if self.writer is self._painter else contextlib.nullcontext()

    @contextlib.contextmanager
    def showing(self) -> Iterator[None]:
        """In this block a wait for a slow reader may be interrupted, even inside a shield."""
        self.is_showing = True
        try:
            yield
        finally:
            self.is_showing = False

    def finish(self) -> None:
        """Write the rest of the answer. Raises OSError if its reader does not accept it."""
        if self._painter:
            self._painter.close()
        self._out.finish()

    @property
    def is_written(self) -> bool:
        """Whether everything passed to stdout has been written."""
        return self._out.is_written

    def limit_waiting(self) -> None:
        """Wait no longer than a moment for slow readers, from now on."""
        if self._painter:
            self._painter.limit_waiting()
        self._out.limit_waiting()
        self._err.limit_waiting()


class _Sink(stdio.Sink):
    """A sink that hides the spinner; with ``resumes_spinner`` a finished line shows it again."""

    def __init__(self, stream: TextIO | None, screen: Screen, *, resumes_spinner: bool) -> None:
        super().__init__(stream)
        self._screen, self._resumes_spinner = screen, resumes_spinner

    def draw(self, text: str) -> None:
        """Write text as it is, escape sequences included. Raises OSError as the stream does."""
        self._screen.spinner.hide()
        super().draw(text)
        if self._resumes_spinner and text.endswith(("\n", f"\n{END_OF_FRAME}")):
            self._screen.spinner.show()

    def is_writable(self, wait: float | None) -> bool:
        """Whether a short text can be written within ``wait`` seconds (None: no limit)."""
        with waiting() if self._screen.is_showing else contextlib.nullcontext():
            return super().is_writable(wait)
