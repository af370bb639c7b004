"""OLLM-CLI's sessions, histories and snapshots: what the samples have is in the session, and no file is too odd."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests.support.histories import HISTORIES, asked_in, nothing_in, placed, read, read_one, spoilt, survives, taken_by

NAME = "ollm"
HOME = HISTORIES / "ollm"
SESSION = HOME / "sessions" / "550e8400-0000-4000-8000-000000000001.json"
HISTORY = HOME / "context-storage" / "session-1769508000000.json"
FOLDER = HOME / "context-storage" / "550e8400-0000-4000-8000-000000000001" / "snapshots"
SNAPSHOT = FOLDER / "snapshot-snap_1769508010000_k3x9q2z.json"
TALKED, LISTED, SHOT = (json.loads(path.read_text()) for path in (SESSION, HISTORY, SNAPSHOT))


def as_file(value: Any) -> bytes:
    return json.dumps(value, indent=2).encode()


def told(doc: dict[str, Any]) -> list[tuple[str, Any, str | None]]:
    return [(message["role"], message["content"], message.get("timestamp")) for message in doc["messages"]]


def called(message: dict[str, Any]) -> list[tuple[str, str, Any]]:
    calls = message.get("tool_calls", ())
    return [(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]


def test_every_message_and_every_call_of_a_session_comes_out_in_time() -> None:
    doc = read_one(SESSION, NAME)
    said = [(one["role"], one["parts"][0]["text"], one["timestamp"]) for one in TALKED["messages"]]
    calls = [
        one
        for call in TALKED["toolCalls"]
        for one in (("assistant", None, call["timestamp"]), ("tool", call["result"]["llmContent"], call["timestamp"]))
    ]
    assert len(doc["messages"]) == len(TALKED["messages"]) + 2 * len(TALKED["toolCalls"]) == 9
    assert told(doc) == [*said[:2], *calls, *said[2:]]
    made = [one for message in doc["messages"] for one in called(message)]
    assert made == [(call["id"], call["name"], call["args"]) for call in TALKED["toolCalls"]]
    results = [message for message in doc["messages"] if message["role"] == "tool"]
    assert [(one["tool_call_id"], one["name"]) for one in results] == [(call[0], call[1]) for call in made]
    assert [one.get("raw") for one in results] == [{"returnDisplay": "1 line"}, None]
    assert not any("is_error" in one for one in results)
    asked_in(doc)


def test_a_session_tells_of_itself() -> None:
    doc = read_one(SESSION, NAME)
    assert (doc["created_at"], doc["updated_at"]) == (TALKED["startTime"], TALKED["lastActivity"])
    assert (doc["provider"]["name"], doc["agent"]["model"]) == (TALKED["provider"], TALKED["model"])
    assert doc["meta"]["imported"] == {"format": NAME, "key": TALKED["sessionId"], "mode": "developer"}
    assert doc["title"] is None


def test_every_message_of_a_history_comes_out() -> None:
    doc = read_one(HISTORY, NAME)
    assert len(doc["messages"]) == LISTED["metadata"]["totalMessages"] == 5
    assert told(doc) == [(one["role"], one["content"], one["timestamp"]) for one in LISTED["messages"]]
    for message, one in zip(doc["messages"], LISTED["messages"], strict=True):
        assert message["id"] == one["id"]
        assert called(message) == [(call["id"], call["name"], call["args"]) for call in one.get("toolCalls", ())]
        assert message.get("tool_call_id") == one.get("toolCallId")
        assert message["source"] == {"tokenCount": one["tokenCount"]}
    assert doc["meta"]["imported"]["checkpointRecords"] == LISTED["checkpointRecords"]
    assert (doc["created_at"], doc["updated_at"]) == ("2026-01-27T10:00:00.000Z", "2026-01-27T10:00:10.000Z")
    asked_in(doc)


def test_a_snapshot_is_a_session_in_which_each_message_stands_once() -> None:
    doc = read_one(SNAPSHOT, NAME)
    assert told(doc) == [(one["role"], one["content"], one["timestamp"]) for one in SHOT["messages"]]
    assert [message["id"] for message in doc["messages"]] == [one["id"] for one in SHOT["messages"]]
    assert doc["meta"]["imported"]["key"] == f"{SHOT['sessionId']}/{SHOT['id']}"
    assert doc["meta"]["imported"]["checkpoints"] == SHOT["checkpoints"]
    assert (doc["title"], doc["updated_at"], doc["agent"]["model"]) == (SHOT["summary"], SHOT["timestamp"], None)
    asked_in(doc)


def test_what_a_snapshot_holds_of_before_stands_in_its_place() -> None:
    def asked(ident: str, second: int) -> dict[str, Any]:
        return {"id": ident, "role": "user", "content": ident, "timestamp": f"2026-01-27T10:00:{second:02}.000Z"}

    value = {**SHOT, "archivedUserMessages": [asked("m4", 4), asked("m0", 0)],
             "userMessages": [*SHOT["userMessages"], {**asked("mx", 0), "timestamp": None}]}  # fmt: skip
    doc = read_one(as_file(value), NAME)
    assert [message["id"] for message in doc["messages"]] == ["mx", "m0", "m1", "m2", "m3", "m4", "m5"]


def test_a_snapshot_without_messages_is_no_session() -> None:
    assert read(as_file({**SHOT, "messages": [], "userMessages": []}), NAME) == ([], [])


@pytest.mark.parametrize("path", [FOLDER / "snapshots-index.json", HOME / "context-storage" / "snapshot-map.json"])
def test_an_index_and_a_map_hold_nothing(path: Path) -> None:
    assert read(path, NAME) == ([], [])


EMPTY_INDEX: dict[str, Any] = {"version": "1.0", "snapshots": []}


@pytest.mark.parametrize(("name", "value"), [("snapshot-map.json", {}), ("snapshots-index.json", EMPTY_INDEX)])
def test_an_empty_index_and_an_empty_map_are_told_by_their_names(tmp_path: Path, name: str, value: Any) -> None:
    assert nothing_in(placed(tmp_path, name, value), NAME)
    assert taken_by(placed(tmp_path, "other.json", value)) is None


def test_calls_without_a_time_come_last_and_one_without_a_result_is_a_call_alone() -> None:
    one = {"id": "c", "name": "ls", "args": {}}
    calls = [one, {**one, "id": "d", "timestamp": "2020-01-01T00:00:00Z", "result": {"llmContent": [{"text": "x"}]}},
             {**one, "id": "e", "timestamp": "2030-01-01T00:00:00Z", "result": "plain"}]  # fmt: skip
    messages = read_one(as_file({**TALKED, "toolCalls": calls}), NAME)["messages"]
    assert [call["id"] for message in messages for call in message.get("tool_calls", ())] == ["d", "e", "c"]
    assert [message["role"] for message in messages[:2]] == ["assistant", "tool"]
    assert [message["content"] for message in messages if message["role"] == "tool"] == ['[{"text": "x"}]', "plain"]


def test_parts_that_are_more_than_a_text_stay_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    message = {"role": "user", "parts": parts}
    assert (
        read_one(as_file({**TALKED, "messages": [message], "toolCalls": []}), NAME)["messages"][0]["content"] == parts
    )


@pytest.mark.parametrize("message", [7, {}, {"role": "user", "parts": 7}, {"role": "user", "parts": ["x"]},
                                     {"role": "assistant", "content": "", "toolCalls": [7]}])  # fmt: skip
def test_what_is_no_message_is_told(message: Any) -> None:
    docs, unread = read(as_file({**TALKED, "messages": [*TALKED["messages"], message], "toolCalls": []}), NAME)
    assert (len(docs[0]["messages"]), len(unread)) == (5, 1)


@settings(max_examples=60)
@given(spoilt(TALKED))
def test_no_session_makes_it_fail(value: Any) -> None:
    survives(as_file(value))


@settings(max_examples=60)
@given(spoilt([LISTED, SHOT]))
def test_no_history_and_no_snapshot_make_it_fail(values: Any) -> None:
    for value in values if isinstance(values, list) else [values]:
        survives(as_file(value))
