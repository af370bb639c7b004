"""The ways to send a session: as it is, or shorter where it is older. Each is a pure function and a row of one table.

What they take and give are messages as ``context.spoken`` has them. What is older is shortened, what is recent goes as
it is; a call and its results are never parted (see ``compaction``).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gptsh.core.choice import FULL, Shortened
from gptsh.core.material import MARK
from gptsh.core.media import media_of
from gptsh.core.messages import Message, Part, parts_of, starts_turn, text_of, text_parts_of, user_message
from gptsh.core.pruning import pruned, touched
from gptsh.core.tokens import estimate, of_media

_ENDS = 400  # characters of either end of an answer that stands for all that was done
_HEADINGS = 100  # tokens of them all
_SHARE = 4  # task, files and state take such a part of the room each at most
_BEGINNING = "[Shortened by gptsh: the conversation up to here.]"
_WORDS = "What the user said, word for word:"
_LATELY = "What the user said lately, word for word ({left:,} earlier questions do not fit and are left out):"
_SUMMARY = "What the answers and tools came to:"
_TASK = "The task as it was first put:"
_FILES = "Files touched:"
_LAST = "The last answer, shortened:"
_END = "[The conversation goes on:]"


class Past(NamedTuple):
    """A session, parted. ``summary`` tells what the first ``covered`` of the older messages came to.

    ``room`` is what the older part may take in tokens, for the strategy that has to choose; below 0 there is none.
    """

    older: Sequence[Message]
    recent: Sequence[Message]
    summary: str = ""
    covered: int = 0
    room: int = 0


class Strategy(NamedTuple):
    """One way. Where there are fewer than ``least`` tokens for a session it is not worth trying.

    ``summarises``: a summary is part of it, which may have to be made.
    """

    name: str
    least: int
    shorten: Callable[[Past], Shortened]
    summarises: bool = False


def full(past: Past) -> Shortened:
    """Everything."""
    everything = [*past.older, *past.recent]
    return Shortened(everything, len(everything))


def pruned_tools(past: Past) -> Shortened:
    """Everything, but of older results of tools and older attached text only what shows what they are."""
    everything = [*map(pruned, past.older), *past.recent]
    return Shortened(everything, len(everything))


def summary(past: Past) -> Shortened:
    """The older user words verbatim, a summary of all else that is older, and the recent messages as they are.

    The words stand first: they are only ever added to, so that a prompt begins as the last one did. Images and the like
    go along with the question that is answered.
    """
    carried = _carried(past)
    lines = _numbered(past, carried)
    sections = [[_WORDS, *lines] if lines else [], [_SUMMARY, past.summary] if past.summary else []]
    return _shortened(past, sections, len(lines), carried, tells=True)


def minimal(past: Past) -> Shortened:
    """The first question and as many of the newest as fit, verbatim, the files touched, and how things stand.

    That is the newest summary, else the last answer. The question that is answered is sent, whether it fits or not, and
    what it carries where it fits.
    """
    lines = _numbered(past)
    asked = list(range(len(lines)))[-1:] if _asks(past) else []
    if past.room < 0 and not asked:
        return _shortened(past, None, 0, tells=False)._replace(questions=len(lines))
    room = max(0, past.room - _HEADINGS) - sum(estimate(lines[at]) + 1 for at in asked)
    carried, room = _that_fit(_carried(past), room)
    lines = _numbered(past, carried) if carried else lines
    sizes, share = [estimate(line) + 1 for line in lines], max(0, room) // _SHARE
    task = [0] if lines and 0 not in asked and sizes[0] <= share else []
    files, state = _files(past.older, share // 2), _state(past, share)
    room -= sum(sizes[at] for at in task) + sum(map(estimate, (*files, *state)))
    chosen = set(asked)
    for at in reversed(range(len(lines))):
        if at not in (*task, *asked) and sizes[at] <= room:
            chosen.add(at)
            room -= sizes[at]
    left = len(lines) - len(task) - len(chosen)
    words = [_LATELY.format(left=left) if left else _WORDS, *(lines[at] for at in sorted(chosen))]
    sections = [[_TASK, lines[0]] if task else [], files, state, words if chosen or left else []]
    tells = bool(past.summary and state)
    return _shortened(past, sections, len(lines) - left, carried, tells=tells)._replace(questions=left)


STRATEGIES = (  # in the order in which they are tried; the first is no compaction, the last is always possible
    Strategy(FULL, 0, full),
    Strategy("pruned-tools", 2000, pruned_tools),
    Strategy("summary", 1500, summary, summarises=True),
    Strategy("minimal", 0, minimal),
)
BY_NAME = {strategy.name: strategy for strategy in STRATEGIES}


def _shortened(
    past: Past, sections: Sequence[Sequence[str]] | None, words: int, carried: Sequence[Part] = (), *, tells: bool
) -> Shortened:
    """The sections as one question in front of the recent messages. ``words``: so many questions are told in it."""
    systems = [message for message in past.older if message["role"] == "system"]
    told = "\n\n".join([_BEGINNING, *("\n".join(section) for section in sections or () if section)])
    end: Part = {"type": "text", "text": _END}
    block = user_message(told, [*carried, end]) if carried else user_message(f"{told}\n\n{_END}", ())
    summed_up = sum(not is_kept(message) for message in past.older[: past.covered]) if tells else 0
    kept = words + len(systems)
    messages = [*systems, *([block] if past.older and sections is not None else []), *past.recent]
    return Shortened(messages, kept + len(past.recent), summed_up, len(past.older) - kept - summed_up)


def is_kept(message: Message) -> bool:
    """Whether a message is sent in its own words however old it is."""
    return message["role"] == "system" or starts_turn(message)


def _asks(past: Past) -> bool:
    """Whether the question that is answered is among the older messages: in a turn of many rounds."""
    return not any(map(starts_turn, past.recent))


def _questions(past: Past) -> list[Message]:
    return [message for message in past.older if starts_turn(message)]


def _carried(past: Past) -> list[Part]:
    """The images and the like of the question that is answered: without them it cannot be."""
    asked = _questions(past)[-1:] if _asks(past) else []
    return [part for message in asked for part in parts_of(message) if media_of(part)]


def _that_fit(parts: Sequence[Part], room: int) -> tuple[list[Part], int]:
    """Those that so many tokens hold, and how many tokens are left beside them."""
    fitting: list[Part] = []
    for part in parts:
        media = media_of(part)
        size = of_media(media) if media else 0
        if size <= room:
            fitting.append(part)
            room -= size
    return fitting, room


def _numbered(past: Past, carried: Sequence[Part] = ()) -> list[str]:
    """The user's older words, each question's under its number in the conversation; what is not sent is named."""
    questions = _questions(past)
    asked = questions[-1] if questions and _asks(past) else None
    return [
        f"{number}. {_words(message, asked=True, carried=carried) if message is asked else _words(message)}"
        for number, message in enumerate(questions, 1)
    ]


def _words(message: Message, *, asked: bool = False, carried: Sequence[Part] = ()) -> str:
    """What was typed, then the names of what was attached; where nothing else says what is asked, more of that."""
    texts = text_parts_of(message)
    typed = [part["text"] for part in texts if "source" not in part]
    if asked or not typed:
        typed = [text_of(pruned(message))]
    else:
        typed += [f"[{part['source']}, {len(part['text']):,} characters]" for part in texts if "source" in part]
    gone = (media_of(part) for part in parts_of(message) if part not in carried)
    return "\n".join(filter(None, [*typed, *(str(media) for media in gone if media)]))


def _files(messages: Sequence[Message], room: int) -> list[str]:
    """The files that calls of tools have touched, the newest of them that fit."""
    lines: list[str] = []
    for file in reversed(touched(messages, room)):
        line = f"- {file.path} ({file.action})"
        room -= estimate(line) + 1
        if room < 0:
            break
        lines.append(line)
    return [_FILES, *reversed(lines)] if lines else []


def _state(past: Past, room: int) -> list[str]:
    """How things stand: the newest summary as far as it fits, else the ends of the last answer."""
    if past.summary:
        told = _fitting(past.summary, room)
        return [_SUMMARY, *told] if told else []
    answers = (message for message in reversed(past.older) if message["role"] == "assistant" and text_of(message))
    last = next(map(text_of, answers), "")
    text = last if len(last) <= 3 * _ENDS else f"{last[:_ENDS]}\n{MARK}\n{last[-_ENDS:]}"
    told = _fitting(text, room) if last else []
    return [_LAST, *told] if told else []


def _fitting(text: str, room: int) -> list[str]:
    """The beginning of a text that takes so many tokens, a mark behind it; nothing where there is hardly any room."""
    size = estimate(text)
    while size > room:
        kept = min(len(text) - 1, len(text) * room // size - 4)
        if kept < _ENDS // 4:
            return []
        text = f"{text[:kept].rstrip()} {MARK}"
        size = estimate(text)
    return [text]
