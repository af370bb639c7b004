"""What is saved when, and what the user reads where that fails."""

import contextlib
import os
from typing import NamedTuple

from gptsh.cli import stdio
from gptsh.core import references, sessions
from gptsh.core.document import Document
from gptsh.core.messages import Message, is_empty
from gptsh.errors import BadSession, StoreBusy, StoreError


class ByHand(NamedTuple):
    """What the user gave the session by hand: a title, tags, and where it is (see ``sessions.save_session``).

    ``keep_snapshots`` is the setting; ``moves``: the session goes on with the agent and the model of this run.
    """

    title: str | None
    tags: tuple[str, ...]
    at: str | None
    keep_snapshots: int
    moves: bool = False


class Keeper:
    """Saves a session as a turn goes on. A store that cannot be written costs a note and the exit code, no answer."""

    def __init__(self, doc: Document, by_hand: ByHand, *, enabled: bool, talking: bool = False) -> None:
        self.failure: StoreError | None = None  # of the last save
        self.tried = False  # whether it came so far that something was to be saved
        self._said = False
        self._doc, self._by_hand, self._enabled, self._talking = doc, by_hand, enabled, talking
        self.filename = None if (by_hand.at or "@").startswith("@") else by_hand.at  # None until it has one

    def save(self, *, durable: bool) -> bool:
        """Save what the document holds; whether it is on disk. The first failure is said, the last save decides.

        A busy store is no reason for a word before the answer, whose save brings the question along.
        """
        self.tried = True
        if not self._enabled:
            return False
        self.failure = None
        try:
            self._write(durable=durable)
        except (StoreError, BadSession) as err:
            self.failure = err if isinstance(err, StoreError) else StoreError(str(err))
            if not self._said and (durable or not isinstance(err, StoreBusy)):
                self._said = True
                stdio.note(str(err))
        return self.failure is None

    def _write(self, *, durable: bool) -> None:
        path = sessions.save_session(self._doc, **self._by_hand._asdict(), durable=durable)
        self.filename = os.path.basename(path)

    @property
    def keeps(self) -> bool:
        """Whether what was last saved is on disk."""
        return self._enabled and self.failure is None

    @property
    def wants_title(self) -> bool:
        """Whether the session is kept and has no title yet."""
        return self._enabled and not (self._doc["title"] or self._by_hand.title)

    def keep_title(self, title: str | None, model: str, cost: float | None) -> bool:
        """Save a title that came after the answer, its model, and what it cost in USD; whether it is on disk."""
        if not title or not self.keeps:
            return False
        self._doc["title"] = title
        self._doc["usage"] |= {"title_cost": cost, "title_model": model}
        with contextlib.suppress(StoreError, BadSession):  # the answer is saved; a title is not worth a word
            self._write(durable=True)
            return True
        return False

    def where(self, message: Message | None) -> str:
        """How to go on after a failure; empty where nothing was kept."""
        if self._talking:
            return _where_in_talk(message)
        if not self.keeps:
            return ""
        ref = self._ref
        if message is None or is_empty(message):
            return f"the question is kept in session {ref}: 'gptsh -s {ref}' asks it again"
        if message.get("tool_calls"):
            return f"what arrived is kept in session {ref}: 'gptsh -s {ref}' goes on from there"
        return f"what arrived is kept in session {ref}: go on with 'gptsh -s {ref} PROMPT'"

    def not_remembered(self) -> str:
        """What a signal leaves that comes while only a memory is made."""
        return f"all is kept in session {self._ref}, but not remembered yet"

    @property
    def _ref(self) -> str:
        """What means the session, also where another program gave it an id that is taken for an index."""
        return references.ref_of(self.filename) if self.filename else self._doc["id"]


def _where_in_talk(message: Message | None) -> str:
    """How to go on where the prompt comes back."""
    if message is None or is_empty(message):
        return "the question is kept: /retry asks it again"
    return "what arrived is kept: /retry goes on from there" if message.get("tool_calls") else "what arrived is kept"
