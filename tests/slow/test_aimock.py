"""Against aimock, a server that gives the same answers by five APIs: ``make servers``, where npm is installed."""

import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import Home
from tests.support.paths import ROOT
from tests.support.servers import free_port, listening, running

AIMOCK = ROOT / ".npm-servers" / "node_modules" / ".bin" / "llmock"
EVERYTHING = AIMOCK.with_name("mcp-server-everything")
pytestmark = [
    pytest.mark.servers,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        not AIMOCK.exists(), reason="aimock is not installed: make servers does it where npm is"
    ),
]

APIS = {
    "chat": "/v1",
    "responses": "/v1",
    "anthropic": "",
    "gemini": "/v1beta",
    "ollama": "",
}
TEXT = "Hello, wörld! 😀 — “quoted”\r\n\r\nLine\ttwo.\n\n```python\nprint('x')\n```\n  spaces at the end"
USAGE = {"prompt_tokens": 111, "completion_tokens": 22, "total_tokens": 133}
ANSWERS: dict[str, dict[str, Any]] = {
    "say-text": {"response": {"content": TEXT}},
    "say-much": {"response": {"content": "\n".join(f"line {number}" for number in range(20_000))}},
    "say-usage": {"response": {"content": "counted", "usage": USAGE}},
    "be-cut": {"response": {"content": "cut off he", "finishReason": "length"}},
    "be-filtered": {"response": {"content": "fil", "finishReason": "content_filter"}},
    "think": {"response": {"content": "The answer.", "reasoning": "I think\nhard about it."}},
    "say-nothing": {"response": {"content": ""}},
    "break-off": {
        "response": {"content": "This is cut in the middle. " * 20},
        "truncateAfterChunks": 8,
        "latency": 50,
    },
    "too-many": {
        "response": {"error": {"message": "Slow down", "type": "rate_limit_error"}, "status": 429}
    },
    "fail": {
        "response": {"error": {"message": "Internal boom", "type": "server_error"}, "status": 500}
    },
    "wrong-key": {
        "response": {
            "error": {
                "message": "Incorrect API key",
                "type": "invalid_request_error",
                "code": "invalid_api_key",
            },
            "status": 401,
        }
    },
    "no-model": {
        "response": {
            "error": {
                "message": "The model `m` does not exist",
                "type": "invalid_request_error",
                "code": "model_not_found",
            },
            "status": 404,
        }
    },
    "too-long": {
        "response": {
            "error": {
                "message": "This model's maximum context length is 8192 tokens. "
                "However, your messages resulted in 9001 tokens.",
                "type": "invalid_request_error",
                "code": "context_length_exceeded",
            },
            "status": 400,
        }
    },
    "call-tools": {
        "response": {
            "content": "Let me look.",
            "toolCalls": [
                {
                    "id": "call_1",
                    "name": "everything__echo",
                    "arguments": '{"message": "héllo 😀"}',
                },
                {"id": "call_2", "name": "everything__get-sum", "arguments": '{"a": 2, "b": 3}'},
            ],
        }
    },
}


def fixtures() -> list[dict[str, Any]]:
    """What aimock answers: to a tool result, to each question of ANSWERS, and to all else."""
    found: list[dict[str, Any]] = [
        {"match": {"userMessage": question, "hasToolResult": False}, **answer}
        for question, answer in ANSWERS.items()
    ]
    found.append(
        {"match": {"hasToolResult": True}, "response": {"content": "The tools have answered."}}
    )
    found.append({"match": {"userMessage": ""}, "response": {"content": "Something else."}})
    return found


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running aimock."""
    folder = tmp_path_factory.mktemp("aimock")
    (folder / "fixtures.json").write_text(json.dumps({"fixtures": fixtures()}))
    port = free_port()
    command = [
        AIMOCK,
        "-p",
        str(port),
        "-f",
        "fixtures.json",
        "--chunk-size",
        "7",
        "--log-level",
        "silent",
    ]
    with running(command, f"http://127.0.0.1:{port}/health", folder):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> str:
    """One of the five APIs."""
    return str(request.param)


@pytest.fixture
def home(home: Home, aimock: str) -> Home:
    """A home with a provider for each API of aimock, named after it."""
    lines = ['[sessions]\ntitles = "off"\n[network]\nretries = 0\n']
    for name, path in APIS.items():
        lines.append(f'[providers.mock-{name}]\nbase_url = "{aimock}{path}"\napi = "{name}"\n')
    home.configure("".join(lines))
    return home


@pytest.mark.parametrize("how", [[], ["--no-stream"]], ids=["streamed", "at once"])
def test_an_answer_is_whole(home: Home, api: str, how: list[str]) -> None:
    run = home.run("-m", f"mock-{api}/m", *how, "say-text")
    assert run == (TEXT + "\n", "", 0)
    assert home.doc()["messages"][1]["content"] == TEXT
    assert home.doc()["messages"][1]["finish_reason"] == (
        "end_turn" if api == "anthropic" else "stop"
    )


def test_a_long_answer_is_whole(home: Home, api: str) -> None:
    run = home.run("-m", f"mock-{api}/m", "say-much")
    assert run.stdout.splitlines() == [f"line {number}" for number in range(20_000)]
    assert run.code == 0


def test_a_second_turn_is_answered(home: Home, api: str) -> None:
    home.run("-m", f"mock-{api}/m", "say-text")
    assert home.run("-s", "0", "say-usage") == ("counted\n", "", 0)
    assert home.doc()["stats"]["turns"] == 2


@pytest.mark.parametrize("how", [[], ["--no-stream"]], ids=["streamed", "at once"])
def test_tokens_are_counted(home: Home, api: str, how: list[str]) -> None:
    if api == "ollama":
        pytest.skip("aimock counts no tokens by Ollama's API")
    home.run("-m", f"mock-{api}/m", *how, "say-usage")
    usage = home.doc()["messages"][1]["usage"]
    assert usage["prompt"] == 111
    assert usage["completion"] == 22


@pytest.mark.parametrize("how", [[], ["--no-stream"]], ids=["streamed", "at once"])
@pytest.mark.parametrize("question", ["be-cut", "be-filtered"])
def test_an_answer_that_the_server_cut_is_incomplete(
    home: Home, api: str, question: str, how: list[str]
) -> None:
    if api == "ollama":
        pytest.skip("aimock says by Ollama's API that each answer is complete")
    run = home.run("-m", f"mock-{api}/m", *how, question)
    assert run.stdout == f"{ANSWERS[question]['response']['content']}\n"
    assert run.code != 0
    assert run.stderr.count("\n") == 2


def test_reasoning_is_kept_beside_the_answer(home: Home, api: str) -> None:
    if api == "ollama":
        pytest.skip("aimock sends reasoning by Ollama's API under a name that Ollama does not use")
    assert home.run("-m", f"mock-{api}/m", "think") == ("The answer.\n", "", 0)
    assert json.dumps("I think\nhard about it.") in home.files()[0].read_text()


def test_what_came_before_the_connection_broke_is_saved(home: Home, api: str) -> None:
    run = home.run("-m", f"mock-{api}/m", "break-off")
    said = ANSWERS["break-off"]["response"]["content"]
    assert run.code == 1
    assert run.stdout.strip()
    assert said.startswith(run.stdout.strip())
    assert said.startswith(home.doc()["messages"][1]["content"])
    assert home.doc()["messages"][1]["finish_reason"] == "error"


def test_an_empty_answer_is_a_failure(home: Home, api: str) -> None:
    run = home.run("-m", f"mock-{api}/m", "say-nothing")
    assert run.stdout == ""
    assert run.code == 1
    assert "the model returned an empty answer" in run.stderr


ERRORS = [
    ("too-many", 1, "(429): Slow down"),
    ("fail", 1, "(500): Internal boom"),
    ("wrong-key", 1, "(401): Incorrect API key"),
    ("no-model", 1, "does not know 'm' (404): The model `m` does not exist"),
    ("too-long", 6, "maximum context length is 8192 tokens"),
]


@pytest.mark.parametrize(("question", "code", "reason"), ERRORS, ids=[row[0] for row in ERRORS])
def test_an_error_is_named_and_the_question_saved(
    home: Home, api: str, question: str, code: int, reason: str
) -> None:
    run = home.run("-m", f"mock-{api}/m", question)
    assert run.stdout == ""
    assert run.code == code
    assert reason in run.stderr
    assert ".:" not in run.stderr
    assert [message["content"] for message in home.doc()["messages"]] == [question]


def test_an_unknown_model_is_asked_for_once(home: Home, aimock: str, api: str) -> None:
    with urllib.request.urlopen(f"{aimock}/__aimock/journal") as response:
        before = int(response.headers["X-Total-Count"])
    home.run("-m", f"mock-{api}/m", "no-model")
    with urllib.request.urlopen(f"{aimock}/__aimock/journal") as response:
        assert int(response.headers["X-Total-Count"]) == before + 1


@pytest.fixture(params=["stdio", "http"])
def everything(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The table of server-everything in config.toml, which is started by gptsh or has a URL."""
    if request.param == "stdio":
        yield f'command = "{EVERYTHING}"'
        return
    port = free_port()
    env = {"PORT": str(port), "PATH": os.environ["PATH"]}
    with listening([EVERYTHING, "streamableHttp"], port, tmp_path, env):
        yield f'url = "http://127.0.0.1:{port}/mcp"'


def test_tools_of_a_real_server_are_called_and_their_results_sent(
    home: Home, api: str, everything: str
) -> None:
    home.configure(
        home.config.read_text() + f'[mcp.servers.everything]\n{everything}\nauto_approve = ["*"]\n'
    )
    run = home.run("-m", f"mock-{api}/m", "--tools", "everything", "call-tools")
    assert run.stdout == "Let me look.\n\nThe tools have answered.\n"
    assert run.code == 0
    results = [
        message["content"] for message in home.doc()["messages"] if message["role"] == "tool"
    ]
    assert results == ["Echo: héllo 😀", "The sum of 2 and 3 is 5."]


PROXY = """
model_list:
  - model_name: gpt-4.1
    litellm_params: {{model: openai/gpt-4.1, api_key: sk-unused, api_base: "{url}/v1"}}
  - model_name: claude
    litellm_params: {{model: anthropic/claude-sonnet-4-5, api_key: sk-unused, api_base: "{url}"}}
general_settings: {{master_key: sk-of-the-proxy}}
litellm_settings: {{num_retries: 0}}
"""


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, aimock: str) -> Iterator[str]:
    """The URL of litellm's proxy, which asks aimock."""
    folder = tmp_path_factory.mktemp("proxy")
    (folder / "proxy.yaml").write_text(PROXY.format(url=aimock))
    port = free_port()
    litellm = Path(sys.executable).parent / "litellm"
    command = [litellm, "--config", "proxy.yaml", "--host", "127.0.0.1", "--port", str(port)]
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
        "LITELLM_MODE": "PRODUCTION",
        "NO_DOCS": "True",
    }
    with running(command, f"http://127.0.0.1:{port}/health/liveliness", folder, env):
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("model", ["gpt-4.1", "claude"])
@pytest.mark.parametrize("behind", ["chat", "responses", "anthropic", "gemini"])
@pytest.mark.parametrize("how", [[], ["--no-stream"]], ids=["streamed", "at once"])
def test_an_answer_through_a_proxy_is_whole_and_has_its_cost(
    home: Home, proxy: str, behind: str, model: str, how: list[str]
) -> None:
    home.configure(
        f'[sessions]\ntitles = "off"\n[providers.proxy]\nbase_url = "{proxy}{APIS[behind]}"\napi = "{behind}"\n'
        'api_key_env = "PROXY_KEY"\n'
    )
    home.env["PROXY_KEY"] = "sk-of-the-proxy"
    run = home.run("-m", f"proxy/{model}", *how, "say-text")
    assert run == (TEXT + "\n", "", 0)
    assert home.run("-s", "0", *how, "say-usage").stdout == "counted\n"
    reply = home.doc()["messages"][-1]
    assert reply["usage"]["completion"] == 22
    # The proxy tells no cost of Google's API, nor of a stream of Claude's.
    if behind in ("chat", "responses") or (behind == "anthropic" and how):
        assert reply["cost"] > 0
