"""Read an answer of Ollama's own API, a line of JSON for each piece: text, thinking, tool calls, usage, the window."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from gptsh.content.answer import Answer
from gptsh.errors import ModelError
from gptsh.jsonio import as_dict, as_dicts, as_str
from gptsh.llm import reading_loop
from gptsh.llm.json_bodies import ADVICE, debug_text, load
from gptsh.llm.reported_errors import reported_error
from gptsh.llm.sse import lines
from gptsh.messages import Call
from gptsh.models.usage import WINDOW_KEY, usage_from

THINKING = "thinking"  # the field of reasoning, in requests and answers
_ANSWER_KEYS = {"message", "done", "error"}
_USAGE_SUFFIXES = ("_count", "_duration")


def json_lines(chunks: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    """Parse each line of a body as an object. Raises ModelError if one is not, or if the first is not an answer."""
    texts = filter(bytes.strip, lines(chunks))
    for number, line in enumerate(texts):
        try:
            payload = load(line)
        except ModelError:
            if number and next(texts, None) is None:  # the last line may be cut off
                return
            raise
        if not number and not _ANSWER_KEYS & set(payload):
            raise ModelError("the response is not an answer of Ollama", ADVICE, detail=debug_text(line))
        yield payload


class Reader(reading_loop.Reader):
    """Writes the lines of one answer into an ``Answer``. ``window`` looks up the window that the server used."""

    def __init__(self, answer: Answer, window: Callable[[], int | None]) -> None:
        super().__init__(answer)
        self._window = window

    def add(self, line: dict[str, Any]) -> bool:
        """Read one line; whether it was the last. Raises ModelError or TooLong for an error in it."""
        answer, message = self.answer, as_dict(line.get("message"))
        answer.resolved_model = as_str(line.get("model")) or None
        answer.add_reasoning(as_str(message.get(THINKING)), THINKING)
        answer.add_text(as_str(message.get("content")))
        for call in as_dicts(message.get("tool_calls")):
            answer.add_call(_chat_call(call))
        if line.get("error"):
            raise reported_error(line["error"], line)
        if line.get("done") is not True:
            return False
        usage = usage_from({key: value for key, value in line.items() if key.endswith(_USAGE_SUFFIXES)})
        reason = as_str(line.get("done_reason")) or "stop"  # older servers end a complete answer with ``done`` only
        window = self._window()
        if reason == "length" and window:
            usage["raw"][WINDOW_KEY] = window
        answer.usage = usage if usage["raw"] else None
        answer.finish("tool_calls" if answer.calls and reason == "stop" else reason)
        return True


def _chat_call(call: dict[str, Any]) -> Call:
    """A tool call in the form of chat completions, whose arguments are a text."""
    function = as_dict(call.get("function"))
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    named = {"name": as_str(function.get("name")), "arguments": arguments}
    return {"id": as_str(call.get("id")), "type": "function", "function": named}
