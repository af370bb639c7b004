"""Choose the strategy that sends a long session in a small window, and the messages that fit."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Unpack

from gptsh.config.settings import ContextRules
from gptsh.content.attachments import media_in, media_of, name_of
from gptsh.context.sendable import cut_text, pruned, touched_files
from gptsh.context.summaries import LENGTH_TOLERANCE, latest, summary_of, uncovered
from gptsh.context.tokens import (
    ASKED,
    FRAMING,
    FULL,
    MINIMAL,
    PRUNED,
    SUMMARY,
    Choice,
    CompactedPrompt,
    Size,
    compaction_mark,
    count_media,
    count_message,
    count_text,
    omissions,
    truncate_tokens,
)
from gptsh.core.document_types import Compaction, ContextState, Summary
from gptsh.errors import GptshError
from gptsh.jsonio import as_dict
from gptsh.messages import (
    Message,
    Part,
    just_after,
    new_message_id,
    parts_of,
    starts_turn,
    text_of,
    text_parts_of,
    timestamp,
    user_message,
)
from gptsh.text import quantity

# ---- strategies
#
# What each strategy of a compaction sends and leaves out: ``pruned-tools``, ``summary`` and
# ``minimal`` (``SHORTEN``).
#
# Input and output are messages as ``make_sendable`` returns them. Recent messages follow what a
# strategy makes of the older ones. A tool call and its results are never separated (see
# ``compaction``).
#
# Both ``summary`` and ``minimal`` put one question in place of the older messages. ``minimal``
# fills it in this order, and no row takes room from one above it:
#
# 1 the current question with its media, where it is among the older messages, as in a turn of many
# tool rounds 2 the last answer, where it is among them: whole up to a quarter of the room, else
# both its ends 3 the newest summary 4 the words of the first question, then of the others from the
# newest on 5 media of earlier questions, from the newest on 6 the files that tool calls named 7
# both ends of a question that was too long for row 4

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


# ---- compaction
#
# When and how a long session is compacted: it keeps its active compaction, or the first strategy
# that fits makes one.
#
# A compaction is a record in the session (``context.compaction``): the strategy, and ``upto``, the
# id of the last message that is sent in a shorter form. It stays active until the prompt has grown
# past the mark (``compact_at``) again, so that prompts keep the same beginning from turn to turn
# and providers' caches hit. A new compaction aims at half of the budget. One that could not reach
# half stays active until the budget is full. Where something of the user's would be left out,
# nearly all of the budget is filled (see ``strategies``).
#
# Each strategy is tried once, in order, with its real text. The caller passes in the function that
# makes summaries.

# (older messages, those of them that no summary covers, text of the last summary, tokens for the new one)
# -> the record of the new summary in ``context.summaries``. Raises GptshError.
Summarise = Callable[[Sequence[Message], Sequence[Message], str | None, int], Summary]

# (messages, id of their compaction, exact) -> the size of that prompt. Unless ``exact``, it is measured only as far as
# needed to see that it is below the mark.
Measure = Callable[[Sequence[Message], str | None, bool], Size]

_TARGET = 0.5  # share of the budget that a new compaction aims at
_GROWN_BUDGET = 1.2  # times the budget of the active compaction: with more, a larger part of the session may fit
_FILL = 0.88  # share of the budget that is filled where something is left out; the rest is for the next turns
_MAX_ROOM, _ROOM_TRIES = 1.5, 8  # times the room that is likely left; attempts to find the true one
_MAX_SHARE_LEFT = 0.9  # of the current size: saving less does not justify a new beginning of the prompt
_SUMMARY_DIVISOR = 4  # a summary takes at most this fraction of the budget
_SPARE_SHARE = 0.95
_ENDS_SHARES = (1, 0.75, 0.5)  # of the room that is left for both ends of a message: tried until it fits
_MIN_ENDS = 30  # tokens of a message of which the ends are sent: fewer are useless
_MIN_DENSITY = 0.1
_UNLIMITED = 10**9  # tokens
_MIN_SUMMARY = 200  # tokens: with less room, user words are left out instead
_NO_REPORTS = ""  # no answer has this compaction id, so the count uses no report


class Chooser:
    """Choose how to send ``messages``, which come from ``make_sendable``; ``state`` is the document's ``context``.

    The messages may take ``budget`` tokens (None: unknown). ``measure`` counts the ``fixed`` tokens around them too.
    ``on_failure`` gets the error of a failed summary before the next strategy is tried.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        state: ContextState,
        measure: Measure,
        budget: int | None,
        fixed: int,
        rules: ContextRules,
        summarise: Summarise,
        on_failure: Callable[[GptshError], None],
    ) -> None:
        self._messages, self._state, self._rules = messages, state, rules
        self._measure, self._budget, self._fixed = measure, budget, fixed
        self._summarise, self._on_failure = summarise, on_failure
        self._exact = False
        self._density = 1.0  # tokens of this model for each token that gptsh counts
        self._ids = [message.get("id") or "" for message in messages]
        self._end = max(0, len(messages) - max(1, rules.keep_messages))  # messages before this may be shortened
        while self._end > 0 and not _can_split(messages, self._end):
            self._end -= 1

    def choose(self, reason: str) -> Choice:
        """Choose how to send the session. If nothing fits, return the shortest choice; its size exceeds the budget.

        The active compaction is used while its prompt is below the mark (``compact_at``). A much larger budget ends it,
        and a new one is made if needed. If no compaction saves anything, the prompt stays the same until the budget is
        full.
        """
        record = self._active_record()
        if not self._rules.compact:
            return self.choice_under(record if record and record.get("reason") == ASKED else None)
        grown = record and self._budget and self._budget > _GROWN_BUDGET * (record.get("budget") or 1e9)
        now = self.choice_under(None if grown else record)
        if self.can_stay(now):
            return now
        # The next compaction may have room for words that the last resort leaves out.
        before = self.choice_under(None) if now.strategy == MINIMAL else now
        budget = self._budget or 0
        return self._compact(before, min(round(_TARGET * budget), compaction_mark(budget, self._rules)), reason)

    def current(self) -> Choice:
        """Return how the session is sent now, even if it does not fit: whole, or under the active compaction."""
        return self.choice_under(self._active_record())

    def compact(self) -> Choice | None:
        """Compact to half of the current size because the user asks for it; None if nothing would be shorter."""
        now = self.current()
        leaves_out = now.strategy == MINIMAL  # then a larger prompt is better
        if not leaves_out and now.record and self._end and now.record["upto"] == self._ids[self._end - 1]:
            return None
        longer = self.choice_under(None) if leaves_out else now
        target, budget = round(_TARGET * self._message_tokens(longer)), self._budget
        if budget is not None:
            target = min(target, round(_TARGET * budget))
        choice = self._compact(longer, target, ASKED)
        return choice if choice.is_new else None

    def can_stay(self, choice: Choice) -> bool:
        """Whether the session may be sent so, without a new compaction.

        The prompt is below the mark; or it fits, and its compaction could not reach half of the budget it was made for.
        """
        budget, record = self._budget, choice.record or {}
        if budget is None:
            return True
        barely_fits = (record.get("after") or 0) > _TARGET * (record.get("budget") or math.inf)
        return self._message_tokens(choice) <= (budget if barely_fits else compaction_mark(budget, self._rules))

    def choice_under(self, record: Compaction | None) -> Choice:
        """Return how the session is sent under a compaction; None sends it whole."""
        if record is None:
            everything = CompactedPrompt(self._messages, len(self._messages))
            return Choice(FULL, everything, self._measure(self._messages, None, self._exact))
        prompt = SHORTEN[record["strategy"]](self._split(record))
        size = self._measure(prompt.messages, record["id"], self._exact)
        last_summary = summary_of(self._state, record.get("summary"))
        if last_summary and last_summary.get("pending"):  # a dry run did not make it
            tokens = last_summary.get("tokens") or 0
            size = Size(size.tokens + tokens, size.at_most + tokens, size.reported)
        return Choice(record["strategy"], prompt, size, record)

    # ---- the active compaction

    def _active_record(self) -> Compaction | None:
        """The session's last compaction, if the message and the summary that it names still exist."""
        record = self._state.get("compaction")
        if record is None or record.get("strategy") not in SHORTEN or "id" not in record:
            return None
        if self._position(record.get("upto")) is None:
            return None
        is_lost = record["strategy"] == SUMMARY and summary_of(self._state, record.get("summary")) is None
        return None if is_lost else record

    def _position(self, message_id: object) -> int | None:
        """The last index of a message with this id, or None."""
        positions = [at for at, known_id in enumerate(self._ids) if known_id and known_id == message_id]
        return positions[-1] if positions else None

    def _split(self, record: Compaction) -> SplitHistory:
        """The session, split into older and recent messages as the record says."""
        end = (self._position(record["upto"]) or 0) + 1
        older, recent = list(self._messages[:end]), list(self._messages[end:])
        cuts = as_dict(record.get("ends"))
        recent = [
            cut_text(message, cuts[message["id"]]) if message.get("id") in cuts else message for message in recent
        ]
        if record.get("pruned"):  # tool results only: attachments of the user are truncated visibly or not at all
            upto = 1 + next((at for at, message in enumerate(recent) if message.get("id") == record["pruned"]), -1)
            recent[:upto] = [pruned(message) if message["role"] == "tool" else message for message in recent[:upto]]
        last_summary = summary_of(self._state, record.get("summary"))
        if last_summary is None:
            return SplitHistory(older, recent, room=record.get("room") or 0)
        last = self._position(last_summary.get("last"))
        covered = 0 if last is None else last + 1
        if record["strategy"] == SUMMARY:  # a parallel run may have saved its answer among the older messages since
            late = [message for message in uncovered(older, last_summary) if not is_verbatim(message)]
            late_objects = set(map(id, late))
            older = [message for message in older if id(message) not in late_objects]
            recent = [*late, *recent]
        text = last_summary.get("text") or ""
        room = record.get("room") or 0
        return SplitHistory(older, recent, text, min(len(older), covered), room)

    # ---- a new compaction

    def _compact(self, before: Choice, target: int, reason: str) -> Choice:
        """Use the first strategy that reaches ``target``, or comes as close as the protected messages allow.

        If no strategy saves enough, return ``before`` if that fits, else the last resort.
        """
        budget, self._exact = self._budget, True
        sample = self._messages[self._end :]  # a whole session may be too large to be counted
        self._density = max(_MIN_DENSITY, self._size(sample) / max(1, sum(map(count_message, sample))))
        before = self.choice_under(before.record)
        bare = summary(SplitHistory(self._messages[: self._end], self._messages[self._end :]))
        protected = self._size(bare.messages)  # the user's words and the recent messages
        goal = max(target, protected) if budget is None else min(max(target, protected), budget)
        choice = self._try_pruning(goal) if self._end else None
        if choice is None and self._end:
            try:
                choice = self._try_summary(protected, goal, target)
            except GptshError as err:
                if reason == ASKED:
                    raise
                self._on_failure(err)
                choice = self._try_pruning(compaction_mark(budget or 0, self._rules))
        if choice and choice.size.tokens >= (1 if reason == ASKED else _MAX_SHARE_LEFT) * before.size.tokens:
            choice = None
        if choice is None or (budget is not None and self._message_tokens(choice) > budget):
            if budget is None or self._message_tokens(before) <= budget:
                return before
            choice = self._last_resort()
        if choice.record is None:
            return choice
        record: Compaction = {
            **choice.record,
            "before": max(0, before.size.tokens - self._fixed),
            "after": self._message_tokens(choice),
            "reason": reason,
            "omitted": omissions(choice.prompt),
        }
        return choice._replace(record=record, is_new=True)

    def _try_pruning(self, goal: int) -> Choice | None:
        """Shorten older tool results; None if that does not reach the goal."""
        choice = self.choice_under(self._record(PRUNED, self._end))
        return choice if self._message_tokens(choice) <= goal else None

    def _try_summary(self, protected: int, goal: int, target: int) -> Choice | None:
        """Use an existing summary or make a new one; None if there is no room for one, or the user wants none.

        Raises GptshError if the summary cannot be made.
        """
        budget, full_length = self._budget, round(LENGTH_TOLERANCE * self._rules.summary_tokens)
        longest = min(full_length, max(_MIN_SUMMARY, (2 * target if budget is None else budget) // _SUMMARY_DIVISOR))
        if budget is not None:
            longest = min(longest, budget - protected)
        if longest < min(_MIN_SUMMARY, full_length) or not full_length:
            return None
        active, newest = self._active_record(), latest(self._state, self._ids)
        if newest and not (active and active.get("summary") == newest[0]["id"]):
            existing, last = newest
            if (existing.get("tokens") or 0) <= longest and not uncovered(self._messages[: last + 1], existing):
                choice = self.choice_under(self._record(SUMMARY, last + 1, summary=existing["id"]))
                if self._message_tokens(choice) <= min(goal + longest, budget or goal + longest):
                    return self._with_media(choice)
        older = list(self._messages[: self._end])
        previous = latest(self._state, self._ids[: self._end])
        fresh = uncovered(older, previous[0]) if previous else older
        length = max(1, int(longest / LENGTH_TOLERANCE))
        new = self._summarise(older, fresh, previous[0]["text"] if previous else None, length)
        return self._with_media(self.choice_under(self._record(SUMMARY, self._end, summary=new["id"])))

    def _with_media(self, choice: Choice) -> Choice:
        """The choice of a summary with as much media of older questions as the budget has room for."""
        if not choice.prompt.omitted_media:
            return choice
        room = _UNLIMITED if self._budget is None else round(_FILL * self._budget) - self._message_tokens(choice)
        choice = self.choice_under({**(choice.record or {}), "room": room})
        if choice.prompt.omitted_media and self._budget is not None:
            return self._with_more(choice, self._end, round(_FILL * self._budget))
        return choice

    def _last_resort(self) -> Choice:
        """Fill the budget without a new summary, in the order of ``strategies``: then with more of the last messages.

        The last answer and the current question stay as messages. In a long turn of tool rounds the newest rounds do,
        and the question and the last answer go into the block before them.
        """
        goal = round(_FILL * (self._budget or 0))
        question_at = max((at for at, message in enumerate(self._messages) if starts_turn(message)), default=0)
        answer_at = last_answer_at(self._messages)
        start = question_at if answer_at is None else answer_at
        while start > 0 and not _can_split(self._messages, start):
            start -= 1
        rounds = [at for at in range(question_at + 1, len(self._messages)) if _can_split(self._messages, at)]
        ends: dict[str, int] = {}
        if answer_at is not None and self._size([self._messages[answer_at]]) > goal // ANSWER_SHARE:
            ends = {self._ids[answer_at]: round(goal / ANSWER_SHARE / self._density)}
        choice = None
        if start:
            choice = self._filled(self._record(MINIMAL, start, ends=ends), goal)
        if rounds and (choice is None or self._message_tokens(choice) > goal or choice.prompt.omitted_questions):
            choice = self._with_newest_rounds([*filter(None, [start]), *rounds], ends, goal)
        if choice is None:
            return self.choice_under(None)
        if (choice.record or {}).get("upto") == self._ids[start - 1]:
            choice = self._with_more(choice, start, goal)
        return choice

    def _with_newest_rounds(self, starts: Sequence[int], ends: dict[str, int], goal: int) -> Choice:
        """Send as many of the newest rounds as fit half of the goal, tool results shortened; at least the last one.

        A long question leaves room for fewer: it is sent in any case.
        """
        records = [self._record(MINIMAL, at, ends=ends, pruned=self._ids[-1]) for at in starts]
        for record in records[:-1]:
            if self._size(self._split(record).recent) <= goal // 2:
                choice = self._filled(record, goal)
                if self._message_tokens(choice) <= (self._budget or 0):
                    return choice
        return self._filled(records[-1], goal)

    def _filled(self, record: Compaction, goal: int) -> Choice:
        """The last messages as the record has them, and before them what the goal has room for.

        Where not even the protected messages fit the goal, they may take the budget.
        """
        recent = self._size(self._split(record).recent)
        for limit in (goal, self._budget or 0):
            # What the room takes is known only when it is filled: lines are whole, and the count is scaled.
            low, high = 0, max(0, round(_MAX_ROOM * (limit - recent) / self._density))
            room = round(max(0, limit - recent) / self._density)
            best = self.choice_under({**record, "room": 0})
            for _ in range(_ROOM_TRIES):
                choice = self.choice_under({**record, "room": room})
                size = self._message_tokens(choice)
                if size > limit:
                    high = room
                elif best.prompt == choice.prompt:  # more room changes nothing
                    break
                else:
                    best, low = choice, room
                room = (low + high) // 2
            if self._message_tokens(best) <= limit:
                break
        return best

    def _with_more(self, choice: Choice, start: int, goal: int) -> Choice:
        """Send more of the last answer, then more of the messages before ``start``, while nothing else goes for it.

        Of a message that does not fit whole both ends are sent.
        """
        for ident, tokens in as_dict((choice.record or {}).get("ends")).items():
            choice = self._better(choice, {"ends": {ident: tokens + self._spare(choice, goal)}}, goal) or choice
        end = start
        for at in reversed(range(1, start)):
            if not _can_split(self._messages, at):
                continue
            changes: Compaction = {"upto": self._ids[at - 1], "pruned": self._ids[start - 1]}
            longer = self._better(choice, changes, goal)
            if longer is None:
                longest = max(range(at, end), key=lambda index: count_message(self._messages[index]))
                others = sum(count_message(self._messages[index]) for index in range(at, end) if index != longest)
                room = self._spare(choice, goal) - others - FRAMING
                if starts_turn(self._messages[longest]):
                    return choice
                return self._with_ends(choice, changes, self._ids[longest], room, goal)
            choice, end = longer, at
        return choice

    def _with_ends(
        self,
        choice: Choice,
        changes: Compaction,
        ident: str,
        room: int,
        goal: int,
    ) -> Choice:
        """Send both ends of one more message; in less than the room if its count comes out higher than estimated."""
        for share in _ENDS_SHARES:
            if (tokens := round(share * room)) < _MIN_ENDS:
                break
            ends = {**as_dict((choice.record or {}).get("ends")), ident: tokens}
            if longer := self._better(choice, {**changes, "ends": ends}, goal):
                return longer
        return choice

    def _spare(self, choice: Choice, goal: int) -> int:
        """How many tokens, as gptsh counts, the prompt may grow up to the goal: a little less than is left."""
        return round(_SPARE_SHARE * (goal - self._message_tokens(choice)) / self._density)

    def _better(self, choice: Choice, changes: Compaction, goal: int) -> Choice | None:
        """The choice with these changes of its record, if it fits the goal and lacks nothing that it had."""
        record: Compaction = {**(choice.record or {}), **changes}
        new = self.choice_under(record) if record["strategy"] == SUMMARY else self._filled(record, goal)
        if self._message_tokens(new) > goal or new.prompt.summarized + new.prompt.included < (
            choice.prompt.summarized + choice.prompt.included
        ):
            return None
        lacks_more = len(new.prompt.omitted_questions) > len(choice.prompt.omitted_questions)
        lacks_media = len(new.prompt.omitted_media) > len(choice.prompt.omitted_media)
        return None if lacks_more or lacks_media else new

    def _record(self, strategy: str, end: int, /, **more: Unpack[Compaction]) -> Compaction:
        """The record of a compaction that shortens the messages before index ``end``."""
        last_time = (self._state.get("compaction") or {}).get("at") or ""
        moment = max(timestamp(), just_after(last_time) if last_time else "")  # merging keeps the later record
        return {
            "id": new_message_id()[:8],
            "at": moment,
            "strategy": strategy,
            "upto": self._ids[end - 1],
            "kept": len(self._messages) - end,
            "summary": None,
            "room": None,
            "budget": self._budget,
            **more,
        }

    def _size(self, messages: Sequence[Message]) -> int:
        """Tokens of the messages alone."""
        return max(0, self._measure(messages, _NO_REPORTS, True).tokens - self._fixed)

    def _message_tokens(self, choice: Choice) -> int:
        """Tokens of a choice's messages, without the fixed ones."""
        return max(0, choice.size.tokens - self._fixed)


def _can_split(messages: Sequence[Message], at: int) -> bool:
    """Whether the messages can be split before index ``at``, without separating a tool call from its results.

    A call may have no result.
    """
    before, after = messages[at - 1], messages[at]
    waits = before["role"] == "assistant" and before.get("tool_calls") and not starts_turn(after)
    if waits or after["role"] == "tool":
        return False
    return before.get("id") is not None and before.get("id") != after.get("id")
