"""What was used and paid as a table: with bars and as wide as a terminal, or plain in a pipe."""

from collections.abc import Iterator, Mapping

from gptsh.core.usage import FIELDS, Report, Row, rows
from gptsh.render.plain import Look
from gptsh.text import columns, end, one_line, visible

_HEADS = {"reasoning_tokens": "reasoning", "cached_tokens": "cached"}
# Columns of a terminal from which on a field is shown; the others always are.
_FROM = {"prompt": 80, "completion": 80, "reasoning_tokens": 110, "cached_tokens": 110, "unpriced": 110}
_GAP = "  "
_NAME = 16  # columns that a name keeps before there is a bar
_BAR = 8  # columns; a shorter one says little
_LONGEST_BAR = 30
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_EXACT = 10_000  # a smaller number is shown to the last token
_SHOWN = 0.00005  # USD; four digits would show less as nothing
_ROUNDED_UP = 999.95  # what one digit behind the point would show as a thousand


# ---- in a pipe


def plain(report: Report) -> Iterator[str]:
    """A heading and a line for each row, of as many fields without blanks; a cost with a ``+`` is at least that."""
    table = [("by", "name", *FIELDS), *(_plain_cells(row) for row in rows(report))]
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
    every = [_cells(row) for row in rows(report)]
    fields = [field for field in FIELDS if width >= _FROM.get(field, 0)]
    heads = {field: _HEADS.get(field, field) for field in FIELDS}
    widths = {field: max(len(cells[field]) for cells in (heads, *every)) for field in fields}
    left = width - sum(widths.values()) - len(_GAP) * len(widths)
    has_bars = left >= _NAME + len(_GAP) + _BAR
    longest = max(columns(_name(row)) for row in rows(report))
    name_width = max(1, min(longest, left - (len(_GAP) + _BAR if has_bars else 0)))
    bar_width = min(_LONGEST_BAR, left - name_width - len(_GAP)) if has_bars else 0

    def line(name: str, cells: Mapping[str, str]) -> str:
        short = end(name, name_width)
        padded = short + " " * (name_width - columns(short))
        return _GAP.join((padded, *(cells[field].rjust(taken) for field, taken in widths.items())))

    weighed = "cost" if report.total["cost"] else "total"
    for head, section in (("day", report.days), ("model", report.models)):
        yield _styled(line(head, heads), "1", on=look.styles)
        most = max(row[weighed] or 0 for row in section)
        for row in section:
            bar = _bar(row[weighed] or 0, most, bar_width)
            drawn_row = line(_name(row), _cells(row))
            yield f"{drawn_row}{_GAP}{_styled(bar, '35', on=look.colors)}" if bar else drawn_row.rstrip()
        yield ""
    yield _styled(line("total", _cells(report.total)).rstrip(), "1", on=look.styles)
    if report.total["unpriced"]:
        yield f"unknown prices: {report.total['unpriced']:,} (+: at least)"


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
