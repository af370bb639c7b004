"""A list that a session is picked from: what it holds, what a filter leaves of it, which row is chosen, what is asked.

The sessions of this project come first, then the others, those last used first.
"""

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from gptsh.core.listing import SessionSummary
from gptsh.core.retention import last_used
from gptsh.core.search import fold

_YES = ("y", "yes")


class Row(NamedTuple):
    """A session in the list. ``order`` is what rows are sorted by, ``used`` is in seconds since 1970, 0: unknown."""

    order: tuple[bool, float]
    filename: str
    title: str | None
    preview: str
    turns: int
    model: str | None
    updated_at: str

    @property
    def here(self) -> bool:
        """Whether it is of this project."""
        return not self.order[0]

    @property
    def used(self) -> float:
        """When it was last used."""
        return -self.order[1]


def row_of(item: SessionSummary, project: str) -> Row:
    """The row of a session, where ``project`` is this one."""
    used = last_used(item)
    order = (item["project"] != project, -used.timestamp() if used else 0.0)
    return Row(
        order, item["filename"], item["title"], item["preview"], item["turns"], item["model"], item["updated_at"]
    )


class Picking:
    """The state of the list. ``reading``: more sessions may come, ``searching``: more of the filter's.

    ``filter`` is None where none is typed; ``asked`` is the session whose deletion is in question, with what was
    ``answer``-ed so far; while one is ``deleting``, nothing else is done. ``message`` is told until the next key.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.shown = self.rows
        self.at = 0
        self.filter: str | None = None
        self.reading, self.searching, self.deleting = True, False, False
        self.asked: Row | None = None
        self.answer = ""
        self.message = ""
        self._hits: set[str] = set()  # file names that the filter leaves
        self._words: list[str] = []
        self._by_slash = False  # whether the filter was begun before it had a letter
        self._settled = False  # whether the chosen row stays the chosen one when others come

    # ---- what is there

    @property
    def selected(self) -> Row | None:
        """The chosen row."""
        return self.shown[self.at] if self.shown else None

    @property
    def here(self) -> int:
        """How many of the shown rows are of this project."""
        return bisect_left(self.shown, True, key=lambda row: row.order[0])

    @property
    def height(self) -> int:
        """The lines of the list: its rows, and a heading in front of the other projects' ones."""
        return len(self.shown) + (self.here < len(self.shown))

    def row_at(self, line: int) -> int | None:
        """The number of the row that is on a line; None for the heading."""
        return None if line == self.here else line - (line > self.here)

    def line_of(self, number: int) -> int:
        """The line that a row is on."""
        return number + (number >= self.here)

    @property
    def is_empty(self) -> bool:
        """Whether there is no session at all."""
        return not self.rows and not self.reading

    @property
    def takes_commands(self) -> bool:
        """Whether a letter is a command."""
        return self.filter is None and not self.asked and not self.deleting

    @property
    def words(self) -> str:
        """The words of the filter; empty where all is shown."""
        return " ".join((self.filter or "").split())

    @property
    def hits(self) -> frozenset[str]:
        """The file names that are known to have the words."""
        return frozenset(self._hits)

    # ---- what comes

    def add(self, rows: Iterable[Row]) -> None:
        """Sessions that were read."""
        new = list(rows)
        self._hits.update(row.filename for row in new if self._words and self._names(row))
        kept = self.selected
        self.rows += new
        self.rows.sort(key=attrgetter("order"))
        self._show(kept)

    def found(self, filenames: Iterable[str]) -> None:
        """Sessions that have the words of the filter, read or not."""
        self._hits.update(filenames)
        self._show(self.selected)

    def drop(self, row: Row) -> None:
        """A session that is there no more; the one below it is chosen."""
        self.rows.remove(row)
        if self.shown is not self.rows:
            self.shown.remove(row)
        self.at = max(0, min(self.at, len(self.shown) - 1))

    def _show(self, kept: Row | None) -> None:
        self.shown = [row for row in self.rows if row.filename in self._hits] if self._words else self.rows
        self.at = self.shown.index(kept) if self._settled and kept in self.shown else 0

    def _names(self, row: Row) -> bool:
        """Whether a row itself has the words."""
        text = fold(f"{row.title or ''}\n{row.preview}")
        return all(word in text for word in self._words)

    # ---- keys

    def move(self, by: int) -> None:
        """Choose another row, as far as there are any."""
        self._settled = True
        self.at = max(0, min(self.at + by, len(self.shown) - 1))

    def begin(self) -> None:
        """Begin a filter that may begin with any letter."""
        if not self.asked and not self.is_empty and self.filter is None:
            self.filter, self._by_slash = "", True
        else:
            self.type_in("/")

    def type_in(self, text: str) -> None:
        """Letters: of the answer where something is asked, else of the filter."""
        text = "".join(char if char.isprintable() else " " for char in text)
        if self.asked:
            self.answer += text
        elif not self.is_empty and text:
            self._filter_by((self.filter or "") + text)

    def rub_out(self, *, all_of_it: bool = False) -> None:
        """Take back the last letter, or all of them; where there is none a filter ends."""
        if self.asked:
            self.answer = "" if all_of_it else self.answer[:-1]
        elif self.filter:
            self._filter_by("" if all_of_it else self.filter[:-1])
        else:
            self._filter_by(None)

    def go_back(self) -> bool:
        """Out of the question, else out of the filter; False where there is nothing to leave but the list."""
        if self.asked:
            self.asked, self.message = None, "it is kept"
        elif self.filter is not None:
            self._filter_by(None)
        else:
            return False
        return True

    def _filter_by(self, text: str | None) -> None:
        if text is None or not (text or self._by_slash):
            self.filter, self._by_slash = None, False
        else:
            self.filter = text
        self._words = fold(self.words).split()
        self._hits = {row.filename for row in self.rows if self._names(row)} if self._words else set()
        self.searching, self._settled = bool(self._words), True
        self._show(None)

    def ask(self) -> None:
        """Put the deletion of the chosen session in question."""
        self.asked, self.answer = self.selected, ""

    def answered(self) -> Row | None:
        """The session in question where it is to be deleted."""
        row, self.asked = self.asked, None
        if self.answer.strip().lower() in _YES:
            self.deleting = True
            return row
        self.message = "it is kept"
        return None
