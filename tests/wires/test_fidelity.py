"""Full fidelity: what a session holds is on disk as it came, comes back as it was, and is sent as in one run."""

import contextlib
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptsh.core import checks, document, files, sessions, tokens
from gptsh.core.media import media_of
from tests.support import vocabulary
from tests.support.dialects import (
    DIALECTS,
    QUESTION,
    STRICT,
    everything_with,
    request,
)
from tests.support.home import Home
from tests.support.server import ModelServer, chunk, event


@contextlib.contextmanager
def a_store() -> Iterator[None]:
    """A state folder of its own."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", folder)
        yield


def new(messages: list[Any], **more: Any) -> dict[str, Any]:
    """A document that is not on disk yet."""
    doc = sessions.new_session_doc({}, {"name": "lab"}, output=None, mcp_allowed_servers=None)
    return {**doc, **more, "messages": messages}


# ---- document -> file -> document


@settings(max_examples=40)
@given(vocabulary.messages(), vocabulary.UNKNOWN)
def test_document_to_file_to_document_is_the_identity(messages: list[Any], unknown: dict[str, Any]) -> None:
    before = json.dumps([messages, unknown])
    with a_store():
        doc = new(messages, **unknown)
        path = Path(sessions.save_session(doc, durable=False))
        data = path.read_bytes()
        loaded = sessions.load_session(doc["id"])
        assert json.dumps([loaded["messages"], {key: loaded[key] for key in unknown}]) == before
        assert json.dumps(doc["messages"]) == json.dumps(messages)
        assert files.parsed(data.decode("utf-8", "strict")) == loaded  # as a strict reader has it
        sessions.save_session(loaded, durable=False)
        times = rb'"updated_at":"[^"]*"'
        assert re.sub(times, b"", path.read_bytes()) == re.sub(times, b"", data)


@pytest.mark.slow
@settings(max_examples=30)
@given(vocabulary.messages("b"), vocabulary.messages("o", most=3), vocabulary.messages("t", most=3), vocabulary.UNKNOWN)
def test_two_copies_that_grew_are_saved_as_one_that_has_all(
    base: list[Any], ours: list[Any], theirs: list[Any], unknown: dict[str, Any]
) -> None:
    with a_store():
        doc = new([{"role": "user", "content": "first", "id": "first"}, *base])
        sessions.save_session(doc, durable=False)
        one, two = sessions.load_session(doc["id"]), sessions.load_session(doc["id"])
        one["messages"] += theirs
        two["messages"] += ours
        two |= unknown
        sessions.save_session(one, durable=False)
        sessions.save_session(two, durable=False)
        joined = sessions.load_session(doc["id"])
    by_id = {message["id"]: message for message in joined["messages"]}
    assert len(by_id) == len(joined["messages"]) == 1 + len(base) + len(ours) + len(theirs)
    assert all(by_id[message["id"]] == message for message in (*base, *ours, *theirs))
    assert {key: joined[key] for key in unknown} == unknown


# ---- what is sent, in every dialect


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=12)
@given(messages=vocabulary.messages())
def test_a_resumed_session_is_sent_as_in_one_run(dialect: str, messages: list[Any]) -> None:
    with a_store():
        doc = new(messages)
        sessions.save_session(doc, durable=False)
        reloaded = sessions.load_session(doc["id"])["messages"]
    assert DIALECTS[dialect](request(messages)) == DIALECTS[dialect](request(reloaded))


@pytest.mark.parametrize("dialect", STRICT)
@settings(max_examples=30)
@given(messages=vocabulary.messages())
def test_what_is_sent_of_any_session_passes_a_strict_server(dialect: str, messages: list[Any]) -> None:
    before = json.dumps(messages)
    sent = json.loads(DIALECTS[dialect](request(messages)))
    assert STRICT[dialect](sent) is None, sent
    assert json.dumps(messages) == before


# ---- what is wrong is said, or harmless


@pytest.mark.slow
@settings(max_examples=200)
@given(vocabulary.spoilt())
def test_what_is_no_message_is_refused_or_does_no_harm(messages: list[Any]) -> None:
    with contextlib.suppress(ValueError):
        doc = checks.check({"version": 1, "id": "7x2m", "messages": messages})
        everything_with(doc)


KEYS = ["thinking", "order", "replay", "raw", "usage", "parent", "name", "is_error", "model"]
VALUES: list[Any] = [None, "x", 7, True, [], ["x", None, 3], [[]], {}, {"x": {"y": 1}}, {"prompt": []}]


@pytest.mark.parametrize("key", KEYS)
def test_a_value_of_another_type_does_no_harm(key: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    asked = {"role": "assistant", "content": "x", "id": "a", "tool_calls": [call], "provider": "lab"}
    result = {"role": "tool", "tool_call_id": "c1", "content": "x", "id": "r"}
    for value in VALUES:
        for messages in ([{**asked, key: value}], [asked, {**result, key: value}], [{**QUESTION, key: value}]):
            everything_with({"version": 1, "id": "7x2m", "messages": messages})


PARTS: list[Any] = [
    {}, {"x": 1}, {"text": "x"}, {"type": None, "text": "x"}, {"type": 7}, {"type": []}, {"type": {"type": "text"}},
    {"type": ""}, {"type": "text"}, {"type": "text", "text": 7}, {"type": "thinking"}, {"type": "tool_use"},
    {"type": "tool_result"}, {"type": "image"}, {"type": "image_url", "image_url": []}, {"type": "refusal"},
    {"type": "file", "file": 7}, {"type": "input_audio"}, {"type": "document", "source": []}, {"type": "unheard_of"},
]  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_part_of_an_own_answer_makes_a_dialect_fail(dialect: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    for part in PARTS:
        for content in ([part], [part, part, {"type": "text", "text": "x"}], [{"type": "text", "text": "x"}, part]):
            own = {"role": "assistant", "content": content, "provider": dialect, "model": "lab/m", "id": "a"}
            asked = {"role": "user", "content": content, "id": "q"}
            result = {"role": "tool", "tool_call_id": "c1", "content": content, "id": "r"}
            for messages in ([own], [asked, {**own, "tool_calls": [call]}, result], [asked, own, {**own, "id": "b"}]):
                everything_with({"version": 1, "id": "7x2m", "messages": messages}, dialect)
                sent = json.loads(DIALECTS[dialect](request(messages)))
                if dialect in STRICT and dialect != "anthropic":  # to which its own parts go back as they came
                    assert STRICT[dialect](sent) is None, sent


# ---- the columns of the loss table: each through the command, and through a later turn of the session


@pytest.fixture
def quiet(lab: Home, model: ModelServer) -> Home:
    """A home whose model server takes whatever it is sent; the tests of what is sent are elsewhere."""
    model.refuses = lambda _body: None
    return lab


def holds(home: Home, *messages: dict[str, Any]) -> list[Any]:
    """A session with these messages behind its question, after two more turns; what stands in their place then."""
    home.run("-s", "@held", "the question")
    path, doc = home.files()[0], home.doc()
    doc["messages"] = [doc["messages"][0], *messages]
    path.write_bytes(json.dumps(doc).encode())
    for words in ("more", "and more"):
        run = home.run("-s", "@held", words)
        assert run.code == 0, run.stderr
    after = home.doc()["messages"]
    assert len(after) == len(messages) + 5
    return [
        {key: value for key, value in message.items() if key in given_message}
        for message, given_message in zip(after[1:], messages, strict=False)
    ]


CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "/ho'}}
ASKED = {"role": "assistant", "content": None, "tool_calls": [CALL]}


def test_text(quiet: Home, model: ModelServer) -> None:
    odd = " a\r\n\u2028\0😀\\u0041 </think>\t"
    model.say(odd)
    quiet.run("-s", "@held", b"caf\xe9 \xf0\x9f\x98\x80".decode("utf-8", "surrogateescape"))
    assert quiet.run("-s", "@held", "more").code == 0
    assert [m["content"] for m in quiet.doc()["messages"][:2]] == ["caf\udce9 😀", odd]
    assert model.sent[1]["messages"][1]["content"] == odd


@pytest.mark.slow
def test_tool_calls(quiet: Home, model: ModelServer) -> None:
    made = [{"index": at, **CALL, "id": f"c{at}", "extra_content": {"s": at}} for at in range(2)]
    model.script(
        event(chunk({"content": "One."})), event(chunk({"tool_calls": made[:1]})), event(chunk({"content": "Two."})),
        event(chunk({"tool_calls": made[1:]}, "tool_calls")), event(b"[DONE]"),
    )  # fmt: skip
    quiet.run("-s", "@held", "go")
    assert quiet.run("-s", "@held", "more").code == 0
    reply = quiet.doc()["messages"][1]
    assert reply["tool_calls"] == [{key: value for key, value in one.items() if key != "index"} for one in made]
    mixed = {
        **ASKED,
        "content": [{"type": "text", "text": t} for t in "ab"],
        "order": ["text:0", "tool_call:0", "text:1"],
    }
    assert holds(quiet.elsewhere(), mixed) == [mixed]


def test_tool_results(quiet: Home, model: ModelServer) -> None:
    raw = {"stdout": "a\udcff\n", "stderr": "", "interrupted": False, "isImage": False, "own": None}
    parts = [{"type": "text", "text": "a"}, {"type": "image", "source": {"type": "base64", "data": "YWJj"}}]
    result = {"role": "tool", "tool_call_id": "c1", "name": "ls", "content": parts, "raw": raw, "duration_ms": 7}
    assert holds(quiet, ASKED, result) == [ASKED, result]
    assert model.sent[-1]["messages"][2] == {
        "role": "tool", "tool_call_id": "c1", "content": "a\n[image, 3 bytes]", "name": "ls",
    }  # fmt: skip


def test_is_error(quiet: Home) -> None:
    three = [{**CALL, "id": f"c{at}"} for at in range(4)]
    results = [{"role": "tool", "tool_call_id": f"c{at}", "content": "x"} for at in range(4)]
    flagged: list[dict[str, Any]] = [
        {**one, **flag}
        for one, flag in zip(results, ({"is_error": True}, {"is_error": False}, {"is_error": None}, {}), strict=True)
    ]
    assert holds(quiet, {**ASKED, "tool_calls": three}, *flagged)[1:] == flagged
    assert "is_error" not in quiet.doc()["messages"][5]


@pytest.mark.slow
def test_thinking_and_signature(quiet: Home, model: ModelServer) -> None:
    pieces = [{"type": "thinking", "thinking": t} for t in ("let ", "me")]
    coded = {"type": "redacted_thinking", "data": "x"}
    blocks = [*pieces, {"type": "thinking", "thinking": "", "signature": "s"}, coded]
    model.script(*(event(chunk({"thinking_blocks": [one]})) for one in blocks), event(chunk({"content": "42"}, "stop")))
    assert quiet.run("-s", "@held", "why").stderr == "let me\n"
    assert quiet.run("-s", "@held", "more").code == 0
    assert quiet.doc()["messages"][1]["thinking"] == [
        {"type": "thinking", "thinking": "let me", "signature": "s"},
        coded,
    ]
    unsigned = {"role": "assistant", "content": "x", "thinking": [{"type": "thinking", "thinking": "hm"}]}
    empty = {"role": "assistant", "content": "x", "thinking": [{"type": "thinking", "thinking": "", "signature": "s"}]}
    assert holds(quiet.elsewhere(), unsigned, empty) == [unsigned, empty]


def test_images(quiet: Home) -> None:
    parts = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "YWJj"}, "own": None},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj", "detail": "low"}, "source": "a.png"},
    ]
    asked = {"role": "user", "content": [{"type": "text", "text": "what is this?"}, *parts]}
    assert holds(quiet, asked) == [asked]
    seen = [media_of(part) for part in quiet.doc()["messages"][1]["content"][1:]]
    assert [one and (one.kind, one.media_type, one.size) for one in seen] == [
        ("image", "image/png", 3), ("image", None, None), ("image", "image/png", 3),
    ]  # fmt: skip


def test_documents(quiet: Home) -> None:
    sources = [
        {"type": "base64", "media_type": "application/pdf", "data": "YWJj"},
        {"type": "url", "url": "https://example.com/a.pdf"},
        {"type": "text", "media_type": "text/plain", "data": "é\u2028"},
        {"type": "unheard_of", "id": 7},
    ]
    parts = [{"type": "document", "source": source, "title": "t", "context": "c"} for source in sources]
    audio = {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "wav"}}
    asked = {"role": "user", "content": [*parts, audio, {"type": "file", "file": {"filename": "a", "file_data": "x"}}]}
    assert holds(quiet, asked) == [asked]


def test_usage(quiet: Home, model: ModelServer) -> None:
    reported = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16, "service_tier": "x", "own": None}
    model.say("a", usage={**reported, "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0}})
    quiet.run("-s", "@held", "go")
    assert quiet.run("-s", "@held", "more").code == 0
    told = quiet.doc()["messages"][1]["usage"]
    assert {key: value for key, value in told.items() if key != "raw"} == {
        "prompt": 11, "completion": 5, "total": 16, "reasoning_tokens": None, "cached_tokens": 4,
        "cache_write_tokens": 0,
    }  # fmt: skip
    assert told["raw"].items() >= reported.items()


def test_model_and_provider_of_each_message(quiet: Home) -> None:
    for name in ("lab/m", "lab/n", "echo"):
        assert quiet.run("-s", "@held", "-m", name, "go").code == 0
    answers = quiet.doc()["messages"][1::2]
    assert [(m["model"], m["provider"]) for m in answers] == [("lab/m", "lab"), ("lab/n", "lab"), ("echo", "echo")]
    assert [m["agent"] for m in answers] == ["default"] * 3


def test_request_id(quiet: Home, model: ModelServer) -> None:
    model.script(event(chunk({"content": "a"}, "stop", id="chatcmpl-7")), headers={"X-Request-Id": "req_7"})
    quiet.run("-s", "@held", "go")
    assert quiet.run("-s", "@held", "more").code == 0
    reply = quiet.doc()["messages"][1]
    assert (reply["request_id"], reply["response_id"], reply["finish_reason"]) == ("req_7", "chatcmpl-7", "stop")


def test_timestamps(quiet: Home) -> None:
    old = {"role": "assistant", "content": "x", "timestamp": "2025-10-27T09:15:30.120Z", "duration_ms": 7}
    assert holds(quiet, old) == [old]
    times = [m["timestamp"] for m in quiet.doc()["messages"]]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time) for time in times)
    assert times[2:] == sorted(times[2:])


def test_turn_bounds(quiet: Home) -> None:
    result = {"role": "tool", "tool_call_id": "c1", "content": "out"}
    dressed = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c2", "content": "out"}]}
    used = {"role": "assistant", "content": [{"type": "tool_use", "id": "c2", "name": "ls", "input": {}}]}
    holds(quiet, ASKED, result, used, dressed, {"role": "assistant", "content": "done"})
    doc = quiet.doc()
    assert (doc["stats"]["turns"], document.turns(doc["messages"])) == (3, [0, 6, 8])
    messages = doc["messages"]
    assert messages[7]["parent"] == messages[6]["id"]
    shown = quiet.run("--show-session", "@held@1", "-o", "json").stdout
    assert [m["id"] for m in json.loads(shown)["messages"]] == [m["id"] for m in messages[:6]]


def test_title(quiet: Home) -> None:
    quiet.run("-s", "@held", "--title", "Ünïcode \u2028 & “quotes”", "go")
    assert quiet.run("-s", "@held", "more").code == 0
    assert quiet.doc()["title"] == "Ünïcode \u2028 & “quotes”"


# ---- the state of tokens


def told_tokens(home: Home, name: str) -> int:
    """Tokens that the next turn is said to take."""
    run = home.run("-s", "@held", "-m", name, "--dry-run", "-o", "json", "and?")
    tokens_told: int = json.loads(run.stdout)["context"]["at_most"]
    return tokens_told


@pytest.mark.slow
def test_a_resumed_session_counts_from_the_usage_that_was_saved(quiet: Home, model: ModelServer) -> None:
    def say(prompt: int) -> None:
        model.say("ok", usage={"prompt_tokens": prompt, "completion_tokens": 100, "total_tokens": prompt + 100})

    words = "some words of a text\n" * 300
    say(900)
    quiet.run("-s", "@held", "-m", "lab/m", "go", stdin=words)
    plain = tokens.estimate(words)
    assert plain > 1500
    assert 1000 < told_tokens(quiet, "lab/m") < 1050
    assert told_tokens(quiet, "lab/n") > plain  # of another model nothing is known
    say(700)
    quiet.run("-s", "@held", "-m", "lab/n", "and?")
    assert 800 < told_tokens(quiet, "lab/n") < 850  # each by its own report
    assert 1000 < told_tokens(quiet, "lab/m") < 1100
    say(990)
    quiet.run("-s", "@held", "-m", "lab/m", "and?")
    assert 1090 < told_tokens(quiet, "lab/m") < 1150  # the newest


@settings(max_examples=30)
@given(vocabulary.messages(), st.sampled_from([None, "Brief."]))
def test_what_a_reloaded_session_takes_is_what_it_took(messages: list[Any], system: str | None) -> None:
    with a_store():
        doc = new(messages)
        sessions.save_session(doc, durable=False)
        reloaded = sessions.load_session(doc["id"])["messages"]
    for name in ("lab/m", "lab/n", None):
        counts = [tokens.count(found, system, asked=tokens.Asked(name, "lab")) for found in (messages, reloaded)]
        assert counts[0] == counts[1]
