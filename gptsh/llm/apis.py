"""The APIs that gptsh speaks: the module of each is imported once a run needs it."""

from gptsh.llm.request_tools import Api
from gptsh.models.vendors import ApiName, Provider


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
