"""What of a session is sent, as a choice among the ways to send it. All of it, wherever it is small enough.

Apart from ``compaction``, which few runs need.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gptsh.core.messages import Message
from gptsh.core.settings import ContextRules
from gptsh.core.tokens import Count

FULL = "full"

Record = dict[str, Any]  # a compaction: see ``compaction``
Measure = Callable[[Sequence[Message], str | None], Count]  # of messages sent under a compaction, by its id


class Shortened(NamedTuple):
    """What is sent in place of a session, and how many of its messages that holds, sums up and leaves out.

    ``questions`` are those of the left out whose words are not sent.
    """

    messages: Sequence[Message]
    included: int
    summarized: int = 0
    left_out: int = 0
    questions: int = 0


class Wanted(NamedTuple):
    """A summary that is to be made first: of the messages, and of what an earlier one tells.

    ``covered`` are all the messages that it will tell of, ``tokens`` how long it shall be.
    """

    previous: dict[str, Any] | None
    messages: list[Message]
    covered: list[Message]
    tokens: int


class Choice(NamedTuple):
    """How a session is sent. ``record`` is the compaction, None where all is sent; ``made``: it is a new one."""

    strategy: str
    shortened: Shortened
    size: Count
    record: Record | None = None
    made: bool = False
    wanted: Wanted | None = None


class Session(NamedTuple):
    """What is chosen from: the messages (see ``context.spoken``), and what the document's ``context`` knows."""

    messages: Sequence[Message]
    state: Mapping[str, Any]


class Frame(NamedTuple):
    """What a session is to fit in: tokens for its messages (None: unknown), and for what stands in front of them.

    ``aim`` is what a new compaction goes down to, half of the budget unless it is asked for; estimates are multiplied
    with ``scale`` (see ``tokens.safe_scale``).
    """

    measure: Measure
    budget: int | None
    fixed: int = 0
    aim: int | None = None
    scale: float = 1.0

    def measured(self, messages: Sequence[Message], under: str | None) -> Count:
        """What messages take, as well as that can be told where no report stands for them."""
        size = self.measure(messages, under)
        return size if size.anchored else size._replace(safe=max(size.likely, round(self.scale * size.plain)))

    def taken(self, choice: Choice) -> int:
        """Tokens that the messages of a choice take."""
        return choice.size.safe - self.fixed


def whole(session: Session, frame: Frame) -> Choice:
    """Everything."""
    return Choice(FULL, Shortened(session.messages, len(session.messages)), frame.measure(session.messages, None))


def is_below(choice: Choice, frame: Frame, rules: ContextRules) -> bool:
    """Whether a choice needs no new compaction: it is below the mark, or fits and no compaction went deeper."""
    if frame.budget is None:
        return True
    tight = choice.record is not None and choice.record.get("tight") is True
    return frame.taken(choice) <= (frame.budget if tight else rules.compact_at * frame.budget)
