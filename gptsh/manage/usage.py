"""Print ``--usage``: a table with bars, plain lines or JSON."""

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gptsh.core import listing, sessions
from gptsh.core.listing import Unreadable
from gptsh.core.usage import FIELDS, Report, Row, rows
from gptsh.manage import lists
from gptsh.manage.lists import Filters
from gptsh.terminal import stdio
from gptsh.terminal.stdio import STRUCTURED, TerminalStyle, terminal_style
from gptsh.text import columns, one_line, pad, truncate_start

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
_LONGEST_BAR = 30
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_EXACT = 10_000  # smaller numbers are not rounded
_SHOWN = 0.00005  # USD; four digits would show a smaller cost as zero
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
    table = [heads, *map(_cells, rows(report))]
    widths = {field: max(len(cells[field]) for cells in table) for field in shown}
    left = width - sum(widths.values()) - len(_GAP) * len(widths)
    has_bars = left >= _NAME + len(_GAP) + _BAR
    room = left - len(_GAP) - _BAR if has_bars else left
    name_width = max(1, min(room, max(columns(_name(row)) for row in rows(report))))
    bar_width = min(_LONGEST_BAR, left - name_width - len(_GAP)) if has_bars else 0

    def line(name: str, cells: "Mapping[Field, str]") -> str:
        numbers = (cells[field].rjust(size) for field, size in widths.items())
        return _GAP.join((pad(truncate_start(name, name_width), name_width), *numbers))

    measure: Field = "cost" if report.total["cost"] else "total"
    for head, section in (("day", report.days), ("model", report.models)):
        yield _styled(line(head, heads), "1", on=look.styles)
        most = max(row[measure] or 0 for row in section)
        for row in section:
            text = line(_name(row), _cells(row))
            bar = _bar(row[measure] or 0, most, bar_width)
            yield f"{text}{_GAP}{_styled(bar, '35', on=look.colors)}" if bar else text.rstrip()
        yield ""
    yield _styled(line("total", _cells(report.total)).rstrip(), "1", on=look.styles)
    prompt = report.total["prompt"]
    cached = report.total["cached_tokens"]
    if prompt and cached:
        yield f"read from caches: {100 * cached / prompt:.0f} % of the prompts"
    if report.total["unpriced"]:
        at_least = "" if report.total["cost"] is None else " (+: at least)"
        yield f"unknown prices: {report.total['unpriced']:,}{at_least}"


def _cells(row: Row) -> "dict[Field, str]":
    cells: dict[Field, str] = {}
    for field in FIELDS:
        number = row[field]
        cells[field] = "-" if number is None else _short(number)
    cells["cost"] = _usd(row["cost"], is_minimum=row["unpriced"] > 0)
    return cells


def _usd(cost: float | None, *, is_minimum: bool) -> str:
    """The cost with four digits, then ``+`` for a minimum or a blank, so that the digits align."""
    if cost is None:
        return "- "
    if 0 < cost < _SHOWN and not is_minimum:
        return "<0.0001 "
    return f"{cost:,.4f}{'+' if is_minimum else ' '}"


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


def _styled(text: str, code: str, *, on: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if on else text


def _name(row: Row) -> str:
    """The day or the model of a row: ``?`` for an unknown model, ``all`` for the total."""
    name = row.get("day", "all") if "model" not in row else row["model"] or ""
    return one_line(name) or "?"
