"""The pure parts of what the prompt shows and copies: the recap, the clipboard, a deleted snapshot in a union."""

import base64
import copy

from hypothesis import given
from hypothesis import strategies as st

from gptsh.core import document, snapshots
from gptsh.core.document import Document
from gptsh.render.clipboard import to_clipboard
from gptsh.render.fences import blocks, first_block
from gptsh.render.look import Look
from gptsh.render.recap import ROWS, cut, recap
from tests.support.sessions import ask, new

PLAIN = Look(styles=False, colors=False)


@given(st.text("ab \n", max_size=60), st.integers(1, 12), st.integers(1, 9))
def test_what_is_cut_fits_and_says_what_is_missing(text: str, rows: int, width: int) -> None:
    lines, kept = text.split("\n"), cut(text, rows, width)
    told = len(kept) > 0 and kept[-1].startswith("… ")
    shown, missing = (kept[:-1], int(kept[-1].split()[1])) if told else (kept, 0)
    assert sum(max(1, -(-len(line) // width)) for line in shown) <= rows
    assert len(shown) + missing == len(lines)
    for line, whole in zip(shown, lines, strict=False):
        assert line == whole or (line.endswith("…") and whole.startswith(line[:-1]))


def test_the_last_two_exchanges_are_shown() -> None:
    doc = new()
    for number in range(50):
        ask(doc, f"q{number}", f"a{number}")
    lines = list(recap(doc["messages"], document.turns(doc["messages"]), 80, PLAIN))
    assert lines == ["… 48 earlier turns: /history shows all", "> q48", "a48", "", "> q49", "a49", ""]
    assert list(recap([], [], 80, PLAIN)) == []


def test_control_characters_are_shown_and_lines_are_dimmed() -> None:
    doc = new()
    ask(doc, "say\nmore", "\x1b[31mred\r\n" + "x\n" * 20)
    lines = list(recap(doc["messages"], [0], 80, Look(styles=True, colors=True)))
    assert lines[:3] == ["\x1b[2m> say\x1b[0m", "\x1b[2m  more\x1b[0m", "\x1b[2m␛[31mred\x1b[0m"]
    assert lines[-2:] == [f"\x1b[2m… {21 - ROWS} more lines\x1b[0m", ""]


@given(st.text(st.characters(codec=None)))
def test_what_is_copied_holds_no_control_character_but_those_of_the_sequence(text: str) -> None:
    sequence = to_clipboard(text)
    data = sequence.removeprefix("\x1b]52;c;").removesuffix("\x07")
    assert len(sequence) - len(data) == len("\x1b]52;c;\x07")
    assert base64.b64decode(data, validate=True) == text.encode("utf-8", "replace")


def test_all_blocks_of_an_answer_in_order() -> None:
    text = "a\n```py\n1\n```\n- b\n\n  ~~~\n  2\n  ~~~\n\n```\nopen"
    assert list(blocks(text)) == ["1\n", "2\n", "open"]
    assert first_block(text) == "1\n"
    assert list(blocks("no code")) == []


def _talked(names: list[str]) -> Document:
    doc = new()
    for number, name in enumerate(names):
        ask(doc, f"q{number}", f"a{number}")
        snapshots.record(doc, 100, name=name)
    doc["updated_at"] = doc["context"]["snapshots"][-1]["created_at"]
    return doc


def _names(doc: Document) -> list[str]:
    return [item["name"] for item in doc["context"]["snapshots"]]


@given(st.sets(st.sampled_from("abcd"), min_size=1), st.data())
def test_a_deleted_snapshot_stays_deleted_and_nothing_else_goes(names: set[str], data: st.DataObject) -> None:
    """In whatever order copies come together, also one from elsewhere, all of which is taken for new."""
    held = _talked(sorted(names))
    gone = data.draw(st.sampled_from(sorted(names)))
    deleting, other = copy.deepcopy(held), copy.deepcopy(held)
    snapshots.delete(deleting, gone)
    if data.draw(st.booleans()):
        ask(other, "more", "MORE")
    if data.draw(st.booleans()):
        snapshots.record(other, 100, name="new")
    file, writer = data.draw(st.permutations([deleting, other]))
    if data.draw(st.booleans()):
        writer = {**writer, "updated_at": ""}
    joined = document.union(writer, file, title=None, tags=())
    again = document.union({**copy.deepcopy(held), "updated_at": ""}, joined, title=None, tags=())
    for doc in (joined, again):
        assert set(_names(doc)) == {*_names(held), *_names(other)} - {gone}
        assert [message["id"] for message in doc["messages"]] == [message["id"] for message in other["messages"]]
        for key in {*held} - {"messages", "context", "updated_at", "stats"}:
            assert doc[key] == held[key]
