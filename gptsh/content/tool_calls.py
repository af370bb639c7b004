"""Tool calls of an answer: which are run, what runs them, and the result of one that is not run."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from gptsh.messages import COMPLETE_REASONS, Call, Message, Request, Tool, ToolResult
from gptsh.records import NamedTuple


class ServerQuestion(NamedTuple):
    """What a tool server asks the user during a call: to fill in a form, or to open a URL."""

    server: str
    message: str
    form: dict[str, Any]  # a JSON Schema of an object, whose properties are not checked
    url: str = ""  # instead of a form


Answering = Callable[[ServerQuestion], "dict[str, Any] | None"]  # the values of a form, {} for a URL, None to decline


class Tools(Protocol):
    """Tools that a model may call: ``tools/`` implements it with MCP servers. ``missing``: patterns without a tool."""

    missing: list[str]

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools that a model may call. Raises ToolServerError."""

    def needs_approval(self, call: Call) -> tuple[str, str] | None:
        """The server and the tool of a call that the user has to approve; None if the configuration allows it."""

    def run(
        self, calls: Sequence[Call], answer: Callable[[ServerQuestion], dict[str, Any] | None]
    ) -> Iterator[ToolResult]:
        """Run the calls in parallel and yield each result when it arrives. Raises ToolServerError after the last.

        ``answer`` is asked the servers' questions.
        """


def calls_to_run(message: Message | None, request: Request) -> list[Call]:
    """Return the tool calls of a complete answer, if the request offered tools."""
    if message is None or not request.tools:
        return []
    is_complete = (message.get("finish_reason") or "").lower() in COMPLETE_REASONS
    return list(message.get("tool_calls") or ()) if is_complete else []


def error_result(call: Call, content: str) -> Message:
    """Return the tool message that tells the model why a call was not run."""
    name = str(call["function"].get("name", ""))
    result: Message = {"role": "tool", "tool_call_id": call["id"], "name": name, "content": content}
    return {**result, "is_error": True, "duration_ms": 0}
