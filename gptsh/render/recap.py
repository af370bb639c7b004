"""What was said last in a session, for who goes on with it: plain text in few lines, dimmed."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from gptsh.content.media import gist_of
from gptsh.messages import Message, text_of
from gptsh.render.look import Look
from gptsh.text import counted, visible

LAST = 2  # exchanges
ROWS = 8  # of a terminal, for each question and each answer
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_QUESTION, _FURTHER = "> ", "  "


def recap(messages: Sequence[Message], starts: Sequence[int], width: int, look: Look) -> Iterator[str]:
    """The lines, safe for a terminal of ``width`` columns, which breaks the long ones itself.

    ``starts`` is where its turns start.
    """
    if earlier := len(starts[:-LAST]):
        yield _dimmed(f"… {counted(earlier, 'earlier turn')}: /history shows all", look)
    for start, end in pairwise((*starts[-LAST:], len(messages))):
        for line in _exchange(messages[start:end], width):
            yield _dimmed(line, look)


def cut(text: str, rows: int, width: int) -> list[str]:
    """The first lines of a text, as far as they take so many rows; behind them how many more there are."""
    lines, kept, left = text.split("\n"), [], rows
    for line in lines:
        needed = max(1, -(-len(line) // width))
        if needed > left:
            if left:
                kept.append(f"{line[: left * width - 1]}…")
            break
        kept.append(line)
        left -= needed
    more = len(lines) - len(kept)
    return [*kept, f"… {counted(more, 'more line')}"] if more else kept


def _exchange(turn: Sequence[Message], width: int) -> Iterator[str]:
    """A question and the last words of its answer."""
    inner = max(1, width - len(_QUESTION))
    for number, line in enumerate(cut(_shown(gist_of(turn[0])), ROWS, inner)):
        yield f"{_FURTHER if number else _QUESTION}{line}"
    answer = next((message for message in reversed(turn) if message["role"] == "assistant" and text_of(message)), None)
    if answer:
        yield from cut(_shown(text_of(answer)), ROWS, max(1, width))
    yield ""


def _shown(text: str) -> str:
    return visible(text.strip("\r\n").expandtabs(4))


def _dimmed(line: str, look: Look) -> str:
    return f"{_DIM}{line}{_PLAIN}" if look.styles and line else line
