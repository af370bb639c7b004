"""The pure parts of what the prompt shows and copies: the recap, lines that fit, the status line, the clipboard."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.cli.slash.copying import to_clipboard
from gptsh.core import document
from gptsh.render.lists import ROWS, Status, cut, recap, status_line
from gptsh.render.markdown import code_blocks
from gptsh.render.plain import Look
from gptsh.text import columns
from tests.support.sessions import ask, new


@given(st.text("ab \n", max_size=60), st.integers(1, 12), st.integers(1, 9))
def test_what_is_cut_fits_and_says_what_is_missing(text: str, rows: int, width: int) -> None:
    lines, kept = text.split("\n"), cut(text, rows, width)
    told = len(kept) > 0 and kept[-1].startswith("… ")
    shown, missing = (kept[:-1], int(kept[-1].split()[1])) if told else (kept, 0)
    assert sum(max(1, -(-len(line) // width)) for line in shown) <= rows
    assert len(shown) + missing == len(lines)
    for line, whole in zip(shown, lines, strict=False):
        assert line == whole or (line.endswith("…") and whole.startswith(line[:-1]))


def test_the_last_two_exchanges_are_shown_and_lines_that_are_safe_are_dimmed() -> None:
    doc = new()
    for number in range(50):
        ask(doc, f"q{number}", f"a{number}")
    lines = list(recap(doc["messages"], document.turns(doc["messages"]), 80, Look(styles=False, colors=False)))
    assert lines == ["… 48 earlier turns: /history shows all", "> q48", "a48", "", "> q49", "a49", ""]
    doc = new()
    ask(doc, "say\nmore", "\x1b[31mred\r\n" + "x\n" * 20)
    lines = list(recap(doc["messages"], [0], 80, Look(styles=True, colors=True)))
    assert lines[:3] == ["\x1b[2m> say\x1b[0m", "\x1b[2m  more\x1b[0m", "\x1b[2m␛[31mred\x1b[0m"]
    assert lines[-2:] == [f"\x1b[2m… {21 - ROWS} more lines\x1b[0m", ""]


def test_a_wide_answer_takes_its_rows_and_no_more() -> None:
    doc = new()
    ask(doc, "q", "漢字" * 400)
    lines = list(recap(doc["messages"], [0], 40, Look(styles=False, colors=False)))[1:-1]
    assert lines[0].endswith("…")
    assert sum(-(-columns(line) // 40) for line in lines) == ROWS


@pytest.mark.parametrize(
    ("width", "told"),
    [(80, "new session · echo · /help shows the commands"), (40, "new session · echo · /help"),
     (20, "new session · echo")],
)  # fmt: skip
def test_the_hint_stands_where_there_is_room(width: int, told: str) -> None:
    assert status_line(Status("new session", model="echo", hint="/help shows the commands"), width) == told


@given(st.text(st.characters(codec=None)))
def test_what_is_copied_holds_no_control_character_but_those_of_the_sequence(text: str) -> None:
    sequence = to_clipboard(text)
    data = sequence.removeprefix("\x1b]52;c;").removesuffix("\x07")
    assert len(sequence) - len(data) == len("\x1b]52;c;\x07")
    assert base64.b64decode(data, validate=True) == text.encode("utf-8", "replace")


def test_all_blocks_of_an_answer_in_order() -> None:
    text = "a\n```py\n1\n```\n- b\n\n  ~~~\n  2\n  ~~~\n\n```\nopen"
    assert code_blocks(text) == ["1\n", "2\n", "open"]
    assert code_blocks("no code") == []
