"""How a server is asked for a model's window: the documents that Ollama, llama.cpp, vLLM, LM Studio, OpenRouter give.

No network here: ``fetch`` gets a document as parsed JSON, None where there is none. All of it is read by shape.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gptsh.config.providers import Provider
from gptsh.jsonio import as_dict, as_dicts
from gptsh.messages import token_count
from gptsh.models.providers import DIRECT, LOCAL

Fetch = Callable[[str, Mapping[str, Any] | None], Any]  # the URL, and the body where it is posted
_Way = Callable[[Provider, str, Fetch], int | None]

_NUM_CTX = re.compile(r"^[ \t]*num_ctx[ \t]+([0-9]{1,10})[ \t\r]*$", re.MULTILINE)  # no part goes beyond its line
_LATEST = ":latest"


class Shown(NamedTuple):
    """What Ollama says about a model: the window that its file sets and the one it was trained for, in tokens.

    ``abilities`` are its own words, such as ``vision``; None where it does not tell.
    """

    num_ctx: int | None = None
    trained: int | None = None
    abilities: tuple[str, ...] | None = None


def can_tell(provider: Provider) -> bool:
    """Whether asking the provider for a window makes sense: servers of the user's own, and OpenRouter."""
    known = provider.own_base or provider.name in LOCAL or provider.name == "openrouter"
    return provider.wire in DIRECT and known


def ask_window(provider: Provider, model: str, fetch: Fetch) -> int | None:
    """Tokens that a prompt may have, as the server says; None where it does not say.

    A server of the wire ``ollama`` is asked by ``ollama_models``.
    """
    for way in _WAYS.get(provider.name, _OF_UNKNOWN):
        if window := way(provider, model, fetch):
            return window
    return None


def models_url(provider: Provider) -> str:
    """Where a server lists its models."""
    return f"{provider.base_url}{'/v1' if provider.wire == 'ollama' else ''}/models"


def entries(payload: Any) -> list[dict[str, Any]]:
    """The models in the payload of ``/models``, each with its ``id``."""
    found = payload.get("data") if isinstance(payload, dict) else payload
    return [entry for entry in as_dicts(found) if entry.get("id") and isinstance(entry["id"], str)]


def listed_window(entry: Mapping[str, Any]) -> int | None:
    """The window in an entry of ``/models``: vLLM's, llama.cpp's, OpenRouter's for who answers first, the model's."""
    windows = (
        entry.get("max_model_len"),
        as_dict(entry.get("meta")).get("n_ctx"),
        as_dict(entry.get("top_provider")).get("context_length"),
        entry.get("context_length"),
    )
    return _first(*windows)


# ---- the ways


def _listed(provider: Provider, model: str, fetch: Fetch) -> int | None:
    """The model's entry; llama.cpp lists the one that it serves under a name that nobody needs to use."""
    listed = entries(fetch(models_url(provider), None))
    found = [entry for entry in listed if entry["id"] == model]
    only = [entry for entry in listed if len(listed) == 1 and "meta" in entry]
    return next(map(listed_window, found or only), None)


def _props(provider: Provider, _model: str, fetch: Fetch) -> int | None:
    """llama.cpp before it told this in its list."""
    props = as_dict(fetch(f"{_root(provider)}/props", None))
    return _first(as_dict(props.get("default_generation_settings")).get("n_ctx"))


def loaded_by_ollama(provider: Provider, model: str, fetch: Fetch) -> int | None:
    """The window that is allocated now; None where the model is not loaded."""
    running = as_dicts(as_dict(fetch(f"{_root(provider)}/api/ps", None)).get("models"))
    wanted = tagged(model)
    named = [entry for entry in running if wanted in (tagged(str(entry.get("name"))), tagged(str(entry.get("model"))))]
    return _first(*(entry.get("context_length") for entry in named))


def shown_by_ollama(provider: Provider, model: str, fetch: Fetch) -> Shown:
    """What it tells about the model."""
    shown = as_dict(fetch(f"{_root(provider)}/api/show", {"model": model}))
    parameters, info, abilities = shown.get("parameters"), as_dict(shown.get("model_info")), shown.get("capabilities")
    chosen = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    return Shown(
        _first(int(chosen[1]) if chosen else None),
        _first(info.get(f"{info.get('general.architecture')}.context_length")),
        tuple(name for name in abilities if isinstance(name, str)) if isinstance(abilities, list) else None,
    )


def _shown_or_loaded(provider: Provider, model: str, fetch: Fetch) -> int | None:
    """Of a server that may be Ollama, spoken to in OpenAI's dialect: what is loaded, else what the model's file sets,
    else what it was trained for.

    The last is an upper bound: the server's own default may be less, and a prompt beyond it is cut without a word.
    Only what the answer reports then tells (``tokens.was_cut``).
    """
    num_ctx, trained, _ = shown_by_ollama(provider, model, fetch)
    shown = num_ctx or trained
    return (loaded_by_ollama(provider, model, fetch) or shown) if shown else None


def _of_lm_studio(provider: Provider, model: str, fetch: Fetch) -> int | None:
    """What it is loaded with, else the model's maximum, an upper bound; since 0.4."""
    models = as_dicts(as_dict(fetch(f"{_root(provider)}/api/v1/models", None)).get("models"))
    for entry in models:
        instances = as_dicts(entry.get("loaded_instances"))
        of_instance = [instance for instance in instances if instance.get("id") == model]
        if of_instance or model in (entry.get("key"), entry.get("id")):
            loaded = [as_dict(instance.get("config")) | instance for instance in of_instance or instances]
            return _first(*(settings.get("context_length") for settings in loaded), entry.get("max_context_length"))
    return None


def _of_older_lm_studio(provider: Provider, model: str, fetch: Fetch) -> int | None:
    listed = entries(fetch(f"{_root(provider)}/api/v0/models", None))
    entry: Mapping[str, Any] = next((entry for entry in listed if entry["id"] == model), {})
    return _first(entry.get("loaded_context_length"), entry.get("max_context_length"))


_WAYS: Mapping[str, tuple[_Way, ...]] = {
    "llamafile": (_listed, _props),
    "hosted_vllm": (_listed,),
    "openrouter": (_listed,),
    "lm_studio": (_of_lm_studio, _of_older_lm_studio),
}
_OF_UNKNOWN: tuple[_Way, ...] = (_listed, _props, _shown_or_loaded, _of_older_lm_studio)


# ---- by shape


def _root(provider: Provider) -> str:
    return provider.base_url.removesuffix("/v1")


def tagged(name: str) -> str:
    """Ollama's name of a model with its tag."""
    return name if ":" in name.rpartition("/")[2] else name + _LATEST


def _first(*sizes: object) -> int | None:
    """The first that can be a window."""
    return next(filter(None, map(token_count, sizes)), None)
