"""Write the lines of lists: of sessions, search results, models, agents, tools, sources."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gptsh.core.listing import SessionSummary, display_title
from gptsh.messages import Tool
from gptsh.terminal.stdio import TerminalStyle
from gptsh.text import format_size, local_time, one_line, pad, visible

if TYPE_CHECKING:
    from gptsh.core.search import Found


_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[1;31m", "\x1b[0m"
INDENT = "    "  # before the matching passage, under the line of its session


def listing_line(summary: SessionSummary) -> str:
    """Return ``[index] id yyyy-MM-dd HH:mm title (agent|model)``; ``[-]`` for an archived session.

    Without a title it has the first question in quotes. ``[@NAME]`` and ``[fork of ID@POINT]``
    are at the end.
    """
    index = f"[{'-' if summary['index'] is None else summary['index']}]"
    names = "".join(f" [{name}]" for name in summary["names"])
    fork = f" [fork of {summary['forked_from']}]" if summary["forked_from"] else ""
    title = display_title(summary["title"], summary["preview"])
    what = f"{title} ({summary['agent'] or '?'}|{summary['model'] or '?'}){names}{fork}"
    return f"{index} {summary['id']} {local_time(summary['updated_at'])} {one_line(what)}"


def model_line(item: Mapping[str, Any]) -> str:
    """Return a model, its API, its window in tokens, its prices; - if unknown.

    The prices are USD per million input and output tokens. Then what it stands for, or its size
    and whether it is loaded.
    """
    prices = (item["price_in"], item["price_out"])
    price_in, price_out = ("-" if price is None else f"{1e6 * price:.2f}" for price in prices)
    name = pad(one_line(item["model"]), 44)
    line = f"{name} {item['api']:<7} {item['window'] or '-':>8} {price_in:>8} {price_out:>8}"
    if item["alias_of"]:
        return f"{line}  = {one_line(item['alias_of'])}"
    size = format_size(item["size"]) if item["size"] else ""
    if state := ", ".join(filter(None, (size, "loaded" if item["loaded"] else ""))):
        return f"{line}  {state}"
    if item["api"] == "echo":
        return f"{line}  repeats the question, without key or network"
    return line


def agent_line(name: str, model: str | None, default: bool, names: Sequence[str] = ()) -> str:
    """An agent, its model and the ``{names}`` of its prompt, with a star if it is the default."""
    words = [f"{name} ({model or 'no model'})", *(f"{{{each}}}" for each in names)]
    return f"{'*' if default else ' '} {one_line(' '.join(words))}"


def tool_line(tool: Tool) -> str:
    """A tool's name and the first line of its description."""
    summary = tool.description.strip().partition("\n")[0]
    return one_line(tool.name) + (f"  {one_line(summary)}" if summary else "")


def source_lines(pages: Mapping[str, str | None]) -> Iterator[str]:
    """A line for each page that an answer cites, numbered in order; ``pages`` are titles by URL."""
    for number, (url, title) in enumerate(pages.items(), start=1):
        yield one_line(f"[{number}] {title} {url}" if title else f"[{number}] {url}")


def found_lines(item: "Found") -> str:
    """A search result: the line of the session, and under it the matching passage."""
    return f"{listing_line(item)}\n{INDENT}{visible(item['match'])}"


def found_drawn(item: "Found", look: TerminalStyle) -> str:
    """A search result, the words highlighted if ``look`` allows it."""
    if not look.styles:
        return found_lines(item)
    style = _RED if look.colors else _BOLD
    match = item["match"]
    drawn = ""
    at = 0
    for start, end in item["marks"]:
        drawn += f"{visible(match[at:start])}{style}{visible(match[start:end])}{_PLAIN}"
        at = end
    return f"{listing_line(item)}\n{INDENT}{drawn}{visible(match[at:])}"
