"""Show the answers of a turn as they arrive, and at its end what of them is not shown yet."""

import sys
from collections.abc import Callable, Iterator, Mapping

from gptsh.messages import Event, Reasoning, Refusal, Retrying, Text, ToolCall
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, Interrupts
from gptsh.turn.show import Form, Screen


class AnswerDisplay:
    """Shows the answers of one turn on its screen, in one form."""

    def __init__(self, screen: Screen, form: Form, interrupts: Interrupts) -> None:
        self.screen, self.writer = screen, screen.writer
        self._form, self._interrupts = form, interrupts
        self._has_shown_text = False  # in an earlier request of the turn
        self._shown_chars = 0  # of the current answer
        self._unshown_text = ""  # of the current answer

    def show(self, events: Iterator[Event], answer_begins: Callable[[], None]) -> None:
        """Write an answer as it arrives, each event whole or not at all. Raises what ends the answer early.

        ``answer_begins`` is called before each part of it is shown.
        """
        self._shown_chars = 0
        for event in events:
            if isinstance(event, Retrying):
                self.screen.spinner.set_text(f"{event.why}; again in {event.seconds:.1f} s")
            elif isinstance(event, (Text, Reasoning, Refusal, ToolCall)):
                self.screen.spinner.set_text("receiving the answer")
                answer_begins()
            with self._interrupts.shielded(), self.screen.showing():
                if isinstance(event, (Text, Refusal)):
                    self._separate_from_previous_round()
                    self._shown_chars += len(event.text)
                self.writer.write(event)
        self._has_shown_text = self._has_shown_text or self._shown_chars > 0

    def _separate_from_previous_round(self) -> None:
        """Write a line break before the first text of an answer, if the turn has shown text of an earlier one."""
        is_plain = not (self._form.is_buffered or self._form.is_structured)
        if self._has_shown_text and not self._shown_chars and is_plain:
            self.writer.write(Text("\n"))

    def remember_rest(self, text: str) -> None:
        """Remember what of an answer's text arrived as a signal came: it is shown at the end."""
        self._unshown_text = text[self._shown_chars :]

    def close_answer(self) -> None:
        """Write what the writer still keeps of a complete answer."""
        with self._interrupts.shielded(), self.screen.showing():
            self.writer.close()

    def deliver(self, text: str, sources: Mapping[str, str | None], *, has_failed: bool) -> None:
        """Show the rest of the answer, or all of a buffered one; after a failure a buffered one goes to stderr."""
        if self._unshown_text:
            self.writer.write(Text(self._unshown_text))
        self.writer.close()
        if self._form.is_structured or not self._form.is_buffered:
            self.screen.finish()
        elif text and has_failed:
            stdio.write_stderr(text if text.endswith("\n") else f"{text}\n")
        elif selected := self._form.select(text):
            self.writer.deliver(selected)
        if sources and not self._form.is_structured and stdio.is_terminal(sys.stderr):
            from gptsh.render.lists import source_lines

            stdio.write_stderr("\n" + "".join(f"{line}\n" for line in source_lines(sources)))

    def write_safely(self, write: Callable[[], None], failure: BaseException | None) -> BaseException | None:
        """Write something; return the first failure. After a signal a slow reader is no longer waited for."""
        try:
            with self._interrupts.waiting():
                write()
        except Interrupted as err:
            self.screen.limit_waiting()
            return self.write_safely(self.screen.finish, failure or err)
        except OSError as err:
            return failure or err
        return failure
