"""Read answers of Anthropic's Messages API: text, thinking, tool calls, citations, usage.

Unknown events, deltas and blocks are no error. If an answer has a block for which a message has no
key, all its blocks are saved, so that they can be sent back.
"""

from collections.abc import Iterator

from gptsh.content.answer import Answer
from gptsh.jsonio import JsonObject, as_dict, as_dicts, as_str
from gptsh.llm import stream
from gptsh.llm.stream import as_object, not_an_answer, reported_error
from gptsh.messages import THINKING_BLOCKS, make_call, token_count
from gptsh.models.usage import FINISH_REASONS, usage_from
from gptsh.text import join_surrogates

THINKING_TYPES = ("thinking", "redacted_thinking")
BLOCKS = "blocks"  # key of ``replay``: all blocks of an answer, if a message has no key for one
PAUSED = "pause_turn"  # the server's own tools take long: it goes on when it gets the answer back
_CALL_KEYS = ("id", "type", "function", "name", "input")  # of a call in our form or in the API's


class _OpenBlock:
    """A block while its pieces arrive. The texts of its start are added as the first piece."""

    def __init__(self, start: JsonObject) -> None:
        self.type = start.get("type")
        self._values = {key: value for key, value in start.items() if not isinstance(value, str)}
        self._texts: dict[str, list[str]] = {}  # pieces, by key
        self._citations = as_dicts(start.get("citations"))

    def add(self, piece: JsonObject) -> None:
        """Add the texts of a piece under their own keys, and its citation."""
        for key, value in piece.items():
            if key == "citation":
                self._citations.append(value)
            elif key != "type" and isinstance(value, str):
                self._texts.setdefault(key, []).append(value)

    def complete(self) -> JsonObject:
        """Return the block in the form that an unstreamed answer has."""
        block = {"type": self.type, **self._values}
        for key, pieces in self._texts.items():
            block[key] = join_surrogates("".join(pieces))
        if self._citations:
            block["citations"] = self._citations
        return block


class Reader(stream.Reader):
    """Writes the events of one answer into an ``Answer``."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._usage: JsonObject = {}
        self._finish: str | None = None
        self._done = False
        self._open_blocks: dict[int | None, _OpenBlock] = {}  # by index
        self._starts_blocks = False  # some servers send no content_block_start at all
        # What came before a pause of the same answer, see ``PAUSED``.
        self._earlier_usage: JsonObject = {}
        if answer.usage:
            self._earlier_usage = as_dict(answer.usage["raw"])
        self._blocks = as_dicts(answer.replay.get(BLOCKS))  # and those that have ended since
        if self._blocks:
            answer.replay[BLOCKS] = self._blocks

    @staticmethod
    def split(body: JsonObject) -> Iterator[JsonObject]:
        """Split a message into the events of a stream."""
        if body.get("type") == "error" or "error" in body:
            yield {"type": "error", **body}
            return
        if not isinstance(body.get("content"), list):
            raise not_an_answer("a message", body)
        yield {"type": "message_start", "message": body}
        for index, block in enumerate(as_dicts(body["content"])):
            yield {"type": "content_block_start", "index": index, "content_block": block}
            yield {"type": "content_block_stop", "index": index}
        yield {"type": "message_delta", "delta": body}
        yield {"type": "message_stop"}

    def add(self, payload: JsonObject) -> bool:
        """Read one event; return whether it was the last."""
        event = payload.get("type")
        if event == "error" or payload.get("error"):
            raise reported_error(payload.get("error") or payload, payload)
        if event == "message_stop":
            self._done = True
            return True
        message = as_dict(payload.get("message"))
        delta = as_dict(payload.get("delta"))
        index = payload.get("index")
        if not isinstance(index, int):
            index = None
        # That of the prompt comes first, that of the answer last; some servers send it in between.
        self._read_usage(as_dict(message.get("usage")))
        self._read_usage(as_dict(payload.get("usage")))
        match event:
            case "message_start":
                self.add_names(message.get("id"), message.get("model"))
            case "content_block_start":
                self._start_block(index, as_dict(payload.get("content_block")))
            case "content_block_delta":
                self._add_piece(index, delta)
            case "content_block_stop":
                self._end_block(index)
            case "message_delta":
                self._add_ending(delta)
        return False

    def _read_usage(self, usage: JsonObject) -> None:
        """Read figures of the usage: each replaces the earlier one, but null is ignored."""
        for key, value in usage.items():
            if value is not None:
                self._usage[key] = value

    def end(self) -> None:
        """Write unfinished blocks, among them tool calls, and usage."""
        for index in list(self._open_blocks):
            self._end_block(index)
        if self._done or self.answer.finished:
            self._finish_answer()
        else:
            self._write_usage()

    def _add_ending(self, delta: JsonObject) -> None:
        """Read why the answer ends, and what the API says of a refusal."""
        details = as_dict(delta.get("stop_details"))
        refusal = as_str(details.get("explanation"))
        category = as_str(details.get("category"))
        if category:
            refusal = f"{refusal} ({category})".lstrip()
        if refusal:
            self.answer.add_refusal(refusal)
        reason = delta.get("stop_reason")
        if isinstance(reason, str):
            self._finish = reason
            self.answer.stop_sequence = as_str(delta.get("stop_sequence")) or None
            self._finish_answer()

    def _finish_answer(self) -> None:
        self._write_usage()
        if self._finish == PAUSED:
            self.answer.replay[BLOCKS] = self._blocks
        self.answer.finish(FINISH_REASONS.get(self._finish or "", self._finish))

    def _write_usage(self) -> None:
        if self._usage:
            self.answer.usage = usage_from(_sum(self._earlier_usage, self._usage))

    def _start_block(self, index: int | None, start: JsonObject) -> None:
        self._end_block(index)  # some servers do not send content_block_stop
        self._starts_blocks = True
        self._open_blocks[index] = _OpenBlock(start)
        self._add_piece(index, start)

    def _add_piece(self, index: int | None, piece: JsonObject) -> None:
        """Add a piece to its block, and show it if it is a text or thinking."""
        block = self._open_blocks.get(index) or self._implied_block(piece)
        if block is None:
            return
        self._open_blocks[index] = block
        block.add(piece)
        if block.type == "text":
            self.answer.add_text(as_str(piece.get("text")))
        elif block.type == "thinking":
            self.answer.add_reasoning(as_str(piece.get("thinking")), THINKING_BLOCKS)

    def _implied_block(self, piece: JsonObject) -> _OpenBlock | None:
        """Return the block that a piece begins, if the server starts no blocks itself."""
        if self._starts_blocks:
            return None
        for block_type in ("text", "thinking"):
            if block_type in piece:  # its text has the same name
                return _OpenBlock({"type": block_type})
        return None

    def _end_block(self, index: int | None) -> None:
        """Save a block in the form that an unstreamed answer has."""
        if index not in self._open_blocks:
            return
        block = self._open_blocks.pop(index).complete()
        arguments = block.pop("partial_json", "")
        if arguments:
            block["input"] = as_object(arguments)
        block_type = block["type"]
        if not isinstance(block_type, str):
            return
        if block_type == "text" and not isinstance(block.get("text"), str):
            return
        self._blocks.append(block)
        for citation in as_dicts(block.get("citations")):
            self.answer.add_source(citation.get("url"), citation.get("title"))

        if block_type in THINKING_TYPES:
            if not block.get("signature"):
                block = {key: value for key, value in block.items() if key != "signature"}
            self.answer.add_thinking(block)
        elif block_type == "tool_use":
            self._add_call(block, arguments or block.get("input"))
        elif block_type != "text" or block.get("citations"):
            # A message has no key for it, so all blocks are saved, in their order.
            self.answer.replay[BLOCKS] = self._blocks

    def _add_call(self, block: JsonObject, call_input: object) -> None:
        """Add a tool call, with the keys of its block that a call of ours does not have."""
        call = make_call(block.get("id"), block.get("name"), call_input)
        others = {key: value for key, value in block.items() if key not in _CALL_KEYS}
        self.answer.add_call({**call, **others})


def _sum(earlier: JsonObject, later: JsonObject) -> JsonObject:
    """Return the usage of two requests: numbers are added, other values are the later ones."""
    result = {**earlier, **later}
    for key in earlier.keys() & later.keys():
        before = earlier[key]
        after = later[key]
        if isinstance(before, dict) and isinstance(after, dict):
            result[key] = _sum(before, after)
        elif token_count(before) is not None and token_count(after) is not None:
            result[key] = before + after
    return result
