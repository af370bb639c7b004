"""The chat completions dialect: what goes out, and what every known kind of stream means."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.core.messages import Finished, Identified, Reasoning, Refusal, Text, Tool, ToolCall, Used
from gptsh.core.providers import OWN, PROVIDERS
from gptsh.core.reported import usage_from
from gptsh.core.settings import Network, Provider
from gptsh.core.turn import Request, Round
from gptsh.errors import ModelError
from gptsh.llm.chat_completions import body
from gptsh.llm.chat_stream import read_stream, read_whole
from gptsh.llm.litellm_bridge import arguments
from gptsh.llm.routes import Route
from tests.support.server import answer, chunk, event

DONE = event(b"[DONE]")


def events(*payloads: Any) -> list[Any]:
    stream = [event(p) if isinstance(p, dict) else p for p in payloads]
    return [e for e in read_stream(stream) if not isinstance(e, Identified)]


def call(**delta: Any) -> dict[str, Any]:
    return chunk({"tool_calls": [delta]})


def calls_in(*payloads: Any) -> list[tuple[str, str, str]]:
    found = [e.call for e in events(*payloads, chunk({}, "tool_calls"), DONE) if isinstance(e, ToolCall)]
    return [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in found]


def test_text_usage_and_reason() -> None:
    got = events(*answer("hel", "lo"))
    assert got[:3] == [Text("hel"), Text("lo"), Finished("stop")]  # said at once, so that nothing later can undo it
    assert isinstance(got[-2], Used)
    assert got[-1] == Finished("stop")


USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
LAST = chunk({}, "stop")


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param([LAST, {"choices": [], "usage": USAGE}], id="own chunk (openai)"),
        pytest.param([chunk({}, "stop", usage=USAGE)], id="finish chunk (deepseek, cerebras)"),
        pytest.param([chunk({}, "stop", x_groq={"usage": USAGE})], id="x_groq"),
        pytest.param([{"choices": [{"delta": {}, "finish_reason": "stop", "usage": USAGE}]}], id="choice (moonshot)"),
        pytest.param(
            [chunk({"content": ""}, usage={**USAGE, "total_tokens": 1}), chunk({}, "stop", usage=USAGE)],
            id="every chunk, growing (perplexity)",
        ),
        pytest.param([chunk({}, "stop", usage=USAGE), {"choices": [], "usage": None}], id="a later null"),
        pytest.param([LAST, {"choices": None, "usage": USAGE}], id="choices null (vllm)"),
    ],
)
def test_usage_in_any_of_its_places(stream: list[Any]) -> None:
    (used,) = [e for e in events(chunk({"content": "x"}), *stream, DONE) if isinstance(e, Used)]
    assert (used.usage["prompt"], used.usage["completion"], used.usage["total"]) == (1, 2, 3)
    assert used.usage["raw"] == USAGE


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 4}}, {"cached_tokens": 4}),
        ({"prompt_cache_hit_tokens": 5}, {"cached_tokens": 5}),
        ({"cached_tokens": 6}, {"cached_tokens": 6}),
        ({"prompt_tokens_details": {"cached_tokens": 0}, "cached_tokens": 9}, {"cached_tokens": 0}),
        ({"prompt_tokens_details": {"cache_write_tokens": 7}}, {"cache_write_tokens": 7}),
        ({"completion_tokens_details": {"reasoning_tokens": 8}}, {"reasoning_tokens": 8, "completion": 12}),
        (
            # xai counts reasoning beside the completion: 10 + 12 + 340 = 362
            {"completion_tokens_details": {"reasoning_tokens": 340}, "total_tokens": 362},
            {"completion": 352, "total": 362},
        ),
        ({"total_tokens": None}, {"total": 22}),
        ({"prompt_tokens": "many", "completion_tokens": None}, {"prompt": None, "completion": None}),
        ({"prompt_tokens_details": None, "completion_tokens_details": "x"}, {"cached_tokens": None}),
    ],
)
def test_usage_in_our_names(raw: dict[str, Any], expected: dict[str, Any]) -> None:
    usage: Any = usage_from({"prompt_tokens": 10, "completion_tokens": 12, **raw})
    assert {key: usage[key] for key in expected} == expected


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text"])
def test_reasoning_under_each_of_its_names(field: str) -> None:
    got = events(chunk({field: "hm "}), chunk({field: "hm", "content": None}), chunk({"content": "yes"}), LAST, DONE)
    assert got[:3] == [Reasoning("hm ", field), Reasoning("hm", field), Text("yes")]


def test_reasoning_sent_twice_counts_once() -> None:
    got = events(chunk({"reasoning_content": "", "reasoning": "a", "reasoning_text": "a"}), LAST, DONE)
    assert got[0] == Reasoning("a", "reasoning")
    assert len([e for e in got if isinstance(e, Reasoning)]) == 1


def test_mistrals_content_list() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "yes"}]
    assert events(chunk({"content": parts}), LAST, DONE)[:2] == [Reasoning("hm", "thinking"), Text("yes")]


def test_a_refusal_is_its_own_event() -> None:
    assert events(chunk({"refusal": "I can"}), chunk({"refusal": "not"}), LAST, DONE)[:2] == [
        Refusal("I can"),
        Refusal("not"),
    ]


TOOL = {"function": {"name": "ls", "arguments": ""}}


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        pytest.param(
            [
                call(index=0, id="a", type="function", function={"name": "ls", "arguments": ""}),
                call(index=0, function={"arguments": '{"p"'}),
                call(index=0, function={"arguments": ":1}"}),
            ],
            [("a", "ls", '{"p":1}')],
            id="incremental (openai)",
        ),
        pytest.param(
            [
                call(index=0, id="a", function={"name": "ls", "arguments": "{"}),
                call(index=1, id="b", function={"name": "cat", "arguments": "["}),
                call(index=0, function={"arguments": "}"}),
                call(index=1, function={"arguments": "]"}),
            ],
            [("a", "ls", "{}"), ("b", "cat", "[]")],
            id="two at once, interleaved",
        ),
        pytest.param(
            [
                call(id="a", function={"name": "ls", "arguments": "{}"}),
                call(id="b", function={"name": "ls", "arguments": "[]"}),
            ],
            [("a", "ls", "{}"), ("b", "ls", "[]")],
            id="whole, no index (mistral, gemini)",
        ),
        pytest.param(
            [
                call(index=0, id="a", function={"name": "ls", "arguments": "{"}),
                call(index=0, id="", function={"name": "", "arguments": "}"}),
            ],
            [("a", "ls", "{}")],
            id="empty ids later (dashscope)",
        ),
        pytest.param(
            [
                call(index=0, id="a", function={"name": "ls", "arguments": "{}"}),
                call(index=0, id="b", function={"name": "cat", "arguments": "{}"}),
            ],
            [("a", "ls", "{}"), ("b", "cat", "{}")],
            id="a new id at a used index",
        ),
        pytest.param(
            [
                call(index=0, id="a", function={"name": "ls", "arguments": "{"}),
                call(id="a", function={"arguments": "}"}),
            ],
            [("a", "ls", "{}")],
            id="the index only at first",
        ),
        pytest.param(
            [call(id="a", function={"name": "ls", "arguments": '{"a'}), call(function={"arguments": '":1}'})],
            [("a", "ls", '{"a":1}')],
            id="neither index nor id goes on",
        ),
        pytest.param(
            [
                call(index=0, id="a", function={"name": "ls", "arguments": "{"}),
                call(index=0, id="b", function={"name": "cat", "arguments": "["}),
                call(index=0, id="a", function={"arguments": "}"}),
                call(id="b", function={"arguments": "]"}),
            ],
            [("a", "ls", "{}"), ("b", "cat", "[]")],
            id="an id comes back",
        ),
        pytest.param(
            [
                call(index=0, id="a", function={"name": "ls", "arguments": "{"}),
                call(index=1, id="a", function={"name": "ls", "arguments": "["}),
                call(index=0, function={"arguments": "}"}),
                call(index=1, id="a", function={"arguments": "]"}),
            ],
            [("a", "ls", "{}"), ("a", "ls", "[]")],
            id="two indexes with one id",
        ),
        pytest.param(
            [
                call(id="a", function={"name": "ls", "arguments": "{"}),
                call(index=0, id="a", function={"arguments": '"p"'}),
                call(index=0, function={"arguments": ":1}"}),
            ],
            [("a", "ls", '{"p":1}')],
            id="the index only later",
        ),
        pytest.param(
            [
                call(id="a", function={"name": "ls", "arguments": '{"a'}),
                call(function={"name": "ls", "arguments": '":1}'}),
            ],
            [("a", "ls", '{"a":1}')],
            id="the name repeated while the arguments go on",
        ),
        pytest.param(
            [call(index=0, id="a", function={"name": "ls", "arguments": "not JSON"})],
            [("a", "ls", "not JSON")],
            id="arguments verbatim",
        ),
        pytest.param(
            [call(index=0, id="a", function={"name": "ls", "arguments": {"p": 1}})],
            [("a", "ls", '{"p": 1}')],
            id="arguments as an object",
        ),
    ],
)
def test_tool_calls_from_their_deltas(deltas: list[Any], expected: list[Any]) -> None:
    assert calls_in(*deltas) == expected


def test_tool_calls_without_any_id_get_one_each() -> None:
    got = calls_in(call(function={"name": "a", "arguments": "{}"}), call(function={"name": "b", "arguments": "{}"}))
    assert [name for _, name, _ in got] == ["a", "b"]
    assert got[0][0] != got[1][0]


def test_unknown_keys_of_a_call_are_kept() -> None:
    signature = {"google": {"thought_signature": "c2ln"}}
    got = events(call(index=0, id="a", extra_content=signature, **TOOL), chunk({}, "tool_calls"), DONE)
    (kept,) = [e.call for e in got if isinstance(e, ToolCall)]
    assert kept["extra_content"] == signature


@pytest.mark.parametrize(("reason", "meant"), [("stop", "tool_calls"), ("", "tool_calls"), (None, None)])
def test_a_stop_with_calls_means_tool_calls(reason: str | None, meant: str | None) -> None:
    assert events(call(index=0, id="a", **TOOL), chunk({}, reason), DONE)[-1] == Finished(meant)


@pytest.mark.parametrize(
    "payload",
    [
        {"error": {"message": "overloaded", "code": 529}},
        {"error": "overloaded"},
        {"object": "error", "message": "overloaded"},
        {"error": {"metadata": {}, "detail": ["overloaded"]}},
    ],
)
def test_an_error_inside_the_stream(payload: dict[str, Any]) -> None:
    got = []
    with pytest.raises(ModelError, match="overloaded"):
        got += list(read_stream([event(chunk({"content": "partial"})), event(payload)]))
    turn = Round(read_stream([event(chunk({"content": "partial"})), event(payload)]))
    with pytest.raises(ModelError):
        list(turn)
    message = turn.message("error")
    assert message
    assert message["content"] == "partial"


@pytest.mark.parametrize(
    "stream",
    [
        [chunk({"content": "x"})],
        [],
        [chunk({"content": "x"}), b"data: {garbage\n\n"],
        [b"data: [1]\n\n"],
        [chunk({"content": "x"}, "error"), DONE],
    ],
    ids=["cut off", "empty", "garbage", "no object", "finish_reason error"],
)
def test_a_stream_that_is_not_whole_is_an_error(stream: list[Any]) -> None:
    with pytest.raises(ModelError):
        events(*stream)


@pytest.mark.parametrize("stream", [[LAST], [chunk({"content": "x"}), DONE]], ids=["no [DONE]", "no finish_reason"])
def test_either_sign_of_the_end_is_enough(stream: list[Any]) -> None:
    assert isinstance(events(chunk({"content": "x"}), *stream)[-1], Finished)


def test_comments_between_events_say_nothing() -> None:
    assert events(b": OPENROUTER PROCESSING\n\n", *answer("x"))[0] == Text("x")


def test_an_answer_in_one_piece() -> None:
    whole = {
        "id": "r1",
        "choices": [{"message": {"role": "assistant", "content": "hi", "reasoning": "hm"}, "finish_reason": "stop"}],
        "usage": USAGE,
    }
    got = list(read_whole(json.dumps(whole).encode()))
    assert got[:3] == [Identified(None, "r1"), Reasoning("hm", "reasoning"), Text("hi")]
    assert got[-1] == Finished("stop")
    for wrong in (b"<html>", b"{}", b'{"choices": []}', b"[]"):
        with pytest.raises(ModelError):
            list(read_whole(wrong))


def test_numbers_that_json_cannot_hold_do_not_stop_a_save() -> None:
    (used,) = [e for e in read_whole(b'{"choices":[{"message":{"content":"x"}}],"usage":{"a":1e999,"b":NaN}}')
               if isinstance(e, Used)]  # fmt: skip
    assert used.usage["raw"] == {"a": None, "b": None}


_any = st.sampled_from(
    [
        None,
        True,
        0,
        7,
        "",
        "x",
        [],
        ["x"],
        [None],
        {},
        {"x": 1},
        {"name": 1, "arguments": []},
        {"text": 3},
        [{"type": 1}],
    ]
)


def _maybe(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return _any | st.fixed_dictionaries({}, optional={key: _any | kind for key, kind in keys.items()})


_call = _maybe(index=_any, id=_any, type=_any, function=_maybe(name=_any, arguments=_any))
_delta = _maybe(content=_any, reasoning=_any, refusal=_any, tool_calls=st.lists(_call, max_size=3))
_choice = _maybe(delta=_delta, message=_delta, finish_reason=_any, usage=_any)
_usage = _maybe(prompt_tokens=_any, completion_tokens=_any, total_tokens=_any, completion_tokens_details=_any)
_chunk = st.fixed_dictionaries(
    {}, optional={"choices": st.lists(_choice, max_size=2), "usage": _usage, "x_groq": _any, "id": _any}
)


@given(_chunk)
def test_no_shape_of_a_chunk_makes_it_crash(payload: dict[str, Any]) -> None:
    for read in (read_stream([event(payload), DONE]), read_whole(json.dumps(payload).encode())):
        with contextlib.suppress(ModelError):
            list(read)


def test_what_is_sent() -> None:
    request = Request(
        "lab/m",
        [
            {"role": "system", "content": "Brief."},
            {"role": "user", "content": [{"type": "text", "text": "q"},
                                         {"type": "text", "text": "log\n", "source": "stdin"}], "id": "1"},
            {"role": "assistant", "content": None, "id": "2", "usage": None, "replay": {"reasoning": "hm"},
             "tool_calls": [{"id": "a", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": "out", "is_error": False},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}, "source": "a.png"}]},
        ],
        {"temperature": 0.5, "max_tokens": 9},
    )  # fmt: skip
    sent = body(request, "m", OWN, provider="lab", stream_options=True)
    assert sent["model"] == "m"
    assert sent["stream"] is True
    assert sent["stream_options"] == {"include_usage": True}
    assert (sent["temperature"], sent["max_tokens"]) == (0.5, 9)
    assert sent["messages"] == [
        {"role": "system", "content": "Brief."},
        {"role": "user", "content": "q\n\nlog\n"},
        {"role": "assistant", "content": None, "tool_calls": request.messages[2]["tool_calls"]},
        {"role": "tool", "tool_call_id": "a", "content": "out"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]},
    ]
    whole = body(request._replace(stream=False), "m", OWN, provider="lab", stream_options=True)
    assert "stream" not in whole
    assert "stream_options" not in whole


@pytest.mark.parametrize(
    ("parameters", "sent"),
    [
        ({"type": "object"}, {"type": "object", "properties": {}}),
        ({"type": "object", "properties": None}, {"type": "object", "properties": {}}),
        ({"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
    ],
)
def test_a_tool_without_arguments_has_properties_as_openai_wants_them(parameters: Any, sent: Any) -> None:
    request = Request("lab/m", [], {}, tools=(Tool("t", "", parameters),))
    for wire in (
        body(request, "m", OWN, provider="lab", stream_options=False),
        arguments(request, Route(Provider("azure", PROVIDERS["azure"]), "m", "litellm"), Network()),
    ):
        assert [tool["function"]["parameters"] for tool in wire["tools"]] == [sent]
    assert request.tools[0].parameters == parameters


@pytest.mark.parametrize(
    ("description", "sent"),
    [
        ("d" * 1024, "d" * 1024),
        ("d" * 1025, "d" * 1023 + "…"),
        ("word\n" * 300, "word\n" * 203 + "word…"),
    ],
)
def test_a_description_is_as_long_as_openai_takes_it(description: str, sent: str) -> None:
    request = Request("lab/m", [], {}, tools=(Tool("t", description, {}),))
    (tool,) = body(request, "m", OWN, provider="lab", stream_options=False)["tools"]
    assert tool["function"]["description"] == sent
    assert len(sent) <= 1024


@pytest.mark.parametrize(
    ("provider", "model", "field"),
    [
        ("openai", "gpt-4.1", "max_tokens"),
        ("openai", "o3", "max_completion_tokens"),
        ("openai", "gpt-5.4-mini", "max_completion_tokens"),
        ("openai", "gpt-6-sol", "max_completion_tokens"),
        ("openai", "gpt-5-chat-latest", "max_tokens"),
        ("lab", "o3", "max_tokens"),
    ],
)
def test_the_token_limit_under_the_name_that_the_model_takes(provider: str, model: str, field: str) -> None:
    request = Request(f"{provider}/{model}", [], {"max_tokens": 9})
    sent = body(request, model, OWN, provider=provider, stream_options=False)
    assert {key: value for key, value in sent.items() if key.startswith("max")} == {field: 9}
