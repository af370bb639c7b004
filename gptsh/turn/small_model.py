"""Ask the small model for summaries, and for updates of the memory (``--consolidate``)."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from gptsh.config.agents import Agent
from gptsh.config.settings import Settings, cost_of
from gptsh.content.answer import Ask
from gptsh.context import memory, tokens
from gptsh.core import document, sessions
from gptsh.core.document import Document
from gptsh.errors import ConfigError, GptshError, ModelError, StoreBusy
from gptsh.llm.client import Client
from gptsh.messages import Message, timestamp
from gptsh.models.facts import split_model
from gptsh.render import structured
from gptsh.render.report import as_error
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, Interrupts, interruptible
from gptsh.text import quantity
from gptsh.turn.agents import agent_of, small_model
from gptsh.turn.options import TurnOptions
from gptsh.turn.screen import Screen
from gptsh.turn.session import Session

if TYPE_CHECKING:
    from gptsh.context.summaries import SmallModel
    from gptsh.core.document_types import Summary


# ---- summaries of long sessions

_MAX_SUMMARY_CALLS = 4  # requests in one run


class Summariser:
    """Asks an agent's small model for summaries of one session, which gets their costs."""

    def __init__(
        self,
        config: Settings,
        client: Client,
        agent: Agent,
        session: Session,
        screen: Screen,
        *,
        fsync: bool,
    ) -> None:
        self._settings = config
        self._client = client
        self._agent = agent
        self._session = session
        self._screen = screen
        self._fsync = fsync
        self._calls_left = _MAX_SUMMARY_CALLS

    def summarise(
        self,
        older: Sequence[Message],
        fresh: Sequence[Message],
        previous: str | None,
        size: int,
    ) -> "Summary":
        """Make a summary of the older messages and record it and its cost in the document.

        ``previous`` is the summary of those that are not ``fresh``, and ``size`` what the new one
        may take, in tokens. Raises GptshError.
        """
        from gptsh.context import summaries

        model = small_model(self._settings, self._agent) or self._agent.model or ""
        if split_model(model)[0] == "echo":
            raise ModelError("echo cannot write summaries", "set model_small to a model that can")
        if self._calls_left < 1:
            raise ModelError(f"one run makes at most {_MAX_SUMMARY_CALLS} requests for summaries")
        small = make_small_model(self._settings, self._client, self._client.ask, model)
        text = ""
        try:
            with self._screen.spinning(f"summarising {len(fresh):,} messages with {model}"):
                text = summaries.summarise(
                    small,
                    previous,
                    fresh,
                    tokens=size,
                    calls=self._calls_left,
                )
        finally:
            self._calls_left -= max(1, small.calls)
            for usage in small.spent:
                cost = small.price(usage)
                self._session.costs.append(cost)
                document.add_call(self._session.doc, "summary", model, usage, cost)
            if small.spent and not text:  # else it is saved with the compaction
                self._session.save(fsync=self._fsync)
        record = summaries.new_summary(older, text, model)
        self._session.doc["context"]["summaries"].append(record)
        previous_size = tokens.count_text(previous) if previous else 0
        if previous_size > summaries.LENGTH_TOLERANCE * size:
            self._session.emit("summary_aged", before=previous_size, after=record["tokens"])
        return record

    def note_failure(self, err: GptshError) -> None:
        """Tell the user that a summary failed; the session is then shortened in another way."""
        self._session.emit("compression_error", error=str(err))
        stdio.note(f"no summary could be made: {err}")


def placeholder_summary(
    summaries: "list[Summary]",
    older: Sequence[Message],
    fresh: Sequence[Message],
    previous: str | None,
    size: int,
) -> "Summary":
    """Return the record of a summary that is not made yet, and add it to ``summaries``.

    The summary counts as a third of what it is to be made from, and as ``size`` at most.
    """
    source_size = tokens.count_text(previous or "") + sum(map(tokens.count_message, fresh))
    record: Summary = {
        "id": "pending",
        "created_at": timestamp(),
        "text": "[a summary of what is older, made when this is sent]",
        "tokens": min(size, source_size // 3),
        "pending": True,
        "first": older[0].get("id"),
        "last": older[-1].get("id"),
    }
    summaries.append(record)
    return record


def make_small_model(config: Settings, client: Client, ask: Ask, model: str) -> "SmallModel":
    """Make a small model, asked through ``ask``; its window is looked up on first use."""
    from gptsh.context.summaries import SmallModel

    window = partial(client.windows.of, model, ask=True)
    learn = partial(client.windows.learn, model)
    return SmallModel(ask, model, window, learn, partial(cost_of, config, model))


# ---- consolidation
#
# Consolidate sessions into agents' memories: one part after a turn if that is due
# (``context/memory.py``), or everything that is new.

_TURN_LIMIT = 60.0  # seconds for a consolidation after a turn
_LOCK_TIMEOUT = 60.0  # seconds that --consolidate waits for another process


class Consolidated(TypedDict):
    """How many messages of a session an agent's memory has got, and the failure that ended it."""

    session: str
    agent: str
    messages: int
    error: structured.Failure | None


class Consolidation:
    """Updates the memories of agents from their sessions.

    Use it ``shielded``: signals and the deadline interrupt only its waiting. ``exit_code`` is that
    of the first failure, ``interrupted`` the signal or deadline that stopped it. ``is_over``: the
    caller should not continue with further sessions.
    """

    def __init__(self, config: Settings, client: Client, interrupts: Interrupts) -> None:
        self.interrupted: Interrupted | None = None
        self.exit_code = 0
        self.is_over = False
        self.settings = config
        self._client = client
        self._interrupts = interrupts
        client.deadline = interrupts.deadline

    def agent_of(self, doc: Document) -> Agent:
        """Return the session's agent, with the model that writes its memory as ``model_small``."""
        agent = agent_of(self.settings, TurnOptions(), doc)
        return agent._replace(model_small=small_model(self.settings, agent))

    def after_turn(self, session: Session) -> Interrupted | None:
        """Consolidate one part of a session if that is due.

        Return a signal other than Ctrl-C that interrupted it. Ctrl-C skips it, a failure is a
        note, and nothing happens while another process writes this memory.
        """
        agent = self.agent_of(session.doc)
        rules = self.settings.context
        if not (has_memory(agent) and memory.due_messages(session.doc, rules)):
            return None
        self._interrupts.restart_deadline(_TURN_LIMIT)
        select = partial(memory.due_messages, rules=rules)
        try:
            self._consolidate_part(session.filename or "", agent, select, wait=0)
        except StoreBusy:  # another process writes this memory
            return None
        except Interrupted as interrupted:
            if interrupted.by_deadline:
                _note_failure(agent, "timed out")
            elif not interrupted.by_user:
                saved = f"session {session.ref} is saved"
                interrupted.hint = f"{saved}, but the memory is not updated yet"
                return interrupted
        except GptshError as err:
            _note_failure(agent, str(err))
        finally:
            self._interrupts.cancel_deadline()
        return None

    def run(self, session: str, filename: str, agent_name: str) -> Consolidated:
        """Consolidate everything that is new in a session; return the result for programs.

        Parts that were consolidated before a failure stay in the memory.
        """
        result: Consolidated = {
            "session": session,
            "agent": agent_name,
            "messages": 0,
            "error": None,
        }
        try:
            self._interrupts.check()
            doc = sessions.load_session(filename)
            agent = self.agent_of(doc)
            select = memory.pending_messages
            if has_memory(agent) and select(doc):
                while True:
                    count = self._consolidate_part(filename, agent, select, wait=_LOCK_TIMEOUT)
                    if count is None:
                        break
                    result["messages"] += count
        except Interrupted as interrupted:
            self.interrupted = interrupted
            self.is_over = True
            err = as_error(interrupted)
            result["error"] = structured.error(err, err.hint)
        except GptshError as err:
            self.exit_code = self.exit_code or err.exit_code
            self.is_over = isinstance(err, StoreBusy)
            result["error"] = structured.error(err, err.hint)
            stdio.note(f"session {session}: {err}")
        return result

    def _consolidate_part(
        self,
        filename: str,
        agent: Agent,
        select: Callable[[Document], list[Message]],
        *,
        wait: float,
    ) -> int | None:
        """Consolidate the first part of the selected messages.

        Return its number of messages, None if none is selected. Raises StoreBusy if another process
        still uses the memory after ``wait`` seconds.
        """
        if agent.model_small is None:
            advice = f"set model_small under [agents.{agent.name}] in {self.settings.file}"
            raise ConfigError("no model is set that can write the memory", advice)
        client = self._client
        small = make_small_model(
            self.settings,
            client,
            lambda request, answer: interruptible(client.ask(request, answer)),
            agent.model_small,
        )
        with Screen().spinning("updating the memory"), contextlib.ExitStack() as stack:
            with self._interrupts.waiting():
                stack.enter_context(memory.locked(agent.name, wait))
            doc = sessions.load_session(filename)
            messages = select(doc)
            if not messages:
                return None
            return memory.consolidate(doc, filename, agent.name, messages, small)


def _note_failure(agent: Agent, reason: str) -> None:
    problem = f"cannot update the memory of agent {agent.name}"
    if agent.model_small:
        problem += f" with {agent.model_small}"
    stdio.note(f"{problem}: {reason}")


def has_memory(agent: Agent) -> bool:
    """Return whether the agent has a memory, and a model that can write it; ``echo`` cannot."""
    return agent.memory and split_model(agent.model_small or "")[0] != "echo"


def consolidate_session(
    config: Settings,
    client: Client,
    seconds: float | None,
    filename: str,
) -> Interrupted | None:
    """Consolidate a session that a conversation leaves, within so many seconds.

    Return a signal other than Ctrl-C that interrupted it. Raises GptshError if the session cannot
    be read.
    """
    doc = sessions.load_session(filename)
    with Interrupts(seconds, in_conversation=True) as interrupts:
        consolidation = Consolidation(config, client, interrupts)
        with interrupts.shielded():
            result = consolidation.run(doc["id"], filename, consolidation.agent_of(doc).name)
            interrupts.reset_ctrl_c()
    if result["messages"]:
        count = quantity(result["messages"], "message")
        stdio.note(f"the memory of agent {result['agent']} was updated from {count}")
    interrupted = consolidation.interrupted
    if interrupted is None:
        return None
    stdio.note("the memory does not cover the whole session yet")
    if interrupted.by_user or interrupted.by_deadline:
        return None
    return interrupted
