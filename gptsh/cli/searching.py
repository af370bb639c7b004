"""Sessions that have all the words of a search."""

import os
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from gptsh.cli import stdio
from gptsh.cli.lists import filtered, lines_of, session_object, together
from gptsh.cli.options import Flags
from gptsh.config.forms import STRUCTURED
from gptsh.core.search import Found, search
from gptsh.render.lists import INDENT, found_drawn, found_lines
from gptsh.render.plain import look

_NARROWEST = 40  # columns that a match is not made to fit into


def search_sessions(flags: Flags) -> int:
    """Print two lines for each session that is found and that the filters let through, as it is found.

    The exit code: 1 when there is none.
    """
    items = found_sessions(flags)
    first = next(items, None)
    line, safe = _lines(flags)
    every = chain(() if first is None else (first,), items)
    stdio.write_lines(together(lines_of(flags, every, line, _object)), safe=safe)
    return 1 if first is None else 0


def found_sessions(flags: Flags) -> Iterator[Found]:
    """The sessions that are found, with a passage that fits into a line, as they are found."""
    room = max(_NARROWEST, stdio.width(stdio.answers_to())) - len(INDENT)
    return filtered(flags, search(flags.search_sessions or "", room, archived=flags.archived))


def _lines(flags: Flags) -> tuple[Callable[[Found], str], bool]:
    """How a session that was found is shown, and whether a terminal may take that as it is."""
    terminal = stdio.is_terminal(stdio.answers_to())
    style = look(os.environ, terminal=terminal)
    if flags.output == "text" or flags.output in STRUCTURED or not (terminal or style.styles):
        return found_lines, False
    return lambda item: found_drawn(item, style), True


def _object(item: Found) -> dict[str, Any]:
    """What a list for programs has of a session, and the passage that was found."""
    return {key: value for key, value in session_object(item).items() if key != "marks"}
