"""Whose a model is, by which api it is reached, what it can and costs; held against the installed litellm."""

import json
import os
import random
import subprocess
import sys
from typing import Any

import pytest

from gptsh.config.accounts import Providers, ProviderTable
from gptsh.models.facts import (
    Facts,
    exact_facts,
    likely_facts,
    may_reason,
    models_of,
    small_params,
    split_model,
    table_entries,
    table_entry,
)
from gptsh.models.usage import cost, usage_from
from gptsh.text import columns
from tests.support.home import Home, lab_config
from tests.support.paths import DATA
from tests.support.server import ModelServer
from tests.support.sessions import put


@pytest.mark.parametrize(
    ("model", "provider", "name"),
    [
        ("openai/gpt-4.1", "openai", "gpt-4.1"), ("groq/openai/gpt-oss-120b", "groq", "openai/gpt-oss-120b"),
        *((name, "openai", name) for name in ("gpt-5.9-foo", "o3", "chatgpt-4o-latest")), ("echo", "echo", "echo"),
        ("claude-opus-9-9", "anthropic", "claude-opus-9-9"), ("gemini-2.5-pro", "vertex_ai", "gemini-2.5-pro"),
        *((name, None, name) for name in ("gpt-oss-120b", "llama3.2", "qwen3:8b", "sample_spec", "gptj")),
    ],
)  # fmt: skip
def test_whose_a_name_is(model: str, provider: str | None, name: str) -> None:
    assert split_model(model) == (provider, name)


@pytest.mark.parametrize(
    ("model", "line"),
    [
        (
            "gpt-5.9-foo",
            "no key for openai: set OPENAI_API_KEY, or api_key_command under [providers.openai]",
        ),
        (
            "cohere/command-a",
            "no key for cohere: set COHERE_API_KEY, or api_key_command under",
        ),  # litellm's
        (
            "azure/m",
            "no base URL for azure: set AZURE_API_BASE or base_url under [providers.azure]",
        ),
        ("openai", "'openai' is a provider, not a model: write openai/MODEL"),
        ("mystery", "unknown provider of model 'mystery': write PROVIDER/MODEL"),
        (
            "ghost/m",
            "unknown provider 'ghost' in 'ghost/m': for your own server, set base_url under [providers.ghost]",
        ),
        (
            "opnai/m",
            "unknown provider 'opnai' in 'opnai/m': did you mean openai? For your own server, set base_url",
        ),
        ("openai/", "'' is not a valid model name"),
    ],
)
def test_a_name_that_cannot_be_asked_says_what_is_missing(
    home: Home, model: str, line: str
) -> None:
    run = home.run("-m", model, "hi")
    assert run.stdout == ""
    assert run.code == 2
    assert run.stderr.count("\n") == 1
    assert line in run.stderr
    assert not home.state.exists()


@pytest.mark.parametrize(
    ("stored", "provider", "line"),
    [
        ("gemini-2.5-pro", "gemini", "no key for gemini"),  # whose bare name is Vertex AI's
        ("gpt-4.1", "openai", "no key for openai"), ("gpt-4.1", "lab", "unknown provider 'lab' in 'lab/gpt-4.1'"),
        ("qwen3:8b", "ollama", "cannot connect to 127.0.0.1:9"), ("groq/m", "lab", "no key for groq"),
    ],
)  # fmt: skip
def test_a_bare_name_of_a_session_stays_with_the_sessions_provider(
    home: Home, stored: str, provider: str | None, line: str
) -> None:
    put(home, "aaaa", 1, agent={"name": "default", "model": stored}, provider={"name": provider})
    assert (
        line in home.run("-s", "aaaa", "hi", env={"OLLAMA_API_BASE": "http://127.0.0.1:9"}).stderr
    )


@pytest.mark.parametrize("name", ["deepinfra_eu", "chutes"])
def test_a_base_url_makes_any_name_a_compatible_server(
    home: Home, model: ModelServer, name: str
) -> None:
    home.configure(
        f'[providers.{name}]\nbase_url = "{model.base_url}"\n[sessions]\ntitles = "off"\n'
    )
    assert (
        home.run("-m", f"{name}/a/b", "hi", env={"CHUTES_API_KEY": "k"}).stdout == "You said: hi\n"
    )
    assert model.sent[-1]["model"] == "a/b"
    assert model.requests[-1].headers.get("authorization") == (
        "Bearer k" if name == "chutes" else None
    )


def test_one_entry_by_its_bytes_is_the_entry_of_the_whole_table() -> None:
    keys = random.Random(4).sample(sorted(table_entries()), 400)
    keys += ["gpt-4.1", "claude-haiku-5-5"]  # the latter is indented otherwise
    assert all(table_entry(key) == table_entries()[key] for key in keys)
    assert [table_entry(key) for key in ("no such model", '"}')] == [None] * 2


@pytest.mark.parametrize(
    ("provider", "name", "window", "prices"),
    [
        ("openai", "gpt-4.1", 1047576, (2e-06, 8e-06)), ("gemini", "gemini-2.5-flash", 1048576, (3e-07, 2.5e-06)),
        # a self-hosted server has no vendor's price, whatever its name begins with
        *((own, "gpt-4.1", None, None) for own in ("lab", "open", "vertex")),
    ],
)  # fmt: skip
def test_facts_of_a_model(provider: str, name: str, window: int | None, prices: Any) -> None:
    known = exact_facts(provider, name)
    assert known.window == window
    assert prices is None or known.prices == prices
    assert window or known.entry == {}


OPENAIS = (
    "https://api.openai.com/v1",
    "https://eu.api.openai.com/v1",
    "https://me.openai.azure.com/openai/v1",
)


@pytest.mark.parametrize(
    ("base", "model", "api"),
    [
        *[(base, "openai/gpt-6.2-astra", "responses") for base in OPENAIS],
        *[(base, "lab/gpt-4.1", "chat") for base in OPENAIS],
        (OPENAIS[0], "lab/o3-pro", "responses"),
        (OPENAIS[0], "lab/ft:gpt-4.1:x", "responses"),
        (OPENAIS[0], "openai/gpt-audio-1.5", "chat"),
        (OPENAIS[0], "openai/gpt-5-search-api", "chat"),
        ("http://127.0.0.1:9/v1", "openai/gpt-5.5", "chat"),
        ("http://127.0.0.1:9/v1", "lab/gpt-5.3-codex", "chat"),
        ("http://127.0.0.1:9/v1", "lab/m", "chat"),
        ("https://api.openai.com.evil.test/v1", "openai/gpt-5.5", "chat"),
    ],
)
def test_openai_and_azure_have_the_responses_api_and_other_servers_chat_completions(
    base: str, model: str, api: str
) -> None:
    provider = model.partition("/")[0]
    providers = Providers({provider: ProviderTable(base_url=base)}, {})
    assert providers.for_model(model).api == api


@pytest.mark.parametrize(
    ("name", "table", "url"),
    [
        ("gemini", {}, "https://generativelanguage.googleapis.com/v1beta"),
        ("gemini", {"base_url": "http://127.0.0.1:9"}, "http://127.0.0.1:9/v1beta"),
        (
            "lab",
            {"base_url": "http://127.0.0.1:9/google/v1", "api": "gemini"},
            "http://127.0.0.1:9/google/v1",
        ),
    ],
)
def test_google_and_gateways_to_it_have_the_gemini_api(
    name: str, table: dict[str, Any], url: str
) -> None:
    target = Providers({name: ProviderTable(**table)}, {}).for_model(f"{name}/gemini-3.8-flash")
    assert target.api == "gemini"
    assert target.account.base_url == url
    assert [*target.account.vendor.key_headers] == ["x-goog-api-key"]


def test_gemini_models_that_reason_by_their_name_do_so_by_the_table() -> None:
    models = {known.name: known.can("reasoning") is not False for known in models_of("gemini")}
    assert {name: may_reason("gemini", name) for name in models} == models
    assert may_reason("gemini", "gemini-3.9-pro")


@pytest.mark.parametrize(
    ("model", "params"),
    [
        *((name, {"temperature": 0.2, "max_tokens": 24}) for name in ("openai/gpt-4.1", "lab/unheard-of")),
        *((name, {"reasoning_effort": "low", "max_tokens": 2000}) for name in (
            "openai/gpt-5.4-mini", "openrouter/openai/gpt-5", "anthropic/claude-newfamily-7",  # newer than the table
            "gemini/gemini-3.8-flash",
        )),
        *((name, {"max_tokens": 2000}) for name in ("xai/grok-4.3", "anthropic/claude-sonnet-4-5", "ollama/qwen3:8b")),
    ],
)  # fmt: skip
def test_parameters_of_a_title(model: str, params: dict[str, Any]) -> None:
    assert small_params(likely_facts(*split_model(model)), 24) == params


# Whose a bare name is, as the real litellm says.
LITELLM = """
import json, sys, litellm
litellm.suppress_debug_info = True
def provider(name):
    try:
        return litellm.get_llm_provider(name)[1].replace("bedrock_converse", "bedrock")
    except litellm.BadRequestError:
        return None
print("\\n" + json.dumps([provider(name) for name in json.load(sys.stdin)]))
"""


@pytest.mark.slow
def test_names_are_those_of_litellm() -> None:
    names = [
        key
        for key, entry in table_entries().items()
        if "/" not in key and entry.get("mode") == "chat"
    ]
    names += ["claude-newfamily-7", "mystery", "llama3.2", "gpt-oss-120b"]
    done = subprocess.run(
        [sys.executable, "-c", LITELLM], capture_output=True, text=True, check=True, timeout=100,
        input=json.dumps(names),
        env={"PATH": os.environ["PATH"], "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "CRITICAL"},
    )  # fmt: skip
    for name, said in zip(names, json.loads(done.stdout.splitlines()[-1]), strict=True):
        # what it cannot route is what its table knows under no prefix
        assert split_model(name)[0] == said or (said is None and name in table_entries()), name


def test_a_call_costs_its_tokens_at_the_models_prices() -> None:
    """Rows of provider, entry of the model table, usage, and USD as another implementation computes it."""
    rows = json.loads((DATA / "costs.json").read_text())
    assert len(rows) > 60
    for provider, entry, usage, usd in rows:
        expected = usd if usd is None else pytest.approx(usd, rel=1e-12)
        assert cost(Facts(provider, "m", entry), usage_from(usage)) == expected, (
            provider,
            entry,
            usage,
        )


CLAUDES = {
    "input_tokens": 1000,
    "cache_read_input_tokens": 2000,
    "cache_creation_input_tokens": 400,
    "output_tokens": 100,
}
CLAUDES_COST = 1000 * 5e-6 + 2000 * 5e-7 + 400 * 6.25e-6 + 100 * 2.5e-5
FREE = {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0}
CACHED = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}
THOUGHT = {"prompt_tokens": 10, "completion_tokens": 12, "total_tokens": 362,
           "completion_tokens_details": {"reasoning_tokens": 340}}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "raw", "usd"),
    [
        ("lab/m", {"prompt_tokens": 5}, None), ("anthropic/claude-nobody-knows", {"input_tokens": 10}, None),
        ("anthropic/claude-opus-4-8", {**CLAUDES, "inference_geo": "US", "speed": "fast"}, 1.1 * 2 * CLAUDES_COST),
        ("anthropic/claude-opus-4-8", {**CLAUDES, "inference_geo": "global", "speed": "standard"}, CLAUDES_COST),
        ("anthropic/claude-opus-4-7", {**CLAUDES, "speed": "fast"}, CLAUDES_COST),  # has no fast mode
        # what a provider states comes first
        ("openrouter/a/b", {"prompt_tokens": 5, "cost": 0.25}, 0.25),
        ("xai/grok-4.3", {"cost_in_usd_ticks": 20_000_000}, 0.002),
        ("xai/grok-4.3", THOUGHT, 10 * 1.25e-6 + 352 * 2.5e-6),
        ("lab/m", {"prompt_tokens": 5, "cost": 0.25}, 0.25),  # LiteLLM's proxy, where it is told to
        ("perplexity/sonar", {"prompt_tokens": 5, "cost": {"total_cost": 0.25}}, 0.25),
        ("openai/gpt-4.1", {"cost": -1, "prompt_tokens": 1000, "completion_tokens": 0}, 0.002),
        ("openai/gpt-4.1", {"cost": "x", "prompt_tokens": 1000, "completion_tokens": 0}, 0.002),
        ("openai/gpt-4.1", {"prompt_tokens": None, "prompt_tokens_details": None}, 0.0),
        ("deepseek/deepseek-v4-flash", {"prompt_tokens": 1_000_000}, 0.3),  # at any hour
        # free is a price, and no price is none
        (FREE, CACHED, 0.0), ({"cache_read_input_token_cost": 1.0}, CACHED, None),
        ({"tiered_pricing": [{"range": None}]}, CACHED, None), ({"input_cost_per_token": "free"}, CACHED, None),
    ],
)  # fmt: skip
def test_what_an_answer_costs(
    model: str | dict[str, Any], raw: dict[str, Any], usd: float | None
) -> None:
    known = exact_facts(*split_model(model)) if isinstance(model, str) else Facts("x", "m", model)
    got = cost(known, usage_from(raw))
    assert got is None if usd is None else got == pytest.approx(usd)


def test_an_answer_is_kept_whatever_its_usage_looks_like(lab: Home, model: ModelServer) -> None:
    usage = {
        "prompt_tokens": 10,
        "prompt_tokens_details": "x",
        "completion_tokens_details": [1],
        "cost": 10**400,
    }
    model.say("kept", usage=usage)
    assert lab.run("hi").code == 0
    assert lab.doc()["messages"][1]["content"] == "kept"


def listed(home: Home, *args: str, **env: str) -> dict[str, list[str]]:
    """The lines of ``--list-models`` by model, as words."""
    run = home.run("--list-models", *args, env=env)
    assert run.code == 0
    assert run.stderr == ""
    return {line.split()[0]: line.split()[1:] for line in run.stdout.splitlines()}


def test_list_models_shows_what_can_be_asked_from_here(lab: Home, model: ModelServer) -> None:
    served = [
        {"id": "m", "max_model_len": 4096},
        {"id": "evil\x1b[2J", "pricing": {"prompt": "-1"}},
        {},
    ]
    model.pages["/v1/models"] = {"data": served}
    found = listed(lab, OPENAI_API_KEY="a-key", AZURE_API_KEY="a-key")
    assert found["echo"][:4] == ["echo", "-", "0.00", "0.00"]
    assert found["openai/gpt-4.1"][:4] == ["chat", "1047576", "2.00", "8.00"]
    assert found["openai/gpt-5.3-codex"][:4] == ["responses", "272000", "1.75", "14.00"]
    assert found["lab/m"][:4] == ["chat", "4096", "-", "-"]
    assert {name.partition("/")[0] for name in found} == {"echo", "openai", "lab"}
    assert not any("embedding" in name or "gpt-4o-2024-05-13" in name for name in found)


def test_a_bare_name_is_that_of_the_only_server_that_lists_it(
    lab: Home, model: ModelServer
) -> None:
    model.pages["/v1/models"] = {"data": [{"id": "qwen3-max"}]}
    assert lab.run("-m", "qwen3-max", "hi").code == 2
    lab.run("--list-models")
    before = len(model.requests)
    assert lab.run("-m", "qwen3-max", "hi") == ("You said: hi\n", "", 0)
    assert model.sent[-1]["model"] == "qwen3-max"
    assert lab.doc()["agent"]["model"] == "lab/qwen3-max"
    assert len(model.requests) == before + 1
    lab.configure(lab_config(model) + f'[providers.other]\nbase_url = "{model.base_url}"\n')
    lab.run("--list-models")
    run = lab.run("-m", "qwen3-max", "hi")
    assert run.code == 2
    assert "unknown provider of model 'qwen3-max'" in run.stderr


def test_list_models_aligns_names_with_wide_characters(lab: Home, model: ModelServer) -> None:
    model.pages["/v1/models"] = {"data": [{"id": "千问模型"}, {"id": "qwen"}]}
    lines = lab.run("--list-models").stdout.splitlines()
    names = [line.partition(" chat ")[0] for line in lines if "lab/" in line]
    assert [name.strip() for name in names] == ["lab/千问模型", "lab/qwen"]
    assert columns(names[0]) == columns(names[1])


def test_list_models_shows_aliases_and_which_name_they_hide(lab: Home, model: ModelServer) -> None:
    model.pages["/v1/models"] = {"data": []}
    aliases = 'quick = "lab/m"\n"gpt-4.1" = "azure/mine"\nlost = "nobody/x"\nsame = "gpt-4.1"\n'
    lab.configure(
        f"{lab.config.read_text()}[providers.lab.prices.m]\ninput = 1\noutput = 2\n[aliases]\n{aliases}"
    )
    run = lab.run("--list-models", env={"AZURE_API_BASE": "https://me.example"})
    rows = {line.split()[0]: line.split()[1:] for line in run.stdout.splitlines()}
    assert rows.pop("echo")
    assert rows == {
        "quick": ["chat", "-", "1.00", "2.00", "=", "lab/m"],
        "gpt-4.1": ["litellm", "-", "-", "-", "=", "azure/mine"],
        "same": ["chat", "1047576", "2.00", "8.00", "=", "openai/gpt-4.1"],
    }
    assert "[aliases] makes gpt-4.1 mean azure/mine; write openai/gpt-4.1 in full" in run.stderr
    assert "lost under [aliases]: unknown provider 'nobody' in 'nobody/x'" in run.stderr
    assert (
        lab.run("--list-models", "-m", "lab/m", "-o", "json").stdout.count('"alias_of":"lab/m"')
        == 1
    )


def test_list_models_asks_servers_for_their_own_lists(home: Home, model: ModelServer) -> None:
    pricing = {"prompt": "0.000001", "completion": "0.000005"}
    windows = {"context_length": 999_999, "top_provider": {"context_length": 262144}}
    model.pages["/v1/models"] = {"data": [{"id": "qwen/qwen3-max", **windows, "pricing": pricing}]}
    found = listed(home, OPENROUTER_API_KEY="a-key", OPENROUTER_API_BASE=model.base_url)
    assert found["openrouter/qwen/qwen3-max"] == ["chat", "262144", "1.00", "5.00"]
    assert model.requests[0].headers["authorization"] == "Bearer a-key"
    assert [*listed(home)] == ["echo"]


def test_a_long_list_is_read_whole_filtered_and_limited(lab: Home, model: ModelServer) -> None:
    model.pages["/v1/models"] = {
        "data": [{"id": f"m-{number}", "more": "x" * 300} for number in range(3000)]
    }
    assert len(listed(lab)) == 3001
    assert [*listed(lab, "-m", "m-2999", "--limit", "1")] == ["lab/m-2999"]
    assert [*listed(lab, "--limit", "2")] == ["echo", "lab/m-0"]


def test_a_server_that_does_not_list_is_said(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model) + '[providers.gone]\nbase_url = "http://127.0.0.1:9"\n')
    model.script(b"<html>", framing="length")
    run = home.run("--list-models")
    assert run.code == 0
    assert run.stdout.count("\n") == 1
    assert "lab: lab does not list its models" in run.stderr
    assert "gone: cannot connect to 127.0.0.1:9" in run.stderr
