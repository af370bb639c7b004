"""What of a session is sent where not all of it fits: the compaction in force, or a new one. Pure.

A compaction is a record in the session (``context.compaction``): the strategy, and ``upto``, the id of the last message
that is sent in a shorter form. It stays in force until what is sent has grown beyond the mark again, so that prompts
keep their beginning from turn to turn and providers' caches hit. A new one goes deep: to half of the budget. One that
could not go so deep is ``tight``: it stays until the budget is full.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from gptsh.core.choice import FULL, Choice, Frame, Record, Session, Wanted, is_below, whole
from gptsh.core.messages import Message, just_after, new_message_id, starts_turn, timestamp
from gptsh.core.pruning import pruned
from gptsh.core.settings import ContextRules
from gptsh.core.strategies import BY_NAME, STRATEGIES, Past, Strategy, is_kept, summary
from gptsh.core.summaries import LONGER, latest, summary_of, uncovered
from gptsh.core.tokens import FRAMING, Count

_AIM = 0.5  # of the budget: what a new compaction goes down to
_LARGER = 1.2  # times the budget that a compaction was made for: then more may fit, or all
_WORTH = 0.9  # times what is sent now: what saves less is not worth a new beginning of the prompt
_NO_ROOM = -1  # tokens: then nothing stands in place of what is older
_UNKNOWN_SUMMARY = "[a summary of what is older, made when this is sent]"
_QUARTER = 4  # what summaries take of a budget at most
_LEAST = STRATEGIES[-1].name
_ASKED = "asked"  # why a compaction was made that stands whatever the settings say


class _Aims(NamedTuple):
    """What a new compaction goes down to in tokens, what of it can only stay, and what a summary may take."""

    goal: int
    protected: int
    summary: int


def choose(session: Session, frame: Frame, rules: ContextRules, everything: Choice | None = None) -> Choice:
    """How to send the session. Where nothing fits, the least that can be sent, whose size says so.

    ``everything`` is the choice of all of it, where it was measured already.

    The compaction in force is kept for as long as what is sent under it stays below the mark (``compact_at``); in a
    much larger budget there is a new one, if there is need for any. Where none saves anything all stays as it is until
    the budget is full.
    """
    record = _in_force(session)
    if not rules.compact:
        return current(session, frame) if record and record.get("reason") == _ASKED else whole(session, frame)
    if record is not None and not _has_grown(record, frame.budget):
        sent = _sent(session, frame, record)
        if is_below(sent, frame, rules):
            return sent
        return _anew(session, frame, rules, before=sent if record["strategy"] != _LEAST else whole(session, frame))
    everything = everything or whole(session, frame)
    if is_below(everything, frame, rules):
        return everything
    return _anew(session, frame, rules, before=everything)


def current(session: Session, frame: Frame) -> Choice:
    """What is sent now, whether it fits or not: all, or what the compaction in force leaves of it."""
    return _sent(session, frame, _in_force(session))


def _in_force(session: Session) -> Record | None:
    """The compaction that the session was last sent under, as far as what it speaks of is still there."""
    record: Record | None = session.state.get("compaction")
    if record is None or record.get("strategy") not in BY_NAME or record["strategy"] == FULL or "id" not in record:
        return None
    at = _place(session.messages, record.get("upto"))
    if at is None or len(session.messages) - at - 1 < (record.get("kept") or 0):  # a fork has fewer behind it
        return None
    lost = BY_NAME[record["strategy"]].summarises and summary_of(session.state, record.get("summary")) is None
    return None if lost else record


def _has_grown(record: Record, budget: int | None) -> bool:
    then = record.get("budget")
    return budget is not None and then is not None and budget > _LARGER * then


def _sent(session: Session, frame: Frame, record: Record | None) -> Choice:
    """The session as it is sent under a compaction."""
    if record is None:
        return whole(session, frame)
    shortened = BY_NAME[record["strategy"]].shorten(_past(session, record))
    return Choice(record["strategy"], shortened, frame.measured(shortened.messages, record["id"]), record)


def _past(session: Session, record: Record, text: str | None = None) -> Past:
    """The session parted as a record says. ``text`` stands for a summary that is not made yet."""
    messages = session.messages
    end = (_place(messages, record["upto"]) or 0) + 1
    older, recent = list(messages[:end]), list(messages[end:])
    thinned = _place(recent, record.get("pruned"))
    if thinned is not None:  # but not what the user sent along: that is cut visibly or not at all
        recent[: thinned + 1] = _thinned(recent[: thinned + 1])
    told = summary_of(session.state, record.get("summary"))
    covered = end if text else 0
    if told and text is None:
        text, last = told["text"], _place(messages, told.get("last"))
        if BY_NAME[record["strategy"]].summarises:  # the answer of a run beside this one may have come in between
            late = [message for message in uncovered(older, told) if not is_kept(message)]
            places = set(map(id, late))
            older = [message for message in older if id(message) not in places]
            recent = [*late, *recent]
        covered = min(len(older), (-1 if last is None else last) + 1)
    return Past(older, recent, text or "", covered, record.get("room") or 0)


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
    end = boundary(session.messages, rules.keep_messages)
    leaves_out = record is not None and record["strategy"] == _LEAST  # then more may be sent, and that is better
    if not leaves_out and record and record["upto"] == session.messages[end - 1].get("id"):
        return None
    longer = whole(session, frame) if leaves_out else before
    half = round(_AIM * frame.taken(longer))
    frame = frame._replace(aim=half if frame.budget is None else min(half, round(_AIM * frame.budget)))
    choice = _deep(session, frame, rules, end, longer)
    if choice is None and frame.budget is not None and frame.taken(before) > frame.budget:
        choice = _least(session, frame, rules)
    return _finished(choice, frame, before.size, _ASKED) if choice and choice.record else None


def _anew(session: Session, frame: Frame, rules: ContextRules, *, before: Choice) -> Choice:
    """A compaction that goes deep, by the first strategy that does; a summary may have to be made for it first.

    Where there is none, what was sent ``before`` as long as it fits.
    """
    choice = _deep(session, frame, rules, boundary(session.messages, rules.keep_messages), before)
    if choice is None:
        if frame.budget is None or frame.taken(before) <= frame.budget:
            return before
        choice = _least(session, frame, rules)
    return _finished(choice, frame, before.size, "auto") if choice.record else choice


def without_summary(session: Session, frame: Frame, rules: ContextRules, failed: Choice) -> Choice:
    """What is sent where the summary that was wanted cannot be had."""
    last = boundary(session.messages, rules.keep_messages) - 1
    others = (strategy.name for strategy in STRATEGIES[1:-1] if not strategy.summarises)
    choices = (_sent(session, frame, _record(name, last, session, frame)) for name in others)
    below = next((choice for choice in choices if is_below(choice, frame, rules)), None)
    return _like(failed, below or _least(session, frame, rules), frame)


def with_summary(session: Session, frame: Frame, rules: ContextRules, wanting: Choice) -> Choice:
    """What is sent with the summary that was wanted, the session's newest. The least where it is too long for that."""
    record = {**(wanting.record or {}), "summary": session.state["summaries"][-1]["id"]}
    choice = _sent(session, frame, record)
    if frame.budget is not None and frame.taken(choice) > frame.budget:
        choice = _least(session, frame, rules)
    return _like(wanting, choice, frame)


def _like(wanting: Choice, choice: Choice, frame: Frame) -> Choice:
    before, reason = (wanting.record or {}).get("before"), (wanting.record or {}).get("reason", "auto")
    told = _finished(choice, frame, choice.size, reason) if choice.record else choice
    return told._replace(record={**told.record, "before": before}) if told.record else told


def _finished(choice: Choice, frame: Frame, before: Count, reason: str) -> Choice:
    """The choice, its record saying what came of it."""
    sizes = {"before": before.without(frame.fixed), "after": choice.size.without(frame.fixed)}
    tight = frame.budget is not None and frame.taken(choice) > _AIM * frame.budget
    record = {**(choice.record or {}), **sizes, "tight": tight, "reason": reason}
    return choice._replace(record=record, made=True)


def boundary(messages: Sequence[Message], keep: int) -> int:
    """How many messages are older than the last ``keep``: fewer where a call would be parted from its result."""
    end = max(0, len(messages) - max(1, keep))
    while end > 0 and not _may_part(messages, end):
        end -= 1
    return end


def _may_part(messages: Sequence[Message], at: int) -> bool:
    """Whether what stands before this place and what stands behind it can go apart. A call may have no result."""
    before, behind = messages[at - 1], messages[at]
    waits = before["role"] == "assistant" and before.get("tool_calls") and not starts_turn(behind)
    if waits or behind["role"] == "tool":
        return False
    return before.get("id") is not None and before.get("id") != behind.get("id")


def _thinned(messages: Sequence[Message]) -> list[Message]:
    return [pruned(message) if message["role"] == "tool" else message for message in messages]


def _record(strategy: str, at: int, session: Session, frame: Frame, **more: Any) -> Record:
    """A compaction that shortens the messages up to this place."""
    known = (session.state.get("compaction") or {}).get("at") or ""
    moment = max(timestamp(), just_after(known) if known else "")  # of two that are united the later one counts
    made = {"id": new_message_id()[:8], "at": moment, "strategy": strategy, "upto": session.messages[at].get("id")}
    kept = len(session.messages) - at - 1
    return {**made, "kept": kept, "summary": None, "room": None, "pruned": None, "budget": frame.budget, **more}


def _deep(session: Session, frame: Frame, rules: ContextRules, end: int, before: Choice) -> Choice | None:
    """The first strategy that goes as deep as is aimed at, or as the user's words and recent messages let it.

    None where none saves anything of what is sent ``before``.
    """
    if not end:
        return None
    aims = _aims(session, frame, rules, end)
    worth = (way for way in STRATEGIES[1:-1] if frame.budget is None or frame.budget >= way.least)
    choices = ((_summed_up if way.summarises else _cut_down)(way, session, frame, end, aims) for way in worth)
    most = _WORTH * before.size.plain
    return next((choice for choice in choices if choice and choice.size.plain <= most), None)


def _aims(session: Session, frame: Frame, rules: ContextRules, end: int) -> _Aims:
    """Half of the budget, or what must stay if that is more; for a summary a quarter of it at most."""
    bare = summary(Past(session.messages[:end], session.messages[end:]))
    protected = frame.measured(bare.messages, "").safe - frame.fixed
    aim = frame.aim if frame.aim is not None else round(min(_AIM, rules.compact_at) * (frame.budget or 0))
    room = 2 * aim if frame.aim is not None or frame.budget is None else frame.budget
    most = max(1, min(round(LONGER * rules.summary_tokens), room // _QUARTER))
    goal = max(aim, protected)
    return _Aims(goal if frame.budget is None else min(goal, frame.budget), protected, most)


def _cut_down(way: Strategy, session: Session, frame: Frame, end: int, aims: _Aims) -> Choice | None:
    """A compaction by a strategy that needs nothing; None where it does not go deep enough."""
    if FRAMING * len(session.messages) > aims.goal:  # a message takes so much however short it is
        return None
    choice = _sent(session, frame, _record(way.name, end - 1, session, frame))
    return choice if frame.taken(choice) <= aims.goal else None


def _summed_up(way: Strategy, session: Session, frame: Frame, end: int, aims: _Aims) -> Choice | None:
    """A compaction by a summary, one that is there or one that is to be made; None where it would not fit."""
    if frame.budget is not None and aims.protected + aims.summary > frame.budget:
        return None
    choice = _known(way, session, frame, aims) or _wanting(way, session, frame, end, aims)
    return choice if frame.budget is None or frame.taken(choice) <= frame.budget else None


def _known(way: Strategy, session: Session, frame: Frame, aims: _Aims) -> Choice | None:
    """A compaction by a summary that is there already, but not in force; None where none goes deep enough."""
    told, last = latest(session.state, _ids(session.messages)) or (None, 0)
    force = _in_force(session)
    if force and told and force["summary"] == told["id"] and not _has_grown(force, frame.budget):
        return None
    if told is None or (told.get("tokens") or 0) > aims.summary or uncovered(session.messages[: last + 1], told):
        return None
    choice = _sent(session, frame, _record(way.name, last, session, frame, summary=told["id"]))
    return choice if frame.taken(choice) <= aims.goal + aims.summary else None


def _wanting(way: Strategy, session: Session, frame: Frame, end: int, aims: _Aims) -> Choice:
    """A compaction by a summary that is to be made; the tokens that it may have are counted."""
    older = list(session.messages[:end])
    previous, _ = latest(session.state, _ids(older)) or (None, 0)
    fresh = uncovered(older, previous) if previous else older
    record, most = _record(way.name, end - 1, session, frame), aims.summary
    shortened = way.shorten(_past(session, record, _UNKNOWN_SUMMARY))
    size = frame.measured(shortened.messages, record["id"])
    likely = size.likely + round(most * size.likely / max(1, size.safe))
    size = Count(size.safe + most, likely, size.plain + most, anchored=False)
    return Choice(way.name, shortened, size, record, wanted=Wanted(previous, fresh, older, int(most / LONGER)))


def _ids(messages: Sequence[Message]) -> list[str]:
    return [message.get("id") or "" for message in messages]


def _least(session: Session, frame: Frame, rules: ContextRules) -> Choice:
    """The least that can be sent, which holds the question: with as much of the rest as there is room for."""
    start = boundary(session.messages, rules.keep_messages)
    behind = range(start + 1, len(session.messages))
    ends = [start, *(at for at in behind if _may_part(session.messages, at))]
    choice = _least_from(_largest_end(session, frame, rules, ends), session, frame, rules)
    if frame.taken(choice) > (frame.budget or 0):  # more was reported of it than it is estimated to take
        choice = _least_from(ends[-1], session, frame, rules)
    return choice


def _least_from(end: int, session: Session, frame: Frame, rules: ContextRules) -> Choice:
    """What the strategy of last resort makes of so many older messages, in front of the others as they are."""
    budget = frame.budget or 0
    if end == 0:
        return _sent(session, frame, None)
    found = latest(session.state, _ids(session.messages[:end]))
    record = _record(_LEAST, end - 1, session, frame, summary=found and found[0]["id"])
    mark, last = round(rules.compact_at * budget), session.messages[-1].get("id")
    for pruned_to in (None, last):
        record["pruned"] = pruned_to
        room = round((mark - _size(_past(session, record).recent, frame)) / frame.scale)
        for size in (room, _NO_ROOM):
            choice = _sent(session, frame, {**record, "room": size})
            if frame.taken(choice) <= budget:
                return choice
    return choice


def _largest_end(session: Session, frame: Frame, rules: ContextRules, ends: Sequence[int]) -> int:
    """Where the recent messages begin that go along, of these places; the last one where hardly any do.

    As many as take half of the budget, or what the user's older words leave of it.
    """
    messages, budget = session.messages, frame.budget or 0
    words = _size(summary(Past(messages[: ends[0]], ())).messages, frame) if ends[0] else 0
    most = max(_AIM * budget, rules.compact_at * budget - words)
    size, place = 0, len(messages)
    for end in reversed(ends):
        size += _size(messages[end:place], frame)
        if size > most:
            return min(place, ends[-1])
        place = end
    return ends[0]


def _size(messages: Sequence[Message], frame: Frame) -> int:
    """Tokens that messages take by themselves."""
    return round(frame.scale * (frame.measure(messages, "").plain - frame.fixed))
