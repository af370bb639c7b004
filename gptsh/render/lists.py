"""Lines for users: lists, search results, what would be sent."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gptsh.content.attachments import media_in, name_of
from gptsh.core.listing import SessionSummary, display_title
from gptsh.messages import Tool
from gptsh.render.plain import Look
from gptsh.text import local_time, one_line, quantity, visible

if TYPE_CHECKING:
    from gptsh.content.answer import Request
    from gptsh.core.search import Found

_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[1;31m", "\x1b[0m"
INDENT = "    "  # before the matching passage, under the line of its session


# ---- lists


def listing_line(summary: SessionSummary, *, aligned: bool = False) -> str:
    """``[index] id yyyy-MM-dd HH:mm title (agent|model)``, always one line; ``[-]`` for an archived one.

    Without a title it has the first question in quotes. ``aligned`` makes columns, for a terminal.
    """
    index = f"[{'-' if summary['index'] is None else summary['index']}]"
    fork = f" [fork of {summary['forked_from']}]" if summary["forked_from"] else ""
    title = display_title(summary["title"], summary["preview"])
    what = f"{title}{fork} ({summary['agent'] or '?'}|{summary['model'] or '?'})"
    return f"{index:<{4 if aligned else 0}} {summary['id']} {local_time(summary['updated_at'])} {one_line(what)}"


def model_line(item: Mapping[str, Any]) -> str:
    """A model, its API, its window in tokens, its prices in USD per million input and output tokens; - if unknown."""
    prices = (item["price_in"], item["price_out"])
    price_in, price_out = ("-" if price is None else f"{1e6 * price:.2f}" for price in prices)
    line = f"{one_line(item['model']):<44} {item['api']:<7} {item['window'] or '-':>8} {price_in:>8} {price_out:>8}"
    return f"{line}  repeats the question, without key or network" if item["api"] == "echo" else line


def agent_line(name: str, model: str | None, default: bool) -> str:
    """An agent and its model, with a star if it is the default."""
    what = one_line(f"{name} ({model or 'no model'})")
    return f"{'*' if default else ' '} {what}"


def tool_line(tool: Tool) -> str:
    """A tool's name and the first line of its description."""
    summary = tool.description.strip().partition("\n")[0]
    return one_line(tool.name) + (f"  {one_line(summary)}" if summary else "")


def found_lines(item: "Found") -> str:
    """A search result: the line of the session, and under it the matching passage."""
    return f"{listing_line(item)}\n{INDENT}{item['match']}"


def found_drawn(item: "Found", look: Look) -> str:
    """A search result that is safe for a terminal, the words highlighted if ``look`` allows it."""
    marked, plain = (_RED if look.colors else _BOLD, _PLAIN) if look.styles else ("", "")
    match, at, pieces = item["match"], 0, []
    for start, end in item["marks"]:
        pieces += [visible(match[at:start]), marked, visible(match[start:end]), plain]
        at = end
    return f"{visible(listing_line(item))}\n{INDENT}{''.join(pieces)}{visible(match[at:])}"


# ---- what is sent


def context_lines(api: str, report: Mapping[str, Any], request: "Request") -> Iterator[str]:
    """What would be sent, a line for each fact and each attachment; the tokens are those of the messages."""
    yield f"model       {one_line(request.model)}"
    yield f"api         {api}"
    yield f"window      {_tokens(report['window'])}"
    yield f"budget      {_tokens(report['budget'])}"
    yield f"tokens      ~{report['tokens']:,} ({report['at_most']:,} at most)"
    yield f"strategy    {report['strategy']}"
    for key in ("included", "summarized", "left_out"):
        yield f"{key.replace('_', ' '):<11} {quantity(report[key], 'message')}"
    if request.tools:
        from gptsh.context.tokens import count_tools  # noqa: PLC0415 - a list counts none

        yield f"tools       {len(request.tools)}, their definitions ~{count_tools(request.tools):,} tokens"
    for part, media in (found for message in request.messages for found in media_in(message)):
        yield f"attached    {one_line(' '.join(filter(None, (name_of(part), str(media)))))}"


def compaction_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """What a compaction changes in what is sent, a line for each fact."""
    counts = f"{report['included']:,} as they are, {report['summarized']:,} summarized, {report['left_out']:,} left out"
    yield f"session     {report['session'] or 'not on disk'}"
    yield f"strategy    {report['strategy']}{'' if report['changes'] else ', as now: nothing would be shorter'}"
    yield f"messages    {counts}"
    yield f"tokens      ~{report['before']:,} -> ~{report['after']:,}"
    yield f"budget      {_tokens(report['budget'])}"


def _tokens(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,} tokens"
