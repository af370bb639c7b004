"""The transport to servers that speak OpenAI chat completions: over HTTP, by ourselves."""

from collections.abc import Iterator

from gptsh.core.messages import Event, Identified
from gptsh.core.turn import Request
from gptsh.errors import ModelError
from gptsh.llm import chat_completions, failures
from gptsh.llm.http import Http, Response
from gptsh.llm.routes import Route

_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-generation-id")
_SNIFFED = 6  # bytes that tell an event stream from anything else
_SSE_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")


class Direct:
    """One process's requests to such servers; it remembers which of them refuse ``stream_options``."""

    def __init__(self, http: Http) -> None:
        self._http = http
        self._no_stream_options: set[str] = set()

    def open(self, request: Request, route: Route) -> Iterator[Event]:
        """The events of the answer, once a server has accepted the request. Raises ModelError or TimedOut."""
        base = route.provider.base_url
        include = route.provider.endpoint.stream_options and base not in self._no_stream_options
        try:
            return _events(self._respond(request, route, stream_options=include))
        except ModelError as err:
            if not include or err.status not in (400, 422) or "stream_options" not in err.detail:
                raise
        self._no_stream_options.add(base)
        return _events(self._respond(request, route, stream_options=False))

    def _respond(self, request: Request, route: Route, *, stream_options: bool) -> Response:
        """The response, if it is an answer; else its refusal as an error."""
        response = self._http.post(route.url, _body(request, route, stream_options), route.headers)
        if response.status == 200:  # noqa: PLR2004 - OK
            return response
        body = response.small_body()
        response.close()
        raise failures.refusal(response.url, response.status, response.headers, body, route)


def _body(request: Request, route: Route, stream_options: bool) -> bytes:
    provider = route.provider
    sent = chat_completions.body(
        request, route.model, provider.endpoint, provider=provider.name, stream_options=stream_options
    )
    return chat_completions.encode(sent)


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
