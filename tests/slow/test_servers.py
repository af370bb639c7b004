"""Against real servers from packages: ``make servers``. Each listens on loopback and is ended with its test."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.home import Home, session_shape
from tests.support.servers import free_port, running

pytestmark = [pytest.mark.servers, pytest.mark.timeout(180)]

PROXY = """
model_list:
  - model_name: mocked
    litellm_params:
      model: openai/gpt-4.1
      api_key: unused
      mock_response: "A mocked answer, word by word."
general_settings:
  master_key: sk-of-the-proxy
"""


@pytest.fixture
def proxy(home: Home) -> Iterator[str]:
    """The base URL of litellm's own proxy, whose only model answers a fixed text."""
    config = home.folder / "proxy.yaml"
    port = free_port()
    config.write_text(PROXY)
    command = [
        Path(sys.executable).parent / "litellm",
        "--config",
        config,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    env = {"PATH": os.environ["PATH"], "HOME": str(home.folder), "LITELLM_LOCAL_MODEL_COST_MAP": "True",
           "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True", "LITELLM_MODE": "PRODUCTION", "NO_DOCS": "True"}  # fmt: skip
    with running(command, f"http://127.0.0.1:{port}/health/liveliness", home.cwd, env):
        yield f"http://127.0.0.1:{port}/v1"


def test_litellms_own_proxy_leaves_the_same_kind_of_session(home: Home, proxy: str) -> None:
    home.configure(
        f'[providers.proxy]\nbase_url = "{proxy}"\napi_key_env = "PROXY_KEY"\n[sessions]\ntitles = "off"\n'
    )
    run = home.run("-m", "proxy/mocked", "hi", env={"PROXY_KEY": "sk-of-the-proxy"})
    assert run == ("A mocked answer, word by word.\n", "", 0)
    reply = home.doc()["messages"][1]
    assert reply["finish_reason"] == "stop"
    assert reply["provider"] == "proxy"
    assert reply["usage"]["completion"]
    other = home.elsewhere()
    other.run("-m", "echo", "hi")
    assert session_shape(home.doc()) == session_shape(other.doc())
    assert (
        home.run("-s", "0", "--no-stream", "more", env={"PROXY_KEY": "sk-of-the-proxy"}).stdout
        == run.stdout
    )
    wrong = home.run("-s", "0", "more", env={"PROXY_KEY": "sk-wrong"})
    assert wrong.stdout == ""
    assert wrong.code == 1
    assert "sk-wrong" not in wrong.stderr
    listed = home.run("--list-models", env={"PROXY_KEY": "sk-of-the-proxy"})
    assert "proxy/mocked" in listed.stdout
