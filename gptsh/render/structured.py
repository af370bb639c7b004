"""Write JSON for ``-o json`` and ``-o jsonl``: lists, failures, events, answers."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypedDict

from gptsh import jsonio
from gptsh.errors import GptshError, OutputError
from gptsh.jsonio import JsonObject
from gptsh.messages import Event, Reasoning, Refusal, Text, ToolCall, ToolResult
from gptsh.render.writer import ReasoningStream, Writer
from gptsh.terminal.stdio import Sink

# Keys are added, never renamed or removed.
_KEYS = (
    "id",
    "session",
    "text",
    "model",
    "provider",
    "finish_reason",
    "usage",
    "cost",
    "tool_calls",
    "sources",
    "context",
    "error",
)
_RESULT = ("tool_call_id", "name", "content", "is_error")
ANSWER: Mapping[str, object] = {**dict.fromkeys(_KEYS), "tool_calls": [], "sources": []}


def line(value: object) -> str:
    """Return JSON on one line, a lone surrogate as its escape.

    Raises OutputError for what JSON cannot express.
    """
    try:
        return jsonio.encode_json(value).decode()
    except ValueError as err:
        raise OutputError(f"the output cannot be written as JSON: {err}") from err


class Failure(TypedDict):
    """A failure: the line that stderr has, how to continue, and the exit code."""

    message: str
    hint: str | None  # None: nothing was saved
    exit_code: int


def error(err: GptshError, hint: str) -> Failure:
    """Return a failure for JSON; an empty ``hint`` is none."""
    return {"message": str(err), "hint": hint or None, "exit_code": err.exit_code}


def listing(items: Iterable[Mapping[str, object]], output: str | None) -> Iterator[str]:
    """Yield JSON: a line for each object for ``jsonl``, else an array, closed if an item fails."""
    if output == "jsonl":
        yield from map(line, items)
        return
    separator = "["
    try:
        for item in map(line, items):
            yield separator + item
            separator = ","
    except GptshError as err:
        if separator == ",":
            yield "]"
            err.reported = True
        raise
    yield "]" if separator == "," else "[]"


class BufferedWriter(Writer):
    """Shows an answer only once it is complete; its reasoning appears as it arrives."""

    def close(self) -> None:
        """End the line of the reasoning."""
        self._reasoning.end()

    def _write_text(self, text: str) -> None:
        pass

    def deliver(self, text: str) -> None:
        """Write the text with a newline at its end."""
        self._reasoning.end()
        self._out.write(text if text.endswith("\n") else f"{text}\n")

    def conclude(self, result: Mapping[str, object]) -> None:
        """Write the JSON object of the answer."""
        self.deliver(line(result))


class EventWriter(Writer):
    """Writes events as they happen, one JSON object a line."""

    def __init__(self, out: Sink, reasoning: ReasoningStream, *, shows_reasoning: bool) -> None:
        super().__init__(out, reasoning)
        self._shows_reasoning = shows_reasoning
        self._pending = ""  # lines that are not written yet

    def emit(self, kind: str, **fields: object) -> None:
        """Record an event, to be written with the next output."""
        self.record({"type": kind, **fields})

    def record(self, event: Mapping[str, object]) -> None:
        """Record an event as a line."""
        self._pending += line(event) + "\n"

    def write(self, event: Event) -> None:
        """Write an event, after those recorded before."""
        match event:
            case Text(text) | Refusal(text) if text:
                self.emit("text", text=text)
            case Reasoning(text) if text and self._shows_reasoning:
                self.emit("reasoning", text=text)
            case ToolCall(call):
                self.emit("tool_call", tool_call=call)
            case ToolResult(message):
                self.emit("tool_result", tool_result={key: message.get(key) for key in _RESULT})
        self.close()

    def close(self) -> None:
        """Write the recorded events."""
        pending = self._pending
        self._pending = ""  # first: a signal during the write must not repeat them
        if pending:
            self._out.write(pending)

    def conclude(self, result: Mapping[str, object]) -> None:
        """Write the recorded events and the final ones."""
        if result["error"]:
            self.emit("error", error=result["error"])
        self.emit("done", **result)
        self.close()


class EventListener(EventWriter):
    """Passes the events on as they happen, as dicts, instead of writing them."""

    def __init__(
        self,
        out: Sink,
        reasoning: ReasoningStream,
        on_event: Callable[[JsonObject], object],
    ) -> None:
        super().__init__(out, reasoning, shows_reasoning=True)
        self._on_event = on_event

    def record(self, event: Mapping[str, object]) -> None:
        """Pass an event on. Raises what the caller raises."""
        self._on_event(dict(event))
