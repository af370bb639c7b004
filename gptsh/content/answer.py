"""One turn, round by round: a request in, events out, and the message that is to be saved.

Who asks (a transport of ``llm/``) is an argument, so nothing here knows a network.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from gptsh.errors import EmptyAnswer, GptshError, Incomplete
from gptsh.messages import (
    THINKING,
    WHOLE,
    Call,
    Event,
    Finished,
    Identified,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    Thought,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
    Used,
    Verbatim,
    is_interleaved,
    order_of,
)
from gptsh.models.reported import filled_window

LAST_WAIT = 5.0  # seconds for usage behind a complete answer, and for the body of a refusal
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
    """What a model is asked: ``model`` is ``provider/name``, ``params`` are the user's, ``schema`` is the answer's."""

    model: str
    messages: list[Message]
    params: dict[str, Any]
    stream: bool = True
    schema: dict[str, Any] | None = None
    tools: tuple[Tool, ...] = ()
    tokens: int = 0  # that prompt and answer take together, estimated; 0 is unknown


Ask = Callable[[Request], Iterator[Event]]


class Tools(Protocol):
    """Who carries out tool calls: MCP servers, as ``tools/`` reaches them. ``missing``: what was wanted in vain."""

    missing: list[str]

    def tools(self) -> tuple[Tool, ...]:
        """What a model may call. Raises ToolServerError."""

    def approved(self, call: Call) -> bool:
        """Whether the configuration lets it run without a question."""

    def run(self, calls: Sequence[Call]) -> Iterator[ToolResult]:
        """Carry out the calls at once, their results as they come. Raises ToolServerError behind the last of them."""


class Round:
    """Iterating it passes on the events of one request; ``message`` is what has arrived so far."""

    def __init__(self, events: Iterator[Event]) -> None:
        self._events = events
        self._texts: list[list[str]] = []  # by block
        self._reasoning: dict[str, list[str]] = {}
        self._thoughts: list[Part] = []
        self._refusal: list[str] = []
        self._calls: list[Call] = []
        self._replay: dict[str, Any] = {}
        self._kinds: list[str] = []  # of the blocks, in order of arrival
        self._ids = Identified(None, None)
        self._usage: Usage | None = None
        self._finish: str | None = None
        self.finished = False  # the answer is whole, whatever may still happen
        self._started = time.monotonic()

    def __iter__(self) -> Iterator[Event]:
        for came in self._events:
            event = self._apart(came)
            self._take(event)
            self._note(event)
            yield event

    def _apart(self, event: Event) -> Event:
        """The event; a call under the id of an earlier one gets another, or their results would be mixed up."""
        if not isinstance(event, ToolCall) or all(call["id"] != event.call["id"] for call in self._calls):
            return event
        return ToolCall({**event.call, "id": f"{event.call['id']}_{len(self._calls) + 1}"})

    def _take(self, event: Event) -> None:
        """What the model said."""
        match event:
            case Text(text) if text:
                if self._kinds[-1:] != ["text"]:
                    self._kinds.append("text")
                    self._texts.append([])
                self._texts[-1].append(text)
            case Reasoning(text, field):
                self._reasoning.setdefault(field, []).append(text)
            case Thought(block):
                self._thoughts.append(block)
                self._kinds.append("thinking")
                self._reasoning.pop(THINKING, None)
            case Refusal(text):
                self._refusal.append(text)
            case ToolCall(call):
                self._calls.append(call)
                self._kinds.append("tool_call")
            case Verbatim(field, value):
                self._replay[field] = value

    def _note(self, event: Event) -> None:
        """What is said about the answer."""
        match event:
            case Identified():
                self._ids = event
            case Used(usage):
                self._usage = usage
            case Finished(reason):
                self._finish, self.finished = reason, True

    def message(self, ended: str | None = None) -> Message | None:
        """The answer as a message. ``ended`` says why it is partial: ``interrupted``, ``error`` or ``timeout``.

        None where it ended before anything came: then the question stays unanswered.
        """
        arrived = self._kinds or self._reasoning or self._refusal
        if ended and not arrived:
            return None
        message: Message = {"role": "assistant", "content": self._content()}
        if self._calls:
            message["tool_calls"] = list(self._calls)
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        reasoning = {field: "".join(pieces) for field, pieces in self._reasoning.items()}
        cut = [{"type": "thinking", "thinking": reasoning.pop(THINKING)}] if THINKING in reasoning else []
        if self._thoughts or cut:
            message["thinking"] = [*self._thoughts, *cut]
        if is_interleaved(self._kinds):
            message["order"] = order_of([*self._kinds, *["thinking"] * len(cut)])
        if replay := {**reasoning, **self._replay}:
            message["replay"] = replay
        message["request_id"], message["response_id"] = self._ids
        message["finish_reason"] = ended or self._finish
        message["usage"] = self._usage
        message["cost"] = None
        message["duration_ms"] = round(1000 * (time.monotonic() - self._started))
        return message

    def _content(self) -> str | list[Part]:
        """One text, or where others stand between its pieces a part for each."""
        texts = ["".join(pieces) for pieces in self._texts]
        return [{"type": "text", "text": text} for text in texts] if is_interleaved(self._kinds) else "".join(texts)


def calls_to_run(message: Message | None, request: Request) -> list[Call]:
    """The calls that a whole answer leaves to the tools of its request."""
    whole = message is not None and (message.get("finish_reason") or "").lower() in WHOLE
    return list(message.get("tool_calls") or ()) if message and whole and request.tools else []


def result_of(call: Call, content: str) -> Message:
    """The message that tells the model why a call was not carried out."""
    name = str(call["function"].get("name", ""))
    result: Message = {"role": "tool", "tool_call_id": call["id"], "name": name, "content": content}
    return {**result, "is_error": True, "duration_ms": 0}


def shortcoming(message: Message) -> GptshError | None:
    """What keeps a finished answer from being a whole one; None where nothing does."""
    finish = message.get("finish_reason") or ""
    if not finish:
        what = "the answer may be incomplete: the server ended it without a reason"
        return Incomplete(what, "a server with one slot does so when another request arrives")
    if finish.lower() not in WHOLE:
        window = filled_window(message)
        cause = f"the window of {window:,} tokens is full" if window else _CAUSES.get(finish.lower(), "ended early")
        larger = f"-p num_ctx=N, or context_window under [providers.{message.get('provider')}], asks for a larger one"
        return Incomplete(f"the answer is incomplete: {cause} ({finish})", larger if window else "")
    if message.get("refusal"):
        return Incomplete("the model refused to answer")
    if not message["content"] and message.get("tool_calls"):
        return EmptyAnswer("the model called a tool instead of answering", "no tools were offered: ask again")
    if not message["content"]:
        return EmptyAnswer("the model answered nothing", "ask again, or try another model with -m")
    return None
