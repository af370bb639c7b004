"""Asking a model: by which API, with what the server has refused left out, and when to try again."""

import contextlib
import random
import re
import time
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from gptsh.config.settings import Settings
from gptsh.content.answer import Answer, Request
from gptsh.content.attachments import media_in, shown
from gptsh.errors import GptshError, ModelError, NoAnswer
from gptsh.jsonio import parse_json
from gptsh.llm import errors, parameters, routes
from gptsh.llm.routes import Routes
from gptsh.llm.servers import Servers
from gptsh.messages import Event, Part, Retrying, labelled_text, parts_of, text_of
from gptsh.models.cost import usage_from
from gptsh.models.providers import ApiName, Provider

if TYPE_CHECKING:
    from gptsh.llm.http import Response
    from gptsh.llm.litellm_bridge import Bridge

BACKOFF = (0.5, 2.0)  # seconds before the first and every later retry, with jitter
LONGEST_RETRY_AFTER = 30.0  # seconds; a server that wants a longer pause is not waited for
_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-generation-id")
_COST = "x-litellm-response-cost"  # USD, as LiteLLM's proxy states it of an answer that is sent whole
_REFUSALS = (400, 422, 500)  # statuses of a refused field; 500 is llama-cpp-python's and Ollama's
_OF_REQUEST = {"thinking", "schema"}  # refused for what stands in a request: no fact about the server


class Api(Protocol):
    """How servers of one kind are asked, and how they answer; the modules ``chat``, ``anthropic`` and ``ollama``."""

    PATH: str  # where the request goes, below the base URL
    REFUSABLE: dict[str, str]  # what it can be asked without: the pattern by which a refusal names it

    def body(self, request: Request, provider: Provider, refused: Collection[str], servers: Any) -> dict[str, Any]:
        """What is sent, without the fields that are refused; a server may be asked how a model is loaded."""

    def read(self, response: "Response", provider: Provider, answer: Answer, servers: Any) -> Iterator[Event]:
        """What is seen of the answer, which is written into. Raises ModelError, TimedOut or TooLong."""

    def accepts(self, part: Part, provider: Provider) -> bool:
        """Whether a question has a place for what a part carries."""


class Client:
    """Asks any model that the settings can reach. ``deadline`` (``time.monotonic``) bounds the pauses of retries."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self.deadline: float | None = None
        self._settings, self._environ = settings, environ
        self._routes = Routes(settings, environ)
        self.servers = Servers(settings, self._routes)

    # ---- before anything is saved or sent

    def prepare(self, model: str, params: Mapping[str, Any], *, tools: bool = False) -> list[str]:
        """Settle by which way and with which key a model is asked. Raises ConfigError where it cannot be.

        Returns the parameters, in words, that it would refuse and that are therefore not sent.
        """
        provider = self._routes.of(model, params, tools=tools)
        if provider.api == "litellm":
            self._litellm.preload()
        return parameters.fit(params, provider).left_out

    def accepts(self, model: str, part: Part) -> bool:
        """Whether a question can carry such a part, which is no text, to a model; what that can is another matter."""
        provider = self._settings.providers.of(model)
        return provider.api == "echo" or _api(provider.api).accepts(part, provider)

    def api(self, request: Request) -> ApiName:
        """By which API it would be asked. Raises as ``prepare``."""
        return self._provider_of(request).api

    def preview(self, request: Request) -> dict[str, Any]:
        """The request as ``ask`` would send it, keys and other secrets masked. Raises as ``prepare``."""
        provider = self._provider_of(request)
        if provider.api == "echo":
            return {"messages": request.messages}
        if provider.api == "litellm":
            from gptsh.llm.litellm_bridge import arguments  # noqa: PLC0415 - few runs need it

            return {"call": errors.without_secret_parameters(arguments(request, provider, self._settings.network))}
        from gptsh.llm.sse import encode, load  # noqa: PLC0415 - as in ``_api``

        api = _api(provider.api)
        body = load(encode(api.body(request, provider, self.servers.refused(provider), self.servers)))
        return {
            "method": "POST",
            "url": f"{provider.base_url}{api.PATH}",
            "headers": routes.headers(provider, masked=True),
            "body": errors.without_secret_parameters(body),
        }

    # ---- asking

    def ask(self, request: Request, answer: Answer) -> Iterator[Event]:
        """What is seen of the ``answer`` as it comes. Raises ModelError, TimedOut, and ConfigError as ``prepare``."""
        provider, attempt = self._provider_of(request), 0
        try:
            while True:
                answer.clear()
                try:
                    events = self._events(request, provider, answer)
                    yield next(events)  # a server that is overloaded may say so in its place
                    break
                except NoAnswer:
                    # llama.cpp's answer to a prompt that is too long: a stream without an event, but whole a refusal.
                    if not request.stream:
                        raise
                    request = request._replace(stream=False)
                except ModelError as err:
                    if self._learns(err, request, provider):
                        continue
                    pause = self._pause(err, attempt)
                    if pause is None:
                        raise
                    yield Retrying(pause, str(errors.without_secrets(err, provider.secrets)))
                    time.sleep(pause)
                    attempt += 1
            try:
                yield from events
            finally:
                self.servers.save()  # of one that answers
        except GptshError as err:
            raise errors.without_secrets(err, provider.secrets)  # noqa: B904 - it is the same error

    def _events(self, request: Request, provider: Provider, answer: Answer) -> Iterator[Event]:
        """What is seen of the answer to one request."""
        if provider.api == "echo":
            yield from _echo(request, answer)
            return
        if provider.api == "litellm":
            yield from self._litellm.read(request, provider, answer)
            return
        from gptsh.llm.sse import encode  # noqa: PLC0415 - as in ``_api``

        api = _api(provider.api)
        body = encode(api.body(request, provider, self.servers.refused(provider), self.servers))
        response = self._routes.http.send(f"{provider.base_url}{api.PATH}", body, routes.headers(provider))
        try:
            if response.status != 200:  # OK
                said = response.small_body()
                raise errors.refusal(response.url, response.status, response.headers, said, provider)
            answer.request_id = next(filter(None, map(response.headers.get, _REQUEST_IDS)), None)
            yield from api.read(response, provider, answer, self.servers)
            if answer.usage and _COST in response.headers:
                with contextlib.suppress(ValueError):
                    answer.usage["raw"].setdefault("cost", parse_json(response.headers[_COST]))
        finally:
            response.close()

    def _learns(self, err: ModelError, request: Request, provider: Provider) -> bool:
        """Whether the server has refused something that it can be asked without, from now on."""
        if err.status not in _REFUSALS or provider.api == "litellm":
            return False
        api, refused = _api(provider.api), self.servers.refused(provider)
        new = {name for name, how in api.REFUSABLE.items() if re.search(how, f"{err} {err.detail}")} - refused
        if api.body(request, provider, refused | new, None) == api.body(request, provider, refused, None):
            return False
        self.servers.refuse(provider, new, new - _OF_REQUEST)
        return True

    def _pause(self, err: ModelError, attempt: int) -> float | None:
        """Seconds to wait before the next attempt; None when there is to be none."""
        if not err.can_retry or attempt >= self._settings.network.retries:
            return None
        backoff = BACKOFF[min(attempt, len(BACKOFF) - 1)] * random.uniform(0.75, 1.25)
        pause = backoff if err.retry_after is None else err.retry_after
        too_late = self.deadline is not None and time.monotonic() + pause >= self.deadline
        return None if pause > LONGEST_RETRY_AFTER or too_late else pause

    def _provider_of(self, request: Request) -> Provider:
        """The provider as it is asked. Google's endpoint for all takes no documents, and nothing by its URL."""
        found = request.messages if request.model.startswith("gemini/") else ()
        documents = any(
            media.kind == "document" or media.url is not None for message in found for _, media in media_in(message)
        )
        return self._routes.of(request.model, request.params, tools=bool(request.tools), documents=documents)

    @cached_property
    def _litellm(self) -> "Bridge":
        from gptsh.llm.litellm_bridge import Bridge  # noqa: PLC0415 - few runs need it

        return Bridge(self._settings.network, self._environ)


def _echo(request: Request, answer: Answer) -> Iterator[Event]:
    """The built-in offline model: ``You said: `` and the last user message, word by word; a word counts as a token."""
    parts = next((parts_of(message) for message in reversed(request.messages) if message["role"] == "user"), [])
    said = "\n\n".join(labelled_text(part) if "text" in part else shown(part) for part in parts)
    words = ["You said: ", *re.findall(r"\S+\s*|\s+", said)]
    for word in words if request.stream else ["".join(words)]:
        answer.add_text(word)
        yield from answer.new_events()
    prompt = sum(len(text_of(message).split()) for message in request.messages)
    answer.usage = usage_from({"prompt_tokens": prompt, "completion_tokens": len(words) + 1})
    answer.finish("stop")
    answer.end()
    yield from answer.new_events()


def _api(api: ApiName) -> Api:
    """How servers of this kind are spoken to; only the one that is needed is loaded."""
    if api == "anthropic":
        from gptsh.llm import anthropic  # noqa: PLC0415 - the start of a run needs one at most

        return anthropic
    if api == "ollama":
        from gptsh.llm import ollama  # noqa: PLC0415 - the same

        return ollama
    from gptsh.llm import chat  # noqa: PLC0415 - the same

    return chat
