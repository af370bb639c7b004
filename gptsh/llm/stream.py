"""Do what all APIs share: write tools and JSON bodies, read SSE, JSON and errors in an answer."""

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gptsh.config.accounts import Refused, Target
from gptsh.content.answer import Answer
from gptsh.errors import (
    ConnectionLost,
    Filtered,
    GptshError,
    ModelError,
    NoAnswer,
    TimedOut,
    TooLong,
)
from gptsh.jsonio import JsonObject, as_dict, as_list, as_str
from gptsh.messages import (
    Event,
    Finished,
    Message,
    Part,
    Request,
    Tool,
    parts_of,
    system_text,
)
from gptsh.text import format_size

if TYPE_CHECKING:
    from gptsh.llm.http import Response


# ---- requests
#
# What an API is, and what the requests of several have in common.


class Refusable(NamedTuple):
    """How an error refuses an optional field: by one of its names, or in a set wording."""

    names: tuple[str, ...] = ()
    wording: str = "(?!)"  # a pattern; this one matches nothing


class Api(Protocol):
    """One API: how to write its requests and read its answers. It is a module of ``llm/``."""

    REFUSABLE: dict[Refused, Refusable]

    @property
    def Reader(self) -> "type[Reader]":  # noqa: N802 - a class of the module
        """What reads an answer."""

    def path(self, target: Target) -> str:
        """Return the path of the request's URL, after the base URL."""

    def body(self, request: Request, target: Target) -> JsonObject:
        """Return the JSON body, without what the server refuses: names of ``REFUSABLE``.

        The parameters of the request are already those of the API; see ``make_body``.
        """

    def accepts(self, part: Part, target: Target) -> bool:
        """Return whether a question can carry this part, which is not text."""


def make_body(api: Api, request: Request, target: Target) -> JsonObject:
    """Return the JSON body of a request, without what the server refuses.

    If the server refuses a schema, that is in the system prompt; if it refuses a system prompt,
    that is at the beginning of the first question. The parameters are those that the model accepts.
    """
    if Refused.STREAM in target.refusals:
        request = request._replace(stream=False)
    if request.schema is not None and Refused.SCHEMA in target.refusals:
        from gptsh.context.answer_schema import messages_with_schema

        messages = messages_with_schema(request.messages, request.schema)
        request = request._replace(messages=messages, schema=None)
    if Refused.SYSTEM in target.refusals:
        request = request._replace(messages=_without_system(request.messages))
    if request.params:
        from gptsh.llm.parameters import fit_params

        request = request._replace(params=fit_params(request.params, target).fields)
    return api.body(request, target)


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with the system prompt at the beginning of the first question."""
    system = system_text(messages)
    rest = [message for message in messages if message["role"] != "system"]
    for index, message in enumerate(rest):
        if system and message["role"] == "user":
            parts = [{"type": "text", "text": system}, *parts_of(message)]
            rest[index] = {**message, "content": parts}
            break
    return rest


# Refused at the top of a tool's schema by OpenAI, and most of them by Anthropic.
_CONDITIONS = ("allOf", "anyOf", "oneOf", "enum", "const", "not")


def take_tools(
    params: JsonObject,
    request: Request,
    target: Target,
) -> tuple[list[Part], list[Tool]]:
    """Return the tools of a request in the API's form, and those still to be declared in it.

    The first are the user's own, removed from ``params``, and the provider's web search.
    """
    tools = [*as_list(params.pop("tools", None))]
    vendor = target.account.vendor
    if request.web and vendor.web_search and vendor.web_search.tool:
        tools.append({**vendor.web_search.tool})
    return tools, [_fit_tool(tool, vendor.max_description) for tool in request.tools]


def _fit_tool(tool: Tool, limit: int | None) -> Tool:
    """Move conditions at the top of a tool's schema into its description, and give it its type.

    A description of more characters than the ``limit`` is cut at a word.
    """
    schema = {**tool.parameters, "type": "object"}
    conditions = {key: schema.pop(key) for key in _CONDITIONS if key in schema}
    text = tool.description
    if conditions:
        rest = json.dumps(conditions, ensure_ascii=False, separators=(",", ":"))
        words = f"The arguments must also conform to this JSON Schema: {rest}"
        text = f"{text}\n\n{words}" if text else words
    if limit and len(text) > limit:
        text = re.sub(r"\s\S*\Z", "", text[: limit - 1]).rstrip() + "…"
    return Tool(tool.name, text, schema)


def without_empty(fields: JsonObject) -> JsonObject:
    """Return the fields that have a value: not None, and no empty text or list."""
    return {key: value for key, value in fields.items() if value not in (None, "", [])}


def openai_function(tool: Tool, key: str = "parameters") -> JsonObject:
    """Return a tool as OpenAI and Google want it: its schema has ``properties``, under ``key``."""
    schema = {**tool.parameters, "properties": tool.parameters.get("properties") or {}}
    return {"name": tool.name, "description": tool.description, key: schema}


# ---- errors
#
# An error that a provider reports inside an answer, such as an overload in a stream of status 200.

ADVICE = "is base_url right?"


class Malformed(ModelError):
    """What the server sent is not in the form of an answer."""


_DETAIL = 2000  # characters of a body, for --debug
# The codes, statuses and types of errors inside an answer that a retry may avoid, and every 5xx.
_TEMPORARY = re.compile(
    "5[0-9][0-9]|408|409|429"
    "|overloaded_error|rate_limit_error|api_error|timeout_error"  # Anthropic
    "|server_error|rate_limit_exceeded|internal_server_error|service_unavailable"  # OpenAI, others
    "|overloaded|engine_overloaded|engine_overloaded_error"  # Moonshot and others
    "|unavailable|resource_exhausted"  # Google
)


def reported_error(error: object, payload: JsonObject) -> GptshError:
    """Return the error for one inside an answer; --debug prints ``payload``.

    Overloads can be retried.
    """
    from gptsh.llm.failures import too_long
    from gptsh.llm.wordings import (
        is_filtered,
        is_spent,
        means_too_long,
        message_in,
        retry_after,
    )

    reason = message_in(error)
    detail = json.dumps(payload)
    words = json.dumps(error)
    what = f"the provider reported: {reason or 'an error'}"
    if means_too_long(words):
        return too_long(what, reason, detail)
    if is_filtered(words):
        what = f"the provider's filter refused the question: {reason or 'an error'}"
        return Filtered(what, detail=detail)
    failure = ModelError(what, detail=detail)
    fields = as_dict(error)
    codes = [str(fields.get(key)).lower() for key in ("code", "status", "type")]
    failure.may_fall_back = any(_TEMPORARY.fullmatch(code) for code in codes)
    failure.can_retry = failure.may_fall_back and not is_spent(detail)
    failure.retry_after = retry_after({}, detail)
    return failure


def error_fields(error: JsonObject) -> JsonObject | bool:
    """Return the message and code of a payload that is itself an error; True if it has none."""
    names = ("message", "detail", "msg", "code", "type")
    return {key: error[key] for key in names if key in error} or True


def not_an_answer(what: str, payload: JsonObject) -> Malformed:
    """Return the error for a response that is not ``what`` it should be.

    --debug prints its beginning.
    """
    detail = json.dumps(payload)[:_DETAIL]
    return Malformed(f"the response is not {what}", ADVICE, detail=detail)


def _debug_text(data: bytes) -> str:
    return data[:_DETAIL].decode("utf-8", "replace")


# ---- json bodies
#
# Encode a request's JSON body, parse JSON that a server sent, and a tool call's arguments.

_BOM = b"\xef\xbb\xbf"
_PIECE = 1_000_000  # characters of a text that are encoded at once
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def encode(payload: object) -> bytes:
    """Encode JSON as UTF-8. U+FFFD replaces a lone surrogate, which comes from a pipe's bad byte.

    Long texts are encoded in pieces: whole, they would take up to four bytes per character.
    """
    return b"".join(_encoded(payload))


def _encoded(value: object) -> Iterator[bytes]:
    """Yield the JSON of a value, in pieces."""
    if isinstance(value, dict) and value:
        separator = b"{"
        for key, item in value.items():
            yield separator + _encode_whole(key) + b":"
            yield from _encoded(item)
            separator = b","
        yield b"}"
    elif isinstance(value, (list, tuple)) and value:
        separator = b"["
        for item in value:
            yield separator
            yield from _encoded(item)
            separator = b","
        yield b"]"
    elif isinstance(value, str) and len(value) > _PIECE:
        yield b'"'
        for start in range(0, len(value), _PIECE):
            yield _encode_whole(value[start : start + _PIECE])[1:-1]
        yield b'"'
    else:
        yield _encode_whole(value)


def _encode_whole(value: object) -> bytes:
    text = _encoder.encode(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def load(data: bytes) -> JsonObject:
    """Parse a JSON object, with infinities as null.

    Raises NoAnswer if there is no data, ModelError or TooLong for an error that is not in an
    object: Google sends a list of one error.
    """
    if not data.strip():
        raise NoAnswer("the server's answer is empty", ADVICE)
    try:
        payload = _parse(data.removeprefix(_BOM).decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as err:
        detail = _debug_text(data)
        raise Malformed(f"the response is not JSON: {err}", ADVICE, detail=detail) from err
    if isinstance(payload, dict):
        return payload
    from gptsh.llm.wordings import message_in

    reason = message_in(payload)
    if not reason:
        raise Malformed("the response is not a JSON object", ADVICE)
    first = as_dict(payload[0]) if isinstance(payload, list) else {}
    raise reported_error(first.get("error") or reason, first)


def as_object(arguments: str) -> JsonObject:
    """Return the arguments of a tool call as an object; anything else is wrapped in one."""
    if not arguments.strip():
        return {}
    with contextlib.suppress(ValueError, RecursionError):
        value = _parse(arguments)
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
    return {"arguments": arguments}


def _finite(text: str) -> float | None:
    value = float(text)  # 1e999 is infinite
    return value if math.isfinite(value) else None


# Infinities and NaN become null: they could not be saved.
_parse = json.JSONDecoder(parse_constant=lambda _: None, parse_float=_finite).decode


# ---- sse
#
# Read a stream of server-sent events: its bytes as lines, its lines as events, the JSON objects in
# them.
#
# Lines are split as bytes: JSON may contain U+2028 and other characters at which a str's lines end.

_LINE_END = re.compile(rb"\r\n|\n|\r")
_LONGEST_LINE = 200_000_000  # bytes; a line may be an image
_SNIFFED = 6  # bytes that distinguish an event stream from anything else
_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
DONE: JsonObject = {}  # in place of ``data: [DONE]``


def sse_objects(
    chunks: Iterator[bytes],
    content_type: str,
    as_stream: Callable[[JsonObject], Iterator[JsonObject]],
) -> Iterator[JsonObject]:
    """Yield the JSON objects of a body, and DONE for ``[DONE]``. Raises ModelError.

    Some servers ignore whether streaming was requested: the beginning of the body shows what it is.
    ``as_stream`` splits a body that is one object into those that a stream would have sent.
    """
    read = b""
    beginning = b""
    for chunk in chunks:
        read += chunk
        beginning = read.lstrip(_BOM + b" \r\n")
        if len(beginning) >= _SNIFFED or beginning.startswith((b":", b"{")):
            break
    chunks = chain([read], chunks)
    is_json = beginning.startswith((b"{", b"["))
    is_stream = "event-stream" in content_type or beginning.startswith(_STARTS)
    if is_json or not is_stream:
        yield from as_stream(load(b"".join(chunks)))
        return
    for name, data in events(chunks):
        text = data.strip()
        if text == b"[DONE]":
            yield DONE
            return
        if text:
            payload = load(data)
            if name == "error":
                payload["error"] = payload.get("error") or error_fields(payload)
            yield payload


def events(chunks: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Parse server-sent events into ``(name, data)``; the name is often empty.

    Chunks may be split anywhere. An event without its final blank line counts too. Source: the
    WHATWG HTML standard, section 9.2.6.
    """
    name = ""
    data: list[bytes] = []
    for number, line in enumerate(lines(chunks)):
        if number == 0:
            line = line.removeprefix(_BOM)
        if not line:
            if data:
                yield name, b"\n".join(data)
            name = ""
            data = []
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field and not line.isascii():  # no comment and no known field: damaged on its way
            problem = f"the response is not an event stream: {line[:20]!r}"
            raise Malformed(problem, ADVICE, detail=_debug_text(line))
        elif field == b"event":
            name = value.decode()
    if data:
        yield name, b"\n".join(data)


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Split into lines without their ends. Raises ModelError for a line that would fill the memory.

    Only new bytes are searched: an image comes in thousands of chunks.
    """
    pieces: list[bytes] = []  # of the line that has not ended
    size = 0  # of the pieces
    ended_by_return = False
    for chunk in chunks:
        # A "\n" at the start is the second half of a line end that was split.
        rest = chunk[1:] if ended_by_return and chunk.startswith(b"\n") else chunk
        if chunk:
            ended_by_return = chunk.endswith(b"\r")
        first, *others = _LINE_END.split(rest)
        pieces.append(first)
        size += len(first)
        if size > _LONGEST_LINE:
            limit = format_size(_LONGEST_LINE)
            raise Malformed(f"the response has a line of more than {limit}", ADVICE)
        if others:
            size = len(others[-1])
            yield b"".join(pieces)
            yield from others[:-1]
            pieces = [others[-1]]
    if last := b"".join(pieces):
        yield last


# ---- reading loop
#
# The loop that reads an answer of any API: payloads in, events out, until it is complete, partial
# or empty.


class Reader:
    """Writes the payloads of one answer into an ``Answer``. Each API has its own."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def payloads(self, chunks: Iterator[bytes], content_type: str) -> Iterator[JsonObject]:
        """Yield the objects of a body, streamed or not. Raises ModelError."""
        return sse_objects(chunks, content_type, self.split)

    @staticmethod
    def split(body: JsonObject) -> Iterator[JsonObject]:
        """Split an answer that was not streamed into the objects of a stream.

        Raises ModelError or TooLong if it is no answer.
        """
        raise NotImplementedError

    def add_names(self, response_id: object, model: object) -> None:
        """Write the answer's id and its model, if the server reports them here."""
        self.answer.response_id = as_str(response_id) or self.answer.response_id
        self.answer.resolved_model = as_str(model) or self.answer.resolved_model

    def add(self, payload: JsonObject) -> bool:
        """Read one object from the server; return whether it was the last.

        Raises ModelError or TooLong for an error in it.
        """
        raise NotImplementedError

    def end(self) -> None:
        """Write what is known only at the end, also of a partial answer."""


def read_response(response: "Response", reader: Reader) -> Iterator[Event]:
    """Read the answer in a response and yield its events; see ``read``."""
    content_type = response.headers.get("content-type", "")
    payloads = reader.payloads(response.chunks(), content_type)
    return read(payloads, reader, response.limit_wait)


def read(
    payloads: Iterable[JsonObject],
    reader: Reader,
    limit_wait: Callable[[], None] = lambda: None,
) -> Iterator[Event]:
    """Read an answer and yield its events as they come.

    ``limit_wait`` is called once only usage may still come. After the events it raises ModelError,
    TimedOut or TooLong for an error in the answer, ConnectionLost for a partial one, NoAnswer for
    an empty one. Errors after a complete answer are ignored.
    """
    answer = reader.answer
    is_empty = True
    failure: GptshError = ConnectionLost("the stream ended before the answer was complete")
    try:
        for payload in payloads:
            is_last = reader.add(payload)
            events = answer.new_events()
            is_empty = is_empty and not events
            yield from events
            if is_last:
                break
            if answer.finished:
                limit_wait()
    except (ModelError, TimedOut, TooLong) as err:
        failure = err
        if isinstance(err, Malformed) and not is_empty:  # so the URL is right
            what = str(err).removesuffix(f": {ADVICE}")
            failure = ConnectionLost(f"the stream ended early: {what}", detail=err.detail)
    reader.end()
    answer.end_text()
    events = answer.new_events()
    is_empty = is_empty and events in ([], [Finished(None)])
    if is_empty and isinstance(failure, ConnectionLost):
        raise NoAnswer("the server returned an empty answer", detail=failure.detail)
    yield from events
    if not answer.finished:
        raise failure
