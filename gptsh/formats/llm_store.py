"""llm's message store, from its version 0.32 on: a tree of messages, turns that say who answered, threads."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from gptsh.formats.database import Database, Row
from gptsh.formats.llm_parts import Facts, Parts, Said, facts, ids_of, text

TABLES = ("threads", "turns", "messages", "parts")
_TOLD = (
    "datetime_utc",
    "thread_id",
    "parent_message_hash",
    "tip_message_hash",
)  # of a turn without an id
_ASKING = ("user", "tool")  # the roles of what a model is asked with


class Stored(NamedTuple):
    """The messages of a session. ``history`` is what its first turn was sent along with."""

    history: list[Said]
    own: list[Said]


class Piece(NamedTuple):
    """A message's row, the number of its turn, and whether that ends with it."""

    row: Row
    turn: int | None
    is_end: bool


class Store:
    """The message store of a database."""

    def __init__(self, db: Database, parts: Parts, tell: Callable[[str], None]) -> None:
        self._db, self._parts, self._tell = db, parts, tell
        self._known: dict[int, Facts] = {}  # of the turns of one session
        self.turn_ids: set[str] = set()
        self._reached: set[str] = set()  # messages that lead to the end of a turn or a thread
        self._ends: dict[str, int] = {}  # the number of the first turn that ends with a message
        self._turns: dict[str, list[int]] = {}  # by session, in order
        self._threads = {key: row["rowid"] for row in db.index("threads", "id") if (key := text(row.get("id")))}
        turns = db.index("turns", "id", "thread_id", "tip_message_hash")
        names = ids_of(db, "turns", (row for row in turns if not text(row.get("id"))), _TOLD)
        for row in sorted(turns, key=lambda row: str(row.get("id"))):
            ident = text(row.get("id")) or names[row["rowid"]]
            self.turn_ids.add(ident)
            self._turns.setdefault(text(row.get("thread_id")) or ident, []).append(row["rowid"])
            self._ends.setdefault(text(row.get("tip_message_hash")) or "", row["rowid"])

    @property
    def sessions(self) -> list[str]:
        """The threads; a turn without one is a session of its own."""
        return [*self._threads, *self._turns]

    def thread(self, session: str) -> Row:
        """The thread's row; empty where there is none."""
        return self._db.row("threads", self._threads[session]) if session in self._threads else {}

    def turns(self, session: str) -> list[Row]:
        """The turns of a session, in order."""
        return [self._db.row("turns", number) for number in self._turns.get(session, ())]

    def left_over(self) -> list[str]:
        """The hashes of the messages that are in no session."""
        hashes = (row.get("hash") for row in self._db.index("messages", "hash"))
        return [str(ident) for ident in hashes if ident not in self._reached]

    def messages(self, session: str) -> Stored:
        """The messages of each turn of a session in order, then what else its thread leads to."""
        turns = self.turns(session)
        ends = {text(turn.get("tip_message_hash")) or "": turn["rowid"] for turn in turns}
        last: dict[str, str] = {}  # by the hash of a message the id of the last one of ours that it became
        said: list[list[Said]] = []
        begins = 0
        self._known.clear()
        for at, turn in enumerate([*turns, self.thread(session)]):
            rows = self._unseen(text(turn.get("tip_message_hash")), last)
            if not at and turns:
                begins = _first_asked(rows, turn.get("parent_message_hash"))
            said += [self._said(piece, last) for piece in self._dated(rows, ends)]
        history, own = (list(chain.from_iterable(part)) for part in (said[:begins], said[begins:]))
        return Stored(history, own)

    def _unseen(self, tip: str | None, seen: dict[str, str]) -> list[Row]:
        """The messages that lead to one, oldest first, as far as they were not there before."""
        rows: list[Row] = []
        while tip is not None and tip not in seen:
            row = next(self._db.rows("messages", hash=tip), None)
            if row is None:
                self._tell(f"message {tip}: it is not there")
                break
            seen[tip] = tip
            self._reached.add(tip)
            rows.append(row)
            tip = text(row.get("parent_hash"))
        return rows[::-1]

    def _dated(self, rows: Sequence[Row], ends: Mapping[str, int]) -> list[Piece]:
        """The messages, each with its turn: that of the answer which it is of, or which it asks for."""
        pieces: list[Piece] = []
        turn, was_asking = None, False
        for row in reversed(rows):
            ident, is_asking = text(row.get("hash")) or "", row.get("role") in _ASKING
            own = ends.get(ident, self._ends.get(ident))  # of another session's turns where it was forked from that
            if own is not None:
                turn = own
            elif was_asking and not is_asking:
                turn = None
            pieces.append(Piece(row, turn, own is not None))
            was_asking = is_asking
        return pieces[::-1]

    def _said(self, piece: Piece, last: dict[str, str]) -> list[Said]:
        row, turn, is_end = piece
        said = self._parts.messages(row)
        if turn is not None:
            if turn not in self._known:
                self._known[turn] = facts(self._db.row("turns", turn))
            moment, who, whole = self._known[turn]
            said = [{**one, "timestamp": moment, **(who if one["role"] == "assistant" else {})} for one in said]
            if is_end and said[-1]["role"] == "assistant":
                said[-1] |= whole
        said[0]["parent"] = last.get(text(row.get("parent_hash")) or "")
        last[text(row.get("hash")) or ""] = said[-1]["id"]
        return said


def _first_asked(rows: Sequence[Row], asked: object) -> int:
    """Where what a turn asks begins in its messages: it is the last words before the answer that no model said."""
    at = next((place for place, row in enumerate(rows) if row.get("hash") == asked), -1)
    while at >= 0 and rows[at].get("role") in _ASKING:
        at -= 1
    return at + 1
