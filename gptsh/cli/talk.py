"""A conversation: its session, how its next turn is asked, and its turns, each carried out as one of ``ask`` is."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gptsh.cli import stdio
from gptsh.cli.opening import Opened, open_session
from gptsh.cli.options import Flags
from gptsh.cli.reporter import Reporter
from gptsh.cli.signals import Endings
from gptsh.cli.wanted import agent_for, saves, seconds_of
from gptsh.core import document, references, sessions, settings
from gptsh.core.document import Document
from gptsh.core.messages import Message
from gptsh.core.settings import Agent

if TYPE_CHECKING:
    from gptsh.cli.ask import Desk, Turn
    from gptsh.cli.fitting import Built
    from gptsh.cli.prepare import Draft


class Talk:
    """What a conversation is at, and what commands change of it.

    ``flags`` are those of its next turns, ``opened`` the session as it was read last or left by the last turn,
    ``last`` that turn, ``sent`` the last request to the model, ``suggested`` what the next line begins with. ``over``:
    the user has had enough.
    """

    def __init__(self, flags: Flags, environ: Mapping[str, str], reporter: Reporter) -> None:
        self.settings = settings.load(environ, flags.config)
        self.flags = flags
        self.opened = Opened()
        self.last: Turn | None = None
        self.sent: Built | None = None
        self.suggested = ""
        self.over = False
        self._unkept: Turn | None = None  # whose messages are in memory alone
        self._desk: Desk | None = None
        self._environ, self._reporter = environ, reporter
        self._changed = False  # whether the document has in memory what no turn has brought

    # ---- what it is at

    @property
    def desk(self) -> "Desk":
        """What questions are asked with. It is made when it is wanted first: the prompt comes before it."""
        if self._desk is None:
            from gptsh.cli.ask import desk_for  # noqa: PLC0415 - as it says

            self._desk = desk_for(self.settings, self._environ, self._reporter, keeps_tools=True)
        return self._desk

    @property
    def doc(self) -> Document | None:
        """The session's document; None before the first turn of a new one."""
        return self.opened.doc

    @property
    def ref(self) -> str | None:
        """What means the session on a command line; None where it is on no disk yet."""
        at = self.opened.at
        return references.ref_of(at) if at and not at.startswith("@") else None

    @property
    def saves(self) -> bool:
        """Whether turns are to be kept."""
        return saves(self.flags, self.settings)

    @property
    def is_kept(self) -> bool:
        """Whether all that was said is on disk, as far as it is to be."""
        return self._unkept is None or not self.saves

    @property
    def in_memory(self) -> bool:
        """Whether commands are to change the document in memory: all or a part of it is on no disk, or is not to be."""
        return not (self.saves and self.on_disk)

    @property
    def on_disk(self) -> bool:
        """Whether all of the session is on disk."""
        return self.ref is not None and not (self._unkept or self._changed)

    @property
    def origin(self) -> str | None:
        """What means the session that this one is a fork of, for as long as nothing was asked in it."""
        if self.ref or self._unkept or self.doc is None or self.opened.ref is None:
            return None
        return references.split_ref(self.opened.ref)[0]

    def agent(self) -> Agent:
        """Who answers next. Raises ConfigError, UsageError."""
        return agent_for(self.flags, self.settings, self.doc)

    # ---- going elsewhere

    def go_to(self, ref: str | None) -> None:
        """Another session, or where ``ref`` is None a new one; at a point a fork, which its first turn saves."""
        self.opened = open_session(ref)
        self.last, self.sent, self._unkept, self._changed = None, None, None, False
        self.flags = _of_no_session(self.flags)._replace(session=None, continue_=False, new=False, resume=False)

    def fork_at(self, point: str) -> None:
        """A fork of the session as it stood at a point, which its first turn saves. Raises UnknownSession.

        What is in memory alone is forked there. One that nothing was asked in stays one of the session it is of.
        """
        if self.on_disk:
            self.go_to(f"{self.ref}@{point}")
            return
        doc, origin = self.doc, self.origin
        assert doc is not None  # there is a session
        cut = sessions.cut_at(doc, point)
        fork, turns = sessions.fork_session(cut, point), len(document.turns(cut["messages"]))
        if document.is_unsaved(doc):  # then its id means nothing
            of = doc["meta"].get("forked_from")
            fork["meta"]["forked_from"] = f"{references.split_ref(of)[0]}@{turns}" if origin else of
        self.opened = Opened(f"{origin}@{turns}" if origin else None, fork, None)
        self.last, self.sent, self._unkept, self._changed = None, None, None, False

    def ask_at(self, point: str, question: Message) -> None:
        """Ask in a fork of the session at a point; where nothing comes of it, stay here. Raises as ``turn``."""
        before = (self.opened, self.last, self.sent, self._unkept, self._changed, self.flags)
        self.fork_at(point)
        fork = self.opened
        try:
            self.turn(question, self.flags)
        finally:
            if self.opened is fork:
                self.opened, self.last, self.sent, self._unkept, self._changed, self.flags = before

    def changed(self) -> None:
        """The document was changed in memory: from now on it is not read again."""
        self._changed = True

    def forget_choices(self) -> None:
        """The session's own agent, model, system prompt, parameters and tools again."""
        self.flags = without_choices(self.flags)

    def refresh(self) -> None:
        """Read the session again: another run may have added to it. Raises as ``open_session``."""
        ref = self.ref
        if ref and not (self._unkept or self._changed):
            self.opened = open_session(self.opened.at)

    # ---- asking

    def ask(self, words: str) -> None:
        """Ask the words, with the files that were attached for them. Raises GptshError, Ended."""
        flags = self.flags._replace(prompt=(words,), no_stdin=True)
        self.suggested = words  # until it is kept
        from gptsh.cli.question import read_question  # noqa: PLC0415 - behind the prompt

        question = read_question(flags, self.settings)
        self.turn(question, flags)

    def turn(self, question: Message | None, flags: Flags) -> None:
        """One turn, as a run of its own would be; without a question the one that has no answer yet.

        Raises GptshError and Ended behind what is kept.
        """
        from gptsh.cli.ask import Turn  # noqa: PLC0415 - the same

        self.refresh()
        with Endings(seconds_of(flags, self.settings), stays=True) as endings:
            turn = Turn(self.desk, flags, endings)
            try:
                turn.carry_out(question, self._own(self.opened))
            finally:
                with endings.ignored():
                    self._go_on_from(turn, asked=question is not None)

    def draft(self, question: Message | None) -> "Draft":
        """What a turn would begin with, of which nothing stays. Raises GptshError where it cannot be asked."""
        from gptsh.cli.prepare import draft  # noqa: PLC0415 - the same

        self.refresh()
        flags, desk = _of_no_session(self.flags), self.desk
        return draft(flags, desk.settings, question, self._own(self.opened), desk.client, desk.reporter)

    @staticmethod
    def _own(opened: Opened) -> Opened:
        """The same, such that a turn that comes to nothing leaves no trace in it."""
        doc = opened.doc
        own = {"messages": [*doc["messages"]], "context": {**doc["context"]}} if doc else {}
        return opened._replace(doc={**doc, **own} if doc else None)

    def _go_on_from(self, turn: "Turn", *, asked: bool) -> None:
        """Stay with what a turn came to."""
        drafted, keeper = turn.drafted, turn.keeper
        if not (drafted and keeper and (turn.job or keeper.saved)):
            return
        self.last, self._unkept = turn, None if keeper.keeps else turn
        self._changed = self._changed and not keeper.keeps
        self.sent = turn.sent or self.sent
        self.opened = Opened(keeper.filename or self.opened.ref, drafted.doc, keeper.filename or drafted.at)
        self.suggested = ""
        self.flags = self.flags._replace(prompt=(), file=() if asked else self.flags.file)
        if keeper.keeps:
            self.flags = _of_no_session(self.flags)

    # ---- leaving

    def keep(self) -> bool:
        """Whether all is on disk that is to be, what could not be kept being tried once more."""
        if self.is_kept or not (self._unkept and self._unkept.keeper):
            return True
        keeper = self._unkept.keeper
        if keeper.save(durable=True):
            self.opened = self.opened._replace(at=keeper.filename)
            self._unkept, self._changed = None, False
        return self._unkept is None

    def leave(self, endings: Endings) -> int:
        """End what goes on behind the prompt, and try once more to keep what could not be; the exit code."""
        if self._desk:
            self._desk.tools.close(endings)
        if self.keep():
            return 0
        stdio.note("this conversation is not on disk")
        return 1


def without_choices(flags: Flags) -> Flags:
    """The flags without what is said about who answers, and how."""
    return flags._replace(agent=None, model=None, system=None, param=(), tools=None, no_tools=False)


def _of_no_session(flags: Flags) -> Flags:
    """The flags without what is said about a session once."""
    return flags._replace(title=None, tag=(), snapshot=None)
