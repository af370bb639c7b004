"""Asking a model: by which transport, with which key, and when to try again."""

import json
import random
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gptsh.core.messages import Event, Retrying
from gptsh.core.models import split_model
from gptsh.core.providers import LOCAL, Wire
from gptsh.core.settings import Provider, Secret, Settings, provider_of
from gptsh.core.turn import Request
from gptsh.errors import ConfigError, GptshError, ModelError
from gptsh.llm import echo, failures, parameters, routes
from gptsh.llm.routes import Route

if TYPE_CHECKING:
    from gptsh.llm.direct import Direct
    from gptsh.llm.http import Http
    from gptsh.llm.litellm_bridge import Bridge

BACKOFF = (0.5, 2.0)  # seconds before the first and every later retry, with jitter
LONGEST_RETRY_AFTER = 30.0  # seconds; a server that wants a longer pause is not waited for
PROBE_TIMEOUT = 0.3  # seconds for a local server to say that it is there

Open = Callable[[Request, Route], Iterator[Event]]


class Client:
    """Asks any model that the settings can reach. ``deadline`` (``time.monotonic``) bounds the pauses of retries."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], deadline: float | None = None) -> None:
        self._settings, self._environ, self._deadline = settings, environ, deadline
        self._routes: dict[tuple[str, bool], Route] = {}
        self._keys: dict[str, Secret | None] = {}
        self._http: Http | None = None
        self._direct: Direct | None = None
        self._bridge: Bridge | None = None

    # ---- before anything is saved or sent

    def warm(self, model: str) -> None:
        """Begin to load what asking this model takes seconds to load. A model that cannot be reached is no failure."""
        try:
            provider, name = provider_of(self._settings, model)
        except ConfigError:
            return
        if routes.wire_for(provider, name, {}) == "litellm":
            self._litellm().warm()

    def prepare(self, model: str, params: Mapping[str, Any]) -> list[str]:
        """Settle where the model is, by which way and with which key it is asked.

        Returns the names of the parameters that it would refuse and that are therefore not sent. Raises ConfigError
        for an unknown provider, a missing key, a bad URL, proxy or CA bundle.
        """
        route = self._route(model, params)
        if route.wire == "litellm":
            self._litellm().warm()
        return parameters.fit(params, route.provider.name, route.model, route.provider.endpoint).left_out

    def _route(self, model: str, params: Mapping[str, Any]) -> Route:
        known = (model, bool(params.get("tools")))
        if known not in self._routes:
            provider, name = provider_of(self._settings, model)
            wire = routes.wire_for(provider, name, params)
            self._routes[known] = self._checked(provider, name, wire) if wire != "echo" else Route(provider, name, wire)
        return self._routes[known]

    def _checked(self, provider: Provider, name: str, wire: Wire) -> Route:
        key = self._key(provider)
        if wire == "litellm":
            return routes.route(provider, name, wire, key, ())
        from gptsh.llm.http import proxy_secrets  # noqa: PLC0415 - as in ``_wire``

        route = routes.route(provider, name, wire, key, proxy_secrets(self._environ))
        try:
            self._wire().manager(route.url)
        except GptshError as err:
            raise failures.without_secrets(err, route.secrets)  # noqa: B904 - it is the same error
        return route

    def _key(self, provider: Provider) -> Secret | None:
        if provider.name not in self._keys:  # a command that asks for a passphrase runs once
            self._keys[provider.name] = routes.key_for(provider)
        return self._keys[provider.name]

    def named(self, model: str) -> str:
        """The model with its provider: a bare name that is nobody's may be one that Ollama has here."""
        provider = self._settings.providers.get("ollama")
        if provider is None or split_model(model)[0] is not None:
            return model
        served = {listed["id"] for listed in self.served_models(provider, PROBE_TIMEOUT)}
        return f"ollama/{model}" if served & {model, f"{model}:latest"} else model

    def local_models(self) -> list[str]:
        """One model of each local server that answers, as ``-m`` takes it."""
        found = []
        for name in LOCAL:
            provider = self._settings.providers.get(name)
            served = self.served_models(provider, PROBE_TIMEOUT) if provider else []
            found += [f"{name}/{model['id']}" for model in served[:1]]
        return found

    def served_models(self, provider: Provider, seconds: float) -> list[dict[str, Any]]:
        """What a server lists under ``/models``, each with at least its ``id``; nothing where it does not answer."""
        try:
            headers = routes.route(provider, "", "chat", self._key(provider), ()).headers
            payload: Any = json.loads(self._wire().get(f"{provider.base_url}/models", seconds, headers))
        except (GptshError, ValueError, RecursionError):
            return []
        models = payload.get("data") if isinstance(payload, dict) else payload
        listed = models if isinstance(models, list) else []
        return [model for model in listed if isinstance(model, dict) and isinstance(model.get("id"), str)]

    # ---- asking

    def ask(self, request: Request) -> Iterator[Event]:
        """Ask the model of ``request``; the events of its answer as they come.

        Raises ModelError or TimedOut, also in mid-answer, and ConfigError as ``prepare``.
        """
        route = self._route(request.model, request.params)
        try:
            yield from (yield from self._open(request, route, self._transport(route)))
        except GptshError as err:
            raise failures.without_secrets(err, route.secrets)  # noqa: B904 - it is the same error

    def _transport(self, route: Route) -> Open:
        if route.wire == "echo":
            return echo.open_echo
        if route.wire == "litellm":
            return self._litellm().open
        from gptsh.llm.direct import Direct  # noqa: PLC0415 - as in ``_wire``

        self._direct = self._direct or Direct(self._wire())
        return self._direct.open

    def _litellm(self) -> "Bridge":
        from gptsh.llm.litellm_bridge import Bridge  # noqa: PLC0415 - few runs need it

        self._bridge = self._bridge or Bridge(self._settings.network)
        return self._bridge

    def _wire(self) -> "Http":
        from gptsh.llm.http import Http  # noqa: PLC0415 - 50 ms that echo and every other job do without

        self._http = self._http or Http(self._settings.network, self._environ)
        return self._http

    def _open(self, request: Request, route: Route, transport: Open) -> Generator[Event, None, Iterator[Event]]:
        """The answer's events once the request is accepted; retried before the first byte only."""
        for attempt in range(self._settings.network.retries + 1):
            try:
                return transport(request, route)
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
