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
    is_folded: bool = True  # on the page, until the reader opens it


def markdown(table: Table, measured: str) -> str:
    """The section for docs/: what was tried, the result, the rows; ``measured`` is the date and the machine."""
    held = sum(row.held for row in table.rows)
    result = f"**{held} of {len(table.rows)} held.** {measured}"
    rows = _grid(table.heads, table.rows)
    if table.is_folded:
        rows = ['<details markdown="1">', f"<summary>All {len(table.rows)} rows</summary>", "", *rows, "", "</details>"]
    return "\n".join([f"## {table.title}", "", table.text.rstrip(), "", result, "", *rows, ""])


def summary(sections: Iterable[str]) -> str:
    """A table of the sections of the page: how much each of them tried, and whether all of it held."""
    lines = ["| test | tried | held |", "|---|---|---|"]
    for section in sections:
        title, _, rest = section.partition("\n")
        head, _, *rows = [line.strip("| ").split(" | ") for line in rest.splitlines() if line.startswith("|")]
        column = head.index("Tried") if "Tried" in head else None
        tried = len(rows) if column is None else sum(int(row[column]) for row in rows)
        failed = sum(row[-1] != "yes" for row in rows)
        anchor = title.lower().replace(" ", "-")
        lines.append(f"| [{title}](#{anchor}) | {tried:,} | {f'all but {failed}' if failed else 'all'} |")
    return "\n".join(lines)


def _grid(heads: Sequence[str], rows: Iterable[Row]) -> list[str]:
    head = f"| {' | '.join(heads)} | Held |"
    rule = "|---" * (len(heads) + 1) + "|"
    return [head, rule, *(f"| {' | '.join(map(str, row.cells))} | {'yes' if row.held else '**no**'} |" for row in rows)]
