"""What an answer cost in USD: at the prices in config.toml, else at those of the packaged model table."""

from gptsh.config.settings import Settings
from gptsh.messages import Usage
from gptsh.models.cost import cost
from gptsh.models.facts import facts


def cost_of(settings: Settings, model: str, usage: Usage) -> float | None:
    """Return the cost of one call in USD, or None if unknown. Raises ConfigError as ``Providers.for_model`` does."""
    provider = settings.providers.for_model(model)
    model_facts = facts(provider.name, provider.model)
    return cost(provider.with_prices(model_facts), usage)
