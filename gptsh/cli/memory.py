"""Agents' memories brought up to date: behind a turn where that is due, by ``--consolidate``, and by ``/new``."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gptsh.cli import show, stdio
from gptsh.cli.ask import time_limit
from gptsh.cli.interrupts import Interrupted, Interrupts, interruptible
from gptsh.cli.lists import lines_of, passing
from gptsh.cli.options import FILTERS, Flags
from gptsh.cli.plan import make_small_model
from gptsh.cli.reporter import as_error
from gptsh.cli.session import Session, saves, session_ref
from gptsh.config import settings
from gptsh.config.settings import Agent, Overrides, Settings
from gptsh.context import memory
from gptsh.core import references, sessions
from gptsh.core.document import Document
from gptsh.errors import ConfigError, GptshError, StoreBusy, UsageError
from gptsh.llm.client import Client
from gptsh.messages import Message
from gptsh.models.facts import split_model
from gptsh.render import structured
from gptsh.text import one_line, quantity

_MOST = 60.0  # seconds that it may take behind a turn
_WAIT = 60.0  # seconds that --consolidate waits for another process, which waits for a model


class Consolidation:
    """Brings memories up to date. To be used ``shielded``: a signal or the deadline ends the waiting.

    ``exit_code`` is that of the first failure, ``ended`` the signal or the deadline behind which no more is done;
    ``is_over`` says that there is no use in going on.
    """

    def __init__(self, loaded: Settings, client: Client, interrupts: Interrupts) -> None:
        self.ended: Interrupted | None = None
        self.exit_code, self.is_over = 0, False
        self.settings, self._client, self._interrupts = loaded, client, interrupts
        client.deadline = interrupts.deadline

    def agent_of(self, doc: Document) -> Agent:
        """The session's agent; its ``model_small`` is the model that writes its memory."""
        agent = settings.choose_agent(self.settings, Overrides(), settings.stored_agent(doc))
        return agent._replace(model_small=settings.small_model(self.settings, agent))

    def behind_turn(self, session: Session) -> Interrupted | None:
        """Put in one piece of a session where that is due. Returns a signal other than Ctrl-C that ended it.

        Ctrl-C says that it is not worth the wait. A failure is a note; where another process is at it nothing is done.
        """
        agent, rules = self.agent_of(session.doc), self.settings.context
        if not (_remembers(agent) and memory.due_messages(session.doc, rules)):
            return None
        self._interrupts.restart_deadline(_MOST)
        try:
            self._next_piece(session.filename or "", agent, lambda doc: memory.due_messages(doc, rules), wait=0)
        except StoreBusy:
            return None
        except (GptshError, Interrupted) as err:
            if isinstance(err, Interrupted) and not err.by_deadline:
                err.hint = f"all is kept in session {session.ref}, but not remembered yet"
                return None if err.by_user else err
            why = "timed out" if isinstance(err, Interrupted) else err
            stdio.note(f"not remembered yet: agent {agent.name}, {agent.model_small or 'no model'}: {why}")
        finally:
            self._interrupts.cancel_deadline()
        return None

    def of_session(self, session: str, filename: str, agent: str) -> dict[str, Any]:
        """Put in all that is new in a session; what came of it, for programs. What went in before a failure stays."""
        result: dict[str, Any] = {"session": session, "agent": agent, "messages": 0, "error": None}
        try:
            self._interrupts.check()
            doc = sessions.load_session(filename)
            own = self.agent_of(doc)
            if _remembers(own) and memory.pending_messages(doc):
                while (count := self._next_piece(filename, own, memory.pending_messages, wait=_WAIT)) is not None:
                    result["messages"] += count
        except Interrupted as ended:
            self.ended, self.is_over, err = ended, True, as_error(ended)
            result["error"] = structured.error(str(err), err.hint, err.exit_code)
        except GptshError as err:
            self.exit_code, self.is_over = self.exit_code or err.exit_code, isinstance(err, StoreBusy)
            result["error"] = structured.error(str(err), err.hint, err.exit_code)
            stdio.note(f"session {session}: {err}")
        return result

    def _next_piece(
        self, filename: str, agent: Agent, lacking: Callable[[Document], list[Message]], *, wait: float
    ) -> int | None:
        """Put in the next piece of what is ``lacking``; how many messages it has, None where nothing is lacking.

        Raises StoreBusy where the memory is not free after ``wait`` seconds.
        """
        if agent.model_small is None:
            way = f"set model_small under [agents.{agent.name}] in {self.settings.file}"
            raise ConfigError("no model is known that could remember", way)
        client = self._client
        small = make_small_model(
            self.settings, client, lambda request, answer: interruptible(client.ask(request, answer)), agent.model_small
        )
        with show.Screen().spinning("remembering"), contextlib.ExitStack() as stack:
            with self._interrupts.waiting():
                stack.enter_context(memory.locked(agent.name, wait))
            doc = sessions.load_session(filename)
            messages = lacking(doc)
            return memory.consolidate(doc, filename, agent.name, messages, small) if messages else None


def _remembers(agent: Agent) -> bool:
    """Whether it has a memory, and a model that can write it: ``echo`` cannot."""
    return agent.memory and split_model(agent.model_small or "")[0] != "echo"


def consolidate_session(loaded: Settings, client: Client, seconds: float | None, filename: str) -> Interrupted | None:
    """Put in what is new in a session that a conversation leaves; a signal that ended it, other than Ctrl-C.

    Raises GptshError where the session cannot be read.
    """
    doc = sessions.load_session(filename)
    with Interrupts(seconds, in_conversation=True) as interrupts:
        run = Consolidation(loaded, client, interrupts)
        with interrupts.shielded():
            done = run.of_session(doc["id"], filename, run.agent_of(doc).name)
            interrupts.reset_ctrl_c()
    if done["messages"]:
        stdio.note(f"agent {done['agent']} remembers {quantity(done['messages'], 'message')}")
    if run.ended:
        stdio.note("not all is remembered yet")
    return None if run.ended and (run.ended.by_user or run.ended.by_deadline) else run.ended


# ---- --consolidate


def consolidate(flags: Flags) -> int:
    """Print a line for each session that had something new; the exit code of the first failure.

    Raises UsageError, and Interrupted behind the last line.
    """
    loaded = settings.load(os.environ, flags.config)
    if not saves(flags, loaded):
        raise UsageError("--consolidate writes a memory, and nothing is to be saved", "leave out --no-save")
    interrupts = Interrupts(time_limit(flags, loaded))
    run = Consolidation(loaded, Client(loaded, os.environ), interrupts)
    named = _named(flags, run)
    chosen = (
        [named] if named else [(item["id"], item["filename"], item["agent"] or "default") for item in passing(flags)]
    )
    if not any(agent.memory for agent in loaded.agents.values()):
        stdio.note("no agent has a memory: agents.NAME.memory = true gives it one")

    def results() -> Iterator[dict[str, Any]]:
        for one in reversed(chosen):
            done = run.of_session(*one)
            if named or done["messages"] or done["error"]:
                yield done
            if run.is_over:
                return

    def line(result: Mapping[str, Any]) -> str:
        what = quantity(result["messages"], "message")
        if result["error"]:
            what = f"failed behind {what}" if result["messages"] else "failed"
        return one_line(f"{result['session']} ({result['agent']}) {what}")

    with interrupts, interrupts.shielded():
        stdio.write_lines(lines_of(flags, results(), line, dict), interruptible=True)
    if run.ended:
        run.ended.reported = True
        raise run.ended
    return run.exit_code


def _named(flags: Flags, run: Consolidation) -> tuple[str, str, str] | None:
    """Id, file and agent of the one session of ``-s`` or ``-c``. Raises UsageError where it cannot be consolidated."""
    ref = session_ref(flags._replace(new=True), run.settings)  # new: whatever session the environment names
    if ref is None:
        return None
    if names := [name for name in flags.given if name in FILTERS]:
        raise UsageError(f"{names[0]} chooses among sessions, and -s or -c names one", "leave one of them out")
    if references.split_ref(ref)[1] is not None:
        raise UsageError(f"{ref}: a point cannot be consolidated", "name the session alone")
    filename = references.filename_of(ref)
    doc = sessions.load_session(filename)
    agent, name = run.agent_of(doc), settings.stored_agent(doc).name
    if not agent.memory:
        raise UsageError(f"agent {name!r} of session {doc['id']} has no memory", f"set memory under [agents.{name}]")
    if not _remembers(agent):
        raise UsageError("echo can remember nothing", f"set model_small under [agents.{name}]")
    return doc["id"], filename, name
