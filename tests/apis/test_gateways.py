"""What gateways and small servers do otherwise than the vendors whose API they have."""

import json
import socket
from typing import Any

import pytest

from tests.support import anthropic_server as claude
from tests.support import gemini_server as google
from tests.support import ollama_server as llama
from tests.support import responses_server as openai
from tests.support import server as chat
from tests.support.home import Home, lab_config
from tests.support.server import ModelServer
from tests.support.tools import calling
from tests.support.tools import configure as with_tools

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
    return [
        claude.named(payload)
        for payload in (*before, {**last, "type": event_name, "response": reply})
    ]


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
            delta = {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": tokens},
            }
            return [*before, claude.named(delta), end]
        case "gemini":
            usage = {
                "promptTokenCount": 9,
                "candidatesTokenCount": tokens,
                "totalTokenCount": 9 + tokens,
            }
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


def test_the_usage_of_several_answers_does_not_make_one_incomplete(
    home: Home, model: ModelServer
) -> None:
    at_gateway(home, model, "chat")
    end = {"index": 0, "delta": {}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 2 * LIMIT}
    model.script(
        chat.event(chat.chunk({"content": "So."})), chat.event({"choices": [end], "usage": usage})
    )
    assert home.run("-p", f"max_tokens={LIMIT}", "-p", "n=2", "hi") == ("So.\n", "", 0)


def test_a_token_in_a_header_of_any_name_is_masked_in_an_error(
    home: Home, model: ModelServer
) -> None:
    headers = '[providers.lab.headers]\nX-Gateway = "Bearer eyJhbGciOiJIUzI1NiJ9.secret"\n'
    home.configure(lab_config(model) + headers)
    told = {"error": {"message": "no access with Bearer eyJhbGciOiJIUzI1NiJ9.secret"}}
    model.refuse(400, told)
    run = home.run("hi")
    assert run.code == 1
    assert "no access with" in run.stderr
    assert "eyJhbGciOiJIUzI1NiJ9" not in run.stderr


def test_an_answer_that_ends_at_a_stop_sequence_and_its_limit_is_complete(
    home: Home, model: ModelServer
) -> None:
    at_gateway(home, model, "chat")
    end = {"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": "END"}
    usage = {"prompt_tokens": 9, "completion_tokens": LIMIT}
    model.script(
        chat.event(chat.chunk({"content": "So."})), chat.event({"choices": [end], "usage": usage})
    )
    assert home.run("-p", f"max_tokens={LIMIT}", "hi") == ("So.\n", "", 0)


# ---- small servers


def test_an_earlier_answer_goes_back_to_responses_as_a_message(
    home: Home, model: ModelServer
) -> None:
    at_gateway(home, model, "responses")
    for _ in range(2):
        model.script(*openai.stream(openai.message("Yes.")))
        assert home.run(*["-s", "0"] * bool(model.sent), "hi").code == 0
    assert model.sent[-1]["input"][1] == {"type": "message", "role": "assistant", "content": "Yes."}


def test_output_tokens_count_where_the_input_tokens_are_missing(
    home: Home, model: ModelServer
) -> None:
    at_gateway(home, model, "anthropic")
    delta = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 682},
    }
    model.script(
        *claude.said(0, "Yes."), claude.named(delta), claude.named({"type": "message_stop"})
    )
    assert home.run("hi") == ("Yes.\n", "", 0)
    usage = home.doc()["messages"][1]["usage"]
    assert usage["completion"] == 682
    assert usage["prompt"] is None


def test_text_without_a_start_of_its_block_is_kept(home: Home, model: ModelServer) -> None:
    at_gateway(home, model, "anthropic")
    thinks = claude.block(0, {}, {"type": "thinking_delta", "thinking": "Hm."})[1:]
    says = claude.block(
        1, {}, {"type": "text_delta", "text": "Here "}, {"type": "text_delta", "text": "I am."}
    )[1:-1]
    end = [claude.named({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})]
    model.script(*thinks, *says, *end, claude.named({"type": "message_stop"}))
    assert home.run("--reasoning", "hi") == ("Here I am.\n", "Hm.\n", 0)
    assert home.doc()["messages"][1]["content"] == "Here I am."


def test_a_plain_question_to_messages_is_a_string(home: Home, model: ModelServer) -> None:
    at_gateway(home, model, "anthropic")
    run = home.run("--dry-run", "-o", "json", "hi")
    assert json.loads(run.stdout)["body"]["messages"] == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("how", [[], ["--no-stream"]], ids=["streamed", "at once"])
def test_a_cost_in_a_header_replaces_a_null_in_the_body(
    home: Home, model: ModelServer, how: list[str]
) -> None:
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
    {
        "message": "The model `m` does not exist",
        "type": "invalid_request_error",
        "code": "model_not_found",
    },
    {"message": "The model `m` does not exist.", "type": "NotFoundError", "code": 404},
    {"message": "model 'm' not found, try pulling it first", "type": "not_found_error"},
]


@pytest.mark.parametrize("error", UNKNOWN, ids=["OpenAI", "vLLM", "Ollama"])
def test_an_unknown_model_is_not_asked_for_by_another_api(
    home: Home, model: ModelServer, error: Any
) -> None:
    at_gateway(home, model, "responses")
    model.refuse(404, {"error": error})
    run = home.run("hi")
    assert run.code == 1
    assert (
        f"{model.base_url}/responses does not know 'm' (404): {error['message'].rstrip('.')}"
        in run.stderr
    )
    assert asked_paths(model) == ["/v1/responses"]


# ---- what they say of a failure

RAW = '{"error": {"message": "The prompt has a bad part.", "code": 7}}'
HIDDEN: dict[str, tuple[int, Any, str]] = {
    "another's JSON in a text": (
        400,
        {
            "error": {
                "message": "Provider returned error",
                "metadata": {"raw": RAW, "provider_name": "DeepInfra"},
            }
        },
        "gate refused the request (400): DeepInfra: The prompt has a bad part.",
    ),
    "another's text": (
        400,
        {
            "error": {
                "message": "Provider returned error",
                "metadata": {"raw": "no way", "provider_name": "Chutes"},
            }
        },
        "gate refused the request (400): Chutes: no way",
    ),
    "another's JSON": (
        400,
        {
            "error": {
                "message": "Provider returned error",
                "metadata": {"raw": {"detail": "no way"}},
            }
        },
        "gate refused the request (400): no way",
    ),
    "nothing of another": (
        400,
        {
            "error": {
                "message": "Provider returned error",
                "metadata": {"raw": "", "provider_name": "Chutes"},
            }
        },
        "gate refused the request (400): Provider returned error",
    ),
    "a page": (
        502,
        b"<!DOCTYPE html>\n<html><head><title>\n502 Bad &amp; Gateway</title></head><body>much</body></html>",
        "gate failed (502): 502 Bad & Gateway",
    ),
    "events": (
        500,
        b'data: {"error": {"message": "Error processing stream start", "code": "500"}}\n\ndata: [DONE]\n\n',
        "gate failed (500): Error processing stream start",
    ),
    "a named event": (
        529,
        b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}\n\n',
        "gate failed (529): Overloaded",
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_the_reason_of_a_failure_is_found_where_a_gateway_puts_it(
    home: Home, model: ModelServer, name: str
) -> None:
    status, payload, line = HIDDEN[name]
    at_gateway(home, model, "chat")
    model.refuse(status, payload)
    run = home.run("hi")
    assert run.code == 1
    assert run.stderr.splitlines()[0] == f"gptsh: {line}"


FORBIDDEN: list[tuple[Any, int, str]] = [
    (
        "The API key has no access to this project.",
        1,
        "gate refused the key (403): The API key has no access",
    ),
    ("Invalid authentication credentials", 1, "gate refused the key (403): Invalid"),
    (
        "Country, region, or territory not supported",
        1,
        "gate refused the request (403): Country, region",
    ),
    ("You exceeded your daily token allowance", 1, "gate refused the request (403): You exceeded"),
    (
        "Your input was flagged",
        5,
        "gate's filter refused the question (403): Your input was flagged",
    ),
    (
        "Request blocked by moderation",
        5,
        "gate's filter refused the question (403): Request blocked by",
    ),
]


@pytest.mark.parametrize(("words", "code", "line"), FORBIDDEN)
def test_a_403_blames_the_key_only_where_its_words_do(
    home: Home, model: ModelServer, words: str, code: int, line: str
) -> None:
    at_gateway(home, model, "chat")
    model.refuse(403, {"error": {"message": words}})
    run = home.run("hi")
    assert run.code == code
    assert run.stderr.startswith(f"gptsh: {line}")


SPENT: list[dict[str, Any]] = [
    {"message": "You exceeded your current quota.", "code": "insufficient_quota"},
    {"message": "Your quota will reset after 12h3m.", "status": "RESOURCE_EXHAUSTED"},
    {"message": "There is a problem with the billing of your account"},
    {"message": "Your credit balance is too low to access the API"},
    {"message": "Insufficient Balance"},
]


@pytest.mark.parametrize("error", SPENT)
def test_a_quota_that_is_spent_is_asked_for_once(
    home: Home, model: ModelServer, error: Any
) -> None:
    at_gateway(home, model, "chat")
    home.configure(home.config.read_text().replace("retries = 0", "retries = 2"))
    model.refuse(429, {"error": error}, {"Retry-After": "0"})
    run = home.run("hi")
    assert run.code == 1
    assert error["message"].rstrip(".") in run.stderr
    assert len(asked_paths(model)) == 1


def test_a_spent_quota_inside_a_stream_is_asked_for_once(home: Home, model: ModelServer) -> None:
    at_gateway(home, model, "chat")
    home.configure(home.config.read_text().replace("retries = 0", "retries = 2"))
    model.script(chat.event({"error": {"code": 429, "message": "Insufficient credits"}}))
    run = home.run("hi")
    assert run.code == 1
    assert "the provider reported: Insufficient credits" in run.stderr
    assert len(asked_paths(model)) == 1


def test_a_quota_of_the_minute_is_waited_for(home: Home, model: ModelServer) -> None:
    at_gateway(home, model, "chat")
    home.configure(home.config.read_text().replace("retries = 0", "retries = 2"))
    model.refuse(
        429, {"error": {"message": "Check your plan and billing details. Please retry in 0.01s."}}
    )
    model.say("Yes.")
    assert home.run("hi") == ("Yes.\n", "", 0)


@pytest.mark.parametrize(
    ("words", "headers", "wait"),
    [
        ("Slow down.", {"Retry-After": "60"}, "60 seconds"),
        ("Slow down. Please try again in 7m12.2s.", {}, "433 seconds"),
    ],
)
def test_a_pause_that_is_too_long_is_named(
    home: Home, model: ModelServer, words: str, headers: dict[str, str], wait: str
) -> None:
    at_gateway(home, model, "chat")
    home.configure(home.config.read_text().replace("retries = 0", "retries = 2"))
    model.refuse(429, {"error": {"message": words}}, headers)
    run = home.run("hi")
    assert run.code == 1
    assert run.stderr.startswith(
        f"gptsh: gate refused the request (429): {words.rstrip('.')}: the server asks you to wait {wait}\n"
    )
    assert len(asked_paths(model)) == 1


def test_a_header_that_is_no_secret_is_shown(home: Home, model: ModelServer) -> None:
    at_gateway(home, model, "chat")
    headers = '{ x-portkey-provider = "openai", x-portkey-api-key = "pk-1", x-mine = "0123456789abcdefg" }'
    home.configure(f"{home.config.read_text()}headers = {headers}\n")
    model.refuse(400, {"error": {"message": "openai error: pk-1 and 0123456789abcdefg are wrong"}})
    assert home.run("hi").stderr.startswith(
        "gptsh: gate refused the request (400): openai error: *** and *** are wrong\n"
    )


@pytest.mark.parametrize("malformed", [b'{"choices": [{"del', b"<html>oops</html>", b"[]"])
def test_a_malformed_piece_behind_a_text_breaks_the_stream_off(
    home: Home, model: ModelServer, malformed: bytes
) -> None:
    at_gateway(home, model, "chat")
    model.script(
        *chat.answer("Some ", "text")[:-3], chat.event(malformed), *chat.answer("more")[1:]
    )
    run = home.run("hi")
    assert run.stdout == "Some text\n"
    assert run.code == 1
    assert run.stderr.startswith("gptsh: the stream ended early: the response is not ")
    assert "base URL" not in run.stderr


def test_a_malformed_answer_asks_for_the_base_url(home: Home, model: ModelServer) -> None:
    at_gateway(home, model, "chat")
    model.script(chat.event(b"<html>oops</html>"))
    assert home.run("hi").stderr.splitlines()[0].endswith(": is base_url right?")


def test_a_vendors_host_that_cannot_be_found_is_a_network_that_is_down(
    home: Home, monkeypatch: Any
) -> None:
    def find_nothing(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", find_nothing)
    home.configure(
        '[sessions]\ntitles = "off"\n[providers.own]\nbase_url = "https://api.mistrall.ai/v1"\n'
    )
    env = {"MISTRAL_API_KEY": "k"}
    run = home.run("-m", "mistral/m", "hi", env=env)
    assert run.code == 1
    assert run.stderr.startswith("gptsh: cannot resolve api.mistral.ai: check your network\n")
    run = home.run("-m", "own/m", "hi", env=env)
    assert run.stderr.startswith("gptsh: cannot resolve api.mistrall.ai: is base_url right?\n")


NODE = """file:///srv/index.js:3
import { toJSONSchema } from '../core/index.js';
         ^
SyntaxError: The requested module does not provide 'toJSONSchema'
    at ModuleJob._instantiate (node:internal/modules/esm/module_job:180:21)
    at async asyncRunEntryPointWithESMLoader (node:internal/modules/run_main:117:5)

Node.js v20.20.2
"""
CODED = "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod'\n    at x (y:1:2) {\n  code: 'ERR'\n}\n\nNode.js v20\n"
PLAIN = "starting\nno database\n    at x (y:1:2)\n"


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (NODE, "SyntaxError: The requested module does not provide 'toJSONSchema'"),
        (CODED, "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod'"),
        (PLAIN, "starting / no database"),
    ],
    ids=["an error", "an error with a code", "no error"],
)
def test_the_reason_of_a_tool_server_that_died_is_no_line_of_its_stack(
    home: Home, printed: str, reason: str
) -> None:
    (home.folder / "stderr").write_text(printed)
    script = json.dumps(f"cat '{home.folder}/stderr' >&2; exit 1")
    home.configure(f'[mcp.servers.ev]\ncommand = "/bin/sh"\nargs = ["-c", {script}]\n')
    run = home.run("--list-tools")
    assert run.stderr == f"gptsh: tool server ev ended with exit status 1: {reason}\n"
    assert run.code == 3


# ---- what they refuse, and have a second way for

VERIFY = {"message": "Your organization must be verified to stream this model.", "param": "stream"}
NO_SYSTEM = [
    "Developer instruction is not enabled for models/gemma-3-27b-it",
    "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
    "System role not supported",
    "This model does not support system messages.",
]


@pytest.mark.parametrize(
    "error", [VERIFY, {"message": "Streaming is not supported for this model"}]
)
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_who_may_not_stream_is_answered_at_once_and_not_asked_to_for_a_day(
    home: Home, model: ModelServer, api: str, error: Any
) -> None:
    at_gateway(home, model, api)
    model.refuse(400, {"error": error})
    whole = json.dumps(openai.response(openai.message("Yes."))).encode()
    for _ in range(2):
        if api == "chat":
            model.unstreamed("Yes.")
        else:
            model.script(whole, headers=JSON)
        assert home.run("hi") == ("Yes.\n", "", 0)
    assert [body.get("stream") for body in model.sent if body] == [True, None, None]


@pytest.mark.parametrize(
    ("api", "words"),
    [
        *[("chat", words) for words in NO_SYSTEM],
        *[(api, NO_SYSTEM[0]) for api in ("responses", "anthropic", "gemini", "ollama")],
    ],
)
def test_a_system_prompt_that_is_refused_is_before_the_first_question(
    home: Home, model: ModelServer, api: str, words: str
) -> None:
    at_gateway(home, model, api)
    model.refuse(400, {"error": {"message": words}})
    for args in ((), ("-s", "0")):
        model.script(*answer_of(api, 5))
        assert home.run(*args, "--system", "Be brief.", "hi") == ("So much.\n", "", 0)
    first, second, third = [body for body in model.sent if body]
    assert "Be brief." in json.dumps(first)
    for body in (second, third):
        turns = body.get("messages") or body.get("input") or body["contents"]
        assert turns[0]["role"] == "user"
        sent = json.dumps(turns[0])
        assert 0 < sent.index("Be brief.") < sent.index("hi")
        assert json.dumps(body).count("Be brief.") == 1


@pytest.mark.parametrize("arguments", ["null", None])
def test_null_as_the_arguments_of_a_call_is_an_empty_object(
    home: Home, model: ModelServer, arguments: str | None
) -> None:
    with_tools(home, model)
    call = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "good__meet", "arguments": arguments},
    }
    model.script(*calling(call))
    model.say("Done.")
    run = home.run("meet")
    assert run.stdout == "Done.\n"
    results = [
        message["content"] for message in home.doc()["messages"] if message["role"] == "tool"
    ]
    assert "not a JSON object" not in results[0]
    assert model.sent[-1]["messages"][-2]["tool_calls"][0]["function"]["arguments"] == "{}"


# ---- what an answer costs


@pytest.mark.parametrize(("is_byok", "usd"), [(True, 0.0021), (False, 0.0001)])
def test_an_answer_with_the_users_key_costs_what_its_provider_takes_too(
    home: Home, model: ModelServer, is_byok: bool, usd: float
) -> None:
    at_gateway(home, model, "chat")
    details = {"upstream_inference_cost": 0.002}
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 5,
        "cost": 0.0001,
        "is_byok": is_byok,
        "cost_details": details,
    }
    model.say("Yes.", usage=usage)
    assert home.run("hi").code == 0
    assert home.doc()["messages"][1]["cost"] == pytest.approx(usd)


# ---- where Ollama is


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("gpu-box", "http://gpu-box:11434"),
        ("10.0.0.7:8080", "http://10.0.0.7:8080"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        (":8080", "http://127.0.0.1:8080"),
        ("[::]:8080", "http://[::1]:8080"),
        ("::1", "http://[::1]:11434"),
        ('"gpu-box:many"', "http://gpu-box:11434"),
        ("http://gpu-box", "http://gpu-box"),
        ("https://gpu-box/ollama/", "https://gpu-box/ollama"),
        ("ollama.com", "https://ollama.com"),
    ],
)
def test_ollama_is_where_its_own_variable_says(home: Home, host: str, url: str) -> None:
    run = home.run(
        "--dry-run",
        "-o",
        "json",
        "-m",
        "ollama/m",
        "-p",
        "num_ctx=4096",
        "hi",
        env={"OLLAMA_HOST": host},
    )
    assert json.loads(run.stdout)["url"] == f"{url}/api/chat"


def test_gptshs_variable_for_ollama_wins_over_ollamas_own(home: Home) -> None:
    env = {"OLLAMA_HOST": "gpu-box", "OLLAMA_API_BASE": "http://127.0.0.1:9"}
    run = home.run("--dry-run", "-o", "json", "-m", "ollama/m", "-p", "num_ctx=4096", "hi", env=env)
    assert json.loads(run.stdout)["url"] == "http://127.0.0.1:9/api/chat"
