"""The tables in Markdown; a row that failed is marked."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
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
    column = table.heads.index("Tried") if "Tried" in table.heads else None
    tried = (
        len(table.rows)
        if column is None
        else sum(int(str(row.cells[column])) for row in table.rows)
    )
    failed = sum(not row.held for row in table.rows)
    result = f"**{tried:,} tried, all {f'but {failed} ' if failed else ''}held.** {measured}"
    rows = _grid(table.heads, _merged(table.rows))
    if table.is_folded:
        rows = [
            '<details markdown="1">',
            "<summary>The table</summary>",
            "",
            *rows,
            "",
            "</details>",
        ]
    return "\n".join([f"## {table.title}", "", table.text.rstrip(), "", result, "", *rows, ""])


def _merged(rows: Iterable[Row]) -> Iterable[Row]:
    """One row for neighbours whose figures are the same."""
    for (figures, held), same in groupby(
        rows, key=lambda row: (tuple(map(str, row.cells[1:])), row.held)
    ):
        yield Row(("<br>".join(str(row.cells[0]) for row in same), *figures), held)


def summary(sections: Iterable[str]) -> str:
    """A table of the sections of the page: how much each of them tried, and whether all of it held."""
    lines = ["| test | tried | held |", "|---|---|---|"]
    for section in sections:
        title = section.partition("\n")[0]
        result = re.search(r"^\*\*([\d,]+) tried, (.*) held\.\*\*", section, re.MULTILINE)
        tried, held = result.groups() if result else ("-", "-")
        lines.append(f"| [{title}](#{title.lower().replace(' ', '-')}) | {tried} | {held} |")
    return "\n".join(lines)


def _grid(heads: Sequence[str], rows: Iterable[Row]) -> list[str]:
    head = f"| {' | '.join(heads)} | Held |"
    rule = "|---" * (len(heads) + 1) + "|"
    return [
        head,
        rule,
        *(
            f"| {' | '.join(map(str, row.cells))} | {'yes' if row.held else '**no**'} |"
            for row in rows
        ),
    ]
