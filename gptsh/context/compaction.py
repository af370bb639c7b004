"""What of a session is sent where not all of it fits: the active compaction, or a new one.

A compaction is a record in the session (``context.compaction``): the strategy, and ``upto``, the id of the last message
that is sent in a shorter form. It stays active until what is sent has grown beyond the mark again, so that prompts keep
their beginning from turn to turn and providers' caches hit. A new one aims at half of the budget. One that could not
come down to that stays until the budget is full.

Each strategy is tried once, in order, with its real text: who makes summaries is an argument.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gptsh.config.settings import ContextRules
from gptsh.context.shorten import pruned
from gptsh.context.strategies import (
    FULL,
    MINIMAL,
    PRUNED,
    SHORTEN,
    SUMMARY,
    Choice,
    CompactedPrompt,
    Record,
    SplitHistory,
    is_verbatim,
    summary,
)
from gptsh.context.summaries import LENGTH_TOLERANCE, latest, summary_of, uncovered
from gptsh.context.tokens import Size
from gptsh.errors import GptshError
from gptsh.messages import Message, just_after, new_message_id, starts_turn, timestamp

# The older messages, of them those that no summary tells yet, the text of the last summary and the tokens that a new
# one shall have -> its record in ``context.summaries``. Raises GptshError.
Summarise = Callable[[Sequence[Message], Sequence[Message], str | None, int], dict[str, Any]]

_AIM = 0.5  # of the budget: what a new compaction goes down to
_LARGER = 1.2  # times the budget that a compaction was made for: then more may fit, or all
_WORTH = 0.9  # times what is sent now: what saves less is not worth a new beginning of the prompt
_QUARTER = 4  # what summaries take of a budget at most, where more would do
_LEAST_SUMMARY = 200  # tokens: with less room user words are given up
PENDING = "pending"  # of the record of a summary that is not made yet, but would be
ASKED = "asked"  # why a compaction was made that stands whatever the settings say


# The size of a prompt of messages under a compaction (its id): exactly, or as well as is needed to see that it is below
# the mark.
Measure = Callable[[Sequence[Message], str | None, bool], Size]


class Chooser:
    """Chooses how a session is sent: ``messages`` as ``valid.sendable`` has them, ``state`` the document's ``context``.

    The messages may take ``budget`` tokens (None: unknown) beside the ``fixed`` ones, which are measured with them.
    ``on_failure`` is told of a summary that could not be made, before something else is tried.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        state: Mapping[str, Any],
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
        self._ids = [message.get("id") or "" for message in messages]
        self._end = max(0, len(messages) - max(1, rules.keep_messages))  # what is older may be shortened
        while self._end > 0 and not _may_part(messages, self._end):
            self._end -= 1

    def choose(self, reason: str) -> Choice:
        """How to send it. Where nothing fits, the least that can be sent, whose size says so.

        The active compaction stays for as long as what is sent under it is below the mark (``compact_at``); in a much
        larger budget there is a new one, if there is need for any. Where none saves anything all stays as it is until
        the budget is full.
        """
        record = self._active()
        if not self._rules.compact:
            return self.sent(record if record and record.get("reason") == ASKED else None)
        grown = record and self._budget and self._budget > _LARGER * (record.get("budget") or 1e9)
        now = self.sent(None if grown else record)
        if self.is_below_mark(now):
            return now
        # The last resort leaves words out that the next compaction may have room for.
        before = self.sent(None) if now.strategy == MINIMAL else now
        return self._compact(before, round(min(_AIM, self._rules.compact_at) * (self._budget or 0)), reason)

    def current(self) -> Choice:
        """How it is sent now, whether it fits or not: all, or what the active compaction leaves of it."""
        return self.sent(self._active())

    def compact(self) -> Choice | None:
        """A new compaction because the user asks for one, to half of what is sent now; None where it saves little."""
        now = self.current()
        leaves_out = now.strategy == MINIMAL  # then more may be sent, and that is better
        if not leaves_out and now.record and self._end and now.record["upto"] == self._ids[self._end - 1]:
            return None
        longer = self.sent(None) if leaves_out else now
        goal, budget = round(_AIM * self._taken(longer)), self._budget
        if budget is not None:
            goal = min(goal, round(_AIM * budget))
        choice = self._compact(longer, goal, ASKED)
        return choice if choice.is_new else None

    def is_below_mark(self, choice: Choice) -> bool:
        """Whether a choice needs no new compaction: it is below the mark, or it fits, and its compaction could not come
        down to half of the budget that it was made for.
        """
        budget, record = self._budget, choice.record or {}
        if budget is None:
            return True
        barely_fits = (record.get("after") or 0) > _AIM * (record.get("budget") or math.inf)
        return self._taken(choice) <= (budget if barely_fits else self._rules.compact_at * budget)

    def sent(self, record: Record | None) -> Choice:
        """How the session is sent under a compaction."""
        if record is None:
            everything = CompactedPrompt(self._messages, len(self._messages))
            return Choice(FULL, everything, self._measure(self._messages, None, self._exact))
        prompt = SHORTEN[record["strategy"]](self._split(record))
        size = self._measure(prompt.messages, record["id"], self._exact)
        told = summary_of(self._state, record.get("summary"))
        if told and told.get(PENDING):
            size = Size(size.tokens + told["tokens"], size.at_most + told["tokens"], size.reported)
        return Choice(record["strategy"], prompt, size, record)

    # ---- the active one

    def _active(self) -> Record | None:
        """The compaction that the session was last sent under, as far as what it speaks of is still there."""
        record: Record | None = self._state.get("compaction")
        if record is None or record.get("strategy") not in SHORTEN or "id" not in record:
            return None
        if self._place(record.get("upto")) is None:
            return None
        lost = record["strategy"] == SUMMARY and summary_of(self._state, record.get("summary")) is None
        return None if lost else record

    def _place(self, ident: object) -> int | None:
        """Where the message of this id stands, of several the last; None where there is none."""
        found = [at for at, own in enumerate(self._ids) if own and own == ident]
        return found[-1] if found else None

    def _split(self, record: Record) -> SplitHistory:
        """The session parted as a record says."""
        end = (self._place(record["upto"]) or 0) + 1
        older, recent = list(self._messages[:end]), list(self._messages[end:])
        if record.get("pruned"):  # but not what the user sent along: that is cut visibly or not at all
            upto = 1 + next((at for at, one in enumerate(recent) if one.get("id") == record["pruned"]), -1)
            recent[:upto] = [pruned(one) if one["role"] == "tool" else one for one in recent[:upto]]
        told = summary_of(self._state, record.get("summary"))
        if told is None:
            return SplitHistory(older, recent, max_tokens=record.get("room") or 0)
        covered = (self._place(told.get("last")) if told.get("last") else None) or -1
        if record["strategy"] == SUMMARY:  # the answer of a run beside this one may have come in between
            late = [message for message in uncovered(older, told) if not is_verbatim(message)]
            places = set(map(id, late))
            older = [message for message in older if id(message) not in places]
            recent = [*late, *recent]
        return SplitHistory(older, recent, told["text"], min(len(older), covered + 1), record.get("room") or 0)

    # ---- a new one

    def _compact(self, before: Choice, aim: int, reason: str) -> Choice:
        """The first strategy that goes as deep as is aimed at, or as the user's words and recent messages let it.

        What was sent ``before`` where none saves anything of it and it fits; else the last resort.
        """
        budget, self._exact = self._budget, True
        before = self.sent(before.record)
        bare = summary(SplitHistory(self._messages[: self._end], self._messages[self._end :]))
        protected = self._size(bare.messages)
        goal = max(aim, protected) if budget is None else min(max(aim, protected), budget)
        choice = self._pruned(goal) if self._end else None
        if choice is None and self._end:
            try:
                choice = self._summed_up(protected, goal, aim)
            except GptshError as err:
                if reason == ASKED:
                    raise
                self._on_failure(err)
                choice = self._pruned(round(self._rules.compact_at * (budget or 0)))
        if choice and choice.size.tokens >= (1 if reason == ASKED else _WORTH) * before.size.tokens:
            choice = None
        if choice is None or (budget is not None and self._taken(choice) > budget):
            if budget is None or self._taken(before) <= budget:
                return before
            choice = self._last_resort()
        if choice.record is None:
            return choice
        sizes = {"before": max(0, before.size.tokens - self._fixed), "after": self._taken(choice)}
        return choice._replace(record={**choice.record, **sizes, "reason": reason}, is_new=True)

    def _pruned(self, goal: int) -> Choice | None:
        """Older results of tools shortened; None where that does not go deep enough."""
        choice = self.sent(self._record(PRUNED, self._end))
        return choice if self._taken(choice) <= goal else None

    def _summed_up(self, protected: int, goal: int, aim: int) -> Choice | None:
        """A compaction by a summary, one that is there or one that is made now; None where there is no room for any.

        Raises GptshError where it cannot be made.
        """
        budget, wanted = self._budget, round(LENGTH_TOLERANCE * self._rules.summary_tokens)
        most = min(wanted, max(_LEAST_SUMMARY, (2 * aim if budget is None else budget) // _QUARTER))
        if budget is not None:
            most = min(most, budget - protected)
        if most < min(_LEAST_SUMMARY, wanted):
            return None
        active, found = self._active(), latest(self._state, self._ids)
        if found and not (active and active.get("summary") == found[0]["id"]):
            told, last = found
            if (told.get("tokens") or 0) <= most and not uncovered(self._messages[: last + 1], told):
                choice = self.sent(self._record(SUMMARY, last + 1, summary=told["id"]))
                if self._taken(choice) <= min(goal + most, budget or goal + most):
                    return choice
        older = list(self._messages[: self._end])
        found = latest(self._state, self._ids[: self._end])
        fresh = uncovered(older, found[0]) if found else older
        made = self._summarise(older, fresh, found[0]["text"] if found else None, max(1, int(most / LENGTH_TOLERANCE)))
        return self.sent(self._record(SUMMARY, self._end, summary=made["id"]))

    def _last_resort(self) -> Choice:
        """What fits of the session without a summary being made: with the question, and as much of the user's words as
        there is room for. Where that leaves words out, fewer of the last messages are kept as they are."""
        budget = self._budget or 0
        choices: list[Choice] = []
        behind = range(self._end + 1, len(self._messages))
        for end in [self._end, *(at for at in behind if _may_part(self._messages, at))]:
            if end == 0:
                continue
            found = latest(self._state, self._ids[:end])
            told = found[0]["id"] if found else None
            for last in (None, self._ids[-1]):  # the recent results of tools as they are, then shortened
                record = self._record(MINIMAL, end, summary=told, pruned=last)
                recent = self._split(record).recent
                record["room"] = budget - self._size(recent)
                choice = self.sent(record)
                for step in range(8):  # less room for what is older, and ever less: a little may change nothing
                    if (over := self._taken(choice) - budget) > 0:
                        record = {**record, "room": record["room"] - over * 2**step}
                        choice = self.sent(record)
                if self._taken(choice) <= budget and not choice.prompt.omitted_questions:
                    return choice
                choices.append(choice)
        if not choices:
            return self.sent(None)
        # What takes least too much, then what leaves least out.
        return min(choices, key=lambda one: (max(0, self._taken(one) - budget), one.prompt.omitted_questions))

    def _record(self, strategy: str, end: int, **more: Any) -> Record:
        """A compaction that shortens the messages before this place."""
        known = (self._state.get("compaction") or {}).get("at") or ""
        moment = max(timestamp(), just_after(known) if known else "")  # of two that are united the later one counts
        made = {"id": new_message_id()[:8], "at": moment, "strategy": strategy, "upto": self._ids[end - 1]}
        kept = len(self._messages) - end
        return {**made, "kept": kept, "summary": None, "room": None, "budget": self._budget, **more}

    def _size(self, messages: Sequence[Message]) -> int:
        """Tokens that messages take by themselves."""
        return max(0, self._measure(messages, "", True).tokens - self._fixed)

    def _taken(self, choice: Choice) -> int:
        """Tokens that the messages of a choice take."""
        return max(0, choice.size.tokens - self._fixed)


def _may_part(messages: Sequence[Message], at: int) -> bool:
    """Whether what stands before this place and what stands behind it can go apart. A call may have no result."""
    before, behind = messages[at - 1], messages[at]
    waits = before["role"] == "assistant" and before.get("tool_calls") and not starts_turn(behind)
    if waits or behind["role"] == "tool":
        return False
    return before.get("id") is not None and before.get("id") != behind.get("id")
