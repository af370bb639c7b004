"""An agent's memory brought further: behind a turn where that is due, and by ``--consolidate``."""

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from gptsh.cli import show, stdio
from gptsh.cli.prepare import Job
from gptsh.cli.signals import Ended, Endings
from gptsh.core import memory, pricing, references, sessions, settings
from gptsh.core.consolidation import Small
from gptsh.core.document import Document
from gptsh.core.models import split_model
from gptsh.core.sessions import SessionSummary
from gptsh.core.settings import Settings, Wanted
from gptsh.errors import ConfigError, GptshError, StoreBusy, UsageError
from gptsh.llm.client import Client
from gptsh.render import structured
from gptsh.render.visible import one_line

_CALLS = 4  # behind one turn, at most; the next one goes on
_WAIT = 60.0  # seconds that --consolidate waits for another process, which waits for a model
_LOOK = 0.2  # seconds between two looks for a signal
_SAID = "remembering"


def after_turn(job: Job, endings: Endings) -> Ended | None:
    """Put into the agent's memory what is due, within ``held``; a signal other than Ctrl-C, which ended that.

    Ctrl-C only means that it is not worth the wait. The deadline counts again. A failure is a note; where another
    process is at it, nothing is done.
    """
    endings.arm_again()
    try:
        if upto := memory.due(job.doc, job.settings.context):
            _bring_further(job, upto, endings)
    except StoreBusy:
        return None
    except GptshError as err:
        stdio.note(f"not remembered yet: {err}")
    except Ended as ended:
        if ended.by_deadline:
            stdio.note("not remembered yet: timed out")
        return None if ended.by_user or ended.by_deadline else ended
    finally:
        endings.disarm()
    return None


def _bring_further(job: Job, upto: str, endings: Endings) -> None:
    agent, filename = job.sending.agent.name, references.filename_of(job.doc["id"])
    small = _small(job.settings, job.client, endings, job.doc)
    if small is None:
        return
    with show.Screen(endings.released).turning(_SAID), memory.locked(agent, 0):
        doc = sessions.load_session(filename)
        for _ in memory.consolidate(doc, filename, agent, small, upto=upto, calls=_CALLS):
            pass


def _small(loaded: Settings, client: Client, endings: Endings, doc: Document) -> Small | None:
    """Who consolidates a session; None for ``echo``, which could not. Raises ConfigError where no model is known."""
    agent = settings.choose_agent(loaded, Wanted(), settings.stored_agent(doc))
    model = settings.small_model(loaded, agent)
    if model is None:
        raise ConfigError("no model is known that could remember", f"set agents.{agent.name}.model_small")
    if split_model(model)[0] == "echo":
        return None
    return Small(
        ask=endings.heard(client.ask),
        model=model,
        window=partial(client.window, model, ask=True),
        price=lambda usage: pricing.of_call(loaded, model, usage),
    )


# ---- --consolidate


class Consolidated(NamedTuple):
    """What came of one session: how many of its messages went into the memory."""

    session: str
    agent: str
    messages: int
    error: GptshError | None

    def line(self) -> str:
        """For people."""
        what = "1 message" if self.messages == 1 else f"{self.messages:,} messages"
        return one_line(f"{self.session} ({self.agent}) {what}{' and then a failure' if self.error else ''}")

    def fields(self) -> dict[str, Any]:
        """For programs."""
        err = self.error
        told = structured.error(str(err), err.hint, err.exit_code) if err else None
        return {**self._asdict(), "error": told}


class Consolidation:
    """``exit_code`` is that of the first failure; behind one the other sessions are tried all the same."""

    def __init__(self, config: str | None) -> None:
        self.exit_code = 0
        self._settings = settings.load(os.environ, config)
        self._client = Client(self._settings, os.environ)

    def of_one(self, ref: str) -> Iterator[Consolidated]:
        """The session of a reference. Raises UsageError where its agent has no memory."""
        if references.split_ref(ref)[1] is not None:
            raise UsageError(f"{ref}: a point cannot be consolidated", "name the session alone")
        filename = references.filename_of(ref)
        doc = sessions.load_session(filename)
        agent = settings.stored_agent(doc).name
        if not self._has_memory(agent):
            raise UsageError(f"agent {agent!r} of session {doc['id']} has no memory", f"set agents.{agent}.memory")
        with Endings(None) as endings:
            if _small(self._settings, self._client, endings, doc) is None:
                raise UsageError("echo can remember nothing", f"set agents.{agent}.model_small")
            yield self._tried(doc["id"], filename, agent, endings)

    def of_all(self, items: Sequence[SessionSummary]) -> Iterator[Consolidated]:
        """Those of the sessions in which there was something to do, as it is done."""
        if not any(agent.memory for agent in self._settings.agents.values()):
            stdio.note("no agent has a memory: agents.NAME.memory = true gives it one")
        with Endings(None) as endings:
            for item in items:
                agent = item["agent"] or "default"
                if self._has_memory(agent):
                    done = self._tried(item["id"], item["filename"], agent, endings)
                    if done.messages or done.error:
                        yield done

    def _has_memory(self, agent: str) -> bool:
        return agent in self._settings.agents and self._settings.agents[agent].memory

    def _tried(self, session: str, filename: str, agent: str, endings: Endings) -> Consolidated:
        """What came of a session; a failure is said on stderr."""
        done, error = 0, None
        try:
            with endings.held():
                for messages in self._pieces(filename, agent, endings):
                    done += messages
        except GptshError as err:
            error = err
            self.exit_code = self.exit_code or err.exit_code
            stdio.note(f"session {session}: {err}")
        return Consolidated(session, agent, done, error)

    def _pieces(self, filename: str, agent: str, endings: Endings) -> Iterator[int]:
        if not memory.pending(sessions.load_session(filename)):  # nobody need be waited for
            return
        with show.Screen(endings.released).turning(_SAID), _awaited(agent, endings):
            doc = sessions.load_session(filename)
            if small := _small(self._settings, self._client, endings, doc):
                yield from memory.consolidate(doc, filename, agent, small)


@contextlib.contextmanager
def _awaited(agent: str, endings: Endings) -> Iterator[None]:
    """The agent's memory locked, once it is free. Raises StoreBusy where it is not for too long."""
    until = time.monotonic() + _WAIT
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(memory.locked(agent, _LOOK))
                break
            except StoreBusy:
                if time.monotonic() > until:
                    raise
            endings.listen()
        yield
