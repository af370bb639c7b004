"""Write what would be sent of a session, and what a compaction changes, as lines for users."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypedDict

from gptsh.content.attachments import media_in, name_of
from gptsh.messages import Message, Request, text_of
from gptsh.text import one_line, quantity, shorten

if TYPE_CHECKING:
    from gptsh.core.document_types import Omissions

_UNKNOWN = "unknown"
_SAYS_NOTHING = (_UNKNOWN, quantity(0, "message"))  # facts that a brief outline leaves out
_SHOWN_MESSAGES = 5  # at each end of a request
_SHOWN_LINES = 10  # of the system prompt and the question
_SHOWN_WIDTH = 160  # characters of a line


class _Selection(TypedDict):
    """Which messages of a session are sent, and how."""

    strategy: str
    included: int
    summarized: int
    left_out: int
    omitted: "Omissions"


class PromptReport(_Selection):
    """What is sent of a session; the tokens are those of the messages, ``fixed`` of all else."""

    tokens: int
    at_most: int
    fixed: int
    budget: int | None
    window: int | None


class ChoiceReport(_Selection):
    """How a session is sent, and what a compaction has made of how many tokens."""

    reason: str | None
    before: int | None
    after: int | None


class CompactionReport(ChoiceReport):
    """What ``--compact`` would change in how a session is sent, or has changed."""

    session: str | None
    changes: bool
    applied: bool
    budget: int | None
    window: int | None
    error: object


def context_lines(
    api: str, report: PromptReport, request: Request, *, is_brief: bool
) -> Iterator[str]:
    """Yield what would be sent, a line for each fact and each attachment.

    The tokens are those of the whole prompt. ``is_brief``: without what is unknown or 0.
    """
    facts = [
        ("model", one_line(request.model)),
        ("api", api),
        ("window", _tokens(report["window"])),
        ("budget", _tokens(report["budget"])),
        ("tokens", _prompt_tokens(report)),
        ("strategy", report["strategy"]),
        ("included", quantity(report["included"], "message")),
        ("summarized", quantity(report["summarized"], "message")),
        ("left out", quantity(report["left_out"], "message")),
        ("omitted", omitted_words(report["omitted"])),
    ]
    if is_brief:
        facts = [(label, words) for label, words in facts if words not in _SAYS_NOTHING]
    if request.tools:
        from gptsh.context.tokens import count_tools

        count = len(request.tools)
        tokens = count_tools(request.tools)
        facts.append(("tools", f"{count}, their definitions ~{tokens:,} tokens"))
    for message in request.messages:
        for part, media in media_in(message):
            name = name_of(part) or ""
            facts.append(("attached", one_line(f"{name} {media}")))
    return _fact_lines(facts)


def _prompt_tokens(report: PromptReport) -> str:
    fixed = report["fixed"]
    total = report["tokens"] + fixed
    at_most = report["at_most"] + fixed
    words = f"~{total:,} ({at_most:,} at most)"
    if fixed:
        words += f", ~{fixed:,} of them system prompt, schema and tools"
    return words


def _fact_lines(facts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the facts that have words, a line each."""
    for label, words in facts:
        if words:
            yield _labelled(label, words)


def _labelled(label: str, words: str) -> str:
    return f"{label:<11} {words}"


def request_lines(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the messages of a request in short.

    The system prompt and the question get a few lines, the others one, those in the middle none.
    """
    last_question = None
    for message in messages:
        if message["role"] == "user":
            last_question = message
    hidden = range(_SHOWN_MESSAGES, len(messages) - _SHOWN_MESSAGES)
    for index, message in enumerate(messages):
        if index not in hidden:
            is_main = message["role"] == "system" or message is last_question
            yield from _message_lines(message, _SHOWN_LINES if is_main else 1)
        elif index == hidden.start:
            yield _labelled("…", quantity(len(hidden), "message"))


def _message_lines(message: Message, shown_count: int) -> Iterator[str]:
    """Yield the role of a message and so many of its lines, then how many more it has."""
    lines = [line for line in text_of(message).split("\n") if line.strip()]
    calls = message.get("tool_calls")
    if calls:
        lines.append(" ".join(f"[{call['function']['name']}]" for call in calls))
    label: str = message["role"]
    for line in lines[:shown_count]:
        yield _labelled(label, one_line(shorten(line, _SHOWN_WIDTH)))
        label = ""
    hidden_count = len(lines) - shown_count
    if hidden_count > 0:
        yield _labelled("", f"… {quantity(hidden_count, 'more line')}")


def compaction_lines(report: CompactionReport) -> Iterator[str]:
    """Yield what a compaction changes in what is sent, a line for each fact."""
    strategy = report["strategy"]
    if not report["changes"]:
        strategy += ", as now, because nothing would be shorter"
    messages = [
        f"{report['included']:,} as they are",
        f"{report['summarized']:,} summarized",
        f"{report['left_out']:,} left out",
    ]
    facts = [
        ("session", report["session"] or "not on disk"),
        ("strategy", strategy),
        ("messages", ", ".join(messages)),
        ("omitted", omitted_words(report["omitted"])),
        ("tokens", f"~{report['before']:,} -> ~{report['after']:,}"),
        ("budget", _tokens(report["budget"])),
    ]
    return _fact_lines(facts)


def omitted_words(omitted: "Omissions") -> str:
    """Return what a prompt leaves out, such as ``questions 2, 4-9, shot.png [image/png, 1 kB]``."""
    words = []
    numbers = omitted["questions"]
    if numbers:
        noun = "question" if len(numbers) == 1 else "questions"
        words.append(f"{noun} {_ranges(numbers)}")
    words += map(one_line, omitted["media"])
    return ", ".join(words)


def _ranges(numbers: Sequence[int]) -> str:
    """Return rising numbers in short: ``2, 4-9``."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    texts = []
    for first, *others in ranges:
        texts.append(f"{first}-{others[-1]}" if others else f"{first}")
    return ", ".join(texts)


def _tokens(count: int | None) -> str:
    return _UNKNOWN if count is None else f"{count:,} tokens"
