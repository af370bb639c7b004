"""What the models of late 2026 refuse, each in its provider's own words, and what gptsh then sends instead."""

import json
import sys
from typing import Any, NamedTuple

import pytest

from tests.support import gemini_server as google
from tests.support import responses_server as openai
from tests.support.answers import json_output
from tests.support.anthropic_server import AnthropicServer, said, thought, tool
from tests.support.anthropic_server import stream as claude_stream
from tests.support.attached import make_png
from tests.support.dry import dry_run
from tests.support.home import Home
from tests.support.ollama_server import Model, OllamaServer, last, line, ndjson
from tests.support.server import ModelServer, answer, chunk, event
from tests.support.tools import SERVER as TOOL_SERVER
from tests.support.tools import configure as with_tools
from tests.support.vendors import at_vendor

ANSWERS: dict[str, list[bytes]] = {
    "chat": answer("Yes."),
    "responses": openai.stream(openai.message("Yes.")),
    "anthropic": claude_stream(said(0, "Yes.")),
    "gemini": google.stream({"text": "Yes."}),
    "ollama": [ndjson(line("Yes."), last())],
}
LIST = "Supported values are: 'low', 'medium', 'high', 'xhigh', and 'max'."


def vendor(home: Home, model: ModelServer, api: str, name: str) -> Home:
    """A home whose default model is PROVIDER/NAME on the scripted server, asked by this API."""
    base = {
        "gemini": model.base_url.replace("/v1", "/v1beta"),
        "ollama": model.base_url.removesuffix("/v1"),
    }
    return at_vendor(home, name, base.get(api, model.base_url), f'api = "{api}"\n')


def refusal(api: str, message: str, **more: Any) -> Any:
    """The body of a refusal as the provider writes it; a message in braces is the whole body."""
    if message.startswith("{"):
        return json.loads(message)
    match api:
        case "anthropic":
            return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
        case "gemini":
            return google.error(400, message)
        case "ollama":
            return {"error": message}
    return {"error": {"message": message, "type": "invalid_request_error", **more}}


def sent(model: ModelServer) -> list[dict[str, Any]]:
    """The bodies of the questions."""
    return [body for body in model.sent if body and {"messages", "input", "contents"} & set(body)]


def value_at(body: Any, path: str) -> Any:
    """The value at a path of keys, such as ``reasoning.effort``; None if there is none."""
    for key in path.split("."):
        body = body.get(key) if isinstance(body, dict) else None
    return body


class Refused(NamedTuple):
    """A question with parameters, the refusal of one, and the value at ``path`` in the request before and after.

    ``note``: what stderr says after the name of the model.
    """

    api: str
    model: str
    params: str  # separated by blanks
    words: str
    path: str
    first: Any
    then: Any
    note: str
    more: dict[str, Any]  # further keys of the error


def options(params: str) -> list[str]:
    """Parameters as options."""
    return [arg for param in params.split() for arg in ("-p", param)]


def effort(
    api: str, model: str, value: str, words: str, path: str, values: tuple[Any, Any], **more: Any
) -> Refused:
    """A refusal of an effort; ``values`` are sent at first and then, None if the effort is left out."""
    first, then = values
    level = more.pop("level", then)  # the effort that the second value is
    if level:
        note = f"does not support reasoning_effort={value}; sending {level}"
    else:
        note = "does not support reasoning_effort; ignored"
    return Refused(
        api,
        model,
        params=f"reasoning_effort={value}",
        words=words,
        path=path,
        first=first,
        then=then,
        note=note,
        more=more,
    )


def left_out(api: str, model: str, params: str, words: str, first: Any, **more: Any) -> Refused:
    """A refusal of the first of these parameters."""
    name = params.partition("=")[0]
    return Refused(
        api,
        model,
        params=params,
        words=words,
        path=name,
        first=first,
        then=None,
        note=f"does not support {name}; ignored",
        more=more,
    )


def field_refused(api: str, model: str, words: str, path: str, first: Any) -> Refused:
    """A refusal of a field that gptsh adds; it is left out without a note."""
    return Refused(
        api, model, params="", words=words, path=path, first=first, then=None, note="", more={}
    )


LS = '{"name":"ls","input_schema":{"type":"object"}}'
REFUSED = {
    "effort, Responses": effort(
        "responses", "openai/gpt-6.3-luna", "none",
        f"Unsupported value: 'none' is not supported with the 'gpt-6.3-luna-2026-12-01' model. {LIST}",
        "reasoning.effort", ("none", "low"), param="reasoning.effort", code="unsupported_value",
    ),
    "effort, chat": effort(
        "chat", "lab/gpt-6.2-sol", "high",
        "Unsupported value: 'reasoning_effort' does not support 'high' with this model. Supported values are: "
        "'medium'.",
        "reasoning_effort", ("high", "medium"), param="reasoning_effort", code="unsupported_value",
    ),
    "effort, Groq": effort(
        "chat", "lab/unheard-of", "max", "`reasoning_effort` must be one of `low`, `medium`, or `high`",
        "reasoning_effort", ("max", "high"),
    ),
    "effort, a model that does not reason": effort(
        "chat", "lab/gpt-4.1", "low", "Unrecognized request argument supplied: reasoning_effort",
        "reasoning_effort", ("low", None),
    ),
    "disabled on a model that always thinks": effort(
        "anthropic", "anthropic/claude-haiku-6", "none",
        '"thinking.type.disabled" is not supported for this model. Use "thinking.type.adaptive" and '
        '"output_config.effort" to control thinking behavior.',
        "output_config.effort", (None, "low"),
    ),
    "between_tools elsewhere": effort(
        "anthropic", "anthropic/claude-sonnet-6", "none",
        '"thinking.type.between_tools" is not supported for this model.', "output_config.effort", (None, "low"),
    ),
    "thinkingLevel": effort(
        "gemini", "gemini/gemini-3.6-flash", "minimal",
        "Thinking level MINIMAL is not supported for this model. Please retry with other thinking level.",
        "generationConfig.thinkingConfig.thinkingLevel", ("MINIMAL", "LOW"), level="low",
    ),
    "think": effort(
        "ollama", "ollama/qwen3", "max", 'invalid think value: "max" (must be "high", "medium", "low", true, or false)',
        "think", ("max", "high"),
    ),
    "no thinking": effort(
        "ollama", "ollama/phi", "low", '"phi" does not support thinking', "think", ("low", None),
    ),
    "temperature, chat": left_out(
        "chat", "lab/gpt-6-sol", "temperature=0.8", "Unsupported value: 'temperature' does not support 0.8 with this "
        "model. Only the default (1) value is supported.", 0.8, code="unsupported_value", param="temperature",
    ),
    "temperature, Responses": left_out(
        "responses", "lab/m", "temperature=0.8",
        "Unsupported parameter: 'temperature' is not supported with this model.", 0.8, code=None, param="temperature",
    ),
    "temperature, Codex": left_out(
        "responses", "lab/m", "temperature=0.8", '{"detail":"Unsupported parameter: temperature"}', 0.8,
    ),
    "temperature, Claude": left_out(
        "anthropic", "anthropic/neon", "temperature=0.8", "`temperature` is deprecated for this model.", 0.8,
    ),
    "a forced tool": left_out(
        "anthropic", "anthropic/claude-opus-5-6", f'tool_choice={{"type":"any"}} tools=[{LS}]',
        'tool_choice: type "tool" and "any" are not supported for this model.', {"type": "any"},
    ),
    "the token limit, by its older name": Refused(
        "chat", "lab/gpt-6-sol", "max_tokens=50", "Unsupported parameter: 'max_tokens' is not supported with this "
        "model. Use 'max_completion_tokens' instead.", "max_completion_tokens", None, 50, "", {"param": "max_tokens"},
    ),
    "a budget": Refused(
        "anthropic", "anthropic/neon", "reasoning_effort=high", '"thinking.type.enabled" is not supported for this '
        'model. Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.',
        "output_config.effort", None, "high", "", {},
    ),
    "adaptive thinking": Refused(
        "anthropic", "anthropic/claude-neon-5", "reasoning_effort=high",
        "adaptive thinking is not supported on this model", "thinking.budget_tokens", None, 16384, "", {},
    ),
    "summaries of thinking": Refused(
        "anthropic", "anthropic/claude-opus-5-6", "reasoning_effort=high",
        "thinking.adaptive.display: Extra inputs are not permitted", "thinking.display", "summarized", None, "", {},
    ),
    "encrypted reasoning": field_refused(
        "responses", "openai/gpt-6.3-luna", "Encrypted content is not supported with this model.", "include",
        ["reasoning.encrypted_content"],
    ),
    "summaries of reasoning": field_refused(
        "responses", "openai/gpt-6.3-luna", "Your organization must be verified to generate reasoning summaries.",
        "reasoning", {"summary": "auto"},
    ),
    "summaries of reasoning, by their name": field_refused(
        "responses", "openai/gpt-6.3-luna",
        "Unsupported parameter: 'reasoning.summary' is not supported with this model.", "reasoning",
        {"summary": "auto"},
    ),
    "store, Responses": field_refused(
        "responses", "openai/gpt-6.3-luna", "Unsupported parameter: 'store'.", "store", False,
    ),
    "store, Google": field_refused(
        "gemini", "gemini/gemini-3.6-flash",
        'Invalid JSON payload received. Unknown name "store": Cannot find field.', "store", False,
    ),
    "thoughts, Google": field_refused(
        "gemini", "gemini/gemini-3.6-flash", "Unable to submit request because thinking is not supported by this "
        "model: thinking_config.include_thoughts is only enabled when thinking is enabled.",
        "generationConfig", {"thinkingConfig": {"includeThoughts": True}},
    ),
    "levels, an older Ollama": Refused(
        "ollama", "ollama/qwen3", "reasoning_effort=low", 'think value "low" is not supported for this model',
        "think", "low", True, "", {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", REFUSED.values(), ids=REFUSED)
def test_what_a_model_refuses_is_not_asked_of_it_again_for_a_day(
    home: Home, model: ModelServer, rule: Refused
) -> None:
    asked = vendor(home, model, rule.api, rule.model)
    model.refuse(400, refusal(rule.api, rule.words, **rule.more))
    note = f"gptsh: {rule.model} {rule.note}\n" if rule.note else ""
    for _ in range(2):
        model.script(*ANSWERS[rule.api])
        assert asked.run(*options(rule.params), "hi") == ("Yes.\n", note, 0)
    assert [value_at(body, rule.path) for body in sent(model)] == [rule.first, rule.then, rule.then]


FUNCTION = '{"type":"function","function":{"name":"ls"}}'
WITHOUT_RESPONSES = (
    "Function tools with reasoning_effort are not supported for gpt-6-sol in /v1/chat/completions. To use function "
    "tools, use /v1/responses or set reasoning_effort to 'none'."
)


def test_a_gateway_with_chat_completions_alone_is_asked_without_reasoning(
    home: Home, model: ModelServer
) -> None:
    asked = vendor(home, model, "chat", "lab/gpt-6-sol")
    model.refuse(400, refusal("chat", WITHOUT_RESPONSES, param="reasoning_effort", code=None))
    model.refuse(404, {"error": {"message": "not found"}})
    note = "gptsh: lab/gpt-6-sol does not support reasoning_effort with tools; sending none with them\n"
    for _ in range(2):
        model.script(*ANSWERS["chat"])
        assert asked.run(*options(f"reasoning_effort=high tools=[{FUNCTION}]"), "hi") == (
            "Yes.\n",
            note,
            0,
        )
    model.script(*ANSWERS["chat"])
    assert asked.run(*options("reasoning_effort=high"), "hi").stdout == "Yes.\n"
    posts = [asked.path for asked in model.requests if asked.method == "POST"]
    assert posts == ["/v1/chat/completions", "/v1/responses", *["/v1/chat/completions"] * 3]
    assert [body.get("reasoning_effort") for body in sent(model)] == [
        "high",
        None,
        "none",
        "none",
        "high",
    ]


class Rule(NamedTuple):
    """A question with parameters, and the value at ``path`` of the only request for it."""

    api: str
    model: str
    params: str
    path: str
    value: Any
    note: str = ""


NO_WARMTH = "does not support temperature; ignored"
RULES = {
    "tools go to Responses": Rule("responses", "openai/gpt-6.3-astra", f"tools=[{FUNCTION}]", "tools",
                                  [{"type": "function", "name": "ls"}]),
    "no sampling, GPT": Rule("responses", "openai/gpt-6.3-astra", "temperature=0.5", "temperature", None, NO_WARMTH),
    "no sampling, Claude": Rule("anthropic", "anthropic/claude-opus-5-6", "temperature=0.5", "temperature", None,
                                NO_WARMTH),
    "no sampling, Gemini": Rule("gemini", "gemini/gemini-4-neon", "temperature=0.5", "generationConfig.temperature",
                                None, NO_WARMTH),
    "no budget": Rule("anthropic", "anthropic/claude-opus-5-6", "reasoning_effort=max", "thinking.type", "adaptive"),
    "always thinks": Rule("anthropic", "anthropic/claude-opus-5-5", "reasoning_effort=none", "output_config.effort",
                          "low", "does not support reasoning_effort=none; sending low"),
    "between tools": Rule("anthropic", "anthropic/claude-sonnet-5-5", "reasoning_effort=none", "thinking",
                          {"type": "between_tools"}),
    "token limit in chat": Rule("chat", "openai/gpt-6.3-astra", "max_tokens=50", "max_completion_tokens", 50),
    "least token limit": Rule("responses", "openai/gpt-6.3-astra", "max_tokens=8", "max_output_tokens", 16),
    "max in chat": Rule("chat", "openai/gpt-6-astra", "reasoning_effort=max", "reasoning_effort", "xhigh",
                        "does not support reasoning_effort=max; sending xhigh"),
    "no forced tool": Rule("anthropic", "anthropic/claude-opus-5-5", f'tools=[{LS}] tool_choice={{"type":"any"}}',
                           "tool_choice", None, "does not support tool_choice; ignored"),
    "not stored, OpenAI": Rule("responses", "openai/gpt-6.3-astra", "", "store", False),
    "not stored, Google": Rule("gemini", "gemini/gemini-4-neon", "", "store", False),
    "a level, no budget": Rule("gemini", "gemini/gemini-4-neon", "reasoning_effort=minimal",
                               "generationConfig.thinkingConfig", {"includeThoughts": True, "thinkingLevel": "LOW"},
                               "does not support reasoning_effort=minimal; sending low"),
    "a budget for 2.5": Rule("gemini", "gemini/gemini-2.5-pro", "reasoning_effort=low",
                             "generationConfig.thinkingConfig", {"includeThoughts": True, "thinkingBudget": 1024}),
    "never off": Rule("ollama", "ollama/qwen3", "reasoning_effort=none", "think", False),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_what_is_known_of_a_model_is_right_at_the_first_request(
    home: Home, model: ModelServer, rule: Rule
) -> None:
    asked = vendor(home, model, rule.api, rule.model)
    model.script(*ANSWERS[rule.api])
    note = f"gptsh: {rule.model} {rule.note}\n" if rule.note else ""
    assert asked.run(*options(rule.params), "hi") == ("Yes.\n", note, 0)
    (body,) = sent(model)
    assert value_at(body, rule.path) == rule.value
    if rule.api == "anthropic":
        assert model.requests[-1].headers["anthropic-version"] == "2023-06-01"


@pytest.mark.parametrize(
    "name", ["lab/m", "openai/gpt-6.3-astra", "anthropic/claude-opus-5-6", "gemini/gemini-4-neon"]
)
def test_no_request_ends_with_an_answer(home: Home, name: str) -> None:
    partial = {"role": "assistant", "content": "It is", "finish_reason": "interrupted"}
    body = dry_run(home, name, {"role": "user", "content": "what?"}, partial).body
    turns = body.get("messages") or body.get("input") or body["contents"]
    assert turns[-1]["role"] == "user"
    assert "and now?" in json.dumps(turns[-1])


SUMMARIZED = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("name", "shown"),
    [*((f"claude-{new}", SUMMARIZED) for new in ("opus-5-5", "sonnet-5-5", "haiku-5-5", "opus-5-6", "fable-5-2")),
     ("claude-opus-4-8", None), ("claude-sonnet-4-5", None)],
)  # fmt: skip
def test_claude_is_asked_for_its_thoughts_where_they_are_shown_or_tools_are_offered(
    home: Home, model: ModelServer, name: str, shown: Any
) -> None:
    asked = vendor(home, model, "anthropic", f"anthropic/{name}")
    for args in (["--reasoning"], [], ["--no-reasoning"], ["--web"]):
        model.script(*ANSWERS["anthropic"])
        assert asked.run(*args, "hi") == ("Yes.\n", "", 0)
    assert [body.get("thinking") for body in sent(model)] == [shown, None, None, shown]


def test_remarks_between_calls_that_come_as_thinking_are_shown(
    home: Home, model: ModelServer
) -> None:
    with_tools(home, model, more=f'[providers.anthropic]\nbase_url = "{model.base_url}"\n')
    model.script(*claude_stream(thought(0, "I look first."), tool(1, "c1", "good__add", '{"a": 1, "b": 2}'),
                                stop="tool_use"))  # fmt: skip
    model.script(*ANSWERS["anthropic"])
    run = home.run(
        "--reasoning", "-m", "anthropic/claude-opus-5-6", "hi", env={"ANTHROPIC_API_KEY": "k"}
    )
    assert run.stdout == "Yes.\n"
    assert run.code == 0
    assert "I look first." in run.stderr
    assert [body["thinking"] for body in sent(model)] == [SUMMARIZED] * 2


EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# Models of next month: they are not in the table. The value of each effort, and where it is.
NEW = {
    "responses": ("openai/gpt-6.3-astra", "reasoning.effort", "low low low medium high xhigh max"),
    "chat": ("lab/gpt-6.3-astra", "reasoning_effort", "low low low medium high xhigh xhigh"),
    "anthropic": ("anthropic/claude-opus-5-6", "output_config.effort", "low low low medium high xhigh max"),
    "gemini": ("gemini/gemini-4-neon", "generationConfig.thinkingConfig.thinkingLevel",
               "LOW LOW LOW MEDIUM HIGH HIGH HIGH"),
    "ollama": ("ollama/qwen4", "think", "False low low medium high high max"),
}  # fmt: skip


SERVERS: dict[str, type[ModelServer]] = {
    "responses": openai.ResponsesServer, "chat": ModelServer, "anthropic": AnthropicServer,
    "gemini": google.GeminiServer, "ollama": OllamaServer,
}  # fmt: skip
SUM = {"a": 1, "b": 2}
SCHEMA = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'
JSON_ANSWERS = {
    "chat": answer('{"n":3}'),
    "responses": openai.stream(openai.message('{"n":3}')),
    "anthropic": claude_stream(said(0, '{"n":3}')),
    "gemini": google.stream({"text": '{"n":3}'}),
    "ollama": [ndjson(line('{"n":3}'), last())],
}
CALLS = {
    "responses": openai.stream(
        openai.reasoning("1", "I add."),
        openai.function_call("call_1", "good__add", json.dumps(SUM)),
    ),
    "anthropic": claude_stream(
        thought(0, "I add."), tool(1, "c1", "good__add", json.dumps(SUM)), stop="tool_use"
    ),
    "gemini": google.stream(google.signed(google.call("good__add", SUM, "c1"))),
    "ollama": [
        ndjson(line(tool_calls=[{"function": {"name": "good__add", "arguments": SUM}}]), last())
    ],
}


def refused_in_chat(body: dict[str, Any]) -> str | None:
    """What chat completions of GPT-6 refuse."""
    is_beside_tools = body.get("tools") and body.get("reasoning_effort") != "none"
    return WITHOUT_RESPONSES if is_beside_tools and "messages" in body else None


@pytest.mark.parametrize("api", NEW)
def test_a_model_that_the_table_lacks_takes_every_effort_tools_a_schema_and_an_image(
    home: Home, api: str
) -> None:
    name, path, values = NEW[api]
    server = SERVERS[api]()
    if isinstance(server, OllamaServer):
        server.models["qwen4:latest"] = Model()
    server.refuses = refused_in_chat if api == "chat" else None
    (home.cwd / "a.png").write_bytes(make_png())
    asked = vendor(home, server, api, name)
    tools = f'[mcp.servers.good]\ncommand = "{sys.executable}"\nargs = ["{TOOL_SERVER}"]\nauto_approve = ["*"]\n'
    asked.configure(asked.config.read_text() + tools)
    given = ["--schema", SCHEMA, "-f", "a.png"]
    for effort in EFFORTS:
        server.script(*JSON_ANSWERS[api])
        run = asked.run(*given, "-p", f"reasoning_effort={effort}", "how many?")
        assert run.stdout == '{"n":3}\n'
        assert run.code == 0
    assert [
        str(value_at(body, path)) for body in sent(server)
    ] == values.split()  # each at the first try
    answering = "responses" if api == "chat" else api  # to which chat completions point
    server.script(*CALLS[answering])
    server.script(*JSON_ANSWERS[answering])
    run = asked.run(*given, "--tools", "good", "-p", "reasoning_effort=high", "how many?")
    assert run.stdout == '{"n":3}\n'
    assert run.code == 0
    assert len(sent(server)) == len(EFFORTS) + (3 if api == "chat" else 2)
    assert "good__add" in json.dumps(sent(server)[-1])
    server.close()


class Reported(NamedTuple):
    """Pieces of an answer, and what ``-o json`` has at ``path``."""

    api: str
    model: str
    pieces: list[bytes]
    path: str
    value: Any


def priced(path: str, value: Any, **more: Any) -> Reported:
    """An answer of 1,000 tokens to a prompt of 1,000,000, of which 500,000 were written to the cache."""
    usage = {"input_tokens": 1_000_000, "input_tokens_details": {"cache_write_tokens": 500_000}, "output_tokens": 1000,
             "output_tokens_details": {}, "total_tokens": 1_001_000}  # fmt: skip
    pieces = openai.stream(openai.message("Yes."), usage=usage, **more)
    return Reported("responses", "openai/gpt-6.1-sol", pieces, path, value)


def chunks(*deltas: dict[str, Any]) -> list[bytes]:
    """Chunks before the rest of an answer by chat completions."""
    return [event(chunk(delta)) for delta in deltas]


LONG_COST = (
    500_000 * 4 + 500_000 * 5 + 1000 * 15
) / 1e6  # above 272,000 tokens; writing the cache costs 1.25 x
CLAUDE_WRITES = {"input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 1000,
                 "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 1000}}  # fmt: skip
REPORTED = {
    "long prompts and cache writes, OpenAI": priced("cost", LONG_COST),
    "the tier of the answer": priced("usage.service_tier", "flex", service_tier="flex"),
    "flex costs half": priced("cost", LONG_COST / 2, service_tier="flex"),
    "fast is priority": priced("cost", LONG_COST * 2, service_tier="fast"),
    "an hour of cache costs double": Reported(
        "anthropic", "anthropic/claude-opus-5-5", claude_stream(said(0, "Yes."), usage=CLAUDE_WRITES), "cost",
        (1000 * 8 + 15 * 20) / 1e6,
    ),
    "reasoning": Reported("chat", "lab/m", [*chunks({"reasoning": "Hm."}), *answer("Yes.")], "text", "Yes."),
    "reasoning_content": Reported(
        "chat", "lab/m", [*chunks({"reasoning_content": "Hm."}), *answer("Yes.")], "text", "Yes."
    ),
    "think tags, cut in pieces": Reported("chat", "lab/m", answer("<th", "ink>Hm.</thi", "nk>Yes."), "text", "Yes."),
    "a closing tag alone": Reported("chat", "lab/qwen3.7", answer("Hm.</th", "ink>Yes."), "text", "Yes."),
    "a tag in the middle": Reported("chat", "lab/m", answer("Yes <think> is"), "text", "Yes <think> is"),
    "no choices": Reported("chat", "openrouter/a/b", [event({"choices": None})], "error.exit_code", 1),
    "an error under 200": Reported(
        "chat", "openrouter/a/b", [event({"error": {"code": 400, "message": "Provider returned error"}})],
        "error.message", "the provider reported: Provider returned error",
    ),
    "finish reason error": Reported("chat", "openrouter/a/b", [event(chunk({}, "error"))], "error.exit_code", 1),
}  # fmt: skip


@pytest.mark.parametrize("rule", REPORTED.values(), ids=REPORTED)
def test_what_an_answer_reports_is_read(home: Home, model: ModelServer, rule: Reported) -> None:
    asked = vendor(home, model, rule.api, rule.model)
    asked.configure(asked.config.read_text().replace("retries = 1", "retries = 0"))
    for _ in range(2):  # an empty stream is asked for once more, in one piece
        model.script(*rule.pieces)
    found = value_at(json_output(asked.run("-o", "json", "hi")), rule.path)
    assert found == (pytest.approx(rule.value) if rule.path == "cost" else rule.value)
