"""Compaction where a session is as long as its window to a few tokens."""

from gptsh.core import tokens
from gptsh.core.choice import Frame, Session
from gptsh.core.compaction import choose
from gptsh.core.messages import Message
from gptsh.core.settings import ContextRules
from gptsh.core.tokens import Asked


def long_session() -> Session:
    """Short questions, long answers; ids as a file has them."""
    said: list[Message] = [
        {"role": role, "content": text, "id": f"m{turn}{role}"}
        for turn in range(60)
        for role, text in (("user", f"question {turn}: and then?"), ("assistant", "It goes on for long. " * 50))
    ]
    return Session([*said, {"role": "user", "content": "and now?", "id": "now"}], {})


def test_a_summary_for_which_a_few_tokens_are_missing_gives_way_to_the_least() -> None:
    session, asked = long_session(), Asked("lab/m", "lab")
    kinds = set()
    for budget in range(2300, 2600, 6):
        frame = Frame(lambda sent, _under: tokens.count(sent, None, asked=asked), budget)
        choice = choose(session, frame, ContextRules())
        kinds.add(choice.strategy)
        assert frame.taken(choice) <= budget
    assert kinds == {"summary", "minimal"}
