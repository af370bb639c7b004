"""Asking a model: which wire speaks to it, with which key, and when to try again."""

import json
import random
import time
from collections.abc import Collection, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gptsh import __version__
from gptsh.core.messages import Event, Identified, Retrying
from gptsh.core.models import LOCAL
from gptsh.core.settings import Provider, Secret, Settings, provider_of
from gptsh.core.turn import Request
from gptsh.errors import ConfigError, GptshError, ModelError
from gptsh.llm import chat_completions, echo, failures

if TYPE_CHECKING:
    from gptsh.llm.http import Http, Response

BACKOFF = (0.5, 2.0)  # seconds before the first and every later retry, with jitter
LONGEST_RETRY_AFTER = 30.0  # seconds; a server that wants a longer pause is not waited for
PROBE_TIMEOUT = 0.3  # seconds for a local server to say that it is there

_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-generation-id")
_AGAIN = (408, 409, 429)  # and every 5xx
_SERVER_ERROR = 500
_SNIFFED = 6  # bytes that tell an event stream from anything else
_SHORTEST_SECRET = 4  # characters
_SSE_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")


class _Route(NamedTuple):
    provider: Provider
    model: str  # as the provider knows it
    headers: Mapping[str, str]
    secrets: frozenset[str]  # what must not be shown: the key, the values of configured headers, the proxy's login

    @property
    def url(self) -> str:
        return f"{self.provider.base_url}/chat/completions"


class Client:
    """Asks any model that the settings can reach. ``deadline`` (``time.monotonic``) bounds the pauses of retries."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], deadline: float | None = None) -> None:
        self._settings, self._environ, self._deadline = settings, environ, deadline
        self._routes: dict[str, _Route] = {}
        self._keys: dict[str, Secret | None] = {}
        self._http: Http | None = None
        self._no_stream_options: set[str] = set()

    def prepare(self, model: str) -> None:
        """Settle where the model is, by which way and with which key it is asked, before anything is saved or sent.

        Raises ConfigError for an unknown provider, a missing key, a bad URL, proxy or CA bundle.
        """
        provider, name = provider_of(self._settings, model)
        if provider.name == "echo":
            self._routes[model] = _Route(provider, name, {}, frozenset())
            return
        if provider.name not in self._keys:  # a command that asks for a passphrase runs once
            self._keys[provider.name] = _key(provider)
        self._routes[model] = self._route(provider, name, self._keys[provider.name])

    def local_models(self) -> list[str]:
        """One model of each local server that answers, as ``-m`` takes it."""
        found = []
        for name in LOCAL:
            url = f"{self._settings.providers[name].base_url}/models"
            try:
                payload: Any = json.loads(self._wire().get(url, PROBE_TIMEOUT))
            except (GptshError, ValueError, RecursionError):
                continue
            models = payload.get("data") if isinstance(payload, dict) else None
            if models and isinstance(models, list) and isinstance(models[0], dict):
                found.append(f"{name}/{models[0].get('id')}")
        return found

    def _wire(self) -> "Http":
        from gptsh.llm.http import Http  # noqa: PLC0415 - 50 ms that echo and every other job do without

        self._http = self._http or Http(self._settings.network, self._environ)
        return self._http

    def _route(self, provider: Provider, model: str, key: Secret | None) -> _Route:
        from gptsh.llm.http import proxy_secrets  # noqa: PLC0415 - as in ``_wire``

        headers = {"content-type": "application/json", "user-agent": f"gptsh/{__version__}"}
        headers |= {header.lower(): value for header, value in provider.headers.items()}
        secrets = {part for value in provider.headers.values() for part in (value, value.rpartition(" ")[2])}
        if key:
            headers["authorization"] = f"Bearer {key}"
            secrets.add(str(key))
        route = _Route(provider, model, headers, frozenset())
        secrets |= proxy_secrets(self._environ)
        try:
            self._wire().manager(route.url)
        except GptshError as err:
            raise failures.without_secrets(err, _worth_hiding(secrets))  # noqa: B904 - it is the same error
        return route._replace(secrets=_worth_hiding(secrets))

    def ask(self, request: Request) -> Iterator[Event]:
        """Ask the model of ``request``; the events of its answer as they come.

        Raises ModelError or TimedOut, also in mid-answer, and ConfigError as ``prepare``.
        """
        if request.model not in self._routes:
            self.prepare(request.model)
        route = self._routes[request.model]
        if route.provider.name == "echo":
            yield from echo.ask(request)
            return
        try:
            yield from self._ask(request, route)
        except GptshError as err:
            raise failures.without_secrets(err, route.secrets)  # noqa: B904 - it is the same error

    def _ask(self, request: Request, route: _Route) -> Iterator[Event]:
        response = yield from self._respond(request, route)
        try:
            request_id = next((response.headers[name] for name in _REQUEST_IDS if name in response.headers), None)
            yield Identified(request_id, None)
            for event in _events(response):
                yield Identified(request_id, event.response_id) if isinstance(event, Identified) else event
        finally:
            response.close()

    def _respond(self, request: Request, route: _Route) -> Generator[Event, None, "Response"]:
        """The response to the request; once more without ``stream_options`` for a server that refuses the field."""
        base = route.provider.base_url
        include = route.provider.stream_options and base not in self._no_stream_options
        try:
            return (yield from self._open(route, _body(request, route, include)))
        except ModelError as err:
            if not include or err.status not in (400, 422) or "stream_options" not in err.detail:
                raise
        self._no_stream_options.add(base)
        return (yield from self._open(route, _body(request, route, stream_options=False)))

    def _open(self, route: _Route, body: bytes) -> Generator[Event, None, "Response"]:
        """The response once a server accepts; retried before the first byte only."""
        for attempt in range(self._settings.network.retries + 1):
            try:
                return _accepted(self._wire().post(route.url, body, route.headers), route)
            except ModelError as err:
                pause = self._pause(err, attempt)
                if pause is None:
                    raise
                yield Retrying(pause, str(failures.without_secrets(err, route.secrets)))
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _pause(self, err: ModelError, attempt: int) -> float | None:
        """Seconds to wait before the next attempt; None when there is to be none."""
        if not err.retry or attempt >= self._settings.network.retries:
            return None
        backoff = BACKOFF[min(attempt, len(BACKOFF) - 1)] * random.uniform(0.75, 1.25)
        pause = backoff if err.after is None else err.after
        too_late = self._deadline is not None and time.monotonic() + pause >= self._deadline
        return None if pause > LONGEST_RETRY_AFTER or too_late else pause


def _body(request: Request, route: _Route, stream_options: bool) -> bytes:
    sent = chat_completions.body(request, route.model, provider=route.provider.name, stream_options=stream_options)
    text = json.dumps(sent, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # A lone surrogate (an undecodable byte of a pipe) is no UTF-8: what is sent has U+FFFD in its place.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _accepted(response: "Response", route: _Route) -> "Response":
    """The response, if it is an answer; else its refusal as an error."""
    if response.status == 200:  # noqa: PLR2004 - OK
        return response
    body = response.small_body()
    response.close()
    raise _refusal(response, body, route)


def _refusal(response: "Response", body: bytes, route: _Route) -> ModelError:
    status, provider = response.status, route.provider
    said, detail = failures.said(body), body.decode("utf-8", "replace")
    reason = f"({status}){': ' if said else ''}{said}"
    if status in (401, 403):
        err = ModelError(
            f"{provider.name} refused the key {reason}", f"check {_source_of_key(provider)}", detail=detail
        )
    elif "location" in response.headers and 300 <= status < 400:  # noqa: PLR2004 - not followed: the key would go along
        err = ModelError(f"{response.url} redirects to {response.headers['location']}", "change base_url")
    elif status == 404:  # noqa: PLR2004 - the model or the path
        err = ModelError(f"{response.url} does not know {route.model!r} {reason}", "see -m and base_url", detail=detail)
    else:
        err = ModelError(f"{provider.name} refused {reason}", detail=detail)
    err.status = status
    hint = response.headers.get("x-should-retry")
    err.retry = hint == "true" or (hint != "false" and (status in _AGAIN or status >= _SERVER_ERROR))
    err.after = retry_after(response.headers)
    return err


def _source_of_key(provider: Provider) -> str:
    if provider.key_command:
        return f"api_key_command under [providers.{provider.name}]"
    return provider.key_vars[0] if provider.key_vars else f"[providers.{provider.name}]"


def _worth_hiding(secrets: Collection[str]) -> frozenset[str]:
    """Without the short ones: to mask them would garble the message and hide nothing."""
    return frozenset(secret for secret in secrets if len(secret) >= _SHORTEST_SECRET)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait: ``retry-after-ms``, or ``retry-after`` in seconds or as a date."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        if text.replace(".", "", 1).isdecimal():
            return float(text) * scale
    return _until(headers["retry-after"]) if "retry-after" in headers else None


def _until(date: str) -> float | None:
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - a rare form of a rare header

    try:
        moment = parsedate_to_datetime(date)
        return max(0.0, moment.timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _events(response: "Response") -> Iterator[Event]:
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


# ---- keys


def _key(provider: Provider) -> Secret | None:
    """The key that opens the provider; None where it needs none. Raises ConfigError when it is missing."""
    key = _from_command(provider.key_command, provider.name) if provider.key_command else provider.key
    if key is None and provider.needs_key:
        way = f"set {provider.key_vars[0]}, or api_key_command under [providers.{provider.name}]"
        raise ConfigError(f"no key for {provider.name}", way)
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ConfigError(f"the key for {provider.name} has characters that no HTTP header may have")
    return key


def _from_command(command: str, provider: str) -> Secret:
    """The first line that the command prints. It gets no standard input: that is the prompt's."""
    import subprocess  # noqa: PLC0415 - 5 ms that only this way of keeping keys costs

    done = subprocess.run(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    key = done.stdout.decode("utf-8", "replace").partition("\n")[0].strip()
    if done.returncode or not key:
        why = f"exited with {done.returncode}" if done.returncode else "printed no key"
        raise ConfigError(f"api_key_command of {provider} {why}", "run it by hand")
    return Secret(key)
