"""Tokens without a tokenizer: the estimate against real ones, the anchor against sessions of every shape."""

import random
import statistics
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptsh.core.messages import text_part, user_message
from gptsh.core.sessions import append_messages, new_session_doc
from gptsh.core.tokens import _PIECE, Asked, Count, count, estimate, of_message, of_system, safe_scale, was_cut
from tests.support.corpus import MAKERS, samples, shell_output, tokenizers

Counter = Callable[[str], int]
FRAMING = 4  # tokens around a message, as OpenAI's and most templates have it

TEXT = st.text(st.characters(codec=None), max_size=60)  # lone surrogates too
ALPHABET = st.text("aB1 \n\t.,é中я😀\ud800\x07-", max_size=60)


@pytest.fixture(scope="module")
def counters() -> dict[str, Counter]:
    return tokenizers()


# ---- the estimate


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0), ("word", 2), ("Hello, world.", 6), ("getUserName", 5), ("12345", 6), ("1.2.3", 10), ("\n\n", 2),
        ("    ", 1), ("é", 3), ("ж", 1), ("中", 2), ("😀", 4), ("\udcff", 2), ("\ud83d\ude00", 3),
    ],
)  # fmt: skip
def test_estimates(text: str, tokens: int) -> None:
    assert estimate(text) == tokens


@given(TEXT | ALPHABET, TEXT | ALPHABET)
def test_two_texts_take_what_one_takes(one: str, other: str) -> None:
    """But for rounding, half a run of spaces, and what begins anew behind a seam."""
    assert 0 <= estimate(one) <= estimate(one + other) + 1
    assert abs(estimate(one) + estimate(other) - estimate(one + other)) <= 4


@settings(max_examples=60, deadline=None)
@given(ALPHABET, st.integers(0, 40))
def test_where_a_long_text_is_cut_into_pieces_changes_nothing(piece: str, shift: int) -> None:
    """The piece is moved through the place of a cut; what stands before it takes the same for each character."""
    filler = "a " * (_PIECE // 2)
    inside, across = (estimate(filler[: -2 * steps] + piece) for steps in (200, 1 + shift))
    assert across - inside == pytest.approx((199 - shift) * estimate("a " * 10_000) / 10_000, abs=2)


@pytest.mark.parametrize(
    ("unit", "each", "once"),
    [("1", 0.658, 2.282), ("a", 0.293, 0.063), (".", 0.107, 0), ("\n", 0.922, 0), ("中", 1.482, 0)],
)
def test_a_run_that_is_cut_into_pieces_is_one_run(unit: str, each: float, once: float) -> None:
    times = 5 * _PIECE + 1
    assert estimate(unit * times) == pytest.approx(each * times + once, abs=1.01)


def test_a_long_text_takes_little_memory() -> None:
    text = "a line of é text, 12345 in all\n" * (1 << 18)
    tracemalloc.start()
    try:
        estimate(text)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20 < len(text)
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_the_estimate_against_real_tokenizers(counters: dict[str, Counter]) -> None:
    """Over 675 samples: median 1.41, p95 3.5 (scripts of their own with o200k); lowest 0.69, of other scripts 0.95."""
    ratios = []
    for kind, text in samples(random.Random(1), 25):
        told = estimate(text)
        for name, true in counters.items():
            ratio = told / true(text)
            assert ratio >= (0.65 if kind in ("thai", "tamil", "georgian") else 0.85), (kind, name, text)
            ratios.append(ratio)
    assert sum(ratio < 0.95 for ratio in ratios) <= len(ratios) / 25
    assert 1.2 < statistics.median(ratios) < 1.6


# ---- messages


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


CALL = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"cmd":"ls -l"}'}}
SIGNED = {"type": "thinking", "thinking": "long " * 50, "signature": "s"}


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        ({"role": "user", "content": "Hello, world."}, 8 + 2 + 6),
        ({"role": "user", "content": None}, 8),
        ({"role": "user", "content": [text("word"), text("word", source="stdin")]}, 8 + 2 * (2 + 2)),
        ({"role": "user", "content": [text("word", source="a.txt")]}, 8 + 2 + 2 + estimate("a.txt:\n")),
        ({"role": "user", "content": [text("word"), {"type": "image_url", "image_url": {"url": "x" * 9999}}]}, 1612),
        ({"role": "user", "content": [{"type": "text", "text": None}]}, 1608),
        ({"role": "user", "content": [{"type": "tool_result", "content": "word"}]}, 8 + 2 + 2),
        ({"role": "user", "content": [{"type": "tool_result", "content": [text("word"), 5, {}]}]}, 8 + 4 + 1600),
        ({"role": "user", "content": [{"type": "tool_result"}]}, 1608),
        ({"role": "tool", "tool_call_id": "c1", "content": "word"}, 8 + 2 + 2),
        ({"role": "assistant", "content": "", "refusal": "word"}, 8 + 2),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]},
         16 + estimate("run") + estimate('{"cmd":"ls -l"}')),
        ({"role": "assistant", "content": "", "thinking": [SIGNED]}, 8 + estimate("long " * 50)),
        ({"role": "assistant", "content": "", "thinking": [{"type": "thinking", "thinking": "x"}]}, 8),
        ({"role": "assistant", "content": "", "thinking": "odd", "replay": ["odd"]}, 8),
        ({"role": "assistant", "content": "", "replay": {"reasoning": "long " * 50}}, 8),
        ({"role": "assistant", "content": "", "replay": {"reasoning": "word"}, "tool_calls": [CALL]},
         16 + estimate("run") + estimate('{"cmd":"ls -l"}') + 2),
    ],
)  # fmt: skip
def test_tokens_of_a_message(message: Any, tokens: int) -> None:
    assert of_message(message) == tokens


# ---- a whole prompt

M = {"model": "lab/m", "provider": "lab"}
NEW = "one two three four"
OF_NEW = of_message({"role": "user", "content": NEW})
SIGNED = {"type": "thinking", "thinking": NEW, "signature": "s"}


def asked(content: str = NEW) -> dict[str, Any]:
    return {"role": "user", "content": content}


def answered(prompt: Any = 1000, completion: Any = 50, *, then: Any = OF_NEW, **more: Any) -> dict[str, Any]:
    """An answer to a prompt that was estimated to take ``then`` tokens."""
    usage = {"prompt": prompt, "completion": completion, "reasoning_tokens": more.pop("reasoning", None)}
    return {"role": "assistant", "content": NEW, "usage": usage, "estimated": then, **M, **more}


def counted(*messages: Any, system: str | None = None, **asks: str | None) -> Count:
    return count(list(messages), system, asked=Asked(**{**M, **asks}))  # type: ignore[arg-type]


LONG = asked(NEW * 100)
OF_LONG = of_message(LONG)  # type: ignore[arg-type]


def test_the_newest_report_stands_for_what_was_estimated_with_it() -> None:
    turns = [LONG, answered(500, then=OF_LONG), asked(), answered(700, then=OF_LONG + 2 * OF_NEW)]
    assert counted(*turns, asked()).safe == 750 + OF_NEW
    assert counted(*turns).safe == 750
    assert counted(*turns[:2], asked()).safe == 550 + OF_NEW  # a fork


def test_a_longer_system_prompt_is_more_and_with_a_shorter_one_all_is_estimated() -> None:
    turns = [LONG, answered(500, then=OF_LONG + of_system("Be brief."))]
    assert counted(*turns, system="Be brief.").safe == 550
    assert counted(*turns, system=NEW * 10).safe == 550 + of_system(NEW * 10) - of_system("Be brief.")
    assert counted(*turns) == Count(OF_LONG + OF_NEW, counted(*turns).likely, OF_LONG + OF_NEW, anchored=False)


def test_turns_asked_beside_an_answer_are_counted_once_it_was_asked_with_them() -> None:
    beside = [asked(), answered(20), asked(), answered(20)]  # two runs that did not see each other
    assert counted(*beside).safe == 20 + 50 + 2 * OF_NEW
    later = [*beside, asked(), answered(60, then=5 * OF_NEW)]
    assert counted(*later, asked()).safe == 60 + 50 + OF_NEW


def test_a_text_that_is_cut_now_and_was_not_is_estimated_anew() -> None:
    assert not counted(asked(), answered(20_000, then=26_000), asked()).anchored


@pytest.mark.parametrize(
    "other",
    [
        {"model": "lab/other"}, {"provider": "other"}, {"usage": None}, {"usage": {}}, {"usage": "many"},
        {"usage": {"prompt": 1000}}, {"usage": {"prompt": 0, "completion": 5}},
        {"usage": {"prompt": -1, "completion": 5}}, {"usage": {"prompt": True, "completion": 5}},
        {"usage": {"prompt": 1e300, "completion": 5}}, {"role": "user"}, {"estimated": None}, {"estimated": 0},
        {"estimated": True}, {"estimated": -5}, {"estimated": 10**12}, {"estimated": "5"},
        {"estimated": 10_000},
    ],
)  # fmt: skip
def test_what_is_no_report_of_this_model_is_estimated(other: dict[str, Any]) -> None:
    turns = [asked(), {**answered(), **other}, asked()]
    assert counted(*turns) == Count(3 * OF_NEW, round(0.75 * 3 * OF_NEW), 3 * OF_NEW, anchored=False)


def calls_to_count(messages: list[Any]) -> int:
    """How many functions are called while they are counted."""
    called = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal called
        called += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        counted(*messages)
    finally:
        sys.setprofile(None)
    return called


def test_reports_of_what_was_not_cached_alone_do_not_make_counting_quadratic() -> None:
    turns = [asked(), answered(5, then=10_000)]  # below what is taken for a report of the whole prompt
    assert not counted(*turns * 10).anchored
    assert calls_to_count(turns * 80) < 2.5 * calls_to_count(turns * 40)


def test_without_a_model_nothing_is_anchored() -> None:
    turns = [asked(), {**answered(), "model": None, "provider": None}]
    assert not counted(*turns, model=None, provider=None).anchored


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ({"completion": 900, "reasoning": 600}, 300),
        ({"completion": 900, "reasoning": 600, "replay": {"reasoning": "hm"}}, 300),
        ({"completion": 900, "reasoning": 600, "replay": {"reasoning": "hm"}, "tool_calls": [CALL]}, 900),
        ({"completion": 900, "reasoning": 600, "thinking": [SIGNED]}, 900),
        ({"completion": 900, "reasoning": 0}, 900),
        ({"completion": 900, "reasoning": -5}, 900),
        ({"completion": 900, "reasoning": 900}, OF_NEW),
        ({"completion": 10, "reasoning": 900}, 10),
        ({"completion": 900, "replay": {"reasoning": "hm"}}, OF_NEW),
        ({"completion": 900, "thinking": [{"type": "thinking", "thinking": "hm"}]}, OF_NEW),
        ({"completion": 0}, 0),
    ],
)  # fmt: skip
def test_reasoning_that_stays_behind_is_not_counted(answer: dict[str, Any], kept: int) -> None:
    huge = asked(NEW * 1000)
    of_huge = of_message(huge)  # type: ignore[arg-type]
    assert counted(huge, answered(of_huge, then=of_huge, **answer)).safe == of_huge + kept


SIZES = st.integers(-1, 400)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant"]), "content": st.sampled_from(["", NEW, None])},
        optional={
            "model": st.just("lab/m"), "provider": st.just("lab"), "estimated": SIZES,
            "usage": st.none() | st.fixed_dictionaries({"prompt": SIZES, "completion": SIZES}),
        },
    ),
    max_size=8,
)  # fmt: skip


@given(MESSAGES, st.sampled_from([None, "Be brief."]))
def test_any_session_has_a_count(messages: Any, system: str | None) -> None:
    told = counted(*messages, system=system)
    assert told.plain == sum(map(of_message, messages)) + of_system(system)
    assert 0 <= told.likely <= told.safe


def test_the_scale_is_that_of_the_report() -> None:
    turns = [asked(NEW * 100), answered(OF_LONG // 2, 0, then=OF_LONG), LONG]
    assert counted(*turns).likely == OF_LONG // 2 + round(OF_LONG // 2 / OF_LONG * OF_LONG)
    few = [asked(), answered(5, 0), LONG]
    assert counted(*few).likely == 5 + round(0.75 * OF_LONG)


# ---- a prompt that was cut on the way


def first(text: str) -> tuple[Count, list[Any]]:
    """What is expected of a first question, and what is sent."""
    return counted(asked(text)), [asked(text)]


def test_a_server_that_cut_the_prompt_is_noticed() -> None:
    size, sent = first("some words of a text that is rather long\n" * 2000)  # 18,000 tokens
    assert was_cut(4096, size, sent)
    assert not was_cut(18_000, size, sent)
    assert not was_cut(1, *first("word " * 1000))  # too small to tell
    close = Count(12_000, 10_000, 13_000, anchored=True)
    assert was_cut(7_900, close, sent)
    assert not was_cut(8_200, close, sent)


def long_prompts(dice: random.Random) -> Iterator[tuple[str, str]]:
    """Questions that are long enough to be looked at, each of one kind of text."""
    for kind, make in MAKERS.items():
        said = ""
        while counted(asked(said)).likely <= 3000:
            said += make(dice) + "\n"
        yield kind, said


def test_no_whole_prompt_is_taken_for_a_cut_one(counters: dict[str, Counter]) -> None:
    """The hardest case: a first question, of which nothing was reported yet."""
    dice = random.Random(2)
    for kind, said in (pair for _ in range(2) for pair in long_prompts(dice)):
        for name, true in counters.items():
            assert not was_cut(true(said) + FRAMING, *first(said)), (kind, name)


# ---- a session as it grows


def session(dice: random.Random, true: Counter) -> Iterator[tuple[int, Count]]:
    """Shell work on a long file, turn by turn: what the prompt took, and what was told."""
    doc = new_session_doc({}, {}, output=None, mcp_allowed_servers=None)
    system = "You are a careful assistant. Answer briefly."
    truth = true(system) + FRAMING
    piped = "\n".join(MAKERS["python"](dice) for _ in range(10))
    while True:
        append_messages(doc, [user_message("And what about this?", [text_part("stdin", piped)])], None)
        truth += true("\n\n".join(part["text"] for part in doc["messages"][-1]["content"])) + FRAMING
        told = count(doc["messages"], system, asked=Asked(**M))
        yield truth, told
        said = MAKERS[dice.choice(["prose", "python"])](dice)[: dice.randint(100, 2000)]
        usage: Any = {"prompt": truth, "completion": true(said)}
        reply: Any = {"role": "assistant", "content": said, "usage": usage, "estimated": told.plain, **M}
        append_messages(doc, [reply], None)
        truth += true(said) + FRAMING
        piped = shell_output(dice)


@pytest.mark.slow
def test_an_anchored_count_stays_close_to_the_truth(counters: dict[str, Counter]) -> None:
    plain = []
    for seed, true in enumerate(counters.values()):
        for truth, told in islice(session(random.Random(seed), true), 1, 25):
            assert 0.95 <= told.safe / truth <= 1.25
            assert 0.9 <= told.likely / truth <= 1.15
            plain.append(told.plain / truth)
    assert max(plain) > 1.25


@pytest.mark.parametrize(
    ("reported", "scale"), [(500, 0.72), (600, 0.72), (700, 0.84), (833, 0.9996), (840, 1.0), (1500, 1.0)]
)
def test_the_newest_report_tells_how_far_an_estimate_can_be_trusted(reported: int, scale: float) -> None:
    older = answered(1000, then=1000)
    assert safe_scale([asked(), older, asked(), answered(reported, then=1000), asked()], Asked(**M)) == (
        pytest.approx(scale)
    )


@pytest.mark.parametrize(
    "other",
    [
        answered(500, then=200),
        answered(500, then=1000, model="lab/n"),
        answered(None, then=1000),
        answered(500, then=None),
    ],
)
def test_what_tells_nothing_about_an_estimate_leaves_it_as_it_is(other: Any) -> None:
    assert safe_scale([asked(), other], Asked(**M)) == 1.0
