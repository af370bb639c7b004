"""nanocoder's sessions and checkpoints: what the samples have is in the session, and no file is too odd."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from gptsh.core.media import media_of
from gptsh.render.transcript import transcript
from tests.support.histories import (
    HISTORIES,
    asked_in,
    copied,
    nothing_in,
    placed,
    read,
    read_one,
    spoilt,
    survives,
    taken_by,
)

NAME = "nanocoder"
HOME = HISTORIES / "nanocoder"
SESSION = HOME / "sessions" / "5f0c2f3e-9a55-4d0e-8f1b-3c1f7a2b4d6e.json"
CHECKPOINT = HOME / ".nanocoder" / "checkpoints" / "before-refactor"
GIVEN = json.loads(SESSION.read_text())


@pytest.fixture(scope="module")
def doc() -> dict[str, Any]:
    return read_one(SESSION, NAME)


def as_file(value: Any) -> bytes:
    return json.dumps(value, indent=2).encode()


def with_message(**message: Any) -> bytes:
    return as_file({**GIVEN, "messages": [message]})


def holds_all(doc: dict[str, Any], given_messages: list[dict[str, Any]]) -> None:
    messages = doc["messages"]
    assert [message["role"] for message in messages] == [one["role"] for one in given_messages]
    for message, one in zip(messages, given_messages, strict=True):
        words = message["content"] if isinstance(message["content"], str) else message["content"][0]["text"]
        assert words == one["content"]
        calls = [(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"]))
                 for c in message.get("tool_calls", ())]  # fmt: skip
        assert calls == [(c["id"], c["function"]["name"], c["function"]["arguments"])
                         for c in one.get("tool_calls", ())]  # fmt: skip
        assert (message.get("tool_call_id"), message.get("name")) == (one.get("tool_call_id"), one.get("name"))
        assert message.get("replay", {}).get("reasoning") == one.get("reasoning")
        assert message.get("raw", {}).get("structured") == one.get("structuredContent")
        assert "is_error" not in message
    asked_in(doc)


def test_every_message_of_the_sample_comes_out(doc: dict[str, Any]) -> None:
    assert len(doc["messages"]) == GIVEN["messageCount"] == 7
    holds_all(doc, GIVEN["messages"])
    assert (doc["title"], doc["meta"]["cwd"]) == (GIVEN["title"], GIVEN["workingDirectory"])
    assert (doc["created_at"], doc["updated_at"]) == (GIVEN["createdAt"], GIVEN["lastAccessedAt"])
    assert (doc["provider"]["name"], doc["agent"]["model"]) == (GIVEN["provider"], GIVEN["model"])
    assert doc["meta"]["imported"] == {"format": NAME, "key": GIVEN["id"]}


def test_images_are_parts_under_their_names(doc: dict[str, Any]) -> None:
    image = GIVEN["messages"][5]["images"][0]
    part = doc["messages"][5]["content"][1]
    media = media_of(part)
    assert media
    assert (media.kind, media.media_type, media.data) == ("image", image["mediaType"], image["data"])
    assert part["source"] == image["source"]


def test_reasoning_is_shown(doc: dict[str, Any]) -> None:
    length = len(GIVEN["messages"][1]["reasoning"])
    assert f"[thinking, {length} characters]" in "".join(transcript(doc, ()))


def test_ids_are_made_of_the_words(doc: dict[str, Any]) -> None:
    ids = [message["id"] for message in doc["messages"]]
    grown = {**GIVEN, "messages": [*GIVEN["messages"], {"role": "user", "content": "more"}]}
    assert [message["id"] for message in read_one(as_file(grown), NAME)["messages"]][:-1] == ids


def test_a_checkpoint_is_a_session_of_its_own() -> None:
    doc = read_one(CHECKPOINT / "conversation.json", NAME)
    notes = json.loads((CHECKPOINT / "metadata.json").read_text())
    assert len(doc["messages"]) == notes["messageCount"]
    holds_all(doc, json.loads((CHECKPOINT / "conversation.json").read_text())["messages"])
    assert (doc["title"], doc["created_at"]) == (notes["name"], notes["timestamp"])
    assert (doc["provider"]["name"], doc["agent"]["model"]) == (notes["provider"]["name"], notes["provider"]["model"])
    assert doc["meta"]["imported"]["filesChanged"] == notes["filesChanged"]
    assert doc["meta"]["imported"]["description"] == notes["description"]


@pytest.mark.parametrize("path", [HOME / "sessions" / "sessions.json", CHECKPOINT / "metadata.json"])
def test_an_index_and_notes_hold_nothing(path: Path) -> None:
    assert read(path, NAME) == ([], [])


def test_an_empty_index_is_told_by_its_name(tmp_path: Path) -> None:
    assert nothing_in(placed(tmp_path, "sessions/sessions.json", []), NAME)
    assert taken_by(placed(tmp_path, "other.json", [])) is None
    assert taken_by(placed(tmp_path, "sessions.json", [{"role": "user", "content": "hi"}])) == "openai"


OTHERS = [path for path in sorted(HISTORIES.rglob("*")) if path.suffix in (".json", ".jsonl", ".db")]


def test_a_file_of_the_project_in_a_checkpoint_is_a_copy_and_no_session(tmp_path: Path) -> None:
    checkpoint = tmp_path / ".nanocoder" / "checkpoints" / "cp"
    shutil.copytree(CHECKPOINT, checkpoint)
    copies = [placed(checkpoint / "files", f"src/{at}/conversation.json", "") for at, _ in enumerate(OTHERS)]
    for copy, path in zip(copies, OTHERS, strict=True):
        shutil.copy(path, copy)
    copies.append(placed(checkpoint / "files", "chat.json", [{"role": "user", "content": "hi"}]))
    for copy in copies:
        assert nothing_in(copy, NAME)
    (checkpoint / "metadata.json").unlink()
    assert taken_by(copies[-1]) == "openai", "no checkpoint without its notes"


def test_a_conversation_without_its_notes_is_nobodys() -> None:
    with copied("nanocoder/.nanocoder/checkpoints/before-refactor") as folder:
        (folder / "metadata.json").unlink()
        with pytest.raises(AssertionError):
            read(folder / "conversation.json", NAME)


@pytest.mark.parametrize("message", [
    {"role": "user", "content": 7}, {"content": "x"}, {"role": 7, "content": "x"},
    {"role": "assistant", "content": "", "tool_calls": ["x"]},
    {"role": "assistant", "content": "", "tool_calls": {"x": 1}},
    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "ls", "arguments": {}}}]},
])  # fmt: skip
def test_what_is_no_message_is_told(message: Any) -> None:
    docs, unread = read(with_message(**message), NAME)
    assert (docs, len(unread)) == ([], 1)


@pytest.mark.parametrize("image", [
    7, "x", {}, {"data": 7, "mediaType": "image/png"}, {"data": "YWJj", "mediaType": "a;b,c"},
    {"data": "YWJj", "mediaType": None},
])  # fmt: skip
def test_an_image_of_another_shape_is_kept(image: Any) -> None:
    for given_images in ([image], image):
        doc = read_one(with_message(role="user", content="look", images=given_images or [image]), NAME)
        assert doc["messages"][0]["content"][1] == {"type": "image", "image": image}
        asked_in(doc)


def test_what_nobody_knows_is_kept() -> None:
    message = {"role": "assistant", "content": "x", "reasoning": ["odd"], "novel": {"a": 1}, "none": None}
    assert read_one(with_message(**message), NAME)["messages"][0]["source"] == {"novel": {"a": 1}, "reasoning": ["odd"]}


@pytest.mark.parametrize(("name", "ours"), [
    ("Anthropic", "anthropic"), ("LM Studio", "lm_studio"), ("My own", "My own"), ("google", "gemini"), ("", None),
])  # fmt: skip
def test_a_provider_has_our_name_where_it_is_known(name: str, ours: str | None) -> None:
    assert read_one(as_file({**GIVEN, "provider": name}), NAME)["provider"]["name"] == ours


@settings(max_examples=80)
@given(spoilt(GIVEN))
def test_no_session_makes_it_fail(value: Any) -> None:
    survives(as_file(value))


@settings(max_examples=40)
@given(spoilt({"messages": GIVEN["messages"]}), spoilt(json.loads((CHECKPOINT / "metadata.json").read_text())))
def test_no_checkpoint_makes_it_fail(value: Any, notes: Any) -> None:
    with copied("nanocoder/.nanocoder/checkpoints/before-refactor") as folder:
        (folder / "conversation.json").write_bytes(as_file(value))
        (folder / "metadata.json").write_bytes(as_file(notes))
        survives(folder / "conversation.json")
        survives(folder / "metadata.json")
