"""What gateways and small servers do otherwise than the vendors whose API they have."""

import json
from typing import Any

import pytest

from tests.support import anthropic_server as claude
from tests.support import gemini_server as google
from tests.support import ollama_server as llama
from tests.support import responses_server as openai
from tests.support import server as chat
from tests.support.home import Home
from tests.support.server import ModelServer

JSON = {"Content-Type": "application/json"}


def at_gateway(home: Home, model: ModelServer, api: str) -> Home:
    """A home whose default model is at a server with this API."""
    base = model.base_url.removesuffix("/v1") if api == "ollama" else model.base_url
    home.configure(
        f'[agents.default]\nmodel = "gate/m"\n[sessions]\ntitles = "off"\n[network]\nretries = 0\n'
        f'[providers.gate]\nbase_url = "{base}"\napi = "{api}"\n'
    )
    return home


def asked_paths(model: ModelServer) -> list[str]:
    return [asked.path for asked in model.requests if asked.method == "POST"]


# ---- how an answer ends


def responses_with(status: str, event_name: str, *, streams: bool) -> list[bytes]:
    """An answer of the Responses API with this status, whose last event has another name."""
    reply = openai.response(openai.message("Cut off he"), status=status)
    if not streams:
        return [json.dumps(reply).encode()]
    *before, last = openai.events(openai.message("Cut off he"))
    return [claude.named(payload) for payload in (*before, {**last, "type": event_name, "response": reply})]


@pytest.mark.parametrize("how", [[], ["--no-stream"]], ids=["streamed", "at once"])
@pytest.mark.parametrize(("status", "code"), [("incomplete", 5), ("failed", 1), ("cancelled", 1)])
def test_the_status_of_a_response_wins_over_the_name_of_its_last_event(
    home: Home, model: ModelServer, status: str, code: int, how: list[str]
) -> None:
    at_gateway(home, model, "responses")
    pieces = responses_with(status, "response.completed", streams=not how)
    model.script(*pieces, headers={} if not how else JSON)
    run = home.run(*how, "hi")
    assert run.stdout == "Cut off he\n"
    assert run.code == code
    assert home.doc()["messages"][1]["finish_reason"] == ("incomplete" if code == 5 else "error")


LIMIT = 16


def answer_of(api: str, tokens: int) -> list[bytes]:
    """An answer of so many tokens, of which the server says that it is complete."""
    match api:
        case "responses":
            usage = {"input_tokens": 9, "output_tokens": tokens, "total_tokens": 9 + tokens}
            return openai.stream(openai.message("So much."), usage=usage)
        case "anthropic":
            *before, _, end = claude.stream(claude.said(0, "So much."))
            delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": tokens}}
            return [*before, claude.named(delta), end]
        case "gemini":
            usage = {"promptTokenCount": 9, "candidatesTokenCount": tokens, "totalTokenCount": 9 + tokens}
            return [google.event(google.document({"text": "So much."}, finish="STOP", usage=usage))]
        case "ollama":
            return [llama.ndjson(llama.line("So much."), llama.last(completion=tokens))]
    return chat.answer("So much.", usage={"prompt_tokens": 9, "completion_tokens": tokens})


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic", "gemini", "ollama"])
@pytest.mark.parametrize(("tokens", "code"), [(LIMIT - 1, 0), (LIMIT, 5), (LIMIT + 1, 5)])
def test_an_answer_that_uses_up_its_limit_is_incomplete_whatever_the_server_says(
    home: Home, model: ModelServer, api: str, tokens: int, code: int
) -> None:
    at_gateway(home, model, api)
    model.script(*answer_of(api, tokens))
    run = home.run("-p", f"max_tokens={LIMIT}", "hi")
    assert run.stdout == "So much.\n"
    assert run.code == code
    assert ("cut by the token limit (length)" in run.stderr) == bool(code)


def test_an_answer_that_ends_at_a_stop_sequence_and_its_limit_is_complete(home: Home, model: ModelServer) -> None:
    at_gateway(home, model, "chat")
    end = {"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": "END"}
    usage = {"prompt_tokens": 9, "completion_tokens": LIMIT}
    model.script(chat.event(chat.chunk({"content": "So."})), chat.event({"choices": [end], "usage": usage}))
    assert home.run("-p", f"max_tokens={LIMIT}", "hi") == ("So.\n", "", 0)


# ---- small servers


def test_an_earlier_answer_goes_back_to_responses_as_a_message(home: Home, model: ModelServer) -> None:
    at_gateway(home, model, "responses")
    for _ in range(2):
        model.script(*openai.stream(openai.message("Yes.")))
        assert home.run(*["-s", "0"] * bool(model.sent), "hi").code == 0
    assert model.sent[-1]["input"][1] == {"type": "message", "role": "assistant", "content": "Yes."}


def test_output_tokens_count_where_the_input_tokens_are_missing(home: Home, model: ModelServer) -> None:
    at_gateway(home, model, "anthropic")
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 682}}
    model.script(*claude.said(0, "Yes."), claude.named(delta), claude.named({"type": "message_stop"}))
    assert home.run("hi") == ("Yes.\n", "", 0)
    usage = home.doc()["messages"][1]["usage"]
    assert usage["completion"] == 682
    assert usage["prompt"] is None


def test_text_without_a_start_of_its_block_is_kept(home: Home, model: ModelServer) -> None:
    at_gateway(home, model, "anthropic")
    thinks = claude.block(0, {}, {"type": "thinking_delta", "thinking": "Hm."})[1:]
    says = claude.block(1, {}, {"type": "text_delta", "text": "Here "}, {"type": "text_delta", "text": "I am."})[1:-1]
    end = [claude.named({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})]
    model.script(*thinks, *says, *end, claude.named({"type": "message_stop"}))
    assert home.run("--reasoning", "hi") == ("Here I am.\n", "Hm.\n", 0)
    assert home.doc()["messages"][1]["content"] == "Here I am."


def test_a_plain_question_to_messages_is_a_string(home: Home, model: ModelServer) -> None:
    at_gateway(home, model, "anthropic")
    run = home.run("--dry-run", "-o", "json", "hi")
    assert json.loads(run.stdout)["body"]["messages"] == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("how", [[], ["--no-stream"]], ids=["streamed", "at once"])
def test_a_cost_in_a_header_replaces_a_null_in_the_body(home: Home, model: ModelServer, how: list[str]) -> None:
    at_gateway(home, model, "responses")
    usage = {**openai.USAGE, "cost": None}
    cost = {"x-litellm-response-cost": "0.000663"}
    if how:
        reply = openai.response(openai.message("Yes."), usage=usage)
        model.script(json.dumps(reply).encode(), headers={**JSON, **cost})
    else:
        model.script(*openai.stream(openai.message("Yes."), usage=usage), headers=cost)
    assert home.run(*how, "hi").code == 0
    assert home.doc()["messages"][1]["cost"] == 0.000663


UNKNOWN: list[dict[str, Any]] = [
    {"message": "The model `m` does not exist", "type": "invalid_request_error", "code": "model_not_found"},
    {"message": "The model `m` does not exist.", "type": "NotFoundError", "code": 404},
    {"message": "model 'm' not found, try pulling it first", "type": "not_found_error"},
]


@pytest.mark.parametrize("error", UNKNOWN, ids=["OpenAI", "vLLM", "Ollama"])
def test_an_unknown_model_is_not_asked_for_by_another_api(home: Home, model: ModelServer, error: Any) -> None:
    at_gateway(home, model, "responses")
    model.refuse(404, {"error": error})
    run = home.run("hi")
    assert run.code == 1
    assert f"{model.base_url}/responses does not know 'm' (404): {error['message'].rstrip('.')}" in run.stderr
    assert asked_paths(model) == ["/v1/responses"]
