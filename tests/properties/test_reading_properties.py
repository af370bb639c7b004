"""JSON that is read piece by piece is what it is when it is read whole, wherever the pieces end."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptsh.formats.source import BadInput, read_items, read_values

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)
HALF = "\udcff"  # half a character, which ijson's parser in C refuses: what has one is read by that in Python


def in_pieces(data: bytes, size: int) -> Callable[[], list[bytes]]:
    return lambda: [data[at : at + size] for at in range(0, len(data), size)]


@settings(max_examples=25)
@given(st.lists(VALUES), st.integers(1, 9), st.booleans(), st.sampled_from([None, 1]))
def test_items_are_the_same_in_pieces(
    values: list[Any], size: int, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(values, ensure_ascii=ascii_only, indent=indent)
    assert [*read_items(in_pieces(f" \n{text}\n".encode(), size))] == values
    assert [*read_values(in_pieces(f" \n{text}\n".encode(), size))] == [values]


@settings(max_examples=25)
@given(st.lists(VALUES), st.integers(1, 9))
def test_with_half_a_character_too(values: list[Any], size: int) -> None:
    text = json.dumps([*values, HALF, *values])
    assert [*read_items(in_pieces(text.encode(), size))] == [*values, HALF, *values]


@settings(max_examples=25)
@given(st.lists(VALUES, min_size=1), st.integers(1, 9), st.sampled_from([[], [HALF]]), st.data())
def test_of_what_is_cut_off_the_first_items_are_read(
    values: list[Any], size: int, more: list[Any], data: st.DataObject
) -> None:
    values = [*more, *values]
    text = json.dumps(values).encode()
    end = data.draw(st.integers(1, len(text) - 1))
    found: list[Any] = []
    with pytest.raises(BadInput, match=r"^not JSON"):
        found.extend(read_items(in_pieces(text[:end], size)))
    assert found == values[: len(found)]
    assert len(found) >= len(values) - 1 or len(json.dumps(values[: len(found) + 1])) >= end


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"a": 1,\n "b" 2}', "not JSON"),
        (b"[1] [2]", "not JSON after 1 item"),
        (b'["\xff"]', "not JSON"),
        (b'["\xed\xb3\xbf"]', "not JSON"),
        (b'["a\nb"]', "not JSON"),
        (b'[1, {"a": NaN}]', "not JSON"),
        (b"[1e999]", "not JSON"),
        (b"[-1e999]", "not JSON"),
        (b"[1e99999999999999999999]", "not JSON"),
        (b"[" + b"9" * 5000 + b"]", "not JSON"),
        (b"[" * 200_000, "nested more than 100 levels deep"),
        (b'{"a":' * 200_000, "nested more than 100 levels deep"),
        (b"[" * 120 + b"]" * 120, "nested more than 100 levels deep"),
    ],
)
@pytest.mark.parametrize("start", [b"", b'["\\udcff",'])
@pytest.mark.parametrize("size", [3, 1000])
def test_what_is_no_json_is_refused(text: bytes, why: str, start: bytes, size: int) -> None:
    """``start``: the same within an array that the parser in Python reads."""
    with pytest.raises(BadInput, match=f"^{why}$" if not start else "^(not JSON|nested)"):
        [*read_values(in_pieces(start + text, size))]


def test_a_number_may_have_any_size_that_python_has() -> None:
    text = b"[18446744073709551616, 1e300, -0.0, 2.5E-3, 1" + b"0" * 300 + b".5]"
    assert [*read_items(in_pieces(text, 3))] == json.loads(text)
