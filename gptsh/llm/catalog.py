"""Which models can be asked from here: those of providers whose key is set, and those that servers offer."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gptsh.config.providers import Provider
from gptsh.config.settings import Settings
from gptsh.errors import GptshError
from gptsh.llm.client import PROBE_TIMEOUT, Client
from gptsh.llm.routes import wire_for
from gptsh.llm.windows import listed_window
from gptsh.models.catalog import compatible_endpoints
from gptsh.models.facts import Facts, is_retired, models_of
from gptsh.models.providers import DIRECT, LOCAL, Wire

_PATIENCE = 5.0  # seconds for a server elsewhere to list its models
_OWN_NAMES = ("azure",)  # a model is called there what its owner called it


class Listed(NamedTuple):
    """One model as ``-m`` takes it, its transport, its window in tokens, its prices in USD per token in and out."""

    model: str
    wire: Wire
    window: int | None
    prices: tuple[float, float] | None


class Silent(NamedTuple):
    """A server that does not tell its models."""

    provider: str
    why: str


def catalog(settings: Settings, client: Client) -> Iterator[Listed | Silent]:
    """Every model that can be asked, provider by provider; the built-in one first."""
    yield Listed("echo", "echo", None, (0.0, 0.0))
    for name in dict.fromkeys([*settings.providers, *compatible_endpoints()]):
        provider = settings.providers.get(name)
        if provider and name not in _OWN_NAMES and _is_open(provider):
            yield from _models(provider, client)


def _is_open(provider: Provider) -> bool:
    return bool(provider.key or provider.key_command or (provider.wire in DIRECT and not provider.needs_key))


def _models(provider: Provider, client: Client) -> Iterator[Listed | Silent]:
    asks = provider.wire in DIRECT and (provider.own_base or provider.name in LOCAL)
    known = [] if asks else [facts for facts in models_of(provider.name) if not is_retired(facts.entry)]
    for facts in known:
        window = provider.context_window or facts.window
        yield Listed(
            f"{provider.name}/{facts.name}", wire_for(provider, facts.name, {}), window, provider.priced(facts).prices
        )
    if known or provider.wire not in DIRECT:
        return
    local = provider.name in LOCAL and not provider.own_base
    try:
        served = client.served_models(provider, PROBE_TIMEOUT if local else _PATIENCE)
    except GptshError as err:
        if not local:  # that none runs here is no news
            yield Silent(provider.name, str(err))
        return
    yield from (_served(provider, model) for model in served)


def _served(provider: Provider, model: Mapping[str, Any]) -> Listed:
    """A model as servers list them: some say its window, OpenRouter its price too."""
    window = provider.context_window or listed_window(model)
    prices = provider.priced(Facts(provider.name, model["id"])).prices or _prices(model.get("pricing"))
    return Listed(f"{provider.name}/{model['id']}", provider.wire, window, prices)


def _prices(pricing: Any) -> tuple[float, float] | None:
    try:
        found = float(pricing["prompt"]), float(pricing["completion"])
    except (TypeError, KeyError, ValueError, OverflowError):
        return None
    return found if all(map(math.isfinite, found)) and min(found) >= 0 else None  # -1 is "it depends"
