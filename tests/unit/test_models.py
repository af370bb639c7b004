"""Whose a model is, by which wire it is reached, what it can and costs; held against the installed litellm."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.core import table
from gptsh.core.messages import Event, Text
from gptsh.core.models import (
    Facts,
    chat_refuses_tools,
    facts,
    likely_facts,
    models_of,
    near_names,
    small_params,
    split_model,
)
from gptsh.core.pricing import cost
from gptsh.core.providers import PROVIDERS, endpoint
from gptsh.core.sessions import TITLE_TOKENS, generate_title
from gptsh.core.settings import Providers, default_model, facts_of, load, provider_of, stored_agent
from gptsh.core.turn import Request
from gptsh.errors import ConfigError
from gptsh.llm.routes import wire_for
from tests.support.home import Home, lab_config
from tests.support.ollama_server import Known, OllamaServer
from tests.support.server import ModelServer

QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION", "LITELLM_LOG": "CRITICAL"}


def litellm_says(code: str, asked: Any) -> Any:
    """What the real litellm computes: ``code`` turns ``asked`` into ``told``."""
    script = f"import json, sys, litellm\nlitellm.suppress_debug_info = True\nasked = json.load(sys.stdin)\n{code}\n"
    done = subprocess.run(
        [sys.executable, "-c", script + "print(); print(json.dumps(told))"],
        input=json.dumps(asked), capture_output=True, text=True, check=True, timeout=100,
        env={"PATH": os.environ["PATH"], **QUIET},
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


# ---- names


@pytest.mark.parametrize(
    ("model", "provider", "name"),
    [
        ("openai/gpt-4.1", "openai", "gpt-4.1"),
        ("groq/openai/gpt-oss-120b", "groq", "openai/gpt-oss-120b"),
        ("gpt-5.9-foo", "openai", "gpt-5.9-foo"),
        ("o3", "openai", "o3"),
        ("chatgpt-4o-latest", "openai", "chatgpt-4o-latest"),
        ("gpt-oss-120b", None, "gpt-oss-120b"),
        ("claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5"),
        ("claude-opus-9-9", "anthropic", "claude-opus-9-9"),
        ("anthropic.claude-opus-5", "bedrock", "anthropic.claude-opus-5"),
        ("gemini-2.5-pro", "vertex_ai", "gemini-2.5-pro"),
        ("text-embedding-3-small", None, "text-embedding-3-small"),
        ("llama3.2", None, "llama3.2"),
        ("qwen3:8b", None, "qwen3:8b"),
        ("mistral-large-latest", None, "mistral-large-latest"),
        ("sample_spec", None, "sample_spec"),
        ("echo", "echo", "echo"),
    ],
)
def test_whose_a_name_is(model: str, provider: str | None, name: str) -> None:
    assert split_model(model) == (provider, name)


@pytest.mark.slow
def test_bare_names_go_where_litellm_sends_them() -> None:
    """Of the names that litellm gives to the providers with rows of their own, and of none that it does not know."""
    names = [key for key, entry in table.entries().items() if "/" not in key and entry.get("mode") == "chat"]
    names += ["claude-newfamily-7", "mystery", "llama3.2", "gpt-oss-120b"]
    code = """
told = {}
for name in asked:
    try:
        told[name] = litellm.get_llm_provider(name)[1]
    except litellm.BadRequestError:
        told[name] = None
"""
    told = litellm_says(code, names)
    told |= {name: "bedrock" for name, provider in told.items() if provider == "bedrock_converse"}
    wrong = {name: (split_model(name)[0], said) for name, said in told.items() if split_model(name)[0] != said}
    assert {name: pair for name, pair in wrong.items() if pair[1]} == {}
    # what litellm cannot route is what only its table knows, under no prefix
    assert all(name in table.entries() for name in wrong)


@pytest.mark.parametrize(
    ("provider", "wire"),
    [
        ("openai", "chat"), ("mistral", "chat"), ("ollama", "ollama"), ("chutes", "chat"), ("nano-gpt", "chat"),
        ("anthropic", "anthropic"), ("gemini", "litellm"), ("watsonx", "litellm"), ("bedrock", "litellm"),
        ("modelscope", "litellm"), ("azure", "litellm"), ("echo", "echo"),
    ],
)  # fmt: skip
def test_by_which_wire_a_provider_is_reached(provider: str, wire: str) -> None:
    found = load({}).providers.get(provider)
    assert found
    assert found.wire == wire


def test_a_base_url_makes_any_name_a_compatible_server(home: Home) -> None:
    home.configure('[providers.deepinfra_eu]\nbase_url = "http://x/v1"\n[providers.sambanova]\nbase_url = "http://y"\n')
    loaded = load({}, str(home.config))
    for name in ("deepinfra_eu", "sambanova"):
        assert provider_of(loaded, f"{name}/m")[0].wire == "chat"
    assert provider_of(load({}), "sambanova/m")[0].wire == "litellm"


def test_providers_of_litellms_list_have_their_base_key_and_variable() -> None:
    provider, model = provider_of(
        load({"CHUTES_API_KEY": "k1", "REKA_API_BASE": "http://127.0.0.1:1/v1"}), "chutes/a/b"
    )
    assert (provider.base_url, provider.key, model) == ("https://llm.chutes.ai/v1", "k1", "a/b")
    reka = provider_of(load({"REKA_API_BASE": "http://127.0.0.1:1/v1"}), "reka/m")[0]
    assert reka.base_url == "http://127.0.0.1:1/v1"
    assert all(endpoint(name) for name in table.compatible_endpoints())


@pytest.mark.slow
def test_every_provider_of_litellm_that_talks_is_known() -> None:
    listed = litellm_says("told = [getattr(p, 'value', p) for p in litellm.provider_list]", None)
    silent = (
        "a2a_agent aiohttp_openai aws_textract azure_speech dotprompt gdc humanloop langflow langfuse litellm_agent"
    )
    silent += " mongodb nadir nvidia_riva valkey"  # agents, prompts, stores, speech
    assert {name for name in listed if endpoint(name) is None} <= set(silent.split())


@pytest.mark.slow
def test_the_keys_of_providers_behind_litellm_are_those_that_litellm_reads() -> None:
    names = [name for name, known in PROVIDERS.items() if known.wire == "litellm" and known.key_vars]
    code = "told = {n: litellm.validate_environment(model=n + '/m')['missing_keys'] for n in asked}"
    for name, missing in litellm_says(code, names).items():
        keys = [variable for variable in missing if variable.endswith(("KEY", "TOKEN"))]
        assert set(keys) <= set(PROVIDERS[name].key_vars), name


def test_a_missing_key_behind_litellm_is_one_line_and_litellm_is_not_loaded(home: Home) -> None:
    run = home.run("-m", "cohere/command-a", "hi")
    assert (run.stdout, run.code) == ("", 2)
    assert run.stderr == ("gptsh: no key for cohere: set COHERE_API_KEY, or api_key_command under [providers.cohere]\n")
    assert not home.state.exists()


def test_a_bare_name_that_ollama_has_here_is_ollamas(home: Home) -> None:
    server = OllamaServer()
    server.models = {"qwen3:8b": Known(), "llama3.2:latest": Known()}
    for name in ("qwen3:8b", "llama3.2"):
        run = home.run("-m", name, "--title", "t", "hi", env={"OLLAMA_API_BASE": server.base_url})
        assert run.code == 0, run.stderr
        assert home.docs()[0]["agent"]["model"] == f"ollama/{name}"
        assert server.sent[-1]["model"] == name
    run = home.run("-m", "qwen3", "hi", env={"OLLAMA_API_BASE": server.base_url})
    assert (run.code, run.stderr.count("\n")) == (2, 1)
    server.close()


@pytest.mark.parametrize(
    ("stored", "provider", "model"),
    [
        ("gemini-2.5-pro", "gemini", "gemini/gemini-2.5-pro"),  # whose bare name is Vertex AI's
        ("gpt-4.1", "openai", "gpt-4.1"),
        ("gpt-4.1", "lab", "lab/gpt-4.1"),
        ("qwen3:8b", "ollama", "ollama/qwen3:8b"),
        ("groq/m", "lab", "groq/m"),
        ("mystery", None, "mystery"),
    ],
)
def test_a_bare_name_of_a_session_stays_with_the_sessions_provider(
    stored: str, provider: str | None, model: str
) -> None:
    assert stored_agent({"agent": {"model": stored}, "provider": {"name": provider}}).model == model


def test_a_name_that_is_nobodys_suggests_those_like_it() -> None:
    assert near_names("gemini-2.5-prro")[0] == "gemini/gemini-2.5-pro"
    assert near_names("mistral-large-latst")[0] == "mistral/mistral-large-latest"
    assert near_names("xyzzy") == []
    with pytest.raises(ConfigError, match=r"did you mean .*gemini-2.5-pro"):
        provider_of(load({}), "gemini-2.5-prro")


# ---- facts


def test_one_entry_by_its_bytes_is_the_entry_of_the_whole_table() -> None:
    keys = random.Random(4).sample(sorted(table.entries()), 400)
    keys += ["gpt-4.1", "claude-haiku-5-5"]  # the latter is indented otherwise
    assert all(table.entry(key) == table.entries()[key] for key in keys)
    assert table.entry("fallback_generalizations") is None
    assert table.entry("no such model") is None
    assert table.entry('"}') is None


def test_facts_of_a_model() -> None:
    known = facts("openai", "gpt-4.1")
    assert (known.window, known.prices) == (1047576, (2e-06, 8e-06))
    assert (known.can("vision"), known.can("reasoning"), known.speaks_chat) == (True, None, True)
    assert facts("gemini", "gemini-2.5-flash").window == 1048576
    assert facts("vertex_ai", "gemini-2.5-pro").prices
    assert not facts("openai", "o3-pro").speaks_chat
    unknown = facts("lab", "gpt-4.1")
    assert (unknown.window, unknown.prices, unknown.can("vision"), unknown.entry) == (None, None, None, {})
    assert facts_of(load({}), "o3").provider == "openai"
    assert {known.name for known in models_of("anthropic")} > {"claude-sonnet-4-5", "claude-opus-5"}
    assert not any(known.name.startswith("embed") for known in models_of("cohere"))


@pytest.mark.parametrize(
    ("model", "params", "refused"),
    [
        ("gpt-4.1", {}, False), ("o4-mini", {}, False), ("gpt-5", {}, False), ("gpt-5.1", {}, False),
        ("gpt-5.4", {}, False), ("gpt-5.4", {"reasoning_effort": "low"}, True),
        ("gpt-5.4-mini", {"reasoning_effort": "none"}, False),
        ("gpt-5.5", {}, True), ("gpt-5.5", {"reasoning_effort": "none"}, False), ("gpt-5.6-sol", {}, True),
        ("gpt-6-astra", {"reasoning_effort": "none"}, True), ("gpt-6.1-sol", {"reasoning_effort": "none"}, True),
        ("gpt-6-sol", {"reasoning_effort": "none"}, False), ("gpt-9", {}, True),
    ],
)  # fmt: skip
def test_openais_models_that_refuse_tools_on_chat_completions(
    model: str, params: dict[str, Any], refused: bool
) -> None:
    assert chat_refuses_tools(facts("openai", model), params) is refused
    assert chat_refuses_tools(facts("lab", model), params) is False
    provider = load({}).providers.get("openai")
    assert provider
    tools = {"tools": [{"type": "function"}]}
    assert wire_for(provider, model, {**params, **tools}) == ("litellm" if refused else "chat")
    assert wire_for(provider, model, params) == "chat"


@pytest.mark.parametrize("model", ["gpt-5.3-codex", "o3-pro", "gpt-5.5-pro"])
def test_openais_models_without_chat_completions_never_go_there(model: str) -> None:
    provider = load({}).providers.get("openai")
    assert provider
    assert wire_for(provider, model, {}) == "litellm"


@pytest.mark.parametrize(
    ("model", "params"),
    [
        ("openai/gpt-4.1", {"temperature": 0.2, "max_tokens": 24}),
        ("openai/gpt-5.4-mini", {"reasoning_effort": "low", "max_tokens": 2000}),
        ("openrouter/openai/gpt-5", {"reasoning_effort": "low", "max_tokens": 2000}),
        ("groq/openai/gpt-oss-120b", {"reasoning_effort": "low", "max_tokens": 2000}),
        ("xai/grok-4.3", {"max_tokens": 2000}),
        ("anthropic/claude-sonnet-4-5", {"max_tokens": 2000}),
        ("anthropic/claude-sonnet-5-5", {"reasoning_effort": "low", "max_tokens": 2000}),
        ("gemini/gemini-2.5-flash", {"max_tokens": 2000}),
        ("ollama/qwen3:8b", {"max_tokens": 2000}),
        ("lab/unheard-of", {"temperature": 0.2, "max_tokens": 24}),
        ("anthropic/claude-newfamily-7", {"reasoning_effort": "low", "max_tokens": 2000}),  # newer than the table
    ],
)
def test_parameters_of_a_title(model: str, params: dict[str, Any]) -> None:
    assert small_params(likely_facts(*split_model(model)), TITLE_TOKENS) == params


def test_the_title_of_a_model_newer_than_the_table_is_asked_as_its_family_is() -> None:
    asked: list[Request] = []

    def ask(request: Request) -> Iterator[Event]:
        asked.append(request)
        yield Text("A Title")

    assert generate_title("hi", small_model="anthropic/claude-newfamily-7", llm=ask) == "A Title"
    assert asked[0].params == {"reasoning_effort": "low", "max_tokens": 2000}


# ---- prices

PRICED = [
    "openai/gpt-4.1", "openai/gpt-4o", "openai/gpt-5", "openai/gpt-5.4", "openai/gpt-5.6", "openai/o3",
    "openai/o4-mini", "anthropic/claude-sonnet-4-5", "anthropic/claude-opus-4-6", "anthropic/claude-haiku-4-5",
    "anthropic/claude-sonnet-5-5", "anthropic/claude-haiku-5-5", "gemini/gemini-2.5-pro", "gemini/gemini-2.5-flash",
    "gemini/gemini-3.5-flash", "deepseek/deepseek-v4-flash", "xai/grok-4.3",
    "mistral/mistral-medium-latest",
    "mistral/magistral-medium-latest", "groq/openai/gpt-oss-120b", "moonshot/kimi-k3", "moonshot/kimi-k2.5",
    "dashscope/qwen-plus-latest", "dashscope/qwen3-max", "zai/glm-5.3", "cerebras/gpt-oss-120b",
    "fireworks_ai/accounts/fireworks/models/deepseek-v3p2", "perplexity/sonar", "together_ai/openai/gpt-oss-120b",
    "azure/gpt-4.1", "vertex_ai/gemini-2.5-pro", "novita/deepseek/deepseek-v3.2",
]  # fmt: skip


def usages(seed: int) -> dict[str, Any]:
    """A usage as providers send it: tokens from the cache and for reasoning within their sums, prompts up to 600k."""
    dice = random.Random(seed)
    edges = [100_000, 128_000, 200_000, 200_001, 272_000, 272_001]
    prompt = dice.choice([dice.randint(1, 3000), dice.randint(1, 600_000), *edges])
    completion = dice.randint(0, 20_000)
    read = dice.choice([0, dice.randint(0, prompt)])
    reasoning = dice.choice([0, dice.randint(0, completion)])
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": read},
        "cache_creation_input_tokens": dice.choice([0, dice.randint(0, prompt - read)]),
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


@pytest.mark.slow
def test_prices_agree_with_litellm() -> None:
    asked = [[model, usages(seed)] for seed, model in enumerate(PRICED * 12)]
    code = """
def price(model, usage):
    answer = {"id": "x", "object": "chat.completion", "created": 0, "model": model.partition("/")[2], "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x"}}], "usage": usage}
    provider, _, name = model.partition("/")
    return litellm.completion_cost(litellm.ModelResponse(**answer), model=name, custom_llm_provider=provider)
told = [price(model, usage) for model, usage in asked]
"""
    told = litellm_says(code, asked)
    assert len(set(PRICED)) >= 30
    for (model, usage), said in zip(asked, told, strict=True):
        ours = cost(facts(*split_model(model)), usage)
        assert ours == pytest.approx(said, rel=1e-9), (model, usage)


@pytest.mark.parametrize(
    ("provider", "name", "raw", "usd"),
    [
        ("lab", "m", {"prompt_tokens": 5}, None),
        ("openrouter", "a/b", {"prompt_tokens": 5, "cost": 0.25}, 0.25),
        ("perplexity", "sonar", {"prompt_tokens": 5, "cost": {"total_cost": 0.5}}, 0.5),
        ("xai", "grok-4.3", {"cost_in_usd_ticks": 20_000_000}, 0.002),
        ("xai", "grok-4.3", {"prompt_tokens": 10, "completion_tokens": 12, "total_tokens": 362,
                             "completion_tokens_details": {"reasoning_tokens": 340}}, 10 * 1.25e-6 + 352 * 2.5e-6),
        ("openai", "gpt-4.1", {"cost": 99, "prompt_tokens": 1000, "completion_tokens": 0}, 0.002),
        ("openai", "gpt-4.1", {}, 0.0),
        ("openai", "gpt-4.1", {"prompt_tokens": None, "prompt_tokens_details": None}, 0.0),
        ("deepseek", "deepseek-v4-flash", {"prompt_tokens": 0, "prompt_cache_hit_tokens": 0}, 0.0),
        ("anthropic", "claude-sonnet-4-5", {"prompt_tokens": 18, "completion_tokens": 15, "cache_read_input_tokens": 5,
                                            "cache_creation_input_tokens": 3}, 0.00026775),
    ],
)  # fmt: skip
def test_what_a_provider_states_comes_first_and_an_unknown_price_is_none(
    provider: str, name: str, raw: dict[str, Any], usd: float | None
) -> None:
    got = cost(facts(provider, name), raw)
    assert got is None if usd is None else got == pytest.approx(usd)


def test_free_is_a_price_and_no_price_is_none() -> None:
    assert cost(Facts("x", "m", {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0}), {"prompt_tokens": 9}) == 0
    assert cost(Facts("x", "m", {"cache_read_input_token_cost": 1.0}), {"prompt_tokens": 9}) is None
    free_reads = Facts("x", "m", {"input_cost_per_token": 1.0, "cache_read_input_token_cost": 0.0})
    assert cost(free_reads, {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}) == 5


def test_the_title_is_counted_in_the_cost_of_a_session(home: Home, model: ModelServer) -> None:
    home.configure(f'[providers.openai]\nbase_url = "{model.base_url}"\nmodel_small = "openai/gpt-4.1-mini"\n')
    home.run("-m", "gpt-4.1", "hi", env={"OPENAI_API_KEY": "a-key"})
    doc = home.doc()
    answer, title = 11 * 2e-6 + 5 * 8e-6, 11 * 4e-7 + 5 * 1.6e-6
    assert doc["title"]
    assert doc["messages"][1]["cost"] == pytest.approx(answer)
    assert doc["usage"]["title_cost"] == pytest.approx(title)
    assert doc["usage"]["cost"] == pytest.approx(answer + title)
    home.run("-s", "0", "more", env={"OPENAI_API_KEY": "a-key"})
    assert home.doc()["usage"]["cost"] == pytest.approx(2 * answer + title)


# ---- the list


def test_list_models_shows_what_can_be_asked_from_here(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model))
    served = {"data": [{"id": "m", "max_model_len": 4096}, {"id": "e\nvil\x1b[2J", "pricing": {"prompt": "-1"}}, {}]}
    model.pages["/v1/models"] = served
    run = home.run("--list-models", env={"OPENAI_API_KEY": "a-key", "AZURE_API_KEY": "a-key"})
    assert (run.code, run.stderr) == (0, "")
    lines = [line.split() for line in run.stdout.splitlines()]
    assert lines[0][:5] == ["echo", "echo", "-", "0.00", "0.00"]
    assert "without key or network" in run.stdout.splitlines()[0]
    assert ["openai/gpt-4.1", "chat", "1047576", "2.00", "8.00"] in lines
    assert ["openai/gpt-5.3-codex", "litellm", "272000", "1.75", "14.00"] in lines
    assert ["lab/m", "chat", "4096", "-", "-"] in lines
    assert ["lab/e", "vil\x1b[2J", "chat", "-", "-", "-"] in lines
    assert {line[0].partition("/")[0] for line in lines} == {"echo", "openai", "lab"}
    assert not any("embedding" in line[0] or "gpt-4o-2024-05-13" in line[0] for line in lines)


def test_list_models_reads_openrouters_own_list(home: Home, model: ModelServer) -> None:
    pricing = {"prompt": "0.000001", "completion": "0.000005"}
    served = {"data": [{"id": "qwen/qwen3-max", "context_length": 262144, "pricing": pricing}]}
    model.pages["/v1/models"] = served
    run = home.run("--list-models", env={"OPENROUTER_API_KEY": "a-key", "OPENROUTER_API_BASE": model.base_url})
    assert run.stdout.splitlines()[1].split() == ["openrouter/qwen/qwen3-max", "chat", "262144", "1.00", "5.00"]
    assert model.asked[0].headers["authorization"] == "Bearer a-key"


def test_list_models_without_any_key_is_echo_alone(home: Home) -> None:
    run = home.run("--list-models")
    assert (run.code, run.stdout.count("\n"), run.stderr) == (0, 1, "")


# ---- what a stranger's reading found


@pytest.mark.parametrize("name", ["open", "vertex", "a", "deep"])
def test_a_server_of_ones_own_has_no_vendors_price_whatever_its_name_begins_with(name: str) -> None:
    assert facts(name, "gpt-4.1").entry == facts(name, "deepseek-v4-flash").entry == {}
    assert facts("ai21_chat", "jamba-1.5-large").window


@given(
    st.dictionaries(
        st.sampled_from(["prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "cost",
                         "completion_tokens_details", "cost_in_usd_ticks", "cached_tokens", "reasoning_tokens"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=3),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["cached_tokens", "total_cost",
                                                                                         "reasoning_tokens"]), inner),
            max_leaves=4,
        ),
    ),
    st.sampled_from(["openai/gpt-4.1", "xai/grok-4.3", "perplexity/sonar", "openrouter/a", "dashscope/qwen3-max"]),
)  # fmt: skip
def test_no_usage_that_a_server_may_send_breaks_the_sum(raw: dict[str, Any], model: str) -> None:
    known = cost(facts(*split_model(model)), raw)
    assert known is None or 0 <= known < 1e30


def test_an_answer_is_kept_whatever_its_usage_looks_like(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model))
    usage = {"prompt_tokens": 10, "prompt_tokens_details": "x", "completion_tokens_details": [1], "cost": 10**400}
    model.say("kept", usage=usage)
    assert home.run("hi").code == 0
    assert home.doc()["messages"][1]["content"] == "kept"


SHAPES = [
    b"", b"{", b"[]", b"null", b'{"m": "text"}', b'{"$schema": "x", "m": {"mode": "chat"}}', b'{"m":{"mode":"chat"}}',
    b'{\n    "m": {\n        "mode": "chat" },\n    "n": {\n        "x": 1\n    }\n}',
    b'{\n    "a": {\n        "m": {"x": 1}\n    },\n    "m": {\n        "mode": "chat"\n    }\n}',
]  # fmt: skip


@pytest.mark.parametrize("data", SHAPES)
def test_a_table_of_another_shape_is_read_as_far_as_it_can_be(data: bytes) -> None:
    assert table.find(data, "m") == table.load(data).get("m") == ({"mode": "chat"} if b"chat" in data else None)


@pytest.mark.parametrize(
    "entry",
    [
        {"tiered_pricing": {"a": 1}}, {"tiered_pricing": [{"range": None}]}, {"input_cost_per_token": "free"},
        {"supported_endpoints": "x", "max_input_tokens": "many", "off_peak_pricing": {"windows": "never"}},
        {"off_peak_pricing": [{"hours_utc": 3}], "output_cost_per_token": True},
    ],
)  # fmt: skip
def test_facts_of_another_shape_are_unknown(entry: dict[str, Any]) -> None:
    known = Facts("x", "m", entry)
    assert (known.window, known.prices, known.speaks_chat) == (None, None, True)
    assert cost(known, {"prompt_tokens": 5}) is None


@pytest.mark.parametrize(
    ("at", "usd"),
    [
        ("2026-11-20T02:00:00Z", 0.3), ("2026-11-20T05:59:59Z", 0.15), ("2026-11-20T06:00:00Z", 0.3),
        ("2026-11-20T23:59:00Z", 0.15), ("2026-11-21T08:00:00Z", 0.15),  # a Saturday
    ],
)  # fmt: skip
def test_a_price_that_depends_on_the_hour(at: str, usd: float) -> None:
    known = facts("deepseek", "deepseek-v4-flash")
    assert cost(known, {"prompt_tokens": 1_000_000}, datetime.fromisoformat(at)) == pytest.approx(usd)


@pytest.mark.parametrize("name", ["gptj", "gpt2", "gpt4all", "o1rganization", "gpt-neox-20b"])
def test_a_name_that_only_begins_like_openais_is_not_sent_there(name: str) -> None:
    assert split_model(name)[0] is None


def test_hostile_names_take_no_time() -> None:
    started = time.monotonic()
    for name in ("gpt-5/" * 30, "sonar-" * 30, "gpt-" + "9" * 190):
        small_params(facts("lab", name), TITLE_TOKENS)
        chat_refuses_tools(facts("openai", name), {})
    assert time.monotonic() - started < 5


@pytest.mark.slow
def test_a_bare_gemini_name_is_geminis_where_its_key_is_set(home: Home, model: ModelServer) -> None:
    home.configure(f'[providers.gemini]\nbase_url = "{model.base_url}"\n[sessions]\ntitles = "off"\n')
    part = {"candidates": [{"content": {"parts": [{"text": "Hi."}], "role": "model"}, "finishReason": "STOP"}]}
    model.script(b"data: " + json.dumps(part).encode() + b"\r\n\r\n")
    assert home.run("-m", "gemini-2.5-flash", "hi", env={"GEMINI_API_KEY": "a-key"}).stdout == "Hi.\n"
    assert home.doc()["agent"]["model"] == "gemini/gemini-2.5-flash"


def test_a_key_command_chooses_the_default_model_too() -> None:
    loaded = load({})._replace(providers=Providers({"groq": {"api_key_command": "echo k"}}, {}))
    assert default_model(loaded) == f"groq/{PROVIDERS['groq'].default_model}"


def test_echo_stays_offline_and_a_compatible_provider_keeps_its_key(home: Home, model: ModelServer) -> None:
    tables = {"echo": {"base_url": model.base_url}, "chutes": {"base_url": model.base_url}}
    providers = Providers(tables, {"CHUTES_API_KEY": "a-key"})
    echo, chutes = providers.get("echo"), providers.get("chutes")
    assert echo
    assert echo.wire == "echo"
    assert chutes
    assert (chutes.key, chutes.wire, chutes.base_url) == ("a-key", "chat", model.base_url)


@pytest.mark.slow
def test_every_direct_provider_has_litellms_base_and_key() -> None:
    """But for those whose base litellm has otherwise, or not at all (DESIGN, section 5)."""
    ours = {
        name: [known.base_url, known.key_vars[0]]
        for name, known in PROVIDERS.items()
        if known.wire == "chat" and known.needs_key
    }
    code = """
import os
told = {}
for name, (base, variable) in asked.items():
    os.environ.clear()
    os.environ[variable] = "key-of-" + name
    _, _, key, told_base = litellm.get_llm_provider(name + "/m")
    told[name] = [told_base, key]
"""
    told = litellm_says(code, ours)
    for name, (base, key) in told.items():
        if base and name != "deepseek":  # litellm takes the beta's path
            assert base.rstrip("/") == ours[name][0], name
        assert key in (None, f"key-of-{name}"), name
    assert sum(base is not None for base, _ in told.values()) >= 10


def test_a_server_that_does_not_list_is_said(home: Home, model: ModelServer) -> None:
    home.configure(
        f'[providers.lab]\nbase_url = "{model.base_url}"\n[providers.gone]\nbase_url = "http://127.0.0.1:9"\n'
    )
    model.script(b"<html>", framing="length")
    run = home.run("--list-models")
    assert (run.code, run.stdout.count("\n")) == (0, 1)
    assert "lab: lab does not list its models" in run.stderr
    assert "gone: nothing answers at 127.0.0.1:9" in run.stderr


def test_a_long_list_is_read_whole_and_filtered(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model))
    served = {"data": [{"id": f"model-{number}", "more": "x" * 300} for number in range(3000)]}
    model.pages["/v1/models"] = served
    assert home.run("--list-models").stdout.count("\n") == 3001
    assert home.run("--list-models", "-m", "model-2999").stdout.count("\n") == 1


def test_a_base_url_of_the_environment_is_asked_for_its_models(home: Home, model: ModelServer) -> None:
    model.pages["/v1/models"] = {"data": [{"id": "mine"}]}
    run = home.run("--list-models", env={"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "a-key"})
    assert [line.split()[0] for line in run.stdout.splitlines()] == ["echo", "openai/mine"]
