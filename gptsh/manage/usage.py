"""Draw the rows of ``--usage``: a table with bars, plain lines or JSON."""

import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

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
# Print ``--usage``: choose the sessions, show a progress bar, then a table or JSON.
# ``core/usage.py`` sums.

_BAR_WIDTH = 20  # columns
_BAR_STEP = 100  # sessions that are counted before the bar changes


def show_usage(ref: str | None, filters: Filters, output: str | None) -> int:
    """Print tokens and cost by day and by model, of one session or of those that match: a table, or JSON."""
    from gptsh.core import usage

    report = usage.count(counted(ref, filters), filters.model, filters.limit)
    if not report.models and (note := lists.nothing_found(filters)):
        stdio.note(note)
    if output in STRUCTURED:
        from gptsh.render import structured

        stdio.write_lines(map(structured.line, usage.rows(report) if output == "jsonl" else [report._asdict()]))
        return 0
    draw_usage(report, output)
    return 0


def draw_usage(report: "Report", output: str | None) -> None:
    """Print tokens and cost as a table."""

    out = stdio.stdout()
    is_rendered = stdio.is_terminal(out) and output != "text"
    lines = drawn(report, stdio.width(out), terminal_style(os.environ, terminal=True)) if is_rendered else plain(report)
    stdio.write_lines(lines, safe=is_rendered)


def counted(ref: str | None, filters: Filters) -> Iterator["Days"]:
    """What the session used, or each of those that match; a terminal shows a bar of how many are done."""
    from gptsh.core import usage
    from gptsh.render.writer import Spinner

    if ref:
        yield usage.sums_by_day(sessions.load_at(ref))
        return
    here = lists.current_project() if filters.here else None
    paths = listing.all_paths()
    screen = stdio.Sink(sys.stderr) if stdio.shows_frames(sys.stderr) else None
    with Spinner(screen, lambda: stdio.width(sys.stderr), "") as spinner:
        for number, path in enumerate(paths):
            if number % _BAR_STEP == 0:
                bar = "█" * (number * _BAR_WIDTH // len(paths))
                spinner.set_text(f"counting sessions {bar:░<{_BAR_WIDTH}} {number:,} of {len(paths):,}")
            item = listing.try_read(path, usage.read_days)
            if isinstance(item, Unreadable):
                spinner.hide()
                stdio.note(f"skipped {item.path}: {item.cause}")
                spinner.show()
            elif item is not None:
                head, days = item
                row = listing.summary_of(head, None, os.path.basename(path))
                if lists.matches_filters(filters, here, row["agent"], row["project"], row["tags"]):
                    yield days


# ---- usage table
#
# Tokens and cost of each day and model as a table: on a terminal with bars, in a pipe plain
# (--usage).

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
    by, name, *widths = [max(map(columns, column)) for column in zip(*table, strict=True)]
    for cells in table:
        numbers = (cell.rjust(width) for cell, width in zip(cells[2:], widths, strict=True))
        yield _GAP.join((pad(cells[0], by), pad(cells[1], name), *numbers))


def _plain_cells(row: Row) -> tuple[str, ...]:
    cells = {field: "-" if row[field] is None else str(row[field]) for field in FIELDS}
    if row["cost"] is not None:
        cells["cost"] = f"{row['cost']:.6f}{'+' if row['unpriced'] else ''}"
    return (row["by"], _name(row).replace(" ", "␣"), *cells.values())


# ---- on a terminal


class _Widths(NamedTuple):
    """The columns of a table: of a name, of each field that is shown, and of the longest bar (0: there are none)."""

    name: int
    fields: "Mapping[Field, int]"
    bar: int

    def line(self, name: str, cells: "Mapping[Field, str]") -> str:
        """A name and its cells, aligned."""
        padded = pad(truncate_start(name, self.name), self.name)
        return _GAP.join((padded, *(cells[field].rjust(size) for field, size in self.fields.items())))


_HEAD: "Mapping[Field, str]" = {field: _HEADS.get(field, field) for field in FIELDS}


def drawn(report: Report, width: int, look: TerminalStyle) -> Iterator[str]:
    """Lines that are safe for a terminal, and at most ``width`` columns wide if that is 40 or more."""
    if not report.days:
        yield "no answers"
        return
    widths = _fit(report, width)
    measure: Field = "cost" if report.total["cost"] else "total"
    for head, section in (("day", report.days), ("model", report.models)):
        yield _styled(widths.line(head, _HEAD), "1", on=look.styles)
        most = max(row[measure] or 0 for row in section)
        for row in section:
            line = widths.line(_name(row), _cells(row))
            bar = _bar(row[measure] or 0, most, widths.bar)
            yield f"{line}{_GAP}{_styled(bar, '35', on=look.colors)}" if bar else line.rstrip()
        yield ""
    yield _styled(widths.line("total", _cells(report.total)).rstrip(), "1", on=look.styles)
    prompt, cached = report.total["prompt"], report.total["cached_tokens"]
    if prompt and cached:
        yield f"read from caches: {100 * cached / prompt:.0f} % of the prompts"
    if report.total["unpriced"]:
        at_least = "" if report.total["cost"] is None else " (+: at least)"
        yield f"unknown prices: {report.total['unpriced']:,}{at_least}"


def _fit(report: Report, width: int) -> _Widths:
    """Fit the table into ``width`` columns: first the fields, then the names, then bars."""
    table = [_HEAD, *(_cells(row) for row in rows(report))]
    shown = [field for field in FIELDS if width >= _MIN_WIDTH.get(field, 0)]
    fields = {field: max(len(cells[field]) for cells in table) for field in shown}
    left = width - sum(fields.values()) - len(_GAP) * len(fields)
    longest = max(columns(_name(row)) for row in rows(report))
    if left < _NAME + len(_GAP) + _BAR:
        return _Widths(max(1, min(longest, left)), fields, 0)
    name = max(1, min(longest, left - len(_GAP) - _BAR))
    return _Widths(name, fields, min(_LONGEST_BAR, left - name - len(_GAP)))


def _cells(row: Row) -> "dict[Field, str]":
    cells: dict[Field, str] = {}
    for field in FIELDS:
        number = row[field]
        if field == "cost":
            cells[field] = _usd(number, more=row["unpriced"] > 0)
        else:
            cells[field] = "-" if number is None else _short(number)
    return cells


def _usd(cost: float | None, *, more: bool) -> str:
    """The cost with four digits, then ``+`` for a minimum or a blank, so that the digits align."""
    if cost is None:
        return "- "
    if 0 < cost < _SHOWN and not more:
        return "<0.0001 "
    return f"{cost:,.4f}{'+' if more else ' '}"


def _short(number: float) -> str:
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
