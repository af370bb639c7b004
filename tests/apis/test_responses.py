"""OpenAI's Responses API: what is sent, what is read, what goes back, and servers that lack it."""

import json
from typing import Any, NamedTuple

import pytest

from gptsh.messages import text_of
from tests.support.answers import events, json_output
from tests.support.anthropic_server import named
from tests.support.apis import answer_in
from tests.support.attached import make_pdf
from tests.support.dry import dry_run
from tests.support.home import Home
from tests.support.hosted import Hosted
from tests.support.responses_server import (
    USAGE,
    ResponsesServer,
    function_call,
    message,
    reasoning,
    refusal,
    response,
    search,
    stream,
)
from tests.support.responses_server import (
    events as events_of,
)
from tests.support.server import Cut, ModelServer, answer
from tests.support.sol import SOL
from tests.support.tools import configure as with_tools

OF_QUESTION = ("model", "input", "prompt_cache_key")
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


# ---- what is sent, and what comes


def test_a_question_and_its_answer(sol: Home, openai: ResponsesServer) -> None:
    assert sol.run("--reasoning", "--system", "Be brief.", "hi") == (
        "You said: hi\n",
        "Thinking.\n",
        0,
    )
    asked = openai.requests[0]
    assert asked.path == "/v1/responses"
    assert asked.headers["authorization"] == "Bearer sk-openai"
    assert asked.body == {
        "prompt_cache_key": sol.doc()["messages"][0]["id"],
        "model": "gpt-6.1-sol", "instructions": "Be brief.", "input": [{"role": "user", "content": "hi"}],
        "store": False, "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}, "stream": True,
    }  # fmt: skip
    reply = sol.doc()["messages"][1]
    assert {key: reply[key] for key in ("content", "finish_reason", "response_id", "resolved_model")} == {
        "content": "You said: hi", "finish_reason": "stop", "response_id": "resp_1",
        "resolved_model": "gpt-6.1-sol-2026-10-01",
    }  # fmt: skip
    assert reply["usage"] == {
        "prompt": 11, "completion": 5, "total": 16, "reasoning_tokens": 3, "cached_tokens": 4, "cache_write_tokens": 2,
        "raw": USAGE,
    }  # fmt: skip
    # (11 - 4 - 2) x 2 + 4 x 0.1 + 2 x 2.5 + 5 x 10, in USD per million
    assert reply["cost"] == pytest.approx(65.4e-6)
    assert reply["replay"]["reasoning"] == "Thinking."


def test_without_streaming_the_session_is_the_same(sol: Home, openai: ResponsesServer) -> None:
    for _ in range(2):
        openai.answer(reasoning("a", "One.", "Two."), message("Yes.", phase="final_answer"))
    assert sol.run("--reasoning", "hi") == ("Yes.\n", "One.\n\nTwo.\n", 0)
    openai.forget()
    openai.script(json.dumps(response(reasoning("a", "One.", "Two."), message("Yes.", phase="final_answer"))).encode(),
                  headers={"Content-Type": "application/json"})  # fmt: skip
    assert sol.run("--reasoning", "--no-stream", "hi") == ("Yes.\n", "One.\n\nTwo.\n", 0)
    assert "stream" not in openai.sent[1]
    streamed, whole = ({key: doc["messages"][1][key] for key in ("content", "replay", "usage", "finish_reason")}
                       for doc in sol.docs())  # fmt: skip
    assert streamed == whole


def test_images_and_documents_go_along(sol: Home, openai: ResponsesServer) -> None:
    (sol.cwd / "a.pdf").write_bytes(make_pdf())
    (sol.cwd / "b.png").write_bytes(PNG)
    assert sol.run("-f", "a.pdf", "-f", "b.png", "what?").code == 0
    question, document, image = openai.sent[-1]["input"][0]["content"]
    assert question == {"type": "input_text", "text": "what?"}
    assert document["type"] == "input_file"
    assert document["filename"] == "a.pdf"
    assert document["file_data"].startswith("data:application/pdf;base64,JVBERi")
    assert image["type"] == "input_image"
    assert image["image_url"][:22] == "data:image/png;base64,"


@pytest.mark.parametrize(
    ("params", "sent", "left_out"),
    [
        ({"max_tokens": 50}, {"max_output_tokens": 50}, ""),
        ({"max_completion_tokens": 9}, {"max_output_tokens": 16}, ""),
        ({"reasoning_effort": "high"}, {"reasoning": {"summary": "auto", "effort": "high"}}, ""),
        ({"reasoning": {"summary": "detailed"}}, {"reasoning": {"summary": "detailed"}}, ""),
        ({"verbosity": "low"}, {"text": {"verbosity": "low"}}, ""),
        ({"temperature": 0.5, "seed": 7, "stop": ["x"]}, {}, "temperature, seed, stop"),
        ({"include": ["web_search_call.action.sources"], "tools": [{"type": "web_search"}]},
         {"include": ["reasoning.encrypted_content", "web_search_call.action.sources"],
          "tools": [{"type": "web_search"}]}, ""),
        ({"store": True}, {"store": True}, ""),
        ({"tools": [{"type": "function", "function": {"name": "ls", "parameters": {}, "strict": False}}],
          "tool_choice": {"type": "function", "function": {"name": "ls"}},
          "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}},
         {"tools": [{"type": "function", "name": "ls", "parameters": {}, "strict": False}],
          "tool_choice": {"type": "function", "name": "ls"},
          "text": {"format": {"type": "json_schema", "name": "a", "schema": {}}}}, ""),
    ],
)  # fmt: skip
def test_parameters_by_the_names_of_this_api(
    sol: Home, openai: ResponsesServer, params: dict[str, Any], sent: dict[str, Any], left_out: str
) -> None:
    given = [
        word for name, value in params.items() for word in ("-p", f"{name}={json.dumps(value)}")
    ]
    run = sol.run("--reasoning", *given, "hi")
    assert run.code == 0
    note = f"gptsh: {SOL} does not support {left_out}; ignored\n" if left_out else ""
    assert run.stderr == f"{note}Thinking.\n"
    usual = {"store": False, "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"},
             "stream": True}  # fmt: skip
    body = {key: value for key, value in openai.sent[0].items() if key not in OF_QUESTION}
    assert body == usual | sent


def test_a_schema_is_the_format_of_the_text(sol: Home, openai: ResponsesServer) -> None:
    (sol.cwd / "s.json").write_text('{"type": "object", "properties": {"a": {"type": "integer"}}}')
    openai.answer(
        message("Let me see.", phase="commentary"), message('{"a": 1}', "2", phase="final_answer")
    )
    assert sol.run("--schema", "s.json", "hi") == ('{"a": 1}\n', "", 0)
    asked = openai.sent[0]["text"]["format"]
    assert asked["type"] == "json_schema"
    assert asked["name"] == "answer"
    assert asked["strict"] is False


# ---- what goes back


def test_items_go_back_in_their_order_to_their_own_model_alone(
    sol: Home, openai: ResponsesServer
) -> None:
    items = [
        reasoning("a", "Search."), message("I'll look.", phase="commentary"), search(), reasoning("b"),
        message("It rains.", "2", phase="final_answer"),
    ]  # fmt: skip
    openai.answer(*items)
    assert sol.run("--reasoning", "weather?") == ("I'll look.\n\nIt rains.\n", "Search.\n", 0)
    reply = sol.doc()["messages"][1]
    assert [part["text"] for part in reply["content"]] == ["I'll look.\n\n", "It rains."]
    assert "It rains" not in json.dumps(reply["replay"])  # the message has it
    assert sol.run("-s", "0", "and tomorrow?").code == 0
    own = openai.sent[1]["input"][1:-1]
    assert [item["type"] for item in own] == [item["type"] for item in items]
    assert own[0] == items[0]
    assert own[2] == items[2]
    assert own[3] == items[3]
    assert [own[at]["content"][0]["text"].strip() for at in (1, 4)] == ["I'll look.", "It rains."]
    assert [own[at]["phase"] for at in (1, 4)] == ["commentary", "final_answer"]
    for other in ("openai/gpt-6-sol", "openai/gpt-6.1-sol-mini"):
        assert sol.run("-s", "0@1", "-m", other, "and?").code == 0
        assert openai.sent[-1]["input"][1] == {
            "type": "message", "role": "assistant", "content": "I'll look.\n\nIt rains."
        }  # fmt: skip


def test_what_is_read_of_an_answer_is_its_final_part(sol: Home, openai: ResponsesServer) -> None:
    parts = (
        message("I'll look.", phase="commentary"),
        message("```sh\nls\n```", "2", phase="final_answer"),
    )
    for _ in range(3):
        openai.answer(*parts)
    assert json_output(sol.run("-o", "json", "how?"))["text"] == "```sh\nls\n```"
    assert sol.run("-x", "how?").stdout == "ls\n"
    shown = [
        event["text"] for event in events(sol.run("-o", "jsonl", "how?")) if event["type"] == "text"
    ]
    assert "".join(shown) == "I'll look.\n\n```sh\nls\n```"
    assert (
        json.loads(sol.run("--export-session", "0", "--format", "openai").stdout)[-1]["content"]
        == "```sh\nls\n```"
    )


def test_texts_without_a_phase_are_one_text_as_the_sdk_has_it(
    sol: Home, openai: ResponsesServer
) -> None:
    openai.answer(message("One, "), search(), message("two.", "2"))
    assert sol.run("hi").stdout == "One, two.\n"


def test_reasoning_goes_back_with_the_calls_that_it_made(
    home: Home, openai: ResponsesServer
) -> None:
    with_tools(home, openai)
    home.configure(
        home.config.read_text().replace("[providers.lab]", '[providers.lab]\napi = "responses"')
    )
    call = function_call("c1", "good__add", '{"a": 1, "b": 2}')
    openai.answer(reasoning("a", "Look."), message("I look.", phase="commentary"), call)
    openai.answer(message("Done.", phase="final_answer"))
    run = home.run("go")
    assert run.stdout.split() == ["I", "look.", "Done."]
    assert run.code == 0
    asked = openai.sent[1]
    assert [item.get("type") for item in asked["input"]] == [
        None, "reasoning", "message", "function_call", "function_call_output",
    ]  # fmt: skip
    assert {tool["strict"] for tool in asked["tools"]} == {False}
    assert asked["input"][:1] == openai.sent[0]["input"]  # prefixes grow


def test_an_answer_that_was_cut_goes_back_as_text(sol: Home, openai: ResponsesServer) -> None:
    openai.script(*stream(reasoning("a"), message("half an answer"))[:-3])
    assert sol.run("hi").code == 1
    assert sol.doc()["messages"][1]["finish_reason"] == "error"
    assert sol.run("-s", "0", "go on").code == 0
    assert [item["role"] for item in openai.sent[1]["input"]] == ["user", "assistant", "user"]


def test_reasoning_that_another_account_sealed_is_left_out_once(
    sol: Home, openai: ResponsesServer
) -> None:
    openai.answer(reasoning("a") | {"encrypted_content": "00" * 40}, message("Yes."))
    assert sol.run("hi").code == 0
    assert sol.run("--reasoning", "-s", "0", "and?") == ("You said: and?\n", "Thinking.\n", 0)
    assert [item.get("type") for item in openai.sent[1]["input"]] == [
        None,
        "reasoning",
        "message",
        None,
    ]
    assert openai.sent[2]["input"][1] == {"type": "message", "role": "assistant", "content": "Yes."}


def test_an_image_that_a_tool_returned_is_part_of_its_result(home: Home) -> None:
    made = {"id": "c1", "type": "function", "function": {"name": "shot", "arguments": "{}"}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    turn = [
        {"role": "user", "content": "look"}, {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "see"}, image]},
    ]  # fmt: skip
    (_, _, result, _) = dry_run(home, SOL, *turn).body["input"]
    assert [part["type"] for part in result["output"]] == ["input_text", "input_image"]


# ---- endings


class Ending(NamedTuple):
    """An answer that ends: its items, further keys of the response, and what gptsh prints and returns."""

    items: list[dict[str, Any]]
    more: dict[str, Any]
    out: str
    line: str
    code: int


TRUNCATED = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
FILTERED = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
BROKEN = {"status": "failed", "error": {"code": "server_error", "message": "it broke"}}
ENDINGS = [
    Ending([message("half")], TRUNCATED, out="half\n", line="cut by the token limit", code=5),
    Ending([message("half")], FILTERED, out="half\n", line="stopped by the provider's filter", code=5),
    Ending([refusal("I can't.")], {}, out="I can't.\n", line="the model refused to answer", code=5),
    Ending([message("half")], BROKEN, out="half\n", line="it broke", code=1),
    Ending([reasoning("a")], {}, out="", line="the model returned an empty answer", code=1),
]  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("streams", [True, False])
def test_how_an_answer_ends(
    sol: Home, openai: ResponsesServer, ending: Ending, streams: bool
) -> None:
    whole = json.dumps(response(*ending.items, **ending.more)).encode()
    openai.script(*(stream(*ending.items, **ending.more) if streams else [whole]))
    run = sol.run("hi") if streams else sol.run("--no-stream", "hi")
    assert run.stdout == ending.out
    assert run.code == ending.code
    assert ending.line in run.stderr
    reply = sol.doc()["messages"][-1]
    if ending.out:
        assert (reply.get("refusal") or reply["content"]) == ending.out.strip()


def test_a_stream_that_ends_early_is_incomplete(sol: Home, openai: ResponsesServer) -> None:
    *steps, _completed = stream(message("An answer."))
    openai.script(*steps, Cut)
    run = sol.run("hi")
    assert run.stdout == "An answer.\n"
    assert run.code == 1


STEPS = stream(
    reasoning("a", "Hm.", "So."), message("I look.", phase="commentary"), search(), message("Füße 😀", "2", phase="x"),
    function_call("c1", "ls", '{"a": "é"}'),
)  # fmt: skip


def test_a_stream_may_be_split_or_cut_at_any_byte() -> None:
    data = b"".join(STEPS)
    end = len(b"".join(STEPS[:-1]))
    whole = answer_in("responses", data).message() or {}
    assert whole["finish_reason"] == "tool_calls"
    kept = ("content", "tool_calls", "replay", "usage", "finish_reason")
    for at in range(1, len(data), 7):
        split = answer_in("responses", data[:at], data[at:]).message() or {}
        assert {key: split[key] for key in kept} == {key: whole[key] for key in kept}
    for at in range(1, end):
        cut = answer_in("responses", data[:at])
        assert not cut.finished
        text = text_of(cut.message("error") or {"role": "assistant", "content": ""})
        assert text_of(whole).startswith(text)


def test_the_title_is_the_final_part_of_the_small_models_answer(
    home: Home, openai: ResponsesServer
) -> None:
    vendor = Hosted(openai, home.folder)
    home.env |= vendor.env
    home.configure(f'[agents.default]\nmodel = "{SOL}"\nmodel_small = "openai/gpt-6-luna"\n')
    *pieces, last = stream(message("Yes."))
    openai.script(*pieces, 0.5, last, model="gpt-6.1-sol")  # the title is asked meanwhile
    parts = (
        message("I name it.", phase="commentary"),
        message("Rain Tomorrow", "2", phase="final_answer"),
    )
    openai.answer(*parts, model="gpt-6-luna")
    assert home.run("weather?").code == 0
    vendor.close()
    assert home.doc()["title"] == "Rain Tomorrow"


def test_the_final_response_is_the_truth(sol: Home, openai: ResponsesServer) -> None:
    steps = stream(message("One two three four"))
    openai.script(
        *(step for step in steps if b'"two thr' not in step and b'"delta": "One' not in step)
    )
    assert sol.run("hi").code == 0
    assert sol.doc()["messages"][1]["content"] == "One two three four"


def test_items_without_ids_and_events_are_all_read(sol: Home, openai: ResponsesServer) -> None:
    begun, *_, done = events_of(message("One ", id=""), message("two", id=""))
    for item in done["response"]["output"]:
        del item["id"]
    openai.script(named(begun), named(done))
    assert sol.run("hi") == ("One two\n", "", 0)


def test_deltas_without_indexes_are_known_by_their_ids(sol: Home, openai: ResponsesServer) -> None:
    steps = [step.replace(b'"output_index": 0', b'"x": 0').replace(b'"output_index": 1', b'"x": 1')
             for step in stream(reasoning("a", "Hm."), message("An answer."))]  # fmt: skip
    openai.script(*steps)
    assert sol.run("--reasoning", "hi") == ("An answer.\n", "Hm.\n", 0)


@pytest.mark.parametrize(
    ("status", "error", "line", "code"),
    [
        (
            400,
            {"code": "model_not_found", "message": "The requested model 'x' does not exist."},
            "does not know",
            1,
        ),
        (
            400,
            {"code": "context_length_exceeded", "message": "Your input exceeds the context window"},
            "the prompt is too long for",
            6,
        ),
        (
            429,
            {"code": "insufficient_quota", "message": "You exceeded your quota"},
            "exceeded your quota",
            1,
        ),
        (
            401,
            {"code": "invalid_api_key", "message": "Incorrect API key sk-openai"},
            "refused the key",
            1,
        ),
    ],
)
def test_errors_in_one_line(
    sol: Home, openai: ResponsesServer, status: int, error: dict[str, Any], line: str, code: int
) -> None:
    for _ in range(2):
        openai.refuse(status, {"error": {"type": "invalid_request_error", "param": None, **error}})
    run = sol.run("hi")
    assert run.code == code
    assert line in run.stderr
    assert "sk-openai" not in run.stderr


def test_an_error_in_mid_stream(sol: Home, openai: ResponsesServer) -> None:
    broken = b'event: error\ndata: {"type":"error","code":"server_error","message":"it broke","param":null}\n\n'
    openai.script(*stream(message("half an answer"))[:4], broken)
    run = sol.run("hi")
    assert run.stdout == "half an \n"
    assert run.code == 1
    assert "it broke" in run.stderr


# ---- what servers refuse, and servers that lack the API


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (404, "404 page not found"), (405, "Method Not Allowed"), (501, "not implemented"),
        (400, "Unsupported path: /v1/responses"),
        (400, "The responses operation does not work with the specified model, m."),
    ],
)  # fmt: skip
def test_a_server_without_it_is_asked_by_chat_completions_for_a_day(
    home: Home, model: ModelServer, status: int, words: str
) -> None:
    base = model.base_url.replace("/v1", "/openai/v1")
    home.configure(f'[providers.lab]\nbase_url = "{base}"\n[sessions]\ntitles = "off"\n')
    model.refuse(status, {"error": {"message": words}})
    model.script(*answer("Hello."))
    model.script(*answer("Again."))
    assert home.run("-m", "lab/m", "hi") == ("Hello.\n", "", 0)
    assert home.run("-m", "lab/m", "hi") == ("Again.\n", "", 0)
    paths = [asked.path for asked in model.requests if asked.method == "POST"]
    assert paths == [
        "/openai/v1/responses",
        "/openai/v1/chat/completions",
        "/openai/v1/chat/completions",
    ]


@pytest.mark.parametrize(
    "words",
    [
        "Function tools with reasoning_effort are not supported for m in /v1/chat/completions. To use function tools, "
        "use /v1/responses or set reasoning_effort to 'none'.",
        "This model is only supported in v1/responses and not in v1/chat/completions.",
    ],
)
def test_a_server_that_points_to_it_is_asked_by_it_for_a_day(
    lab: Home, model: ModelServer, words: str
) -> None:
    model.refuse(
        400,
        {"error": {"message": words, "type": "invalid_request_error", "param": "reasoning_effort"}},
    )
    for text in ("Hello.", "Again."):
        model.script(*stream(message(text)))
        assert lab.run("hi") == (f"{text}\n", "", 0)
    paths = [asked.path for asked in model.requests if asked.method == "POST"]
    assert paths == ["/v1/chat/completions", "/v1/responses", "/v1/responses"]


def test_a_server_that_has_neither_is_one_error(home: Home, model: ModelServer) -> None:
    home.configure(f'[providers.lab]\nbase_url = "{model.base_url}"\napi = "responses"\n')
    for _ in range(2):
        model.refuse(404, {"error": {"message": "no /responses here"}})
    run = home.run("-m", "lab/m", "--title", "t", "hi")
    assert run.code == 1
    assert "/v1/chat/completions does not know 'm' (404)" in run.stderr
    assert [asked.path for asked in model.requests if asked.method == "POST"][2:] == []


def test_the_requests_of_a_session_have_a_cache_key_in_common(
    hosted: Home, model: ModelServer
) -> None:
    for text in ("One.", "Two.", "Three."):
        model.script(*stream(message(text)), model="gpt-5.5")
    for args in ((), ("-s", "0"), ()):
        assert hosted.run("--title", "t", *args, "-m", "gpt-5.5", "hi").code == 0
    one, two, other = (body["prompt_cache_key"] for body in model.sent)
    assert one == two != other
    assert one == hosted.docs()[-1]["messages"][0]["id"]


def test_openais_own_address_has_it_for_all_but_older_models(
    hosted: Home, model: ModelServer
) -> None:
    model.script(*stream(message("Yes.")), model="gpt-5.5")
    model.say("No.", model="gpt-4.1")
    assert hosted.run("--title", "t", "-m", "gpt-5.5", "hi").stdout == "Yes.\n"
    assert hosted.run("--title", "t", "-m", "gpt-4.1", "hi").stdout == "No.\n"
    assert [asked.path for asked in model.requests] == ["/v1/responses", "/v1/chat/completions"]
