"""What would be sent, as lines for users: of --dry-run and /context, of a compaction; words for what is left out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gptsh.content.attachments import media_in, name_of
from gptsh.messages import Message, Request, text_of
from gptsh.text import one_line, quantity, shorten

_SHOWN_MESSAGES, _SHOWN_LINES, _SHOWN_WIDTH = 5, 10, 160  # of a request: at each end, of a long message, of a line


def context_lines(api: str, report: Mapping[str, Any], request: Request) -> Iterator[str]:
    """What would be sent, a line for each fact and each attachment; the tokens are those of the whole prompt."""
    yield f"model       {one_line(request.model)}"
    yield f"api         {api}"
    yield f"window      {_tokens(report['window'])}"
    yield f"budget      {_tokens(report['budget'])}"
    fixed = report["fixed"]
    beside = f", ~{fixed:,} of them system prompt, schema and tools" if fixed else ""
    yield f"tokens      ~{report['tokens'] + fixed:,} ({report['at_most'] + fixed:,} at most){beside}"
    yield f"strategy    {report['strategy']}"
    for key in ("included", "summarized", "left_out"):
        yield f"{key.replace('_', ' '):<11} {quantity(report[key], 'message')}"
    if omitted := omitted_words(report["omitted"]):
        yield f"omitted     {omitted}"
    if request.tools:
        from gptsh.context.tokens import count_tools

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
    words = [one_line(name) for name in omitted["media"]]
    if numbers := omitted["questions"]:
        words.insert(0, f"{'question' if len(numbers) == 1 else 'questions'} {_ranges(numbers)}")
    return ", ".join(words)


def _ranges(numbers: Sequence[int]) -> str:
    """Rising numbers in short: ``2, 4-9``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _tokens(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,} tokens"
