"""List sessions, newest first, and those whose messages have some words."""

import os
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from gptsh.core.folders import conflict_copies, sessions_folder
from gptsh.manage import lists
from gptsh.manage.lists import Filters
from gptsh.render.lists import INDENT, found_drawn, found_lines, listing_line
from gptsh.terminal import stdio
from gptsh.terminal.stdio import STRUCTURED, look

if TYPE_CHECKING:
    from gptsh.core.search import Found

_MIN_WIDTH = 40  # columns for the passage of a found session, even on a narrower terminal


def list_sessions(filters: Filters, output: str | None) -> int:
    """Print a line for each session that matches the filters; an unreadable one gets a note."""
    none_yet = "no session is archived" if filters.archived else 'there is no session yet: gptsh "hello" starts one'
    items = lists.or_note(lists.matching_sessions(filters), lists.nothing_found(filters, none_yet))
    stdio.write_lines(lists.batches(lists.lines_of(items, listing_line, lists.session_object, output)))
    if stdio.is_terminal(stdio.stdout()):
        _note_conflict_copies()
    return 0


def _note_conflict_copies() -> None:
    """Print a note if a sync tool left other versions of sessions beside them."""
    folder = sessions_folder()
    names = conflict_copies(folder)
    if names:
        count = "a conflict copy" if len(names) == 1 else f"{len(names):,} conflict copies"
        stdio.note(f"a sync tool left {count}, to be joined with gptsh --import-session: see {folder}")


def search_sessions(words: str, filters: Filters, output: str | None) -> int:
    """Print two lines for each session that contains the words and matches the filters; return 1 if there is none."""
    items = lists.or_note(found_sessions(words, filters), lists.nothing_found(filters))
    first = next(items, None)
    on_terminal = stdio.is_terminal(stdio.stdout())
    style = look(os.environ, terminal=on_terminal)
    is_rendered = (on_terminal or style.styles) and output not in ("text", *STRUCTURED)
    line = partial(found_drawn, look=style) if is_rendered else found_lines
    found = chain(() if first is None else (first,), items)
    stdio.write_lines(lists.batches(lists.lines_of(found, line, lists.session_object, output)), safe=is_rendered)
    return 1 if first is None else 0


def found_sessions(words: str, filters: Filters) -> Iterator["Found"]:
    """The sessions that contain the words and match the filters, each with a passage of one line."""
    from gptsh.core.search import search

    room = max(_MIN_WIDTH, stdio.width(stdio.stdout())) - len(INDENT)
    return lists.filter_sessions(filters, search(words, room, archived=filters.archived))
