"""The wire of Ollama's own API: what goes out, what comes back, and that a model is not loaded twice."""

import base64
import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from gptsh.core.context import Room, taken
from gptsh.core.tokens import Count
from hypothesis import given
from hypothesis import strategies as st

from gptsh.core.messages import Finished, Reasoning, Text, Tool, ToolCall, Used
from gptsh.core.settings import load, provider_of
from gptsh.core.turn import Request
from gptsh.errors import GptshError, ModelError
from gptsh.llm import ollama
from gptsh.llm.client import Client
from gptsh.llm.failures import means_too_long
from gptsh.llm.ollama_models import Models, num_ctx
from gptsh.llm.ollama_stream import read_lines
from gptsh.llm.windows import Shown
from tests.support.home import Home, kind_of_session
from tests.support.ollama_server import Known, OllamaServer, last, line, ndjson
from tests.support.paths import DATA
from tests.support.server import Cut, ModelServer, Script

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


def client(server: OllamaServer, config: str = "", **environ: str) -> Client:
    """A client in this process that finds Ollama there."""
    environ = {"OLLAMA_API_BASE": server.root, **environ}
    return Client(load(environ), environ)


# ---- where it is


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_a_base_with_or_without_v1_is_the_same_server(home: Home, server: OllamaServer, end: str) -> None:
    home.configure(NO_TITLES)
    run = home.run("-m", "ollama/m", "hi", env={"OLLAMA_API_BASE": server.root + end})
    assert run == ("You said: hi\n", "", 0)
    home.configure(f'[providers.ollama]\nbase_url = "{server.root}{end}"\n{NO_TITLES}')
    assert home.run("-m", "ollama/m", "again") == ("You said: again\n", "", 0)
    assert set(server.paths()) == {"/api/ps", "/api/chat"}


def test_without_a_base_it_is_on_this_machine() -> None:
    provider, name = provider_of(load({}), "ollama/hf.co/a/b:Q4")
    assert (provider.base_url, name, provider.wire, provider.own_base) == (
        "http://localhost:11434", "hf.co/a/b:Q4", "ollama", False,
    )  # fmt: skip


def test_a_server_under_another_name_is_asked_by_chat_completions(home: Home, model: ModelServer) -> None:
    home.configure(f'[providers.box]\nbase_url = "{model.base_url}"\n{NO_TITLES}')
    assert home.run("-m", "box/m", "hi").code == 0
    assert [asked.path for asked in model.asked] == ["/v1/chat/completions"]


def test_a_key_goes_as_a_bearer_with_every_request(here: Home, server: OllamaServer) -> None:
    run = here.run("hi " * 3000, env={"OLLAMA_API_KEY": "sk-of-ollama"})
    assert run.code == 0
    assert {asked.path for asked in server.asked} == {"/api/show", "/api/ps", "/api/chat"}
    assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer sk-of-ollama"}
    assert "sk-of" not in run.stderr + json.dumps(here.doc())


def test_a_session_is_of_the_same_kind_as_any(here: Home, server: OllamaServer) -> None:
    assert here.run("hi").code == 0
    other = here.elsewhere()
    other.run("-m", "echo", "hi")
    assert kind_of_session(here.doc()) == kind_of_session(other.doc())
    reply = here.doc()["messages"][1]
    assert (reply["provider"], reply["model"], reply["finish_reason"]) == ("ollama", "ollama/m", "stop")


def test_its_models_are_listed_and_a_bare_name_of_one_is_its(here: Home, server: OllamaServer) -> None:
    server.models["qwen3:8b"] = Known()
    listed = [json.loads(each) for each in here.run("--list-models", "-o", "jsonl").stdout.splitlines()]
    of_it = {entry["model"]: entry["wire"] for entry in listed if entry["model"].startswith("ollama/")}
    assert of_it == {"ollama/m:latest": "ollama", "ollama/qwen3:8b": "ollama"}
    assert here.run("-m", "qwen3:8b", "hi").code == 0
    assert server.chats[-1]["model"] == "qwen3:8b"


# ---- what goes out

SYSTEM = {"role": "system", "content": "Brief."}
PNG, JPEG = (base64.b64encode(data).decode() for data in (b"\x89PNG\r\n", b"\xff\xd8\xff"))
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"x"}'}, "extra": 1}


def image(data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}, "source": "a.png"}


def sent(*messages: Any, **params: Any) -> dict[str, Any]:
    request = Request("ollama/m", list(messages), params)
    return ollama.body(request, "m", provider_of(load({}), "ollama/m")[0])


def said(*messages: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sent(*messages)["messages"]
    return found


@pytest.mark.parametrize(
    ("params", "options", "beside"),
    [
        ({}, None, {}),
        ({"temperature": 0.5, "top_p": 1, "top_k": 3, "min_p": 0.1, "seed": 7},
         {"temperature": 0.5, "top_p": 1, "top_k": 3, "min_p": 0.1, "seed": 7}, {}),
        ({"max_tokens": 9}, {"num_predict": 9}, {}),
        ({"max_completion_tokens": 9}, {"num_predict": 9}, {}),
        ({"stop": "END"}, {"stop": ["END"]}, {}),
        ({"stop": ["A", "B"], "presence_penalty": 1}, {"stop": ["A", "B"], "presence_penalty": 1}, {}),
        ({"options": {"num_ctx": 9, "seed": 1}, "seed": 2}, {"num_ctx": 9, "seed": 2}, {}),
        ({"options": "nonsense", "num_gpu": 1}, {"num_gpu": 1}, {}),
        ({"keep_alive": "1h", "logprobs": True}, None, {"keep_alive": "1h", "logprobs": True}),
        ({"unheard_of": [1]}, {"unheard_of": [1]}, {}),
        ({"shift": True}, None, {"shift": True}),
        ({"reasoning_effort": "none"}, None, {"think": False}),
        ({"reasoning_effort": "low"}, None, {"think": True}),
        ({"think": False}, None, {"think": False}),
    ],
)  # fmt: skip
def test_parameters_stand_where_ollama_wants_them(params: Any, options: Any, beside: dict[str, Any]) -> None:
    body = sent({"role": "user", "content": "q"}, **params)
    assert body.pop("options", None) == options
    usual = {"model": "m", "messages": [{"role": "user", "content": "q"}], "stream": True}
    assert body == {**usual, "truncate": False, "shift": False, **beside}


@pytest.mark.parametrize(
    ("effort", "think"),
    [("none", False), ("minimal", "low"), ("low", "low"), ("medium", "medium"), ("high", "high"), ("max", "high")],
)
def test_gpt_oss_thinks_in_three_strengths(effort: str, think: Any) -> None:
    request = Request("ollama/gpt-oss:20b", [], {"reasoning_effort": effort})
    assert ollama.body(request, "gpt-oss:20b", provider_of(load({}), "ollama/m")[0])["think"] == think


def test_tools_and_schema() -> None:
    schema = {"type": "object"}
    request = Request("ollama/m", [], {}, False, schema, (Tool("look", "Looks.", schema),))
    body = ollama.body(request, "m", provider_of(load({}), "ollama/m")[0])
    assert body["tools"] == [{"type": "function",
                              "function": {"name": "look", "description": "Looks.", "parameters": schema}}]  # fmt: skip
    assert (body["format"], body["stream"]) == (schema, False)


def test_messages_lose_what_is_ours_or_anothers() -> None:
    ours = {"id": "1", "parent": None, "timestamp": "t", "estimated": 3, "usage": None, "provider": "groq"}
    parts = [{"type": "text", "text": "q"}, {"type": "text", "text": "log\n", "source": "stdin"},
             {"type": "text", "text": "n", "source": "a.txt"}]  # fmt: skip
    got = said(
        SYSTEM,
        {"role": "user", "content": parts, **ours},
        {"role": "assistant", "content": "so", "thinking": [{"type": "thinking", "thinking": "hm"}],
         "replay": {"thinking": "hm"}, "refusal": " no", **ours},
        {"role": "user", "content": "and?", **ours},
    )  # fmt: skip
    assert got == [
        SYSTEM,
        {"role": "user", "content": "q\n\nlog\n\n\na.txt:\nn"},
        {"role": "assistant", "content": "so no"},
        {"role": "user", "content": "and?"},
    ]


def test_images_go_beside_the_text_and_what_is_not_taken_is_said() -> None:
    pdf = {
        "type": "file",
        "file": {"filename": "r.pdf", "file_data": "data:application/pdf;base64,QUJD"},
        "source": "r.pdf",
    }
    content = [
        {"type": "text", "text": "look"},
        image(PNG),
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": JPEG}},
        {"type": "image_url", "image_url": {"url": "https://a.test/b.png"}},
        pdf,
        {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}},
        {"type": "document", "source": {"type": "text", "data": "the text"}, "title": "T"},
        {"type": "hologram", "x": 1},
    ]
    (got,) = said({"role": "user", "content": content})
    assert got["images"] == [PNG, JPEG]
    assert got["content"] == (
        "look\n\n[gptsh: image, https://a.test/b.png, not sent: Ollama takes no images by URL]\n\n"
        "r.pdf:\n[gptsh: application/pdf, 3 bytes, not sent: Ollama takes no documents]\n\n"
        "[gptsh: audio/wav, 3 bytes, not sent: Ollama takes no audio]\n\n"
        "T:\nthe text\n\n"
        "[gptsh: hologram, not sent: Ollama takes text and images]"
    )


@pytest.mark.parametrize(
    ("arguments", "made"),
    [
        ('{"b":1,"a":[2]}', {"b": 1, "a": [2]}),
        ("{}", {}),
        ("", {}),
        ("not JSON", {"arguments": "not JSON"}),
        ("[1]", {"arguments": "[1]"}),
        ('{"a":1e999}', {"a": None}),
        ('{"a":"\udc80"}', {"a": "\udc80"}),
    ],
)
def test_arguments_are_an_object_whatever_the_model_wrote(arguments: Any, made: dict[str, Any]) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}}
    _, got = said({"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": [call]})
    assert got == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": made}}],
    }


def test_a_tools_result_with_its_name_and_its_image() -> None:
    turn = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    result = {"role": "tool", "tool_call_id": "c1", "is_error": False, "raw": {}, "content":
              [{"type": "text", "text": "seen"}, {**image(PNG), "source": None}]}  # fmt: skip
    got = said(*turn, result)[2]
    assert got == {"role": "tool", "content": "seen", "images": [PNG], "tool_name": "look", "tool_call_id": "c1"}
    assert said(*turn, {**result, "name": "other", "content": "x"})[2]["tool_name"] == "other"


@pytest.mark.parametrize(
    ("provider", "asked_since", "thinking"),
    [("ollama", False, "hm"), ("mistral", False, None), ("ollama", True, None)],
)
def test_thinking_goes_back_within_its_turn_to_who_thought_it(provider: str, asked_since: bool, thinking: Any) -> None:
    answer = {
        "role": "assistant",
        "content": None,
        "tool_calls": [CALL],
        "replay": {"thinking": "hm"},
        "provider": provider,
        "model": "ollama/m",
    }
    messages = [{"role": "user", "content": "q"}, answer, {"role": "tool", "tool_call_id": "c1", "content": "x"}]
    messages += [{"role": "user", "content": "and?"}] if asked_since else []
    assert said(*messages)[1].get("thinking") == thinking


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["id", "function", "name", "arguments", "type", "text"]), inner, max_size=3)
    ),
    max_leaves=6,
)
PARTS = st.lists(
    st.dictionaries(st.sampled_from(["type", "text", "image_url", "source"]), JSON, max_size=3), max_size=3
)
MESSAGES = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant", "tool"]),
        "content": st.text(max_size=5) | st.none() | PARTS,
    },
    optional={"tool_calls": st.lists(JSON, max_size=2), "replay": JSON, "provider": JSON},
)


@given(st.lists(MESSAGES, max_size=4))
def test_every_message_becomes_one_of_known_keys(messages: list[Any]) -> None:
    for got in said(*messages):
        assert isinstance(got["content"], str)
        assert set(got) <= {"role", "content", "images", "tool_calls", "thinking", "tool_name", "tool_call_id"}
        assert all(isinstance(call["function"]["arguments"], dict) for call in got.get("tool_calls", ()))


# ---- what comes back


def run_of(home: Home, server: OllamaServer, name: str, **more: Any) -> Any:
    server.script((DATA / f"{name}.ndjson").read_bytes(), headers={"Content-Type": "application/x-ndjson"})
    return home.run("hi", **more)


@pytest.mark.parametrize(
    ("name", "stdout", "told", "message"),
    [
        ("thinking", "It is 4.\n", (0, "Two and two.\n"),
         {"content": "It is 4.", "replay": {"thinking": "Two and two."}, "finish_reason": "stop"}),
        ("calls", "I will look.\n", (0, ""), {"content": "I will look.", "finish_reason": "tool_calls"}),
        ("error", "It is\n", (1, "the provider reported: an error was encountered while running the model: CUDA"),
         {"content": "It is", "finish_reason": "error", "usage": None}),
        ("cached", "Hello.\n", (0, ""), {"content": "Hello.", "finish_reason": "stop"}),
        ("length", "One, two,\n", (5, "incomplete: cut by the token limit .length."), {"finish_reason": "length"}),
        ("load", "", (1, "the model answered nothing"), {"content": "", "finish_reason": "load", "usage": None}),
        ("unicode", "a\u2028b\u0085c\u2029€ 😀 ﷽\r\nend\n", (0, ""), {"finish_reason": "stop"}),
        ("no_done", "It is\n", (1, "the stream broke off before the answer was complete"), {"finish_reason": "error"}),
        ("garbage", "It is\n", (1, "the response is garbage: "), {"content": "It is", "finish_reason": "error"}),
        ("too_long", "", (6, "the provider reported: the input length exceeds the context length"), None),
        ("other", "", (1, "the response is no answer of Ollama: is the base URL right"), None),
        ("late", "It is 4.\n", (0, ""), {"content": "It is 4.", "finish_reason": "stop"}),
    ],
)  # fmt: skip
def test_an_answer_as_it_comes(
    here: Home, server: OllamaServer, name: str, stdout: str, told: tuple[int, str], message: Any
) -> None:
    run, (code, stderr) = run_of(here, server, name), told
    assert (run.stdout, run.code) == (stdout, code)
    assert re.search(stderr, run.stderr) if code else run.stderr == stderr
    assert run.stderr.count("\n") <= 2
    messages = here.doc()["messages"]
    assert len(messages) == (1 if message is None else 2)
    kept = messages[-1]
    assert {key: kept.get(key) for key in message or ()} == (message or {})


def test_what_was_used(here: Home, server: OllamaServer) -> None:
    run_of(here, server, "thinking")
    usage = here.doc()["messages"][1]["usage"]
    raw = usage.pop("raw")
    assert usage == {"prompt": 26, "completion": 12, "total": 38, "reasoning_tokens": None, "cached_tokens": None,
                     "cache_write_tokens": None}  # fmt: skip
    assert set(raw) == {"total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count",
                        "eval_duration"}  # fmt: skip
    run_of(here, server, "cached")
    usage = here.docs()[0]["messages"][1]["usage"]
    assert (usage["prompt"], usage["completion"], usage["total"]) == (None, 12, None)


def test_calls_of_tools_in_openais_shape_each_with_an_id(here: Home, server: OllamaServer) -> None:
    run_of(here, server, "calls")
    first, second = here.doc()["messages"][1]["tool_calls"]
    assert first["function"] == {"name": "list_files", "arguments": '{"path": "/tmp", "all": true}'}
    assert second["function"] == {"name": "read_file", "arguments": '{"path": "ä.txt"}'}
    assert first["id"] != second["id"]
    assert here.run("-s", "0", "and?").code == 0  # both come back, with a result each
    assert [message["role"] for message in server.chats[-1]["messages"]] == [
        "user", "assistant", "tool", "tool", "user",
    ]  # fmt: skip
    assert server.chats[-1]["messages"][2]["tool_name"] == "list_files"


def events(*chunks: bytes) -> list[Any]:
    return list(read_lines(chunks))


def test_ids_of_the_server_are_kept_where_they_are_its_own() -> None:
    calls = [{"id": "a", "function": {"name": "x", "arguments": "as it came"}}, {"id": "a"}, {"id": 7}, "no call"]
    got = [event.call for event in events(ndjson(line(tool_calls=calls), last())) if isinstance(event, ToolCall)]
    assert got[0] == {"id": "a", "type": "function", "function": {"name": "x", "arguments": "as it came"}}
    assert len({call["id"] for call in got}) == 3
    assert got[1]["function"] == {"name": "", "arguments": "{}"}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_stream_may_be_cut_anywhere(size: int) -> None:
    data = (DATA / "unicode.ndjson").read_bytes()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert events(*pieces) == events(data)
    assert "".join(event.text for event in events(*pieces) if isinstance(event, Text)) == (
        "a\u2028b\u0085c\u2029€ 😀 ﷽\r\nend"
    )


def test_an_answer_in_one_piece(here: Home, server: OllamaServer) -> None:
    assert here.run("--no-stream", "hi") == ("You said: hi\n", "", 0)
    assert server.chats[0]["stream"] is False
    whole = json.dumps({**last(), "message": {"content": "x", "thinking": "hm"}}).encode()  # no newline at its end
    got = events(whole)
    assert got[:2] == [Reasoning("hm", "thinking"), Text("x")]
    assert isinstance(got[2], Used)
    assert got[3] == Finished("stop")


def test_what_comes_behind_the_end_is_not_waited_for(here: Home, server: OllamaServer) -> None:
    server.script(ndjson(line("x"), last()), 20.0)
    assert here.run("--timeout", "10", "hi") == ("x\n", "", 0)


def test_a_connection_that_is_cut_keeps_what_came(here: Home, server: OllamaServer) -> None:
    server.script(ndjson(line("It is")), Cut)
    run = here.run("hi")
    assert (run.stdout, run.code) == ("It is\n", 1)
    assert here.doc()["messages"][1]["content"] == "It is"


VALUES = st.sampled_from(
    [None, True, 0, -1, 7, "", "x", [], ["x"], {}, {"name": 1}, {"function": {"arguments": [1]}}, [{"id": ""}]]
)
INNER = st.dictionaries(st.sampled_from(["content", "thinking", "tool_calls"]), VALUES, max_size=3)
LINES = st.dictionaries(
    st.sampled_from(["message", "done", "done_reason", "eval_count", "prompt_eval_count"]), VALUES | INNER, max_size=5
)


@given(st.lists(LINES, max_size=3), st.binary(max_size=10))
def test_no_shape_of_a_line_makes_it_crash(lines: list[dict[str, Any]], rest: bytes) -> None:
    with contextlib.suppress(ModelError):
        events(ndjson(*lines), rest)


# ---- refusals


def test_a_model_that_is_not_there_can_be_pulled(here: Home) -> None:
    run = here.run("-m", "ollama/qwen9", "hi")
    assert (run.stdout, run.code) == ("", 1)
    assert "does not know 'qwen9' (404): model 'qwen9' not found: ollama pull qwen9, or see -m\n" in run.stderr


def test_a_server_that_is_no_ollama(home: Home, model: ModelServer) -> None:
    model.pages["/api/chat"] = Script(404, {}, (b"404 page not found",), "length")
    run = home.run("-m", "ollama/m", "hi", env={"OLLAMA_API_BASE": model.base_url})
    assert run.code == 1
    assert "/api/chat does not know 'm' (404): 404 page not found: see -m and base_url\n" in run.stderr


@pytest.mark.parametrize("status", [400, 500])
def test_an_error_is_one_line_with_the_servers_words(here: Home, server: OllamaServer, status: int) -> None:
    here.configure(f"[network]\nretries = 0\n{NO_TITLES}")
    server.refuse(status, {"error": "model requires more system memory (9.9 GiB) than is available"})
    run = here.run("hi")
    assert run.code == 1
    assert run.stderr.startswith(f"gptsh: ollama refused ({status}): model requires more system memory (9.9 GiB)")


@pytest.mark.parametrize(
    "words",
    [
        "the input length exceeds the context length",
        "input length exceeds maximum context length",
        "prompt too long; exceeded max context length by 12 tokens",
        "request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it",
        "Context size has been exceeded.",
        "the prompt is longer than the context length currently available to the model; shorten the prompt",
    ],
)
def test_all_words_for_a_prompt_that_is_too_long(words: str) -> None:
    assert means_too_long(words)


def test_a_prompt_that_does_not_fit_is_refused_and_not_cut(here: Home, server: OllamaServer) -> None:
    here.configure(f"[providers.ollama]\ncontext_window = 9000\n{NO_TITLES}")
    server.models["m:latest"] = Known(trained=512)  # less than the config says
    run = here.run("hello " * 1500)
    assert (run.stdout, run.code) == ("", 6)
    assert "ollama has no room for the prompt: the prompt is longer than the context length" in run.stderr
    assert server.chats[0]["truncate"] is server.chats[0]["shift"] is False
    assert len(here.doc()["messages"]) == 1


def test_what_cannot_fit_is_not_sent(here: Home, server: OllamaServer) -> None:
    server.models["m:latest"] = Known(trained=4096)
    run = here.run("hello " * 5000)
    assert (run.stdout, run.code) == ("", 6)
    assert "the window has room for 3,072" in run.stderr
    assert server.paths() == ["/api/show"]


def test_a_model_that_does_not_think_is_asked_without_and_nothing_is_lost(here: Home, server: OllamaServer) -> None:
    server.models["m:latest"] = Known(abilities=("completion",))
    assert here.run("-p", "reasoning_effort=high", "hi") == ("You said: hi\n", "", 0)
    assert [body.get("think") for body in server.chats] == [True, None]
    assert [body["messages"] for body in server.chats] == [server.chats[0]["messages"]] * 2
    assert server.paths() == ["/api/ps", "/api/chat", "/api/chat"]


@pytest.mark.parametrize(
    ("option", "kind"), [("num_ctx=abc", "integer"), ("temperature=[1]", "float32"), ("use_mmap=1", "boolean")]
)
def test_an_option_of_another_type_is_one_request_and_one_line(
    here: Home, server: OllamaServer, option: str, kind: str
) -> None:
    run = here.run("-p", option, "hi")
    name = option.partition("=")[0]
    line = f'gptsh: ollama refused (500): option "{name}" must be of type {kind}'
    assert (run.stdout, run.code, run.stderr.splitlines()[0]) == ("", 1, line)
    assert run.stderr.count("\n") == 2  # and how to go on
    assert len(server.chats) == 1


def test_tools_that_a_model_does_not_take_are_one_line(here: Home, server: OllamaServer) -> None:
    server.models["m:latest"] = Known(abilities=("completion",))
    tool = {"type": "function", "function": {"name": "x", "parameters": {"type": "object"}}}
    run = here.run("-p", f"tools={json.dumps([tool])}", "hi")
    assert run.code == 1
    assert run.stderr.startswith(
        "gptsh: m takes no tools (400): registry.ollama.ai/library/m:latest does not support tools: choose another"
    )


def test_a_schema_goes_as_format_and_in_words(here: Home, server: OllamaServer) -> None:
    server.answer(line("7"), last())
    assert here.run("--schema", '{"type": "integer"}', "a number") == ("7\n", "", 0)
    body = server.chats[0]
    assert body["format"] == {"type": "integer"}
    assert '"integer"' in body["messages"][0]["content"]


def test_a_schema_that_the_server_cannot_read_goes_in_words_alone(here: Home, server: OllamaServer) -> None:
    server.refuse(500, {"error": "invalid JSON schema in format"})
    server.answer(line("7"), last())
    assert here.run("--schema", '{"type": "integer"}', "a number") == ("7\n", "", 0)
    assert ["format" in body for body in server.chats] == [True, False]


# ---- the window

TRAINED, FILE = Shown(None, 131072), Shown(16384, 131072)


@pytest.mark.parametrize(
    ("needed", "allocated", "shown", "window"),
    [
        (0, None, None, None),
        (0, 8192, None, 8192),
        (2000, None, None, None),
        (2000, 8192, None, 8192),
        (2000, 1024, None, 4096),  # without asking what the model could
        (2001, None, Shown(), 4096),
        (8192, 8192, None, 8192),
        (8193, 8192, TRAINED, 16384),
        (8193, 8192, Shown(), 16384),
        (4096, None, TRAINED, 4096),
        (4097, None, TRAINED, 8192),
        (5000, None, FILE, 16384),
        (20000, None, FILE, 32768),
        (100000, None, Shown(None, 100500), 100500),
        (200000, None, TRAINED, 131072),
        (5000, None, Shown(16384, 6000), 6000),
        (3000, None, Shown(None, 2048), 2048),
        (3000, 131072, None, 131072),
    ],
)
def test_the_rule(needed: int, allocated: int | None, shown: Shown | None, window: int | None) -> None:
    def show() -> Shown:
        assert shown is not None, "the server need not be asked"
        return shown

    assert num_ctx(needed, allocated, show) == window


WINDOWS = st.none() | st.integers(1, 300_000)


@given(st.integers(0, 300_000), WINDOWS, WINDOWS, WINDOWS)
def test_what_is_chosen_has_room_and_changes_nothing_that_has(
    needed: int, allocated: int | None, own: int | None, trained: int | None
) -> None:
    window = num_ctx(needed, allocated, lambda: Shown(own, trained))
    if allocated is not None and allocated >= needed:
        assert window == allocated
    elif window is None:
        assert allocated is None
        assert needed <= 2000
    else:
        assert window >= needed or window == trained


def windows_of(server: OllamaServer) -> list[int | None]:
    return [body.get("options", {}).get("num_ctx") for body in server.chats]


def test_nothing_is_asked_twice(here: Home, server: OllamaServer) -> None:
    assert here.run("hello").code == 0
    assert server.paths() == ["/api/ps", "/api/chat"]
    server.asked.clear()
    assert here.run("hello " * 3000).code == 0
    assert sorted(server.paths()) == ["/api/chat", "/api/ps", "/api/show"]


def test_a_session_of_several_turns_loads_its_model_once(here: Home, server: OllamaServer) -> None:
    here.configure("")
    for at in range(4):
        assert here.run(*(["-s", "0"] if at else []), f"question {at}").code == 0
    assert server.loads == [("m:latest", 4096)]
    assert len(server.chats) == 5
    assert here.doc()["title"]
    assert windows_of(server) == [None, None, 4096, 4096, 4096]


def test_a_model_that_was_loaded_as_the_server_chose_is_looked_at_again() -> None:
    asked = []

    def probe(url: str, _body: Any) -> Any:
        asked.append(url)
        return {"models": [{"name": "m:latest", "context_length": 32768}] if len(asked) > 1 else []}

    models, provider = Models(lambda _: probe), provider_of(load({}), "ollama/m")[0]
    assert [models.num_ctx(provider, "m", needed) for needed in (0, 100, 2000)] == [None] * 3
    assert len(asked) == 1
    assert [models.num_ctx(provider, name, 5000) for name in ("m", "m:latest")] == [32768] * 2
    assert [url.rpartition("/")[2] for url in asked] == ["ps", "ps"]


@pytest.mark.slow
def test_a_session_that_grows_loads_its_model_by_doubling(here: Home, server: OllamaServer) -> None:
    for at in range(6):
        assert here.run(*(["-s", "0"] if at else []), "hello " * 800).code == 0
    assert [window for _, window in server.loads] == sorted({window for _, window in server.loads})
    assert len(server.loads) <= 3
    assert all(window & (window - 1) == 0 for _, window in server.loads)


def test_a_title_leaves_the_model_as_the_question_loaded_it(here: Home, server: OllamaServer) -> None:
    here.configure("")
    assert here.run("-p", "num_gpu=3", "-p", "keep_alive=1h", "-p", "shift=true", "hello " * 3000).code == 0
    question, title = server.chats
    assert {key: question["options"][key] for key in ("num_ctx", "num_gpu")} == {"num_ctx": 16384, "num_gpu": 3}
    assert {key: title["options"][key] for key in ("num_ctx", "num_gpu")} == {"num_ctx": 16384, "num_gpu": 3}
    assert (title["keep_alive"], title["shift"]) == ("1h", True)
    assert server.loads == [("m:latest", 16384)]


def test_a_title_of_another_model_leaves_that_one_as_it_is(here: Home, server: OllamaServer) -> None:
    here.configure('[agents.default]\nmodel_small = "ollama/small"\n')
    server.models["small:latest"] = Known()
    server.loaded["small:latest"] = {"num_ctx": 32768, "shift": False}
    assert here.run("hello " * 3000).code == 0
    assert windows_of(server) == [16384, 32768]
    assert server.loads == [("m:latest", 16384)]


def test_a_loaded_model_that_has_room_is_asked_with_its_window(here: Home, server: OllamaServer) -> None:
    server.loaded["m:latest"] = {"num_ctx": 20000, "shift": False}
    assert here.run("hello " * 3000).code == 0
    assert windows_of(server) == [20000]
    assert server.loads == []


@pytest.mark.parametrize(
    ("room", "params", "share"),
    [
        (Room(None), {}, 1000),
        (Room(131072, 32768), {}, 4096),
        (Room(8192, 2048), {}, 2048),
        (Room(None), {"max_tokens": 9}, 9),
    ],
)
def test_what_an_answer_counts_with(room: Room, params: dict[str, Any], share: int) -> None:
    assert taken(Count(500, 400, 500, anchored=False), room, params) == 500 + share


@pytest.mark.slow
def test_an_answer_that_fills_the_window_says_so_and_the_next_gets_a_larger_one(
    here: Home, server: OllamaServer
) -> None:
    for prompt, completion in ((11, 4085), (30, 8161)):
        server.answer(line(thinking="hm "), last("length", prompt=prompt, completion=completion))
    run = here.run("why")
    assert (run.code, run.stderr.splitlines()[1]) == (
        5,
        "gptsh: the answer is incomplete: the window of 4,096 tokens is full (length): -p num_ctx=N, "
        "or context_window under [providers.ollama], asks for a larger one",
    )
    assert server.paths() == ["/api/ps", "/api/chat", "/api/ps"]
    assert "the window of 8,192 tokens is full" in here.run("-s", "0", "go on").stderr
    assert here.run("-s", "0", "go on").code == 0
    assert server.loads == [("m:latest", 4096), ("m:latest", 8192), ("m:latest", 16384)]
    assert here.run("-s", "0", "and?").code == 0  # what is loaded has room
    assert len(server.loads) == 3


def test_an_answer_that_its_own_limit_cut_is_told_as_that(here: Home, server: OllamaServer) -> None:
    server.answer(line("One,"), last("length", prompt=11, completion=2))
    assert "incomplete: cut by the token limit (length)" in here.run("-p", "max_tokens=2", "count").stderr
    server.pages = {"/api/ps": Script(404, {}, (b"",), "length")}
    server.answer(line("One,"), last("length", prompt=4000, completion=96))  # nobody tells the window
    assert "incomplete: cut by the token limit (length)" in here.run("count").stderr


@pytest.mark.parametrize("config", ["context_window = 6000\n", ""])
def test_what_the_user_says_stands(here: Home, server: OllamaServer, config: str) -> None:
    here.configure(f"[providers.ollama]\n{config}{NO_TITLES}")
    more = () if config else ("-p", "num_ctx=6000")
    assert here.run(*more, "hi").code == 0
    assert windows_of(server) == [6000]
    assert server.paths() == ["/api/chat"]


def test_the_answer_gets_what_it_may_take(here: Home, server: OllamaServer) -> None:
    assert here.run("-p", "max_tokens=30000", "hi").code == 0
    assert windows_of(server) == [32768]
    assert here.run("-p", "max_tokens=10", "hi").code == 0
    assert windows_of(server)[1] == 32768


@pytest.mark.slow
def test_a_server_that_does_not_tell_is_asked_all_the_same(here: Home, server: OllamaServer) -> None:
    slow = Script(200, {}, (10.0,), "chunked")
    server.pages = {"/api/ps": slow, "/api/show": slow}
    assert here.run("hello " * 3000).code == 0
    assert windows_of(server) == [8192]
    assert sorted(server.paths()) == ["/api/chat", "/api/ps", "/api/show"]


def test_a_dry_run_shows_what_would_be_sent_and_sends_no_question(here: Home, server: OllamaServer) -> None:
    run = here.run("--dry-run", "-o", "json", "hello " * 3000, env={"OLLAMA_API_KEY": "sk-of-ollama"})
    told = json.loads(run.stdout)
    assert (told["wire"], told["body"]["options"]) == ("ollama", {"num_ctx": 16384})
    assert told["context"]["window"] == 131072
    assert "sk-of" not in run.stdout
    assert server.chats == []


# ---- abilities


@pytest.mark.parametrize(
    ("abilities", "ability", "can"),
    [
        (("completion", "vision"), "vision", True),
        (("completion",), "vision", False),
        (("completion", "tools"), "function_calling", True),
        (("completion",), "function_calling", False),
        (("completion", "vision"), "pdf_input", False),
        (None, "audio_input", False),
        (None, "vision", None),
        (("completion", "thinking"), "reasoning", True),
        (("completion",), "telepathy", None),
    ],
)
def test_what_a_model_can_the_server_says(server: OllamaServer, abilities: Any, ability: str, can: bool | None) -> None:
    server.models["m:latest"] = Known(abilities=abilities)
    asker = client(server)
    assert [asker.can("ollama/m", ability) for _ in range(2)] == [can, can]
    assert len(server.asked) == (ability in ("vision", "function_calling", "reasoning"))


def test_abilities_and_window_are_one_question(server: OllamaServer) -> None:
    asker = client(server)
    assert (asker.can("ollama/m", "vision"), asker.window("ollama/m:latest", ask=True)) == (True, 131072)
    assert asker.can("ollama/llama3.2", "vision") is None  # not there
    assert server.paths() == ["/api/show", "/api/show"]


def test_abilities_of_others_are_the_model_tables(server: OllamaServer) -> None:
    asker = client(server)
    assert asker.can("openai/gpt-4.1", "vision") is True
    assert asker.can("echo", "vision") is None
    with pytest.raises(GptshError):
        asker.can("nobodys-model", "vision")
    assert not server.asked
