"""The prices of a model, and what an answer cost in USD: prices in config.toml replace those of the model table."""

from gptsh.config.settings import Settings
from gptsh.messages import Usage
from gptsh.models.facts import Facts, exact_facts
from gptsh.models.usage import PRICE_KEYS, cost
from gptsh.models.vendors import Provider


def cost_of(settings: Settings, model: str, usage: Usage) -> float | None:
    """Return the cost of one call in USD, or None if unknown. Raises ConfigError as ``Providers.for_model`` does."""
    provider = settings.providers.for_model(model)
    model_facts = exact_facts(provider.name, provider.model)
    return cost(with_config_prices(model_facts, provider), usage)


def with_config_prices(model_facts: Facts, provider: Provider) -> Facts:
    """Return the facts of a model with the config file's prices, which replace all others, if there are any."""
    configured = provider.prices.get(model_facts.name) or provider.prices.get("*") or {}
    prices = {PRICE_KEYS[kind]: price / 1e6 for kind, price in configured.items() if price is not None}
    if not prices:
        return model_facts
    entry = {key: value for key, value in model_facts.entry.items() if "_cost" not in key and "pricing" not in key}
    return model_facts._replace(entry=entry | prices, has_config_prices=True)
