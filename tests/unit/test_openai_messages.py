"""Arrays of chat messages: read, and written so that they can be sent as they are."""

import json
from itertools import dropwhile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from gptsh.core import chat_parts, checks, document, files
from gptsh.core.loose import as_dict
from gptsh.core.messages import text_of
from gptsh.core.providers import PROVIDERS
from gptsh.core.sessions import new_session_doc
from gptsh.formats import openai
from gptsh.formats.readers import reader_of
from gptsh.formats.source import Source, Unread
from tests.support import vocabulary
from tests.support.home import Home
from tests.support.paths import HISTORIES
from tests.support.server import ModelServer

CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"a": 1}'}}
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "hi \u2028 é"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "a"},
    {"role": "assistant", "content": "done"},
    {"role": "user", "content": [{"type": "text", "text": "see"},
                                 {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]},
    {"role": "assistant", "content": "", "refusal": "no"},
]  # fmt: skip


def source(value: object) -> Source:
    return Source("stdin", None, json.dumps(value).encode())


def read(value: object) -> tuple[list[dict[str, Any]], list[Unread]]:
    given_source = source(value)
    assert reader_of(given_source) is openai.READER
    found = list(openai.READER.read(given_source))
    return [item for item in found if isinstance(item, dict)], [item for item in found if isinstance(item, Unread)]


def one(value: object) -> dict[str, Any]:
    (doc,), unread = read(value)
    assert unread == []
    return doc


def sent(doc: dict[str, Any]) -> list[dict[str, Any]]:
    found = json.loads("".join(openai.write(doc)))
    assert isinstance(found, list)
    return found


def session(messages: list[dict[str, Any]], system: str | None = None) -> dict[str, Any]:
    agent = {"model": "m", "params": {}, "system": system}
    doc = new_session_doc(agent, {"name": "p"}, output=None, mcp_allowed_servers=None)
    return document.migrate(checks.check({**doc, "messages": messages}))


def test_a_conversation_comes_out_as_it_went_in(tmp_path: Path) -> None:
    doc = one(TALK)
    assert doc["agent"]["system"] == "Be brief."
    assert doc["messages"][1]["tool_calls"] == [CALL]
    assert sent(doc) == TALK
    path = tmp_path / f"20260101-000000-{doc['id']}.json"
    path.write_bytes(files.to_bytes(document.ordered(doc)))
    text = "".join(openai.write(files.read_document(path)))
    assert json.loads(text) == TALK
    assert len(text.split("\n")) == len(TALK) + 3
    assert "é" in text


def test_a_body_of_a_request_names_model_and_parameters() -> None:
    doc = one({"model": "openai/gpt-4.1", "messages": TALK, "temperature": 0.5, "tools": [], "api_key": "k"})
    assert doc["agent"]["model"] == "openai/gpt-4.1"
    assert doc["agent"]["params"] == {"temperature": 0.5}
    assert doc["meta"]["imported"]["key"] == one(TALK)["meta"]["imported"]["key"]


def test_what_is_no_array_of_chat_messages_is_left_to_others() -> None:
    arguments = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "ls", "arguments": {}}}]}
    hi = {"role": "user", "content": "hi"}
    for value in ([], [1], {}, {"messages": [hi]}, {"model": "m", "id": "x", "messages": [hi]}, [hi, arguments],
                  [{"role": "user", "parts": []}], [{**hi, "uuid": "1"}], {"model": 1, "messages": [hi]}):  # fmt: skip
        assert not openai.READER.recognises(source(value)), value
    others = [path for path in HISTORIES.rglob("*") if path.is_file()]
    assert len(others) > 10
    for path in others:
        assert not openai.READER.recognises(Source(str(path), path)), path


def test_every_message_is_one_of_ours_or_reported() -> None:
    custom = {"id": "c2", "type": "custom", "custom": {"name": "sh", "input": "ls -l"}}
    doc, unread = read([
        {"role": "developer", "content": [{"type": "text", "text": "a"}]}, {"role": "system", "content": "b"},
        {"role": "user", "content": "q"}, 7, {"role": "user", "content": 7},
        {"role": "assistant", "tool_calls": [custom], "reasoning_content": "r", "cost": 9e9, "id": "x-1"},
        {"role": "system", "content": "later"}, {"role": "odd", "content": "o"},
    ])  # fmt: skip
    (doc,) = doc
    assert doc["agent"]["system"] == "a\n\nb"
    assert [item.why for item in unread] == [
        "message 4 is no object", "a message whose content is neither text nor parts",
    ]  # fmt: skip
    answer = doc["messages"][1]
    assert answer["tool_calls"][0]["function"] == {"name": "sh", "arguments": "ls -l"}
    assert (answer["id"], answer["replay"]) == ("x-1", {"reasoning_content": "r"})
    assert "cost" not in answer
    assert [message["role"] for message in doc["messages"]] == ["user", "assistant", "system", "odd"]


def test_the_older_shape_of_a_call_becomes_todays() -> None:
    doc = one([
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "function_call": {"name": "ls", "arguments": "{}"}},
        {"role": "function", "name": "ls", "content": "a"},
    ])  # fmt: skip
    _, calling, result = sent(doc)
    assert calling["tool_calls"] == [{"id": "call", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]
    assert result == {"role": "tool", "tool_call_id": "call", "content": "a"}


def test_every_call_is_answered_and_each_part_has_a_shape_there() -> None:
    pdf = {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": "YWJj"},
        "title": "a",
    }
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}}
    odd = {"type": "video_url", "video_url": {"url": "x"}}
    doc = session([
        {"role": "user", "content": [pdf, odd]},
        {"role": "assistant", "content": [{"type": "text", "text": "t"}], "tool_calls": [CALL, {**CALL, "id": "c2"}],
         "thinking": [{"type": "thinking", "thinking": "x", "signature": "s"}], "model": "m"},
        {"role": "tool", "tool_call_id": "c2", "content": [image]},
        {"role": "system", "content": "in between"},
    ], "first")  # fmt: skip
    system, question, answer, missing, result, shown, between = sent(doc)
    assert (system["content"], between["content"]) == ("first", "in between")
    assert question["content"] == [
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,YWJj"}},
        {"type": "text", "text": "[video_url]"},
    ]
    assert set(answer) == {"role", "content", "tool_calls"}
    assert "has no result" in missing["content"]
    assert result == {"role": "tool", "tool_call_id": "c2", "content": "[image/png, 3 bytes]"}
    assert shown["content"][1] == image


def part(kind: str, media_type: str, data: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}, **more}


REFUSED = [
    (part("image", "image/svg+xml", "YWJj"), "[image/svg+xml, 3 bytes]"),
    ({"type": "image_url", "image_url": {"url": "data:image/bmp;base64,YWJj"}}, "[image/bmp, 3 bytes]"),
    (part("image", "image/png", ""), "[image/png, 0 bytes]"),
    ({"type": "image", "source": {"type": "url", "url": "data:image/svg+xml;base64,YWJj"}}, "[image/svg+xml, 3 bytes]"),
    (part("document", "application/pdf", ""), "[application/pdf, 0 bytes]"),
    (part("document", "application/msword", "YWJj", title="x.doc"), "[application/msword, 3 bytes]"),
    ({"type": "file", "file": {"filename": "x.pdf", "file_data": "data:text/csv;base64,YWJj"}}, "[text/csv, 3 bytes]"),
]


@pytest.mark.parametrize(("carried", "told"), REFUSED)
@pytest.mark.parametrize("role", ["user", "tool"])
def test_what_a_server_would_refuse_is_a_line_of_text(role: str, carried: dict[str, Any], told: str) -> None:
    before = [{"role": "assistant", "content": None, "tool_calls": [CALL]}] if role == "tool" else []
    out = sent(session([*before, {"role": role, "tool_call_id": "c1", "content": [carried]}]))[-1]
    assert out["role"] == role
    assert isinstance(out["content"], str)
    assert told in out["content"]


def test_a_file_that_is_no_pdf_keeps_its_name() -> None:
    file = {"type": "file", "file": {"filename": "x.csv", "file_data": "data:text/csv;base64,YWJj"}}
    assert sent(session([{"role": "user", "content": [file]}]))[0]["content"] == [file]
    for carried, name in ((part("document", "text/csv", "YWJj", title="a/x.csv"), "x.csv"),
                          (part("document", "text/csv", "YWJj"), "document"),
                          (part("document", "application/pdf", "YWJj", title="x"), "x.pdf")):  # fmt: skip
        (asked,) = chat_parts.question({"role": "user", "content": [carried]}, PROVIDERS["openai"])
        assert as_dict(asked)["file"]["filename"] == name


@pytest.mark.parametrize("arguments", ["{bad", "ls -l", "", "[1]", '{"a": 1.0,  "é":2}'])
def test_arguments_stay_the_text_that_came(arguments: str) -> None:
    call = {**CALL, "function": {"name": "ls", "arguments": arguments}}
    out = sent(session([{"role": "assistant", "content": None, "tool_calls": [call]}]))
    assert out[0]["tool_calls"] == [call]


def test_what_is_no_text_among_arguments_becomes_one() -> None:
    given_arguments = ({"a": 1}, None)
    calls = [{**CALL, "id": f"c{n}", "function": {"name": "ls", "arguments": a}} for n, a in enumerate(given_arguments)]
    out = sent(session([{"role": "assistant", "content": None, "tool_calls": calls}]))
    assert [call["function"]["arguments"] for call in out[0]["tool_calls"]] == ['{"a": 1}', "{}"]


def test_system_messages_keep_their_places_behind_the_system_prompt() -> None:
    roles = ["system", "user", "developer", "user", "system"]
    doc = session([{"role": role, "content": f"{at}"} for at, role in enumerate(roles)], "base")
    out = [(message["role"], message["content"]) for message in sent(doc)]
    assert out == [("system", "base"), ("system", "0"), ("user", "1"), ("system", "2"), ("user", "3"), ("system", "4")]


KEYS = {"system": {"content", "name"}, "user": {"content", "name"}, "tool": {"content", "tool_call_id"},
        "assistant": {"content", "name", "refusal", "tool_calls"}}  # fmt: skip


@pytest.fixture(scope="module")
def param() -> Any:
    """OpenAI's own type of a message, as something that validates."""
    from openai.types import chat  # noqa: PLC0415 - a second
    from pydantic import TypeAdapter  # noqa: PLC0415 - the same

    kinds = {role: getattr(chat, f"ChatCompletion{role.capitalize()}MessageParam") for role in KEYS}
    return {role: TypeAdapter(kind) for role, kind in kinds.items()}


def check_valid(messages: list[dict[str, Any]], param: Any) -> None:
    calls: list[str] = []
    for message in messages:
        assert set(message) <= {"role"} | KEYS[message["role"]]
        whole = param[message["role"]].validate_python(message)
        for key in ("content", "tool_calls"):
            list(whole.get(key) or ())  # what is an Iterable there is looked at when it is read
        answered = calls[:1] == [message.get("tool_call_id")] if calls else message["role"] != "tool"
        assert answered, "each call has its result behind it"
        calls = [call["id"] for call in message.get("tool_calls") or ()] or calls[1:]


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(vocabulary.messages() | vocabulary.spoilt())
def test_whatever_a_session_holds_is_valid_there(param: Any, messages: list[Any]) -> None:
    try:
        doc = session(messages)
    except ValueError:
        return
    first = sent(doc)
    check_valid(first, param)
    if first:
        (doc,), unread = read(first)
        assert unread == []
        assert unled(sent(doc)) == unled(first)


def unled(messages: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """What instructs in front of all others, and the others: an import makes one text of the former."""
    rest = list(dropwhile(lambda message: message["role"] == "system", messages))
    led = messages[: len(messages) - len(rest)]
    return "\n\n".join(message["content"] for message in led), rest


def test_what_is_written_is_taken_by_a_server_and_read_again(home: Home, lab: Home, model: ModelServer) -> None:
    del model
    assert lab.run("hi").code == 0
    out = lab.run("--export-session", "0", "--format", "openai")
    assert out.code == 0
    (lab.folder / "talk.json").write_text(out.stdout)
    other = lab.elsewhere()
    taken = other.run("--import-session", str(lab.folder / "talk.json"))
    assert (taken.code, taken.stderr) == (0, "")
    assert list(map(text_of, other.doc()["messages"])) == list(map(text_of, lab.doc()["messages"]))
