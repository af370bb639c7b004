"""Decide what to leave out when asking again after a refusal: parameters, efforts, optional fields; known for a day."""

import re
from collections.abc import Collection

from gptsh.errors import ModelError
from gptsh.llm.server_cache import ServerCache, server_and_model
from gptsh.messages import Request
from gptsh.models.providers import Provider

STATUSES = (400, 404, 422, 500)  # of a refusal; OpenAI sends 404 for an item, Ollama 500
_PER_REQUEST = {"schema"}  # refused because of one request's content: not remembered for the server
# Refused because of earlier answers: the next answer remembers it, see ``Message``.
_REASONING = {"thinking", "items", "parts"}


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

    def learn(self, err: ModelError, request: Request, provider: Provider, refused_reasoning: set[str]) -> bool:
        """Remember the fields that an error refuses; return whether the next request differs without them.

        Refused reasoning of earlier answers goes into ``refused_reasoning``: it concerns this session alone.
        """
        if err.status not in STATUSES or provider.api == "litellm":
            return False
        # Few requests are refused.
        from gptsh.llm.apis import api_of
        from gptsh.llm.error_bodies import own_words
        from gptsh.llm.unsupported_params import unsupported_efforts, unsupported_params
        from gptsh.models.accepted_parameters import fit_params

        api, text = api_of(provider), own_words(err.detail)
        known = self.of(provider) | refused_reasoning
        effort = fit_params(request.params, provider, known).effort
        new = {name for name, pattern in api.REFUSABLE.items() if re.search(pattern, text)}
        new |= unsupported_efforts(text, effort)
        new |= unsupported_params(text, request.params)
        new -= known
        body = api.body(request, provider, known, None)
        if api.body(request, provider, known | new, None) == body:
            return False
        refused_reasoning |= new & _REASONING
        of_server = new - _REASONING
        self.add(provider, of_server, of_server - _PER_REQUEST)
        return True
