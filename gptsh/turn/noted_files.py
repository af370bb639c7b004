"""The agent's memory and the project's file: noted in a question when they change, and sent from there.

The one that the session begins with stands in the system prompt. A changed one is sent with the question that noted it,
so that the beginning of the prompt stays the same; a compaction, which changes it anyway, moves it up.
"""

from collections.abc import Sequence

from gptsh.config.agents import Agent
from gptsh.context.tokens import MINIMAL, SUMMARY, Record
from gptsh.errors import StoreError
from gptsh.messages import Message
from gptsh.terminal import stdio
from gptsh.turn.turn_session import TurnSession


class NotedFiles:
    """The memory and the project's file of an agent in one session. An agent with an empty system prompt has none."""

    def __init__(self, agent: Agent, session: TurnSession) -> None:
        self.has_memory = agent.memory and agent.system != ""
        self._project_file = agent.project_file if agent.system != "" else None
        self._agent, self._session = agent.name, session
        self._memory_at_start: Message | None = None  # the question whose memory stands in the system prompt
        self._file_at_start: Message | None = None  # the question whose file of the project stands there

    def __bool__(self) -> bool:
        """Whether the agent has one of them."""
        return self.has_memory or bool(self._project_file)

    def note_changes(self, messages: Sequence[Message]) -> None:
        """Note memory and file in a new question, if they have changed. Prints a note if one cannot be read."""
        if not self:
            return
        from gptsh.context import memory

        try:
            if self.has_memory:
                memory.note_text(messages, memory.read_memory(self._agent))
            if self._project_file:
                memory.note_text(messages, memory.read_project_file(self._project_file), memory.PROJECT_KEY)
        except StoreError as err:
            stdio.note(str(err))
        self.move_up(self._session.doc["context"].get("compaction"))

    def move_up(self, record: Record | None) -> None:
        """Send in the system prompt what is known where this compaction ends; None: where the session begins."""
        if not self:
            return
        from gptsh.context import memory

        messages, compacted = self._session.doc["messages"], 0
        if record and record.get("strategy") in (SUMMARY, MINIMAL):
            upto = record.get("upto")
            compacted = next((at for at, message in enumerate(messages, 1) if message["id"] == upto), 0)
        if self.has_memory:
            self._memory_at_start = memory.known_from_start(messages, compacted)
        if self._project_file:
            self._file_at_start = memory.known_from_start(messages, compacted, "project_file")

    def in_system_prompt(self, system: str | None, window: int | None) -> str | None:
        """The system prompt with what stands in it; of a long memory only as much as the window has room for."""
        if self._file_at_start is not None:
            from gptsh.context.memory import system_with_project_file

            system = system_with_project_file(system, self._file_at_start["project_file"])
        if self._memory_at_start is not None:
            from gptsh.context.memory import system_with_memory

            system = system_with_memory(system, self._memory_at_start["memory"], window)
        return system

    def in_questions(self, messages: Sequence[Message], window: int | None) -> list[Message]:
        """The messages, each question with the memory and the file that it noted and that stand nowhere else."""
        sent = list(messages)
        if self.has_memory:
            from gptsh.context.memory import with_memory

            start = self._memory_at_start.get("id") if self._memory_at_start else None
            for at, message in enumerate(sent):
                if "memory" in message and message.get("id") != start:
                    sent[at] = with_memory(message, window)
        if self._project_file:
            from gptsh.context.memory import with_project_file

            start = self._file_at_start.get("id") if self._file_at_start else None
            for at, message in enumerate(sent):
                if "project_file" in message and message.get("id") != start:
                    sent[at] = with_project_file(message, self._project_file)
        return sent
