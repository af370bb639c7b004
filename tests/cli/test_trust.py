"""What may be relied on: whatever stands in a session file, it can be deleted, and what is sent of it is taken.

An answer is whole or says that it is not; a stream with nothing in it is asked for once more.
``test_exit_codes`` has the ways of chat completions to end without a reason.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.anthropic_server import AnthropicServer, named, signature
from tests.support.home import Home
from tests.support.server import Cut, ModelServer, event

DONE = event(b"[DONE]")
JSON = {"Content-Type": "application/json"}
ODD: list[Any] = [5, "x", None, [1], {"turns": "x"}, True]
PLACES = [("stats",), ("stats", "turns"), ("stats", "messages"), ("stats", "preview"), ("title",), ("usage",),
          ("usage", "tokens"), ("usage", "cost"), ("meta",), ("meta", "tags")]  # fmt: skip
SOUND: dict[str, Any] = {"usage": {"tokens": {}, "cost": None}, "stats": {"turns": 1, "messages": 1, "preview": "hi"},
                         "meta": {"tags": []}}  # fmt: skip
CLAUDE = "claude-sonnet-4-5"


def put(home: Home, ident: str, messages: list[Any], **more: Any) -> None:
    """Write a session that was begun and last used in 2025; ``more`` are keys of its document."""
    doc = {"version": 1, "id": ident, "title": None, "created_at": "2025-10-27T09:15:30.120Z",
           "updated_at": "2025-10-27T09:15:31.120Z", "provider": {"name": "echo"}, **SOUND,
           "agent": {"name": "default", "model": "echo"}, "context": {}, **more, "messages": messages}  # fmt: skip
    home.sessions.mkdir(parents=True, exist_ok=True)
    (home.sessions / f"20251027-091530-{ident}.json").write_text(json.dumps(doc, separators=(",", ":")))


def put_malformed(home: Home) -> dict[str, bool]:
    """Sessions that have each odd value at each place. By id, whether it stands inside of ``stats``."""
    inside = {}
    for key, *inner in PLACES:
        for value in ODD:
            ident = f"t{len(inside):03}"
            more = {**SOUND[key], inner[0]: value} if inner else value
            put(home, ident, [{"role": "user", "content": "hi"}], **{key: more})
            inside[ident] = key == "stats" and bool(inner)
    return inside


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize(("option", "state"), [("--delete-session", "deleted"), ("--archive-session", "archived")])
def test_a_malformed_session_is_deleted_or_archived(home: Home, option: str, state: str, output: str) -> None:
    idents = sorted(put_malformed(home))
    run = home.run(*(word for ident in idents for word in (option, ident)), "-o", output)
    assert (run.stderr, run.code, home.files()) == ("", 0, [])
    if output == "json":
        reported = [[one["state"], one["session"]] for one in json.loads(run.stdout)]
    else:
        reported = [line.split()[:2] for line in run.stdout.splitlines()]
    assert reported == [[state, ident] for ident in idents]
    archived = list((home.state / "archive").glob("*.json"))
    assert len(archived) == (len(idents) if state == "archived" else 0)


@pytest.mark.parametrize("archives", [False, True])
def test_pruning_reports_what_goes_and_what_it_cannot_read(home: Home, archives: bool) -> None:
    inside = put_malformed(home)
    run = home.run("--prune-sessions", "--older-than", "1d", "--yes", *(["--archive"] if archives else []))
    left = {path.stem[-4:] for path in home.files()}
    assert run.code == 0
    assert {line.split()[1] for line in run.stdout.splitlines()} == set(inside) - left
    assert not {ident for ident in left if inside[ident]}
    assert all(f"-{ident}.json: " in run.stderr for ident in left)
    assert len(run.stderr.splitlines()) == len(left)


@pytest.fixture
def anthropic(home: Home) -> Iterator[AnthropicServer]:
    """A strict server, and a home whose provider it is."""
    server = AnthropicServer()
    base = server.base_url.removesuffix("/v1")
    home.configure(f'[sessions]\ntitles = "off"\n[providers.anthropic]\nbase_url = "{base}"\n')
    home.env["ANTHROPIC_API_KEY"] = "k"
    yield server
    server.close()


def sent(home: Home, server: AnthropicServer, *messages: Any) -> list[list[dict[str, Any]]]:
    """The blocks of each message that goes to the server where a session of these messages is gone on with."""
    agent = {"name": "default", "model": f"anthropic/{CLAUDE}"}
    numbered = [{"id": f"m{at}", **message} for at, message in enumerate(messages)]
    put(home, "7x2m", numbered, provider={"name": "anthropic"}, agent=agent)
    run = home.run("-s", "0", "next")
    assert (run.stdout, run.stderr, run.code) == ("You said: next\n", "", 0)
    (body,) = [asked.body for asked in server.asked if asked.path == "/v1/messages"]  # which was not refused
    for block in (block for message in body["messages"] for block in message["content"]):
        block.pop("cache_control", None)
    return [message["content"] for message in body["messages"]]


def said(content: Any, **more: Any) -> dict[str, Any]:
    """An answer of the model that is asked."""
    return {"role": "assistant", "content": content, "provider": "anthropic", "model": CLAUDE, **more}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def question(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


X: Any = {"x_": None, "x_more": [1]}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": signature("hm")}
HIDDEN = {"type": "redacted_thinking", "data": "YWJj"}
SEARCH: list[Any] = [
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "wet"}},
    {"type": "web_search_tool_result", "tool_use_id": "s",
     "content": [{"type": "web_search_result", "page_age": None}]},
    text("It is.", citations=[{"type": "web_search_result_location", "cited_text": "It is.", "encrypted_index": "E"}]),
]  # fmt: skip
PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
PDF = {"type": "url", "url": "https://example.com/a.pdf"}
USE = {"type": "tool_use", "id": "c1", "name": "ls", "input": {}}
CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}


def test_keys_of_thoughts_that_anthropic_refuses_are_not_sent(home: Home, anthropic: AnthropicServer) -> None:
    thoughts = [{"type": "thinking", "thinking": "", **X}, {**THOUGHT, **X}, {**HIDDEN, **X}, {**X, "data": "YWJj"}]
    reply = said([], refusal="\x00", thinking=[*thoughts, {"type": "other", "data": "YWJj"}])
    blocks = sent(home, anthropic, question(text("q")), reply)
    assert blocks[1] == [THOUGHT, HIDDEN, text("\x00")]


def test_keys_of_a_kept_answer_that_anthropic_refuses_are_not_sent(home: Home, anthropic: AnthropicServer) -> None:
    kept = [{**HIDDEN, **X}, text("Hm. ", **X), *SEARCH, {**USE, **X}]
    reply = said([text("Hm. "), text("It is.")], thinking=[HIDDEN], tool_calls=[{**CALL, **X}], replay={"blocks": kept})
    result = {"role": "tool", "tool_call_id": "c1", "content": "a.txt", **X}
    blocks = sent(home, anthropic, question(text("q")), reply, result, said("Done."))
    assert blocks[1] == [HIDDEN, text("Hm. "), *SEARCH, USE]


def test_keys_inside_of_attachments_that_anthropic_refuses_are_not_sent(home: Home, anthropic: AnthropicServer) -> None:
    image = {"type": "image", "source": {**PNG, **X}, **X}
    document = {"type": "document", "source": {**PDF, **X}, "title": "a", "citations": {"enabled": True, **X}, **X}
    result = {"role": "tool", "tool_call_id": "c1", "content": [text("here", **X), image, document], **X}
    asked = question(text("q", **X), image, document)
    blocks = sent(home, anthropic, asked, said(None, tool_calls=[{**CALL, **X}]), result)
    attached = [{"type": "image", "source": PNG},
                {"type": "document", "source": PDF, "title": "a", "citations": {"enabled": True}}]  # fmt: skip
    given = {"type": "tool_result", "tool_use_id": "c1", "content": [text("here"), *attached]}
    assert blocks == [[text("q"), *attached], [USE], [given, text("next")]]


# ---- an answer without a reason for ending


def test_an_answer_in_one_piece_without_a_reason_is_not_whole(lab: Home, model: ModelServer) -> None:
    whole = {"choices": [{"message": {"content": "The first half"}, "finish_reason": None}]}
    model.script(json.dumps(whole).encode(), headers=JSON)
    run = lab.run("--no-stream", "go")
    assert (run.stdout, run.code) == ("The first half\n", 5)


def test_a_message_of_anthropic_without_a_reason_is_not_whole(home: Home, anthropic: AnthropicServer) -> None:
    begun = {"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": []}}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Half"}}
    anthropic.script(*map(named, (begun, block, {"type": "content_block_stop", "index": 0}, {"type": "message_stop"})))
    run = home.run("-m", "anthropic/claude-sonnet-4-5", "go")
    assert (run.stdout, run.code) == ("Half\n", 5)
    assert home.doc()["messages"][1]["finish_reason"] is None


# ---- a stream with nothing in it


def test_a_stream_without_an_answer_is_asked_for_once_more_as_a_whole(lab: Home, model: ModelServer) -> None:
    model.script()
    assert lab.run("hi") == ("You said: hi\n", "", 0)
    assert [bool(body.get("stream")) for body in model.sent] == [True, False]
    assert lab.doc()["messages"][1]["finish_reason"] == "stop"


def test_a_session_that_outgrows_a_window_nobody_told_goes_on(lab: Home, model: ModelServer) -> None:
    """An overflow is an empty stream there, and a plain refusal where no stream is asked for."""
    refused = "This model's maximum context length is 2048 tokens. However, you requested 2300 tokens"
    words = "some words that take their room " * 60
    for number in range(4):
        model.say(f"answer {number}: {words}", model="m")
        lab.run(*(["-s", "0"] if number else []), f"question {number}")
    model.script(model="m")
    model.refuse(400, {"error": {"message": refused, "code": "context_length_exceeded"}}, model="m")
    run = lab.run("-s", "0", "and now?")
    assert (run.stdout, run.code) == ("You said: and now?\n", 0)
    assert "are sent as" in run.stderr
    assert lab.doc()["context"]["compaction"]
    assert lab.run("-s", "0", "go on").code == 0


@pytest.mark.parametrize("steps", [[], [Cut], [DONE]], ids=["ends", "breaks off", "done"])
def test_without_any_answer_the_size_and_the_setting_are_named(lab: Home, model: ModelServer, steps: list[Any]) -> None:
    model.script(*steps)
    model.script(b"", headers=JSON)
    run = lab.run("word " * 500)
    assert (run.stdout, run.code) == ("", 1)
    line, hint = run.stderr.splitlines()
    for words in ("tokens", "its window is not known", "context_window under [providers.lab]"):
        assert words in line
    assert hint.startswith("gptsh: the question is kept")
