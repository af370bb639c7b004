"""The OpenAI chat completions dialect: a request to its JSON body. No network here."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gptsh.core.messages import Call, Event, Message, Part, parts_of, text_of, text_parts_of
from gptsh.core.providers import Endpoint
from gptsh.core.shape import asked_in_words
from gptsh.core.turn import Request
from gptsh.errors import ModelError
from gptsh.llm import sse
from gptsh.llm.chat_stream import REASONING_FIELDS, read_stream, read_whole
from gptsh.llm.http import Response
from gptsh.llm.parameters import fit
from gptsh.llm.routes import Route

_MESSAGE_KEYS = ("role", "tool_calls", "tool_call_id", "name")
_PART_KEYS_OF_OURS = ("source",)
_NO_SUCH_FIELD = (400, 422)
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
        if err.status not in _NO_SUCH_FIELD:
            return False
        if "stream_options" in err.detail and base not in self._no_stream_options:
            self._no_stream_options.add(base)
            return route.provider.endpoint.stream_options
        if request.schema is not None and _NAMES_FORMAT.search(err.detail) and base not in self._no_format:
            self._no_format.add(base)
            return True
        return False

    def read(self, response: Response) -> Iterator[Event]:
        """Streamed or whole as the body shows: some servers answer either way whatever was asked."""
        streamed, chunks = sse.peeked(response.chunks(), response.headers.get("content-type", ""))
        return read_stream(chunks, response.hurry) if streamed else read_whole(b"".join(chunks))


def _in_words(request: Request) -> Request:
    """The request without the field that asks for a schema."""
    if request.schema is None:
        return request
    return request._replace(messages=asked_in_words(request.messages, request.schema), schema=None)


def body(request: Request, model: str, endpoint: Endpoint, *, provider: str, stream_options: bool) -> dict[str, Any]:
    """The JSON body. ``model`` is the name by which the provider knows it."""
    params = fit(request.params, provider, model, endpoint).sent
    messages = [message_for(message, provider, endpoint) for message in request.messages]
    sent: dict[str, Any] = {
        "model": model,
        "messages": messages,
        **params,
        **tools(request),
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


def response_format(request: Request) -> dict[str, Any]:
    """The field that asks for an answer of the schema; none where there is no schema.

    Not ``strict``, which takes a part of JSON Schema only: the answer is checked here.
    """
    if request.schema is None:
        return {}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": request.schema}}}


def message_for(message: Message, provider: str, endpoint: Endpoint) -> dict[str, Any]:
    """A message without what only gptsh, or only another provider, knows. Text goes as one string, as all take it."""
    known: Mapping[str, Any] = message
    sent = {key: known[key] for key in _MESSAGE_KEYS if key in known}
    if calls := message.get("tool_calls"):
        sent |= _calls_for(message, calls, provider, endpoint)
    parts = parts_of(message)
    if not endpoint.takes_null and calls and not parts and not message.get("refusal"):
        return sent
    if text_parts_of(message) == parts:
        return {**sent, "content": text_of(message) or message.get("refusal") or ("" if parts else _nothing(message))}
    return {**sent, "content": [_part(part) for part in parts]}


def _calls_for(message: Message, calls: list[Call], provider: str, endpoint: Endpoint) -> dict[str, Any]:
    """The tool calls, what a provider added to them for itself alone (thought signatures).

    With them goes their reasoning to who wants it: his own under the name it had, for another's a blank.
    """
    own = message.get("provider") == provider
    sent: dict[str, Any] = {"tool_calls": calls if own else [_call(call) for call in calls]}
    if endpoint.wants_reasoning:
        replay = message.get("replay", {}) if own else {}
        said = {field: text for field, text in replay.items() if field in REASONING_FIELDS}
        sent |= said or {REASONING_FIELDS[0]: " "}
    return sent


def _call(call: Call) -> Call:
    return {key: call[key] for key in ("id", "type", "function") if key in call}


def _nothing(message: Message) -> str | None:
    return None if message.get("tool_calls") else ""


def _part(part: Part) -> Part:
    return {key: value for key, value in part.items() if key not in _PART_KEYS_OF_OURS}
