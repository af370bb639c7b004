"""Read providers as the user configured them, and find the one that a model is asked at.

A key is from a variable here. ``llm/servers.py`` runs ``api_key_command``, which may print one of
the keyring.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, NamedTuple

from gptsh.config.schema import (
    COUNT,
    HEADERS,
    TEXT,
    URL,
    USD,
    VARIABLE,
    Secret,
    Tables,
    is_header_value,
    one_of,
)
from gptsh.errors import ConfigError
from gptsh.messages import Message, full_name, is_answer_of
from gptsh.models.facts import compatible_endpoints, exact_facts, likely_facts, split_model
from gptsh.models.vendors import (
    AZURE_V1,
    CACHE_TIMES,
    CUSTOM,
    DIRECT,
    LOCAL_VENDORS,
    OLLAMA_HOST,
    VENDORS,
    ApiName,
    CacheTime,
    Vendor,
    find_vendor,
    is_azure_v1,
    ollama_url,
    with_api,
    with_api_at,
)

_MAX_NAME = 200  # characters of a model's name
_HOW_TO_NAME = "write PROVIDER/MODEL, as in ollama/qwen3"


# fmt: off
class Prices(NamedTuple):
    """USD per million tokens."""

    input: Annotated[float | None, USD, "Tokens of the prompt."] = None
    output: Annotated[float | None, USD, "Tokens of the answer."] = None
    cached: Annotated[float | None, USD,
        "Tokens of the prompt from the cache; default: as `input`."] = None
    cache_write: Annotated[float | None, USD,
        "Tokens written to the cache; default: as `input`."] = None


class ProviderTable(NamedTuple):
    """The table ``[providers.NAME]``."""

    base_url: Annotated[str | None, URL,
        "Address of a server; any OpenAI-compatible one works."] = None
    api: Annotated[ApiName | None, one_of(*DIRECT),
        "The server's API, if it is not the provider's own."] = None
    api_key_env: Annotated[str | None, VARIABLE, "The variable that contains the key."] = None
    api_key_command: Annotated[str | None, TEXT,
        "A shell command whose first line of output is the key."] = None
    model_small: Annotated[str | None, TEXT,
        "Its model for titles, summaries and memories."] = None
    context_window: Annotated[int, COUNT,
        "Window of its models in tokens; 0: as its server or the model table says."] = 0
    cache: Annotated[CacheTime, one_of(*CACHE_TIMES),
        "After how long without use Claude's prompt cache expires."] = "5m"
    headers: Annotated[Mapping[str, str], HEADERS, "Headers for every request."] = {}
    prices: Annotated[Mapping[str, Prices], Tables(Prices, shared=True),
        "USD per million tokens, for all models; "
        "`[providers.NAME.prices.MODEL]` sets those of one."] = {}
# fmt: on


_OLLAMA_COM = "https://ollama.com"
_CLOUD_NAME = "[:-]cloud$"  # how names of Ollama's cloud models end on a local server


class Account(NamedTuple):
    """A vendor as the user has configured it, or a self-hosted server.

    The key is None if the server needs none, or if ``key_command`` prints it.
    """

    name: str
    vendor: Vendor
    base_url: str = ""
    has_custom_base: bool = False  # the base URL is not the vendor's own
    key: Secret | None = None
    key_variable: str = ""  # which has the key, or could have it
    key_command: str | None = None
    needs_key: bool = False
    headers: Mapping[str, str] = MappingProxyType({})  # secret values
    cache: CacheTime = "5m"  # how long Claude's prompt cache lasts without use
    model_small: str | None = None  # a full name
    context_window: int | None = None  # tokens
    prices: Mapping[str, Prices] = MappingProxyType({})  # by model; ``*``: all others

    @property
    def has_key(self) -> bool:
        """Whether there is a key, or a command that prints one."""
        return bool(self.key or self.key_command)

    @property
    def is_self_hosted(self) -> bool:
        """Whether it is a self-hosted server, not a vendor's: it may have only one slot."""
        is_local = self.name in LOCAL_VENDORS or self.vendor.api == "ollama"
        return (self.has_custom_base or is_local) and not self.is_ollama_com

    @property
    def is_ollama_com(self) -> bool:
        """Whether it is Ollama's cloud, asked directly."""
        return self.base_url.startswith(_OLLAMA_COM)


class Refused(StrEnum):
    """What a server may refuse beside parameters and efforts: a field, a kind of content, an API.

    The values are in the cache of servers.
    """

    STREAM = "stream"
    STREAM_OPTIONS = "stream_options"
    SYSTEM = "system"
    SCHEMA = "schema"
    STORE = "store"
    CACHE_KEY = "prompt_cache_key"
    INCLUDE = "include"  # encrypted reasoning in the answer
    # Forms of the parameters for thinking, effort and length.
    ADAPTIVE = "adaptive"
    BUDGET = "budget"
    DISPLAY = "display"
    LIMIT = "limit"
    SUMMARY = "summary"
    THOUGHTS = "thoughts"
    THINK = "think"
    LEVEL = "level"
    # Reasoning of earlier answers.
    THINKING = "thinking"
    ITEMS = "items"
    PARTS = "parts"
    # OpenAI's two APIs.
    CHAT = "chat"
    RESPONSES = "responses"


class Target(NamedTuple):
    """What a request goes to: an account with a model there, and the API chosen for it.

    ``refusals`` name what the server is known to refuse: ``Refused``, parameters, efforts.
    ``secrets`` are never shown in errors.
    """

    account: Account
    model: str
    api: ApiName
    refusals: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self.account.name

    @property
    def is_cloud(self) -> bool:
        """Whether Ollama's machines run the model: asked directly, or by a local server."""
        is_passed_on = self.api == "ollama" and bool(re.search(_CLOUD_NAME, self.model))
        return is_passed_on or self.account.is_ollama_com

    @property
    def is_self_hosted(self) -> bool:
        """Whether a self-hosted server runs the model."""
        return self.account.is_self_hosted and not self.is_cloud

    @property
    def reads_think_tags(self) -> bool:
        """Whether a thought in tags before the text is reasoning.

        A self-hosted server may not know the model's template.
        """
        return self.account.vendor.think_tags or self.is_self_hosted

    @property
    def refuses_effort_beside_tools(self) -> bool:
        """Whether OpenAI's server refuses an effort beside tools, and the API that takes both."""
        return {Refused.CHAT, Refused.RESPONSES} <= self.refusals

    def gave(self, message: Message) -> bool:
        """Whether an answer is of this model: what the model signed goes back to no other."""
        return is_answer_of(message, self.provider, f"{self.provider}/{self.model}")

    def searching(self) -> "Target | None":
        """Return the target with the API in which its server searches; None if it cannot.

        A server in the vendor's place may have no other API than its own.
        """
        vendor = self.account.vendor
        search = vendor.web_search
        has_other_apis = bool(vendor.chat_models) or not self.account.has_custom_base
        if search is None or (search.api != self.api and not has_other_apis):
            return None
        if likely_facts(self.provider, self.model).can("web_search") is False:
            return None
        return self._replace(api=search.api)


class Providers:
    """Every provider by name, made on demand: the config file's table over the vendor's row.

    ``aliases`` are models by the short names of the config file.
    """

    def __init__(
        self,
        tables: Mapping[str, ProviderTable],
        environ: Mapping[str, str],
        aliases: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.tables = tables
        self.aliases = aliases
        self._environ = environ

    def __iter__(self) -> Iterator[str]:
        """Yield the names in the config file, then those of gptsh's own table."""
        return iter({**self.tables, **VENDORS})

    def get(self, name: str) -> Account | None:
        """Return the account at the provider with this name, or None if it is unknown."""
        table = self.tables.get(name, ProviderTable())
        vendor = find_vendor(name, has_base=bool(table.base_url))
        if vendor is None and name in self.tables:
            vendor = CUSTOM
        if vendor is None:
            return None

        vendor, base_url = self._server(name, table, vendor)
        has_custom_base = base_url != vendor.base_url
        key_variables = (table.api_key_env,) if table.api_key_env else vendor.key_variables
        variable, key = self._first_set(key_variables)
        headers = {}
        for header, header_variable in vendor.header_variables.items():
            text = self._environ.get(header_variable)
            if text and is_header_value(text):
                headers[header] = text

        return Account(
            name=name,
            vendor=vendor,
            base_url=base_url,
            has_custom_base=has_custom_base,
            key=Secret(key) if key else None,
            key_variable=variable,
            key_command=table.api_key_command,
            needs_key=bool(table.api_key_env) or (vendor.needs_key and not has_custom_base),
            headers={**headers, **table.headers},
            cache=table.cache,
            model_small=full_name(table.model_small, name),
            context_window=table.context_window or None,
            prices=table.prices,
        )

    def _server(self, name: str, table: ProviderTable, vendor: Vendor) -> tuple[Vendor, str]:
        """Return the vendor with the API of the server that the user set, and its base URL."""
        variable, in_environment = self._first_set(vendor.base_variables)
        if in_environment and variable == OLLAMA_HOST:
            in_environment = ollama_url(in_environment)
        base_url = (table.base_url or in_environment or vendor.base_url).rstrip("/")
        azure_version = self._environ.get("AZURE_API_VERSION")
        if name == "azure" and (table.api or is_azure_v1(base_url, azure_version)):
            vendor = AZURE_V1
        if table.api:
            vendor = with_api(vendor, table.api)
        if vendor.api == "ollama":  # its OpenAI-compatible API is below /v1
            base_url = base_url.removesuffix("/v1").rstrip("/")
        if base_url and not base_url.endswith(vendor.base_path):
            base_url += vendor.base_path
        if not table.api:
            vendor = with_api_at(vendor, base_url)
        return vendor, base_url

    def _first_set(self, variables: Iterable[str]) -> tuple[str, str]:
        """Return the first of these variables that is not blank, and its value.

        If there is none, return the first variable, which could have one, and "".
        """
        first = ""
        for variable in variables:
            value = self._environ.get(variable, "").strip()
            if value:
                return variable, value
            first = first or variable
        return first, ""

    def full_name(
        self,
        model: str,
        otherwise: str | None = None,
        *,
        may_be_alias: bool = True,
    ) -> str:
        """Return a model as PROVIDER/NAME: an alias stands for its model.

        A bare name gets the prefix of its provider, or else of ``otherwise``. For Google's models
        the provider is the API whose key is set.
        """
        if may_be_alias:
            model = self.aliases.get(model, model)
        if "/" in model:
            return model
        provider = split_model(model)[0]
        if provider == "vertex_ai" and exact_facts("gemini", model).entry:
            gemini = self.get("gemini")
            if gemini and gemini.has_key:
                provider = "gemini"
        return full_name(model, provider or otherwise) or model

    def for_model(self, model: str) -> Target:
        """Return what a request to a model goes to. Raises ConfigError if there is nothing."""
        name, model_name = split_model(model)
        if name is None and self.get(model):
            advice = f"write {model}/MODEL; gptsh --list-models -m {model}/ lists its models"
            raise ConfigError(f"{model!r} is a provider, not a model", advice)
        if name is None:
            raise ConfigError(f"unknown provider of model {model!r}", _HOW_TO_NAME)
        account = self.get(name)
        if account is None:
            from difflib import get_close_matches

            similar = get_close_matches(name.lower(), [*VENDORS, *compatible_endpoints()], 1, 0.75)
            advice = f"did you mean {similar[0]}? For" if similar else "for"
            advice += f" your own server, set base_url under [providers.{name}]"
            raise ConfigError(f"unknown provider {name!r} in {model!r}", advice)
        if not 0 < len(model_name) <= _MAX_NAME:
            raise ConfigError(f"{model_name[:40]!r} is not a valid model name", _HOW_TO_NAME)
        vendor = account.vendor
        if (vendor.api in DIRECT or vendor.needs_base_url) and not account.base_url:
            ways = " or ".join((*vendor.base_variables, f"base_url under [providers.{name}]"))
            raise ConfigError(f"no base URL for {name}", f"set {ways}")
        if account.base_url:
            URL.read(account.base_url, f"the base URL of {name}")
        return target_at(account, model_name)


def target_at(account: Account, model: str) -> Target:
    """Return an account with a model there, and the API by which this model is asked."""
    vendor = account.vendor
    api = vendor.api
    if account.is_ollama_com:
        model = re.sub(_CLOUD_NAME, "", model)
    if api == "responses" and vendor.chat_models and re.match(vendor.chat_models, model):
        api = "chat"
    return Target(account, model, api)
