"""Long talks, turn by turn as a user has them: what each request contains, and how often it begins anew."""

import json
from itertools import pairwise

import pytest

from tests.support.home import Home
from tests.support.talks import Talk, Turn, growing, turns_of

IMAGE = "shot.png [image/png"
SMALL_TURN = 0.03  # of the window: from 50 % of the budget to 80 % are six such turns and more
TOKENS_PER_WORD = 1.35
FILLED = 0.8  # of the budget


def holds(turns: list[Turn], talk: Talk) -> None:
    """Each request has the question and the last answer, and uses its room where anything is left out."""
    for turn in turns:
        assert turn.code == 0, turn.notes
        text = json.dumps(turn.requests[-1]["messages"], ensure_ascii=False)
        assert turn.question in text
        assert turn.last_answer[:40] in text
        assert turn.last_answer[-20:] in text
        context = turn.context
        left_out = context["left_out"] or any(context["omitted"].values())
        is_new = "session compacted from" in turn.notes
        assert not (left_out and is_new) or context["tokens"] >= FILLED * context["budget"], context
        assert (
            not talk.image
            or "image_url" in text
            or any(IMAGE in name for name in context["omitted"]["media"])
        )


def compactions(turns: list[Turn]) -> int:
    return sum("session compacted from" in turn.notes for turn in turns)


@pytest.mark.parametrize(
    "talk",
    [
        pytest.param(Talk(4000, 60, 60), id="4k", marks=pytest.mark.slow),
        pytest.param(Talk(2048, 20, 60), id="2k"),
        pytest.param(Talk(4000, 60, 60, small=False), id="no small model", marks=pytest.mark.slow),
        pytest.param(Talk(4000, 30, 60, image=True), id="image"),
    ],
)
def test_in_a_small_window_each_request_has_the_last_answer_and_the_question(
    home: Home, talk: Talk
) -> None:
    turns = [*turns_of(home, talk, 45)]
    holds(turns, talk)
    assert compactions(turns) > 0


def test_what_is_left_out_is_named_once_a_change(home: Home) -> None:
    turns = [*turns_of(home, Talk(2048, 40, 60, image=True), 20)]
    noted = [turn for turn in turns if "left out to fit the window: " in turn.notes]
    changed = [
        after
        for before, after in pairwise(turns)
        if before.context["omitted"] != after.context["omitted"]
    ]
    assert noted == changed != []
    assert any(IMAGE in turn.notes for turn in noted)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("factor", [0.7, 1.6])
@pytest.mark.parametrize("window", [2048, 4000, 8192, 16_000, 32_768, 65_536, 200_000])
def test_long_talks_in_all_kinds_of_windows(home: Home, window: int, factor: float) -> None:
    grown = total = 0
    talks = [Talk(window, 10, 150, factor), Talk(window, 60, 60, factor, small=False),
             Talk(window, 40, window // 40, factor), Talk(window, 10, 150, factor, image=True),
             Talk(window, 60, 60, factor, tools=True)]  # fmt: skip
    for talk in talks:
        for path in home.files():
            path.unlink()
        turns = [*turns_of(home, talk, 60)]
        holds(turns, talk)
        is_small = TOKENS_PER_WORD * factor * (talk.asked + talk.answered) < SMALL_TURN * window
        if is_small and not talk.tools:
            assert compactions(turns) <= 10, talk
        grown = grown + growing(turns)
        total = total + len(turns) - 1
    assert window < 32_768 or grown >= 0.95 * total
