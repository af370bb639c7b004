"""What is sent conforms to the types of the provider's own SDK."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from gptsh.context.sendable import build_messages, make_sendable
from gptsh.core import document
from gptsh.llm import anthropic, chat, gemini, responses
from gptsh.llm.stream import encode, make_body
from gptsh.messages import Request, Tool
from tests.support import vocabulary
from tests.support.apis import QUESTION, at
from tests.support.gemini_server import call, signed, thought
from tests.support.responses_server import message, reasoning, search

OUTPUT = [reasoning("a", "Hm."), search(), message("", phase="final_answer")]
OUTPUT[2]["content"] = [{"type": "output_text", "annotations": []}]
OWN: Any = {
    "role": "assistant", "content": "It rains.", "provider": "openai", "model": "openai/m", "finish_reason": "stop",
    "replay": {"items": OUTPUT}, "id": "own",
}  # fmt: skip


def _checker(adapter: Any) -> Any:
    """A function that raises if a value does not conform; lists are checked only as they are read."""

    def read(value: Any) -> None:
        if isinstance(value, dict):
            read(list(value.values()))
        elif not isinstance(value, (str, bytes)) and hasattr(value, "__iter__"):
            for item in value:
                read(item)

    return lambda value: read(adapter.validate_python(value))


@pytest.fixture(scope="module")
def of_openai() -> Any:
    """A function that raises if a request does not conform."""
    from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
    from pydantic import TypeAdapter

    return _checker(TypeAdapter(ResponseCreateParamsNonStreaming))


@pytest.mark.slow
@pytest.mark.timeout(300)
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(messages=vocabulary.messages())
def test_requests_to_openai_are_of_its_sdks_types(of_openai: Any, messages: list[Any]) -> None:
    read = document.parse_document({"messages": messages})[0]["messages"]
    built = build_messages(
        make_sendable([*read, {**QUESTION, "id": "first"}, OWN, QUESTION]),
        "Brief.",
        "openai",
        "openai/m",
    )
    tools = (Tool("ls", "Lists.", {"type": "object"}),)
    params = {"max_tokens": 50, "reasoning_effort": "low", "verbosity": "low", "temperature": 1}
    request = Request("openai/m", built, params, False, {"type": "object"}, tools)
    body = json.loads(encode(make_body(responses, request, at("openai"))))
    assert [item.get("type") for item in body["input"]][-4:] == [
        "reasoning",
        "web_search_call",
        "message",
        None,
    ]
    of_openai(body)


PARTS: list[dict[str, Any]] = [
    signed(thought("Hm.")), {"text": None, "thoughtSignature": "c2ln"}, {"toolCall": {"id": "t1"}},
    {**signed(call("ls", {})), "functionCall": None},
]  # fmt: skip
MADE = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
GOOGLES: Any = [
    {"role": "assistant", "content": "I look.", "tool_calls": [MADE], "provider": "gemini", "model": "gemini/m",
     "finish_reason": "tool_calls", "replay": {"parts": PARTS}, "id": "own"},
    {"role": "tool", "tool_call_id": "c1", "content": "a.txt", "id": "result"},
]  # fmt: skip


@pytest.fixture(scope="module")
def of_google() -> Any:
    """A function that raises if a request does not conform."""
    types = pytest.importorskip("google.genai.types", reason="make servers installs it")
    shapes = {"systemInstruction": types.Content, "generationConfig": types.GenerationConfig}
    of_items = {"contents": types.Content, "tools": types.Tool}

    def check(body: dict[str, Any]) -> None:
        assert body.pop("store") is False
        for key, value in body.items():
            for item in value if key in of_items else [value]:
                of_items.get(key, shapes.get(key)).model_validate(item)

    return check


@pytest.mark.servers
@pytest.mark.timeout(300)
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(messages=vocabulary.messages())
def test_requests_to_google_are_of_its_sdks_types(of_google: Any, messages: list[Any]) -> None:
    read = document.parse_document({"messages": messages})[0]["messages"]
    built = build_messages(
        make_sendable([*read, {**QUESTION, "id": "first"}, *GOOGLES, QUESTION]),
        "Brief.",
        "gemini",
        "gemini/m",
    )
    tools = (Tool("ls", "Lists.", {"type": "object"}),)
    params = {
        "max_tokens": 50,
        "reasoning_effort": "low",
        "temperature": 1,
        "top_k": 4,
        "stop": "x",
        "seed": 7,
    }
    request = Request("gemini/m", built, params, False, {"type": "object"}, tools)
    body = json.loads(encode(make_body(gemini, request, at("gemini"))))
    assert [sorted(part) for part in body["contents"][-2]["parts"]][-4:] == [
        ["text", "thought", "thoughtSignature"], ["text", "thoughtSignature"], ["toolCall"],
        ["functionCall", "thoughtSignature"],
    ]  # fmt: skip
    of_google(body)


# ---- a session that went through all APIs

PICTURE = {
    "type": "image_url",
    "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="},
    "source": "a.png",
}
PDF = {
    "type": "file",
    "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}


def called(number: int, provider: str, **more: Any) -> list[Any]:
    """A question with media, the call of this provider's model, its result, and the answer."""
    use = {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": "ls", "arguments": '{"path": "."}'},
    }
    own = {"provider": provider, "model": f"{provider}/m"}
    parts = [{"type": "text", "text": f"Question {number}?"}, PICTURE, PDF]
    return [
        {"role": "user", "content": parts, "id": f"q{number}"},
        {"role": "assistant", "content": "I look.", "tool_calls": [use], "finish_reason": "tool_calls", **own, **more,
         "id": f"c{number}"},
        {"role": "tool", "tool_call_id": use["id"], "name": "ls", "content": "a.txt", "id": f"r{number}"},
        {"role": "assistant", "content": "It is there.", "finish_reason": "stop", **own, "id": f"a{number}"},
    ]  # fmt: skip


TRAVELLED: list[Any] = [
    *called(1, "openai", replay={"reasoning_content": "Hm."}),
    *called(2, "anthropic", thinking=[THOUGHT]),
    *called(3, "ollama", replay={"thinking": "Hm."}),
    *called(4, "deepseek", replay={"reasoning_content": "Hm."}),
    {**QUESTION, "id": "q5"}, OWN,
    {**QUESTION, "id": "q6"}, *GOOGLES, {"role": "assistant", "content": "A text.", "provider": "gemini", "id": "a6"},
    QUESTION,
]  # fmt: skip


@pytest.fixture(scope="module")
def of_claude() -> Any:
    """A function that raises if a request does not conform."""
    types = pytest.importorskip(
        "anthropic.types.message_create_params", reason="make servers installs it"
    )
    from pydantic import TypeAdapter

    return _checker(TypeAdapter(types.MessageCreateParamsNonStreaming))


@pytest.fixture(scope="module")
def of_chat() -> Any:
    """A function that raises if a request does not conform."""
    from openai.types.chat.completion_create_params import (
        CompletionCreateParamsNonStreaming,
    )
    from pydantic import TypeAdapter

    return _checker(TypeAdapter(CompletionCreateParamsNonStreaming))


@pytest.mark.servers
@pytest.mark.parametrize(
    ("provider", "api", "checks"),
    [("openai", responses, "of_openai"), ("openai", chat, "of_chat"), ("anthropic", anthropic, "of_claude"),
     ("gemini", gemini, "of_google")],
    ids=["responses", "chat", "anthropic", "gemini"],
)  # fmt: skip
def test_a_session_that_went_through_all_apis_is_of_each_sdks_types(
    request: pytest.FixtureRequest, provider: str, api: Any, checks: str
) -> None:
    read = document.parse_document({"messages": TRAVELLED})[0]["messages"]
    built = build_messages(make_sendable(read), "Brief.", provider, f"{provider}/m")
    asked = Request(
        f"{provider}/m",
        built,
        {"max_tokens": 50},
        False,
        None,
        (Tool("ls", "Lists.", {"type": "object"}),),
    )
    body = json.loads(encode(make_body(api, asked, at(provider))))
    sent = json.dumps(body)
    assert sent.count("iVBORw0KGgo=") == 4
    assert sent.count("JVBERi0=") == 4
    request.getfixturevalue(checks)(body)
