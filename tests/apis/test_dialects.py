"""Each direct provider on a loopback server that refuses what that provider refuses, and answers as it does."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.support.home import Home, session_shape
from tests.support.responses_server import message, stream
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
    return [
        *thought,
        chunk({"content": "An "}),
        chunk({"content": "answer."}),
        chunk({}, "stop", **last),
    ]


KEYS = {"together_ai": "TOGETHERAI_API_KEY", "perplexity": "PERPLEXITYAI_API_KEY"}
SO = {"stream_options": {"include_usage": True}}
HIGH = {"reasoning_effort": "high"}
ON = {"type": "enabled"}
TOKENS = {"prompt_tokens": 10, "completion_tokens": 15, "total_tokens": 30,
          "completion_tokens_details": {"reasoning_tokens": 5}}  # fmt: skip

DIALECTS: dict[str, Dialect] = {
    "openai": Dialect("gpt-4.1", SO | HIGH, [*said(usage=None), LAST]),
    "openai reasoning": Dialect("gpt-5.4", SO | HIGH | {"max_completion_tokens": 50}, [*said(), LAST],
                                lacks=frozenset({"max_tokens"})),
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
        "qwen/qwen3-max", SO | {"reasoning": {"effort": "high"}},
        [b": OPENROUTER PROCESSING\n\n", *said("reasoning"), {**LAST, "usage": {**USAGE, "cost": 0.02}}], "reasoning",
    ),
    "together_ai": Dialect("unheard-of", SO | HIGH | {"reasoning": {"enabled": True}},
                           [*said("reasoning"), LAST], "reasoning", cost=False),
    "lm_studio": Dialect("m", SO, [*said("reasoning_content"), LAST], "reasoning_content", cost=False),
    "llamafile": Dialect("m", SO | {"chat_template_kwargs": {"enable_thinking": True}},
                         [*said("reasoning_content"), {**LAST, "timings": {}}], "reasoning_content", cost=False),
    "hosted_vllm": Dialect("m", SO | HIGH, [*said("reasoning"), {**LAST, "choices": None}], "reasoning", cost=False),
    "azure": Dialect("gpt-4.1-mine", SO | HIGH,
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
def test_each_direct_provider_is_spoken_to_in_its_dialect(
    home: Home, model: ModelServer, name: str
) -> None:
    dialect = DIALECTS[name]
    provider = name.split()[0]
    home.configure(
        f'[providers.{provider}]\nbase_url = "{model.base_url}"\n[sessions]\ntitles = "off"\n'
    )
    model.refuses = strict(dialect)
    model.script(
        *(event(step) if isinstance(step, dict) else step for step in dialect.stream), DONE
    )
    name_of_key = KEYS.get(provider, f"{provider.upper()}_API_KEY")
    env = {name_of_key: "a-key", "AZURE_API_VERSION": "v1"}
    given = ("-p", "max_tokens=50", "-p", "reasoning_effort=high")
    run = home.run("-m", f"{provider}/{dialect.model}", "--reasoning", *given, "hi", env=env)
    notes = (
        ""
        if provider != "lm_studio"
        else "gptsh: lm_studio/m does not support reasoning_effort; ignored\n"
    )
    assert run == ("An answer.\n", notes + ("hm\n" if dialect.reasoning else ""), 0)
    assert model.requests[0].path.endswith("/chat/completions")
    headers = model.requests[0].headers
    assert (
        headers["api-key" if provider == "azure" else "authorization"].removeprefix("Bearer ")
        == "a-key"
    )
    reply = home.doc()["messages"][1]
    other = home.elsewhere()
    other.run("-m", "echo", "hi")
    assert session_shape(home.doc()) == session_shape(other.doc())
    assert reply.get("replay") == ({dialect.reasoning: "hm"} if dialect.reasoning else None)
    assert reply["usage"]["prompt"] == 10
    assert reply["usage"]["completion"] == 20
    assert reply["usage"]["total"] == 30
    assert (reply["cost"] is not None) == dialect.cost
    assert home.doc()["usage"]["cost"] == (pytest.approx(reply["cost"]) if dialect.cost else None)


def test_azure_goes_to_its_v1_path_where_its_version_says_so(
    home: Home, model: ModelServer
) -> None:
    base = model.base_url.removesuffix("/v1")
    ways = (
        {"AZURE_API_VERSION": "preview", "AZURE_API_BASE": base},
        {"AZURE_API_BASE": f"{base}/openai/v1"},
    )
    for env in ways:
        model.script(*stream(message("Yes.")))
        run = home.run(
            "-m", "azure/my-deployment", "--title", "t", "hi", env=env | {"AZURE_API_KEY": "a-key"}
        )
        assert run.stdout == "Yes.\n"
        assert run.code == 0
        assert model.requests[-1].path == "/openai/v1/responses"
        assert "authorization" not in model.requests[-1].headers
    run = home.run(
        "-m", "azure/my-deployment", "hi", env={"AZURE_API_VERSION": "v1", "AZURE_API_KEY": "a-key"}
    )
    assert run.code == 2
    assert run.stderr.count("\n") == 1
    assert (
        "no base URL for azure: set AZURE_API_BASE or base_url under [providers.azure]"
        in run.stderr
    )


def test_headers_from_the_environment(home: Home, model: ModelServer) -> None:
    for provider, key in (("openai", "OPENAI_API_KEY"), ("openrouter", "OPENROUTER_API_KEY")):
        home.configure(f'[providers.{provider}]\nbase_url = "{model.base_url}"\n')
        more = {
            "OPENAI_ORGANIZATION": "org-1",
            "OR_SITE_URL": "https://me.test",
            "OR_APP_NAME": "mine",
        }
        home.run("-m", f"{provider}/m", "--title", "t", "hi", env={key: "a-key", **more})
    first, second = (asked.headers for asked in model.requests)
    assert first["openai-organization"] == "org-1"
    assert "x-title" not in first
    assert second["http-referer"] == "https://me.test"
    assert second["x-title"] == "mine"
