"""List and search sessions: apply the filters, print the lines or JSON."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, TypeVar

from gptsh.core import listing
from gptsh.core.folders import conflict_copies, sessions_folder
from gptsh.core.listing import SessionSummary, Unreadable, find_project
from gptsh.errors import GptshError, OutputError, UsageError
from gptsh.messages import full_name, matches_model
from gptsh.render.lists import (
    INDENT,
    found_lines,
    found_rows,
    listing_line,
    listing_row,
)
from gptsh.terminal import stdio
from gptsh.terminal.stdio import PLAIN, STRUCTURED, terminal_style
from gptsh.text import columns, local_time, visible

if TYPE_CHECKING:
    from gptsh.core.search import Found


# ---- what all lists share

Item = TypeVar("Item")
Session = TypeVar("Session", bound=SessionSummary)
_WRITE_INTERVAL = 0.05  # seconds


class Filters(NamedTuple):
    """Which sessions a list has.

    These are the sessions of an ``agent``, with this in the name of their ``model``, with all
    ``tags``, of this project (``here``), last used at ``since`` or later; at most ``limit``.
    ``archived`` lists the archive instead.
    """

    agent: str | None = None
    model: str | None = None
    tags: tuple[str, ...] = ()
    here: bool = False
    archived: bool = False
    limit: int | None = None
    since: datetime | None = None


def lines_of(
    items: Iterable[Item],
    line: Callable[[Item], str],
    fields: Callable[[Item], Mapping[str, object]],
    output: str | None,
) -> Iterator[str]:
    """Return the lines of a list: by ``line`` for users, by ``fields`` for json and jsonl."""
    if output not in STRUCTURED:
        return map(line, items)
    from gptsh.render import structured

    return structured.listing(map(fields, items), output)


def show(lines: Iterable[str], output: str | None, *, safe: bool = False) -> None:
    """Print the lines of a list; on a terminal in the pager if they need more than a screen.

    ``safe``: they have no control characters but escape sequences for a terminal.
    """
    out = stdio.stdout()
    if output in STRUCTURED or not stdio.is_terminal(out):
        stdio.write_lines(lines, safe=safe)
        return
    width, height = stdio.size(out)
    rest = iter(lines if safe else map(visible, lines))
    printed: list[str] = []
    free = height - 1  # rows beside that of the shell's prompt
    try:
        for line in rest:
            printed.append(line)
            free -= _rows_of(line, width)
            if free < 0:
                break
    finally:
        fits_screen = free >= 0
        if fits_screen:  # even before an error, or Ctrl-C during a long search
            stdio.write_lines(printed, safe=True)
    if fits_screen:
        return

    def all_lines() -> Iterator[str]:
        yield from printed
        for line in rest:
            printed.append(line)  # for stdout, if the pager cannot run
            yield line

    from gptsh.terminal import programs

    programs.show_in_pager(all_lines)


def _rows_of(line: str, width: int) -> int:
    """Return at most how many rows of a terminal a line needs: escape sequences count, too."""
    rows = 0
    for row in line.split("\n"):
        rows += 1 + columns(row) // width
    return rows


def shows_rows(output: str | None) -> bool:
    """Return whether a list is drawn for a terminal with colours, a row for each item."""
    return stdio.shows_colors(stdio.stdout()) and output not in ("text", *STRUCTURED)


class ChangeWriter(Generic[Item]):
    """Writes a line for each change to stdout; the changes are made in a ``with`` block.

    If stdout cannot be written, the block goes on, and its end raises the error.
    ``interruptible``: a wait for a slow reader can be interrupted inside a shield.
    """

    def __init__(
        self,
        line: Callable[[Item], str],
        fields: Callable[[Item], Mapping[str, object]],
        output: str | None,
        *,
        interruptible: bool = False,
    ) -> None:
        self._line = line  # for users
        self._fields = fields  # for json and jsonl
        self._output = output
        self._interruptible = interruptible
        self._has_items = False  # in the JSON array
        self._can_write = True
        self._error: BrokenPipeError | OutputError | None = None

    def __enter__(self) -> Self:
        return self

    def write(self, change: Item) -> None:
        """Write the line of a change, unless stdout has failed."""
        if not self._can_write:
            return
        self._can_write = False  # unless this write succeeds; a signal may end it, too
        try:
            self._write(self._text(change))
        except (BrokenPipeError, OutputError) as err:
            self._error = err
        else:
            self._can_write = True

    def __exit__(self, _type: object, err: BaseException | None, _trace: object) -> None:
        """End the JSON, unless a signal ended the block. Raises the error of stdout."""
        if err is None and self._error:
            raise self._error
        if self._output != "json" or not self._can_write:
            return
        if err is None:
            self._write("]" if self._has_items else "[]")
        elif isinstance(err, GptshError) and self._has_items:
            self._write("]")
            err.reported = True

    def _text(self, change: Item) -> str:
        if self._output not in STRUCTURED:
            return self._line(change)
        from gptsh.render import structured

        text = structured.line(self._fields(change))
        if self._output == "json":
            text = f",{text}" if self._has_items else f"[{text}"
            self._has_items = True
        return text

    def _write(self, line: str) -> None:
        stdio.write_lines([line], interruptible=self._interruptible)


def batches(lines: Iterable[str]) -> Iterator[str]:
    """Join the lines of a long list that arrive within 50 ms: one write for many lines."""
    batch: list[str] = []
    last_write = 0.0
    for line in lines:
        batch.append(line)
        if time.monotonic() > last_write + _WRITE_INTERVAL:
            yield "\n".join(batch)
            batch.clear()
            last_write = time.monotonic()
    if batch:
        yield "\n".join(batch)


def session_object(item: SessionSummary) -> dict[str, object]:
    """Return a listed or found session for programs."""
    return {key: value for key, value in item.items() if key not in ("filename", "marks")}


def matching_sessions(filters: Filters) -> Iterator[SessionSummary]:
    """Return the sessions that match the filters, read one by one; note each unreadable one."""
    return filter_sessions(filters, listing.scan_sessions(archived=filters.archived))


def filter_sessions(filters: Filters, items: Iterable[Session | Unreadable]) -> Iterator[Session]:
    """Return the items that match the filters, up to the limit; unreadable ones get a note.

    Raises UsageError as ``current_project`` does.
    """
    project = current_project() if filters.here else None
    matching = (item for item in _readable(items) if _is_match(filters, project, item))
    return islice(matching, filters.limit)


def _readable(items: Iterable[Session | Unreadable]) -> Iterator[Session]:
    """Yield the sessions that could be read; print a note for each other one."""
    for item in items:
        if isinstance(item, Unreadable):
            stdio.note(f"skipped {item.path}: {item.cause}")
        else:
            yield item


def _is_match(filters: Filters, project: str | None, item: SessionSummary) -> bool:
    """Return whether a session matches all filters; ``project`` is that of the filters."""
    if not matches_filters(filters, project, item):
        return False
    if not matches_model(full_name(item["model"], item["provider"]), filters.model):
        return False
    if filters.since is None:
        return True
    used = listing.used_at(item)  # None if the session's time is not valid
    return used is not None and used >= filters.since


def matches_filters(filters: Filters, project: str | None, item: SessionSummary) -> bool:
    """Return whether a session's agent, project and tags match.

    ``project`` is that of the filters.
    """
    if filters.agent is not None and item["agent"] != filters.agent:
        return False
    if project is not None and item["project"] != project:
        return False
    return set(filters.tags) <= set(item["tags"])


def or_note(items: Iterable[Item], text: str) -> Iterator[Item]:
    """Yield the items of a list; if there are none, print a note, unless its text is empty."""
    is_empty = True
    for item in items:
        is_empty = False
        yield item
    if is_empty and text:
        stdio.note(text)


def nothing_found(filters: Filters, without_filters: str = "") -> str:
    """Return the note on an empty list of sessions, such as ``nothing found with the tag work``.

    Return "" if the limit is 0.
    """
    if filters.limit == 0:
        return ""
    words = [f"with the tag {tag}" for tag in filters.tags]
    if filters.agent:
        words.append(f"with the agent {filters.agent}")
    if filters.model:
        words.append(f"with a model like {filters.model}")
    if filters.here:
        words.append("in this project")
    if filters.since:
        words.append(f"since {local_time(filters.since.isoformat())}")
    return f"nothing found {', '.join(words)}" if words else without_filters


def current_project() -> str:
    """Return the project of the working directory. Raises UsageError if that was deleted."""
    try:
        return find_project(os.getcwd())
    except FileNotFoundError as err:
        raise UsageError("the working folder no longer exists") from err


# ---- --list-sessions and --search-sessions

_MIN_WIDTH = 40  # columns for the passage of a found session, even on a narrower terminal


def list_sessions(filters: Filters, output: str | None) -> int:
    """Print a line for each session that matches the filters; an unreadable one gets a note."""
    none_yet = 'there is no session yet: gptsh "hello" starts one'
    if filters.archived:
        none_yet = "no session is archived"
    items = or_note(matching_sessions(filters), nothing_found(filters, none_yet))
    lines = lines_of(items, session_line(output), session_object, output)
    show(batches(lines), output, safe=shows_rows(output))
    if stdio.is_terminal(stdio.stdout()):
        folder = sessions_folder()
        copies = len(conflict_copies(folder))
        if copies:
            count = "a conflict copy" if copies == 1 else f"{copies:,} conflict copies"
            stdio.note(f"a sync tool left {count} in {folder}; gptsh --import-session joins them")
    return 0


def session_line(output: str | None, margin: int = 0) -> Callable[[SessionSummary], str]:
    """Return what writes the line of a session, after a margin of so many columns."""
    if not shows_rows(output):
        return listing_line
    return partial(listing_row, width=stdio.width(stdio.stdout()) - margin)


def found_line(output: str | None) -> Callable[["Found"], str]:
    """Return what writes a search result, safe for a terminal."""
    out = stdio.stdout()
    if shows_rows(output):
        return partial(found_rows, width=stdio.width(out))
    style = PLAIN
    if output != "text":
        style = terminal_style(os.environ, terminal=stdio.is_terminal(out))
    return partial(found_lines, style=style)


def search_sessions(words: str, filters: Filters, output: str | None) -> int:
    """Print two lines for each session that contains the words and matches; return 1 for none."""
    items = or_note(found_sessions(words, filters), nothing_found(filters))
    first = [*islice(items, 1)]
    lines = lines_of(chain(first, items), found_line(output), session_object, output)
    show(batches(lines), output, safe=output not in STRUCTURED)
    return 0 if first else 1


def found_sessions(words: str, filters: Filters) -> Iterator["Found"]:
    """Return the sessions that contain the words and match the filters, each with a passage."""
    from gptsh.core.search import search

    width = max(_MIN_WIDTH, stdio.width(stdio.stdout())) - len(INDENT)
    return filter_sessions(filters, search(words, width, archived=filters.archived))
