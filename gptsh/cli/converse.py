"""Start a conversation (``-i``), or let the user pick its session first (``-r``)."""

import sys
from collections.abc import Mapping

from gptsh.chat.conversation import Conversation, NextQuestion
from gptsh.cli.jobs import check_labels, question_sources, session_ref, turn_options
from gptsh.cli.options import NOT_INTERACTIVE, Flags
from gptsh.config import settings
from gptsh.errors import UsageError
from gptsh.render.report import Reporter
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupts
from gptsh.terminal.stdio import STRUCTURED
from gptsh.turn.attached_files import Files
from gptsh.turn.question import make_question, read_input


def converse(flags: Flags, environ: Mapping[str, str], reporter: Reporter) -> int:
    """Run a conversation until the user leaves; return the exit code, as ``run_loop``.

    Raises GptshError for an error before the first line, Interrupted for a signal that ends the
    process.
    """
    from gptsh.chat.repl import run_loop

    check_stdout(flags)
    reporter.output = "text"  # an output format in the config file is for single runs
    config = settings.load(environ, flags.config)
    options = turn_options(flags, config)
    sources = question_sources(flags, config)
    paths = sources.paths
    next_question = NextQuestion(paths=paths)
    chat = Conversation(
        config, options, environ, reporter, values=flags.var, next_question=next_question
    )
    with Interrupts(None, in_conversation=True) as interrupts:
        check_labels(flags, config)
        chat.begin(session_ref(flags, config))
        first = None
        words = " ".join(flags.prompt)
        if flags.prompt or flags.file or not stdio.is_terminal(sys.stdin):
            template = chat.template()
            files = Files(refuses=flags.truncate is None)
            inputs = read_input(words, files, paths, sources.pipe_index, needs_question=False)
            first = make_question(words, inputs, template=template)
        with interrupts.shielded():
            return run_loop(chat, first, words, interrupts, reporter)


def with_picked_session(flags: Flags) -> Flags | None:
    """Return the options of the command line with the session that the user picks.

    Return None if the user leaves the list. The first word may name the session instead, as in
    ``gptsh -r 7x2m``. On a terminal, and with nothing to ask or do once, a conversation starts.
    Raises as ``pick``, and UsageError if a conversation is not possible.
    """
    from gptsh.core import folders

    named = None
    if flags.prompt and folders.is_reference(flags.prompt[0]):
        named = flags.prompt[0]
        flags = flags.changed(prompt=flags.prompt[1:])
    has_question = bool(flags.prompt or flags.file)
    runs_once = not set(NOT_INTERACTIVE).isdisjoint(flags.given)
    is_interactive = flags.interactive
    if not (has_question or runs_once or flags.has_labels) and stdio.is_terminal(sys.stdin):
        is_interactive = True
    if is_interactive:
        check_stdout(flags)
    if named:
        return flags.changed(resume=False, session=named, interactive=is_interactive)
    from gptsh.chat.picker import pick

    filename = pick()
    if filename is None:
        return None
    return flags.changed(
        resume=False,
        session=filename or None,  # "" is a new session
        new=not filename,
        interactive=is_interactive,
    )


def check_stdout(flags: Flags) -> None:
    """Raise UsageError unless answers go to a terminal and are not structured."""
    if flags.output in STRUCTURED:
        raise UsageError(f"-i and -o {flags.output} cannot be used together")
    if not stdio.is_terminal(stdio.stdout()):
        problem = "-i needs a terminal, but stdout is not one"
        raise UsageError(problem, "leave out -i to ask once")
