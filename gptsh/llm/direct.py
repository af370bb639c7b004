"""The transport to servers whose dialect we speak: over HTTP, by ourselves."""

import contextlib
from collections.abc import Iterator
from itertools import chain
from typing import Any, Protocol

from gptsh.config.secret import MASK
from gptsh.content.answer import Answer, Request
from gptsh.errors import BrokenOff, ModelError, NoAnswer
from gptsh.jsonio import parsed
from gptsh.llm import failures, routes
from gptsh.llm.http import Http, Response
from gptsh.llm.payloads import encode, load
from gptsh.llm.routes import Route
from gptsh.messages import Event, Finished

_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-generation-id")
_COST = "x-litellm-response-cost"  # USD, as LiteLLM's proxy states it of an answer that is sent whole


class Dialect(Protocol):
    """How servers of one kind are asked, and how they answer; it remembers what they have refused."""

    def url(self, route: Route) -> str:
        """Where the request goes."""

    def body(self, request: Request, route: Route) -> dict[str, Any]:
        """What is sent."""

    def learns(self, err: ModelError, request: Request, route: Route) -> bool:
        """Whether the server has refused something that it can be asked without, from now on."""

    def read(self, response: Response, route: Route, answer: Answer) -> Iterator[Event]:
        """The events of an accepted request. Raises ModelError, TimedOut or TooLong."""


class Direct:
    """One process's requests to such servers."""

    def __init__(self, http: Http, dialect: Dialect) -> None:
        self._http, self._dialect = http, dialect

    def open(self, request: Request, route: Route, answer: Answer) -> Iterator[Event]:
        """The events of the answer, once one that says something has come.

        A stream without any of an answer is asked for once more as a whole. Raises ModelError, TimedOut or TooLong.
        """
        try:
            answer.clear()
            return _begun(self._events(self._respond(request, route), route, answer))
        except NoAnswer:
            # llama.cpp's answer to a prompt that is too long: a stream without an event, but whole a plain refusal.
            if not request.stream:
                raise
            request = request._replace(stream=False)
        except ModelError as err:
            if not self._dialect.learns(err, request, route):
                raise
        return self.open(request, route, answer)

    def preview(self, request: Request, route: Route) -> dict[str, Any]:
        """The request as it would be sent, its keys masked."""
        body, url = load(encode(self._dialect.body(request, route))), self._dialect.url(route)
        headers = routes.headers_for(route.provider, route.wire, route.key, MASK)
        return {"method": "POST", "url": url, "headers": headers, "body": body}

    def _respond(self, request: Request, route: Route) -> Response:
        """The response, if it is an answer; else its refusal as an error."""
        body = encode(self._dialect.body(request, route))
        response = self._http.post(self._dialect.url(route), body, route.headers)
        if response.status == 200:  # OK
            return response
        said = response.small_body()
        response.close()
        raise failures.refusal(response.url, response.status, response.headers, said, route)

    def _events(self, response: Response, route: Route, answer: Answer) -> Iterator[Event]:
        try:
            answer.request_id = next(
                (response.headers[name] for name in _REQUEST_IDS if name in response.headers), None
            )
            yield from self._dialect.read(response, route, answer)
            if answer.usage and _COST in response.headers:
                with contextlib.suppress(ValueError):
                    answer.usage["raw"].setdefault("cost", parsed(response.headers[_COST]))
        finally:
            response.close()


def _begun(events: Iterator[Event]) -> Iterator[Event]:
    """The same events, the first one at hand: a server that is overloaded may say so in place of it.

    Raises NoAnswer where there is none, and no reason for ending either.
    """
    try:
        first = next(events, None)
    except BrokenOff as err:
        raise NoAnswer("the server answered nothing", detail=err.detail or str(err)) from err
    if first is None or first == Finished(None):
        raise NoAnswer("the server answered nothing")
    return chain([first], events)
