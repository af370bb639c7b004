"""The list that a session is picked from, without a terminal: rows, ages, filter, what is in sight."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.utils import get_cwidth

from gptsh.core.listing import SessionSummary
from gptsh.core.picking import Picking, row_of
from gptsh.render.picked import age, row_line, screen, width_of
from tests.support.picking import NOW, listed, row, text_of

OLD: SessionSummary = {
    "index": 0, "id": "aaaa", "filename": "20250101-000000-aaaa.json", "created_at": "", "updated_at": "",
    "title": None, "agent": None, "model": None, "provider": None, "turns": 0, "messages": 0, "tokens": None,
    "cost": None, "tags": [], "project": "/p", "preview": "",
}  # fmt: skip


def shown(picking: Picking, width: int = 80, height: int = 24) -> list[str]:
    return [text_of(line).rstrip() for line in screen(picking, (width, height), NOW, get_cwidth, 0).lines]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(-5, "now"), (0, "now"), (59, "now"), (60, "1m"), (5 * 60, "5m"), (3599, "59m"), (3600, "1h"), (86399, "23h"),
     (2 * 86400, "2d"), (6.9 * 86400, "6d"), (7 * 86400, "1w"), (364 * 86400, "52w"), (365 * 86400, "1y"),
     (800 * 86400, "2y")],
)  # fmt: skip
def test_age(seconds: float, told: str) -> None:
    assert age(seconds) == told


@pytest.mark.parametrize(
    ("width", "line"),
    [(120, f"  1d  {'A title':<67}    3 turns  {'lab/m':<32}"),
     (80, f"  1d  {'A title':<40}    3 turns  {'lab/m':<19}"), (60, f"  1d  {'A title':<41}    3 turns"),
     (40, f"  1d  {'A title':<32}"), (12, "  1d  A t…")],
)  # fmt: skip
def test_columns_give_way_to_the_title(width: int, line: str) -> None:
    assert text_of(row_line(row(1, "A title"), width, NOW, get_cwidth)) == f"  {line}"
    chosen = text_of(row_line(row(1, "A title"), width, NOW, get_cwidth, selected=True))
    assert chosen == f"> {line}"


TITLES = st.text(st.sampled_from("ab 日語e\u0301👩\u200d💻❤\ufe0f\x1b\n\t\x9b\u202e\U0001f1e9é") | st.characters())


@settings(max_examples=50)
@given(TITLES, st.integers(1, 200), st.booleans())
def test_a_row_is_as_wide_as_the_screen(title: str, width: int, selected: bool) -> None:
    line = text_of(row_line(row(1, title, preview=title), width, NOW, get_cwidth, selected=selected))
    assert width_of(line, get_cwidth) == width if width >= 12 else width_of(line, get_cwidth) <= width
    assert not set(line) & set("\x1b\n\t\x9b\u202e\x7f")


@settings(max_examples=30)
@given(
    st.lists(st.booleans(), max_size=30), st.lists(st.integers(-40, 40), max_size=8), st.integers(4, 120),
    st.integers(1, 30), st.sampled_from(["", "x", "title"]),
)  # fmt: skip
def test_the_chosen_row_is_in_sight(here: list[bool], moves: list[int], width: int, height: int, words: str) -> None:
    picking = listed(*(row(number, here=mine, days=number) for number, mine in enumerate(here)))
    picking.type_in(words)
    top = 0
    for by in [0, *moves]:
        picking.move(by)
        drawn = screen(picking, (width, height), NOW, get_cwidth, top)
        top = drawn.top
        lines = [text_of(line) for line in drawn.lines]
        assert all(width_of(line, get_cwidth) <= width for line in lines)
        assert len(lines) == max(2, height)
        marked = [line for line in lines if line.startswith("> ")]
        assert len(marked) == (1 if picking.shown else 0)
        if picking.asked is None and picking.shown and height > 3:
            picking.ask()
            assert len(screen(picking, (width, height), NOW, get_cwidth, top).lines) == height
            assert not picking.go_back() or picking.asked is None


def test_this_project_comes_first_what_was_used_last_and_what_has_no_time_at_the_end() -> None:
    unknown = row_of({**OLD, "updated_at": "never"}, "/p")
    picking = listed(unknown, row(1, "old", days=9), row(2, "other", here=False, days=0), row(3, "young", days=2))
    lines = shown(picking)
    assert [line[2:].split()[:2] for line in lines[1:4]] == [["2d", "young"], ["1w", "old"], ["?", "(untitled)"]]
    assert lines[4].startswith("── other projects ──")
    assert "other" in lines[5]


def test_until_a_key_was_pressed_the_first_row_is_the_chosen_one() -> None:
    picking = Picking()
    picking.add([row(1, "first", here=False)])
    picking.add([row(2, "mine")])
    assert picking.selected
    assert picking.selected.title == "mine"
    picking.move(1)
    picking.add([row(3, "younger", days=0)])
    assert picking.selected
    assert picking.selected.title == "first"


def test_a_filter_wants_all_words_of_title_and_preview_in_any_order() -> None:
    picking = listed(row(1, "Nginx proxy"), row(2, None, preview="a proxy"), row(3, "nginx", preview="the PROXY"))
    picking.type_in("proxy ngi")
    assert [item.filename[16:20] for item in picking.shown] == ["0001", "0003"]
    picking.found(["20250101-000000-0002.json"])
    assert len(picking.shown) == 3
    picking.add([row(4, "proxy of nginx"), row(5, "proxy")])
    assert len(picking.shown) == 4
    picking.rub_out(all_of_it=True)
    assert picking.takes_commands
    assert len(picking.shown) == 5


@pytest.mark.parametrize(
    ("answer", "deletes"),
    [("y", True), ("yes", True), (" Y ", True), ("", False), ("n", False), ("yy", False), ("/", False)],
)
def test_only_yes_deletes(answer: str, deletes: bool) -> None:
    picking = listed(row(1, "one"), row(2, "two", days=2))
    picking.ask()
    picking.type_in(answer)
    chosen = picking.answered()
    assert (chosen is not None) == picking.deleting == deletes
    if chosen:
        picking.drop(chosen)
        assert [item.title for item in picking.shown] == ["two"]


def test_without_a_session_nothing_but_n_and_q_is_left() -> None:
    picking = listed()
    picking.type_in("x")
    picking.begin()
    assert picking.filter is None
    picking.ask()
    assert picking.asked is None
    lines = shown(picking, 40)
    assert "there is no session yet" in lines[1]
    assert lines[-1] == "n new   q quit"
