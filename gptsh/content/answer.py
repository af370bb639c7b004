"""A request to a model, and its answer while it arrives: the events to show, and the message to save."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from gptsh.errors import EmptyAnswer, GptshError, Incomplete
from gptsh.messages import (
    COMPLETE_REASONS,
    THINKING_BLOCKS,
    Block,
    Call,
    Event,
    Finished,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
    new_call_id,
    text_of,
    with_blocks,
)
from gptsh.models.cost import filled_window
from gptsh.text import is_unicode

FINAL_WAIT = 5.0  # seconds to wait for usage after a complete answer, or for the body of an error response
_CAUSES = {
    "length": "cut by the token limit",
    "max_tokens": "cut by the token limit",
    "model_length": "cut by the model's window",
    "model_context_window_exceeded": "cut by the model's window",
    "content_filter": "stopped by the provider's filter",
    "safety": "stopped by the provider's filter",
    "refusal": "refused",
}


class Request(NamedTuple):
    """A request to a model: ``model`` is ``provider/name``, ``params`` are the user's, ``schema`` is for the answer."""

    model: str
    messages: list[Message]
    params: dict[str, Any]
    stream: bool = True
    schema: dict[str, Any] | None = None
    tools: tuple[Tool, ...] = ()
    tokens: int = 0  # of prompt and answer together, estimated; 0 is unknown


class Tools(Protocol):
    """Tools that a model may call: ``tools/`` implements it with MCP servers. ``missing``: patterns without a tool."""

    missing: list[str]

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools that a model may call. Raises ToolServerError."""

    def approved(self, call: Call) -> bool:
        """Whether the configuration allows a call without a question."""

    def run(self, calls: Sequence[Call]) -> Iterator[ToolResult]:
        """Run the calls in parallel and yield each result when it arrives. Raises ToolServerError after the last."""


class Answer:
    """One answer while it arrives. The APIs write into it; ``new_events`` are shown, ``message`` is saved.

    ``finished``: the answer is complete, whatever happens later. ``replay`` is what the provider wants back, by its own
    keys.
    """

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.clear()

    def clear(self) -> None:
        """Start again: the same request is sent a second time."""
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.stop_sequence: str | None = None  # the sequence at which the answer ended
        self.finished = False
        self.request_id: str | None = None
        self.response_id: str | None = None
        self.resolved_model: str | None = None
        self.replay: dict[str, Any] = {}
        self._blocks: list[Block] = []  # in order of arrival; text blocks have ``pieces``
        self._reasoning: dict[str, list[str]] = {}  # by field
        self._refusal: list[str] = []
        self._halves: dict[str | None, str] = {}  # of surrogate pairs, by the reasoning's field; None: text
        self._events: list[Event] = []

    def add_text(self, piece: str) -> None:
        """Add a piece of the answer."""
        self._add_text(self._with_half(None, piece))

    def _add_text(self, text: str) -> None:
        if text:
            if not self._blocks or self._blocks[-1][0] != "text":
                self._blocks.append(("text", {"type": "text", "pieces": []}))
            self._blocks[-1][1]["pieces"].append(text)
            self._events.append(Text(text))

    def add_reasoning(self, piece: str, field: str) -> None:
        """Add a piece of reasoning under the provider's key; THINKING_BLOCKS adds to an unfinished block."""
        if text := self._with_half(field, piece):
            self._reasoning.setdefault(field, []).append(text)
            self._events.append(Reasoning(text, field))

    def add_thinking(self, block: Part) -> None:
        """Add a complete thinking block: ``{"type": "thinking", "thinking", "signature"?}``, or a redacted one."""
        self._blocks.append(("thinking", block))
        self._reasoning.pop(THINKING_BLOCKS, None)

    def add_refusal(self, piece: str) -> None:
        """Add a piece of a refusal, which some providers send apart from the answer."""
        self._refusal.append(piece)
        self._events.append(Refusal(piece))

    def add_call(self, call: Call) -> None:
        """Add a tool call. Ids are made unique within the answer, so that results are not mixed up."""
        calls, call_id = self.calls, call["id"] or new_call_id()
        is_duplicate = any(call_id == other["id"] for other in calls)
        function = {**call["function"], "arguments": join_surrogates(call["function"]["arguments"])}
        call = {**call, "id": f"{call_id}_{len(calls) + 1}" if is_duplicate else call_id, "function": function}
        self._blocks.append(("tool_call", call))
        self._events.append(ToolCall(call))

    def finish(self, reason: str | None) -> None:
        """Mark the answer as complete; its usage may still arrive."""
        if not self.finished:
            self._events.append(Finished(reason))
        self.finish_reason, self.finished = reason, True

    @property
    def calls(self) -> list[Call]:
        """The tool calls that have arrived."""
        return [block for kind, block in self._blocks if kind == "tool_call"]

    def new_events(self) -> list[Event]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def end(self) -> None:
        """Add the pending half of a surrogate pair: nothing more arrives."""
        self._add_text(self._halves.pop(None, ""))

    def message(self, end_reason: str | None = None) -> Message | None:
        """Return the answer as a message, or None if it ended before anything arrived: the question stays unanswered.

        ``end_reason`` is why the answer is partial: ``interrupted``, ``error`` or ``timeout``.
        """
        if end_reason and not (self._blocks or self._reasoning or self._refusal):
            return None
        blocks: list[Block] = [
            (kind, {"type": "text", "text": "".join(block["pieces"])} if kind == "text" else block)
            for kind, block in self._blocks
        ]
        reasoning = {field: "".join(pieces) for field, pieces in self._reasoning.items()}
        if THINKING_BLOCKS in reasoning:
            blocks.append(("thinking", {"type": "thinking", "thinking": reasoning.pop(THINKING_BLOCKS)}))
        message = with_blocks({"role": "assistant", "content": None}, blocks)
        if "order" not in message:
            message["content"] = text_of(message)
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        if replay := {**reasoning, **self.replay}:
            message["replay"] = replay
        message["resolved_model"] = self.resolved_model
        message["request_id"], message["response_id"] = self.request_id, self.response_id
        message["finish_reason"] = end_reason or self.finish_reason
        if self.stop_sequence is not None:
            message["stop_sequence"] = self.stop_sequence
        message["usage"] = self.usage
        message["cost"] = None
        message["duration_ms"] = round(1000 * (time.monotonic() - self._started))
        return message

    def _with_half(self, field: str | None, piece: str) -> str:
        """Return the piece with the pending half of a surrogate pair; some servers cut pairs in two."""
        text = self._halves.get(field, "") + piece
        half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        self._halves[field] = half
        return join_surrogates(text.removesuffix(half))


def join_surrogates(text: str) -> str:
    """Return the text with its surrogate pairs combined: joined pieces may have two separate halves."""
    return text if is_unicode(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


Ask = Callable[[Request, Answer], Iterator[Event]]  # it writes the answer into the second argument


def calls_to_run(message: Message | None, request: Request) -> list[Call]:
    """Return the tool calls of a complete answer, if the request offered tools."""
    is_complete = message is not None and (message.get("finish_reason") or "").lower() in COMPLETE_REASONS
    return list(message.get("tool_calls") or ()) if message and is_complete and request.tools else []


def error_result(call: Call, content: str) -> Message:
    """Return the tool message that tells the model why a call was not run."""
    name = str(call["function"].get("name", ""))
    result: Message = {"role": "tool", "tool_call_id": call["id"], "name": name, "content": content}
    return {**result, "is_error": True, "duration_ms": 0}


def answer_error(message: Message) -> GptshError | None:
    """Return the error to raise for a finished answer that is unusable or incomplete, or None."""
    reason = message.get("finish_reason") or ""
    if not reason:
        problem = "the answer may be incomplete: the server ended it without a reason"
        return Incomplete(problem, "ask again; a local server with one slot does so when another request arrives")
    if reason.lower() not in COMPLETE_REASONS:
        window = filled_window(message)
        cause = f"the window of {window:,} tokens is full" if window else _CAUSES.get(reason.lower(), "ended early")
        larger = f"-p num_ctx=N, or context_window under [providers.{message.get('provider')}], asks for a larger one"
        return Incomplete(f"the answer is incomplete: {cause} ({reason})", larger if window else "")
    if message.get("refusal"):
        return Incomplete("the model refused to answer")
    content = message["content"]
    if content and not (isinstance(content, str) and content.isspace()):
        return None
    if message.get("tool_calls"):
        return EmptyAnswer("the model called a tool instead of answering", "no tools were offered: ask again")
    return EmptyAnswer("the model answered nothing", "ask again, or try another model with -m")
