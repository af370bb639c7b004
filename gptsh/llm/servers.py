"""Facts about servers: the models that they list, context windows, abilities, and the fields that they refuse.

Facts that a server reports are cached for a day in ``servers.json`` in the cache folder, by base URL and model, since a
process often sends only one prompt. A reply that is missing, late or malformed is not an error.
"""

import contextlib
import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import date
from functools import cached_property, partial
from typing import Any

from gptsh import threads
from gptsh.config.folders import app_folder
from gptsh.config.settings import Settings
from gptsh.content.think_tags import Beginning
from gptsh.core import files
from gptsh.errors import ConfigError, GptshError, LoadingModel, ModelError, TimedOut
from gptsh.jsonio import as_dict, as_dicts, encode_json
from gptsh.llm.routes import Routes
from gptsh.messages import token_count
from gptsh.models.catalog import compatible_endpoints
from gptsh.models.facts import Facts, facts, models_of, split_model, window_of_family
from gptsh.models.providers import DIRECT, LOCAL_PROVIDERS, ApiName, Provider

PROBE_TIMEOUT = 0.3  # seconds for a server on this machine that may not run, to list its models
_REPORT_TIMEOUT = 2.0  # seconds for one that is about to answer, to report on a model: its report is cached
REMOTE_TIMEOUT = 5.0  # seconds for a remote server
_LOOPBACK = r"https?://(localhost|127\.|\[::1\])"
_PROBE_BYTES = 1 << 22  # read from a local server: its time does not cover parsing them
_LIST_BYTES = 1 << 25  # of a list of all models
_SMALL = 2000  # tokens of prompt and answer that fit any window which Ollama chooses itself
_MIN_WINDOW = 4096  # tokens: the smallest window requested from Ollama
_DAY = 86_400  # seconds
_RETRY_AFTER = 300  # seconds after a server did not answer
_NEAR_END = 60  # days from a model's end
_OFFERED = 60  # seconds that a shell is offered the same list of models
_LOADED = 300  # seconds that Ollama keeps a model in memory
_ABILITIES = {"vision": "vision", "function_calling": "tools", "reasoning": "thinking"}  # our names -> Ollama's
_NUM_CTX = r"(?m)^[ \t]*num_ctx[ \t]+([0-9]{1,10})[ \t\r]*$"  # matches within one line only
# Abilities that no model has through these APIs: their messages cannot carry such parts.
_UNSUPPORTED: dict[str, tuple[str, ...]] = {
    "chat": ("video_input",),
    "responses": ("audio_input", "video_input"),
    "anthropic": ("audio_input", "video_input"),
    "ollama": ("pdf_input", "audio_input", "video_input"),
    "litellm": ("video_input",),
}
# Models whose template may write ``<think>`` into the prompt, so that their answers begin inside a thought.
_MAY_BEGIN_INSIDE = (
    r"(?i)(?!.*(?:instruct|coder|embed|non-?(?:think|reason)))"
    r".*(?:deepseek|[-_/]r1|qwen-?[3-9]|qwq|glm-?[4-9]|kimi-k|nemotron|minimax|think|reason)"
)
# Of a model's window in lists: OpenRouter's and xAI's, Google's, Anthropic's, Mistral's, Groq's.
_WINDOW_KEYS = ("context_length", "inputTokenLimit", "max_input_tokens", "max_context_length", "context_window")
_CUSTOM_NAMES = ("azure",)  # the account's owner names the models

Get = Callable[..., Any]  # (URL, body to post) -> document, or None for any status but 200; raises GptshError


class Servers:
    """Asks servers for facts, and remembers them for this process and in the cache file."""

    def __init__(self, settings: Settings, routes: Routes) -> None:
        self._settings, self._routes = settings, routes
        self._entries: dict[str, dict[str, Any]] = {}  # those that this process uses, in the form of the file
        self._limits: dict[str, int] = {}  # windows that refusals have named
        self._refusals: dict[str, set[str]] = {}
        self._early: threading.Thread | None = None  # asks for a window that may be needed

    # ---- the cache

    @cached_property
    def _cache(self) -> dict[str, dict[str, Any]]:
        return _read()

    def _entry(self, provider: Provider) -> dict[str, Any]:
        """The cached facts about a server and its model, to be updated in place; see ``save``."""
        key = _key(provider)
        if key not in self._entries:
            self._entries[key] = {"at": round(time.time()), **self._cache.get(key, {})}
        return self._entries[key]

    def save(self) -> None:
        """Write new facts to the cache file; if that fails, they are asked for again."""
        entries = {key: entry for key, entry in self._entries.items() if len(entry) > 1}
        if any(entry != self._cache.get(key) for key, entry in entries.items()):
            self._cache = json.loads(json.dumps({**_read(), **entries}))
            with contextlib.suppress(OSError, ConfigError):
                path = app_folder("cache") / "servers.json"
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                files.sweep(path.parent, os.listdir(path.parent))
                files.replace(path, encode_json(self._cache), fsync=False)

    # ---- models

    def full_name(self, model: str) -> str:
        """Add the provider ``ollama`` to a bare model name that the local Ollama server lists."""
        provider = self._settings.providers.get("ollama")
        if split_model(model)[0] is not None or provider is None:
            return model
        entry, names = self._entry(provider), {model, f"{model}:latest"}
        if not names & set(entry.get("models", ())):
            entry["models"] = self.models(provider)
        return f"ollama/{model}" if names & set(entry["models"]) else model

    def local_models(self) -> list[str]:
        """One model of each running local server, as a value for ``-m``."""
        providers = [(name, self._settings.providers.get(name)) for name in LOCAL_PROVIDERS]
        return [f"{name}/{model}" for name, provider in providers if provider for model in self.models(provider)[:1]]

    def models(
        self, provider: Provider, seconds: float = PROBE_TIMEOUT, note: Callable[[str], object] = lambda _: None
    ) -> list[str]:
        """The models that a server lists; empty if it does not do so in time, and ``note`` receives the cause."""
        try:
            return [entry["id"] for entry in self._list(provider, seconds)]
        except GptshError as err:
            note(str(err))
            return []

    def _list(self, provider: Provider, seconds: float) -> list[dict[str, Any]]:
        """The server's list of models, each with its ``id``. Raises GptshError if there is none."""
        entries = self._getter(provider, seconds)(_list_url(provider))
        if entries is None:
            raise ModelError(f"{provider.name} does not list its models")
        return _models_in(entries)

    def catalog(self, wanted: str, note: Callable[[str], None]) -> Iterator[dict[str, Any]]:
        """Every model that can be asked and has ``wanted`` in its name, provider by provider; the built-in one first.

        If ``wanted`` begins with a provider and a slash, no other provider is asked, and no other's key is needed.
        Each has ``model`` (a value for ``-m``), ``alias_of`` (the full name behind an alias, or None), ``api``,
        ``window`` in tokens, ``price_in`` and ``price_out`` in USD per token; of Ollama and llama.cpp also ``size`` in
        bytes, and whether it is ``loaded``. ``note`` receives a line about each server that does not list its models.
        """
        rows = self._catalog(wanted, note)
        return (row for row in rows if wanted in row["model"] or wanted in (row["alias_of"] or ""))

    def _catalog(self, wanted: str, note: Callable[[str], None]) -> Iterator[dict[str, Any]]:
        yield _row("echo", "echo", None, (0.0, 0.0))
        yield from self._alias_rows(note)
        names = dict.fromkeys([*self._settings.providers, *compatible_endpoints()])
        named, slash, _ = wanted.partition("/")
        for name in [named] if slash and named in names else names:
            provider = self._settings.providers.get(name)
            if provider is None or name in _CUSTOM_NAMES:
                continue
            if provider.key or provider.key_command or (provider.api in DIRECT and not provider.needs_key):
                is_local = name in LOCAL_PROVIDERS and not provider.has_custom_base
                try:
                    yield from self._catalog_of(provider, PROBE_TIMEOUT if is_local else REMOTE_TIMEOUT)
                except GptshError as err:
                    if not is_local:  # a local server that does not run needs no note
                        note(f"{name}: {err}")

    def _alias_rows(self, note: Callable[[str], None]) -> Iterator[dict[str, Any]]:
        """A row for each alias, with the facts of its model. ``note`` receives what is wrong or surprising."""
        providers = self._settings.providers
        for alias in providers.aliases:
            model = self.full_name(providers.full_name(alias))
            try:
                provider = providers.for_model(model)
            except ConfigError as err:
                note(f"{alias} under [aliases]: {err}")
                continue
            model_facts = provider.with_prices(facts(provider.name, provider.model))
            window = provider.context_window or model_facts.window
            if (known := providers.known_name(alias)) not in (alias, model):
                note(f"{alias} is {model} here, by [aliases]; {known} needs its full name")
            yield {**_row(alias, provider.api, window, model_facts.prices), "alias_of": model}

    def _catalog_of(self, provider: Provider, seconds: float) -> Iterator[dict[str, Any]]:
        is_asked = provider.api in DIRECT and (provider.has_custom_base or provider.name in LOCAL_PROVIDERS)
        table = [] if is_asked else [*models_of(provider.name)]
        for model_facts in table:
            api = provider.for_model(model_facts.name).api
            window = provider.context_window or model_facts.window
            yield _row(f"{provider.name}/{model_facts.name}", api, window, provider.with_prices(model_facts).prices)
        if table or provider.api not in DIRECT:
            return
        models = self._list(provider, seconds)
        states = self._ollama_states(provider) if provider.api == "ollama" else {}
        for model in models:
            window = provider.context_window or _listed_window(model)
            prices = provider.with_prices(Facts(provider.name, model["id"])).prices or _prices(model.get("pricing"))
            row = _row(f"{provider.name}/{model['id']}", provider.api, window, prices)
            yield {**row, **(states.get(model["id"]) or _llama_state(model))}

    def _ollama_states(self, provider: Provider) -> dict[str, dict[str, Any]]:
        """The size of each model of an Ollama server, and whether it is loaded; empty if the server does not report."""
        get, root = self._getter(provider, REMOTE_TIMEOUT), provider.base_url.removesuffix("/v1")
        try:
            stored, loaded = get(f"{root}/api/tags"), get(f"{root}/api/ps")
        except GptshError:
            return {}
        in_memory = {entry.get("name") for entry in as_dicts(as_dict(loaded).get("models"))}
        return {
            str(entry.get("name")): {"size": _size_in(entry), "loaded": entry.get("name") in in_memory}
            for entry in as_dicts(as_dict(stored).get("models"))
        }

    def offered_models(self, name: str) -> list[str]:
        """The models of a server of the user's own, as values for ``-m``; a minute later it is asked again.

        No command is run for its key.
        """
        provider = self._settings.providers.get(name)
        if provider is None or not provider.is_local or provider.key_command or provider.api not in DIRECT:
            return []
        entry = self._entry(provider)
        if time.time() >= entry.get("offered", [[], 0])[1]:
            entry["offered"] = [self.models(provider), time.time() + _OFFERED]
            self.save()
        return [f"{name}/{model}" for model in entry["offered"][0]]

    # ---- windows

    def window(self, model: str, *, ask: bool) -> int | None:
        """A model's window in tokens: from the config file, else the server, else the packaged model table.

        A smaller window that a refusal has named wins. ``ask``: the server may be asked. Raises ConfigError.
        """
        if ask and self._early:
            self._early.join()
        provider = self._settings.providers.for_model(model)
        window = provider.context_window or self._reported_window(provider, ask=ask)
        if window is None and provider.name not in LOCAL_PROVIDERS:
            # A local server's window depends on how it was started, and the table is wrong about Ollama's models.
            window = facts(provider.name, provider.model).window
            if window is None and ask and not provider.has_custom_base:  # reading the whole table takes 20 ms
                window = window_of_family(provider.name, provider.model)
        return min(filter(None, (window, self._limits.get(_key(provider)))), default=None)

    def ask_early(self, model: str) -> None:
        """Let a thread ask for a window that is needed soon; ``window`` then waits for it. Raises ConfigError."""
        provider = self._settings.providers.for_model(model)
        if provider.context_window is None:
            self._entry(provider)  # so that the thread adds no key to a table that ``save`` may be reading
            thread = threading.Thread(target=self._reported_window, args=(provider,), kwargs={"ask": True}, daemon=True)
            self._early = thread if threads.start(thread) else None

    def ending_note(self, model: str) -> str | None:
        """A line about a model's end that is near or just over, once a day; None if there is none, or it is unknown."""
        provider = self._settings.providers.for_model(model)
        if provider.api not in DIRECT or provider.is_local:  # a server of one's own has its own ends
            return None
        entry = self._entry(provider)
        end = entry.get("end") or facts(provider.name, provider.model).entry.get("deprecation_date")
        try:
            days_left = (date.fromisoformat(str(end)) - date.today()).days
        except ValueError:
            return None
        if abs(days_left) > _NEAR_END or "end_noted" in entry:
            return None
        entry["end_noted"] = True
        self.save()
        return f"{model} {'ends' if days_left >= 0 else 'was to end'} on {end}: choose another model with -m"

    def learn_window(self, model: str, window: int) -> None:
        """Limit the model's window to this number of tokens, which a refusal has named."""
        key = _key(self._settings.providers.for_model(model))
        self._limits[key] = min(window, self._limits.get(key, window))

    def _reported_window(self, provider: Provider, *, ask: bool) -> int | None:
        """The window that the server reports or has reported today.

        Servers of the user's own are asked, OpenRouter, and any provider for a model that the table lacks.
        """
        if provider.api == "ollama":
            info = self.model_info(provider) if ask else {}
            return info.get("trained") or info.get("num_ctx")
        is_own = provider.has_custom_base or provider.name in (*LOCAL_PROVIDERS, "openrouter")
        if provider.api not in DIRECT or not (is_own or facts(provider.name, provider.model).window is None):
            return None
        if ask and is_own:
            self._learn(provider, "window", lambda get: next(filter(None, _windows(provider, get)), None))
        elif ask:
            self._learn(provider, "window", partial(self._listed_window, provider))
        return self._entry(provider).get("window")

    def _listed_window(self, provider: Provider, get: Get) -> int | None:
        """The window in a provider's list of its models; the model's end, if it is there, is remembered, too."""
        for entry in _models_in(get(_list_url(provider))):
            aliases = entry.get("aliases")
            if provider.model in (entry["id"], *(aliases if isinstance(aliases, list) else ())):
                self._entry(provider)["end"] = entry.get("shutdown_date")
                return _listed_window(entry)
        return None

    def _learn(self, provider: Provider, key: str, ask: Callable[[Get], Any]) -> None:
        """Cache what the server reports under ``key``, unless that is known or the server has just not answered."""
        entry = self._entry(provider)
        if key not in entry and time.time() > (token_count(entry.get("failed")) or 0) + _RETRY_AFTER:
            try:
                entry[key] = ask(self._getter(provider))
            except GptshError:
                entry["failed"] = round(time.time())

    # ---- abilities

    def can(self, model: str, ability: str) -> bool | None:
        """Whether a model has ``vision``, ``pdf_input``, …; None: unknown. Ollama is asked. Raises ConfigError."""
        provider = self._settings.providers.for_model(model)
        if ability in _UNSUPPORTED.get(provider.api, ()):
            return False
        if provider.api != "ollama":
            return facts(provider.name, provider.model).can(ability)
        abilities = self.model_info(provider).get("abilities") if ability in _ABILITIES else None
        return None if abilities is None else _ABILITIES[ability] in abilities

    def state(self, model: str) -> str | None:
        """What a server reports about a model now: llama.cpp's ``loading``, ``downloading``, …; None: nothing."""
        provider = self._settings.providers.for_model(model)
        try:
            listed = self._list(provider, _REPORT_TIMEOUT)
        except LoadingModel:
            return "loading"
        except GptshError:
            return None
        states = (as_dict(entry.get("status")).get("value") for entry in listed if entry["id"] == provider.model)
        return next((state for state in states if isinstance(state, str)), None)

    # ---- thoughts in the text

    def beginning(self, provider: Provider, params: Mapping[str, Any]) -> Beginning:
        """How a model's text begins, if not with a tag; only a server of one's own may leave thoughts in the text."""
        effort = params.get("reasoning_effort")
        may_think = effort is not None or re.match(_MAY_BEGIN_INSIDE, provider.model)
        if not (provider.is_local and may_think) or effort == "none":
            return "text"
        known: Beginning = self._entry(provider).get("beginning", "unknown")
        return known

    def learn_beginning(self, provider: Provider, beginning: Beginning | None) -> None:
        """Remember for a day how a model's text began."""
        if beginning is not None:
            self._entry(provider)["beginning"] = beginning

    # ---- Ollama

    def model_info(self, provider: Provider) -> dict[str, Any]:
        """What an Ollama server reports, or has reported today, about a model; see ``_ollama_info``."""
        self._learn(provider, "shown", lambda get: _ollama_info(provider, get))
        return as_dict(self._entry(provider).get("shown"))

    def num_ctx(self, provider: Provider, tokens: int, choice: Any = None) -> Any:
        """The window to request from Ollama: the user's choice, else as large as needed; None lets the server choose.

        ``tokens``: of prompt and answer, 0 if unknown. For a larger window Ollama loads the model again.
        """
        entry, window = self._entry(provider), choice or provider.context_window
        if provider.is_cloud:  # it always has the model's largest window
            return window or None
        if not window:
            if "loaded" not in entry or time.time() >= entry["loaded"][1]:
                entry["loaded"] = [self._running_window(provider), time.time() + _LOADED]
            current_window = entry["loaded"][0]
            if current_window is not None and current_window >= tokens:
                window = current_window
            elif current_window is not None or tokens > _SMALL:
                info = self.model_info(provider) if tokens > _SMALL else {}
                size = max(1 << (max(tokens, _MIN_WINDOW) - 1).bit_length(), info.get("num_ctx") or 0)
                window = min(size, info.get("trained") or size)
        entry["loaded"] = [token_count(window), time.time() + _LOADED]
        return window

    def loaded_window(self, provider: Provider) -> int | None:
        """The window with which the server has just used a model; the server's choice is asked for once a day."""
        if provider.is_cloud:
            return token_count(self.model_info(provider).get("trained"))
        entry = self._entry(provider)
        window: int | None = entry.get("loaded", [None])[0]
        if window is None:
            entry.setdefault("own", self._running_window(provider))
            window = entry["own"]
        entry["loaded"] = [window, time.time() + _LOADED]
        return window

    def _running_window(self, provider: Provider) -> int | None:
        """The window of a loaded model; None if it is not loaded."""
        with contextlib.suppress(GptshError):
            return _ollama_window(provider, self._getter(provider, PROBE_TIMEOUT))
        return None

    # ---- refusals

    def refusals(self, provider: Provider) -> set[str]:
        """The fields that the server has refused for this model."""
        return self._refusals.get(_key(provider), set()) | set(self._entry(provider).get("refused", ()))

    def refuse(self, provider: Provider, fields: Collection[str], lasting_fields: Collection[str]) -> None:
        """Remember refused fields for this process; ``lasting_fields`` also in the cache file."""
        self._refusals.setdefault(_key(provider), set()).update(fields)
        if lasting_fields:
            entry = self._entry(provider)
            entry["refused"] = sorted({*entry.get("refused", ()), *lasting_fields})

    def _getter(self, provider: Provider, seconds: float | None = None) -> Get:
        """A function that downloads documents from a server, all within ``seconds``, which default by its address."""
        seconds = seconds or (_REPORT_TIMEOUT if re.match(_LOOPBACK, provider.base_url) else REMOTE_TIMEOUT)
        max_bytes = _LIST_BYTES if seconds == REMOTE_TIMEOUT else _PROBE_BYTES
        deadline = time.monotonic() + seconds

        def get(url: str, body: Mapping[str, Any] | None = None) -> Any:
            data = json.dumps(body).encode() if body else None
            if (seconds_left := deadline - time.monotonic()) <= 0:
                raise TimedOut(f"{provider.name} does not answer in time")
            document = self._routes.fetch(provider, url, seconds_left, data, max_bytes)
            try:
                return json.loads(document)
            except (ValueError, RecursionError):
                return None

        return get


def _key(provider: Provider) -> str:
    """The key of a server and its model in the cache."""
    return f"{provider.base_url} {provider.model}"


def _read() -> dict[str, dict[str, Any]]:
    """The entries of ``servers.json`` that are at most a day old."""
    try:
        content = json.loads((app_folder("cache") / "servers.json").read_bytes())
    except (OSError, ValueError, RecursionError, ConfigError):
        return {}
    since = time.time() - _DAY
    entries = {key: as_dict(entry) for key, entry in as_dict(content).items()}
    return {key: entry for key, entry in entries.items() if (token_count(entry.get("at")) or 0) > since}


# ---- documents


def _windows(provider: Provider, get: Get) -> Iterator[int | None]:
    """Yield the window that a server reports, from each document in which it may be."""
    root, name, model = provider.base_url.removesuffix("/v1"), provider.name, provider.model
    if name == "lm_studio":
        for entry in as_dicts(as_dict(get(f"{root}/api/v1/models")).get("models")):
            instances = as_dicts(entry.get("loaded_instances"))
            matches = [instance for instance in instances if instance.get("id") == model]
            if matches or entry.get("key") == model:  # the loaded window, else the model's maximum, an upper bound
                configs = (as_dict(instance.get("config")) for instance in matches or instances)
                yield from (_first_size(config.get("context_length")) for config in configs)
                yield _first_size(entry.get("max_context_length"))
        return
    entries = _models_in(get(_list_url(provider)))
    # llama.cpp lists its one model under a name of its own, and serves it under any name.
    matches = [entry for entry in entries if entry["id"] == model or (len(entries) == 1 and "meta" in entry)]
    yield next(map(_listed_window, matches), None)
    if provider.api == "gemini":
        return
    if name not in ("hosted_vllm", "openrouter"):  # for older llama.cpp, whose list lacks it
        props = as_dict(get(f"{root}/props"))
        yield _first_size(as_dict(props.get("default_generation_settings")).get("n_ctx"))
    if name not in LOCAL_PROVIDERS and name != "openrouter":
        # Ollama through OpenAI's API: the loaded window, else the model file's, else the model's maximum. That is an
        # upper bound: a prompt beyond the server's choice is truncated, and only the answer's usage shows that.
        info = _ollama_info(provider, get)
        if window := info["num_ctx"] or info["trained"]:
            yield _ollama_window(provider, get) or window


def _ollama_window(provider: Provider, get: Get) -> int | None:
    """The window with which Ollama has loaded a model."""
    models = as_dicts(as_dict(get(f"{provider.base_url.removesuffix('/v1')}/api/ps")).get("models"))
    names = (provider.model, f"{provider.model}:latest")
    return _first_size(
        *(entry.get("context_length") for entry in models if entry.get("model", entry.get("name")) in names)
    )


def _ollama_info(provider: Provider, get: Get) -> dict[str, Any]:
    """What Ollama reports about a model: the window of its file, the one it was trained for, and its abilities."""
    report = as_dict(get(f"{provider.base_url.removesuffix('/v1')}/api/show", {"model": provider.model}))
    parameters, abilities = report.get("parameters"), report.get("capabilities")
    info = as_dict(report.get("model_info"))
    match = re.search(_NUM_CTX, parameters) if isinstance(parameters, str) else None
    return {
        "num_ctx": _first_size(int(match[1]) if match else None),
        "trained": _first_size(info.get(f"{info.get('general.architecture')}.context_length")),
        "abilities": abilities if isinstance(abilities, list) else None,  # in Ollama's words
    }


def _list_url(provider: Provider) -> str:
    """The URL of a server's list of models."""
    endings = {"ollama": "/v1/models", "gemini": "/models?pageSize=1000", "anthropic": "/models?limit=1000"}
    return f"{provider.base_url}{endings.get(provider.api, '/models')}"


def _models_in(payload: Any) -> list[dict[str, Any]]:
    """The models in the payload of ``/models``, each with its ``id``; of Google's list those that answer prompts."""
    models = payload.get("data", payload.get("models")) if isinstance(payload, dict) else payload
    for entry in as_dicts(models):
        if "generateContent" in (entry.get("supportedGenerationMethods") or ()):
            entry["id"] = str(entry.get("name")).removeprefix("models/")
    return [entry for entry in as_dicts(models) if entry.get("id") and isinstance(entry["id"], str)]


def _listed_window(entry: Mapping[str, Any]) -> int | None:
    """The window in an entry of ``/models``: vLLM's, llama.cpp's, that of OpenRouter's first provider, the model's."""
    return _first_size(
        entry.get("max_model_len"),
        as_dict(entry.get("meta")).get("n_ctx"),
        as_dict(entry.get("top_provider")).get("context_length"),
        *map(entry.get, _WINDOW_KEYS),
    )


def _row(model: str, api: ApiName, window: int | None, prices: tuple[float, float] | None) -> dict[str, Any]:
    price_in, price_out = prices or (None, None)
    row = {"model": model, "alias_of": None, "api": api, "window": window}
    return {**row, "price_in": price_in, "price_out": price_out, "size": None, "loaded": None}


def _llama_state(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The size that llama.cpp lists with a model, and whether its router has loaded the model; None if unknown."""
    state = as_dict(entry.get("status")).get("value")
    return {"size": _size_in(as_dict(entry.get("meta"))), "loaded": state == "loaded" if state else None}


def _size_in(report: Mapping[str, Any]) -> int | None:
    """The bytes of a model's file."""
    size = report.get("size")
    return size if type(size) is int and size > 0 else None


def _prices(pricing: Any) -> tuple[float, float] | None:
    try:
        prices = float(pricing["prompt"]), float(pricing["completion"])
    except (TypeError, KeyError, ValueError):
        return None
    return prices if all(map(math.isfinite, prices)) and min(prices) >= 0 else None  # -1 means that it varies


def _first_size(*sizes: object) -> int | None:
    """The first value that is a valid number of tokens."""
    return next(filter(None, map(token_count, sizes)), None)
