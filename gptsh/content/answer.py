"""One answer while it arrives: the events to show, and the message to save."""

import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from gptsh.content.think_tags import Piece, ThinkTags, split
from gptsh.messages import (
    COMMENTARY,
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
    text_of,
    with_blocks,
)
from gptsh.text import join_surrogates

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
        self.replay: dict[str, Any] = {}
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

    def begin_text(self, **more: Any) -> Part:
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
