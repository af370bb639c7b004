"""The tables in Markdown; a row that failed is marked."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_MEASURED = ("Tried", "Seconds", "MiB")  # columns of which a row of several names has a range


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
    result = f"{tried:,} tried, all {f'but {failed} ' if failed else ''}held. {measured}"
    rows = _grid(table.heads, _merged(table.heads, table.rows))
    if table.is_folded:
        head = ['<details markdown="1">', f"<summary>{result}</summary>", ""]
        rows = [*head, *rows, "", "</details>"]
    else:
        rows = [result, "", *rows]
    return "\n".join([f"## {table.title}", "", table.text.rstrip(), "", *rows, ""])


def _merged(heads: Sequence[str], rows: Iterable[Row]) -> Iterator[Row]:
    """One row for all that differ only in their names and in what was measured."""
    measured = [at for at, head in enumerate(heads) if at and head in _MEASURED]
    groups: dict[object, list[Row]] = {}
    for row in rows:
        cells = enumerate(row.cells)
        key = tuple(str(cell) for at, cell in cells if at and at not in measured)
        groups.setdefault((key, row.held), []).append(row)
    for same in groups.values():
        cells = list(same[0].cells)
        cells[0] = "<br>".join(str(row.cells[0]) for row in same)
        for at in measured:
            cells[at] = _range([str(row.cells[at]) for row in same])
        yield Row(tuple(cells), same[0].held)


def _range(figures: Sequence[str]) -> str:
    least, most = min(figures, key=float), max(figures, key=float)
    return least if least == most else f"{least} to {most}"


def summary(sections: Iterable[str]) -> str:
    """How often the tests of these sections tried, and whether all of it held."""
    pattern = re.compile(r"^(?:<summary>)?([\d,]+) tried, all (?:but (\d+) )?held\.", re.MULTILINE)
    results = [result for section in sections for result in pattern.findall(section)]
    tried = sum(int(count.replace(",", "")) for count, _ in results)
    failed = sum(int(count or 0) for _, count in results)
    return f"{tried:,} times, and it {f'did not hold {failed} times' if failed else 'always held'}"


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
