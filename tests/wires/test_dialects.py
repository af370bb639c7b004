"""Each direct provider on a loopback server that refuses what that provider refuses, and answers as it does."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from gptsh.core.providers import PROVIDERS, Endpoint
from gptsh.llm.parameters import fit
from tests.support.home import Home, kind_of_session, lab_config
from tests.support.server import ModelServer, chunk, complaint, event

USAGE = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}
COMMON = {"model", "messages", "stream", "max_tokens"}
DONE = event(b"[DONE]")
LAST = {"id": "chatcmpl-1", "choices": [], "usage": USAGE}


class Dialect(NamedTuple):
    """What a provider is sent for ``-p max_tokens=50 -p reasoning_effort=high``, and how it streams its answer.

    ``takes`` are the keys beside the common ones; any other is refused, as strict servers do.
    """

    model: str
    takes: dict[str, Any]
    stream: list[Any]
    reasoning: str | None = None
    lacks: frozenset[str] = frozenset()
    cost: bool = True


def said(field: str | None = None, **last: Any) -> list[Any]:
    """An answer, its reasoning under ``field``; ``last`` goes into the chunk with the reason for ending."""
    thought = [chunk({field: "hm"})] if field else []
    return [*thought, chunk({"content": "An "}), chunk({"content": "answer."}), chunk({}, "stop", **last)]


SO = {"stream_options": {"include_usage": True}}
HIGH = {"reasoning_effort": "high"}
ON = {"type": "enabled"}
TOKENS = {"prompt_tokens": 10, "completion_tokens": 15, "total_tokens": 30,
          "completion_tokens_details": {"reasoning_tokens": 5}}  # fmt: skip

DIALECTS: dict[str, Dialect] = {
    "openai": Dialect("gpt-4.1", SO | HIGH, [*said(usage=None), LAST]),
    "openai reasoning": Dialect(
        "gpt-5.4", SO | HIGH | {"max_completion_tokens": 50}, [*said(), LAST], lacks=frozenset({"max_tokens"})
    ),
    "mistral": Dialect(
        "magistral-medium-latest", HIGH,
        [chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
         *said(usage=USAGE)], "thinking",
    ),
    "deepseek": Dialect("deepseek-v4-flash", SO | HIGH | {"thinking": ON},
                        [b": keep-alive\n\n", *said("reasoning_content", usage=USAGE)], "reasoning_content"),
    "xai": Dialect("grok-4.3", SO | HIGH, [*said("reasoning_content"), {**LAST, "usage": TOKENS}], "reasoning_content"),
    "groq": Dialect("openai/gpt-oss-120b", SO | HIGH, said("reasoning", x_groq={"id": "r", "usage": USAGE}),
                    "reasoning"),
    "moonshot": Dialect(
        "kimi-k2.5", SO | {"thinking": ON},
        [*said("reasoning_content")[:-1],
         {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USAGE}]}], "reasoning_content",
    ),
    "zai": Dialect("glm-5.3", SO | {"thinking": ON}, [*said("reasoning_content"), LAST], "reasoning_content"),
    "dashscope": Dialect("qwen-plus-latest", SO | {"enable_thinking": True},
                         [*said("reasoning_content", usage=None), LAST], "reasoning_content"),
    "cerebras": Dialect("gpt-oss-120b", HIGH, said("reasoning", usage=USAGE), "reasoning"),
    "perplexity": Dialect(
        "sonar", HIGH,
        [{**c, "usage": {**USAGE, "cost": {"total_cost": 0.01}}, "object": "chat.completion.done"} for c in said()],
    ),
    "openrouter": Dialect(
        "qwen/qwen3-max", SO | HIGH,
        [b": OPENROUTER PROCESSING\n\n", *said("reasoning"), {**LAST, "usage": {**USAGE, "cost": 0.02}}], "reasoning",
    ),
    "together_ai": Dialect("unheard-of", SO | HIGH | {"reasoning": {"enabled": True}},
                           [*said("reasoning"), LAST], "reasoning", cost=False),
    "fireworks_ai": Dialect(
        "accounts/fireworks/models/deepseek-v3p2", SO | HIGH, [*said("reasoning_content"), LAST], "reasoning_content"
    ),
    "nvidia_nim": Dialect("nvidia/nemotron-4", SO | {"chat_template_kwargs": {"enable_thinking": True}},
                          [*said("reasoning_content"), LAST], "reasoning_content", cost=False),
    "lm_studio": Dialect("m", SO, [*said("reasoning_content"), LAST], "reasoning_content", cost=False),
    "llamafile": Dialect("m", SO | {"chat_template_kwargs": {"enable_thinking": True}},
                         [*said("reasoning_content"), {**LAST, "timings": {}}], "reasoning_content", cost=False),
    "hosted_vllm": Dialect("m", SO | HIGH, [*said("reasoning"), {**LAST, "choices": None}], "reasoning", cost=False),
    "azure": Dialect("my-deployment", SO | HIGH,
                     [{"choices": [], "prompt_filter_results": []}, *said(), LAST], cost=False),
}  # fmt: skip


def strict(dialect: Dialect) -> Callable[[dict[str, Any]], str | None]:
    """A server's eye for what the provider would refuse."""

    def refuses(body: dict[str, Any]) -> str | None:
        wanted = (COMMON - dialect.lacks) | set(dialect.takes)
        if set(body) != wanted:
            return f"extra {sorted(set(body) - wanted)}, missing {sorted(wanted - set(body))}"
        wrong = [key for key, value in dialect.takes.items() if body[key] != value]
        return f"wrong {wrong}" if wrong else complaint(body)

    return refuses


@pytest.mark.parametrize("name", DIALECTS)
def test_each_direct_provider_is_spoken_to_in_its_dialect(home: Home, model: ModelServer, name: str) -> None:
    dialect, provider = DIALECTS[name], name.split()[0]
    home.configure(f'[providers.{provider}]\nbase_url = "{model.base_url}"\n[sessions]\ntitles = "off"\n')
    model.refuses = strict(dialect)
    model.script(*(event(step) if isinstance(step, dict) else step for step in dialect.stream), DONE)
    env = dict.fromkeys(PROVIDERS[provider].key_vars[:1], "a-key") | {"AZURE_API_VERSION": "v1"}
    given = ("-p", "max_tokens=50", "-p", "reasoning_effort=high")
    run = home.run("-m", f"{provider}/{dialect.model}", *given, "hi", env=env)
    notes = "" if provider != "lm_studio" else "gptsh: lm_studio/m takes no reasoning_effort: left out\n"
    assert run == ("An answer.\n", notes + ("hm\n" if dialect.reasoning else ""), 0)
    assert model.asked[0].path.endswith("/chat/completions")
    headers = model.asked[0].headers
    assert headers["api-key" if provider == "azure" else "authorization"].removeprefix("Bearer ") == "a-key"
    reply = home.doc()["messages"][1]
    assert kind_of_session(home.doc()) == kind_of_session(echo_session(home))
    assert reply.get("replay") == ({dialect.reasoning: "hm"} if dialect.reasoning else None)
    assert (reply["usage"]["prompt"], reply["usage"]["completion"], reply["usage"]["total"]) == (10, 20, 30)
    assert (reply["cost"] is not None) == dialect.cost
    assert home.doc()["usage"]["cost"] == (pytest.approx(reply["cost"]) if dialect.cost else None)


def echo_session(home: Home) -> dict[str, Any]:
    """What a session looks like, whoever answered."""
    other = home.elsewhere()
    other.run("-m", "echo", "hi")
    return other.doc()


def test_azure_goes_to_its_v1_path_where_its_version_says_so(home: Home, model: ModelServer) -> None:
    base = model.base_url.removesuffix("/v1")
    env = {"AZURE_API_BASE": base, "AZURE_API_VERSION": "preview", "AZURE_API_KEY": "a-key"}
    assert home.run("-m", "azure/my-deployment", "--title", "t", "hi", env=env).code == 0
    assert model.asked[0].path == "/openai/v1/chat/completions"
    assert "authorization" not in model.asked[0].headers
    run = home.run("-m", "azure/my-deployment", "hi", env={"AZURE_API_VERSION": "v1", "AZURE_API_KEY": "a-key"})
    assert (run.code, run.stderr.count("\n")) == (2, 1)
    assert "no base URL for azure: set AZURE_API_BASE or base_url under [providers.azure]" in run.stderr


@pytest.mark.parametrize(
    ("endpoint", "model", "effort", "sent"),
    [
        (PROVIDERS["mistral"], "m", "low", {"reasoning_effort": "high"}),
        (PROVIDERS["mistral"], "m", "none", {"reasoning_effort": "none"}),
        (PROVIDERS["deepseek"], "m", "max", {"thinking": ON, "reasoning_effort": "max"}),
        (PROVIDERS["deepseek"], "m", "none", {"thinking": {"type": "disabled"}}),
        (PROVIDERS["moonshot"], "kimi-k3", "max", {"reasoning_effort": "max"}),
        (PROVIDERS["moonshot"], "kimi-k2.6", "none", {"thinking": {"type": "disabled"}}),
        (PROVIDERS["zai"], "glm-5.3", "none", {"thinking": {"type": "disabled"}}),
        (PROVIDERS["dashscope"], "m", "none", {"enable_thinking": False}),
        (PROVIDERS["together_ai"], "m", "none", {"reasoning": {"enabled": False}}),
        (PROVIDERS["llamafile"], "m", "none", {"chat_template_kwargs": {"enable_thinking": False}}),
        (PROVIDERS["lm_studio"], "m", "none", {}),
        (PROVIDERS["xai"], "m", "low", {"reasoning_effort": "low"}),
    ],
)
def test_effort_as_each_provider_says_it(endpoint: Endpoint, model: str, effort: str, sent: dict[str, Any]) -> None:
    provider = next(name for name, known in PROVIDERS.items() if known is endpoint)
    fitted = fit({"reasoning_effort": effort}, provider, model, endpoint)
    assert fitted.sent == sent
    assert fitted.left_out == ([] if sent else ["reasoning_effort"])


@pytest.mark.parametrize(
    ("provider", "model", "params", "left_out"),
    [
        ("openai", "gpt-4.1", {"temperature": 0.5}, []),
        ("openai", "o3", {"temperature": 0.5, "top_p": 1, "seed": 1}, ["temperature", "top_p"]),
        ("openai", "gpt-5", {"temperature": 0.5}, ["temperature"]),
        ("openai", "gpt-5", {"temperature": 1}, []),
        ("openai", "gpt-6-astra", {"top_p": 0.5, "reasoning_effort": "none"}, ["top_p"]),  # it knows no such effort
        ("azure", "gpt-5", {"temperature": 0.5}, ["temperature"]),
        ("openai", "gpt-5.1", {"temperature": 0.5}, []),  # its effort is "none" unless asked for
        ("openai", "gpt-5.1", {"temperature": 0.5, "reasoning_effort": "low"}, ["temperature"]),
        ("openai", "gpt-5.5", {"temperature": 0.5}, ["temperature"]),
        ("openai", "gpt-5.5", {"temperature": 0.5, "reasoning_effort": "none"}, []),
        ("openai", "gpt-5-chat-latest", {"temperature": 0.5}, []),
        ("lab", "gpt-5", {"temperature": 0.5}, []),
        ("anthropic", "claude-opus-4-7", {"temperature": 0.5, "top_k": 3}, ["temperature", "top_k"]),
        ("anthropic", "claude-sonnet-4-5", {"temperature": 0.5}, []),
        (
            "anthropic",
            "claude-newfamily-7",
            {"temperature": 0.5, "top_k": 3},
            ["temperature", "top_k"],
        ),  # not in the table
        ("anthropic", "claude-newfamily-7", {"temperature": 1}, []),
        ("anthropic", "claude-opus-4-6-29991231", {"temperature": 0.5}, []),
        ("moonshot", "kimi-k3", {"temperature": 0.5, "top_p": 1}, ["temperature"]),
        ("moonshot", "kimi-k2.5", {"temperature": 1}, []),
        ("moonshot", "kimi-k2-0905-preview", {"temperature": 0.5}, []),
    ],
)
def test_sampling_parameters_that_a_model_refuses_are_left_out(
    provider: str, model: str, params: dict[str, Any], left_out: list[str]
) -> None:
    fitted = fit(params, provider, model, PROVIDERS.get(provider, Endpoint()))
    assert fitted.left_out == left_out
    assert not set(left_out) & set(fitted.sent)
    assert set(params) - set(left_out) == set(fitted.sent)


def test_what_is_left_out_is_said(home: Home, model: ModelServer) -> None:
    home.configure(f'[providers.openai]\nbase_url = "{model.base_url}"\n[sessions]\ntitles = "off"\n')
    run = home.run("-m", "o3", "-p", "temperature=0", "hi", env={"OPENAI_API_KEY": "a-key"})
    assert run == ("You said: hi\n", "gptsh: o3 takes no temperature: left out\n", 0)
    assert "temperature" not in model.sent[0]


def test_max_completion_tokens_reach_a_server_under_the_name_that_it_knows(lab: Home, model: ModelServer) -> None:
    lab.run("-p", "max_completion_tokens=7", "hi")
    assert model.sent[0]["max_tokens"] == 7
    assert "max_completion_tokens" not in model.sent[0]


@pytest.mark.parametrize(
    ("provider", "replay", "sent"),
    [
        ("deepseek", {"reasoning_content": "hm"}, {"reasoning_content": "hm"}),
        ("deepseek", {}, {"reasoning_content": " "}),
        ("moonshot", {"reasoning_content": "hm"}, {"reasoning_content": "hm"}),
        ("llamafile", {"reasoning": "hm", "thinking": "x"}, {"reasoning": "hm"}),
        ("mistral", {"thinking": "hm"}, {}),
        ("groq", {"reasoning": "hm"}, {}),
    ],
)
def test_reasoning_behind_a_tool_call_goes_back_to_those_who_want_it(
    home: Home, model: ModelServer, provider: str, replay: dict[str, str], sent: dict[str, str]
) -> None:
    home.configure(f'[providers.{provider}]\nbase_url = "{model.base_url}"\n[sessions]\ntitles = "off"\n')
    env = dict.fromkeys(PROVIDERS[provider].key_vars[:1], "a-key")
    call = {"id": "c1", "function": {"name": "ls", "arguments": "{}"}}
    pieces = [chunk({field: text}) for field, text in replay.items() if field != "thinking"]
    if "thinking" in replay:
        thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
        pieces = [chunk({"content": [thought]}), *pieces]
    model.script(*map(event, pieces), event(chunk({"tool_calls": [{"index": 0, **call}]}, "tool_calls")), DONE)
    home.run("-m", f"{provider}/m", "hi", env=env)
    model.refuses = lambda _body: None  # the test reads it
    assert home.run("-s", "0", "and?", env=env).code == 0
    answer = model.sent[1]["messages"][1]
    assert {key: value for key, value in answer.items() if key not in ("role", "content", "tool_calls")} == sent


def test_what_one_provider_added_to_a_call_goes_to_no_other(home: Home, model: ModelServer) -> None:
    home.configure(
        f'[providers.groq]\nbase_url = "{model.base_url}"\n[providers.deepseek]\nbase_url = "{model.base_url}"\n'
        '[sessions]\ntitles = "off"\n'
    )
    env = {"GROQ_API_KEY": "a-key", "DEEPSEEK_API_KEY": "a-key"}
    call = {"id": "c1", "function": {"name": "ls", "arguments": "{}"}, "extra_content": {"signature": "s"}}
    model.script(event(chunk({"reasoning": "hm"})), event(chunk({"tool_calls": [{"index": 0, **call}]}, "tool_calls")),
                 DONE)  # fmt: skip
    home.run("-m", "groq/m", "hi", env=env)
    model.refuses = lambda _body: None  # the test reads it
    for which in ("groq/m", "deepseek/m"):
        assert home.run("-s", f"{home.docs()[-1]['id']}@1", "-m", which, "and?", env=env).code == 0
    own, foreign = (body["messages"][1] for body in model.sent[1:])
    assert own["tool_calls"][0]["extra_content"] == {"signature": "s"}
    assert "content" not in own  # groq takes no null
    assert set(foreign["tool_calls"][0]) == {"id", "type", "function"}
    assert (foreign["reasoning_content"], foreign["content"]) == (" ", None)
    assert "reasoning" not in foreign


def test_headers_from_the_environment(home: Home, model: ModelServer) -> None:
    for provider, key in (("openai", "OPENAI_API_KEY"), ("openrouter", "OPENROUTER_API_KEY")):
        home.configure(f'[providers.{provider}]\nbase_url = "{model.base_url}"\n')
        more = {"OPENAI_ORGANIZATION": "org-1", "OR_SITE_URL": "https://me.test", "OR_APP_NAME": "mine"}
        home.run("-m", f"{provider}/m", "--title", "t", "hi", env={key: "a-key", **more})
    first, second = (asked.headers for asked in model.asked)
    assert (first["openai-organization"], "x-title" in first) == ("org-1", False)
    assert (second["http-referer"], second["x-title"]) == ("https://me.test", "mine")


def test_a_server_of_ones_own_has_no_price(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model))
    home.run("-m", "lab/gpt-4.1", "hi")
    assert home.doc()["messages"][1]["cost"] is None
    assert home.doc()["usage"]["cost"] is None
