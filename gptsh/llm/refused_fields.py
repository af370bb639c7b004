"""Which optional fields of a request a server has refused: left out from then on, and remembered for a day."""

from collections.abc import Collection

from gptsh.llm.server_cache import ServerCache, server_and_model
from gptsh.models.providers import Provider


class RefusedFields:
    """The fields that each server has refused for a model, by their names in ``REFUSABLE`` of the API."""

    def __init__(self, cache: ServerCache) -> None:
        self._cache = cache
        self._by_model: dict[str, set[str]] = {}  # those of this process

    def of(self, provider: Provider) -> set[str]:
        """The fields that the server has refused for this model."""
        here = self._by_model.get(server_and_model(provider), set())
        return here | set(self._cache.entry(provider).get("refused", ()))

    def add(self, provider: Provider, fields: Collection[str], lasting_fields: Collection[str]) -> None:
        """Remember refused fields for this process; ``lasting_fields`` also in the cache file."""
        self._by_model.setdefault(server_and_model(provider), set()).update(fields)
        if lasting_fields:
            entry = self._cache.entry(provider)
            entry["refused"] = sorted({*entry.get("refused", ()), *lasting_fields})
