"""Full fidelity: what a session holds is on disk as it came, comes back as it was, and is sent as in one run."""

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from gptsh.core import document, sessions
from gptsh.jsonio import parsed
from tests.support import vocabulary
from tests.support.dialects import DIALECTS, QUESTION, STRICT, everything_with, request
from tests.support.home import Home
from tests.support.server import ModelServer


@settings(max_examples=15)
@given(vocabulary.messages(), vocabulary.UNKNOWN)
def test_document_to_file_to_document_is_the_identity(messages: list[Any], unknown: dict[str, Any]) -> None:
    messages = document.complete({"messages": messages})[0]["messages"]  # in our own shapes
    before = json.dumps([messages, unknown])
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", folder)
        doc = sessions.new_session_doc({}, {"name": "lab"}, output=None, mcp_allowed_servers=None)
        doc |= {**unknown, "messages": messages}
        path = Path(sessions.save_session(doc, durable=False))
        data = path.read_bytes()
        loaded = sessions.load_session(doc["id"])
        assert json.dumps([loaded["messages"], {key: loaded[key] for key in unknown}]) == before
        assert json.dumps(doc["messages"]) == json.dumps(messages)
        assert parsed(data.decode("utf-8", "strict")) == loaded  # as a strict reader has it
        sessions.save_session(loaded, durable=False)
        times = rb'"updated_at":"[^"]*"'
        assert re.sub(times, b"", path.read_bytes()) == re.sub(times, b"", data)


@pytest.mark.parametrize("dialect", STRICT)
@settings(max_examples=15)
@given(messages=vocabulary.messages())
def test_what_is_sent_of_any_session_passes_a_strict_server(dialect: str, messages: list[Any]) -> None:
    before = json.dumps(messages)
    sent = json.loads(DIALECTS[dialect](request(messages, dialect)))
    assert STRICT[dialect](sent) is None, sent
    assert json.dumps(messages) == before


CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "/ho'}}
ASKED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
KEYS = ["thinking", "order", "replay", "raw", "usage", "parent", "name", "is_error", "model"]
VALUES: list[Any] = [None, "x", 7, True, [], ["x", None, 3], [[]], {}, {"x": {"y": 1}}, {"prompt": []}]


@pytest.mark.parametrize("key", KEYS)
def test_a_value_of_another_type_does_no_harm(key: str) -> None:
    asked = {**ASKED, "id": "a", "provider": "lab"}
    result = {"role": "tool", "tool_call_id": "c1", "content": "x", "id": "r"}
    for value in VALUES:
        for messages in ([{**asked, key: value}], [asked, {**result, key: value}], [{**QUESTION, key: value}]):
            everything_with({"version": 1, "id": "7x2m", "messages": messages})


def gives(content: Any = "x", call_id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def says(content: Any = "x", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def asks(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": "what is this?"}, *parts]}


TWO = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
RAW = {"stdout": "a\udcff\n", "stderr": "", "interrupted": False, "isImage": False, "own": None}
IMAGE = {"type": "image_url", "image_url": {"url": "data:;base64,YWJj"}}
THREE = [{**CALL, "id": f"c{at}"} for at in range(3)]
HOLDS: dict[str, list[dict[str, Any]]] = {
    "text": [says(" a\r\n\u2028\0😀\\u0041 </think>\t")],
    "tool calls between texts": [
        says(TWO, tool_calls=[{**CALL, "extra_content": {"s": 1}}], order=["text:0", "tool_call:0", "text:1"])],
    "tool results": [ASKED, gives([TWO[0], IMAGE], name="ls", raw=RAW, duration_ms=7)],
    "is_error": [says(None, tool_calls=THREE), gives(call_id="c0", is_error=True), gives(call_id="c1", is_error=False),
                 gives(call_id="c2", is_error=None)],
    "thinking": [says(thinking=[{"type": "thinking", "thinking": "hm"}, {"type": "redacted_thinking", "data": "x"}]),
                 says(thinking=[{"type": "thinking", "thinking": "", "signature": "s"}])],
    "images": [asks(
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}, "own": None},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj", "detail": "low"}, "source": "a.png"})],
    "documents": [asks(
        {"type": "document", "title": "t", "context": "c", "source": {"type": "unheard_of", "id": 7}},
        {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "wav"}},
        {"type": "file", "file": {"filename": "a", "file_data": "x"}})],
    "usage and ids": [says(
        usage={"prompt": 11, "completion": 5, "total": 16, "reasoning_tokens": None, "cached_tokens": 4,
               "cache_write_tokens": 0, "raw": {"service_tier": "x"}},
        timestamp="2025-10-27T09:15:30.120Z", duration_ms=7, request_id="req_7",
        response_id="r7", finish_reason="stop", model="lab/n", provider="lab", agent="a")],
}  # fmt: skip


@pytest.mark.parametrize("name", HOLDS)
def test_what_a_session_holds_is_as_it_was_after_two_more_turns(lab: Home, model: ModelServer, name: str) -> None:
    model.refuses = lambda _body: None  # what is sent is looked at elsewhere
    lab.run("-s", "@held", "the question")
    path, doc, messages = lab.files()[0], lab.doc(), HOLDS[name]
    doc["messages"] = [doc["messages"][0], *messages]
    path.write_bytes(json.dumps(doc).encode())
    for words in ("more", "and more"):
        run = lab.run("-s", "@held", words)
        assert run.code == 0, run.stderr
    after = lab.doc()["messages"]
    assert len(after) == len(messages) + 5
    assert [{key: value for key, value in now.items() if key in before}
            for now, before in zip(after[1:], messages, strict=False)] == messages  # fmt: skip


def test_what_was_typed_the_title_and_who_answered_are_kept(lab: Home) -> None:
    typed, title = b"caf\xe9 \xf0\x9f\x98\x80".decode("utf-8", "surrogateescape"), "Ünïcode \u2028 & “quotes”"
    lab.run("-s", "@held", "--title", title, typed)
    for name in ("lab/n", "echo"):
        assert lab.run("-s", "@held", "-m", name, "go").code == 0
    doc = lab.doc()
    assert (doc["title"], doc["messages"][0]["content"]) == (title, "caf\udce9 😀")
    assert [(m["model"], m["provider"], m["agent"]) for m in doc["messages"][1::2]] == [
        ("lab/m", "lab", "default"), ("lab/n", "lab", "default"), ("echo", "echo", "default"),
    ]  # fmt: skip
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", m["timestamp"]) for m in doc["messages"])
