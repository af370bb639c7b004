"""The document as a value: a union of two copies loses nothing."""

from hypothesis import given, settings

from gptsh.core import document
from gptsh.messages import Message, starts_turn
from tests.support import vocabulary


def _turn_of(messages: list[Message], ident: str) -> str | None:
    at = next(at for at, message in enumerate(messages) if message["id"] == ident)
    return next((message["id"] for message in reversed(messages[: at + 1]) if starts_turn(message)), None)


@settings(max_examples=40)
@given(vocabulary.messages("b"), vocabulary.messages("o"), vocabulary.messages("t"))
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
