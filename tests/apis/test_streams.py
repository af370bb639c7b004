"""The chat completions dialect: what every known kind of stream leads to, on stdout and in the session."""

import itertools
import json
import time
from typing import Any

import pytest

from gptsh.errors import ModelError
from gptsh.llm.stream import lines
from gptsh.models.usage import usage_from
from tests.support.apis import tool_in_request
from tests.support.home import Home
from tests.support.server import USAGE, ModelServer, answer, chunk, event

LAST = chunk({}, "stop")
DONE = b"[DONE]"
TEXT = "reasoning.text"
SUMMARY = "reasoning.summary"
CODED = "reasoning.encrypted"


def answered(lab: Home, model: ModelServer, *payloads: Any) -> Any:
    """The run, and the answer as it is kept; None where none is."""
    model.script(*(event(payload) for payload in payloads))
    run = lab.run("--reasoning", "go")
    messages = lab.doc()["messages"]
    return run, messages[1] if len(messages) > 1 else None


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 4}}, {"cached_tokens": 4}),
        ({"prompt_cache_hit_tokens": 5}, {"cached_tokens": 5}),
        ({"prompt_tokens_details": {"cache_write_tokens": 7}}, {"cache_write_tokens": 7}),
        ({"completion_tokens_details": {"reasoning_tokens": 8}}, {"reasoning_tokens": 8, "completion": 12}),
        # xai counts reasoning beside the completion: 10 + 12 + 340 = 362
        ({"completion_tokens_details": {"reasoning_tokens": 340}, "total_tokens": 362},
         {"completion": 352, "total": 362}),
        ({"total_tokens": 362}, {"completion": 12, "reasoning_tokens": None}),
        ({"prompt_tokens": "many", "completion_tokens": None}, {"prompt": None, "completion": None}),
    ],
)  # fmt: skip
def test_usage_in_our_names(raw: dict[str, Any], expected: dict[str, Any]) -> None:
    usage: Any = usage_from({"prompt_tokens": 10, "completion_tokens": 12, **raw})
    assert {key: usage[key] for key in expected} == expected


def details(**keys: Any) -> dict[str, Any]:
    return chunk({"reasoning_details": [keys]})


# Chunks before the last, stdout, stderr, and what is kept.
SAID: dict[str, tuple[list[Any], str, str, dict[str, Any]]] = {
    "reasoning as reasoning_text": (
        [chunk({"reasoning_text": "hm "}), chunk({"reasoning_text": "hm", "content": None}), chunk({"content": "yes"})],
        "yes\n", "hm hm\n", {"replay": {"reasoning_text": "hm hm"}}),
    "mistral's list": ([chunk({"content": [{"type": "text", "text": "yes"}]})], "yes\n", "", {"content": "yes"}),
    "a block with its signature at the end": (
        [details(type=TEXT, text="Let", index=0, signature=None), details(type=TEXT, text=" me", index=0),
         details(type=TEXT, signature="s", index=0, format="f"), chunk({"content": "x"})], "x\n", "Let me\n",
        {"replay": {"reasoning": "Let me", "reasoning_details": [
            {"type": TEXT, "text": "Let me", "index": 0, "signature": "s", "format": "f"}]}}),
    "another type, another id": (
        [details(type=SUMMARY, summary="a", index=0), details(type=SUMMARY, summary="b", index=0),
         details(type=CODED, data="x", id="c1", index=0), details(type=CODED, data="y", id="c2", index=0),
         chunk({"content": "x"})], "x\n", "ab\n",
        {"replay": {"reasoning": "ab", "reasoning_details": [
            {"type": SUMMARY, "summary": "ab", "index": 0}, {"type": CODED, "data": "x", "id": "c1", "index": 0},
            {"type": CODED, "data": "y", "id": "c2", "index": 0}]}}),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_what_a_stream_says(lab: Home, model: ModelServer, name: str) -> None:
    chunks, out, err, kept = SAID[name]
    run, reply = answered(lab, model, *chunks, LAST, DONE)
    assert run == (out, err, 0)
    assert {key: reply.get(key) for key in kept} == kept


def test_the_name_that_the_server_gives_its_model_is_kept(lab: Home, model: ModelServer) -> None:
    last = {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": "END"}]
    }  # vLLM's
    _, reply = answered(
        lab, model, {**chunk({"content": "x"}), "model": "m-2026-11-01"}, last, DONE
    )
    assert reply["model"] == "lab/m"
    assert reply["resolved_model"] == "m-2026-11-01"
    assert reply["stop_sequence"] == "END"
    assert lab.doc()["meta"]["output"] == "text"


def test_what_came_whole_is_kept_as_it_came(lab: Home, model: ModelServer) -> None:
    given = [{"type": TEXT, "text": "a"}, {"type": TEXT, "text": "b", "signature": None}]
    message = {"role": "assistant", "content": "x", "reasoning_details": given, "reasoning": "ab"}
    whole = {
        "id": "r1",
        "choices": [{"message": message, "finish_reason": "stop"}],
        "usage": {**USAGE, "odd": float("nan")},
    }
    model.script(
        json.dumps(whole).encode(), headers={"Content-Type": "application/json"}, framing="length"
    )
    assert lab.run("--no-stream", "--reasoning", "go") == ("x\n", "ab\n", 0)
    assert not {"stream", "stream_options"} & set(model.sent[0])
    reply = lab.doc()["messages"][1]
    assert reply["replay"] == {"reasoning": "ab", "reasoning_details": given}
    assert reply["response_id"] == "r1"
    assert reply["usage"]["raw"]["odd"] is None  # what JSON cannot hold does not stop a save


def call(**delta: Any) -> dict[str, Any]:
    return chunk({"tool_calls": [delta]})


def ls(arguments: Any, name: str = "ls") -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def more(arguments: str) -> dict[str, Any]:
    return {"arguments": arguments}


CALLS: dict[str, tuple[list[Any], list[tuple[str, str, str]]]] = {
    "incremental (openai)": (
        [call(index=0, id="a", function=ls("")), call(index=0, function=more('{"p"')),
         call(index=0, function=more(":1}"))], [("a", "ls", '{"p":1}')]),
    "two at once, interleaved": (
        [call(index=0, id="a", function=ls("{")), call(index=1, id="b", function=ls("[", "cat")),
         call(index=0, function=more("}")), call(index=1, function=more("]"))],
        [("a", "ls", "{}"), ("b", "cat", "[]")]),
    "whole, no index (mistral)": (
        [call(id="a", function=ls("{}")), call(id="b", function=ls("[]"))], [("a", "ls", "{}"), ("b", "ls", "[]")]),
    "empty ids later (dashscope)": (
        [call(index=0, id="a", function=ls("{")), call(index=0, id="", function=ls("}", ""))], [("a", "ls", "{}")]),
    "neither index nor id goes on": (
        [call(id="a", function=ls('{"a')), call(function=more('":1}'))], [("a", "ls", '{"a":1}')]),
    "arguments as an object": ([call(index=0, id="a", function=ls({"p": 1}))], [("a", "ls", '{"p": 1}')]),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_tool_calls_from_their_deltas(lab: Home, model: ModelServer, name: str) -> None:
    deltas, expected = CALLS[name]
    run, reply = answered(lab, model, chunk({"content": "I look."}), *deltas, LAST, DONE)
    assert run.stdout == "I look.\n"
    assert run.code == 0
    found = [
        (c["id"], c["function"]["name"], c["function"]["arguments"]) for c in reply["tool_calls"]
    ]
    assert found == expected
    assert reply["finish_reason"] == "tool_calls"


def test_calls_without_an_id_or_with_the_same_get_one_each(lab: Home, model: ModelServer) -> None:
    twins = [call(index=at, id="c", function=ls("{}")) for at in range(2)]
    nameless = [call(function=ls("{}", name)) for name in "ab"]
    _, reply = answered(lab, model, *twins, *nameless, LAST, DONE)
    assert len({made["id"] for made in reply["tool_calls"]}) == 4


A = ls('{"a":{}}')
B = ls('{"b":2}', "cat")
SPLIT = [
    call(index=0, function=ls("")),
    *(call(index=0, function=ls(piece)) for piece in ('{"a":{}', "}")),
]


@pytest.mark.parametrize(
    "deltas",
    [
        [call(index=0, function=A), call(index=0, function=B)],
        [call(function=A), call(function=B)],
        [call(index=0, id="a", function=A), call(index=0, function=B)],
        [*SPLIT, call(index=0, function=B)],  # with its name in each piece
        [
            *SPLIT,
            call(index=0, function=ls("")),
            call(index=0, function=B),
        ],  # also in a last, empty one
        [
            {"choices": [{"delta": {"tool_calls": [piece]}, "message": {"tool_calls": [piece]}}]}
            for piece in (
                {"index": 0, "id": "a", "function": ls('{"a":{')},
                {"index": 0, "function": more("}}")},
                {"index": 1, "function": B},
            )
        ],  # the message so far beside each delta
        [
            {
                "choices": [
                    {"message": {"content": None, "tool_calls": [{"function": A}, {"function": B}]}}
                ]
            }
        ],
        [
            {
                "choices": [
                    {"message": {"tool_calls": [{"index": 0, "function": made} for made in (A, B)]}}
                ]
            }
        ],
    ],
)
def test_calls_that_neither_an_index_nor_an_id_tells_apart(
    lab: Home, model: ModelServer, deltas: list[Any]
) -> None:
    _, reply = answered(lab, model, *deltas, LAST, DONE)
    assert [made["function"] for made in reply["tool_calls"]] == [A, B]


def test_ten_thousand_calls_in_turns_take_a_moment(lab: Home, model: ModelServer) -> None:
    count = 10_000
    begun = [
        {"index": at, "id": f"c{at}", "function": {"name": "ls", "arguments": '{"at"'}}
        for at in range(count)
    ]
    ended = [{"index": at, "function": {"arguments": f":{at}}}"}} for at in range(count)]
    payloads = [chunk({"tool_calls": [call]}) for call in (*begun, *ended)]
    started = time.process_time()
    _, reply = answered(lab, model, *payloads, LAST, DONE)
    assert time.process_time() - started < 10  # it was minutes
    assert [call["function"]["arguments"] for call in reply["tool_calls"]] == [
        f'{{"at":{at}}}' for at in range(count)
    ]


def test_all_keys_of_a_call_and_its_function_are_kept(lab: Home, model: ModelServer) -> None:
    signed = {"google": {"thought_signature": "c2ln"}}
    inside = {**ls("{"), "provider_specific_fields": {"thought_signature": "s"}, "own": None}
    deltas = [
        call(index=0, id="c1", function=inside, extra_content=signed),
        call(index=0, function=more("}")),
    ]
    _, reply = answered(lab, model, chunk({"content": "x"}), *deltas, LAST, DONE)
    assert reply["tool_calls"] == [
        {
            "id": "c1",
            "type": "function",
            "function": {**inside, "arguments": "{}"},
            "extra_content": signed,
        }
    ]


PARTIAL = chunk({"content": "half"})
ENDS: dict[str, tuple[list[Any], str, int, str]] = {
    "no [DONE]": ([PARTIAL, LAST], "half\n", 0, ""),
    "cut off": ([PARTIAL], "half\n", 1, "the stream ended"),
    "garbage": ([PARTIAL, b"{garbage"], "half\n", 1, "not JSON"),
    "finish_reason error": ([PARTIAL, chunk({}, "error"), DONE], "half\n", 1, "ended the answer with an error"),
    **{
        f"an error as {list(payload)}": ([PARTIAL, payload], "half\n", 1, "the provider reported: overloaded")
        for payload in (
            {"error": {"message": "overloaded", "code": 529}}, {"error": "overloaded"}, {"detail": "overloaded"},
            {"object": "error", "message": "overloaded"}, {"choices": [{"error": {"message": "overloaded"}}]})
    },
    "words beside an error": (
        [{**chunk({"content": "LAST"}), "error": {"message": "overloaded"}}], "LAST\n", 1, "overloaded"),
    **{
        reason: ([PARTIAL, chunk({}, reason), DONE], "half\n", 5, reason)
        for reason in ("model_length", "insufficient_system_resource", "MAX_TOKENS", "safety", "abort")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_how_a_stream_ends(lab: Home, model: ModelServer, name: str) -> None:
    payloads, out, code, line = ENDS[name]
    run, reply = answered(lab, model, *payloads)
    assert run.stdout == out
    assert run.code == code
    assert line in run.stderr
    assert (reply["content"] if reply else "") == out.rstrip("\n")


def test_a_stream_without_an_answer_is_asked_for_once_more_as_a_whole(
    lab: Home, model: ModelServer
) -> None:
    model.script()
    assert lab.run("hi") == ("You said: hi\n", "", 0)
    assert [bool(body.get("stream")) for body in model.sent] == [True, False]
    assert lab.doc()["messages"][1]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "noise",
    [
        b": OPENROUTER PROCESSING\n\n",
        b"event: ping\ndata: \n\n",
        event({"id": "x", "object": "chat.completion.chunk", "detail": "warn"}),
    ],
)
def test_noise_between_the_events_takes_nothing_from_the_answer(
    lab: Home, model: ModelServer, noise: bytes
) -> None:
    model.script(
        noise,
        event(chunk({"content": "one "})),
        noise,
        event(chunk({"content": "two"})),
        event(LAST),
        noise,
    )
    assert lab.run("go") == ("one two\n", "", 0)


def test_a_surrogate_pair_cut_in_two_is_whole_on_stdout(lab: Home, model: ModelServer) -> None:
    pieces = [
        r'{"choices":[{"delta":{"content":"a\ud83d"}}]}',
        r'{"choices":[{"delta":{"content":"\ude00b\ud83d"}}]}',
    ]
    model.script(*(event(piece.encode()) for piece in pieces), event(LAST))
    assert lab.run("go").stdout == "a😀b?\n"
    assert lab.doc()["messages"][1]["content"] == "a😀b\ud83d"


@pytest.mark.parametrize("provider", ["lab", "gemini"])
def test_a_tool_without_arguments_has_properties_as_openai_wants_them(provider: str) -> None:
    for given in ({"type": "object"}, {"type": "object", "properties": None}):
        tool = tool_in_request(provider, "", given)
        key = "parametersJsonSchema" if provider == "gemini" else "parameters"
        assert tool[key] == {"type": "object", "properties": {}}


def test_a_description_is_as_long_as_openai_takes_it_and_whole_for_all_others() -> None:
    assert tool_in_request("openai", "d" * 1024, {})["description"] == "d" * 1024
    assert tool_in_request("openai", "word\n" * 300, {})["description"] == "word\n" * 203 + "word…"
    for provider in ("lab", "groq", "openrouter", "deepseek", "anthropic", "ollama"):
        assert tool_in_request(provider, "word\n" * 300, {})["description"] == "word\n" * 300


def test_an_empty_finish_reason_in_a_later_chunk_replaces_none(
    lab: Home, model: ModelServer
) -> None:
    run, message = answered(
        lab, model, chunk({"content": "yes"}), LAST, {**chunk({}, ""), "usage": USAGE}, DONE
    )
    assert run.stdout == "yes\n"
    assert run.code == 0
    assert message["finish_reason"] == "stop"
    assert message["usage"]["raw"] == USAGE


def test_blank_lines_that_drip_in_are_no_answer(lab: Home, model: ModelServer) -> None:
    lab.configure(
        lab.config.read_text()
        + "[network]\nfirst_byte_timeout = 1\nidle_timeout = 1\nretries = 0\n"
    )
    drip = [step for _ in range(60) for step in (b"\n", 0.1)]
    first, *_ = answer("first")[1:]
    for steps, text in (((*drip,), ""), ((first, *drip), "first\n")):
        model.script(*steps, model="m")
        started = time.monotonic()
        run = lab.run("hi")
        assert run.stdout == text
        assert run.code == 124
        assert time.monotonic() - started < 4


def test_a_line_that_would_fill_the_memory_is_refused() -> None:
    chunks = itertools.repeat(b"x" * 10_000_000)
    with pytest.raises(ModelError, match=r"a line of more than 200\.0 MB"):
        next(lines(itertools.chain([b"data: "], chunks)))
