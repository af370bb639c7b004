"""What an API is, and what the requests of several have in common: tools, a schema as text, optional fields."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gptsh.content.answer import Answer
from gptsh.messages import Event, Part, Request, Tool
from gptsh.models.vendors import Provider
from gptsh.records import NamedTuple

if TYPE_CHECKING:
    from gptsh.llm.http import Response

# Refused at the top of a tool's schema by OpenAI, and most of them by Anthropic.
_CONDITIONS = ("allOf", "anyOf", "oneOf", "enum", "const", "not")


class Refusable(NamedTuple):
    """How an error refuses an optional field: by one of its names, or in a set wording."""

    names: tuple[str, ...] = ()
    wording: str = "(?!)"  # a pattern; this one matches nothing


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


def take_tools(
    params: dict[str, Any], request: Request, provider: Provider, declare: Callable[[Sequence[Tool]], list[Part]]
) -> list[Part]:
    """All tools of a request: the user's own, removed from ``params``, the provider's web search, and the offered ones.

    ``declare`` writes the offered ones in the API's form.
    """
    own_tools = params.pop("tools", None)
    tools = [*own_tools] if isinstance(own_tools, list) else []
    if request.web and provider.web_search and provider.web_search.tool:
        tools.append({**provider.web_search.tool})
    return tools + declare([fit_tool(tool, provider) for tool in request.tools])


def fit_tool(tool: Tool, provider: Provider) -> Tool:
    """Move conditions at the top of a tool's schema into its description, and give the schema its type.

    A description that is too long for the provider is cut at a word.
    """
    tool = _with_plain_schema(tool)
    text, limit = tool.description, provider.longest_description
    if limit and len(text) > limit:
        text = re.sub(r"\s\S*\Z", "", text[: limit - 1]).rstrip() + "…"
    return tool._replace(description=text)


def _with_plain_schema(tool: Tool) -> Tool:
    conditions = {key: tool.parameters[key] for key in _CONDITIONS if key in tool.parameters}
    schema = {key: value for key, value in tool.parameters.items() if key not in conditions} | {"type": "object"}
    if not conditions:
        return tool._replace(parameters=schema)
    rest = json.dumps(conditions, ensure_ascii=False, separators=(",", ":"))
    words = f"The arguments must also conform to this JSON Schema: {rest}"
    return Tool(tool.name, f"{tool.description}\n\n{words}" if tool.description else words, schema)


def openai_schema(tool: Tool) -> dict[str, Any]:
    """The schema of a tool's arguments as OpenAI and Google want it: they require ``properties``."""
    return {**tool.parameters, "properties": tool.parameters.get("properties") or {}}


def schema_as_text(request: Request) -> Request:
    """The request with its schema in the system prompt, for a server that refuses the field."""
    if request.schema is None:
        return request
    from gptsh.context.answer_schema import messages_with_schema

    return request._replace(messages=messages_with_schema(request.messages, request.schema), schema=None)
