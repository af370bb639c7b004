"""Which of OpenAI's two APIs a server has for a model, Responses or chat completions: tried, and known for a day."""

import re
from collections.abc import Set

from gptsh.errors import ModelError
from gptsh.llm.refused_fields import STATUSES, RefusedFields
from gptsh.models.vendors import ApiName, Provider

_OTHER: dict[ApiName, ApiName] = {"responses": "chat", "chat": "responses"}
_NOT_SERVED = (404, 405, 501)  # statuses of a server that lacks an API
# What an error names if a server lacks the Responses API, or serves a model, or its tools, by this API alone.
_NAMES_RESPONSES = "(?i)/responses|responses (?:api|endpoint|operation)"


class OpenaiApis:
    """Chooses between the two APIs.

    One that a server lacks is among its refused fields, under the API's name. ``left_out`` are
    those that the request at hand was refused for so far.
    """

    def __init__(self, refused: RefusedFields) -> None:
        self._refused = refused

    def choose(self, provider: Provider, left_out: Set[str] = frozenset()) -> ApiName:
        """The provider's API, or the other one if only that may be served."""
        other, refusals = _OTHER.get(provider.api), self._refused.of(provider) | left_out
        lacks_own = provider.api in refusals
        return other if other and lacks_own and other not in refusals else provider.api

    def refused_by(self, err: ModelError, provider: Provider, left_out: Set[str]) -> set[str]:
        """Return the provider's API if an error says that only the other one may be served.

        Some servers lack Responses. OpenAI's serves many models, or their tools, by Responses alone.
        """
        other, refusals = _OTHER.get(provider.api), self._refused.of(provider) | left_out
        if other is None or not _is_refused(err, provider):
            return set()
        # Chat completions have pointed to Responses, for the tools: they take these without reasoning.
        goes_back = provider.api == "responses" and provider.api not in refusals
        return {provider.api} if goes_back or other not in refusals else set()


def _is_refused(err: ModelError, provider: Provider) -> bool:
    """Whether an error means that the server does not serve the model by the provider's API."""
    from gptsh.llm.error_bodies import own_words

    names_responses = err.status in STATUSES and bool(re.search(_NAMES_RESPONSES, own_words(err.detail)))
    if provider.api == "chat":
        return names_responses
    return provider.has_custom_base and (names_responses or err.status in _NOT_SERVED)
