"""Keep the state of a conversation: its session, options and turns; print its recap."""

import os
import termios
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gptsh.config.agents import Agent
from gptsh.config.settings import Settings
from gptsh.core import folders, listing, sessions, turns
from gptsh.core.document import Document
from gptsh.errors import BadSession, SessionGone, UnknownSession
from gptsh.messages import Message, Part, text_of
from gptsh.render.report import Reporter
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupts
from gptsh.terminal.stdio import terminal_style
from gptsh.text import open_fence, quantity
from gptsh.turn.agents import agent_of
from gptsh.turn.attached_files import Files
from gptsh.turn.options import TurnOptions, check_snapshot
from gptsh.turn.question import Input, make_question, template_of
from gptsh.turn.session import Session

if TYPE_CHECKING:
    from gptsh.content.templates import Template
    from gptsh.context.tokens import Prompt
    from gptsh.turn.engine import Engine, Setup


# ---- the state of a conversation

_BRACKETED_PASTE_ON = "\x1b[?2004h"
_BRACKETED_PASTE_OFF = "\x1b[?2004l"


class NextQuestion(NamedTuple):
    """What becomes of the next line that is asked; replaced as a whole."""

    paths: tuple[str, ...] = ()  # the files that it attaches
    uses_prompt: bool = False  # the agent's prompt makes the question
    attached: tuple[Part, ...] = ()  # what it takes over from an undone one


@dataclass(eq=False)
class Conversation:
    """The session of a conversation, and the options and files of its next turn."""

    settings: Settings
    options: TurnOptions  # of the next turns
    environ: Mapping[str, str]
    reporter: Reporter
    values: tuple[str, ...] = ()  # ``NAME=VALUE`` pairs for the prompt, as long as the agent stays
    next_question: NextQuestion = field(default_factory=NextQuestion)
    session: Session = field(default_factory=Session)  # as last read, or as the last turn left it
    last_plan: "Prompt | None" = None  # of the last request
    prefill: str = ""  # the text that the next line starts with
    should_exit: bool = False  # ends the loop
    _engine: "Engine | None" = None

    # ---- the state

    @property
    def engine(self) -> "Engine":
        """The client and the tool servers, created at first use, after the prompt has appeared."""
        if self._engine is None:
            from gptsh.turn.engine import Engine

            self._engine = Engine(self.settings, self.environ, self.reporter, keeps_tools=True)
        return self._engine

    @property
    def doc(self) -> Document | None:
        """The session's document; None before the first turn of a new one."""
        return self.session.stored

    @property
    def ref(self) -> str | None:
        """The session's reference for a command line; None if there is no such file."""
        filename = self.session.filename
        if filename is None or not folders.exists(filename):
            return None
        return folders.ref_of(filename)

    @property
    def title(self) -> str:
        """The session's title, or "" without one; a background process may have saved it."""
        if not self.doc:
            return ""
        title = self.doc["title"]
        filename = self.session.filename
        if not title and filename and self.ref:
            on_disk = listing.summary_at(filename)
            title = on_disk["title"] if on_disk else None
        return title or ""

    @property
    def expects_title(self) -> bool:
        """Whether a background process may be asking for the title. Raises as ``agent``."""
        from gptsh.turn.titles import title_model

        if not self.doc or self.title:
            return False
        return bool(title_model(self.settings, self.agent(), self.doc))

    @property
    def saves(self) -> bool:
        """Whether turns are saved."""
        return self.settings.sessions.save and self.options.save

    @property
    def origin(self) -> str | None:
        """What a fork is made from; None if the newest messages are in no file."""
        session = self.session
        if session.has_unsaved_messages:
            return None
        if session.is_unsaved_fork and session.given_ref:
            return folders.split_ref(session.given_ref)[0]
        return self.ref

    def snapshots(self) -> list[str]:
        """Return the names of the session's snapshots, newest first."""
        snapshots = self.doc["context"]["snapshots"] if self.doc else []
        return [snapshot.get("name") or "" for snapshot in reversed(snapshots)]

    def template(self) -> "Template | None":
        """Return the prompt that makes the next question, if one does. Raises UsageError."""
        if not self.next_question.uses_prompt:
            return None
        return template_of(self.agent(), self.values, "/agent NAME")

    def agent(self) -> Agent:
        """Return the agent of the next turn. Raises ConfigError, UsageError."""
        return agent_of(self.settings, self.options, self.doc)

    def resolve(self, options: TurnOptions) -> "Setup":
        """Return the setup of a turn with these options, and print its notes.

        Raises ConfigError, UsageError.
        """
        setup = self.engine.resolve(options, self.doc)
        self.engine.print_notes(setup.notes)
        return setup

    # ---- opening and switching sessions

    def begin(self, ref: str | None) -> None:
        """Open and label the session of a reference; None: a new one. Raises GptshError."""
        self.session = Session.open(ref)
        uses_prompt = self.doc is None or self.options.agent is not None
        self.next_question = self.next_question._replace(uses_prompt=uses_prompt)
        if self.options.snapshot is not None:
            check_snapshot(self.options.snapshot, self.doc)
        if self.agent().model is None:
            raise self.engine.no_model_error()
        if self.options.has_labels and self.saves and self.ref:  # even if no question follows
            self.session.label(self.options, self.settings)
            self.options = self.options.without_labels
            self.refresh()
        self.session.note_new_name()

    def switch_to(self, ref: str | None) -> None:
        """Open another session; None: a new one. The first turn saves the fork of a REF@POINT.

        Of the next question only the files are kept.
        """
        self.session = Session.open(ref)
        self.options = self.options.without_labels
        paths = self.next_question.paths
        self.next_question = NextQuestion(paths, uses_prompt=self.doc is None)

    def forget_agent(self) -> None:
        """Drop the agent that was chosen, and its parts: the session has its own."""
        self.options = self.options.without_agent
        self.values = ()

    def fork(self, point: str) -> str | None:
        """Switch to a fork of the session at a point, saved by its first turn; return ``origin``.

        The next question is kept. Raises UnknownSession if the session has no such point.
        """
        doc = self.doc
        origin = self.origin
        assert doc is not None  # the callers have checked it
        fork_source = turns.at_point(doc, point)
        turn_count = len(turns.starts_of(fork_source["messages"]))
        if origin:
            # A snapshot also says how the session was sent. Else the turn gets its number, since
            # the session may grow until the fork is saved.
            is_snapshot = point and not turns.is_numbered(point)
            self.session = Session.open(f"{origin}@{point if is_snapshot else turn_count}")
            self.options = self.options.without_labels
        else:
            is_unsaved = self.session.has_unsaved_messages and turn_count > 0
            self.session = Session(sessions.fork_session(fork_source, point))
            self.session.has_unsaved_messages = is_unsaved
        self._drop_snapshot()
        return origin

    def refresh(self) -> None:
        """Read the session again: another run may have added to it.

        Raises SessionGone, BadSession.
        """
        ref = self.session.filename or self.session.new_name
        if self.session.has_unsaved_messages or ref is None:
            return
        todo = "/fork continues it, /session export FILE writes it to a file"
        try:
            self.session = Session.open(ref)
        except UnknownSession as err:
            problem = f"session {ref[folders.ID]} was deleted by another process"
            raise SessionGone(problem, todo) from err
        except BadSession as err:  # its file was damaged since the last turn
            self.session.has_unsaved_messages = True
            err.hint = todo
            raise

    # ---- asking

    def ask(self, line: str) -> None:
        """Ask a typed line, with the attached files. Raises GptshError, Interrupted."""
        begin_answer()
        self.prefill = line  # until it is saved
        files = Files(refuses=self.options.truncate is None)
        template = self.template()
        inputs = Input(files.attach(self.next_question.paths))
        attached = self.next_question.attached
        question = make_question(line, inputs, attached=attached, template=template)
        self.run_turn(question)

    def run_turn(self, question: Message | None) -> None:
        """Run one turn; without a question, continue the last one.

        Raises GptshError and Interrupted after what arrived is saved.
        """
        from gptsh.turn.turn import Turn

        engine = self.engine
        options = self.options
        with self._in_turn(options, was_asked=question is not None) as (session, interrupts):
            setup = engine.resolve(options, session.stored)
            engine.begin_turn(setup)
            turn = Turn(engine, options, interrupts, session, question, setup)
            try:
                turn.run()
            finally:
                self.last_plan = turn.prompt or self.last_plan

    def compact(self, *, apply: bool) -> None:
        """Show a compaction of the session, or make it. Raises as ``run_turn``."""
        from gptsh.turn.compacting import compact

        options = self.options._replace(compact=True, apply=apply)
        with self._in_turn(options, was_asked=False) as (session, interrupts):
            setup = self.engine.resolve(options, session.stored)
            self.engine.begin_turn(setup)
            compact(self.engine, options, interrupts, session, setup)

    @contextmanager
    def _in_turn(
        self, options: TurnOptions, *, was_asked: bool
    ) -> "Iterator[tuple[Session, Interrupts]]":
        """Let a turn use a copy of the session, ours once the turn has tried to save it."""
        self.refresh()
        interrupts = Interrupts(options.timeout, in_conversation=True)
        session = self.session.copy()
        with interrupts, _typing_hidden(interrupts):
            try:
                yield session, interrupts
            finally:
                with interrupts.ignored():
                    if session.save_attempted:
                        self._continue_with(session, was_asked=was_asked)

    def _continue_with(self, session: Session, *, was_asked: bool) -> None:
        """Take over the session as a turn has left it."""
        session.given_ref = session.filename or self.session.given_ref
        self.session = session
        self.prefill = ""
        if was_asked:
            self.next_question = NextQuestion()
        self._drop_snapshot()
        if session.is_saved:
            self.options = self.options.without_labels

    def plan_turn(self, question: Message | None) -> "tuple[Setup, Prompt]":
        """Plan a turn with the tools that already run, and save nothing. Raises as a turn does."""
        from gptsh.turn.prompt import Planner
        from gptsh.turn.screen import Screen

        with suppress(SessionGone):
            self.refresh()
        engine = self.engine
        options = self.options.without_labels._replace(dry_run=True)
        session = self.session.copy()
        setup = engine.resolve(options, session.stored)
        engine.print_notes(setup.notes)
        session.begin(question, setup.agent, setup.output.form, options, engine.settings)
        tools = engine.running_tools(setup.servers)
        planner = Planner(engine, options, setup, session, tools, Screen(setup.output))
        planner.begin()
        return setup, planner.estimate()

    def _drop_snapshot(self) -> None:
        self.options = self.options._replace(snapshot=None)

    # ---- leaving

    def save_rest(self) -> bool:
        """Save what an earlier save could not; return whether all is on disk that should be."""
        if not (self.session.has_unsaved_messages and self.saves and self.doc):
            return True
        session = self.session.copy()
        session.prepare(self.options, self.settings)
        if not session.save(fsync=True):
            return False
        session.given_ref = session.filename
        self.session = session
        self.options = self.options.without_labels
        return True

    def close_tools(self, interrupts: Interrupts) -> None:
        """End the tool servers."""
        if self._engine:
            self._engine.close_tools(interrupts)


@contextmanager
def _typing_hidden(interrupts: Interrupts) -> Iterator[None]:
    """Hide what the user types during a turn, and leave it to the next prompt, even after Ctrl-C.

    The modes of the terminal are restored at the end, also when a second Ctrl-C kills the process.
    Bracketed paste stays on, so that pasted text is one message there. In a dumb terminal, which
    edits lines itself, typing stays visible.
    """
    out = stdio.stdout()
    assert out is not None  # it is a terminal
    frames = stdio.shows_frames(out)
    sink = stdio.Sink(out)
    with ExitStack() as restore:
        interrupts.before_kill.append(restore.close)
        with suppress(termios.error, OSError):  # the terminal was closed
            off = termios.ECHO | termios.ICANON if frames else 0
            restore.enter_context(stdio.line_modes(out.fileno(), on=termios.NOFLSH, off=off))
            if frames:
                sink.offer(_BRACKETED_PASTE_ON)
                restore.callback(sink.offer, _BRACKETED_PASTE_OFF)
        yield


# ---- recap

_TURNS = 2
_LINES = 10  # of each question and answer
_CHARACTERS = 2000
_RESET_STYLE = "\x1b[0m"


def show_recap(doc: Document) -> None:
    """Print the beginnings of the last questions and answers, and how to go on with an open turn.

    The last answer gets half of the screen.
    """
    all_turns = turns.split_turns(doc["messages"])
    if not all_turns:
        return
    messages = []
    last_answer = None
    for question, *others in all_turns[-_TURNS:]:
        messages.append(question)
        answers = [item for item in others if item["role"] == "assistant" and text_of(item)]
        if answers:
            last_answer = answers[-1]
            messages.append(last_answer)

    blocks = []
    earlier_count = len(all_turns) - _TURNS
    if earlier_count > 0:
        blocks.append(f"… {quantity(earlier_count, 'earlier turn')}, /history shows all")
    _, rows = stdio.size(stdio.stdout())
    for message in messages:
        count = max(_LINES, rows // 2) if message is last_answer else _LINES
        blocks.append(_beginning(message, count))
    stdio.write_lines(["\n\n".join(blocks)], safe=True)

    if turns.unanswered(all_turns[-1]):
        stdio.note("the last question has no answer yet; /retry asks it again")
    elif turns.unfinished(all_turns[-1]):
        stdio.note("the last turn is not finished; /retry continues it")


def _beginning(message: Message, count: int) -> str:
    """Return the first ``count`` lines of a message, drawn for the terminal."""
    from gptsh.render.drawing import draw_markdown
    from gptsh.render.session import message_pieces

    style = terminal_style(os.environ, terminal=True)
    width = stdio.width(stdio.stdout())
    text = "\n\n".join(message_pieces(message))
    # A message may have megabytes, so only what can be seen is drawn. Some lines of Markdown, such
    # as those of fences, are not drawn.
    max_lines = 2 * count
    start = "\n".join(text.split("\n", max_lines)[:max_lines])
    start = start[: max(_CHARACTERS, count * width)]
    closed = f"{start}\n{open_fence(start)}"
    lines = "\n".join(draw_markdown([closed], style, width)).split("\n")
    if len(lines) > count or start != text:
        end = _RESET_STYLE if style.styles else ""
        lines[count:] = [f"{end}… /history shows all"]
    return "\n".join(lines)


def begin_answer() -> None:
    """Write the empty line before an answer, on a terminal with colours."""
    if stdio.shows_colors(stdio.stdout()):
        stdio.write_lines([""])
