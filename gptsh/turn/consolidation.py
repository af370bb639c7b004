"""Consolidate sessions into agents' memories: after a turn when due (``context/memory.py``), or all that is new."""

import contextlib
from collections.abc import Callable
from typing import Any

from gptsh.config import agent_choice
from gptsh.config.agents import Agent
from gptsh.config.settings import Settings
from gptsh.context import memory
from gptsh.core import sessions
from gptsh.core.document import Document
from gptsh.errors import ConfigError, GptshError, StoreBusy
from gptsh.llm.client import Client
from gptsh.messages import Message
from gptsh.models.facts import split_model
from gptsh.render import structured
from gptsh.render.report import as_error
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, Interrupts, interruptible
from gptsh.text import quantity
from gptsh.turn import show
from gptsh.turn.small_model import make_small_model
from gptsh.turn.turn_session import TurnSession

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

    def after_turn(self, session: TurnSession) -> Interrupted | None:
        """Consolidate one part of a session if that is due. Returns a signal other than Ctrl-C that interrupted it.

        Ctrl-C skips it, a failure is a note, and nothing happens while another process writes this memory.
        """
        agent, rules = self.agent_of(session.doc), self.settings.context
        if not (has_memory(agent) and memory.due_messages(session.doc, rules)):
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
            if has_memory(agent) and select(doc):
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


def has_memory(agent: Agent) -> bool:
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
