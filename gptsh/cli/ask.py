"""Ask one question from the command line: open the session, read the question, run the turn."""

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gptsh.cli.jobs import SAVE_HINT, check_labels, check_stdin, paths_and_pipe, session_ref, turn_options
from gptsh.cli.options import AGENT_OPTIONS, Flags
from gptsh.config import settings
from gptsh.config.settings import Settings
from gptsh.core import folders
from gptsh.errors import GptshError, UsageError
from gptsh.messages import Message, Part, text_of
from gptsh.render.report import Reporter
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, Interrupts
from gptsh.turn.options import agent_of, check_snapshot
from gptsh.turn.question import has_piped_input, read_question, template_of
from gptsh.turn.session import OpenedSession, before_last_turn, note_new_name, open_session

if TYPE_CHECKING:
    from gptsh.turn.engine import App, TurnSetup
    from gptsh.turn.question import Files
    from gptsh.turn.turn import Turn

# Options that make sense alone: a prompt of one such word without dashes may be a mistake.
_COMMANDS = (
    "--list-sessions",
    "--list-agents",
    "--list-models",
    "--list-tools",
    "--usage",
    "--consolidate",
    "--init",
    "--interactive",
    "--resume",
    "--help",
    "--version",
)


def ask(flags: Flags, environ: Mapping[str, str], reporter: Reporter) -> int:
    """Ask a question, show and save the answer; return the exit code.

    Checks the command line before reading the pipe: piped input cannot be read twice.
    Raises GptshError for every failure, Interrupted for a signal or the deadline.
    """
    from gptsh.turn.engine import App
    from gptsh.turn.turn import Turn

    # Read the configuration. The reporter needs the output form for errors before the agent is resolved.
    reporter.expects_answer = bool(flags.prompt) or not flags.compact
    config = settings.load(environ, flags.config)
    names = [name for name in (flags.agent, config.agent) if name and name in config.agents]
    agent = config.agents[names[0] if names else config.default_agent]
    reporter.output = flags.output or config.output or agent.output
    options = turn_options(flags, config)
    with Interrupts(options.timeout) as interrupts:
        # Open the session and resolve the agent: errors of the command line come before the pipe is read.
        app, setup = App(config, environ, reporter, sends=not flags.dry_run), None
        ref = session_ref(flags, config)
        opened, question = _open(flags, ref)
        paths, pipe_at = paths_and_pipe(flags, config)
        reads_pipe = pipe_at is not None and not stdio.is_terminal(sys.stdin)
        waits_for_pipe = reads_pipe and stdio.is_pending(sys.stdin)
        has_question = bool(flags.edit or flags.prompt or paths) or (None if reads_pipe else False)
        _check(flags, config, opened, has_question)
        if has_question or flags.retry or (reads_pipe and not flags.has_labels):
            setup = app.resolve(options, opened.doc)

        # Read the question.
        asked_agent = setup.agent if setup else agent_of(config, options, opened.doc)
        template = template_of(asked_agent, flags.var, "--var")
        if not flags.retry:
            check_stdin(flags)
            question = read_question(
                " ".join(flags.prompt),
                paths,
                _files(flags, app, setup) if paths or pipe_at is not None else None,
                pipe_at=pipe_at,
                expects_pipe=not flags.has_labels,
                template=template,
                write=partial(_write_question, interrupts, opened) if flags.edit else None,
            )
        _note_single_word(flags, question)
        if flags.edit and question is None:
            stdio.note("the question is empty: nothing is asked")
            return 0
        if waits_for_pipe:
            opened = open_session(ref)  # another run may have added to it meanwhile
        reporter.expects_answer = question is not None or not (flags.compact or flags.has_labels)
        _check(flags, config, opened, question is not None)

        # Without a question: label the session, or answer its last question.
        if question is None and not flags.compact:
            if ref is None:
                way = "; gptsh -i opens a conversation" if stdio.is_terminal(sys.stdin) else ""
                raise UsageError("no prompt", f"give words or pipe text in{way}; gptsh -h shows how")
            if flags.has_labels and not (flags.dry_run or flags.retry):
                if ignored := next(filter(AGENT_OPTIONS.__contains__, flags.given), None):
                    raise UsageError(f"{ignored} needs a prompt", f"add one, or leave out {ignored}")
                from gptsh.turn.options import label, write_events

                events = label(opened.location or ref, options, config.context.snapshots, opened.doc)
                write_events(events, reporter.output)
                return 0

        # Ask.
        setup = setup or app.resolve(options, opened.doc)
        turn: Turn | None = None
        try:
            turn = Turn(app, options, interrupts, opened, question, setup)
            note_new_name(opened)
            return turn.run()
        except (GptshError, Interrupted) as err:
            _add_way_back(err, flags, question, turn)
            raise


def _add_way_back(err: GptshError | Interrupted, flags: Flags, question: Message | None, turn: "Turn | None") -> None:
    """Add to a failure how to ask again what was not saved. A question from the editor is left in a file."""
    if question is None or flags.retry:  # a session has the question
        return
    save_attempted = turn is not None and turn.session.save_attempted
    if flags.edit and not (turn and save_attempted and turn.session.is_saved):
        from gptsh.terminal.programs import save

        err.hint = "; ".join(filter(None, (err.hint, f"your question is in {save(text_of(question))}")))
    elif not save_attempted and isinstance(err, GptshError) and has_piped_input(question) and not err.hint:
        err.hint = "nothing was saved: pipe the input in again"


# ---- the question


def _files(flags: Flags, app: "App", setup: "TurnSetup | None") -> "Files":
    from gptsh.turn.question import Files

    return Files(app.client, setup.agent.model if setup else None, refuses=flags.truncate is None)


def _write_question(interrupts: Interrupts, opened: OpenedSession, words: str, piped: Sequence[Part]) -> str:
    """Let the user write the question in an editor that shows the piped text, or else the session's last answer."""
    from gptsh.terminal.programs import write_question

    about, comment = "Standard input", "\n".join(part.get("text", "") for part in piped)
    if not comment:
        messages = opened.doc["messages"] if opened.doc else ()
        answers = [text_of(message) for message in messages if message["role"] == "assistant"]
        about, comment = "The last answer", next(filter(str.strip, reversed(answers)), "")
    with interrupts.deadline_paused(), interrupts.left_to_child():
        try:
            return write_question(words, about, comment)
        except OSError as err:
            raise UsageError(f"the question cannot be edited: {err}") from err


def _note_single_word(flags: Flags, question: Message | None) -> None:
    """Note a prompt that is only an option without its dashes, as in ``gptsh list-sessions``, or the path of a file."""
    if len(flags.prompt) != 1 or question is None:
        return
    word = flags.prompt[0]
    options = [name for name in _COMMANDS if name in (f"--{word}", f"--list-{word}")]
    if options and question["content"] == word and not flags.given:
        stdio.note(f"{word!r} goes to the model as a question; the option is gptsh {options[0]}")
    elif ("." in word or "/" in word) and os.path.isfile(word) and not has_piped_input(question):
        stdio.note(f"{word!r} goes to the model as words; -f {word} sends the file")


# ---- checks


def _open(flags: Flags, ref: str | None) -> tuple[OpenedSession, Message | None]:
    """Open a session; for ``--retry`` as it was before its last turn, with the question of that turn.

    Raises as ``open_session``, and UsageError if ``--retry`` lacks a session, or there is a question beside it.
    """
    if not flags.retry:
        return open_session(ref), None
    what = "it asks the session's last question"
    if ref is None:
        raise UsageError("--retry needs a session", "name one with -s REF, or -c")
    if flags.prompt:
        raise UsageError("--retry takes no prompt", what)
    for name in ("-f", "-e", "--var", "--compact"):
        if name in flags.given:
            raise UsageError(f"{name} cannot be used with --retry", what)
    return before_last_turn(open_session(ref))


def _check(flags: Flags, config: Settings, opened: OpenedSession, has_question: bool | None) -> None:
    """Raise UsageError for options that do not fit together or do not fit the session.

    ``has_question`` is None before the pipe is read: it may contain the question.
    """
    check_labels(flags, config)
    if has_question and flags.snapshot is not None:
        check_snapshot(flags.snapshot, opened.doc)
    if flags.apply and not flags.compact:
        raise UsageError("--apply needs --compact")
    if not flags.compact:
        return
    if opened.doc is None or opened.ref is None:
        raise UsageError("--compact needs a session", "name one with -s REF, or -c")
    if has_question and not flags.apply:
        raise UsageError("--compact alone takes no prompt", "leave out the prompt, or add --apply")
    if flags.has_labels and not flags.apply:
        raise UsageError("--compact alone changes nothing", "add --apply, or leave out the labels")
    if flags.apply and (flags.no_save or not config.sessions.save):
        raise UsageError("--apply needs a saved session", SAVE_HINT)
    if flags.apply and has_question is False and folders.split_ref(opened.ref)[1] is not None:
        raise UsageError(f"{opened.ref}: a point cannot be compacted", "compact the session, or ask from the point")
