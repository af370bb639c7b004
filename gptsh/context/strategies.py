"""The strategies that shorten the older part of a session. Each is a pure function and a row of the table ``SHORTEN``.

Input and output are messages as ``valid.sendable`` returns them. Recent messages are sent verbatim. A tool call and its
results are never separated (see ``compaction``).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gptsh.content.attachments import media_of
from gptsh.context.shorten import pruned, touched_files
from gptsh.context.tokens import Size, count_media, count_text, truncate_tokens
from gptsh.messages import Message, Part, parts_of, starts_turn, text_of, text_parts_of, user_message
from gptsh.text import quantity

FULL = "full"
Record = dict[str, Any]  # a compaction: see ``compaction``
_MIN_STATE = 40  # tokens of a summary or an answer: a shorter excerpt is useless
_SHARE = 4  # the list of files may take this fraction of the room, and so may the state
_HEADINGS = 74  # tokens of all headings and the blank lines between them
_BEGINNING = "[Shortened by gptsh: the conversation up to here.]"
_WORDS = "What the user said, word for word:"
_SOME_WORDS = "What the user said, word for word ({omitted} left out):"
_OUTCOMES = "What the answers and tools came to:"
_TASK = "The task as it was first put:"
_FILES = "Files touched:"
_LAST = "The last answer, shortened:"
_END = "[The conversation goes on:]"


class CompactedPrompt(NamedTuple):
    """The messages sent in place of a session, and how many of the session's they include, summarise and leave out.

    ``omitted_questions``: how many questions are among the messages left out.
    """

    messages: Sequence[Message]
    included: int
    summarized: int = 0
    left_out: int = 0
    omitted_questions: int = 0


class Choice(NamedTuple):
    """How a session is sent. ``record`` is the compaction (None: sent whole), to be saved if ``is_new``."""

    strategy: str
    prompt: CompactedPrompt
    size: Size
    record: Record | None = None
    is_new: bool = False


class SplitHistory(NamedTuple):
    """A session, split in two. ``summary`` covers the first ``covered`` of the older messages.

    ``max_tokens`` limits the older part; only ``minimal`` needs it.
    """

    older: Sequence[Message]
    recent: Sequence[Message]
    summary: str = ""
    covered: int = 0
    max_tokens: int = 0


def pruned_tools(history: SplitHistory) -> CompactedPrompt:
    """Send everything, with older tool results and older attached text shortened."""
    everything = [*map(pruned, history.older), *history.recent]
    return CompactedPrompt(everything, len(everything))


def summary(history: SplitHistory) -> CompactedPrompt:
    """Send the older user words verbatim, a summary of the other older messages, and the recent messages.

    The words come first: they only grow, so the prompt begins as the last one did. Media of the current question is
    sent too.
    """
    media_parts = _current_media(history)
    lines = _numbered_lines(history, media_parts)
    sections = [[_WORDS, *lines] if lines else [], [_OUTCOMES, history.summary] if history.summary else []]
    return _compacted_prompt(history, sections, len(lines), media_parts, has_summary=True)


def minimal(history: SplitHistory) -> CompactedPrompt:
    """Last resort: fill the room with the user's older words, then the files touched, then the state of the work.

    The state is the newest summary, else the last answer. If not all words fit, the first question and as many of the
    newest as possible are sent. The current question is always sent, its media only where it fits.
    """
    lines = _numbered_lines(history)
    current = set(range(len(_questions(history)))[-1:] if _is_current_older(history) else ())
    room = history.max_tokens - _HEADINGS - sum(count_text(lines[at]) + 1 for at in current)
    media_parts = []
    for part in _current_media(history):
        size = count_media(media) if (media := media_of(part)) else 0
        if size <= room:
            media_parts.append(part)
            room -= size
    lines = _numbered_lines(history, media_parts)
    sizes = [count_text(line) + 1 for line in lines]
    chosen_lines = set(current)
    for at in dict.fromkeys([*range(len(lines))[:1], *reversed(range(len(lines)))]):  # the first, then the newest
        if at not in chosen_lines and sizes[at] <= room:
            chosen_lines.add(at)
            room -= sizes[at]
    if room < 0 and not current:
        return _compacted_prompt(history, None, 0, has_summary=False)._replace(omitted_questions=len(lines))
    files = _files(history.older, min(room, history.max_tokens // _SHARE))
    room -= sum(map(count_text, files))
    state = _state(history, min(room, history.max_tokens // _SHARE))
    omitted = len(lines) - len(chosen_lines)
    task = [_TASK, lines[0]] if omitted and 0 in chosen_lines - current else []
    words = [lines[at] for at in sorted(chosen_lines - ({0} if task else set()))]
    verbs = "does not fit and is" if omitted == 1 else "do not fit and are"
    some_words = _SOME_WORDS.format(omitted=f"{quantity(omitted, 'earlier question')} {verbs}")
    heading = some_words if omitted else _WORDS
    sections = [task, files, state, [heading, *words] if words or omitted else []]
    has_summary = bool(history.summary and state)
    prompt = _compacted_prompt(history, sections, len(chosen_lines), media_parts, has_summary=has_summary)
    return prompt._replace(omitted_questions=omitted)


PRUNED, SUMMARY, MINIMAL = "pruned-tools", "summary", "minimal"  # in the order in which they are tried
SHORTEN: dict[str, Callable[[SplitHistory], CompactedPrompt]] = {
    PRUNED: pruned_tools,
    SUMMARY: summary,
    MINIMAL: minimal,
}


def is_verbatim(message: Message) -> bool:
    """Whether a message is always sent verbatim, however old it is."""
    return message["role"] == "system" or starts_turn(message)


def _compacted_prompt(
    history: SplitHistory,
    sections: Sequence[Sequence[str]] | None,
    questions: int,
    media_parts: Sequence[Part] = (),
    *,
    has_summary: bool,
) -> CompactedPrompt:
    """Put the sections into one question before the recent messages; they contain ``questions`` of the user's."""
    systems = [message for message in history.older if message["role"] == "system"]
    text = "\n\n".join([_BEGINNING, *("\n".join(section) for section in sections or () if section)])
    end: Part = {"type": "text", "text": _END}
    block = user_message(text, [*media_parts, end]) if media_parts else user_message(f"{text}\n\n{_END}", ())
    covered = history.older[: history.covered] if has_summary else ()
    summarized = sum(not is_verbatim(message) for message in covered)
    included = questions + len(systems)
    messages = [*systems, *([block] if history.older and sections is not None else []), *history.recent]
    left_out = len(history.older) - included - summarized
    return CompactedPrompt(messages, included + len(history.recent), summarized, left_out)


def _is_current_older(history: SplitHistory) -> bool:
    """Whether the current question is among the older messages, as in a turn of many tool rounds."""
    return not any(map(starts_turn, history.recent))


def _questions(history: SplitHistory) -> list[Message]:
    return [message for message in history.older if starts_turn(message)]


def _current_media(history: SplitHistory) -> list[Part]:
    """The media parts of the current question if it is older: it cannot be answered without them."""
    current = _questions(history)[-1:] if _is_current_older(history) else []
    return [part for message in current for part in parts_of(message) if media_of(part)]


def _numbered_lines(history: SplitHistory, media_parts: Sequence[Part] = ()) -> list[str]:
    """The words of each older question under its number in the conversation; media not in ``media_parts`` is named."""
    questions = _questions(history)
    current = questions[-1] if questions and _is_current_older(history) else None
    words = (_words(question, question is current, media_parts) for question in questions)
    return [f"{number}. {text}" for number, text in enumerate(words, 1)]


def _words(message: Message, is_current: bool, media_parts: Sequence[Part]) -> str:
    """The typed words, then the names of attachments.

    The current question, or one without words, has both ends of each attached text.
    """
    texts = text_parts_of(message)
    words = [part["text"] for part in texts if "source" not in part]
    if is_current or not words:
        words = [text_of(pruned(message))]
    else:
        words += [f"[{part['source']}, {len(part['text']):,} characters]" for part in texts if "source" in part]
    omitted = (media_of(part) for part in parts_of(message) if not (is_current and part in media_parts))
    return "\n".join(filter(None, [*words, *(str(media) for media in omitted if media)]))


def _files(messages: Sequence[Message], max_tokens: int) -> list[str]:
    """List the files that tool calls named, as many of the newest as fit."""
    lines: list[str] = []
    for path, tools in reversed(touched_files(messages).items()):
        line = f"- {path} ({', '.join(tools)})"
        max_tokens -= count_text(line) + 1
        if max_tokens < 0:
            break
        lines.append(line)
    return [_FILES, *reversed(lines)] if lines else []


def _state(history: SplitHistory, max_tokens: int) -> list[str]:
    """The state of the work: the newest summary cut to fit, else both ends of the last answer."""
    heading, text = _OUTCOMES, history.summary
    if not text:
        answers = (
            message for message in reversed(history.older) if message["role"] == "assistant" and text_of(message)
        )
        heading, text = _LAST, next(map(text_of, answers), "")
    excerpt = truncate_tokens(text, max_tokens, ends=not history.summary) if text and max_tokens >= _MIN_STATE else ""
    return [heading, excerpt] if excerpt else []
