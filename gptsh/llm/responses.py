"""Write a request of OpenAI's Responses API; ``responses_answers.py`` reads the answers.

A conversation is a list of items: messages, reasoning, calls, results, and what the server's own tools did. The items
of an answer go back in their order to the model that made them; any other model gets its texts and calls.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gptsh.content.answer import Answer, Frame, filled
from gptsh.content.attachments import media_of, not_sent
from gptsh.content.passages import one_text
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm import reading_loop, sse
from gptsh.llm.request_tools import Refusable, openai_schema, schema_as_text, take_tools
from gptsh.llm.responses_answers import ITEMS, Reader, as_events
from gptsh.messages import (
    COMPLETE_REASONS,
    Block,
    Call,
    Event,
    Message,
    Part,
    Request,
    Tool,
    blocks_of,
    is_answer_of,
    is_text,
    labelled_text,
    parts_of,
    reasoning_from,
    system_text,
    text_of,
)
from gptsh.models.accepted_parameters import fit_params
from gptsh.models.facts import may_reason
from gptsh.models.vendors import Provider

if TYPE_CHECKING:
    from gptsh.llm.http import Response

REFUSABLE = {
    "prompt_cache_key": Refusable(names=("prompt_cache_key",)),
    "store": Refusable(names=("store",)),
    "include": Refusable(names=("include",), wording="(?i)encrypted content is not supported"),
    "summary": Refusable(names=("reasoning.summary",), wording="(?i)verified to generate reasoning summaries"),
    "schema": Refusable(names=("text.format",), wording="(?i)text[._]format|response.?format|json_schema"),
    ITEMS: Refusable(
        wording="(?i)encrypted_content|encrypted content .{0,80}could not be|required following item"
        "|without its required|items are not persisted|no tool output found"
    ),
}
_LONGEST_KEY = 64  # characters, of ``prompt_cache_key``
_ENCRYPTED = "reasoning.encrypted_content"
_UNSUPPORTED = ("audio", "video")


def path(_request: Request, _provider: Provider) -> str:
    """The path of the request's URL, after the base URL."""
    return "/responses"


def body(request: Request, provider: Provider, refusals: Collection[str] = (), _ollama: Any = None) -> dict[str, Any]:
    """The JSON body, without what is refused (names of ``REFUSABLE``). OpenAI is asked not to store the answer."""
    if "schema" in refusals:
        request = schema_as_text(request)
    conversation, params = request.messages, fit_params(request.params, provider, refusals).fields
    if request.schema is not None:  # not strict, which supports only part of JSON Schema: gptsh checks the answer
        answer_format = {"type": "json_schema", "name": "answer", "schema": request.schema, "strict": False}
        params["text"] = {**as_dict(params.get("text")), "format": answer_format}
    include = _take_include(params)
    if may_reason(provider.name, provider.model):
        if "include" not in refusals and _ENCRYPTED not in include:
            include = [_ENCRYPTED, *include]
        if "summary" not in refusals:
            params["reasoning"] = {"summary": "auto", **as_dict(params.get("reasoning"))}
    tools = take_tools(params, request, provider, _declare)
    first_id = _first_id(conversation)
    if first_id and provider.has_cache_key and "prompt_cache_key" not in refusals:
        params.setdefault("prompt_cache_key", first_id)
    payload: dict[str, Any] = {"model": provider.model}
    if system := system_text(conversation):
        payload["instructions"] = system
    payload["input"] = _input(conversation, provider, refuses_items=ITEMS in refusals)
    if tools:
        payload["tools"] = tools
    if "store" not in refusals:
        payload["store"] = False
    if include:
        payload["include"] = include
    payload |= params
    if request.stream:
        payload["stream"] = True
    return payload


def accepts(part: Part, _provider: Provider) -> bool:
    """Whether a question can carry this part, which is not text."""
    media = media_of(part)
    return media is not None and media.kind not in _UNSUPPORTED


def read(response: "Response", _provider: Provider, answer: Answer, _ollama: Any = None) -> Iterator[Event]:
    """Write the response into ``answer`` and yield its events."""
    payloads = sse.objects(response.chunks(), response.headers.get("content-type", ""), as_events)
    return reading_loop.read(payloads, Reader(answer), response.limit_wait)


# ---- fields


def _take_include(params: dict[str, Any]) -> list[Any]:
    """The user's ``include``, removed from the parameters."""
    include = params.pop("include", None)
    return include if isinstance(include, list) else []


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


# ---- messages


def _input(conversation: Sequence[Message], provider: Provider, *, refuses_items: bool) -> list[Part]:
    """The items of a conversation. Those of earlier answers go back as the model sent them, unless it refuses them."""
    own_from = len(conversation) if refuses_items else reasoning_from(conversation)
    items: list[Part] = []
    for at, message in enumerate(conversation):
        items += _items(message, provider, sends_own=at >= own_from)
    return items


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
        url = inner if isinstance(inner, str) else inner["url"]
        return {"type": "input_image", "image_url": url, "detail": as_dict(inner).get("detail") or "auto"}
    if media.url is not None:
        return {"type": "input_file", "file_url": media.url}
    return {"type": "input_file", "filename": media.file_name, "file_data": inner["file_data"]}


def _placeholder(part: Part) -> str:
    """The text in place of a part of an answer that is not sent."""
    return labelled_text(not_sent(part, "this API does not take it"))


def _own_items(message: Message, provider: Provider) -> list[Part]:
    """The items of a complete answer of this model, as it sent them; empty if they were not saved or do not fit.

    Reasoning goes back only if it can be read again, and only before an item that it produced: else it is refused.
    """
    is_complete = (message.get("finish_reason") or "").lower() in COMPLETE_REASONS
    if not is_complete or not is_answer_of(message, provider.name, f"{provider.name}/{provider.model}"):
        return []
    saved = as_dicts(as_dict(message.get("replay")).get(ITEMS))
    items = [_filled_item(item, block) for item, block in filled(message, saved, _frame) or ()]
    sent: list[Part] = []
    for item in reversed(items):
        can_be_read = item.get("encrypted_content") or item.get("content")
        if item.get("type") != "reasoning" or (sent and can_be_read):
            sent.insert(0, item)
    return sent


def _filled_item(item: Part, block: Block | None) -> Part:
    """A saved item with the text or call that the message holds."""
    if block is None:
        return item
    kind, value = block
    if kind == "tool_call":
        return {**item, **_call_fields(value)}
    return {**item, "content": [{**as_dicts(item["content"])[0], "text": value["text"]}]}


def _plain_items(message: Message) -> Iterator[Part]:
    """The texts and calls of an answer, of whatever model, in their order."""
    text = ""
    for kind, block in blocks_of({**message, "refusal": ""}):
        if kind == "text":
            text += block["text"] if is_text(block) else _placeholder(block)
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
    if item.get("type") == "function_call":
        return "tool_call"
    parts = as_dicts(item.get("content")) if item.get("type") == "message" else []
    return "text" if parts and "text" not in parts[0] else None
