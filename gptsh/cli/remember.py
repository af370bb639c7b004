"""An agent's memory brought further: behind a turn where that is due, and by ``--consolidate``."""

import contextlib
import os
import time
from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from gptsh.cli import show, stdio
from gptsh.cli.ask import saves, seconds_of
from gptsh.cli.options import Flags
from gptsh.cli.prepare import Job
from gptsh.cli.reporter import in_words
from gptsh.cli.signals import Ended, Endings
from gptsh.cli.small import small_of
from gptsh.core import memory, references, sessions, settings
from gptsh.core.document import Document
from gptsh.core.memory import Step
from gptsh.core.models import split_model
from gptsh.core.sessions import SessionSummary
from gptsh.core.settings import Settings, Wanted
from gptsh.core.small import Small
from gptsh.errors import ConfigError, GptshError, StoreBusy, UsageError
from gptsh.llm.client import Client
from gptsh.render import structured
from gptsh.render.visible import one_line

_CALLS = 4  # behind one turn, at most; the next one goes on
_MOST = 60.0  # seconds that all of that may take
_WAIT = 60.0  # seconds that --consolidate waits for another process, which waits for a model
_LOOK = 0.2  # seconds between two looks for a signal
_SAID = "remembering"


class _Hands(NamedTuple):
    """What memories are brought further with."""

    settings: Settings
    client: Client
    endings: Endings

    @property
    def remembering(self) -> set[str]:
        """The agents that have a memory."""
        return {name for name, agent in self.settings.agents.items() if agent.memory}

    def model(self, doc: Document, agent: str) -> str | None:
        """The small model of an agent, in the session whose agent it is as that session has it."""
        stored = settings.stored_agent(doc)
        own = (Wanted(), stored) if stored.name == agent else (Wanted(agent), None)
        return settings.small_model(self.settings, settings.choose_agent(self.settings, *own))

    def next(self, filename: str, upto: str | None = None) -> str | None:
        """Whose memory lacks what comes next in a session; None where nothing does, and for ``echo``, which cannot."""
        doc = sessions.load_session(filename)
        stretch = memory.next_stretch(doc, self.remembering, upto)
        return stretch.agent if stretch and not is_echo(self.model(doc, stretch.agent)) else None

    def steps(self, filename: str, agent: str, wait: float, upto: str | None = None) -> Generator[Step, None, None]:
        """Bring one memory on, step by step. Raises ConfigError where no model is known, StoreBusy after ``wait``."""
        with show.Screen(self.endings.released).turning(_SAID), _awaited(agent, self.endings, wait):
            doc = sessions.load_session(filename)
            small = self._small(doc, agent)
            for step in memory.consolidate(doc, filename, agent, small, self.remembering, upto):
                if step.note:
                    stdio.note(step.note)
                yield step

    def _small(self, doc: Document, agent: str) -> Small:
        model = self.model(doc, agent)
        if model is None:
            raise ConfigError("no model is known that could remember", f"set agents.{agent}.model_small")
        return small_of(self.settings, self.client, self.endings.heard(self.client.ask), model)


def is_echo(model: str | None) -> bool:
    """Whether a model is the one that can remember nothing."""
    return model is not None and split_model(model)[0] == "echo"


def after_turn(job: Job, endings: Endings) -> Ended | None:
    """Put into the agents' memories what is due, within ``held``; a signal other than Ctrl-C, which ended that.

    Ctrl-C only means that it is not worth the wait. The deadline counts again. A failure is a note, and the next turns
    do not try again; where another process is at it, nothing is done.
    """
    agent, why = job.sending.agent.name, None
    endings.arm_again(_MOST)
    try:
        _bring_further(job, agent, endings)
    except StoreBusy:
        return None
    except GptshError as err:
        why = str(err)
    except Ended as ended:
        if not ended.by_deadline:
            return None if ended.by_user else ended
        why = "timed out"
    finally:
        endings.disarm()
    if why:
        stdio.note(f"not remembered yet: {why}")
        memory.put_off(job.doc, agent)
    return None


def _bring_further(job: Job, agent: str, endings: Endings) -> None:
    rules, hands = job.settings.context, _Hands(job.settings, job.client, endings)
    upto = memory.due(job.doc, rules)
    if upto is None or memory.is_put_off(job.doc, agent, rules):
        return
    filename, left = references.filename_of(job.doc["id"]), _CALLS
    while left and (whose := hands.next(filename, upto)):
        with contextlib.closing(hands.steps(filename, whose, 0, upto)) as steps:
            left -= sum(1 for _ in islice(steps, left))


@contextlib.contextmanager
def _awaited(agent: str, endings: Endings, wait: float) -> Iterator[None]:
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
            endings.listen()
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
        what = "1 message" if self.messages == 1 else f"{self.messages:,} messages"
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
    To be run within ``held``.
    """

    def __init__(self, flags: Flags, *, wait: float = _WAIT) -> None:
        self.exit_code = 0
        self.ended: Ended | None = None
        loaded = settings.load(os.environ, flags.config)
        if not saves(flags, loaded):
            raise UsageError("--consolidate writes a memory, and nothing is to be saved", "leave out --no-save")
        self.endings = Endings(seconds_of(flags, loaded))
        deadline = time.monotonic() + self.endings.seconds if self.endings.seconds else None
        self._hands = _Hands(loaded, Client(loaded, os.environ, deadline), self.endings)
        self._wait = wait
        self._busy: set[str] = set()  # agents whose memory another process holds
        self._at: str | None = None  # the agent whose memory is brought on

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Signals and the deadline end the waiting for a model, for another process, and for a reader that stalls."""
        try:
            with self.endings, self.endings.held():
                yield
        except Ended as ended:
            self.ended = self.ended or ended

    def of_one(self, ref: str) -> Iterator[Consolidated]:
        """The session of a reference. Raises UsageError where none of its agents has a memory."""
        if references.split_ref(ref)[1] is not None:
            raise UsageError(f"{ref}: a point cannot be consolidated", "name the session alone")
        filename = references.filename_of(ref)
        doc = sessions.load_session(filename)
        own = settings.stored_agent(doc).name
        having = self._hands.remembering & {own, *memory.owners_of(doc).values()}
        if not having:
            raise UsageError(f"agent {own!r} of session {doc['id']} has no memory", f"set agents.{own}.memory")
        if having == {own} and is_echo(self._hands.model(doc, own)):
            raise UsageError("echo can remember nothing", f"set agents.{own}.model_small")
        done = False
        for item in self._of_session(doc["id"], filename, own):
            done = True
            yield item
        if not done:
            yield Consolidated(doc["id"], own, 0, None)

    def of_all(self, items: Sequence[SessionSummary]) -> Iterator[Consolidated]:
        """Those of the sessions in which there was something to do, as it is done."""
        if not self._hands.remembering:
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
        except Ended as ended:
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
        self.endings.listen()
        whose = self._hands.next(filename)
        if whose and whose not in self._busy:
            self._at = whose
            yield from self._hands.steps(filename, whose, self._wait)
