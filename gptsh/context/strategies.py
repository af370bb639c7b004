"""The ways to send a session shorter where it is older. Each is a pure function and a row of one table.

They take and return messages as ``valid.sendable`` does. Older messages are shortened, recent ones stay as they are. A
call and its results are never separated (see ``compaction``).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gptsh.content.attachments import media_of
from gptsh.context.shorten import pruned, touched_files
from gptsh.context.tokens import Size, count_media, count_text, fitted
from gptsh.messages import Message, Part, parts_of, starts_turn, text_of, text_parts_of, user_message

FULL = "full"
Record = dict[str, Any]  # a compaction: see ``compaction``
_LEAST = 40  # tokens of a summary or of what was done; less of it says nothing
_SHARE = 4  # files and state take such a part of the room each at most
_HEADINGS = 74  # tokens of them all, with the lines between
_BEGINNING = "[Shortened by gptsh: the conversation up to here.]"
_WORDS = "What the user said, word for word:"
_LATELY = "What the user said, word for word ({left:,} earlier questions do not fit and are left out):"
_OUTCOMES = "What the answers and tools came to:"
_TASK = "The task as it was first put:"
_FILES = "Files touched:"
_LAST = "The last answer, shortened:"
_END = "[The conversation goes on:]"


class CompactedPrompt(NamedTuple):
    """What is sent in place of a session, and how many of its messages that holds, sums up and leaves out.

    ``omitted_questions`` are those of the left out whose words are not sent.
    """

    messages: Sequence[Message]
    included: int
    summarized: int = 0
    left_out: int = 0
    omitted_questions: int = 0


class Choice(NamedTuple):
    """How a session is sent. ``record`` is the compaction, None where all is sent; ``is_new``: it is to be kept."""

    strategy: str
    prompt: CompactedPrompt
    size: Size
    record: Record | None = None
    is_new: bool = False


class SplitHistory(NamedTuple):
    """A session, parted. ``summary`` tells what the first ``covered`` of the older messages came to.

    ``max_tokens`` is what the older part may take, for the strategy that has to choose.
    """

    older: Sequence[Message]
    recent: Sequence[Message]
    summary: str = ""
    covered: int = 0
    max_tokens: int = 0


def pruned_tools(past: SplitHistory) -> CompactedPrompt:
    """Everything, but of older results of tools and older attached text only what shows what they are."""
    everything = [*map(pruned, past.older), *past.recent]
    return CompactedPrompt(everything, len(everything))


def summary(past: SplitHistory) -> CompactedPrompt:
    """The older user words verbatim, a summary of all else that is older, and the recent messages as they are.

    The words stand first: they are only ever added to, so that a prompt begins as the last one did. Images and the like
    go along with the question that is answered.
    """
    carried = _carried(past)
    lines = _numbered(past, carried)
    sections = [[_WORDS, *lines] if lines else [], [_OUTCOMES, past.summary] if past.summary else []]
    return _compacted(past, sections, len(lines), carried, tells=True)


def minimal(past: SplitHistory) -> CompactedPrompt:
    """What is sent where nothing else fits: the user's older words, then in what is left the files touched and how
    things stand, which is the newest summary, else the last answer.

    Where not all words fit: the first question, and as many of the newest. The question that is answered is sent in any
    case, and what it carries where it fits.
    """
    lines, asked = _numbered(past), set(range(len(_questions(past)))[-1:] if _asks(past) else ())
    room = past.max_tokens - _HEADINGS - sum(count_text(lines[at]) + 1 for at in asked)
    carried = []
    for part in _carried(past):
        size = count_media(media) if (media := media_of(part)) else 0
        if size <= room:
            carried.append(part)
            room -= size
    lines = _numbered(past, carried)
    sizes = [count_text(line) + 1 for line in lines]
    chosen = set(asked)
    for at in dict.fromkeys([*range(len(lines))[:1], *reversed(range(len(lines)))]):  # the first, then the newest
        if at not in chosen and sizes[at] <= room:
            chosen.add(at)
            room -= sizes[at]
    if room < 0 and not asked:
        return _compacted(past, None, 0, tells=False)._replace(omitted_questions=len(lines))
    files = _files(past.older, min(room, past.max_tokens // _SHARE))
    room -= sum(map(count_text, files))
    state = _state(past, min(room, past.max_tokens // _SHARE))
    left = len(lines) - len(chosen)
    first = [_TASK, lines[0]] if left and 0 in chosen - asked else []
    words = [lines[at] for at in sorted(chosen - ({0} if first else set()))]
    sections = [first, files, state, [_LATELY.format(left=left) if left else _WORDS, *words] if words or left else []]
    tells = bool(past.summary and state)
    return _compacted(past, sections, len(chosen), carried, tells=tells)._replace(omitted_questions=left)


PRUNED, SUMMARY, MINIMAL = "pruned-tools", "summary", "minimal"  # in the order in which they are tried
SHORTEN: dict[str, Callable[[SplitHistory], CompactedPrompt]] = {
    PRUNED: pruned_tools,
    SUMMARY: summary,
    MINIMAL: minimal,
}


def is_verbatim(message: Message) -> bool:
    """Whether a message is sent in its own words however old it is."""
    return message["role"] == "system" or starts_turn(message)


def _compacted(
    past: SplitHistory,
    sections: Sequence[Sequence[str]] | None,
    words: int,
    carried: Sequence[Part] = (),
    *,
    tells: bool,
) -> CompactedPrompt:
    """The sections as one question in front of the recent messages. ``words``: so many questions are told in it."""
    systems = [message for message in past.older if message["role"] == "system"]
    told = "\n\n".join([_BEGINNING, *("\n".join(section) for section in sections or () if section)])
    end: Part = {"type": "text", "text": _END}
    block = user_message(told, [*carried, end]) if carried else user_message(f"{told}\n\n{_END}", ())
    summed_up = sum(not is_verbatim(message) for message in past.older[: past.covered]) if tells else 0
    kept = words + len(systems)
    messages = [*systems, *([block] if past.older and sections is not None else []), *past.recent]
    return CompactedPrompt(messages, kept + len(past.recent), summed_up, len(past.older) - kept - summed_up)


def _asks(past: SplitHistory) -> bool:
    """Whether the question that is answered is among the older messages: in a turn of many rounds."""
    return not any(map(starts_turn, past.recent))


def _questions(past: SplitHistory) -> list[Message]:
    return [message for message in past.older if starts_turn(message)]


def _carried(past: SplitHistory) -> list[Part]:
    """The images and the like of the question that is answered: without them it cannot be."""
    asked = _questions(past)[-1:] if _asks(past) else []
    return [part for message in asked for part in parts_of(message) if media_of(part)]


def _numbered(past: SplitHistory, carried: Sequence[Part] = ()) -> list[str]:
    """The user's older words, each question's under its number in the conversation; what is not sent is named."""
    questions = _questions(past)
    asked = questions[-1] if questions and _asks(past) else None
    return [f"{number}. {_words(one, one is asked, carried)}" for number, one in enumerate(questions, 1)]


def _words(message: Message, asked: bool, carried: Sequence[Part]) -> str:
    """What was typed, then the names of what was attached; where nothing else says what is asked, more of that."""
    texts = text_parts_of(message)
    typed = [part["text"] for part in texts if "source" not in part]
    if asked or not typed:
        typed = [text_of(pruned(message))]
    else:
        typed += [f"[{part['source']}, {len(part['text']):,} characters]" for part in texts if "source" in part]
    gone = (media_of(part) for part in parts_of(message) if not (asked and part in carried))
    return "\n".join(filter(None, [*typed, *(str(media) for media in gone if media)]))


def _files(messages: Sequence[Message], max_tokens: int) -> list[str]:
    """The files that tool calls named, the newest of them that fit."""
    lines: list[str] = []
    for path, tools in reversed(touched_files(messages).items()):
        line = f"- {path} ({', '.join(tools)})"
        max_tokens -= count_text(line) + 1
        if max_tokens < 0:
            break
        lines.append(line)
    return [_FILES, *reversed(lines)] if lines else []


def _state(past: SplitHistory, max_tokens: int) -> list[str]:
    """How things stand: the newest summary as far as it fits, else the ends of the last answer."""
    heading, text = _OUTCOMES, past.summary
    if not text:
        answers = (message for message in reversed(past.older) if message["role"] == "assistant" and text_of(message))
        heading, text = _LAST, next(map(text_of, answers), "")
    told = fitted(text, max_tokens, ends=not past.summary) if text and max_tokens >= _LEAST else ""
    return [heading, told] if told else []
