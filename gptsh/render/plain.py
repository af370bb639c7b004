"""Events and documents as plain text: the answer byte for byte, a line of a list, a transcript."""

from collections.abc import Iterator
from datetime import datetime
from typing import Protocol

from gptsh.core.document import Document, tags_of
from gptsh.core.messages import Event, Message, Part, Reasoning, Refusal, Text, parts_of
from gptsh.core.sessions import SessionSummary


class Sink(Protocol):
    """Where text goes. Raises OSError as its stream does."""

    def write(self, text: str) -> None:
        """Write it whole, at once."""


class PlainWriter:
    """Writes an answer as it comes: text to ``out``, reasoning to ``err`` (None: nowhere), each piece at once.

    Raises OSError as ``out`` does; an ``err`` that fails is given up, since the answer does not depend on it.
    """

    def __init__(self, out: Sink, err: Sink | None) -> None:
        self._out, self._err = out, err
        self._last_out = self._last_err = "\n"

    def write(self, event: Event) -> None:
        """Show one event; those without text show nothing."""
        match event:
            case Text(text) | Refusal(text) if text:
                self._end_reasoning()
                self._last_out = text[-1]
                self._out.write(text)
            case Reasoning(text) if text:
                self._reason(text)

    def close(self) -> None:
        """A final newline, where the answer has none of its own."""
        self._end_reasoning()
        if self._last_out != "\n":
            self._last_out = "\n"
            self._out.write("\n")

    def _end_reasoning(self) -> None:
        if self._last_err != "\n":
            self._reason("\n")

    def _reason(self, text: str) -> None:
        if self._err is None:
            return
        self._last_err = text[-1]
        try:
            self._err.write(text)
        except OSError:
            self._err, self._last_err = None, "\n"


def local_time(moment: str) -> str:
    """``yyyy-MM-dd HH:mm`` in local time; what stands there when it is no time."""
    try:
        return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError):
        return moment


def listing_line(summary: SessionSummary) -> str:
    """``[index] id yyyy-MM-dd HH:mm title (agent|model)``, always one line."""
    what = f"{summary['title'] or '(untitled)'} ({summary['agent'] or '?'}|{summary['model'] or '?'})"
    return f"[{summary['index']}] {summary['id']} {local_time(summary['updated_at'])} {' '.join(what.split())}"


def model_line(model: str, wire: str, window: int | None, prices: tuple[float, float] | None) -> str:
    """A model, its transport, its window in tokens, its prices in USD per million tokens in and out; - is unknown."""
    in_and_out = [f"{1e6 * price:.2f}" for price in prices] if prices else ["-", "-"]
    columns = f"{' '.join(model.split()):<44} {wire:<7} {window or '-':>8} {in_and_out[0]:>8} {in_and_out[1]:>8}"
    return f"{columns}  says back what it was told, without key or network" if wire == "echo" else columns


def transcript(doc: Document) -> Iterator[str]:
    """A session for reading, line by line: a header, then each message under who said it and when."""
    stats, agent = doc["stats"], doc["agent"]
    yield f"# {doc['title'] or '(untitled)'}"
    yield ""
    yield f"session {doc['id']}, {local_time(doc['created_at'])} to {local_time(doc['updated_at'])}"
    yield f"agent {agent.get('name') or '?'}, model {agent.get('model') or '?'}, turns {stats['turns']}"
    if tags := tags_of(doc):
        yield f"tags {', '.join(tags)}"
    if origin := doc["meta"].get("forked_from"):
        yield f"forked from {origin}"
    for message in doc["messages"]:
        yield ""
        yield _heading(message)
        yield ""
        yield from _lines(message)


def _heading(message: Message) -> str:
    who = message.get("model") or message.get("name")
    said_by = f"{message['role']} ({who})" if who else message["role"]
    at = f" {local_time(message['timestamp'])}" if message.get("timestamp") else ""
    finish = message.get("finish_reason")
    partial = f" [{finish}]" if finish not in (None, "stop", "tool_calls") else ""
    return f"## {said_by}{at}{partial}"


def _lines(message: Message) -> Iterator[str]:
    for part in parts_of(message):
        yield from _part(part)
    if refusal := message.get("refusal"):
        yield refusal
    for call in message.get("tool_calls") or ():
        function = call.get("function", {})
        yield f"[tool call {function.get('name')}({function.get('arguments')})]"


def _part(part: Part) -> Iterator[str]:
    if part.get("source"):
        yield f"[{part['source']}]"
    text = part.get("text")
    yield text if part.get("type") == "text" and isinstance(text, str) else f"[{part.get('type')}]"
