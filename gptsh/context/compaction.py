"""Compact a session that outgrew its window: choose a strategy, and what of the session is sent."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gptsh.context.strategies import (
    Active,
    Minimal,
    Pruned,
    Strategy,
    Summarised,
    count_protected,
    make_minimal,
    read_active,
    split_before,
)
from gptsh.context.summaries import LENGTH_TOLERANCE, latest, uncovered
from gptsh.context.tokens import ASKED, MINIMAL, Estimator, Prompt
from gptsh.core.document_types import Compaction, ContextState, Summary
from gptsh.errors import GptshError
from gptsh.messages import Message, just_after, new_message_id, timestamp

# When and how a long session is compacted: it keeps its active compaction, or the first strategy
# that fits makes one.
#
# A compaction is a record in the session (``context.compaction``): the strategy, and ``upto``, the
# id of the last message that is sent in a shorter form. It stays active until the prompt has grown
# past the threshold (``compact_at``) again, so that prompts keep the same beginning from turn to
# turn and providers' caches hit. A new compaction aims at half of the budget. One that could not
# reach half stays active until the budget is full.
#
# Each strategy is tried once, in order, with its real text. The caller passes in the function that
# makes summaries.

# (older messages, those of them that no summary covers, text of the last summary, tokens for the
# new one) -> the record of the new summary in ``context.summaries``. Raises GptshError.
Summarise = Callable[[Sequence[Message], Sequence[Message], str | None, int], Summary]

_TARGET = 0.5  # share of the budget that a new compaction aims at
_GROWN_BUDGET = 1.2  # times the budget of the active compaction: with more, more may fit
_MAX_SHARE_LEFT = 0.9  # of the size: saving less does not justify a new beginning of the prompt
_MIN_SUMMARY = 200  # tokens: where fewer are left, user words are left out instead


class _Candidate(NamedTuple):
    """A strategy that may make the new compaction, and its prompt, counted."""

    strategy: Strategy
    prompt: Prompt


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
        self._active = read_active(state, messages)
        self._ids = [message["id"] for message in messages]
        # Messages before this index may be shortened.
        self._end = split_before(messages, len(messages) - max(1, self._rules.keep_messages))

    def choose(self, reason: str) -> Prompt:
        """Choose how to send the session; if nothing fits, the prompt exceeds the budget.

        The active compaction is used while its prompt is below the threshold. A much larger budget
        ends it, and a new one is made if needed. If no compaction saves anything, the prompt stays
        the same until the budget is full.
        """
        active = self._active
        if not self._rules.compact:
            if active and not active.is_asked:
                active = None
            return self._estimator.estimated(self._prompt_under(active))
        limit = self._estimator.budget.limit
        if active and limit and limit > _GROWN_BUDGET * active.budget:
            active = None
        now = self._estimator.estimated(self._prompt_under(active))
        limit = now.budget.limit
        if limit is None or _can_stay(now, active):
            return now
        target = int(min(_TARGET, self._rules.compact_at) * limit)
        return self._compact(now, target, reason)

    def current(self) -> Prompt:
        """Return how the session is sent now, even if it does not fit."""
        return self._estimator.estimated(self._prompt_under(self._active))

    def compact(self) -> Prompt | None:
        """Compact to half of the current size, as the user asks; None if nothing is shorter."""
        active = self._active
        if active and not isinstance(active.strategy, Minimal) and active.strategy.end == self._end:
            return None
        now = self._estimator.counted(self._prompt_under(active))
        size = now.message_tokens
        if now.budget.limit is not None:
            size = min(size, now.budget.limit)
        prompt = self._compact(now, int(_TARGET * size), ASKED)
        return prompt if prompt.is_new else None

    # ---- prompts

    def _prompt_under(self, active: Active | None) -> Prompt:
        """Return what is sent under this compaction; None sends all. Without its size."""
        if active is None:
            prompt = self._draft.with_messages(self._messages)
            return prompt._replace(included=len(self._messages))
        draft = self._draft._replace(compaction=active.record)
        return active.strategy.prompt(draft, self._messages)

    def _try(self, strategy: Strategy) -> _Candidate:
        """Return the prompt of a new compaction, counted, to compare its size."""
        draft = self._draft._replace(is_new=True)
        prompt = self._estimator.counted(strategy.prompt(draft, self._messages))
        if isinstance(strategy, Summarised) and strategy.summary.get("pending"):
            # A dry run does not make the summary, but knows about how long it would be.
            size = strategy.summary["tokens"] or 0
            prompt = prompt._replace(tokens=prompt.tokens + size, at_most=prompt.at_most + size)
        return _Candidate(strategy, prompt)

    # ---- a new compaction

    def _compact(self, now: Prompt, target: int, reason: str) -> Prompt:
        """Use the first strategy that comes as close to ``target`` as the protected messages allow.

        If none saves enough, the session is sent as before while that fits, else by ``minimal``.
        """
        before = now
        if now.strategy == MINIMAL:
            # The next compaction may have room for words that ``minimal`` leaves out.
            before = self._estimator.counted(self._prompt_under(None))
        new = self._shorter(target, reason)
        max_share = 1 if reason == ASKED else _MAX_SHARE_LEFT
        max_tokens = max_share * before.tokens
        if new is None or not new.prompt.fits or new.prompt.tokens >= max_tokens:
            if before.fits:
                return before
            new = self._minimal()
            if new is None:
                return self._estimator.counted(self._prompt_under(None))
        record = self._record(new, before.message_tokens, reason)
        return new.prompt._replace(compaction=record)

    def _shorter(self, target: int, reason: str) -> _Candidate | None:
        """Shorten older tool results, or use a summary; None if neither is possible."""
        if not self._end:
            return None
        kept = len(self._messages) - self._end
        pruned = self._try(Pruned(self._end, kept))
        if pruned.prompt.message_tokens <= target:
            return pruned
        try:
            summarised = self._summarised(target)
        except GptshError as err:
            if reason == ASKED:
                raise
            self._on_failure(err)
            summarised = None
        if summarised:
            return summarised
        threshold = pruned.prompt.budget.threshold or 0
        if pruned.prompt.message_tokens <= threshold:
            return pruned
        return None

    def _summarised(self, target: int) -> _Candidate | None:
        """Use an existing summary or make a new one; None without room, or if the user wants none.

        Raises GptshError if the summary cannot be made.
        """
        protected = count_protected(self._messages, self._end)
        full_length = round(LENGTH_TOLERANCE * self._rules.summary_tokens)
        shortest = min(full_length, _MIN_SUMMARY)
        longest = min(full_length, max(_MIN_SUMMARY, target // 2))
        limit = self._estimator.counted_budget.limit
        scale = self._estimator.scale
        if limit is not None:
            longest = min(longest, int(limit / scale) - protected)
        if not full_length or longest < shortest:
            return None
        existing = self._existing_summary()
        if existing:
            max_tokens = max(target, scale * (protected + longest))
            if existing.prompt.message_tokens <= max_tokens:
                return existing
        length = int(longest / LENGTH_TOLERANCE)
        return self._new_summary(max(1, length))

    def _existing_summary(self) -> _Candidate | None:
        """Use the newest summary; None if there is none, or if the active compaction uses it."""
        newest = latest(self._state, self._ids)
        if newest is None:
            return None
        if self._active and self._active.summary_id == newest.summary["id"]:
            return None
        return self._try_summary(newest.last_index + 1, newest.summary)

    def _new_summary(self, length: int) -> _Candidate:
        """Use a new summary of about this length."""
        older = self._messages[: self._end]
        previous = latest(self._state, self._ids[: self._end])
        if previous is None:
            summary = self._summarise(older, older, None, length)
        else:
            fresh = uncovered(older, previous.summary)
            summary = self._summarise(older, fresh, previous.summary["text"], length)
        return self._try_summary(self._end, summary)

    def _try_summary(self, end: int, summary: Summary) -> _Candidate:
        kept = len(self._messages) - end
        return self._try(Summarised(end, kept, summary=summary))

    def _minimal(self) -> _Candidate | None:
        """Fill the budget without a new summary; None if there is nothing to shorten."""
        limit = self._estimator.counted_budget.limit or 0
        counted_limit = int(limit / self._estimator.scale)
        minimal = make_minimal(self._messages, self._state, counted_limit)
        return self._try(minimal) if minimal else None

    def _record(self, new: _Candidate, before: int, reason: str) -> Compaction:
        """Return the record of a new compaction, for the file."""
        moment = timestamp()
        last: Compaction = self._state.get("compaction") or {}
        last_moment = last.get("at")
        if last_moment:  # merging keeps the later record
            moment = max(moment, just_after(last_moment))
        return {
            "id": new_message_id()[:8],
            "at": moment,
            "strategy": new.prompt.strategy,
            "upto": self._ids[new.strategy.end - 1],
            "kept": new.strategy.kept,
            "summary": None,
            "room": None,
            "budget": new.prompt.budget.limit,
            **new.strategy.fields(),
            "before": before,
            "after": new.prompt.message_tokens,
            "reason": reason,
            "omitted": new.prompt.omitted,
        }


def _can_stay(prompt: Prompt, active: Active | None) -> bool:
    """Return whether the session may be sent like this, without a new compaction.

    The prompt is below the threshold; or it fits, and its compaction could not reach half of the
    budget that it was made for.
    """
    limit = prompt.budget.threshold
    if active and active.after > _TARGET * active.budget:
        limit = prompt.budget.limit
    return limit is None or prompt.message_tokens <= limit
