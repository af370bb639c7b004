"""Write the lines of lists: of sessions, search results, models, agents, tools, sources."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import groupby
from typing import TYPE_CHECKING, Any

from gptsh.core.listing import SessionSummary, display_title
from gptsh.messages import Tool
from gptsh.terminal.stdio import BOLD, DIM, ERROR, TerminalStyle, styled
from gptsh.text import columns, format_size, local_time, one_line, pad, truncate_end, visible

if TYPE_CHECKING:
    from gptsh.core.search import Found


INDENT = "    "  # before the matching passage, under the line of its session
_TITLE = 20  # columns that a title keeps; what follows it gives way
# Marks of Markdown that a passage is easier to read without.
_MARKS = re.compile(r"(?<!\w)\*{1,3}(?=\S)|(?<=\S)\*{1,3}(?!\w)|`+|(?<!\S)#{1,6} ")


# ---- sessions


def listing_line(summary: SessionSummary) -> str:
    """Return ``[index] id yyyy-MM-dd HH:mm title (agent|model)``; ``[-]`` for an archived session.

    Without a title it has the first question in quotes. ``[@NAME]`` and ``[fork of ID@POINT]``
    are at the end.
    """
    index, ident, date, title, rest = _parts(summary)
    return f"{index} {ident} {date} {one_line(f'{title} {rest}')}"


def listing_row(summary: SessionSummary, width: int) -> str:
    """Return the line for a terminal with colours, cut to ``width`` columns: first the title."""
    index, ident, date, title, rest = _parts(summary)
    title, rest = one_line(title), one_line(rest)
    room = width - columns(f"{index} {ident} {date}  ")
    title = truncate_end(title, max(_TITLE, room - columns(rest)))
    rest = truncate_end(rest, room - columns(title))
    head = f"{styled(index, DIM)} {ident} {styled(date, DIM)}"
    return f"{head} {styled(title, BOLD)} {styled(rest, DIM)}".rstrip()


def _parts(summary: SessionSummary) -> tuple[str, str, str, str, str]:
    """Return index, id, date, title, and what follows the title."""
    index = f"[{'-' if summary['index'] is None else summary['index']}]"
    names = "".join(f" [{name}]" for name in summary["names"])
    fork = f" [fork of {summary['forked_from']}]" if summary["forked_from"] else ""
    title = display_title(summary["title"], summary["preview"])
    rest = f"({summary['agent'] or '?'}|{summary['model'] or '?'}){names}{fork}"
    return index, summary["id"], local_time(summary["updated_at"]), title, rest


def found_lines(item: "Found") -> str:
    """A search result: the line of the session, and under it the matching passage."""
    return f"{listing_line(item)}\n{INDENT}{visible(item['match'])}"


def found_drawn(item: "Found", look: TerminalStyle) -> str:
    """A search result, the words highlighted if ``look`` allows it."""
    if not look.styles:
        return found_lines(item)
    passage = _passage(item, ERROR if look.colors else BOLD)
    return f"{listing_line(item)}\n{INDENT}{passage}"


def found_rows(item: "Found", width: int) -> str:
    """A search result for a terminal with colours: without the marks of Markdown, the words bold.

    ``width``: see ``listing_row``.
    """
    match = item["match"]
    marks = {at for mark in _MARKS.finditer(match) for at in range(*mark.span())}
    for start, end in item["marks"]:
        marks -= {*range(start, end)}
    speaker = match.partition(": ")[0]
    passage = _passage(item, BOLD, marks, len(speaker) + 2)
    return f"{listing_row(item, width)}\n{INDENT}{styled(visible(f'{speaker}:'), DIM)} {passage}"


def _passage(item: "Found", style: str, hidden: Set[int] = frozenset(), at: int = 0) -> str:
    """The passage of a search result from a position on, its words in a style."""
    match = item["match"]

    def shown(start: int, end: int) -> str:
        return visible("".join(match[at] for at in range(start, end) if at not in hidden))

    drawn = ""
    for start, end in item["marks"]:
        drawn += f"{shown(at, start)}{styled(shown(start, end), style)}"
        at = end
    return f"{drawn}{shown(at, len(match))}"


# ---- models, agents, tools, sources


def model_line(item: Mapping[str, Any]) -> str:
    """Return a model, its API, its window in tokens, its prices; - if unknown.

    The prices are USD per million input and output tokens. Then what it stands for, or its size
    and whether it is loaded.
    """
    prices = (item["price_in"], item["price_out"])
    price_in, price_out = ("-" if price is None else f"{1e6 * price:.2f}" for price in prices)
    name = pad(one_line(item["model"]), 44)
    line = f"{name} {item['api']:<7} {item['window'] or '-':>8} {price_in:>8} {price_out:>8}"
    if remark := _remark(item):
        return f"{line}  {remark}"
    if item["api"] == "echo":
        return f"{line}  repeats the question, without key or network"
    return line


def _remark(item: Mapping[str, Any]) -> str:
    """What a model stands for, or its size and whether it is loaded."""
    if item["alias_of"]:
        return f"= {one_line(item['alias_of'])}"
    size = format_size(item["size"]) if item["size"] else ""
    return ", ".join(filter(None, (size, "loaded" if item["loaded"] else "")))


def model_table(items: Iterable[Mapping[str, Any]], width: int) -> Iterator[str]:
    """Yield models as a table for a terminal with colours, at most ``width`` columns wide.

    A blank line separates the providers. A name that is too long for its column stays whole.
    """
    items = sorted(items, key=lambda item: _provider(item["model"]))
    if not items:
        return
    heads = ("model", "api", "window", "$/M in", "$/M out")
    rows = []
    for item in items:
        prices = ["-" if item[key] is None else f"{1e6 * item[key]:.2f}" for key in _PRICES]
        name = one_line(item["model"])
        rows.append((name, item["api"], _window(item["window"]), *prices, _remark(item)))
    cells_of_rows = [row[:-1] for row in rows]
    sizes = [max(map(columns, column)) for column in zip(heads, *cells_of_rows, strict=True)]
    sizes[0] = min(sizes[0], width - sum(sizes[1:]) - len(_GAP) * len(sizes[1:]))

    def line(cells: Sequence[str]) -> str:
        name, api, *numbers = cells
        left = [pad(name, sizes[0]), pad(api, sizes[1])]
        return _GAP.join([*left, *map(str.rjust, numbers, sizes[2:])])

    yield styled(truncate_end(line(heads), width), BOLD)
    for number, (_, group) in enumerate(groupby(rows, lambda row: _provider(row[0]))):
        if number:
            yield ""
        for *cells, remark in group:
            text = truncate_end(line(cells), width)
            more = truncate_end(f"{_GAP}{remark}", width - columns(text)) if remark else ""
            yield f"{text}{styled(more, DIM)}"


_PRICES = ("price_in", "price_out")
_GAP = "  "  # between two columns


def _provider(model: str) -> str:
    """The provider of a model; "" for an alias and for the built-in model."""
    return model.rpartition("/")[0].partition("/")[0]


def _window(tokens: int | None) -> str:
    """A window in few characters: ``8k`` (of 1,000 or of 1,024), ``128k``, ``1M``."""
    if not tokens:
        return "-"
    unit = 1024 if tokens % 1000 and not tokens % 1024 else 1000
    thousands = round(tokens / unit)
    if thousands < 1000:
        return f"{thousands}k" if thousands else str(tokens)
    return f"{thousands / 1000:.1f}".removesuffix(".0") + "M"


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
