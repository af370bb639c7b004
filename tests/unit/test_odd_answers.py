"""Whatever a server streams, in any dialect: an answer or an error, and a session file that can be read again."""

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptsh.core import checks, files
from gptsh.core.messages import Event
from gptsh.core.turn import Round
from gptsh.errors import ModelError, TooLong
from gptsh.llm import anthropic_stream, chat_stream, ollama_stream
from tests.support.anthropic_server import said as says
from tests.support.anthropic_server import stream, thought, tool
from tests.support.dialects import everything_with
from tests.support.server import chunk

Payloads = list[dict[str, Any]]

CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"a":1}'}}
CLAUDES: Payloads = [
    json.loads(data.partition(b"data: ")[2])
    for data in stream(
        thought(0, "hm ", "so"), says(1, "I ", "look."), tool(2, "t1", "ls", '{"a":', "1}"), thought(3, "again"),
        [*says(4, "cited")[:-1]], tool(5, "t2", "ls", "{}"), stop="tool_use",
    )
]  # fmt: skip
CHATS: Payloads = [
    chunk({"role": "assistant", "reasoning_content": "hm"}),
    chunk({"thinking_blocks": [{"type": "thinking", "thinking": "so"}, {"type": "thinking", "signature": "s"}]}),
    chunk({"reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0, "id": "r"}]}),
    chunk({"content": "I look.", "refusal": "No.", "annotations": [{"type": "file", "file": {}}]}),
    chunk({"tool_calls": [{"index": 0, **CALL, "extra_content": {"google": {"thought_signature": "x"}}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": ""}}, {"index": 1, **CALL, "id": "c2"}]}),
    chunk({}, "tool_calls", usage={"prompt_tokens": 1, "completion_tokens": 2}),
]
LLAMAS: Payloads = [
    {"message": {"role": "assistant", "thinking": "hm"}, "done": False},
    {"message": {"role": "assistant", "content": "I look."}, "done": False},
    {"message": {"tool_calls": [{"id": "c1", "function": {"index": 0, "name": "ls", "arguments": {"a": 1}}}, CALL]}},
    {"message": {}, "done": True, "done_reason": "stop", "eval_count": 3, "prompt_eval_count": 4},
]


def events(payloads: Payloads) -> list[bytes]:
    return [b"data: %s\n\n" % json.dumps(payload).encode() for payload in payloads]


# Of each dialect well-formed payloads, and how they are read.
DIALECTS: dict[str, tuple[Payloads, Callable[[Payloads], Iterator[Event]]]] = {
    "anthropic": (CLAUDES, lambda payloads: anthropic_stream.read_stream(events(payloads))),
    "anthropic, whole": (
        [{"type": "message", "id": "m", "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 2},
          "content": [payload["content_block"] for payload in CLAUDES if "content_block" in payload]}],
        lambda payloads: anthropic_stream.read_whole(json.dumps(payloads[0]).encode()),
    ),
    "chat": (CHATS, lambda payloads: chat_stream.read_stream(events(payloads))),
    "chat, whole": (
        [{"id": "x", "choices": [{"message": {"content": "a", "tool_calls": [CALL]}, "finish_reason": "stop"}]}],
        lambda payloads: chat_stream.read_whole(json.dumps(payloads[0]).encode()),
    ),
    "ollama": (LLAMAS, lambda payloads: ollama_stream.read_lines(json.dumps(p).encode() + b"\n" for p in payloads)),
}  # fmt: skip

KEYS = ["type", "id", "function", "index", "name", "arguments", "input", "text", "thinking", "signature", "caller"]
VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, -1, 1.5, 10**20, "", "x", "text", "thinking", "tool_use", "c1", "\ud83d"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=4,
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a value, with each of its keys."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from places(value[key])


@st.composite
def spoilt(draw: st.DrawFn, payloads: Payloads) -> Payloads:
    """The payloads, some values in them replaced, taken away or added, some of themselves left out or twice."""
    found: Any = copy.deepcopy(payloads)
    for _ in range(draw(st.integers(1, 4))):
        place, key = draw(st.sampled_from(list(places(found))))
        match draw(st.sampled_from(["replace", "replace", "add", "remove", "twice"])):
            case "replace" if place is not found:
                place[key] = draw(VALUES)
            case "add" if isinstance(place, dict):
                place[draw(st.sampled_from(KEYS))] = draw(VALUES)
            case "remove" if len(found) > 1:
                del place[key]
            case "twice" if isinstance(place, list):
                place.insert(key, copy.deepcopy(place[key]))
    return found  # type: ignore[no-any-return]


def saved(answer: Round, ended: str | None) -> None:
    """The session that has the answer is read again as it was written, and all is done with it that can be."""
    message: Any = answer.message(ended)
    if message is None:
        return
    asked = {"role": "user", "content": "hi", "id": "q"}
    doc = {
        "version": 1,
        "id": "7x2m",
        "messages": [asked, {**message, "id": "a", "provider": "anthropic", "model": "anthropic/m"}],
    }
    everything_with(checks.check(files.parsed(files.encoded(doc).decode())))


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=60)
@given(data=st.data())
def test_whatever_a_server_sends_is_an_answer_or_an_error_and_can_be_read_again(dialect: str, data: Any) -> None:
    payloads, read = DIALECTS[dialect]
    answer = Round(read(data.draw(spoilt(payloads))))
    ended: str | None = "error"
    with suppress(ModelError, TooLong):
        list(answer)
        ended = None
    saved(answer, ended)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_spoilt_is_a_whole_answer_before(dialect: str) -> None:
    payloads, read = DIALECTS[dialect]
    answer = Round(read(payloads))
    list(answer)
    message = answer.message()
    assert message
    assert message["finish_reason"] == "tool_calls"
    assert message["tool_calls"][0]["function"]["name"] == "ls"


@given(st.binary(max_size=60))
def test_bytes_of_any_kind_are_an_answer_or_an_error(data: bytes) -> None:
    for read in (
        lambda: anthropic_stream.read_stream([b"data: " + data.replace(b"\n", b" ") + b"\n\n"]),
        lambda: anthropic_stream.read_whole(data),
    ):
        answer = Round(read())
        with suppress(ModelError, TooLong):
            list(answer)
        saved(answer, "error")
