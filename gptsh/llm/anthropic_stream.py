"""Answers in the Anthropic Messages dialect: response bytes to events. No network here.

Read by shape: an event, a delta or a block of a kind that is not known here ends nothing. A block for which there is no
other place is kept, with all others of its answer, as ``Verbatim``, so that the answer can go back as it came.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gptsh.errors import BrokenOff, GptshError, ModelError, TimedOut, TooLong
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm import sse
from gptsh.llm.anthropic_content import BLOCKS, THOUGHTS
from gptsh.llm.failures import reported
from gptsh.llm.payloads import ADVICE, Pairs, as_object, load, paired, shown
from gptsh.messages import (
    THINKING,
    Call,
    Event,
    Finished,
    Identified,
    Reasoning,
    Refusal,
    Text,
    Thought,
    ToolCall,
    Used,
    Verbatim,
    new_call_id,
)
from gptsh.models.reported import REASONS, usage_from

_PASSING = ("overloaded_error", "rate_limit_error", "api_error", "timeout_error")  # another try may do better
_STOP = "message_stop"
_OF_CALL = ("id", "type", "function", "name", "input")  # what a call has a place for, in either shape


def read_whole(data: bytes) -> Iterator[Event]:
    """The events of an answer that came in one piece. Raises ModelError when it is no answer."""
    payload = load(data)
    if payload.get("type") == "error" or "error" in payload:
        raise _error_in(payload)
    if not isinstance(payload.get("content"), list):
        raise ModelError("the response is no message", ADVICE, detail=shown(data))
    yield from _read(_as_events(payload), lambda: None)


def read_stream(chunks: Iterable[bytes], on_finish: Callable[[], None] = lambda: None) -> Iterator[Event]:
    """The events of a streamed answer, as they come.

    ``on_finish`` is called when only the end may still come. Raises ModelError for an error inside, and for a stream
    that breaks off before the reason for ending came; what is known by then (usage, the beginnings of tool calls)
    still comes before. Trouble after that reason takes nothing from a complete answer.
    """
    return _read(_loaded(chunks), on_finish)


def _loaded(chunks: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for _name, data in sse.payloads(chunks):
        if data.strip() not in (b"", b"[DONE]"):
            yield load(data)


def _as_events(payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A whole message as the events that would have brought it."""
    yield {"type": "message_start", "message": payload}
    for at, block in enumerate(as_dicts(payload["content"])):
        yield {"type": "content_block_start", "index": at, "content_block": block}
        yield {"type": "content_block_stop", "index": at}
    yield {"type": "message_delta", "delta": payload}
    yield {"type": _STOP}


def _read(payloads: Iterable[dict[str, Any]], on_finish: Callable[[], None]) -> Iterator[Event]:
    answer = _Answer()
    failure: GptshError = BrokenOff("the stream broke off before the answer was complete")
    try:
        for payload in payloads:
            if payload.get("type") == _STOP:
                answer.finished = True
                break
            yield from answer.take(payload)
            if answer.finished:
                on_finish()
    except (ModelError, TimedOut, TooLong) as err:
        failure = err
    yield from answer.rest()
    if not answer.finished:
        raise failure
    yield answer.ending()


class _Answer:
    """What accumulates over the events of one answer: its blocks, its usage, the reason for ending."""

    def __init__(self) -> None:
        self.finished = False
        self._finish: str | None = None
        self._usage: dict[str, Any] = {}
        self._told: dict[str, Any] = {}  # of the usage
        self._open: dict[int | None, _Block] = {}  # by index
        self._blocks: list[dict[str, Any]] = []
        self._keeps = False  # one of them has no other place

    def take(self, payload: dict[str, Any]) -> Iterator[Event]:
        """The events of one event of the server. Raises ModelError or TooLong for an error."""
        kind, said = payload.get("type"), payload.get("index")
        if kind == "error" or payload.get("error"):
            raise _error_in(payload)
        index = said if isinstance(said, int) else None
        if kind == "message_start":
            yield from self._start(as_dict(payload.get("message")))
        elif kind == "content_block_start":
            yield from self._begin(index, as_dict(payload.get("content_block")))
        elif kind == "content_block_delta" and index in self._open:
            yield from self._open[index].take(as_dict(payload.get("delta")))
        elif kind == "content_block_stop":
            yield from self._end(index)
        elif kind == "message_delta":
            yield from self._conclude(as_dict(payload.get("delta")), payload.get("usage"))

    def _start(self, message: dict[str, Any]) -> Iterator[Event]:
        self._count(message.get("usage"))
        if isinstance(message.get("id"), str):
            yield Identified(None, message["id"])

    def _count(self, usage: Any) -> None:
        """Later figures are of the whole answer; a null says nothing."""
        self._usage |= {key: value for key, value in as_dict(usage).items() if value is not None}

    def _begin(self, index: int | None, start: dict[str, Any]) -> Iterator[Event]:
        yield from self._end(index)  # some servers do not say that a block has ended
        self._open[index] = _Block(start)
        yield from self._open[index].said(start)

    def _end(self, index: int | None) -> Iterator[Event]:
        ended = self._open.pop(index, None)
        if ended is None:
            return
        yield from ended.rest()
        block = ended.whole()
        self._blocks.append(block)
        kind = block.get("type")
        if kind in THOUGHTS:
            yield Thought({key: value for key, value in block.items() if key != "signature" or value})
        elif kind == "tool_use":
            yield ToolCall(ended.call())
        elif kind != "text" or block.get("citations"):
            self._keeps = True
        if self._keeps:
            yield Verbatim(BLOCKS, list(self._blocks))

    def _conclude(self, delta: dict[str, Any], usage: Any) -> Iterator[Event]:
        self._count(usage)
        why = as_dict(delta.get("stop_details")).get("explanation")
        if isinstance(why, str) and why:
            yield Refusal(why)
        if isinstance(delta.get("stop_reason"), str):
            self._finish, self.finished = delta["stop_reason"], True
            yield from self._used()
            yield self.ending()

    def _used(self) -> Iterator[Event]:
        if self._usage != self._told:
            self._told = dict(self._usage)
            yield Used(usage_from(self._told))

    def rest(self) -> Iterator[Event]:
        """What has not been told yet: blocks without an end, tool calls that were begun, usage."""
        for index in list(self._open):
            if self.finished:
                yield from self._end(index)
            else:
                yield from self._open[index].begun()
        yield from self._used()

    def ending(self) -> Finished:
        """Why it ended, in the words of the other providers where they have some."""
        return Finished(REASONS.get(self._finish or "", self._finish))


class _Block:
    """One block of an answer, and what its deltas add to it."""

    def __init__(self, start: dict[str, Any]) -> None:
        self.start = start
        self._added: dict[str, list[str]] = {}
        self._json: list[str] = []
        self._citations: list[Any] = []
        self._pairs = Pairs()

    def take(self, delta: dict[str, Any]) -> Iterator[Event]:
        """A delta; of a kind that is not known here its texts are added under their own keys."""
        for key, value in delta.items():
            if key == "citation":
                self._citations.append(value)
            elif key == "partial_json":
                self._json.append(str(value))
            elif key != "type" and isinstance(value, str):
                self._added.setdefault(key, []).append(value)
        yield from self.said(delta)

    def said(self, piece: dict[str, Any]) -> Iterator[Event]:
        """What a beginning, or a delta, of text or of thinking says."""
        text = piece.get(str(self.start.get("type")))
        if isinstance(text, str):
            yield from self._spoken(self._pairs.joined(text))

    def rest(self) -> Iterator[Event]:
        """Half a pair that nothing came behind."""
        yield from self._spoken(self._pairs.rest())

    def _spoken(self, text: str) -> Iterator[Event]:
        kind = self.start.get("type")
        if text and kind == "text":
            yield Text(text)
        elif text and kind == "thinking":
            yield Reasoning(text, THINKING)

    def begun(self) -> Iterator[Event]:
        """What is known of a block that the answer broke off in."""
        yield from self.rest()
        if self.start.get("type") == "tool_use":
            yield ToolCall(self.call())

    def whole(self) -> dict[str, Any]:
        """The block as it would have come in one piece."""
        block = dict(self.start)
        for key, pieces in self._added.items():
            block[key] = paired((block[key] if isinstance(block.get(key), str) else "") + "".join(pieces))
        if self._citations:
            block["citations"] = [*as_dicts(block.get("citations")), *self._citations]
        if self._json:
            block["input"] = as_object(paired("".join(self._json)))
        return block

    def call(self) -> Call:
        """The block as a tool call: its arguments as received, what else stands in it under its own keys."""
        given = self.start.get("input")
        arguments = paired("".join(self._json)) or (json.dumps(given, ensure_ascii=False) if given else "{}")
        call_id = self.start.get("id")
        return {
            "id": call_id if isinstance(call_id, str) and call_id else new_call_id(),
            "type": "function",
            "function": {"name": str(self.start.get("name") or ""), "arguments": arguments},
            **{key: value for key, value in self.start.items() if key not in _OF_CALL},
        }


def _error_in(payload: dict[str, Any]) -> GptshError:
    error = payload.get("error")
    failure = reported(error or payload, payload)
    if isinstance(failure, ModelError):
        failure.retry = as_dict(error).get("type") in _PASSING
    return failure
