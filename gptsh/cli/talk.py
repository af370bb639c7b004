"""A conversation: its session, how its next turn is asked, and its turns, each carried out as one of ``ask`` is."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from gptsh.cli import stdio
from gptsh.cli.ahead import kept_for_the_prompt
from gptsh.cli.ask import agent_for, read_question, seconds_of
from gptsh.cli.interrupts import Interrupts
from gptsh.cli.options import Flags
from gptsh.cli.reporter import Reporter
from gptsh.cli.session import Opened, Session, open_session, saves, session_ref
from gptsh.config import settings
from gptsh.config.forms import STRUCTURED
from gptsh.config.settings import Agent
from gptsh.core import document, references, sessions
from gptsh.core.document import Document
from gptsh.errors import BadSession, GptshError, SessionGone, UnknownSession, UsageError
from gptsh.messages import Message

if TYPE_CHECKING:
    from gptsh.cli.plan import Plan, Planner, Respondent
    from gptsh.cli.turn import App, Turn


class Place(NamedTuple):
    """Where a conversation is: its session as it was read last, or as the last turn left it.

    ``ahead``: the document in memory has what no disk has. ``gone``: why its file cannot be followed any more.
    ``sent`` is the last request to the model.
    """

    opened: Opened = Opened()
    ahead: bool = False
    gone: GptshError | None = None
    sent: "Plan | None" = None


class Talk:
    """What a conversation is at, and what commands change of it.

    ``flags`` are those of its next turns, ``suggested`` is what the next line begins with, ``turns`` how many came to
    something here. ``over``: the user has had enough.
    """

    def __init__(self, flags: Flags, environ: Mapping[str, str], reporter: Reporter) -> None:
        self.settings = settings.load(environ, flags.config)
        self.flags = flags
        self.place = Place()
        self.suggested = ""
        self.turns = 0
        self.over = False
        self._app: App | None = None
        self._environ, self._reporter = environ, reporter

    # ---- what it is at

    @property
    def app(self) -> "App":
        """What questions are asked with. It is made when it is wanted first: the prompt comes before it."""
        if self._app is None:
            from gptsh.cli.turn import App  # noqa: PLC0415 - as it says

            self._app = App(self.settings, self._environ, self._reporter, keeps_tools=True)
        return self._app

    @property
    def opened(self) -> Opened:
        """The session, and where it is."""
        return self.place.opened

    @property
    def doc(self) -> Document | None:
        """The session's document; None before the first turn of a new one."""
        return self.opened.doc

    @property
    def ref(self) -> str | None:
        """What means the session on a command line; None where it is on no disk."""
        at = self.opened.at
        return references.ref_of(at) if at and not at.startswith("@") and not self.place.gone else None

    @property
    def saves(self) -> bool:
        """Whether turns are to be kept."""
        return saves(self.flags, self.settings)

    @property
    def on_disk(self) -> bool:
        """Whether all of the session is on disk."""
        return self.ref is not None and not self.place.ahead

    @property
    def in_memory(self) -> bool:
        """Whether commands are to change the document in memory: all or a part of it is on no disk, or is not to be."""
        return not (self.saves and self.on_disk)

    @property
    def is_lacking(self) -> bool:
        """Whether something that is to be on disk is not."""
        return self.saves and self.place.ahead

    @property
    def origin(self) -> str | None:
        """What means the session that keeps what a fork from here leaves out; None where that is on no disk."""
        if self.on_disk:
            return self.ref
        if self.ref or self.place.ahead or self.doc is None or self.opened.ref is None:
            return None
        return references.split_ref(self.opened.ref)[0]  # of a fork that nothing was asked in

    def agent(self) -> Agent:
        """Who answers next. Raises ConfigError, UsageError."""
        return agent_for(self.flags, self.settings, self.doc)

    # ---- going elsewhere

    def begin(self) -> None:
        """With the session that the command line or the environment names. Raises as ``open_session``."""
        self.place = Place(open_session(session_ref(self.flags, self.settings)))
        self.flags = self.flags._replace(session=None, continue_=False, new=False, resume=False)

    def go_to(self, ref: str | None) -> None:
        """Another session, or where ``ref`` is None a new one; at a point a fork, which its first turn saves."""
        self.place, self.flags = Place(open_session(ref)), self.flags.without_labels

    def fork_at(self, point: str) -> None:
        """A fork of the session as it stood at a point, which its first turn saves. Raises UnknownSession.

        What is in memory alone is forked there. One that nothing was asked in stays one of the session it is of. Title
        and tags that are still to be saved are the fork's.
        """
        self.place = Place(open_session(f"{self.ref}@{point}")) if self.on_disk else self._forked(point)
        self.flags = self.flags._replace(snapshot=None)

    def _forked(self, point: str) -> Place:
        """A fork of the document in memory. What is on no disk and should be is still to be kept."""
        doc, origin = self.doc, self.origin
        assert doc is not None  # there is a session
        cut = sessions.cut_at(doc, point)
        fork, turns = sessions.fork_session(cut, point), len(document.turns(cut["messages"]))
        if document.is_unsaved(doc):  # then its id means nothing
            of = doc["meta"].get("forked_from")
            fork["meta"]["forked_from"] = f"{references.split_ref(of)[0]}@{turns}" if origin else of
        opened = Opened(f"{origin}@{turns}" if origin else None, fork, None)
        return Place(opened, ahead=self.is_lacking and turns > 0)

    def ask_at(self, point: str, question: Message) -> None:
        """Ask in a fork of the session at a point; where nothing comes of it, stay here.

        Raises as ``fork_at`` and ``turn``.
        """
        place, flags = self.place, self.flags
        self.fork_at(point)
        fork = self.opened
        try:
            self.turn(question, self.flags)
        finally:
            if self.opened is fork:
                self.place, self.flags = place, flags

    def changed(self) -> None:
        """The document was changed in memory: from now on it is not read again."""
        self.place = self.place._replace(ahead=True)

    def forget_choices(self) -> None:
        """The session's own agent, model, system prompt, parameters and tools again."""
        self.flags = self.flags.without_choices

    def refresh(self) -> None:
        """Read the session again: another run may have added to it.

        One that was deleted or spoilt meanwhile stays in memory as it was.
        """
        at, is_new = self.opened.at, self.doc is None
        if not (self.on_disk or (is_new and at)):
            return
        try:
            self.place = self.place._replace(opened=self._again(at))
        except (SessionGone, BadSession) as err:
            self.place = self.place._replace(gone=err, ahead=True)

    def _again(self, at: str | None) -> Opened:
        """The session as its file has it now. Raises SessionGone, BadSession."""
        doc, ref = self.doc, self.ref
        try:
            opened = open_session(at)
        except UnknownSession as err:
            raise SessionGone(f"session {ref} was deleted meanwhile") from err
        if doc and opened.doc and not document.same_session(doc, opened.doc):
            raise SessionGone(f"session {ref} was replaced by another of the same id")
        return opened

    # ---- asking

    def ask(self, words: str) -> None:
        """Ask the words, with the files that were attached for them. Raises GptshError, Interrupted."""
        flags = self.flags._replace(prompt=(words,), no_stdin=True)
        self.suggested = words  # until it is kept
        self.turn(read_question(flags, self.settings), flags)

    def turn(self, question: Message | None, flags: Flags) -> None:
        """One turn, as a run of its own would be; without a question the one that has no answer yet.

        Raises GptshError and Interrupted behind what is kept.
        """
        from gptsh.cli.plan import resolve  # noqa: PLC0415 - behind the prompt
        from gptsh.cli.turn import Turn  # noqa: PLC0415 - the same

        self.refresh()
        if err := self.place.gone:
            raise type(err)(str(err), "/fork goes on with what was said, /session export FILE writes it")
        with (
            Interrupts(seconds_of(flags, self.settings), stays=True) as interrupts,
            kept_for_the_prompt(interrupts.before_kill),
        ):
            turn, opened = Turn(self.app, flags, interrupts), self._own(self.opened)
            try:
                who = resolve(self.app, flags, opened.doc, agent_for(flags, self.settings, opened.doc))
                turn.run(question, opened, who)
            finally:
                with interrupts.over():
                    self._go_on_from(turn, asked=question is not None)

    def planned(self, question: Message | None) -> "tuple[Respondent, Planner]":
        """How a turn would be asked, with the tools that run. Nothing of it stays. Raises GptshError as a turn does."""
        from gptsh.cli.plan import Planner, begin, resolve  # noqa: PLC0415 - behind the prompt

        self.refresh()
        flags, app, opened = self.flags.without_labels._replace(dry_run=True), self.app, self._own(self.opened)
        who = resolve(app, flags, opened.doc, agent_for(flags, self.settings, opened.doc))
        doc, _ = begin(flags, app.settings, question, opened, who)
        session = Session(doc, opened.at, flags, app.settings)
        return who, Planner(app, flags, who, session, app.running(who.servers))

    @staticmethod
    def _own(opened: Opened) -> Opened:
        """The same with a document of its own: what a turn that comes to nothing does to it leaves no trace."""
        doc = opened.doc
        return opened._replace(doc={**doc, **{key: _copied(doc[key]) for key in _CHANGED}} if doc else None)

    def _go_on_from(self, turn: "Turn", *, asked: bool) -> None:
        """Stay with what a turn came to, if it came so far as to keep something."""
        session, sent = turn.session, turn.sent
        if session is None or not session.was_saved:
            return
        opened = Opened(session.name or self.opened.ref, session.doc, session.name or session.at)
        self.place = Place(opened, ahead=not session.is_kept, sent=sent or self.place.sent)
        self.suggested, self.turns = "", self.turns + 1
        self.flags = self.flags._replace(prompt=(), file=() if asked else self.flags.file, snapshot=None)
        if session.is_kept:
            self.flags = self.flags.without_labels

    # ---- leaving

    def keep(self) -> bool:
        """Whether all is on disk that is to be, what could not be kept being tried once more."""
        if not self.is_lacking:
            return True
        if self.doc is None or self.place.gone:
            return False
        session = Session(self.doc, self.opened.at, self.flags, self.settings)
        if not session.save(durable=True):
            return False
        self.flags = self.flags.without_labels
        opened = self.opened._replace(ref=session.name, at=session.name)
        self.place = self.place._replace(opened=opened, ahead=False)
        return True

    def leave(self, interrupts: Interrupts) -> int:
        """End what goes on behind the prompt, and try once more to keep what could not be; the exit code."""
        if self._app:
            self._app.close_tools(interrupts)
        self.refresh()
        if self.keep():
            return 0
        stdio.note(f"this conversation is not on disk{f': {self.place.gone}' if self.place.gone else ''}")
        return 1


_CHANGED = ("messages", "context", "usage", "meta")  # of a document, in place


def _copied(value: list[object] | dict[str, object]) -> list[object] | dict[str, object]:
    return [*value] if isinstance(value, list) else {**value}


def check_reader(flags: Flags) -> None:
    """Raise UsageError where no person reads the answers of a conversation."""
    if flags.output in STRUCTURED:
        raise UsageError(f"-o {flags.output} is for programs, and -i for a person", "leave one of them out")
    if not stdio.is_terminal(stdio.answers_to()):
        raise UsageError("-i answers on a terminal, and standard output is none", "leave out -i to ask once")
