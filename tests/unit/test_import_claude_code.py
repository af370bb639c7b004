"""Claude Code's sessions: what the sample has is in the session, and no file of theirs is too odd."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from gptsh.core.messages import blocks_of
from tests.support.histories import (
    HISTORIES,
    as_lines,
    asked_in,
    lines_of,
    nothing_in,
    placed,
    read,
    read_one,
    spoilt,
    survives,
    taken_by,
)

NAME = "claude-code"
PROJECT = HISTORIES / "claude_code" / "projects" / "-home-u-my-proj"
MAIN = PROJECT / "00000000-0000-4000-8000-000000000700.jsonl"
AGENT = PROJECT / MAIN.stem / "subagents" / "agent-a1b2c3d4.jsonl"
LINES = lines_of(MAIN)
SAID = [line for line in LINES if line["type"] in ("user", "assistant")]


@pytest.fixture(scope="module")
def doc() -> dict[str, Any]:
    return read_one(MAIN, NAME)


def line(number: int, content: Any, kind: str = "user", **more: Any) -> dict[str, Any]:
    """A line; ``message`` holds what is beside role and content."""
    ident = f"00000000-0000-4000-8000-{number:012}"
    message = {"role": kind, "content": content, **more.pop("message", {})}
    base = {"parentUuid": None, "isSidechain": False, "sessionId": "s1", "cwd": "/w", "version": "2"}
    return {**base, "type": kind, "uuid": ident, "timestamp": "2025-12-23T08:51:01.000Z", "message": message, **more}


def test_every_message_of_the_sample_comes_out_once(doc: dict[str, Any]) -> None:
    responses = Counter(one["message"]["id"] for one in SAID if one["type"] == "assistant")
    merged = sum(times - 1 for times in responses.values())
    assert len(SAID) == 13
    assert len(doc["messages"]) == len(SAID) - merged == 8


def test_the_session_is_told_by_its_lines(doc: dict[str, Any]) -> None:
    assert doc["title"] == "Config and /nope"
    assert doc["meta"]["cwd"] == "/home/u/my_proj"
    assert doc["meta"]["imported"] == {
        "format": NAME, "key": MAIN.stem, "gitBranch": "main", "version": "2.1.144",
    }  # fmt: skip
    assert (doc["provider"]["name"], doc["agent"]["model"]) == ("anthropic", "claude-synthetic")
    assert (doc["created_at"], doc["updated_at"]) == ("2025-12-23T08:51:01.000Z", "2025-12-23T08:51:13.000Z")
    assert doc["usage"]["tokens"]["prompt"] == 15 + 12500 + 3000
    asked_in(doc)


def test_every_id_and_every_time_is_in_it(doc: dict[str, Any]) -> None:
    found = {message["id"]: message.get("timestamp") for message in doc["messages"]}
    for message in doc["messages"]:
        found |= {one["uuid"]: one["timestamp"] for one in message.get("source", {}).get("lines", ())}
    assert found == {one["uuid"]: one["timestamp"] for one in SAID}


def test_parents_are_messages_of_the_session(doc: dict[str, Any]) -> None:
    ids = [message["id"][-2:] for message in doc["messages"]]
    assert ids == ["01", "02", "07", "08", "09", "10", "11", "13"]
    assert [(message["parent"] or "None")[-2:] for message in doc["messages"]] == [
        "ne", "01", "02", "02", "08", "09", "10", "11",
    ]  # fmt: skip


def test_the_blocks_of_a_response_are_one_message_in_their_order(doc: dict[str, Any]) -> None:
    for message in (one for one in doc["messages"] if one["role"] == "assistant"):
        its = [one for one in SAID if one["message"].get("id") == message["response_id"]]
        given_blocks = [one["message"]["content"][0] for one in its]
        kinds = {"tool_use": "tool_call"}
        assert [kind for kind, _ in blocks_of(message)] == [kinds.get(b["type"], b["type"]) for b in given_blocks]
        assert message.get("thinking", []) == [b for b in given_blocks if b["type"] == "thinking"]
        assert message["content"] == [b for b in given_blocks if b["type"] == "text"]
        calls = [(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"]))
                 for c in message.get("tool_calls", ())]  # fmt: skip
        assert calls == [(b["id"], b["name"], b["input"]) for b in given_blocks if b["type"] == "tool_use"]
        assert message["model"] == its[0]["message"]["model"]
        assert message["request_id"] == its[0]["requestId"]
        assert message["provider"] == "anthropic"
        used = max((one["message"]["usage"] for one in its), key=lambda usage: usage["output_tokens"])
        assert message["usage"]["raw"] == used
        assert (message["usage"]["completion"], message["usage"]["cached_tokens"]) == (used["output_tokens"], 12500)
    reasons = [one.get("finish_reason") for one in doc["messages"] if one["role"] == "assistant"]
    assert reasons == ["tool_calls", "end_turn", "end_turn"]
    assert doc["messages"][1]["usage"]["completion"] == 42
    signatures = [block.get("signature") for block in doc["messages"][1]["thinking"]]
    assert signatures == ["c3ludGhldGljLXNpZ25hdHVyZQ==", "c3ludGhldGljLXNpZ25hdHVyZQ==", ""]


def test_results_are_messages_of_tools(doc: dict[str, Any]) -> None:
    results = [message for message in doc["messages"] if message["role"] == "tool"]
    lines = [one for one in SAID if "toolUseResult" in one]
    assert [message["content"] for message in results] == [one["message"]["content"][0]["content"] for one in lines]
    assert [message["tool_call_id"] for message in results] == [
        one["message"]["content"][0]["tool_use_id"] for one in lines
    ]
    assert "is_error" not in results[0]
    assert results[1]["is_error"] is True
    assert [message["raw"] for message in results] == [{"structured": one["toolUseResult"]} for one in lines]


def test_images_and_documents_are_parts(doc: dict[str, Any]) -> None:
    question = next(one for one in SAID if one["uuid"].endswith("10"))
    assert doc["messages"][5]["content"] == question["message"]["content"]
    assert [part["type"] for part in doc["messages"][5]["content"]] == ["text", "image", "document"]


def test_an_agent_that_was_sent_off_is_a_session_of_its_own() -> None:
    doc = read_one(AGENT, NAME)
    assert doc["meta"]["imported"]["key"] == f"{MAIN.stem}/a1b2c3d4"
    assert [message["content"] for message in doc["messages"]] == ["sub task"]
    asked_in(doc)


def test_lines_of_an_agent_among_the_others_are_a_session_of_their_own() -> None:
    apart = {"isSidechain": True}
    values = [
        line(1, "main"), line(2, "go", parentUuid=line(1, "")["uuid"], **apart),
        line(3, "going", "assistant", parentUuid=line(2, "")["uuid"], **apart),
        line(4, "on", parentUuid=line(1, "")["uuid"]), line(5, "named", agentId="x", **apart),
        {"type": "ai-title", "aiTitle": "T", "sessionId": "s1"},
    ]  # fmt: skip
    docs, unread = read(as_lines(values), NAME)
    assert unread == []
    assert [[message["content"] for message in doc["messages"]] for doc in docs] == [
        ["main", "on"], ["go", "going"], ["named"],
    ]  # fmt: skip
    assert [doc["meta"]["imported"]["key"] for doc in docs] == ["s1", f"s1/{line(2, '')['uuid']}", "s1/x"]
    assert [doc["title"] for doc in docs] == ["T", None, None]


def test_a_session_that_was_gone_on_with_in_a_new_file_is_one_with_what_it_copied() -> None:
    copies = [line(1, "old"), line(2, "more", parentUuid=line(1, "")["uuid"])]
    new = line(3, "new", parentUuid=line(2, "")["uuid"], sessionId="s2")
    doc = read_one(as_lines([*copies, new, new]), NAME)
    assert doc["meta"]["imported"]["key"] == "s2"
    assert [message["content"] for message in doc["messages"]] == ["old", "more", "new"]
    docs, _ = read(as_lines([line(1, "a"), line(2, "b", sessionId="s2")]), NAME)
    assert [doc["meta"]["imported"]["key"] for doc in docs] == ["s1", "s2"]


def test_another_message_under_the_same_id_is_kept_with_an_id_of_its_own() -> None:
    data = as_lines([line(1, "a"), line(1, "b")])
    doc, again = read_one(data, NAME), read_one(data, NAME)
    assert [message["content"] for message in doc["messages"]] == ["a", "b"]
    assert [message["id"] for message in doc["messages"]] == [message["id"] for message in again["messages"]]


def test_a_response_whose_results_came_between_its_lines_is_still_one() -> None:
    def call(number: int, name: str) -> dict[str, Any]:
        block = {"type": "tool_use", "id": name, "name": "ls", "input": {}, "caller": {"type": "direct"}}
        return line(number, [block], "assistant", message={"id": "m"}, parentUuid=line(number - 1, "")["uuid"])

    def result(number: int, name: str) -> dict[str, Any]:
        block = {"type": "tool_result", "tool_use_id": name, "content": name, "is_error": False}
        beside = {"stdout": name, "isImage": False}
        return line(number, [block], parentUuid=line(number - 1, "")["uuid"], toolUseResult=beside)

    doc = read_one(as_lines([line(1, "go"), call(2, "a"), result(3, "a"), call(4, "b"), result(5, "b")]), NAME)
    assert [message["role"] for message in doc["messages"]] == ["user", "assistant", "tool", "tool"]
    assert [c["id"] for c in doc["messages"][1]["tool_calls"]] == ["a", "b"]
    assert doc["messages"][1]["tool_calls"][0]["caller"] == {"type": "direct"}
    assert [message["parent"][-1] for message in doc["messages"][2:]] == ["2", "2"]
    assert [message["is_error"] for message in doc["messages"][2:]] == [False, False]
    assert doc["messages"][2]["raw"] == {"stdout": "a", "isImage": False}
    asked_in(doc)


def test_what_is_marked_is_kept_with_its_mark() -> None:
    failed = {"model": "<synthetic>", "id": "m", "stop_reason": "stop_sequence"}
    waited = {"type": "queued_command", "prompt": "and this"}
    values = [
        line(1, "caveat", isMeta=True), line(2, "API Error", "assistant", message=failed, isApiErrorMessage=True),
        {**line(3, ""), "type": "attachment", "message": None, "attachment": waited},
        line(4, [{"type": "redacted_thinking", "data": "x"}], "assistant", message={"id": "n", "usage": {}}),
        line(5, [{"type": "text", "text": "42"}], "assistant", message={"id": "n"}),
    ]  # fmt: skip
    caveat, error, question, answer = read_one(as_lines(values), NAME)["messages"]
    assert caveat["source"] == {"isMeta": True}
    assert error["source"] == {"isApiErrorMessage": True, "model": "<synthetic>"}
    assert error["finish_reason"] == "error"
    assert "model" not in error
    assert (question["role"], question["content"]) == ("user", "and this")
    assert answer["thinking"] == [{"type": "redacted_thinking", "data": "x"}]
    assert answer["content"] == [{"type": "text", "text": "42"}]


@pytest.mark.parametrize(("records", "title"), [
    ([{"type": "summary", "summary": "S", "leafUuid": line(1, "")["uuid"]}], "S"),
    ([{"type": "summary", "summary": "S", "leafUuid": "elsewhere"}], None),
    ([{"type": "ai-title", "aiTitle": "A", "sessionId": "s1"}, {"type": "summary", "summary": "S",
      "leafUuid": line(1, "")["uuid"]}], "A"),
    ([{"type": "custom-title", "customTitle": name, "sessionId": "s1"} for name in "XY"], "Y"),
    ([{"type": "custom-title", "customTitle": "X", "sessionId": "other"}], None),
])  # fmt: skip
def test_the_title(records: list[Any], title: str | None) -> None:
    assert read_one(as_lines([*records, line(1, "words")]), NAME)["title"] == title


def test_what_no_model_said_is_not_the_latest_call() -> None:
    used = {"id": "m1", "model": "claude-a", "usage": {"input_tokens": 50, "output_tokens": 5}}
    zeros = {"id": "m2", "model": "<synthetic>", "usage": {"input_tokens": 0, "output_tokens": 0}}
    lines = [line(1, "q"), line(2, [], "assistant", message=used), line(3, [], "assistant", message=zeros)]
    doc = read_one(as_lines(lines), NAME)
    assert ["usage" in message for message in doc["messages"]] == [False, True, False]
    assert doc["usage"]["tokens"]["total"] == 55


def test_what_is_broken_is_told_by_its_line_and_the_rest_is_read() -> None:
    a, b, c = (as_lines([line(number, f"{number}")]).rstrip() for number in (1, 2, 3))
    odd = as_lines([line(4, 7), {**line(5, ""), "message": "x"}, {**line(6, ""), "type": "novel"}, line(7, [1])])
    docs, unread = read(b"\n".join([a + b, b"\0" * 50 + c, b'{"torn', odd]), NAME)
    assert [message["content"] for message in docs[0]["messages"]] == ["1", "2", "3"]
    assert [item.where for item in unread] == ["it:3", "it:4", "it:5", "it:6", "it:7"]


def test_a_file_of_records_alone_has_no_session() -> None:
    records = [one for one in LINES if one["type"] in ("summary", "custom-title", "file-history-snapshot")]
    assert read(as_lines(records), NAME) == ([], [])


CHAT = [{"role": "user", "content": "hi"}]
INDEX = {"version": 1, "entries": [{"sessionId": "s1", "fullPath": "/x", "fileMtime": 1}]}


@pytest.mark.parametrize(("place", "value"), [
    ("sessions-index.json", INDEX), ("sessions-index.json", {**INDEX, "entries": []}),
    (f"{MAIN.stem}/subagents/agent-a1.meta.json", {"agentType": "Explore"}),
    (f"{MAIN.stem}/tool-results/mcp.json", [{"type": "text", "text": "x"}]),
    (f"{MAIN.stem}/tool-results/toolu_1.json", CHAT), (f"{MAIN.stem}/tool-results/torn.json", "{"),
    (f"{MAIN.stem}/tool-results/lines.jsonl", MAIN.read_text()),
])  # fmt: skip
def test_what_only_goes_with_sessions_holds_nothing(tmp_path: Path, place: str, value: Any) -> None:
    assert nothing_in(placed(tmp_path, place, value), NAME)


@pytest.mark.parametrize(("place", "value", "of"), [
    ("sessions-index.json", {"entries": [1]}, None), ("index.json", INDEX, None),
    ("sessions-index.json", CHAT, "openai"),
    ("agent-a1.meta.json", {"agentType": "x"}, None), ("subagents/agent-a1.meta.json", CHAT, "openai"),
    ("tool-results/a.json", CHAT, "openai"), (f"{MAIN.stem}/results/a.json", CHAT, "openai"),
])  # fmt: skip
def test_what_stands_elsewhere_or_is_something_else_is_not_swallowed(
    tmp_path: Path, place: str, value: Any, of: str | None
) -> None:
    assert taken_by(placed(tmp_path, place, value)) == of


def test_many_lines_of_one_response_take_no_longer_than_others() -> None:
    one = {"message": {"id": "m", "usage": {"output_tokens": 1, "input_tokens": 1}}}
    parts = [
        line(at, [{"type": "text", "text": "x"}], "assistant", **json.loads(json.dumps(one))) for at in range(5000)
    ]
    doc = read_one(as_lines(parts), NAME)
    assert len(doc["messages"]) == 1
    assert len(doc["messages"][0]["content"]) == 5000


@settings(max_examples=80)
@given(spoilt(LINES))
def test_no_file_makes_it_fail(values: Any) -> None:
    survives(as_lines(values if isinstance(values, list) else [values]))
