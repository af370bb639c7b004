"""Warn that a provider ends a model soon, or has just ended it: one line, once a day."""

from datetime import date

from gptsh.llm.server_cache import ServerCache
from gptsh.models.facts import exact_facts
from gptsh.models.vendors import DIRECT, Provider

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
