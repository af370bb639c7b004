"""What a model is asked, and its answer as it arrives: what is shown of it, and the message that is saved."""

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

FINAL_WAIT = 5.0  # seconds for usage behind a complete answer, and for the body of a refusal
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


class Tools(Protocol):
    """Who carries out tool calls: MCP servers, as ``tools/`` reaches them. ``missing``: what was wanted in vain."""

    missing: list[str]

    def tools(self) -> tuple[Tool, ...]:
        """What a model may call. Raises ToolServerError."""

    def approved(self, call: Call) -> bool:
        """Whether the configuration lets it run without a question."""

    def run(self, calls: Sequence[Call]) -> Iterator[ToolResult]:
        """Carry out the calls at once, their results as they come. Raises ToolServerError behind the last of them."""


class Answer:
    """One answer as it arrives. The APIs write into it; ``news`` is what a reader sees of that, ``message`` is saved.

    ``finished``: it is whole, whatever may still happen. ``replay`` is what the provider wants back, by its own keys.
    """

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.clear()

    def clear(self) -> None:
        """Begin anew: the same is asked again."""
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.stop_sequence: str | None = None  # the one that it ended at
        self.finished = False
        self.request_id: str | None = None
        self.response_id: str | None = None
        self.resolved_model: str | None = None
        self.replay: dict[str, Any] = {}
        self._blocks: list[Block] = []  # in order of arrival; a text has its ``pieces``
        self._reasoning: dict[str, list[str]] = {}  # by field
        self._refusal: list[str] = []
        self._halves: dict[str | None, str] = {}  # of surrogate pairs: by field of the reasoning, None for the text
        self._news: list[Event] = []

    def add_text(self, piece: str) -> None:
        """A piece of the answer."""
        self._say(self._joined(None, piece))

    def _say(self, text: str) -> None:
        if text:
            if not self._blocks or self._blocks[-1][0] != "text":
                self._blocks.append(("text", {"type": "text", "pieces": []}))
            self._blocks[-1][1]["pieces"].append(text)
            self._news.append(Text(text))

    def add_reasoning(self, piece: str, field: str) -> None:
        """A piece of the model's reasoning, under the provider's name for it; THINKING is a block that goes on."""
        if text := self._joined(field, piece):
            self._reasoning.setdefault(field, []).append(text)
            self._news.append(Reasoning(text, field))

    def add_thinking(self, block: Part) -> None:
        """A thinking block that is whole: ``{"type": "thinking", "thinking", "signature"?}``, or a redacted one."""
        self._blocks.append(("thinking", block))
        self._reasoning.pop(THINKING_BLOCKS, None)

    def add_refusal(self, piece: str) -> None:
        """A piece of a refusal, which some providers send apart from the answer."""
        self._refusal.append(piece)
        self._news.append(Refusal(piece))

    def add_call(self, call: Call) -> None:
        """A tool call. No two of an answer have the same id, or their results would be mixed up."""
        calls, own = self.calls, call["id"] or new_call_id()
        taken = any(own == other["id"] for other in calls)
        function = {**call["function"], "arguments": join_surrogates(call["function"]["arguments"])}
        call = {**call, "id": f"{own}_{len(calls) + 1}" if taken else own, "function": function}
        self._blocks.append(("tool_call", call))
        self._news.append(ToolCall(call))

    def finish(self, reason: str | None) -> None:
        """The answer is whole; its usage may still come."""
        if not self.finished:
            self._news.append(Finished(reason))
        self.finish_reason, self.finished = reason, True

    @property
    def calls(self) -> list[Call]:
        """The tool calls that have come."""
        return [block for kind, block in self._blocks if kind == "tool_call"]

    def new_events(self) -> list[Event]:
        """What came since the last time."""
        news, self._news = self._news, []
        return news

    def end(self) -> None:
        """Nothing more comes: half a pair is all there will be of it."""
        self._say(self._halves.pop(None, ""))

    def message(self, ended: str | None = None) -> Message | None:
        """The answer as a message. ``ended`` says why it is partial: ``interrupted``, ``error`` or ``timeout``.

        None where it ended before anything came: then the question stays unanswered.
        """
        if ended and not (self._blocks or self._reasoning or self._refusal):
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
        message["finish_reason"] = ended or self.finish_reason
        if self.stop_sequence is not None:
            message["stop_sequence"] = self.stop_sequence
        message["usage"] = self.usage
        message["cost"] = None
        message["duration_ms"] = round(1000 * (time.monotonic() - self._started))
        return message

    def _joined(self, field: str | None, piece: str) -> str:
        """The piece with the half of a surrogate pair that was held back; some servers cut pairs in two."""
        text = self._halves.get(field, "") + piece
        half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        self._halves[field] = half
        return join_surrogates(text.removesuffix(half))


def join_surrogates(text: str) -> str:
    """The text, its surrogate pairs made whole: pieces that were joined may have the halves side by side."""
    return text if is_unicode(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


Ask = Callable[[Request, Answer], Iterator[Event]]  # the answer is written into the second one


def calls_to_run(message: Message | None, request: Request) -> list[Call]:
    """The calls that a whole answer leaves to the tools of its request."""
    whole = message is not None and (message.get("finish_reason") or "").lower() in COMPLETE_REASONS
    return list(message.get("tool_calls") or ()) if message and whole and request.tools else []


def error_result(call: Call, content: str) -> Message:
    """The message that tells the model why a call was not carried out."""
    name = str(call["function"].get("name", ""))
    result: Message = {"role": "tool", "tool_call_id": call["id"], "name": name, "content": content}
    return {**result, "is_error": True, "duration_ms": 0}


def answer_error(message: Message) -> GptshError | None:
    """What keeps a finished answer from being a whole one; None where nothing does."""
    finish = message.get("finish_reason") or ""
    if not finish:
        what = "the answer may be incomplete: the server ended it without a reason"
        return Incomplete(what, "a server with one slot does so when another request arrives")
    if finish.lower() not in COMPLETE_REASONS:
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
