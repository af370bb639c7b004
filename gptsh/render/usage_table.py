"""Tokens and cost of each day and model as a table: on a terminal with bars, in a pipe plain (--usage)."""

from collections.abc import Iterator, Mapping

from gptsh.core.usage import FIELDS, Report, Row, rows
from gptsh.render.escapes import Look
from gptsh.text import columns, one_line, truncate_start

_HEADS = {"reasoning_tokens": "reasoning", "cached_tokens": "cached"}
# The terminal width that a field needs to be shown; the other fields are always shown.
_MIN_WIDTH = {"prompt": 80, "completion": 80, "reasoning_tokens": 110, "cached_tokens": 110, "unpriced": 110}
_GAP = "  "
_NAME = 16  # columns that a name needs before there is room for a bar
_BAR = 8  # columns of the shortest useful bar
_LONGEST_BAR = 30
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_EXACT = 10_000  # smaller numbers are not rounded
_SHOWN = 0.00005  # USD; four digits would show a smaller cost as zero
_ROUNDED_UP = 999.95  # with one decimal this would be shown as 1000.0


# ---- in a pipe


def plain(report: Report) -> Iterator[str]:
    """A heading and a line for each row; no field contains blanks, and ``+`` marks a minimum cost."""
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
    """Lines that are safe for a terminal, and at most ``width`` columns wide if that is 40 or more."""
    if not report.days:
        yield "no answers"
        return
    every = [_cells(row) for row in rows(report)]
    fields = [field for field in FIELDS if width >= _MIN_WIDTH.get(field, 0)]
    heads = {field: _HEADS.get(field, field) for field in FIELDS}
    widths = {field: max(len(cells[field]) for cells in (heads, *every)) for field in fields}
    left = width - sum(widths.values()) - len(_GAP) * len(widths)
    has_bars = left >= _NAME + len(_GAP) + _BAR
    longest = max(columns(_name(row)) for row in rows(report))
    name_width = max(1, min(longest, left - (len(_GAP) + _BAR if has_bars else 0)))
    bar_width = min(_LONGEST_BAR, left - name_width - len(_GAP)) if has_bars else 0

    def line(name: str, cells: Mapping[str, str]) -> str:
        short = truncate_start(name, name_width)
        padded = short + " " * (name_width - columns(short))
        return _GAP.join((padded, *(cells[field].rjust(size) for field, size in widths.items())))

    measure = "cost" if report.total["cost"] else "total"
    for head, section in (("day", report.days), ("model", report.models)):
        yield _styled(line(head, heads), "1", on=look.styles)
        most = max(row[measure] or 0 for row in section)
        for row in section:
            bar = _bar(row[measure] or 0, most, bar_width)
            drawn_row = line(_name(row), _cells(row))
            yield f"{drawn_row}{_GAP}{_styled(bar, '35', on=look.colors)}" if bar else drawn_row.rstrip()
        yield ""
    yield _styled(line("total", _cells(report.total)).rstrip(), "1", on=look.styles)
    prompt, cached = report.total["prompt"], report.total["cached_tokens"]
    if prompt and cached:
        yield f"read from caches: {100 * cached / prompt:.0f} % of the prompts"
    if report.total["unpriced"]:
        yield f"unknown prices: {report.total['unpriced']:,}{'' if report.total['cost'] is None else ' (+: at least)'}"


def _cells(row: Row) -> dict[str, str]:
    cells = {field: "-" if row[field] is None else _short(row[field]) for field in FIELDS if field != "cost"}
    return {**cells, "cost": _usd(row["cost"], more=row["unpriced"] > 0)}


def _usd(cost: float | None, *, more: bool) -> str:
    """The cost with four digits, then ``+`` for a minimum or a blank, so that the digits align."""
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
    """A bar whose share of ``width`` is ``weight / most``; at least an eighth of a column for a weight above 0."""
    if weight <= 0 or not width:
        return ""
    full, eighths = divmod(max(1, round(8 * width * weight / most)), 8)
    return "█" * full + _EIGHTHS[eighths]


def _styled(text: str, code: str, *, on: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if on else text


# ---- names


def _name(row: Row) -> str:
    """The day or the model of a row, safe for a terminal: ``?`` for an unknown model, ``all`` for the total."""
    name = row.get("day", "all") if "model" not in row else row["model"] or ""
    return one_line(name) or "?"
