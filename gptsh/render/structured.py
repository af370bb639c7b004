"""Answers, lists and failures for programs: one JSON object a line, its keys those of docs/scripting.md."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gptsh import jsonio
from gptsh.errors import GptshError, OutputError
from gptsh.messages import Event, Reasoning, Refusal, Text, ToolCall, ToolResult
from gptsh.render.plain import ReasoningStream, Sink, Writer

# Keys are added, never renamed or removed.
_KEYS = ("id", "session", "text", "model", "provider", "finish_reason", "usage", "cost", "tool_calls", "context",
         "error")  # fmt: skip
_RESULT = ("tool_call_id", "name", "content", "is_error")
ANSWER: Mapping[str, Any] = {**dict.fromkeys(_KEYS), "tool_calls": []}


def line(value: object) -> str:
    """JSON on one line; a lone surrogate as its escape, which every reader takes. Raises OutputError."""
    try:
        return jsonio.encoded(value).decode()
    except ValueError as err:
        raise OutputError(f"the output cannot be written as JSON: {err}") from err


def error(what: str, hint: str, exit_code: int) -> dict[str, Any]:
    """A failure: what stderr says of it in one line, how to go on (None: nothing was kept), and the exit code."""
    return {"message": what, "hint": hint or None, "exit_code": exit_code}


def listing(items: Iterable[Mapping[str, Any]], output: str | None) -> Iterator[str]:
    """Lines: an object each for ``jsonl``, else an array, which is closed also where a failure ends it."""
    if output == "jsonl":
        yield from map(line, items)
        return
    before = "["
    try:
        for item in map(line, items):
            yield before + item
            before = ","
    except GptshError as err:
        if before == ",":
            yield "]"
            err.reported = True
        raise
    yield "]" if before == "," else "[]"


class BufferedWriter(Writer):
    """Shows nothing of an answer before it is known to be whole; its reasoning goes aside as it comes."""

    def close(self) -> None:
        """End the line of the reasoning."""
        self._aside.end()

    def _say(self, text: str) -> None:
        pass

    def deliver(self, text: str) -> None:
        """Write it, with a newline at its end."""
        self._aside.end()
        self._out.write(text if text.endswith("\n") else f"{text}\n")

    def conclude(self, result: Mapping[str, Any]) -> None:
        """Write the answer's object."""
        self.deliver(line(result))


class EventWriter(Writer):
    """Writes what happens as it happens, an object a line."""

    def __init__(self, out: Sink, aside: ReasoningStream, *, reasoning: bool) -> None:
        super().__init__(out, aside)
        self._reasoning = reasoning
        self._due = ""  # what the reader has not taken yet

    def emit(self, kind: str, **fields: Any) -> None:
        """Note what happened, for the next time that something is shown."""
        self._due += line({"type": kind, **fields}) + "\n"

    def write(self, event: Event) -> None:
        """Show an event."""
        match event:
            case Text(text) | Refusal(text) if text:
                self.emit("text", text=text)
            case Reasoning(text) if text and self._reasoning:
                self.emit("reasoning", text=text)
            case ToolCall(call):
                self.emit("tool_call", tool_call=call)
            case ToolResult(message):
                self.emit("tool_result", tool_result={key: message.get(key) for key in _RESULT})
        self.close()

    def close(self) -> None:
        """Show what is due."""
        due, self._due = self._due, ""
        if due:
            self._out.write(due)

    def conclude(self, result: Mapping[str, Any]) -> None:
        """Show what is due and the last events."""
        if result["error"]:
            self.emit("error", error=result["error"])
        self.emit("done", **result)
        self.close()
