"""Self-hosted servers and routers: models that are loaded at the first question, names they lack, odd failures."""

import json
import time
from typing import Any

import pytest

from tests.support.home import Home, lab_config
from tests.support.ollama_server import Model, OllamaServer, last, line, ndjson
from tests.support.server import Hold, ModelServer, Script, answer, chunk, event
from tests.support.terminal import Terminal

# llama.cpp's own words
LOADING = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
NOT_FOUND = {
    "error": {"code": 400, "message": "model 'nope' not found", "type": "invalid_request_error"}
}
NOT_LOADED = {
    "error": {"code": 400, "message": "model is not loaded", "type": "invalid_request_error"}
}
UNTITLED = '[sessions]\ntitles = "off"\n'


def listed(state: str) -> dict[str, Any]:
    """The list of a llama.cpp router with one model in this state."""
    return {"object": "list", "data": [{"id": "m", "status": {"value": state}}, {"id": "n"}]}


def test_a_list_of_models_says_which_one_a_router_has_loaded(lab: Home, model: ModelServer) -> None:
    page = listed("loaded")
    page["data"][1] |= {
        "status": {"value": "unloaded"},
        "meta": {"size": 2_000_000_000, "n_ctx_train": 4096},
    }
    model.pages["/v1/models"] = page
    rows = json.loads(lab.run("--list-models", "-m", "lab/", "-o", "json").stdout)
    assert [(row["size"], row["loaded"]) for row in rows] == [(None, True), (2_000_000_000, False)]


# ---- a model that is loading


def test_a_server_that_loads_its_model_is_waited_for(lab: Home, model: ModelServer) -> None:
    for _ in range(5):  # more often than a failed request is repeated
        model.refuse(503, LOADING, {"Retry-After": "0.01"})
    assert lab.run("hi") == ("You said: hi\n", "", 0)
    assert len(model.requests) == 6


def test_it_is_waited_for_as_long_as_for_a_first_byte(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model, f"{UNTITLED}[network]\nfirst_byte_timeout = 0.3\n"))
    for _ in range(50):
        model.refuse(503, LOADING, {"Retry-After": "0.1"})
    begin = time.monotonic()
    run = home.run("hi")
    assert run.stdout == ""
    assert run.code == 1
    assert time.monotonic() - begin < 3
    assert run.stderr.startswith("gptsh: lab is loading m\n")


def test_the_deadline_ends_the_wait(lab: Home, model: ModelServer) -> None:
    for _ in range(50):
        model.refuse(503, LOADING, {"Retry-After": "0.1"})
    assert lab.run("--timeout", "0.3", "hi").code in (1, 124)
    assert len(model.requests) < 6


def test_a_window_is_asked_for_again_once_the_model_is_loaded(
    lab: Home, model: ModelServer
) -> None:
    model.pages["/v1/models"] = Script(503, {}, (json.dumps(LOADING).encode(),), "length")
    question = "word " * 3000
    assert lab.run(question).code == 0
    cache = lab.folder / ".cache" / "gptsh" / "servers.json"
    (entry,) = json.loads(cache.read_bytes()).values()
    assert "window" not in entry
    assert "failed" in entry


def test_a_pause_of_a_self_hosted_server_may_last_as_long_as_the_first_byte(
    home: Home, model: ModelServer
) -> None:
    pieces = answer("one ", "two")
    for limit, code in (("first_byte_timeout = 600", 0), ("idle_timeout = 0.2", 124)):
        home.configure(lab_config(model, f"{UNTITLED}[network]\nretries = 0\n{limit}\n"))
        model.script(*pieces[:2], 0.5, *pieces[2:])
        assert home.run("hi").code == code


def test_its_pauses_are_longer_than_those_of_others() -> None:
    from gptsh.config.settings import Network

    assert [Network().idle_seconds(is_self_hosted=own) for own in (True, False)] == [600, 120]
    assert [Network(idle_timeout=7).idle_seconds(is_self_hosted=own) for own in (True, False)] == [
        7,
        7,
    ]


@pytest.mark.slow
@pytest.mark.parametrize("state", ["loading", "downloading"])
def test_the_spinner_says_that_a_router_loads_the_model(
    lab: Home, model: ModelServer, state: str
) -> None:
    hold = Hold()
    model.pages["/v1/models"] = listed(state)
    model.script(hold, *answer("Here."))
    terminal = Terminal(lab, "hi")
    terminal.until(b"lab/m")
    terminal.until(f"lab is {state} m".encode())
    model.pages["/v1/models"] = listed("loaded")
    terminal.seen = b""
    terminal.until(b"lab/m")
    hold.set()
    terminal.until(rb"Here\.")
    assert terminal.close()[1] == 0


def test_the_spinner_says_that_a_server_is_loading(lab: Home, model: ModelServer) -> None:
    for _ in range(3):
        model.refuse(503, LOADING, {"Retry-After": "0.3"})
    terminal = Terminal(lab, "hi")
    terminal.until(rb"lab is loading m; again in 0\.3 s")
    assert terminal.close()[1] == 0


# ---- models that a server lacks

LACKING = {
    "a router without the model": (400, NOT_FOUND, "does not know 'm' (400): model 'nope' not found: check -m"),
    "a router that loads nothing by itself": (
        400, NOT_LOADED, "lab refused the request (400): model is not loaded: load it there, or start the server",
    ),
    "a model that Ollama no longer has": (
        404, {"error": "model \"m\" was retired on 2026-08-01"}, "lab no longer has 'm' (404): ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LACKING)
def test_a_model_that_a_server_lacks_is_one_clear_line(
    lab: Home, model: ModelServer, name: str
) -> None:
    status, body, wanted = LACKING[name]
    model.refuse(status, body)
    run = lab.run("hi")
    assert run.stdout == ""
    assert run.code == 1
    assert len(model.requests) == 1
    assert wanted in run.stderr.partition("\n")[0]


# ---- Ollama's cloud


@pytest.fixture
def ollama(home: Home) -> Any:
    """Ollama, with a model that its cloud runs."""
    server = OllamaServer()
    server.models["big:120b-cloud"] = Model(trained=131072)
    home.configure(f'[agents.default]\nmodel = "ollama/big:120b-cloud"\n{UNTITLED}')
    home.env["OLLAMA_API_BASE"] = server.root
    yield server
    server.close()


def test_a_model_of_ollamas_cloud_is_asked_for_no_window(home: Home, ollama: OllamaServer) -> None:
    assert home.run("word " * 3000).code == 0
    assert "options" not in ollama.chats[-1]
    assert "/api/ps" not in ollama.paths()


def test_an_error_in_a_line_under_200_is_the_failure(home: Home, ollama: OllamaServer) -> None:
    ollama.script(ndjson({"error": "an error was encountered while running the model"}))
    run = home.run("hi")
    assert run.stdout == ""
    assert run.code == 1
    assert "the provider reported: an error was encountered while running the model" in run.stderr
    ollama.answer(line("half "), {"error": "upstream is gone"}, last())
    run = home.run("hi")
    assert run.stdout == "half \n"
    assert run.code == 1
    assert "upstream is gone" in run.stderr


def test_without_a_login_the_way_to_one_is_named(home: Home, ollama: OllamaServer) -> None:
    ollama.pages["/api/chat"] = Script(401, {}, (b'{"error": "unauthorized"}',), "length")
    run = home.run("hi")
    assert run.code == 1
    assert "run ollama signin" in run.stderr


def test_at_ollamas_own_address_names_lack_the_ending(home: Home) -> None:
    home.env |= {"OLLAMA_API_BASE": "https://ollama.com", "OLLAMA_API_KEY": "k"}
    for name in ("big:120b-cloud", "big:120b"):
        run = home.run("-m", f"ollama/{name}", "--dry-run", "-o", "json", "hi")
        assert '"big:120b"' in run.stdout
        assert "https://ollama.com/api/chat" in run.stdout


# ---- OpenRouter's failures under 200


def in_chunks(payload: Any) -> list[bytes]:
    return [event(payload), event(b"[DONE]")]


ROUTED: dict[str, tuple[Any, str]] = {
    "an error": (
        {"id": "g", "error": {"code": 502, "message": "Upstream is gone"}},
        "Upstream is gone",
    ),
    "no choices and an error": (
        {"choices": None, "error": {"message": "No provider"}},
        "No provider",
    ),
    "no choices": ({"id": "g", "choices": None}, "the provider sent no answer"),
    "the reason error": (chunk({}, "error"), "the provider ended the answer with an error"),
}


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("name", ROUTED)
def test_a_failure_under_200_is_a_failure(
    home: Home, model: ModelServer, name: str, streams: bool
) -> None:
    payload, wanted = ROUTED[name]
    home.configure(lab_config(model, f"{UNTITLED}[network]\nretries = 0\n"))
    if streams:
        model.script(*in_chunks(payload))
    model.script(
        json.dumps(payload).encode(), headers={"Content-Type": "application/json"}, framing="length"
    )
    run = home.run(*([] if streams else ["--no-stream"]), "hi")
    assert run.stdout == ""
    assert run.code == 1
    assert wanted in run.stderr
    assert len(home.doc()["messages"]) == 1


def test_a_failure_before_any_answer_is_tried_again(lab: Home, model: ModelServer) -> None:
    model.script(event(chunk({}, "error")))
    assert lab.run("hi") == ("You said: hi\n", "", 0)
