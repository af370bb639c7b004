"""The small model, and its calls for summaries of long sessions: how many in one run, and what they cost."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gptsh.config import agent_choice
from gptsh.config.agents import Agent
from gptsh.config.settings import Settings, cost_of
from gptsh.content.answer import Ask
from gptsh.context import tokens
from gptsh.core import document
from gptsh.errors import GptshError, ModelError
from gptsh.llm.client import Client
from gptsh.messages import Message, timestamp
from gptsh.models.facts import split_model
from gptsh.terminal import stdio
from gptsh.turn.show import Screen
from gptsh.turn.turn_session import TurnSession

if TYPE_CHECKING:
    from gptsh.context.summaries import SmallModel

_MAX_SUMMARY_CALLS = 4  # calls of the small model in one run


class Summariser:
    """Asks an agent's small model for summaries of one session. It adds the costs of its calls in USD to ``costs``."""

    def __init__(
        self,
        config: Settings,
        client: Client,
        agent: Agent,
        session: TurnSession,
        screen: Screen,
        costs: list[float | None],
        *,
        fsync: bool,
    ) -> None:
        self._settings, self._client, self._agent = config, client, agent
        self._session, self._screen, self._costs, self._fsync = session, screen, costs, fsync
        self._calls_left = _MAX_SUMMARY_CALLS

    def summarise(
        self, older: Sequence[Message], fresh: Sequence[Message], previous: str | None, size: int
    ) -> dict[str, Any]:
        """Make a summary of the older messages and record it and its cost in the document. Raises GptshError."""
        from gptsh.context import summaries

        model = agent_choice.small_model(self._settings, self._agent) or self._agent.model or ""
        if split_model(model)[0] == "echo":
            raise ModelError("echo makes no summaries", "model_small names a model that does")
        if self._calls_left < 1:
            raise ModelError(f"{_MAX_SUMMARY_CALLS} calls for summaries were made in this run")
        small, text = make_small_model(self._settings, self._client, self._client.ask, model), ""
        try:
            with self._screen.spinning(f"summarising {len(fresh):,} messages with {model}"):
                text = summaries.summarise(small, previous, fresh, tokens=size, calls=self._calls_left)
        finally:
            self._record_calls(small)
            if small.spent and not text:
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

    def _record_calls(self, small: "SmallModel") -> None:
        """Record the calls and their costs in the document."""
        self._calls_left -= max(1, small.calls)
        for usage in small.spent:
            cost = small.price(usage)
            self._costs.append(cost)
            document.add_call(self._session.doc, "summary", small.model, usage, cost)


def placeholder_summary(
    summaries: list[dict[str, Any]], older: Sequence[Message], fresh: Sequence[Message], previous: str | None, size: int
) -> dict[str, Any]:
    """The record of a summary that is not made yet; its size is estimated as a third of its source at most."""
    size = min(size, (tokens.count_text(previous or "") + sum(map(tokens.count_message, fresh))) // 3)
    text = "[a summary of what is older, made when this is sent]"
    ends = {"first": older[0].get("id"), "last": older[-1].get("id")}
    record = {"id": "pending", "created_at": timestamp(), "text": text, "tokens": size, "pending": True, **ends}
    summaries.append(record)
    return record


def make_small_model(config: Settings, client: Client, ask: Ask, model: str) -> "SmallModel":
    """Make a small model, asked through ``ask`` (as ``client.ask``). Its window is looked up on first use."""
    from gptsh.context.summaries import SmallModel

    window, learn = partial(client.windows.of, model, ask=True), partial(client.windows.learn, model)
    return SmallModel(ask, model, window, learn, partial(cost_of, config, model))
