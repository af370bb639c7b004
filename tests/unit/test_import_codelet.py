"""Sessions of codelet and fspec: envelopes, store, manifests and blobs; what the samples have is in the session."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from gptsh.formats.codelet import READER
from gptsh.formats.source import Shared, Source
from tests.support.histories import (
    HISTORIES,
    as_lines,
    asked_in,
    copied,
    lines_of,
    nothing_in,
    placed,
    read,
    read_one,
    spoilt,
    survives,
    taken_by,
)

NAME = "codelet"
ENVELOPES = HISTORIES / "codelet" / "envelopes_full.jsonl"
HOME = "codelet/.fspec"
MANIFEST = "sessions/00000000-0000-4000-8000-000000000900.json"
STORE = "messages/messages.jsonl"
SAID = lines_of(ENVELOPES)
RECORDS = lines_of(HISTORIES / HOME / STORE)
PICKED = json.loads((HISTORIES / HOME / MANIFEST).read_text())


@pytest.fixture(scope="module")
def envelopes() -> dict[str, Any]:
    return read_one(ENVELOPES, NAME)


@pytest.fixture(scope="module")
def session() -> dict[str, Any]:
    return read_one(HISTORIES / HOME / MANIFEST, NAME)


def blocks_in(said: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [block for one in said for block in one["message"]["content"] if block["type"] == kind]


def holds_all(doc: dict[str, Any], said: list[dict[str, Any]]) -> None:
    """The blocks of these envelopes are in the session, and it can be asked in."""
    messages = doc["messages"]
    results = blocks_in(said, "tool_result")
    alone = [one for one in said if {b["type"] for b in one["message"]["content"]} != {"tool_result"}]
    assert len(messages) == len(alone) + len(results)
    assert [block for one in messages for block in one.get("thinking", ())] == blocks_in(said, "thinking")
    made = [call for one in messages for call in one.get("tool_calls", ())]
    assert [(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in made] == [
        (block["id"], block["name"], block["input"]) for block in blocks_in(said, "tool_use")
    ]
    given_back = [message for message in messages if message["role"] == "tool"]
    assert [(one["tool_call_id"], one["content"], one["is_error"], one.get("raw")) for one in given_back] == [
        (b["tool_use_id"], b["content"], b["is_error"], b.get("tool_use_result")) for b in results
    ]
    parts = [part for one in messages if one["role"] != "tool" for part in one["content"]]
    assert parts == [block for one in said for block in one["message"]["content"]
                     if block["type"] in ("text", "image", "document")]  # fmt: skip
    asked_in(doc)


def test_every_envelope_comes_out(envelopes: dict[str, Any]) -> None:
    holds_all(envelopes, SAID)
    ids = [message["id"] for message in envelopes["messages"]]
    assert [ident for ident in ids if ident.startswith("00000000")] == [one["uuid"] for one in SAID]
    assert [message["timestamp"] for message in envelopes["messages"] if message["id"] in ids] == [
        one["timestamp"] for one in SAID for _ in range(2 if one["provider"] == "tool" else 1)
    ]
    assert ids == [message["id"] for message in read_one(ENVELOPES, NAME)["messages"]]


def test_an_answer_of_text_alone_stays_an_answer(envelopes: dict[str, Any]) -> None:
    answers = [message for message in envelopes["messages"] if message["role"] == "assistant"]
    its = [one for one in SAID if one["type"] == "assistant"]
    assert len(answers) == len(its) == 3
    for answer, one in zip(answers, its, strict=True):
        assert answer["model"] == one["message"]["model"]
        assert answer["response_id"] == one["message"]["id"]
        assert answer["request_id"] == one["requestId"]
        assert (answer.get("usage") or {}).get("raw") == one["message"].get("usage")
        assert answer["provider"] == {"claude": "anthropic"}.get(one["provider"], one["provider"])
    assert [answer["finish_reason"] for answer in answers] == ["tool_calls", "end_turn", "end_turn"]
    as_question = {**SAID[3], "type": "user"}
    assert read_one(as_lines([as_question]), NAME)["messages"][0]["role"] == "assistant"


def test_a_manifest_picks_its_messages_from_the_store(session: dict[str, Any]) -> None:
    messages = session["messages"]
    assert len(messages) == len(PICKED["messages"]) == 5
    assert [message["id"] for message in messages] == [item["message_id"] for item in PICKED["messages"]]
    holds_all(session, [record["metadata"] for record in RECORDS])
    for message, record in zip(messages, RECORDS, strict=True):
        assert message["timestamp"] == record["metadata"]["timestamp"]
        assert message["source"]["created_at"] == record["created_at"]
        assert message["source"]["uuid"] == record["metadata"]["uuid"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert messages[4]["source"]["origin"] == PICKED["messages"][4]["source"]


def test_a_manifest_tells_of_its_session(session: dict[str, Any]) -> None:
    assert (session["title"], session["meta"]["cwd"]) == (PICKED["name"], PICKED["project"])
    assert session["provider"]["name"] == "anthropic"
    assert (session["created_at"], session["updated_at"]) == ("2025-12-23T08:51:00.123Z", "2025-12-23T08:51:09.123Z")
    assert session["meta"]["imported"] == {
        "format": NAME, "key": PICKED["id"], "forked_from": PICKED["forked_from"], "token_usage": PICKED["token_usage"],
    }  # fmt: skip
    carried = session["usage"]["carried_tokens"]
    assert (carried["prompt"], carried["completion"], carried["total"], carried["cached_tokens"]) == (
        31030, 84, 31114, 12500,
    )  # fmt: skip


def test_a_store_beside_its_manifests_has_only_what_none_of_them_names() -> None:
    with copied(HOME) as home:
        assert read(home / STORE, NAME) == ([], [])
        left = {**RECORDS[0], "id": "00000000-0000-4000-8000-000000000199"}
        (home / STORE).write_bytes(as_lines([*RECORDS, left]))
        assert [message["id"] for message in read_one(home / STORE, NAME)["messages"]] == [left["id"]]
        (home / MANIFEST).unlink()
        alone = read_one(home / STORE, NAME)
    assert [message["id"] for message in alone["messages"]] == [one["id"] for one in [*RECORDS, left]]
    assert read_one(as_lines(RECORDS), NAME)["meta"]["imported"]["key"] == alone["meta"]["imported"]["key"]
    asked_in(alone)


def test_of_a_message_that_was_written_twice_the_latest_counts() -> None:
    again = json.loads(json.dumps(RECORDS[0]))
    again["metadata"]["message"]["content"] = [{"type": "text", "text": "later"}]
    plain = {**RECORDS[4], "metadata": {}}
    with copied(HOME) as home:
        (home / STORE).write_bytes(as_lines([*RECORDS[:4], plain, again]))
        picked = read_one(home / MANIFEST, NAME)["messages"]
        (home / MANIFEST).unlink()
        stored = read_one(home / STORE, NAME)["messages"]
    for messages in (picked, stored):
        assert [part["text"] for part in messages[0]["content"]] == ["later"]
        assert (messages[4]["role"], messages[4]["content"]) == ("assistant", plain["content"])
        assert messages[4]["timestamp"] == "2025-12-23T08:51:05.123Z"


def test_what_is_not_in_the_store_is_told() -> None:
    with copied(HOME) as home:
        torn = as_lines(RECORDS[2:3])[:200] + b"\n"
        (home / STORE).write_bytes(as_lines([*RECORDS[:2], {**RECORDS[4], "content": 7, "metadata": {}}]) + torn)
        docs, unread = read(home / MANIFEST, NAME)
        assert len(docs[0]["messages"]) + len(unread) == len(PICKED["messages"])
        assert len(docs[0]["messages"]) == 2
        assert [item.where.rpartition("/")[2] for item in unread] == [
            MANIFEST.rpartition("/")[2], MANIFEST.rpartition("/")[2], "messages.jsonl:3",
        ]  # fmt: skip
        (home / STORE).unlink()
        docs, unread = read(home / MANIFEST, NAME)
    assert docs == []
    assert [item.why for item in unread] == ["its 5 messages: no store of them beside it"]
    assert read((HISTORIES / HOME / MANIFEST).read_bytes(), NAME)[0] == []


def test_a_message_that_a_manifest_names_many_times_is_there_once() -> None:
    with copied(HOME) as home:
        (home / MANIFEST).write_text(json.dumps({**PICKED, "messages": PICKED["messages"] * 100}))
        doc = read_one(home / MANIFEST, NAME)
    assert [message["id"] for message in doc["messages"]] == [item["message_id"] for item in PICKED["messages"]]


def test_manifests_of_one_walk_read_their_store_once() -> None:
    with copied(HOME) as home:
        shared, again = Shared(), home / "sessions" / "00000000-0000-4000-8000-000000000901.json"
        again.write_text(json.dumps(PICKED))
        first = list(READER.read(Source("it", home / MANIFEST, shared=shared)))
        (home / STORE).unlink()
        second = list(READER.read(Source("it", again, shared=shared)))
        alone = list(READER.read(Source("it", again)))
    assert [one["messages"] for one in first] == [one["messages"] for one in second]
    assert [item.why for item in alone] == ["its 5 messages: no store of them beside it"]


LONG = "long\u2028 é" * 2000


def with_blob(home: Path, text: str) -> str:
    """A blob beside the sessions; its reference."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    folder = home / "blobs" / digest[:2]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / digest).write_text(text, newline="")
    return f"blob:sha256:{digest}"


def with_references(home: Path, reference: str, given_input: str) -> None:
    """The store, long values of which stand in blobs."""
    records = json.loads(json.dumps(RECORDS))
    records[0]["metadata"]["message"]["content"] += [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": reference}},
        {"type": "text", "text": reference},
    ]
    thinking, _, _, call, _ = records[1]["metadata"]["message"]["content"]
    thinking["thinking"], call["input"] = reference, {"_blob_ref": given_input}
    records[2]["metadata"]["message"]["content"][0]["content"] = reference
    (home / STORE).write_bytes(as_lines(records))


def test_what_stands_in_blobs_comes_along() -> None:
    with copied(HOME) as home:
        reference = with_blob(home, LONG)
        with_references(home, reference, with_blob(home, '{"path": "x"}'))
        question, answer, result, *_ = read_one(home / MANIFEST, NAME)["messages"]
    assert question["content"][1]["source"]["data"] == LONG
    assert question["content"][2]["text"] == reference
    assert answer["thinking"][0]["thinking"] == LONG
    assert answer["tool_calls"][0]["function"]["arguments"] == '{"path": "x"}'
    assert result["content"] == LONG


@pytest.mark.parametrize("spoil", ["missing", "another"])
def test_a_blob_that_is_missing_or_another_is_told_and_the_session_can_be_asked_in(spoil: str) -> None:
    with copied(HOME) as home:
        reference = with_blob(home, LONG)
        with_references(home, reference, reference)
        for path in (path for path in (home / "blobs").glob("*/*")):
            if spoil == "missing":
                path.unlink()
            else:
                path.write_text("something else")
        docs, unread = read(home / MANIFEST, NAME)
    assert len(docs[0]["messages"]) == 5
    assert [item.why for item in unread] == [f"{reference}: missing, or not what its name says"] * 4
    assert "signature" not in docs[0]["messages"][1]["thinking"][0]
    asked_in(docs[0])


@pytest.mark.slow
def test_what_blobs_make_of_one_session_is_bounded() -> None:
    with copied(HOME) as home:
        reference = with_blob(home, "x" * 26_000_000)
        records = json.loads(json.dumps(RECORDS))
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": reference}}
        records[0]["metadata"]["message"]["content"] = [image] * 5
        (home / STORE).write_bytes(as_lines(records))
        docs, unread = read(home / MANIFEST, NAME)
    given_back = [len(part["source"]["data"]) for part in docs[0]["messages"][0]["content"]]
    assert given_back == [26_000_000] * 3 + [0] * 2
    why = "more than 100 MB in one session"
    assert [item.why for item in unread] == [f"{reference}: {why}"] * 2 + [why] * 4


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "ab/" + "0" * 61, "A" * 64, "0" * 63, "0" * 65])
def test_a_reference_that_is_no_hash_opens_nothing(name: str) -> None:
    with copied(HOME) as home:
        (home / "secret").write_text("secret")
        with_references(home, f"blob:sha256:{name}", f"blob:sha256:{name}")
        doc = read_one(home / MANIFEST, NAME)
    assert doc["messages"][2]["content"] == f"blob:sha256:{name}"
    assert "secret" not in json.dumps(doc).replace("../../secret", "")


def test_what_was_typed_at_the_prompt_is_no_session(tmp_path: Path) -> None:
    typed = {"display": "hi", "timestamp": "2026-02-02T11:12:00Z", "project": "/p", "session_id": "s"}
    text = f"{json.dumps({**typed, 'pastedContent': None})}\n{json.dumps(typed)}\n"
    assert nothing_in(placed(tmp_path, "history.jsonl", text), NAME)
    assert taken_by(placed(tmp_path, "other.jsonl", text)) is None
    assert taken_by(placed(tmp_path, "history.jsonl", "")) is None
    assert taken_by(placed(tmp_path, "history.jsonl", '{"role": "user", "content": "hi"}\n')) == "nanobot"


def test_what_stands_between_is_told_and_the_rest_is_read() -> None:
    data = as_lines([SAID[0], {"x": 1}, {**SAID[1], "message": {"content": [7]}}, SAID[3]]) + b'{"torn\n[]\n'
    docs, unread = read(data, NAME)
    assert len(docs[0]["messages"]) == 2
    assert sorted(item.where for item in unread) == ["it:2", "it:3", "it:5", "it:6"]


@settings(max_examples=60)
@given(spoilt(SAID))
def test_no_file_of_envelopes_makes_it_fail(values: Any) -> None:
    survives(as_lines(values if isinstance(values, list) else [values]))


@settings(max_examples=60)
@given(spoilt(RECORDS), spoilt(PICKED))
def test_no_store_and_no_manifest_make_it_fail(values: Any, manifest: Any) -> None:
    with copied(HOME) as home:
        (home / STORE).write_bytes(as_lines(values if isinstance(values, list) else [values]))
        (home / MANIFEST).write_text(json.dumps(manifest))
        survives(home / MANIFEST)
        survives(home / STORE)
