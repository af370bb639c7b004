"""Rows of a picker, and what is read of them."""

from gptsh.cli.prompt.picked import Line
from gptsh.cli.prompt.picking import Picking, Row

NOW = 1_800_000_000.0


def row(number: int, title: str | None = "Title", *, here: bool = True, preview: str = "", days: float = 1.0) -> Row:
    used = NOW - 86400 * days
    return Row((not here, -used), f"20250101-000000-{number:04}.json", title, preview, 3, "lab/m", "")


def listed(*rows: Row) -> Picking:
    picking = Picking()
    picking.add(rows)
    picking.reading = False
    return picking


def text_of(line: Line) -> str:
    return "".join(text for _, text in line)
