"""``-p``: parameters under the names that a model's server takes, and what it would refuse left out with a note."""

import json
from itertools import product
from typing import Any

import pytest

from gptsh.llm import anthropic, chat, gemini, ollama, responses
from gptsh.llm.stream import make_body
from gptsh.messages import Request, Tool
from tests.support.apis import QUESTION, at, tool_in_request
from tests.support.claude import LATEST, OPUS, SONNET
from tests.support.dry import dry_run
from tests.support.home import Home

ON = {"type": "enabled"}
OFF = {"type": "disabled"}
ADAPTIVE = {"type": "adaptive", "display": "summarized"}
NEWER, OLD = "anthropic/claude-newfamily-7", "anthropic/claude-opus-4-6"  # newer than the table
WARM = {"temperature": 0.5}
LIMIT = {"max_tokens": 9}
LS = {"name": "ls", "input_schema": {"type": "object", "properties": {}}}
SEVERAL = {"temperature": 0.5, "top_p": 1, "top_k": 3, "min_p": 0.1, "seed": 7}


def effort(how: str, **more: Any) -> dict[str, Any]:
    return {"reasoning_effort": how, **more}


def budget(tokens: int, **more: Any) -> dict[str, Any]:
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}, **more}


# Model, parameters, what is sent for them, what is left out.
EFFORTS = [
    ("mistral/m", effort("low"), effort("high"), "reasoning_effort=low; sending high"),
    ("deepseek/m", effort("max"), effort("max", thinking=ON), ""),
    ("deepseek/m", effort("low"), effort("low", thinking=ON), ""),
    ("openrouter/openai/gpt-6-astra", effort("max"), {"reasoning": {"effort": "max"}}, ""),
    ("openrouter/m", effort("low", reasoning={"exclude": True}), {"reasoning": {"effort": "low", "exclude": True}}, ""),
    ("xai/grok-4.7", effort("xhigh"), effort("xhigh"), ""),
    ("deepseek/m", effort("none"), {"thinking": OFF}, ""),
    ("moonshot/kimi-k2.6", effort("none"), {"thinking": OFF}, ""),
    ("dashscope/m", effort("none"), {"enable_thinking": False}, ""),
    ("llamafile/m", effort("none"), {"chat_template_kwargs": {"enable_thinking": False}}, ""),
    ("lm_studio/m", effort("none"), {}, "reasoning_effort"),
    ("ollama/m", effort("none"), {"think": False}, ""),
    ("ollama/m", effort("max"), {"think": "max"}, ""),
    ("ollama/gpt-oss:20b", effort("medium"), {"think": "medium"}, ""),
    ("ollama/gpt-oss:20b", effort("none"), {"think": "low"}, "reasoning_effort=none; sending low"),
    (SONNET, effort("low", temperature=1), budget(1024, temperature=1), ""),
    (SONNET, effort("high", temperature=0.5, top_p=1), budget(16384), "temperature, top_p"),
    (SONNET, effort("high", max_tokens=20000), budget(10000, max_tokens=20000), ""),
    (SONNET, effort("max", max_tokens=5000), budget(2500, max_tokens=5000), ""),
    (SONNET, effort("low", max_tokens=1024), {"max_tokens": 1024}, "reasoning_effort"),
    (SONNET, effort("high", **budget(2000), top_k=1), budget(2000), "top_k"),
    (OPUS, effort("xhigh"), {"thinking": ADAPTIVE, "output_config": {"effort": "xhigh"}}, ""),
    (OLD, effort("xhigh"), {"thinking": ADAPTIVE, "output_config": {"effort": "high"}},
     "reasoning_effort=xhigh; sending high"),
    (NEWER, effort("high"), {"thinking": ADAPTIVE, "output_config": {"effort": "high"}}, ""),
    (LATEST, effort("none"), {"thinking": {"type": "between_tools"}}, ""),  # its least
    ("anthropic/claude-opus-5-5", effort("none"), {"thinking": ADAPTIVE, "output_config": {"effort": "low"}},
     "reasoning_effort=none; sending low"),
    ("anthropic/claude-haiku-5-5", effort("none"), {"thinking": {"type": "disabled"}}, ""),
]  # fmt: skip
SAMPLING = [
    ("openai/gpt-4.1", WARM, WARM, ""),
    ("openai/o3", {**WARM, "top_p": 1, "metadata": {}}, {"metadata": {}}, "temperature, top_p"),
    ("openai/gpt-5.1", WARM, WARM, ""),  # its effort is "none" unless asked for
    (
        "openai/gpt-5.1",
        effort("low", **WARM),
        {"reasoning": {"summary": "auto", "effort": "low"}},
        "temperature",
    ),
    ("openai/gpt-5.5", WARM, {}, "temperature"),
    (
        "openai/gpt-5.5",
        effort("none", **WARM),
        {"reasoning": {"summary": "auto", "effort": "none"}, **WARM},
        "",
    ),
    ("moonshot/kimi-k3", {**WARM, "top_p": 1}, {"top_p": 1}, "temperature"),
    (SONNET, {**WARM, "top_k": 3}, {**WARM, "top_k": 3}, ""),
    (SONNET, {**WARM, "top_p": 0.9}, WARM, "top_p together with temperature"),
    (OPUS, {**WARM, "top_k": 3}, {}, "temperature, top_k"),
    (NEWER, {**WARM, "top_k": 3}, {}, "temperature, top_k"),
    (SONNET, {"temperature": 1.5, "reasoning_effort": "none"}, {}, "temperature above 1"),
    ("ollama/m", SEVERAL, {"options": SEVERAL}, ""),
]
OTHERS = [
    ("openai/gpt-4.1", LIMIT, LIMIT, ""),
    ("openai/o3", {"max_tokens": 50}, {"max_output_tokens": 50}, ""),
    ("mistral/m", {"seed": 7}, {"random_seed": 7}, ""),
    ("lab/o3", {"max_completion_tokens": 9}, LIMIT, ""),
    (SONNET, {"max_completion_tokens": 7}, {"max_tokens": 7}, ""),
    ("ollama/m", LIMIT, {"options": {"num_predict": 9}}, ""),
    (SONNET, {"stop": ["", "X"]}, {"stop_sequences": ["X"]}, "blank stop sequences"),
    ("ollama/m", {"stop": "END"}, {"options": {"stop": ["END"]}}, ""),
    (SONNET, {"seed": 1, "presence_penalty": 1, "metadata": {"user_id": "u"}}, {"metadata": {"user_id": "u"}},
     "seed, presence_penalty"),
    (SONNET, {"tools": [LS], "tool_choice": {"type": "any"}}, {"tools": [LS], "tool_choice": {"type": "any"}}, ""),
    ("ollama/m", {"options": {"num_ctx": 9, "seed": 1}, "seed": 2}, {"options": {"num_ctx": 9, "seed": 2}}, ""),
    ("ollama/m", {"keep_alive": "1h", "logprobs": True}, {"keep_alive": "1h", "logprobs": True}, ""),
    ("ollama/m", {"unheard_of": [1]}, {"options": {"unheard_of": [1]}}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("model", "params", "sent", "left_out"), [*EFFORTS, *SAMPLING, *OTHERS])
def test_parameters_as_a_model_takes_them(
    home: Home, model: str, params: dict[str, Any], sent: dict[str, Any], left_out: str
) -> None:
    asked = dry_run(home, model, params=params)
    ending = "" if "; sending" in left_out else "; ignored"
    assert asked.stderr == (
        f"gptsh: {model} does not support {left_out}{ending}\n" if left_out else ""
    )
    if model.startswith("anthropic"):
        sent = {"max_tokens": asked.body["max_tokens"], **sent}  # it always has one
        for tool in asked.body.get("tools", ()):
            tool.pop("cache_control", None)
    if "store" in asked.body:  # the Responses API
        usual = {
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "reasoning": {"summary": "auto"},
        }
        sent = usual | sent
    if model.startswith("ollama"):
        sent = {"truncate": False, "shift": False, **sent}
    assert asked.fields == sent


def test_a_session_with_claude_at_openrouter_is_marked_for_the_cache(home: Home) -> None:
    turn = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    model = "openrouter/anthropic/claude-sonnet-5-5"
    system = ["--system", "Brief."]
    assert "cache_control" not in json.dumps(dry_run(home, model, args=system).body)
    assert "cache_control" not in json.dumps(
        dry_run(home, "openrouter/openai/gpt-5", *turn, args=system).body
    )
    messages = dry_run(home, model, *turn, *turn, args=system).body["messages"]
    marked = [
        message["content"][-1]["text"]
        for message in messages
        if "cache_control" in json.dumps(message)
    ]
    assert marked == ["Brief.", "one", "and now?"]


def test_an_answer_of_claude_always_has_a_limit(home: Home) -> None:
    quarter_of_its_window = 50_000
    all_it_can_say = 128_000
    for model, limit in (
        (SONNET, quarter_of_its_window),
        (OPUS, all_it_can_say),
        ("anthropic/unheard-of", 4096),
    ):
        assert dry_run(home, model).body["max_tokens"] == limit


def props(*required: str, **properties: Any) -> dict[str, Any]:
    return {"properties": properties} | ({"required": list(required)} if required else {})


TEXT = {"type": "string"}
COUNT = {"type": "integer"}
OBJECT = {"type": "object"}
ONE_OF_TWO = {"anyOf": [{"required": ["route"]}, {"required": ["file"]}]}
NESTED = {"$defs": {"n": props("a", a=TEXT), "loop": {"oneOf": [{"$ref": "#/$defs/loop"}]}}}


@pytest.mark.parametrize(
    ("schema", "sent_as", "choices"),
    [
        ({"type": ["object", "null"], **props(a=TEXT)}, props(a=TEXT), ()),
        ({**props(route=TEXT, file=TEXT), **ONE_OF_TWO}, props(route=TEXT, file=TEXT), ("anyOf",)),
        ({"oneOf": [props("kind", "a", kind={"const": "x"}, a=TEXT), props("kind", "b", kind={"const": "y"}, b=TEXT)]},
         {}, ("oneOf",)),
        ({**props("a", a=TEXT), "allOf": [props("b", b=COUNT), {"anyOf": [props("c", c=TEXT), True]}, 7]},
         props("a", a=TEXT), ("allOf",)),
        ({**props(a=TEXT), "not": {"required": ["b"]}, "enum": [{"a": "x"}]}, props(a=TEXT), ("not", "enum")),
        ({**NESTED, "anyOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/loop"}, {"$ref": "https://a.test/x"}]},
         NESTED, ("anyOf",)),
    ],
)  # fmt: skip
def test_conditions_at_the_top_of_a_tools_schema_are_in_its_description(
    schema: dict[str, Any], sent_as: dict[str, Any], choices: tuple[str, ...]
) -> None:
    for provider in ("anthropic", "openai", "lab"):
        sent = tool_in_request(provider, "Do.", schema)
        before, _, told = sent["description"].partition(
            "\n\nThe arguments must also conform to this JSON Schema: "
        )
        assert before == "Do."
        assert json.loads(told or "{}") == {key: schema[key] for key in choices}
        own = {} if provider == "anthropic" else {"properties": {}}
        assert sent.get("input_schema", sent.get("parameters")) == own | OBJECT | sent_as


# Parameters that a form of an API reads, and values of a shape that none of them has.
READ = [
    "response_format", "tool_choice", "tools", "reasoning_effort", "stop", "max_tokens", "max_completion_tokens",
    "seed", "temperature", "top_p", "thinking", "thinkingConfig", "thinkingBudget", "generationConfig",
    "toolConfig", "reasoning", "text", "verbosity", "include", "options", "num_ctx", "think", "output_config",
    "chat_template_kwargs", "prompt_cache_key",
]  # fmt: skip
ODD = [5, 0.5, True, None, "text", "", [], ["text"], [5], {}, {"type": 5}, {"type": "function", "function": "f"},
       {"type": "json_schema", "json_schema": 5}, {"thinkingConfig": 5}]  # fmt: skip
MODELS = [
    (chat, "lab", "m"), (chat, "openrouter", "anthropic/claude-sonnet-5-5"), (chat, "deepseek", "m"),
    (responses, "openai", "gpt-6"), (anthropic, "anthropic", "claude-sonnet-5-5"),
    (anthropic, "anthropic", "claude-opus-4-1"), (gemini, "gemini", "gemini-2.5-pro"),
    (gemini, "gemini", "gemini-3.8-flash"), (ollama, "ollama", "m"),
]  # fmt: skip


@pytest.mark.parametrize(("api", "provider", "model"), MODELS)
def test_a_parameter_of_any_shape_makes_a_request(api: Any, provider: str, model: str) -> None:
    target = at(provider, model, api.__name__.rpartition(".")[2])
    offered = (Tool("t", "Do.", {"type": "object"}),)
    for name, value in product(READ, ODD):
        for tools in ((), offered):
            request = Request(f"{provider}/{model}", [QUESTION], {name: value}, tools=tools)
            assert make_body(api, request, target), (name, value)


def test_what_has_no_form_of_google_is_sent_as_it_is() -> None:
    params = {"response_format": "text", "tool_choice": 5}
    request = Request("gemini/m", [QUESTION], params)
    config = make_body(gemini, request, at("gemini"))["generationConfig"]
    assert config["responseFormat"] == "text"
    assert config["toolChoice"] == 5
