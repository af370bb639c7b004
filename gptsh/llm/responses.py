"""Speak OpenAI's Responses API: write requests, read answers."""

from collections.abc import Iterator, Sequence

from gptsh.config.accounts import Refused, Target
from gptsh.content.answer import Answer, TextBlock
from gptsh.content.attachments import media_of, not_sent
from gptsh.content.passages import one_text
from gptsh.jsonio import JsonObject, as_dict, as_dicts, as_list, as_str
from gptsh.llm import stream
from gptsh.llm.conversations import (
    Frame,
    own_blocks,
    texts_and_calls,
)
from gptsh.llm.stream import (
    Refusable,
    not_an_answer,
    openai_function,
    reported_error,
    take_tools,
    without_empty,
)
from gptsh.messages import (
    Block,
    Call,
    Message,
    Part,
    Request,
    is_text,
    labelled_text,
    make_call,
    parts_of,
    reasoning_from,
    system_text,
    text_of,
)
from gptsh.models.facts import may_reason
from gptsh.models.usage import usage_from

# ---- answers
#
# Read an answer: text, reasoning, tool calls, sources (citations), web searches, usage.

ITEMS = "items"  # key of ``replay``: the items of an answer, if they are more than a text and calls
_REASONING = "reasoning"  # the key under which ``replay`` has the reasoning as text
_PARTIAL = ("incomplete", "failed", "cancelled")  # statuses
_LAST_EVENTS = {f"response.{status}" for status in ("completed", *_PARTIAL)}
_BARE_KEYS = {"type", "id", "status", "role", "content"}  # that need not be saved
_CALL_KEYS = ("call_id", "name", "arguments")


class _Progress:
    """What has arrived of one item."""

    def __init__(self) -> None:
        self.phase = ""  # of a message
        self.text: TextBlock | None = None  # of a message, in the answer
        self.has_refusal = False
        self.has_reasoning = False
        self.call: Part = {}  # as it began
        self.arguments: list[str] = []  # pieces of those of the call
        self.has_ended_call = False


class Reader(stream.Reader):
    """Writes the events of one answer into an ``Answer``."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._open: dict[int | str, _Progress] = {}  # by the item's place in the answer
        self._items: dict[int | str, Part] = {}  # those that have ended
        self._last_reasoning: object = None  # which item or part of a summary it was of

    @staticmethod
    def split(body: JsonObject) -> Iterator[JsonObject]:
        """Split a response into the events of a stream."""
        if body.get("error") and not body.get("output"):
            yield {"type": "error", "error": body["error"]}
        elif isinstance(body.get("output"), list):
            yield {"type": f"response.{body.get('status') or 'completed'}", "response": body}
        else:
            raise not_an_answer("one of the Responses API", body)

    def add(self, payload: JsonObject) -> bool:
        """Read one event; return whether it was the last."""
        event = as_str(payload.get("type"))
        response = as_dict(payload.get("response"))
        if event == "error" or payload.get("error"):
            raise reported_error(payload.get("error") or payload, payload)
        self.add_names(response.get("id"), response.get("model"))
        if event in _LAST_EVENTS:
            status = as_str(response.get("status"))
            if status not in _PARTIAL:  # vLLM names the event "completed" whatever the status is
                status = event.removeprefix("response.")
            self._finish(status, response)
            return True
        self._add_to_item(event, payload)
        return False

    def _add_to_item(self, event: str, payload: JsonObject) -> None:
        """Read an event that concerns one item."""
        delta = as_str(payload.get("delta"))
        item = as_dict(payload.get("item"))
        place = payload.get("output_index")
        if not isinstance(place, int):  # some servers send only an id
            place = as_str(payload.get("item_id") or item.get("id"))
        progress = self._progress_at(place)
        match event:
            case "response.output_item.added":
                progress.phase = as_str(item.get("phase"))
                progress.call = item if item.get("type") == "function_call" else {}
            case "response.output_text.delta":
                self._begin_text(progress, progress.phase)
                self.answer.add_text(delta)
            case "response.refusal.delta":
                progress.has_refusal = True
                self.answer.add_refusal(delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                progress.has_reasoning = True
                part = (place, payload.get("summary_index"), payload.get("content_index"))
                self._add_reasoning(delta, part)
            case "response.output_text.annotation.added":
                self._add_source(as_dict(payload.get("annotation")))
            case "response.function_call_arguments.delta":
                progress.arguments.append(delta)
            case "response.output_item.done":
                self._end_item(place, item)

    def end(self) -> None:
        """Write the calls that have not ended: an answer may break off anywhere."""
        for progress in self._open.values():
            if progress.call and not progress.has_ended_call:
                self._add_call({**progress.call, "arguments": "".join(progress.arguments)})

    def _progress_at(self, place: int | str) -> _Progress:
        return self._open.setdefault(place, _Progress())

    def _end_item(self, place: int | str, item: Part) -> None:
        """Read a complete item, once or again. Its text counts, not that of the deltas."""
        self._items[place] = item
        progress = self._progress_at(place)
        match item.get("type"):
            case "message":
                self._end_message(progress, item)
            case "reasoning" if not progress.has_reasoning:
                progress.has_reasoning = True
                parts = as_dicts(item.get("summary")) or as_dicts(item.get("content"))
                texts = [part["text"] for part in parts if as_str(part.get("text"))]
                self._add_reasoning("\n\n".join(texts), place)
            case "function_call" if not progress.has_ended_call:
                progress.has_ended_call = True
                self._add_call(item)

    def _end_message(self, progress: _Progress, item: Part) -> None:
        parts = as_dicts(item.get("content"))
        text = _join(parts, "output_text", "text")
        refusal = _join(parts, "refusal", "refusal")
        for part in parts:
            for annotation in as_dicts(part.get("annotations")):
                self._add_source(annotation)
        if text or progress.text:
            block = self._begin_text(progress, as_str(item.get("phase")))
            self.answer.set_text(block, text)
        if refusal and not progress.has_refusal:
            progress.has_refusal = True
            self.answer.add_refusal(refusal)

    def _begin_text(self, progress: _Progress, phase: str) -> TextBlock:
        """Return the text of a message in the answer, which its first event begins."""
        if progress.text is None:
            progress.text = self.answer.begin_text(phase)
        return progress.text

    def _add_reasoning(self, text: str, part: object) -> None:
        """Add reasoning, with a blank line where another item or part of a summary begins."""
        if not text:
            return
        if self._last_reasoning not in (None, part):
            text = f"\n\n{text}"
        self._last_reasoning = part
        self.answer.add_reasoning(text, _REASONING)

    def _add_source(self, annotation: Part) -> None:
        if annotation.get("type") == "url_citation":
            self.answer.add_source(annotation.get("url"), annotation.get("title"))

    def _add_call(self, item: Part) -> None:
        call_id = as_str(item.get("call_id")) or item.get("id")
        arguments = as_str(item.get("arguments"))
        self.answer.add_call(make_call(call_id, item.get("name"), arguments))

    def _finish(self, status: str, response: JsonObject) -> None:
        """Read the whole response at its end. Raises ModelError or TooLong if it failed."""
        output = as_dicts(response.get("output"))
        for index, item in enumerate(output):
            item_id = as_str(item.get("id"))
            # Where the events had no index, the item is open under its id.
            has_no_index = item_id and item_id in self._open and index not in self._open
            self._end_item(item_id if has_no_index else index, item)
        items = output or list(self._items.values())
        usage = as_dict(response.get("usage"))
        if usage:
            tier = response.get("service_tier")
            self.answer.usage = usage_from(usage, tier, searches=_count_searches(items))
        if status in ("failed", "cancelled"):
            raise reported_error(response.get("error") or f"the response was {status}", response)

        self._save(items)
        self.answer.finish(self._reason(status, response))

    def _reason(self, status: str, response: JsonObject) -> str:
        """Return the finish reason of a response, by the names of chat completions."""
        if status == "incomplete":
            cause = as_str(as_dict(response.get("incomplete_details")).get("reason"))
            return "length" if cause == "max_output_tokens" else cause or status
        return "tool_calls" if self.answer.calls else "stop"

    def _save(self, items: list[Part]) -> None:
        """Save the items, if they are more than texts and calls."""
        frames = []
        for item in items:
            frame = _frame_of(item)
            if frame:
                frames.append(frame)
        if not all(map(_is_bare, frames)):
            self.answer.replay[ITEMS] = frames


def _count_searches(items: list[Part]) -> int:
    """Return the number of searches by the server; opening a page that was found is none."""
    count = 0
    for item in items:
        action = as_dict(item.get("action"))
        if item.get("type") == "web_search_call" and action.get("type", "search") == "search":
            count += 1
    return count


def _frame_of(item: Part) -> Part | None:
    """Return an item without the text or call that the message holds; None for an empty message."""
    if item.get("type") == "function_call":
        return {key: value for key, value in item.items() if key not in _CALL_KEYS}
    if item.get("type") != "message":
        return item
    parts = as_dicts(item.get("content"))
    if not _join(parts, "output_text", "text"):
        return item if _join(parts, "refusal", "refusal") else None
    texts = [part for part in parts if part.get("type") == "output_text"]
    annotations: list[Part] = []
    if len(texts) == 1:  # their positions are within one text
        annotations = as_dicts(texts[0].get("annotations"))
    return {**item, "content": [{"type": "output_text", "annotations": annotations}]}


def _is_bare(frame: Part) -> bool:
    """Return whether a saved item adds nothing to the message: no notes, phase or unknown keys."""
    if frame.get("type") not in ("message", "function_call") or frame.keys() - _BARE_KEYS:
        return False
    parts = as_dicts(frame.get("content"))
    return not any(part.get("annotations") or "refusal" in part for part in parts)


def _join(parts: list[Part], part_type: str, key: str) -> str:
    """Return the texts of the parts of one type, which are under this key, as one."""
    texts = [as_str(part.get(key)) for part in parts if part.get("type") == part_type]
    return "".join(texts)


# ---- requests
#
# A conversation is a list of items: messages, reasoning, calls, results, and what the server's own
# tools did. The items of an answer go back in their order to the model that made them; any other
# model gets its texts and calls.

REFUSABLE = {
    Refused.CACHE_KEY: Refusable(names=("prompt_cache_key",)),
    Refused.STORE: Refusable(names=("store",)),
    Refused.INCLUDE: Refusable(
        names=("include",),
        wording="(?i)encrypted content is not supported",
    ),
    Refused.SUMMARY: Refusable(
        names=("reasoning.summary",),
        wording="(?i)verified to generate reasoning summaries",
    ),
    Refused.SCHEMA: Refusable(
        names=("text.format",),
        wording="(?i)text[._]format|response.?format|json_schema",
    ),
    Refused.ITEMS: Refusable(
        wording="(?i)encrypted_content|encrypted content .{0,80}could not be"
        "|required following item|without its required|items are not persisted"
        "|no tool output found"
    ),
}
_LONGEST_KEY = 64  # characters, of ``prompt_cache_key``
_ENCRYPTED = "reasoning.encrypted_content"
_UNSUPPORTED = ("audio", "video")


def path(_target: Target) -> str:
    """Return the path of the request's URL, after the base URL."""
    return "/responses"


def body(request: Request, target: Target) -> JsonObject:
    """Return the JSON body, without what the server refuses.

    OpenAI is asked not to store the answer.
    """
    conversation = request.messages
    refusals = target.refusals
    params = {**request.params}
    include = as_list(params.pop("include", None))
    if request.schema is not None:
        answer_format = {
            "type": "json_schema",
            "name": "answer",
            "strict": False,  # which supports all of JSON Schema: gptsh checks the answer
            "schema": request.schema,
        }
        params["text"] = {**as_dict(params.get("text")), "format": answer_format}
    if may_reason(target.provider, target.model):
        if Refused.INCLUDE not in refusals and _ENCRYPTED not in include:
            include = [_ENCRYPTED, *include]
        if Refused.SUMMARY not in refusals:
            params["reasoning"] = {"summary": "auto", **as_dict(params.get("reasoning"))}
    tools, offered = take_tools(params, request, target)
    for tool in offered:
        tools.append({"type": "function", **openai_function(tool), "strict": False})
    if target.account.vendor.has_cache_key and Refused.CACHE_KEY not in refusals:
        cache_key = _cache_key(conversation)
        if cache_key:
            params.setdefault("prompt_cache_key", cache_key)

    payload = {
        "model": target.model,
        "instructions": system_text(conversation),
        "input": _input(conversation, target),
        "tools": tools,
        "store": None if Refused.STORE in refusals else False,
        "include": include,
        "stream": request.stream or None,
    }
    return {**without_empty(payload), **params}


def _cache_key(conversation: Sequence[Message]) -> str | None:
    """Return the id of the first message, which is the same while the prompt's beginning is."""
    for message in conversation:
        if message.get("id"):
            return message["id"][:_LONGEST_KEY]
    return None


def accepts(part: Part, _target: Target) -> bool:
    """Return whether a question can carry this part, which is not text."""
    media = media_of(part)
    return media is not None and media.kind not in _UNSUPPORTED


def _input(conversation: Sequence[Message], target: Target) -> list[Part]:
    """Return the items of a conversation, without the system prompt.

    Items of earlier answers are sent as the model returned them, unless the server refuses them.
    """
    own_from = reasoning_from(conversation)
    items: list[Part] = []
    for index, message in enumerate(conversation):
        match message["role"]:
            case "user":
                content = _content(message)
                if content:
                    items.append({"role": "user", "content": content})
            case "tool":
                call_id = message.get("tool_call_id")
                output = _content(message)
                items.append({"type": "function_call_output", "call_id": call_id, "output": output})
            case "assistant":
                own: list[Part] = []
                if index >= own_from and Refused.ITEMS not in target.refusals:
                    own = _own_items(message, target)
                items += own or _plain_items(message)
    return items


def _content(message: Message) -> str | list[Part]:
    """Return the content of a question or a tool result: a string if all is text, else parts."""
    is_question = message["role"] == "user"
    parts = [part if is_text(part) else _media_part(part) for part in parts_of(message)]
    if all(map(is_text, parts)):
        message = {**message, "content": parts}
        return text_of(message) if is_question else one_text(message)
    sent: list[Part] = []
    for part in parts:
        if not is_text(part):
            sent.append(part)
            continue
        text = labelled_text(part) if is_question else part["text"]
        if text:
            sent.append({"type": "input_text", "text": text})
    return sent


def _media_part(part: Part) -> Part:
    """Return a part with media in the API's form, or a text that says what is not sent."""
    media = media_of(part)
    if media is None or media.kind in _UNSUPPORTED:
        return not_sent(part, "this API does not accept it")
    inner = part[part["type"]]
    if media.kind == "image":
        url = inner if isinstance(inner, str) else inner["url"]
        detail = as_dict(inner).get("detail") or "auto"
        return {"type": "input_image", "image_url": url, "detail": detail}
    if media.url is not None:
        return {"type": "input_file", "file_url": media.url}
    return {"type": "input_file", "filename": media.file_name, "file_data": inner["file_data"]}


def _own_items(message: Message, target: Target) -> list[Part]:
    """Return the items of a complete answer of this model, as it sent them; empty if they differ.

    Reasoning goes back only if it can be read again, and only before an item that it produced: else
    the API refuses it.
    """
    items: list[Part] = []
    # From the end, because it depends on what follows whether reasoning goes back.
    for saved, block in reversed(own_blocks(message, target, ITEMS, _frame)):
        item = _filled(saved, block)
        can_be_read = item.get("encrypted_content") or item.get("content")
        if item.get("type") != "reasoning" or (items and can_be_read):
            items.append(item)
    items.reverse()
    return items


def _filled(item: Part, block: Block | None) -> Part:
    """Return a saved item with the text or call that the message holds."""
    if block is None:
        return item
    kind, content = block
    if kind == "tool_call":
        return {**item, **_call_fields(content)}
    part = as_dicts(item["content"])[0]
    return {**item, "content": [{**part, "text": content["text"]}]}


def _plain_items(message: Message) -> Iterator[Part]:
    """Yield the texts and calls of an answer, of whatever model, in their order."""
    for kind, block in texts_and_calls(message):
        if kind == "tool_call":
            yield {"type": "function_call", **_call_fields(block)}
        elif block["text"].strip():
            # Without the type llama.cpp takes it for no message.
            yield {"type": "message", "role": "assistant", "content": block["text"]}


def _call_fields(call: Call) -> Part:
    function = call["function"]
    return {
        "call_id": call["id"],
        "name": function["name"],
        "arguments": function["arguments"],
    }


def _frame(item: Part) -> Frame | None:
    """Return what is not in a saved item, because the message holds it."""
    if item.get("type") == "function_call":
        return "tool_call"
    if item.get("type") != "message":
        return None
    parts = as_dicts(item.get("content"))
    return "text" if parts and "text" not in parts[0] else None
