"""Choose the strategy that sends a long session in a small window, and the messages that fit."""

import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple, Unpack

from gptsh.config.settings import ContextRules
from gptsh.content.attachments import media_in, media_of, name_of
from gptsh.context.sendable import cut_text, pruned, touched_files
from gptsh.context.summaries import LENGTH_TOLERANCE, latest, summary_of, uncovered
from gptsh.context.tokens import (
    ASKED,
    MINIMAL,
    PRUNED,
    SUMMARY,
    Estimator,
    Prompt,
    count_message,
    count_text,
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
# What each strategy of a compaction sends and leaves out. ``pruned-tools`` sends everything, with
# older tool results and older attached text shortened.
#
# Input and output are messages as ``make_sendable`` returns them. Recent messages follow what a
# strategy makes of the older ones. A tool call and its results are never separated (see
# ``compaction``).
#
# Both ``summary`` and ``minimal`` put one question, the block, in place of the older messages.
# ``minimal`` fills it in this order, and no row takes room from one above it:
#
# 1. the current question with its media, where it is among the older messages, as in a turn of
#    many tool rounds
# 2. the last answer, where it is among them: whole up to a quarter of the room, else both its ends
# 3. the newest summary
# 4. the words of the first question, then of the others from the newest on
# 5. media of earlier questions, from the newest on
# 6. the files that tool calls named
# 7. both ends of a question that was too long for row 4
#
# Each line is counted when it is made, and the sum is never less than what the block takes. So the
# room is computed once.

_ANSWER_SHARE = 4  # the last answer may take this fraction of the room, before words and media
_FILES_SHARE = 4  # the list of files may take this fraction of the room
_MIN_EXCERPT = 40  # tokens of a text of which a part is sent: a shorter excerpt is useless
_HEADINGS = 92  # tokens of all headings, the blank lines between them, and the message around
_BEGINNING = "[Shortened by gptsh: the conversation up to here.]"
_WORDS = "What the user said, word for word:"
_SOME_WORDS = "What the user said, word for word ({omitted} left out):"
_OUTCOMES = "What the answers and tools came to:"
_TASK = "The task as it was first put:"
_FILES = "Files touched:"
_LAST = "The last answer:"
_MEDIA = "Sent with question {number}:"
_END = "[The conversation goes on:]"


class History(NamedTuple):
    """A session, split in two. ``summary`` covers the first ``covered`` of the older messages.

    ``room``: counted tokens for the older part in ``minimal``, for its media in ``summary``.
    """

    older: Sequence[Message]
    recent: Sequence[Message]
    summary: str = ""
    covered: int = 0
    room: int = 0


def _with_summary(history: History) -> "_Block":
    """The block of ``summary``.

    The words come first: they only grow, so the prompt begins as the last one did. Media of older
    questions is sent where it fits, that of the current question always.
    """
    block = _Block(history)
    for at in range(len(block.questions)):
        block.put(at, block.line(at))
    block.summary, block.room = history.summary, history.room
    block.add_media(current=True, must=True)
    block.add_media()
    return block


def _without_new_summary(history: History) -> "_Block":
    """The block of ``minimal``. The words of the current question are always sent."""
    block = _Block(history)
    if block.room < 0 and block.current is None:
        block.is_sent = False
    else:
        block.add_current()
        block.add_last_answer()
        block.summary = block.excerpt(history.summary, block.room)
        block.add_words()
        block.add_media()
        block.add_files()
        block.add_cut_words()
    return block


# How the strategies that make a block fill it.
_BLOCKS: dict[str, Callable[[History], "_Block"]] = {SUMMARY: _with_summary, MINIMAL: _without_new_summary}


def _is_verbatim(message: Message) -> bool:
    """Whether a message is always sent verbatim, however old it is."""
    return message["role"] == "system" or starts_turn(message)


def _last_question_at(messages: Sequence[Message]) -> int:
    """The index of the current question; 0 if there is none."""
    return max((at for at, message in enumerate(messages) if starts_turn(message)), default=0)


def _last_answer_at(messages: Sequence[Message]) -> int | None:
    """The index of the last answer with words before the current question, or None."""
    for at in reversed(range(_last_question_at(messages))):
        if messages[at]["role"] == "assistant" and text_of(messages[at]).strip():
            return at
    return None


def _count(messages: Sequence[Message]) -> int:
    return sum(map(count_message, messages))


def _cut_size(message: Message) -> int:
    """Tokens of a message of which no text is left but the mark."""
    return count_message(cut_text(message, 0))


def _pruned_result(message: Message) -> Message:
    """A tool result shortened, any other message as it is."""
    return pruned(message) if message["role"] == "tool" else message


class _Block:
    """The question in place of the older messages, as it is filled; ``room`` is what is left of its tokens."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.questions = [message for message in history.older if starts_turn(message)]
        is_current_older = bool(self.questions) and not any(map(starts_turn, history.recent))
        self.current = len(self.questions) - 1 if is_current_older else None
        self.room = history.room - _HEADINGS
        self.is_sent = bool(history.older)
        self.words: dict[int, str] = {}  # the line of each question that is sent, by its index
        self.media: list[tuple[int, Part]] = []  # the index of its question, and the part
        self.sizes: dict[int, int] = {}  # tokens of words and media, by the index of the question
        self.summary = self.last_answer = ""
        self.files: list[str] = []
        at = _last_answer_at([*history.older, *history.recent])
        self._answer_at = at if at is not None and at < len(history.older) else None

    # ---- the rows

    def put(self, at: int, line: str) -> None:
        """Add the line of a question, whether it fits or not."""
        self.words[at] = line
        self._take(at, count_text(line) + 1)

    def _take(self, at: int, size: int) -> None:
        """Take tokens from the room for a question."""
        self.sizes[at] = self.sizes.get(at, 0) + size
        self.room -= size

    def add_current(self) -> None:
        """Add the current question and its media, if it is among the older messages."""
        if self.current is not None:
            self.put(self.current, self.line(self.current))
            self.add_media(current=True)

    def add_last_answer(self) -> None:
        """Add the last answer, if it is among the older messages: both its ends if it is long."""
        if self._answer_at is not None:
            limit = min(self.room, self.history.room // _ANSWER_SHARE)
            self.last_answer = self.excerpt(text_of(self.history.older[self._answer_at]), limit, ends=True)

    def add_words(self) -> None:
        """Add the words of the first question, then from the newest on, where they fit."""
        for at in (0, *reversed(range(1, len(self.questions)))):
            if at < len(self.questions) and at not in self.words:
                line = self.line(at)
                if count_text(line) < self.room:
                    self.put(at, line)

    def add_media(self, *, current: bool = False, must: bool = False) -> None:
        """Add media from the newest question on, where it fits; ``must``: whether it fits or not.

        It is that of the ``current`` question, or of the earlier ones.
        """
        for at in sorted(self.words, reverse=True):
            if (at == self.current) != current:
                continue
            for part, _ in media_in(self.questions[at]):
                size = count_message(user_message(_MEDIA, [part]))
                if must or size <= self.room:
                    self.media.append((at, part))
                    self._take(at, size)

    def add_files(self) -> None:
        """Add the files that tool calls named, as many of the newest as fit."""
        room = min(self.room, self.history.room // _FILES_SHARE)
        for path, tools in reversed(touched_files(self.history.older).items()):
            line = f"- {path} ({', '.join(tools)})"
            size = count_text(line) + 1
            if size > room:
                break
            self.files.insert(0, line)
            room -= size
            self.room -= size

    def add_cut_words(self) -> None:
        """Add both ends of the newest question that does not fit whole."""
        for number in reversed(self.omitted):
            excerpt = self.excerpt(self.line(number - 1), self.room - 1, ends=True)
            if excerpt:
                self.words[number - 1] = excerpt
            break

    @property
    def omitted(self) -> list[int]:
        """The numbers of the questions that are not sent."""
        return [at + 1 for at in range(len(self.questions)) if at not in self.words]

    # ---- texts

    def line(self, at: int) -> str:
        """The words of a question under its number, then the names of what was attached.

        The current question, or one without words, has both ends of each attached text.
        """
        message = self.questions[at]
        texts = [part for part in text_parts_of(message) if not part.get("memory")]  # the system prompt has it
        words = [part["text"] for part in texts if "source" not in part]
        if at == self.current or not words:
            words = [text_of(pruned(message))]
        else:
            words += [f"[{part['source']}, {len(part['text']):,} characters]" for part in texts if "source" in part]
        words += [_media_name(part) for part in parts_of(message) if media_of(part)]
        return f"{at + 1}. " + "\n".join(filter(None, words))

    def excerpt(self, text: str, limit: int, *, ends: bool = False) -> str:
        """Take as much of a text as fits ``limit`` from the room; "" if that is hardly anything."""
        excerpt = truncate_tokens(text, limit, ends=ends) if text and limit >= _MIN_EXCERPT else ""
        self.room -= count_text(excerpt)
        return excerpt

    def prompt(self, draft: Prompt) -> Prompt:
        """The prompt: system messages, the block, and the recent messages."""
        older, recent = self.history.older, self.history.recent
        covered = older[: self.history.covered] if self.summary else ()
        summarized = sum(not _is_verbatim(message) for message in covered)
        systems = [message for message in older if message["role"] == "system"]
        included = len(systems) + len(self.words)
        if self.last_answer and self._answer_at is not None and self._answer_at >= len(covered):
            included += 1
        sent = [id(part) for _, part in self.media]
        media = [part for question in self.questions for part, _ in media_in(question)]
        media_names = [_media_name(part) for part in media if id(part) not in sent]
        messages = [*systems, *([self._message()] if self.is_sent else []), *recent]
        return draft.with_messages(messages)._replace(
            included=included + len(recent),
            summarized=summarized,
            left_out=len(older) - included - summarized + len(media_names),
            omitted_questions=tuple(self.omitted),
            omitted_media=tuple(media_names),
        )

    def _message(self) -> Message:
        """The block as a question."""
        text = "\n\n".join([_BEGINNING, *self._sections()])
        media: list[Part] = []
        for at, part in sorted(self.media, key=itemgetter(0)):
            media += [{"type": "text", "text": _MEDIA.format(number=at + 1)}, part]
        if not media:
            return user_message(f"{text}\n\n{_END}", ())
        return user_message(text, [*media, {"type": "text", "text": _END}])

    def _sections(self) -> list[str]:
        """The headings with their lines."""
        words = [self.words[at] for at in sorted(self.words)]
        heading, task = _WORDS, []
        omitted = len(self.omitted)
        if omitted:
            verbs = "does not fit and is" if omitted == 1 else "do not fit and are"
            heading = _SOME_WORDS.format(omitted=f"{quantity(omitted, 'earlier question')} {verbs}")
            if 0 in self.words:
                task = [_TASK, words.pop(0)]
        sections = [
            task,
            [heading, *words] if words or omitted else [],
            [_OUTCOMES, self.summary] if self.summary else [],
            [_LAST, self.last_answer] if self.last_answer else [],
            [_FILES, *self.files] if self.files else [],
        ]
        return ["\n".join(section) for section in sections if section]


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
# past the threshold (``compact_at``) again, so that prompts keep the same beginning from turn to
# turn and providers' caches hit. A new compaction aims at half of the budget. One that could not
# reach half stays active until the budget is full. Where something of the user's would be left
# out, nearly all of the budget is filled (see ``strategies``).
#
# Each strategy is tried once, in order, with its real text. The caller passes in the function that
# makes summaries.

# (older messages, those of them that no summary covers, text of the last summary, tokens for the
# new one) -> the record of the new summary in ``context.summaries``. Raises GptshError.
Summarise = Callable[[Sequence[Message], Sequence[Message], str | None, int], Summary]

_TARGET = 0.5  # share of the budget that a new compaction aims at
_GROWN_BUDGET = 1.2  # times the budget of the active compaction: with more, more may fit
# Share of the budget that is filled where something is left out; the rest is for the next turns.
# As the sum of the counted lines errs high, a little less is filled.
_FILL = 0.92
_MAX_SHARE_LEFT = 0.9  # of the current size: saving less does not justify a new beginning of the prompt
_SUMMARY_DIVISOR = 4  # a summary takes at most this fraction of the budget
_MIN_SUMMARY = 200  # tokens: with less room, user words are left out instead
_UNLIMITED = 10**9  # tokens


class Compactor:
    """Chooses how to send ``messages``, which come from ``make_sendable``.

    ``state`` is the document's ``context``, ``draft`` the prompt without its messages.
    ``on_failure`` gets the error of a failed summary before the next strategy is tried.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        state: ContextState,
        draft: Prompt,
        estimator: Estimator,
        rules: ContextRules,
        summarise: Summarise,
        on_failure: Callable[[GptshError], None],
    ) -> None:
        self._messages, self._state, self._rules = messages, state, rules
        self._draft, self._estimator = draft, estimator
        self._summarise, self._on_failure = summarise, on_failure
        self._ids = [message.get("id") or "" for message in messages]
        # Messages before this index may be shortened.
        self._end = self._split_before(len(messages) - max(1, rules.keep_messages))

    def choose(self, reason: str) -> Prompt:
        """Choose how to send the session; if nothing fits, the shortest prompt, which exceeds the budget.

        The active compaction is used while its prompt is below the threshold. A much larger budget
        ends it, and a new one is made if needed. If no compaction saves anything, the prompt stays
        the same until the budget is full.
        """
        record = self._active_record()
        limit = self._estimator.budget.limit
        if not self._rules.compact:
            return self._under(record if record and record.get("reason") == ASKED else None)
        if record and limit and limit > _GROWN_BUDGET * (record.get("budget") or math.inf):
            record = None
        now = self._under(record)
        if limit is None or self._can_stay(now):
            return now
        # The next compaction may have room for words that the last resort leaves out.
        before = self._under(None) if now.strategy == MINIMAL else now
        return self._compact(before, int(min(_TARGET, self._rules.compact_at) * limit), reason)

    def current(self) -> Prompt:
        """Return how the session is sent now, even if it does not fit."""
        return self._under(self._active_record())

    def compact(self) -> Prompt | None:
        """Compact to half of the current size, as the user asks; None if nothing is shorter."""
        now = self.current()
        if now.strategy == MINIMAL:  # then a larger prompt is better
            now = self._under(None)
        elif now.compaction and self._end and now.compaction["upto"] == self._ids[self._end - 1]:
            return None
        limit = self._estimator.budget.limit
        size = now.message_tokens if limit is None else min(now.message_tokens, limit)
        prompt = self._compact(now, int(_TARGET * size), ASKED)
        return prompt if prompt.is_new else None

    def _can_stay(self, prompt: Prompt) -> bool:
        """Whether the session may be sent so, without a new compaction.

        The prompt is below the threshold; or it fits, and its compaction could not reach half of
        the budget it was made for.
        """
        record: Compaction = prompt.compaction or {}
        barely_fits = (record.get("after") or 0) > _TARGET * (record.get("budget") or math.inf)
        limit = prompt.budget.limit if barely_fits else prompt.budget.threshold
        return limit is None or prompt.message_tokens <= limit

    def _under(self, record: Compaction | None) -> Prompt:
        """Return how the session is sent under a compaction; None sends it whole."""
        if record is None:
            everything = self._draft.with_messages(self._messages)
            return self._estimator.estimated(everything._replace(included=len(self._messages)))
        draft = self._draft._replace(strategy=record["strategy"], compaction=record)
        history = self._history(record)
        if record["strategy"] == PRUNED:
            shorter = [*map(pruned, history.older), *history.recent]
            prompt = draft.with_messages(shorter)._replace(included=len(shorter))
        else:
            prompt = _BLOCKS[record["strategy"]](history).prompt(draft)
        prompt = self._estimator.estimated(prompt)
        last_summary: Summary = summary_of(self._state, record.get("summary")) or {"id": ""}
        pending = (last_summary.get("tokens") or 0) if last_summary.get("pending") else 0  # a dry run did not make it
        return prompt._replace(tokens=prompt.tokens + pending, at_most=prompt.at_most + pending)

    # ---- the active compaction

    def _active_record(self) -> Compaction | None:
        """The last compaction, if the message and the summary that it names still exist."""
        record = self._state.get("compaction")
        if record is None or record.get("strategy") not in (PRUNED, *_BLOCKS) or "id" not in record:
            return None
        is_lost = record["strategy"] == SUMMARY and summary_of(self._state, record.get("summary")) is None
        return None if is_lost or not self._number_up_to(record.get("upto")) else record

    def _number_up_to(self, message_id: object) -> int:
        """How many messages there are up to the last one with this id; 0 if there is none."""
        numbers = [number for number, known_id in enumerate(self._ids, 1) if known_id and known_id == message_id]
        return numbers[-1] if numbers else 0

    def _history(self, record: Compaction) -> History:
        """The session, split into older and recent messages as the record says."""
        end = self._number_up_to(record["upto"])
        older, recent = self._messages[:end], self._recent(record, end)
        room = record.get("room") or 0
        last_summary = summary_of(self._state, record.get("summary"))
        if last_summary is None:
            return History(older, recent, room=room)
        covered = self._number_up_to(last_summary.get("last"))
        if record["strategy"] == SUMMARY:  # a parallel run may have saved its answer among the older messages since
            late = [message for message in uncovered(older, last_summary) if not _is_verbatim(message)]
            late_objects = set(map(id, late))
            older = [message for message in older if id(message) not in late_objects]
            recent = [*late, *recent]
        return History(older, recent, last_summary.get("text") or "", min(len(older), covered), room)

    def _recent(self, record: Compaction, end: int) -> list[Message]:
        """The messages after the older ones: of some both ends, and of older tool results.

        Attachments of the user are truncated visibly or not at all.
        """
        ends = as_dict(record.get("ends"))
        pruned_end = self._number_up_to(record.get("pruned"))
        recent = []
        for at, message in enumerate(self._messages[end:], end):
            if self._ids[at] in ends:
                message = cut_text(message, ends[self._ids[at]])
            recent.append(_pruned_result(message) if at < pruned_end else message)
        return recent

    # ---- a new compaction

    def _compact(self, before: Prompt, target: int, reason: str) -> Prompt:
        """Use the first strategy that comes as close to ``target`` as the protected messages allow.

        If no strategy saves enough, return ``before`` if that fits, else the last resort.
        """
        self._estimator.counts = True
        before = self._under(before.compaction)
        limit = before.budget.limit
        bare = _with_summary(History(self._messages[: self._end], self._messages[self._end :])).prompt(self._draft)
        protected = self._estimator.count(bare.request.messages)  # the user's words and the recent messages
        goal = max(target, protected)
        prompt = self._shorter(goal if limit is None else min(goal, limit), protected, target, reason)
        least_saving = 1 if reason == ASKED else _MAX_SHARE_LEFT
        if prompt and prompt.tokens >= least_saving * before.tokens:
            prompt = None
        if prompt is None or not prompt.fits:
            if before.fits:
                return before
            prompt = self._last_resort(limit or 0)
        if prompt.compaction is None:
            return prompt
        record: Compaction = {
            **prompt.compaction,
            "before": before.message_tokens,
            "after": prompt.message_tokens,
            "reason": reason,
            "omitted": prompt.omitted,
        }
        return prompt._replace(compaction=record, is_new=True)

    def _shorter(self, goal: int, protected: int, target: int, reason: str) -> Prompt | None:
        """Shorten older tool results, or use a summary; None if neither is possible."""
        if not self._end:
            return None
        pruned_prompt = self._under(self._record(PRUNED, self._end))
        if pruned_prompt.message_tokens <= goal:
            return pruned_prompt
        try:
            return self._with_summary(protected, goal, target)
        except GptshError as err:
            if reason == ASKED:
                raise
            self._on_failure(err)
        threshold = pruned_prompt.budget.threshold or 0
        return pruned_prompt if pruned_prompt.message_tokens <= threshold else None

    def _with_summary(self, protected: int, goal: int, target: int) -> Prompt | None:
        """Use an existing summary or make a new one; None without room, or if the user wants none.

        Raises GptshError if the summary cannot be made.
        """
        limit, full_length = self._estimator.budget.limit, round(LENGTH_TOLERANCE * self._rules.summary_tokens)
        share = (2 * target if limit is None else limit) // _SUMMARY_DIVISOR
        longest = min(full_length, max(_MIN_SUMMARY, share))
        if limit is not None:
            longest = min(longest, int((limit - protected) / self._estimator.scale))
        if not full_length or longest < min(_MIN_SUMMARY, full_length):
            return None
        newest = latest(self._state, self._ids)
        active: Compaction = self._active_record() or {}
        if newest and newest[0]["id"] != active.get("summary"):
            existing, last = newest
            if (existing.get("tokens") or 0) <= longest and not uncovered(self._messages[: last + 1], existing):
                prompt = self._under(self._record(SUMMARY, last + 1, summary=existing["id"]))
                if prompt.fits and prompt.message_tokens <= goal + longest:
                    return self._with_media(prompt)
        older = list(self._messages[: self._end])
        previous = latest(self._state, self._ids[: self._end])
        fresh = uncovered(older, previous[0]) if previous else older
        length = max(1, int(longest / LENGTH_TOLERANCE))
        new = self._summarise(older, fresh, previous[0]["text"] if previous else None, length)
        return self._with_media(self._under(self._record(SUMMARY, self._end, summary=new["id"])))

    def _with_media(self, prompt: Prompt) -> Prompt:
        """The prompt of a summary with as much media of older questions as the budget has room for.

        Where some has none, more of the last messages are sent.
        """
        if not prompt.omitted_media:
            return prompt
        record = self._with_media_room(prompt)
        block = _with_summary(self._history(record))
        if len(block.media) < len(prompt.omitted_media):
            record = {**self._with_more(record, block), "room": None}
            record = self._with_media_room(self._under(record))
        return self._under(record)

    def _with_media_room(self, prompt: Prompt) -> Compaction:
        """The record of a prompt without media, with the room that is left for them."""
        limit, room = prompt.budget.limit, _UNLIMITED
        if limit is not None:
            room = max(0, int((_FILL * limit - prompt.message_tokens) / self._estimator.scale))
        return {**(prompt.compaction or {}), "room": room}

    def _last_resort(self, limit: int) -> Prompt:
        """Fill the budget without a new summary, then with more of the last messages.

        The last answer and the current question stay as messages. In a long turn of tool rounds the
        newest rounds do, and the question and the last answer go into the block before them.
        """
        limit = int(limit / self._estimator.scale)  # as gptsh counts
        goal = int(_FILL * limit)
        question_at, answer_at = _last_question_at(self._messages), _last_answer_at(self._messages)
        start = self._split_before(question_at if answer_at is None else answer_at)
        rounds = [at for at in range(question_at + 1, len(self._messages)) if self._can_split(at)]
        ends: dict[str, int] = {}
        if answer_at is not None and count_message(self._messages[answer_at]) > goal // _ANSWER_SHARE:
            ends[self._ids[answer_at]] = goal // _ANSWER_SHARE
        if start:
            record = self._with_room(self._record(MINIMAL, start, ends=ends), goal, goal if rounds else limit)
            block = _without_new_summary(self._history(record))
            if not rounds or not (block.omitted or block.room < 0):
                return self._under(self._with_room(self._with_more(record, block), goal, limit))
        if not rounds:
            return self._under(None)
        at = self._newest_rounds([*([start] if start else []), *rounds], goal, limit)
        record = self._record(MINIMAL, at, ends=ends, pruned=self._ids[-1])
        return self._under(self._with_room(record, goal, limit))

    def _newest_rounds(self, starts: Sequence[int], goal: int, limit: int) -> int:
        """Where as many of the newest rounds begin as fit half of the goal; at least the last one.

        Their tool results are shortened. A long question leaves room for fewer: it is sent in any case.
        """
        block = _Block(History(self._messages[: starts[-1]], self._messages[starts[-1] :]))
        block.add_current()
        room = min(goal // 2, limit + block.room)  # the question has taken its room already
        end = starts[-1]
        room -= _count([_pruned_result(message) for message in self._messages[end:]])
        for at in reversed(starts[:-1]):
            room -= _count([_pruned_result(message) for message in self._messages[at:end]])
            if room < 0:
                break
            end = at
        return end

    def _with_room(self, record: Compaction, goal: int, limit: int) -> Compaction:
        """The record with the room that is left before the recent messages.

        Where the protected messages alone do not fit the goal, they may take the budget.
        """
        history = self._history({**record, "room": None})
        recent = _count(history.recent)
        needed = _Block(history)
        needed.add_current()
        if recent - needed.room > goal:
            goal = limit
        return {**record, "room": max(0, goal - recent)}

    def _with_more(self, record: Compaction, block: _Block) -> Compaction:
        """The record that also sends what the room of its filled block is left for.

        That is more of the last answer, then more of the messages before, while nothing else goes
        for it. Of a message that does not fit whole both ends are sent.
        """
        free = block.room
        ends = dict(as_dict(record.get("ends")))
        for ident in ends:
            message = self._messages[self._number_up_to(ident) - 1]
            size = count_message(cut_text(message, ends[ident]))
            ends[ident] = max(ends[ident], size - _cut_size(message) + free)
            free -= count_message(cut_text(message, ends[ident])) - size
        start = end = self._number_up_to(record["upto"])
        number = len(block.questions)
        for at in reversed(range(1, start)):
            if not self._can_split(at):
                continue
            messages = [_pruned_result(message) for message in self._messages[at:end]]
            first = number - sum(map(starts_turn, messages))
            size = _count(messages) - sum(block.sizes.get(index, 0) for index in range(first, number))
            if size > free:
                longest = max(messages, key=count_message)
                room = free - size + count_message(longest) - _cut_size(longest)
                if room >= _MIN_EXCERPT and not starts_turn(longest):
                    ends[longest.get("id") or ""] = room
                    end = at
                break
            free -= size
            end, number = at, first
        more: Compaction = {"upto": self._ids[end - 1], "ends": ends}
        if end < start:
            more["pruned"] = self._ids[start - 1]
        return {**record, **more}

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
            "budget": self._estimator.budget.limit,
            **more,
        }

    # ---- where messages can be split

    def _split_before(self, at: int) -> int:
        """The last index up to this one where the messages can be split; 0 if there is none."""
        while at > 0 and not self._can_split(at):
            at -= 1
        return max(0, at)

    def _can_split(self, at: int) -> bool:
        """Whether the messages can be split before this index.

        A tool call is not separated from its results, of which it may have none.
        """
        before, after = self._messages[at - 1], self._messages[at]
        waits = before["role"] == "assistant" and before.get("tool_calls") and not starts_turn(after)
        if waits or after["role"] == "tool":
            return False
        return before.get("id") is not None and before.get("id") != after.get("id")
