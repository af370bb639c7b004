"""OpenAI's Responses API: write a request's JSON body, read a response into an ``Answer``. No network here.

A conversation is a list of items: messages, reasoning, calls, results, and what the server's own tools did. The items
of an answer go back in their order to the model that made them; any other model gets its texts and calls.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gptsh.content.answer import Answer
from gptsh.content.attachments import media_of, not_sent
from gptsh.content.passages import one_text
from gptsh.content.replay import Frame, filled
from gptsh.errors import ModelError
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm import reading_loop, sse
from gptsh.llm.error_bodies import reported_error
from gptsh.llm.json_bodies import ADVICE, debug_text
from gptsh.llm.request_tools import openai_schema, schema_as_text, take_tools
from gptsh.llm.sse import DONE
from gptsh.messages import (
    COMPLETE_REASONS,
    Call,
    Event,
    Message,
    Part,
    Request,
    Tool,
    blocks_of,
    is_text,
    labelled_text,
    parts_of,
    reasoning_from,
    system_text,
    text_of,
)
from gptsh.models.accepted_parameters import fit_params
from gptsh.models.facts import may_reason
from gptsh.models.names import is_answer_of
from gptsh.models.providers import Provider
from gptsh.models.token_usage import usage_from

if TYPE_CHECKING:
    from gptsh.llm.http import Response

ITEMS = "items"  # key of ``replay``: the items of an answer, if they are more than a text and calls
REFUSABLE = {
    "prompt_cache_key": "prompt_cache_key",
    "store": r"(?i)(?:unknown|unsupported|extra).{0,40}\bstore\b|\bstore\b.{0,20}not (?:supported|permitted)",
    "include": r"(?i)encrypted content is not supported|\binclude\b",
    "summary": r"(?i)reasoning[._ ]summar",
    "schema": r"(?i)text[._]format|json.?schema|response.?format",
    ITEMS: r"(?i)encrypted_content|encrypted content .{0,80}could not be|required following item|without its required"
    r"|items are not persisted|no tool output found",
}
_LONGEST_KEY = 64  # characters, of ``prompt_cache_key``
_ENCRYPTED = "reasoning.encrypted_content"
_REASONING = "reasoning"  # the key under which ``replay`` has the reasoning as text
_LAST_EVENTS = {f"response.{status}" for status in ("completed", "incomplete", "failed", "cancelled")}
_INCOMPLETE = {"max_output_tokens": "length"}  # its reasons, by the names of chat completions
_BARE_KEYS = {"type", "id", "status", "role", "content"}  # of a message or call that need not be saved
_WITHOUT_ITEM = {*_LAST_EVENTS, "response.created", "response.in_progress", "response.queued"}
_UNSUPPORTED = ("audio", "video")
_CALL_KEYS = ("call_id", "name", "arguments")


def path(_request: Request, _provider: Provider) -> str:
    """The path of the request's URL, after the base URL."""
    return "/responses"


def body(request: Request, provider: Provider, refusals: Collection[str] = (), _servers: Any = None) -> dict[str, Any]:
    """The JSON body, without what is refused (names of ``REFUSABLE``). OpenAI is asked not to store the answer."""
    if "schema" in refusals:
        request = schema_as_text(request)
    params, conversation = fit_params(request.params, provider, refusals).fields, request.messages
    if request.schema is not None:  # not strict, which supports only part of JSON Schema: gptsh checks the answer
        answer_format = {"type": "json_schema", "name": "answer", "schema": request.schema, "strict": False}
        params["text"] = {**as_dict(params.get("text")), "format": answer_format}
    reasons, include = may_reason(provider.name, provider.model), params.pop("include", None)
    include = include if isinstance(include, list) else []
    if reasons and "include" not in refusals and _ENCRYPTED not in include:
        include = [_ENCRYPTED, *include]
    if reasons and "summary" not in refusals:
        params["reasoning"] = {"summary": "auto", **as_dict(params.get("reasoning"))}
    tools = take_tools(params, request, provider, _declare)
    if provider.has_cache_key and "prompt_cache_key" not in refusals and (first := _first_id(conversation)):
        params.setdefault("prompt_cache_key", first)
    system = system_text(conversation)
    own_from = len(conversation) if ITEMS in refusals else reasoning_from(conversation)
    items: list[Part] = []
    for at, message in enumerate(conversation):
        items += _items(message, provider, sends_own=at >= own_from)
    return {
        "model": provider.model,
        **({"instructions": system} if system else {}),
        "input": items,
        **({"tools": tools} if tools else {}),
        **({"store": False} if "store" not in refusals else {}),
        **({"include": include} if include else {}),
        **params,
        **({"stream": True} if request.stream else {}),
    }


def accepts(part: Part, _provider: Provider) -> bool:
    """Whether a question can carry this part, which is not text."""
    media = media_of(part)
    return media is not None and media.kind not in _UNSUPPORTED


def read(response: "Response", _provider: Provider, answer: Answer, _servers: Any = None) -> Iterator[Event]:
    """Write the response into ``answer`` and yield its events."""
    payloads = sse.objects(response.chunks(), response.headers.get("content-type", ""), as_events)
    return reading_loop.read(payloads, Reader(answer), response.limit_wait)


# ---- requests


def _declare(tools: Sequence[Tool]) -> list[Part]:
    """Tools in the API's form."""
    declared: list[Part] = []
    for tool in tools:
        function = {"name": tool.name, "description": tool.description, "parameters": openai_schema(tool)}
        declared.append({"type": "function", **function, "strict": False})
    return declared


def _first_id(conversation: Sequence[Message]) -> str | None:
    """The id of the first message of a session that is sent: it stays the same while the prompt's beginning does."""
    return next((message["id"][:_LONGEST_KEY] for message in conversation if message.get("id")), None)


def _items(message: Message, provider: Provider, *, sends_own: bool) -> list[Part]:
    """A message as items, ``sends_own``: as the model sent them; the system prompt is none."""
    match message["role"]:
        case "user":
            content = _content(message, labelled=True)
            return [{"role": "user", "content": content}] if content else []
        case "assistant":
            own = _own_items(message, provider) if sends_own else []
            return own or list(_plain_items(message))
        case "tool":
            call_id = message.get("tool_call_id")
            return [{"type": "function_call_output", "call_id": call_id, "output": _content(message, labelled=False)}]
    return []


def _content(message: Message, *, labelled: bool) -> str | list[Part]:
    """The content of a question or a tool result: a string if all of it is text, else a list of parts."""
    parts = [part if is_text(part) else _media_part(part) for part in parts_of(message)]
    if all(map(is_text, parts)):
        message = {**message, "content": parts}
        return text_of(message) if labelled else one_text(message)
    sent: list[Part] = []
    for part in parts:
        if not is_text(part):
            sent.append(part)
        elif text := labelled_text(part) if labelled else part["text"]:
            sent.append({"type": "input_text", "text": text})
    return sent


def _media_part(part: Part) -> Part:
    """A part with media in the API's form, or a text that says what is not sent."""
    media = media_of(part)
    if media is None or media.kind in _UNSUPPORTED:
        return not_sent(part, "this API does not take it")
    inner: Any = part[part["type"]]
    if media.kind == "image":
        url, detail = inner if isinstance(inner, str) else inner["url"], as_dict(inner).get("detail")
        return {"type": "input_image", "image_url": url, "detail": detail or "auto"}
    if media.url is not None:
        return {"type": "input_file", "file_url": media.url}
    return {"type": "input_file", "filename": media.file_name, "file_data": inner["file_data"]}


def _own_items(message: Message, provider: Provider) -> list[Part]:
    """The items of a complete answer of this model, as it sent them; empty if they were not saved or do not fit.

    Reasoning goes back only if it can be read again, and only before an item that it produced: else it is refused.
    """
    is_complete = (message.get("finish_reason") or "").lower() in COMPLETE_REASONS
    if not is_complete or not is_answer_of(message, provider.name, f"{provider.name}/{provider.model}"):
        return []
    saved = as_dicts(as_dict(message.get("replay")).get(ITEMS))
    items: list[Part] = []
    for item, block in filled(message, saved, _frame) or ():
        if block is None:
            items.append(item)
        elif block[0] == "tool_call":
            items.append({**item, **_call_fields(block[1])})
        else:
            items.append({**item, "content": [{**as_dicts(item["content"])[0], "text": block[1]["text"]}]})
    sent: list[Part] = []
    for item in reversed(items):
        if item.get("type") != "reasoning" or (sent and (item.get("encrypted_content") or item.get("content"))):
            sent.insert(0, item)
    return sent


def _plain_items(message: Message) -> Iterator[Part]:
    """The texts and calls of an answer, of whatever model, in their order."""
    text = ""
    for kind, block in blocks_of({**message, "refusal": ""}):
        if kind == "text":
            text += block["text"] if is_text(block) else labelled_text(not_sent(block, "this API does not take it"))
        elif kind == "tool_call":
            if text.strip():
                yield {"role": "assistant", "content": text}
            text = ""
            yield {"type": "function_call", **_call_fields(block)}
    text += message.get("refusal") or ""
    if text.strip():
        yield {"role": "assistant", "content": text}


def _call_fields(call: Call) -> Part:
    function = call["function"]
    return {"call_id": call["id"], "name": function["name"], "arguments": function["arguments"]}


def _frame(item: Part) -> Frame | None:
    """What a saved item lacks, because the message holds it."""
    if item.get("type") == "message" and "text" not in next(iter(as_dicts(item.get("content"))), {"text": ""}):
        return "text"
    return "tool_call" if item.get("type") == "function_call" else None


# ---- answers


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
        kind, delta, item = _text(payload.get("type")), _text(payload.get("delta")), as_dict(payload.get("item"))
        answer, response = self.answer, as_dict(payload.get("response"))
        if kind == "error" or payload.get("error"):
            raise reported_error(payload.get("error") or payload, payload)
        answer.response_id = _text(response.get("id")) or answer.response_id
        answer.resolved_model = _text(response.get("model")) or answer.resolved_model
        place: Any = payload.get("output_index")  # some servers send only an id
        place = place if isinstance(place, int) else _text(payload.get("item_id") or item.get("id"))
        progress = self._open.setdefault(place, _Progress()) if kind not in _WITHOUT_ITEM else _Progress()
        match kind:
            case "response.output_item.added":
                progress.phase = _phase(item)
                progress.call = {**item, "arguments": ""} if item.get("type") == "function_call" else {}
            case "response.output_text.delta":
                progress.text = progress.text or answer.begin_text(**progress.phase)
                answer.add_text(delta)
            case "response.refusal.delta":
                progress.refuses = True
                answer.add_refusal(delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                progress.reasons = True
                self._add_reasoning(delta, (place, payload.get("summary_index"), payload.get("content_index")))
            case "response.output_text.annotation.added":
                self._add_sources([as_dict(payload.get("annotation"))])
            case "response.function_call_arguments.delta" if progress.call:
                progress.call["arguments"] += delta
            case "response.output_item.done":
                self._end_item(place, item)
            case _ if kind in _LAST_EVENTS:
                self._finish(kind, response)
                return True
        return False

    def end(self) -> None:
        """Write the calls that have not ended: an answer may break off anywhere."""
        for progress in self._open.values():
            if progress.call and not progress.is_called:
                self._add_call(progress, progress.call)

    def _end_item(self, place: Any, item: Part) -> None:
        """Read a complete item, once or again. Where its text differs from the deltas, the item is right."""
        self._items[place] = item
        progress = self._open.setdefault(place, _Progress())
        match item.get("type"):
            case "message":
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
            case "reasoning" if not progress.reasons:
                progress.reasons = True
                summary, content = as_dicts(item.get("summary")), as_dicts(item.get("content"))
                texts = [_text(part.get("text")) for part in summary or content]
                self._add_reasoning("\n\n".join(filter(None, texts)), place)
            case "function_call" if not progress.is_called:
                self._add_call(progress, item)

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
        function = {key: _text(item.get(key)) for key in ("name", "arguments")}
        call_id = _text(item.get("call_id")) or _text(item.get("id"))
        self.answer.add_call({"id": call_id, "type": "function", "function": function})

    def _finish(self, kind: str, response: dict[str, Any]) -> None:
        """Read the whole response at its end. Raises ModelError or TooLong if it failed."""
        output = as_dicts(response.get("output"))
        for index, item in enumerate(output):
            places = (index, _text(item.get("id")))  # servers that send no index are known by the id
            self._end_item(next((place for place in places if place in self._open), index), item)
        answer, usage = self.answer, as_dict(response.get("usage"))
        if usage:
            answer.usage = usage_from(usage, response.get("service_tier"), _searches(output or [*self._items.values()]))
        status, reason = kind.removeprefix("response."), as_dict(response.get("incomplete_details")).get("reason")
        if status in ("failed", "cancelled"):
            raise reported_error(response.get("error") or f"the response was {status}", response)
        frames = [frame for item in output or self._items.values() if (frame := _saved(item))]
        if not all(map(_is_bare, frames)):
            answer.replay[ITEMS] = frames
        if status == "incomplete":
            answer.finish(_INCOMPLETE.get(str(reason), _text(reason) or status))
        else:
            answer.finish("tool_calls" if answer.calls else "stop")


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
    return {"phase": phase} if (phase := _text(item.get("phase"))) else {}


def _join(parts: list[Part], kind: str, key: str) -> str:
    return "".join(_text(part.get(key)) for part in parts if part.get("type") == kind)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
