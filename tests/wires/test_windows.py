"""A model's window: from the config, servers of every kind, the packaged table; never late, never a failure."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.core.settings import Provider, load
from gptsh.errors import ConfigError
from gptsh.llm.client import Client
from gptsh.llm.windows import ask_window, listed_window, shown_by_ollama
from tests.support.home import Home
from tests.support.server import ModelServer, Script

BASES = {"ollama": "OLLAMA", "lm_studio": "LM_STUDIO", "llamafile": "LLAMAFILE", "hosted_vllm": "HOSTED_VLLM",
         "openrouter": "OPENROUTER"}  # fmt: skip


def client(home: Home, server: ModelServer, config: str = "", **environ: str) -> Client:
    """A client that finds every kind of server, and ``lab``, at the model server."""
    home.configure(f'[providers.lab]\nbase_url = "{server.base_url}"\n{config}')
    bases = {f"{stem}_API_BASE": server.base_url for stem in BASES.values()}
    variables = {**bases, "OPENROUTER_API_KEY": "or-secret", **environ}
    return Client(load(variables, str(home.config)), variables)


def paths(server: ModelServer) -> list[str]:
    return [f"{asked.method} {asked.path}" for asked in server.asked]


def listing(*entries: Mapping[str, Any]) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": "other", "max_model_len": 99}, *entries]}


# ---- every kind of server

SHOWN = {
    "parameters": 'stop                           "<|eot|>"\nnum_ctx                        16384\ntemperature 0.6',
    "model_info": {"general.architecture": "llama", "llama.context_length": 131072, "llama.embedding_length": 4096},
}
TRAINED = {**SHOWN, "parameters": 'stop "num_ctx 5"'}
RUNNING = {"models": [{"name": "other:latest", "context_length": 99}, {"model": "m:latest", "context_length": 8192}]}
LM_STUDIO = {
    "models": [
        {"key": "other", "loaded_instances": [{"id": "other", "config": {"context_length": 99}}]},
        {"key": "m", "max_context_length": 40960, "loaded_instances": [
            {"id": "m:2", "config": {"context_length": 2048}}, {"id": "m", "config": {"context_length": 4096}},
        ]},
        {"key": "idle", "max_context_length": 32768, "loaded_instances": []},
        {"key": "flat", "max_context_length": 32768, "loaded_instances": [{"id": "x", "context_length": 1024}]},
    ]
}  # fmt: skip
OLDER = {"data": [{"id": "m", "loaded_context_length": 4096, "max_context_length": 32768},
                  {"id": "idle", "loaded_context_length": None, "max_context_length": 32768}]}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "pages", "window", "asked"),
    [
        ("ollama/m", {"/api/ps": RUNNING, "/api/show": SHOWN}, 131072, ["POST /api/show"]),
        ("ollama/m:latest", {"/api/show": {"parameters": SHOWN["parameters"]}}, 16384, ["POST /api/show"]),
        ("ollama/m", {"/api/show": TRAINED}, 131072, ["POST /api/show"]),
        ("ollama/m", {"/api/ps": RUNNING}, None, ["POST /api/show"]),
        ("ollama/m", {"/v1/models": listing({"id": "m", "max_model_len": 5})}, None, ["POST /api/show"]),
        ("llamafile/any", {"/v1/models": {"data": [{"id": "/models/m.gguf", "meta": {"n_ctx": 4096}}]}}, 4096,
         ["GET /v1/models"]),
        ("llamafile/any", {"/v1/models": {"data": [{"id": "/models/m.gguf", "meta": {"n_ctx_train": 9}}]},
                           "/props": {"default_generation_settings": {"n_ctx": 2048}}}, 2048,
         ["GET /v1/models", "GET /props"]),
        ("hosted_vllm/m", {"/v1/models": listing({"id": "m", "max_model_len": 32768})}, 32768, ["GET /v1/models"]),
        ("hosted_vllm/a/b", {"/v1/models": listing({"id": "a/b", "max_model_len": 5})}, 5, None),
        ("hosted_vllm/m", {"/v1/models": {"data": [{"id": "other", "max_model_len": 5}]}}, None, ["GET /v1/models"]),
        ("openrouter/a/b", {"/v1/models": listing({"id": "a/b", "context_length": 9,
                                                   "top_provider": {"context_length": 7}})}, 7, ["GET /v1/models"]),
        ("openrouter/a/b", {"/v1/models": listing({"id": "a/b", "context_length": 9,
                                                   "top_provider": {"context_length": None}})}, 9, None),
        ("lm_studio/m", {"/api/v1/models": LM_STUDIO}, 4096, ["GET /api/v1/models"]),
        ("lm_studio/m:2", {"/api/v1/models": LM_STUDIO}, 2048, None),
        ("lm_studio/idle", {"/api/v1/models": LM_STUDIO}, 32768, None),
        ("lm_studio/flat", {"/api/v1/models": LM_STUDIO}, 1024, None),
        ("lm_studio/m", {"/api/v0/models": OLDER}, 4096, ["GET /api/v1/models", "GET /api/v0/models"]),
        ("lm_studio/idle", {"/api/v1/models": {"error": "Unexpected endpoint"}, "/api/v0/models": OLDER}, 32768, None),
        ("lab/m", {"/v1/models": listing({"id": "m", "max_model_len": 4096})}, 4096, ["GET /v1/models"]),
        ("lab/m", {"/v1/models": [{"id": "m", "context_length": 4096}]}, 4096, ["GET /v1/models"]),
        ("lab/m", {"/v1/models": listing({"id": "m"}), "/props": {"default_generation_settings": {"n_ctx": 7}}}, 7,
         ["GET /v1/models", "GET /props"]),
        ("lab/m", {"/api/ps": RUNNING, "/api/show": SHOWN}, 8192,
         ["GET /v1/models", "GET /props", "POST /api/show", "GET /api/ps"]),
        ("lab/m:8b", {"/api/ps": RUNNING, "/api/show": SHOWN}, 16384, None),
        ("lab/m:8b", {"/api/show": TRAINED}, 131072, None),
        ("lab/hf.co/a/b", {"/api/ps": {"models": [{"name": "hf.co/a/b:latest", "context_length": 5}]},
                           "/api/show": SHOWN}, 5, None),
        ("lab/m", {"/api/v0/models": OLDER}, 4096,
         ["GET /v1/models", "GET /props", "POST /api/show", "GET /api/v0/models"]),
        ("lab/m", {}, None, None),
    ],
)  # fmt: skip
def test_a_server_is_asked_in_its_own_way(
    home: Home,
    model: ModelServer,
    name: str,
    pages: dict[str, Any],
    window: int | None,
    asked: list[str] | None,
) -> None:
    model.pages = pages
    assert client(home, model).window(name, ask=True) == window
    assert asked is None or paths(model) == asked
    shown = [a.body for a in model.asked if a.method == "POST"]
    assert all(body == {"model": name.partition("/")[2]} for body in shown)


# ---- which source counts, and when a server is asked


def test_the_config_comes_first(home: Home, model: ModelServer) -> None:
    model.pages["/v1/models"] = listing({"id": "m", "max_model_len": 4096})
    assert client(home, model, "context_window = 1234").window("lab/m", ask=True) == 1234
    assert not model.asked


def test_what_a_server_said_is_remembered(home: Home, model: ModelServer) -> None:
    model.pages["/v1/models"] = listing({"id": "m", "max_model_len": 4096})
    asker = client(home, model)
    assert asker.window("lab/m", ask=False) is None
    assert not model.asked
    assert [asker.window("lab/m", ask=True) for _ in range(2)] == [4096, 4096]
    assert asker.window("lab/m", ask=False) == 4096
    assert paths(model) == ["GET /v1/models"]
    assert asker.window("lab/other", ask=True) == 99
    assert [asker.window("hosted_vllm/none", ask=True) for _ in range(2)] == [None, None]
    assert paths(model) == ["GET /v1/models"] * 3  # that it does not tell is remembered too


def test_the_packaged_table_is_for_who_cannot_tell_and_not_for_local_servers(home: Home, model: ModelServer) -> None:
    asker = client(home, model)
    for ask in (True, False):
        assert asker.window("openai/gpt-4.1", ask=ask) == 1047576
        assert asker.window("anthropic/claude-opus-4-6", ask=ask)
        assert asker.window("echo", ask=ask) is None
    assert not model.asked
    assert load({}).providers.get("ollama")
    assert asker.window("ollama/llama3.1", ask=True) is None  # 8192 in the table
    elsewhere = client(home, model, OPENAI_BASE_URL=model.base_url, OPENAI_API_KEY="a-key")
    assert elsewhere.window("openai/gpt-4.1", ask=True) == 1047576
    model.pages["/v1/models"] = listing({"id": "gpt-4.1", "max_model_len": 4096})
    assert elsewhere.window("openai/gpt-4.1", ask=True) == 1047576
    again = client(home, model, OPENAI_BASE_URL=model.base_url, OPENAI_API_KEY="a-key")
    assert again.window("openai/gpt-4.1", ask=True) == 4096


# ---- servers that do not behave


def quickly(asker: Client, name: str = "lab/m") -> int | None:
    """The window, in time: generously, where a hang would be 10 s."""
    started = time.monotonic()
    window = asker.window(name, ask=True)
    assert time.monotonic() - started < 2
    return window


DRIP = tuple(step for _ in range(50) for step in (b" ", 0.2))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lab/m", "ollama/m"])
@pytest.mark.parametrize("steps", [(10.0,), DRIP, (b'{"data": [', 10.0)], ids=["stalls", "drips", "stops"])
@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_a_slow_server_is_not_waited_for(
    home: Home, model: ModelServer, name: str, steps: tuple[Any, ...], framing: str
) -> None:
    slow = Script(200, {}, steps, framing)
    model.pages = dict.fromkeys(["/v1/models", "/props", "/api/ps", "/api/show"], slow)
    assert quickly(client(home, model), name) is None
    assert len(model.asked) == 1  # one time for all of the requests, and none is tried again


def test_a_server_that_takes_connections_and_says_nothing(home: Home, model: ModelServer) -> None:
    model.delay = 10.0
    assert quickly(client(home, model)) is None


def test_a_head_that_drips(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            connection = listening.accept()[0]
            with connection, contextlib.suppress(OSError):
                for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}":
                    connection.send(bytes([byte]))
                    time.sleep(0.2)

        threading.Thread(target=drip, daemon=True).start()
        home.configure(f'[providers.lab]\nbase_url = "http://127.0.0.1:{listening.getsockname()[1]}"\n')
        assert quickly(Client(load({}, str(home.config)), {})) is None


def test_many_slow_answers_share_the_time(home: Home, model: ModelServer) -> None:
    slow = Script(404, {"Content-Length": "0"}, (), "as given")
    model.pages = dict.fromkeys(["/v1/models", "/props", "/api/show"], slow)
    model.pages["/api/v0/models"] = OLDER
    model.delay = 0.12
    assert quickly(client(home, model)) is None
    assert 2 <= len(model.asked) <= 3


@pytest.mark.parametrize("status", [301, 307, 401, 404, 500, 503])
def test_a_refusal_is_no_failure_and_no_redirect_is_followed(home: Home, model: ModelServer, status: int) -> None:
    elsewhere = ModelServer()
    headers = {"Location": f"{elsewhere.base_url}/models", "Retry-After": "0"}
    page = Script(status, headers, (json.dumps(listing({"id": "m", "max_model_len": 5})).encode(),), "length")
    model.pages = {"/v1/models": page}
    assert quickly(client(home, model)) is None
    assert paths(model).count("GET /v1/models") == 1
    assert not elsewhere.asked
    elsewhere.close()


def test_a_server_that_is_not_there_or_hangs_up(home: Home, model: ModelServer) -> None:
    for _ in range(5):
        model.hang_up()
    assert quickly(client(home, model)) is None
    model.close()
    assert quickly(client(home, model)) is None


def test_no_key_and_a_bad_proxy_are_no_failure_here(home: Home, model: ModelServer) -> None:
    assert quickly(client(home, model, 'api_key_env = "NO_SUCH_KEY"')) is None
    assert not model.asked
    home.configure('[providers.far]\nbase_url = "http://far.invalid/v1"\n')
    environ = {"HTTP_PROXY": "nonsense://x:y@"}
    assert quickly(Client(load(environ, str(home.config)), environ), "far/m") is None


BAD = [
    b"", b"<html>", b"[" * 100_000, b'{"data":' * 20_000, b"null", b"5", b'"text"', b"\xff\xfe", b"9" * 5000,
    b'{"data": [{"id": "m", "max_model_len": 1e999}]}', b'{"data": [{"id": "m", "max_model_len": NaN}]}',
]  # fmt: skip


@pytest.mark.parametrize("page", BAD, ids=range(len(BAD)))
def test_garbage_is_no_window(home: Home, model: ModelServer, page: bytes) -> None:
    model.pages = dict.fromkeys(
        ["/v1/models", "/props", "/api/ps", "/api/show", "/api/v1/models", "/api/v0/models"], page
    )
    for kind in (*BASES, "lab"):
        assert quickly(client(home, model), f"{kind}/m") is None


@pytest.mark.timeout(20)
@pytest.mark.parametrize("blank", ["\n", " ", "num_ctx ", "\r\n \t"])
def test_parameters_of_millions_of_blank_lines_take_no_time(blank: str) -> None:
    def shown(end: str) -> int | None:
        pages = {"http://x/api/show": {"parameters": blank * 2_000_000 + end}}
        return shown_by_ollama(Provider("ollama", base_url="http://x"), "m", lambda url, _body: pages.get(url)).num_ctx

    assert shown("x") is None
    assert shown("\n \tnum_ctx\t 16384 \r\n") == 16384


def test_a_probe_reads_four_megabytes_and_a_list_more(home: Home, model: ModelServer) -> None:
    model.pages["/v1/models"] = listing({"id": "m", "max_model_len": 5, "more": "x" * 5_000_000})
    asker = client(home, model)
    assert asker.window("lab/m", ask=True) is None
    assert quickly(asker, "hosted_vllm/m") is None
    provider = load({"OLLAMA_API_BASE": model.base_url}).providers.get("ollama")
    assert provider
    assert [entry["id"] for entry in asker.served_models(provider, 20)] == ["other", "m"]
    with pytest.raises(ConfigError):  # nobody's name, and a list that is too long to look for it
        asker.prepare(asker.named("m"), {})


@pytest.mark.parametrize("size", [True, 0, -5, 10**12, 10**400, 4096.5, "4096", [4096], {"n": 1}, None])
def test_what_is_no_size_is_no_window(size: object) -> None:
    assert listed_window({"max_model_len": size}) is None
    assert listed_window({"max_model_len": size, "context_length": 4096}) == 4096


KEYS = [
    "data", "models", "id", "key", "name", "model", "meta", "n_ctx", "max_model_len", "context_length", "top_provider",
    "loaded_instances", "config", "max_context_length", "loaded_context_length", "parameters", "model_info",
    "general.architecture", "m.context_length", "default_generation_settings",
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["m", "num_ctx 5", "m:latest", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(JSON, min_size=6, max_size=6), st.sampled_from([*BASES, "lab"]))
def test_no_document_breaks_the_asking(documents: list[Any], kind: str) -> None:
    served = iter(documents)
    window = ask_window(Provider(kind, base_url="http://x/v1"), "m", lambda _url, _body: next(served))
    assert window is None or (type(window) is int and window > 0)


# ---- the key


def test_the_key_goes_along_and_nowhere_else(home: Home, model: ModelServer, capfd: pytest.CaptureFixture[str]) -> None:
    headers = '[providers.lab.headers]\nx-team = "team-secret"\n'
    asker = client(home, model, f'api_key_env = "LAB_KEY"\n{headers}', LAB_KEY="sk-secret")
    model.pages["/v1/models"] = Script(401, {}, (b'{"error": "sk-secret is wrong"}',), "length")
    assert asker.window("lab/m", ask=True) is None
    assert asker.window("openrouter/other", ask=True) is None
    first, *_, last = model.asked
    assert (first.headers["authorization"], first.headers["x-team"]) == ("Bearer sk-secret", "team-secret")
    assert last.headers["authorization"] == "Bearer or-secret"
    assert all("secret" not in asked.path for asked in model.asked)
    assert capfd.readouterr() == ("", "")
