"""What a file may cost to be read, however it is made: lines, objects and broken lines are bounded."""

from pathlib import Path

import pytest

from gptsh.formats.source import Source

OBJECT = b'{"a": 1}'


def of(data: bytes) -> Source:
    return Source("it", None, data)


def test_no_more_objects_are_taken_than_a_file_may_have() -> None:
    for data in (OBJECT * 9, (OBJECT + b"\n") * 9):
        lines, broken = of(data).split(most=7)
        assert len(lines) == 7
        assert [item.why for item in broken] == ["more than 7 lines: the rest is not read"]
    assert of(OBJECT * 7).split(most=7) == (of(OBJECT * 7).lines, [])


def test_broken_lines_are_told_one_by_one_up_to_a_number() -> None:
    source = of(b"x\n" * 9 + OBJECT + b"\n[]\n{\n")
    lines, broken = source.split(most_broken=3)
    assert [line.number for line in lines] == [10]
    assert [item.where for item in broken] == ["it:1", "it:2", "it:3", "it"]
    assert broken[-1].why == "8 more lines that are not JSON objects"
    assert len(source.broken) == 11
    assert [item.why for item in source.split(most=5, most_broken=3)[1]][3:] == [
        "2 more lines that are not JSON objects", "more than 5 lines: the rest is not read",
    ]  # fmt: skip


def test_blank_lines_are_counted_and_nothing_else(tmp_path: Path) -> None:
    source = of(b"\xef\xbb\xbf\n \r\n\0\0\n" + OBJECT + b"\r\n" + b"\n" * 100_000 + b"  " + OBJECT + OBJECT + b"\0\n\n")
    assert [(line.number, line.raw) for line in source.lines] == [(n, OBJECT.decode()) for n in (4, 100_005, 100_005)]
    assert source.broken == []
    assert source.first == [{"a": 1}] * 3
    assert source.json is None
    for blank in (b"", b"\n", b"\0" * 100, b"\xef\xbb\xbf"):
        assert (of(blank).lines, of(blank).broken, of(blank).first, of(blank).json) == ([], [], [], None)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (OBJECT, {"a": 1}),
        (b"\n \0" + OBJECT + b"\n\0\n", {"a": 1}),
        (b"[1,\n2\n]\n", [1, 2]),
        (b'{"a":\n {"b": 1}\n}', {"a": {"b": 1}}),
        (b"7", 7),
        (OBJECT + OBJECT, None),
        (OBJECT + b"\nx", None),
        (OBJECT + b"\n" + OBJECT, None),
        (OBJECT + b"x", None),
        (b"[1,\n2", None),
        (b"[1,\n2]3", None),
        (b"[" * 101 + b"]" * 101, None),
        (b"[" * 100_000, None),
    ],
)
def test_a_file_is_one_value_or_none(data: bytes, value: object) -> None:
    assert of(data).json == value


def test_of_objects_on_one_line_the_first_ones_tell_what_a_file_is() -> None:
    assert of(OBJECT * 1000).first == [{"a": 1}] * 10
    assert of(OBJECT * 3 + b"x").first == []
