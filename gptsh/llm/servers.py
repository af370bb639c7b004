"""Prepare requests to a server (key, headers, choice of API); cache what it reported and which fields it refused."""

import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Set
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

from gptsh import __version__, files
from gptsh.config.schema import MASK, Secret, is_secret_name, secrets_in
from gptsh.config.settings import Settings
from gptsh.core import locks
from gptsh.errors import ConfigError, GptshError, ModelError, StoreBusy
from gptsh.files import app_folder
from gptsh.jsonio import JsonObject, as_dict, encode_json
from gptsh.llm.stream import Api
from gptsh.messages import Request, token_count
from gptsh.models.facts import exact_facts
from gptsh.models.vendors import BEARER, DIRECT, ApiName, Provider

if TYPE_CHECKING:
    from gptsh.llm.http import Http


# ---- headers
#
# The HTTP headers of a request. A header for one provider stands in that provider's row of
# ``models/vendors.py``.


def headers(provider: Provider, *, mask_values: bool = False) -> dict[str, str]:
    """The provider's own headers, those of the config file, and the key in the provider's form.

    ``mask_values`` hides the last two. litellm adds those that any request has.
    """
    is_direct = provider.api in DIRECT
    result = {"content-type": "application/json", "user-agent": f"gptsh/{__version__}"} if is_direct else {}
    result |= provider.fixed_headers
    for name, value in provider.headers.items():
        result[name.lower()] = MASK if mask_values else value
    has_key = provider.key or (mask_values and provider.key_command)  # which a dry run does not run
    if has_key and is_direct:
        is_bearer = provider.key_var in provider.bearer_vars
        forms = BEARER if is_bearer else provider.key_headers
        for name, form in forms.items():
            result[name] = form.format(api_key=MASK if mask_values else provider.key)
    return result


# ---- server cache
#
# What gptsh remembers of a model's server for a day: the cache file ``servers.json``, by base URL
# and model.
#
# A process often sends only one prompt. Without the file each process would ask the server for its
# facts again.

_FILE = "servers.json"
_DAY = 86_400  # seconds
_LOCK_WAIT = 1.0  # seconds
_LARGEST = 10_000_000  # bytes

# "at" is the time at which it was made; the other keys belong to those that write them.
Entry = JsonObject


class ServerCache:
    """The facts about the servers that this process uses, and the file with those of the last day."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._saved: dict[str, Entry] | None = None  # what the file has; None until it is needed

    def entry(self, provider: Provider) -> Entry:
        """The remembered facts about a server and its model, to be updated in place; see ``save``."""
        key = server_and_model(provider)
        if key not in self._entries:
            saved = self._saved_entries().get(key, {})
            self._entries[key] = {"at": round(time.time()), **saved}
        return self._entries[key]

    def save(self) -> None:
        """Write new facts to the file; if that fails, the servers are asked again."""
        entries = {key: entry for key, entry in self._entries.items() if len(entry) > 1}
        if all(entry == self._saved_entries().get(key) for key, entry in entries.items()):
            return
        copies: dict[str, Entry] = json.loads(json.dumps(entries))
        with contextlib.suppress(OSError, ConfigError, StoreBusy):
            path = app_folder("cache") / _FILE
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locks.locked(path.parent, _LOCK_WAIT):
                self._saved = {**_read(), **copies}
                files.sweep(path.parent, os.listdir(path.parent))
                files.replace(path, encode_json(self._saved), fsync=False)

    def _saved_entries(self) -> dict[str, Entry]:
        if self._saved is None:
            self._saved = _read()
        return self._saved


def server_and_model(provider: Provider) -> str:
    """The name of a server and its model together: what is learned of one model says nothing of another."""
    return f"{provider.base_url} {provider.model}"


def _read() -> dict[str, Entry]:
    """The entries of the file that are at most a day old."""
    try:
        content = json.loads(files.read_bytes(app_folder("cache") / _FILE, _LARGEST))
    except (OSError, ValueError, RecursionError, ConfigError):
        return {}
    now = time.time()
    entries = {key: as_dict(entry) for key, entry in as_dict(content).items()}
    return {key: entry for key, entry in entries.items() if -1 < now - (token_count(entry.get("at")) or 0) < _DAY}


# ---- routes
#
# How a model is reached: its provider with API and key, the connections, and the secrets that must
# never be shown.
#
# ``headers`` writes the key and the provider's headers into a request, ``key_command`` runs
# ``api_key_command``.

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

    def of(self, model: str, params: Mapping[str, object], *, web: bool = False) -> Provider:
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
                    from gptsh.llm.keys import without_secrets

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
            from gptsh.llm.keys import printed_key

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
        from gptsh.llm.tls import proxy_secrets

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


# ---- refused fields
#
# Decide what to leave out when asking again after a refusal.
#
# It is remembered for a day, once the request without it was answered.

STATUSES = (400, 404, 422, 500)  # of a refusal; OpenAI sends 404 for an item, Ollama 500
# Refused because of earlier answers: the next answer remembers it, see ``Message``.
REASONING = {"thinking", "items", "parts"}
_PER_REQUEST = {"schema"}  # refused because of one request's content: not remembered for the server


class RefusedFields:
    """The fields that each server has refused for a model, by their names in ``REFUSABLE`` of the API."""

    def __init__(self, cache: ServerCache) -> None:
        self._cache = cache
        self._by_model: dict[str, set[str]] = {}  # those of this process

    def of(self, provider: Provider) -> set[str]:
        """The fields that the server has refused for this model."""
        here = self._by_model.get(server_and_model(provider), set())
        return here | set(self._cache.entry(provider).get("refused", ()))

    def remember(self, provider: Provider, left_out: Set[str]) -> None:
        """Remember what an answered request was sent without: most of it for a day."""
        fields = left_out - REASONING
        lasting = fields - _PER_REQUEST
        self._by_model.setdefault(server_and_model(provider), set()).update(fields)
        if lasting:
            entry = self._cache.entry(provider)
            entry["refused"] = sorted({*entry.get("refused", ()), *lasting})

    def refused_by(
        self,
        err: ModelError,
        request: Request,
        provider: Provider,
        left_out: Set[str],
        api: Api,
    ) -> set[str]:
        """Return the fields to leave out of this request as well, because an error refuses them.

        Empty if the request would be the same without them. ``left_out`` are those that earlier
        errors refused.
        """
        if err.status not in STATUSES or provider.api == "litellm":
            return set()
        from gptsh.llm.failures import own_words, refuses_field, unsupported_efforts, unsupported_params
        from gptsh.models.accepted_parameters import fit_params

        text = own_words(err.detail)
        known = self.of(provider) | left_out
        effort = fit_params(request.params, provider, known).effort
        new = unsupported_efforts(text, effort) | unsupported_params(text, request.params)
        for field, refusable in api.REFUSABLE.items():
            if refuses_field(text, refusable.names) or re.search(refusable.wording, text):
                new.add(field)
        new -= known
        if not new:
            return new
        body = api.body(request, provider, known, None)
        return new if api.body(request, provider, known | new, None) != body else set()


# ---- openai apis
#
# Which of OpenAI's two APIs a server has for a model, Responses or chat completions: tried, and
# known for a day.

_OTHER: dict[ApiName, ApiName] = {"responses": "chat", "chat": "responses"}
_NOT_SERVED = (404, 405, 501)  # statuses of a server that lacks an API
# What an error names if a server lacks the Responses API, or serves a model, or its tools, by this API alone.
_NAMES_RESPONSES = "(?i)/responses|responses (?:api|endpoint|operation)"


class OpenaiApis:
    """Chooses between the two APIs.

    One that a server lacks is among its refused fields, under the API's name. ``left_out`` are
    those that the request at hand was refused for so far.
    """

    def __init__(self, refused: RefusedFields) -> None:
        self._refused = refused

    def choose(self, provider: Provider, left_out: Set[str] = frozenset()) -> ApiName:
        """The provider's API, or the other one if only that may be served."""
        other, refusals = _OTHER.get(provider.api), self._refused.of(provider) | left_out
        lacks_own = provider.api in refusals
        return other if other and lacks_own and other not in refusals else provider.api

    def refused_by(self, err: ModelError, provider: Provider, left_out: Set[str]) -> set[str]:
        """Return the provider's API if an error says that only the other one may be served.

        Some servers lack Responses. OpenAI's serves many models, or their tools, by Responses alone.
        """
        other, refusals = _OTHER.get(provider.api), self._refused.of(provider) | left_out
        if other is None or not _is_refused(err, provider):
            return set()
        # Chat completions have pointed to Responses, for the tools: they take these without reasoning.
        goes_back = provider.api == "responses" and provider.api not in refusals
        return {provider.api} if goes_back or other not in refusals else set()


def _is_refused(err: ModelError, provider: Provider) -> bool:
    """Whether an error means that the server does not serve the model by the provider's API."""
    from gptsh.llm.failures import own_words

    names_responses = err.status in STATUSES and bool(re.search(_NAMES_RESPONSES, own_words(err.detail)))
    if provider.api == "chat":
        return names_responses
    return provider.has_custom_base and (names_responses or err.status in _NOT_SERVED)


# ---- model end
#
# Warn that a provider ends a model soon, or has just ended it: one line, once a day.

_NEAR_END = 60  # days from a model's end


def ending_note(model: str, provider: Provider, cache: ServerCache) -> str | None:
    """A line about a model's end, if the table has one that is near or just over; None once it was noted today."""
    if provider.api not in DIRECT or provider.is_own_server:  # a server of one's own has its own ends
        return None
    entry = cache.entry(provider)
    end = exact_facts(provider.name, provider.model).entry.get("deprecation_date")
    try:
        days_left = (date.fromisoformat(str(end)) - date.today()).days
    except ValueError:
        return None
    if abs(days_left) > _NEAR_END or "end_noted" in entry:
        return None
    entry["end_noted"] = True
    cache.save()
    return f"{model} {'ends' if days_left >= 0 else 'was to end'} on {end}: choose another model with -m"
