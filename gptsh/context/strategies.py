"""What each strategy of a compaction sends and leaves out: ``pruned-tools``, ``summary`` and ``minimal`` (``SHORTEN``).

Input and output are messages as ``valid.sendable`` returns them. Recent messages follow what a strategy makes of the
older ones. A tool call and its results are never separated (see ``compaction``).

Both ``summary`` and ``minimal`` put one question in place of the older messages. ``minimal`` fills it in this order,
and no row takes room from one above it:

    1  the current question with its media, where it is among the older messages, as in a turn of many tool rounds
    2  the last answer, where it is among them: whole up to a quarter of the room, else both its ends
    3  the newest summary
    4  the words of the first question, then of the others from the newest on
    5  media of earlier questions, from the newest on
    6  the files that tool calls named
    7  both ends of a question that was too long for row 4
"""

from collections.abc import Callable, Sequence

from gptsh.content.attachments import media_in, media_of, name_of
from gptsh.context.choice import MINIMAL, PRUNED, SUMMARY, CompactedPrompt
from gptsh.context.shorten import pruned, touched_files
from gptsh.context.tokens import FRAMING, count_media, count_text, truncate_tokens
from gptsh.messages import Message, Part, parts_of, starts_turn, text_of, text_parts_of, user_message
from gptsh.records import NamedTuple
from gptsh.text import quantity

ANSWER_SHARE = 4  # the last answer may take this fraction of the room, before words and media
_MIN_EXCERPT = 40  # tokens of a summary, an answer or a long question: a shorter excerpt is useless
_FILES_SHARE = 4  # the list of files may take this fraction of the room
_HEADINGS = 90  # tokens of all headings and the blank lines between them
_BEGINNING = "[Shortened by gptsh: the conversation up to here.]"
_WORDS = "What the user said, word for word:"
_SOME_WORDS = "What the user said, word for word ({omitted} left out):"
_OUTCOMES = "What the answers and tools came to:"
_TASK = "The task as it was first put:"
_FILES = "Files touched:"
_LAST = "The last answer:"
_MEDIA = "Sent with question {number}:"
_END = "[The conversation goes on:]"


class SplitHistory(NamedTuple):
    """A session, split in two. ``summary`` covers the first ``covered`` of the older messages.

    ``room``: tokens for the older part in ``minimal``, for the media of the older part in ``summary``.
    """

    older: Sequence[Message]
    recent: Sequence[Message]
    summary: str = ""
    covered: int = 0
    room: int = 0


def pruned_tools(history: SplitHistory) -> CompactedPrompt:
    """Send everything, with older tool results and older attached text shortened."""
    everything = [*map(pruned, history.older), *history.recent]
    return CompactedPrompt(everything, len(everything))


def summary(history: SplitHistory) -> CompactedPrompt:
    """Send the older user words verbatim, a summary of the other older messages, and the recent messages.

    The words come first: they only grow, so the prompt begins as the last one did. Media of older questions is sent
    where it fits, that of the current question always.
    """
    block = _Block(history)
    for at in range(len(block.questions)):
        block.words[at] = block.line(at)
    block.summary = history.summary
    block.room = history.room
    block.add_media(current=True, must=True)
    block.add_media()
    return block.prompt(has_summary=True)


def minimal(history: SplitHistory) -> CompactedPrompt:
    """Last resort: fill the room in the order of the rows above, without a new summary.

    The words of the current question are always sent.
    """
    block = _Block(history)
    block.add_current()
    block.add_last_answer()
    block.add_summary()
    block.add_words()
    block.add_media()
    block.add_files()
    block.add_cut_words()
    if block.room < 0 and block.current is None:
        return _without_block(block)
    return block.prompt(has_summary=bool(block.summary))


# In the order in which they are tried.
SHORTEN: dict[str, Callable[[SplitHistory], CompactedPrompt]] = {
    PRUNED: pruned_tools,
    SUMMARY: summary,
    MINIMAL: minimal,
}


def is_verbatim(message: Message) -> bool:
    """Whether a message is always sent verbatim, however old it is."""
    return message["role"] == "system" or starts_turn(message)


def last_answer_at(messages: Sequence[Message]) -> int | None:
    """The index of the last answer with words before the current question; None if there is none."""
    question_at = max((at for at, message in enumerate(messages) if starts_turn(message)), default=0)
    answers = (at for at in reversed(range(question_at)) if messages[at]["role"] == "assistant")
    return next((at for at in answers if (text := text_of(messages[at])) and not text.isspace()), None)


class _Block:
    """The question in place of the older messages, as it is filled. ``room``: the tokens that are left for it."""

    def __init__(self, history: SplitHistory) -> None:
        self.history = history
        self.questions = [message for message in history.older if starts_turn(message)]
        is_current_older = bool(self.questions) and not any(map(starts_turn, history.recent))
        self.current = len(self.questions) - 1 if is_current_older else None
        self.room = history.room - _HEADINGS
        self.words: dict[int, str] = {}  # the line of each question that is sent, by its index
        self.media: list[tuple[int, Part]] = []  # the index of its question, and the part
        self.summary = self.last_answer = ""
        self.files: list[str] = []

    # ---- the rows

    def add_current(self) -> None:
        """Add the current question and its media, if it is among the older messages."""
        if self.current is not None:
            self.words[self.current] = line = self.line(self.current)
            self.room -= count_text(line) + 1
            self.add_media(current=True)

    def add_last_answer(self) -> None:
        """Add the last answer, if it is among the older messages: both its ends if it is long."""
        messages = [*self.history.older, *self.history.recent]
        at = last_answer_at(messages)
        if at is not None and at < len(self.history.older):
            limit = min(self.room, self.history.room // ANSWER_SHARE)
            self.last_answer = self._excerpt(text_of(messages[at]), limit, ends=True)

    def add_summary(self) -> None:
        """Add the newest summary, its beginning if it is too long."""
        self.summary = self._excerpt(self.history.summary, self.room)

    def add_words(self) -> None:
        """Add the words of the first question, then of the others from the newest on, where they fit."""
        newest_first = reversed(range(len(self.questions)))
        for at in dict.fromkeys([*range(len(self.questions))[:1], *newest_first]):
            line = self.line(at)
            size = count_text(line) + 1
            if at not in self.words and size <= self.room:
                self.words[at] = line
                self.room -= size

    def add_media(self, *, current: bool = False, must: bool = False) -> None:
        """Add media from the newest on, where it fits: that of the ``current`` question, or of the earlier ones.

        ``must``: whether it fits or not.
        """
        for at in reversed(range(len(self.questions))):
            if at not in self.words or (at == self.current) != current:
                continue
            for part, media in media_in(self.questions[at]):
                size = count_media(media) + count_text(_MEDIA) + FRAMING
                if must or size <= self.room:
                    self.media.append((at, part))
                    self.room -= size

    def add_cut_words(self) -> None:
        """Add both ends of the newest question that does not fit whole."""
        missing = [at for at in range(len(self.questions)) if at not in self.words]
        if missing and (excerpt := self._excerpt(self.line(missing[-1]), self.room - 1, ends=True)):
            self.words[missing[-1]] = excerpt

    def add_files(self) -> None:
        """Add the files that tool calls named, as many of the newest as fit."""
        room = min(self.room, self.history.room // _FILES_SHARE)
        for path, tools in reversed(touched_files(self.history.older).items()):
            line = f"- {path} ({', '.join(tools)})"
            room -= count_text(line) + 1
            if room < 0:
                break
            self.files.insert(0, line)

    # ---- texts

    def line(self, at: int) -> str:
        """The words of a question under its number in the conversation, then the names of what was attached.

        The current question, or one without words, has both ends of each attached text.
        """
        message = self.questions[at]
        texts = text_parts_of(message)
        texts = [part for part in texts if not part.get("memory")]  # the system prompt has it
        words = [part["text"] for part in texts if "source" not in part]
        if at == self.current or not words:
            words = [text_of(pruned(message))]
        else:
            words += [f"[{part['source']}, {len(part['text']):,} characters]" for part in texts if "source" in part]
        words += [_media_name(part) for part in parts_of(message) if media_of(part)]
        return f"{at + 1}. " + "\n".join(filter(None, words))

    def _excerpt(self, text: str, limit: int, *, ends: bool = False) -> str:
        """As much of a text as fits ``limit``, taken from the room; "" if that is hardly anything."""
        excerpt = truncate_tokens(text, limit, ends=ends) if text and limit >= _MIN_EXCERPT else ""
        self.room -= count_text(excerpt)
        return excerpt

    def prompt(self, *, has_summary: bool) -> CompactedPrompt:
        """The messages: system messages, the block, and the recent messages."""
        older, recent = self.history.older, self.history.recent
        omitted = [at + 1 for at in range(len(self.questions)) if at not in self.words]
        sections = self._sections(omitted)
        text = "\n\n".join([_BEGINNING, *("\n".join(section) for section in sections if section)])
        media_parts: list[Part] = []
        for at, part in sorted(self.media, key=lambda pair: pair[0]):
            media_parts += [{"type": "text", "text": _MEDIA.format(number=at + 1)}, part]
        end: Part = {"type": "text", "text": _END}
        block = user_message(text, [*media_parts, end]) if media_parts else user_message(f"{text}\n\n{_END}", ())
        systems = [message for message in older if message["role"] == "system"]
        covered = older[: self.history.covered] if has_summary else ()
        summarized = sum(not is_verbatim(message) for message in covered)
        included = len(self.words) + len(systems) + self._counts_last_answer(covered)
        sent_media = {id(part) for _, part in self.media}
        media_names = [_media_name(part) for message in self.questions for part, _ in media_in(message)
                       if id(part) not in sent_media]  # fmt: skip
        left_out = len(older) - included - summarized + len(media_names)
        messages = [*systems, *([block] if older else []), *recent]
        return CompactedPrompt(messages, included + len(recent), summarized, left_out, omitted, media_names)

    def _counts_last_answer(self, covered: Sequence[Message]) -> bool:
        """Whether the last answer is sent in the block and not counted as summarised."""
        at = last_answer_at([*self.history.older, *self.history.recent])
        return bool(self.last_answer) and at is not None and at >= len(covered)

    def _sections(self, omitted: Sequence[int]) -> list[list[str]]:
        """The headings with their lines."""
        words = [self.words[at] for at in sorted(self.words)]
        outcomes = [_OUTCOMES, self.summary] if self.summary else []
        last = [_LAST, self.last_answer] if self.last_answer else []
        files = [_FILES, *self.files] if self.files else []
        if not omitted:
            return [[_WORDS, *words] if words else [], outcomes, files, last]
        task = [_TASK, words.pop(0)] if words and 0 in self.words and len(self.questions) > 1 else []
        verbs = "does not fit and is" if len(omitted) == 1 else "do not fit and are"
        heading = _SOME_WORDS.format(omitted=f"{quantity(len(omitted), 'earlier question')} {verbs}")
        return [task, [heading, *words], outcomes, files, last]


def _without_block(block: _Block) -> CompactedPrompt:
    """The system messages and the recent messages, where there is no room for anything else."""
    older, recent = block.history.older, block.history.recent
    systems = [message for message in older if message["role"] == "system"]
    media_names = [_media_name(part) for message in block.questions for part, _ in media_in(message)]
    included = len(systems) + len(recent)
    left_out = len(older) - len(systems) + len(media_names)
    numbers = range(1, len(block.questions) + 1)
    return CompactedPrompt([*systems, *recent], included, 0, left_out, numbers, media_names)


def _media_name(part: Part) -> str:
    """Such as ``shot.png [image/png, 34.1 kB]``."""
    return " ".join(filter(None, (name_of(part), str(media_of(part)))))
