"""``-i``: the conversation. Each line is a command or a question; a question runs as one turn of the session."""

import os
import sys
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from gptsh.cli import stdio
from gptsh.cli.ask import check_labels, check_snapshot, has_piped_input, read_question, template_of, time_limit
from gptsh.cli.commands import find, is_command
from gptsh.cli.interrupts import Interrupted, Interrupts
from gptsh.cli.options import STDIN, Flags
from gptsh.cli.prompt import prompt_for
from gptsh.cli.reporter import Reporter, as_error
from gptsh.cli.session import (
    OpenedSession,
    Session,
    agent_for,
    note_new_name,
    open_session,
    saving_enabled,
    session_ref,
    start_session,
)
from gptsh.config import settings
from gptsh.config.agents import Agent
from gptsh.config.forms import STRUCTURED
from gptsh.core import document, listing, references, sessions
from gptsh.core.document import Document
from gptsh.errors import BadSession, GptshError, SessionGone, UnknownSession, UsageError
from gptsh.jsonio import as_dicts
from gptsh.messages import Message, text_of
from gptsh.render.plain import look
from gptsh.text import open_fence, quantity

if TYPE_CHECKING:
    from gptsh.cli.app import App, TurnSetup
    from gptsh.cli.plan import Plan
    from gptsh.cli.turn import Turn
    from gptsh.content.template import Template

_CHANGED_BY_TURN = ("messages", "context", "usage", "meta")  # keys of a document that a turn changes in place
_RECAP, _RECAP_LINES, _RECAP_CHARS = 2, 10, 2000  # turns of a recap; lines and characters of each question and answer
_RESET_STYLE = "\x1b[0m"
_BRACKETED_PASTE_ON, _BRACKETED_PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"


def repl(flags: Flags, environ: Mapping[str, str], reporter: Reporter) -> int:
    """Run the conversation until the user leaves; return 0, or 1 if something could not be saved.

    If a piped first question could not be asked, return the exit code of its error.

    Raises GptshError for an error before the first line, Interrupted for a signal that ends the process.
    """
    check_stdout(flags)
    reporter.output = "text"  # an output format in the config file is for single runs
    chat = Conversation(flags, environ, reporter)
    time_limit(flags, chat.settings)  # a bad --timeout ends here
    with Interrupts(None, in_conversation=True) as interrupts:
        chat.begin()
        first = None
        if flags.prompt or flags.file or not stdio.is_terminal(sys.stdin):
            first = read_question(flags, chat.settings, chat.template())
            chat.flags = chat.flags._replace(file=tuple(path for path in chat.flags.file if path != STDIN))
        with interrupts.shielded():
            return chat.run(first, interrupts)


def check_stdout(flags: Flags) -> None:
    """Raise UsageError unless answers go to a terminal and are not structured."""
    if flags.output in STRUCTURED:
        raise UsageError(f"-o {flags.output} is for programs, and -i for a person", "leave one of them out")
    if not stdio.is_terminal(stdio.stdout()):
        raise UsageError("-i needs a terminal, and standard output is not one", "leave out -i to ask once")


class Conversation:
    """The session of a conversation, the options of its next turn, and the loop that reads and runs lines.

    ``session`` is as last read from disk, or as the last turn left it; ``is_unsaved``: it has messages that are
    in no file. ``flags`` are the options of the next turns. ``last_plan`` is that of the last request. ``prefill`` is
    the text that the next line starts with. ``uses_prompt``: the agent's prompt makes the next question.
    ``should_exit`` ends the loop.
    """

    def __init__(self, flags: Flags, environ: Mapping[str, str], reporter: Reporter) -> None:
        self.settings = settings.load(environ, flags.config)
        self.flags = flags
        self.session = OpenedSession()
        self.is_unsaved = False
        self.last_plan: Plan | None = None
        self.prefill = ""
        self.should_exit = False
        self.uses_prompt = False
        self._app: App | None = None
        self._environ, self._reporter = environ, reporter

    # ---- the state

    @property
    def app(self) -> "App":
        """The client and the tool servers, created at first use: the prompt appears before they are imported."""
        if self._app is None:
            from gptsh.cli.app import App  # noqa: PLC0415 - the prompt appears first

            self._app = App(self.settings, self._environ, self._reporter, keeps_tools=True)
        return self._app

    @property
    def doc(self) -> Document | None:
        """The session's document; None before the first turn of a new one."""
        return self.session.doc

    @property
    def ref(self) -> str | None:
        """The session's reference for a command line; None if it has no file, or no longer has one."""
        at = self.session.location
        return references.ref_of(at) if at and not at.startswith("@") and references.exists(at) else None

    @property
    def title(self) -> str:
        """The session's title, or "" without one. A child process saves it while the user reads."""
        title = self.doc["title"] if self.doc else None
        if self.doc and not title and self.ref:
            on_disk = listing.summary_at(self.session.location or "")
            title = on_disk["title"] if on_disk else None
        return title or ""

    @property
    def expects_title(self) -> bool:
        """Whether a child process may be asking for the session's title. Raises ConfigError, UsageError."""
        from gptsh.cli.title import title_model  # noqa: PLC0415 - the prompt appears first

        return bool(self.doc and not self.title and title_model(self.app, self.agent(), self.doc))

    @property
    def saves(self) -> bool:
        """Whether turns are saved."""
        return saving_enabled(self.flags, self.settings)

    @property
    def origin(self) -> str | None:
        """The reference of the session that a fork is made from; None if its newest messages are in no file."""
        if self.is_unsaved:
            return None
        if self.session.location:
            return self.ref
        return references.split_ref(self.session.ref)[0] if self.session.ref else None

    def snapshots(self) -> list[str]:
        """The names of the session's snapshots, newest first."""
        snapshots = as_dicts(self.doc["context"].get("snapshots")) if self.doc else []
        return [str(snapshot.get("name")) for snapshot in reversed(snapshots)]

    def template(self) -> "Template | None":
        """The prompt that makes the next question; the questions after it are sent as typed. Raises UsageError."""
        return template_of(self.agent(), self.flags.var, "/agent NAME") if self.uses_prompt else None

    def agent(self) -> Agent:
        """The agent of the next turn. Raises ConfigError, UsageError."""
        return agent_for(self.flags, self.settings, self.doc)

    # ---- opening and switching sessions

    def begin(self) -> None:
        """Open and label the session that the command line or the environment names. Raises GptshError."""
        self.session = open_session(session_ref(self.flags, self.settings))
        self.uses_prompt = self.doc is None or self.flags.agent is not None
        self.flags = self.flags._replace(session=None, continue_=False, new=False, resume=False)
        check_labels(self.flags, self.settings)
        if self.flags.snapshot is not None:
            check_snapshot(self.flags, self.doc)
        if self.agent().model is None:
            raise self.app.no_model_error()
        if self.flags.has_labels and self.saves and self.ref:  # even if no question follows
            from gptsh.cli.manage import label  # noqa: PLC0415 - only labels need it

            label(self.ref, self.flags, self.settings.context.snapshots)
            self.flags = self.flags.without_labels
            self.refresh()
        note_new_name(self.session)

    def switch_to(self, ref: str | None) -> None:
        """Open another session, or a new one if ``ref`` is None; a REF@POINT opens a fork, saved by its first turn."""
        self.session, self.is_unsaved, self.flags = open_session(ref), False, self.flags.without_labels
        self.uses_prompt = self.doc is None

    def fork(self, point: str) -> str | None:
        """Switch to a fork of the session at a point, saved by its first turn; return ``origin``.

        Raises UnknownSession if the session has no such point.
        """
        doc, origin = self.doc, self.origin
        assert doc is not None  # the callers have checked it
        fork_source = document.at_point(doc, point)
        turns = len(document.turns(fork_source["messages"]))
        if origin:  # fork at a turn number, since the session may grow; a snapshot also says how it was sent
            self.switch_to(f"{origin}@{turns if not point or document.is_numbered(point) else point}")
        else:
            self.session = OpenedSession(None, sessions.fork_session(fork_source, point))
            self.is_unsaved = self.is_unsaved and turns > 0
        self.flags = self.flags._replace(snapshot=None)
        return origin

    def refresh(self) -> None:
        """Read the session again: another run may have added to it. Raises SessionGone, BadSession."""
        at = self.session.location
        if self.is_unsaved or at is None:
            return
        todo = "/fork continues it, /session export FILE keeps it"
        try:
            self.session = open_session(at)
        except UnknownSession as err:
            raise SessionGone(f"session {at[references.ID]} was deleted meanwhile", todo) from err
        except BadSession as err:  # its file was damaged meanwhile
            self.is_unsaved, err.hint = True, todo
            raise

    # ---- asking

    def run_turn(self, question: Message | None, flags: Flags) -> None:
        """Run one turn; without a question, continue the last one, or compact the session.

        Raises GptshError and Interrupted after what arrived is saved.
        """
        from gptsh.cli.turn import Turn  # noqa: PLC0415 - the prompt appears first

        self.refresh()
        interrupts = Interrupts(time_limit(flags, self.settings), in_conversation=True)
        with interrupts, _typing_hidden(interrupts):
            opened = self._copied_session()
            turn = Turn(self.app, flags, interrupts, opened, question, self.app.resolve(flags, opened.doc))
            try:
                turn.run()
            finally:
                with interrupts.ignored():
                    self._continue_from(turn, was_asked=question is not None)

    def plan_turn(self, question: Message | None) -> "tuple[TurnSetup, Plan]":
        """Plan a turn with the tools that already run, and save nothing. Raises GptshError as a turn does."""
        from gptsh.cli.plan import Planner  # noqa: PLC0415 - the prompt appears first

        with suppress(SessionGone):
            self.refresh()
        flags, app, opened = self.flags.without_labels._replace(dry_run=True), self.app, self._copied_session()
        setup = app.resolve(flags, opened.doc)
        session = start_session(opened, question, setup.agent, setup.form.output, flags, app.settings)
        planner = Planner(app, flags, setup, session, app.running_tools(setup.servers))
        return setup, planner.plan(session.doc["messages"], dry=True)

    def _copied_session(self) -> OpenedSession:
        """The session with a copy of its document: a turn that fails before its first save must not change ours."""
        doc = self.doc
        return self.session._replace(doc={**doc, **{key: doc[key].copy() for key in _CHANGED_BY_TURN}} if doc else None)

    def _continue_from(self, turn: "Turn", *, was_asked: bool) -> None:
        """Take over the session of a turn, if the turn got as far as its first save."""
        session = turn.session
        if not session.save_attempted:
            return
        self.session = OpenedSession(
            session.filename or self.session.ref, session.doc, session.filename or session.location
        )
        self.is_unsaved, self.last_plan = not session.is_saved, turn.sent_plan or self.last_plan
        self.prefill, self.uses_prompt = "", self.uses_prompt and not was_asked
        self.flags = self.flags._replace(prompt=(), file=() if was_asked else self.flags.file, snapshot=None)
        if session.is_saved:
            self.flags = self.flags.without_labels

    # ---- the loop

    def run(self, first: Message | None, interrupts: Interrupts) -> int:
        """Ask ``first``, then read and run lines until the user leaves; return the exit code.

        Raises Interrupted for a signal other than Ctrl-C.
        """
        prompt = prompt_for(self, interrupts, self._start_with_recap if self.doc and first is None else None)
        has_printed, code, interrupted = first is not None, 0, None
        try:
            if first is not None:
                if self.doc:
                    self._start_with_recap()
                self.prefill = " ".join(self.flags.prompt)
                failure = self._attempt(lambda: self.run_turn(first, self.flags), interrupts)
                if failure and self.last_plan is None and has_piped_input(first):
                    self.should_exit, code = True, failure.exit_code
            while not self.should_exit:
                if has_printed:
                    stdio.write_lines([""])
                line = prompt.read(self.prefill).rstrip("\n")
                self.prefill, has_printed = "", bool(line.strip())
                if has_printed:
                    self._attempt(partial(self._run_line, line), interrupts)
        except EOFError:
            pass
        except Interrupted as err:
            interrupted = err
        finally:
            code = self._leave(interrupts) or code
        if self.ref:
            stdio.note(f"the session is saved: 'gptsh -i -s {self.ref}' continues it")
        if interrupted:
            raise interrupted
        return code

    def _run_line(self, line: str) -> None:
        """Run a command, or ask the line as a question with the attached files. Raises GptshError, Interrupted."""
        if is_command(line):
            from gptsh.cli import slash  # noqa: PLC0415 - the prompt appears first

            command, args = find(line)
            getattr(slash, command.function)(self, args)
            return
        flags = self.flags._replace(prompt=(line,), no_stdin=True)
        self.prefill = line  # until it is saved
        self.run_turn(read_question(flags, self.settings, self.template()), flags)

    def _attempt(self, action: Callable[[], object], interrupts: Interrupts) -> GptshError | None:
        """Run an action; report and return its failure. Raises Interrupted for a signal other than Ctrl-C."""
        failure: GptshError | None = None
        try:
            with interrupts.waiting():
                action()
        except GptshError as err:
            failure = err
        except Interrupted as err:
            if err.by_user:
                stdio.note(f"interrupted{': ' if err.hint else ''}{err.hint}")
            elif err.by_deadline:
                failure = as_error(err)
            else:
                raise
        except BrokenPipeError:  # the user left the pager
            pass
        except MemoryError:
            failure = UsageError("the input is too large for this machine's memory")
        if failure:
            self._reporter.fail(failure)
        return failure

    def _start_with_recap(self) -> None:
        self.show_recap()
        stdio.write_lines([""])

    def show_recap(self) -> None:
        """Print the last questions and answers as ``--show-session`` does, with a hint about an unfinished turn."""
        if self.doc is None:
            return
        from gptsh.render.layout import drawn  # noqa: PLC0415 - 0.15 s; a new session has no recap
        from gptsh.render.transcript import transcript  # noqa: PLC0415 - a new session has no recap

        messages, width, style = self.doc["messages"], stdio.width(stdio.stdout()), look(os.environ, terminal=True)
        starts, blocks = document.turns(messages), []
        if earlier := len(starts[:-_RECAP]):
            blocks.append(f"… {quantity(earlier, 'earlier turn')}: /history shows all")
        for start, end in [*pairwise((*starts, len(messages)))][-_RECAP:]:
            answers = [m for m in messages[start + 1 : end] if m["role"] == "assistant" and text_of(m)]
            for message in (messages[start], *answers[-1:]):
                # Without the first two pieces, the title and the details of the session.
                text = "\n\n".join(islice(transcript({**self.doc, "messages": [message]}, ()), 2, None))
                head = "\n".join(text.split("\n", _RECAP_LINES)[:_RECAP_LINES])[:_RECAP_CHARS]
                lines = "\n".join(drawn([f"{head}\n{open_fence(head)}"], style, width)).split("\n")
                if len(lines) > _RECAP_LINES or head != text:
                    lines[_RECAP_LINES:] = [f"{_RESET_STYLE if style.styles else ''}… /history shows all"]
                blocks.append("\n".join(lines))
        stdio.write_lines(["\n\n".join(blocks)] if blocks else [], safe=True)
        last_turn = messages[starts[-1] :] if starts else []
        if document.unanswered(last_turn):
            stdio.note("the last question has no answer yet: /retry asks it")
        elif document.unfinished(last_turn):
            stdio.note("the last turn has not ended: /retry continues it")

    # ---- leaving

    def save_rest(self) -> bool:
        """Save what an earlier save could not; whether everything that should be on disk is there."""
        if not (self.is_unsaved and self.saves and self.doc):
            return True
        session = Session(self.doc, self.session.location, self.flags, self.settings)
        if not session.save(fsync=True):
            return False
        self.session = self.session._replace(ref=session.filename, location=session.filename)
        self.is_unsaved, self.flags = False, self.flags.without_labels
        return True

    def _leave(self, interrupts: Interrupts) -> int:
        """Stop the tool servers, save what an earlier save could not, and return the exit code."""
        if self._app:
            self._app.close_tools(interrupts)
        try:
            self.refresh()
            if self.save_rest():
                return 0
            stdio.note("this conversation is not on disk")
        except GptshError as err:
            stdio.note(f"this conversation is not on disk: {err}")
        return 1


@contextmanager
def _typing_hidden(interrupts: Interrupts) -> Iterator[None]:
    """Hide what the user types during a turn, and leave it to the next prompt, even after Ctrl-C.

    Bracketed paste stays on, so that pasted text is one message there. In a dumb terminal, where the terminal itself
    edits lines, typing stays visible.
    """
    out = stdio.stdout()
    assert out is not None  # it is a terminal
    frames, sink = stdio.shows_frames(out), stdio.Sink(out)
    with ExitStack() as restore:
        interrupts.before_kill.append(restore.close)
        with suppress(termios.error, OSError):  # the terminal was closed
            off = termios.ECHO | termios.ICANON if frames else 0
            restore.enter_context(stdio.line_modes(out.fileno(), on=termios.NOFLSH, off=off))
            if frames:
                sink.offer(_BRACKETED_PASTE_ON)
                restore.callback(sink.offer, _BRACKETED_PASTE_OFF)
        yield
