"""What a search has found: a session's line as lists have it, and under it the passage with the words."""

from gptsh.core.search import Found
from gptsh.render.look import Look
from gptsh.render.plain import listing_line
from gptsh.text import visible

INDENT = "    "  # of the passage, under the line of its session
_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[1;31m", "\x1b[0m"


def plain(item: Found) -> str:
    """Two lines, without marks."""
    return f"{listing_line(item)}\n{INDENT}{item['match']}"


def drawn(item: Found, look: Look) -> str:
    """The same, safe for a terminal, the words marked as far as it can."""
    begin, end = (_RED if look.colors else _BOLD, _PLAIN) if look.styles else ("", "")
    match, at, pieces = item["match"], 0, []
    for first, behind in item["marks"]:
        pieces += [visible(match[at:first]), begin, visible(match[first:behind]), end]
        at = behind
    return f"{visible(listing_line(item))}\n{INDENT}{''.join(pieces)}{visible(match[at:])}"
