"""Sessions far longer than the model's window: they go on, no word that fits is lost, and the file keeps everything."""

import json
import random
import re
from collections.abc import Iterator, Sequence

import pytest

from gptsh.core.messages import Message
from gptsh.core.tokens import estimate
from tests.support.home import Home
from tests.support.server import ModelServer, prompt_tokens
from tests.support.strict import strict
from tests.support.talks import (
    TOLD,
    Talker,
    asked,
    configure,
    for_summaries,
    kept,
    prose,
    question,
    reply,
    run_all,
    same_beginning,
    sum_up,
    text_in,
    tool_use,
)

WINDOW, BUDGET, MARK = 8192, 6144, 4915  # tokens; a quarter is the answer's, and compactions begin at 80 % of the rest


def work(turns: int, words: int) -> list[Message]:
    """Turns of ten messages: a question of so many words, four tools with their results, an answer."""
    dice = random.Random(7)
    messages: list[Message] = []
    for turn in range(turns):
        messages.append(question(prose(dice, words)))
        for number in range(4):
            size = 5200 if turn < turns - 2 else 600
            messages += tool_use(4 * turn + number, prose(dice, 900)[:size])
        messages.append(reply(prose(dice, 40)))
    return messages


def words_of(messages: Sequence[Message]) -> list[str]:
    return [str(message["content"]) for message in messages if message["role"] == "user"]


@pytest.fixture
def narrow(home: Home, model: ModelServer) -> Home:
    """The models have a small window, which they enforce, and which nobody knows who does not ask."""
    configure(home, model)
    model.tell(WINDOW, "m", "s")
    model.window = WINDOW
    return home


@pytest.mark.slow
def test_2000_messages_go_on_in_a_small_window_with_every_word_of_the_user(narrow: Home, model: ModelServer) -> None:
    before = kept(narrow, work(200, words=8))
    assert len(before["messages"]) == 2000
    assert narrow.files()[0].stat().st_size > 4_000_000
    sum_up(model, *[TOLD] * 5)
    run = narrow.run("-s", "0", "-o", "json", "and now?")
    report = json.loads(run.stdout)["context"]
    assert run.code == 0
    assert re.fullmatch(
        rf"gptsh: ~\d{{3}},\d{{3}} tokens of the session are sent as ~\d,\d{{3}} \(summary\); snapshot "
        rf"{before['id']}@auto-1\n",
        run.stderr,
    )
    assert 1 <= len(for_summaries(model)) <= 4
    assert all(prompt_tokens(body) + body["max_tokens"] <= WINDOW for body in for_summaries(model))
    (body,) = asked(model)
    sent = text_in(body)
    assert [said for said in words_of(before["messages"]) if said not in sent] == []
    assert sent.endswith("and now?")
    assert TOLD in sent
    assert (report["strategy"], report["window"], report["budget"], report["left_out"]) == (
        "summary",
        WINDOW,
        BUDGET,
        0,
    )
    assert report["included"] + report["summarized"] == 2001
    assert report["included"] == 200 + 5 + 1  # the words, the recent messages that are none, the new question
    assert prompt_tokens(body) <= report["at_most"] <= BUDGET

    calls = len(for_summaries(model))
    second = narrow.run("-s", "0", "and then?")
    assert (second.code, second.stderr) == (0, "")
    assert len(for_summaries(model)) == calls
    first, then = (json.dumps(body["messages"]) for body in asked(model))
    assert same_beginning(first, then) > 0.99 * len(first)
    after = narrow.doc()
    assert after["messages"][:2000] == before["messages"]
    assert words_of(after["messages"])[200:] == ["and now?", "and then?"]
    assert after["context"]["summaries"][0]["usage"]["prompt"] == 11 * calls


@pytest.mark.slow
def test_where_the_words_cannot_all_fit_the_newest_do_and_the_rest_is_counted(narrow: Home, model: ModelServer) -> None:
    before = kept(narrow, work(200, words=80))
    run = narrow.run("-s", "0", "-o", "json", "and now?")
    report = json.loads(run.stdout)["context"]
    (body,) = asked(model)
    sent = text_in(body)
    said = words_of(before["messages"])
    lost = [at for at, text in enumerate(said) if text not in sent]
    assert run.code == 0
    assert lost == list(range(1, len(lost) + 1))  # the first and the newest are there
    assert 100 < len(lost) < 180
    assert f"gptsh: {len(lost)} earlier questions are left out: the session outgrew the window\n" in run.stderr
    assert f"{len(lost):,} earlier questions do not fit and are left out" in sent
    assert report["strategy"] == "minimal"
    assert report["included"] + report["left_out"] == 2001
    assert report["included"] == 200 - len(lost) + 5 + 1
    newest = lost[-1]
    assert report["at_most"] <= MARK < report["at_most"] + estimate(f"{newest + 1}. {said[newest]}")
    assert narrow.doc()["messages"][:2000] == before["messages"]
    assert for_summaries(model) == []  # no summary would have left room for more words


@pytest.mark.parametrize("window", [2048, 3000, 4096, 65536])
def test_one_long_session_goes_on_in_any_window(home: Home, model: ModelServer, window: int) -> None:
    configure(home, model)
    model.tell(window, "m", "s")
    model.window, model.refuses = window, strict("openai")
    before = kept(home, work(40, words=10))
    model.say("Done.", model="m")
    sum_up(model, *[TOLD] * 4)
    run = home.run("-s", "0", "-o", "json", "and now?")
    assert (run.code, json.loads(run.stdout)["text"]) == (0, "Done.")
    (body,) = asked(model)
    report = json.loads(run.stdout)["context"]
    sent = text_in(body)
    missing = sum(said not in sent for said in words_of(before["messages"]))
    assert report["included"] + report["summarized"] + report["left_out"] == len(before["messages"]) + 1
    assert (missing > 0) == (f"{missing} earlier question" in run.stderr)
    assert missing <= report["left_out"]
    assert prompt_tokens(body) <= 0.75 * window
    assert home.doc()["messages"][:-2] == before["messages"]


# ---- turn by turn


@pytest.fixture
def talker() -> Iterator[Talker]:
    """A model with answers of some length and a small window, which it enforces."""
    server = Talker(WINDOW)
    yield server
    server.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("turns", [130, pytest.param(1000, marks=pytest.mark.slow)])
def test_facts_in_the_words_of_the_user_are_sent_ever_after(home: Home, talker: Talker, turns: int) -> None:
    configure(home, talker)
    dice = random.Random(3)
    facts = [f"fact {prose(dice, 6)}, number {number}." for number in range(turns)]
    run_all(home, [["-n", facts[0]], *(["-s", "0", fact] for fact in facts[1:-1])])
    assert home.run("-s", "0", facts[-1]).code == 0  # another process goes on where it stopped
    doc, requests = home.doc(), asked(talker)
    assert words_of(doc["messages"]) == facts
    assert (len(requests), doc["stats"]["messages"]) == (turns, 2 * turns)
    under = [message.get("compaction") for message in doc["messages"] if message["role"] == "assistant"]
    lost = [lost_of(text_in(body), facts[: at + 1]) for at, body in enumerate(requests)]
    for at, missing in enumerate(lost):
        assert 0 not in missing
        assert not missing or max(missing) < at - 130  # the oldest, and only where there are very many
        assert not missing or prompt_tokens(requests[at]) > 0.4 * BUDGET
    compactions = [at for at in range(1, turns) if under[at] != under[at - 1]]
    assert 2 <= len(compactions) <= turns / 20
    assert len(for_summaries(talker)) <= 4 * len(compactions)
    texts = [json.dumps(body["messages"]) for body in requests]
    steady = [at for at in range(20, turns) if at not in compactions]  # the first are short, and most of each is new
    same = [same_beginning(texts[at - 1], texts[at]) / len(texts[at]) for at in steady]
    assert sum(same) / len(same) >= 0.95


def lost_of(sent: str, facts: Sequence[str]) -> list[int]:
    return [at for at, fact in enumerate(facts) if fact not in sent]
