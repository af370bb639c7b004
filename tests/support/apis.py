"""The requests of a session in each API, and what strict servers refuse in them."""

import contextlib
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from gptsh.config.accounts import Account, Target
from gptsh.config.settings import ContextRules, Network
from gptsh.content.answer import Answer
from gptsh.context import tokens
from gptsh.context.sendable import as_sent, build_messages, make_sendable
from gptsh.core import document, turns, usage, usage_report
from gptsh.core.turns import merge
from gptsh.errors import ModelError, TooLong
from gptsh.jsonio import encode_json, parse_json
from gptsh.llm import anthropic, chat, gemini, ollama, responses
from gptsh.llm.failures import refusal
from gptsh.llm.litellm_bridge import arguments
from gptsh.llm.stream import encode, make_body, read
from gptsh.messages import Request, Tool
from gptsh.models.vendors import CUSTOM, VENDORS
from gptsh.render.session import session_details, transcript
from tests.support import anthropic_server as claude
from tests.support import gemini_server as google
from tests.support import ollama_server as llama
from tests.support import responses_server as openai
from tests.support.strict import strict

QUESTION: Any = {"role": "user", "content": "and now?", "id": "last"}


def at(name: str, model: str = "m", api: Any = None, refusals: Iterable[str] = ()) -> Target:
    """A model at a provider with a base URL."""
    vendor = VENDORS.get(name, CUSTOM)
    account = Account(name, vendor, "http://x/v1")
    return Target(account, model, api or vendor.api, frozenset(refusals))


def direct(api: Any, provider: str) -> Callable[[Request], bytes]:
    """The body of a request to a provider in one of our APIs, a module of ``llm/``."""
    asked = at(provider, api=api.__name__.rpartition(".")[2])
    return lambda request: encode(make_body(api, request, asked))


def through_litellm(provider: str) -> Callable[[Request], bytes]:
    """The arguments of the call to litellm."""

    def body(request: Request) -> bytes:
        model = request.model.partition("/")[2]
        return encode(arguments(request, at(provider, model, "litellm"), Network()))

    return body


# A new API is one line here.
APIS: dict[str, Callable[[Request], bytes]] = {
    "lab": direct(chat, "lab"),
    "openai": direct(chat, "openai"),
    "responses": direct(responses, "openai"),
    "mistral": direct(chat, "mistral"),
    "deepseek": direct(chat, "deepseek"),
    "groq": direct(chat, "groq"),
    "openrouter": direct(chat, "openrouter"),
    "anthropic": direct(anthropic, "anthropic"),
    "ollama": direct(ollama, "ollama"),
    "gemini": direct(gemini, "gemini"),
    "vertex_ai": through_litellm("vertex_ai"),
}


def claude_complaint(body: dict[str, Any]) -> str | None:
    """What Anthropic's API refuses, except errors after which gptsh repeats the request without thinking."""
    error = claude.complaint(body)
    return (
        None if re.search("Invalid `signature`|When thinking is disabled", error or "") else error
    )


def google_complaint(body: dict[str, Any]) -> str | None:
    """What Google's API refuses, except signatures, after which gptsh repeats the request without them."""
    error = google.complaint(body)
    return None if error == google.CORRUPTED else error


STRICT: dict[str, Callable[[dict[str, Any]], str | None]] = {
    **{name: strict(name) for name in APIS if name != "vertex_ai"},
    "anthropic": claude_complaint,
    "responses": openai.complaint,
    "ollama": llama.complaint,
    "gemini": google_complaint,
}


def request(messages: list[Any], provider: str) -> Request:
    """The request for a session and a question."""
    read = document.parse_document({"messages": messages})[0]["messages"]
    return Request(
        "lab/m", build_messages(make_sendable([*read, QUESTION]), "Brief.", provider, "lab/m"), {}
    )


def exercise(found: dict[str, Any], *dialects: str) -> None:
    """Use a document in all ways, and build its requests in these APIs (default: all). Must not raise."""
    doc = document.parse_document(found)[0]
    document.recount(doc)
    facts = session_details(doc)
    assert all(list(transcript(doc, facts, full=full)) for full in (False, True))
    usage_report.count([usage.sums_by_day(doc)])
    turns.unanswered(doc["messages"])
    turns.at_point(doc, "-0" if turns.starts_of(doc["messages"]) else "")
    joined = merge(doc, {**doc, "messages": doc["messages"][:1]})
    assert encode_json(joined)
    sent = [as_sent(message) for message in doc["messages"]]
    estimator = tokens.Estimator(
        "lab/m", "lab", ContextRules(), None, lambda: sent, is_ollama=False
    )
    estimator.texts = ["Brief."]
    estimator.window = 1
    prompt = estimator.estimated(tokens.Prompt(Request("lab/m", sent, {}), estimator.budget))
    assert prompt.tokens <= prompt.at_most
    built = build_messages(make_sendable([*doc["messages"], QUESTION]), "Brief.", "", "")
    tokens.was_truncated(1, estimator.estimated(prompt.with_messages(built)))
    for name in dialects or APIS:
        APIS[name](Request("lab/m", built, {}))


def request_in_tool_loop(
    model: str, *messages: Any, params: Any = None, without: Any = ()
) -> dict[str, Any]:
    """The body for Claude in the middle of a turn, without a new question; the strict server must accept it."""
    built = build_messages(make_sendable(messages), None, "", "")
    target = at("anthropic", model=model.partition("/")[2], refusals=without)
    sent = make_body(anthropic, Request(model, built, params or {}), target)
    claude.check(sent, claude.HEADERS)
    return sent


def tool_in_request(provider: str, description: str, parameters: Any) -> Any:
    """A tool in the request to a provider."""
    asked = Request(f"{provider}/m", [QUESTION], {}, tools=(Tool("t", description, parameters),))
    (tool,) = json.loads(APIS[provider](asked))["tools"]
    (tool,) = tool.get("functionDeclarations", [tool])
    return tool.get("function", tool)


def read_body(
    api: str, pieces: Iterable[bytes], answer: Answer, media_type: str = "text/event-stream"
) -> None:
    """Write the body that a server sent into ``answer``. Raises as its reader does."""
    modules: dict[str, Any] = {
        "anthropic": anthropic,
        "chat": chat,
        "gemini": gemini,
        "responses": responses,
        "ollama": ollama,
    }
    reader = modules[api].Reader(answer)
    for _ in read(reader.payloads(iter(pieces), media_type), reader):
        pass


def answer_in(api: str, *pieces: bytes) -> Answer:
    """The answer in a stream, which may end early."""
    answer = Answer()
    with contextlib.suppress(ModelError):
        read_body(api, pieces, answer)
    return answer


def read_answer(dialect: str, payloads: list[dict[str, Any]]) -> tuple[Any, bool]:
    """The message in what a server sent, after saving and loading; and whether the stream ended in an error."""
    api = dialect.partition(",")[0]
    streamed = dialect in ("anthropic", "chat", "responses", "gemini")
    pieces = [
        (b"data: %s\n\n" if streamed else b"%s\n") % json.dumps(payload).encode()
        for payload in payloads
    ]
    answer = Answer()
    failed = False
    answer.clear(reads_think_tags=True)
    try:
        read_body(api, pieces, answer, "text/event-stream" if streamed else "")
    except (ModelError, TooLong):
        failed = True
    message = answer.message("error" if failed else None)
    doc = {"version": 1, "id": "7x2m", "messages": [] if message is None else [message]}
    found = document.parse_document(parse_json(encode_json(doc).decode()))[0]["messages"]
    return (found[0] if found else None), failed


def refusal_of(status: int, payload: Any) -> Any:
    """The exception for an error response of a chat completions server."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return refusal("http://x/v1", status, {}, body, at("lab"))
