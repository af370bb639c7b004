"""A model's window: from the config, servers of every kind, the packaged table; never late, never a failure."""

import json
import os
import re
import subprocess
import threading
import time
from datetime import date, timedelta
from typing import Any

import pytest

from tests.support.answers import json_output
from tests.support.home import Home, Result
from tests.support.hosted import Hosted
from tests.support.server import Hold, ModelServer, Script

BASES = ["OLLAMA", "LM_STUDIO", "LLAMAFILE", "HOSTED_VLLM"]
PAGES = ["/v1/models", "/props", "/api/ps", "/api/show", "/api/v1/models"]


@pytest.fixture
def served(home: Home, model: ModelServer) -> Home:
    """Every kind of server, and ``lab``, is the model server."""
    home.configure(f'[providers.lab]\nbase_url = "{model.base_url}"\n[network]\nretries = 0\n')
    home.env |= {f"{stem}_API_BASE": model.base_url for stem in BASES} | {
        "HOSTED_VLLM_API_KEY": "vllm-secret"
    }
    return home


def dry(home: Home, name: str, **environ: str) -> Result:
    """A run that has to know the window, since it may have to cut."""
    return home.run(
        "-m", name, "--dry-run", "--truncate", "tail", "-o", "json", "hi", stdin="text", env=environ
    )


def window(home: Home, name: str = "lab/m", **environ: str) -> int | None:
    """The window that a run finds; None where it goes on without."""
    run = dry(home, name, **environ)
    if "the window" in run.stderr and run.code == 2:
        return None
    assert run.code == 0
    assert run.stderr == ""
    found: int = json_output(run)["context"]["window"]
    return found


def listing(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": "other", "max_model_len": 99}, *entries]}


def vllm(tokens: Any, ident: str = "m") -> dict[str, Any]:
    return listing({"id": ident, "max_model_len": tokens})


# ---- every kind of server

SHOWN = {
    "parameters": 'stop                           "<|eot|>"\nnum_ctx                        16384\ntemperature 0.6',
    "model_info": {
        "general.architecture": "llama",
        "llama.context_length": 131072,
        "llama.embedding_length": 4096,
    },
}
TRAINED = {**SHOWN, "parameters": 'stop "num_ctx 5"'}
RUNNING = {
    "models": [
        {"name": "other:latest", "context_length": 99},
        {"model": "m:latest", "context_length": 8192},
    ]
}
LM_STUDIO = {"models": [{"key": "other", "loaded_instances": [{"id": "other", "config": {"context_length": 99}}]},
                        {"key": "m", "loaded_instances": [{"id": "m", "config": {"context_length": 4096}}]},
                        {"key": "idle", "max_context_length": 32768, "loaded_instances": []}]}  # fmt: skip
PROPS = {"default_generation_settings": {"n_ctx": 2048}}


@pytest.mark.parametrize(
    ("name", "pages", "expected"),
    [
        ("ollama/m", {"/api/ps": RUNNING, "/api/show": SHOWN}, 131072),
        ("ollama/m:latest", {"/api/show": {"parameters": SHOWN["parameters"]}}, 16384),
        ("ollama/m", {"/api/show": TRAINED}, 131072),
        ("llamafile/any", {"/v1/models": {"data": [{"id": "/models/m.gguf", "meta": {"n_ctx": 4096}}]}}, 4096),
        ("llamafile/any", {"/v1/models": {"data": [{"id": "m", "meta": {"n_ctx_train": 9}}]}, "/props": PROPS}, 2048),
        ("hosted_vllm/m", {"/v1/models": vllm(32768)}, 32768),
        ("hosted_vllm/m", {"/v1/models": vllm(500, "n")}, None),
        ("lm_studio/m", {"/api/v1/models": LM_STUDIO}, 4096),
        ("lm_studio/idle", {"/api/v1/models": LM_STUDIO}, 32768),
        ("lab/m", {"/v1/models": vllm(4096)}, 4096),
        ("lab/m", {"/v1/models": listing({"id": "m"}), "/props": PROPS}, 2048),
        ("lab/m", {"/api/ps": RUNNING, "/api/show": SHOWN}, 8192),
        ("lab/m", {}, None),
        *(("lab/m", {"/v1/models": vllm(size)}, None) for size in (True, 0, -5, 10**400, 4096.5, "4096", [4096], None)),
    ],
)  # fmt: skip
def test_a_server_is_asked_in_its_own_way(
    served: Home, model: ModelServer, name: str, pages: dict[str, Any], expected: int | None
) -> None:
    model.pages = pages
    assert window(served, name) == expected
    assert all(body in (None, {"model": name.partition("/")[2]}) for body in model.sent)


# ---- which source counts, and how often a server is asked


def test_the_config_comes_first_and_then_nobody_is_asked(served: Home, model: ModelServer) -> None:
    model.pages["/v1/models"] = vllm(4096)
    served.configure(
        served.config.read_text().replace("[network]", "context_window = 1234\n[network]")
    )
    assert window(served) == 1234
    assert not model.requests


@pytest.mark.parametrize(
    ("name", "pages", "expected"),
    [
        ("openai/gpt-4.1", {}, 1047576),
        ("openai/gpt-4.1", {"/v1/models": vllm(4096, "gpt-4.1")}, 4096),
        (
            "ollama/llama3.1",
            {},
            None,
        ),  # 8,192 in the table, which tells nothing of a self-hosted server
    ],
)
def test_the_packaged_table_is_for_who_cannot_tell(
    served: Home, model: ModelServer, name: str, pages: dict[str, Any], expected: int | None
) -> None:
    model.pages = pages
    own = {"OPENAI_BASE_URL": model.base_url} if pages else {}
    assert window(served, name, OPENAI_API_KEY="k", **own) == expected


# ---- models that the packaged table lacks

KEYS = {
    f"{stem}_API_KEY": "k"
    for stem in ("ANTHROPIC", "GEMINI", "MISTRAL", "XAI", "GROQ", "OPENROUTER")
}
RELATIVES: dict[str, int | None] = {
    "openai/gpt-6.2-sol": 922000,
    "openai/gpt-6.9-unheard-of": 922000,
    "openai/gpt-4.9": 272000,  # of gpt-5, which is nearer than gpt-4.1
    "openai/unheard-of": None,
    "anthropic/claude-opus-5-6": 1000000,
    "anthropic/claude-haiku-6-20270101": 1000000,
    "anthropic/claude-unheard-6": 200000,  # by the table's rule for Claude
    "gemini/gemini-4-neon": 1048576,
    "xai/grok-4.8": 500000,
    "mistral/mistral-large-9": 1048576,
    "groq/new/llama-9": None,
    "openrouter/anthropic/claude-sonnet-5.6": 1000000,
    "openrouter/x-ai/grok-4.7": 500000,  # the smallest at any provider
    "openrouter/new/m": None,
}


@pytest.mark.parametrize("name", RELATIVES)
def test_a_model_that_the_table_lacks_has_the_window_of_its_nearest_relative(
    home: Home, name: str
) -> None:
    run = home.run("-m", name, "--dry-run", "hi", env={**KEYS, "OPENAI_API_KEY": "k"})
    window = RELATIVES[name]
    shown = f"{window:,} tokens" if window else "unknown"
    assert run.code == 0
    assert re.findall("(?m)^window +(.*)$", run.stdout) == [shown]


@pytest.mark.parametrize(
    "name", ["openai/gpt-6.2-sol", "anthropic/claude-opus-9-9", "openrouter/new/m", "groq/new/m"]
)
def test_no_hosted_provider_is_asked_for_a_window(
    hosted: Home, model: ModelServer, name: str
) -> None:
    dry(hosted, name, **KEYS)
    hosted.run("-m", name, "--dry-run", stdin="a word " * 4000, env=KEYS)
    assert model.requests == []


def test_a_self_hosted_server_has_no_relatives(served: Home, model: ModelServer) -> None:
    own = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "k"}
    assert window(served, "openai/gpt-6.3-astra", **own) is None


# ---- the end of a model


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (60, " will be retired on {}"),
        (0, " will be retired on {}"),
        (-5, " was due to be retired on {}"),
        (61, None),
        (-61, None),
    ],
)
def test_the_end_of_a_model_in_the_table_is_said_once_a_day(
    home: Home, model: ModelServer, days: int, said: str | None
) -> None:
    vendor = Hosted(model, home.folder)
    package = home.folder / "lib" / "litellm"
    package.mkdir(parents=True)
    end = (date.today() + timedelta(days=days)).isoformat()
    entry = {"litellm_provider": "openai", "mode": "chat", "deprecation_date": end}
    (package / "__init__.py").touch()
    (package / "model_prices_and_context_window_backup.json").write_text(
        json.dumps({"gpt-4.9": entry})
    )
    home.env |= {**vendor.env, "PYTHONPATH": f"{package.parent}:{home.env['PYTHONPATH']}"}
    runs = [home.process("--title", "t", "-m", "openai/gpt-4.9", "hi").stderr for _ in range(2)]
    vendor.close()
    assert runs == [
        f"gptsh: openai/gpt-4.9{said.format(end)}; choose another model with -m\n" if said else "",
        "",
    ]


def test_a_self_hosted_server_ends_no_models(served: Home) -> None:
    own = {"OPENAI_BASE_URL": served.env["OLLAMA_API_BASE"], "OPENAI_API_KEY": "k"}
    assert served.run("-m", "openai/gpt-4.1", "hi", env=own).stderr == ""


# ---- what a server reported is kept for a day


def long(home: Home, name: str = "lab/m") -> Any:
    """The window that a long prompt finds; the model is asked."""
    run = home.run("-m", name, "-o", "json", "a word " * 4000)
    assert run.code == 0
    return json_output(run)["context"]["window"]


@pytest.mark.parametrize(
    ("name", "pages", "found"),
    [("lab/m", vllm(20000), 20000), ("lab/m", {}, None), ("hosted_vllm/m", vllm(20000), 20000)],
)  # fmt: skip
def test_a_second_prompt_sends_no_probe_and_a_dry_run_keeps_nothing(
    served: Home, model: ModelServer, name: str, pages: dict[str, Any], found: int | None
) -> None:
    model.pages = {"/v1/models": pages}
    served.run("-m", name, "--dry-run", "a word " * 4000)
    assert model.requests
    assert not (served.folder / ".cache").exists()
    assert long(served, name) == found
    model.requests.clear()
    assert long(served, name) == found
    assert {asked.path for asked in model.requests} == {"/v1/chat/completions"}


def test_after_a_day_a_server_is_asked_again(served: Home, model: ModelServer) -> None:
    model.pages = {"/v1/models": vllm(15000)}
    assert long(served) == 15000
    model.pages = {"/v1/models": vllm(20000)}
    assert long(served) == 15000
    kept = served.folder / ".cache" / "gptsh" / "servers.json"
    leftover = kept.with_name(f"{kept.name}.1.abcdef.tmp")  # of a process that was killed
    leftover.touch()
    os.utime(leftover, (0, 0))
    known = json.loads(kept.read_text())
    kept.write_text(
        json.dumps({place: {**entry, "at": entry["at"] - 86_401} for place, entry in known.items()})
    )
    assert long(served) == 20000
    assert not leftover.exists()


@pytest.mark.parametrize("kept", ["", "[]", '{"x": 7}', '{"x": {}}'])
def test_a_spoilt_cache_is_none(served: Home, model: ModelServer, kept: str) -> None:
    folder = served.folder / ".cache" / "gptsh"
    folder.mkdir(parents=True)
    (folder / "servers.json").write_text(kept)
    assert window(served) is None
    assert served.run("-m", "lab/m", "hi").code == 0


def test_a_local_server_that_needs_longer_for_its_list_is_waited_for_once(
    served: Home, model: ModelServer
) -> None:
    slow = Script(200, {}, (0.5, json.dumps({**vllm(20000), **SHOWN}).encode()), "chunked")
    model.pages = {"/v1/models": slow, "/api/show": slow}
    assert window(served, "ollama/m") == 131072
    assert long(served) == 20000
    model.pages.clear()
    model.requests.clear()
    assert long(served) == 20000
    assert {asked.path for asked in model.requests} == {"/v1/chat/completions"}


def test_a_short_prompt_asks_no_server_for_its_window_however_slowly_it_comes(
    served: Home, model: ModelServer
) -> None:
    process = served.start("-m", "lab/m", stdin=subprocess.PIPE)
    process.stdin.write(b"a word " * 100)
    process.stdin.flush()
    time.sleep(0.3)
    process.communicate(b"a word " * 100)
    assert {asked.path for asked in model.requests} == {"/v1/chat/completions"}


def test_the_window_is_asked_for_beside_the_reading_of_a_long_pipe(
    served: Home, model: ModelServer
) -> None:
    hold = Hold()
    model.pages["/v1/models"] = Script(200, {}, (hold, json.dumps(vllm(20000)).encode()), "chunked")
    process = served.start("-m", "lab/m", "-o", "json", stdin=subprocess.PIPE)
    process.stdin.write(b"a word " * 2000)
    process.stdin.flush()
    assert hold.reached.wait(20)
    hold.set()
    out, _ = process.communicate(b"the end")
    assert json.loads(out)["context"]["window"] == 20000
    assert [asked.path for asked in model.requests[:2]] == ["/v1/models", "/v1/chat/completions"]
    assert model.sent[1]["messages"][0]["content"].endswith("the end")


@pytest.mark.slow
def test_a_reply_that_comes_too_late_is_asked_for_again(served: Home, model: ModelServer) -> None:
    model.pages["/v1/models"] = Script(200, {}, (2.5, json.dumps(vllm(20000)).encode()), "chunked")
    assert long(served) is None
    model.pages["/v1/models"] = vllm(20000)
    model.requests.clear()
    assert long(served) is None
    assert {asked.path for asked in model.requests} == {"/v1/chat/completions"}
    kept = served.folder / ".cache" / "gptsh" / "servers.json"
    known = json.loads(kept.read_text())
    kept.write_text(
        json.dumps(
            {key: {**entry, "failed": entry["failed"] - 301} for key, entry in known.items()}
        )
    )
    assert long(served) == 20000


def test_a_remote_server_may_take_its_time(home: Home, model: ModelServer) -> None:
    remote = model.base_url.replace("127.0.0.1", "0.0.0.0")
    home.configure(f'[providers.lab]\nbase_url = "{remote}"\n')
    model.pages["/v1/models"] = Script(200, {}, (0.5, json.dumps(vllm(700)).encode()), "chunked")
    assert window(home) == 700


# ---- servers that do not behave

GARBAGE = [b"", b"<html>", b"[" * 100_000, b"null", b"\xff\xfe", b'{"data": [{"id": "m", "max_model_len": 1e999}]}',
           b'{"data": [' + b'{"id": "m", "max_model_len": 5, "x": "' + b"x" * 5_000_000 + b'"}]}']  # fmt: skip
AMISS: dict[str, Any] = {
    **{repr(page[:20]): page for page in GARBAGE},
    "hangs up": Script(0, {}, (), "length"),
    **{str(status): Script(status, {"Retry-After": "0"}, (json.dumps(vllm(500)).encode(),), "length")
       for status in (401, 503)},
}  # fmt: skip


@pytest.mark.parametrize("how", AMISS)
def test_what_a_server_answers_amiss_is_no_window_and_no_failure(
    served: Home, model: ModelServer, how: str
) -> None:
    model.pages = dict.fromkeys(PAGES, AMISS[how])
    for kind in ("lm_studio", "lab"):
        assert window(served, f"{kind}/m") is None
    assert [asked.path for asked in model.requests].count("/v1/models") <= 2  # none is tried again
    model.close()
    assert window(served) is None


LATE = json.dumps({**vllm(500), **TRAINED}).encode()  # who waits for it finds a window in it


@pytest.mark.parametrize(
    "way", ["stalls", *(pytest.param(way, marks=pytest.mark.slow) for way in ("stops", "drips"))]
)
def test_a_slow_server_is_not_waited_for(served: Home, model: ModelServer, way: str) -> None:
    release = threading.Event()
    drip = tuple(step for _ in range(50) for step in (b" ", 0.2))
    steps = {
        "stalls": (release, LATE),
        "stops": (LATE[:20], release, LATE[20:]),
        "drips": (*drip, LATE),
    }[way]
    model.pages = dict.fromkeys(PAGES, Script(200, {}, steps, "chunked"))
    found = window(served)
    release.set()
    assert found is None
    assert len(model.requests) == 1  # one time for all of the requests, and none is tried again


def test_no_redirect_is_followed(served: Home, model: ModelServer) -> None:
    elsewhere = ModelServer()
    model.pages = {
        "/v1/models": Script(301, {"Location": f"{elsewhere.base_url}/models"}, (), "length")
    }
    assert window(served) is None
    assert elsewhere.requests == []
    elsewhere.close()


def test_the_key_goes_along_and_nowhere_else(served: Home, model: ModelServer) -> None:
    keyed = 'api_key_env = "LAB_KEY"\n[providers.lab.headers]\nx-team = "team-secret"\n[network]'
    served.configure(served.config.read_text().replace("[network]", keyed))
    model.pages["/v1/models"] = Script(401, {}, (b'{"error": "sk-secret is wrong"}',), "length")
    first_run = dry(served, "lab/m", LAB_KEY="sk-secret")
    second_run = dry(served, "hosted_vllm/other")
    first, *_, last = model.requests
    assert first.headers["authorization"] == "Bearer sk-secret"
    assert first.headers["x-team"] == "team-secret"
    assert last.headers["authorization"] == "Bearer vllm-secret"
    assert all("secret" not in asked.path for asked in model.requests)
    assert all("secret" not in run.stdout + run.stderr for run in (first_run, second_run))
