"""The document as a value: unions lose nothing, what is sent is valid for strict servers."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gptsh.core import document
from gptsh.messages import Message, starts_turn
from tests.support.home import Home
from tests.support.server import ModelServer, complaint
from tests.support.sessions import keep

own_home = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
_text = st.text(max_size=6)
_parts = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": _text}), max_size=3)


@st.composite
def _messages(draw: st.DrawFn, prefix: str = "") -> list[Message]:
    """Any order of messages, as interrupted, failed and merged runs leave them."""
    messages: list[Any] = []
    for number in range(draw(st.integers(0, 8))):
        role = draw(st.sampled_from(["user", "user", "assistant", "assistant", "tool"]))
        message: dict[str, Any] = {"id": f"{prefix}{number}", "role": role, "content": draw(_text | _parts)}
        if role == "assistant" and draw(st.booleans()):
            ids = draw(st.lists(st.sampled_from(["c1", "c2"]), min_size=1, max_size=2, unique=True))
            function = {"name": "ls", "arguments": draw(_text)}
            message["tool_calls"] = [{"id": i, "type": "function", "function": function} for i in ids]
        if role == "tool":
            message["tool_call_id"] = draw(st.sampled_from(["c1", "c2", "stray"]))
        messages.append(message)
    return messages


_unknown = st.dictionaries(st.text(min_size=1).map(lambda key: f"x_{key}"), st.lists(st.none() | st.text()), max_size=3)


@own_home
@given(_messages(), _unknown, st.text(st.characters(), max_size=3000))
def test_a_session_of_any_messages_is_sent_whole_to_a_strict_server_and_kept_as_it_was(
    lab: Home, model: ModelServer, messages: list[Message], unknown: dict[str, Any], title: str
) -> None:
    """Whatever the file holds: nobody's words are left out, and no key of the document or of a message changes."""
    doc = {"version": 1, "id": "7x2m", "title": title, "created_at": "2025-10-27T09:15:30.000Z", "messages": messages}
    path = keep(lab, "20251027-091530-7x2m", {**doc, **unknown})
    assert lab.run("-s", "0", "-m", "lab/m", "and now?").code == 0
    sent = model.sent[-1]
    assert complaint(sent) is None, sent
    said = "\n".join(str(message.get("content")) for message in sent["messages"])
    for message in messages:
        if message["role"] in ("user", "assistant"):
            parts = message["content"]
            assert all(text in said for text in ([parts] if isinstance(parts, str) else [p["text"] for p in parts]))
    saved = json.loads(path.read_bytes())
    assert saved["messages"][: len(messages)] == messages
    assert {key: saved[key] for key in ("title", *unknown)} == {"title": title, **unknown}


def _turn_of(messages: list[Message], ident: str) -> str | None:
    at = next(at for at, message in enumerate(messages) if message["id"] == ident)
    return next((message["id"] for message in reversed(messages[: at + 1]) if starts_turn(message)), None)


@settings(max_examples=40)
@given(_messages("b"), _messages("o"), _messages("t"))
def test_a_union_keeps_every_message_once_and_every_turn_together(
    base: list[Message], ours: list[Message], theirs: list[Message]
) -> None:
    ours, theirs = [*base, *ours], [*base, *theirs]
    joined = document.join_messages(ours, theirs)
    assert sorted(message["id"] for message in joined) == sorted({m["id"] for m in [*ours, *theirs]})
    assert [m for m in joined if m in theirs] == theirs  # what was on disk keeps its order
    for message in ours:
        if _turn_of(ours, message["id"]) is not None:
            assert _turn_of(joined, message["id"]) == _turn_of(ours, message["id"])
    assert document.join_messages(ours, joined) == joined  # saving twice changes nothing
    assert document.join_messages(theirs, joined) == joined
