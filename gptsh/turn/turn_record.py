"""The messages that a turn adds to its session, each answer with its model and cost, and what was sent for them."""

from typing import TYPE_CHECKING

from gptsh.config.settings import Settings
from gptsh.context import tokens
from gptsh.core import sessions, turns
from gptsh.messages import Call, Message, final_answer, text_of
from gptsh.turn.plan import Plan, Planner
from gptsh.turn.turn_session import TurnSession

if TYPE_CHECKING:
    from gptsh.core.snapshots import SessionEvent


class TurnRecord:
    """The messages that a turn knows: those of the session before it, its question, and what it adds.

    ``session.doc`` may have more: saving merges those of other runs. ``sent_plan`` is the last plan that was sent.
    """

    def __init__(self, session: TurnSession, config: Settings) -> None:
        self.messages: list[Message] = list(session.doc["messages"])
        question_index = turns.question_index(self.messages)
        self.question_id: str = next((message["id"] for message in self.messages[question_index:]), "")
        self.sent_plan: Plan | None = None
        self.last_answer: Message | None = None
        self.calls: list[Call] = []  # that ran, or were denied
        self.costs: list[float | None] = []  # of the answers, and of summaries for models that were given up
        self.sources: dict[str, str | None] = {}  # titles of the pages that the answers cite, by URL
        self.notes: list[str] = []  # printed after the answer
        self._session, self._settings = session, config

    @property
    def final_text(self) -> str:
        """The text of the last answer without commentary; empty without an answer."""
        return answer_text(final_answer(self.last_answer)) if self.last_answer else ""

    def append(self, message: Message) -> "SessionEvent":
        """Add a message to this turn, whatever other runs add to the session; return the event to emit."""
        message["parent"] = self.messages[-1]["id"]
        usage_delta = {"tokens": message.get("usage")} if message["role"] == "assistant" else None
        self.messages += sessions.append_messages(self._session.doc, [message], usage_delta)
        return "message_recorded", {"id": self.messages[-1]["id"], "role": message["role"]}

    def save_answer(self, message: Message, plan: Plan, planner: Planner, *, fsync: bool) -> None:
        """Save the answer to a plan's request with its agent, model, provider and cost."""
        from gptsh.config.settings import cost_of

        usage = message.get("usage")
        message["agent"], message["model"], message["provider"] = planner.agent.name, planner.model, planner.provider
        message["cost"] = cost_of(self._settings, planner.model, usage) if usage else None
        self.costs.append(message["cost"])
        self.sources |= {page["url"]: page["title"] for page in message.get("sources", ())}
        if usage:
            message["prefix_bytes"] = plan.fixed_bytes
            self._session.emit("usage", usage=usage)
        if plan.choice.record:
            message["compaction"] = plan.choice.record["id"]
        self._mark_truncated(message, plan, planner.provider)
        event = self.append(message)
        self.last_answer = self.messages[-1]
        self._session.save(event, ("session_saved", {"session": self._session.doc["id"]}), fsync=fsync)

    def _mark_truncated(self, message: Message, plan: Plan, provider: str) -> None:
        """Mark an answer to a prompt that the server has cut silently; its report of tokens is of no use later."""
        usage, size = message.get("usage"), plan.choice.size
        prompt_tokens = usage["prompt"] if usage and provider != "echo" else None  # echo counts words
        if prompt_tokens and tokens.was_truncated(prompt_tokens, size, plan.request.messages):
            message["server_truncated"] = True
            self.notes.append(
                f"{provider} read {prompt_tokens:,} tokens of a prompt of about {size.tokens:,}: "
                "it cut the rest without saying so; give it a larger window, or set context_window to the one it has"
            )


def answer_text(message: Message) -> str:
    """The text of an answer, then its refusal."""
    return text_of(message) + message.get("refusal", "")
