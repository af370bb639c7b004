"""The Anthropic Messages dialect through the command: what every known kind of stream means, and what it leads to."""

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.support.anthropic_server import (
    AnthropicServer,
    block,
    named,
    said,
    signature,
    stream,
    thought,
    tool,
)
from tests.support.claude import OPUS, SONNET, without_cache_marks
from tests.support.home import Home, session_shape
from tests.support.messages import call, parts, thinking
from tests.support.paths import DATA

DATA = DATA / "anthropic"


def recorded(name: str) -> bytes:
    return (DATA / f"{name}.sse").read_bytes()


# By stream: stdout, the end of stderr's last word or line, the exit code, what the session has.
READ: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "interleaved": (
        "Let me see. And this:\n", "Then the list.", 0,
        {"thinking": [thinking("First the date.", "sig0"), thinking("Then the list.", "sig3")],
         "content": parts("Let me see. ", "And this:"), "finish_reason": "tool_calls",
         "tool_calls": [call("toolu_01", "date", '{"zone":"UTC"}'), call("toolu_02", "ls", '{"path":"/"}')],
         "order": ["thinking:0", "text:0", "tool_call:0", "thinking:1", "text:1", "tool_call:1"]},
    ),
    "redacted": ("Done.\n", "again", 0, {"content": "Done.", "thinking": [
        thinking("open", "sigA"), {"type": "redacted_thinking", "data": "EncryptedBytes=="},
        thinking("again", "sigB")]}),
    "ping_first": ("Here I am.\n", "", 0, {"content": "Here I am.", "response_id": "msg_01"}),
    "error_inside": ("half an \n", "Overloaded", 1, {"content": "half an ", "finish_reason": "error"}),
    "empty_input": ("I look. \n", "", 0, {"tool_calls": [
        call("toolu_01", "now", "{}"), call("toolu_02", "now", "{}", caller={"type": "direct"})]}),
    "unicode": ("né 中 😀 a\u2028b x😀y\n", "", 0, {"content": "né 中 😀 a\u2028b x😀y"}),
    "citations": ("It says water is wet.\n", "", 0, {"content": "It says water is wet."}),
    "server_tool": ("I search. It is.\n", "", 0, {"content": "I search. It is."}),
    "unknown": ("It works.\n", "", 0, {"content": "It works."}),
    "max_tokens": ("I write \n", "cut by the token limit (length)", 5, {
        "finish_reason": "length", "tool_calls": [call("toolu_01", "write", '{"text":"it was a da')]}),
    "refusal": ("First you This request was declined. (cyber)\n", "refused (refusal)", 5, {
        "finish_reason": "refusal", "refusal": "This request was declined. (cyber)", "content": "First you "}),
    "cached": ("ok\n", "", 0, {"content": "ok"}),
    "broken_thinking": ("", "before the answer was complete", 1, {
        "thinking": [thinking("Let me th")], "finish_reason": "error"}),
    "broken_call": ("I look. \n", "before the answer was complete", 1, {
        "tool_calls": [call("toolu_01", "ls", '{"path": "/ho')]}),
    "no_stop": ("Whole.\n", "", 0, {"finish_reason": "stop_sequence", "stop_sequence": "END"}),
    "window": ("And then\n", "cut by the model's window (model_context_window_exceeded)", 5, {}),
    "omitted": ("Yes.\n", "", 0, {"thinking": [thinking("", "only-this")]}),
}  # fmt: skip


# Streams that nobody has recorded.
BUILT = {
    "garbage behind the reason": [*stream(said(0, "Whole."))[:-1], b"event: message_stop\ndata: {oops\n\n"],
    "halves of a pair": stream(
        thought(0, "x\ud83d", "\ude00y", signed="s"), said(1, "x\ud83d", "\ude00y"),
        tool(2, "t1", "ls", '{"a":"\ud83d', '\ude00"}'), stop="tool_use",
    ),
    "no reason": stream(said(0, "Half"), stop=None),
    "an error that stays": [named({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}})],
}  # fmt: skip
READ |= {
    "garbage behind the reason": ("Whole.\n", "", 0, {"finish_reason": "end_turn"}),
    "halves of a pair": ("x😀y\n", "x😀y", 0, {
        "thinking": [thinking("x😀y", "s")], "tool_calls": [call("t1", "ls", '{"a":"😀"}')], "content": "x😀y"}),
    "no reason": ("Half\n", "when another request arrives", 5, {"finish_reason": None}),
    "an error that stays": ("", "the provider reported: no", 1, {}),
}  # fmt: skip


NOT_OFFERED = "gptsh: the model called a tool that was not offered, so it did not run: "


@pytest.mark.parametrize("name", sorted(READ))
def test_each_kind_of_stream_through_the_command(
    claude: Home, anthropic: AnthropicServer, name: str
) -> None:
    out, told, code, kept = READ[name]
    whole = b"".join(BUILT[name]) if name in BUILT else recorded(name)
    for size in (0, 7):  # wherever the network cuts it
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)] if size else [whole]
        anthropic.script(*pieces)
        run = claude.run("-n", "--reasoning", "hi")
        assert run.stdout == out
        assert run.code == code
        lines = run.stderr.splitlines()
        if kept.get("tool_calls") and not code:
            assert lines.pop().startswith(NOT_OFFERED)
        assert any(line.endswith(told) for line in lines) if told else not lines
        reply = claude.docs()[0]["messages"][-1]
        assert {key: reply[key] for key in kept} == kept
        if kept:
            assert reply["provider"] == "anthropic"
            assert reply["model"] == SONNET
    assert len(anthropic.requests) == 2


SEARCH = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "q"},
}


def test_a_paused_answer_goes_back_and_is_continued(
    claude: Home, anthropic: AnthropicServer
) -> None:
    anthropic.script(*stream(said(0, "I search. "), block(1, SEARCH), stop="pause_turn"))
    anthropic.script(*stream(said(0, "It is.")))
    assert claude.run("hi") == ("I search. It is.\n", "", 0)
    first, second = (asked.body["messages"] for asked in anthropic.requests)
    paused = [{"type": "text", "text": "I search. "}, SEARCH]
    assert second == [*first, {"role": "assistant", "content": paused}]
    reply = claude.doc()["messages"][1]
    assert reply["finish_reason"] == "end_turn"
    assert reply["usage"]["completion"] == 30
    assert reply["usage"]["prompt"] == 36
    anthropic.script(*stream(said(0, "Yes.")))
    assert claude.run("-s", "0", "sure?").code == 0
    assert anthropic.requests[-1].body["messages"][1]["content"][:2] == paused


def test_an_answer_that_is_paused_without_end_is_incomplete(
    claude: Home, anthropic: AnthropicServer
) -> None:
    for number in range(11):
        search = block(1, {**SEARCH, "id": f"srvtoolu_{number}"})
        anthropic.script(*stream(said(0, "So far. "), search, stop="pause_turn"))
    run = claude.run("hi")
    assert run.stdout == "So far. " * 11 + "\n"
    assert run.code == 5
    assert len(anthropic.requests) == 11
    assert "(pause_turn)" in run.stderr


def test_an_answer_leaves_the_same_kind_of_session_as_any_other(
    claude: Home, anthropic: AnthropicServer
) -> None:
    anthropic.script(*stream(said(0, "Hello ", "there.")), headers={"request-id": "req_1"})
    assert claude.run("--system", "Brief.", "hi") == ("Hello there.\n", "", 0)
    reply = claude.doc()["messages"][1]
    assert reply["usage"] == {
        "prompt": 18, "completion": 15, "total": 33, "reasoning_tokens": None, "cached_tokens": 5,
        "cache_write_tokens": 3,
        "raw": {"input_tokens": 10, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 5,
                "output_tokens": 15},
    }  # fmt: skip
    assert reply["cost"] == pytest.approx(10 * 3e-6 + 5 * 3e-7 + 3 * 3.75e-6 + 15 * 1.5e-5)
    assert reply["request_id"] == "req_1"
    assert reply["response_id"] == "msg_1"
    assert reply["finish_reason"] == "end_turn"
    other = claude.elsewhere()
    other.run("-m", "echo", "hi")
    assert session_shape(claude.doc()) == session_shape(other.doc())


@pytest.mark.parametrize("name", ["citations", "server_tool"])
def test_blocks_without_another_place_survive_and_go_back_as_they_came(
    claude: Home, anthropic: AnthropicServer, name: str
) -> None:
    anthropic.script(recorded(name))
    claude.run("hi")
    blocks = claude.doc()["messages"][1]["replay"]["blocks"]
    kinds = {
        "citations": ["text"] * 3,
        "server_tool": ["text", "server_tool_use", "web_search_tool_result", "text"],
    }
    assert [block["type"] for block in blocks] == kinds[name]
    if name == "citations":
        assert blocks[1]["text"] == "water is wet"
        assert blocks[1]["citations"][0]["cited_text"] == "Water is wet."
    assert claude.run("-s", "0", "more").code == 0
    assert anthropic.sent[1]["messages"][1]["content"] == blocks


@pytest.mark.slow
def test_an_overload_before_anything_was_said_is_asked_again(
    claude: Home, anthropic: AnthropicServer
) -> None:
    start, ping = stream()[:2]
    for before in ([], [start, ping, 0.1, ping]):
        anthropic.script(*before, recorded("overloaded"))
        anthropic.script(*stream(said(0, "Now.")))
        assert claude.run("-n", "hi") == ("Now.\n", "", 0)
    anthropic.script(start, ping, *said(0, "half")[:-1], recorded("overloaded"))
    run = claude.run("-n", "hi")
    assert run.stdout == "half\n"
    assert run.code == 1
    assert len(anthropic.requests) == 5


def test_an_answer_in_one_piece(claude: Home, anthropic: AnthropicServer) -> None:
    content = [{"type": "thinking", "thinking": "hm", "signature": "s"}, *parts("Yes."),
               {"type": "tool_use", "id": "t1", "name": "ls", "input": {"a": [1, "é"]}}]  # fmt: skip
    whole = {"id": "msg_9", "type": "message", "role": "assistant", "content": content, "stop_reason": "tool_use",
             "usage": {"input_tokens": 3, "output_tokens": 4}}  # fmt: skip
    anthropic.script(
        json.dumps(whole).encode(), framing="length", headers={"Content-Type": "application/json"}
    )
    assert claude.run("--no-stream", "--reasoning", "hi") == ("Yes.\n", f"hm\n{NOT_OFFERED}ls\n", 0)
    assert "stream" not in anthropic.sent[0]
    reply = claude.doc()["messages"][1]
    assert reply["thinking"] == [thinking("hm", "s")]
    assert reply["response_id"] == "msg_9"
    assert reply["tool_calls"] == [call("t1", "ls", '{"a": [1, "é"]}')]
    assert reply["usage"]["total"] == 7
    assert reply["finish_reason"] == "tool_calls"


def test_what_is_no_answer(claude: Home, anthropic: AnthropicServer) -> None:
    for data, line in (
        (b'{"hello":1}', "not a message"),
        (b"<html>", "not JSON: Expecting value: line 1 column 1 (char 0)"),
    ):
        anthropic.script(data, framing="length", headers={"Content-Type": "application/json"})
        run = claude.run("--no-save", "hi")
        assert run.stdout == ""
        assert run.code == 1
        assert f"gptsh: the response is {line}: is base_url right?" in run.stderr


@pytest.mark.parametrize("refused", [False, True])
def test_a_thought_goes_back_to_its_model_and_is_left_out_where_it_is_refused(
    claude: Home, anthropic: AnthropicServer, refused: bool
) -> None:
    signed = "of another conversation" if refused else None
    calls = tool(2, "toolu_1", "ls", '{"a":', "1}")
    anthropic.script(
        *stream(
            thought(0, "First ", "look.", signed=signed),
            said(1, "I look. "),
            calls,
            stop="tool_use",
        )
    )
    ls = ["-p", 'tools=[{"name": "ls", "input_schema": {"type": "object"}}]']
    assert claude.run("-p", "reasoning_effort=high", *ls, "what is this?").code == 0
    assert claude.run("-s", "0", *ls, "and?").stdout == "You said: and?\n"
    made = [
        [part["type"] for part in without_cache_marks(sent)[1][1]] for sent in anthropic.sent[1:]
    ]
    assert made == [["thinking", "text", "tool_use"], *([["text", "tool_use"]] if refused else [])]
    assert claude.doc()["messages"][1]["thinking"] == [
        thinking("First look.", signed or signature("First look."))
    ]
    assert (
        claude.run("-s", "0", "-m", OPUS, *ls, "more").code == 0
    )  # another model does not get the thoughts
    assert [part["type"] for part in without_cache_marks(anthropic.sent[-1])[1][1]] == [
        "text",
        "tool_use",
    ]


def thinking_sent(anthropic: AnthropicServer) -> list[int]:
    """The indexes of the messages of the last request that have thinking."""
    contents = [message["content"] for message in anthropic.sent[-1]["messages"]]
    return [
        at
        for at, blocks in enumerate(contents)
        if any(block["type"] == "thinking" for block in blocks)
    ]


def test_thinking_is_bound_to_all_that_was_before_it(
    claude: Home, anthropic: AnthropicServer
) -> None:
    for words in ("one", "two", "three", "four", "five"):
        anthropic.script(*stream(thought(0, f"hm {words}", signed=None), said(1, f"Yes, {words}.")))
    assert claude.run("first?").code == 0
    assert claude.run("-s", "0", "second?").code == 0
    assert thinking_sent(anthropic) == [1]
    assert claude.run("-s", "0", "--system", "Answer in verse.", "third?").code == 0
    assert thinking_sent(anthropic) == []
    assert claude.run("-s", "0", "fourth?").code == 0
    assert thinking_sent(anthropic) == [5]  # it arrived under the new system prompt
    assert claude.run("-s", "0", "fifth?").code == 0
    assert thinking_sent(anthropic) == [5, 7]
    assert len(anthropic.sent) == 5


def test_refused_thinking_is_not_sent_again_in_the_session(
    claude: Home, anthropic: AnthropicServer
) -> None:
    anthropic.script(*stream(thought(0, "hm", signed="of another conversation"), said(1, "Yes.")))
    for turn in range(4):
        assert claude.run(*(["-s", "0"] if turn else []), f"question {turn}").code == 0
    assert len(anthropic.sent) == 5  # one repeated request in four turns
    assert claude.doc()["messages"][3]["reasoning_refused"]


def test_a_token_goes_as_one(claude: Home, anthropic: AnthropicServer) -> None:
    del claude.env["ANTHROPIC_API_KEY"]
    assert claude.run("hi", env={"ANTHROPIC_AUTH_TOKEN": "a-token"}).code == 0
    headers = anthropic.requests[0].headers
    assert headers["authorization"] == "Bearer a-token"
    assert "x-api-key" not in headers
    anthropic.refuse(
        401, {"type": "error", "error": {"type": "authentication_error", "message": "no"}}
    )
    assert (
        "check ANTHROPIC_AUTH_TOKEN"
        in claude.run("hi", env={"ANTHROPIC_AUTH_TOKEN": "a-token"}).stderr
    )


def test_a_session_pays_for_its_history_once(claude: Home, anthropic: AnthropicServer) -> None:
    ends = []
    for number, words in enumerate(("first " * 50, "second " * 50, "third " * 50, "fourth " * 50)):
        assert (
            claude.run(*(("-s", "0") if number else ()), "--system", "Brief. " * 20, words).code
            == 0
        )
        ends.append(claude.doc()["messages"][-1]["usage"])
    assert ends[0]["cached_tokens"] == 0
    assert ends[0]["cache_write_tokens"] == 0
    assert ends[1]["cached_tokens"] == 0
    assert ends[1]["cache_write_tokens"] > 0
    for before, after in pairwise(ends[1:]):
        assert after["cached_tokens"] == before["prompt"] - before["raw"]["input_tokens"]


def test_claudes_cache_may_last_an_hour_at_its_own_price(
    claude: Home, anthropic: AnthropicServer
) -> None:
    claude.configure(
        claude.config.read_text().replace(
            "[providers.anthropic]", '[providers.anthropic]\ncache = "1h"'
        )
    )
    assert claude.run("--system", "Brief.", "hi").code == 0
    written = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 1_000_000}
    usage = {
        "input_tokens": 0,
        "cache_creation_input_tokens": 1_000_000,
        "cache_creation": written,
        "output_tokens": 0,
    }
    anthropic.script(*stream(said(0, "Yes."), usage=usage))
    assert claude.run("-s", "0", "-m", "anthropic/claude-opus-5-5", "more").code == 0
    marks = [
        part["cache_control"]
        for m in anthropic.sent[1]["messages"]
        for part in m["content"]
        if "cache_control" in part
    ]
    assert marks
    assert all(mark == {"type": "ephemeral", "ttl": "1h"} for mark in marks)
    assert claude.doc()["messages"][-1]["cost"] == pytest.approx(8.0, abs=0.001)
