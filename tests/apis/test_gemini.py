"""Google's generateContent: what is sent, what is read, what goes back, and what Google refuses."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from gptsh.messages import text_of
from tests.support.answers import json_output
from tests.support.apis import answer_in
from tests.support.attached import make_pdf, make_png
from tests.support.dry import KEYS, LAB, dry_run, put_session
from tests.support.gemini_server import (
    UNSIGNED,
    USAGE,
    GeminiServer,
    call,
    document,
    error,
    event,
    signed,
    stream,
    thought,
)
from tests.support.home import Home
from tests.support.server import Cut
from tests.support.tools import configure as with_tools
from tests.support.vendors import at_vendor

MODEL = "gemini/gemini-3.8-flash"
MP4 = b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + b"\0" * 64
THOUGHTS = {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}}


@pytest.fixture
def google() -> Iterator[GeminiServer]:
    """A strict server for one test."""
    server = GeminiServer()
    yield server
    server.close()


@pytest.fixture
def flash(home: Home, google: GeminiServer) -> Home:
    """A home whose default model is one of Google's on the strict server; no titles."""
    return at_vendor(home, MODEL, google.google_url)


# ---- what is sent, and what comes


def test_a_question_and_its_answer(flash: Home, google: GeminiServer) -> None:
    assert flash.run("--reasoning", "--system", "Be brief.", "hi") == (
        "You said: hi\n",
        "Thinking.\n",
        0,
    )
    asked = google.requests[0]
    assert asked.path == "/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse"
    assert asked.headers["x-goog-api-key"] == "AIza-key"
    assert "authorization" not in asked.headers
    assert asked.body == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]}, "store": False, **THOUGHTS,
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    }  # fmt: skip
    reply = flash.doc()["messages"][1]
    assert {key: reply[key] for key in ("content", "finish_reason", "response_id", "resolved_model")} == {
        "content": "You said: hi", "finish_reason": "stop", "response_id": "r1", "resolved_model": "gemini-3.8-flash",
    }  # fmt: skip
    assert reply["usage"] == {
        "prompt": 16, "completion": 5, "total": 21, "reasoning_tokens": 3, "cached_tokens": 4,
        "cache_write_tokens": None, "raw": USAGE,
    }  # fmt: skip
    assert reply["cost"] > 0
    assert reply["replay"]["reasoning"] == "Thinking."


def test_it_is_streamed_also_when_nobody_wants_to_see_the_stream(
    flash: Home, google: GeminiServer
) -> None:
    assert flash.run("--no-stream", "hi") == ("You said: hi\n", "", 0)
    assert "streamGenerateContent" in google.requests[0].path


def test_images_documents_audio_and_video_go_along(flash: Home, google: GeminiServer) -> None:
    (flash.cwd / "a.pdf").write_bytes(make_pdf())
    (flash.cwd / "b.png").write_bytes(make_png())
    (flash.cwd / "c.wav").write_bytes(b"RIFF\x24\0\0\0WAVEfmt " + b"\0" * 24)
    (flash.cwd / "d.mp4").write_bytes(MP4)
    assert flash.run("-f", "a.pdf", "-f", "b.png", "-f", "c.wav", "-f", "d.mp4", "what?").code == 0
    question, *media = google.sent[-1]["contents"][0]["parts"]
    assert question == {"text": "what?"}
    assert [part["inlineData"]["mimeType"] for part in media] == [
        "application/pdf", "image/png", "audio/wav", "video/mp4",
    ]  # fmt: skip
    assert media[0]["inlineData"]["data"].startswith("JVBERi")
    assert "d.mp4, video/mp4, " in flash.run("--show-session", "0").stdout


@pytest.mark.parametrize(
    "model", ["lab/m", "openai/gpt-6.1-sol", "anthropic/claude-sonnet-5-5", "ollama/m"]
)
def test_no_other_api_takes_video(home: Home, model: str) -> None:
    home.configure(LAB)
    (home.cwd / "d.mp4").write_bytes(MP4)
    run = home.run("-m", model, "-f", "d.mp4", "what?", env=KEYS)
    assert run == ("", f"gptsh: {model} does not accept video: choose another model with -m\n", 2)
    data = base64.b64encode(MP4).decode()
    film = {
        "type": "file",
        "file": {"filename": "d.mp4", "file_data": f"data:video/mp4;base64,{data}"},
    }
    answered = {"role": "assistant", "content": "A film."}
    asked = dry_run(
        home,
        model,
        {"role": "user", "content": [{"type": "text", "text": "what?"}, film]},
        answered,
    )
    assert data not in json.dumps(asked.body)
    assert "1 attachment not sent" in asked.stderr


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        ("gemini-3.8-flash", "low", {"includeThoughts": True, "thinkingLevel": "LOW"}),
        ("gemini-3.5-flash", "none", {"includeThoughts": True, "thinkingLevel": "MINIMAL"}),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
        ("gemini-2.5-pro", "none", {"includeThoughts": True, "thinkingBudget": 128}),
        ("gemini-2.5-pro", "minimal", {"includeThoughts": True, "thinkingBudget": 1024}),
        ("gemini-2.5-flash", "medium", {"includeThoughts": True, "thinkingBudget": 8192}),
        ("gemini-2.5-flash", "max", {"includeThoughts": True, "thinkingBudget": 24576}),
    ],
)
def test_an_effort_is_a_level_or_a_budget_for_the_models_of_2025(
    home: Home, model: str, effort: str, sent: dict[str, Any]
) -> None:
    body = dry_run(home, f"gemini/{model}", params={"reasoning_effort": effort}).body
    assert body["generationConfig"] == {"thinkingConfig": sent}


FUNCTION = {
    "name": "ls",
    "description": "Lists.",
    "parameters": {"type": "object", "properties": {}},
}
DECLARED = {"name": "ls", "description": "Lists.", "parametersJsonSchema": FUNCTION["parameters"]}


@pytest.mark.parametrize(
    ("params", "config", "beside", "left_out"),
    [
        ({"max_tokens": 50, "stop": "x"}, {"maxOutputTokens": 50, "stopSequences": ["x"]}, {}, ""),
        ({"temperature": 0.5, "top_p": 0.9, "top_k": 40, "seed": 7},
         {"temperature": 0.5, "topP": 0.9, "topK": 40, "seed": 7}, {}, ""),
        ({"n": 1, "verbosity": "low"}, {}, {}, "n, verbosity"),
        ({"safety_settings": [{"category": "X", "threshold": "OFF"}], "cached_content": "c", "store": True},
         {}, {"safetySettings": [{"category": "X", "threshold": "OFF"}], "cachedContent": "c", "store": True}, ""),
        ({"generationConfig": {"topK": 3}, "thinking_budget": 9},
         {"topK": 3, "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 9}}, {}, ""),
        ({"tools": [{"type": "function", "function": FUNCTION}, {"googleSearch": {}}], "tool_choice": "required"}, {},
         {"tools": [{"functionDeclarations": [DECLARED]}, {"googleSearch": {}}],
          "toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, ""),
        ({"tool_choice": {"type": "function", "function": {"name": "ls"}}}, {},
         {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["ls"]}}}, ""),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}},
         {"responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}}, {}, ""),
    ],
)  # fmt: skip
def test_parameters_by_the_names_of_this_api(
    home: Home,
    params: dict[str, Any],
    config: dict[str, Any],
    beside: dict[str, Any],
    left_out: str,
) -> None:
    model = "gemini/gemini-2.5-flash"
    run = dry_run(home, model, params=params)
    assert run.stderr == (
        f"gptsh: {model} does not support {left_out}; ignored\n" if left_out else ""
    )
    body = {key: value for key, value in run.body.items() if key != "contents"}
    assert body == {
        "store": False,
        **beside,
        "generationConfig": THOUGHTS["generationConfig"] | config,
    }


def test_a_schema_is_the_schema_of_the_answer(flash: Home, google: GeminiServer) -> None:
    (flash.cwd / "s.json").write_text(
        '{"type": "object", "properties": {"a": {"type": "integer"}}}'
    )
    google.answer({"text": '{"a": 1}'})
    assert flash.run("--schema", "s.json", "hi") == ('{"a": 1}\n', "", 0)
    config = google.sent[0]["generationConfig"]
    assert config["responseMimeType"] == "application/json"
    assert config["responseJsonSchema"]["type"] == "object"


def test_a_search_names_its_pages(flash: Home, google: GeminiServer) -> None:
    page = {"uri": "https://a.test/", "title": "A", "domain": "a.test"}
    found = document({"text": "Yes."}, finish="STOP")
    found["candidates"][0]["groundingMetadata"] = {
        "groundingChunks": [{"web": page}, {"retrievedContext": {}}]
    }
    google.script(event(found))
    assert json_output(flash.run("--web", "-o", "json", "hi"))["sources"] == [
        {"url": "https://a.test/", "title": "A"}
    ]
    assert google.sent[0]["tools"] == [{"googleSearch": {}}]


# ---- what goes back

TOOL_CALL = {"toolCall": {"toolType": "FILE_SEARCH", "id": "t1"}}
TOOL_RESPONSE = {"toolResponse": {"toolType": "FILE_SEARCH", "id": "t1"}}


def test_parts_go_back_with_their_signatures_to_their_own_model_alone(
    flash: Home, google: GeminiServer
) -> None:
    parts = [
        signed(thought("Hm.")), signed({"text": "I search. "}), {"text": "One moment."}, signed(TOOL_CALL),
        signed(TOOL_RESPONSE), {"text": "It rains."}, signed({"text": ""}),
    ]  # fmt: skip
    bare = {"thoughtSignature": parts[-1]["thoughtSignature"]}
    google.script(*stream(thought("So. "), *parts[:-1], {}, bare))
    run = flash.run("--reasoning", "weather?")
    assert run == ("I search. One moment.It rains.\n", "So. Hm.\n", 0)
    assert "It rains" not in json.dumps(flash.doc()["messages"][1]["replay"])  # the message has it
    assert flash.run("-s", "0", "and tomorrow?").code == 0
    assert google.sent[1]["contents"][1] == {"role": "model", "parts": parts}
    assert google.sent[1]["contents"][:1] == google.sent[0]["contents"]  # prefixes grow
    assert flash.run("-s", "0@1", "-m", "gemini/gemini-3.7-flash", "and?").code == 0
    assert google.sent[-1]["contents"][1]["parts"] == [{"text": "I search. One moment.It rains."}]


def test_calls_get_their_results_by_id_and_name_and_keep_their_signature(
    home: Home, google: GeminiServer
) -> None:
    with_tools(home, google)
    table = f'[providers.lab]\napi = "gemini"\nbase_url = "{google.google_url}"'
    home.configure(
        home.config.read_text().replace(f'[providers.lab]\nbase_url = "{google.base_url}"', table)
    )
    first = signed(call("good__add", {"a": 1, "b": 2}, "c1"))
    google.answer(
        {"text": "I look."},
        first,
        call("good__add", {"a": 3, "b": 4}),
        call("good__fail", {}, "c3"),
    )
    google.answer({"text": "Done."})
    run = home.run("go")
    assert run.stdout.split() == ["I", "look.", "Done."]
    assert run.code == 0
    asked = google.sent[1]["contents"]
    assert asked[1]["parts"][1] == first
    ids = [part["functionCall"]["id"] for part in asked[1]["parts"][1:]]
    results = [part["functionResponse"] for part in asked[2]["parts"]]
    assert [(result["id"], result["name"]) for result in results] == [
        (ids[0], "good__add"), (ids[1], "good__add"), (ids[2], "good__fail"),
    ]  # fmt: skip
    assert [*map(list, (result["response"] for result in results))] == [
        ["result"],
        ["result"],
        ["error"],
    ]
    assert google.sent[1]["tools"][0]["functionDeclarations"][0].keys() == {
        "name",
        "description",
        "parametersJsonSchema",
    }


def test_an_answer_that_was_cut_goes_back_as_text(flash: Home, google: GeminiServer) -> None:
    google.script(*stream(signed({"text": "half "}), {"text": "an answer"})[:-1], Cut)
    assert flash.run("hi").code == 1
    assert flash.doc()["messages"][1]["finish_reason"] == "error"
    assert flash.run("-s", "0", "go on").code == 0
    assert google.sent[1]["contents"][1] == {"role": "model", "parts": [{"text": "half an answe"}]}


def test_signatures_that_are_refused_are_left_out_once(flash: Home, google: GeminiServer) -> None:
    google.answer({"text": "Yes.", "thoughtSignature": "of another key"})
    assert flash.run("hi").code == 0
    assert flash.run("-s", "0", "and?").stdout == "You said: and?\n"
    assert [list(body["contents"][1]["parts"][0]) for body in google.sent[1:]] == [
        ["text", "thoughtSignature"],
        ["text"],
    ]


def test_calls_of_other_models_and_of_older_sessions_are_signed_too(home: Home) -> None:
    made = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"a": 1}'}}
    beside = {**made, "extra_content": {"google": {"thought_signature": "c2ln"}}}
    inside = {
        **made,
        "function": {**made["function"], "provider_specific_fields": {"thought_signature": "c2ln"}},
    }
    whose = {"provider": "gemini", "model": "gemini/gemini-2.5-flash"}
    for calls, of, model, expected in (
        ([made], {}, "gemini-3.8-flash", [UNSIGNED]),
        ([made, {**made, "id": "c2"}], {}, "gemini-flash-latest", [UNSIGNED, None]),
        ([made], {}, "gemini-2.5-flash", [None]),
    ):
        asked = dry_run(home, f"gemini/{model}", *turn(calls, **of)).body["contents"][1]["parts"]
        assert [part.get("thoughtSignature") for part in asked] == expected
        assert asked[0]["functionCall"] == {"id": "c1", "name": "ls", "args": {"a": 1}}
    latest = {
        "provider": "gemini",
        "model": "gemini/gemini-flash-latest",
    }  # this name was an older model
    parts = [{"text": None, "thoughtSignature": "of a text"}, {"functionCall": None}]
    replayed = turn([made], **latest, content="I look.", replay={"parts": parts})
    asked = gemini_body(home, replayed, "gemini-flash-latest")["contents"][1]["parts"]
    assert [part["thoughtSignature"] for part in asked] == ["of a text", UNSIGNED]
    for old in (beside, inside):
        body = gemini_body(home, turn([old], **whose))
        assert body["contents"][1]["parts"][0]["thoughtSignature"] == "c2ln"


def turn(calls: list[dict[str, Any]], **whose: Any) -> list[dict[str, Any]]:
    """A question, an answer with these calls, and their results."""
    results = [{"role": "tool", "tool_call_id": made["id"], "content": "r"} for made in calls]
    answered = {
        "role": "assistant",
        "content": None,
        "tool_calls": calls,
        "finish_reason": "tool_calls",
    } | whose
    return [{"role": "user", "content": "look"}, answered, *results]


def gemini_body(home: Home, messages: list[dict[str, Any]], model: str = "gemini-2.5-flash") -> Any:
    """The request for a session, with signatures that are not the strict server's."""
    put_session(home, *messages)
    run = home.run(
        "--dry-run", "-o", "json", "-m", f"gemini/{model}", "-s", "7x2m", "and now?", env=KEYS
    )
    return json.loads(run.stdout)["body"]


def test_an_image_that_a_tool_returned_follows_its_result(home: Home) -> None:
    made = {"id": "c1", "type": "function", "function": {"name": "shot", "arguments": "{}"}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    session = turn([made])
    session[2]["content"] = [{"type": "text", "text": "see"}, image]
    results = dry_run(home, MODEL, *session).body["contents"][2]["parts"]
    assert [next(iter(part)) for part in results] == [
        "functionResponse",
        "text",
        "inlineData",
        "text",
    ]


# ---- endings

BLOCKED = {
    "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
    "usageMetadata": {"promptTokenCount": 9},
}


@pytest.mark.parametrize(
    ("documents", "out", "line", "code"),
    [
        ([document({"text": "half"}, finish="MAX_TOKENS")], "half\n", "cut by the token limit (length)", 5),
        ([document({"text": "half"}, finish="SAFETY")], "half\n", "stopped by the provider's filter (SAFETY)", 5),
        ([document(finish="SAFETY")], "", "there is no answer: stopped by the provider's filter (SAFETY)", 5),
        ([BLOCKED], "", "there is no answer: stopped by the provider's filter (PROHIBITED_CONTENT)", 5),
        ([document(finish="MALFORMED_FUNCTION_CALL")], "", "ended early (MALFORMED_FUNCTION_CALL)", 5),
        ([document({"text": "half "}), error(503, "The model is overloaded.", "UNAVAILABLE")], "half \n",
         "The model is overloaded.", 1),
        ([document({"text": "half "}), [error(500, "An internal error.", "INTERNAL")]], "half \n",
         "An internal error.", 1),
        ([document(thought("Hm."), finish="STOP")], "", "the model returned an empty answer", 1),
        ([document({"text": "half "})], "half \n", "the stream ended", 1),
    ],
)  # fmt: skip
def test_how_an_answer_ends(
    flash: Home, google: GeminiServer, documents: Any, out: str, line: str, code: int
) -> None:
    google.script(*map(event, documents))
    run = flash.run("hi")
    assert run.stdout == out
    assert run.code == code
    assert line in run.stderr
    assert flash.run("-s", "0", "go on").code == 0  # what is saved can be sent


STEPS = stream(
    thought("Hm. "), signed({"text": "I look. "}), {"text": "Füße 😀 und so weiter"}, TOOL_CALL, {"text": "Now."},
    signed(call("ls", {"a": "é"}, "c1")), call("ls", {}, "c2"),
)  # fmt: skip


def test_a_stream_may_be_split_or_cut_at_any_byte() -> None:
    data = b"".join(STEPS)
    end = len(b"".join(STEPS)) - len(b"\r\n\r\n")
    whole = answer_in("gemini", data).message() or {}
    assert whole["finish_reason"] == "tool_calls"
    assert len(whole["tool_calls"]) == 2
    kept = ("content", "tool_calls", "replay", "usage", "finish_reason")
    for at in range(1, len(data), 7):
        split = answer_in("gemini", data[:at], data[at:]).message() or {}
        assert {key: split[key] for key in kept} == {key: whole[key] for key in kept}
    for at in range(1, end):
        cut = answer_in("gemini", data[:at])
        assert not cut.finished
        assert text_of(whole).startswith(
            text_of(cut.message("error") or {"role": "assistant", "content": ""})
        )


def test_an_answer_of_a_gateway_that_does_not_stream(flash: Home, google: GeminiServer) -> None:
    google.script(
        json.dumps(document({"text": "Whole."}, finish="STOP")).encode(),
        headers={"Content-Type": "text/plain"},
    )
    assert flash.run("hi").stdout == "Whole.\n"


KEY = error(400, "API key not valid. Please pass a valid API key.")
RETIRED = error(404, "This model models/x is no longer available to new users.", "NOT_FOUND")
TOO_LONG = error(
    400, "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576)."
)
BUSY = error(429, "Quota exceeded.", "RESOURCE_EXHAUSTED",
             details=[{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.02s"}])  # fmt: skip
LATER = error(429, "Quota exceeded.", "RESOURCE_EXHAUSTED", details=[{"retryDelay": "57s"}])


@pytest.mark.parametrize(
    ("body", "line", "code", "requests"),
    [
        (KEY, "gemini refused the key (400): API key not valid", 1, 1),
        (error(403, "Permission denied", "PERMISSION_DENIED"), "refused the key", 1, 1),
        (RETIRED, "does not know 'gemini-3.8-flash' (404): This model models/x is no longer available", 1, 1),
        (TOO_LONG, "the prompt is too long for gemini", 6, 1),
        (BUSY, "", 0, 2),
        (LATER, "Quota exceeded", 1, 1),
    ],
)  # fmt: skip
def test_errors_in_one_line(
    flash: Home, google: GeminiServer, body: Any, line: str, code: int, requests: int
) -> None:
    google.refuse(body["error"]["code"], body)
    run = flash.run("hi")
    assert run.code == code
    assert line in run.stderr
    assert len(google.sent) == requests


def test_an_error_in_a_list_is_read_like_any_other(flash: Home, google: GeminiServer) -> None:
    google.refuse(400, [KEY])
    assert "gemini refused the key (400): API key not valid" in flash.run("hi").stderr


def test_an_overload_at_the_beginning_of_a_stream_is_tried_again(
    flash: Home, google: GeminiServer
) -> None:
    google.script(event([BUSY]))
    assert flash.run("hi").stdout == "You said: hi\n"


def test_a_schema_that_is_refused_is_in_the_prompt(flash: Home, google: GeminiServer) -> None:
    (flash.cwd / "s.json").write_text('{"type": "object"}')
    google.refuse(
        400,
        error(400, "Function calling with a response mime type: 'application/json' is unsupported"),
    )
    google.answer({"text": "{}"})
    assert flash.run("--schema", "s.json", "hi").stdout == "{}\n"
    assert "responseJsonSchema" not in json.dumps(google.sent[1])
    assert '{"type": "object"}' in google.sent[1]["systemInstruction"]["parts"][0]["text"]


# ---- servers


def test_a_gateway_lists_its_models_with_their_windows(home: Home, google: GeminiServer) -> None:
    home.configure(f'[providers.lab]\nbase_url = "{google.google_url}"\napi = "gemini"\n')
    answers = {"supportedGenerationMethods": ["generateContent", "countTokens"]}
    google.pages["/v1beta/models?pageSize=1000"] = {"models": [
        {"name": "models/gemini-x", "inputTokenLimit": 4096, "outputTokenLimit": 9, **answers},
        {"name": "models/embedding-x", "supportedGenerationMethods": ["embedContent"]},
    ]}  # fmt: skip
    rows = [
        json.loads(line)
        for line in home.run("--list-models", "-m", "lab/", "-o", "jsonl").stdout.splitlines()
    ]
    assert [(row["model"], row["api"], row["window"]) for row in rows] == [
        ("lab/gemini-x", "gemini", 4096)
    ]
    asked = json_output(home.run("-m", "lab/gemini-x", "-o", "json", "hi"))
    assert asked["text"] == "You said: hi"
    assert google.requests[-1].headers.get("x-goog-api-key") is None
    assert home.run("-m", "lab/gemini-x", "word " * 9000).code == 6
