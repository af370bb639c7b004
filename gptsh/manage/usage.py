"""Print ``--usage``: a table with bars, plain lines or JSON."""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from gptsh.core import listing, sessions
from gptsh.core.listing import Unreadable
from gptsh.core.usage import FIELDS, Report, Row, rows
from gptsh.manage import lists
from gptsh.manage.lists import Filters
from gptsh.terminal import stdio
from gptsh.terminal.stdio import BOLD, DIM, STRUCTURED, TerminalStyle, styled, terminal_style
from gptsh.text import columns, one_line, pad, quantity, truncate_start

if TYPE_CHECKING:
    from gptsh.core.document_types import Days, Field


# ---- what is counted
#
# Choose the sessions, then print a table or JSON. ``core/usage.py`` sums.


def show_usage(ref: str | None, filters: Filters, output: str | None) -> int:
    """Print tokens and cost by day and model, of one session or of those that match."""
    from gptsh.core import usage

    first_day = filters.since.astimezone().date() if filters.since else None
    report = usage.count(counted(ref, filters), filters.model, filters.limit, first_day)
    if not report.models and (note := lists.nothing_found(filters)):
        stdio.note(note)
    if output in STRUCTURED:
        from gptsh.render import structured

        objects = usage.rows(report) if output == "jsonl" else [report._asdict()]
        stdio.write_lines(map(structured.line, objects))
        return 0
    draw_usage(report, output)
    return 0


def draw_usage(report: "Report", output: str | None) -> None:
    """Print tokens and cost as a table."""
    out = stdio.stdout()
    if stdio.is_terminal(out) and output != "text":
        look = terminal_style(os.environ, terminal=True)
        lists.show(_drawn(report, stdio.width(out), look), output, safe=True)
    else:
        lists.show(_plain(report), output)


def counted(ref: str | None, filters: Filters) -> Iterator["Days"]:
    """What the session used, or each of those that match; an unreadable one gets a note."""
    from gptsh.core import usage

    if ref:
        yield usage.sums_by_day(sessions.load_at(ref))
        return
    here = lists.current_project() if filters.here else None
    for path in listing.all_paths():
        item = listing.try_read(path, usage.read_days)
        if isinstance(item, Unreadable):
            stdio.note(f"skipped {item.path}: {item.cause}")
        elif item is not None:
            head, days = item
            row = listing.summary_of(head, None, os.path.basename(path))
            if lists.matches_filters(filters, here, row):
                yield days


# ---- in a pipe

_GAP = "  "


def _plain(report: Report) -> Iterator[str]:
    """A heading and a line for each row; no field has blanks, and ``+`` marks a minimum cost."""
    table = [("by", "name", *FIELDS)]
    for row in rows(report):
        cells = {field: "-" if row[field] is None else str(row[field]) for field in FIELDS}
        if row["cost"] is not None:
            cells["cost"] = f"{row['cost']:.6f}{'+' if row['unpriced'] else ''}"
        table.append((row["by"], _name(row).replace(" ", "␣"), *cells.values()))
    by, name, *widths = [max(map(columns, column)) for column in zip(*table, strict=True)]
    for cells_of_row in table:
        numbers = map(str.rjust, cells_of_row[2:], widths)
        yield _GAP.join((pad(cells_of_row[0], by), pad(cells_of_row[1], name), *numbers))


# ---- on a terminal

# The terminal width that a field needs to be shown; the other fields are always shown.
_MIN_WIDTH = {
    "prompt": 80,
    "completion": 80,
    "reasoning_tokens": 110,
    "cached_tokens": 110,
    "unpriced": 110,
}
_NAME = 16  # columns that a name needs before there is room for a bar
_BAR = 8  # columns of the shortest useful bar
_LONGEST_BAR = 15  # on a terminal with colours; twice as long on others
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_EXACT = 10_000  # smaller numbers are not rounded
_ROUNDED_UP = 999.95  # with one decimal this would be shown as 1000.0


def _drawn(report: Report, width: int, look: TerminalStyle) -> Iterator[str]:
    """Lines that are safe for a terminal, and at most ``width`` columns wide if that is 40 or more.

    The fields have their room first, then the names, then the bars.
    """
    if not report.days:
        yield "no answers"
        return
    shown = [field for field in FIELDS if width >= _MIN_WIDTH.get(field, 0)]
    heads: dict[Field, str] = {field: field.removesuffix("_tokens") for field in FIELDS}
    cells_of = partial(_cells, in_cents=look.colors)
    longest_bar = _LONGEST_BAR if look.colors else 2 * _LONGEST_BAR
    table = [heads, *map(cells_of, rows(report))]
    widths = {field: max(len(cells[field]) for cells in table) for field in shown}
    left = width - sum(widths.values()) - len(_GAP) * len(widths)
    has_bars = left >= _NAME + len(_GAP) + _BAR
    room = left - len(_GAP) - _BAR if has_bars else left
    name_width = max(1, min(room, max(columns(_name(row)) for row in rows(report))))
    bar_width = min(longest_bar, left - name_width - len(_GAP)) if has_bars else 0

    def line(name: str, cells: "Mapping[Field, str]") -> str:
        numbers = (cells[field].rjust(size) for field, size in widths.items())
        return _GAP.join((pad(truncate_start(name, name_width), name_width), *numbers))

    measure: Field = "cost" if report.total["cost"] else "total"
    for head, section in (("day", report.days), ("model", report.models)):
        yield _styled(line(head, heads), BOLD, on=look.styles)
        most = max(row[measure] or 0 for row in section)
        for row in section:
            text = line(_name(row), cells_of(row))
            bar = _bar(row[measure] or 0, most, bar_width)
            yield f"{text}{_GAP}{_styled(bar, DIM, on=look.colors)}" if bar else text.rstrip()
        yield ""
    yield _styled(line("total", cells_of(report.total)).rstrip(), BOLD, on=look.styles)
    prompt = report.total["prompt"]
    cached = report.total["cached_tokens"]
    if prompt and cached:
        yield f"read from caches: {100 * cached / prompt:.0f} % of the prompts"
    unpriced = int(report.total["unpriced"])
    has_minimum = unpriced and report.total["cost"] is not None
    if unpriced and look.colors:
        meaning = "; + means at least" if has_minimum else ""
        yield f"{quantity(unpriced, 'answer')} without a known price{meaning}"
    elif unpriced:
        yield f"unknown prices: {unpriced:,}{' (+: at least)' if has_minimum else ''}"


def _cells(row: Row, *, in_cents: bool) -> "dict[Field, str]":
    cells: dict[Field, str] = {}
    for field in FIELDS:
        number = row[field]
        cells[field] = "-" if number is None else _short(number)
    cells["cost"] = _usd(row["cost"], is_minimum=row["unpriced"] > 0, in_cents=in_cents)
    return cells


def _usd(cost: float | None, *, is_minimum: bool, in_cents: bool) -> str:
    """The cost with two or four digits, then ``+`` for a minimum or a blank: the digits align."""
    if cost is None:
        return "- "
    sign = "$" if in_cents else ""
    digits = 2 if in_cents else 4
    least = 10**-digits
    if 0 < cost < least / 2 and not is_minimum:  # it would be shown as zero
        return f"<{sign}{least:.{digits}f} "
    return f"{sign}{cost:,.{digits}f}{'+' if is_minimum else ' '}"


def _short(number: float) -> str:
    """The number in at most six characters, such as 9,999, 12.3k or 1.2M."""
    if number < _EXACT:
        return f"{number:,}"
    for unit in "kMG":
        number /= 1000
        if number < _ROUNDED_UP:
            return f"{number:.1f}{unit}"
    return f"{number / 1000:.1f}T"


def _bar(weight: float, most: float, width: int) -> str:
    """A bar whose share of ``width`` is ``weight / most``, at least an eighth of a column."""
    if weight <= 0 or not width:
        return ""
    full, eighths = divmod(max(1, round(8 * width * weight / most)), 8)
    return "█" * full + _EIGHTHS[eighths]


def _styled(text: str, style: str, *, on: bool) -> str:
    return styled(text, style) if on else text


def _name(row: Row) -> str:
    """The day or the model of a row: ``?`` for an unknown model, ``all`` for the total."""
    name = row.get("day", "all") if "model" not in row else row["model"] or ""
    return one_line(name) or "?"
