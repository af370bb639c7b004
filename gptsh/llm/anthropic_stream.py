"""Answers of Anthropic's Messages API: response bytes to an ``Answer``. No network here.

Read by shape: an event, a delta or a block of a kind that is not known here ends nothing. A block for which there is no
other place is kept, with all others of its answer, so that the answer can go back as it came.
"""

import json
from collections.abc import Iterator
from typing import Any

from gptsh.content.answer import Answer, paired
from gptsh.errors import ModelError
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm import sse
from gptsh.llm.errors import reported
from gptsh.llm.sse import ADVICE, as_object, load, shown
from gptsh.messages import THINKING, Call
from gptsh.models.cost import REASONS, usage_from

THOUGHTS = ("thinking", "redacted_thinking")
BLOCKS = "blocks"  # under ``replay``: all blocks of an answer that has one for which there is no other place
_STOP = {"type": "message_stop"}
_OF_CALL = ("id", "type", "function", "name", "input")  # what a call has a place for, in either shape


def payloads(chunks: Iterator[bytes], content_type: str) -> Iterator[dict[str, Any]]:
    """The events of a body; a message in one piece as those that would have brought it.

    Raises ModelError for what is no message.
    """
    streamed, chunks = sse.peeked(chunks, content_type)
    if streamed:
        yield from (load(data) for _name, data in sse.payloads(chunks) if data.strip() not in (b"", b"[DONE]"))
        return
    body = b"".join(chunks)
    message = load(body)
    if message.get("type") == "error" or "error" in message:
        yield {"type": "error", **message}
    elif not isinstance(message.get("content"), list):
        raise ModelError("the response is no message", ADVICE, detail=shown(body))
    else:
        yield {"type": "message_start", "message": message}
        for at, block in enumerate(as_dicts(message["content"])):
            yield {"type": "content_block_start", "index": at, "content_block": block}
            yield {"type": "content_block_stop", "index": at}
        yield {"type": "message_delta", "delta": message}
        yield _STOP


class Reader(sse.Reader):
    """Writes the events of one answer into it."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._usage: dict[str, Any] = {}
        self._finish: str | None = None
        self._done = False
        self._open: dict[Any, _Block] = {}  # by index
        self._blocks: list[dict[str, Any]] = []

    def take(self, payload: dict[str, Any]) -> bool:
        """One event; whether it was the last. Raises ModelError or TooLong for an error."""
        kind, index = payload.get("type"), payload.get("index")
        index = index if isinstance(index, int) else None
        if kind == "error" or payload.get("error"):
            raise reported(payload.get("error") or payload, payload)
        if kind == _STOP["type"]:
            self._done = True
            return True
        if kind == "message_start":
            message = as_dict(payload.get("message"))
            self._count(message.get("usage"))
            for key, name in (("id", "response_id"), ("model", "resolved_model")):
                if isinstance(message.get(key), str):
                    setattr(self.answer, name, message[key])
        elif kind == "content_block_start":
            self._end(index)  # some servers do not say that a block has ended
            self._open[index] = _Block(as_dict(payload.get("content_block")), self.answer)
        elif kind == "content_block_delta" and index in self._open:
            self._open[index].take(as_dict(payload.get("delta")))
        elif kind == "content_block_stop":
            self._end(index)
        elif kind == "message_delta":
            self._conclude(as_dict(payload.get("delta")), payload.get("usage"))
        return False

    def end(self) -> None:
        """What is open: blocks without an end, tool calls that were begun, usage."""
        for index in list(self._open):
            if self._done or self.answer.finished:
                self._end(index)
            elif self._open[index].start.get("type") == "tool_use":
                self.answer.add_call(self._open[index].call())
        self._report_usage()
        if self._done:
            self.answer.finish(REASONS.get(self._finish or "", self._finish))

    def _count(self, usage: Any) -> None:
        """Later figures are of the whole answer; a null says nothing."""
        self._usage |= {key: value for key, value in as_dict(usage).items() if value is not None}

    def _report_usage(self) -> None:
        if self._usage:
            self.answer.usage = usage_from(dict(self._usage))

    def _end(self, index: int | None) -> None:
        ended = self._open.pop(index, None)
        if ended is None:
            return
        block = ended.whole()
        self._blocks.append(block)
        kind = block.get("type")
        if kind in THOUGHTS:
            self.answer.add_thought({key: value for key, value in block.items() if key != "signature" or value})
        elif kind == "tool_use":
            self.answer.add_call(ended.call())
        if BLOCKS in self.answer.replay or block.get("citations") or kind not in (*THOUGHTS, "tool_use", "text"):
            self.answer.replay[BLOCKS] = list(self._blocks)

    def _conclude(self, delta: dict[str, Any], usage: Any) -> None:
        self._count(usage)
        why = as_dict(delta.get("stop_details")).get("explanation")
        if isinstance(why, str) and why:
            self.answer.add_refusal(why)
        if isinstance(delta.get("stop_reason"), str):
            self._finish = delta["stop_reason"]
            self._report_usage()
            self.answer.finish(REASONS.get(self._finish or "", self._finish))


class _Block:
    """One block of an answer, and what its deltas add to it."""

    def __init__(self, start: dict[str, Any], answer: Answer) -> None:
        self.start = start
        self._answer = answer
        self._added: dict[str, list[str]] = {}
        self._json: list[str] = []
        self._citations: list[Any] = []
        self._show(start)

    def take(self, delta: dict[str, Any]) -> None:
        """A delta; of a kind that is not known here its texts are added under their own keys."""
        for key, value in delta.items():
            if key == "citation":
                self._citations.append(value)
            elif key == "partial_json":
                self._json.append(str(value))
            elif key != "type" and isinstance(value, str):
                self._added.setdefault(key, []).append(value)
        self._show(delta)

    def _show(self, piece: dict[str, Any]) -> None:
        kind = self.start.get("type")
        text = piece.get(str(kind))
        if kind == "text" and isinstance(text, str):
            self._answer.add_text(text)
        elif kind == "thinking" and isinstance(text, str):
            self._answer.add_reasoning(text, THINKING)

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
            "id": call_id if isinstance(call_id, str) else "",
            "type": "function",
            "function": {"name": str(self.start.get("name") or ""), "arguments": arguments},
            **{key: value for key, value in self.start.items() if key not in _OF_CALL},
        }
