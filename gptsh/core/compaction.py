"""What of a session is sent where not all of it fits: the compaction in force, or a new one. Pure.

A compaction is a record in the session (``context.compaction``): the strategy, and ``upto``, the id of the last message
that is sent in a shorter form. It stays in force until what is sent has grown beyond the mark again, so that prompts
keep their beginning from turn to turn and providers' caches hit. A new one goes deep: to half of the budget.
"""

from collections.abc import Sequence
from typing import Any

from gptsh.core.choice import FULL, Choice, Frame, Record, Session, Wanted, is_below, whole
from gptsh.core.messages import Message, new_message_id, timestamp
from gptsh.core.pruning import pruned
from gptsh.core.settings import ContextRules
from gptsh.core.strategies import BY_NAME, Past
from gptsh.core.summaries import LONGER, latest, summary_of, uncovered
from gptsh.core.tokens import Count

_AIM = 0.5  # of the budget: what a new compaction goes down to
_LARGER = 1.2  # times the budget that a compaction was made for: then more may fit, or all
_WORTH = 0.9  # times what is sent now: what saves less than a tenth is not worth a new beginning of the prompt
_NO_ROOM = -1  # tokens: then nothing stands in place of what is older
_UNKNOWN_SUMMARY = "[a summary of what is older, made when this is sent]"
_QUARTER = 4  # what summaries take of a budget at most


def choose(session: Session, frame: Frame, rules: ContextRules) -> Choice:
    """How to send the session. Where nothing fits, the least that can be sent, whose size says so.

    The compaction in force is kept for as long as what is sent under it stays below the mark (``compact_at``); beyond
    it, or where it could not get below it, as long as it fits.
    """
    record = _in_force(session) if rules.compact else None
    if record is None or _has_grown(record, frame.budget):
        everything = whole(session, frame)
        if not rules.compact or is_below(everything, frame, rules):
            return everything
    sent = _sent(session, frame, record)
    return sent if record and is_below(sent, frame, rules) else _anew(session, frame, rules, before=sent)


def current(session: Session, frame: Frame) -> Choice:
    """What is sent now, whether it fits or not: all, or what the compaction in force leaves of it."""
    return _sent(session, frame, _in_force(session))


def _in_force(session: Session) -> Record | None:
    """The compaction that the session was last sent under, as far as what it speaks of is still there."""
    record: Record | None = session.state.get("compaction")
    if record is None or record.get("strategy") not in BY_NAME or record["strategy"] == FULL:
        return None
    if _place(session.messages, record.get("upto")) is None:
        return None
    lost = record["strategy"] == "summary" and summary_of(session.state, record.get("summary")) is None
    return None if lost else record


def _has_grown(record: Record, budget: int | None) -> bool:
    then = record.get("budget")
    return budget is not None and then is not None and budget > _LARGER * then


def _sent(session: Session, frame: Frame, record: Record | None) -> Choice:
    """The session as it is sent under a compaction."""
    if record is None:
        return whole(session, frame)
    shortened = BY_NAME[record["strategy"]].shorten(_past(session, record))
    return Choice(record["strategy"], shortened, frame.measure(shortened.messages, record["id"]), record)


def _past(session: Session, record: Record, text: str | None = None) -> Past:
    """The session parted as a record says. ``text`` stands for a summary that is not made yet."""
    messages = session.messages
    end = (_place(messages, record["upto"]) or 0) + 1
    recent = list(messages[end:])
    thinned = _place(recent, record.get("pruned"))
    if thinned is not None:  # but not what the user sent along: that is cut visibly or not at all
        recent[: thinned + 1] = _thinned(recent[: thinned + 1])
    told = summary_of(session.state, record.get("summary"))
    covered = end if text else 0
    if told and text is None:
        text, last = told["text"], _place(messages, told["last"])
        covered = min(end, (-1 if last is None else last) + 1)
    return Past(messages[:end], recent, text or "", covered, record.get("room") or 0)


def _place(messages: Sequence[Message], ident: object) -> int | None:
    """Where the message of this id stands, of several the last; None where there is none."""
    if not isinstance(ident, str):
        return None
    return next((at for at in reversed(range(len(messages))) if messages[at].get("id") == ident), None)


# ---- a new one


def compacted(session: Session, frame: Frame, rules: ContextRules) -> Choice | None:
    """A new compaction because it is asked for, to half of what is sent now; None where hardly anything is saved."""
    before = current(session, frame)
    record = before.record
    half = round(_AIM * (before.size.safe - frame.fixed))
    frame = frame._replace(aim=half if frame.budget is None else min(half, round(_AIM * frame.budget)))
    end = boundary(session.messages, rules.keep_messages)
    if end == 0 or (record and record["upto"] == session.messages[end - 1].get("id")):
        return None
    choice = _deep(session, frame, rules, end)
    if choice is None or _at_best(choice) > _WORTH * before.size.plain:
        return None
    return _finished(choice, frame, rules, before.size, "asked")


def _at_best(choice: Choice) -> int:
    """Tokens of what was chosen, a summary that is to be made being short."""
    return choice.size.plain - (round(LONGER * choice.wanted.tokens) if choice.wanted else 0)


def _anew(session: Session, frame: Frame, rules: ContextRules, *, before: Choice) -> Choice:
    """A compaction that goes deep, by the first strategy that does; a summary may have to be made for it first."""
    end = boundary(session.messages, rules.keep_messages)
    choice = _deep(session, frame, rules, end) or _least(session, frame, rules)
    return _finished(choice, frame, rules, before.size, "auto") if choice.record else choice


def without_summary(session: Session, frame: Frame, rules: ContextRules, failed: Choice) -> Choice:
    """What is sent where the summary that was wanted cannot be had."""
    end = boundary(session.messages, rules.keep_messages)
    choice = _sent(session, frame, _record("pruned-tools", session.messages[end - 1], frame))
    if not is_below(choice, frame, rules):
        choice = _least(session, frame, rules)
    return _like(failed, choice, frame, rules)


def with_summary(session: Session, frame: Frame, rules: ContextRules, wanting: Choice) -> Choice:
    """What is sent with the summary that was wanted, the session's newest. The least where it is too long for that."""
    record = {**(wanting.record or {}), "summary": session.state["summaries"][-1]["id"]}
    choice = _sent(session, frame, record)
    if frame.budget is not None and frame.taken(choice) > frame.budget:
        choice = _least(session, frame, rules)
    return _like(wanting, choice, frame, rules)


def _like(wanting: Choice, choice: Choice, frame: Frame, rules: ContextRules) -> Choice:
    before, reason = (wanting.record or {}).get("before"), (wanting.record or {}).get("reason", "auto")
    told = _finished(choice, frame, rules, choice.size, reason) if choice.record else choice
    return told._replace(record={**told.record, "before": before}) if told.record else told


def _finished(choice: Choice, frame: Frame, rules: ContextRules, before: Count, reason: str) -> Choice:
    """The choice, its record saying what came of it."""
    sizes = {"before": before.without(frame.fixed), "after": choice.size.without(frame.fixed)}
    tight = frame.budget is not None and frame.taken(choice) > rules.compact_at * frame.budget
    record = {**(choice.record or {}), **sizes, "tight": tight, "reason": reason}
    return choice._replace(record=record, made=True)


def boundary(messages: Sequence[Message], keep: int) -> int:
    """How many messages are older than the last ``keep``: fewer where a call would be parted from its result."""
    end = max(0, len(messages) - max(1, keep))
    while end > 0 and not _may_part(messages, end):
        end -= 1
    return end


def _may_part(messages: Sequence[Message], at: int) -> bool:
    """Whether what stands before this place and what stands behind it can go apart."""
    before, behind = messages[at - 1], messages[at]
    if behind["role"] == "tool" or (before["role"] == "assistant" and before.get("tool_calls")):
        return False
    return before.get("id") is not None and before.get("id") != behind.get("id")


def _thinned(messages: Sequence[Message]) -> list[Message]:
    return [pruned(message) if message["role"] == "tool" else message for message in messages]


def _record(strategy: str, upto: Message, frame: Frame, **more: Any) -> Record:
    made = {"id": new_message_id()[:8], "at": timestamp(), "strategy": strategy, "upto": upto.get("id")}
    return {**made, "summary": None, "room": None, "pruned": None, "budget": frame.budget, **more}


def _deep(session: Session, frame: Frame, rules: ContextRules, end: int) -> Choice | None:
    """The first strategy that goes as deep as is aimed at, or as the user's words and recent messages let it."""
    if not end:
        return None
    bare = BY_NAME["summary"].shorten(Past(session.messages[:end], session.messages[end:]))
    protected = frame.measure(bare.messages, "").safe - frame.fixed
    aim = frame.aim if frame.aim is not None else round(min(_AIM, rules.compact_at) * (frame.budget or 0))
    room = 2 * aim if frame.budget is None else frame.budget
    goal = min(max(aim, protected), room)
    if room >= BY_NAME["pruned-tools"].least or frame.budget is None:
        choice = _sent(session, frame, _record("pruned-tools", session.messages[end - 1], frame))
        if frame.taken(choice) <= goal:
            return choice
    most = max(1, min(round(LONGER * rules.summary_tokens), room // _QUARTER))
    if frame.budget is not None and (room < BY_NAME["summary"].least or protected + most > room):
        return None
    return _known(session, frame, goal, most) or _summed_up(session, frame, end, most)


def _known(session: Session, frame: Frame, goal: int, most: int) -> Choice | None:
    """A compaction by a summary that is there already, not in force; None where there is none that goes deep enough."""
    found, force = latest(session.state, _ids(session.messages)), _in_force(session) or {}
    if found is None or found[0]["tokens"] > most:
        return None
    if force.get("strategy") == "summary" and force["summary"] == found[0]["id"]:
        return None
    choice = _sent(session, frame, _record("summary", session.messages[found[1]], frame, summary=found[0]["id"]))
    return choice if frame.taken(choice) <= goal + most else None


def _summed_up(session: Session, frame: Frame, end: int, most: int) -> Choice:
    """A compaction by a summary that is to be made, for which the tokens that it may have are counted."""
    older = list(session.messages[:end])
    found = latest(session.state, _ids(older))
    fresh = uncovered(older, found[0]) if found else older
    record = _record("summary", older[-1], frame)
    shortened = BY_NAME["summary"].shorten(_past(session, record, _UNKNOWN_SUMMARY))
    size = frame.measure(shortened.messages, record["id"])
    size = Count(size.safe + most, size.likely + most, size.plain + most, anchored=False)
    wanted = Wanted(found and found[0], fresh, older, int(most / LONGER))
    return Choice("summary", shortened, size, record, wanted=wanted)


def _ids(messages: Sequence[Message]) -> list[str]:
    return [message.get("id") or "" for message in messages]


def _least(session: Session, frame: Frame, rules: ContextRules) -> Choice:
    """The least that can be sent, which holds the question: with as much of the rest as there is room for."""
    budget = frame.budget or 0
    end = _end_for_least(session, frame, rules)
    if end == 0:
        return _sent(session, frame, None)
    found = latest(session.state, _ids(session.messages[:end]))
    record = _record("minimal", session.messages[end - 1], frame, summary=found and found[0]["id"])
    if _size(session.messages[end:], frame) > budget:
        record["pruned"] = session.messages[-1].get("id")
    recent = _past(session, record).recent
    room = round(rules.compact_at * budget) - _size(recent, frame)
    choices = (_sent(session, frame, {**record, "room": room}) for room in (room, _NO_ROOM))
    return next((choice for choice in choices if frame.taken(choice) <= budget), None) or _sent(
        session, frame, {**record, "room": _NO_ROOM}
    )


def _end_for_least(session: Session, frame: Frame, rules: ContextRules) -> int:
    """Where the recent messages begin that go along: as many as take half of the budget, else the very last."""
    start = boundary(session.messages, rules.keep_messages)
    ends = [start, *(at for at in range(start + 1, len(session.messages)) if _may_part(session.messages, at))]
    deep = (end for end in ends if _size(session.messages[end:], frame) <= _AIM * (frame.budget or 0))
    return next(deep, ends[-1])


def _size(messages: Sequence[Message], frame: Frame) -> int:
    return frame.measure(messages, "").safe - frame.fixed
