"""Consolidate sessions into the memories of agents: after a turn when due, for ``--consolidate``, and for ``/new``."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gptsh.cli import show, stdio
from gptsh.cli.ask import time_limit
from gptsh.cli.interrupts import Interrupted, Interrupts, interruptible
from gptsh.cli.lists import matching_sessions, nothing_found, or_note, write_changes
from gptsh.cli.options import FILTERS, Flags
from gptsh.cli.plan import make_small_model
from gptsh.cli.reporter import as_error
from gptsh.cli.session import Session, saving_enabled, session_ref
from gptsh.config import agent_choice, settings
from gptsh.config.agents import Agent
from gptsh.config.settings import Settings
from gptsh.context import memory
from gptsh.core import references, sessions
from gptsh.core.document import Document
from gptsh.errors import ConfigError, GptshError, StoreBusy, UsageError
from gptsh.llm.client import Client
from gptsh.messages import Message
from gptsh.models.facts import split_model
from gptsh.render import structured
from gptsh.text import one_line, quantity

_TURN_LIMIT = 60.0  # seconds for a consolidation after a turn
_LOCK_TIMEOUT = 60.0  # seconds that --consolidate waits for another process, which waits for a model


class Consolidation:
    """Consolidates sessions into memories. Use it ``shielded``: signals and the deadline interrupt only its waiting.

    ``exit_code`` is that of the first failure, ``interrupted`` the signal or deadline that stopped it. ``is_over``: the
    caller should not continue with further sessions.
    """

    def __init__(self, config: Settings, client: Client, interrupts: Interrupts) -> None:
        self.interrupted: Interrupted | None = None
        self.exit_code, self.is_over = 0, False
        self.settings, self._client, self._interrupts = config, client, interrupts
        client.deadline = interrupts.deadline

    def agent_of(self, doc: Document) -> Agent:
        """The session's agent, with the model that writes its memory as ``model_small``."""
        agent = agent_choice.choose_agent(self.settings, agent_choice.Overrides(), agent_choice.stored_agent(doc))
        return agent._replace(model_small=agent_choice.small_model(self.settings, agent))

    def after_turn(self, session: Session) -> Interrupted | None:
        """Consolidate one part of a session if that is due. Returns a signal other than Ctrl-C that interrupted it.

        Ctrl-C skips it, a failure is a note, and nothing happens while another process writes this memory.
        """
        agent, rules = self.agent_of(session.doc), self.settings.context
        if not (_has_memory(agent) and memory.due_messages(session.doc, rules)):
            return None
        self._interrupts.restart_deadline(_TURN_LIMIT)
        try:
            self._consolidate_part(session.filename or "", agent, lambda doc: memory.due_messages(doc, rules), wait=0)
        except StoreBusy:
            return None
        except (GptshError, Interrupted) as err:
            if isinstance(err, Interrupted) and not err.by_deadline:
                err.hint = f"everything is saved in session {session.ref}, but not remembered yet"
                return None if err.by_user else err
            why = "timed out" if isinstance(err, Interrupted) else err
            stdio.note(f"not remembered yet: agent {agent.name}, {agent.model_small or 'no model'}: {why}")
        finally:
            self._interrupts.cancel_deadline()
        return None

    def run(self, session: str, filename: str, agent_name: str) -> dict[str, Any]:
        """Consolidate everything that is new in a session; return the result for programs.

        Parts that were consolidated before a failure stay in the memory.
        """
        result: dict[str, Any] = {"session": session, "agent": agent_name, "messages": 0, "error": None}
        try:
            self._interrupts.check()
            doc = sessions.load_session(filename)
            agent, select = self.agent_of(doc), memory.pending_messages
            if _has_memory(agent) and select(doc):
                while (count := self._consolidate_part(filename, agent, select, wait=_LOCK_TIMEOUT)) is not None:
                    result["messages"] += count
        except Interrupted as interrupted:
            self.interrupted, self.is_over, err = interrupted, True, as_error(interrupted)
            result["error"] = structured.error(str(err), err.hint, err.exit_code)
        except GptshError as err:
            self.exit_code, self.is_over = self.exit_code or err.exit_code, isinstance(err, StoreBusy)
            result["error"] = structured.error(str(err), err.hint, err.exit_code)
            stdio.note(f"session {session}: {err}")
        return result

    def _consolidate_part(
        self, filename: str, agent: Agent, select: Callable[[Document], list[Message]], *, wait: float
    ) -> int | None:
        """Consolidate the first part of the selected messages; return its number of messages, None if none is selected.

        Raises StoreBusy if another process still uses the memory after ``wait`` seconds.
        """
        if agent.model_small is None:
            way = f"set model_small under [agents.{agent.name}] in {self.settings.file}"
            raise ConfigError("no model is set that can write the memory", way)
        client = self._client
        small = make_small_model(
            self.settings, client, lambda request, answer: interruptible(client.ask(request, answer)), agent.model_small
        )
        with show.Screen().spinning("remembering"), contextlib.ExitStack() as stack:
            with self._interrupts.waiting():
                stack.enter_context(memory.locked(agent.name, wait))
            doc = sessions.load_session(filename)
            messages = select(doc)
            return memory.consolidate(doc, filename, agent.name, messages, small) if messages else None


def _has_memory(agent: Agent) -> bool:
    """Whether the agent has a memory, and a model that can write it; ``echo`` cannot."""
    return agent.memory and split_model(agent.model_small or "")[0] != "echo"


def consolidate_session(config: Settings, client: Client, seconds: float | None, filename: str) -> Interrupted | None:
    """Consolidate a session that a conversation leaves; return a signal other than Ctrl-C that interrupted it.

    Raises GptshError if the session cannot be read.
    """
    doc = sessions.load_session(filename)
    with Interrupts(seconds, in_conversation=True) as interrupts:
        consolidation = Consolidation(config, client, interrupts)
        with interrupts.shielded():
            result = consolidation.run(doc["id"], filename, consolidation.agent_of(doc).name)
            interrupts.reset_ctrl_c()
    if result["messages"]:
        stdio.note(f"agent {result['agent']} remembers {quantity(result['messages'], 'message')}")
    interrupted = consolidation.interrupted
    if interrupted:
        stdio.note("not all is remembered yet")
    return None if interrupted and (interrupted.by_user or interrupted.by_deadline) else interrupted


# ---- --consolidate


def consolidate(flags: Flags) -> int:
    """Print a line for each session that had something new; return the exit code of the first failure.

    Raises UsageError, and Interrupted after the last line.
    """
    config = settings.load(os.environ, flags.config)
    if not saving_enabled(flags, config):
        raise UsageError("--consolidate writes a memory, and nothing is to be saved", "leave out --no-save")
    interrupts = Interrupts(time_limit(flags, config))
    client = Client(config, os.environ)
    if config.limits.per_day is not None:
        from gptsh.cli.budget import budget_of  # noqa: PLC0415 - few runs have a ceiling

        client.budget = budget_of(config, None)
    consolidation = Consolidation(config, client, interrupts)
    named_session = _named_session(flags, consolidation)
    if named_session:
        targets = [named_session]
    else:
        items = or_note(matching_sessions(flags), nothing_found(flags))
        targets = [(item["id"], item["filename"], item["agent"] or "default") for item in items]
    if not any(agent.memory for agent in config.agents.readable()):
        stdio.note("no agent has a memory: agents.NAME.memory = true gives it one")

    def results() -> Iterator[dict[str, Any]]:
        for target in reversed(targets):
            result = consolidation.run(*target)
            if named_session or result["messages"] or result["error"]:
                yield result
            if consolidation.is_over:
                return

    def line(result: Mapping[str, Any]) -> str:
        outcome = quantity(result["messages"], "message")
        if result["error"]:
            outcome = f"failed after {outcome}" if result["messages"] else "failed"
        return one_line(f"{result['session']} ({result['agent']}) {outcome}")

    with interrupts, interrupts.shielded():
        write_changes(flags, results(), line, dict, interruptible=True)
    if consolidation.interrupted:
        consolidation.interrupted.reported = True
        raise consolidation.interrupted
    return consolidation.exit_code


def _named_session(flags: Flags, consolidation: Consolidation) -> tuple[str, str, str] | None:
    """Id, file name and agent of the session of ``-s`` or ``-c``. Raises UsageError if it cannot be consolidated."""
    ref = session_ref(flags._replace(new=True), consolidation.settings)  # new: ignore GPTSH_SESSION
    if ref is None:
        return None
    if names := [name for name in flags.given if name in FILTERS]:
        raise UsageError(f"{names[0]} chooses among sessions, and -s or -c names one", "leave one of them out")
    if references.split_ref(ref)[1] is not None:
        raise UsageError(f"{ref}: a point cannot be consolidated", "name the session alone")
    filename = references.filename_of(ref)
    doc = sessions.load_session(filename)
    agent, name = consolidation.agent_of(doc), agent_choice.stored_agent(doc).name
    if not agent.memory:
        raise UsageError(f"agent {name!r} of session {doc['id']} has no memory", f"set memory under [agents.{name}]")
    if not _has_memory(agent):
        raise UsageError("echo can remember nothing", f"set model_small under [agents.{name}]")
    return doc["id"], filename, name
