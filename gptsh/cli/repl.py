"""``-i``: a prompt at which each line is a command, or a turn that is asked as a run of its own would ask it."""

import sys
from collections.abc import Callable, Mapping

from gptsh.cli import stdio
from gptsh.cli.opening import session_ref
from gptsh.cli.options import Flags
from gptsh.cli.prompt.editor import Editor, editor_for
from gptsh.cli.prompt.plain_editor import PlainEditor
from gptsh.cli.prompt.tty import without_carets
from gptsh.cli.recap import show_recap
from gptsh.cli.reporter import Reporter, in_words
from gptsh.cli.signals import Ended, Endings
from gptsh.cli.slash.commands import carry_out, is_command
from gptsh.cli.talk import Talk
from gptsh.core.forms import STRUCTURED
from gptsh.core.messages import Message
from gptsh.errors import GptshError, UsageError


def repl(flags: Flags, environ: Mapping[str, str], reporter: Reporter) -> int:
    """Ask line by line until the user leaves; the exit code: 1 where something could not be kept.

    Raises GptshError for what is wrong before the first line, Ended for a signal that ends the process.
    """
    check_reader(flags)
    talk = Talk(flags, environ, reporter)
    with Endings(None, stays=True) as endings:
        talk.go_to(session_ref(flags, talk.settings))
        if talk.agent().model is None:
            from gptsh.cli.prepare import no_model  # noqa: PLC0415 - the prompt does without

            raise no_model(talk.desk.client)
        editor = editor_for(talk, endings)
        first = _first_question(flags, talk)
        with endings.held(), without_carets():
            return _Loop(talk, editor, endings, reporter).carry_out(first, flags)


def _first_question(flags: Flags, talk: Talk) -> Message | None:
    """What the command line and a pipe ask; None where nobody has asked anything yet."""
    if not (flags.prompt or flags.file) and stdio.is_terminal(sys.stdin):
        return None
    from gptsh.cli.question import read_question  # noqa: PLC0415 - as above

    return read_question(flags, talk.settings)


def check_reader(flags: Flags) -> None:
    """Raise UsageError where no person reads the answers."""
    if flags.output in STRUCTURED:
        raise UsageError(f"-o {flags.output} is for programs, and -i for a person", "leave one of them out")
    if not stdio.is_terminal(stdio.answers_to()):
        raise UsageError("-i answers on a terminal, and standard output is none", "leave out -i to ask once")


class _Loop:
    """Read and do, line by line. A failure or Ctrl-C ends what is done, and the prompt comes back."""

    def __init__(self, talk: Talk, editor: Editor | PlainEditor, endings: Endings, reporter: Reporter) -> None:
        self._talk, self._editor, self._endings, self._reporter = talk, editor, endings, reporter
        self._has_said = talk.doc is not None  # whether something stands above the next line

    def carry_out(self, first: Message | None, flags: Flags) -> int:
        """All of it; the exit code. Raises Ended for a signal that is not Ctrl-C, once all is told."""
        talk, ended = self._talk, None
        try:
            show_recap(talk)
            if first is not None:
                self._tried(lambda: talk.turn(first, flags))
            while not talk.over:
                self._do_line()
        except Ended as err:
            ended = err
        code = talk.leave(self._endings)
        if talk.ref:
            stdio.note(f"the session is kept: 'gptsh -i -s {talk.ref}' goes on with it")
        if ended:
            raise ended
        return code

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
        elif line.strip():
            self._tried(lambda: talk.ask(line.strip()))

    def _tried(self, do: Callable[[], object]) -> None:
        """Do it; what keeps it from being done is told. Raises Ended for a signal that is not Ctrl-C."""
        self._has_said = True
        try:
            with self._endings.released():
                do()
        except GptshError as err:
            self._reporter.fail(err)
        except Ended as ended:
            if ended.by_deadline:
                self._reporter.fail(in_words(ended))
            elif ended.by_user:
                stdio.note(f"interrupted{': ' if ended.hint else ''}{ended.hint}")
            else:
                raise
        except BrokenPipeError:  # of a pager
            return
        except MemoryError:
            self._reporter.fail(UsageError("the input is too large for this machine's memory"))
