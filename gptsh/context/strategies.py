"""Define the strategies of a compaction: what each sends of a session, and keeps in its file."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gptsh.context.cuts import cut_text, prune
from gptsh.context.replacement import HEADING_TOKENS, MIN_EXCERPT, UNLIMITED, Replacement
from gptsh.context.summaries import latest, summary_of, uncovered
from gptsh.context.tokens import ASKED, MINIMAL, PRUNED, SUMMARY, Prompt, count_message
from gptsh.core.document_types import Compaction, ContextState, Summary
from gptsh.core.turns import count_up_to, starts_of
from gptsh.messages import Message, starts_turn, text_of

# A strategy is a tuple of what it needs to send the same again. Its ``end`` is an index: the
# messages before it are the older ones, which are sent in a shorter form. ``kept`` is the number of
# the newest messages, which were sent in any case when the compaction was made.
#
# ``prompt`` makes what is sent of a session, without its size. ``fields`` are what the strategy
# adds to the record in the file, which ``_read_strategy`` reads again.
#
# A further strategy is a class here, a case in ``_read_strategy``, and a turn in
# ``Compactor._compact``.

# Share of the budget that ``minimal`` fills; the rest is for the next turns. As the sum of the
# counted lines errs high, a little less is filled.
_FILL = 0.92


class Pruned(NamedTuple):
    """Send all messages, but shorten older tool results and attached texts."""

    end: int
    kept: int

    def prompt(self, draft: Prompt, messages: Sequence[Message]) -> Prompt:
        """Return the prompt of these messages."""
        older = messages[: self.end]
        recent = messages[self.end :]
        sent = [*map(prune, older), *recent]
        prompt = draft.with_messages(sent)
        return prompt._replace(strategy=PRUNED, included=len(sent))

    def fields(self) -> Compaction:
        """Return nothing: it needs no more than each strategy has."""
        return {}


class Summarised(NamedTuple):
    """Replace the older messages by the words of the user and a summary of everything else."""

    end: int
    kept: int
    summary: Summary

    def prompt(self, draft: Prompt, messages: Sequence[Message]) -> Prompt:
        """Return the prompt of these messages."""
        older = messages[: self.end]
        recent = messages[self.end :]
        # A parallel run may have saved its answer among the older messages since.
        late_ids = {message["id"] for message in uncovered(older, self.summary)}
        late = []
        replaced = []
        for message in older:
            if message["id"] in late_ids and not _is_verbatim(message):
                late.append(message)
            else:
                replaced.append(message)

        # The next question must not change the words of the one that was current.
        newest = recent[: self.kept] if self.kept else recent
        replacement = Replacement(replaced, UNLIMITED, has_current=not _has_question(newest))
        replacement.add_everything(self.summary)
        summarized = _count_summarized(replacement, self.summary, messages)
        draft = draft._replace(strategy=SUMMARY, summarized=summarized)
        return _with_replacement(draft, replacement, [*late, *recent])

    def fields(self) -> Compaction:
        """Return what the record in the file has for this strategy."""
        return {"summary": self.summary["id"]}


class Minimal(NamedTuple):
    """Fill the budget: replace the older messages by what fits, and shorten newer tool results.

    ``size`` are the tokens for the message in their place. ``last_id`` is that of the last message
    when the compaction was made: tool results up to it are shortened. ``excerpts`` are the tokens
    of messages of which only both ends are sent, by their ids.
    """

    end: int
    kept: int
    size: int
    last_id: str | None
    summary: Summary | None
    excerpts: Mapping[str, int]

    def prompt(self, draft: Prompt, messages: Sequence[Message]) -> Prompt:
        """Return the prompt of these messages."""
        replacement = self.replacement(messages)
        summarized = _count_summarized(replacement, self.summary, messages)
        draft = draft._replace(strategy=MINIMAL, summarized=summarized)
        return _with_replacement(draft, replacement, self.recent(messages))

    def fields(self) -> Compaction:
        """Return what the record in the file has for this strategy."""
        return {
            "summary": self.summary["id"] if self.summary else None,
            "room": self.size,
            "pruned": self.last_id,
            "ends": {**self.excerpts},
        }

    def replacement(self, messages: Sequence[Message]) -> Replacement:
        """Return the message in place of the older ones.

        Whatever was added to the session since, it has the same question and last answer as in the
        beginning.
        """
        last = count_up_to(messages, self.last_id) or len(messages)
        has_current = not _has_question(messages[self.end : last])
        replacement = Replacement(messages[: self.end], self.size, has_current=has_current)
        answer_index = _last_answer_index(messages[:last])
        if answer_index is not None and answer_index >= self.end:
            answer_index = None
        replacement.fill(self.summary, answer_index)
        return replacement

    def recent(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages that are not replaced, as they are sent."""
        last = count_up_to(messages, self.last_id)
        recent = []
        for number, message in enumerate(messages[self.end :], start=self.end + 1):
            max_tokens = self.excerpts.get(message["id"])
            if max_tokens is not None:
                message = cut_text(message, max_tokens)
            elif number <= last:
                message = _prune_result(message)
            recent.append(message)
        return recent

    def extended(self, messages: Sequence[Message]) -> "Minimal":
        """Send the last of the older messages, too, as many as the replacement leaves room for."""
        replacement = self.replacement(messages)
        free = replacement.free
        end = self.end
        for index in reversed(range(1, end)):
            if not _can_split(messages, index):
                continue
            added = [*map(_prune_result, messages[index:end])]
            # What is sent as a message is no longer a line of the replacement.
            saved = replacement.count_lines(range(index, end))
            free += saved - _count(added)
            if free < 0:
                excerpts = _excerpt_of_longest(added, -free)
                if excerpts:
                    return self._replace(end=index, excerpts=excerpts)
                break
            end = index
        return self._replace(end=end)


Strategy = Pruned | Summarised | Minimal


# ---- minimal


def make_minimal(messages: Sequence[Message], state: ContextState, limit: int) -> Minimal | None:
    """Fill ``limit`` tokens without a new summary; return None if there is nothing to shorten."""
    goal = int(_FILL * limit)
    # The newest messages are sent in any case.
    start = _start_of_newest(messages, goal, limit)
    if not start:
        return None
    newest = [*map(_prune_result, messages[start:])]
    # The replacement of all others gets the tokens that they leave.
    found = latest(state, [message["id"] for message in messages[:start]])
    shortest = Minimal(
        end=start,
        kept=len(messages) - start,
        size=_rest_of(goal, messages[:start], newest),
        last_id=messages[-1]["id"],
        summary=found.summary if found else None,
        excerpts={},
    )
    # As many more messages are sent as fit into what the replacement does not need.
    minimal = shortest.extended(messages)
    size = _rest_of(goal, messages[: minimal.end], minimal.recent(messages))
    return minimal._replace(size=size)


def _start_of_newest(messages: Sequence[Message], goal: int, limit: int) -> int:
    """Return where the messages begin that are sent in any case; 0 if that is all.

    These messages are the current question and what follows it. In a turn of many tool rounds they
    are as many of the newest rounds as fit half of the goal, at least one; then the question is in
    the replacement.
    """
    question_index = _question_index(messages)
    question = prune(messages[question_index])
    free = min(goal // 2, limit - HEADING_TOKENS - count_message(question))
    start = 0
    end = len(messages)
    for index in reversed(range(max(1, question_index), end)):
        if _can_split(messages, index):
            free -= _count(map(_prune_result, messages[index:end]))
            if free < 0 and start:
                break
            start = index
            end = index
    return start


def _rest_of(goal: int, older: Sequence[Message], recent: Sequence[Message]) -> int:
    """Return the tokens that a replacement of the older messages may take."""
    others = [*_systems_of(older), *recent]
    return max(0, goal - _count(others))


def _excerpt_of_longest(messages: Sequence[Message], excess: int) -> dict[str, int]:
    """Return the tokens of the longest message, by its id, if all take ``excess`` tokens less.

    Return {} if that is hardly anything, or if it is a question, which is never cut.
    """
    longest = max(messages, key=count_message)
    text_tokens = count_message(longest) - count_message(cut_text(longest, 0))
    max_tokens = text_tokens - excess
    if max_tokens < MIN_EXCERPT or starts_turn(longest):
        return {}
    return {longest["id"]: max_tokens}


# ---- the compaction of a session


class Active(NamedTuple):
    """The compaction that a session has: its record, and what that says.

    ``budget`` is the one that it was made for, infinite if that is unknown; ``after`` are the
    tokens of its messages then.
    """

    record: Compaction
    strategy: Strategy
    summary_id: str | None
    is_asked: bool
    budget: float
    after: int


def read_active(state: ContextState, messages: Sequence[Message]) -> Active | None:
    """Return the compaction of a session.

    Return None if there is none, or if its strategy is unknown, or the message or the summary that
    it names does not exist any more.
    """
    record = state.get("compaction")
    if record is None or "id" not in record:
        return None
    strategy = _read_strategy(record, state, messages)
    if strategy is None:
        return None
    return Active(
        record,
        strategy,
        summary_id=record.get("summary"),
        is_asked=record.get("reason") == ASKED,
        budget=record.get("budget") or math.inf,
        after=record.get("after") or 0,
    )


def _read_strategy(
    record: Compaction,
    state: ContextState,
    messages: Sequence[Message],
) -> Strategy | None:
    """Return the strategy of a record, None if it cannot be used; any of its keys may be absent."""
    end = count_up_to(messages, record.get("upto"))
    if not end:
        return None
    kept = record.get("kept") or 0
    summary = summary_of(state, record.get("summary"))
    strategy = record.get("strategy")
    if strategy == PRUNED:
        return Pruned(end, kept)
    if strategy == SUMMARY and summary:
        return Summarised(end, kept, summary)
    if strategy == MINIMAL:
        return Minimal(
            end,
            kept,
            size=record.get("room") or 0,
            last_id=record.get("pruned"),
            summary=summary,
            excerpts=record.get("ends") or {},
        )
    return None


# ---- messages


def split_before(messages: Sequence[Message], index: int) -> int:
    """Return the last index up to this one where the messages can be split; 0 if there is none."""
    while index > 0 and not _can_split(messages, index):
        index -= 1
    return max(0, index)


def count_protected(messages: Sequence[Message], end: int) -> int:
    """Return the tokens of what a summary of the messages before ``end`` does not replace.

    The media of the older questions are not counted.
    """
    older = messages[:end]
    recent = messages[end:]
    replacement = Replacement(older, UNLIMITED, has_current=not _has_question(recent))
    others = [*_systems_of(older), *recent]
    return replacement.count_words() + _count(others)


def _can_split(messages: Sequence[Message], index: int) -> bool:
    """Return whether the messages can be split before this index.

    A tool call is not separated from its results, of which it may have none.
    """
    before = messages[index - 1]
    after = messages[index]
    if after["role"] == "tool":
        return False
    calls_tools = before["role"] == "assistant" and bool(before.get("tool_calls"))
    return not calls_tools or starts_turn(after)


def _has_question(messages: Iterable[Message]) -> bool:
    """Return whether one of the messages is a question."""
    return any(map(starts_turn, messages))


def _systems_of(messages: Iterable[Message]) -> list[Message]:
    """Return the system messages, which are always sent."""
    return [message for message in messages if message["role"] == "system"]


def _count(messages: Iterable[Message]) -> int:
    """Return the tokens of the messages."""
    return sum(map(count_message, messages))


def _with_replacement(draft: Prompt, replacement: Replacement, recent: Sequence[Message]) -> Prompt:
    """Return the prompt that sends a replacement of the older messages, and the recent ones."""
    systems = _systems_of(replacement.older)
    omitted = replacement.omitted()
    included = len(systems) + len(replacement.lines)
    left_out = len(replacement.older) - included - draft.summarized
    draft = draft._replace(
        included=included + len(recent),
        left_out=left_out + len(omitted["media"]),
        omitted=omitted,
    )
    return draft.with_messages([*systems, *replacement.messages(), *recent])


def _count_summarized(
    replacement: Replacement,
    summary: Summary | None,
    messages: Sequence[Message],
) -> int:
    """Return how many of the older messages are sent in the form of the summary alone."""
    if not summary or not replacement.summary:
        return 0
    covered = count_up_to(messages, summary.get("last"))
    number = 0
    for index, message in enumerate(replacement.older[:covered]):
        if index not in replacement.lines and not _is_verbatim(message):
            number += 1
    return number


def _is_verbatim(message: Message) -> bool:
    """Return whether a message is always sent verbatim, however old it is."""
    return message["role"] == "system" or starts_turn(message)


def _prune_result(message: Message) -> Message:
    """Return a tool result shortened, any other message as it is."""
    if message["role"] == "tool":
        return prune(message)
    return message


def _question_index(messages: Sequence[Message]) -> int:
    """Return the index of the last question; 0 if there is none."""
    return max(starts_of(messages), default=0)


def _last_answer_index(messages: Sequence[Message]) -> int | None:
    """Return the index of the last answer with words before the last question, or None."""
    for index in reversed(range(_question_index(messages))):
        message = messages[index]
        if message["role"] == "assistant" and text_of(message).strip():
            return index
    return None
