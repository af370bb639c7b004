"""A session as a run works on it: its document, where that is, and what is said where it cannot be saved."""

import contextlib
import os
from collections.abc import Sequence

from gptsh.cli import stdio
from gptsh.core import document, references, sessions
from gptsh.core.document import Document
from gptsh.errors import BadSession, StoreBusy, StoreError
from gptsh.messages import Message, Usage, is_empty


class Session:
    """Saved as a turn goes on. A store that cannot be written costs a note and the exit code, no answer.

    ``at`` is the file that it was read from, or the ``@NAME`` that the first save creates; ``title`` and ``tags`` are
    set by hand, ``keep_snapshots`` is the setting. ``moves``: it goes on with the agent and the model of this run.
    ``saves``: it is to be on disk at all. ``talking``: the prompt of a conversation comes back behind a failure.
    """

    def __init__(
        self,
        doc: Document,
        at: str | None,
        *,
        title: str | None = None,
        tags: Sequence[str] = (),
        keep_snapshots: int | None = None,
        moves: bool = True,
        saves: bool = True,
        talking: bool = False,
    ) -> None:
        self.doc, self.at = doc, at
        self.name = None if (at or "@").startswith("@") else at  # of its file; None until it has one
        self.failure: StoreError | None = None  # of the last save
        self.was_saved = False  # whether it came so far that something was to be saved
        self._title, self._tags, self._keep_snapshots, self._moves = title, tuple(tags), keep_snapshots, moves
        self._saves, self._talking = saves, talking
        self._has_noted = False

    @property
    def is_kept(self) -> bool:
        """Whether what was last saved is on disk."""
        return self._saves and self.failure is None

    @property
    def wants_title(self) -> bool:
        """Whether it is kept and has no title yet."""
        return self._saves and not (self.doc["title"] or self._title)

    def save(self, *, durable: bool) -> bool:
        """Save what the document holds; whether it is on disk. The first failure is noted, the last save decides.

        Where the lock is busy nothing is noted before the answer: saving that brings the question along.
        """
        self.was_saved = True
        if not self._saves:
            return False
        self.failure = None
        try:
            self._write(durable=durable)
        except (StoreError, BadSession) as err:
            self.failure = err if isinstance(err, StoreError) else StoreError(str(err))
            if not self._has_noted and (durable or not isinstance(err, StoreBusy)):
                self._has_noted = True
                stdio.note(str(err))
        return self.failure is None

    def keep_title(self, title: str | None, model: str, usage: Usage | None, cost: float | None) -> bool:
        """Save a title that came with the answer, and what its call used; whether a title is on disk."""
        if not (title or usage) or not self.is_kept:
            return False
        self.doc["title"] = title
        document.add_call(self.doc, "title", model, usage, cost)
        with contextlib.suppress(StoreError, BadSession):  # the answer is saved; a title is not worth a word
            self._write(durable=True)
            return title is not None
        return False

    def _write(self, *, durable: bool) -> None:
        path = sessions.save_session(
            self.doc,
            title=self._title,
            tags=self._tags,
            at=self.at,
            keep_snapshots=self._keep_snapshots,
            moves=self._moves,
            durable=durable,
        )
        self.name = os.path.basename(path)

    def how_to_go_on(self, message: Message | None) -> str:
        """The line behind a failure, ``message`` being what arrived last; empty where nothing was kept."""
        asks, calls = message is None or is_empty(message), bool(message and message.get("tool_calls"))
        if self._talking:
            if asks:
                return "the question is kept: /retry asks it again"
            return "what arrived is kept: /retry goes on from there" if calls else "what arrived is kept"
        if not self.is_kept:
            return ""
        if asks:
            return f"the question is kept in session {self.ref}: 'gptsh -s {self.ref}' asks it again"
        if calls:
            return f"what arrived is kept in session {self.ref}: 'gptsh -s {self.ref}' goes on from there"
        return f"what arrived is kept in session {self.ref}: go on with 'gptsh -s {self.ref} PROMPT'"

    @property
    def ref(self) -> str:
        """What means it on a command line, also where another program gave it an id that is taken for an index."""
        return references.ref_of(self.name) if self.name else self.doc["id"]
