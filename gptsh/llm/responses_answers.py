"""Read an answer of OpenAI's Responses API: text, reasoning, tool calls, sources (citations), web searches, usage."""

from collections.abc import Iterator
from typing import Any

from gptsh.content.answer import Answer
from gptsh.errors import ModelError
from gptsh.jsonio import as_dict, as_dicts, as_str
from gptsh.llm import reading_loop
from gptsh.llm.json_bodies import ADVICE, debug_text
from gptsh.llm.reported_errors import reported_error
from gptsh.llm.sse import DONE
from gptsh.messages import Part
from gptsh.models.usage import usage_from

ITEMS = "items"  # key of ``replay``: the items of an answer, if they are more than a text and calls
_REASONING = "reasoning"  # the key under which ``replay`` has the reasoning as text
_LAST_EVENTS = {f"response.{status}" for status in ("completed", "incomplete", "failed", "cancelled")}
_INCOMPLETE = {"max_output_tokens": "length"}  # its reasons, by the names of chat completions
_BARE_KEYS = {"type", "id", "status", "role", "content"}  # of a message or call that need not be saved
_WITHOUT_ITEM = {"response.created", "response.in_progress", "response.queued"}
_CALL_KEYS = ("call_id", "name", "arguments")


def as_events(response: dict[str, Any], body: bytes) -> Iterator[dict[str, Any]]:
    """A response as the events of a stream. --debug shows ``body`` if it is not one."""
    if response.get("error") and not response.get("output"):
        yield {"type": "error", "error": response["error"]}
    elif not isinstance(response.get("output"), list):
        raise ModelError("the response is not one of the Responses API", ADVICE, detail=debug_text(body))
    else:
        yield {"type": f"response.{response.get('status') or 'completed'}", "response": response}


class _Progress:
    """What has arrived of one item."""

    def __init__(self) -> None:
        self.text: Part | None = None  # the block of the answer
        self.phase: dict[str, str] = {}  # of a message
        self.call: Part = {}  # of a function call that has not ended
        self.arguments: list[str] = []  # its pieces
        self.refuses = self.reasons = self.is_called = False


class Reader(reading_loop.Reader):
    """Writes the events of one answer into an ``Answer``."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._open: dict[Any, _Progress] = {}  # by the item's place in the answer
        self._items: dict[Any, Part] = {}  # those that have ended
        self._thought: Any = None  # the piece of reasoning that came last

    def add(self, payload: dict[str, Any]) -> bool:
        """Read one event; whether it was the last. Raises ModelError or TooLong for an error in it."""
        if payload is DONE:
            return True
        kind, response = as_str(payload.get("type")), as_dict(payload.get("response"))
        if kind == "error" or payload.get("error"):
            raise reported_error(payload.get("error") or payload, payload)
        self.answer.response_id = as_str(response.get("id")) or self.answer.response_id
        self.answer.resolved_model = as_str(response.get("model")) or self.answer.resolved_model
        if kind in _LAST_EVENTS:
            self._finish(kind, response)
            return True
        if kind not in _WITHOUT_ITEM:
            self._add_to_item(kind, payload)
        return False

    def _add_to_item(self, kind: str, payload: dict[str, Any]) -> None:
        """Read an event that concerns one item."""
        delta, item, place = as_str(payload.get("delta")), as_dict(payload.get("item")), payload.get("output_index")
        if not isinstance(place, int):  # some servers send only an id
            place = as_str(payload.get("item_id") or item.get("id"))
        progress = self._open.setdefault(place, _Progress())
        match kind:
            case "response.output_item.added":
                progress.phase = _phase(item)
                progress.call = item if item.get("type") == "function_call" else {}
            case "response.output_text.delta":
                progress.text = progress.text or self.answer.begin_text(**progress.phase)
                self.answer.add_text(delta)
            case "response.refusal.delta":
                progress.refuses = True
                self.answer.add_refusal(delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                progress.reasons = True
                self._add_reasoning(delta, (place, payload.get("summary_index"), payload.get("content_index")))
            case "response.output_text.annotation.added":
                self._add_sources([as_dict(payload.get("annotation"))])
            case "response.function_call_arguments.delta" if progress.call:
                progress.arguments.append(delta)
            case "response.output_item.done":
                self._end_item(place, item)

    def end(self) -> None:
        """Write the calls that have not ended: an answer may break off anywhere."""
        for progress in self._open.values():
            if progress.call and not progress.is_called:
                self._add_call(progress, {**progress.call, "arguments": "".join(progress.arguments)})

    def _end_item(self, place: Any, item: Part) -> None:
        """Read a complete item, once or again. Where its text differs from the deltas, the item is right."""
        self._items[place] = item
        progress = self._open.setdefault(place, _Progress())
        match item.get("type"):
            case "message":
                self._end_message(progress, item)
            case "reasoning" if not progress.reasons:
                progress.reasons = True
                summary, content = as_dicts(item.get("summary")), as_dicts(item.get("content"))
                texts = [as_str(part.get("text")) for part in summary or content]
                self._add_reasoning("\n\n".join(filter(None, texts)), place)
            case "function_call" if not progress.is_called:
                self._add_call(progress, item)

    def _end_message(self, progress: _Progress, item: Part) -> None:
        parts = as_dicts(item.get("content"))
        text, refusal = _join(parts, "output_text", "text"), _join(parts, "refusal", "refusal")
        for part in parts:
            self._add_sources(as_dicts(part.get("annotations")))
        if text or progress.text:
            progress.text = progress.text or self.answer.begin_text(**_phase(item))
            self.answer.set_text(progress.text, text)
        if refusal and not progress.refuses:
            progress.refuses = True
            self.answer.add_refusal(refusal)

    def _add_reasoning(self, text: str, piece: Any) -> None:
        """Add reasoning, with a blank line where another piece begins: a part of a summary, or an item."""
        if text and self._thought not in (None, piece):
            text = f"\n\n{text}"
        if text:
            self._thought = piece
            self.answer.add_reasoning(text, _REASONING)

    def _add_sources(self, annotations: list[Part]) -> None:
        for note in annotations:
            if note.get("type") == "url_citation":
                self.answer.add_source(note.get("url"), note.get("title"))

    def _add_call(self, progress: _Progress, item: Part) -> None:
        progress.is_called = True
        function = {key: as_str(item.get(key)) for key in ("name", "arguments")}
        call_id = as_str(item.get("call_id")) or as_str(item.get("id"))
        self.answer.add_call({"id": call_id, "type": "function", "function": function})

    def _finish(self, kind: str, response: dict[str, Any]) -> None:
        """Read the whole response at its end. Raises ModelError or TooLong if it failed."""
        output = as_dicts(response.get("output"))
        for index, item in enumerate(output):
            places = (index, as_str(item.get("id")))  # servers that send no index are known by the id
            self._end_item(next((place for place in places if place in self._open), index), item)
        items = output or list(self._items.values())
        if usage := as_dict(response.get("usage")):
            self.answer.usage = usage_from(usage, response.get("service_tier"), _searches(items))
        status = kind.removeprefix("response.")
        if status in ("failed", "cancelled"):
            raise reported_error(response.get("error") or f"the response was {status}", response)
        frames = [frame for item in items if (frame := _saved(item))]
        if not all(map(_is_bare, frames)):
            self.answer.replay[ITEMS] = frames
        self.answer.finish(self._reason(status, response))

    def _reason(self, status: str, response: dict[str, Any]) -> str:
        """The finish reason by the names of chat completions; others stay."""
        if status != "incomplete":
            return "tool_calls" if self.answer.calls else "stop"
        reason = as_dict(response.get("incomplete_details")).get("reason")
        return _INCOMPLETE.get(str(reason), as_str(reason) or status)


def _searches(items: list[Part]) -> int:
    """The number of searches by the server; opening a page that was found is none."""
    calls = (as_dict(item.get("action")) for item in items if item.get("type") == "web_search_call")
    return sum(action.get("type", "search") == "search" for action in calls)


def _saved(item: Part) -> Part | None:
    """An item as ``replay`` has it: without the text or call that the message holds; None for an empty message."""
    if item.get("type") == "function_call":
        return {key: value for key, value in item.items() if key not in _CALL_KEYS}
    if item.get("type") != "message":
        return item
    parts = as_dicts(item.get("content"))
    if not _join(parts, "output_text", "text"):
        return item if _join(parts, "refusal", "refusal") else None
    texts = [part for part in parts if part.get("type") == "output_text"]
    notes = as_dicts(texts[0].get("annotations")) if len(texts) == 1 else []  # their places are within one text
    return {**item, "content": [{"type": "output_text", "annotations": notes}]}


def _is_bare(frame: Part) -> bool:
    """Whether a saved item adds nothing to the message: a text or a call without notes, phase or unknown keys."""
    if frame.get("type") not in ("message", "function_call") or frame.keys() - _BARE_KEYS:
        return False
    return not any(part.get("annotations") or "refusal" in part for part in as_dicts(frame.get("content")))


def _phase(item: Part) -> dict[str, str]:
    return {"phase": phase} if (phase := as_str(item.get("phase"))) else {}


def _join(parts: list[Part], kind: str, key: str) -> str:
    return "".join(as_str(part.get(key)) for part in parts if part.get("type") == kind)
