"""Which models can be asked from here: those of providers whose key is set, and those that servers offer."""

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any, NamedTuple

from gptsh.core.models import Facts, models_of
from gptsh.core.providers import LOCAL, Wire
from gptsh.core.settings import Provider, Settings
from gptsh.llm.client import PROBE_TIMEOUT, Client
from gptsh.llm.routes import wire_for

_PATIENCE = 5.0  # seconds for a server elsewhere to list its models
_OWN_NAMES = ("azure",)  # a model is called there what its owner called it


class Listed(NamedTuple):
    """One model as ``-m`` takes it, its transport, its window in tokens, its prices in USD per token in and out."""

    model: str
    wire: Wire
    window: int | None
    prices: tuple[float, float] | None


def catalog(settings: Settings, client: Client) -> Iterator[Listed]:
    """Every model that can be asked, provider by provider; the built-in one first."""
    yield Listed("echo", "echo", None, (0.0, 0.0))
    for name in settings.providers:
        provider = settings.providers.get(name)
        if provider and name not in _OWN_NAMES and _is_open(provider):
            yield from _models(provider, client)


def _is_open(provider: Provider) -> bool:
    return bool(provider.key or provider.key_command or (provider.wire == "chat" and not provider.needs_key))


def _models(provider: Provider, client: Client) -> Iterator[Listed]:
    known = [] if provider.name in LOCAL or provider.own_base else list(models_of(provider.name))
    for facts in known:
        if not _is_gone(facts):
            window = provider.context_window or facts.window
            yield Listed(f"{provider.name}/{facts.name}", wire_for(provider, facts.name, {}), window, facts.prices)
    if not known and provider.wire == "chat":
        served = client.served_models(provider, PROBE_TIMEOUT if provider.name in LOCAL else _PATIENCE)
        yield from (_served(provider, model) for model in served)


def _is_gone(facts: Facts) -> bool:
    return str(facts.entry.get("deprecation_date") or "9") < date.today().isoformat()


def _served(provider: Provider, model: Mapping[str, Any]) -> Listed:
    """A model as servers list them: vLLM, llama.cpp and OpenRouter say its window, OpenRouter its price too."""
    meta = model.get("meta")
    windows = (
        provider.context_window,
        model.get("max_model_len"),
        meta.get("n_ctx") if isinstance(meta, dict) else None,
        model.get("context_length"),
    )
    window = next((size for size in windows if isinstance(size, int) and size > 0), None)
    return Listed(f"{provider.name}/{model['id']}", "chat", window, _prices(model.get("pricing")))


def _prices(pricing: Any) -> tuple[float, float] | None:
    try:
        found = float(pricing["prompt"]), float(pricing["completion"])
    except (TypeError, KeyError, ValueError):
        return None
    return found if min(found) >= 0 else None  # -1 is "it depends"
