"""Lines for users: lists, search results, what would be sent."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gptsh.content.attachments import media_in, name_of
from gptsh.core.listing import SessionSummary, display_title
from gptsh.messages import Message, Tool, text_of
from gptsh.render.plain import Look
from gptsh.text import format_size, local_time, one_line, quantity, shorten, visible

if TYPE_CHECKING:
    from gptsh.core.search import Found
    from gptsh.messages import Request

_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[1;31m", "\x1b[0m"
_SHOWN_MESSAGES, _SHOWN_LINES, _SHOWN_WIDTH = 5, 10, 160  # of a request: at each end, of a long message, of a line
INDENT = "    "  # before the matching passage, under the line of its session


# ---- lists


def listing_line(summary: SessionSummary, *, aligned: bool = False) -> str:
    """``[index] id yyyy-MM-dd HH:mm title (agent|model)``, always one line; ``[-]`` for an archived one.

    Without a title it has the first question in quotes. ``[@NAME]`` and ``[fork of ID@POINT]`` stand after the title.
    ``aligned`` makes columns, for a terminal.
    """
    index = f"[{'-' if summary['index'] is None else summary['index']}]"
    names = "".join(f" [{name}]" for name in summary["names"])
    fork = f" [fork of {summary['forked_from']}]" if summary["forked_from"] else ""
    title = display_title(summary["title"], summary["preview"])
    what = f"{title}{names}{fork} ({summary['agent'] or '?'}|{summary['model'] or '?'})"
    return f"{index:<{4 if aligned else 0}} {summary['id']} {local_time(summary['updated_at'])} {one_line(what)}"


def model_line(item: Mapping[str, Any]) -> str:
    """A model, its API, its window in tokens, its prices in USD per million input and output tokens; - if unknown.

    Then what it stands for, or its size and whether it is loaded.
    """
    prices = (item["price_in"], item["price_out"])
    price_in, price_out = ("-" if price is None else f"{1e6 * price:.2f}" for price in prices)
    line = f"{one_line(item['model']):<44} {item['api']:<7} {item['window'] or '-':>8} {price_in:>8} {price_out:>8}"
    if item["alias_of"]:
        return f"{line}  = {one_line(item['alias_of'])}"
    size = format_size(item["size"]) if item["size"] else ""
    if state := ", ".join(filter(None, (size, "loaded" if item["loaded"] else ""))):
        return f"{line}  {state}"
    return f"{line}  repeats the question, without key or network" if item["api"] == "echo" else line


def agent_line(name: str, model: str | None, default: bool, names: Sequence[str] = ()) -> str:
    """An agent, its model and the ``{names}`` of its prompt, with a star if it is the default."""
    what = one_line(" ".join([f"{name} ({model or 'no model'})", *(f"{{{each}}}" for each in names)]))
    return f"{'*' if default else ' '} {what}"


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


def found_drawn(item: "Found", look: Look) -> str:
    """A search result, the words highlighted if ``look`` allows it."""
    marked, plain = (_RED if look.colors else _BOLD, _PLAIN) if look.styles else ("", "")
    match, at, pieces = item["match"], 0, []
    for start, end in item["marks"]:
        pieces += [visible(match[at:start]), marked, visible(match[start:end]), plain]
        at = end
    return f"{listing_line(item)}\n{INDENT}{''.join(pieces)}{visible(match[at:])}"


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
    if omitted := omitted_words(report["omitted"]):
        yield f"omitted     {omitted}"
    if request.tools:
        from gptsh.context.tokens import count_tools  # noqa: PLC0415 - a list counts none

        yield f"tools       {len(request.tools)}, their definitions ~{count_tools(request.tools):,} tokens"
    for part, media in (found for message in request.messages for found in media_in(message)):
        yield f"attached    {one_line(' '.join(filter(None, (name_of(part), str(media)))))}"


def request_lines(messages: Sequence[Message]) -> Iterator[str]:
    """The messages of a request in short: the system prompt and the question a few lines each, the others one."""
    question_at = max((at for at, message in enumerate(messages) if message["role"] == "user"), default=0)
    hidden = len(messages) - 2 * _SHOWN_MESSAGES
    for at, message in enumerate(messages):
        if hidden > 0 and _SHOWN_MESSAGES <= at < _SHOWN_MESSAGES + hidden:
            if at == _SHOWN_MESSAGES:
                yield f"…           {quantity(hidden, 'message')}"
            continue
        calls = " ".join(f"[{call['function']['name']}]" for call in message.get("tool_calls") or ())
        lines = [line for line in text_of(message).split("\n") if line.strip()] + ([calls] if calls else [])
        room = _SHOWN_LINES if message["role"] == "system" or at == question_at else 1
        for number, line in enumerate(lines[:room]):
            yield f"{'' if number else message['role']:<11} {one_line(shorten(line, _SHOWN_WIDTH))}"
        if len(lines) > room:
            yield f"{'':<11} … {quantity(len(lines) - room, 'more line')}"


def compaction_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """What a compaction changes in what is sent, a line for each fact."""
    counts = f"{report['included']:,} as they are, {report['summarized']:,} summarized, {report['left_out']:,} left out"
    yield f"session     {report['session'] or 'not on disk'}"
    yield f"strategy    {report['strategy']}{'' if report['changes'] else ', as now: nothing would be shorter'}"
    yield f"messages    {counts}"
    if omitted := omitted_words(report["omitted"]):
        yield f"omitted     {omitted}"
    yield f"tokens      ~{report['before']:,} -> ~{report['after']:,}"
    yield f"budget      {_tokens(report['budget'])}"


def omitted_words(omitted: Mapping[str, Sequence[Any]]) -> str:
    """What a prompt leaves out of the user's, such as ``questions 2, 4-9, shot.png [image/png, 34.1 kB]``."""
    numbers = omitted["questions"]
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    ranges = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)
    questions = [f"{'question' if len(numbers) == 1 else 'questions'} {ranges}"] if runs else []
    return ", ".join([*questions, *map(one_line, omitted["media"])])


def _tokens(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,} tokens"
