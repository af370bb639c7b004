"""Print ``--usage``: choose the sessions, show a progress bar, then a table or JSON. ``core/usage.py`` sums."""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gptsh.core import listing, session_files, sessions
from gptsh.core.listing import Unreadable
from gptsh.manage import lists
from gptsh.manage.lists import Filters
from gptsh.terminal import stdio
from gptsh.terminal.stdio import STRUCTURED, look

if TYPE_CHECKING:
    from gptsh.core.usage import Days, Report

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
    from gptsh.render.usage_table import drawn, plain

    out = stdio.stdout()
    is_rendered = stdio.is_terminal(out) and output != "text"
    lines = drawn(report, stdio.width(out), look(os.environ, terminal=True)) if is_rendered else plain(report)
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
            item = listing.try_read(path, session_files.read_days)
            if isinstance(item, Unreadable):
                spinner.hide()
                stdio.note(f"skipped {item.path}: {item.cause}")
                spinner.show()
            elif item is not None:
                head, days = item
                row = listing.summary_of(head, None, os.path.basename(path))
                if lists.matches_filters(filters, here, row["agent"], row["project"], row["tags"]):
                    yield days
