"""Full fidelity: what a session holds is on disk as it came, comes back as it was, and is sent as in one run."""

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from gptsh.core import document, sessions
from gptsh.core.turns import join_messages
from gptsh.jsonio import parse_json
from gptsh.messages import Message, starts_turn
from tests.support import vocabulary
from tests.support.apis import APIS, STRICT, request


@settings(max_examples=15)
@given(vocabulary.messages(), vocabulary.UNKNOWN)
def test_document_to_file_to_document_is_the_identity(
    messages: list[Any], unknown: dict[str, Any]
) -> None:
    messages = document.parse_document({"messages": messages})[0]["messages"]  # in our own shapes
    before = json.dumps([messages, unknown])
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", folder)
        doc = sessions.new_session_doc({}, {"name": "lab"}, output=None, mcp_allowed_servers=None)
        doc |= {**unknown, "messages": messages}
        path = Path(sessions.save_session(doc, fsync=False))
        data = path.read_bytes()
        loaded = sessions.load_session(doc["id"])
        assert json.dumps([loaded["messages"], {key: loaded[key] for key in unknown}]) == before
        assert json.dumps(doc["messages"]) == json.dumps(messages)
        assert parse_json(data.decode("utf-8", "strict")) == loaded  # as a strict reader has it
        sessions.save_session(loaded, fsync=False)
        times = rb'"updated_at":"[^"]*"'
        assert re.sub(times, b"", path.read_bytes()) == re.sub(times, b"", data)


def _turn_of(messages: list[Message], ident: str) -> str | None:
    at = next(at for at, message in enumerate(messages) if message["id"] == ident)
    return next(
        (message["id"] for message in reversed(messages[: at + 1]) if starts_turn(message)), None
    )


@settings(max_examples=40)
@given(vocabulary.messages("b"), vocabulary.messages("o"), vocabulary.messages("t"))
def test_a_union_keeps_every_message_once_and_every_turn_together(
    base: list[Message], ours: list[Message], theirs: list[Message]
) -> None:
    ours = [*base, *ours]
    theirs = [*base, *theirs]
    joined = join_messages(ours, theirs)
    assert sorted(message["id"] for message in joined) == sorted(
        {m["id"] for m in [*ours, *theirs]}
    )
    assert [m for m in joined if m in theirs] == theirs  # what was on disk keeps its order
    for message in ours:
        if _turn_of(ours, message["id"]) is not None:
            assert _turn_of(joined, message["id"]) == _turn_of(ours, message["id"])
    assert join_messages(ours, joined) == joined  # saving twice changes nothing
    assert join_messages(theirs, joined) == joined


@pytest.mark.parametrize("dialect", STRICT)
@settings(max_examples=15)
@given(messages=vocabulary.messages())
def test_what_is_sent_of_any_session_passes_a_strict_server(
    dialect: str, messages: list[Any]
) -> None:
    before = json.dumps(messages)
    sent = json.loads(APIS[dialect](request(messages, dialect)))
    assert STRICT[dialect](sent) is None, sent
    assert json.dumps(messages) == before
