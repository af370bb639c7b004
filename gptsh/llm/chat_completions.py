"""The OpenAI chat completions dialect: a request to its JSON body. No network here."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gptsh.content.answer import Answer, Request
from gptsh.content.openai_parts import question, spread
from gptsh.content.passages import one_text
from gptsh.context.answer_schema import asked_in_words
from gptsh.errors import ModelError
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm import failures
from gptsh.llm.chat_stream import WANTED_BACK, Reader, payloads
from gptsh.llm.http import Response
from gptsh.llm.parameters import fit
from gptsh.llm.payloads import read
from gptsh.llm.routes import Route
from gptsh.messages import BROKEN_OFF, DETAILS, REASONING_FIELDS, Call, Event, Message, Tool
from gptsh.models.names import is_by
from gptsh.models.providers import Endpoint

_UNANSWERED = "(no answer)"
_CALL_KEYS, _FUNCTION_KEYS = ("id", "type", "function"), ("name", "arguments")
_LONGEST_DESCRIPTION = 1024  # characters; whether OpenAI's newest models take more is told nowhere
_INTERNAL_ERROR = 500  # what llama-cpp-python's server says of a field that it does not take
_NAMES_FORMAT = re.compile("response.?format|json.?schema", re.IGNORECASE)


class ChatCompletions:
    """The dialect. It remembers which servers refuse a field that not all take."""

    def __init__(self) -> None:
        self._no_stream_options: set[str] = set()
        self._no_format: set[str] = set()

    def url(self, route: Route) -> str:
        """Where the request goes."""
        return f"{route.provider.base_url}/chat/completions"

    def body(self, request: Request, route: Route) -> dict[str, Any]:
        """What is sent."""
        provider = route.provider
        include = provider.endpoint.stream_options and provider.base_url not in self._no_stream_options
        asked = _in_words(request) if provider.base_url in self._no_format else request
        return body(asked, route.model, provider.endpoint, provider=provider.name, stream_options=include)

    def learns(self, err: ModelError, request: Request, route: Route) -> bool:
        """Whether the server refused a field that it can be asked without."""
        base = route.provider.base_url
        if err.status not in (*failures.BAD_REQUEST, _INTERNAL_ERROR):
            return False
        if "stream_options" in err.detail and base not in self._no_stream_options:
            self._no_stream_options.add(base)
            return route.provider.endpoint.stream_options
        if request.schema is not None and _NAMES_FORMAT.search(err.detail) and base not in self._no_format:
            self._no_format.add(base)
            return True
        return False

    def read(self, response: Response, _route: Route, answer: Answer) -> Iterator[Event]:
        """The events of the answer."""
        found = payloads(response.chunks(), response.headers.get("content-type", ""))
        return read(found, Reader(answer), answer, response.hurry)


def _in_words(request: Request) -> Request:
    """The request without the field that asks for a schema."""
    if request.schema is None:
        return request
    return request._replace(messages=asked_in_words(request.messages, request.schema), schema=None)


def body(request: Request, model: str, endpoint: Endpoint, *, provider: str, stream_options: bool) -> dict[str, Any]:
    """The JSON body. ``model`` is the name by which the provider knows it."""
    params = fit(request.params, provider, model, endpoint).sent
    messages = [
        message_for(message, provider, endpoint, request.model) for message in prompt_for(request, provider, endpoint)
    ]
    sent: dict[str, Any] = {
        "model": model,
        "messages": messages,
        **params,
        **_brief(whole_tools(request)),
        **response_format(request),
    }
    if request.stream:
        sent["stream"] = True
        if stream_options:
            sent["stream_options"] = {"include_usage": True}
    return sent


def tools(request: Request) -> dict[str, Any]:
    """The field that offers tools; none where there are none."""
    offered = [
        {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.parameters}}
        for t in request.tools
    ]
    return {"tools": offered} if offered else {}


def whole_tools(request: Request) -> dict[str, Any]:
    """The same for OpenAI, which refuses the arguments of a tool without ``properties``."""
    return tools(request._replace(tools=tuple(tool._replace(parameters=_object(tool)) for tool in request.tools)))


def _object(tool: Tool) -> dict[str, Any]:
    return {**tool.parameters, "properties": tool.parameters.get("properties") or {}}


def _brief(offered: dict[str, Any]) -> dict[str, Any]:
    """The field with descriptions of a length that OpenAI takes, cut at a word."""
    for tool in offered.get("tools", ()):
        function = tool["function"]
        if len(function["description"]) > _LONGEST_DESCRIPTION:
            kept = function["description"][:_LONGEST_DESCRIPTION]
            words = re.sub(r"\s*\S*\Z", "", kept) or kept[:-1]
            function["description"] = f"{words}…"
    return offered


def response_format(request: Request) -> dict[str, Any]:
    """The field that asks for an answer of the schema; none where there is no schema.

    Not ``strict``, which takes a part of JSON Schema only: the answer is checked here.
    """
    if request.schema is None:
        return {}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": request.schema}}}


def prompt_for(request: Request, provider: str, endpoint: Endpoint) -> list[Message]:
    """The messages of a prompt with ids, and in an order, that the provider takes."""
    prompt: list[Message] = []
    for message in spread(request.messages):
        if not endpoint.user_behind_tool and message["role"] == "user" and prompt and prompt[-1]["role"] == "tool":
            prompt.append({"role": "assistant", "content": _UNANSWERED})
        prompt.append(message)
    return prompt


def message_for(message: Message, provider: str, endpoint: Endpoint, model: str) -> dict[str, Any]:
    """A message without what only gptsh, or only another model, knows. Text goes as one string, as all take it.

    ``model`` is the one that is asked, as ``-m`` takes it.
    """
    known: Mapping[str, Any] = message
    sent: dict[str, Any] = {"role": message["role"]}
    if message["role"] == "assistant":
        sent |= _answer_for(message, provider, endpoint, model)
    elif message["role"] == "tool":
        sent |= {"tool_call_id": message.get("tool_call_id"), "content": one_text(message)}
    else:
        sent["content"] = question(message, endpoint.parts)
    return {**sent, "name": known["name"]} if known.get("name") and isinstance(known["name"], str) else sent


def _answer_for(message: Message, provider: str, endpoint: Endpoint, model: str) -> dict[str, Any]:
    """An answer: its words, its calls, and what goes back. Servers mirror parts, and some refuse them.

    What is signed or sealed is for the model that made it; reasoning in plain text its provider wants of any.
    """
    own, replay = is_by(message, provider, model), as_dict(message.get("replay"))
    text, calls = one_text(message), message.get("tool_calls")
    sent = _returned(message, replay) if own else {}
    if calls:
        sent["tool_calls"] = [_call(call, own=own, endpoint=endpoint) for call in calls]
        if endpoint.wants_reasoning:
            known = _reasoning(replay) if message.get("provider") == provider else {}
            sent |= known or {REASONING_FIELDS[0]: " "}
    if text or not calls:
        sent["content"] = text
    elif endpoint.takes_null:
        sent["content"] = None
    return sent


def _returned(message: Message, replay: Mapping[str, Any]) -> dict[str, Any]:
    """What goes back with every answer to the model that it came from.

    Of an answer that broke off not the last piece of reasoning, unless it is signed: it is not whole.
    """
    sent = {key: replay[key] for key in WANTED_BACK if replay.get(key)}
    details = as_dicts(replay.get(DETAILS))
    if message.get("finish_reason") in BROKEN_OFF and details and "text" in details[-1]:
        details = details if details[-1].get("signature") else details[:-1]
    return {key: value for key, value in {**sent, DETAILS: details}.items() if value}


def _reasoning(replay: Mapping[str, Any]) -> dict[str, str]:
    """A tool call's reasoning under the name that it came with."""
    return {key: text for key, text in replay.items() if key in REASONING_FIELDS and text and isinstance(text, str)}


def _call(call: Call, *, own: bool, endpoint: Endpoint) -> Call:
    """A call, and to its own model what that added to it for itself alone (thought signatures).

    What stands within the function is litellm's: servers have their own beside it.
    """
    whole = own and endpoint.wire == "litellm"
    function = {key: value for key, value in call["function"].items() if whole or key in _FUNCTION_KEYS}
    kept = {key: value for key, value in call.items() if value is not None and (own or key in _CALL_KEYS)}
    return {**kept, "function": function}
