"""Ask a model: choose the API, send the request, retry, and leave out fields that were refused."""

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Set
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

from gptsh.config.schema import mask
from gptsh.config.settings import Settings
from gptsh.content.answer import Answer
from gptsh.content.attachments import part_label
from gptsh.errors import GptshError, ModelError, NoAnswer
from gptsh.jsonio import JsonObject, parse_json
from gptsh.llm.servers import REASONING, OpenaiApis, RefusedFields, Routes, ServerCache, headers, raise_no_search
from gptsh.llm.stream import Api
from gptsh.messages import Event, Finished, Part, Request, Retrying, labelled_text, parts_of, text_of
from gptsh.models.facts import split_model
from gptsh.models.usage import usage_from
from gptsh.models.vendors import DIRECT, ApiName, Provider

if TYPE_CHECKING:
    from gptsh.llm.litellm_bridge import Bridge
    from gptsh.llm.model_lists import ModelLists
    from gptsh.llm.reports import OllamaModels, ServerReports, Windows


# ---- apis
#
# The APIs that gptsh speaks: the module of each is imported once a run needs it.


def api_of(provider: Provider) -> Api:
    """The module of a provider's API. Only that module is imported, since a run needs one."""
    name: ApiName = provider.api
    match name:
        case "anthropic":
            from gptsh.llm import anthropic

            return anthropic
        case "responses":
            from gptsh.llm import responses

            return responses
        case "gemini":
            from gptsh.llm import gemini

            return gemini
        case "ollama":
            from gptsh.llm import ollama

            return ollama
    from gptsh.llm import chat

    return chat


# ---- echo
#
# The built-in offline model ``echo``: ``You said: `` and the last question, word by word.


def echo_events(request: Request, answer: Answer) -> Iterator[Event]:
    """Write the answer and yield its events. A word counts as a token."""
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


# ---- client
#
# Ask a model: send a request by its API, again without what the server refuses, and yield the
# answer's events.
#
# ``Retries`` of ``failures.py`` decides about a retry after a temporary failure. ``turn/budget.py`` is the ``Budget``.
# A fallback is another request, for another model, and so one of ``turn/turn.py``.

_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-generation-id")
_MAX_PAUSES = 10  # how often a server may pause one answer
_COST = "x-litellm-response-cost"  # USD, from LiteLLM's proxy, for an answer that is not streamed


class Budget(Protocol):
    """Limits what requests cost."""

    @property
    def remaining(self) -> float | None:
        """USD that this turn may still spend; None without a limit for it."""

    def check(self, request: Request) -> None:
        """Raise TooExpensive if a request may cost too much."""

    def spending(self, request: Request, answer: Answer) -> contextlib.AbstractContextManager[None]:
        """Count the cost of a request, which is sent inside the block. Raises TooExpensive before it is."""


class Client:
    """Asks any configured model. ``deadline`` (``time.monotonic``) limits the pauses between retries.

    ``budget`` limits what requests cost.

    Without ``needs_keys`` it can only show requests to providers whose keys are missing. Without ``owns_process`` the
    log, the warnings and the streams of the process are left alone.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        keys: Mapping[str, str | None] | None = None,
        *,
        needs_keys: bool = True,
        owns_process: bool = True,
    ) -> None:
        """``keys`` are the ``keys`` of another client: a command that prints one is not run again."""
        self.deadline: float | None = None
        self.budget: Budget | None = None
        self._settings, self._environ, self._owns_process = settings, environ, owns_process
        self._routes = Routes(settings, environ, keys or {}, needs_keys=needs_keys)
        self._cache = ServerCache()
        self._refused = RefusedFields(self._cache)
        self._openai_apis = OpenaiApis(self._refused)

    @property
    def keys(self) -> Mapping[str, str | None]:
        """The keys of the providers that were prepared so far, by name."""
        return self._routes.keys

    # ---- facts about models

    @cached_property
    def windows(self) -> "Windows":
        """The context windows of models."""
        from gptsh.llm.reports import Windows

        return Windows(self._settings, self._reports, self._cache, self._ollama)

    @cached_property
    def model_lists(self) -> "ModelLists":
        """The models that servers list."""
        from gptsh.llm.model_lists import ModelLists

        return ModelLists(self._settings, self._reports, self._cache, self._ollama)

    def full_name(self, model: str) -> str:
        """Add the provider ``ollama`` to a bare model name that the local Ollama server lists."""
        is_known = split_model(model)[0] is not None
        return model if is_known else self.model_lists.full_name(model)

    def can(self, model: str, ability: str) -> bool | None:
        """Whether a model has ``vision``, ``pdf_input``, …; None: unknown. Ollama is asked. Raises ConfigError."""
        from gptsh.llm.reports import has_ability

        return has_ability(self._settings.providers.for_model(model), ability, self._ollama)

    def refused_images(self, model: str) -> frozenset[str]:
        """The digests of the images that a model's server has refused, for a day. Raises ConfigError."""
        return frozenset(self._cache.entry(self._settings.providers.for_model(model)).get("images", ()))

    def remember_refused_images(self, model: str, digests: Set[str]) -> None:
        """Remember images that a model's server has refused. Raises ConfigError."""
        images = self.refused_images(model) | digests
        self._cache.entry(self._settings.providers.for_model(model))["images"] = sorted(images)
        self._cache.save()

    def ending_note(self, model: str) -> str | None:
        """A line about a model's end that is near or just over, once a day; None if there is none, or it is unknown."""
        from gptsh.llm.servers import ending_note

        return ending_note(model, self._settings.providers.for_model(model), self._cache)

    # ---- before anything is saved or sent

    def prepare(self, model: str, params: Mapping[str, object], *, web: bool = False) -> list[str]:
        """Determine the API and the key for a model. Raises ConfigError, also for ``web`` without such a search.

        Returns what is not sent as the user asked, each in words that follow the model's name.
        """
        provider = self._provider_for(model, params, web=web)
        if provider.api == "litellm":
            self._litellm.preload()
        if not params:
            return []
        from gptsh.models.accepted_parameters import adaptations

        return adaptations(params, provider, self._refused.of(provider))

    def connect_early(self, model: str, params: Mapping[str, object]) -> None:
        """Open the connection for a model's next request while the request is still being made. Raises as ``prepare``.

        Nothing is sent. A failure is reported with the request.
        """
        provider = self._provider_for(model, params)
        if provider.api in DIRECT:
            self._routes.http.connect_early(provider.base_url)

    def accepts(self, model: str, part: Part) -> bool:
        """Whether a model's API can carry this part, which is not text; the model may still lack the ability."""
        provider = self._settings.providers.for_model(model)
        return provider.api == "echo" or api_of(provider).accepts(part, provider)

    def api(self, request: Request) -> ApiName:
        """The API for a request. Raises as ``prepare``."""
        return self._provider_for(request.model, request.params, web=request.web).api

    def preview(self, request: Request) -> JsonObject:
        """The request as ``ask`` would send it, with keys and other secrets masked. Raises as ``prepare``."""
        provider = self._provider_for(request.model, request.params, web=request.web)
        if provider.api == "echo":
            return {"messages": request.messages}
        from gptsh.llm import keys

        if provider.api == "litellm":
            from gptsh.llm.litellm_bridge import arguments

            return {"call": keys.without_secret_parameters(arguments(request, provider, self._settings.network))}
        from gptsh.llm.stream import encode, load

        api = api_of(provider)
        body = load(encode(api.body(request, provider, self._refused.of(provider), self._ollama_of(provider))))
        return {
            "method": "POST",
            "url": f"{provider.base_url}{api.path(request, provider)}",
            "headers": headers(provider, mask_values=True),
            "body": keys.without_secret_parameters(body),
        }

    # ---- asking

    def ask(self, request: Request, answer: Answer, *, may_retry: bool = True) -> Iterator[Event]:
        """Write the model's answer into ``answer`` and yield its events. Before the first one, retry what is temporary.

        Raises ModelError, TimedOut, and ConfigError as ``prepare``; TooExpensive if ``budget`` does not allow it.
        """
        with self.budget.spending(request, answer) if self.budget else contextlib.nullcontext():
            yield from self._ask(request, answer, may_retry=may_retry)

    def _ask(self, request: Request, answer: Answer, *, may_retry: bool) -> Iterator[Event]:
        """As ``ask``, without the budget. No error shows a secret."""
        provider = self._provider_for(request.model, request.params, web=request.web)
        try:
            yield from self._try(request, provider, answer, may_retry=may_retry)
        except GptshError as err:
            from gptsh.llm.keys import without_secrets

            raise without_secrets(err, provider.secrets)  # noqa: B904 - it is the same error

    def _try(self, request: Request, provider: Provider, answer: Answer, *, may_retry: bool) -> Iterator[Event]:
        """Send the request, each time in another way or after a pause, until an answer begins; then yield it."""
        retries = None
        left_out: set[str] = set()  # what the server has refused of this request
        answer.mask = partial(mask, secrets=provider.secrets)
        while True:
            answer.clear(reads_think_tags=provider.reads_think_tags)
            answer.reasoning_refused = bool(left_out & REASONING)
            try:
                events = self._events(request, provider, answer, left_out)
                first = next(events)  # raises if an overloaded server reports that inside the stream
                break
            except NoAnswer:
                # llama.cpp answers a prompt that is too long with an empty stream; without streaming it refuses it.
                if not request.stream:
                    raise
                request = request._replace(stream=False)
            except ModelError as err:
                new = self._refused.refused_by(err, request, provider, left_out, api_of(provider))
                new = new or self._openai_apis.refused_by(err, provider, left_out)
                if new:
                    left_out |= new
                    provider = self._provider_for(request.model, request.params, web=request.web, left_out=left_out)
                    continue
                if not may_retry:
                    raise
                from gptsh.llm.failures import Retries
                from gptsh.llm.keys import without_secrets

                retries = retries or Retries(self._settings.network, self.deadline)
                pause = retries.next_pause(err)
                if pause is None:
                    raise
                yield Retrying(pause, str(without_secrets(err, provider.secrets)))
                time.sleep(pause)
        self._refused.remember(provider, left_out)
        yield first
        try:
            yield from events
        finally:
            self._cache.save()  # only after a server has answered

    def _events(self, request: Request, provider: Provider, answer: Answer, left_out: Set[str]) -> Iterator[Event]:
        """Send the request once and yield the events of its answer."""
        if provider.api == "echo":
            yield from echo_events(request, answer)
        elif provider.api == "litellm":
            yield from self._litellm.read(request, provider, answer)
        else:
            api, refusals = api_of(provider), self._refused.of(provider) | left_out
            body = api.body(request, provider, refusals, self._ollama_of(provider))
            url = f"{provider.base_url}{api.path(request, provider)}"
            send = self._continued_answer if provider.api == "anthropic" else self._answer
            yield from send(url, body, provider, answer, keeps=bool(request.tools))

    def _continued_answer(
        self,
        url: str,
        body: JsonObject,
        provider: Provider,
        answer: Answer,
        *,
        keeps: bool,
    ) -> Iterator[Event]:
        """As ``_answer``; whenever Anthropic's server pauses the answer, ask it to continue."""
        from gptsh.llm.anthropic import continuation, prefix
        from gptsh.llm.anthropic_answers import PAUSED

        sent = body
        for number in range(_MAX_PAUSES + 1):
            may_continue = number < _MAX_PAUSES
            for event in self._answer(url, sent, provider, answer, keeps=keeps):
                is_pause = event == Finished(PAUSED)
                if not (is_pause and may_continue):
                    yield event
            if answer.has_thinking and answer.prefix is None:
                answer.prefix = prefix(body)
            if answer.finish_reason != PAUSED or not may_continue:
                return
            answer.resume()
            sent = continuation(body, answer)

    def _answer(
        self,
        url: str,
        body: Mapping[str, object],
        provider: Provider,
        answer: Answer,
        *,
        keeps: bool,
    ) -> Iterator[Event]:
        """Send one body and yield the events of its answer; ``keeps`` the connection for the next request."""
        from gptsh.llm.stream import encode

        response = self._routes.http.send(
            url, encode(body), headers(provider), is_own_server=provider.is_own_server, keeps=keeps
        )
        try:
            if response.status != 200:  # OK
                from gptsh.llm.failures import refusal

                raise refusal(response.url, response.status, response.headers, response.small_body(), provider)
            request_ids = [response.headers.get(name) for name in _REQUEST_IDS]
            answer.request_id = next(filter(None, request_ids), None)
            yield from api_of(provider).read(response, provider, answer, self._ollama_of(provider))
            if answer.usage and _COST in response.headers:
                with contextlib.suppress(ValueError):
                    answer.usage["raw"].setdefault("cost", parse_json(response.headers[_COST]))
            response.release()
        except BaseException:  # also a signal, or a reader that left
            response.close()
            raise

    def _provider_for(
        self,
        model: str,
        params: Mapping[str, object],
        *,
        web: bool = False,
        left_out: Set[str] = frozenset(),
    ) -> Provider:
        """The provider of a model with the API that its server has, as far as that is known."""
        provider = self._routes.of(model, params, web=web)
        api = self._openai_apis.choose(provider, left_out)
        if web and api != provider.api:  # it has the search in that API alone
            raise_no_search(model)
        return provider._replace(api=api)

    @cached_property
    def _reports(self) -> "ServerReports":
        from gptsh.llm.reports import ServerReports

        return ServerReports(self._routes, self._cache)

    @cached_property
    def _ollama(self) -> "OllamaModels":
        from gptsh.llm.reports import OllamaModels

        return OllamaModels(self._reports, self._cache)

    def _ollama_of(self, provider: Provider) -> "OllamaModels | None":
        """Ollama's models, for a request to Ollama."""
        return self._ollama if provider.api == "ollama" else None

    @cached_property
    def _litellm(self) -> "Bridge":
        from gptsh.llm.litellm_bridge import Bridge

        return Bridge(self._settings.network, self._environ, owns_process=self._owns_process)
