"""Through the real litellm to loopback servers of other shapes: Claude's on Azure, Gemini's, OpenAI's Responses."""

import json
import signal
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.support.answers import responses
from tests.support.anthropic_server import block, named, said, stream, thought
from tests.support.home import COMMAND, Home, kind_of_session, read_until, texts, wait_for
from tests.support.server import Cut, ModelServer, answer, chunk, event

KEYS = {
    "AZURE_AI_API_KEY": "az-very-secret",
    "GEMINI_API_KEY": "g-very-secret",
    "OPENAI_API_KEY": "sk-very-secret",
}
CLAUDE, GEMINI = "azure_ai/claude-sonnet-4-5", "gemini/gemini-2.5-flash"


def gemini(*parts: dict[str, Any], finish: str | None = "STOP") -> list[bytes]:
    """A stream of Gemini's."""
    chunks: list[dict[str, Any]] = [
        {"candidates": [{"content": {"parts": [part], "role": "model"}}], "responseId": "r1"} for part in parts
    ]
    if finish:
        chunks[-1]["candidates"][0]["finishReason"] = finish
        chunks[-1]["usageMetadata"] = {"promptTokenCount": 7, "candidatesTokenCount": 2, "totalTokenCount": 9}
    return [b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n" for chunk in chunks]


@pytest.fixture
def far(home: Home, model: ModelServer) -> Home:
    """A home whose Azure, Gemini and OpenAI are the loopback server."""
    bare = model.base_url.removesuffix("/v1")
    home.configure(
        f'[providers.azure_ai]\n[providers.gemini]\nbase_url = "{bare}/v1beta"\n'
        f'[providers.openai]\nbase_url = "{model.base_url}"\n[sessions]\ntitles = "off"\n[network]\nretries = 1\n'
    )
    home.env |= KEYS | {"AZURE_AI_API_BASE": bare}  # litellm reads it: under a base_url it would be an OpenAI's server
    return home


@pytest.mark.slow
def test_a_prompt_through_litellm_leaves_the_same_kind_of_session(far: Home, model: ModelServer) -> None:
    model.script(*stream(said(0, "Hello ", "there.")), headers={"request-id": "req_1"})
    run = far.process("-m", CLAUDE, "--system", "Brief.", "-p", "max_tokens=99", "hi")
    assert run == ("Hello there.\n", "", 0)  # nothing of litellm's on either stream
    asked = model.asked[0]
    assert (asked.path, asked.headers["api-key"]) == ("/anthropic/v1/messages", KEYS["AZURE_AI_API_KEY"])
    assert (asked.body["max_tokens"], asked.body["stream"]) == (99, True)
    assert "Brief." in json.dumps(asked.body["system"])
    reply = far.doc()["messages"][1]
    assert reply["usage"] | {"raw": None} == {
        "prompt": 18, "completion": 15, "total": 33, "reasoning_tokens": None, "cached_tokens": 5,
        "cache_write_tokens": 3, "raw": None,
    }  # fmt: skip
    assert reply["cost"] == pytest.approx(10 * 3e-6 + 5 * 3e-7 + 3 * 3.75e-6 + 15 * 1.5e-5)
    assert (reply["finish_reason"], reply["request_id"], reply["response_id"]) == ("stop", "req_1", None)
    assert (reply["provider"], reply["model"], far.doc()["provider"]["name"]) == ("azure_ai", CLAUDE, "azure_ai")
    other = far.elsewhere()
    other.process("-m", "echo", "hi")
    assert kind_of_session(far.doc()) == kind_of_session(other.doc())


@pytest.mark.slow
def test_thinking_is_shown_kept_in_blocks_with_its_signature_and_sent_back(far: Home, model: ModelServer) -> None:
    redacted = block(1, {"type": "redacted_thinking", "data": "xyz"})
    model.script(
        *stream(
            thought(0, "hm ", "so", signed="c2ln"),
            redacted,
            thought(2, "then", signed="b"),
            said(3, "Yes."),
        )
    )
    run = far.process("-m", CLAUDE, "hi")
    assert run == ("Yes.\n", "hm sothen\n", 0)
    reply = far.doc()["messages"][1]
    assert reply["thinking"] == [
        {"type": "thinking", "thinking": "hm so", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "thinking", "thinking": "then", "signature": "b"},
    ]
    assert "replay" not in reply
    model.script(*stream(said(0, "More.")))
    assert far.process("-s", "0", "more").code == 0
    sent = model.sent[1]["messages"][1]["content"]
    assert [part["type"] for part in sent] == ["thinking", "redacted_thinking", "thinking", "text"]
    assert (sent[0]["thinking"], sent[0]["signature"]) == ("hm so", "c2ln")


@pytest.mark.slow
def test_tool_calls_through_litellm(far: Home, model: ModelServer) -> None:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ('{"a":', "1}")]
    calls = block(0, {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}}, *deltas)
    model.script(*stream(calls, stop="tool_use"))
    run = far.process("-m", CLAUDE, "-p", f"tools=[{json.dumps(TOOL)}]", "hi")
    assert run.code == 1  # a tool was called that nobody runs yet
    (call,) = far.doc()["messages"][1]["tool_calls"]
    assert (call["id"], call["function"]) == ("toolu_1", {"name": "ls", "arguments": '{"a":1}'})
    assert model.sent[0]["tools"][0]["name"] == "ls"


@pytest.mark.slow
def test_an_answer_that_repeats_itself_is_an_answer(far: Home, model: ModelServer) -> None:
    model.script(*stream(said(0, *["again "] * 150)))
    run = far.process("-m", CLAUDE, "hi")
    assert (run.code, run.stdout) == (0, "again " * 150 + "\n")


@pytest.mark.slow
def test_gemini_through_litellm(far: Home, model: ModelServer) -> None:
    model.script(*gemini({"text": "hm", "thought": True}, {"text": "Hel"}, {"text": "lo."}))
    assert far.process("-m", GEMINI, "hi") == ("Hello.\n", "hm\n", 0)
    assert model.asked[0].path.startswith("/v1beta/models/gemini-2.5-flash:streamGenerateContent")
    assert model.sent[0]["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]
    reply = far.doc()["messages"][1]
    assert (reply["replay"], reply["usage"]["prompt"]) == ({"reasoning_content": "hm"}, 7)
    assert (reply["finish_reason"], reply["response_id"]) == ("stop", "r1")
    assert reply["cost"] == pytest.approx(7 * 3e-7 + 2 * 2.5e-6)


@pytest.mark.slow
def test_what_gemini_signed_goes_back_to_that_model_alone(far: Home, model: ModelServer) -> None:
    called = {"functionCall": {"name": "ls", "args": {}}, "thoughtSignature": "b2YgYSBjYWxs"}
    model.script(*gemini({"text": "One "}, {"text": "moment.", "thoughtSignature": "b2YgYSB0ZXh0"}))
    assert far.process("-s", "@signed", "-m", GEMINI, "hi").code == 0
    model.script(*gemini({"text": "I look."}, called))
    far.process("-s", "@signed", "-m", GEMINI, "-p", f"tools=[{json.dumps(TOOL)}]", "look")
    first, second = far.doc()["messages"][1::2]
    assert first["replay"] == {"provider_specific_fields": {"thought_signatures": ["b2YgYSB0ZXh0"]}}
    assert second["tool_calls"][0]["function"]["name"] == "ls"
    for name in (GEMINI, "gemini/gemini-2.5-pro"):
        model.script(*gemini({"text": "Done."}))
        assert far.process("-s", "@signed", "-m", name, "and?").code == 0
    own, other = (json.dumps(request["contents"]) for request in model.sent[2:])
    assert {signature: own.count(signature) for signature in ("b2YgYSB0ZXh0", "b2YgYSBjYWxs")} == {
        "b2YgYSB0ZXh0": 1,
        "b2YgYSBjYWxs": 1,
    }
    assert "b2YgYS" not in other
    assert "moment." in other


@pytest.mark.slow
def test_gemini_in_one_piece(far: Home, model: ModelServer) -> None:
    whole = {
        "candidates": [{"content": {"parts": [{"text": "Hello."}], "role": "model"}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 2, "totalTokenCount": 9},
    }
    kind = {"Content-Type": "application/json"}
    model.script(json.dumps(whole).encode(), framing="length", headers=kind)
    assert far.process("--no-stream", "-m", GEMINI, "hi") == ("Hello.\n", "", 0)
    assert far.doc()["messages"][1]["usage"]["total"] == 9


TOOL = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "params"), [("gpt-5.5", ["-p", f"tools=[{json.dumps(TOOL)}]"]), ("gpt-5.3-codex", [])]
)
def test_openais_models_that_chat_completions_do_not_serve_are_reached_by_responses(
    far: Home, model: ModelServer, name: str, params: list[str]
) -> None:
    model.script(*responses("Hello ", "there."))
    assert far.process("-m", f"openai/{name}", *params, "hi") == ("Hello there.\n", "", 0)
    assert model.asked[0].path == "/v1/responses"
    assert model.asked[0].headers["authorization"] == f"Bearer {KEYS['OPENAI_API_KEY']}"
    assert (model.sent[0]["model"], "tools" in model.sent[0]) == (name, bool(params))
    assert far.doc()["messages"][1]["usage"]["total"] == 9
    assert far.doc()["messages"][1]["cost"]


# ---- failures


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "payload", "line"),
    [
        (401, {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}},
         "azure_ai refused the key (401): invalid x-api-key: check [providers.azure_ai]"),
        (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt: field required"}},
         "azure_ai refused (400): prompt: field required"),
        (404, {"type": "error", "error": {"type": "not_found_error", "message": "model: x"}},
         "does not know 'claude-sonnet-4-5' (404): model: x"),
        (413, b"too large", "azure_ai refused (413): too large"),
    ],
)  # fmt: skip
def test_litellms_errors_become_ours(far: Home, model: ModelServer, status: int, payload: Any, line: str) -> None:
    model.refuse(status, payload)
    run = far.process("-m", CLAUDE, "hi")
    assert (run.stdout, run.code) == ("", 1)
    assert line in run.stderr.splitlines()[0]
    assert len(run.stderr.splitlines()) == 2
    assert "itellm" not in run.stderr
    assert len(model.asked) == 1
    assert texts(far.doc()) == ["user: hi"]


@pytest.mark.slow
def test_a_prompt_that_is_too_long_is_exit_6(far: Home, model: ModelServer) -> None:
    said = "prompt is too long: 208310 tokens > 200000 maximum"
    model.refuse(400, {"type": "error", "error": {"type": "invalid_request_error", "message": said}})
    run = far.process("-m", CLAUDE, "hi")
    assert (run.stdout, run.code) == ("", 6)
    assert run.stderr.startswith(f"gptsh: azure_ai has no room for the prompt: {said}\n")


@pytest.mark.slow
def test_a_refusal_that_may_pass_is_tried_again_by_us_alone(far: Home, model: ModelServer) -> None:
    model.refuse(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    model.script(*stream(said(0, "Now.")))
    assert far.process("-m", CLAUDE, "hi") == ("Now.\n", "", 0)
    for _ in range(2):
        model.refuse(429, {"type": "error", "error": {"message": "slow down"}}, {"retry-after": "0"})
    run = far.process("-m", CLAUDE, "hi")
    assert run.code == 1
    assert "(429): slow down" in run.stderr
    assert len(model.asked) == 4
    model.refuse(429, {"type": "error", "error": {"message": "slow down"}}, {"retry-after": "40"})
    assert far.process("-m", CLAUDE, "hi").code == 1
    assert len(model.asked) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "steps"),
    [
        (CLAUDE, stream(said(0, "half an "))[:4]),
        (CLAUDE, [*stream(said(0, "half an "))[:4], Cut]),
        (GEMINI, [*gemini({"text": "half an "}, finish=None), Cut]),
    ],
    ids=["Anthropic ended", "Anthropic cut", "Gemini cut"],
)
def test_a_stream_that_ends_too_early_is_an_error_whatever_litellm_makes_of_it(
    far: Home, model: ModelServer, which: str, steps: list[Any]
) -> None:
    model.script(*steps)
    run = far.process("-m", which, "hi")
    assert (run.stdout, run.code) == ("half an \n", 1)
    assert len(run.stderr.splitlines()) == 2
    assert far.doc()["messages"][1]["finish_reason"] == "error"


HALF = stream(said(0, "half an "))[:4]
HTML = {"Content-Type": "text/html"}
FAILED = {"id": "r", "object": "response", "created_at": 0, "model": "m", "status": "failed", "output": [],
          "error": {"code": "server_error", "message": "it broke"}}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "steps", "out", "line"),
    [
        (CLAUDE, [*HALF, Cut], "half an \n", "the connection to azure_ai broke off"),
        (GEMINI, [*gemini({"text": "half"}, finish=None), Cut], "half\n", "the connection to gemini broke off"),
        (CLAUDE, [*HALF, named({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})],
         "half an \n", "azure_ai failed: Overloaded"),
        (CLAUDE, [b"<html>no</html>"], "", "the stream broke off before the answer was complete"),
        (CLAUDE, [b""], "", "the stream broke off before the answer was complete"),
        (CLAUDE, [b"data: {garbage\n\n"], "", "the stream broke off before the answer was complete"),
        (GEMINI, [b"<html>no</html>"], "", "the model answered nothing: ask again, or try another model with -m"),
        ("openai/gpt-5.3-codex", [*responses("a", "b")[:3], named({"type": "response.failed", "response": FAILED})],
         "a\n", "openai failed: it broke"),
    ],
)  # fmt: skip
def test_a_wrong_stream_through_litellm_is_one_line_in_our_words(
    far: Home, model: ModelServer, which: str, steps: list[Any], out: str, line: str
) -> None:
    model.script(*steps)
    run = far.process("-m", which, "hi")
    assert (run.stdout, run.code) == (out, 1)
    assert run.stderr.splitlines()[0] == f"gptsh: {line}"
    assert len(run.stderr.splitlines()) == 2


@pytest.mark.slow
def test_an_error_inside_the_stream(far: Home, model: ModelServer) -> None:
    error = named({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    model.script(*stream(said(0, "half an "))[:4], error)
    run = far.process("-m", CLAUDE, "hi")
    assert (run.stdout, run.code) == ("half an \n", 1)
    assert "Overloaded" in run.stderr.splitlines()[0]
    assert texts(far.doc())[1] == "assistant: half an "


@pytest.mark.slow
def test_a_cut_by_the_token_limit_is_exit_5(far: Home, model: ModelServer) -> None:
    model.script(*stream(said(0, "half an"), stop="max_tokens"))
    run = far.process("-m", CLAUDE, "hi")
    assert (run.stdout, run.code) == ("half an\n", 5)
    assert "cut by the token limit" in run.stderr


@pytest.mark.slow
def test_nothing_listening_is_said(home: Home) -> None:
    home.configure('[providers.gemini]\nbase_url = "http://127.0.0.1:9"\n')
    run = home.process("-m", GEMINI, "hi", env=KEYS)
    assert run.code == 1
    assert run.stderr.startswith("gptsh: nothing answers at gemini (http://127.0.0.1:9): ")


@pytest.mark.slow
def test_our_own_limits_hold(far: Home, model: ModelServer) -> None:
    release, usual = threading.Event(), far.config.read_text()
    model.script(release, *stream(said(0, "late")))
    started = time.monotonic()
    far.config.write_text(usual + "first_byte_timeout = 0.4\n")
    first = far.process("-n", "-m", CLAUDE, "hi")
    model._scripts.clear()  # on a busy machine the time was over before the request was sent
    model.script(*stream(said(0, "half an "))[:4], release)
    far.config.write_text(usual + "idle_timeout = 0.4\n")
    second = far.process("-n", "-m", CLAUDE, "hi")
    release.set()
    assert (first.stdout, first.code) == ("", 124)
    assert (second.stdout, second.code) == ("half an \n", 124)
    assert "azure_ai went silent" in first.stderr
    assert time.monotonic() - started < 40


@pytest.mark.slow
@pytest.mark.parametrize("when", ["import", "answer"])
def test_ctrl_c_ends_it_at_once_and_keeps_what_came(far: Home, model: ModelServer, when: str) -> None:
    release = threading.Event()
    model.script(*stream(said(0, "half an "))[:4], release)
    with far.start("-m", CLAUDE, "hi") as process:
        if when == "answer":
            read_until(process.stdout, b"half an ")
        else:
            while not far.files():
                time.sleep(0.01)
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert wait_for(process) == 130
        took = time.monotonic() - started
        release.set()
    assert took < 1.5
    expected = ["user: hi", "assistant: half an "] if when == "answer" else ["user: hi"]
    assert texts(far.doc()) == expected


@pytest.mark.slow
def test_no_key_is_shown_or_kept(far: Home, model: ModelServer) -> None:
    secret = KEYS["AZURE_AI_API_KEY"]
    for status in (401, 400, 500, 500):
        model.refuse(status, {"error": {"message": f"bad key {secret}"}})
    for _ in range(3):
        run = far.process("--debug", "-n", "-m", CLAUDE, "hi")
        assert secret not in run.stdout + run.stderr
    assert not any(secret.encode() in path.read_bytes() for path in far.state.rglob("*") if path.is_file())


@pytest.mark.slow
def test_a_key_of_the_config_file_is_given_to_litellm(far: Home, model: ModelServer) -> None:
    far.config.write_text(
        far.config.read_text().replace(
            "[providers.azure_ai]\n",
            '[providers.azure_ai]\napi_key_command = "echo from-a-command"\nheaders = { X-Team = "infra" }\n',
        )
    )
    model.script(*stream(said(0, "x")))
    assert far.process("-m", CLAUDE, "hi").code == 0
    assert model.asked[0].headers["api-key"] == "from-a-command"
    assert model.asked[0].headers["x-team"] == "infra"


# ---- the import


@pytest.mark.slow
def test_litellm_reaches_no_network_and_reads_no_dotenv_at_import(far: Home, model: ModelServer) -> None:
    (far.cwd / ".env").write_text("AZURE_AI_API_KEY=from-dotenv\nGPTSH_X=1\n")
    audit = (
        "import sys, os\n"
        "seen = []\n"
        "sys.addaudithook(lambda name, args: seen.append(str(args)) if name in "
        "('socket.connect', 'socket.getaddrinfo') or (name == 'open' and str(args[0]).endswith('.env')) else None)\n"
        "sys.argv = ['gptsh', *sys.argv[1:]]\n"
        "from gptsh.cli.entrypoint import main\n"
        "code = main(sys.argv[1:])\n"
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
    assert (code, collects, frozen) == ("0", "True", "True")
    assert seen
    assert all("127.0.0.1" in line for line in seen), seen
    assert model.asked[0].headers["api-key"] == KEYS["AZURE_AI_API_KEY"]


@pytest.mark.slow
def test_the_import_goes_on_while_standard_input_is_waited_for(far: Home, model: ModelServer) -> None:
    model.script(*stream(said(0, "x")))
    code = (
        "import sys, threading, time\n"
        "from gptsh.cli.entrypoint import main\n"
        "def watch():\n"
        "    while 'litellm.main' not in sys.modules: time.sleep(0.01)\n"
        "    print('loaded', file=sys.stderr, flush=True)\n"
        "threading.Thread(target=watch, daemon=True).start()\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    with subprocess.Popen(
        [COMMAND[0], "-c", code, "-m", CLAUDE], env=far.env, cwd=far.cwd,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        read_until(process.stderr, b"loaded")  # before anything was piped in
        out, _ = process.communicate(b"the prompt", timeout=30)
    assert (out, process.returncode) == (b"x\n", 0)
    assert texts(far.doc())[0] == "user: the prompt"


@pytest.mark.slow
def test_a_title_through_litellm_beside_a_direct_answer(far: Home, model: ModelServer) -> None:
    far.config.write_text(
        far.config.read_text().replace('titles = "off"', 'titles = "model"')
        + f'[agents.default]\nmodel = "openai/gpt-4.1"\nmodel_small = "{CLAUDE}"\n'
    )
    whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": "c", "stop_reason": "end_turn",
             "content": [{"type": "text", "text": "A Title"}],
             "usage": {"input_tokens": 10, "output_tokens": 2}}  # fmt: skip
    kind = {"Content-Type": "application/json"}
    model.script(json.dumps(whole).encode(), framing="length", headers=kind, model="claude-sonnet-4-5")
    first, *rest = answer("Hello ", "there.")[1:]
    end = threading.Event()  # the answer ends once the title was asked for: that takes as long as importing litellm
    model.script(first, end, *rest, model="gpt-4.1")
    process = far.start("hi")
    read_until(process.stdout, b"Hello ")
    until = time.monotonic() + 25
    while len(model.asked) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    assert {asked.body["model"] for asked in model.asked} == {"gpt-4.1", "claude-sonnet-4-5"}  # at once
    end.set()
    assert (process.communicate(timeout=30), process.returncode) == ((b"there.\n", b""), 0)
    assert far.doc()["title"] == "A Title"
    assert far.doc()["usage"]["title_cost"] == pytest.approx(10 * 3e-6 + 2 * 1.5e-5)


# ---- what a stranger's reading found


@pytest.mark.slow
@pytest.mark.parametrize("which", [CLAUDE, GEMINI, "openai/gpt-5.3-codex", "deepinfra/m"])
def test_a_redirect_takes_neither_key_nor_prompt_along(far: Home, model: ModelServer, which: str) -> None:
    elsewhere = ModelServer()
    far.config.write_text(far.config.read_text() + f'[providers.deepinfra]\nbase_url = "{model.base_url}"\n')
    model.refuse(307, b"", {"Location": f"http://127.0.0.1:{elsewhere.port}/evil"})
    run = far.process("-m", which, "hi", env={"DEEPINFRA_API_KEY": "d-very-secret"})
    elsewhere.close()
    assert (run.stdout, run.code) == ("", 1)
    assert "redirects to http://127.0.0.1:" in run.stderr
    assert (len(model.asked), elsewhere.asked) == (1, [])


@pytest.mark.slow
def test_loopback_is_not_proxied_through_litellm(far: Home, model: ModelServer) -> None:
    proxy = ModelServer()
    model.script(*stream(said(0, "x")))
    run = far.process(
        "-m", CLAUDE, "hi", env={"HTTP_PROXY": f"http://u:pw@127.0.0.1:{proxy.port}", "NO_PROXY": "a.test"}
    )
    proxy.close()
    assert (run.stdout, proxy.asked) == ("x\n", [])


@pytest.mark.parametrize("env", [{"HTTPS_PROXY": "gopher://x"}, {"SSL_CERT_FILE": "/missing.pem"}])
def test_a_bad_proxy_or_bundle_is_exit_2_before_litellm_is_loaded(far: Home, env: dict[str, str]) -> None:
    far.configure('[sessions]\ntitles = "off"\n')
    run = far.process("-m", CLAUDE, "hi", env=env)
    assert (run.stdout, run.code, len(run.stderr.splitlines())) == ("", 2, 1)
    assert not far.state.exists()


@pytest.mark.slow
def test_a_bundle_of_the_environment_is_believed_through_litellm(far: Home, model: ModelServer, tmp_path: Path) -> None:
    ca = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(context)
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    model.secure(context)
    far.env["AZURE_AI_API_BASE"] = model.base_url.removesuffix("/v1")
    model.script(*stream(said(0, "safe")))
    run = far.process("-m", CLAUDE, "hi", env={"REQUESTS_CA_BUNDLE": str(tmp_path / "ca.pem")})
    assert run == ("safe\n", "", 0)
    run = far.process("-m", CLAUDE, "hi")
    assert run.code == 1
    assert run.stderr.startswith("gptsh: no secure connection to azure_ai")


@pytest.mark.slow
def test_a_key_that_only_litellm_knows_of_is_masked_too(far: Home, model: ModelServer) -> None:
    for _ in range(2):
        model.refuse(400, {"error": {"message": f"bad {KEYS['GEMINI_API_KEY']} other-very-secret"}})
    run = far.process("--debug", "-m", GEMINI, "hi", env={"GOOGLE_API_KEY": "other-very-secret"})
    assert "very-secret" not in run.stderr
    assert model.asked[0].headers["x-goog-api-key"] == KEYS["GEMINI_API_KEY"]  # the one that gptsh names


@pytest.mark.slow
def test_a_stream_without_usage_has_none_and_asks_nobody_to_count(far: Home, model: ModelServer) -> None:
    far.config.write_text(far.config.read_text() + f'[providers.deepinfra]\nbase_url = "{model.base_url}"\n')
    model.say("x", usage=None)
    model.script(*gemini({"text": "x"}, {"text": "y"}, finish=None))
    audit = (
        "import sys\n"
        "seen = []\n"
        "sys.addaudithook(lambda name, args: seen.append(str(args)) if name in "
        "('socket.connect', 'socket.getaddrinfo') else None)\n"
        "from gptsh.cli.entrypoint import main\n"
        "main(sys.argv[1:])\n"
        "print(*[line for line in seen if '127.0.0.1' not in line], file=sys.stderr)\n"
    )
    for which in ("deepinfra/meta-llama/Meta-Llama-3-8B-Instruct", GEMINI):
        done = subprocess.run(
            [COMMAND[0], "-c", audit, "-n", "-m", which, "hi"], env={**far.env, "DEEPINFRA_API_KEY": "d-secret"},
            cwd=far.cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert done.stderr.strip() == ""
        reply = far.docs()[0]["messages"][1]
        assert (reply["usage"], reply["cost"]) == (None, None)


@pytest.mark.slow
def test_what_litellm_adds_to_usage_is_not_kept(far: Home, model: ModelServer) -> None:
    model.script(*gemini({"text": "hm", "thought": True}, {"text": "Hello."}))
    far.process("-m", GEMINI, "hi")
    usage = far.doc()["messages"][1]["usage"]
    assert "cost" not in usage["raw"]
    assert usage["reasoning_tokens"] in (None, 0)  # Gemini has reported none


@pytest.mark.slow
def test_another_providers_stream_that_ends_too_early_is_an_error(far: Home, model: ModelServer) -> None:
    far.config.write_text(far.config.read_text() + f'[providers.deepinfra]\nbase_url = "{model.base_url}"\n')
    model.script(event(chunk({"content": "half an "})))
    run = far.process("-m", "deepinfra/m", "hi", env={"DEEPINFRA_API_KEY": "d-secret"})
    assert (run.stdout, run.code) == ("half an \n", 1)


@pytest.mark.slow
def test_an_answer_that_cannot_be_read_is_not_asked_for_again(far: Home, model: ModelServer) -> None:
    model.script(b'{"garbage', framing="length", headers={"Content-Type": "application/json"})
    run = far.process("--no-stream", "-m", CLAUDE, "hi")
    assert (run.stdout, run.code, len(model.asked)) == ("", 1, 1)


@pytest.mark.slow
def test_pings_keep_a_slow_answer_alive_through_litellm(far: Home, model: ModelServer) -> None:
    far.config.write_text(far.config.read_text() + "idle_timeout = 0.8\n")
    pings = [step for _ in range(5) for step in (named({"type": "ping"}), 0.4)]
    first, *rest = stream(said(0, "there"))
    model.script(first, *pings, *rest)
    assert far.process("-m", CLAUDE, "hi") == ("there\n", "", 0)


@pytest.mark.slow
@pytest.mark.parametrize("args", [[], ["--no-stream"]])
def test_garbage_is_collected_again_after_a_call(far: Home, model: ModelServer, args: list[str]) -> None:
    whole = {"id": "m", "type": "message", "role": "assistant", "model": "c", "stop_reason": "end_turn",
             "content": [{"type": "text", "text": "x"}], "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip
    kind = {"Content-Type": "application/json"}
    if args:
        model.script(json.dumps(whole).encode(), framing="length", headers=kind)
    else:
        model.script(*stream(said(0, "x")))
    code = (
        "import sys\nfrom gptsh.cli.entrypoint import main\nmain(sys.argv[1:])\nimport gc\nsys.exit(not gc.isenabled())"
    )
    command = [COMMAND[0], "-c", code, *args, "-m", CLAUDE, "hi"]
    done = subprocess.run(command, env=far.env, cwd=far.cwd, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert (done.stdout, done.returncode) == (b"x\n", 0)


@pytest.mark.slow
def test_no_traceback_and_no_advice_of_litellms_stands_in_a_line(far: Home, model: ModelServer) -> None:
    unsupported = far.process("-m", CLAUDE, "-p", "seed=1", "hi")
    needs_package = far.process("-m", "vertex_ai/gemini-2.5-pro", "hi")
    for run in (unsupported, needs_package):
        assert (run.stdout, run.code) == ("", 1)
        assert not {"Traceback", "drop_params", "litellm."} & set(run.stderr.replace(":", " ").split())
        assert "File " not in run.stderr


@pytest.mark.slow
def test_a_run_ends_though_litellm_still_waits(far: Home, model: ModelServer) -> None:
    """The end of the interpreter once waited forever for a lock that litellm's thread held."""
    far.config.write_text(far.config.read_text() + "first_byte_timeout = 0.2\n")
    for _ in range(3):
        model.script(2.0, *stream(said(0, "late")))
    started = time.monotonic()
    processes = [far.start("-n", "-m", CLAUDE, "hi", stdout=subprocess.DEVNULL) for _ in range(3)]
    codes = [process.wait(timeout=40) for process in processes]
    for process in processes:
        process.stderr and process.stderr.close()
    assert codes == [124] * 3
    assert time.monotonic() - started < 40


@pytest.mark.slow
@pytest.mark.parametrize("which", [CLAUDE, GEMINI])
@pytest.mark.parametrize(
    ("steps", "headers"),
    [
        ([b'{"error": {"mess', Cut], {}),
        ([b"plain"], {"Content-Encoding": "gzip"}),
        ([b'{"error": {"message": "bad"}}'], {"Content-Type": "text/plain; charset=idna"}),
    ],
    ids=["cut", "not gzip", "odd charset"],
)
def test_a_refusal_whose_body_cannot_be_read_is_one_line(
    far: Home, model: ModelServer, which: str, steps: list[Any], headers: dict[str, str]
) -> None:
    model.script(*steps, status=400, headers={"Content-Type": "application/json", **headers})
    run = far.process("-m", which, "hi")
    assert (run.stdout, run.code) == ("", 1)
    assert run.stderr.startswith(f"gptsh: {which.partition('/')[0]} refused (400)")
    assert len(run.stderr.splitlines()) == 2


@pytest.mark.slow
def test_a_fault_of_litellms_own_is_not_said_to_be_a_refused_key(far: Home) -> None:
    run = far.process(
        "-m", "watsonx/ibm/x", "hi", env={"WATSONX_APIKEY": "good-key", "WATSONX_URL": "http://127.0.0.1:9"}
    )
    assert run.code == 1
    assert "refused the key" not in run.stderr
    login = far.process("-m", "github_copilot/gpt-4o", "hi")
    assert login.stderr.startswith("gptsh: github_copilot needs a login first")
