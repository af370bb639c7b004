"""An agent's memory brought further: behind a turn where that is due, and by ``--consolidate``."""

import contextlib
import os
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

from gptsh.cli import show, stdio
from gptsh.cli.interrupts import Interrupted, Interrupts, each
from gptsh.cli.options import Flags
from gptsh.cli.reporter import in_words
from gptsh.cli.session import Session
from gptsh.cli.small import small_of
from gptsh.cli.wanted import saves, seconds_of
from gptsh.config import settings
from gptsh.config.settings import Settings, Wanted
from gptsh.content.answer import Ask, Request
from gptsh.context import memory
from gptsh.context.memory import Step
from gptsh.context.summaries import Small
from gptsh.core import references, sessions
from gptsh.core.document import Document
from gptsh.core.listing import SessionSummary
from gptsh.errors import ConfigError, GptshError, ModelError, StoreBusy, UsageError
from gptsh.llm.client import Client
from gptsh.messages import Event
from gptsh.models.facts import split_model
from gptsh.render import structured
from gptsh.text import counted, one_line

_CALLS = 4  # of small models behind one turn, at most; the next one goes on
_MOST = 60.0  # seconds that all of that may take
_WAIT = 60.0  # seconds that --consolidate waits for another process, which waits for a model
_LOOK = 0.2  # seconds between two looks for a signal
_SAID = "remembering"


class _Hands(NamedTuple):
    """What memories are brought further with."""

    settings: Settings
    client: Client
    interrupts: Interrupts
    ask: Ask  # as ``client.ask``, where a signal may end the waiting

    @property
    def having(self) -> set[str]:
        """The agents that have a memory."""
        return {name for name, agent in self.settings.agents.items() if agent.memory}

    def remembering(self, doc: Document) -> set[str]:
        """Those of a session that have one. ``echo`` can remember nothing: its agents count as without."""
        answered = self.having & {*memory.owners_of(doc).values()}
        return {name for name in answered if not is_echo(self.model(doc, name))}

    def model(self, doc: Document, agent: str) -> str | None:
        """The small model of an agent, in the session whose agent it is as that session has it."""
        stored = settings.stored_agent(doc)
        own = (Wanted(), stored) if stored.name == agent else (Wanted(agent), None)
        return settings.small_model(self.settings, settings.choose_agent(self.settings, *own))

    def next(self, filename: str, upto: str | None = None) -> str | None:
        """Whose memory lacks what comes next in a session; None where nothing does."""
        doc = sessions.load_session(filename)
        stretch = memory.next_stretch(doc, self.remembering(doc), upto)
        return stretch.agent if stretch else None

    def steps(self, filename: str, agent: str, wait: float, upto: str | None = None) -> Generator[Step, None, None]:
        """Bring one memory on, step by step. Raises ConfigError where no model is known, StoreBusy after ``wait``."""
        with show.Screen().turning(_SAID), _awaited(agent, self.interrupts, wait):
            doc = sessions.load_session(filename)
            small = self._small(doc, agent)
            for step in memory.consolidate(doc, filename, agent, small, self.remembering(doc), upto):
                if step.note:
                    stdio.note(step.note)
                yield step

    def _small(self, doc: Document, agent: str) -> Small:
        model = self.model(doc, agent)
        if model is None:
            raise ConfigError("no model is known that could remember", f"set agents.{agent}.model_small")
        return small_of(self.settings, self.client, self.ask, model)


def is_echo(model: str | None) -> bool:
    """Whether a model is the one that can remember nothing."""
    return model is not None and split_model(model)[0] == "echo"


class _Calls:
    """Small models asked, so many times in all. Raises ModelError behind that: ``ran_out`` says that this was why."""

    def __init__(self, ask: Ask, most: int) -> None:
        self.left, self.ran_out = most, False
        self._ask = ask

    def __call__(self, request: Request) -> Iterator[Event]:
        """As ``client.ask``."""
        if self.left < 1:
            self.ran_out = True
            raise ModelError(f"{_CALLS} calls for memories were made behind this turn")
        self.left -= 1
        return self._ask(request)


class AfterTurn:
    """What is done behind a turn, within ``held``: what is due is put into the memories of the session's agents."""

    def __init__(self, loaded: Settings, client: Client, interrupts: Interrupts) -> None:
        self._calls = _Calls(lambda request: each(client.ask(request)), _CALLS)
        self._hands = _Hands(loaded, client, interrupts, self._calls)
        self._whose: str | None = None  # the memory that is brought on

    def run(self, doc: Document, session: Session) -> Interrupted | None:
        """All of it, of the document that was kept; a signal other than Ctrl-C, which ended that.

        Ctrl-C only means that it is not worth the wait. The deadline counts again. A failure is a note, and the next
        turns do not try again; where another process is at it, nothing is done.
        """
        interrupts, why = self._hands.interrupts, None
        interrupts.rearm(_MOST)
        try:
            self._bring_further(doc, session.name or "")
        except StoreBusy:
            return None
        except GptshError as err:
            why = None if self._calls.ran_out else str(err)
        except Interrupted as ended:
            if not ended.by_deadline:
                ended.hint = f"all is kept in session {session.ref}, but not remembered yet"
                return None if ended.by_user else ended
            why = "timed out"
        finally:
            interrupts.disarm()
        if why:
            self._put_off(doc, why)
        return None

    def _bring_further(self, doc: Document, filename: str) -> None:
        rules, hands, calls = self._hands.settings.context, self._hands, self._calls
        upto = memory.due(doc, rules)
        while upto and (whose := hands.next(filename, upto)) and not memory.is_put_off(doc, whose, rules):
            self._whose, before = whose, calls.left
            with contextlib.closing(hands.steps(filename, whose, 0, upto)) as steps:
                for _ in steps:
                    if calls.left < max(1, before - calls.left):  # the next step may take as many as this one
                        return
                    before = calls.left

    def _put_off(self, doc: Document, why: str) -> None:
        agent = self._whose or doc["agent"].get("name") or "default"
        model = None
        with contextlib.suppress(ConfigError):  # which is what is said then
            model = self._hands.model(doc, agent)
        stdio.note(f"not remembered yet: agent {agent}{f', {model}' if model else ''}: {why}")
        memory.put_off(doc, agent)


@contextlib.contextmanager
def _awaited(agent: str, interrupts: Interrupts, wait: float) -> Iterator[None]:
    """The agent's memory locked, once it is free. Raises StoreBusy where it is not after ``wait`` seconds."""
    until = time.monotonic() + wait
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(memory.locked(agent, min(wait, _LOOK)))
                break
            except StoreBusy:
                if time.monotonic() > until:
                    raise
            interrupts.check()
        yield


# ---- --consolidate


class Consolidated(NamedTuple):
    """What came of one session, or of what one agent answered in it: how many messages went into the memory."""

    session: str
    agent: str
    messages: int
    error: GptshError | None

    def line(self) -> str:
        """For people."""
        what = counted(self.messages, "message")
        if self.error:
            what = f"failed behind {what}" if self.messages else "failed"
        return one_line(f"{self.session} ({self.agent}) {what}")

    def fields(self) -> dict[str, Any]:
        """For programs."""
        err = self.error
        told = structured.error(str(err), err.hint, err.exit_code) if err else None
        return {**self._asdict(), "error": told}


class Consolidation:
    """``exit_code`` is that of the first failure; behind one the other sessions are tried all the same.

    ``ended`` is the signal or the deadline that ended it, if one did: then what came of the session is told, no more.
    To be run within ``held``. ``stays``: the process goes on behind it, whatever ends it.
    """

    def __init__(self, flags: Flags, *, wait: float = _WAIT, stays: bool = False) -> None:
        self.exit_code = 0
        self.ended: Interrupted | None = None
        loaded = settings.load(os.environ, flags.config)
        if not saves(flags, loaded):
            raise UsageError("--consolidate writes a memory, and nothing is to be saved", "leave out --no-save")
        self.interrupts = Interrupts(seconds_of(flags, loaded), stays=stays)
        client = Client(loaded, os.environ)
        client.deadline = self.interrupts.deadline
        self._hands = _Hands(loaded, client, self.interrupts, lambda request: each(client.ask(request)))
        self._wait = wait
        self._busy: set[str] = set()  # agents whose memory another process holds
        self._at: str | None = None  # the agent whose memory is brought on

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Signals and the deadline end the waiting for a model, for another process, and for a reader that stalls."""
        try:
            with self.interrupts, self.interrupts.shielded():
                yield
        except Interrupted as ended:
            self.ended = self.ended or ended

    def of_one(self, ref: str) -> Iterator[Consolidated]:
        """The session of a reference. Raises UsageError where none of its agents has a memory."""
        if references.split_ref(ref)[1] is not None:
            raise UsageError(f"{ref}: a point cannot be consolidated", "name the session alone")
        filename = references.filename_of(ref)
        doc = sessions.load_session(filename)
        own = settings.stored_agent(doc).name
        having = self._hands.having & {own, *memory.owners_of(doc).values()}
        if not having:
            raise UsageError(f"agent {own!r} of session {doc['id']} has no memory", f"set agents.{own}.memory")
        if all(is_echo(self._hands.model(doc, name)) for name in having):
            raise UsageError("echo can remember nothing", f"set agents.{min(having)}.model_small")
        done = False
        for item in self._of_session(doc["id"], filename, own):
            done = True
            yield item
        if not done:
            yield Consolidated(doc["id"], own, 0, None)

    def of_left(self, filename: str) -> Iterator[Consolidated]:
        """A session that a conversation leaves; nothing where there is nothing to do."""
        if self._hands.having:
            doc = sessions.load_session(filename)
            yield from self._of_session(doc["id"], filename, settings.stored_agent(doc).name)

    def of_all(self, items: Sequence[SessionSummary]) -> Iterator[Consolidated]:
        """Those of the sessions in which there was something to do, as it is done."""
        if not self._hands.having:
            stdio.note("no agent has a memory: agents.NAME.memory = true gives it one")
            return
        for item in items:
            yield from self._of_session(item["id"], item["filename"], item["agent"] or "default")

    def _of_session(self, session: str, filename: str, agent: str) -> Iterator[Consolidated]:
        """What came of a session, for each stretch that one agent answered."""
        while self.ended is None:
            done = self._tried(session, filename, agent)
            if done.messages or done.error:
                yield done
            if done.error or self._at is None:
                return

    def _tried(self, session: str, filename: str, agent: str) -> Consolidated:
        """What came of the next stretch of a session; a failure is said on stderr."""
        done, error = 0, None
        self._at = None
        try:
            for step in self._steps(filename):
                done += step.messages
        except Interrupted as ended:
            self.ended, error = ended, in_words(ended)
        except GptshError as err:
            error = err
            self.exit_code = self.exit_code or err.exit_code
            stdio.note(f"session {session}: {err}")
            if isinstance(err, StoreBusy) and self._at:
                self._busy.add(self._at)
                stdio.note(f"the memory of {self._at} is in use: its other sessions are left out")
        return Consolidated(session, self._at or agent, done, error)

    def _steps(self, filename: str) -> Iterator[Step]:
        self.interrupts.check()
        whose = self._hands.next(filename)
        if whose and whose not in self._busy:
            self._at = whose
            yield from self._hands.steps(filename, whose, self._wait)
