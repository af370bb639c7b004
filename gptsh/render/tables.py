"""A table on a terminal: with wrapped cells where it is too wide, without columns where the terminal is too narrow."""

from collections.abc import Sequence

from rich import box
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from gptsh.render.styled_lines import Line, console, stripped, wrapped
from gptsh.render.theme import DIM, TABLE_HEAD

_COLUMN = 8  # minimum width of a column, with the space around it
_UNBOUNDED = 1 << 20  # columns


def table_lines(rows: Sequence[Sequence[Text]], sides: Sequence[JustifyMethod], width: int) -> list[Line]:
    """The lines of a table, whose first row is its head; ``sides``: how each column is aligned."""
    head, *body = rows
    if len(head) * _COLUMN > width:
        joined = (Text(" | ").join(row) for row in rows)
        return [line for text in joined for line in wrapped(text, width)]
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False, border_style=DIM, header_style=TABLE_HEAD)
    for text, side in zip(head, sides, strict=True):
        table.add_column(text, justify=side, overflow="fold", min_width=min(4, text.cell_len))
    for row in body:
        table.add_row(*row)
    options = console().options
    natural_width = console().measure(table, options=options.update(width=_UNBOUNDED)).maximum
    table.show_lines = natural_width > width  # a rule between rows of more than one line
    return [stripped(line) for line in console().render_lines(table, options.update(width=width), pad=False)]
