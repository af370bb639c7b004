"""Against LLMock, which breaks answers on demand and judges the client: ``make servers``."""

import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import Home
from tests.support.servers import free_port, running

pytestmark = [pytest.mark.servers, pytest.mark.timeout(180)]

APIS = {"chat": "/v1", "responses": "/v1", "anthropic": "/anthropic", "gemini": "/gemini/v1beta"}
# A client that saves a partial answer and exits with 1, as gptsh does, looks to LLMock as if it had accepted it.
SAVED_AS_PARTIAL = {"truncated_stream_accepted", "malformed_chunk_ignored", "gave_up"}


@pytest.fixture(scope="module")
def llmock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running LLMock, which answers "Hello.", or whatever is scripted."""
    port = free_port()
    command = [
        Path(sys.executable).parent / "llmock",
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with running(
        command, f"http://127.0.0.1:{port}/_llmock/scenario", tmp_path_factory.mktemp("llmock")
    ):
        yield f"http://127.0.0.1:{port}"


def control(llmock: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """What one of LLMock's own addresses answers; with a body by POST."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(
        urllib.request.Request(f"{llmock}/_llmock/{path}", data)
    ) as response:
        return json.load(response)


def script(llmock: str, *behaviors: dict[str, Any]) -> None:
    """Forget what came before, and say how the next requests are answered."""
    control(llmock, "reset", {})
    control(llmock, "scenario", {"behaviors": behaviors})


def findings(llmock: str) -> list[str]:
    """What LLMock holds against the client."""
    found = [finding["code"] for finding in control(llmock, "verdict")["findings"]]
    return [code for code in found if code not in SAVED_AS_PARTIAL]


@pytest.fixture(params=APIS)
def home(request: pytest.FixtureRequest, home: Home, llmock: str) -> Home:
    """A home whose default model is LLMock's, by one of four APIs."""
    home.configure(
        '[agents.default]\nmodel = "mock/m"\n[sessions]\ntitles = "off"\n[network]\nidle_timeout = 1\n'
        f'[providers.mock]\nbase_url = "{llmock}{APIS[request.param]}"\napi = "{request.param}"\n'
    )
    home.env["MOCK_API_KEY"] = "sk-mock"
    return home


SAID = {
    "type": "reply",
    "text": "There are enough words to be broken off in the middle. " * 5 + "The end.",
}


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failure_that_may_pass_is_retried(home: Home, llmock: str, status: int) -> None:
    script(llmock, {"type": "fail", "status": status, "retry_after": 0.2, "times": 2}, SAID)
    run = home.run("hi")
    assert run.stdout == f"{SAID['text']}\n"
    assert run.code == 0
    assert len(control(llmock, "requests")["requests"]) == 3
    assert findings(llmock) == []


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_failure_that_does_not_pass_is_not_retried(home: Home, llmock: str, status: int) -> None:
    script(llmock, {"type": "fail", "status": status, "times": None})
    run = home.run("hi")
    assert run.stdout == ""
    assert run.code == 1
    assert f"({status})" in run.stderr
    assert findings(llmock) == []


@pytest.mark.parametrize("kind", ["disconnect", "truncate", "malformed"])
def test_a_stream_that_breaks_off_is_a_partial_answer(home: Home, llmock: str, kind: str) -> None:
    script(llmock, SAID, {"type": "stream_fault", "kind": kind, "after_chunks": 9})
    run = home.run("hi")
    assert run.code in (1, 5)
    assert SAID["text"].startswith(run.stdout.strip())
    assert "is saved" in run.stderr
    assert findings(llmock) == []


def test_a_stream_that_stalls_ends_at_the_idle_timeout(home: Home, llmock: str) -> None:
    script(
        llmock,
        SAID,
        {"type": "stream_fault", "kind": "stall", "after_chunks": 9, "stall_seconds": 20},
    )
    run = home.run("hi")
    assert run.code == 124
    assert SAID["text"].startswith(run.stdout.strip())
    assert "timed out waiting for" in run.stderr
    assert findings(llmock) == []
