"""Compact a session that outgrew its window: choose a strategy, and what of the session is sent."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Unpack

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
from gptsh.core.document_types import Compaction, ContextState, Omissions, Summary
from gptsh.core.turns import starts_of
from gptsh.errors import GptshError
from gptsh.messages import (
    Message,
    Part,
    just_after,
    new_message_id,
    starts_turn,
    text_of,
    text_parts_of,
    timestamp,
    user_message,
)
from gptsh.text import quantity

# ---- what is sent of older messages
#
# ``pruned-tools`` shortens older tool results and attached texts. ``summary`` and ``minimal`` put
# one message, the block, in place of the older messages.
#
# In the block of ``summary`` are the words and media of all older questions, and the summary.
# ``minimal`` fills its block in this order, and no row takes room from one above it:
#
# 1. the current question, which is among the older messages in a turn of many tool rounds
# 2. the last answer, if it is among them: whole up to a quarter of the room, else both its ends
# 3. the newest summary
# 4. the words of the first question, then of the others from the newest on
# 5. media of earlier questions, from the newest on
# 6. the files that tool calls worked on
# 7. both ends of a question that was too long for row 4
#
# Each line is counted when it is made, and the sum is never less than what the block takes.

_ANSWER_SHARE = 4  # the last answer may take this fraction of the room, before words and media
_FILES_SHARE = 4  # the list of files may take this fraction of the room
_MIN_EXCERPT = 40  # tokens of a text of which a part is sent: a shorter excerpt is useless
_HEADINGS = 92  # tokens of all headings, the blank lines between them, and the message around
_UNLIMITED = 10**9  # tokens

_BEGINNING = "[Shortened by gptsh: the conversation up to here.]"
_WORDS = "What the user said, word for word{left_out}:"
_OUTCOMES = "What the answers and tools came to:"
_FILES = "Files touched:"
_LAST = "The last answer:"
_MEDIA = "Sent with question {number}:"
_END = "[The conversation goes on:]"


class _Block:
    """The message in place of the older ones. ``free`` is what is left of its room, in tokens.

    Questions and answers are known by their index among the older messages. ``has_current``: the
    last of the questions is the current one, as in a turn of many tool rounds.
    """

    def __init__(self, older: Sequence[Message], room: int, *, has_current: bool) -> None:
        self.older = older
        self.free = room - _HEADINGS
        self.numbers = {at: number for number, at in enumerate(starts_of(older), 1)}
        self.lines: dict[int, str] = {}  # of the questions, and of the last answer
        self.summary = ""
        self._room = room
        self._current = max(self.numbers, default=None) if has_current else None
        self._media: dict[int, list[Part]] = {}
        self._files = ""

    # ---- filling

    def add_everything(self, summary: Summary | None) -> None:
        """Fill the block of ``summary``, whose room has no limit."""
        self.add_words(self.numbers)
        self._add_media(self.numbers)
        self._add_summary(summary)

    def add_what_fits(self, summary: Summary | None, answer_at: int | None) -> None:
        """Fill the block of ``minimal``; the words of the current question always go in."""
        if self._current is not None:
            line = self._line(self._current)
            self.lines[self._current] = line
            self.free -= count_text(line) + 1
            self._add_media([self._current])
        if answer_at is not None:
            limit = min(self.free - 1, self._room // _ANSWER_SHARE)
            self._add_line(answer_at, _excerpt(text_of(self.older[answer_at]), limit, ends=True))
        self._add_summary(summary)
        others = [at for at in self.numbers if at != self._current]
        self.add_words(others[:1])
        self.add_words(reversed(others[1:]))
        self._add_media(at for at in reversed(others) if at in self.lines)
        self._add_files()
        omitted = [at for at in others if at not in self.lines]
        if omitted:
            newest = self._line(omitted[-1])
            self._add_line(omitted[-1], _excerpt(newest, self.free - 1, ends=True))

    def add_words(self, questions: Iterable[int]) -> None:
        """Add the words of these questions, each if it fits."""
        for at in questions:
            self._add_line(at, self._line(at))

    def _add_line(self, at: int, line: str) -> None:
        size = count_text(line) + 1
        if line and size <= self.free:
            self.lines[at] = line
            self.free -= size

    def _add_media(self, questions: Iterable[int]) -> None:
        for at in questions:
            for part, _ in media_in(self.older[at]):
                size = count_message(user_message(_MEDIA, [part]))
                if size <= self.free:
                    self._media.setdefault(at, []).append(part)
                    self.free -= size

    def _add_summary(self, summary: Summary | None) -> None:
        if summary:
            self.summary = _excerpt(summary["text"] or "", self.free)
            self.free -= count_text(self.summary)

    def _add_files(self) -> None:
        """Add the files that tool calls worked on, as many of the newest as fit."""
        room = min(self.free, self._room // _FILES_SHARE)
        for path, tools in reversed(touched_files(self.older).items()):
            line = f"- {path} ({', '.join(tools)})\n"
            room -= count_text(line)
            if room < 0:
                break
            self._files = line + self._files
        self.free -= count_text(self._files)

    def _line(self, at: int) -> str:
        """The words of a question under its number, then the names of what was attached.

        The current question, or one without words, has both ends of each attached text.
        """
        message = self.older[at]
        lines, names = [], []
        for part in text_parts_of(message):
            if "source" in part:
                names.append(f"[{part['source']}, {len(part['text']):,} characters]")
            elif not part.get("memory"):  # which is in the system prompt
                lines.append(part["text"])
        if at == self._current or not lines:
            lines, names = [text_of(pruned(message))], []
        names += [_media_name(part) for part, _ in media_in(message)]
        return f"{self.numbers[at]}. " + "\n".join(filter(None, [*lines, *names]))

    # ---- result

    @property
    def omitted(self) -> Omissions:
        """What of the user's is not sent: numbers of questions, and names of media."""
        media = []
        for at in self.numbers:
            sent = self._media.get(at, [])
            media += [_media_name(part) for part, _ in media_in(self.older[at]) if part not in sent]
        questions = [number for at, number in self.numbers.items() if at not in self.lines]
        return {"questions": questions, "media": media}

    @property
    def messages(self) -> list[Message]:
        """The block as a question; none without older messages or room."""
        if not self.older or (self._room < _HEADINGS and self._current is None):
            return []
        words, answer = [], ""
        for at in sorted(self.lines):
            if at in self.numbers:
                words.append(self.lines[at])
            else:
                answer = self.lines[at]
        omitted = len(self.numbers) - len(words)
        left_out = f" ({quantity(omitted, 'earlier question')} left out)" if omitted else ""
        sections = {
            _WORDS.format(left_out=left_out): "\n".join(words) or left_out,
            _OUTCOMES: self.summary,
            _LAST: answer,
            _FILES: self._files.rstrip(),
        }
        filled = [f"{title}\n{text}" for title, text in sections.items() if text]
        text = "\n\n".join([_BEGINNING, *filled])
        parts: list[Part] = []
        for at in sorted(self._media):
            for part in self._media[at]:
                parts += [{"type": "text", "text": _MEDIA.format(number=self.numbers[at])}, part]
        if parts:
            return [user_message(text, [*parts, {"type": "text", "text": _END}])]
        return [user_message(f"{text}\n\n{_END}", ())]


def _media_name(part: Part) -> str:
    """Such as ``shot.png [image/png, 34.1 kB]``."""
    return " ".join(filter(None, (name_of(part), str(media_of(part)))))


def _excerpt(text: str, limit: int, *, ends: bool = False) -> str:
    """As much of a text as fits ``limit``; "" if that is hardly anything."""
    return truncate_tokens(text, limit, ends=ends) if text and limit >= _MIN_EXCERPT else ""


def _pruned_result(message: Message) -> Message:
    """A tool result shortened, any other message as it is."""
    return pruned(message) if message["role"] == "tool" else message


def _count(messages: Iterable[Message]) -> int:
    return sum(map(count_message, messages))


# ---- compaction
#
# When and how a long session is compacted: it keeps its active compaction, or the first strategy
# that fits makes one.
#
# A compaction is a record in the session (``context.compaction``): the strategy, and ``upto``, the
# id of the last message that is sent in a shorter form. It stays active until the prompt has grown
# past the threshold (``compact_at``) again, so that prompts keep the same beginning from turn to
# turn and providers' caches hit. A new compaction aims at half of the budget. One that could not
# reach half stays active until the budget is full.
#
# ``minimal`` fills nearly all of the budget: its record has the tokens for the block (``room``),
# the last message whose tool result is shortened (``pruned``), and the tokens of the messages of
# which both ends are sent (``ends``).
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
_MAX_SHARE_LEFT = 0.9  # of the size: saving less does not justify a new beginning of the prompt
_MIN_SUMMARY = 200  # tokens: with less room, user words are left out instead


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
        self._messages, self._state = messages, state
        self._draft, self._estimator, self._rules = draft, estimator, rules
        self._summarise, self._on_failure = summarise, on_failure
        self._numbers = {message["id"]: number for number, message in enumerate(messages, 1)}
        # Messages before this index may be shortened.
        self._end = self._split_before(len(messages) - max(1, rules.keep_messages))

    def choose(self, reason: str) -> Prompt:
        """Choose how to send the session; if nothing fits, the prompt exceeds the budget.

        The active compaction is used while its prompt is below the threshold. A much larger budget
        ends it, and a new one is made if needed. If no compaction saves anything, the prompt stays
        the same until the budget is full.
        """
        record = self._active_record()
        limit = self._estimator.budget.limit
        if not self._rules.compact:
            is_asked = record is not None and record.get("reason") == ASKED
            return self._under(record if is_asked else None)
        if record and limit and limit > _GROWN_BUDGET * (record.get("budget") or math.inf):
            record = None
        now = self._under(record)
        if limit is None or self._can_stay(now):
            return now
        return self._compact(now, int(min(_TARGET, self._rules.compact_at) * limit), reason)

    def current(self) -> Prompt:
        """Return how the session is sent now, even if it does not fit."""
        return self._under(self._active_record())

    def compact(self) -> Prompt | None:
        """Compact to half of the current size, as the user asks; None if nothing is shorter."""
        self._estimator.counts = True
        now = self.current()
        record = now.compaction
        if record and now.strategy != MINIMAL and self._numbers[record["upto"]] == self._end:
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

    # ---- the session under a compaction

    def _active_record(self) -> Compaction | None:
        """The last compaction, if the message and the summary that it names still exist."""
        record = self._state.get("compaction")
        if record is None or "id" not in record or record.get("upto") not in self._numbers:
            return None
        if record.get("strategy") not in (PRUNED, SUMMARY, MINIMAL):
            return None
        is_lost = record["strategy"] == SUMMARY and not self._summary_of(record)
        return None if is_lost else record

    def _summary_of(self, record: Compaction) -> Summary | None:
        return summary_of(self._state, record.get("summary"))

    def _under(self, record: Compaction | None) -> Prompt:
        """Return how the session is sent under a compaction; None sends it whole."""
        if record is None:
            everything = self._draft._replace(included=len(self._messages))
            return self._estimator.estimated(everything, self._messages)
        draft = self._draft._replace(strategy=record["strategy"], compaction=record)
        older, recent = self._split(record)
        if record["strategy"] == PRUNED:
            messages = [*map(pruned, older), *recent]
            return self._estimator.estimated(draft._replace(included=len(messages)), messages)

        block = self._block(record, older)
        summary = self._summary_of(record) if block.summary else None
        covered = self._numbers.get(summary.get("last") or "", 0) if summary else 0
        rest = [message for at, message in enumerate(older[:covered]) if at not in block.lines]
        summarized = sum(not _is_verbatim(message) for message in rest)
        systems = _systems_of(older)
        included = len(systems) + len(block.lines)
        omitted = block.omitted
        draft = draft._replace(
            included=included + len(recent),
            summarized=summarized,
            left_out=len(older) - included - summarized + len(omitted["media"]),
            omitted=omitted,
        )
        prompt = self._estimator.estimated(draft, [*systems, *block.messages, *recent])
        if summary and summary.get("pending") and prompt.strategy == SUMMARY:
            # A dry run does not make it; ``minimal`` would cut it to its room.
            size = summary["tokens"] or 0
            prompt = prompt._replace(tokens=prompt.tokens + size, at_most=prompt.at_most + size)
        return prompt

    def _split(self, record: Compaction) -> tuple[list[Message], list[Message]]:
        """The older messages, and those after them as they are sent."""
        end = self._numbers[record["upto"]]
        pruned_end = self._numbers.get(record.get("pruned") or "", 0)
        ends = record.get("ends") or {}
        recent: list[Message] = []
        for number, message in enumerate(self._messages[end:], end + 1):
            if message["id"] in ends:
                message = cut_text(message, ends[message["id"]])
            elif number <= pruned_end:
                message = _pruned_result(message)
            recent.append(message)

        older = [*self._messages[:end]]
        summary = self._summary_of(record)
        if record["strategy"] == SUMMARY and summary:
            # A parallel run may have saved its answer among the older messages since.
            late = [message for message in uncovered(older, summary) if not _is_verbatim(message)]
            older = [message for message in older if message not in late]
            recent = [*late, *recent]
        return older, recent

    def _block(self, record: Compaction, older: Sequence[Message]) -> _Block:
        """The filled block of ``summary`` or ``minimal``."""
        summary = self._summary_of(record)
        end = self._numbers[record["upto"]]
        # Whatever is added, ``minimal`` has the same question and last answer as in the beginning.
        last = self._numbers.get(record.get("pruned") or "", len(self._messages))
        has_current = not any(map(starts_turn, self._messages[end:last]))
        if record["strategy"] == SUMMARY:
            block = _Block(older, _UNLIMITED, has_current=has_current)
            block.add_everything(summary)
        else:
            block = _Block(older, record.get("room") or 0, has_current=has_current)
            answer_at = _last_answer_at(self._messages[:last])
            is_older = answer_at is not None and answer_at < end
            block.add_what_fits(summary, answer_at if is_older else None)
        return block

    # ---- a new compaction

    def _compact(self, now: Prompt, target: int, reason: str) -> Prompt:
        """Use the first strategy that comes as close to ``target`` as the protected messages allow.

        If none saves enough, the session is sent as before while that fits, else by ``minimal``.
        """
        # The next compaction may have room for words that ``minimal`` leaves out.
        before = self._under(None) if now.strategy == MINIMAL else now
        prompt = self._shorter(target, reason)
        least_saving = 1 if reason == ASKED else _MAX_SHARE_LEFT
        if not prompt or not prompt.fits or prompt.tokens >= least_saving * before.tokens:
            if before.fits:
                return before
            prompt = self._under(self._minimal())
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

    def _shorter(self, target: int, reason: str) -> Prompt | None:
        """Shorten older tool results, or use a summary; None if neither is possible."""
        if not self._end:
            return None
        pruned_prompt = self._under(self._record(PRUNED, self._end))
        if pruned_prompt.message_tokens <= target:
            return pruned_prompt
        try:
            record = self._with_summary(target)
        except GptshError as err:
            if reason == ASKED:
                raise
            self._on_failure(err)
            record = None
        if record:
            return self._under(record)
        threshold = pruned_prompt.budget.threshold or 0
        return pruned_prompt if pruned_prompt.message_tokens <= threshold else None

    def _with_summary(self, target: int) -> Compaction | None:
        """Use an existing summary or make a new one; None without room, or if the user wants none.

        Raises GptshError if the summary cannot be made.
        """
        older, recent = self._messages[: self._end], self._messages[self._end :]
        limit, scale = self._estimator.budget.limit, self._estimator.scale
        has_current = not any(map(starts_turn, recent))
        block = _Block(older, _UNLIMITED, has_current=has_current)
        block.add_words(block.numbers)
        protected = _UNLIMITED - block.free + _count([*_systems_of(older), *recent])
        full_length = round(LENGTH_TOLERANCE * self._rules.summary_tokens)
        longest = min(full_length, max(_MIN_SUMMARY, target // 2))
        if limit is not None:
            longest = min(longest, int(limit / scale) - protected)
        if not full_length or longest < min(_MIN_SUMMARY, full_length):
            return None

        newest = latest(self._state, [*self._numbers])
        active: Compaction = self._active_record() or {}
        if newest and newest[0]["id"] != active.get("summary"):
            record = self._record(SUMMARY, newest[1] + 1, summary=newest[0]["id"])
            if self._under(record).message_tokens <= max(target, scale * (protected + longest)):
                return record

        previous = latest(self._state, [*self._numbers][: self._end])
        fresh = uncovered(older, previous[0]) if previous else older
        length = max(1, int(longest / LENGTH_TOLERANCE))
        new = self._summarise(older, fresh, previous[0]["text"] if previous else None, length)
        return self._record(SUMMARY, self._end, summary=new["id"])

    def _minimal(self) -> Compaction | None:
        """Fill the budget without a new summary; None if there is nothing to shorten.

        First come the messages that are sent in any case. The block before them gets what is left
        of the room, and more messages before those what the block has not used.
        """
        limit = int((self._estimator.budget.limit or 0) / self._estimator.scale)
        goal = int(_FILL * limit)
        start = self._start_of_newest(goal, limit)
        if not start:
            return None
        newest = latest(self._state, [*self._numbers][:start])
        summary = newest[0]["id"] if newest else None
        last_id = self._messages[-1]["id"]
        record = self._record(MINIMAL, start, summary=summary, pruned=last_id, ends={})
        record = self._with_room(record, goal)
        return self._with_room(self._with_more(record), goal)

    def _start_of_newest(self, goal: int, limit: int) -> int:
        """Where the messages begin that are sent in any case; 0 if that is all.

        They are the current question, or in a turn of many tool rounds as many of the newest rounds
        as fit half of the goal, at least one, beside the question in the block.
        """
        question_at, end = _question_at(self._messages), len(self._messages)
        question = pruned(self._messages[question_at])
        room = min(goal // 2, limit - _HEADINGS - count_message(question))
        start = 0
        for at in reversed(range(max(1, question_at), end)):
            if self._can_split(at):
                room -= _count(map(_pruned_result, self._messages[at:end]))
                if room < 0 and start:
                    break
                start = end = at
        return start

    def _with_room(self, record: Compaction, goal: int) -> Compaction:
        """The record with the room that its block has beside the other messages."""
        older, recent = self._split(record)
        return {**record, "room": max(0, goal - _count([*_systems_of(older), *recent]))}

    def _with_more(self, record: Compaction) -> Compaction:
        """The record that also sends the messages before which its block leaves room for.

        Of a message that does not fit whole both ends are sent.
        """
        older, _ = self._split(record)
        block = self._block(record, older)
        free, end, ends = block.free, len(older), {}
        for at in reversed(range(1, len(older))):
            if not self._can_split(at):
                continue
            messages = [*map(_pruned_result, older[at:end])]
            in_block = sum(count_text(block.lines.get(index, "")) for index in range(at, end))
            missing = _count(messages) - in_block - free
            if missing > 0:
                longest = max(messages, key=count_message)
                without_text = count_message(cut_text(longest, 0))
                room = count_message(longest) - without_text - missing
                if room >= _MIN_EXCERPT and not starts_turn(longest):
                    ends[longest["id"]] = room
                    end = at
                break
            free = -missing
            end = at
        return {**record, "upto": self._messages[end - 1]["id"], "ends": ends}

    def _record(self, strategy: str, end: int, /, **more: Unpack[Compaction]) -> Compaction:
        """The record of a compaction that shortens the messages before index ``end``."""
        last_time = (self._state.get("compaction") or {}).get("at")
        moment = timestamp()
        if last_time:  # merging keeps the later record
            moment = max(moment, just_after(last_time))
        return {
            "id": new_message_id()[:8],
            "at": moment,
            "strategy": strategy,
            "upto": self._messages[end - 1]["id"],
            "kept": len(self._messages) - end,
            "summary": None,
            "room": None,
            "budget": self._estimator.budget.limit,
            **more,
        }

    # ---- places in the session

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
        is_call = before["role"] == "assistant" and bool(before.get("tool_calls"))
        return after["role"] != "tool" and (not is_call or starts_turn(after))


def _is_verbatim(message: Message) -> bool:
    """Whether a message is always sent verbatim, however old it is."""
    return message["role"] == "system" or starts_turn(message)


def _question_at(messages: Sequence[Message]) -> int:
    """The index of the last question; 0 if there is none."""
    return max(starts_of(messages), default=0)


def _last_answer_at(messages: Sequence[Message]) -> int | None:
    """The index of the last answer with words before the last question, or None."""
    for at in reversed(range(_question_at(messages))):
        if messages[at]["role"] == "assistant" and text_of(messages[at]).strip():
            return at
    return None


def _systems_of(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message["role"] == "system"]
