"""Read providers as the user configured them: URL, headers, key, prices, aliases, self-hosted or not.

Its key is from a variable here. ``llm/keys.py`` runs ``api_key_command``, which may print one of the keyring.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, NamedTuple

from gptsh.config import schema
from gptsh.config.schema import Secret
from gptsh.errors import ConfigError
from gptsh.messages import full_name
from gptsh.models.facts import compatible_endpoints, exact_facts, split_model
from gptsh.models.vendors import (
    AZURE_V1,
    CACHE_TIMES,
    CUSTOM,
    DIRECT,
    PROVIDERS,
    ApiName,
    CacheTime,
    Provider,
    is_azure_v1,
    known_provider,
    with_api,
    with_api_at,
)

_MAX_NAME = 200  # characters of a model's name
_HOW_TO_NAME = "name it PROVIDER/MODEL, as in ollama/qwen3"


class Prices(NamedTuple):
    """USD per million tokens."""

    input: Annotated[float | None, schema.USD, "Tokens of the prompt."] = None
    output: Annotated[float | None, schema.USD, "Tokens of the answer."] = None
    cached: Annotated[float | None, schema.USD, "Tokens of the prompt from the cache; default: as `input`."] = None
    cache_write: Annotated[float | None, schema.USD, "Tokens written to the cache; default: as `input`."] = None


_PRICES = "USD per million tokens, for all models; `[providers.NAME.prices.MODEL]` sets those of one."


class ProviderTable(NamedTuple):
    """The table ``[providers.NAME]``."""

    base_url: Annotated[str | None, schema.URL, "Address of a server; any OpenAI-compatible one works."] = None
    api: Annotated[ApiName | None, schema.one_of(*DIRECT), "The server's API, if it is not the provider's own."] = None
    api_key_env: Annotated[str | None, schema.VARIABLE, "The variable that contains the key."] = None
    api_key_command: Annotated[str | None, schema.TEXT, "A shell command whose first line of output is the key."] = None
    model_small: Annotated[str | None, schema.TEXT, "Its model for titles, summaries and memories."] = None
    context_window: Annotated[
        int, schema.COUNT, "Window of its models in tokens; 0: as its server or the model table says."
    ] = 0
    cache: Annotated[CacheTime, schema.one_of(*CACHE_TIMES), "How long Claude's prompt cache lasts unread."] = "5m"
    headers: Annotated[Mapping[str, str], schema.HEADERS, "Headers for every request."] = {}
    prices: Annotated[Mapping[str, Prices], schema.Tables(Prices, shared=True), _PRICES] = {}


class Providers:
    """Every provider by name, made on demand: the config file's table over the built-in facts.

    ``aliases`` are models by the short names of the config file.
    """

    def __init__(
        self,
        tables: Mapping[str, ProviderTable],
        environ: Mapping[str, str],
        aliases: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.tables, self.aliases, self._environ = tables, aliases, environ

    def __iter__(self) -> Iterator[str]:
        """Yield the names in the config file, then those in gptsh's own table."""
        return iter({**self.tables, **PROVIDERS})

    def get(self, name: str) -> Provider | None:
        """Return the provider with this name, or None if it is unknown."""
        table = self.tables.get(name, ProviderTable())
        builtin = known_provider(name, has_base=bool(table.base_url))
        if builtin is None and name in self.tables:
            builtin = CUSTOM
        if builtin is None:
            return None
        builtin, base_url = self._server(name, table, builtin)
        has_custom_base = base_url != builtin.base_url
        key_vars = (table.api_key_env,) if table.api_key_env else builtin.key_vars
        key_var = self._first_set(key_vars)
        return builtin._replace(
            name=name,
            base_url=base_url,
            key=Secret(self._environ[key_var].strip()) if key_var else None,
            key_vars=key_vars,
            key_command=table.api_key_command,
            needs_key=bool(table.api_key_env) or (builtin.needs_key and not has_custom_base),
            headers={**self._headers_from(builtin.header_vars), **table.headers},
            cache=table.cache,
            model_small=full_name(table.model_small, name),
            context_window=table.context_window or None,
            key_var=key_var,
            has_custom_base=has_custom_base,
            prices={model: prices._asdict() for model, prices in table.prices.items()},
        )

    def _server(self, name: str, table: ProviderTable, builtin: Provider) -> tuple[Provider, str]:
        """Return the provider with the API of the server that the user set, and the base URL of that API."""
        base_var = self._first_set(builtin.base_vars)
        base_url = table.base_url or (self._environ[base_var].strip() if base_var else builtin.base_url)
        base_url = base_url.rstrip("/")
        if name == "azure" and (table.api or is_azure_v1(base_url, self._environ.get("AZURE_API_VERSION"))):
            builtin = AZURE_V1
        if table.api:
            builtin = with_api(builtin, table.api)
        if builtin.api == "ollama":  # its OpenAI-compatible API is below /v1
            base_url = base_url.removesuffix("/v1").rstrip("/")
        if base_url and not base_url.endswith(builtin.base_path):
            base_url += builtin.base_path
        if not table.api:
            builtin = with_api_at(builtin, base_url)
        return builtin, base_url

    def _first_set(self, variables: Iterable[str]) -> str | None:
        """Return the first of these variables that is not blank."""
        return next((variable for variable in variables if self._environ.get(variable, "").strip()), None)

    def _headers_from(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return headers from the environment, without those that a header cannot contain."""
        values = {header: self._environ.get(variable, "") for header, variable in variables.items()}
        return {header: text for header, text in values.items() if text and text.isascii() and text.isprintable()}

    def full_name(self, model: str, otherwise: str | None = None) -> str:
        """Return the model of an alias, or else as ``known_name``. A full name never is an alias."""
        return self.known_name(self.aliases.get(model, model), otherwise)

    def known_name(self, model: str, otherwise: str | None = None) -> str:
        """Return a model as PROVIDER/NAME: a bare name gets its known provider, else ``otherwise``, else none.

        For Google's models the provider is the API whose key is set.
        """
        if "/" in model:
            return model
        provider = split_model(model)[0]
        if provider == "vertex_ai" and exact_facts("gemini", model).entry:
            gemini = self.get("gemini")
            provider = "gemini" if gemini and (gemini.key or gemini.key_command) else provider
        return full_name(model, provider or otherwise) or model

    def for_model(self, model: str) -> Provider:
        """Return the provider of a model, with the model's name there. Raises ConfigError if there is none."""
        name, model_name = split_model(model)
        if name is None and self.get(model):
            advice = f"name it {model}/MODEL; gptsh --list-models -m {model}/ lists its models"
            raise ConfigError(f"{model} is a provider, and no model", advice)
        if name is None:
            raise ConfigError(f"no provider is known for the model {model!r}", _HOW_TO_NAME)
        provider = self.get(name)
        if provider is None:
            from difflib import get_close_matches

            similar = get_close_matches(name.lower(), [*PROVIDERS, *compatible_endpoints()], 1, 0.75)
            advice = f"did you mean {similar[0]}? Else set" if similar else "set"
            advice += f" base_url under [providers.{name}]"
            raise ConfigError(f"{name!r} of the model {model!r} is not a known provider", advice)
        if not 0 < len(model_name) <= _MAX_NAME:
            raise ConfigError(f"{model_name[:40]!r} is not a valid model name", _HOW_TO_NAME)
        if (provider.api in DIRECT or provider.needs_base) and not provider.base_url:
            settings = " or ".join((*provider.base_vars, f"base_url under [providers.{name}]"))
            raise ConfigError(f"no base URL for {name}", f"set {settings}")
        if provider.base_url and not schema.URL.accepts(provider.base_url):
            raise ConfigError(f"the base URL of {name}: expected {schema.URL.expected}")
        return provider.for_model(model_name)
