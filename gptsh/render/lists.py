"""Write the lines of lists: of sessions, search results, models, agents, tools, sources."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gptsh.core.listing import SessionSummary, display_title
from gptsh.messages import Tool
from gptsh.terminal.stdio import BOLD, DIM, ERROR, PLAIN, TerminalStyle, styled
from gptsh.text import (
    columns,
    format_size,
    local_time,
    one_line,
    pad,
    truncate_end,
    truncate_start,
    visible,
)

if TYPE_CHECKING:
    from gptsh.core.search import Found


INDENT = "    "  # before the matching passage, under the line of its session
_TITLE_WIDTH = 20  # columns that a title keeps as long as anything else can be left out
# Marks of Markdown that a passage is easier to read without.
_MARKS = re.compile(r"(?<!\w)\*{1,3}(?=\S)|(?<=\S)\*{1,3}(?!\w)|`+|(?<!\S)#{1,6} ")


# ---- sessions


def listing_line(summary: SessionSummary) -> str:
    """Return ``[index] id yyyy-MM-dd HH:mm title (agent|model)``; ``[-]`` for an archived session.

    A session without a title has the first question in quotes. ``[@NAME]`` and ``[fork of
    ID@POINT]`` are at the end.
    """
    index = _index(summary)
    date = local_time(summary["updated_at"])
    title = display_title(summary["title"], summary["preview"])
    title_and_facts = one_line(f"{title} {_facts_after_title(summary)}")
    return f"{index} {summary['id']} {date} {title_and_facts}"


def listing_row(summary: SessionSummary, width: int) -> str:
    """Return the line for a terminal with colours, cut to ``width`` columns.

    The facts are cut first, then the date is left out, then the title is cut.
    """
    index = _index(summary)
    session_id = summary["id"]
    date = local_time(summary["updated_at"])
    title = one_line(display_title(summary["title"], summary["preview"]))
    facts = one_line(_facts_after_title(summary))

    row = f"{styled(index, DIM)} {session_id}"
    free = width - columns(f"{index} {session_id}  ")
    free_beside_date = free - columns(f"{date} ")
    if free_beside_date >= _TITLE_WIDTH:
        row += f" {styled(date, DIM)}"
        free = free_beside_date
    title_width = max(_TITLE_WIDTH, free - columns(facts))
    title = truncate_end(title, min(title_width, free))
    facts = truncate_end(facts, free - columns(title))
    return f"{row} {styled(title, BOLD)} {styled(facts, DIM)}".rstrip()


def _index(summary: SessionSummary) -> str:
    index = summary["index"]
    return "[-]" if index is None else f"[{index}]"


def _facts_after_title(summary: SessionSummary) -> str:
    agent = summary["agent"] or "?"
    model = summary["model"] or "?"
    facts = f"({agent}|{model})"
    for name in summary["names"]:
        facts += f" [{name}]"
    if summary["forked_from"]:
        facts += f" [fork of {summary['forked_from']}]"
    return facts


# ---- search results


class _Piece(NamedTuple):
    """A piece of the passage of a search result, with control characters made visible."""

    text: str
    is_word: bool  # that was searched for


def found_lines(item: "Found", style: TerminalStyle = PLAIN) -> str:
    """Return a search result: the line of the session, and under it the matching passage.

    The words that were searched for are highlighted as far as ``style`` allows it.
    """
    passage = visible(item["match"])
    if style.styles:
        passage = _highlighted(_pieces(item), ERROR if style.colors else BOLD)
    return f"{listing_line(item)}\n{INDENT}{passage}"


def found_rows(item: "Found", width: int) -> str:
    """Return a search result for a terminal with colours, both lines cut to ``width`` columns.

    The passage is shown without marks of Markdown.
    """
    speaker, separator, _ = item["match"].partition(": ")
    hidden = set(range(len(speaker + separator)))
    for mark in _MARKS.finditer(item["match"]):
        hidden.update(range(mark.start(), mark.end()))
    speaker = truncate_end(visible(f"{speaker}:"), width // 2)
    pieces = _cut(_pieces(item, hidden), width - columns(f"{INDENT}{speaker} "))
    passage = f"{styled(speaker, DIM)} {_highlighted(pieces, BOLD)}"
    return f"{listing_row(item, width)}\n{INDENT}{passage}"


def _pieces(item: "Found", hidden: Collection[int] = ()) -> list[_Piece]:
    """Return a passage, split before and after each of the words that were searched for.

    ``hidden``: positions of other characters that are left out.
    """
    match = item["match"]
    pieces = []
    position = 0
    for start, end in [*item["marks"], (len(match), len(match))]:
        between = [match[index] for index in range(position, start) if index not in hidden]
        pieces.append(_Piece(visible("".join(between)), is_word=False))
        pieces.append(_Piece(visible(match[start:end]), is_word=True))
        position = end
    return pieces


def _cut(pieces: Sequence[_Piece], width: int) -> list[_Piece]:
    """Cut a passage at both ends to ``width`` columns, its first word in the middle if needed."""
    before, word, *others = pieces
    rest = word.text + "".join(piece.text for piece in others)
    middle = (width - columns(word.text)) // 2
    beginning = truncate_start(before.text, max(middle, width - columns(rest)))
    rest = truncate_end(rest, width - columns(beginning))

    cut = [before._replace(text=beginning)]
    for piece in (word, *others):
        length = len(piece.text)
        cut.append(piece._replace(text=rest[:length]))
        rest = rest[length:]
    return cut


def _highlighted(pieces: Sequence[_Piece], style: str) -> str:
    """Join the pieces of a passage, the words that were searched for in a style."""
    text = ""
    for piece in pieces:
        text += styled(piece.text, style) if piece.is_word else piece.text
    return text


# ---- models, agents, tools, sources

_GAP = "  "  # between two columns


def model_line(item: Mapping[str, Any]) -> str:
    """Return a model, its API, its window in tokens, its prices; - if unknown.

    The prices are USD per million input and output tokens. Then what it stands for, or its size
    and whether it is loaded.
    """
    name = pad(one_line(item["model"]), 44)
    window = item["window"] or "-"
    price_in = _price(item["price_in"])
    price_out = _price(item["price_out"])
    line = f"{name} {item['api']:<7} {window:>8} {price_in:>8} {price_out:>8}"
    remark = _remark(item)
    if not remark and item["api"] == "echo":
        remark = "repeats the question, without key or network"
    return f"{line}{_GAP}{remark}" if remark else line


def model_table(items: Iterable[Mapping[str, Any]], width: int) -> Iterator[str]:
    """Yield models as a table for a terminal with colours, at most ``width`` columns wide.

    A blank line separates the providers.
    """
    items = sorted(items, key=_provider)
    if not items:
        return
    header = _model_columns("api", "window", price_in="$/M in", price_out="$/M out")
    longest = max(columns(one_line(item["model"])) for item in items)
    name_width = max(len("model"), min(longest, width - len(header)))

    yield styled(truncate_end(pad("model", name_width) + header, width), BOLD)
    last_provider = _provider(items[0])
    for item in items:
        if _provider(item) != last_provider:
            last_provider = _provider(item)
            yield ""
        yield _model_row(item, name_width, width)


def _model_row(item: Mapping[str, Any], name_width: int, width: int) -> str:
    name = pad(one_line(item["model"]), name_width)
    facts = _model_columns(
        item["api"],
        _window(item["window"]),
        price_in=_price(item["price_in"]),
        price_out=_price(item["price_out"]),
    )
    row = truncate_end(name + facts, width)
    remark = _remark(item)
    if remark:
        remark = truncate_end(f"{_GAP}{remark}", width - columns(row))
    return f"{row}{styled(remark, DIM)}"


def _model_columns(api: str, window: str, *, price_in: str, price_out: str) -> str:
    return f"{_GAP}{api:<9}{_GAP}{window:>6}{_GAP}{price_in:>6}{_GAP}{price_out:>7}"


def _price(price: float | None) -> str:
    """Return a price for a million tokens."""
    return "-" if price is None else f"{1e6 * price:.2f}"


def _window(tokens: int | None) -> str:
    """Return a window in few characters: ``8k`` (of 1,000 or of 1,024), ``128k``, ``1M``."""
    if not tokens:
        return "-"
    is_binary = tokens % 1024 == 0 and tokens % 1000 != 0
    thousands = round(tokens / (1024 if is_binary else 1000))
    if thousands == 0:
        return str(tokens)
    if thousands < 1000:
        return f"{thousands}k"
    return f"{thousands / 1000:.1f}".removesuffix(".0") + "M"


def _remark(item: Mapping[str, Any]) -> str:
    """Return what a model stands for, or its size and whether it is loaded."""
    if item["alias_of"]:
        return f"= {one_line(item['alias_of'])}"
    facts = []
    if item["size"]:
        facts.append(format_size(item["size"]))
    if item["loaded"]:
        facts.append("loaded")
    return ", ".join(facts)


def _provider(item: Mapping[str, Any]) -> str:
    """Return the provider of a model; "" for an alias and for the built-in model."""
    provider, slash, _ = item["model"].partition("/")
    return provider if slash else ""


def agent_line(
    name: str,
    model: str | None,
    *,
    default: bool,
    names: Sequence[str] = (),
) -> str:
    """Return an agent, its model and the ``{names}`` of its prompt; a star marks the default."""
    text = f"{name} ({model or 'no model'})"
    for variable in names:
        text += f" {{{variable}}}"
    star = "*" if default else " "
    return f"{star} {one_line(text)}"


def tool_line(tool: Tool) -> str:
    """Return a tool's name and the first line of its description."""
    name = one_line(tool.name)
    first_line, _, _ = tool.description.strip().partition("\n")
    summary = one_line(first_line)
    return f"{name}  {summary}" if summary else name


def source_lines(pages: Mapping[str, str | None]) -> Iterator[str]:
    """Yield a numbered line for each page that an answer cites; ``pages`` are titles by URL."""
    for number, (url, title) in enumerate(pages.items(), start=1):
        page = f"{title} {url}" if title else url
        yield one_line(f"[{number}] {page}")
