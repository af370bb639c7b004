"""Sessions far longer than the model's window: they go on, no word that fits is lost, and the file keeps everything."""

import json
import random
from itertools import pairwise
from typing import Any

import pytest

from tests.support.home import Home
from tests.support.server import ModelServer, prompt_tokens
from tests.support.strict import strict
from tests.support.talks import (
    BUDGET,
    TOLD,
    WINDOW,
    Talker,
    asked,
    configure,
    for_summaries,
    kept,
    prose,
    question,
    questions,
    reply,
    sum_up,
    text_in,
    tool_use,
)


def work(turns: int, words: int) -> list[dict[str, Any]]:
    """Turns of ten messages: a question of so many words, four tools with their results, an answer."""
    dice = random.Random(7)
    messages: list[dict[str, Any]] = []
    for turn in range(turns):
        messages.append(question(prose(dice, words)))
        for number in range(4):
            messages += tool_use(4 * turn + number, prose(dice, 900)[: 5200 if turn < turns - 2 else 600])
        messages.append(reply(prose(dice, 40)))
    return messages


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "turns", "words"), [(WINDOW, 200, 8), (WINDOW, 200, 80), (2048, 40, 10), (65536, 40, 10)]
)
def test_thousands_of_messages_go_on_in_any_window(
    home: Home, model: ModelServer, window: int, turns: int, words: int
) -> None:
    configure(home, model)
    model.tell(window, "m", "s")
    model.window, model.refuses = window, strict("openai")
    before = kept(home, work(turns, words))
    sum_up(model, *[TOLD] * 5)
    model.say("Done.", model="m")
    run = home.run("-s", "0", "and now?")
    (body,) = asked(model)
    missing = [said for said in questions(before) if said not in text_in(body)]
    assert run.code == 0
    assert prompt_tokens(body) <= 0.75 * window
    assert bool(missing) == (f"{len(missing)} earlier question" in run.stderr)
    assert all(prompt_tokens(asks) + asks["max_tokens"] <= window for asks in for_summaries(model))
    assert home.doc()["messages"][: len(before["messages"])] == before["messages"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("turns", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_facts_in_the_words_of_the_user_are_sent_ever_after(home: Home, talker: Talker, turns: int) -> None:
    configure(home, talker)
    talker.words = 120
    dice = random.Random(3)
    facts = [f"fact {prose(dice, 6)}, number {number}." for number in range(turns)]
    for at, fact in enumerate(facts):
        assert home.run(*(["-s", "0"] if at else ["-n"]), fact).code == 0
    doc, requests = home.doc(), asked(talker)
    assert questions(doc) == facts
    assert len(requests) == turns
    for at, body in enumerate(requests):
        sent = text_in(body)
        missing = [number for number, fact in enumerate(facts[: at + 1]) if fact not in sent]
        assert not missing or 0 < min(missing) <= max(missing) < at - 130  # the oldest but the first, of very many
        assert not missing or prompt_tokens(body) > 0.4 * BUDGET
    texts = [json.dumps(body["messages"]) for body in requests]
    same = [then.startswith(before[: int(0.9 * len(before))]) for before, then in pairwise(texts[10:])]
    compactions = same.count(False)  # else each begins as the one before, for the caches
    assert 1 <= compactions <= turns / 8
