"""Ask a model: choose its API, send the request, retry, leave out what was refused."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Set
from datetime import date
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

from gptsh.config.accounts import Target
from gptsh.config.schema import mask
from gptsh.config.settings import Settings
from gptsh.content.answer import Answer
from gptsh.errors import GptshError, ModelError, NoAnswer
from gptsh.jsonio import JsonObject, as_dict, parse_json
from gptsh.llm.servers import REASONING, Servers, headers, without_secret_parameters
from gptsh.llm.stream import Api, encode, load, make_body, read_response
from gptsh.messages import (
    Event,
    Part,
    Request,
    Retrying,
    Usage,
    token_count,
)
from gptsh.models.facts import exact_facts, split_model
from gptsh.models.vendors import DIRECT, ApiName

if TYPE_CHECKING:
    from gptsh.llm.litellm_bridge import Bridge
    from gptsh.llm.model_lists import ModelLists
    from gptsh.llm.reports import ServerReports, Windows


# ---- apis


def api_of(target: Target) -> Api:
    """Return the module of a target's API. Only that module is imported, since a run needs one."""
    match target.api:
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


# ---- client

_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-generation-id")
_COST = "x-litellm-response-cost"  # USD, from LiteLLM's proxy, for an answer that is not streamed
_NEAR_END = 60  # days from a model's end
# Names of the limit of an answer: at the top of a request, or in Google's or Ollama's ``options``.
_LIMITS = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxOutputTokens",
    "num_predict",
)


def _limit_in(body: Mapping[str, object]) -> int | None:
    """Return the most tokens that a request allows its answer; None if it has no limit.

    Return None also for several answers, because their usage is that of all.
    """
    config = as_dict(body.get("generationConfig"))
    for count in (body.get("n"), config.get("candidateCount")):
        if (token_count(count) or 1) > 1:
            return None
    for fields in (body, config, as_dict(body.get("options"))):
        for name in _LIMITS:
            limit = token_count(fields.get(name))
            if limit:
                return limit
    return None


def _request_id_in(fields: Mapping[str, str]) -> str | None:
    """Return the id that a server gave a request, in the headers of its response."""
    for name in _REQUEST_IDS:
        if fields.get(name):
            return fields[name]
    return None


class CostLimit(Protocol):
    """Limits what requests cost; ``turn/budget.py`` has one."""

    @property
    def remaining(self) -> float | None:
        """USD that this turn may still spend; None without a limit for it."""

    def check(self, request: Request) -> None:
        """Raise TooExpensive if a request may cost too much."""

    def spending(self, request: Request, answer: Answer) -> contextlib.AbstractContextManager[None]:
        """Count the cost of a request, which is sent inside the block.

        Raises TooExpensive before it is.
        """


class Client:
    """Asks any configured model.

    ``deadline`` (``time.monotonic``) limits the pauses between retries, ``budget`` what requests
    cost.

    If ``needs_keys`` is false, it can only show requests to providers whose keys are missing. If
    ``owns_process`` is false, the log, the warnings and the streams of the process are left alone.
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
        """``keys`` are those of another client: a command that prints one is not run again."""
        self.deadline: float | None = None
        self.budget: CostLimit | None = None
        self.usages: list[tuple[str, Usage]] = []  # of all answers so far, each with its model
        self._settings = settings
        self._environ = environ
        self._owns_process = owns_process
        self._servers = Servers(settings, environ, keys or {}, needs_keys=needs_keys)
        self._cache = self._servers.cache
        self.keys: Mapping[str, str | None] = self._servers.keys  # those used so far, by provider

    # ---- facts about models

    @cached_property
    def windows(self) -> "Windows":
        """The context windows of models."""
        from gptsh.llm.reports import Windows

        return Windows(self._settings, self._reports)

    @cached_property
    def model_lists(self) -> "ModelLists":
        """The models that servers list."""
        from gptsh.llm.model_lists import ModelLists

        return ModelLists(self._settings, self._reports)

    def full_name(self, model: str) -> str:
        """Add the provider ``ollama`` to a bare model name that the local Ollama server lists."""
        is_known = split_model(model)[0] is not None
        return model if is_known else self.model_lists.full_name(model)

    def can(self, model: str, ability: str) -> bool | None:
        """Return whether a model has ``vision``, ``pdf_input``, …; None: unknown.

        Ollama is asked. Raises ConfigError.
        """
        from gptsh.llm.reports import has_ability

        return has_ability(self._settings.providers.for_model(model), ability, self._reports)

    def refused_images(self, model: str) -> frozenset[str]:
        """Return the digests of the images that a model's server has refused, for a day.

        Raises ConfigError.
        """
        target = self._settings.providers.for_model(model)
        return frozenset(self._cache.entry(target).get("images", ()))

    def remember_refused_images(self, model: str, digests: Set[str]) -> None:
        """Remember images that a model's server has refused. Raises ConfigError."""
        entry = self._cache.entry(self._settings.providers.for_model(model))
        entry["images"] = sorted({*digests, *entry.get("images", ())})
        self._cache.save()

    def ending_note(self, model: str) -> str | None:
        """Return a line about a model's end that is near or just over, once a day; else None."""
        target = self._settings.providers.for_model(model)
        if target.api not in DIRECT or target.is_self_hosted:
            return None
        end = exact_facts(target.provider, target.model).entry.get("deprecation_date")
        try:
            days_left = (date.fromisoformat(str(end)) - date.today()).days
        except ValueError:
            return None
        entry = self._cache.entry(target)
        if abs(days_left) > _NEAR_END or "end_noted" in entry:
            return None
        entry["end_noted"] = True
        self._cache.save()
        what = "will be retired" if days_left >= 0 else "was due to be retired"
        return f"{model} {what} on {end}; choose another model with -m"

    # ---- before anything is saved or sent

    def prepare(self, model: str, params: Mapping[str, object], *, web: bool = False) -> list[str]:
        """Determine the API and the key for a model.

        Returns what is not sent as the user asked, each in words that follow the model's name.
        Raises ConfigError, also for ``web`` without such a search.
        """
        target = self._servers.target(Request(model, [], {**params}, web=web))
        if target.api == "litellm":
            self._litellm.preload()
        if not params:
            return []
        from gptsh.llm.parameters import adaptations

        return adaptations(params, target)

    def connect_early(self, model: str, params: Mapping[str, object]) -> None:
        """Open a secure connection for a model's next request, while the request is being made.

        Others are opened at once, and a small local server may serve only one at a time. Nothing is
        sent. A failure is reported with the request. Raises as ``prepare``.
        """
        target = self._servers.target(Request(model, [], {**params}))
        base_url = target.account.base_url
        if target.api in DIRECT and base_url.startswith("https:"):
            self._servers.http().connect_early(base_url)

    def accepts(self, model: str, part: Part) -> bool:
        """Return whether a model's API can carry this part, which is not text.

        The model itself may still not be able to read it.
        """
        target = self._settings.providers.for_model(model)
        return target.api == "echo" or api_of(target).accepts(part, target)

    def api(self, request: Request) -> ApiName:
        """Return the API for a request. Raises as ``prepare``."""
        return self._servers.target(request).api

    def preview(self, request: Request) -> JsonObject:
        """Return the request as ``ask`` would send it, with keys and other secrets masked.

        Raises as ``prepare``.
        """
        target = self._servers.target(request)
        if target.api == "echo":
            return {"messages": request.messages}
        if target.api == "litellm":
            from gptsh.llm.litellm_bridge import arguments

            call = arguments(request, target, self._settings.network)
            return {"call": without_secret_parameters(call)}
        body = load(encode(self._body(request, target)))
        return {
            "method": "POST",
            "url": target.account.base_url + api_of(target).path(target),
            "headers": headers(target.account, mask_values=True),
            "body": without_secret_parameters(body),
        }

    # ---- asking

    def ask(self, request: Request, answer: Answer, *, may_retry: bool = True) -> Iterator[Event]:
        """Write the model's answer into ``answer`` and yield its events.

        Before the first one, retry what is temporary. Raises ModelError, TimedOut, and ConfigError
        as ``prepare``; TooExpensive if ``budget`` does not allow it. No error shows a secret.
        """
        budget = self.budget
        with budget.spending(request, answer) if budget else contextlib.nullcontext():
            target = self._servers.target(request)
            answer.mask = partial(mask, secrets=target.secrets)
            try:
                yield from self._ask(request, target, answer, may_retry=may_retry)
            except GptshError as err:
                from gptsh.llm.failures import without_secrets

                raise without_secrets(err, target.secrets)  # noqa: B904 - it is the same error
            finally:
                if answer.usage:
                    self.usages.append((request.model, answer.usage))

    def _ask(
        self,
        request: Request,
        target: Target,
        answer: Answer,
        *,
        may_retry: bool,
    ) -> Iterator[Event]:
        """Send the request, each time in another way or after a pause, until an answer begins."""
        retries = None
        refused: set[str] = set()  # what the server has refused of this request
        while True:
            answer.clear(reads_think_tags=target.reads_think_tags)
            answer.reasoning_refused = bool(refused & REASONING)
            try:
                events = self._send(request, target, answer)
                first = next(events)  # raises if a server reports an overload inside the stream
                break
            except NoAnswer:
                # llama.cpp answers a prompt that is too long with an empty stream; without
                # streaming it refuses it.
                if not request.stream:
                    raise
                request = request._replace(stream=False)
            except ModelError as err:
                from gptsh.llm.failures import without_secrets
                from gptsh.llm.refusals import refused_by
                from gptsh.llm.retries import Retries

                new = refused_by(err, request, target, api_of(target))
                if new:
                    refused |= new
                    target = self._servers.target(request, refused)
                    continue
                if not may_retry:
                    raise
                retries = retries or Retries(self._settings.network, self.deadline)
                decision = retries.decide(err)
                if decision.advice:
                    err.args = (str(err).rstrip(" ."), decision.advice)
                if decision.pause is None:
                    raise
                yield Retrying(decision.pause, str(without_secrets(err, target.secrets)))
                time.sleep(decision.pause)

        if refused:
            self._cache.remember_refusals(target, refused)  # only now: without them it was answered
        yield first
        try:
            yield from events
        finally:
            self._cache.save()  # only after a server has answered

    def _send(self, request: Request, target: Target, answer: Answer) -> Iterator[Event]:
        """Send the request once and yield the events of its answer."""
        if target.api == "echo":
            from gptsh.llm.echo import echo_events

            return echo_events(request, answer)
        if target.api == "litellm":
            answer.limit = _limit_in(request.params)
            return self._litellm.read(request, target, answer)
        body = self._body(request, target)
        answer.limit = _limit_in(body)
        send = partial(self._post, target=target, answer=answer, keeps=bool(request.tools))
        if target.api == "anthropic":
            from gptsh.llm.anthropic import read_to_end

            return read_to_end(body, answer, send)
        return send(body)

    def _body(self, request: Request, target: Target) -> JsonObject:
        """Return the body of a request.

        A server of Ollama may be asked how it has loaded the model.
        """
        if target.api == "ollama":
            request = self._reports.with_window(request, target)
        return make_body(api_of(target), request, target)

    def _post(
        self,
        body: JsonObject,
        target: Target,
        answer: Answer,
        *,
        keeps: bool,
    ) -> Iterator[Event]:
        """Post one body and yield the events of its answer.

        If ``keeps`` is true, the connection stays open for the next request.
        """
        api = api_of(target)
        url = target.account.base_url + api.path(target)
        response = self._servers.http().send(
            url,
            encode(body),
            headers(target.account),
            is_self_hosted=target.is_self_hosted,
            keeps=keeps,
        )
        try:
            if response.status != 200:  # OK
                from gptsh.llm.failures import refusal

                beginning = response.small_body()
                raise refusal(url, response.status, response.headers, beginning, target)
            answer.request_id = _request_id_in(response.headers)
            yield from read_response(response, api.Reader(answer))
            if target.api == "ollama":
                self._reports.note_window(answer, target)
            if answer.usage and answer.usage["raw"].get("cost") is None:
                with contextlib.suppress(ValueError, KeyError):
                    answer.usage["raw"]["cost"] = parse_json(response.headers[_COST])
            response.release()
        except BaseException:  # also a signal, or a reader that left
            response.close()
            raise

    def end_turn(self) -> None:
        """Close the connections that were kept for further requests of a turn."""
        connections = self._servers.connections
        if connections:
            connections.close_kept()

    @cached_property
    def _reports(self) -> "ServerReports":
        from gptsh.llm.reports import ServerReports

        return ServerReports(self._servers)

    @cached_property
    def _litellm(self) -> "Bridge":
        from gptsh.llm.litellm_bridge import Bridge

        return Bridge(self._settings.network, self._environ, owns_process=self._owns_process)
