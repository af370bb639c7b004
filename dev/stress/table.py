"""The tables in Markdown; a row that failed is marked."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Tally:
    """Counts for many runs of one kind."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.tried = self.lost = self.torn = self.left = self.hung = 0

    def row(self) -> "Row":
        """The row of the table. It holds if there were runs and every other count is 0."""
        counts = (self.lost, self.torn, self.left, self.hung)
        return Row((self.what, self.tried, *counts), self.tried > 0 and not any(counts))


TALLY_HEADS = ("What", "Tried", "Lost", "Torn", "Left behind", "Hung")


class Row(NamedTuple):
    """One line of a table, and whether the promise held."""

    cells: tuple[object, ...]
    held: bool = True


class Table(NamedTuple):
    """A table with a title and a paragraph that describes the test."""

    title: str
    text: str
    heads: Sequence[str]
    rows: Sequence[Row]


def markdown(table: Table, measured: str) -> str:
    """The section for docs/; ``measured`` is the date and the machine."""
    return "\n".join([f"## {table.title}", "", table.text, "", measured, "", *_grid(table.heads, table.rows), ""])


def _grid(heads: Sequence[str], rows: Iterable[Row]) -> list[str]:
    head = f"| {' | '.join(heads)} | Held |"
    rule = "|---" * (len(heads) + 1) + "|"
    return [head, rule, *(f"| {' | '.join(map(str, row.cells))} | {'yes' if row.held else '**no**'} |" for row in rows)]
