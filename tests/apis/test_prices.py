"""What an answer costs by what the provider reports of it: its service tier, its cache, its size, its searches."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.answers import json_output
from tests.support.anthropic_server import AnthropicServer, said
from tests.support.anthropic_server import stream as claude_stream
from tests.support.gemini_server import GeminiServer, document
from tests.support.gemini_server import event as google_event
from tests.support.home import Home
from tests.support.responses_server import ResponsesServer, message, search, stream
from tests.support.server import ModelServer, answer, chunk, event
from tests.support.vendors import at_vendor

Priced = Callable[..., tuple[float, dict[str, Any]]]


@pytest.fixture
def priced(home: Home) -> Any:
    """A function that asks a model whose server is scripted: the cost in USD, and the usage of ``-o json``."""
    servers: list[ModelServer] = []

    def ask(
        kind: type[ModelServer], name: str, *pieces: Any, more: str = ""
    ) -> tuple[float, dict[str, Any]]:
        servers.append(kind())
        base_url = (
            servers[-1].google_url
            if isinstance(servers[-1], GeminiServer)
            else servers[-1].base_url
        )
        at_vendor(
            home, name, base_url.removesuffix("/v1") if kind is AnthropicServer else base_url, more
        )
        servers[-1].script(*pieces)
        run = home.run("-o", "json", "hi")
        assert run.code == 0
        found = json_output(run)
        assert home.doc()["messages"][1]["usage"] == found["usage"]
        return found["cost"], found["usage"]

    yield ask
    for server in servers:
        server.close()


def openais(prompt: int, completion: int, **details: int) -> dict[str, Any]:
    """Usage of the Responses API."""
    return {"input_tokens": prompt, "input_tokens_details": details, "output_tokens": completion,
            "output_tokens_details": {}, "total_tokens": prompt + completion}  # fmt: skip


SOL = "openai/gpt-6.1-sol"  # 2 and 10 USD per million tokens
TIERS = {
    None: 1,
    "default": 1,
    "scale": 1,
    "flex": 0.5,
    "batch": 0.5,
    "priority": 2,
    "fast": 2,
    "ultrafast": 6,
}


@pytest.mark.parametrize("tier", TIERS)
def test_the_tier_that_the_answer_names_is_the_one_that_is_paid(
    priced: Priced, tier: str | None
) -> None:
    usage = openais(1000, 100)
    pieces = stream(message("Hi."), usage=usage, service_tier=tier)
    cost, found = priced(ResponsesServer, SOL, *pieces, more='api = "responses"\n')
    assert cost == pytest.approx(TIERS[tier] * 0.003)
    assert found.get("service_tier") == tier


def test_in_chat_completions_it_is_beside_the_choices(priced: Priced) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    pieces = [
        event({**chunk({"content": "Hi."}), "service_tier": "flex"}),
        *answer("", usage=usage),
    ]
    cost, found = priced(ModelServer, SOL, *pieces)
    assert cost == pytest.approx(0.0015)
    assert found["service_tier"] == "flex"


@pytest.mark.parametrize(
    ("name", "usd"),
    [(SOL, 400 * 2 + 200 * 0.1 + 400 * 2.5), ("openai/gpt-5.5", 400 * 5 + 200 * 0.5 + 400 * 5)],
)
def test_writing_the_cache_costs_a_quarter_more_from_gpt_5_6_on(
    priced: Priced, name: str, usd: float
) -> None:
    usage = openais(1000, 0, cached_tokens=200, cache_write_tokens=400)
    cost, _ = priced(
        ResponsesServer, name, *stream(message("Hi."), usage=usage), more='api = "responses"\n'
    )
    assert cost == pytest.approx(usd / 1e6)


def test_a_long_prompt_costs_more_in_each_tier(priced: Priced) -> None:
    usage = openais(300_000, 1000, cached_tokens=100_000)
    pieces = stream(message("Hi."), usage=usage, service_tier="flex")
    cost, _ = priced(ResponsesServer, SOL, *pieces, more='api = "responses"\n')
    assert cost == pytest.approx((200_000 * 2 + 100_000 * 0.1 + 1000 * 7.5) / 1e6)


def test_a_search_by_the_provider_has_a_price_and_opening_a_page_has_none(priced: Priced) -> None:
    opened = {**search("3"), "action": {"type": "open_page", "url": "https://a.test/"}}
    pieces = stream(search(), search("2"), opened, message("Hi."), usage=openais(1000, 100))
    cost, usage = priced(ResponsesServer, SOL, *pieces, more='api = "responses"\n')
    assert cost == pytest.approx(0.003 + 2 * 0.01)
    assert usage["searches"] == 2


CLAUDES = {"input_tokens": 1000, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
HAIKU = "anthropic/claude-haiku-5-5"
OPUS = "anthropic/claude-opus-5-5"
WRITTEN = {
    "cache_creation_input_tokens": 1000,
    "cache_creation": {"ephemeral_5m_input_tokens": 400, "ephemeral_1h_input_tokens": 600},
}


@pytest.mark.parametrize(
    ("name", "more", "usd"),
    [
        (OPUS, {}, 1000 * 4 + 15 * 20), (OPUS, {"service_tier": "priority"}, 1000 * 4 + 15 * 20),
        (OPUS, {"speed": "fast"}, 2 * (1000 * 4 + 15 * 20)),
        (OPUS, {"inference_geo": "us"}, 1.1 * (1000 * 4 + 15 * 20)),
        (OPUS, WRITTEN, 1000 * 4 + 400 * 5 + 600 * 8 + 15 * 20),
        (OPUS, {"server_tool_use": {"web_search_requests": 3}}, 1000 * 4 + 15 * 20 + 30_000),
        (HAIKU, {"input_tokens": 100_001}, 100_001 * 0.5 + 15 * 2.5),
        (HAIKU, {"input_tokens": 99_001, **WRITTEN}, 99_001 * 0.5 + 400 * 0.625 + 600 * 1 + 15 * 2.5),
    ],
)  # fmt: skip
def test_claude_costs_by_its_speed_place_cache_size_and_searches(
    priced: Priced, name: str, more: dict[str, Any], usd: float
) -> None:
    pieces = claude_stream(said(0, "Hi."), usage={**CLAUDES, **more})
    cost, usage = priced(AnthropicServer, name, *pieces)
    assert cost == pytest.approx(usd / 1e6)
    assert usage.get("service_tier") == more.get("service_tier")


@pytest.mark.parametrize(
    ("name", "tier", "usd"),
    [
        ("gemini/gemini-3.8-flash", "standard", 0.75 * 1000 + 3.75 * 100 + 2 * 14_000),
        ("gemini/gemini-3.8-flash", "FLEX", (0.75 * 1000 + 3.75 * 100) / 2 + 2 * 14_000),
        (
            "gemini/gemini-2.5-flash",
            "standard",
            0.3 * 1000 + 2.5 * 100 + 35_000,
        ),  # older ones: once an answer
    ],
)
def test_google_reports_tier_and_searches_in_its_own_way(
    priced: Priced, name: str, tier: str, usd: float
) -> None:
    usage = {"promptTokenCount": 1000, "candidatesTokenCount": 60, "thoughtsTokenCount": 40, "totalTokenCount": 1100,
             "serviceTier": tier}  # fmt: skip
    found = document({"text": "Hi."}, finish="STOP", usage=usage)
    found["candidates"][0]["groundingMetadata"] = {"webSearchQueries": ["a", "b", "a"]}
    cost, reported = priced(GeminiServer, name, google_event(found))
    assert cost == pytest.approx(usd / 1e6)
    assert reported["service_tier"] == tier
    assert reported["searches"] == 2


def test_odd_reports_are_left_out(priced: Priced) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 0, "total_tokens": 1000,
             "server_tool_use": {"web_search_requests": "many"}}  # fmt: skip
    cost, found = priced(ModelServer, SOL, event({**chunk({"content": "Hi."}), "service_tier": [1]}),
                         *answer("", usage=usage))  # fmt: skip
    assert cost == pytest.approx(0.002)
    assert found.keys() & {"service_tier", "searches"} == set()


def test_your_own_prices_are_all_that_counts(priced: Priced) -> None:
    pieces = stream(search(), message("Hi."), usage=openais(1000, 100), service_tier="priority")
    own = 'api = "responses"\n[providers.openai.prices]\ninput = 1\noutput = 1\n'
    assert priced(ResponsesServer, SOL, *pieces, more=own)[0] == pytest.approx(0.0011)


def test_a_dry_run_estimates_the_tier_that_is_asked_for(home: Home) -> None:
    home.configure('[agents.default]\nmodel = "openai/gpt-6.1-sol"\n')
    home.env["OPENAI_API_KEY"] = "k"
    for options, price in (([], "0.01"), (["-p", "service_tier=priority"], "0.02")):
        assert f" {price} USD per 1,000 tokens out" in home.run("--dry-run", *options, "hi").stdout
