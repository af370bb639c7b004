"""JSON that is read piece by piece is what it is when it is read whole, wherever the pieces end."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.formats.source import BadInput, read_value

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


def cut(data: bytes, size: int) -> Any:
    return iter([data[at : at + size] for at in range(0, len(data), size)])


@given(VALUES, st.integers(1, 9), st.integers(0, 4), st.booleans(), st.sampled_from([None, 1]))
def test_a_value_is_the_same_in_pieces(
    value: Any, size: int, levels: int, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    data = f" \n{text}\n\0".encode("utf-8", "surrogatepass") if ascii_only else f"{text} ".encode("utf-8", "replace")
    found, is_single = read_value(cut(data, size), levels=levels)
    assert (found, is_single) == (json.loads(data.strip(b" \n\0")), True)


@given(VALUES, st.integers(1, 9), st.integers(0, 4))
def test_a_second_value_behind_it_is_seen(value: Any, size: int, levels: int) -> None:
    data = json.dumps([value]).encode()
    assert read_value(cut(data + b"\n" + data, size), levels=levels) == ([value], False)


@given(st.lists(VALUES, min_size=1), st.integers(1, 9), st.integers(0, 4), st.data())
def test_a_value_that_is_cut_off_is_none(value: Any, size: int, levels: int, data: st.DataObject) -> None:
    text = json.dumps(value).encode()
    end = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(BadInput):
        read_value(cut(text[:end], size), levels=levels)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"a": 1,\n "b" 2}', "not JSON at line 2 column 6"),
        (b"[1,\n2,\n  x]", "not JSON at line 3 column 3"),
        (b'[1,\n{"a":\n 2]', "not JSON at line 3 column 3"),
        (b'["\xff"]', "not UTF-8"),
        (b'{"a": NaN}', "not JSON: NaN is not JSON"),
        (b"[1e999]", "not JSON: 1e999 is too large a number"),
        (b"[" * 200_000, "nested too deeply"),
        (b"[" * 120 + b"]" * 120, "nested more than 100 levels deep"),
        (b"", "not JSON at line 1 column 1"),
    ],
)
@pytest.mark.parametrize("levels", [0, 2])
@pytest.mark.parametrize("size", [3, 1000])
def test_what_is_no_json_is_named_with_its_place(text: bytes, why: str, levels: int, size: int) -> None:
    with pytest.raises(BadInput, match=f"^{why}$"):
        read_value(cut(text, size), levels=levels)


def test_a_number_goes_on_in_the_next_piece() -> None:
    assert read_value(iter([b"1", b"2", b".", b"5e", b"1"]), levels=0) == (125.0, True)
    assert math.isclose(read_value(iter([b"[1", b"2", b"]"]), levels=1)[0][0], 12)
