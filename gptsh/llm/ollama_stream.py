"""Answers in the dialect of Ollama's own API: response bytes, a JSON object a line, to events. No network here."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gptsh.errors import BrokenOff, GptshError, ModelError, TimedOut, TooLong
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm.failures import reported
from gptsh.llm.payloads import ADVICE, load, shown
from gptsh.messages import (
    Call,
    Event,
    Finished,
    Reasoning,
    Text,
    ToolCall,
    Used,
    new_call_id,
)
from gptsh.models.reported import WINDOW, usage_from

THINKING = "thinking"  # the field of reasoning, in both directions
_KNOWN = {"message", "done", "error"}
_OF_USAGE = ("_count", "_duration")


def read_lines(chunks: Iterable[bytes], window: Callable[[], int | None] = lambda: None) -> Iterator[Event]:
    """The events of an answer, streamed or in one piece, as they come.

    ``window`` tells what the model is loaded with, and is asked where the answer is cut for its length.
    Raises ModelError, TimedOut or TooLong for an error inside, a line that is no JSON object, and an answer that ends
    without saying so. What came by then comes before.
    """
    answer = _Answer(window)
    failure: GptshError = BrokenOff("the stream broke off before the answer was complete")
    try:
        for line in _objects(chunks):
            yield from answer.take(line)
            if answer.finished:
                return
    except (ModelError, TimedOut, TooLong) as err:
        failure = err
    raise failure


def _objects(chunks: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Each line as an object. One that the end of the stream cuts off says nothing, unless it is all there is."""
    began = False
    for line, whole in _lines(chunks):
        if not line.strip():
            continue
        try:
            found = load(line)
        except ModelError:
            if began and not whole:
                return
            raise
        if not began and not _KNOWN & set(found):
            raise ModelError("the response is no answer of Ollama", ADVICE, detail=shown(line))
        began = True
        yield found


def _lines(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    r"""Each line, and whether its end came; cut anywhere by the network. Only ``\n`` ends one: JSON may hold U+2028."""
    pieces: list[bytes] = []  # of the line that has not ended
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        pieces.append(first)
        if others:
            yield b"".join(pieces), True
            yield from ((line, True) for line in others[:-1])
            pieces = [others[-1]]
    yield b"".join(pieces), False


class _Answer:
    """What accumulates over the lines of one answer."""

    def __init__(self, window: Callable[[], int | None]) -> None:
        self.finished = False
        self._window = window
        self._ids: set[str] = set()

    def take(self, line: dict[str, Any]) -> Iterator[Event]:
        """The events of one line. Raises ModelError or TooLong for an error."""
        message = as_dict(line.get("message"))
        thinking, content = message.get(THINKING), message.get("content")
        if isinstance(thinking, str) and thinking:
            yield Reasoning(thinking, THINKING)
        if isinstance(content, str) and content:
            yield Text(content)
        for call in as_dicts(message.get("tool_calls")):
            yield ToolCall(self._call(call))
        if line.get("error"):
            raise reported(line["error"], line)
        if line.get("done") is True:
            self.finished = True
            usage = usage_from({key: value for key, value in line.items() if key.endswith(_OF_USAGE)})
            if line.get("done_reason") == "length" and (window := self._window()):
                usage["raw"][WINDOW] = window
            if usage["raw"]:
                yield Used(usage)
            yield Finished(self._reason(line.get("done_reason")))

    def _call(self, call: dict[str, Any]) -> Call:
        """A call in OpenAI's shape, with an id that no other call of this answer has."""
        function, call_id = as_dict(call.get("function")), call.get("id")
        if not isinstance(call_id, str) or not call_id or call_id in self._ids:
            call_id = new_call_id()
        self._ids.add(call_id)
        name, arguments = function.get("name"), function.get("arguments")
        if not isinstance(arguments, str):
            arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
        named = {"name": name if isinstance(name, str) else "", "arguments": arguments}
        return {"id": call_id, "type": "function", "function": named}

    def _reason(self, said: object) -> str:
        """Why it ended; a "stop" behind calls means these. Older servers end a whole answer with ``done`` alone."""
        reason = said if isinstance(said, str) and said else "stop"
        return "tool_calls" if self._ids and reason == "stop" else reason
