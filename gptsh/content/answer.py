"""Collect an answer while it arrives, split off its think tags, and judge its finish reason."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from gptsh.errors import EmptyAnswer, GptshError, Incomplete
from gptsh.jsonio import JsonObject
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
    Request,
    Text,
    ToolCall,
    Usage,
    new_call_id,
    starts_turn,
    text_of,
    with_blocks,
)
from gptsh.models.usage import filled_window
from gptsh.text import join_surrogates, shorten

# ---- think tags
#
# Separate the thought in front of an answer's text from the text.
#
# Servers leave it there if they do not know the model's template: between ``<think>`` and
# ``</think>``, or in gpt-oss's channels. Only a tag at the very beginning counts: a later one is a
# part of the text. Some templates open the thought in the prompt, so that only its end arrives: by
# then a stream has shown it as text, but it is not saved as text.

_FINAL = "<|channel|>final<|message|>"
_ANALYSIS = "<|channel|>analysis<|message|>"
# The tags that end a thought, by the one that begins it.
_ENDS = {
    "<think>": ("</think>",),
    _ANALYSIS: (f"<|end|><|start|>assistant{_FINAL}", _FINAL),
}
_TAGS = (*_ENDS, "</think>", *_ENDS[_ANALYSIS])
_LONGEST = max(map(len, _TAGS))


class Piece(NamedTuple):
    """A piece of the thought in front of a text, and one of the text."""

    thought: str = ""
    text: str = ""


def split_thought(
    text: str,
    *,
    may_begin_inside: bool,
    is_complete: bool = True,
) -> Piece:
    """Return the thought before a text, and the text behind it.

    ``may_begin_inside``: the prompt may have opened the thought, so that its end is the first tag.
    A thought without an end is all text if the answer ``is_complete``, so that it is not lost.
    """
    opening, rest = _split_opening(text)
    end = _first_tag(rest, _ENDS[opening] if opening else _TAGS)
    ends_thought = bool(opening) or (may_begin_inside and end not in _ENDS)
    if end and ends_thought:
        thought, _, behind = rest.partition(end)
        return Piece(thought.lstrip(), behind.lstrip())
    if opening and not is_complete:
        return Piece(thought=rest.lstrip())
    return Piece(text=text)


def is_open(text: str) -> bool:
    """Return whether an answer begins with a thought that has no end: so it was cut off."""
    opening, rest = _split_opening(text)
    return bool(opening) and not _first_tag(rest, _ENDS[opening])


def _split_opening(text: str) -> tuple[str, str]:
    """Return the tag with which a text begins a thought, and the rest.

    Return "" and the whole text if it has no such tag.
    """
    beginning = text.lstrip()
    for opening in _ENDS:
        if beginning.startswith(opening):
            return opening, beginning.removeprefix(opening)
    return "", text


def _first_tag(text: str, tags: Sequence[str]) -> str | None:
    """Return the tag that is in a text before all others; None if none is in it."""
    found = [tag for tag in tags if tag in text]
    return min(found, key=text.index, default=None)


class ThinkTags:
    """Separates thought and text while they arrive, to show them.

    Unless it ``reads`` tags, it treats all as text. ``may_begin_inside``: see ``split_thought``.
    """

    def __init__(self, *, reads: bool, may_begin_inside: bool) -> None:
        self.reads = reads
        self.may_begin_inside = may_begin_inside
        self._is_text = not reads  # the thought, if there was one, has ended
        self._pending = ""  # what is not shown yet: it may be the beginning of a tag
        self._ends: Sequence[str] = ()  # the tags that may end the thought, once it has begun
        self._skips_space = False  # white space beside a tag belongs to neither

    def add(self, received: str) -> Piece:
        """Add what has arrived; return what is to be shown."""
        if self._is_text:
            return Piece(text=self._without_space(received))
        self._pending += received
        if not self._ends:
            beginning = self._pending.lstrip()
            if any(tag != beginning and tag.startswith(beginning) for tag in _TAGS):
                return Piece()
            opening, rest = _split_opening(self._pending)
            if not opening:
                piece = split_thought(rest, may_begin_inside=self.may_begin_inside)
                self._is_text = True
                self._skips_space = not piece.text
                return piece
            self._ends = _ENDS[opening]
            self._pending = rest
            self._skips_space = True
        return self._add_thought()

    def _add_thought(self) -> Piece:
        """Return what is pending of a thought, and the text behind its end."""
        end = _first_tag(self._pending, self._ends)
        if end:
            thought, _, text = self._pending.partition(end)
            thought = self._without_space(thought)
            self._is_text = True
            self._skips_space = True
            return Piece(thought, self._without_space(text))
        thought = self._pending
        last_tag = thought.find("<", max(0, len(thought) - _LONGEST))
        if last_tag >= 0:  # it may be the end of the thought
            thought = thought[:last_tag]
        self._pending = self._pending[len(thought) :]
        return Piece(thought=self._without_space(thought))

    def end(self) -> tuple[str, bool]:
        """Return what is pending at the end of the text, and whether the thought has no end."""
        if self._is_text:
            return "", False
        self._is_text = True
        return self._without_space(self._pending), bool(self._ends)

    def _without_space(self, piece: str) -> str:
        if self._skips_space:
            piece = piece.lstrip()
            self._skips_space = not piece
        return piece


# ---- texts that arrive

_BLANK_LINE = "\n\n"


class _Surrogates:
    """Joins surrogate pairs, which some servers cut in two: the first half waits."""

    def __init__(self) -> None:
        self._half = ""

    def add(self, piece: str) -> str:
        """Return the piece, and a half before it, without a half at its end."""
        text = self._half + piece
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return join_surrogates(text.removesuffix(self._half))

    def end(self) -> str:
        """Return a half that waits."""
        half = self._half
        self._half = ""
        return half


class TextBlock:
    """One of the texts of an answer while it arrives: what has arrived, and what is shown of it.

    Its methods return what is to be shown next.
    """

    def __init__(self, tags: ThinkTags, phase: str) -> None:
        self.phase = phase
        self._tags = tags
        self._surrogates = _Surrogates()
        # What has arrived, and what is shown of it: in one list, as a signal may end the turn
        # between any two steps, and what is saved is to be shown.
        self._pieces: list[tuple[str, str]] = []
        self._has_open_thought = False  # something else came before its end

    def add(self, received: str) -> Piece:
        """Add a piece of the text."""
        return self._put(self._surrogates.add(received))

    def separate(self) -> Piece:
        """Add a blank line before the next text, at the end of a commentary."""
        text = self._received
        if self.phase != COMMENTARY or not text or text.endswith("\n"):
            return Piece()
        return self.add(_BLANK_LINE)

    def replace(self, text: str) -> Piece:
        """Replace the text by what the server sent at its end; only what it adds is shown."""
        received = self._received
        text = join_surrogates(text)
        if received == f"{text}{_BLANK_LINE}":
            return Piece()
        self._surrogates.end()
        piece = Piece()
        if text.startswith(received):
            piece = self._tags.add(text.removeprefix(received))
        self._pieces = [(text, self.shown_text + piece.text)]
        return piece

    def end(self, *, is_complete: bool) -> Piece:
        """Return what was pending: half a surrogate pair, or what might have been a tag.

        If the answer ``is_complete``, a thought without an end is text.
        """
        piece = self._put(self._surrogates.end())
        pending, is_open = self._tags.end()
        if is_open and not is_complete:
            self._has_open_thought = True
            return Piece(piece.thought + pending, piece.text)
        more = self._received if is_open else pending
        self._pieces.append(("", more))
        return Piece(piece.thought, piece.text + more)

    def _put(self, received: str) -> Piece:
        piece = self._tags.add(received)
        self._pieces.append((received, piece.text))
        return piece

    @property
    def _received(self) -> str:
        return "".join(received for received, _ in self._pieces)

    @property
    def shown_text(self) -> str:
        """The text as it was shown."""
        return "".join(text for _, text in self._pieces)

    def split(self) -> tuple[str, Part | None]:
        """Return the thought in front, and the part to save; None for an empty text."""
        whole = Piece(text=self._received)
        if self._tags.reads:
            whole = split_thought(
                whole.text,
                may_begin_inside=self._tags.may_begin_inside,
                is_complete=not self._has_open_thought,
            )
        if not whole.text:
            return whole.thought, None
        phase = {"phase": self.phase} if self.phase else {}
        return whole.thought, {"type": "text", **phase, "text": whole.text}


# ---- answer
#
# One answer while it arrives: the events to show, and the message to save.


class _GrowingText(NamedTuple):
    """A text within ``replay`` whose pieces are not joined yet."""

    holder: Part
    key: str
    pieces: list[str]


# What each answer has, even if it is None.
_SET = ("resolved_model", "request_id", "response_id", "finish_reason", "usage", "cost")


class Answer:
    """One answer while it arrives: an API writes, ``new_events`` are shown, ``message`` is saved.

    ``finished``: the answer is complete, whatever happens later. ``limit``: the tokens that the
    request allows. ``replay`` is what the provider wants back, by its own keys. ``mask`` hides
    secrets in the ids and the model that the server reported: a gateway may repeat the key there.
    """

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.mask: Callable[[str], str] = str
        self.clear()

    def clear(self, *, reads_think_tags: bool = False) -> None:
        """Start again: a request is sent, or sent a second time.

        ``reads_think_tags``: a thought in tags before the text is reasoning.
        """
        # What the server reported.
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.stop_sequence: str | None = None  # the sequence at which the answer ended
        self.finished = False
        self.request_id: str | None = None
        self.response_id: str | None = None
        self.resolved_model: str | None = None
        # What the request was; see ``Message``.
        self.limit: int | None = None
        self.prefix: str | None = None
        self.reasoning_refused = False
        # What has arrived.
        self.replay: JsonObject = {}
        self.has_thinking = False  # a complete thinking block has arrived
        self.calls: list[Call] = []  # the tool calls that have arrived
        self._blocks: list[Block | TextBlock] = []  # in order of arrival
        self._texts: list[TextBlock] = []  # those of the blocks
        self._call_ids: set[str] = set()
        self._reasoning: dict[str, list[str]] = {}  # by field
        self._surrogates: dict[str, _Surrogates] = {}  # of the reasoning, by field
        self._refusal: list[str] = []
        self._sources: dict[str, str] = {}  # titles, by URL
        self._growing: dict[tuple[int, str], _GrowingText] = {}  # by the id of the holder, and key
        self._reads_think_tags = reads_think_tags
        self._events: list[Event] = []

    def add_text(self, piece: str) -> None:
        """Add a piece of the answer."""
        if piece:
            if self._blocks and isinstance(self._blocks[-1], TextBlock):
                block = self._texts[-1]
            else:
                block = self.begin_text()
            self._show(block.add(piece))

    def begin_text(self, phase: str = "") -> TextBlock:
        """Begin a separate text, in a ``phase`` if it has one; return it for ``set_text``.

        A blank line separates it from a commentary before it, at whose end it is saved. Only the
        first text may begin with a thought.
        """
        is_first = not self._texts
        if not is_first:
            self.end_text(is_last=False)
            self._show(self._texts[-1].separate())
        reads = is_first and self._reads_think_tags
        # If the server sends reasoning separately, the prompt has opened no thought in the text.
        has_reasoning = bool(self._reasoning) or self.has_thinking
        block = TextBlock(ThinkTags(reads=reads, may_begin_inside=not has_reasoning), phase)
        self._blocks.append(block)
        self._texts.append(block)
        return block

    def set_text(self, block: TextBlock, text: str) -> None:
        """Replace a text by what the server sent at its end; only new text at its end is shown."""
        self._show(block.replace(text))

    def add_reasoning(self, piece: str, field: str) -> None:
        """Add reasoning under the provider's key; THINKING_BLOCKS adds to an unfinished block."""
        text = self._surrogates.setdefault(field, _Surrogates()).add(piece)
        if text:
            self._reasoning.setdefault(field, []).append(text)
            self._show(Piece(thought=text))

    def add_thinking(self, block: Part) -> None:
        """Add a complete thinking block, with its text or encrypted, as the provider sent it."""
        self.has_thinking = True
        self._blocks.append(("thinking", block))
        self._reasoning.pop(THINKING_BLOCKS, None)

    def add_refusal(self, piece: str) -> None:
        """Add a piece of a refusal, which some providers send apart from the answer."""
        self._refusal.append(piece)
        self._events.append(Refusal(piece))

    def add_source(self, url: object, title: object = None) -> None:
        """Add a page that the answer cites, once; some servers send its title later.

        What has no URL is no page.
        """
        if isinstance(url, str) and url:
            new_title = title if isinstance(title, str) else ""
            self._sources[url] = self._sources.get(url) or new_title

    def add_call(self, call: Call) -> None:
        """Add a tool call. Ids are unique within the answer, so that results are not mixed up."""
        self.end_text(is_last=False)
        call_id = call["id"] or new_call_id()
        if call_id in self._call_ids:
            call_id = f"{call_id}_{len(self._call_ids) + 1}"
        self._call_ids.add(call_id)
        arguments = join_surrogates(call["function"]["arguments"])
        if arguments.strip() == "null":  # so some servers write that there are none
            arguments = "{}"
        call = {**call, "id": call_id, "function": {**call["function"], "arguments": arguments}}
        self.calls.append(call)
        self._blocks.append(("tool_call", call))
        self._events.append(ToolCall(call))

    def extend_text(self, holder: Part, key: str, piece: str) -> None:
        """Add a piece to a text within ``replay``, which ``message`` joins.

        A string that grew with each piece would be copied each time.
        """
        growing = self._growing.setdefault(
            (id(holder), key), _GrowingText(holder, key, pieces=[holder[key]])
        )
        growing.pieces.append(piece)

    def finish(self, reason: str | None) -> None:
        """Mark the answer as complete; its usage may still arrive."""
        if not self.finished:
            self._events.append(Finished(reason))
        self.finish_reason = reason
        self.finished = True

    @property
    def text(self) -> str:
        """The text and the refusal as the events had them. ``message`` may take a thought out."""
        return "".join([block.shown_text for block in self._texts] + self._refusal)

    def new_events(self) -> list[Event]:
        """Return the events since the last call."""
        events = self._events
        self._events = []
        return events

    def end_text(self, *, is_last: bool = True) -> None:
        """Show what is pending of the text. ``is_last``: nothing follows it in the answer."""
        if self._texts:
            piece = self._texts[-1].end(is_complete=is_last and self.finished)
            self._show(piece)

    def message(self, end_reason: str | None = None) -> Message | None:
        """Return the answer as a message, or None if it ended before anything arrived.

        ``end_reason`` is why the answer is partial: ``interrupted``, ``error`` or ``timeout``.
        """
        self.end_text()
        reasoning = {field: "".join(pieces) for field, pieces in self._reasoning.items()}
        blocks, thought = self._whole_blocks()
        if thought:
            reasoning[TAGGED] = thought
        if end_reason and not (blocks or reasoning or self._refusal):
            return None
        if THINKING_BLOCKS in reasoning:
            thinking = reasoning.pop(THINKING_BLOCKS)
            blocks.append(("thinking", {"type": "thinking", "thinking": thinking}))

        message = with_blocks({"role": "assistant", "content": None}, blocks)
        if "order" not in message:
            message["content"] = text_of(message)
        for growing in self._growing.values():
            growing.holder[growing.key] = "".join(growing.pieces)
        fields = self._fields(reasoning, end_reason)
        present_fields = {}
        for name, value in fields.items():
            if value is not None or name in _SET:
                present_fields[name] = value
        return cast("Message", {**message, **present_fields})

    def _fields(self, reasoning: Mapping[str, str], end_reason: str | None) -> JsonObject:
        """Return what the message has beside its content; some values are None."""
        pages = [{"url": url, "title": title or None} for url, title in self._sources.items()]
        return {
            "refusal": "".join(self._refusal) or None,
            "replay": {**reasoning, **self.replay} or None,
            "sources": pages or None,
            "resolved_model": self._masked(self.resolved_model),
            "request_id": self._masked(self.request_id),
            "response_id": self._masked(self.response_id),
            "finish_reason": end_reason or self._real_finish_reason(),
            "prefix": self.prefix,
            "reasoning_refused": self.reasoning_refused or None,
            "stop_sequence": self.stop_sequence,
            "usage": self.usage,
            "cost": None,
            "duration_ms": round(1000 * (time.monotonic() - self._started)),
        }

    def _masked(self, value: str | None) -> str | None:
        return self.mask(value) if value else value

    def _real_finish_reason(self) -> str | None:
        """Why the answer ended: some servers call it complete although it has used up its limit."""
        is_complete = (self.finish_reason or "stop").lower() in COMPLETE_REASONS
        if not is_complete or self.stop_sequence or self.limit is None or self.usage is None:
            return self.finish_reason
        used = self.usage["completion"] or 0
        reasoning = self.usage["reasoning_tokens"] or 0
        # Some limits are for the text alone, without the reasoning.
        has_long_text = used - reasoning >= self.limit
        if has_long_text or self.limit <= used <= self.limit + 1:
            return "length"
        return self.finish_reason

    def _whole_blocks(self) -> tuple[list[Block], str]:
        """Return the blocks, without empty texts, and the thought in front of the first text."""
        blocks: list[Block] = []
        thoughts = []
        for block in self._blocks:
            if isinstance(block, TextBlock):
                thought, part = block.split()
                thoughts.append(thought)
                if part:
                    blocks.append(("text", part))
            else:
                blocks.append(block)
        return blocks, "".join(thoughts)

    def _show(self, piece: Piece) -> None:
        if piece.thought:
            self._events.append(Reasoning(piece.thought))
        if piece.text:
            self._events.append(Text(piece.text))


Ask = Callable[[Request, Answer], Iterator[Event]]  # it writes the answer into the second argument


# ---- verdict
#
# Whether an answer is complete: the error for one that was cut off, filtered, refused, or is empty.

_REASON_WIDTH = 60  # characters of a finish reason in an error
CONTENT_FILTER = "content_filter"
_REFUSAL = "refusal"
# Finish reasons of a filter; the last nine are Google's, of which some are for the prompt alone.
_FILTERS = (
    CONTENT_FILTER,
    "safety",
    "recitation",
    "language",
    "blocklist",
    "prohibited_content",
    "spii",
    "image_safety",
    "model_armor",
    "jailbreak",
)
_CAUSES = {
    "length": "cut by the token limit",
    "max_tokens": "cut by the token limit",
    "model_length": "cut by the model's window",
    "model_context_window_exceeded": "cut by the model's window",
    _REFUSAL: "refused",
    **dict.fromkeys(_FILTERS, "stopped by the provider's filter"),
}


def filtered_questions(messages: Sequence[Message]) -> set[str]:
    """Return the ids of the questions whose last answer a filter ended.

    A server would refuse any other request with them as well.
    """
    filtered: set[str] = set()
    question = ""
    for message in messages:
        if starts_turn(message):
            question = message["id"]
        elif message["role"] == "assistant":
            filtered.discard(question)
            if (message.get("finish_reason") or "").lower() in (*_FILTERS, _REFUSAL):
                filtered.add(question)
    return filtered


def answer_error(message: Message) -> GptshError | None:
    """Return the error to raise for a finished answer that is unusable or incomplete, or None."""
    reason = message.get("finish_reason") or ""
    content = message["content"]
    if not reason:
        problem = "the answer may be incomplete: the server ended it without a reason"
        advice = "ask again; a local server with one slot does so when another request arrives"
        return Incomplete(problem, advice)
    if reason.lower() not in COMPLETE_REASONS:
        return _early_end(message, reason)
    if message.get("refusal"):
        return Incomplete("the model refused to answer")
    if content and not (isinstance(content, str) and content.isspace()):
        return None
    if message.get("tool_calls"):
        problem = "the model called a tool instead of answering"
        return EmptyAnswer(problem, "no tools were offered: ask again")
    problem = "the model returned an empty answer"
    return EmptyAnswer(problem, "ask again, or try another model with -m")


def _early_end(message: Message, reason: str) -> GptshError:
    """Return the error for an answer that the provider ended early, for this reason."""
    what = "the answer is incomplete"
    has_content = bool(message["content"] or message.get("refusal"))
    if reason.lower() in _FILTERS and not has_content:
        what = "there is no answer"
    cause = _CAUSES.get(reason.lower(), "ended early")
    hint = ""
    window = filled_window(message)
    if window:
        cause = f"the window of {window:,} tokens is full"
        section = f"[providers.{message.get('provider')}]"
        hint = f"-p num_ctx=N, or context_window under {section}, asks for a larger one"
    return Incomplete(f"{what}: {cause} ({shorten(reason, _REASON_WIDTH)})", hint)
