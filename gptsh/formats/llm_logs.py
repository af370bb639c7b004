"""The log of Simon Willison's llm, ``logs.db``: its message store (from 0.32 on), and the tables of before.

Both may stand in one file. A conversation that was begun before and continued since is one session: what the older
tables say of its beginning, then what the message store has beyond that.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from gptsh.core.document import Document
from gptsh.formats import llm_before, llm_store
from gptsh.formats.database import Database, Row, opened
from gptsh.formats.draft import Draft
from gptsh.formats.llm_before import Responses
from gptsh.formats.llm_parts import Parts, Said, params_of, provider_of, text
from gptsh.formats.llm_store import Store
from gptsh.formats.source import Reader, Refused, Source, Unread
from gptsh.messages import text_of

_FORMAT = "llm"
_BESIDE = (
    "attachments", "fragments", "tool_calls", "tool_results", "tool_results_attachments", "prompt_attachments",
    "prompt_fragments", "system_fragments",
)  # fmt: skip


def _read(source: Source) -> Iterator[Document | Unread]:
    try:
        yield from _sessions(source)
    except Refused as err:
        yield source.unread(str(err))


def _sessions(source: Source) -> Iterator[Document | Unread]:
    with opened(source, (*llm_store.TABLES, *llm_before.TABLES, *_BESIDE)) as db:
        if not db.has(*llm_store.TABLES) and not db.has("conversations", "responses") and not db.has("logs"):
            yield source.unread("a database, but not the log of llm")._replace(is_foreign=True)
            return
        log = _Log(source, db)
        for key in log.sessions:
            yield from log.session(key)
        yield from log.left_over()


class _Log:
    """A database as sessions."""

    def __init__(self, source: Source, db: Database) -> None:
        self._source, self._db = source, db
        self._unread: list[Unread] = []
        parts = Parts(db, self._tell)
        self._store = Store(db, parts, self._tell)
        self._before = Responses(db, parts, but=self._store.turn_ids)

    def _tell(self, why: str) -> None:
        self._unread.append(self._source.unread(why))

    @property
    def sessions(self) -> list[str]:
        """The keys of all sessions, in order."""
        return sorted({*self._store.sessions, *self._before.sessions})

    def session(self, key: str) -> Iterator[Document | Unread]:
        """The session of a key, where it has any messages, and what of it could not be read."""
        self._db.start()
        try:
            yield from self._read(key)
        except ValueError as err:  # Refused among them
            self._tell(f"conversation {key}: {err}")
        yield from self._unread
        self._unread.clear()

    def left_over(self) -> Iterator[Unread]:
        """The messages that are in no session."""
        return (self._source.unread(f"message {ident}: it is in no conversation") for ident in self._store.left_over())

    def _read(self, key: str) -> Iterator[Document]:
        responses, turns = self._before.rows(key), self._store.turns(key)
        draft = self._draft(key, (turns or [row for _, row in responses] or [{}])[-1])
        before = [said for ident, row in responses for said in self._before.messages(ident, row)]
        history, own = self._store.messages(key)
        # Of what stands in both the older tables know more, and its ids were the same before the store had it.
        _fill(draft, [*(before if before and _words(history) <= _words(before) else history), *own])
        self._unread += draft.unread
        if draft.messages:
            yield draft.document()

    def _draft(self, key: str, latest: Row) -> Draft:
        """A session without its messages; ``latest`` is its last turn or response."""
        head = self._store.thread(key) or next(self._db.rows("conversations", id=key), {})
        model = text(latest.get("model")) or text(head.get("model"))
        draft = Draft(self._source, _FORMAT, key, title=head.get("name"), model=model, provider=provider_of(model))
        draft.params = params_of(latest)
        draft.created_at = None if latest else head.get("datetime_utc")
        if origin := text(head.get("forked_from")):
            draft.kept["forked_from"] = origin
        return draft


def _words(messages: Sequence[Said]) -> set[tuple[str, str]]:
    """What was said, and by whom."""
    said: Any = messages
    return {(message["role"], text_of(message)) for message in said if message["role"] != "system"}


def _fill(draft: Draft, messages: Sequence[Said]) -> None:
    """Add the messages. The first system prompt is the session's; it stands among them where it changes."""
    current, known = None, set()
    for said in messages:
        said["parent"] = said["parent"] if said.get("parent") in known else None
        if said["role"] == "system":
            if said["content"] == current:
                continue
            current = said["content"]
            if draft.system is None and not draft.messages and isinstance(current, str):
                draft.system = current
                continue
        known.add(said["id"])
        draft.add(said)


READER = Reader(_FORMAT, lambda source: source.is_database, _read)
