"""Whatever a server streams, in any dialect: an answer or an error, and a session file that can be read again."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import gemini_server as google
from tests.support import responses_server as openai
from tests.support.anthropic_server import said as says
from tests.support.anthropic_server import stream, thought, tool
from tests.support.apis import exercise, read_answer
from tests.support.histories import corrupted
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
    chunk(
        {
            "thinking_blocks": [
                {"type": "thinking", "thinking": "so"},
                {"type": "thinking", "signature": "s"},
            ]
        }
    ),
    chunk({"reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0, "id": "r"}]}),
    chunk({"content": "I look.", "refusal": "No.", "annotations": [{"type": "file", "file": {}}]}),
    chunk(
        {
            "tool_calls": [
                {"index": 0, **CALL, "extra_content": {"google": {"thought_signature": "x"}}}
            ]
        }
    ),
    chunk(
        {
            "tool_calls": [
                {"index": 0, "function": {"arguments": ""}},
                {"index": 1, **CALL, "id": "c2"},
            ]
        }
    ),
    chunk({}, "tool_calls", usage={"prompt_tokens": 1, "completion_tokens": 2}),
]
LLAMAS: Payloads = [
    {"message": {"role": "assistant", "thinking": "hm"}, "done": False},
    {"message": {"role": "assistant", "content": "I look."}, "done": False},
    {
        "message": {
            "tool_calls": [
                {"id": "c1", "function": {"index": 0, "name": "ls", "arguments": {"a": 1}}},
                CALL,
            ]
        }
    },
    {"message": {}, "done": True, "done_reason": "stop", "eval_count": 3, "prompt_eval_count": 4},
]
OUTPUT = (
    openai.reasoning("r", "hm"), openai.message("I look.", phase="commentary"), openai.search(),
    openai.message("No ls.", "2", phase="final_answer"), openai.function_call("c1", "ls", '{"a":1}'),
)  # fmt: skip
PARTS = (
    google.thought("hm"), google.signed({"text": "I look. "}), {"text": "No ls."}, {"toolCall": {"id": "t"}},
    google.signed(google.call("ls", {"a": 1}, "c1")), google.call("ls", {}),
)  # fmt: skip
# Of each dialect well-formed payloads.
DIALECTS: dict[str, Payloads] = {
    "anthropic": CLAUDES,
    "anthropic, whole": [
        {"type": "message", "id": "m", "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 2},
         "content": [payload["content_block"] for payload in CLAUDES if "content_block" in payload]}],
    "chat": CHATS,
    "chat, whole": [{"id": "x", "choices": [{"message": {"content": "a", "tool_calls": [CALL]},
                                             "finish_reason": "stop"}]}],
    "gemini": google.documents(*PARTS),
    "gemini, whole": [google.document(*PARTS, finish="STOP")],
    "ollama": LLAMAS,
    "responses": openai.events(*OUTPUT),
    "responses, whole": [openai.response(*OUTPUT)],
}  # fmt: skip


WHOSE = {"responses": "openai", "gemini": "gemini"}


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=20)
@given(data=st.data())
def test_whatever_a_server_sends_is_an_answer_or_an_error_and_can_be_read_again(
    dialect: str, data: Any
) -> None:
    message, _ = read_answer(dialect, data.draw(corrupted(DIALECTS[dialect])))
    if message is not None:
        asked = {"role": "user", "content": "hi", "id": "q"}
        whose = WHOSE.get(dialect.partition(",")[0], "anthropic")
        own = {**message, "id": "a", "provider": whose, "model": f"{whose}/m"}
        exercise({"version": 1, "id": "7x2m", "messages": [asked, own]})


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_spoilt_is_a_whole_answer_before(dialect: str) -> None:
    message, failed = read_answer(dialect, DIALECTS[dialect])
    assert message["finish_reason"] == "tool_calls"
    assert failed is False
    assert message["tool_calls"][0]["function"]["name"] == "ls"
