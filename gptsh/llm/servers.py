"""What is known of servers without asking a model: the models that they list, windows, abilities, what they refuse.

What a server reports of itself is kept for a day in ``servers.json`` in the cache folder, by base URL and model, since
a process often sends one prompt. Documents are read by shape; one that does not come, or is garbage, is no failure.
"""

import contextlib
import json
import math
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from typing import Any

from gptsh.config.folders import app_folder
from gptsh.config.settings import Settings
from gptsh.core import files
from gptsh.errors import ConfigError, GptshError, ModelError, TimedOut
from gptsh.jsonio import as_dict, as_dicts, encode_json
from gptsh.llm.routes import Routes, api_for
from gptsh.messages import token_count
from gptsh.models.catalog import compatible_endpoints
from gptsh.models.facts import Facts, facts, models_of, split_model
from gptsh.models.providers import DIRECT, LOCAL_PROVIDERS, ApiName, Provider

PROBE_TIMEOUT = 0.3  # seconds for a server of one's own to list its models, and to report a window
_SMALL = 2000  # tokens of prompt and answer that Ollama's own choice of a window has room for
_LEAST = 4096  # tokens of a window that Ollama is asked for
PATIENCE = 5.0  # seconds for a server elsewhere to do so: what it reports is kept
_PROBED = 1 << 22  # bytes that are read for that: they are parsed when the time is over
_LISTING = 1 << 25  # bytes of a list of all models
_DAY = 86_400  # seconds
_LOADED = 300  # seconds that Ollama keeps a model in memory
_ABILITIES = {"vision": "vision", "function_calling": "tools", "reasoning": "thinking"}  # as Ollama calls them
_NUM_CTX = r"(?m)^[ \t]*num_ctx[ \t]+([0-9]{1,10})[ \t\r]*$"  # no part goes beyond its line
# What no message can carry to them, by API: the abilities that a model would need for it.
_NO_SHAPE: dict[str, tuple[str, ...]] = {"anthropic": ("audio_input",), "ollama": ("pdf_input", "audio_input")}
_OWN_NAMES = ("azure",)  # a model is called there what its owner called it

Get = Callable[..., Any]  # a URL, and a body to post: the document, None for a status but 200; raises GptshError


class Servers:
    """What one process knows of servers, and asks them."""

    def __init__(self, settings: Settings, routes: Routes) -> None:
        self._settings, self._routes = settings, routes
        self._known: dict[str, dict[str, Any]] = {}  # what this process has looked up or learned, as in the file
        self._limits: dict[str, int] = {}  # windows that refusals have named
        self._refused: dict[str, set[str]] = {}

    # ---- what is kept

    @cached_property
    def _kept(self) -> dict[str, dict[str, Any]]:
        return _read()

    def _of(self, provider: Provider) -> dict[str, Any]:
        """What is known of a server and its model; what is added is kept when a model has been asked."""
        place = _place(provider)
        if place not in self._known:
            self._known[place] = {"at": round(time.time()), **self._kept.get(place, {})}
        return self._known[place]

    def save(self) -> None:
        """Write down what servers have reported since. That it cannot be written is no loss."""
        news = {place: entry for place, entry in self._known.items() if len(entry) > 1}
        if any(entry != self._kept.get(place) for place, entry in news.items()):
            self._kept = json.loads(json.dumps({**_read(), **news}))
            with contextlib.suppress(OSError, ConfigError):
                path = app_folder("cache") / "servers.json"
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                files.sweep(path.parent, os.listdir(path.parent))
                files.replace(path, encode_json(self._kept), fsync=False)

    # ---- models

    def full_name(self, model: str) -> str:
        """The model with its provider, where that depends on what is here: a bare name may be one that Ollama has."""
        provider = self._settings.providers.get("ollama")
        if split_model(model)[0] is not None or provider is None:
            return model
        known, names = self._of(provider), {model, f"{model}:latest"}
        if not names & set(known.get("models", ())):
            known["models"] = self.models(provider)
        return f"ollama/{model}" if names & set(known["models"]) else model

    def local_models(self) -> list[str]:
        """One model of each local server that answers, as ``-m`` takes it."""
        providers = [(name, self._settings.providers.get(name)) for name in LOCAL_PROVIDERS]
        return [f"{name}/{model}" for name, provider in providers if provider for model in self.models(provider)[:1]]

    def models(self, provider: Provider, seconds: float = PROBE_TIMEOUT) -> list[str]:
        """The models that a server lists; nothing where it does not do so in time."""
        with contextlib.suppress(GptshError):
            return [entry["id"] for entry in self._list(provider, seconds)]
        return []

    def _list(self, provider: Provider, seconds: float) -> list[dict[str, Any]]:
        """What a server lists, each with its ``id``. Raises GptshError where it does not."""
        base = f"{provider.base_url}{'/v1' if provider.api == 'ollama' else ''}"
        listed = self._getter(provider, seconds, _LISTING if seconds > PROBE_TIMEOUT else _PROBED)(f"{base}/models")
        if listed is None:
            raise ModelError(f"{provider.name} does not list its models")
        return _entries(listed)

    def catalog(self, note: Callable[[str], None]) -> Iterator[dict[str, Any]]:
        """Every model that can be asked, provider by provider; the built-in one first.

        Each has a ``model`` as ``-m`` takes it, its ``api``, its ``window`` in tokens, ``price_in`` and ``price_out``
        in USD per token. ``note`` takes a line about each server that does not list its models.
        """
        yield _listed("echo", "echo", None, (0.0, 0.0))
        for name in dict.fromkeys([*self._settings.providers, *compatible_endpoints()]):
            provider = self._settings.providers.get(name)
            if provider is None or name in _OWN_NAMES:
                continue
            if provider.key or provider.key_command or (provider.api in DIRECT and not provider.needs_key):
                is_here = name in LOCAL_PROVIDERS and not provider.has_custom_base
                try:
                    yield from self._catalog_of(provider, PROBE_TIMEOUT if is_here else PATIENCE)
                except GptshError as err:
                    if not is_here:  # that none runs here is no news
                        note(f"{name}: {err}")

    def _catalog_of(self, provider: Provider, seconds: float) -> Iterator[dict[str, Any]]:
        is_asked = provider.api in DIRECT and (provider.has_custom_base or provider.name in LOCAL_PROVIDERS)
        known = [] if is_asked else [*models_of(provider.name)]
        for found in known:
            api = api_for(provider._replace(model=found.name), {})
            window = provider.context_window or found.window
            yield _listed(f"{provider.name}/{found.name}", api, window, provider.with_prices(found).prices)
        if known or provider.api not in DIRECT:
            return
        for model in self._list(provider, seconds):
            window = provider.context_window or _listed_window(model)
            prices = provider.with_prices(Facts(provider.name, model["id"])).prices or _prices(model.get("pricing"))
            yield _listed(f"{provider.name}/{model['id']}", provider.api, window, prices)

    # ---- windows

    def window(self, model: str, *, ask: bool) -> int | None:
        """Tokens that a prompt may have: as configured, else as the server says, else as the packaged table has it.

        At most what a refusal has named. ``ask``: the server may be asked. Raises ConfigError.
        """
        provider = self._settings.providers.of(model)
        window = provider.context_window or self._reported(provider, ask=ask)
        if window is None and provider.name not in LOCAL_PROVIDERS:
            # How a local server was started no table knows, and the packaged one is wrong about Ollama's models.
            window = facts(provider.name, provider.model).window
        return min(filter(None, (window, self._limits.get(_place(provider)))), default=None)

    def learn(self, model: str, window: int) -> None:
        """Report no more tokens than these as the window of a model, from now on: a refusal has named them."""
        place = _place(self._settings.providers.of(model))
        self._limits[place] = min(window, self._limits.get(place, window))

    def _reported(self, provider: Provider, *, ask: bool) -> int | None:
        """What the server reports, or reported today: servers of the user's own, and OpenRouter."""
        if provider.api == "ollama":
            shown = self.model_info(provider) if ask else {}
            return shown.get("trained") or shown.get("num_ctx")
        is_long = provider.name == "openrouter"  # its list
        if provider.api not in DIRECT or not (provider.has_custom_base or provider.name in LOCAL_PROVIDERS or is_long):
            return None
        known = self._of(provider)
        if "window" not in known and ask:
            known["window"] = None  # so is one that does not come in time: it is asked once a day
            with contextlib.suppress(GptshError):
                get = self._getter(provider, *((PATIENCE, _LISTING) if is_long else (PROBE_TIMEOUT, _PROBED)))
                known["window"] = next(filter(None, _windows(provider, get)), None)
        return known.get("window")

    # ---- abilities

    def can(self, model: str, ability: str) -> bool | None:
        """Whether a model has ``vision``, ``pdf_input``, …; None: nobody knows. Ollama is asked. Raises ConfigError."""
        provider = self._settings.providers.of(model)
        if ability in _NO_SHAPE.get(provider.api, ()):
            return False
        if provider.api != "ollama":
            return facts(provider.name, provider.model).can(ability)
        abilities = self.model_info(provider).get("abilities") if ability in _ABILITIES else None
        return None if abilities is None else _ABILITIES[ability] in abilities

    # ---- Ollama

    def model_info(self, provider: Provider) -> dict[str, Any]:
        """What an Ollama server reports, or reported today, of a model; see ``_shown``."""
        known = self._of(provider)
        if "shown" not in known:
            known["shown"] = {}
            with contextlib.suppress(GptshError):
                known["shown"] = _shown(provider, self._getter(provider))
        return as_dict(known["shown"])

    def num_ctx(self, provider: Provider, needed: int, wanted: Any = None) -> Any:
        """The window to ask Ollama for: the wanted or the configured one, else by need; None leaves it to the server.

        ``needed``: tokens of prompt and answer, 0 where unknown. For a larger window a model is loaded anew.
        """
        known, window = self._of(provider), wanted or provider.context_window
        if not window:
            if "loaded" not in known:
                known["loaded"] = [self._running(provider), time.time() + _LOADED]
            allocated = known["loaded"][0] if time.time() < known["loaded"][1] else None
            if allocated is not None and allocated >= needed:
                window = allocated
            elif allocated is not None or needed > _SMALL:
                shown = self.model_info(provider) if needed > _SMALL else {}
                wanted = max(1 << (max(needed, _LEAST) - 1).bit_length(), shown.get("num_ctx") or 0)
                window = min(wanted, shown.get("trained") or wanted)
        known["loaded"] = [token_count(window), time.time() + _LOADED]
        return window

    def loaded(self, provider: Provider) -> int | None:
        """The window with which the server has just used a model; its own choice is asked for once a day."""
        known = self._of(provider)
        window: int | None = known.get("loaded", [None])[0]
        if window is None:
            known.setdefault("own", self._running(provider))
            window = known["own"]
        known["loaded"] = [window, time.time() + _LOADED]
        return window

    def _running(self, provider: Provider) -> int | None:
        """The window with which a model is loaded now; None where it is not."""
        with contextlib.suppress(GptshError):
            return _allocated(provider, self._getter(provider))
        return None

    # ---- refusals

    def refused(self, provider: Provider) -> set[str]:
        """The fields that the server has refused for this model."""
        return self._refused.get(_place(provider), set()) | set(self._of(provider).get("refused", ()))

    def refuse(self, provider: Provider, fields: Collection[str], lasting: Collection[str]) -> None:
        """Remember fields that it has refused, for this process or for today."""
        self._refused.setdefault(_place(provider), set()).update(fields)
        if lasting:
            known = self._of(provider)
            known["refused"] = sorted({*known.get("refused", ()), *lasting})

    def _getter(self, provider: Provider, seconds: float = PROBE_TIMEOUT, most: int = _PROBED) -> Get:
        """What gets documents of a server, all of them in so many seconds."""
        until = time.monotonic() + seconds

        def get(url: str, body: Mapping[str, Any] | None = None) -> Any:
            posted = json.dumps(body).encode() if body else None
            if (left := until - time.monotonic()) <= 0:
                raise TimedOut(f"{provider.name} does not answer in time")
            found = self._routes.fetch(provider, url, left, posted, most)
            try:
                return json.loads(found)
            except (ValueError, RecursionError):
                return None

        return get


def _place(provider: Provider) -> str:
    return f"{provider.base_url} {provider.model}"


def _read() -> dict[str, dict[str, Any]]:
    """``servers.json``, without what is older than a day."""
    try:
        kept = json.loads((app_folder("cache") / "servers.json").read_bytes())
    except (OSError, ValueError, RecursionError, ConfigError):
        return {}
    since = time.time() - _DAY
    entries = {place: as_dict(entry) for place, entry in as_dict(kept).items()}
    return {place: entry for place, entry in entries.items() if (token_count(entry.get("at")) or 0) > since}


# ---- documents


def _windows(provider: Provider, get: Get) -> Iterator[int | None]:
    """The windows that a server reports, way by way."""
    root, name, model = provider.base_url.removesuffix("/v1"), provider.name, provider.model
    if name == "lm_studio":
        for entry in as_dicts(as_dict(get(f"{root}/api/v1/models")).get("models")):
            instances = as_dicts(entry.get("loaded_instances"))
            own = [instance for instance in instances if instance.get("id") == model]
            if own or entry.get("key") == model:  # what it is loaded with, else the model's maximum, an upper bound
                yield from (_first(as_dict(one.get("config")).get("context_length")) for one in own or instances)
                yield _first(entry.get("max_context_length"))
        return
    listed = _entries(get(f"{provider.base_url}/models"))
    # llama.cpp lists the one model that it serves under a name that nobody needs to use.
    found = [entry for entry in listed if entry["id"] == model or (len(listed) == 1 and "meta" in entry)]
    yield next(map(_listed_window, found), None)
    if name not in ("hosted_vllm", "openrouter"):  # llama.cpp before it reported this in its list
        props = as_dict(get(f"{root}/props"))
        yield _first(as_dict(props.get("default_generation_settings")).get("n_ctx"))
    if name not in LOCAL_PROVIDERS and name != "openrouter":
        # Ollama by OpenAI's API: what is loaded, else what the model's file sets, else what it was trained for. That
        # is an upper bound: a prompt beyond the server's own choice is cut, and only the answer's report shows that.
        shown = _shown(provider, get)
        if window := shown["num_ctx"] or shown["trained"]:
            yield _allocated(provider, get) or window


def _allocated(provider: Provider, get: Get) -> int | None:
    """The window with which Ollama has loaded a model."""
    running = as_dicts(as_dict(get(f"{provider.base_url.removesuffix('/v1')}/api/ps")).get("models"))
    names = (provider.model, f"{provider.model}:latest")
    return _first(*(entry.get("context_length") for entry in running if entry.get("model", entry.get("name")) in names))


def _shown(provider: Provider, get: Get) -> dict[str, Any]:
    """What Ollama reports of a model: its windows in tokens, as its file sets and at most, and what it can do."""
    shown = as_dict(get(f"{provider.base_url.removesuffix('/v1')}/api/show", {"model": provider.model}))
    parameters, info, abilities = shown.get("parameters"), as_dict(shown.get("model_info")), shown.get("capabilities")
    chosen = re.search(_NUM_CTX, parameters) if isinstance(parameters, str) else None
    return {
        "num_ctx": _first(int(chosen[1]) if chosen else None),
        "trained": _first(info.get(f"{info.get('general.architecture')}.context_length")),
        "abilities": abilities if isinstance(abilities, list) else None,  # in its own words
    }


def _entries(payload: Any) -> list[dict[str, Any]]:
    """The models in the payload of ``/models``, each with its ``id``."""
    found = payload.get("data") if isinstance(payload, dict) else payload
    return [entry for entry in as_dicts(found) if entry.get("id") and isinstance(entry["id"], str)]


def _listed_window(entry: Mapping[str, Any]) -> int | None:
    """The window in an entry of ``/models``: vLLM's, llama.cpp's, OpenRouter's for who answers first, the model's."""
    return _first(
        entry.get("max_model_len"),
        as_dict(entry.get("meta")).get("n_ctx"),
        as_dict(entry.get("top_provider")).get("context_length"),
        entry.get("context_length"),
    )


def _listed(model: str, api: ApiName, window: int | None, prices: tuple[float, float] | None) -> dict[str, Any]:
    price_in, price_out = prices or (None, None)
    return {"model": model, "api": api, "window": window, "price_in": price_in, "price_out": price_out}


def _prices(pricing: Any) -> tuple[float, float] | None:
    try:
        found = float(pricing["prompt"]), float(pricing["completion"])
    except (TypeError, KeyError, ValueError):
        return None
    return found if all(map(math.isfinite, found)) and min(found) >= 0 else None  # -1 is "it depends"


def _first(*sizes: object) -> int | None:
    """The first that can be a window."""
    return next(filter(None, map(token_count, sizes)), None)
