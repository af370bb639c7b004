"""Ask a model: choose its API, leave out what the server has refused, and retry temporary failures."""

import contextlib
import random
import re
import time
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from gptsh.config.secret import mask
from gptsh.config.settings import Settings
from gptsh.content.answer import Answer
from gptsh.content.attachments import part_label
from gptsh.errors import GptshError, LoadingModel, ModelError, NoAnswer
from gptsh.jsonio import parse_json
from gptsh.llm import masking, parameters, routes
from gptsh.llm.error_bodies import own_words
from gptsh.llm.ollama_models import OllamaModels
from gptsh.llm.refused_fields import RefusedFields
from gptsh.llm.routes import Routes
from gptsh.llm.server_cache import ServerCache
from gptsh.llm.server_reports import ServerReports
from gptsh.llm.thought_beginnings import expected_beginning, remember_beginning
from gptsh.llm.unsupported_params import unsupported_efforts, unsupported_params
from gptsh.llm.windows import Windows
from gptsh.messages import Event, Finished, Part, Request, Retrying, labelled_text, parts_of, text_of
from gptsh.models.facts import split_model
from gptsh.models.providers import DIRECT, ApiName, Provider
from gptsh.models.token_usage import usage_from

if TYPE_CHECKING:
    from gptsh.llm.http import Response
    from gptsh.llm.litellm_bridge import Bridge
    from gptsh.llm.model_lists import ModelLists

BACKOFF = (0.5, 2.0)  # seconds before the first and every later retry, with jitter
LOADING_PAUSE = 2.0  # seconds before a server is asked again that is loading its model
LONGEST_RETRY_AFTER = 30.0  # seconds; if a server asks for a longer pause, the request fails
_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-generation-id")
_MAX_PAUSES = 10  # how often a server may pause one answer
_COST = "x-litellm-response-cost"  # USD, from LiteLLM's proxy, for an answer that is not streamed
_REFUSALS = (400, 404, 422, 500)  # statuses for a refused field; OpenAI sends 404 for an item, Ollama 500
_NOT_SERVED = (404, 405, 501)  # statuses of a server that lacks an API
# What an error names if a server lacks the Responses API, or serves a model, or its tools, by this API alone.
_NAMES_RESPONSES = "(?i)/responses|responses (?:api|endpoint|operation)"
_OTHER_API: dict[ApiName, ApiName] = {"responses": "chat", "chat": "responses"}  # of OpenAI's two
_PER_REQUEST = {"schema"}  # refused because of one request's content: not remembered for the server
# Refused because of earlier answers: the next answer remembers it, see ``Message``.
_REASONING = {"thinking", "items", "parts"}


class Api(Protocol):
    """One API: how to write its requests and read its answers. A module of ``llm/`` has the name of its API."""

    REFUSABLE: dict[str, str]  # optional field -> pattern that matches a refusal of it

    def path(self, request: Request, provider: Provider) -> str:
        """The path of the request's URL, after the base URL."""

    def body(self, request: Request, provider: Provider, refusals: Collection[str], ollama: Any) -> dict[str, Any]:
        """The JSON body without the refused fields. It may ask the server how the model is loaded."""

    def read(self, response: "Response", provider: Provider, answer: Answer, ollama: Any) -> Iterator[Event]:
        """Write the response into ``answer`` and yield its events. Raises ModelError, TimedOut or TooLong."""

    def accepts(self, part: Part, provider: Provider) -> bool:
        """Whether a question can carry this part, which is not text."""


class Budget(Protocol):
    """Limits what requests cost."""

    @property
    def remaining(self) -> float:
        """USD that may still be spent."""

    def check(self, request: Request) -> float:
        """Return what a request costs at most in USD. Raises TooExpensive."""

    def spending(self, request: Request, answer: Answer) -> contextlib.AbstractContextManager[None]:
        """Count the cost of a request, which is sent inside the block. Raises TooExpensive before it is."""


class Client:
    """Asks any configured model. ``deadline`` (``time.monotonic``) limits the pauses between retries.

    ``budget`` limits what requests cost.

    Without ``needs_keys`` it can only show requests to providers whose keys are missing.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        keys: Mapping[str, str | None] | None = None,
        *,
        needs_keys: bool = True,
    ) -> None:
        """``keys`` are the ``keys`` of another client: a command that prints one is not run again."""
        self.deadline: float | None = None
        self.budget: Budget | None = None
        self._settings, self._environ = settings, environ
        self._routes = Routes(settings, environ, keys or {}, needs_keys=needs_keys)
        self._cache = ServerCache()
        self._reports = ServerReports(self._routes, self._cache)
        self._ollama = OllamaModels(self._reports, self._cache)
        self._refused = RefusedFields(self._cache)
        self.windows = Windows(settings, self._reports, self._cache, self._ollama)

    @property
    def keys(self) -> Mapping[str, str | None]:
        """The keys of the providers that were prepared so far, by name."""
        return self._routes.keys

    # ---- facts about models

    @cached_property
    def model_lists(self) -> "ModelLists":
        """The models that servers list."""
        from gptsh.llm.model_lists import ModelLists  # noqa: PLC0415 - few runs need a list

        return ModelLists(self._settings, self._reports, self._cache, self._ollama)

    def full_name(self, model: str) -> str:
        """Add the provider ``ollama`` to a bare model name that the local Ollama server lists."""
        is_known = split_model(model)[0] is not None
        return model if is_known else self.model_lists.full_name(model)

    def can(self, model: str, ability: str) -> bool | None:
        """Whether a model has ``vision``, ``pdf_input``, …; None: unknown. Ollama is asked. Raises ConfigError."""
        from gptsh.llm.abilities import has_ability  # noqa: PLC0415 - few prompts have more than text

        return has_ability(self._settings.providers.for_model(model), ability, self._ollama)

    def ending_note(self, model: str) -> str | None:
        """A line about a model's end that is near or just over, once a day; None if there is none, or it is unknown."""
        from gptsh.llm.model_end import ending_note  # noqa: PLC0415 - it is needed after the answer

        return ending_note(model, self._settings.providers.for_model(model), self._cache)

    # ---- before anything is saved or sent

    def prepare(self, model: str, params: Mapping[str, Any], *, web: bool = False) -> list[str]:
        """Determine the API and the key for a model. Raises ConfigError, also for ``web`` without such a search.

        Returns what is not sent as the user asked, each in words that follow the model's name.
        """
        provider = self._provider_for(model, params, web=web)
        if provider.api == "litellm":
            self._litellm.preload()
        return parameters.adaptations(params, provider, self._refused.of(provider)) if params else []

    def connect_early(self, model: str, params: Mapping[str, Any]) -> None:
        """Open the connection for a model's next request while the request is still being made. Raises as ``prepare``.

        Nothing is sent. A failure is reported with the request.
        """
        provider = self._provider_for(model, params)
        if provider.api in DIRECT:
            self._routes.http.connect_early(provider.base_url)

    def accepts(self, model: str, part: Part) -> bool:
        """Whether a model's API can carry this part, which is not text; the model may still lack the ability."""
        provider = self._settings.providers.for_model(model)
        return provider.api == "echo" or _api(provider.api).accepts(part, provider)

    def api(self, request: Request) -> ApiName:
        """The API for a request. Raises as ``prepare``."""
        return self._provider_for(request.model, request.params, web=request.web).api

    def preview(self, request: Request) -> dict[str, Any]:
        """The request as ``ask`` would send it, with keys and other secrets masked. Raises as ``prepare``."""
        provider = self._provider_for(request.model, request.params, web=request.web)
        if provider.api == "echo":
            return {"messages": request.messages}
        if provider.api == "litellm":
            from gptsh.llm.litellm_bridge import arguments  # noqa: PLC0415 - few runs use litellm

            return {"call": masking.without_secret_parameters(arguments(request, provider, self._settings.network))}
        from gptsh.llm.json_bodies import encode, load  # noqa: PLC0415 - echo needs neither

        api = _api(provider.api)
        body = load(encode(api.body(request, provider, self._refused.of(provider), self._ollama)))
        return {
            "method": "POST",
            "url": f"{provider.base_url}{api.path(request, provider)}",
            "headers": routes.headers(provider, mask_values=True),
            "body": masking.without_secret_parameters(body),
        }

    # ---- asking

    def ask(self, request: Request, answer: Answer, *, may_retry: bool = True) -> Iterator[Event]:
        """Write the model's answer into ``answer`` and yield its events. Before the first one, retry what is temporary.

        Raises ModelError, TimedOut, and ConfigError as ``prepare``; TooExpensive if ``budget`` does not allow it.
        """
        with self.budget.spending(request, answer) if self.budget else contextlib.nullcontext():
            yield from self._ask(request, answer, may_retry=may_retry)

    def _ask(self, request: Request, answer: Answer, *, may_retry: bool) -> Iterator[Event]:
        provider, attempt = self._provider_for(request.model, request.params, web=request.web), 0
        loaded_by = time.monotonic() + self._settings.network.first_byte_timeout
        refused_reasoning: set[str] = set()
        try:
            while True:
                answer.clear()
                beginning = expected_beginning(provider, request.params, self._cache)
                answer.expect(beginning)
                answer.reasoning_refused = bool(refused_reasoning)
                try:
                    events = self._events(request, provider, answer, refused_reasoning)
                    first = next(events)  # raises if an overloaded server reports that inside the stream
                    _mask_names(answer, provider)  # also of an answer that is interrupted
                    yield first
                    break
                except NoAnswer:
                    # llama.cpp answers a prompt that is too long with an empty stream; without streaming it refuses it.
                    if not request.stream:
                        raise
                    request = request._replace(stream=False)
                except ModelError as err:
                    if self._learn_refusal(err, request, provider, refused_reasoning):
                        continue
                    if self._learn_api(err, provider):
                        provider = self._provider_for(request.model, request.params, web=request.web)
                        continue
                    pause = self._pause(err, attempt, loaded_by) if may_retry else None
                    if pause is None:
                        raise
                    yield Retrying(pause, str(masking.without_secrets(err, provider.secrets)))
                    time.sleep(pause)
                    attempt += not isinstance(err, LoadingModel)
            try:
                yield from events
                if beginning != "text" and answer.beginning is not None:
                    remember_beginning(provider, answer.beginning, self._cache)
            finally:
                self._cache.save()  # only after a server has answered
        except GptshError as err:
            raise masking.without_secrets(err, provider.secrets)  # noqa: B904 - it is the same error
        finally:
            _mask_names(answer, provider)

    def _events(
        self, request: Request, provider: Provider, answer: Answer, refused_reasoning: Collection[str]
    ) -> Iterator[Event]:
        """Send one request and yield the events of its answer, which a server may pause."""
        if provider.api == "echo":
            yield from _echo(request, answer)
            return
        if provider.api == "litellm":
            yield from self._litellm.read(request, provider, answer)
            return
        api = _api(provider.api)
        body = api.body(request, provider, self._refused.of(provider) | {*refused_reasoning}, self._ollama)
        url = f"{provider.base_url}{api.path(request, provider)}"
        events = self._answer(url, body, provider, answer)
        if provider.api != "anthropic":
            yield from events
            return
        from gptsh.llm import anthropic  # noqa: PLC0415 - it is loaded, as the API

        for number in range(_MAX_PAUSES + 1):
            may_continue = number < _MAX_PAUSES
            for event in events:
                if not (may_continue and event == Finished(anthropic.PAUSED)):
                    yield event
            if answer.has_thinking and answer.prefix is None:
                answer.prefix = anthropic.prefix(body)
            if answer.finish_reason != anthropic.PAUSED or not may_continue:
                return
            answer.resume()
            events = self._answer(url, anthropic.continued(body, answer), provider, answer)

    def _answer(self, url: str, body: Mapping[str, Any], provider: Provider, answer: Answer) -> Iterator[Event]:
        """Send one body and yield the events of its answer."""
        from gptsh.llm.json_bodies import encode  # noqa: PLC0415 - echo needs none

        response = self._routes.http.send(url, encode(body), routes.headers(provider), is_local=provider.is_local)
        try:
            if response.status != 200:  # OK
                from gptsh.llm.error_statuses import refusal  # noqa: PLC0415 - few responses have an error status

                raise refusal(response.url, response.status, response.headers, response.small_body(), provider)
            answer.request_id = next(filter(None, map(response.headers.get, _REQUEST_IDS)), None)
            yield from _api(provider.api).read(response, provider, answer, self._ollama)
            if answer.usage and _COST in response.headers:
                with contextlib.suppress(ValueError):
                    answer.usage["raw"].setdefault("cost", parse_json(response.headers[_COST]))
        finally:
            response.close()

    def _learn_refusal(
        self, err: ModelError, request: Request, provider: Provider, refused_reasoning: set[str]
    ) -> bool:
        """Remember the optional fields that the server has refused; return whether the next request differs.

        Refused reasoning of earlier answers goes into ``refused_reasoning``: it concerns this session alone.
        """
        if err.status not in _REFUSALS or provider.api == "litellm":
            return False
        api, refusals = _api(provider.api), self._refused.of(provider) | refused_reasoning
        text = own_words(err.detail)
        new = {name for name, pattern in api.REFUSABLE.items() if re.search(pattern, text)}
        new |= unsupported_efforts(text, parameters.fit_params(request.params, provider, refusals).effort)
        new |= unsupported_params(text, request.params)
        new -= refusals
        if api.body(request, provider, refusals | new, None) == api.body(request, provider, refusals, None):
            return False
        refused_reasoning |= new & _REASONING
        self._refused.add(provider, new - _REASONING, new - _PER_REQUEST - _REASONING)
        return True

    def _learn_api(self, err: ModelError, provider: Provider) -> bool:
        """Remember that a server does not serve a model by one of OpenAI's APIs; return whether to try the other.

        Some servers lack Responses. OpenAI's serves many models, or their tools, by Responses alone.
        """
        is_refused = err.status in _REFUSALS and bool(re.search(_NAMES_RESPONSES, own_words(err.detail)))
        if provider.api == "responses":
            is_refused = provider.has_custom_base and (is_refused or err.status in _NOT_SERVED)
        other, refusals = _OTHER_API.get(provider.api), self._refused.of(provider)
        # Chat completions have pointed to Responses, for the tools: they take these without reasoning.
        is_last = provider.api == "responses" and provider.api not in refusals
        if other is None or not is_refused or (other in refusals and not is_last):
            return False
        self._refused.add(provider, {provider.api}, {provider.api})
        return True

    def _pause(self, err: ModelError, attempt: int, loaded_by: float) -> float | None:
        """Seconds to wait before the next attempt; None: do not retry. A model may be loading until ``loaded_by``."""
        now = time.monotonic()
        if isinstance(err, LoadingModel):
            pause, longest = LOADING_PAUSE, loaded_by - now
        elif err.can_retry and attempt < self._settings.network.retries:
            pause, longest = BACKOFF[min(attempt, len(BACKOFF) - 1)] * random.uniform(0.75, 1.25), LONGEST_RETRY_AFTER
        else:
            return None
        pause = pause if err.retry_after is None else err.retry_after
        too_late = self.deadline is not None and now + pause >= self.deadline
        return None if pause > longest or too_late else pause

    def _provider_for(self, model: str, params: Mapping[str, Any], *, web: bool = False) -> Provider:
        """The provider of a model with the API that its server has, as far as that is known."""
        provider = self._routes.of(model, params, web=web)
        other, refusals = _OTHER_API.get(provider.api), self._refused.of(provider)
        if other and provider.api in refusals and other not in refusals:
            if web:  # it has the search in that API alone
                routes.raise_no_search(model)
            return provider._replace(api=other)
        return provider

    @cached_property
    def _litellm(self) -> "Bridge":
        from gptsh.llm.litellm_bridge import Bridge  # noqa: PLC0415 - few runs use litellm

        return Bridge(self._settings.network, self._environ)


def _mask_names(answer: Answer, provider: Provider) -> None:
    """Mask secrets in the ids and the model that the server reported: a gateway may repeat the key there."""
    for name in ("request_id", "response_id", "resolved_model"):
        if value := getattr(answer, name):
            setattr(answer, name, mask(value, provider.secrets))


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
    """The module of an API. Only that module is imported, since a run needs one."""
    match api:
        case "anthropic":
            from gptsh.llm import anthropic  # noqa: PLC0415

            return anthropic
        case "responses":
            from gptsh.llm import responses  # noqa: PLC0415

            return responses
        case "gemini":
            from gptsh.llm import gemini  # noqa: PLC0415

            return gemini
        case "ollama":
            from gptsh.llm import ollama  # noqa: PLC0415

            return ollama
    from gptsh.llm import chat  # noqa: PLC0415

    return chat
