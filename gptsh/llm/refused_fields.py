"""Decide what to leave out when asking again after a refusal.

It is remembered for a day, once the request without it was answered.
"""

import re
from collections.abc import Set

from gptsh.errors import ModelError
from gptsh.llm.request_tools import Api
from gptsh.llm.server_cache import ServerCache, server_and_model
from gptsh.messages import Request
from gptsh.models.vendors import Provider

STATUSES = (400, 404, 422, 500)  # of a refusal; OpenAI sends 404 for an item, Ollama 500
# Refused because of earlier answers: the next answer remembers it, see ``Message``.
REASONING = {"thinking", "items", "parts"}
_PER_REQUEST = {"schema"}  # refused because of one request's content: not remembered for the server


class RefusedFields:
    """The fields that each server has refused for a model, by their names in ``REFUSABLE`` of the API."""

    def __init__(self, cache: ServerCache) -> None:
        self._cache = cache
        self._by_model: dict[str, set[str]] = {}  # those of this process

    def of(self, provider: Provider) -> set[str]:
        """The fields that the server has refused for this model."""
        here = self._by_model.get(server_and_model(provider), set())
        return here | set(self._cache.entry(provider).get("refused", ()))

    def remember(self, provider: Provider, left_out: Set[str]) -> None:
        """Remember what an answered request was sent without: most of it for a day."""
        fields = left_out - REASONING
        lasting = fields - _PER_REQUEST
        self._by_model.setdefault(server_and_model(provider), set()).update(fields)
        if lasting:
            entry = self._cache.entry(provider)
            entry["refused"] = sorted({*entry.get("refused", ()), *lasting})

    def refused_by(
        self,
        err: ModelError,
        request: Request,
        provider: Provider,
        left_out: Set[str],
        api: Api,
    ) -> set[str]:
        """Return the fields to leave out of this request as well, because an error refuses them.

        Empty if the request would be the same without them. ``left_out`` are those that earlier
        errors refused.
        """
        if err.status not in STATUSES or provider.api == "litellm":
            return set()
        from gptsh.llm.error_bodies import own_words
        from gptsh.llm.unsupported_params import (
            refuses_field,
            unsupported_efforts,
            unsupported_params,
        )
        from gptsh.models.accepted_parameters import fit_params

        text = own_words(err.detail)
        known = self.of(provider) | left_out
        effort = fit_params(request.params, provider, known).effort
        new = unsupported_efforts(text, effort) | unsupported_params(text, request.params)
        for field, refusable in api.REFUSABLE.items():
            if refuses_field(text, refusable.names) or re.search(refusable.wording, text):
                new.add(field)
        new -= known
        if not new:
            return new
        body = api.body(request, provider, known, None)
        return new if api.body(request, provider, known | new, None) != body else set()
