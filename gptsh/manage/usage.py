"""Print ``--usage``: a table with bars on a terminal, plain lines in a pipe, or JSON."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gptsh.core import listing, sessions, usage, usage_report
from gptsh.core.listing import Unreadable
from gptsh.core.usage_report import FIELDS, Report, Row
from gptsh.manage import lists
from gptsh.manage.lists import Filters
from gptsh.terminal import stdio
from gptsh.terminal.stdio import BOLD, DIM, STRUCTURED, TerminalStyle, styled, terminal_style
from gptsh.text import columns, dollars, one_line, pad, quantity, short_number, truncate_start

if TYPE_CHECKING:
    from gptsh.core.document_types import Days, Field


def show_usage(ref: str | None, filters: Filters, output: str | None) -> int:
    """Print tokens and cost by day and model, of one session or of those that match."""
    first_day = filters.since.astimezone().date() if filters.since else None
    report = usage_report.count(
        counted(ref, filters),
        filters.model,
        limit=filters.limit,
        since=first_day,
    )
    note = lists.nothing_found(filters)
    if note and not report.models:
        stdio.note(note)
    if output in STRUCTURED:
        from gptsh.render import structured

        objects = usage_report.rows(report) if output == "jsonl" else [report._asdict()]
        stdio.write_lines(map(structured.line, objects))
    else:
        draw_usage(report, output)
    return 0


def draw_usage(report: Report, output: str | None) -> None:
    """Print tokens and cost as a table."""
    out = stdio.stdout()
    if stdio.is_terminal(out) and output != "text":
        style = terminal_style(os.environ, terminal=True)
        lists.show(_drawn(report, stdio.width(out), style), output, safe=True)
    else:
        lists.show(_plain(report), output)


def counted(ref: str | None, filters: Filters) -> "Iterator[Days]":
    """Yield what the session used, or each of those that match; note each unreadable one."""
    if ref:
        yield usage.sums_by_day(sessions.load_at(ref))
        return
    project = lists.current_project() if filters.here else None
    for path in listing.all_paths():
        item = listing.try_read(path, usage.read_days)
        if isinstance(item, Unreadable):
            stdio.note(f"skipped {item.path}: {item.cause}")
        elif item is not None:
            head, days = item
            summary = listing.summary_of(head, None, os.path.basename(path))
            if lists.matches_filters(filters, project, summary):
                yield days


# ---- in a pipe

_GAP = "  "


def _plain(report: Report) -> Iterator[str]:
    """Yield a heading and a line for each row, in columns that awk can split.

    No field has blanks, and ``+`` marks a minimum cost.
    """
    table = [["by", "name", *FIELDS]]
    for row in usage_report.rows(report):
        name = _name(row).replace(" ", "␣")
        numbers = [_plain_cell(row, field) for field in FIELDS]
        table.append([row["by"], name, *numbers])

    by_width, *widths = _widths(table)
    for by, *cells in table:
        line = _line(cells, widths)
        yield f"{pad(by, by_width)}{_GAP}{line}"


def _plain_cell(row: Row, field: "Field") -> str:
    """Return a number for scripts, without commas."""
    number = row[field]
    if number is None:
        return "-"
    if field != "cost":
        return str(number)
    cost = f"{number:.6f}"
    return f"{cost}+" if row["unpriced"] else cost


def _widths(table: list[list[str]]) -> list[int]:
    """Return how many columns of the terminal each column of a table needs."""
    widths = []
    for column in zip(*table, strict=True):
        widths.append(max(map(columns, column)))
    return widths


def _line(cells: list[str], widths: list[int]) -> str:
    """Return a line of a table: a name, then numbers, which are aligned to the right."""
    name, *numbers = cells
    name_width, *number_widths = widths
    padded = [pad(truncate_start(name, name_width), name_width)]
    for number, width in zip(numbers, number_widths, strict=True):
        padded.append(number.rjust(width))
    return _GAP.join(padded)


# ---- on a terminal

# The terminal width that a field needs to be shown; the other fields are always shown.
_MIN_WIDTH = {
    "prompt": 80,
    "completion": 80,
    "reasoning_tokens": 110,
    "cached_tokens": 110,
    "unpriced": 110,
}
_MIN_NAME = 16  # columns that a name needs before there are bars
_MIN_BAR = 8  # columns of the shortest useful bar
_MAX_BAR = 15
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def _drawn(report: Report, width: int, style: TerminalStyle) -> Iterator[str]:
    """Yield lines that are safe for a terminal.

    The lines are at most ``width`` columns wide if that is 40 or more.
    """
    if not report.days:
        yield "no answers"
        return
    fields = [field for field in FIELDS if width >= _MIN_WIDTH.get(field, 0)]
    headings = [field.removesuffix("_tokens") for field in fields]
    table = [["model", *headings]]
    for row in usage_report.rows(report):
        table.append(_cells(row, fields))
    widths, bar_width = _fit(_widths(table), width)

    # Without a known cost the bars compare tokens.
    measure: Field = "cost" if report.total["cost"] else "total"
    for heading, section in (("day", report.days), ("model", report.models)):
        yield _styled(_line([heading, *headings], widths), BOLD, style)
        largest = max(row[measure] or 0 for row in section)
        for row in section:
            line = _line(_cells(row, fields), widths)
            bar = _bar(row[measure] or 0, largest, bar_width)
            if bar:
                line += _GAP + _styled(bar, DIM, style)
            yield line.rstrip()
        yield ""
    _, *sums = _cells(report.total, fields)
    total = _line(["total", *sums], widths)
    yield _styled(total.rstrip(), BOLD, style)
    yield from _remarks(report.total)


def _fit(widths: list[int], width: int) -> tuple[list[int], int]:
    """Return the columns of a table that fits a terminal, and those of its bars; 0 for no bars.

    The numbers get their columns first, then the names, then the bars.
    """
    longest_name, *numbers = widths
    gaps = len(_GAP) * len(numbers)
    # Of a terminal of less than 40 columns this may be negative: then there are no names.
    free = width - sum(numbers) - gaps
    free_for_name = free - len(_GAP) - _MIN_BAR
    if free_for_name < _MIN_NAME:
        return [min(longest_name, free), *numbers], 0
    name = min(longest_name, free_for_name)
    bar = min(_MAX_BAR, free - len(_GAP) - name)
    return [name, *numbers], bar


def _remarks(total: Row) -> Iterator[str]:
    """Yield what is below the table: how much caches saved, how many prices are unknown."""
    prompt = total["prompt"]
    cached = total["cached_tokens"]
    if prompt and cached:
        yield f"read from caches: {100 * cached / prompt:.0f} % of the prompts"
    unpriced = int(total["unpriced"])
    if unpriced:
        meaning = "" if total["cost"] is None else "; + means at least"
        yield f"{quantity(unpriced, 'unknown price')}{meaning}"


def _cells(row: Row, fields: "list[Field]") -> list[str]:
    """Return the name of a row, and its fields with numbers in short."""
    cells = [_name(row)]
    for field in fields:
        number = row[field]
        if field == "cost":
            cells.append(_cost_cell(number, is_minimum=row["unpriced"] > 0))
        else:
            cells.append("-" if number is None else short_number(number))
    return cells


def _cost_cell(cost: float | None, *, is_minimum: bool) -> str:
    """Return a cost in dollars and cents.

    The result ends with ``+`` for a minimum, else with a blank, so that the digits align.
    """
    if cost is None:
        return "- "
    if is_minimum:
        return f"${cost:,.2f}+"
    return f"{dollars(cost, decimals=2)} "


def _bar(number: float, largest: float, width: int) -> str:
    """Return a bar for a number, of ``width`` columns for the largest; "" for zero."""
    if number <= 0 or not width:
        return ""
    eighths = max(1, round(8 * width * number / largest))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8]


def _styled(text: str, code: str, style: TerminalStyle) -> str:
    return styled(text, code) if style.styles else text


def _name(row: Row) -> str:
    """Return the day or the model of a row: ``?`` for an unknown model, ``all`` for the total."""
    name = row.get("day", row.get("model", "all"))
    return one_line(name or "") or "?"
