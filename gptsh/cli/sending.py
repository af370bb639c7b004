"""How a session is sent: to whom, behind which system prompt, into how much room, and what of it."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from gptsh.core import context, tokens
from gptsh.core.choice import Choice, Frame, Session, is_below, whole
from gptsh.core.context import Context, Room
from gptsh.core.cuts import as_sent
from gptsh.core.media import Kind
from gptsh.core.messages import Message, Tool
from gptsh.core.settings import Agent, ContextRules
from gptsh.core.tokens import Asked, Count
from gptsh.core.turn import Request

_FAR = 7  # times a limit: an estimate that is so much more than it no report can bring below it


class Sending(NamedTuple):
    """How a session is sent."""

    agent: Agent
    provider: str
    system: str | None
    schema: dict[str, Any] | None
    stream: bool
    reports: bool  # a program reads what was sent
    rules: ContextRules
    tools: tuple[Tool, ...] = ()
    max_rounds: int = 1
    room: Room = Room(None)
    memory: str = ""  # what stands in the agent's, in the system prompt as far as it may
    advice: str = ""  # what else can be done about a prompt that is too long
    scale: float | None = None  # of estimates, where a refusal has told how far they are from what the server counts
    lacks: frozenset[Kind] = frozenset()  # the kinds of attachments that the model does not take

    @property
    def model(self) -> str:
        """The model, as ``-m`` takes it."""
        return self.agent.model or ""

    def spoken(self, messages: Sequence[Message]) -> list[Message]:
        """The messages of a session as this model can read them."""
        return context.spoken(as_sent(message, self.lacks) for message in messages)

    def measured(self, spoken: Sequence[Message], *, limit: int | None) -> Count:
        """Tokens that the messages take, system prompt, schema and tools included; far beyond the limit about."""
        return self._measure(spoken, None, self._fixed(), limit)

    def _measure(self, spoken: Sequence[Message], compacted: str | None, fixed: int, limit: int | None) -> Count:
        asked = Asked(self.model, self.provider, compacted)
        return tokens.count(spoken, None, asked=asked, beside=fixed, most=None if limit is None else _FAR * limit)

    def _fixed(self) -> int:
        """Tokens of what stands in front of the messages, or beside them."""
        schema = None if self.schema is None else json.dumps(self.schema)
        before = "\n".join(filter(None, (self.system, schema)))
        return tokens.of_system(before) + tokens.of_tools(self.tools)

    def frame(self, spoken: Sequence[Message]) -> Frame:
        """What the messages are to fit in."""
        fixed, limit = self._fixed(), self.room.prompt
        scale = self.scale or tokens.safe_scale(spoken, Asked(self.model, self.provider))
        measure = partial(self._measure, fixed=fixed, limit=limit)
        return Frame(measure, self.room.budget(fixed), fixed, scale=scale)

    def chosen(self, spoken: Sequence[Message], state: Mapping[str, Any], *, compacts: bool = False) -> Choice:
        """What of the messages is sent; ``state`` is the document's ``context``. A summary may still be missing.

        ``compacts``: there is to be a new compaction, if anything is shorter then.
        """
        session, frame, everything = Session(spoken, state), self.frame(spoken), None
        if not (state.get("compaction") or compacts):
            everything = whole(session, frame)
            if not self.rules.compact or is_below(everything, frame, self.rules):
                return everything
        from gptsh.core import compaction  # noqa: PLC0415 - most sessions are small

        asked_for = compaction.compacted(session, frame, self.rules) if compacts else None
        return asked_for or compaction.choose(session, frame, self.rules, everything)

    def built(self, choice: Choice, messages: Sequence[Message]) -> tuple[Context, Request]:
        """The request for what was chosen of a session's messages; where it has none yet, for none. Raises TooLong."""
        sent, fixed = choice.shortened, self._fixed()
        if messages:
            made = context.build(sent.messages, self.system, choice.size, self.room, advice=self.advice, fixed=fixed)
        else:
            made = Context(context.head_of(self.system, ()), choice.strategy, choice.size, fixed, self.room, 0)
        made = made._replace(
            strategy=choice.strategy,
            compaction=choice.record["id"] if choice.record else None,
            included=sent.included,
            summarized=sent.summarized,
            left_out=sent.left_out,
        )
        params, taken = dict(self.agent.params), context.taken(choice.size, self.room, self.agent.params, messages)
        return made, Request(self.model, made.messages, params, self.stream, self.schema, self.tools, taken)
