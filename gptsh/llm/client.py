"""Asking a model: by which transport, with which key, and when to try again."""

import json
import random
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gptsh.config.providers import Provider
from gptsh.config.secret import Secret
from gptsh.config.settings import Settings
from gptsh.content.answer import Answer, Request
from gptsh.errors import ConfigError, GptshError, ModelError
from gptsh.llm import echo, failures, parameters, routes, windows
from gptsh.llm.ollama_models import Models
from gptsh.llm.routes import Route
from gptsh.llm.windows import Fetch
from gptsh.messages import Event, Part, Retrying
from gptsh.models.facts import facts, split_model
from gptsh.models.providers import LOCAL, NO_SHAPE, Wire

if TYPE_CHECKING:
    from gptsh.llm.direct import Dialect, Direct
    from gptsh.llm.http import Http
    from gptsh.llm.litellm_bridge import Bridge

BACKOFF = (0.5, 2.0)  # seconds before the first and every later retry, with jitter
LONGEST_RETRY_AFTER = 30.0  # seconds; a server that wants a longer pause is not waited for
PROBE_TIMEOUT = 0.3  # seconds for a local server to say that it is there, and for any to tell a window

_PROBED = 1 << 22  # bytes that are read for that: they are parsed when the time is over
_ANYWHERE = "https://litellm.invalid"  # only litellm knows where the provider is
# What says how servers are reached, and must be checked before anything is saved.
_UNUSUAL = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR"}

Open = Callable[[Request, Route, Answer], Iterator[Event]]


class Client:
    """Asks any model that the settings can reach. ``deadline`` (``time.monotonic``) bounds the pauses of retries."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self.deadline: float | None = None
        self._settings, self._environ = settings, environ
        self._routes: dict[tuple[str, Wire], Route] = {}
        self._keys: dict[str, Secret | None] = {}
        self._windows: dict[tuple[str, str], int | None] = {}  # by base URL and model; None: it does not tell
        self._refused: dict[tuple[str, str], int] = {}  # by the same: the windows that refusals have told
        self._ollama = Models(self._probe)
        self._http: Http | None = None
        self._directs: dict[Wire, Direct] = {}
        self._bridge: Bridge | None = None

    # ---- before anything is saved or sent

    def warm(self, model: str) -> None:
        """Begin to load what asking this model takes seconds to load. A model that cannot be reached is no failure."""
        try:
            provider, name = self._settings.providers.of(model)
        except ConfigError:
            return
        if routes.wire_for(provider, name, {}) == "litellm":
            self._litellm().warm()

    def prepare(self, model: str, params: Mapping[str, Any], *, tools: bool = False) -> list[str]:
        """Settle where the model is, by which way and with which key it is asked, with tools or without.

        Returns the parameters, in words, that it would refuse and that are therefore not sent. Raises ConfigError
        for an unknown provider, a missing key, a bad URL, proxy or CA bundle.
        """
        route = self._route(model, params, tools=tools)
        if route.wire == "litellm":
            self._litellm().warm()
        return parameters.fit(params, route.provider.name, route.model, route.provider.endpoint).left_out

    def _route_of(self, request: Request) -> Route:
        return self._route(request.model, request.params, tools=bool(request.tools))

    def _route(self, model: str, params: Mapping[str, Any], *, tools: bool) -> Route:
        provider, name = self._settings.providers.of(model)
        wire = routes.wire_for(provider, name, params, tools=tools)
        if (model, wire) not in self._routes:
            checked = self._checked(provider, name, wire) if wire != "echo" else Route(provider, name, wire)
            self._routes[model, wire] = checked
        return self._routes[model, wire]

    def _checked(self, provider: Provider, name: str, wire: Wire) -> Route:
        key = self._key(provider)
        others = routes.secrets_in(self._environ) if wire == "litellm" else set()
        if wire == "litellm" and not _UNUSUAL & {variable.upper() for variable in self._environ}:
            return routes.route(provider, name, wire, key, others)
        from gptsh.llm.http import proxy_secrets  # noqa: PLC0415 - as in ``_wire``

        route = routes.route(provider, name, wire, key, others | proxy_secrets(self._environ))
        try:
            self._wire().manager(provider.base_url or _ANYWHERE)
        except GptshError as err:
            raise failures.without_secrets(err, route.secrets)  # noqa: B904 - it is the same error
        return route

    def _key(self, provider: Provider) -> Secret | None:
        if provider.name not in self._keys:  # a command that asks for a passphrase runs once
            self._keys[provider.name] = routes.key_for(provider)
        return self._keys[provider.name]

    def named(self, model: str) -> str:
        """The model with its provider, where that depends on what is here.

        A bare name that is nobody's may be one that Ollama has.
        """
        owner, provider = split_model(model)[0], self._settings.providers.get("ollama")
        if owner is not None or provider is None:
            return model
        served = {listed["id"] for listed in self._here(provider)}
        return f"ollama/{model}" if served & {model, f"{model}:latest"} else model

    def local_models(self) -> list[str]:
        """One model of each local server that answers, as ``-m`` takes it."""
        found = []
        for name in LOCAL:
            provider = self._settings.providers.get(name)
            found += [f"{name}/{model['id']}" for model in self._here(provider)[:1]] if provider else []
        return found

    def _here(self, provider: Provider) -> list[dict[str, Any]]:
        """What a server on this machine lists; nothing where none answers at once."""
        try:
            return self.served_models(provider, PROBE_TIMEOUT, _PROBED)
        except GptshError:
            return []

    def served_models(self, provider: Provider, seconds: float, most: int | None = None) -> list[dict[str, Any]]:
        """What a server lists under ``/models``, each with its ``id``, in ``seconds`` and ``most`` bytes.

        Raises GptshError where it does not tell.
        """
        route = routes.route(provider, "", provider.wire, self._key(provider), ())
        try:
            listed = self._wire().fetch(windows.models_url(provider), seconds, route.headers, most=most)
            payload = json.loads(listed)
        except (ValueError, RecursionError) as err:
            raise ModelError(f"{provider.name} does not list its models") from err
        except GptshError as err:
            raise failures.without_secrets(err, route.secrets)  # noqa: B904 - it is the same error
        return windows.entries(payload)

    def window(self, model: str, *, ask: bool) -> int | None:
        """Tokens that a prompt may have: as configured, else as the server says, else as the packaged table has it.

        At most what was learned. ``ask``: a server that can tell may be asked, for PROBE_TIMEOUT at most, once. None
        where nobody knows. Raises ConfigError for a name that cannot be routed.
        """
        provider, name = self._settings.providers.of(model)
        sizes = self._known_window(provider, name, ask=ask), self._refused.get((provider.base_url, name))
        return min(filter(None, sizes), default=None)

    def learn(self, model: str, window: int) -> None:
        """Never tell more tokens than these as the window of a model: a refusal has named them.

        Raises ConfigError as ``window``.
        """
        provider, name = self._settings.providers.of(model)
        place = provider.base_url, name
        self._refused[place] = min(window, self._refused.get(place, window))

    def _known_window(self, provider: Provider, name: str, *, ask: bool) -> int | None:
        place = provider.base_url, name
        if provider.context_window:
            return provider.context_window
        if ask and place not in self._windows and windows.can_tell(provider):
            self._windows[place] = self._told_window(provider, name)
        if told := self._windows.get(place):
            return told
        # How a local server was started no table knows, and the packaged one is wrong about Ollama's models.
        return None if provider.name in LOCAL else facts(provider.name, name).window

    def can(self, model: str, ability: str) -> bool | None:
        """Whether a model has ``vision``, ``pdf_input``, ``audio_input`` or ``function_calling``; None: nobody knows.

        Of Ollama's models the server is asked, for PROBE_TIMEOUT at most, once. Raises ConfigError for a name that
        cannot be routed.
        """
        provider, name = self._settings.providers.of(model)
        if any(ability in NO_SHAPE.get(wire, ()) for wire in (provider.wire, provider.name)):
            return False
        if provider.wire == "ollama":
            return self._ollama.can(provider, name, ability)
        return facts(provider.name, name).can(ability)

    def takes(self, model: str, part: Part) -> bool:
        """Whether a question can carry such a part, which is no text, to a model; what that can is another matter."""
        provider, _ = self._settings.providers.of(model)
        if provider.wire == "anthropic":
            from gptsh.llm import anthropic_content  # noqa: PLC0415 - few questions carry anything

            return anthropic_content.takes(part)
        if provider.wire == "ollama":
            from gptsh.llm import ollama  # noqa: PLC0415 - the same

            return ollama.takes(part)
        from gptsh.content import openai_parts  # noqa: PLC0415 - the same

        return provider.wire == "echo" or openai_parts.takes(part, provider.endpoint.parts)

    def _told_window(self, provider: Provider, name: str) -> int | None:
        """What the server says in time."""
        if provider.wire == "ollama":
            return self._ollama.window(provider, name)
        return windows.ask_window(provider, name, self._probe(provider))

    def _probe(self, provider: Provider) -> Fetch:
        """What gets documents of a server, all of them in PROBE_TIMEOUT. That one does not come is no failure."""
        http = self._wire()
        try:
            headers = routes.route(provider, "", provider.wire, self._key(provider), ()).headers
        except ConfigError:  # no key
            return lambda _url, _body: None
        until = time.monotonic() + PROBE_TIMEOUT

        def fetch(url: str, body: Mapping[str, Any] | None) -> Any:
            left = until - time.monotonic()
            if left <= 0:
                return None
            try:
                posted = json.dumps(body).encode() if body else None
                return json.loads(http.fetch(url, left, headers, posted, most=_PROBED))
            except (GptshError, ValueError, RecursionError):
                return None

        return fetch

    # ---- asking

    def ask(self, request: Request, answer: Answer) -> Iterator[Event]:
        """Ask the model of ``request``; what is seen of its ``answer`` as it comes.

        Raises ModelError or TimedOut, also in mid-answer, and ConfigError as ``prepare``.
        """
        route = self._route_of(request)
        try:
            yield from (yield from self._open(request, route, answer, self._transport(route)))
        except GptshError as err:
            raise failures.without_secrets(err, route.secrets)  # noqa: B904 - it is the same error

    def wire(self, request: Request) -> Wire:
        """By which transport it would be asked. Raises as ``prepare``."""
        return self._route_of(request).wire

    def preview(self, request: Request) -> dict[str, Any]:
        """The request as ``ask`` would send it, keys and other secrets masked. Raises as ``prepare``."""
        route = self._route_of(request)
        if route.wire == "echo":
            return {"messages": request.messages}
        if route.wire == "litellm":
            from gptsh.llm.litellm_bridge import arguments  # noqa: PLC0415 - few runs need it

            return {"call": failures.without_secret_parameters(arguments(request, route, self._settings.network))}
        shown = self._by_ourselves(route.wire).preview(request, route)
        return {**shown, "body": failures.without_secret_parameters(shown["body"])}

    def _transport(self, route: Route) -> Open:
        if route.wire == "echo":
            return echo.open_echo
        if route.wire == "litellm":
            return self._litellm().open
        return self._by_ourselves(route.wire).open

    def _by_ourselves(self, wire: Wire) -> "Direct":
        if wire not in self._directs:
            from gptsh.llm.direct import Direct  # noqa: PLC0415 - as in ``_wire``

            self._directs[wire] = Direct(self._wire(), _dialect(wire, self._ollama))
        return self._directs[wire]

    def _litellm(self) -> "Bridge":
        from gptsh.llm.litellm_bridge import Bridge  # noqa: PLC0415 - few runs need it

        if self._bridge is None:
            context = None
            if _UNUSUAL & set(self._environ):
                from gptsh.llm.http import named_trust  # noqa: PLC0415 - as in ``_wire``

                context = named_trust(self._environ)
            self._bridge = Bridge(self._settings.network, context)
        return self._bridge

    def _wire(self) -> "Http":
        from gptsh.llm.http import Http  # noqa: PLC0415 - 50 ms that echo and every other job do without

        self._http = self._http or Http(self._settings.network, self._environ)
        return self._http

    def _open(
        self, request: Request, route: Route, answer: Answer, transport: Open
    ) -> Generator[Event, None, Iterator[Event]]:
        """The answer's events once the request is accepted; retried before the first byte only."""
        for attempt in range(self._settings.network.retries + 1):
            try:
                return transport(request, route, answer)
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
        too_late = self.deadline is not None and time.monotonic() + pause >= self.deadline
        return None if pause > LONGEST_RETRY_AFTER or too_late else pause


def _dialect(wire: Wire, models: Models) -> "Dialect":
    """How servers of this kind are spoken to; only the one that is needed is loaded."""
    if wire == "anthropic":
        from gptsh.llm.anthropic import Messages  # noqa: PLC0415 - the start of a run needs one at most

        return Messages()
    if wire == "ollama":
        from gptsh.llm.ollama import Ollama  # noqa: PLC0415 - the same

        return Ollama(models)
    from gptsh.llm.chat_completions import ChatCompletions  # noqa: PLC0415 - the same

    return ChatCompletions()
