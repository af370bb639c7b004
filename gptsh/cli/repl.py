"""``-i``: the conversation. Each line is a command, or a turn that is asked as a run of its own would ask it."""

import os
import sys
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from gptsh.cli import stdio
from gptsh.cli.ask import check_snapshot, has_piped_input, read_question, time_limit
from gptsh.cli.commands import find, is_command
from gptsh.cli.interrupts import Interrupted, Interrupts
from gptsh.cli.options import Flags
from gptsh.cli.prompt import prompt_for
from gptsh.cli.reporter import Reporter, as_error
from gptsh.cli.session import OpenedSession, Session, agent_for, open_session, saves, session_ref, start_session
from gptsh.config import settings
from gptsh.config.forms import STRUCTURED
from gptsh.config.settings import Agent
from gptsh.core import document, references, sessions
from gptsh.core.document import Document
from gptsh.errors import GptshError, SessionGone, UnknownSession, UsageError
from gptsh.jsonio import as_dicts
from gptsh.messages import Message, text_of
from gptsh.render.plain import look
from gptsh.text import open_fence, quantity

if TYPE_CHECKING:
    from gptsh.cli.app import App, TurnSetup
    from gptsh.cli.plan import Plan
    from gptsh.cli.turn import Turn

_IN_PLACE = ("messages", "context", "usage", "meta")  # what a turn changes of a document in place
_RECAP, _RECAP_LINES, _RECAP_CHARS = 2, 10, 2000  # turns of a recap; lines and characters of each question and answer
_PLAIN = "\x1b[0m"
_BRACKETS, _NO_BRACKETS = "\x1b[?2004h", "\x1b[?2004l"  # around what is pasted


def repl(flags: Flags, environ: Mapping[str, str], reporter: Reporter) -> int:
    """Ask line by line until the user leaves; the exit code: 1 where something could not be saved.

    Raises GptshError for what is wrong before the first line, Interrupted for a signal that ends the process.
    """
    check_reader(flags)
    reporter.output = "text"  # whatever is configured for programs
    talk = Conversation(flags, environ, reporter)
    time_limit(flags, talk.settings)
    with Interrupts(None, in_conversation=True) as interrupts:
        talk.begin()
        first = None
        if flags.prompt or flags.file or not stdio.is_terminal(sys.stdin):
            first = read_question(flags, talk.settings)
        with interrupts.shielded():
            return talk.run(first, interrupts)


def check_reader(flags: Flags) -> None:
    """Raise UsageError where no person reads the answers of a conversation."""
    if flags.output in STRUCTURED:
        raise UsageError(f"-o {flags.output} is for programs, and -i for a person", "leave one of them out")
    if not stdio.is_terminal(stdio.stdout()):
        raise UsageError("-i answers on a terminal, and standard output is none", "leave out -i to ask once")


class Conversation:
    """A session, how its next turn is asked, and the loop that reads and does line by line.

    ``session`` is as it was read last, or as the last turn left it; ``ahead``: its document has what no disk has.
    ``flags`` are those of the next turns, ``sent`` is the last request, ``suggested`` what the next line begins with.
    ``over``: the user has had enough.
    """

    def __init__(self, flags: Flags, environ: Mapping[str, str], reporter: Reporter) -> None:
        self.settings = settings.load(environ, flags.config)
        self.flags = flags
        self.session = OpenedSession()
        self.ahead = False
        self.sent: Plan | None = None
        self.suggested = ""
        self.over = False
        self._app: App | None = None
        self._environ, self._reporter = environ, reporter

    # ---- what it is at

    @property
    def app(self) -> "App":
        """What questions are asked with. It is made when it is wanted first: the prompt comes before it."""
        if self._app is None:
            from gptsh.cli.app import App  # noqa: PLC0415 - as it says

            self._app = App(self.settings, self._environ, self._reporter, keeps_tools=True)
        return self._app

    @property
    def doc(self) -> Document | None:
        """The session's document; None before the first turn of a new one."""
        return self.session.doc

    @property
    def ref(self) -> str | None:
        """What means the session on a command line; None where it has no file, or not any more."""
        at = self.session.at
        return references.ref_of(at) if at and not at.startswith("@") and references.exists(at) else None

    @property
    def saves(self) -> bool:
        """Whether turns are to be saved."""
        return saves(self.flags, self.settings)

    @property
    def origin(self) -> str | None:
        """What means the session that keeps what a fork from here leaves out; None where that is on no disk."""
        if self.ahead or self.session.at:
            return None if self.ahead else self.ref
        return references.split_ref(self.session.ref)[0] if self.session.ref else None

    def snapshots(self) -> list[str]:
        """The names of its snapshots, the newest first."""
        taken = as_dicts(self.doc["context"].get("snapshots")) if self.doc else []
        return [str(item.get("name")) for item in reversed(taken)]

    def agent(self) -> Agent:
        """Who answers next. Raises ConfigError, UsageError."""
        return agent_for(self.flags, self.settings, self.doc)

    # ---- going elsewhere

    def begin(self) -> None:
        """With the session that the command line or the environment names, labelled. Raises what is wrong with that."""
        self.session = open_session(session_ref(self.flags, self.settings))
        self.flags = self.flags._replace(session=None, continue_=False, new=False, resume=False)
        if self.flags.snapshot is not None:
            check_snapshot(self.flags, self.settings, self.doc)
        if self.agent().model is None:
            raise self.app.no_model_error()
        if self.flags.has_labels and self.saves and self.ref:  # whether anything is asked or not
            from gptsh.cli.manage import label  # noqa: PLC0415 - as above

            label(self.ref, self.flags, self.settings.context.snapshots)
            self.flags = self.flags.without_labels
            self.refresh()

    def go_to(self, ref: str | None) -> None:
        """Another session, or where ``ref`` is None a new one; at a point a fork, which its first turn saves."""
        self.session, self.ahead, self.flags = open_session(ref), False, self.flags.without_labels

    def fork(self, point: str) -> str | None:
        """Go on in a fork of the session as it stood at a point; the reference of the session that keeps all.

        The first turn saves it. Raises UnknownSession where there is no such point.
        """
        doc, origin = self.doc, self.origin
        assert doc is not None  # there is a session
        cut = document.at_point(doc, point)
        turns = len(document.turns(cut["messages"]))
        if origin:  # by turns, since the session may grow; a snapshot knows how the session was sent, too
            self.go_to(f"{origin}@{turns if not point or document.is_numbered(point) else point}")
        else:
            self.session, self.ahead = OpenedSession(None, sessions.fork_session(cut, point)), self.ahead and turns > 0
        self.flags = self.flags._replace(snapshot=None)
        return origin

    def refresh(self) -> None:
        """Read the session again: another run may have added to it. Raises SessionGone, BadSession."""
        at = self.session.at
        if self.ahead or at is None:
            return
        try:
            self.session = open_session(at)
        except UnknownSession as err:
            todo = "/fork goes on with what was said, /session export FILE writes it"
            raise SessionGone(f"session {at[references.ID]} was deleted meanwhile", todo) from err

    # ---- asking

    def turn(self, question: Message | None, flags: Flags) -> None:
        """One turn, as a run of its own would be; without a question the one that has no answer yet.

        Raises GptshError and Interrupted behind what is saved.
        """
        from gptsh.cli.turn import Turn  # noqa: PLC0415 - behind the prompt

        self.refresh()
        with Interrupts(time_limit(flags, self.settings), in_conversation=True) as interrupts, _typed_ahead(interrupts):
            opened = self._copied()
            who = self.app.resolve(flags, opened.doc)
            turn = Turn(self.app, flags, interrupts, opened, question, who)
            try:
                turn.run()
            finally:
                with interrupts.ignored():
                    self._go_on_from(turn, asked=question is not None)

    def planned(self, question: Message | None) -> "tuple[TurnSetup, Plan]":
        """How a turn would be asked, with the tools that run; nothing is saved. Raises GptshError as a turn does."""
        from gptsh.cli.plan import Planner  # noqa: PLC0415 - behind the prompt

        with suppress(SessionGone):
            self.refresh()
        flags, app, opened = self.flags.without_labels._replace(dry_run=True), self.app, self._copied()
        who = app.resolve(flags, opened.doc)
        session = start_session(opened, question, who.agent, who.form.output, flags, app.settings)
        planner = Planner(app, flags, who, session, app.running_tools(who.servers))
        return who, planner.plan(session.doc["messages"], dry=True)

    def _copied(self) -> OpenedSession:
        """The session with a document of its own: a turn that comes to nothing leaves no trace in ours."""
        doc = self.doc
        return self.session._replace(doc={**doc, **{key: doc[key].copy() for key in _IN_PLACE}} if doc else None)

    def _go_on_from(self, turn: "Turn", *, asked: bool) -> None:
        """Stay with what a turn came to, if it came so far as to be saved."""
        session = turn.session
        if not session.save_attempted:
            return
        self.session = OpenedSession(session.name or self.session.ref, session.doc, session.name or session.at)
        self.ahead, self.sent = not session.is_saved, turn.sent or self.sent
        self.suggested = ""
        self.flags = self.flags._replace(prompt=(), file=() if asked else self.flags.file, snapshot=None)
        if session.is_saved:
            self.flags = self.flags.without_labels

    # ---- line by line

    def run(self, first: Message | None, interrupts: Interrupts) -> int:
        """Read and do until the user leaves; the exit code. Raises Interrupted for a signal that is not Ctrl-C."""
        prompt = prompt_for(self, interrupts, self._begin_with_recap if self.doc and first is None else None)
        has_printed, code, ended = first is not None, 0, None
        try:
            if first is not None:
                if self.doc:
                    self._begin_with_recap()
                self.suggested = " ".join(self.flags.prompt)
                failure = self._tried(lambda: self.turn(first, self.flags), interrupts)
                if failure and self.sent is None and has_piped_input(first):
                    self.over, code = True, failure.exit_code
            while not self.over:
                if has_printed:
                    stdio.write_lines([""])
                line = prompt.read(self.suggested).rstrip("\n")
                self.suggested, has_printed = "", bool(line.strip())
                if has_printed:
                    self._tried(partial(self._do, line), interrupts)
        except EOFError:
            pass
        except Interrupted as err:
            ended = err
        finally:
            code = self._leave(interrupts) or code
        if self.ref:
            stdio.note(f"the session is kept: 'gptsh -i -s {self.ref}' goes on with it")
        if ended:
            raise ended
        return code

    def _do(self, line: str) -> None:
        """Carry a command out, or ask, with the files that were attached for it. Raises GptshError, Interrupted."""
        if is_command(line):
            from gptsh.cli import slash  # noqa: PLC0415 - behind the prompt

            command, args = find(line)
            getattr(slash, command.function)(self, args)
            return
        flags = self.flags._replace(prompt=(line,), no_stdin=True)
        self.suggested = line  # until it is saved
        self.turn(read_question(flags, self.settings), flags)

    def _tried(self, do: Callable[[], object], interrupts: Interrupts) -> GptshError | None:
        """Do it; a failure is reported and returned. Raises Interrupted for a signal that is not Ctrl-C."""
        failure: GptshError | None = None
        try:
            with interrupts.waiting():
                do()
        except GptshError as err:
            failure = err
        except Interrupted as ended:
            if ended.by_user:
                stdio.note(f"interrupted{': ' if ended.hint else ''}{ended.hint}")
            elif ended.by_deadline:
                failure = as_error(ended)
            else:
                raise
        except BrokenPipeError:  # of a pager
            pass
        except MemoryError:
            failure = UsageError("the input is too large for this machine's memory")
        if failure:
            self._reporter.fail(failure)
        return failure

    def _begin_with_recap(self) -> None:
        self.show_recap()
        stdio.write_lines([""])

    def show_recap(self) -> None:
        """Print the last questions and answers as ``--show-session`` does, and what to do about an unfinished turn."""
        if self.doc is None:
            return
        from gptsh.render.terminal import drawn  # noqa: PLC0415 - 0.15 s that a new session needs behind its prompt
        from gptsh.render.transcript import transcript  # noqa: PLC0415 - the same

        messages, width, how = self.doc["messages"], stdio.width(stdio.stdout()), look(os.environ, terminal=True)
        starts, blocks = document.turns(messages), []
        if earlier := len(starts[:-_RECAP]):
            blocks.append(f"… {quantity(earlier, 'earlier turn')}: /history shows all")
        for start, behind in [*pairwise((*starts, len(messages)))][-_RECAP:]:
            answers = [m for m in messages[start + 1 : behind] if m["role"] == "assistant" and text_of(m)]
            for message in (messages[start], *answers[-1:]):
                pieces = islice(transcript({**self.doc, "messages": [message]}, ()), 2, None)  # no title, no facts
                whole = "\n\n".join(pieces)
                head = "\n".join(whole.split("\n", _RECAP_LINES)[:_RECAP_LINES])[:_RECAP_CHARS]
                lines = "\n".join(drawn([f"{head}\n{open_fence(head)}"], how, width)).split("\n")
                is_cut = len(lines) > _RECAP_LINES or head != whole
                cut = [f"{_PLAIN if how.styles else ''}… /history shows all"] if is_cut else []
                blocks.append("\n".join((*lines[:_RECAP_LINES], *cut)))
        stdio.write_lines(["\n\n".join(blocks)] if blocks else [], safe=True)
        last = messages[starts[-1] :] if starts else []
        if document.unanswered(last):
            stdio.note("the last question has no answer yet: /retry asks it")
        elif document.unfinished(last):
            stdio.note("the last turn has not ended: /retry goes on with it")

    # ---- leaving

    def keep(self) -> bool:
        """Whether all is on disk that is to be; what could not be saved is tried once more."""
        if not (self.ahead and self.saves and self.doc):
            return True
        session = Session(self.doc, self.session.at, self.flags, self.settings)
        if not session.save(fsync=True):
            return False
        self.session = self.session._replace(ref=session.name, at=session.name)
        self.ahead, self.flags = False, self.flags.without_labels
        return True

    def _leave(self, interrupts: Interrupts) -> int:
        """End what goes on behind the prompt, and try once more to save what could not be; the exit code."""
        if self._app:
            self._app.close_tools(interrupts)
        try:
            self.refresh()
            if self.keep():
                return 0
            stdio.note("this conversation is not on disk")
        except GptshError as err:
            stdio.note(f"this conversation is not on disk: {err}")
        return 1


# ---- the terminal meanwhile


@contextmanager
def _typed_ahead(interrupts: Interrupts) -> Iterator[None]:
    """A stretch in which what is typed is not shown, and waits for the next prompt, Ctrl-C or not.

    What is pasted keeps its brackets, so that it is one message there. A dumb terminal goes on to edit the line itself.
    """
    out = stdio.stdout()
    assert out is not None  # it is a terminal
    frames, sink = stdio.shows_frames(out), stdio.Sink(out)
    with ExitStack() as mended:
        interrupts.before_kill.append(mended.close)
        with suppress(termios.error, OSError):  # the terminal is gone
            off = termios.ECHO | termios.ICANON if frames else 0
            mended.enter_context(stdio.line_modes(out.fileno(), on=termios.NOFLSH, off=off))
            if frames:
                sink.offer(_BRACKETS)
                mended.callback(sink.offer, _NO_BRACKETS)
        yield
