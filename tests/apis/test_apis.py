"""Which API a provider is asked by: its own, or the one that ``api`` names for a self-hosted server."""

from typing import Any

import pytest

from tests.support.anthropic_server import AnthropicServer
from tests.support.home import Home
from tests.support.ollama_server import OllamaServer
from tests.support.server import ModelServer

UNTITLED = '[sessions]\ntitles = "off"\n'


def gateway(home: Home, base_url: str, api: str) -> None:
    """A home whose default model is on a self-hosted server that has this API."""
    home.configure(
        f'[agents.default]\nmodel = "gw/m"\n{UNTITLED}'
        f'[providers.gw]\nbase_url = "{base_url}"\napi = "{api}"\napi_key_env = "GW_KEY"\n'
    )
    home.env["GW_KEY"] = "k"


@pytest.mark.parametrize("base", ["", "/v1", "/v1/"])
def test_a_self_hosted_server_may_have_anthropics_api(
    home: Home, anthropic: AnthropicServer, base: str
) -> None:
    gateway(home, anthropic.base_url.removesuffix("/v1") + base, "anthropic")
    assert home.run("hi") == ("You said: hi\n", "", 0)
    asked = anthropic.requests[-1]
    assert asked.path == "/v1/messages"
    assert asked.headers["x-api-key"] == "k"
    assert "authorization" not in asked.headers


def test_a_self_hosted_server_may_have_ollamas_api(home: Home) -> None:
    ollama = OllamaServer()
    gateway(home, ollama.base_url, "ollama")
    assert home.run("-p", "reasoning_effort=high", "hi") == ("You said: hi\n", "", 0)
    assert ollama.chats[-1]["model"] == "m"
    assert ollama.chats[-1]["think"] == "high"
    ollama.close()


def test_an_unknown_api_is_an_error_that_lists_the_known_ones(
    home: Home, model: ModelServer
) -> None:
    gateway(home, model.base_url, "grpc")
    run = home.run("hi")
    assert run.code == 2
    assert "providers.gw.api: expected one of chat, " in run.stderr


def test_azure_with_an_api_is_asked_at_its_v1_path(home: Home, model: ModelServer) -> None:
    base = model.base_url.removesuffix("/v1")
    home.configure(f'[providers.azure]\nbase_url = "{base}"\napi = "chat"\n{UNTITLED}')
    env: dict[str, Any] = {"AZURE_API_KEY": "a-key"}
    assert home.run("-m", "azure/mine", "hi", env=env).code == 0
    assert model.requests[0].path == "/openai/v1/chat/completions"
    assert model.requests[0].headers["api-key"] == "a-key"
