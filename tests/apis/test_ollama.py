"""The api of Ollama's own API: what goes out, what comes back, and that a model is not loaded twice."""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.attached import make_png
from tests.support.completion import completions
from tests.support.dry import dry_run
from tests.support.home import Home
from tests.support.messages import parts
from tests.support.ollama_server import Model, OllamaServer, last, line
from tests.support.paths import DATA

DATA = DATA / "ollama"
NO_TITLES = '[sessions]\ntitles = "off"\n'


@pytest.fixture
def server() -> Iterator[OllamaServer]:
    """An Ollama of the test's own, which has the model ``m``."""
    served = OllamaServer()
    yield served
    served.close()


@pytest.fixture
def here(home: Home, server: OllamaServer) -> Home:
    """A home whose Ollama is that server, and whose model is ``m``; no titles."""
    home.env |= {"OLLAMA_API_BASE": server.root, "GPTSH_MODEL": "ollama/m"}
    home.configure(NO_TITLES)
    return home


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_a_base_with_or_without_v1_is_the_same_server(
    home: Home, server: OllamaServer, end: str
) -> None:
    home.configure(NO_TITLES)
    run = home.run("-m", "ollama/m", "hi", env={"OLLAMA_API_BASE": server.root + end})
    assert run == ("You said: hi\n", "", 0)
    home.configure(f'[providers.ollama]\nbase_url = "{server.root}{end}"\n{NO_TITLES}')
    assert home.run("-m", "ollama/m", "again") == ("You said: again\n", "", 0)
    assert set(server.paths()) == {"/api/ps", "/api/chat"}


def test_a_key_goes_as_a_bearer_with_every_request(here: Home, server: OllamaServer) -> None:
    run = here.run("hi " * 3000, env={"OLLAMA_API_KEY": "sk-of-ollama"})
    assert run.code == 0
    assert {asked.path for asked in server.requests} == {"/api/show", "/api/ps", "/api/chat"}
    assert {asked.headers["authorization"] for asked in server.requests} == {"Bearer sk-of-ollama"}
    assert "sk-of" not in run.stderr + json.dumps(here.doc())


def test_its_models_are_listed_and_a_bare_name_of_one_is_its(
    here: Home, server: OllamaServer
) -> None:
    server.models["qwen3:8b"] = Model()
    listed = [
        json.loads(each) for each in here.run("--list-models", "-o", "jsonl").stdout.splitlines()
    ]
    of_it = {
        entry["model"]: entry["api"] for entry in listed if entry["model"].startswith("ollama/")
    }
    assert of_it == {"ollama/m:latest": "ollama", "ollama/qwen3:8b": "ollama"}
    assert here.run("-m", "qwen3:8b", "hi").code == 0
    assert server.chats[-1]["model"] == "qwen3:8b"


def test_a_list_says_how_large_a_model_is_and_whether_it_is_loaded(
    here: Home, server: OllamaServer
) -> None:
    server.models["qwen3:8b"] = Model(size=5_200_000_000)
    here.run("hi")
    lines = here.run("--list-models", "-m", "ollama/").stdout.splitlines()
    assert [re.split(" {2,}", line)[-1] for line in lines] == ["4.9 GB, loaded", "5.2 GB"]
    rows = json.loads(here.run("--list-models", "-m", "ollama/", "-o", "json").stdout)
    assert [(row["size"], row["loaded"]) for row in rows] == [
        (4_900_000_000, True),
        (5_200_000_000, False),
    ]


def test_tab_offers_what_the_server_has_and_asks_once_a_minute(
    here: Home, server: OllamaServer
) -> None:
    server.models["qwen3:8b"] = Model()
    for _ in range(2):
        assert completions(here, "gptsh -m ollama/q") == ["ollama/qwen3:8b"]
    assert server.paths() == ["/v1/models"]
    cache = here.folder / ".cache" / "gptsh" / "servers.json"
    cache.write_text(re.sub(r'("offered": ?\[\[.*?\]), ?[0-9.]+', r"\1,0", cache.read_text()))
    server.models["qwen4"] = Model()
    assert completions(here, "gptsh -m ollama/qwen4") == ["ollama/qwen4"]
    assert completions(here, "gptsh -m openai/gpt-4") == []
    assert (
        completions(here, "gptsh -m ollama/", '[providers.ollama]\napi_key_command = "touch ran"\n')
        == []
    )
    assert not (here.cwd / "ran").exists()


PNG, JPEG = (base64.b64encode(data).decode() for data in (b"\x89PNG\r\n", b"\xff\xd8\xff"))
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"at":"x"}'},
    "extra": 1,
}
ASKED = {"role": "user", "content": "q"}
URL = "data:image/png;base64,"
OF_M = {"provider": "ollama", "model": "ollama/m"}


def test_messages_lose_what_is_ours_or_anothers(home: Home) -> None:
    ours = {
        "id": "1",
        "parent": None,
        "timestamp": "t",
        "estimated": 3,
        "usage": None,
        "provider": "groq",
    }
    parts = [{"type": "text", "text": "q"}, {"type": "text", "text": "log\n", "source": "stdin"},
             {"type": "text", "text": "n", "source": "a.txt"}]  # fmt: skip
    said = {"role": "assistant", "content": "so", "thinking": [{"type": "thinking", "thinking": "hm"}],
            "replay": {"thinking": "hm"}, "refusal": " no"}  # fmt: skip
    asked = [{"role": "user", "content": parts, **ours}, {**said, **ours, "id": "2"}]
    assert dry_run(home, "ollama/m", *asked, args=["--system", "Brief."]).messages == [
        {"role": "system", "content": "Brief."},
        {"role": "user", "content": "q\n\nlog\n\n\na.txt:\nn"},
        {"role": "assistant", "content": "so no"},
        {"role": "user", "content": "and now?"},
    ]


def test_images_go_beside_the_text_and_what_is_not_taken_is_said(home: Home) -> None:
    content = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": URL + PNG}, "source": "a.png"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": JPEG}},
        {"type": "document", "source": {"type": "text", "data": "the text"}, "title": "T"},
        {"type": "hologram", "x": 1},
    ]
    got = dry_run(
        home,
        "ollama/m",
        {"role": "user", "content": content},
        {"role": "assistant", "content": "a"},
    ).messages[0]
    assert got["images"] == [PNG, JPEG]
    assert (
        got["content"]
        == "look\n\nT:\nthe text\n\n[gptsh: hologram, not sent: Ollama accepts text and images]"
    )


def test_a_tools_result_has_its_name_its_texts_on_lines_and_its_image(home: Home) -> None:
    turn = [
        ASKED,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [CALL],
            "replay": {"thinking": "hm"},
            **OF_M,
        },
    ]
    picture = {"type": "image_url", "image_url": {"url": URL + PNG}}
    result = {"role": "tool", "tool_call_id": "c1", "content": [*parts("seen", "twice"), picture]}
    _, call, got, _ = dry_run(home, "ollama/m", *turn, result).messages
    assert call["tool_calls"] == [
        {"id": "c1", "function": {"name": "look", "arguments": {"at": "x"}}}
    ]
    assert "thinking" not in call  # a question was asked since
    assert got == {
        "role": "tool",
        "content": "seen\ntwice",
        "images": [PNG],
        "tool_name": "look",
        "tool_call_id": "c1",
    }


def run_of(home: Home, server: OllamaServer, name: str) -> Any:
    server.script(
        (DATA / f"{name}.ndjson").read_bytes(), headers={"Content-Type": "application/x-ndjson"}
    )
    return home.run("--reasoning", "hi")


NOT_OFFERED = "gptsh: the model called a tool that was not offered, so it did not run: "


@pytest.mark.parametrize(
    ("name", "stdout", "told", "message"),
    [
        ("thinking", "It is 4.\n", (0, "Two and two.\n"),
         {"content": "It is 4.", "replay": {"thinking": "Two and two."}, "finish_reason": "stop"}),
        ("calls", "I will look.\n", (0, f"{NOT_OFFERED}list_files, read_file\n"),
         {"content": "I will look.", "finish_reason": "tool_calls"}),
        ("error", "It is\n", (1, "the provider reported: an error was encountered while running the model: CUDA"),
         {"content": "It is", "finish_reason": "error", "usage": None}),
        ("length", "One, two,\n", (5, "incomplete: cut by the token limit .length."), {"finish_reason": "length"}),
        ("load", "", (1, "returned an empty answer"), {"content": "", "finish_reason": "load", "usage": None}),
        ("unicode", "a\u2028b\u0085c\u2029€ 😀 ﷽\r\nend\n", (0, ""), {"finish_reason": "stop"}),
        ("no_done", "It is\n", (1, "the stream ended before the answer was complete"), {"finish_reason": "error"}),
        ("garbage", "It is\n", (1, "the response is not JSON: "), {"content": "It is", "finish_reason": "error"}),
        ("too_long", "", (6, "the provider reported: the input length exceeds the context length"), None),
    ],
)  # fmt: skip
def test_an_answer_as_it_comes(
    here: Home, server: OllamaServer, name: str, stdout: str, told: tuple[int, str], message: Any
) -> None:
    run, (code, stderr) = run_of(here, server, name), told
    assert run.stdout == stdout
    assert run.code == code
    assert re.search(stderr, run.stderr) if code else run.stderr == stderr
    assert run.stderr.count("\n") <= 2
    messages = here.doc()["messages"]
    assert len(messages) == (1 if message is None else 2)
    kept = messages[-1]
    assert {key: kept.get(key) for key in message or ()} == (message or {})


def test_what_was_used(here: Home, server: OllamaServer) -> None:
    run_of(here, server, "thinking")
    usage = here.doc()["messages"][1]["usage"]
    assert usage["prompt"] == 26
    assert usage["completion"] == 12
    assert usage["total"] == 38
    assert usage["cached_tokens"] is None
    assert usage["raw"]["load_duration"]


def test_calls_of_tools_in_openais_shape_each_with_an_id(here: Home, server: OllamaServer) -> None:
    run_of(here, server, "calls")
    first, second = here.doc()["messages"][1]["tool_calls"]
    assert first["function"] == {"name": "list_files", "arguments": '{"path": "/tmp", "all": true}'}
    assert second["function"] == {"name": "read_file", "arguments": '{"path": "ä.txt"}'}
    assert first["id"] != second["id"]
    assert here.run("-s", "0", "and?").code == 0  # both come back, with a result each
    assert [message["role"] for message in server.chats[-1]["messages"]][1:] == [
        "assistant",
        "tool",
        "tool",
        "user",
    ]
    assert server.chats[-1]["messages"][2]["tool_name"] == "list_files"


def test_an_answer_in_one_piece(here: Home, server: OllamaServer) -> None:
    whole = {**last(), "message": {"content": "x", "thinking": "hm"}}
    server.script(
        json.dumps(whole).encode(), framing="length", headers={"Content-Type": "application/json"}
    )
    assert here.run("--no-stream", "--reasoning", "hi") == (
        "x\n",
        "hm\n",
        0,
    )  # no newline at its end
    assert server.chats[0]["stream"] is False
    assert here.doc()["messages"][1]["finish_reason"] == "stop"


def test_a_model_that_is_not_there_can_be_pulled(here: Home) -> None:
    run = here.run("-m", "ollama/qwen9", "hi")
    assert run.stdout == ""
    assert run.code == 1
    assert (
        "does not know 'qwen9' (404): model 'qwen9' not found: run ollama pull qwen9, or choose another model with -m\n"
        in run.stderr
    )


def test_a_prompt_that_does_not_fit_is_refused_and_not_cut(
    here: Home, server: OllamaServer
) -> None:
    here.configure(f"[providers.ollama]\ncontext_window = 9000\n{NO_TITLES}")
    server.models["m:latest"] = Model(trained=512)  # less than the config says
    run = here.run("hello " * 1500)
    assert run.stdout == ""
    assert run.code == 6
    assert (
        "the prompt is too long for ollama: the prompt is longer than the context length"
        in run.stderr
    )
    assert server.chats[0]["truncate"] is server.chats[0]["shift"] is False
    assert len(here.doc()["messages"]) == 1


def test_what_cannot_fit_is_not_sent(here: Home, server: OllamaServer) -> None:
    server.models["m:latest"] = Model(trained=4096)
    run = here.run("hello " * 5000)
    assert run.stdout == ""
    assert run.code == 6
    assert "the window has room for 3,072" in run.stderr
    assert server.paths() == ["/api/show"]


def test_a_model_that_does_not_think_is_asked_without_and_nothing_is_lost(
    here: Home, server: OllamaServer
) -> None:
    server.models["m:latest"] = Model(abilities=("completion",))
    note = "gptsh: ollama/m does not support reasoning_effort; ignored\n"
    assert here.run("-p", "reasoning_effort=high", "hi") == ("You said: hi\n", note, 0)
    assert [body.get("think") for body in server.chats] == ["high", None]
    assert [body["messages"] for body in server.chats] == [server.chats[0]["messages"]] * 2
    assert server.paths() == ["/api/ps", "/api/chat", "/api/chat", "/api/ps"]


def test_a_schema_goes_as_format_and_in_words(here: Home, server: OllamaServer) -> None:
    server.answer(line("7"), last())
    assert here.run("--schema", '{"type": "integer"}', "a number") == ("7\n", "", 0)
    body = server.chats[0]
    assert body["format"] == {"type": "integer"}
    assert '"integer"' in body["messages"][0]["content"]


@pytest.mark.parametrize(
    ("words", "formats"),
    [
        ("invalid JSON schema in format", [True, False]),
        ('invalid format: "{}"; expected "json" or a valid JSON Schema object', [True, False]),
        ("failed to load model vocabulary required for format", [True, False]),
        (
            "json: cannot unmarshal object into Go struct field ChatRequest.format of type string",
            [True, False],
        ),
        ("Failed to create new sequence: failed to process inputs: image: unknown format", [True]),
    ],
)
def test_only_a_refusal_of_the_schema_is_followed_by_a_request_without_it(
    here: Home, server: OllamaServer, words: str, formats: list[bool]
) -> None:
    server.refuse(400, {"error": words})
    server.answer(line("7"), last())
    assert here.run("--schema", '{"type": "integer"}', "a number").code == len(formats) % 2
    assert ["format" in body for body in server.chats] == formats


TOOL = {"type": "function", "function": {"name": "x", "parameters": {"type": "object"}}}


def windows_of(server: OllamaServer) -> list[int | None]:
    return [body.get("options", {}).get("num_ctx") for body in server.chats]


LONG = "hello " * 3000  # which needs a window larger than Ollama's own


@pytest.mark.parametrize(
    ("entry", "args", "window", "asked"),
    [
        (Model(), ["hello"], None, ["ps", "chat", "ps"]),
        (Model(), [LONG], 8192, ["chat", "ps", "show"]),
        (Model(), ["-p", "max_tokens=30000", "hello"], 32768, ["chat", "ps", "show"]),
        (Model(num_ctx=16384), [LONG], 16384, ["chat", "ps", "show"]),
        (Model(trained=6000), [LONG], 6000, ["chat", "ps", "show"]),
        (Model(), ["-p", "num_ctx=6000", "hello"], 6000, ["chat"]),
    ],
    ids=["small", "large", "a long answer", "of its file", "all of it", "what the user says"],
)
def test_the_window_that_is_asked_for(
    here: Home, server: OllamaServer, entry: Model, args: list[str], window: int, asked: list[str]
) -> None:
    server.models["m:latest"] = entry
    assert here.run(*args).code == 0
    assert windows_of(server) == [window]
    assert sorted(path.rpartition("/")[2] for path in server.paths()) == sorted(asked)
    assert len(server.loads) == 1


def test_the_window_of_a_loaded_model_is_asked_for_if_it_is_large_enough(
    here: Home, server: OllamaServer
) -> None:
    server.models["m:latest"] = Model()
    server.loaded["m:latest"] = {"num_ctx": 20000, "shift": False}
    assert here.run(LONG).code == 0
    assert windows_of(server) == [20000]
    assert len(server.paths()) == 3
    assert server.loads == []


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("num_ctx=abc", 'ollama failed (500): option "num_ctx" must be of type integer'),
        (
            f"tools={json.dumps([TOOL])}",
            "m does not support tools (400): registry.ollama.ai/library/m:latest does not support",
        ),
    ],
)
def test_a_refusal_is_one_request_and_one_line(
    here: Home, server: OllamaServer, option: str, line: str
) -> None:
    server.models["m:latest"] = Model(abilities=("completion",))
    run = here.run("-p", option, "hi")
    assert run.stdout == ""
    assert run.code == 1
    assert run.stderr.startswith(f"gptsh: {line}")
    assert run.stderr.count("\n") == 2  # the second says how to go on
    assert len(server.chats) == 1


def test_a_session_of_several_turns_loads_its_model_once(here: Home, server: OllamaServer) -> None:
    here.configure("")
    for at in range(4):
        assert here.run(*(["-s", "0"] if at else []), f"question {at}").code == 0
    assert server.loads == [("m:latest", 4096)]
    assert windows_of(server) == [None, 4096, 4096, 4096]
    assert server.paths()[:3] == ["/api/ps", "/api/chat", "/api/ps"]
    assert set(server.paths()[3:]) == {"/api/chat"}  # a second prompt sends no probe


@pytest.mark.slow
def test_a_model_loaded_meanwhile_by_others_keeps_its_window(
    here: Home, server: OllamaServer
) -> None:
    assert here.run("hi").code == 0
    (cache,) = here.folder.rglob("servers.json")
    entries = json.loads(cache.read_bytes())
    for entry in entries.values():
        entry["loaded"][1] -= 3600
    cache.write_text(json.dumps(entries))
    server.loaded["m:latest"] = {"num_ctx": 20000, "shift": False}
    assert here.run("hello " * 3000).code == 0
    assert windows_of(server) == [None, 20000]


def test_an_answer_that_fills_the_window_says_so_and_the_next_gets_a_larger_one(
    here: Home, server: OllamaServer
) -> None:
    for prompt, completion in ((11, 4085), (30, 8161)):
        server.answer(line(thinking="hm "), last("length", prompt=prompt, completion=completion))
    run = here.run("why")
    full = "gptsh: the answer is incomplete: the window of 4,096 tokens is full (length): -p num_ctx=N, "
    advice = f"or context_window under [providers.ollama] in {here.config}, asks for a larger one"
    assert run.code == 5
    assert full + advice in run.stderr.splitlines()
    assert "the window of 8,192 tokens is full" in here.run("-s", "0", "go on").stderr
    assert here.run("-s", "0", "go on").code == 0
    assert server.loads == [("m:latest", 4096), ("m:latest", 8192), ("m:latest", 16384)]


def test_whether_a_model_takes_images_the_server_says(here: Home, server: OllamaServer) -> None:
    for abilities, takes in (
        (("completion", "vision"), True),
        (("completion",), False),
        (None, True),
    ):
        name = f"m{len(server.models)}"
        server.models[f"{name}:latest"] = Model(abilities=abilities)
        run = here.run("-n", "-m", f"ollama/{name}", "look", stdin=make_png())
        assert run.code == (0 if takes else 2)
        line = f"gptsh: ollama/{name} does not accept images: choose another model with -m\n"
        assert takes or run.stderr.startswith(line)
    assert len(server.chats) == 2
