"""Answers of Ollama's own API: response bytes, a JSON object a line, to an ``Answer``. No network here."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from gptsh.content.answer import Answer
from gptsh.errors import ModelError
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm import sse
from gptsh.llm.failures import reported
from gptsh.llm.payloads import ADVICE, load, shown
from gptsh.models.cost import WINDOW, usage_from

THINKING = "thinking"  # the field of reasoning, in both directions
_KNOWN = {"message", "done", "error"}
_OF_USAGE = ("_count", "_duration")


def payloads(chunks: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    """Each line of a body as an object. One that the end of the stream cuts off is none, unless it is all there is.

    Raises ModelError for a line that is no JSON object, and for what is no answer.
    """
    began = False
    lines = sse.lines(chunks)
    for line in lines:
        if not line.strip():
            continue
        try:
            found = load(line)
        except ModelError:
            if began and next(lines, None) is None:
                return
            raise
        if not began and not _KNOWN & set(found):
            raise ModelError("the response is no answer of Ollama", ADVICE, detail=shown(line))
        began = True
        yield found


class Reader:
    """Writes the lines of one answer into it.

    ``window`` tells what the model is loaded with, and is asked where the answer is cut for its length.
    """

    def __init__(self, answer: Answer, window: Callable[[], int | None]) -> None:
        self._answer, self._window = answer, window

    def take(self, line: dict[str, Any]) -> bool:
        """One line; whether it was the last. Raises ModelError or TooLong for an error."""
        answer, message = self._answer, as_dict(line.get("message"))
        thinking, content, model = message.get(THINKING), message.get("content"), line.get("model")
        answer.resolved_model = model if isinstance(model, str) else None
        answer.add_reasoning(thinking if isinstance(thinking, str) else "", THINKING)
        answer.add_text(content if isinstance(content, str) else "")
        for call in as_dicts(message.get("tool_calls")):
            function, call_id = as_dict(call.get("function")), call.get("id")
            name, arguments = function.get("name"), function.get("arguments")
            if not isinstance(arguments, str):
                arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
            called = {"name": name if isinstance(name, str) else "", "arguments": arguments}
            answer.add_call({"id": call_id if isinstance(call_id, str) else "", "type": "function", "function": called})
        if line.get("error"):
            raise reported(line["error"], line)
        if line.get("done") is not True:
            return False
        usage = usage_from({key: value for key, value in line.items() if key.endswith(_OF_USAGE)})
        reason = line.get("done_reason")  # older servers end a whole answer with ``done`` alone
        reason = reason if isinstance(reason, str) and reason else "stop"
        if reason == "length" and (window := self._window()):
            usage["raw"][WINDOW] = window
        answer.usage = usage if usage["raw"] else None
        answer.finish("tool_calls" if answer.calls and reason == "stop" else reason)
        return True

    def end(self) -> None:
        """Nothing is known only now."""
