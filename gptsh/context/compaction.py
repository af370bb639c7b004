"""Compact a session that outgrew its window: choose a strategy, and what of the session is sent."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Unpack

from gptsh.context.replacement import HEADING_TOKENS, MIN_EXCERPT, UNLIMITED, Replacement
from gptsh.context.sendable import cut_text, pruned
from gptsh.context.summaries import LENGTH_TOLERANCE, latest, summary_of, uncovered
from gptsh.context.tokens import (
    ASKED,
    MINIMAL,
    PRUNED,
    SUMMARY,
    Estimator,
    Prompt,
    count_message,
)
from gptsh.core.document_types import Compaction, ContextState, Summary
from gptsh.core.turns import starts_of
from gptsh.errors import GptshError
from gptsh.messages import (
    Message,
    just_after,
    new_message_id,
    starts_turn,
    text_of,
    timestamp,
)

# When and how a long session is compacted: it keeps its active compaction, or the first strategy
# that fits makes one.
#
# A compaction is a record in the session (``context.compaction``): the strategy, and ``upto``, the
# id of the last message that is sent in a shorter form. It stays active until the prompt has grown
# past the threshold (``compact_at``) again, so that prompts keep the same beginning from turn to
# turn and providers' caches hit. A new compaction aims at half of the budget. One that could not
# reach half stays active until the budget is full.
#
# ``pruned-tools`` shortens older tool results and attached texts. ``summary`` and ``minimal``
# replace the older messages by one. ``minimal`` fills nearly all of the budget: its record has the
# tokens for that message (``room``), the last message whose tool result is shortened (``pruned``),
# and the tokens of a message of which both ends are sent (``ends``).
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
_MIN_SUMMARY = 200  # tokens: where fewer are left, user words are left out instead


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
        summarise: Summarise,
        on_failure: Callable[[GptshError], None],
    ) -> None:
        self._messages = messages
        self._state = state
        self._draft = draft
        self._estimator = estimator
        self._rules = estimator.rules
        self._summarise = summarise
        self._on_failure = on_failure
        self._ids = [message["id"] for message in messages]
        # How many messages end with each.
        self._numbers = {message_id: number for number, message_id in enumerate(self._ids, 1)}
        # Messages before this index may be shortened.
        self._end = self._split_before(len(messages) - max(1, self._rules.keep_messages))

    def choose(self, reason: str) -> Prompt:
        """Choose how to send the session; if nothing fits, the prompt exceeds the budget.

        The active compaction is used while its prompt is below the threshold. A much larger budget
        ends it, and a new one is made if needed. If no compaction saves anything, the prompt stays
        the same until the budget is full.
        """
        record = self._active_record()
        if not self._rules.compact:
            is_asked = record is not None and record.get("reason") == ASKED
            return self._under(record if is_asked else None)
        limit = self._estimator.budget.limit
        if record and limit and limit > _GROWN_BUDGET * _budget_of(record):
            record = None
        now = self._under(record)
        if now.budget.limit is None or _can_stay(now):
            return now
        target = int(min(_TARGET, self._rules.compact_at) * now.budget.limit)
        return self._compact(now, target, reason)

    def current(self) -> Prompt:
        """Return how the session is sent now, even if it does not fit."""
        return self._under(self._active_record())

    def compact(self) -> Prompt | None:
        """Compact to half of the current size, as the user asks; None if nothing is shorter."""
        now = self._counted(self._active_record())
        record = now.compaction
        if record and now.strategy != MINIMAL and self._numbers[record["upto"]] == self._end:
            return None
        size = now.message_tokens
        if now.budget.limit is not None:
            size = min(size, now.budget.limit)
        prompt = self._compact(now, int(_TARGET * size), ASKED)
        return prompt if prompt.is_new else None

    # ---- the session under a compaction

    def _active_record(self) -> Compaction | None:
        """Return the last compaction, if the message and the summary that it names still exist."""
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
        return self._with_pending(self._estimator.estimated(self._prompt(record)))

    def _counted(self, record: Compaction | None) -> Prompt:
        """Return the same, counted: a new compaction compares the sizes of prompts."""
        return self._with_pending(self._estimator.counted(self._prompt(record)))

    def _with_pending(self, prompt: Prompt) -> Prompt:
        """Add the tokens of a summary that a dry run does not make; ``minimal`` would cut it."""
        if prompt.compaction is None or prompt.strategy != SUMMARY:
            return prompt
        summary = self._summary_of(prompt.compaction)
        if not summary or not summary.get("pending"):
            return prompt
        size = summary["tokens"] or 0
        return prompt._replace(tokens=prompt.tokens + size, at_most=prompt.at_most + size)

    def _prompt(self, record: Compaction | None) -> Prompt:
        """Return what is sent under a compaction; without its size."""
        if record is None:
            return self._draft.with_messages(self._messages)._replace(included=len(self._messages))
        draft = self._draft._replace(strategy=record["strategy"], compaction=record)
        older, recent = self._split(record)
        if record["strategy"] == PRUNED:
            messages = [*map(pruned, older), *recent]
            return draft.with_messages(messages)._replace(included=len(messages))

        replacement = self._replacement(record, older)
        systems = _systems_of(older)
        included = len(systems) + len(replacement.lines)
        summarized = self._count_summarized(record, replacement)
        omitted = replacement.omitted
        draft = draft._replace(
            included=included + len(recent),
            summarized=summarized,
            left_out=len(older) - included - summarized + len(omitted["media"]),
            omitted=omitted,
        )
        return draft.with_messages([*systems, *replacement.messages, *recent])

    def _split(self, record: Compaction) -> tuple[list[Message], list[Message]]:
        """Return the older messages, and those after them as they are sent."""
        end = self._numbers[record["upto"]]
        pruned_end = self._numbers.get(record.get("pruned") or "", 0)
        excerpts = record.get("ends") or {}
        recent: list[Message] = []
        for number, message in enumerate(self._messages[end:], end + 1):
            if message["id"] in excerpts:
                recent.append(cut_text(message, excerpts[message["id"]]))
            elif number <= pruned_end:
                recent.append(_pruned_result(message))
            else:
                recent.append(message)

        older = [*self._messages[:end]]
        summary = self._summary_of(record)
        if record["strategy"] == SUMMARY and summary:
            # A parallel run may have saved its answer among the older messages since.
            late = [message for message in uncovered(older, summary) if not _is_verbatim(message)]
            older = [message for message in older if message not in late]
            recent = [*late, *recent]
        return older, recent

    def _replacement(self, record: Compaction, older: Sequence[Message]) -> Replacement:
        """Return the message of ``summary`` or ``minimal`` in place of the older ones."""
        summary = self._summary_of(record)
        end = self._numbers[record["upto"]]
        # Whatever is added, ``minimal`` has the same question and last answer as in the beginning.
        last = self._numbers.get(record.get("pruned") or "", len(self._messages))
        has_current = not any(map(starts_turn, self._messages[end:last]))
        if record["strategy"] == SUMMARY:
            replacement = Replacement(older, UNLIMITED, has_current=has_current)
            replacement.add_everything(summary)
        else:
            replacement = Replacement(older, record.get("room") or 0, has_current=has_current)
            answer_index = _last_answer_index(self._messages[:last])
            is_older = answer_index is not None and answer_index < end
            replacement.fill(summary, answer_index if is_older else None)
        return replacement

    def _count_summarized(self, record: Compaction, replacement: Replacement) -> int:
        """Return how many of the older messages are sent in the form of the summary alone."""
        summary = self._summary_of(record)
        if not summary or not replacement.summary:
            return 0
        covered = self._numbers.get(summary.get("last") or "", 0)
        number = 0
        for index, message in enumerate(replacement.older[:covered]):
            if index not in replacement.lines and not _is_verbatim(message):
                number += 1
        return number

    # ---- a new compaction

    def _compact(self, now: Prompt, target: int, reason: str) -> Prompt:
        """Use the first strategy that comes as close to ``target`` as the protected messages allow.

        If none saves enough, the session is sent as before while that fits, else by ``minimal``.
        """
        # The next compaction may have room for words that ``minimal`` leaves out.
        before = self._counted(None) if now.strategy == MINIMAL else now
        prompt = self._shorter(target, reason)
        max_share = 1 if reason == ASKED else _MAX_SHARE_LEFT
        if not prompt or not prompt.fits or prompt.tokens >= max_share * before.tokens:
            if before.fits:
                return before
            prompt = self._counted(self._minimal())
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
        pruned_prompt = self._counted(self._record(PRUNED, self._end))
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
            return self._counted(record)
        threshold = pruned_prompt.budget.threshold or 0
        return pruned_prompt if pruned_prompt.message_tokens <= threshold else None

    # ---- summary

    def _with_summary(self, target: int) -> Compaction | None:
        """Use an existing summary or make a new one; None without room, or if the user wants none.

        Raises GptshError if the summary cannot be made.
        """
        older = self._messages[: self._end]
        recent = self._messages[self._end :]
        words = Replacement(older, UNLIMITED, has_current=not any(map(starts_turn, recent)))
        words.add_words(words.questions)
        protected = words.used + _count([*_systems_of(older), *recent])

        full_length = round(LENGTH_TOLERANCE * self._rules.summary_tokens)
        longest = min(full_length, max(_MIN_SUMMARY, target // 2))
        limit = self._estimator.counted_budget.limit
        scale = self._estimator.scale
        if limit is not None:
            longest = min(longest, int(limit / scale) - protected)
        if not full_length or longest < min(_MIN_SUMMARY, full_length):
            return None
        existing = self._existing_summary(max(target, scale * (protected + longest)))
        if existing:
            return existing
        return self._new_summary(max(1, int(longest / LENGTH_TOLERANCE)))

    def _existing_summary(self, max_tokens: float) -> Compaction | None:
        """Return the record that uses the newest summary, if its prompt has at most ``max_tokens``."""
        newest = latest(self._state, self._ids)
        active: Compaction = self._active_record() or {}
        if newest is None or newest[0]["id"] == active.get("summary"):
            return None
        summary, last = newest
        record = self._record(SUMMARY, last + 1, summary=summary["id"])
        return record if self._counted(record).message_tokens <= max_tokens else None

    def _new_summary(self, length: int) -> Compaction:
        """Return the record that uses a new summary of about this length."""
        older = self._messages[: self._end]
        previous = latest(self._state, self._ids[: self._end])
        if previous is None:
            new = self._summarise(older, older, None, length)
        else:
            fresh = uncovered(older, previous[0])
            new = self._summarise(older, fresh, previous[0]["text"], length)
        return self._record(SUMMARY, self._end, summary=new["id"])

    # ---- minimal

    def _minimal(self) -> Compaction | None:
        """Fill the budget without a new summary; None if there is nothing to shorten.

        First come the newest messages, which are sent in any case, then the replacement of those
        before them, then as many of these as fit into what the replacement leaves free.
        """
        limit = int((self._estimator.counted_budget.limit or 0) / self._estimator.scale)
        goal = int(_FILL * limit)
        start = self._start_of_newest(goal, limit)
        if not start:
            return None
        summary = latest(self._state, self._ids[:start])
        record = self._record(
            MINIMAL,
            start,
            summary=summary[0]["id"] if summary else None,
            pruned=self._ids[-1],
        )
        record["room"] = self._free_beside(record, goal)
        replacement = self._replacement(record, self._messages[:start])
        end, record["ends"] = self._start_of_more(replacement)
        record["upto"] = self._ids[end - 1]
        record["room"] = self._free_beside(record, goal)
        return record

    def _start_of_newest(self, goal: int, limit: int) -> int:
        """Return where the messages begin that are sent in any case; 0 if that is all.

        They are the current question and what follows it. In a turn of many tool rounds they are as
        many of the newest rounds as fit half of the goal, at least one; the question is in the
        replacement then.
        """
        question_index = _question_index(self._messages)
        question = pruned(self._messages[question_index])
        free = min(goal // 2, limit - HEADING_TOKENS - count_message(question))
        start = 0
        end = len(self._messages)
        for index in reversed(range(max(1, question_index), end)):
            if self._can_split(index):
                free -= _count(map(_pruned_result, self._messages[index:end]))
                if free < 0 and start:
                    break
                start = index
                end = index
        return start

    def _free_beside(self, record: Compaction, goal: int) -> int:
        """Return the tokens that the other messages leave for the replacement."""
        older, recent = self._split(record)
        return max(0, goal - _count([*_systems_of(older), *recent]))

    def _start_of_more(self, replacement: Replacement) -> tuple[int, dict[str, int]]:
        """Return where the messages begin that fit into what the replacement leaves free.

        Also the tokens of a message of which both ends are sent, by its id: the longest of those
        before, as it does not fit whole.
        """
        older = replacement.older
        free = replacement.free
        end = len(older)
        for index in reversed(range(1, len(older))):
            if not self._can_split(index):
                continue
            added = [*map(_pruned_result, older[index:end])]
            # What is sent as a message is no longer a line of the replacement.
            excess = _count(added) - replacement.count(range(index, end)) - free
            if excess > 0:
                longest = max(added, key=count_message)
                text_tokens = count_message(longest) - count_message(cut_text(longest, 0))
                max_tokens = text_tokens - excess
                if max_tokens >= MIN_EXCERPT and not starts_turn(longest):
                    return index, {longest["id"]: max_tokens}
                break
            free = -excess
            end = index
        return end, {}

    def _record(self, strategy: str, end: int, /, **more: Unpack[Compaction]) -> Compaction:
        """Return the record of a compaction that shortens the messages before index ``end``."""
        last_time = (self._state.get("compaction") or {}).get("at")
        moment = timestamp()
        if last_time:  # merging keeps the later record
            moment = max(moment, just_after(last_time))
        return {
            "id": new_message_id()[:8],
            "at": moment,
            "strategy": strategy,
            "upto": self._ids[end - 1],
            "kept": len(self._messages) - end,
            "summary": None,
            "room": None,
            "budget": self._estimator.counted_budget.limit,
            **more,
        }

    # ---- places in the session

    def _split_before(self, index: int) -> int:
        """Return the last index up to this one where the messages can be split.

        0 if there is none.
        """
        while index > 0 and not self._can_split(index):
            index -= 1
        return max(0, index)

    def _can_split(self, index: int) -> bool:
        """Return whether the messages can be split before this index.

        A tool call is not separated from its results, of which it may have none.
        """
        before = self._messages[index - 1]
        after = self._messages[index]
        is_call = before["role"] == "assistant" and bool(before.get("tool_calls"))
        return after["role"] != "tool" and (not is_call or starts_turn(after))


def _can_stay(prompt: Prompt) -> bool:
    """Return whether the session may be sent like this, without a new compaction.

    The prompt is below the threshold; or it fits, and its compaction could not reach half of the
    budget it was made for.
    """
    record: Compaction = prompt.compaction or {}
    barely_fits = (record.get("after") or 0) > _TARGET * _budget_of(record)
    limit = prompt.budget.limit if barely_fits else prompt.budget.threshold
    return limit is None or prompt.message_tokens <= limit


def _budget_of(record: Compaction) -> float:
    """Return the budget for which a compaction was made; without end if it is unknown."""
    return record.get("budget") or math.inf


def _is_verbatim(message: Message) -> bool:
    """Return whether a message is always sent verbatim, however old it is."""
    return message["role"] == "system" or starts_turn(message)


def _pruned_result(message: Message) -> Message:
    """Return a tool result shortened, any other message as it is."""
    return pruned(message) if message["role"] == "tool" else message


def _question_index(messages: Sequence[Message]) -> int:
    """Return the index of the last question; 0 if there is none."""
    return max(starts_of(messages), default=0)


def _last_answer_index(messages: Sequence[Message]) -> int | None:
    """Return the index of the last answer with words before the last question, or None."""
    for index in reversed(range(_question_index(messages))):
        if messages[index]["role"] == "assistant" and text_of(messages[index]).strip():
            return index
    return None


def _systems_of(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message["role"] == "system"]


def _count(messages: Iterable[Message]) -> int:
    return sum(map(count_message, messages))
