"""What of a session is sent where not all fits: when it is compacted, how deep, what stays as it was sent before."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.core import compaction, context
from gptsh.core.choice import FULL, Choice, Frame, Session
from gptsh.core.compaction import boundary, choose, compacted, current, with_summary, without_summary
from gptsh.core.context import Room, spoken
from gptsh.core.messages import starts_turn
from gptsh.core.pruning import pruned
from gptsh.core.settings import ContextRules
from gptsh.core.summaries import LONGER, Made, new_summary
from gptsh.core.tokens import Asked, Count, count, estimate
from tests.support import vocabulary

RULES = ContextRules()
NO_SIZE = Count(0, 0, 0, anchored=False)
LINE = "the parser reads tables and the writer keeps them in order\n"


def frame(budget: int | None, fixed: int = 0) -> Frame:
    """What messages of so many tokens are to fit in, beside some for what stands in front of them."""

    def measure(sent: Sequence[Any], under: str | None) -> Count:
        return count(sent, None, asked=Asked("lab/m", "lab", under), beside=fixed)

    return Frame(measure, budget, fixed)


def said(role: str, content: Any, ident: str, **more: Any) -> dict[str, Any]:
    return {"id": ident, "role": role, "content": content, **more}


def talk(turns: int, *, asked: int = 0, answered: int = 0, start: int = 0) -> list[Any]:
    """Questions and answers, each with so many lines behind its first words."""
    return [
        message
        for at in range(start, start + turns)
        for message in (
            said("user", f"Question {at}?\n{LINE * asked}", f"q{at}"),
            said("assistant", f"Answer {at}.\n{LINE * answered}", f"a{at}"),
        )
    ]


def rounds(turns: int, lines: int, start: int = 0) -> list[Any]:
    """Turns in which a file is read."""
    found: list[Any] = []
    for at in range(start, start + turns):
        function = {"name": "read_file", "arguments": json.dumps({"path": f"src/{at}.py"})}
        call = {"id": f"c{at}", "type": "function", "function": function}
        found += [
            said("user", f"Question {at}?", f"q{at}"),
            said("assistant", None, f"b{at}", tool_calls=[call]),
            said("tool", LINE * lines, f"r{at}", tool_call_id=f"c{at}", name="read_file"),
            said("assistant", f"Answer {at}.", f"a{at}"),
        ]
    return found


QUESTION = said("user", "And now?", "last")


def session(messages: list[Any], record: Any = None, *summaries: Any) -> Session:
    return Session(messages, {"compaction": record, "summaries": list(summaries)})


def told(messages: list[Any], text: str = "A parser was built.") -> dict[str, Any]:
    """A summary of these messages."""
    return new_summary(messages, Made(text, estimate(text), [], 1, False), "lab/s", None)


def size(messages: list[Any]) -> int:
    return count(messages, None, asked=Asked("lab/m", "lab")).safe


def made(choice: Choice) -> dict[str, Any]:
    """The record of a new compaction."""
    assert choice.made
    assert choice.record
    return choice.record


def in_force(session_before: Session, choice: Choice) -> Session:
    return Session(session_before.messages, {**session_before.state, "compaction": made(choice)})


def summed_up(before: Session, space: Frame, choice: Choice, text: str = "A parser was built.") -> Choice:
    """The choice with the summary that it wants made."""
    assert choice.wanted
    return with_summary(with_told(before, choice, text), space, RULES, choice)


def with_told(before: Session, choice: Choice, text: str = "A parser was built.") -> Session:
    assert choice.wanted
    summaries = [*before.state["summaries"], told(choice.wanted.covered, text)]
    return Session(before.messages, {**before.state, "summaries": summaries})


# ---- when


@pytest.mark.parametrize("fixed", [0, 300])
@pytest.mark.parametrize(("share", "whole"), [(0.8, True), (1.0, True), (0.5, True)])
def test_up_to_the_mark_all_is_sent_and_beyond_it_less(fixed: int, share: float, whole: bool) -> None:
    messages = [*talk(10, answered=10), QUESTION]
    rules = RULES._replace(compact_at=share)
    budget = -(-size(messages) * 10 // round(10 * share))  # the least whose share holds them
    at_mark = choose(session(messages), frame(budget, fixed), rules)
    assert at_mark == Choice(FULL, at_mark.shortened, at_mark.size)
    assert at_mark.shortened == (messages, 21, 0, 0, 0)
    less = choose(session(messages), frame(budget - 2, fixed), rules)
    assert less.strategy != FULL
    assert less.made is whole


def test_the_room_for_what_stands_in_front_is_not_the_messages() -> None:
    messages = [*rounds(10, 60), QUESTION]
    one, other = (choose(session(messages), frame(6000, fixed), RULES) for fixed in (0, 3000))
    assert one.shortened == other.shortened
    assert other.size.safe == one.size.safe + 3000
    assert made(one)["after"] == pytest.approx(made(other)["after"], abs=1)


@pytest.mark.parametrize("budget", [None, 100_000, 1500])
def test_where_it_is_turned_off_all_is_sent_and_nothing_in_force_counts(budget: int | None) -> None:
    messages = [*talk(10, answered=10), QUESTION]
    record = made(choose(session(messages), frame(1500), RULES))
    choice = choose(session(messages, record), frame(budget), RULES._replace(compact=False))
    assert (choice.strategy, choice.record, choice.made) == (FULL, None, False)


def test_an_unknown_window_compacts_nothing_and_keeps_what_is_in_force() -> None:
    messages = [*rounds(10, 100), QUESTION]
    assert choose(session(messages), frame(None), RULES).strategy == FULL
    before = session(messages)
    choice = choose(before, frame(12_000), RULES)
    assert choose(in_force(before, choice), frame(None), RULES) == choice._replace(made=False)


# ---- which, and how deep


def test_old_results_of_tools_are_pruned_where_that_is_deep_enough() -> None:
    messages = [*rounds(10, 100), QUESTION]
    choice = choose(session(messages), frame(12_000), RULES)
    record = made(choice)
    assert choice.wanted is None
    assert choice.shortened.messages == [*map(pruned, messages[:-6]), *messages[-6:]]
    assert choice.size.safe <= 6000
    assert record["upto"] == messages[-7]["id"] == "r8"
    assert (record["strategy"], record["budget"], record["reason"]) == ("pruned-tools", 12_000, "auto")
    assert (record["tight"], record["summary"], record["room"]) == (False, None, None)
    scale = 0.75  # of what is safe: as it is shown
    assert record["before"] == pytest.approx(scale * size(messages), abs=1)
    assert record["after"] == pytest.approx(scale * choice.size.safe, abs=1)


def test_answers_are_summed_up() -> None:
    before, space = session([*talk(20, answered=20), QUESTION]), frame(6000)
    choice = choose(before, space, RULES)
    assert choice.strategy == "summary"
    assert choice.wanted
    assert choice.wanted.previous is None
    assert choice.wanted.messages == choice.wanted.covered == before.messages[:-6]
    assert choice.wanted.tokens == 800
    assert made(choice)["upto"] == before.messages[-7]["id"]
    final = summed_up(before, space, choice)
    assert "A parser was built." in final.shortened.messages[0]["content"]
    assert final.shortened[1:] == (24, 17, 0, 0)  # 18 questions in words, the last six as they are
    assert made(final) == {**made(choice), "summary": made(final)["summary"], "after": made(final)["after"]}
    assert final.size.safe < choice.size.safe


@pytest.mark.parametrize(("budget", "tokens"), [(6000, 800), (4000, 666), (2400, 400)])
def test_a_summary_takes_a_quarter_of_the_budget_at_most(budget: int, tokens: int) -> None:
    choice = choose(session([*talk(20, answered=20), QUESTION]), frame(budget), RULES)
    assert choice.wanted
    assert choice.wanted.tokens == tokens
    assert LONGER * tokens <= max(budget / 4, 1.5 * 800)


def test_words_that_are_too_many_leave_the_least() -> None:
    messages = [*talk(30, asked=4), QUESTION]
    space = frame(1400)
    choice = choose(session(messages), space, RULES)
    assert (choice.strategy, choice.wanted, made(choice)["room"] > 0) == ("minimal", None, True)
    assert 0 < choice.shortened.questions < 30
    assert space.taken(choice) <= 0.8 * 1400


def test_a_pruning_that_does_not_fit_is_none() -> None:
    long = [said("user", "first " * 3000, "q0"), said("user", "second " * 3000, "q1")]
    messages = [*long, *talk(3), QUESTION]
    space = frame(9000)
    assert size(messages) > 9000
    choice = choose(session(messages), space, RULES)
    assert choice.strategy == "minimal"
    assert space.taken(choice) <= 9000
    assert choice.shortened.questions == 1


@pytest.mark.parametrize(("budget", "strategies"), [(1999, {"summary"}), (1499, {"minimal"}), (2000, {"pruned-tools"})])
def test_a_strategy_is_tried_from_its_least_on(budget: int, strategies: set[str]) -> None:
    messages = [*rounds(1, 100), *talk(4), QUESTION]
    assert size(messages) > 1600
    assert {choose(session(messages), frame(budget), RULES).strategy} == strategies


# ---- what is in force


class Life:
    """A session as it goes on, its summaries made at once. ``prompts`` is all that was sent."""

    def __init__(self, budget: int) -> None:
        self.space = frame(budget)
        self.session = session([])
        self.prompts: list[str] = []
        self.compactions: list[int] = []
        self.strategies: set[str] = set()

    def ask(self, messages: list[Any]) -> Choice:
        """A turn: what is sent of it, round by round."""
        for at, message in enumerate(messages):
            if message["role"] == "assistant":
                choice = self._send()
            self.session.messages.append(messages[at])  # type: ignore[attr-defined]
        return choice

    def _send(self) -> Choice:
        choice = choose(self.session, self.space, RULES)
        if choice.made:
            if choice.wanted:
                before = with_told(self.session, choice)
                choice = with_summary(before, self.space, RULES, choice)
                self.session = before
            self.session = in_force(self.session, choice)
            self.compactions.append(len(self.prompts))
        assert self.space.taken(choice) <= (self.space.budget or 0)
        assert choose(self.session, self.space, RULES) == choice._replace(made=False)
        self.strategies.add(choice.strategy)
        self.prompts.append(
            json.dumps(context.build(choice.shortened.messages, "Brief.", NO_SIZE, Room(None)).messages)
        )
        return choice


@pytest.mark.parametrize(
    ("budget", "make", "strategies", "most"),
    [
        (12_000, lambda at: rounds(1, 60, start=at), {"full", "pruned-tools", "summary"}, 16),
        (8000, lambda at: talk(1, asked=1, answered=20, start=at), {"full", "summary"}, 24),
        (3000, lambda at: talk(1, asked=8, answered=1, start=at), {"full", "minimal", "summary"}, 20),
        (1400, lambda at: talk(1, asked=2, answered=1, start=at), {"full", "minimal"}, 20),
    ],
)
def test_a_prompt_begins_as_the_last_one_did_until_the_next_compaction(
    budget: int, make: Any, strategies: set[str], most: int
) -> None:
    life = Life(budget)
    for at in range(100):
        life.ask(make(at))
    assert life.strategies <= strategies
    assert life.strategies > {"full"}
    assert 1 < len(life.compactions) <= most
    for at, (before, prompt) in enumerate(pairwise(life.prompts), 1):
        assert prompt.startswith(before[:-1]) is (at not in life.compactions), at


def test_a_compaction_stays_until_the_mark_is_passed() -> None:
    before, space = session([*rounds(10, 100), QUESTION]), frame(12_000)
    first = choose(before, space, RULES)
    held = in_force(before, first)
    while space.taken(current(held, space)) <= 9600:
        assert choose(held, space, RULES).record == first.record
        held.messages.extend(talk(1, answered=3, start=len(held.messages)))  # type: ignore[attr-defined]
    assert space.taken(current(held, space)) < 12_000
    again = choose(held, space, RULES)
    assert made(again)["id"] != made(first)["id"]
    assert again.size.safe <= 6000
    assert made(again)["before"] == pytest.approx(0.75 * space.taken(current(held, space)), abs=1)


def test_one_that_cannot_get_below_the_mark_stays_as_long_as_it_fits() -> None:
    words = [said("user", f"{at} {LINE * 12}", f"w{at}") for at in range(17)]
    before, space, rules = session([*talk(4, answered=30), *words]), frame(4000), RULES._replace(summary_tokens=100)
    wanting = choose(before, space, rules)
    before = with_told(before, wanting)
    choice = with_summary(before, space, rules, wanting)
    assert choice.strategy == "summary"
    assert 3200 < space.taken(choice) <= 4000
    assert made(choice)["tight"]
    held = in_force(before, choice)
    assert choose(held, space, rules) == choice._replace(made=False)
    held.messages.append(said("user", "more " * 500, "more"))  # type: ignore[attr-defined]
    assert space.taken(current(held, space)) > 4000
    assert made(choose(held, space, rules))["id"] != made(choice)["id"]


def test_a_last_answer_is_not_dropped_from_a_session_that_fits() -> None:
    messages = [said("user", "Write a story.", "q"), said("assistant", LINE * 250, "a"), QUESTION]
    choice = choose(session(messages), frame(round(size(messages) / 0.85)), RULES)
    assert choice == Choice(FULL, choice.shortened, choice.size)


def test_words_are_not_left_out_while_all_fits() -> None:
    messages = [*talk(20, asked=3), QUESTION]
    for share in (0.82, 0.9, 0.99):
        choice = choose(session(messages), frame(round(size(messages) / share)), RULES)
        assert (choice.strategy, choice.shortened.questions) == (FULL, 0)
    least = choose(session(messages), frame(round(size(messages) / 1.01)), RULES)
    assert least.shortened.questions > 0


def test_compaction_stays_rare_where_words_are_most_of_the_budget() -> None:
    messages: list[Any] = []
    held, space, made_at = session(messages), frame(12_000), []
    for at in range(160):
        messages += [said("user", f"Question {at}: {LINE * 2}", f"q{at}")]
        choice = choose(held, space, RULES)
        if choice.made:
            made_at.append(at)
            if choice.wanted:
                held = with_told(held, choice)
                choice = with_summary(held, space, RULES, choice)
            held = in_force(held, choice)
        assert space.taken(choice) <= 12_000
        messages += [said("assistant", f"Answer {at}: {LINE * 8}", f"a{at}")]
    assert len(made_at) <= 14
    assert sum(later - at < 4 for at, later in pairwise(made_at)) <= 2


def test_a_fork_with_fewer_messages_behind_is_not_sent_under_it() -> None:
    before = session([*rounds(10, 100), QUESTION])
    held = in_force(before, choose(before, frame(12_000), RULES))
    fork = Session(before.messages[:-3], held.state)
    assert current(held, frame(12_000)).record
    assert current(fork, frame(12_000)).record is None


def test_a_thousand_kept_messages_are_measured_once() -> None:
    calls = 0

    def measure(sent: Sequence[Any], under: str | None) -> Count:
        nonlocal calls
        calls += len(sent)
        return count(sent, None, asked=Asked("lab/m", "lab", under))

    messages = [*talk(600, answered=2), QUESTION]
    choice = choose(session(messages), Frame(measure, 6000), RULES._replace(keep_messages=1000))
    assert choice.strategy == "minimal"
    assert calls < 12 * len(messages)


def test_the_late_answer_of_a_run_beside_is_sent_under_a_compaction() -> None:
    before, space = session([*stamped(talk(20, answered=20)), QUESTION]), frame(6000)
    wanting = choose(before, space, RULES)
    told_of = with_told(before, wanting)
    held = in_force(told_of, with_summary(told_of, space, RULES, wanting))
    late = said("assistant", "It came late.", "late", timestamp="2026-01-01T11:00:00.000Z")
    messages = [*held.messages[:8], late, *held.messages[8:]]
    choice = choose(Session(messages, held.state), space, RULES)
    assert (choice.strategy, choice.made) == ("summary", False)
    assert sum(message.get("id") == "late" for message in choice.shortened.messages) == 1
    _, included, summarized, left_out, _ = choice.shortened
    assert included + summarized + left_out == len(messages)


def stamped(messages: list[Any]) -> list[Any]:
    return [{**message, "timestamp": "2026-01-01T10:00:00.000Z"} for message in messages]


def test_one_that_was_asked_for_stands_where_compaction_is_off() -> None:
    before, space = session([*rounds(10, 100), QUESTION]), frame(60_000)
    choice = compacted(before, space, RULES)
    assert choice
    off = RULES._replace(compact=False)
    assert choose(in_force(before, choice), space, off).record == choice.record


def test_the_next_one_is_later_than_one_from_a_clock_that_is_ahead() -> None:
    before = session([*rounds(10, 100), QUESTION])
    ahead = {**made(choose(before, frame(12_000), RULES)), "at": "2099-01-01T00:00:00.000Z"}
    again = choose(Session(before.messages, {**before.state, "compaction": ahead}), frame(5000), RULES)
    assert made(again)["at"] > ahead["at"]


def test_what_was_reported_leaves_room_for_more_words() -> None:
    before, space = session([*talk(60, asked=4), QUESTION]), frame(3000)
    few, many = (choose(before, space._replace(scale=scale), RULES) for scale in (1.0, 0.72))
    assert (few.strategy, many.strategy) == ("minimal", "minimal")
    assert many.shortened.questions < few.shortened.questions
    assert space.taken(many) <= 3000


def test_from_a_small_window_to_a_larger_one_the_words_come_back() -> None:
    before = session([*talk(40, asked=1, answered=8), QUESTION])
    small = choose(before, frame(2000), RULES)
    assert small.shortened.questions > 0
    held = in_force(before, small)
    larger = choose(held, frame(5000), RULES)
    assert (larger.strategy, larger.shortened.questions) == ("summary", 0)
    by_hand = compacted(held, frame(5000), RULES)
    assert by_hand
    assert by_hand.strategy == "summary"


def test_the_last_answer_goes_along_where_the_words_need_little() -> None:
    messages = [
        *talk(2, answered=5),
        said("user", "A story, please.", "s"),
        said("assistant", LINE * 230, "a"),
        QUESTION,
    ]
    choice = choose(session(messages), frame(round(size(messages) / 1.02)), RULES)
    assert "a" not in [message.get("id") for message in choice.shortened.messages]  # too large for what is left
    messages[5] = said("assistant", LINE * 160, "a")
    messages[1] = said("assistant", LINE * 90, "a0")
    choice = choose(session(messages), frame(round(size(messages) / 1.02)), RULES)
    assert "a" in [message.get("id") for message in choice.shortened.messages]


def test_the_least_fills_the_budget_to_the_mark_and_stays_until_it_is_full() -> None:
    before, space = session([*talk(30, asked=4), QUESTION]), frame(1400)
    choice = choose(before, space, RULES)
    assert choice.strategy == "minimal"
    assert 0.7 * 1400 < space.taken(choice) <= 0.8 * 1400
    held = in_force(before, choice)
    held.messages.extend(talk(1, asked=4, start=50))  # type: ignore[attr-defined]
    assert 0.8 * 1400 < space.taken(current(held, space)) <= 1400
    assert choose(held, space, RULES).record == choice.record


@pytest.mark.parametrize(("window", "strategy"), [(10_000, "pruned-tools"), (12_000, "pruned-tools"), (12_001, FULL)])
def test_in_a_larger_window_all_is_sent_again_if_it_fits(window: int, strategy: str) -> None:
    messages = [*rounds(9, 60), QUESTION]
    assert 8000 < size(messages) < 0.8 * 12_001
    before = session(messages)
    choice = choose(before, frame(10_000), RULES)
    again = choose(in_force(before, choice), frame(window), RULES)
    assert (again.strategy, again.made) == (strategy, False)
    assert again.record == (None if strategy == FULL else choice.record)


def test_in_a_larger_window_in_which_not_all_fits_there_is_a_new_one() -> None:
    before = session([*rounds(10, 100), QUESTION])
    choice = choose(before, frame(12_000), RULES)
    again = choose(in_force(before, choice), frame(20_000), RULES)
    assert made(again)["budget"] == 20_000


def test_in_a_smaller_window_there_is_a_new_one() -> None:
    before = session([*rounds(10, 100), QUESTION])
    held = in_force(before, choose(before, frame(10_000), RULES))
    again = choose(held, frame(3000), RULES)
    assert made(again)["budget"] == 3000
    assert frame(3000).taken(again) <= 3000


GONE: list[Any] = [
    {"upto": "nobody"}, {"upto": None}, {"upto": 7}, {"strategy": "full"}, {"strategy": "unheard of"},
    {"strategy": None}, {"strategy": "summary", "summary": None}, {"strategy": "summary", "summary": "lost"},
]  # fmt: skip


@pytest.mark.parametrize("change", GONE)
def test_one_that_speaks_of_what_is_gone_is_not_in_force(change: dict[str, Any]) -> None:
    before = session([*rounds(10, 60), QUESTION])
    record = made(choose(before, frame(10_000), RULES)) | change
    held = session(list(before.messages), record)
    assert current(held, frame(10_000)).strategy == FULL
    assert choose(held, frame(100_000), RULES).strategy == FULL
    assert made(choose(held, frame(10_000), RULES))["id"] != record["id"]


def test_a_compaction_goes_on_without_the_summary_of_the_least() -> None:
    messages = [*talk(30, asked=4), QUESTION]
    summary = told(messages[:10])
    held = session(messages, None, summary)
    record = made(choose(held, frame(1400), RULES))
    assert (record["strategy"], record["summary"]) == ("minimal", summary["id"])
    assert (
        "A parser was built."
        in current(session(messages, record, summary), frame(1400)).shortened.messages[0]["content"]
    )
    assert "Answer" in current(session(messages, record), frame(1400)).shortened.messages[0]["content"]


@pytest.mark.parametrize("state", [{}, {"compaction": None}, {"compaction": None, "summaries": None}])
def test_a_state_that_knows_nothing_is_none(state: dict[str, Any]) -> None:
    assert choose(Session(talk(2), state), frame(10_000), RULES).strategy == FULL
    assert choose(Session(talk(20, answered=20), state), frame(4000), RULES).made


# ---- summaries: reused, extended, told again


def test_a_summary_that_is_there_is_used_again_without_a_call() -> None:
    messages = [*talk(20, answered=20), QUESTION]
    summary = told(messages[:-7])
    choice = choose(session(messages, None, summary), frame(6000), RULES)
    assert choice.wanted is None
    assert made(choice)["summary"] == summary["id"]
    assert made(choice)["upto"] == messages[-8]["id"]
    assert choice.shortened.messages[1:] == messages[-7:]
    assert "A parser was built." in choice.shortened.messages[0]["content"]


def test_a_summary_that_does_not_reach_far_enough_is_extended() -> None:
    messages = [*talk(20, answered=20), QUESTION]
    old, older = told(messages[:10]), told(messages[:4])
    choice = choose(session(messages, None, old, older), frame(6000), RULES)
    assert choice.wanted
    assert choice.wanted.previous == old
    assert choice.wanted.messages == messages[10:-6]
    assert choice.wanted.covered == messages[:-6]


def test_an_answer_that_another_run_put_among_what_is_summed_up_is_told_too() -> None:
    messages = [{**m, "timestamp": "2026-01-01T00:00:00.000Z"} for m in [*talk(20, answered=20), QUESTION]]
    summary = told(messages[:-7])
    late = said("assistant", LINE, "late", timestamp="2026-01-01T00:00:01.000Z")
    choice = choose(session([*messages[:4], late, *messages[4:]], None, summary), frame(6000), RULES)
    assert choice.wanted
    assert (choice.wanted.previous, choice.wanted.messages) == (summary, [late, messages[-7]])


def test_of_a_summary_that_has_only_its_cost_nothing_is_reused() -> None:
    messages = [*talk(20, answered=20), QUESTION]
    spent = {key: value for key, value in told(messages[:-7]).items() if key in ("id", "created_at", "cost", "usage")}
    choice = choose(session(messages, None, spent), frame(6000), RULES)
    assert choice.wanted
    assert choice.wanted.previous is None


def test_a_summary_of_other_messages_is_not_this_sessions() -> None:
    messages = [*talk(20, answered=20), QUESTION]
    choice = choose(session(messages, None, told(talk(5, start=100))), frame(6000), RULES)
    assert choice.wanted
    assert choice.wanted.previous is None


@pytest.mark.parametrize(("tokens", "reused"), [(1200, True), (1201, False)])
def test_a_summary_that_became_too_long_for_the_budget_is_told_again(tokens: int, reused: bool) -> None:
    messages = [*talk(20, answered=20), QUESTION]
    summary = {**told(messages[:-6], "word " * 500), "tokens": tokens}
    choice = choose(session(messages, None, summary), frame(6000), RULES)
    assert (choice.wanted is None) is reused
    if choice.wanted:
        assert (choice.wanted.previous, choice.wanted.messages) == (summary, [])
    smaller = choose(session(messages, None, summary), frame(4000), RULES)
    assert smaller.wanted
    assert smaller.wanted.tokens == 666  # a quarter of the budget at most, 1.5 times that length included


def test_one_that_comes_too_long_leaves_the_least() -> None:
    before, space = session([*talk(20, answered=20), QUESTION]), frame(6000)
    choice = choose(before, space, RULES)
    long = summed_up(before, space, choice, "word " * 20_000)
    assert (long.strategy, long.made) == ("minimal", True)
    assert space.taken(long) <= 6000
    assert (made(long)["before"], made(long)["reason"]) == (made(choice)["before"], "auto")


def test_where_none_can_be_had_pruning_below_the_mark_or_the_least_is_sent() -> None:
    mixed = session([*rounds(6, 60), *talk(6, answered=20), *rounds(1, 1, start=50), QUESTION])
    for budget, strategy in ((9000, "pruned-tools"), (5000, "minimal")):
        space = frame(budget)
        failed = choose(mixed, space, RULES)
        assert failed.wanted
        instead = without_summary(mixed, space, RULES, failed)
        assert instead.strategy == strategy
        assert space.taken(instead) <= 0.8 * budget
        record = made(instead)
        assert (record["before"], record["reason"], record["summary"]) == (made(failed)["before"], "auto", None)
        assert instead.wanted is None


# ---- on request


def test_a_request_goes_to_half_of_what_is_sent_even_where_the_budget_is_unknown() -> None:
    before, space = session([*rounds(10, 100), QUESTION]), frame(None)
    choice = compacted(before, space, RULES)
    assert choice
    assert (choice.strategy, made(choice)["reason"], made(choice)["budget"]) == ("pruned-tools", "asked", None)
    assert choice.size.safe <= size(list(before.messages)) / 2
    talked = compacted(session([*talk(20, answered=20), QUESTION]), space, RULES)
    assert talked
    assert talked.wanted
    assert talked.wanted.tokens == 800


def test_a_request_counts_what_is_in_force() -> None:
    before = session([*rounds(10, 100), QUESTION])
    space = frame(12_000)
    held = in_force(before, choose(before, space, RULES))
    assert compacted(held, space, RULES) is None  # nothing has come since
    held.messages.extend(rounds(4, 20, start=50))  # type: ignore[attr-defined]
    again = compacted(held, space, RULES)
    assert again
    assert made(again)["before"] == pytest.approx(0.75 * current(held, space).size.safe, abs=1)
    assert again.size.safe < current(held, space).size.safe


@pytest.mark.parametrize("budget", [None, 2000, 100_000])
@pytest.mark.parametrize("messages", [talk(0), talk(1), talk(3), [*talk(3), QUESTION], talk(6)], ids=len)
def test_a_request_that_would_make_nothing_shorter_does_nothing(messages: list[Any], budget: int | None) -> None:
    assert compacted(session(messages), frame(budget), RULES) is None


@given(st.integers(0, 12), st.integers(0, 8), st.integers(0, 8), st.sampled_from([None, 1000, 5000, 50_000]))
def test_what_a_request_comes_to_is_shorter(turns: int, asked: int, answered: int, budget: int | None) -> None:
    before, space = session([*talk(turns, asked=asked, answered=answered), QUESTION]), frame(budget)
    choice = compacted(before, space, RULES)
    if choice:
        assert choice.size.safe < current(before, space).size.safe
        assert made(choice)["before"] > made(choice)["after"]


# ---- rules


@pytest.mark.parametrize(("keep", "kept"), [(0, 1), (1, 1), (2, 2), (6, 6), (7, 7)])
def test_so_many_messages_are_kept_as_they_are(keep: int, kept: int) -> None:
    messages = [*talk(20, answered=20), QUESTION]
    choice = choose(session(messages), frame(6000), RULES._replace(keep_messages=keep))
    assert choice.strategy == "summary"
    assert list(choice.shortened.messages[1:]) == messages[-kept:]


def test_more_than_there_are_are_kept_as_far_as_they_fit() -> None:
    messages = [*talk(20, answered=20), QUESTION]
    space = frame(6000)
    choice = choose(session(messages), space, RULES._replace(keep_messages=100))
    assert choice.strategy == "minimal"
    assert space.taken(choice) <= 0.8 * 6000
    assert len(choice.shortened.messages) > 3
    assert choose(session(messages), frame(100_000), RULES._replace(keep_messages=100)).strategy == FULL


@pytest.mark.parametrize("share", [0, 0.0, 1, 1.0, 0.3])
def test_any_mark_gives_what_fits_and_keeps_it(share: float) -> None:
    for messages in ([*rounds(10, 100), QUESTION], [*talk(20, answered=20), QUESTION], [QUESTION]):
        before, space, rules = session(messages), frame(6000), RULES._replace(compact_at=share)
        choice = choose(before, space, rules)
        if choice.wanted:
            before = with_told(before, choice)
            choice = with_summary(before, space, rules, choice)
        assert space.taken(choice) <= 6000
        if choice.made:
            assert choose(in_force(before, choice), space, rules) == choice._replace(made=False)


# ---- where a session may be parted


CALLS: list[Any] = [{"id": name, "type": "function", "function": {"name": "ls", "arguments": "{}"}} for name in "xyz"]
CLAUDE: list[Any] = spoken([
    said("user", "List", "q0"),
    said("assistant", [{"type": "tool_use", "id": "t1", "name": "ls", "input": {}}], "u0"),
    said("user", [{"type": "tool_result", "tool_use_id": "t1", "content": "a.txt"}, {"type": "text", "text": "And?"}],
         "q1"),
    said("assistant", "Well.", "a1"),
    said("user", "Go on", "q2"),
])  # fmt: skip
PARALLEL: list[Any] = [
    said("user", "Both", "q0"),
    said("assistant", None, "u1", tool_calls=CALLS[:1], parent="q0"),
    said("assistant", None, "u2", tool_calls=CALLS[1:2], parent="q0"),
    said("tool", "one", "r1", tool_call_id="x", parent="u1"),
    said("tool", "two", "r2", tool_call_id="y", parent="u2"),
    said("assistant", "Done.", "a1"),
    said("user", "Go on", "q2"),
]


@pytest.mark.parametrize(
    ("messages", "ends"),
    [
        (talk(2), [0, 1, 2, 3]),
        (rounds(1, 1), [0, 1, 1, 3]),
        (CLAUDE, [0, 1, 1, 1, 4, 5]),
        (PARALLEL, [0, 1, 1, 1, 1, 5, 6]),
    ],
)
def test_a_call_stays_with_its_result(messages: list[Any], ends: list[int]) -> None:
    assert [boundary(messages, len(messages) - at) for at in range(len(messages))] == ends


def test_messages_without_an_id_cannot_be_the_last_that_is_shortened() -> None:
    messages: list[Any] = [{key: value for key, value in m.items() if key != "id"} for m in talk(20, answered=20)]
    assert boundary(messages, 6) == 0
    assert boundary([*talk(1), *messages], 6) == 2
    assert choose(session(messages), frame(3000), RULES).strategy == FULL
    assert compacted(session(messages), frame(None), RULES) is None


def test_a_call_whose_result_never_came_does_not_keep_the_question_from_being_sent() -> None:
    function = {"name": "write_file", "arguments": json.dumps({"path": "a.txt", "text": LINE * 500})}
    broken_off = said("assistant", None, "u", tool_calls=[{**CALLS[0], "function": function}], finish_reason="stop")
    messages, space = [*talk(2), said("user", "Write it", "q"), broken_off, QUESTION], frame(2000)
    choice = choose(session(messages), space, RULES)
    assert space.taken(choice) <= 2000
    assert choice.shortened.messages[-1] == QUESTION
    assert "3. Write it" in choice.shortened.messages[0]["content"]


@pytest.mark.slow
@given(vocabulary.messages(most=12), st.integers(0, 12))
def test_no_two_messages_that_belong_together_are_parted(messages: list[Any], keep: int) -> None:
    said_in_it = spoken(messages)
    end = boundary(said_in_it, keep)
    assert 0 <= end <= max(0, len(said_in_it) - max(1, keep))
    if end:
        before, behind = said_in_it[end - 1], said_in_it[end]
        assert behind["role"] != "tool"
        assert not before.get("tool_calls") or starts_turn(behind)
        assert before["id"] != behind["id"]


@pytest.mark.parametrize("budget", range(300, 1500, 60))
def test_however_small_the_window_results_go_with_their_calls(budget: int) -> None:
    results = [said("tool", LINE * 20, f"r{at}", tool_call_id=f"c{at}", name="ls") for at in range(3)]
    made_calls = [{**CALLS[0], "id": f"c{at}"} for at in range(3)]
    rounds_of_one_turn = [
        [said("assistant", None, f"u{at}", tool_calls=[{**call, "id": f"{at}{call['id']}"} for call in made_calls])]
        + [
            {**result, "id": f"{at}{result['id']}", "tool_call_id": f"{at}{result['tool_call_id']}"}
            for result in results
        ]
        for at in range(5)
    ]
    messages = [*talk(2), QUESTION, *(message for one in rounds_of_one_turn for message in one)]
    choice = choose(session(messages), frame(budget), RULES)
    sent = list(choice.shortened.messages)
    assert sent[-4]["id"] == "u4"
    assert context.pair_calls(sent) == sent
    assert frame(budget).taken(choice) <= budget or len(sent) == 5
    assert any("And now?" in str(message["content"]) for message in sent)


@pytest.mark.parametrize("asked", range(0, 60, 6))
def test_a_result_that_fills_the_window_is_pruned_where_the_question_would_not_fit_beside_it(asked: int) -> None:
    messages = rounds(1, 100)[:-1]
    messages[0]["content"] += LINE * asked
    budget = size(messages) - 30
    choice = choose(session(messages), frame(budget), RULES)
    assert frame(budget).taken(choice) <= budget
    assert "Question 0?" in choice.shortened.messages[0]["content"]
    assert [message["id"] for message in choice.shortened.messages[1:]] == ["b0", "r0"]


def test_choosing_changes_nothing() -> None:
    before = session([*rounds(10, 60), *talk(10, answered=20), QUESTION], None)
    as_it_was = json.dumps(before)
    for budget in (500, 1600, 4000, 8000):
        choice = choose(before, frame(budget), RULES)
        compacted(before, frame(budget), RULES)
        if choice.wanted:
            without_summary(before, frame(budget), RULES, choice)
    assert json.dumps(before) == as_it_was
    assert compaction.current(before, frame(None)).strategy == FULL
