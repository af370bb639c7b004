"""Collect an answer while it arrives, split off its think tags, and judge each provider's finish reason."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Literal, NamedTuple

from gptsh.errors import EmptyAnswer, GptshError, Incomplete
from gptsh.jsonio import JsonObject, as_dict, as_dicts
from gptsh.messages import (
    COMMENTARY,
    COMPLETE_REASONS,
    PROVIDER_FIELDS,
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
    is_text,
    new_call_id,
    parts_of,
    starts_turn,
    text_of,
    with_blocks,
)
from gptsh.models.usage import filled_window
from gptsh.text import join_surrogates, shorten

# ---- think tags
#
# Separate the thought in front of an answer's text from the text while it arrives.
#
# Servers leave it there if they do not know the model's template: between ``<think>`` and
# ``</think>``, or in gpt-oss's channels. Only a tag at the very beginning counts: a later one is a
# part of the text. Some templates open the thought in the prompt, so that only its end arrives. By
# then a stream has passed it on as text; see ``split``.

_FINAL = "<|channel|>final<|message|>"
# The tags that end a thought, by the one that begins it.
_ENDS = {
    "<think>": ("</think>",),
    "<|channel|>analysis<|message|>": (f"<|end|><|start|>assistant{_FINAL}", _FINAL),
}
_TAGS = (*_ENDS, *(end for ends in _ENDS.values() for end in ends))


class Piece(NamedTuple):
    """The next piece of the thought and of the text.

    ``is_text``: what was taken for a thought is text as well.
    """

    thought: str = ""
    text: str = ""
    is_text: bool = False


class ThinkTags:
    """Separates one answer. Unless it ``reads`` tags, all of the answer is text.

    ``may_begin_inside``: the prompt may have opened a thought. Not if the server sends reasoning
    apart.
    """

    def __init__(self, *, reads: bool) -> None:
        self.may_begin_inside = reads
        self._state: Literal["start", "thought", "text"] = "start" if reads else "text"
        self._has_found_tag = False
        self._ends: Sequence[str] = ()  # of the thought
        self._received: list[str] = []  # all pieces, until the text begins
        self._tail = ""  # what is not passed on yet: it may be the beginning of a tag
        self._skips_space = False  # white space beside a tag belongs to neither

    @property
    def is_undecided(self) -> bool:
        """Whether the text is a thought up to its first tag, if that ends one."""
        return self.may_begin_inside and not self._has_found_tag

    def add(self, piece: str) -> Piece:
        """Return what is known with this piece of the answer."""
        if self._state == "text":
            return Piece(text=self._without_space(piece))
        self._received.append(piece)
        self._tail += piece
        return self._begin() if self._state == "start" else self._think()

    def _begin(self) -> Piece:
        """Decide how the answer begins, as soon as enough of it has arrived."""
        beginning = self._tail.lstrip()
        if any(tag.startswith(beginning) for tag in _TAGS if tag != beginning):
            return Piece()
        for opening, ends in _ENDS.items():
            if beginning.startswith(opening):
                self._state = "thought"
                self._ends = ends
                self._has_found_tag = self._skips_space = True
                self._tail = beginning.removeprefix(opening)
                return self._think()
        thought, text = split(self._tail) if self.may_begin_inside else (None, self._tail)
        self._has_found_tag = thought is not None
        self._begin_text(skips_space=self._has_found_tag and not text)
        return Piece(thought or "", text)

    def _think(self) -> Piece:
        end = _first_tag(self._tail, self._ends)
        if end is None:
            thought = self._tail
            self._tail = _partial_tag(thought, self._ends)
            return Piece(self._without_space(thought.removesuffix(self._tail)))
        thought, _, text = self._tail.partition(end)
        thought = self._without_space(thought)
        self._begin_text(skips_space=True)
        return Piece(thought, self._without_space(text))

    def end(self, *, is_complete: bool) -> Piece:
        """Return the rest: of the answer, or of its beginning before something else than text.

        Of a complete answer a thought without an end is text, so that it is not lost.
        """
        if self._state == "text":
            return Piece()
        received, rest = "".join(self._received), self._tail
        is_thought = self._state == "thought"
        thought = self._without_space(rest)
        self._begin_text(skips_space=is_thought)
        if not is_thought:
            return Piece(text=rest)
        return Piece(text=received, is_text=True) if is_complete else Piece(thought)

    def _begin_text(self, *, skips_space: bool) -> None:
        self._state = "text"
        self._received = []
        self._tail = ""
        self._skips_space = skips_space

    def _without_space(self, piece: str) -> str:
        if self._skips_space:
            piece = piece.lstrip()
            self._skips_space = not piece
        return piece


def split(text: str) -> tuple[str | None, str]:
    """Return the thought that the prompt opened, and the text behind it.

    Its end is the first tag. Without one: None, and all of the text.
    """
    tag = _first_tag(text, _TAGS)
    if tag is None or tag in _ENDS:
        return None, text
    thought, _, rest = text.partition(tag)
    return thought.lstrip(), rest.lstrip()


def is_open(text: str) -> bool:
    """Whether an answer begins with a thought that has no end: so it was cut off."""
    beginning = text.lstrip()
    for opening, ends in _ENDS.items():
        if beginning.startswith(opening):
            return _first_tag(beginning, ends) is None
    return False


def _first_tag(text: str, tags: Sequence[str]) -> str | None:
    """The one of the tags that is in a text before all others."""
    found = filter(text.__contains__, tags)
    return min(found, key=text.index, default=None)


def _partial_tag(text: str, tags: Sequence[str]) -> str:
    """The longest end of a text with which one of the tags begins."""
    longest = max(map(len, tags)) - 1
    for start in range(max(0, len(text) - longest), len(text)):
        end = text[start:]
        if any(tag.startswith(end) for tag in tags):
            return end
    return ""


# ---- answer
#
# One answer while it arrives: the events to show, and the message to save.

_BLANK_LINE = "\n\n"


class Answer:
    """One answer while it arrives. The APIs write into it; ``new_events`` are shown, ``message`` is saved.

    ``finished``: the answer is complete, whatever happens later. ``replay`` is what the provider wants back, by its own
    keys. ``mask`` hides secrets in the ids and the model that the server reported: a gateway may
    repeat the key there.
    """

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.mask: Callable[[str], str] | None = None
        self.clear()

    def clear(self, *, reads_think_tags: bool = False) -> None:
        """Start again: a request is sent, or sent a second time.

        ``reads_think_tags``: a thought in tags before the text is reasoning.
        """
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.stop_sequence: str | None = None  # the sequence at which the answer ended
        self.finished = False
        self.request_id: str | None = None
        self.response_id: str | None = None
        self.resolved_model: str | None = None
        self.prefix: str | None = None  # see ``Message``
        self.reasoning_refused = False
        self.replay: JsonObject = {}
        self.calls: list[Call] = []  # the tool calls that have arrived
        self._blocks: list[Block] = []  # in order of arrival; text blocks have ``pieces``
        self._texts: list[Part] = []  # the text blocks
        self._call_ids: set[str] = set()
        self._reasoning: dict[str, list[str]] = {}  # by field
        self._refusal: list[str] = []
        self._sources: dict[str, str] = {}  # titles, by URL
        self._growing: dict[tuple[int, str], tuple[Part, list[str]]] = {}  # see ``extend_text``
        self._halves: dict[str | None, str] = {}  # of surrogate pairs, by the reasoning's field; None: text
        self._reads_think_tags = reads_think_tags
        self._tags = ThinkTags(reads=reads_think_tags)
        self._events: list[Event] = []

    def add_text(self, piece: str) -> None:
        """Add a piece of the answer."""
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
                self._begin_block({"type": "text", "pieces": []})
            self._texts[-1]["pieces"].append(text)
            self._events.append(Text(text))

    def begin_text(self, **more: str) -> Part:
        """Begin a text of its own, with ``more`` keys, and return it for ``set_text``.

        A blank line separates it from a commentary before it, at whose end it is saved.
        """
        if self._texts:
            self._add_piece(self._tags.end(is_complete=False))
        last = self._texts[-1] if self._texts else {}
        if last.get("phase") == COMMENTARY and last["pieces"] and not last["pieces"][-1].endswith("\n"):
            last["pieces"].append(_BLANK_LINE)
            self._events.append(Text(_BLANK_LINE))
        return self._begin_block({"type": "text", "pieces": [], **more})

    def _begin_block(self, block: Part) -> Part:
        self._blocks.append(("text", block))
        self._texts.append(block)
        return block

    def set_text(self, block: Part, text: str) -> None:
        """Replace a text by what the server sent at its end; only an end that has not arrived is shown."""
        text, shown = join_surrogates(text), "".join(block["pieces"])
        self._halves.pop(None, None)
        if block is self._texts[0] and not (shown and self._tags.is_undecided):
            text = self._set_tagged(text)
        if shown == f"{text}{_BLANK_LINE}":
            return
        block["pieces"] = [text]
        if len(text) > len(shown) and text.startswith(shown):
            self._events.append(Text(text[len(shown) :]))

    def _set_tagged(self, text: str) -> str:
        """Replace the thought before the first text by that of the whole text; return the text behind it."""
        may_begin_inside = self._tags.may_begin_inside
        self._tags = ThinkTags(reads=self._reads_think_tags)
        self._tags.may_begin_inside = may_begin_inside
        first, rest = self._tags.add(text), self._tags.end(is_complete=True)
        thought = "" if rest.is_text else first.thought + rest.thought
        shown = "".join(self._reasoning.pop(TAGGED, ()))
        if thought.startswith(shown):
            self._add_reasoning(thought[len(shown) :], TAGGED)
        if thought:
            self._reasoning[TAGGED] = [thought]
        return first.text + rest.text

    def add_reasoning(self, piece: str, field: str) -> None:
        """Add a piece of reasoning under the provider's key; THINKING_BLOCKS adds to an unfinished block."""
        if text := self._with_half(field, piece):
            self._tags.may_begin_inside = False
            self._add_reasoning(text, field)

    def _add_reasoning(self, text: str, field: str) -> None:
        if text:
            self._reasoning.setdefault(field, []).append(text)
            self._events.append(Reasoning(text, field))

    def add_thinking(self, block: Part) -> None:
        """Add a complete thinking block: ``{"type": "thinking", "thinking", "signature"?}``, or a redacted one."""
        self._tags.may_begin_inside = False
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
        self._add_piece(self._tags.end(is_complete=False))
        call_id, number = call["id"] or new_call_id(), len(self._call_ids)
        if call_id in self._call_ids:
            call_id = f"{call_id}_{number + 1}"
        self._call_ids.add(call_id)
        function = {**call["function"], "arguments": join_surrogates(call["function"]["arguments"])}
        call = {**call, "id": call_id, "function": function}
        self.calls.append(call)
        self._blocks.append(("tool_call", call))
        self._events.append(ToolCall(call))

    def extend_text(self, holder: Part, key: str, piece: str) -> None:
        """Add a piece to a text within ``replay``. ``message`` joins the pieces: a string that grows is copied."""
        _, pieces = self._growing.setdefault((id(holder), key), (holder, [holder[key]]))
        pieces.append(piece)

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
        blocks = self._whole_blocks()
        if end_reason and not (blocks or self._reasoning or self._refusal):
            return None
        reasoning = {field: "".join(pieces) for field, pieces in self._reasoning.items()}
        if self._tags.is_undecided:
            blocks, thought = _without_thought(blocks)
            reasoning |= {TAGGED: thought} if thought else {}
        if THINKING_BLOCKS in reasoning:
            blocks.append(("thinking", {"type": "thinking", "thinking": reasoning.pop(THINKING_BLOCKS)}))
        message = with_blocks({"role": "assistant", "content": None}, blocks)
        if "order" not in message:
            message["content"] = text_of(message)
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        for (_, key), (holder, pieces) in self._growing.items():
            holder[key] = "".join(pieces)
        if replay := {**reasoning, **self.replay}:
            message["replay"] = replay
        if self._sources:
            message["sources"] = [{"url": url, "title": title or None} for url, title in self._sources.items()]
        message["resolved_model"] = self._masked(self.resolved_model)
        message["request_id"] = self._masked(self.request_id)
        message["response_id"] = self._masked(self.response_id)
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

    def _masked(self, name: str | None) -> str | None:
        return self.mask(name) if name and self.mask else name

    def _whole_blocks(self) -> list[Block]:
        """The blocks with their pieces joined, without empty texts."""
        blocks: list[Block] = []
        for kind, block in self._blocks:
            if kind != "text":
                blocks.append((kind, block))
            elif text := "".join(block["pieces"]):
                more = {key: value for key, value in block.items() if key != "pieces"}
                blocks.append(("text", {"type": "text", "text": text, **more}))
        return blocks

    @property
    def text(self) -> str:
        """The text as its events had it, then the refusal. ``message`` may take a thought out."""
        texts = [block["pieces"] for kind, block in self._blocks if kind == "text"]
        return "".join(chain(*texts, self._refusal))

    def _with_half(self, field: str | None, piece: str) -> str:
        """Return the piece with the pending half of a surrogate pair; some servers cut pairs in two."""
        text = self._halves.get(field, "") + piece
        half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        self._halves[field] = half
        return join_surrogates(text.removesuffix(half))


def _without_thought(blocks: list[Block]) -> tuple[list[Block], str]:
    """Take the thought that the prompt opened out of the first text.

    Return the blocks and the thought.
    """
    for index, (kind, block) in enumerate(blocks):
        if kind == "text":
            thought, text = split(block["text"])
            rest: list[Block] = [("text", {**block, "text": text})] if text else []
            return [*blocks[:index], *rest, *blocks[index + 1 :]], thought or ""
    return blocks, ""


Ask = Callable[[Request, Answer], Iterator[Event]]  # it writes the answer into the second argument


# ---- verdict
#
# Whether an answer is whole: the error for one that was cut off, filtered, refused, or is empty.

_REASON_WIDTH = 60  # characters of a finish reason in an error
CONTENT_FILTER = "content_filter"
# Finish reasons of a filter; the last nine are Google's, of which some are for the prompt alone.
_FILTERS = (
    CONTENT_FILTER, "safety", "recitation", "language", "blocklist", "prohibited_content", "spii", "image_safety",
    "model_armor", "jailbreak",
)  # fmt: skip
_REFUSAL = "refusal"
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
    if not reason:
        problem = "the answer may be incomplete: the server ended it without a reason"
        return Incomplete(problem, "ask again; a local server with one slot does so when another request arrives")
    if reason.lower() not in COMPLETE_REASONS:
        return _early_end(message, reason)
    if message.get("refusal"):
        return Incomplete("the model refused to answer")
    content = message["content"]
    if content and not (isinstance(content, str) and content.isspace()):
        return None
    if message.get("tool_calls"):
        return EmptyAnswer("the model called a tool instead of answering", "no tools were offered: ask again")
    return EmptyAnswer("the model answered nothing", "ask again, or try another model with -m")


def _early_end(message: Message, reason: str) -> GptshError:
    """The error for an answer that the provider ended early, for this reason."""
    has_content = bool(message["content"] or message.get("refusal"))
    is_absent = reason.lower() in _FILTERS and not has_content
    what = "there is no answer" if is_absent else "the answer is incomplete"
    cause, hint = _CAUSES.get(reason.lower(), "ended early"), ""
    if window := filled_window(message):
        cause = f"the window of {window:,} tokens is full"
        hint = f"-p num_ctx=N, or context_window under [providers.{message.get('provider')}], asks for a larger one"
    return Incomplete(f"{what}: {cause} ({shorten(reason, _REASON_WIDTH)})", hint)


# ---- replay
#
# The blocks of an answer as its provider sent them, so that they can go back to it unchanged and in
# their order.
#
# A message has keys for texts, calls and signed thinking. Some APIs send more: encrypted reasoning,
# searches, a signature or an id beside a text. Their files in ``llm/`` save all blocks of such an
# answer as a list in ``replay``, in order of arrival. What the message holds itself, a text or a
# call, is left out of its block there: that block is a frame, filled again from the message when it
# is sent.

Frame = Literal["text", "tool_call"]


def filled(
    message: Message, saved: Sequence[Part], frame_of: Callable[[Part], Frame | None]
) -> list[tuple[Part, Block | None]] | None:
    """Pair each saved block with the text or call that belongs into it, None for a whole one.

    ``frame_of`` returns what a saved block lacks. None if the message has other texts or calls than the saved blocks:
    then it was joined with another answer, or imported, and its own blocks count.
    """
    contents: dict[Frame, list[Part]] = {
        "text": parts_of(message),
        "tool_call": as_dicts(message.get("tool_calls")),
    }
    if not all(map(is_text, contents["text"])):
        return None
    frames = [frame_of(block) for block in saved]
    if any(frames.count(kind) != len(items) for kind, items in contents.items()):
        return None
    rest = {kind: iter(items) for kind, items in contents.items()}
    return [(block, (kind, next(rest[kind])) if kind else None) for block, kind in zip(saved, frames, strict=True)]


def call_signature(call: Call) -> str | None:
    """Return Google's signature of a call that came through its OpenAI-compatible API or through litellm."""
    beside = as_dict(as_dict(call.get("extra_content")).get("google"))
    inside = as_dict(as_dict(call.get("function")).get(PROVIDER_FIELDS))
    signature = beside.get("thought_signature") or inside.get("thought_signature")
    return signature if isinstance(signature, str) else None
