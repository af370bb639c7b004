"""The transport to servers that speak OpenAI chat completions: over HTTP, by ourselves."""

import re
from collections.abc import Iterator
from typing import Any

from gptsh.core.messages import Event, Identified
from gptsh.core.shape import asked_in_words
from gptsh.core.turn import Request
from gptsh.errors import ModelError
from gptsh.llm import chat_completions, failures
from gptsh.llm.http import Http, Response
from gptsh.llm.routes import Route

_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-generation-id")
_SNIFFED = 6  # bytes that tell an event stream from anything else
_SSE_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
_NO_SUCH_FIELD = (400, 422)
_NAMES_FORMAT = re.compile("response.?format|json.?schema", re.IGNORECASE)


class Direct:
    """One process's requests to such servers; it remembers which of them refuse a field that not all take."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._no_stream_options: set[str] = set()
        self._no_format: set[str] = set()

    def open(self, request: Request, route: Route) -> Iterator[Event]:
        """The events of the answer, once a server has accepted the request. Raises ModelError, TimedOut or TooLong."""
        try:
            return _events(self._respond(request, route))
        except ModelError as err:
            if not self._learns(err, request, route):
                raise
        return self.open(request, route)

    def _learns(self, err: ModelError, request: Request, route: Route) -> bool:
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

    def body(self, request: Request, route: Route) -> dict[str, Any]:
        """What is sent."""
        provider = route.provider
        include = provider.endpoint.stream_options and provider.base_url not in self._no_stream_options
        asked = _in_words(request) if provider.base_url in self._no_format else request
        return chat_completions.body(
            asked, route.model, provider.endpoint, provider=provider.name, stream_options=include
        )

    def _respond(self, request: Request, route: Route) -> Response:
        """The response, if it is an answer; else its refusal as an error."""
        body = chat_completions.encode(self.body(request, route))
        response = self._http.post(route.url, body, route.headers)
        if response.status == 200:  # noqa: PLR2004 - OK
            return response
        said = response.small_body()
        response.close()
        raise failures.refusal(response.url, response.status, response.headers, said, route)


def _in_words(request: Request) -> Request:
    """The request without the field that asks for a schema."""
    if request.schema is None:
        return request
    return request._replace(messages=asked_in_words(request.messages, request.schema), schema=None)


def _events(response: Response) -> Iterator[Event]:
    try:
        request_id = next((response.headers[name] for name in _REQUEST_IDS if name in response.headers), None)
        yield Identified(request_id, None)
        for event in _read(response):
            yield Identified(request_id, event.response_id) if isinstance(event, Identified) else event
    finally:
        response.close()


def _read(response: Response) -> Iterator[Event]:
    """Streamed or whole as the body shows: some servers answer either way whatever was asked."""
    chunks = response.chunks()
    first = start = b""
    while len(start) < _SNIFFED and (chunk := next(chunks, b"")):
        first += chunk
        start = first.lstrip(b"\xef\xbb\xbf \r\n")
        if start.startswith((b":", b"{")):
            break
    streamed = "event-stream" in response.headers.get("content-type", "") or start.startswith(_SSE_STARTS)
    if streamed and not start.startswith(b"{"):
        return chat_completions.read_stream(_chain(first, chunks), response.hurry)
    return chat_completions.read_whole(b"".join(_chain(first, chunks)))


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
