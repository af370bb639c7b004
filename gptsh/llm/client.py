"""Ask a model: choose its API, leave out what the server has refused, and retry temporary failures."""

import contextlib
import random
import re
import time
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from gptsh.config.settings import Settings
from gptsh.content.answer import Answer, Request
from gptsh.content.attachments import media_in, part_label
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
LONGEST_RETRY_AFTER = 30.0  # seconds; if a server asks for a longer pause, the request fails
_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-generation-id")
_COST = "x-litellm-response-cost"  # USD, from LiteLLM's proxy, for an answer that is not streamed
_REFUSALS = (400, 422, 500)  # statuses for a refused field; llama-cpp-python and Ollama send 500
_PER_REQUEST = {"thinking", "schema"}  # refused because of one request's content: not remembered for the server


class Api(Protocol):
    """One API: how to write its requests and read its answers. The modules ``chat``, ``anthropic`` and ``ollama``."""

    PATH: str  # of the request's URL, after the base URL
    REFUSABLE: dict[str, str]  # optional field -> pattern that matches a refusal of it

    def body(self, request: Request, provider: Provider, refusals: Collection[str], servers: Any) -> dict[str, Any]:
        """The JSON body without the refused fields. It may ask the server how the model is loaded."""

    def read(self, response: "Response", provider: Provider, answer: Answer, servers: Any) -> Iterator[Event]:
        """Write the response into ``answer`` and yield its events. Raises ModelError, TimedOut or TooLong."""

    def accepts(self, part: Part, provider: Provider) -> bool:
        """Whether a question can carry this part, which is not text."""


class Client:
    """Asks any configured model. ``deadline`` (``time.monotonic``) limits the pauses between retries."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self.deadline: float | None = None
        self._settings, self._environ = settings, environ
        self._routes = Routes(settings, environ)
        self.servers = Servers(settings, self._routes)

    # ---- before anything is saved or sent

    def prepare(self, model: str, params: Mapping[str, Any], *, tools: bool = False) -> list[str]:
        """Determine the API and the key for a model. Raises ConfigError.

        Returns the parameters that the model would refuse, described in words; they are not sent.
        """
        provider = self._routes.of(model, params, tools=tools)
        if provider.api == "litellm":
            self._litellm.preload()
        return parameters.fit_params(params, provider).omissions

    def accepts(self, model: str, part: Part) -> bool:
        """Whether a model's API can carry this part, which is not text; the model may still lack the ability."""
        provider = self._settings.providers.for_model(model)
        return provider.api == "echo" or _api(provider.api).accepts(part, provider)

    def api(self, request: Request) -> ApiName:
        """The API for a request. Raises as ``prepare``."""
        return self._provider_of(request).api

    def preview(self, request: Request) -> dict[str, Any]:
        """The request as ``ask`` would send it, with keys and other secrets masked. Raises as ``prepare``."""
        provider = self._provider_of(request)
        if provider.api == "echo":
            return {"messages": request.messages}
        if provider.api == "litellm":
            from gptsh.llm.litellm_bridge import arguments  # noqa: PLC0415 - few runs use litellm

            return {"call": errors.without_secret_parameters(arguments(request, provider, self._settings.network))}
        from gptsh.llm.sse import encode, load  # noqa: PLC0415 - echo needs neither

        api = _api(provider.api)
        body = load(encode(api.body(request, provider, self.servers.refusals(provider), self.servers)))
        return {
            "method": "POST",
            "url": f"{provider.base_url}{api.PATH}",
            "headers": routes.headers(provider, mask_values=True),
            "body": errors.without_secret_parameters(body),
        }

    # ---- asking

    def ask(self, request: Request, answer: Answer) -> Iterator[Event]:
        """Write the model's answer into ``answer`` and yield its events. Before the first one, retry what is temporary.

        Raises ModelError, TimedOut, and ConfigError as ``prepare``.
        """
        provider, attempt = self._provider_of(request), 0
        try:
            while True:
                answer.clear()
                try:
                    events = self._events(request, provider, answer)
                    yield next(events)  # raises if an overloaded server reports that inside the stream
                    break
                except NoAnswer:
                    # llama.cpp answers a prompt that is too long with an empty stream; without streaming it refuses it.
                    if not request.stream:
                        raise
                    request = request._replace(stream=False)
                except ModelError as err:
                    if self._learn_refusal(err, request, provider):
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
                self.servers.save()  # only after a server has answered
        except GptshError as err:
            raise errors.without_secrets(err, provider.secrets)  # noqa: B904 - it is the same error

    def _events(self, request: Request, provider: Provider, answer: Answer) -> Iterator[Event]:
        """Send one request and yield the events of its answer."""
        if provider.api == "echo":
            yield from _echo(request, answer)
            return
        if provider.api == "litellm":
            yield from self._litellm.read(request, provider, answer)
            return
        from gptsh.llm.sse import encode  # noqa: PLC0415 - echo needs none

        api = _api(provider.api)
        body = encode(api.body(request, provider, self.servers.refusals(provider), self.servers))
        response = self._routes.http.send(f"{provider.base_url}{api.PATH}", body, routes.headers(provider))
        try:
            if response.status != 200:  # OK
                error_body = response.small_body()
                raise errors.refusal(response.url, response.status, response.headers, error_body, provider)
            answer.request_id = next(filter(None, map(response.headers.get, _REQUEST_IDS)), None)
            yield from api.read(response, provider, answer, self.servers)
            if answer.usage and _COST in response.headers:
                with contextlib.suppress(ValueError):
                    answer.usage["raw"].setdefault("cost", parse_json(response.headers[_COST]))
        finally:
            response.close()

    def _learn_refusal(self, err: ModelError, request: Request, provider: Provider) -> bool:
        """Remember the optional fields that the server has refused; return whether the next request differs."""
        if err.status not in _REFUSALS or provider.api == "litellm":
            return False
        api, refusals = _api(provider.api), self.servers.refusals(provider)
        text = errors.own_words(err.detail)
        new = {name for name, pattern in api.REFUSABLE.items() if re.search(pattern, text)} - refusals
        if api.body(request, provider, refusals | new, None) == api.body(request, provider, refusals, None):
            return False
        self.servers.refuse(provider, new, new - _PER_REQUEST)
        return True

    def _pause(self, err: ModelError, attempt: int) -> float | None:
        """Seconds to wait before the next attempt; None: do not retry."""
        if not err.can_retry or attempt >= self._settings.network.retries:
            return None
        backoff = BACKOFF[min(attempt, len(BACKOFF) - 1)] * random.uniform(0.75, 1.25)
        pause = backoff if err.retry_after is None else err.retry_after
        too_late = self.deadline is not None and time.monotonic() + pause >= self.deadline
        return None if pause > LONGEST_RETRY_AFTER or too_late else pause

    def _provider_of(self, request: Request) -> Provider:
        """The provider with the API for this request.

        Google's OpenAI-compatible endpoint accepts neither documents nor media by URL.
        """
        messages = request.messages if request.model.startswith("gemini/") else ()
        documents = any(
            media.kind == "document" or media.url is not None for message in messages for _, media in media_in(message)
        )
        return self._routes.of(request.model, request.params, tools=bool(request.tools), documents=documents)

    @cached_property
    def _litellm(self) -> "Bridge":
        from gptsh.llm.litellm_bridge import Bridge  # noqa: PLC0415 - few runs use litellm

        return Bridge(self._settings.network, self._environ)


def _echo(request: Request, answer: Answer) -> Iterator[Event]:
    """The built-in offline model: ``You said: `` and the last user message, word by word. A word counts as a token."""
    parts = next((parts_of(message) for message in reversed(request.messages) if message["role"] == "user"), [])
    question = "\n\n".join(labelled_text(part) if "text" in part else part_label(part) for part in parts)
    words = ["You said: ", *re.findall(r"\S+\s*|\s+", question)]
    for word in words if request.stream else ["".join(words)]:
        answer.add_text(word)
        yield from answer.new_events()
    prompt = sum(len(text_of(message).split()) for message in request.messages)
    answer.usage = usage_from({"prompt_tokens": prompt, "completion_tokens": len(words) + 1})
    answer.finish("stop")
    answer.end()
    yield from answer.new_events()


def _api(api: ApiName) -> Api:
    """The module of an API. Only that module is imported."""
    if api == "anthropic":
        from gptsh.llm import anthropic  # noqa: PLC0415 - a run needs one API

        return anthropic
    if api == "ollama":
        from gptsh.llm import ollama  # noqa: PLC0415 - a run needs one API

        return ollama
    from gptsh.llm import chat  # noqa: PLC0415 - a run needs one API

    return chat
