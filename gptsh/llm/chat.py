"""Write a request of the chat completions API, for each provider that has it; ``chat_answers.py`` reads the answers."""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gptsh.content import shapes
from gptsh.content.answer import Answer
from gptsh.content.passages import one_text
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm import reading_loop, sse
from gptsh.llm.chat_answers import REPLAY_KEYS, Reader, as_chunks
from gptsh.llm.request_tools import Refusable, openai_schema, schema_as_text, take_tools
from gptsh.messages import (
    PARTIAL_REASONS,
    PROVIDER_FIELDS,
    REASONING_DETAILS,
    REASONING_FIELDS,
    THINKING_BLOCKS,
    Call,
    Event,
    Message,
    Part,
    Request,
    Tool,
    is_answer_of,
)
from gptsh.models.vendors import Provider

if TYPE_CHECKING:
    from gptsh.llm.http import Response

REFUSABLE = {
    "stream_options": Refusable(names=("stream_options",)),
    "schema": Refusable(names=("response_format",), wording="(?i)response.?format|json_schema"),
    "limit": Refusable(wording="(?i)use .?max_completion_tokens"),  # OpenAI's newer models, through a gateway
}
_UNANSWERED = "(no answer)"
_CALL_KEYS, _FUNCTION_KEYS = ("id", "type", "function"), ("name", "arguments")


def path(_request: Request, _provider: Provider) -> str:
    """The path of the request's URL, after the base URL."""
    return "/chat/completions"


def body(request: Request, provider: Provider, refusals: Collection[str] = (), _ollama: Any = None) -> dict[str, Any]:
    """The JSON body, without the refused fields."""
    if "schema" in refusals:
        request = schema_as_text(request)
    messages: list[dict[str, Any]] = []
    for message in shapes.move_tool_media(request.messages):
        is_after_tool = message["role"] == "user" and messages and messages[-1]["role"] == "tool"
        if is_after_tool and not provider.user_after_tool:
            messages.append({"role": "assistant", "content": _UNANSWERED})
        messages.append(_message(message, provider, request.model))
    if provider.marked_models and re.match(provider.marked_models, provider.model):
        from gptsh.llm.prompt_cache import mark_chat

        mark_chat(messages, provider, has_tools=bool(request.tools))
    payload: dict[str, Any] = {"model": provider.model, "messages": messages}
    if request.params:
        from gptsh.models.accepted_parameters import fit_params

        payload |= fit_params(request.params, provider, refusals).fields
    if tools := take_tools(payload, request, provider, _declare):
        from gptsh.models.accepted_parameters import lacks_effort_beside_tools

        payload["tools"] = tools
        if lacks_effort_beside_tools(refusals):
            payload["reasoning_effort"] = "none"
    if request.schema is not None:  # not strict, which supports only part of JSON Schema: gptsh checks the answer
        answer_format = {"name": "answer", "schema": request.schema}
        payload["response_format"] = {"type": "json_schema", "json_schema": answer_format}
    if request.stream:
        payload["stream"] = True
        if provider.stream_options and "stream_options" not in refusals:
            payload["stream_options"] = {"include_usage": True}
    return payload


def _declare(tools: Sequence[Tool]) -> list[Part]:
    """Tools in the API's form."""
    declared: list[Part] = []
    for tool in tools:
        function = {"name": tool.name, "description": tool.description, "parameters": openai_schema(tool)}
        declared.append({"type": "function", "function": function})
    return declared


def accepts(part: Part, provider: Provider) -> bool:
    """Whether a question can carry this part, which is not text."""
    return shapes.accepts(part, provider.parts)


def read(response: "Response", _provider: Provider, answer: Answer, _ollama: Any = None) -> Iterator[Event]:
    """Write the response into ``answer`` and yield its events."""
    payloads = sse.objects(response.chunks(), response.headers.get("content-type", ""), as_chunks)
    return reading_loop.read(payloads, Reader(answer), response.limit_wait)


def _message(message: Message, provider: Provider, model: str) -> dict[str, Any]:
    """A message without the keys of gptsh or of another model; ``model`` is a value for ``-m``."""
    fields: dict[str, Any]
    if message["role"] == "assistant":
        fields = _answer(message, provider, model)
    elif message["role"] == "tool":
        fields = {"tool_call_id": message.get("tool_call_id"), "content": one_text(message)}
    else:
        fields = {"content": shapes.question_content(message, provider.parts)}
    return {"role": message["role"], **fields, **shapes.author_name(message)}


def _answer(message: Message, provider: Provider, model: str) -> dict[str, Any]:
    """An answer: its text, its tool calls, and what the provider wants back. Some servers refuse other keys.

    Signed or encrypted reasoning is only for the model that made it; plain text is for any model of the provider.
    """
    is_own, through_litellm = is_answer_of(message, provider.name, model), provider.api == "litellm"
    text, calls = one_text(message), message.get("tool_calls")
    fields: dict[str, Any] = {}
    if is_own:
        fields |= _own_replay(message)
        if through_litellm:
            fields |= _litellm_replay(message)
    if calls:
        fields["tool_calls"] = [_call(call, is_own=is_own, through_litellm=through_litellm) for call in calls]
        if provider.wants_reasoning:
            fields |= _plain_reasoning(message, provider)
    fields = {key: value for key, value in fields.items() if value}
    if text or not calls or provider.is_own_server:  # llama-cpp-python refuses null
        fields["content"] = text
    elif provider.accepts_null:
        fields["content"] = None
    return fields


def _own_replay(message: Message) -> dict[str, Any]:
    """What the model that made an answer wants back.

    The last reasoning detail of a partial answer may be incomplete, unless it is signed.
    """
    replay = as_dict(message.get("replay"))
    fields = {key: replay.get(key) for key in REPLAY_KEYS}
    details = as_dicts(replay.get(REASONING_DETAILS))
    if details and message.get("finish_reason") in PARTIAL_REASONS:
        last = details[-1]
        is_torn = "text" in last and not last.get("signature")
        details = details[:-1] if is_torn else details
    return {**fields, REASONING_DETAILS: details}


def _litellm_replay(message: Message) -> dict[str, Any]:
    """What litellm wants back: thinking that is signed, and fields of the provider."""
    blocks = as_dicts(message.get("thinking"))
    signed = [block for block in blocks if block.get("signature") or block.get("type") != "thinking"]
    replay = as_dict(message.get("replay"))
    return {THINKING_BLOCKS: signed, PROVIDER_FIELDS: as_dict(replay.get(PROVIDER_FIELDS))}


def _plain_reasoning(message: Message, provider: Provider) -> dict[str, str]:
    """The reasoning before a tool call as plain text, which a provider may require: a blank one, if there is none."""
    replay = as_dict(message.get("replay")) if message.get("provider") == provider.name else {}
    return {key: replay[key] for key in REASONING_FIELDS if replay.get(key)} or {REASONING_FIELDS[0]: " "}


def _call(call: Call, *, is_own: bool, through_litellm: bool) -> Call:
    """A tool call; its own model gets what it sent beside the function, and litellm also what it put inside."""
    function = call["function"]
    plain = {key: value for key, value in function.items() if key in _FUNCTION_KEYS}
    if not is_own:
        return {**{key: call[key] for key in _CALL_KEYS}, "function": plain}
    fields = {key: value for key, value in call.items() if value is not None}
    return {**fields, "function": {**function} if through_litellm else plain}
