"""Show the answer on stdout, and reasoning, tool calls and the spinner on stderr."""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TextIO

from gptsh.content.answer import Answer
from gptsh.errors import Incomplete
from gptsh.jsonio import JsonObject
from gptsh.messages import Event, Reasoning, Refusal, Retrying, Text, ToolCall
from gptsh.render.writer import PlainWriter, ReasoningStream, Spinner, Writer
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, shielded, waiting
from gptsh.terminal.stdio import END_OF_FRAME, STRUCTURED, terminal_style

if TYPE_CHECKING:
    from gptsh.context.answer_schema import AnswerSchema
    from gptsh.render.markdown import CodeBlock
    from gptsh.render.painter import Painter


_LAST = "last"  # as a value of --block
_NUMBER = "[1-9][0-9]{0,8}"
_ONLY_CODE = re.compile(r"\s*(?P<marks>`++)(?P<code>(?:(?!(?P=marks))[^\n])+)(?P=marks)\s*")


class Output(NamedTuple):
    """How an answer is shown on stdout: ``form`` is text, markdown, json or jsonl.

    ``block``: only one code block: the first (""), the last ("last"), that of a number, or the
    first of a language. ``schema``: only the JSON that conforms to it. ``streamed``: text is shown
    as it arrives. ``on_event`` gets the events of jsonl instead of stdout.
    """

    form: str
    block: str | None = None
    schema: "AnswerSchema | None" = None
    reasoning: bool = True
    streamed: bool = True
    on_event: Callable[[JsonObject], object] | None = None

    @property
    def is_structured(self) -> bool:
        """Whether the output is for a program: JSON."""
        return self.form in STRUCTURED

    @property
    def is_buffered(self) -> bool:
        """Whether the answer is shown only once it is complete."""
        if self.form in STRUCTURED:
            return self.form == "json"
        return self.block is not None or self.schema is not None

    def select(self, text: str) -> str:
        """Return the part of an answer that is shown; all of it if it has no such code block.

        All of it may be code between backticks.
        """
        if self.block is None and not self.schema:
            return text
        block, _ = self._find_block(text)
        if block:
            return block.content
        if self.block == "":  # the first one: an answer of one line may be code without a fence
            code = _ONLY_CODE.fullmatch(text)
            if code and code["code"].strip():
                return code["code"].strip()
        return text

    def check_block(self, text: str) -> None:
        """Raise Incomplete if the code block has no end, or if there is none as asked."""
        if self.block is None:
            return
        block, languages = self._find_block(text)
        if block and block.is_cut_off:
            raise Incomplete(
                "the answer is incomplete: its code block has no end",
                "ask again, or leave out -x and --block to see the whole answer",
            )
        if self.block and not block:
            wanted = f"{self.block} code block"
            if self.block == _LAST:
                wanted = "code block"
            elif re.fullmatch(_NUMBER, self.block):
                wanted = f"code block {self.block}"
            present = ", ".join(languages) or "none"
            raise Incomplete(f"no {wanted} in the answer", f"it has {present}")

    def _find_block(self, text: str) -> "tuple[CodeBlock | None, list[str]]":
        """Return the code block that is asked for, and the languages of all blocks, each once."""
        from gptsh.render.markdown import code_blocks

        blocks = code_blocks(text)
        languages = dict.fromkeys(block.language or "no language" for block in blocks)
        if self.block == _LAST:
            blocks = blocks[-1:]
        elif self.block and re.fullmatch(_NUMBER, self.block):
            blocks = blocks[int(self.block) - 1 :]
        elif self.block:
            blocks = [block for block in blocks if block.language == self.block.lower()]
        first = blocks[0] if blocks else None
        return first, [*languages]


_TEXT = Output("text")


class Screen:
    """Shows the answers of a turn on stdout, reasoning on stderr, and a spinner while gptsh waits.

    The spinner continues between blocks of Markdown. Each event is written whole or not at all.
    """

    def __init__(self, output: Output = _TEXT) -> None:
        self._output = output
        self._painter: Painter | None = None
        self._on_terminal = stdio.is_terminal(stdio.stdout())
        # Not in a pipe: a pager may use the terminal.
        resumes = output.form == "markdown" and not output.is_buffered and self._on_terminal
        self._out = _Sink(stdio.stdout(), self, resumes_spinner=resumes)
        self._err = _Sink(sys.stderr, self, resumes_spinner=resumes)
        self.is_showing = False  # a wait for a slow reader may be interrupted, even inside a shield
        self._answer: Answer | None = None  # the current one
        self._shown_chars = 0  # of it
        self._has_shown_text = False  # of an earlier one
        self.spinner = Spinner("")

    def spinning(self, text: str) -> Spinner:
        """Set and return the spinner for one wait; it turns inside its ``with`` block."""
        self.spinner = Spinner(text)
        return self.spinner

    @cached_property
    def writer(self) -> Writer:
        """What writes the answer as the output wants it, created on first use."""
        output = self._output
        out = self._out
        err_on_terminal = stdio.is_terminal(sys.stderr)
        shows_reasoning = output.reasoning and output.form != "jsonl"
        reasoning = ReasoningStream(
            self._err if shows_reasoning else None,
            dimmed=err_on_terminal and terminal_style(os.environ, terminal=True).styles,
            shared=self._on_terminal and err_on_terminal and not output.is_buffered,
        )
        if output.is_buffered or output.is_structured:
            from gptsh.render import structured

            if output.on_event:
                return structured.EventListener(out, reasoning, output.on_event)
            if output.is_buffered:
                return structured.BufferedWriter(out, reasoning)
            return structured.EventWriter(out, reasoning, shows_reasoning=output.reasoning)
        if output.form == "markdown":
            from gptsh.render.painter import Painter

            style = terminal_style(os.environ, terminal=self._on_terminal)
            painter = Painter(out, reasoning, style, stdio.stdout())
            if painter.is_running:
                self._painter = painter
                return painter
        return PlainWriter(out, reasoning, streamed=output.streamed)

    def exclusive(self, before_kill: list[Callable[[], object]]) -> AbstractContextManager[None]:
        """Reserve the terminal for the answers of a turn, if they are drawn as Markdown.

        See ``Painter.exclusive``.
        """
        if self.writer is not self._painter:
            return contextlib.nullcontext()
        return self._painter.exclusive(before_kill)

    # ---- while an answer arrives

    def show(
        self,
        events: Iterator[Event],
        answer: Answer,
        begin_title: Callable[[], None],
    ) -> None:
        """Write an answer as it arrives. Raises what ends the answer early.

        ``begin_title`` is called before each part of it is shown.
        """
        self._answer = answer
        self._shown_chars = 0
        is_plain = not (self._output.is_buffered or self._output.is_structured)
        for event in events:
            if isinstance(event, Retrying):
                self.spinner.set_text(f"{event.why}; again in {event.seconds:.1f} s")
            elif isinstance(event, (Text, Reasoning, Refusal, ToolCall)):
                self.spinner.set_text("receiving the answer")
                begin_title()
            with self._showing():
                if isinstance(event, (Text, Refusal)):
                    if is_plain and self._has_shown_text and not self._shown_chars:
                        self.writer.write(Text("\n"))  # after the text of an earlier round
                    self._shown_chars += len(event.text)
                self.writer.write(event)
        if self._shown_chars:
            self._has_shown_text = True

    @contextlib.contextmanager
    def _showing(self) -> Iterator[None]:
        """Shield the block from interrupts, except while it waits for a slow reader."""
        with shielded():
            self.is_showing = True
            try:
                yield
            finally:
                self.is_showing = False

    def close_answer(self) -> None:
        """Write what the writer still keeps of a complete answer."""
        with self._showing():
            self.writer.close()

    # ---- at the end of the turn

    def deliver(self, text: str, sources: Mapping[str, str | None], *, has_failed: bool) -> None:
        """Show the rest of the answer, or all of a buffered one.

        After a failure, a buffered answer is written to stderr.
        """
        output = self._output
        rest = self._answer.text[self._shown_chars :] if self._answer else ""
        if rest:  # it arrived as a signal came
            self.writer.write(Text(rest))
        self.writer.close()
        if output.is_structured or not output.is_buffered:
            self.finish()
        elif text and has_failed:
            stdio.write_stderr(text if text.endswith("\n") else f"{text}\n")
        else:
            selected = output.select(text)
            if selected:
                self.writer.deliver(selected)
        if sources and not output.is_structured and stdio.is_terminal(sys.stderr):
            from gptsh.render.lists import source_lines

            lines = ["", *source_lines(sources)]
            stdio.write_stderr("".join(f"{line}\n" for line in lines))

    def write_safely(self, write: Callable[[], None]) -> Interrupted | OSError | None:
        """Write something; return the signal or error that has ended that, if one has.

        After a signal the rest is still written, but a slow reader is no longer waited for.
        """
        try:
            with waiting():
                write()
        except Interrupted as interrupted:
            self.limit_waiting()
            self.write_safely(self.finish)
            return interrupted
        except OSError as err:
            return err
        return None

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
        self._screen = screen
        self._resumes_spinner = resumes_spinner

    def draw(self, text: str) -> None:
        """Write text as it is, escape sequences included. Raises OSError as the stream does."""
        self._screen.spinner.hide()
        super().draw(text)
        if self._resumes_spinner and text.endswith(("\n", f"\n{END_OF_FRAME}")):
            self._screen.spinner.show()

    def is_writable(self, wait: float | None) -> bool:
        """Return whether a short text can be written within ``wait`` seconds (None: no limit)."""
        with waiting() if self._screen.is_showing else contextlib.nullcontext():
            return super().is_writable(wait)
