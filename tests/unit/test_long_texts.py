"""A text of many megabytes is counted, sent and searched without many times its memory."""

import json
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptsh.context.tokens import count_text
from gptsh.core.search import Query, Quote
from gptsh.llm.stream import encode

SENTENCE = "Der Füchs Nummer 12345 springt → und geht heim.\n"
TEXTS = st.text(st.sampled_from('a"\\\n\x00é→\U0001f600\ud800'), min_size=1, max_size=9)


def find(text: str) -> object:
    return Query("springt fehlt", 80).best([Quote("user", "", text)])


@pytest.mark.parametrize(
    ("work", "times"), [pytest.param(count_text, 3, marks=pytest.mark.slow), (encode, 3), (find, 1)]
)
def test_the_peak_is_a_few_times_the_text(work: Callable[[str], object], times: float) -> None:
    work(SENTENCE)  # loads what it needs
    text = SENTENCE * 60_000
    size = len(text.encode())
    tracemalloc.start()
    work(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < times * size


@pytest.mark.parametrize("number", [3_000, 30_000, pytest.param(450_000, marks=pytest.mark.slow)])
def test_a_long_text_has_the_tokens_of_its_parts(number: int) -> None:
    part = SENTENCE * 1_000
    assert count_text(SENTENCE * number) == pytest.approx(
        count_text(part) * number / 1_000, rel=0.005
    )


@pytest.mark.parametrize("at", [0, *range(99_985, 100_005), 199_997])
def test_a_word_is_found_wherever_it_is_in_a_long_text(at: int) -> None:
    text = f"{'é ' * (at // 2)}{'x' * (at % 2)} Große\u00a0Straße {'→ ' * 60_000}"
    assert Query("große strasse", 80).best([Quote("user", "", text)])
    assert (
        Query("große strasse", 80).best([Quote("user", "", text.replace("Straße", "Stra\nße"))])
        is None
    )


@settings(max_examples=6, deadline=None)
@given(TEXTS, st.integers(1, 3))
def test_a_long_text_is_encoded_as_a_short_one(text: str, pieces: int) -> None:
    long = (text * (1_000_000 // len(text) + 1))[:1_000_000] * pieces + text
    payload = {
        "messages": [{"content": long}, {"content": text}],
        "tools": [],
        "params": {},
        "n": [1.5, None, True],
    }
    expected = json.dumps(payload, ensure_ascii=False).replace("\ud800", "\ufffd")
    assert json.loads(encode(payload)) == json.loads(expected)
