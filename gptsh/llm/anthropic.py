"""The Anthropic Messages dialect: a request to its JSON body. No network here."""

import re
from collections.abc import Collection, Iterator
from typing import Any

from gptsh.content.answer import Answer, Request
from gptsh.context.answer_schema import asked_in_words
from gptsh.errors import ModelError
from gptsh.jsonio import as_dict
from gptsh.llm import failures
from gptsh.llm.anthropic_content import THOUGHTS, Conversation, conversation, without_thoughts
from gptsh.llm.anthropic_schema import narrowed, sayable
from gptsh.llm.anthropic_stream import Reader, payloads
from gptsh.llm.http import Response
from gptsh.llm.parameters import fit
from gptsh.llm.payloads import read
from gptsh.llm.routes import Route
from gptsh.messages import Event, Part, token_count
from gptsh.models.facts import Facts, likely_facts

_USUAL_LIMIT = 4096  # tokens of an answer of a model that nothing is known about
_LEAST_ANSWER = 1024  # tokens beside thinking
_MARK = {"cache_control": {"type": "ephemeral"}}
# What a server may refuse that it can be asked without, and how its refusal names it.
_REFUSABLE = {
    "schema": re.compile("output[_. ]?(?:config|format)|compiled grammar", re.IGNORECASE),
    "thinking": re.compile(
        "`?signature`? in|different conversation|thinking.{0,60}(?:modified|signature|contain)"
        "|cannot (?:contain|be) `?(?:redacted_)?thinking|(?:[Ee]xpected|first block must be) `?thinking"
    ),
    "marks": re.compile("cache_control"),
}


class Messages:
    """The dialect. It remembers what which model of which server has refused."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, str], frozenset[str]] = {}

    def url(self, route: Route) -> str:
        """Where the request goes."""
        return f"{route.provider.base_url}/messages"

    def body(self, request: Request, route: Route) -> dict[str, Any]:
        """What is sent."""
        return body(request, route, self._refused.get(_place(route), frozenset()))

    def learns(self, err: ModelError, request: Request, route: Route) -> bool:
        """Whether the server refused what it can be asked without: a schema, earlier thinking, marks for a cache."""
        if err.status not in failures.BAD_REQUEST:
            return False
        known = self._refused.get(_place(route), frozenset())
        refused = known | {name for name, pattern in _REFUSABLE.items() if pattern.search(err.detail)}
        if body(request, route, refused) == body(request, route, known):
            return False
        self._refused[_place(route)] = refused
        return True

    def read(self, response: Response, _route: Route, answer: Answer) -> Iterator[Event]:
        """The events of the answer."""
        found = payloads(response.chunks(), response.headers.get("content-type", ""))
        return read(found, Reader(answer), answer, response.hurry)


def _place(route: Route) -> tuple[str, str]:
    return route.provider.base_url, route.model


def body(request: Request, route: Route, without: Collection[str] = ()) -> dict[str, Any]:
    """The JSON body. ``without``: what the server has refused, by the names of ``_REFUSABLE``."""
    provider = route.provider
    params = fit(request.params, provider.name, route.model, provider.endpoint).sent
    asked = request.messages
    if request.schema is not None:
        schema = None if "schema" in without else narrowed(request.schema)
        if schema != request.schema:
            asked = asked_in_words(asked, request.schema)
        if schema is not None:
            form = {"format": {"type": "json_schema", "schema": schema}}
            params["output_config"] = as_dict(params.get("output_config")) | form
    said = conversation(asked, provider.name, route.model, thinking="thinking" not in without)
    _agree(params, _loop(said.messages), likely_facts(provider.name, route.model))
    limit = params.pop("max_tokens", None)
    sent: dict[str, Any] = {
        "model": route.model,
        "max_tokens": _limit(route, params) if limit is None else limit,
        **({"system": said.system} if said.system else {}),
        "messages": said.messages,
        **params,
        **_tools(request, params, said),
        **({"stream": True} if request.stream else {}),
    }
    return sent if "marks" in without else _marked(sent, said)


def _limit(route: Route, params: dict[str, Any]) -> int:
    """Tokens of an answer whose length nobody has limited: the API wants a number."""
    known = likely_facts(route.provider.name, route.model)
    window = route.provider.context_window or known.window
    most = token_count(known.entry.get("max_output_tokens")) or _USUAL_LIMIT
    limit = min(most, window // 4) if window else most
    budget = token_count(as_dict(params.get("thinking")).get("budget_tokens")) or 0
    return max(limit, budget + _LEAST_ANSWER if budget else 1)


def _loop(messages: list[Part]) -> list[Part]:
    """The answers since the last question that brings no results of tools: those of a loop that goes on."""
    answers: list[Part] = []
    for message in reversed(messages):
        if message["role"] == "assistant":
            answers.insert(0, message)
        elif all(block["type"] != "tool_result" for block in message["content"]):
            break
    return answers


def _agree(params: dict[str, Any], loop: list[Part], known: Facts) -> None:
    """Make thinking and a loop agree, in place: either is refused without the other.

    A model with a budget thinks once, where the loop begins. If another model began it, or no thought may go back,
    this one goes on without thinking, and without the thoughts in between. Newer models think unless told not to.
    """
    kind = as_dict(params.get("thinking")).get("type")
    if kind == "enabled" and loop and loop[0]["content"][0]["type"] not in THOUGHTS:
        del params["thinking"]
        kind = "disabled"
    thinks_unasked = known.can("adaptive_thinking") or not known.can("reasoning")
    if kind == "disabled" or (kind is None and not thinks_unasked):
        for message in loop:
            message["content"] = without_thoughts(message["content"])


def _tools(request: Request, params: dict[str, Any], said: Conversation) -> dict[str, Any]:
    """The field that offers tools. Where none are offered any more those that were called are named, and forbidden."""
    if request.tools:
        offered = [{"name": t.name, "description": t.description, "input_schema": t.parameters} for t in request.tools]
        return {"tools": list(map(sayable, offered))}
    if own := params.get("tools"):
        return {"tools": list(map(sayable, own))} if isinstance(own, list) else {}
    called = [block["name"] for message in said.messages for block in message["content"] if block["type"] == "tool_use"]
    if not called:
        return {}
    named = [{"name": name, "input_schema": {"type": "object"}} for name in dict.fromkeys(called)]
    return {"tools": named, "tool_choice": {"type": "none"}}


def _marked(sent: dict[str, Any], said: Conversation) -> dict[str, Any]:
    """The body with marks where its beginning is to be kept, so that a session pays for its history once.

    A first question without tools gets none: to keep it costs a quarter more, and most are never gone on with. Else
    the mark at the end serves the next request, and those before find what the last one left.
    """
    messages = said.messages
    if not (sent.get("tools") or any(message["role"] == "assistant" for message in messages)):
        return sent
    head = next((name for name in ("system", "tools") if sent.get(name) and isinstance(sent[name], list)), None)
    if head:
        sent[head] = _marked_at_end(sent[head])
    of_user = [at for at, message in enumerate(messages) if message["role"] == "user"]
    for at in {*of_user[-2:], *said.starts[-2:-1]}:
        messages[at] = {**messages[at], "content": _marked_at_end(messages[at]["content"])}
    return sent


def _marked_at_end(blocks: list[Any]) -> list[Any]:
    return [*blocks[:-1], {**blocks[-1], **_MARK}] if isinstance(blocks[-1], dict) else blocks
