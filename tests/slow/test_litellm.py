"""Through the real litellm to a loopback server of another shape: Claude's on Azure."""

import json
import signal
import subprocess
import threading
from typing import Any

import pytest

from tests.support.anthropic_server import block, named, said, stream, thought
from tests.support.home import (
    COMMAND,
    Home,
    read_until,
    session_shape,
    texts,
    wait_for_exit,
    wait_until,
)
from tests.support.server import Cut, ModelServer

KEYS = {f"{name}_API_KEY": f"{name.lower()}-very-secret" for name in ("AZURE_AI", "OPENAI")}
CLAUDE = "azure_ai/claude-sonnet-4-5"


@pytest.fixture
def far(home: Home, model: ModelServer) -> Home:
    """A home whose Azure and OpenAI are the loopback server."""
    bare = model.base_url.removesuffix("/v1")
    home.configure(
        f'[providers.azure_ai]\n[providers.openai]\nbase_url = "{model.base_url}"\n'
        '[sessions]\ntitles = "off"\n[network]\nretries = 1\n'
    )
    home.env |= KEYS | {
        "AZURE_AI_API_BASE": bare
    }  # litellm reads it: under a base_url it would be an OpenAI's server
    home.litellm = True
    return home


@pytest.mark.slow
def test_a_prompt_through_litellm_leaves_the_same_kind_of_session(
    far: Home, model: ModelServer
) -> None:
    model.script(*stream(said(0, "Hello ", "there.")), headers={"request-id": "req_1"})
    run = far.process("-m", CLAUDE, "--system", "Brief.", "-p", "max_tokens=99", "hi")
    assert run == ("Hello there.\n", "", 0)  # nothing of litellm's on either stream
    asked = model.requests[0]
    assert asked.path == "/anthropic/v1/messages"
    assert asked.headers["api-key"] == KEYS["AZURE_AI_API_KEY"]
    assert asked.body["max_tokens"] == 99
    assert asked.body["stream"] is True
    assert "Brief." in json.dumps(asked.body["system"])
    reply = far.doc()["messages"][1]
    assert reply["usage"] | {"raw": None} == {
        "prompt": 18, "completion": 15, "total": 33, "reasoning_tokens": None, "cached_tokens": 5,
        "cache_write_tokens": 3, "raw": None,
    }  # fmt: skip
    assert reply["cost"] == pytest.approx(10 * 3e-6 + 5 * 3e-7 + 3 * 3.75e-6 + 15 * 1.5e-5)
    assert reply["finish_reason"] == "stop"
    assert reply["request_id"] == "req_1"
    assert reply["response_id"] is None
    assert reply["provider"] == "azure_ai"
    assert reply["model"] == CLAUDE
    assert far.doc()["provider"]["name"] == "azure_ai"
    other = far.elsewhere()
    other.process("-m", "echo", "hi")
    assert session_shape(far.doc()) == session_shape(other.doc())


@pytest.mark.slow
def test_thinking_is_shown_kept_in_blocks_with_its_signature_and_sent_back(
    far: Home, model: ModelServer
) -> None:
    redacted = block(1, {"type": "redacted_thinking", "data": "xyz"})
    thoughts = (thought(0, "hm ", "so", signed="c2ln"), redacted, thought(2, "then", signed="b"))
    model.script(*stream(*thoughts, said(3, "Yes.")))
    run = far.run("-m", CLAUDE, "--reasoning", "hi")
    assert run == ("Yes.\n", "hm sothen\n", 0)
    reply = far.doc()["messages"][1]
    assert reply["thinking"] == [
        {"type": "thinking", "thinking": "hm so", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "thinking", "thinking": "then", "signature": "b"},
    ]
    assert "replay" not in reply
    model.script(*stream(said(0, "More.")))
    assert far.run("-s", "0", "more").code == 0
    sent = model.sent[1]["messages"][1]["content"]
    assert [part["type"] for part in sent] == ["thinking", "redacted_thinking", "thinking", "text"]
    assert sent[0]["thinking"] == "hm so"
    assert sent[0]["signature"] == "c2ln"


TOO_LONG = "prompt is too long: 208310 tokens > 200000 maximum"
HALF = stream(said(0, "half an "))[:4]
OVERLOADED = named(
    {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
)


def refused(words: str) -> bytes:
    return json.dumps(
        {"type": "error", "error": {"type": "invalid_request_error", "message": words}}
    ).encode()


# Model, status, steps, stdout, exit code, and the line.
FAILURES: dict[str, tuple[str, int, list[Any], str, int, str]] = {
    "key": (CLAUDE, 401, [refused(f"bad {KEYS['AZURE_AI_API_KEY']}")], "", 1,
            "azure_ai refused the key (401): bad ***: check api_key_env under [providers.azure_ai]"),
    "model": (CLAUDE, 404, [refused("model: x")], "", 1, "does not know 'claude-sonnet-4-5' (404): model: x"),
    "too long": (CLAUDE, 400, [refused(TOO_LONG)], "", 6, f"the prompt is too long for azure_ai: {TOO_LONG}"),
    "cut": (CLAUDE, 200, [*HALF, Cut], "half an \n", 1, "the connection to azure_ai was lost"),
    "overloaded": (CLAUDE, 200, [*HALF, OVERLOADED], "half an \n", 1, "azure_ai failed: Overloaded"),
    "the token limit": (CLAUDE, 200, stream(said(0, "half an"), stop="max_tokens"), "half an\n", 5,
                        "cut by the token limit"),
    "a body that cannot be read": (CLAUDE, 400, [b'{"error": {"mess', Cut], "", 1, "refused the request (400)"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_through_litellm_is_one_line_in_our_words(
    far: Home, model: ModelServer, name: str
) -> None:
    which, status, steps, out, code, line = FAILURES[name]
    kind = "text/event-stream" if status == 200 else "application/json"
    model.script(
        *steps,
        status=status,
        headers={"Content-Type": kind, "Location": "https://elsewhere.test/evil"},
    )
    run = far.run(*(["--debug"] if name == "key" else []), "-m", which, "hi")
    assert run.stdout == out
    assert run.code == code
    assert len(model.requests) == 1
    assert line in run.stderr
    assert not [secret for secret in KEYS.values() if secret in run.stderr]
    assert not [
        path
        for path in far.state.rglob("*")
        if path.is_file() and b"very-secret" in path.read_bytes()
    ]
    if name != "key":
        assert len(run.stderr.splitlines()) == 2
        assert "itellm" not in run.stderr
    assert texts(far.doc()) == ["user: hi", *([f"assistant: {out[:-1]}"] if out else [])]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["import", "answer", "silence"])
def test_ctrl_c_or_a_limit_ends_it_at_once_and_keeps_what_came(
    far: Home, model: ModelServer, when: str
) -> None:
    """The answer is never let go on: what ends the run is the signal, or the limit, and nothing else."""
    release = threading.Event()
    model.script(*HALF, release)
    if when == "silence":
        far.config.write_text(far.config.read_text() + "idle_timeout = 0.4\n")
    with far.start("-m", CLAUDE, "hi") as process:
        if when == "import":
            wait_until(far.files)
        else:
            read_until(process.stdout, b"half an ")
        if when != "silence":
            process.send_signal(signal.SIGINT)
        assert wait_for_exit(process) == (124 if when == "silence" else 130)
        release.set()
    assert texts(far.doc()) == ["user: hi", *(["assistant: half an "] if when != "import" else [])]


@pytest.mark.slow
def test_litellm_reaches_no_network_and_reads_no_dotenv_at_import(
    far: Home, model: ModelServer
) -> None:
    (far.cwd / ".env").write_text("AZURE_AI_API_KEY=from-dotenv\nGPTSH_X=1\n")
    audit = (
        "import sys; seen = []\n"
        "sys.addaudithook(lambda name, args: seen.append(str(args)) if name in "
        "('socket.connect', 'socket.getaddrinfo') or (name == 'open' and str(args[0]).endswith('.env')) else None)\n"
        "sys.argv = ['gptsh', *sys.argv[1:]]\n"
        "from gptsh.cli.entrypoint import main; code = main(sys.argv[1:])\n"
        "import gc, litellm\n"
        "print(code, gc.isenabled(), gc.get_freeze_count() > 100_000, *seen, sep='\\n', file=sys.stderr)\n"
    )
    model.script(*stream(said(0, "x")))
    done = subprocess.run(
        [COMMAND[0], "-c", audit, "-m", CLAUDE, "hi"], env=far.env, cwd=far.cwd, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "x\n"
    code, collects, frozen, *seen = done.stderr.splitlines()
    assert code == "0"
    assert collects == "True"
    assert frozen == "True"
    assert seen
    assert all("127.0.0.1" in line for line in seen), seen
    assert model.requests[0].headers["api-key"] == KEYS["AZURE_AI_API_KEY"]


def test_a_dry_run_masks_headers_and_secret_parameters(home: Home) -> None:
    home.configure('[providers.cohere]\nheaders = { X-Team-Token = "secret-value", X-N = "ab" }\n')
    nested = '{"client": "secret-value", "private_key": "secret-value"}'
    args = [
        "-p",
        "aws_secret_access_key=secret-value",
        "-p",
        f"vertex_credentials={nested}",
        "-p",
        "max_tokens=7",
    ]
    run = home.process(
        "--dry-run",
        "-o",
        "json",
        "-m",
        "cohere/command-a",
        *args,
        "hi",
        env={"COHERE_API_KEY": "k1"},
    )
    assert "secret-value" not in run.stdout
    call = json.loads(run.stdout)["call"]
    assert call["extra_headers"] == {"x-team-token": "***", "x-n": "***"}
    assert call["aws_secret_access_key"] == call["api_key"] == "***"
    assert call["vertex_credentials"] == {"client": "***", "private_key": "***"}
    assert call["max_tokens"] == 7
    assert call["messages"] == [{"role": "user", "content": "hi"}]
