"""Ask one question from the command line: open the session, read the question, run the turn."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gptsh.cli.jobs import (
    SAVE_HINT,
    Sources,
    check_labels,
    question_sources,
    session_ref,
    turn_options,
)
from gptsh.cli.options import AGENT_OPTIONS, Flags
from gptsh.config import settings
from gptsh.config.settings import Settings
from gptsh.core import folders, turns
from gptsh.errors import GptshError, UsageError
from gptsh.messages import Message, Part, text_of
from gptsh.render.report import Reporter
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, Interrupts
from gptsh.turn.agents import agent_of
from gptsh.turn.attached_files import Files
from gptsh.turn.options import TurnOptions, check_snapshot
from gptsh.turn.question import has_piped_input, make_question, read_input, template_of
from gptsh.turn.session import Session, write_events

if TYPE_CHECKING:
    from gptsh.config.agents import Agent
    from gptsh.turn.engine import Engine, Setup

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

    If there is no question, compact a session, label it, ask its last question again, or show its
    last answer again. Raises GptshError for every failure, Interrupted for a signal or the
    deadline.
    """
    from gptsh.turn.engine import Engine

    reporter.expects_answer = bool(flags.prompt) or not flags.compact
    config = settings.load(environ, flags.config)
    reporter.output = _expected_output(flags, config)
    options = turn_options(flags, config)
    with Interrupts(options.timeout) as interrupts:
        ref = session_ref(flags, config)
        session, question = _open(flags, ref)
        _check_options(flags, config, session)
        sources = question_sources(flags, config)
        engine = Engine(config, environ, reporter, sends=not flags.dry_run)
        run = _Run(flags, options, engine, session, interrupts)

        if flags.retry:
            run.begin_turn()
        else:
            question = run.read_question(sources, ref)
        reporter.expects_answer = question is not None or not (flags.compact or options.has_labels)
        if question is not None or flags.retry:
            return run.ask(question)
        if flags.edit:
            stdio.note("the question is empty, so nothing was asked")
            return 0
        if flags.compact:
            return run.compact()
        if ref is None:
            way = "; gptsh -i opens a conversation" if stdio.is_terminal(sys.stdin) else ""
            raise UsageError("no prompt", f"add a prompt, or pipe text in{way}; gptsh -h shows how")
        if options.has_labels and not flags.dry_run:
            return run.label(ref)
        if _is_unanswered(run.session):
            return run.ask(None)
        return run.show_last_answer()


class _Run:
    """What a run of the command may do with a session: ask, compact, label, show.

    Only the first two begin a turn, once: labels and the last answer need no model.
    """

    def __init__(
        self,
        flags: Flags,
        options: TurnOptions,
        engine: "Engine",
        session: Session,
        interrupts: Interrupts,
    ) -> None:
        self.session = session
        self._flags = flags
        self._options = options
        self._engine = engine
        self._interrupts = interrupts
        self._setup: Setup | None = None

    def begin_turn(self) -> "Setup":
        """Begin a turn that is sure to ask, or at least expected to; return its setup.

        Raises ConfigError, UsageError.
        """
        if self._flags.snapshot is not None:
            check_snapshot(self._flags.snapshot, self.session.stored)
        return self._begin_once()

    def _begin_once(self) -> "Setup":
        """Begin the turn unless it has begun; return its setup. Raises ConfigError, UsageError."""
        if self._setup is None:
            self._setup = self._engine.resolve(self._options, self.session.stored)
            self._engine.begin_turn(self._setup)
        return self._setup

    def _reopen(self, ref: str | None) -> None:
        """Read the session again; what another run has added may mean another agent or model."""
        stored = self.session.stored
        self.session = Session.open(ref)
        if self.session.stored != stored:
            self._setup = None

    def ask(self, question: Message | None) -> int:
        """Ask the question; without one, ask again what the session has left unanswered."""
        from gptsh.turn.turn import Turn

        session = self.session
        with _recovery_hints(self._flags, question, session):
            setup = self._begin_once()
            turn = Turn(self._engine, self._options, self._interrupts, session, question, setup)
            session.note_new_name()
            return turn.run()

    def compact(self) -> int:
        """Show a compaction of the session, or with ``--apply`` make it."""
        from gptsh.turn.compacting import compact

        session = self.session
        if self._flags.apply and session.is_unsaved_fork:
            problem = f"{session.given_ref}: cannot compact a point of a session"
            raise UsageError(problem, "compact the session, or ask from the point")
        compact(self._engine, self._options, self._interrupts, session, self._begin_once())
        return 0

    def label(self, ref: str) -> int:
        """Label the session that a reference names."""
        unused = [name for name in self._flags.given if name in AGENT_OPTIONS]
        if unused:
            raise UsageError(f"{unused[0]} needs a prompt", f"add one, or leave out {unused[0]}")
        if folders.split_ref(ref)[1] is not None:
            problem = f"{ref}: a point cannot be labelled"
            raise UsageError(problem, "label the session, or ask from the point")
        events = self.session.label(self._options, self._engine.settings)
        write_events(events, self._engine.reporter.output)
        return 0

    def show_last_answer(self) -> int:
        """Show the last answer of the session again."""
        from gptsh.turn.engine import output_of
        from gptsh.turn.preview import show_last_answer

        session = self.session
        _check_shown(self._flags, session)
        config = self._engine.settings
        reporter = self._engine.reporter
        output = output_of(config, self._options, agent_of(config, self._options, session.stored))
        reporter.output = output.form
        show_last_answer(session, output, reporter, self._interrupts)
        return 0

    # ---- the question

    def read_question(self, sources: Sources, ref: str | None) -> Message | None:
        """Read the question from all its sources; None if there is none.

        Raises ConfigError, and UsageError and TooLong as ``read_input``.
        """
        flags = self._flags
        expects_question = self._expects_question(sources)
        # An error of the options comes before the pipe is read: nobody can pipe it in twice.
        agent = self._agent(expects_question=expects_question)
        template = template_of(agent, flags.var, "--var")

        files = Files(self._engine.client, agent.model, refuses=flags.truncate is None)
        words = " ".join(flags.prompt)
        given = read_input(
            words,
            files,
            sources.paths,
            sources.pipe_index,
            needs_question=not flags.has_labels,
        )
        if sources.waits_for_pipe:
            self._reopen(ref)
            agent = self._agent(expects_question=expects_question)
            template = template_of(agent, flags.var, "--var")
        if flags.edit:
            words = self._edit(words, given.piped)
            if not words.strip():
                return None
        question = make_question(words, given, template=template)
        if question:
            _note_single_word(flags, question)
        return question

    def _agent(self, *, expects_question: bool) -> "Agent":
        """Return the agent of the turn, which begins if a question is expected."""
        if expects_question:
            return self.begin_turn().agent
        return agent_of(self._engine.settings, self._options, self.session.stored)

    def _expects_question(self, sources: Sources) -> bool:
        """Return whether a question is sure to follow, or at least expected from the pipe."""
        flags = self._flags
        if flags.edit or flags.prompt or sources.paths:
            return True
        if flags.has_labels or sources.pipe_index is None or stdio.is_terminal(sys.stdin):
            return False
        # A pipe that is empty already may be all: then a session shows its answer.
        return sources.waits_for_pipe or self.session.stored is None

    def _edit(self, words: str, piped: Part | None) -> str:
        """Let the user write the question in an editor, beside the piped text or the last answer.

        Raises UsageError if it cannot be edited.
        """
        from gptsh.terminal.programs import write_question

        about = "Standard input"
        comment = piped.get("text", "") if piped else ""
        if not comment:
            about = "The last answer"
            for message in self.session.stored["messages"] if self.session.stored else ():
                if message["role"] == "assistant" and text_of(message).strip():
                    comment = text_of(message)
        with self._interrupts.deadline_paused(), self._interrupts.child_gets_ctrl_c():
            try:
                return write_question(words, about, comment)
            except OSError as err:
                raise UsageError(f"the question cannot be edited: {err}") from err


def _note_single_word(flags: Flags, question: Message) -> None:
    """Note a prompt that is only an option without its dashes, or the path of a file."""
    if len(flags.prompt) != 1:
        return
    word = flags.prompt[0]
    options = [name for name in _COMMANDS if name in (f"--{word}", f"--list-{word}")]
    if options and question["content"] == word and not flags.given:
        stdio.note(f"{word!r} is sent to the model as a question; the option is gptsh {options[0]}")
    elif ("." in word or "/" in word) and os.path.isfile(word) and not has_piped_input(question):
        stdio.note(f"sending {word!r} as text; use -f {word} to attach the file")


@contextmanager
def _recovery_hints(flags: Flags, question: Message | None, session: Session) -> Iterator[None]:
    """Add to a failure how to ask again what was not saved.

    A question from the editor is left in a file.
    """
    try:
        yield
    except (GptshError, Interrupted) as err:
        if flags.edit and question and not session.is_saved:
            from gptsh.terminal.programs import save

            place = f"your question is in {save(text_of(question))}"
            err.hint = f"{err.hint}; {place}" if err.hint else place
        is_lost = not (flags.retry or session.save_attempted or isinstance(err, Interrupted))
        if is_lost and has_piped_input(question) and not err.hint:
            err.hint = "nothing was saved: pipe the input in again"
        raise


# ---- checks


def _open(flags: Flags, ref: str | None) -> tuple[Session, Message | None]:
    """Open a session; for ``--retry`` as it was before its last turn, with that question.

    Raises as ``Session.open``, and UsageError if ``--retry`` lacks a session, or has a question.
    """
    if not flags.retry:
        return Session.open(ref), None
    what = "it asks the session's last question again"
    if ref is None:
        raise UsageError("--retry needs a session", "name one with -s REF, or -c")
    if flags.prompt:
        raise UsageError("--retry takes no prompt", what)
    for name in ("-f", "-e", "--var", "--compact"):
        if name in flags.given:
            raise UsageError(f"{name} cannot be used with --retry", what)
    return Session.open(ref).before_last_turn()


def _check_options(flags: Flags, config: Settings, session: Session) -> None:
    """Raise UsageError for options that do not fit together, or the session."""
    check_labels(flags, config)
    if flags.apply and not flags.compact:
        raise UsageError("--apply needs --compact")
    if flags.block and flags.block.isdecimal() and not int(flags.block[:9]):
        raise UsageError("--block 0", "code blocks are numbered from 1")
    if not flags.compact:
        return
    if session.stored is None:
        raise UsageError("--compact needs a session", "name one with -s REF, or -c")
    if flags.has_labels and not flags.apply:
        raise UsageError("--compact alone changes nothing", "add --apply, or leave out the labels")
    if not flags.apply and (flags.edit or flags.prompt or flags.file):
        raise UsageError("--compact alone takes no prompt", "leave out the prompt, or add --apply")
    if flags.apply and (flags.no_save or not config.sessions.save):
        raise UsageError("--apply needs a saved session", SAVE_HINT)


def _expected_output(flags: Flags, config: Settings) -> str | None:
    """Return the output form for errors before the agent is resolved."""
    names = (flags.agent, config.agent, config.default_agent)
    agent = next(name for name in names if name and name in config.agents)
    return flags.output or config.output or config.agents[agent].output


def _check_shown(flags: Flags, session: Session) -> None:
    """Raise UsageError if there is no session to show, or if the options need a question."""
    if session.stored is None:
        problem = f"session {session.given_ref} does not exist yet"
        raise UsageError(problem, "add a prompt to create it")
    answered = f"session {session.given_ref} has no unanswered question"
    # An empty word or file was meant as a question: an old answer must not pass for its answer.
    if flags.dry_run or flags.prompt or flags.file:
        raise UsageError(f"no prompt, and {answered}", "add a prompt, or pipe text in")
    unused = [name for name in flags.given if name in (*AGENT_OPTIONS, "--schema")]
    if unused:
        raise UsageError(f"{unused[0]} needs a prompt", answered)


def _is_unanswered(session: Session) -> bool:
    return session.stored is not None and turns.unfinished(session.stored["messages"])
