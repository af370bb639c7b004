"""The APIs that gptsh speaks: what the module of each must have, and its import, once a run needs it."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from gptsh.content.answer import Answer
from gptsh.llm.request_tools import Refusable
from gptsh.messages import Event, Part, Request
from gptsh.models.providers import ApiName, Provider

if TYPE_CHECKING:
    from gptsh.llm.http import Response


class Api(Protocol):
    """One API: how to write its requests and read its answers. A module of ``llm/`` has the name of its API."""

    REFUSABLE: dict[str, Refusable]  # by the field

    def path(self, request: Request, provider: Provider) -> str:
        """The path of the request's URL, after the base URL."""

    def body(self, request: Request, provider: Provider, refusals: Collection[str], ollama: Any) -> dict[str, Any]:
        """The JSON body without the refused fields. It may ask the server how the model is loaded."""

    def read(self, response: "Response", provider: Provider, answer: Answer, ollama: Any) -> Iterator[Event]:
        """Write the response into ``answer`` and yield its events. Raises ModelError, TimedOut or TooLong."""

    def accepts(self, part: Part, provider: Provider) -> bool:
        """Whether a question can carry this part, which is not text."""


def api_of(provider: Provider) -> Api:
    """The module of a provider's API. Only that module is imported, since a run needs one."""
    name: ApiName = provider.api
    match name:
        case "anthropic":
            from gptsh.llm import anthropic

            return anthropic
        case "responses":
            from gptsh.llm import responses

            return responses
        case "gemini":
            from gptsh.llm import gemini

            return gemini
        case "ollama":
            from gptsh.llm import ollama

            return ollama
    from gptsh.llm import chat

    return chat
