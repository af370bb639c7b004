"""How a model is reached: its provider with API and key, the connections, and the secrets that must never be shown.

``headers`` writes the key and the provider's headers into a request, ``key_command`` runs ``api_key_command``.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from gptsh.config.schema import Secret, is_secret_name, secrets_in
from gptsh.config.settings import Settings
from gptsh.errors import ConfigError, GptshError
from gptsh.models.vendors import ApiName, Provider

if TYPE_CHECKING:
    from gptsh.llm.http import Http

_SHORTEST_SECRET = 4  # characters; masking shorter ones would garble the message and hide nothing
_TOKEN = r"(?<=[/=])[A-Za-z0-9_.~-]{16,}"
_SHORTEST_VARIABLE = 8  # characters of a value that is a secret only by its variable's name
_UNKNOWN_URL = "https://litellm.invalid"  # only litellm knows the provider's URL


class Routes:
    """Resolves models to providers with API, key and secrets, once each per process.

    ``keys`` are those of the providers used so far, by name; None: the provider needs none. Without
    ``needs_keys`` no command is run for a key, and a missing one is no error.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        keys: Mapping[str, str | None],
        *,
        needs_keys: bool = True,
    ) -> None:
        self._settings, self._environ, self._needs_keys = settings, environ, needs_keys
        self._routes: dict[tuple[str, ApiName], Provider] = {}
        self.keys: dict[str, str | None] = {name: Secret(key) if key else None for name, key in keys.items()}

    @cached_property
    def http(self) -> "Http":
        """The connections to servers."""
        from gptsh.llm.http import Http

        return Http(self._settings.network, self._environ)

    def of(self, model: str, params: Mapping[str, Any], *, web: bool = False) -> Provider:
        """The provider of a model, with the API for this request and its key. Raises ConfigError.

        ``web``: its server may search the web.
        """
        provider = self._settings.providers.for_model(model)
        if web:
            provider = provider.searching() or raise_no_search(model)
        if (model, provider.api) not in self._routes:
            if provider.api != "echo":
                provider = self.with_key(provider, is_needed=self._needs_keys)
                try:
                    self.http.endpoint(provider.base_url or _UNKNOWN_URL)
                except GptshError as err:
                    from gptsh.llm.masking import without_secrets

                    raise without_secrets(err, provider.secrets)  # noqa: B904 - it is the same error
            self._routes[model, provider.api] = provider
        provider = self._routes[model, provider.api]
        secrets = provider.secrets | _long_ones(secrets_in(params))
        return provider._replace(secrets=secrets) if params else provider

    def with_key(self, provider: Provider, *, is_needed: bool = True) -> Provider:
        """The provider with its key and the secrets to mask. Raises ConfigError if the key is missing or invalid."""
        name, key = provider.name, provider.key
        if name in self.keys:  # a command that asks for a passphrase runs once
            key = self.keys[name]
        elif provider.key_command and self._needs_keys:
            from gptsh.llm.key_command import printed_key

            key = printed_key(provider.key_command, name)
        if key is None and provider.needs_key and is_needed:
            raise ConfigError(
                f"no key for {name}", f"set {provider.key_vars[0]}, or api_key_command under [providers.{name}]"
            )
        if key is not None and not (key.isascii() and key.isprintable()):
            raise ConfigError(f"the key for {name} has characters that an HTTP header cannot contain")
        self.keys[name] = key
        secrets = self._secrets_of(provider._replace(key=key))
        return provider._replace(key=key, secrets=_long_ones(secrets))

    def _secrets_of(self, provider: Provider) -> set[str]:
        """Every text that must never be shown: what a server, a proxy or litellm may repeat in an error."""
        from gptsh.llm.proxies import proxy_secrets

        secrets = {provider.key or "", *_tokens_in(provider.base_url)}
        for value in provider.headers.values():
            secrets |= {value, value.rpartition(" ")[2]}  # a token without its scheme
        secrets |= proxy_secrets(self._environ)
        if provider.api == "litellm":  # litellm may use a key that gptsh does not know
            values = {value.strip() for variable, value in self._environ.items() if is_secret_name(variable)}
            secrets |= {value for value in values if len(value) >= _SHORTEST_VARIABLE and not value.startswith("/")}
        return secrets


def _long_ones(secrets: Iterable[str]) -> frozenset[str]:
    return frozenset(secret for secret in secrets if len(secret) >= _SHORTEST_SECRET)


def _tokens_in(url: str) -> list[str]:
    """The parts of a URL's path and query that may be tokens: long, with letters and digits."""
    return [part for part in re.findall(_TOKEN, url.partition("://")[2]) if re.search("[0-9]", part)]


def raise_no_search(model: str) -> NoReturn:
    """Raise ConfigError for a model whose server has no search."""
    way = "leave out --web; --no-web, or /web off, turns it off for an agent or a session"
    raise ConfigError(f"{model} has no web search", f"choose another model with -m, or {way}")
