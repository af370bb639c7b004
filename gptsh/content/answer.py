"""A request to a model, and its answer while it arrives: the events to show, and the message to save."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from gptsh.content.think_tags import Beginning, Piece, ThinkTags, is_open, separate
from gptsh.errors import EmptyAnswer, GptshError, Incomplete
from gptsh.messages import (
    COMMENTARY,
    COMPLETE_REASONS,
    TAGGED,
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
from gptsh.text import is_unicode, shorten

_REASON_WIDTH = 60  # characters of a finish reason in an error
FINAL_WAIT = 5.0  # seconds to wait for usage after a complete answer, or for the body of an error response
_BLANK_LINE = "\n\n"
# Finish reasons of a filter; the last nine are Google's, of which some are for the prompt alone.
_FILTERS = (
    "content_filter", "safety", "recitation", "language", "blocklist", "prohibited_content", "spii", "image_safety",
    "model_armor", "jailbreak",
)  # fmt: skip
_CAUSES = {
    "length": "cut by the token limit",
    "max_tokens": "cut by the token limit",
    "model_length": "cut by the model's window",
    "model_context_window_exceeded": "cut by the model's window",
    "refusal": "refused",
    **dict.fromkeys(_FILTERS, "stopped by the provider's filter"),
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
    web: bool = False  # the model may search the web
    shows_reasoning: bool = False  # the user sees it as it arrives


class Question(NamedTuple):
    """What a tool server asks the user during a call: to fill in a form, or to open a URL."""

    server: str
    message: str
    form: dict[str, Any]  # a JSON Schema with properties that are no objects
    url: str = ""  # instead of a form


class Tools(Protocol):
    """Tools that a model may call: ``tools/`` implements it with MCP servers. ``missing``: patterns without a tool."""

    missing: list[str]

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools that a model may call. Raises ToolServerError."""

    def needs_approval(self, call: Call) -> tuple[str, str] | None:
        """The server and the tool of a call that the user has to approve; None if the configuration allows it."""

    def run(self, calls: Sequence[Call], answer: Callable[[Question], dict[str, Any] | None]) -> Iterator[ToolResult]:
        """Run the calls in parallel and yield each result when it arrives. Raises ToolServerError after the last.

        ``answer`` returns the values of a server's form, empty ones for a URL that the user opens, or None to decline.
        """


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
        self.prefix: str | None = None  # see ``Message``
        self.reasoning_refused = False
        self.replay: dict[str, Any] = {}
        self._blocks: list[Block] = []  # in order of arrival; text blocks have ``pieces``
        self._call_ids: set[str] = set()
        self._reasoning: dict[str, list[str]] = {}  # by field
        self._refusal: list[str] = []
        self._sources: dict[str, str] = {}  # titles, by URL
        self._halves: dict[str | None, str] = {}  # of surrogate pairs, by the reasoning's field; None: text
        self._tags = ThinkTags()
        self._events: list[Event] = []

    def expect(self, beginning: Beginning) -> None:
        """Say how the text of this answer begins, before any of it arrives."""
        self._tags = ThinkTags(beginning)

    @property
    def beginning(self) -> Beginning | None:
        """How the text began, if the answer is complete and shows that."""
        return self._tags.found if (self.finish_reason or "").lower() in COMPLETE_REASONS else None

    def add_text(self, piece: str) -> None:
        """Add a piece of the answer; a thought in tags before it becomes reasoning."""
        if piece:
            self._add_piece(self._tags.add(self._with_half(None, piece)))

    def _add_piece(self, piece: Piece) -> None:
        if piece.is_text:
            self._reasoning.pop(TAGGED, None)
        self._add_reasoning(piece.thought, TAGGED)
        self._add_text(piece.text)

    def _add_text(self, text: str) -> None:
        if text:
            if not self._blocks or self._blocks[-1][0] != "text":
                self._blocks.append(("text", {"type": "text", "pieces": []}))
            self._blocks[-1][1]["pieces"].append(text)
            self._events.append(Text(text))

    def begin_text(self, **more: Any) -> Part:
        """Begin a text of its own, with ``more`` keys, and return it for ``set_text``.

        A blank line separates it from a commentary before it, at whose end it is saved.
        """
        if any(kind == "text" for kind, _ in self._blocks):
            self._add_piece(self._tags.end_thought())
        last = next((block for kind, block in reversed(self._blocks) if kind == "text"), {})
        if last.get("phase") == COMMENTARY and last["pieces"] and not last["pieces"][-1].endswith("\n"):
            last["pieces"].append(_BLANK_LINE)
            self._events.append(Text(_BLANK_LINE))
        block: Part = {"type": "text", "pieces": [], **more}
        self._blocks.append(("text", block))
        return block

    def set_text(self, block: Part, text: str) -> None:
        """Replace a text by what the server sent at its end; only an end that has not arrived is shown."""
        text, shown = join_surrogates(text), "".join(block["pieces"])
        self._halves.pop(None, None)
        if block is next(first for kind, first in self._blocks if kind == "text"):
            text = self._set_tagged(text)
        if shown == f"{text}{_BLANK_LINE}":
            return
        block["pieces"] = [text]
        if len(text) > len(shown) and text.startswith(shown):
            self._events.append(Text(text[len(shown) :]))

    def _set_tagged(self, text: str) -> str:
        """Replace the thought before the first text by that of the whole text; return the text behind it."""
        piece = separate(text, self._tags.beginning)
        self._tags.end(is_complete=True)
        shown = "".join(self._reasoning.pop(TAGGED, ()))
        if piece.thought.startswith(shown):
            self._add_reasoning(piece.thought[len(shown) :], TAGGED)
        if piece.thought:
            self._reasoning[TAGGED] = [piece.thought]
        return piece.text

    def add_reasoning(self, piece: str, field: str) -> None:
        """Add a piece of reasoning under the provider's key; THINKING_BLOCKS adds to an unfinished block."""
        if text := self._with_half(field, piece):
            self._add_piece(self._tags.expect_text())
            self._add_reasoning(text, field)

    def _add_reasoning(self, text: str, field: str) -> None:
        if text:
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

    def add_source(self, url: object, title: object = None) -> None:
        """Add a page that the answer cites, once; some servers send its title later. What has no URL is no page."""
        if isinstance(url, str) and url:
            self._sources[url] = self._sources.get(url) or (title if isinstance(title, str) else "")

    def add_call(self, call: Call) -> None:
        """Add a tool call. Ids are made unique within the answer, so that results are not mixed up."""
        self._add_piece(self._tags.end_thought())
        call_id, number = call["id"] or new_call_id(), len(self._call_ids)
        if call_id in self._call_ids:
            call_id = f"{call_id}_{number + 1}"
        self._call_ids.add(call_id)
        function = {**call["function"], "arguments": join_surrogates(call["function"]["arguments"])}
        call = {**call, "id": call_id, "function": function}
        self._blocks.append(("tool_call", call))
        self._events.append(ToolCall(call))

    def resume(self) -> None:
        """Go on with an answer that the server has paused."""
        self.finished, self.finish_reason = False, None

    def finish(self, reason: str | None) -> None:
        """Mark the answer as complete; its usage may still arrive."""
        if not self.finished:
            self._events.append(Finished(reason))
        self.finish_reason, self.finished = reason, True

    @property
    def has_thinking(self) -> bool:
        """Whether a complete thinking block has arrived."""
        return any(kind == "thinking" for kind, _ in self._blocks)

    @property
    def calls(self) -> list[Call]:
        """The tool calls that have arrived."""
        return [block for kind, block in self._blocks if kind == "tool_call"]

    def new_events(self) -> list[Event]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def end(self) -> None:
        """Add what is pending, half a surrogate pair or what might have been a tag: nothing more arrives."""
        if half := self._halves.pop(None, ""):
            self._add_piece(self._tags.add(half))
        self._add_piece(self._tags.end(is_complete=self.finished))

    def message(self, end_reason: str | None = None) -> Message | None:
        """Return the answer as a message, or None if it ended before anything arrived: the question stays unanswered.

        ``end_reason`` is why the answer is partial: ``interrupted``, ``error`` or ``timeout``.
        """
        self.end()
        blocks: list[Block] = []
        for kind, block in self._blocks:
            if kind == "text":
                rest = dict(block)
                text = "".join(rest.pop("pieces"))
                blocks += [("text", {"type": "text", "text": text, **rest})] if text else []
            else:
                blocks.append((kind, block))
        if end_reason and not (blocks or self._reasoning or self._refusal):
            return None
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
        if self._sources:
            message["sources"] = [{"url": url, "title": title or None} for url, title in self._sources.items()]
        message["resolved_model"] = self.resolved_model
        message["request_id"], message["response_id"] = self.request_id, self.response_id
        message["finish_reason"] = end_reason or self.finish_reason
        if self.prefix is not None:
            message["prefix"] = self.prefix
        if self.reasoning_refused:
            message["reasoning_refused"] = True
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
        is_absent = reason.lower() in _FILTERS and not (message["content"] or message.get("refusal"))
        what = "there is no answer" if is_absent else "the answer is incomplete"
        return Incomplete(f"{what}: {cause} ({shorten(reason, _REASON_WIDTH)})", larger if window else "")
    if message.get("refusal"):
        return Incomplete("the model refused to answer")
    if is_open(text_of(message)):
        return Incomplete("the answer is incomplete: its <think> has no end")
    content = message["content"]
    if content and not (isinstance(content, str) and content.isspace()):
        return None
    if message.get("tool_calls"):
        return EmptyAnswer("the model called a tool instead of answering", "no tools were offered: ask again")
    return EmptyAnswer("the model answered nothing", "ask again, or try another model with -m")
