"""The document as a value: unions lose nothing, what is sent is valid for strict servers."""

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gptsh.core import context, document
from gptsh.core.context import Room
from gptsh.core.files import read_document, read_head, to_bytes
from gptsh.core.messages import Message, starts_turn, text_of, text_part, user_message, words_of
from gptsh.core.providers import OWN
from gptsh.core.tokens import Count
from gptsh.core.turn import Request
from gptsh.llm.chat_completions import body
from tests.support.server import complaint

_text = st.text(max_size=6)
_parts = st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": _text}, optional={"source": _text}), max_size=3
)


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


@given(_messages(), st.text(max_size=3) | st.none())
def test_what_is_sent_passes_a_strict_server_whatever_the_file_holds(
    messages: list[Message], system: str | None
) -> None:
    before = copy.deepcopy(messages)
    question: Message = {"role": "user", "content": "and now?", "id": "q"}
    built = context.build([*messages, question], system, Count(0, 0, 0, anchored=False), Room(None)).messages
    sent = body(Request("lab/m", built, {}), "m", OWN, provider="lab", stream_options=False)
    json.dumps(sent)
    assert messages == before
    assert complaint(sent) is None, sent
    said = "\n".join(str(m.get("content")) for m in sent["messages"])
    for message in messages:  # nothing that a person or a model said is left out
        if message["role"] in ("user", "assistant"):
            assert text_of(message) in said


@st.composite
def _two_copies(draw: st.DrawFn) -> tuple[list[Message], list[Message]]:
    base, ours, theirs = draw(_messages("b")), draw(_messages("o")), draw(_messages("t"))
    return [*base, *ours], [*base, *theirs]


def _turn_of(messages: list[Message], ident: str) -> str | None:
    question = None
    for message in messages:
        if starts_turn(message):
            question = message["id"]
        if message["id"] == ident:
            return question
    raise AssertionError(ident)


@given(_two_copies())
def test_a_union_keeps_every_message_once_and_every_turn_together(copies: tuple[list[Message], list[Message]]) -> None:
    ours, theirs = copies
    joined = document.join_messages(ours, theirs)
    ids = [message["id"] for message in joined]
    assert sorted(ids) == sorted({m["id"] for m in [*ours, *theirs]})
    assert [m for m in joined if m in theirs] == theirs  # what was on disk keeps its order
    for message in ours:
        if _turn_of(ours, message["id"]) is not None:
            assert _turn_of(joined, message["id"]) == _turn_of(ours, message["id"])
    assert document.join_messages(ours, joined) == joined  # saving twice changes nothing
    assert document.join_messages(theirs, joined) == joined


_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
_unknown = st.dictionaries(st.text(min_size=1).map(lambda key: f"x_{key}"), _value, max_size=3)


@given(_messages(), _unknown, st.text(st.characters(), max_size=3000), st.text(st.characters(codec=None), max_size=20))
def test_document_to_file_to_document_is_the_identity(
    messages: list[Message], unknown: dict[str, Any], title: str, odd: str
) -> None:
    whole = odd.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")  # pairs joined, as JSON does
    doc = document.migrate({"id": "7x2m", "title": title, "messages": messages, "meta": {"odd": whole}, **unknown})
    document.count(doc)
    doc = document.ordered(doc)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "20251027-091530-7x2m.json"
        path.write_bytes(to_bytes(doc))
        assert read_document(path) == doc
        head = read_head(path)
        assert head == {key: value for key, value in doc.items() if key != "messages"}


def test_null_absent_and_false_stay_apart() -> None:
    doc = document.migrate({"id": "7x2m", "messages": [{"role": "assistant", "content": None, "a": None, "b": False}]})
    (message,) = json.loads(to_bytes(doc))["messages"]
    assert message["a"] is None
    assert message["b"] is False
    assert "c" not in message


def test_words_and_attachments_of_a_question() -> None:
    assert user_message("words", []) == {"role": "user", "content": "words"}
    piped = user_message("", [text_part("stdin", "log")])
    assert piped["content"] == [{"type": "text", "text": "log", "source": "stdin"}]
    assert words_of(piped) == "log"
    both = user_message("words", [text_part("a.txt", "A"), text_part("stdin", "log")])
    assert (words_of(both), text_of(both)) == ("words", "words\n\na.txt:\nA\n\nlog")


def test_a_turn_starts_at_a_question_not_at_a_tool_result() -> None:
    result: Message = {"role": "user", "content": [{"type": "tool_result", "content": "x"}]}
    messages: list[Message] = [{"role": "user", "content": "q"}, {"role": "assistant", "content": ""}, result]
    assert document.turns(messages) == [0]


def test_a_union_keeps_a_titles_cost_and_its_model_together() -> None:
    def doc(**usage: Any) -> dict[str, Any]:
        return document.migrate({"version": 1, "id": "7x2m", "messages": [], "usage": usage})

    def joined(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
        known = document.union(doc(**ours), doc(**theirs), title=None, tags=())["usage"]
        return {key: value for key, value in known.items() if key.startswith("title")}

    one, two = {"title_cost": 0.1, "title_model": "a"}, {"title_cost": 0.2, "title_model": "b"}
    older = {"title_cost": 0.3}
    assert joined(one, {}) == joined({}, one) == one
    assert joined(one, two) == two
    assert joined(one, older) == older
    assert joined(older, one) == one
