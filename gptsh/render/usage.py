"""What was used and paid as a table: with bars and as wide as a terminal, or plain in a pipe."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gptsh.core.usage import FIELDS, Report, Row, rows
from gptsh.render.plain import Look
from gptsh.text import columns, end, one_line, visible

PLAIN = ("by", "name", *FIELDS)  # the columns of a pipe: they keep their order, new ones come behind
_HEADS = {**{field: field for field in FIELDS}, "reasoning_tokens": "reasoning", "cached_tokens": "cached"}
_FIRST_TO_GO = (("cached_tokens",), ("reasoning_tokens",), ("unpriced",), ("prompt", "completion"))  # if it is too wide
_LAST_TO_GO = ("answers", "total")  # when the bars are gone, too
_GAP = "  "
_NAME = 16  # columns that a name keeps while there is something else to leave out
_BAR = 8  # columns; a shorter one says little
_LONGEST_BAR = 30
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_EXACT = 10_000  # a smaller number is shown to the last token
_SHOWN = 0.00005  # USD; four digits would show less as nothing
_ROUNDED_UP = 999.95  # what one digit behind the point would show as a thousand


class _Layout(NamedTuple):
    """Columns that a name has, each field that is shown, and a bar: 0 where there is none."""

    name: int
    fields: Mapping[str, int]
    bar: int


# ---- in a pipe


def plain(report: Report) -> Iterator[str]:
    """A heading and a line for each row, of as many fields: no blanks within, numbers in full, ``-`` for unknown.

    A cost has six digits; behind it a ``+`` tells that it is at least that, since some answer's cost is unknown.
    """
    table = [PLAIN, *(_plain_cells(row) for row in rows(report))]
    by, name, *widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        numbers = (cell.rjust(width) for cell, width in zip(cells[2:], widths, strict=True))
        yield _GAP.join((cells[0].ljust(by), cells[1].ljust(name), *numbers))


def _plain_cells(row: Row) -> tuple[str, ...]:
    cells = {field: "-" if row[field] is None else str(row[field]) for field in FIELDS}
    if row["cost"] is not None:
        cells["cost"] = f"{row['cost']:.6f}{'+' if row['unpriced'] else ''}"
    return (row["by"], _name(row).replace(" ", "␣"), *cells.values())


# ---- on a terminal


def drawn(report: Report, width: int, look: Look) -> Iterator[str]:
    """Lines that are safe for a terminal and no wider than ``width`` columns, where that is 40 or more."""
    if not report.days:
        yield "no answers"
        return
    layout = _fit([*rows(report)], width)
    weighed = "cost" if report.total["cost"] else "total"
    for head, section in (("day", report.days), ("model", report.models)):
        yield _styled(_line(head, _HEADS, layout), "1", on=look.styles)
        most = max(row[weighed] or 0 for row in section)
        for row in section:
            bar = _bar(row[weighed] or 0, most, layout.bar)
            line = _line(_name(row), _cells(row), layout)
            yield f"{line}{_GAP}{_styled(bar, '36', on=look.colors)}" if bar else line.rstrip()
        yield ""
    yield _styled(_line("total", _cells(report.total), layout).rstrip(), "1", on=look.styles)
    note = f"answers of unknown price: {report.total['unpriced']:,} (+: at least, -: unknown)"
    if report.total["unpriced"] and len(note) <= width:
        yield note


def _fit(every: Sequence[Row], width: int) -> _Layout:
    """What there is room for: fields are left out, then the bars, then names are cut."""
    cells = [_HEADS, *map(_cells, every)]
    known = [field for field in FIELDS if any(row[field] for row in every) or field in ("answers", "total", "cost")]
    fields = {field: max(len(cell[field]) for cell in cells) for field in known}
    longest = max(columns(_name(row)) for row in every)
    least = min(longest, _NAME)

    def room() -> int:
        return width - sum(fields.values()) - len(_GAP) * len(fields)

    for together in _FIRST_TO_GO:
        if room() < least + len(_GAP) + _BAR:
            fields = {field: taken for field, taken in fields.items() if field not in together}
    bars = room() >= least + len(_GAP) + _BAR
    for field in _LAST_TO_GO:
        if room() < least:
            fields.pop(field)
    name = max(1, min(longest, room() - (len(_GAP) + _BAR if bars else 0)))
    return _Layout(name, fields, min(_LONGEST_BAR, room() - name - len(_GAP)) if bars else 0)


def _line(name: str, cells: Mapping[str, str], layout: _Layout) -> str:
    short = end(name, layout.name)
    padded = short + " " * (layout.name - columns(short))
    return _GAP.join((padded, *(cells[field].rjust(width) for field, width in layout.fields.items())))


def _cells(row: Row) -> dict[str, str]:
    cells = {field: "-" if row[field] is None else _short(row[field]) for field in FIELDS if field != "cost"}
    return {**cells, "cost": _usd(row["cost"], more=row["unpriced"] > 0)}


def _usd(cost: float | None, *, more: bool) -> str:
    """Four digits; behind them a ``+`` where it is at least that, else a blank, so that the digits stay in line."""
    if cost is None:
        return "- "
    if 0 < cost < _SHOWN and not more:
        return "<0.0001 "
    return f"{cost:,.4f}{'+' if more else ' '}"


def _short(number: int) -> str:
    if number < _EXACT:
        return f"{number:,}"
    scaled, unit = number / 1000, "k"
    for larger in "MGTPEZ":
        if scaled >= _ROUNDED_UP:
            scaled, unit = scaled / 1000, larger
    return f"{scaled:.1f}{unit}"


def _bar(weight: float, most: float, width: int) -> str:
    """A bar of so much of ``width`` columns as the weight is of the most: an eighth of one at least, if anything."""
    if weight <= 0 or not width:
        return ""
    full, eighths = divmod(max(1, round(8 * width * weight / most)), 8)
    return "█" * full + _EIGHTHS[eighths]


def _styled(text: str, code: str, *, on: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if on else text


# ---- names


def _name(row: Row) -> str:
    """The day or the model of a row, safe for a terminal: ``?`` for an unknown model, ``all`` of the total."""
    name = row.get("day", "all") if "model" not in row else row["model"] or ""
    return visible(one_line(name)) or "?"
