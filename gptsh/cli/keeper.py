"""What is saved when, and what the user reads where that fails."""

from typing import NamedTuple

from gptsh.cli import stdio
from gptsh.core import sessions
from gptsh.core.document import Document
from gptsh.core.messages import Message
from gptsh.errors import BadSession, StoreError


class ByHand(NamedTuple):
    """What the user gave the session by hand: a title, tags, the ``@NAME`` that the first save creates."""

    title: str | None
    tags: tuple[str, ...]
    name: str | None


class Keeper:
    """Saves a session as a turn goes on. A store that cannot be written costs a note and the exit code, no answer."""

    def __init__(self, doc: Document, by_hand: ByHand, *, enabled: bool) -> None:
        self.failed = False
        self._doc, self._by_hand, self._enabled = doc, by_hand, enabled

    def save(self, *, durable: bool) -> None:
        """Save what the document holds; the first failure is said, the last save decides."""
        if not self._enabled:
            return
        title, tags, name = self._by_hand
        said, self.failed = self.failed, False
        try:
            sessions.save_session(self._doc, title=title, tags=tags, name=name, durable=durable)
        except (StoreError, BadSession) as err:
            self.failed = True
            if not said:
                stdio.note(str(err))

    @property
    def wants_title(self) -> bool:
        """Whether the session is kept and has no title yet."""
        return self._enabled and not (self._doc["title"] or self._by_hand.title)

    def keep_title(self, title: str | None) -> None:
        """Save a title that came after the answer."""
        if title:
            self._doc["title"] = title
            self.save(durable=True)

    def where(self, message: Message | None) -> str:
        """How to go on after a failure; empty where nothing was kept."""
        if not self._enabled or self.failed:
            return ""
        ref = self._doc["id"]
        if message is None:
            return f"the question is kept in session {ref}: 'gptsh -s {ref}' asks it again"
        return f"what arrived is kept in session {ref}: go on with 'gptsh -s {ref} PROMPT'"
