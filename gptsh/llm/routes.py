"""How a model is reached: its provider, the API, the headers with the key, and what must never be shown."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gptsh import __version__
from gptsh.config.providers import Provider
from gptsh.config.secret import MASK, Secret, names_a_secret
from gptsh.config.settings import Settings
from gptsh.errors import ConfigError, GptshError
from gptsh.llm.errors import without_secrets
from gptsh.models.facts import OPENAIS, chat_refuses_tools, facts
from gptsh.models.providers import BEARER, DIRECT, Wire

if TYPE_CHECKING:
    from gptsh.llm.http import Http

_SHORTEST_SECRET = 4  # characters; to mask shorter ones would garble the message and hide nothing
_SHORTEST_FOUND = 8  # characters of a value that only its variable's name makes a secret
_PLAIN = re.compile("gpt-[34]|chatgpt-")  # served by chat completions, tools and all: the table need not be read
_ANYWHERE = "https://litellm.invalid"  # only litellm knows where the provider is
# What says how servers are reached, and must be checked before anything is saved.
_UNUSUAL = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR"}


class Route(NamedTuple):
    """One model as it is asked. ``secrets``: the key, the values of configured headers, the proxy's login."""

    provider: Provider
    model: str  # as the provider knows it
    wire: Wire
    key: Secret | None = None
    headers: Mapping[str, str] = {}
    secrets: frozenset[str] = frozenset()


class Routes:
    """The ways to the servers of one process, each settled once."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._settings, self._environ = settings, environ
        self._routes: dict[tuple[str, Wire], Route] = {}
        self._keys: dict[str, Secret | None] = {}
        self._http: Http | None = None

    def of(self, model: str, params: Mapping[str, Any], *, tools: bool = False, documents: bool = False) -> Route:
        """The way to a model. Raises ConfigError for an unknown provider, a missing key, a bad URL, proxy or bundle."""
        provider, name = self._settings.providers.of(model)
        wire = wire_for(provider, name, params, tools=tools, documents=documents)
        if wire == "echo":
            return Route(provider, name, wire)
        if (model, wire) not in self._routes:
            self._routes[model, wire] = self._checked(provider, name, wire)
        return self._routes[model, wire]

    def _checked(self, provider: Provider, name: str, wire: Wire) -> Route:
        key = self._key(provider)
        secrets = {part for value in provider.headers.values() for part in (value, value.rpartition(" ")[2])}
        secrets |= {str(key)} if key else set()
        is_usual = not _UNUSUAL & {variable.upper() for variable in self._environ}
        if wire == "litellm":
            secrets |= _secrets_in(self._environ)
        if wire != "litellm" or not is_usual:
            from gptsh.llm.http import proxy_secrets  # noqa: PLC0415 - as in ``http``

            secrets |= proxy_secrets(self._environ)
        hidden = frozenset(secret for secret in secrets if len(secret) >= _SHORTEST_SECRET)
        if wire != "litellm" or not is_usual:
            try:
                self.http.manager(provider.base_url or _ANYWHERE)
            except GptshError as err:
                raise without_secrets(err, hidden)  # noqa: B904 - it is the same error
        return Route(provider, name, wire, key, headers_for(provider, wire, key), hidden)

    def fetch(
        self, provider: Provider, url: str, seconds: float, body: bytes | None, *, most: int | None = None
    ) -> bytes:
        """A document of a provider's server. Raises GptshError where none comes in time."""
        key = self._key(provider)
        try:
            return self.http.fetch(url, seconds, headers_for(provider, provider.wire, key), body, most=most)
        except GptshError as err:
            raise without_secrets(err, {*provider.headers.values(), str(key or "")} - {""})  # noqa: B904 - the same

    @property
    def http(self) -> "Http":
        """The connections to servers."""
        if self._http is None:
            from gptsh.llm.http import Http  # noqa: PLC0415 - 50 ms that echo and every other job do without

            self._http = Http(self._settings.network, self._environ)
        return self._http

    def _key(self, provider: Provider) -> Secret | None:
        """The key that opens the provider; None where it needs none. Raises ConfigError when it is missing."""
        if provider.name not in self._keys:  # a command that asks for a passphrase runs once
            key = _from_command(provider.key_command, provider.name) if provider.key_command else provider.key
            if key is None and provider.needs_key:
                way = f"set {provider.key_vars[0]}, or api_key_command under [providers.{provider.name}]"
                raise ConfigError(f"no key for {provider.name}", way)
            if key is not None and not (key.isascii() and key.isprintable()):
                raise ConfigError(f"the key for {provider.name} has characters that no HTTP header may have")
            self._keys[provider.name] = key
        return self._keys[provider.name]


def wire_for(
    provider: Provider, name: str, params: Mapping[str, Any], *, tools: bool = False, documents: bool = False
) -> Wire:
    """The provider's API, but litellm for what chat completions do not serve.

    Those are some models of OpenAI's own servers, some of them only with tools, and documents for Google.
    """
    if provider.name == "gemini" and provider.wire == "chat":
        return "litellm" if documents or not set(params) <= _GOOGLES else "chat"
    if provider.wire != "chat" or provider.name not in OPENAIS or _PLAIN.match(name):
        return provider.wire
    known = facts(provider.name, name)
    # A proxy in OpenAI's place may serve nothing else, and knows how to ask with tools.
    offers = (tools or bool(params.get("tools"))) and not (provider.own_base and provider.name == "openai")
    return "litellm" if not known.speaks_chat or (offers and chat_refuses_tools(known, params)) else "chat"


# The parameters that Google's OpenAI-compatible endpoint takes; it refuses others, which litellm translates.
_GOOGLES = {
    "temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "reasoning_effort", "n", "tool_choice",
    "presence_penalty", "frequency_penalty", "seed", "extra_body",
}  # fmt: skip


def headers_for(provider: Provider, wire: Wire, key: Secret | None, *, masked: bool = False) -> dict[str, str]:
    """What goes with a request: the key as the provider wants it, and what the config file adds.

    ``masked``: without the key and every configured value, however short.
    """
    headers = {"content-type": "application/json", "user-agent": f"gptsh/{__version__}"} if wire in DIRECT else {}
    headers |= provider.endpoint.constants
    headers |= {header.lower(): MASK if masked else value for header, value in provider.headers.items()}
    if key and wire in DIRECT:
        shown = BEARER if provider.key_var in provider.endpoint.bearer_vars else provider.endpoint.headers
        headers |= {name: value.format(api_key=MASK if masked else key) for name, value in shown.items()}
    return headers


def _secrets_in(environ: Mapping[str, str]) -> set[str]:
    """Values of variables with secret-looking names: litellm may use one that gptsh does not know."""
    found = {value.strip() for name, value in environ.items() if names_a_secret(name)}
    return {value for value in found if len(value) >= _SHORTEST_FOUND and not value.startswith("/")}  # no paths


def _from_command(command: str, provider: str) -> Secret:
    """The first line that the command prints. It gets no standard input: that is the prompt's."""
    import subprocess  # noqa: PLC0415 - 5 ms that only this way of keeping keys costs

    done = subprocess.run(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    key = done.stdout.decode("utf-8", "replace").partition("\n")[0].strip()
    if done.returncode or not key:
        why = f"exited with {done.returncode}" if done.returncode else "printed no key"
        raise ConfigError(f"api_key_command of {provider} {why}", "run it by hand")
    return Secret(key)
