"""The Anthropic Messages dialect through the command: what every known kind of stream means, and what it leads to."""

import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.core.messages import Finished, Identified, Reasoning, Text, Used, is_unicode
from gptsh.core.models import facts
from gptsh.core.pricing import cost
from gptsh.core.reported import usage_from
from gptsh.core.turn import Round
from gptsh.errors import ModelError
from gptsh.llm.anthropic_stream import read_stream
from tests.support.anthropic_server import (
    AnthropicServer,
    block,
    named,
    prefixes,
    said,
    signature,
    steps,
    stream,
    thought,
    tool,
)
from tests.support.attached import a_png
from tests.support.claude import CLOSED, KEY, LATEST, OPEN, OPUS, PNG, SONNET, bare, call, image, parts, thinking
from tests.support.home import Home, kind_of_session, texts
from tests.support.paths import DATA
from tests.support.tools import MORE, SERVER

DATA = DATA / "anthropic"
STREAMS = sorted(path.stem for path in DATA.glob("*.sse"))


def recorded(name: str) -> bytes:
    return (DATA / f"{name}.sse").read_bytes()


@pytest.fixture
def server() -> Iterator[AnthropicServer]:
    """A strict server of the test's own."""
    server = AnthropicServer()
    yield server
    server.close()


@pytest.fixture
def claude(home: Home, server: AnthropicServer) -> Home:
    """A home whose default model is Claude on the strict server; no titles."""
    home.configure(config(server))
    home.env["ANTHROPIC_API_KEY"] = KEY
    return home


def config(server: AnthropicServer, more: str = "", titles: str = "off") -> str:
    bare = server.base_url.removesuffix("/v1")
    return (
        f'[agents.default]\nmodel = "{SONNET}"\n[sessions]\ntitles = "{titles}"\n[network]\nretries = 1\n'
        f'[providers.anthropic]\nbase_url = "{bare}"\n{more}'
    )


# ---- answers


# By stream: stdout, the end of stderr's last word or line, the exit code, what stands in the session.
READ: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "interleaved": (
        "Let me see. And this:\n", "Then the list.", 0,
        {"thinking": [thinking("First the date.", "sig0"), thinking("Then the list.", "sig3")],
         "content": parts("Let me see. ", "And this:"), "finish_reason": "tool_calls",
         "tool_calls": [call("toolu_01", "date", '{"zone":"UTC"}'), call("toolu_02", "ls", '{"path":"/"}')],
         "order": ["thinking:0", "text:0", "tool_call:0", "thinking:1", "text:1", "tool_call:1"]},
    ),
    "redacted": (
        "Done.\n", "again", 0,
        {"thinking": [thinking("open", "sigA"), {"type": "redacted_thinking", "data": "EncryptedBytes=="},
                      thinking("again", "sigB")], "content": "Done."},
    ),
    "ping_first": ("Here I am.\n", "", 0, {"content": "Here I am.", "response_id": "msg_01"}),
    "error_inside": ("half an \n", "Overloaded", 1, {"content": "half an ", "finish_reason": "error"}),
    "empty_input": (
        "I look. \n", "", 0,
        {"tool_calls": [call("toolu_01", "now", "{}"), call("toolu_02", "now", "{}", caller={"type": "direct"})]},
    ),
    "unicode": ("né 中 😀 a\u2028b x😀y\n", "", 0, {"content": "né 中 😀 a\u2028b x😀y"}),
    "citations": ("It says water is wet.\n", "", 0, {"content": "It says water is wet."}),
    "server_tool": ("I search. It is.\n", "", 0, {"content": "I search. It is."}),
    "unknown": ("It works.\n", "", 0, {"content": "It works."}),
    "max_tokens": (
        "I write \n", "cut by the token limit (length)", 5,
        {"finish_reason": "length", "tool_calls": [call("toolu_01", "write", '{"text":"it was a da')]},
    ),
    "refusal": (
        "First you This request was declined.\n", "refused (refusal)", 5,
        {"finish_reason": "refusal", "refusal": "This request was declined.", "content": "First you "},
    ),
    "cached": ("ok\n", "", 0, {"content": "ok"}),
    "broken_thinking": (
        "", "before the answer was complete", 1, {"thinking": [thinking("Let me th")], "finish_reason": "error"}
    ),
    "broken_call": (
        "I look. \n", "before the answer was complete", 1, {"tool_calls": [call("toolu_01", "ls", '{"path": "/ho')]}
    ),
    "no_stop": ("Whole.\n", "", 0, {"finish_reason": "stop_sequence"}),
    "paused": ("So far \n", "(pause_turn)", 5, {"finish_reason": "pause_turn"}),
    "window": ("And then\n", "cut by the model's window (model_context_window_exceeded)", 5, {}),
    "omitted": ("Yes.\n", "", 0, {"thinking": [thinking("", "only-this")]}),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(READ))
def test_each_kind_of_stream_through_the_command(claude: Home, server: AnthropicServer, name: str) -> None:
    out, told, code, kept = READ[name]
    server.script(*steps(recorded(name), 7 if name == "unicode" else 0))
    run = claude.run("hi")
    assert (run.stdout, run.code) == (out, code)
    lines = run.stderr.splitlines()
    assert any(line.endswith(told) for line in lines) if told else not lines
    reply = claude.doc()["messages"][1]
    assert {key: reply[key] for key in kept} == kept
    assert (reply["provider"], reply["model"]) == ("anthropic", SONNET)


def test_all_recorded_streams_are_run() -> None:
    assert set(STREAMS) == set(READ) | {"overloaded"}


@given(st.sampled_from(sorted(READ)), st.integers(1, 40))
def test_where_the_network_cuts_a_stream_changes_nothing(name: str, size: int) -> None:
    def read(chunks: Iterator[bytes]) -> list[Any]:
        events = read_stream(chunks)
        seen = []
        try:
            seen += list(events)
        except ModelError as err:
            seen.append(str(err))
        return seen

    assert read(steps(recorded(name), size)) == read(steps(recorded(name)))


def test_an_answer_leaves_the_same_kind_of_session_as_any_other(claude: Home, server: AnthropicServer) -> None:
    server.script(*stream(said(0, "Hello ", "there.")), headers={"request-id": "req_1"})
    assert claude.run("--system", "Brief.", "hi") == ("Hello there.\n", "", 0)
    reply = claude.doc()["messages"][1]
    assert reply["usage"] == {
        "prompt": 18, "completion": 15, "total": 33, "reasoning_tokens": None, "cached_tokens": 5,
        "cache_write_tokens": 3,
        "raw": {"input_tokens": 10, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 5,
                "output_tokens": 15},
    }  # fmt: skip
    assert reply["cost"] == pytest.approx(10 * 3e-6 + 5 * 3e-7 + 3 * 3.75e-6 + 15 * 1.5e-5)
    assert (reply["request_id"], reply["response_id"], reply["finish_reason"]) == ("req_1", "msg_1", "end_turn")
    other = claude.elsewhere()
    other.run("-m", "echo", "hi")
    assert kind_of_session(claude.doc()) == kind_of_session(other.doc())


def test_usage_is_that_of_both_events(claude: Home, server: AnthropicServer) -> None:
    server.script(recorded("cached"))
    claude.run("hi")
    usage = claude.doc()["messages"][1]["usage"]
    assert usage | {"raw": None} == {
        "prompt": 2114, "completion": 20, "total": 2134, "reasoning_tokens": 6, "cached_tokens": 2000,
        "cache_write_tokens": 100, "raw": None,
    }  # fmt: skip
    assert usage["raw"]["input_tokens"] == 14


def test_what_was_used_is_known_though_the_answer_broke_off(claude: Home, server: AnthropicServer) -> None:
    server.script(recorded("error_inside"))
    claude.run("hi")
    reply = claude.doc()["messages"][1]
    assert (reply["usage"]["prompt"], reply["usage"]["completion"]) == (17, 1)
    assert reply["cost"] == pytest.approx(10 * 3e-6 + 7 * 3e-7 + 1.5e-5)


@pytest.mark.parametrize("name", ["citations", "server_tool"])
def test_blocks_without_another_place_survive_and_go_back_as_they_came(
    claude: Home, server: AnthropicServer, name: str
) -> None:
    server.script(recorded(name))
    claude.run("hi")
    blocks = claude.doc()["messages"][1]["replay"]["blocks"]
    kinds = {"citations": ["text"] * 3, "server_tool": ["text", "server_tool_use", "web_search_tool_result", "text"]}
    assert [block["type"] for block in blocks] == kinds[name]
    if name == "citations":
        assert blocks[1]["text"] == "water is wet"
        assert blocks[1]["citations"][0]["cited_text"] == "Water is wet."
    else:
        assert blocks[1]["input"] == {"query": "wet"}
    assert claude.run("-s", "0", "more").code == 0
    assert server.sent[1]["messages"][1]["content"] == blocks


@pytest.mark.slow
def test_an_overload_before_anything_came_is_asked_again(claude: Home, server: AnthropicServer) -> None:
    server.script(recorded("overloaded"))
    server.say_text("Now.")
    assert claude.run("hi") == ("Now.\n", "", 0)
    for _ in range(2):
        server.script(recorded("overloaded"))
    run = claude.run("-n", "hi")
    assert (run.stdout, run.code, len(server.asked)) == ("", 1, 4)
    assert run.stderr.startswith("gptsh: the provider reported: Overloaded\n")


@pytest.mark.slow
def test_an_overload_behind_the_beginning_alone_is_asked_again(claude: Home, server: AnthropicServer) -> None:
    start, ping = stream()[:2]
    server.script(start, ping, 0.1, ping, recorded("overloaded"))
    server.say_text("Now.")
    assert claude.run("hi") == ("Now.\n", "", 0)
    server.script(start, ping, *said(0, "half")[:-1], recorded("overloaded"))
    run = claude.run("-n", "hi")
    assert (run.stdout, run.code, len(server.asked)) == ("half\n", 1, 3)
    server.script(*[start] * 50, *said(0, "x"), *stream()[2:])  # few are held back
    assert claude.run("-n", "hi").stdout == "x\n"


def test_an_error_that_stays_is_not_asked_again(claude: Home, server: AnthropicServer) -> None:
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}
    server.script(b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n")
    assert claude.run("hi").code == 1
    assert len(server.asked) == 1


def test_an_answer_in_one_piece(claude: Home, server: AnthropicServer) -> None:
    content = [{"type": "thinking", "thinking": "hm", "signature": "s"}, *parts("Yes."),
               {"type": "tool_use", "id": "t1", "name": "ls", "input": {"a": [1, "é"]}}]  # fmt: skip
    whole = {"id": "msg_9", "type": "message", "role": "assistant", "content": content, "stop_reason": "tool_use",
             "usage": {"input_tokens": 3, "output_tokens": 4}}  # fmt: skip
    server.script(json.dumps(whole).encode(), framing="length", headers={"Content-Type": "application/json"})
    assert claude.run("--no-stream", "hi") == ("Yes.\n", "hm\n", 0)
    assert "stream" not in server.sent[0]
    reply = claude.doc()["messages"][1]
    assert (reply["thinking"], reply["response_id"]) == ([thinking("hm", "s")], "msg_9")
    assert reply["tool_calls"] == [call("t1", "ls", '{"a": [1, "é"]}')]
    assert (reply["usage"]["total"], reply["finish_reason"]) == (7, "tool_calls")


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b'{"type":"error","error":{"type":"api_error","message":"it broke"}}', "the provider reported: it broke"),
        (b'{"hello":1}', "the response is no message: is the base URL right?"),
        (b"<html>", "the response is garbage: Expecting value: line 1 column 1 (char 0): is the base URL right?"),
        (
            b'{"type":"message","content":[]}',
            "anthropic/claude-sonnet-4-5 answered nothing to a prompt of about 8 tokens",
        ),
    ],
)
def test_what_is_no_answer(claude: Home, server: AnthropicServer, data: bytes, line: str) -> None:
    for _ in range(2):
        server.script(data, framing="length", headers={"Content-Type": "application/json"})
    run = claude.run("hi")
    assert (run.stdout, run.code) == ("", 1)
    assert run.stderr.startswith(f"gptsh: {line}")


def test_trouble_behind_the_reason_for_ending_takes_nothing_from_the_answer() -> None:
    *most, _ = stream(said(0, "Whole."))
    events = list(read_stream([*most, b"event: message_stop\ndata: {oops\n\n"]))
    assert (events[0], events[-1]) == (Identified(None, "msg_1"), Finished("end_turn"))
    assert sum(isinstance(event, Used) for event in events) == 1


def answered(*payloads: list[bytes], stop: str | None = "end_turn") -> dict[str, Any]:
    """The message of an answer of these blocks."""
    turn = Round(read_stream(stream(*payloads, stop=stop)))
    list(turn)
    message: Any = turn.message()
    return dict(message)


def test_a_call_with_keys_of_other_dialects_can_be_read_again(claude: Home, server: AnthropicServer) -> None:
    odd = {"type": "tool_use", "id": "t1", "name": "ls", "input": {}, "function": "x", "arguments": 1, "caller": {}}
    server.script(*stream(said(0, "I look."), block(1, odd), stop="tool_use"))
    assert claude.run("hi").code == 0
    assert claude.doc()["messages"][1]["tool_calls"] == [{**call("t1", "ls", "{}", caller={}), "arguments": 1}]
    assert claude.run("--show-session", "0").code == 0


@pytest.mark.parametrize("index", [[], {}, None, "0", 1.5])
def test_an_index_that_is_no_number(index: Any) -> None:
    payloads = [json.loads(data.partition(b"data: ")[2]) for data in said(0, "a", "b")]
    assert answered([named({**payload, "index": index}) for payload in payloads])["content"] == "ab"


def test_halves_of_a_pair_are_one_in_every_kind_of_block() -> None:
    halves = ("x\ud83d", "\ude00y")
    steps = [tool(2, "t1", "ls", '{"a":"\ud83d', '\ude00"}'), block(3, {"type": "text", "text": "", "citations": [{}]})]
    events = list(read_stream(stream(thought(0, *halves, signed="s"), said(1, *halves), *steps)))
    assert all(is_unicode(event.text) for event in events if isinstance(event, (Text, Reasoning)))
    assert "".join(event.text for event in events if isinstance(event, Reasoning)) == "x😀y"
    message = answered(thought(0, *halves, signed="s"), said(1, *halves), *steps)
    assert (message["thinking"], message["content"]) == ([thinking("x😀y", "s")], "x😀y")
    assert message["tool_calls"][0]["function"]["arguments"] == '{"a":"😀"}'
    assert [part.get("text") for part in message["replay"]["blocks"]] == [None, "x😀y", None, ""]
    alone = thought(0, "x\ud83d", signed="s")
    assert answered(alone)["thinking"] == [thinking("x\ud83d", "s")]


@pytest.mark.parametrize("index", [0, 1])
def test_a_block_whose_end_is_not_said_ends_with_the_next_one_and_with_the_answer(index: int) -> None:
    first, second = thought(0, "hm", signed="s")[:-1], tool(index, "t1", "ls", "{}")[:-1]
    last = [*said(index, "Yes.")[:-1]]
    message = answered(first, second, last, stop="tool_use")
    assert message["thinking"] == [thinking("hm", "s")]
    assert message["tool_calls"] == [call("t1", "ls", "{}")]
    assert (message["content"], message["finish_reason"]) == (parts("Yes."), "tool_calls")


# ---- prices

FEW = {"input_tokens": 1000, "cache_read_input_tokens": 2000, "cache_creation_input_tokens": 400, "output_tokens": 100}
FEW_COST = 1000 * 5e-6 + 2000 * 5e-7 + 400 * 6.25e-6 + 100 * 2.5e-5


@pytest.mark.parametrize(
    ("name", "raw", "usd"),
    [
        ("claude-sonnet-4-5", {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 3,
                               "output_tokens": 15}, 10 * 3e-6 + 5 * 3e-7 + 3 * 3.75e-6 + 15 * 1.5e-5),
        ("claude-sonnet-4-5", {"input_tokens": 1000, "output_tokens": 0}, 0.003),
        ("claude-opus-4-6", {"input_tokens": 0, "cache_read_input_tokens": 1_000_000, "output_tokens": 1000,
                             "output_tokens_details": {"thinking_tokens": 900}}, 0.5 + 0.025),
        ("claude-haiku-4-5", {"input_tokens": None, "cache_creation_input_tokens": None, "output_tokens": 2}, 1e-5),
        ("claude-nobody-knows", {"input_tokens": 10, "output_tokens": 1}, None),
        ("claude-opus-4-8", {**FEW, "inference_geo": "us"}, 1.1 * FEW_COST),
        ("claude-opus-4-8", {**FEW, "inference_geo": "US", "speed": "fast"}, 1.1 * 2 * FEW_COST),
        ("claude-opus-4-8", {**FEW, "inference_geo": "global", "speed": "standard"}, FEW_COST),
        ("claude-opus-4-8", {**FEW, "inference_geo": "fast", "speed": ["fast"]}, FEW_COST),
        ("claude-opus-4-7", {**FEW, "inference_geo": "not_available", "speed": "fast"}, FEW_COST),  # has no fast mode
    ],
)  # fmt: skip
def test_what_an_answer_costs(name: str, raw: dict[str, Any], usd: float | None) -> None:
    assert cost(facts("anthropic", name), raw) == (usd if usd is None else pytest.approx(usd))


def test_usage_of_anthropics_shape() -> None:
    usage: Any = usage_from({"input_tokens": 4, "cache_read_input_tokens": "x", "output_tokens": 2})
    assert (usage["prompt"], usage["cached_tokens"], usage["total"]) == (4, None, 6)


# ---- resuming


def test_a_session_with_thinking_calls_and_an_image_goes_on(claude: Home, server: AnthropicServer) -> None:
    server.script(*stream(thought(0, "First ", "look."), said(1, "I look. "), tool(2, "toolu_1", "ls", '{"a":', "1}"),
                          thought(3, "Again."), tool(4, "toolu_2", "ls", ""), stop="tool_use"))  # fmt: skip
    assert claude.run("-p", "reasoning_effort=high", "what is this?").code == 0
    (path,) = claude.files()
    doc = json.loads(path.read_text())
    question, reply = doc["messages"]
    question["content"] = [*parts("what is this?"), image(f"data:image/png;base64,{PNG}")]
    out = {
        "role": "tool",
        "tool_call_id": "toolu_1",
        "content": [*parts("files"), image(f"data:image/png;base64,{PNG}")],
    }
    doc["messages"] = [question, reply, {**out, "id": "r1"}, {**out, "tool_call_id": "toolu_2", "id": "r2"}]
    path.write_text(json.dumps(doc))
    assert claude.run("-s", "0", "and?").stdout == "You said: and?\n"
    made = bare(server.sent[-1])
    assert [part["type"] for part in made[0][1]] == ["text", "image"]
    assert [part["type"] for part in made[1][1]] == ["thinking", "text", "tool_use", "thinking", "tool_use"]
    assert made[1][1][0] == thinking("First look.", signature("First look."))
    assert [part["type"] for part in made[2][1]] == ["tool_result", "tool_result", "text"]
    assert server.sent[-1]["thinking"]["budget_tokens"] == 4096
    assert claude.run("-s", "0", "-m", OPUS, "more").code == 0  # another model does not get the thoughts
    assert [part["type"] for part in server.sent[-1]["messages"][1]["content"]] == ["text", "tool_use", "tool_use"]
    server.script(*stream(said(0, "x")))
    assert claude.run("-s", "0", "-m", SONNET, "once more").code == 0


def test_thinking_that_is_refused_is_left_out_and_the_answer_comes(claude: Home, server: AnthropicServer) -> None:
    server.script(*stream(thought(0, "hm", signed="of another conversation"), said(1, "Yes.")))
    assert claude.run("hi").stdout == "Yes.\n"
    assert claude.run("-s", "0", "more") == ("You said: more\n", "", 0)
    assert [len(body["messages"][1]["content"]) for body in server.sent[1:]] == [2, 1]
    assert claude.doc()["messages"][1]["thinking"][0]["signature"] == "of another conversation"


# ---- the command on this wire


def test_reasoning_is_shown_unless_it_is_not_wanted(claude: Home, server: AnthropicServer) -> None:
    for _ in range(2):
        server.script(*stream(thought(0, "hm ", "so"), said(1, "Yes.")))
    assert claude.run("hi") == ("Yes.\n", "hm so\n", 0)
    assert claude.run("-n", "--no-reasoning", "hi") == ("Yes.\n", "", 0)


def test_what_is_left_out_is_said(claude: Home, server: AnthropicServer) -> None:
    run = claude.run("-p", "reasoning_effort=low", "-p", "temperature=0", "-p", "seed=1", "hi")
    assert run == ("You said: hi\n", f"gptsh: {SONNET} takes no seed, temperature: left out\n", 0)
    run = claude.run("-n", "-p", "temperature=2", "-p", "top_p=0.5", "-p", 'stop=[" ", "X"]', "hi")
    assert run == (
        "You said: hi\n",
        f"gptsh: {SONNET} takes no temperature above 1, blank stop sequence: left out\n",
        0,
    )
    assert (server.sent[-1]["top_p"], server.sent[-1]["stop_sequences"]) == (0.5, ["X"])
    assert claude.run("-n", "-p", "oddity=1", "hi").stderr.startswith(
        "gptsh: anthropic refused (400): oddity: Extra inputs are not permitted\n"
    )


def test_a_title_is_asked_beside_the_answer(claude: Home, server: AnthropicServer) -> None:
    claude.configure(config(server, f'model_small = "{LATEST}"\n', titles="model"))
    assert claude.run("hi").code == 0
    (asked,) = [made for made in server.sent if made["model"] == "claude-sonnet-5-5"]
    assert (asked["max_tokens"], asked["output_config"], "stream" in asked) == (2000, {"effort": "low"}, False)
    assert claude.doc()["title"] == "You said: hi"
    assert claude.doc()["usage"]["title_cost"] > 0


def test_a_schema_goes_as_a_field(claude: Home, server: AnthropicServer) -> None:
    server.script(*stream(said(0, '{"n"', ":1}")))
    assert claude.run("--schema", json.dumps(OPEN), "go") == ('{"n":1}\n', "", 0)
    assert server.sent[0]["output_config"] == {"format": {"type": "json_schema", "schema": CLOSED}}


def test_a_schema_that_is_refused_goes_in_words(claude: Home, server: AnthropicServer) -> None:
    why = "output_config.format.schema: recursion is not supported"
    server.refuse(400, {"type": "error", "error": {"type": "invalid_request_error", "message": why}})
    server.script(*stream(said(0, '{"n":1}')))
    assert claude.run("--schema", json.dumps(CLOSED), "go").stdout == '{"n":1}\n'
    assert "output_config" not in server.sent[1]
    assert "JSON" in server.sent[1]["system"][0]["text"]


def test_a_dry_run_shows_the_request_and_no_key(claude: Home, server: AnthropicServer) -> None:
    run = claude.run("--dry-run", "-o", "json", "--system", "Brief.", "-p", "max_tokens=9", "hi")
    told = json.loads(run.stdout)
    assert (told["wire"], told["url"]) == ("anthropic", f"{server.base_url}/messages")
    assert told["headers"]["x-api-key"] == "***"
    assert told["headers"]["anthropic-version"] == "2023-06-01"
    assert told["body"] == {
        "model": "claude-sonnet-4-5", "max_tokens": 9, "system": parts("Brief."), "stream": True,
        "messages": [{"role": "user", "content": parts("hi")}],
    }  # fmt: skip
    assert (KEY in run.stdout, server.asked) == (False, [])


def test_headers_of_the_config_are_sent(claude: Home, server: AnthropicServer) -> None:
    claude.configure(config(server, 'headers = { anthropic-beta = "interleaved-thinking-2025-05-14" }\n'))
    assert claude.run("hi").code == 0
    headers = server.asked[0].headers
    assert (headers["anthropic-beta"], headers["x-api-key"]) == ("interleaved-thinking-2025-05-14", KEY)
    assert "authorization" not in headers


def test_a_token_goes_as_one(claude: Home, server: AnthropicServer) -> None:
    del claude.env["ANTHROPIC_API_KEY"]
    assert claude.run("hi", env={"ANTHROPIC_AUTH_TOKEN": "a-token"}).code == 0
    headers = server.asked[0].headers
    assert (headers["authorization"], "x-api-key" in headers) == ("Bearer a-token", False)
    server.refuse(401, {"type": "error", "error": {"type": "authentication_error", "message": "no"}})
    assert "check ANTHROPIC_AUTH_TOKEN" in claude.run("hi", env={"ANTHROPIC_AUTH_TOKEN": "a-token"}).stderr


def test_a_server_of_ones_own_needs_no_key_and_tells_its_models(claude: Home, server: AnthropicServer) -> None:
    del claude.env["ANTHROPIC_API_KEY"]
    server.pages["/v1/models"] = {"data": [{"type": "model", "id": "local-claude", "max_model_len": 9000}]}
    listed = [line.split() for line in claude.run("--list-models").stdout.splitlines()]
    assert ["anthropic/local-claude", "anthropic", "9000", "-", "-"] in listed
    assert server.asked[0].headers["anthropic-version"] == "2023-06-01"
    run = claude.run("-m", "anthropic/local-claude", "hi")
    assert run.stderr.startswith("gptsh: anthropic refused the key (401): x-api-key header is required")


def test_the_window_of_a_server_of_ones_own(claude: Home, server: AnthropicServer) -> None:
    server.pages["/v1/models"] = {"data": [{"id": "claude-sonnet-4-5", "max_model_len": 9000}]}
    told = json.loads(claude.run("--dry-run", "-o", "json", stdin="word " * 4000).stdout)
    assert told["context"]["window"] == 9000
    assert server.asked[0].headers["x-api-key"] == KEY


@pytest.mark.parametrize(
    ("status", "said_as", "code", "line"),
    [
        (400, "messages: no", 1, "anthropic refused (400): messages: no"),
        (401, "invalid x-api-key", 1,
         "anthropic refused the key (401): invalid x-api-key: check ANTHROPIC_API_KEY"),
        (403, "not yours", 1, "anthropic refused the key (403): not yours"),
        (404, "model: x", 1, "does not know 'claude-sonnet-4-5' (404): model: x"),
        (413, "Request exceeds the maximum size", 1, "anthropic refused (413): Request exceeds"),
        (400, "prompt is too long: 208310 tokens > 200000 maximum", 6,
         "anthropic has no room for the prompt: prompt is too long: 208310 tokens > 200000 maximum"),
        (400, "input length and `max_tokens` exceed context limit: 190000 + 50000 > 200000", 6,
         "anthropic has no room for the prompt: input length"),
    ],
)  # fmt: skip
def test_refusals(claude: Home, server: AnthropicServer, status: int, said_as: str, code: int, line: str) -> None:
    error = {"type": "invalid_request_error", "message": said_as}
    server.refuse(status, {"type": "error", "error": error, "request_id": "req_1"})
    run = claude.run("hi")
    assert (run.stdout, run.code, len(server.asked)) == ("", code, 1)
    assert line in run.stderr.splitlines()[0]
    assert texts(claude.doc()) == ["user: hi"]


@pytest.mark.parametrize(("status", "kind"), [(429, "rate_limit_error"), (529, "overloaded_error"), (500, "api_error")])
def test_refusals_that_may_pass(claude: Home, server: AnthropicServer, status: int, kind: str) -> None:
    error = {"type": "error", "error": {"type": kind, "message": "later"}}
    server.refuse(status, error, {"retry-after": "0"})
    assert claude.run("hi") == ("You said: hi\n", "", 0)
    server.refuse(status, error, {"retry-after": "40"})
    run = claude.run("-n", "hi")
    assert (run.code, len(server.asked)) == (1, 3)
    assert f"({status}): later" in run.stderr


def test_no_key_is_shown_or_kept(claude: Home, server: AnthropicServer) -> None:
    for status in (401, 400):
        server.refuse(status, {"type": "error", "error": {"type": "x", "message": f"bad key {KEY}"}})
        run = claude.run("--debug", "-n", "hi")
        assert KEY not in run.stdout + run.stderr
    assert not any(KEY.encode() in path.read_bytes() for path in claude.state.rglob("*") if path.is_file())


def test_events_for_a_program(claude: Home, server: AnthropicServer) -> None:
    server.script(*stream(thought(0, "hm"), said(1, "Yes."), tool(2, "t1", "ls", "{}"), stop="tool_use"))
    lines = [json.loads(line) for line in claude.run("-o", "jsonl", "hi").stdout.splitlines()]
    kinds = [line["type"] for line in lines]
    assert [kind for kind in kinds if kind in ("text", "reasoning", "tool_call", "usage")] == [
        "reasoning", "text", "tool_call", "usage",
    ]  # fmt: skip
    assert (kinds[-1], lines[-1]["text"], lines[-1]["tool_calls"][0]["id"]) == ("done", "Yes.", "t1")


def test_a_session_pays_for_its_history_once(claude: Home, server: AnthropicServer) -> None:
    ends = []
    for number, words in enumerate(("first " * 50, "second " * 50, "third " * 50, "fourth " * 50)):
        assert claude.run(*(("-s", "0") if number else ()), "--system", "Brief. " * 20, words).code == 0
        ends.append(claude.doc()["messages"][-1]["usage"])
    assert (ends[0]["cached_tokens"], ends[0]["cache_write_tokens"]) == (0, 0)
    assert ends[1]["cached_tokens"] == 0
    assert ends[1]["cache_write_tokens"] > 0
    for before, after in pairwise(ends[1:]):
        assert after["cached_tokens"] == before["prompt"] - before["raw"]["input_tokens"]


def test_an_image_and_a_document_that_are_attached(claude: Home, server: AnthropicServer) -> None:
    (claude.cwd / "a.png").write_bytes(a_png())
    (claude.cwd / "b.pdf").write_bytes(b"%PDF-1.4\n/Type /Page\n%%EOF\n")
    (claude.cwd / "c.txt").write_text("words")
    run = claude.run("-f", "a.png", "-f", "b.pdf", "-f", "c.txt", "what is this?")
    assert run == ("You said: c.txt:\nwords\n", "", 0)
    ((_, blocks),) = bare(server.sent[-1])  # behind the question for the server's window
    assert [block["type"] for block in blocks] == ["text", "image", "document", "text"]
    assert (blocks[1]["source"]["media_type"], blocks[2]["title"]) == ("image/png", "b.pdf")
    assert claude.run("-s", "0", "and?").code == 0


def with_tools(claude: Home, server: AnthropicServer) -> None:
    """Offer the quick tool server, all its tools approved."""
    tools = MORE.format(python=json.dumps(sys.executable), server=json.dumps(str(SERVER)), approved='"*"')
    tools = tools.replace('[sessions]\ntitles = "off"\n', "")
    claude.configure(config(server, tools).replace(f'model = "{SONNET}"', f'model = "{SONNET}"\ntools = ["good"]'))


@pytest.mark.slow
def test_a_tool_runs_between_two_thoughts(claude: Home, server: AnthropicServer) -> None:
    with_tools(claude, server)
    server.script(*stream(thought(0, "I add."), said(1, "Wait. "), tool(2, "toolu_1", "good__add", '{"a":2,', '"b":3}'),
                          stop="tool_use"))  # fmt: skip
    server.script(*stream(thought(0, "Five."), said(1, "It is 5.")))
    run = claude.run("-p", "reasoning_effort=low", "2 + 3?")
    assert (run.stdout, run.code) == ("Wait. \n\nIt is 5.\n", 0)
    offered = {made["name"]: made for made in server.sent[0]["tools"]}
    assert offered["good__add"]["input_schema"]["required"] == ["a", "b"]
    asked = bare(server.sent[1])
    assert asked[1][1][0] == thinking("I add.", signature("I add."))
    assert asked[2] == ("user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "5"}])
    assert set(prefixes(server.sent[0])) & set(prefixes(server.sent[1]))  # what the first one left in the cache
    doc = claude.doc()
    assert [m["role"] for m in doc["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert claude.run("-s", "0", "--no-tools", "and?").code == 0
    assert server.sent[2]["tool_choice"] == {"type": "none"}


@pytest.mark.slow
def test_three_rounds_with_one_thought_at_the_beginning(claude: Home, server: AnthropicServer) -> None:
    with_tools(claude, server)
    server.script(*stream(thought(0, "I add twice."), tool(1, "t1", "good__add", '{"a":2,"b":3}'), stop="tool_use"))
    server.script(*stream(tool(0, "t2", "good__add", '{"a":5,"b":4}'), stop="tool_use"))
    server.script(*stream(said(0, "It is 9.")))
    run = claude.run("-p", "reasoning_effort=low", "2 + 3 + 4?")
    assert (run.stdout, run.code) == ("It is 9.\n", 0)
    assert [made["thinking"]["budget_tokens"] for made in server.sent] == [1024] * 3
    assert [[part["type"] for part in content] for _, content in bare(server.sent[2])][1::2] == [
        ["thinking", "tool_use"], ["tool_use"],
    ]  # fmt: skip
