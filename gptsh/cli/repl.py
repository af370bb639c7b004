"""``-i``: a prompt at which each line is a command, or a turn that is asked as a run of its own would ask it."""

import sys
from collections.abc import Callable, Mapping

from gptsh.cli import stdio
from gptsh.cli.ask import check_snapshot, read_question, seconds_of
from gptsh.cli.interrupts import Interrupted, Interrupts
from gptsh.cli.options import Flags
from gptsh.cli.prompt.editor import Editor, editor_for
from gptsh.cli.prompt.plain_editor import PlainEditor
from gptsh.cli.prompt.tty import without_carets
from gptsh.cli.recap import show_recap
from gptsh.cli.reporter import Reporter, in_words
from gptsh.cli.slash.commands import carry_out, is_command, slip
from gptsh.cli.talk import Talk, check_reader
from gptsh.errors import GptshError, UsageError
from gptsh.messages import Message, parts_of


def repl(flags: Flags, environ: Mapping[str, str], reporter: Reporter) -> int:
    """Ask line by line until the user leaves; the exit code: 1 where something could not be kept.

    Raises GptshError for what is wrong before the first line, Interrupted for a signal that ends the process.
    """
    check_reader(flags)
    reporter.output = "text"  # whatever is configured for programs
    talk = Talk(flags, environ, reporter)
    if flags.snapshot is not None:
        check_snapshot(flags, talk.settings)
    seconds_of(flags, talk.settings)
    with Interrupts(None, stays=True) as interrupts:
        talk.begin()
        if flags.snapshot is not None:
            from gptsh.core.snapshots import check_position  # noqa: PLC0415 - few conversations begin with one

            check_position(talk.doc["messages"] if talk.doc else ())
        if talk.agent().model is None:
            from gptsh.cli.plan import no_model  # noqa: PLC0415 - the prompt does without

            raise no_model(talk.app.client)
        if flags.labels and talk.saves and talk.ref:  # whether anything is asked or not
            from gptsh.cli.manage import label  # noqa: PLC0415 - as with check_position

            label(talk.ref, flags, talk.settings.context.snapshots)
            talk.flags = talk.flags.without_labels
            talk.refresh()
        editor = editor_for(talk, interrupts)
        first = _first_question(flags, talk)
        with interrupts.shielded(), without_carets():
            return _Loop(talk, editor, interrupts, reporter).carry_out(first)


def _first_question(flags: Flags, talk: Talk) -> Message | None:
    """What the command line and a pipe ask; None where nobody has asked anything yet."""
    if not (flags.prompt or flags.file) and stdio.is_terminal(sys.stdin):
        return None
    return read_question(flags, talk.settings)


class _Loop:
    """Read and do, line by line. A failure or Ctrl-C ends what is done, and the prompt comes back."""

    def __init__(self, talk: Talk, editor: Editor | PlainEditor, interrupts: Interrupts, reporter: Reporter) -> None:
        self._talk, self._editor, self._interrupts, self._reporter = talk, editor, interrupts, reporter
        self._code = 0
        self._has_said = talk.doc is not None  # whether something stands above the next line

    def carry_out(self, first: Message | None) -> int:
        """All of it; the exit code. Raises Interrupted for a signal that is not Ctrl-C, once all is told."""
        ended = None
        try:
            self._go_on(first)
        except Interrupted as err:
            ended = err
        finally:
            code = self._talk.leave(self._interrupts) or self._code
        if ref := self._talk.ref:
            stdio.note(f"the session is kept: 'gptsh -i -s {ref}' goes on with it")
        if ended:
            raise ended
        return code

    def _go_on(self, first: Message | None) -> None:
        """From what is asked first to the end. Raises Interrupted as ``carry_out``."""
        talk = self._talk
        show_recap(talk)
        if first is not None:
            self._ask_first(first)
        while not talk.over:
            self._do_line()

    def _ask_first(self, first: Message) -> None:
        """What the command line asks. Where nothing comes of it, its words stand in the first line.

        What was piped cannot be typed again: then it ends as a run that asks once.
        """
        talk = self._talk
        talk.suggested = " ".join(talk.flags.prompt)
        failure = self._tried(lambda: talk.turn(first, talk.flags))
        if failure and not talk.turns and any(part.get("source") == "stdin" for part in parts_of(first)):
            talk.over, self._code = True, failure.exit_code

    def _do_line(self) -> None:
        talk = self._talk
        if self._has_said:
            stdio.write_lines([""])
        self._has_said = False
        try:
            line = self._editor.read(talk.suggested)
        except EOFError:
            talk.over = True
            return
        talk.suggested = ""
        if is_command(line):
            self._tried(lambda: carry_out(talk, line))
        elif said := slip(line):
            self._has_said = True
            stdio.note(said)
        elif line.strip():
            self._tried(lambda: talk.ask(line.rstrip("\n")))

    def _tried(self, do: Callable[[], object]) -> GptshError | None:
        """Do it; what keeps it from being done is told. Raises Interrupted for a signal that is not Ctrl-C."""
        self._has_said = True
        try:
            with self._interrupts.waiting():
                do()
        except GptshError as err:
            return self._failed(err)
        except Interrupted as ended:
            if ended.by_deadline:
                return self._failed(in_words(ended))
            if not ended.by_user:
                raise
            stdio.note(f"interrupted{': ' if ended.hint else ''}{ended.hint}")
        except BrokenPipeError:  # of a pager
            return None
        except MemoryError:
            return self._failed(UsageError("the input is too large for this machine's memory"))
        return None

    def _failed(self, err: GptshError) -> GptshError:
        self._reporter.fail(err)
        return err
