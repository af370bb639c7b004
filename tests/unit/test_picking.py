"""The list that a session is picked from, without a terminal: rows, ages, filter, what is in sight."""

import pytest
from prompt_toolkit.utils import get_cwidth

from gptsh.cli.prompt.picked import age, row_line, screen, width_of
from gptsh.cli.prompt.picking import Picking, row_of
from gptsh.core.listing import SessionSummary
from tests.support.picking import NOW, listed, row, text_of

OLD: SessionSummary = {
    "index": 0, "id": "aaaa", "filename": "20250101-000000-aaaa.json", "created_at": "", "updated_at": "never",
    "title": None, "agent": None, "model": None, "provider": None, "turns": 0, "messages": 0, "tokens": None,
    "cost": None, "tags": [], "project": "/p", "preview": "",
}  # fmt: skip


def shown(picking: Picking, width: int = 80, height: int = 24) -> list[str]:
    return [text_of(line).rstrip() for line in screen(picking, (width, height), NOW, get_cwidth, 0).lines]


@pytest.mark.parametrize(("seconds", "told"), [(-5, "now"), (59, "now"), (60, "1m"), (3599, "59m"), (3600, "1h"),
                                               (86399, "23h"), (2 * 86400, "2d"), (7 * 86400, "1w"),
                                               (364 * 86400, "52w"), (365 * 86400, "1y")])  # fmt: skip
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


@pytest.mark.parametrize("width", [1, 12, 13, 40, 200])
@pytest.mark.parametrize(
    "title", ["", "ab" * 99, "日語e\u0301 " * 20, "👩\u200d💻❤\ufe0f" * 30, "\x1b\n\t\x9b\u202e\U0001f1e9"]
)
def test_a_row_is_as_wide_as_the_screen(title: str, width: int) -> None:
    line = text_of(row_line(row(1, title, preview=title), width, NOW, get_cwidth, selected=True))
    assert width_of(line, get_cwidth) == width if width >= 12 else width_of(line, get_cwidth) <= width
    assert not set(line) & set("\x1b\n\t\x9b\u202e\x7f")


@pytest.mark.parametrize(("width", "height"), [(4, 1), (40, 5), (120, 30)])
def test_the_chosen_row_is_in_sight(width: int, height: int) -> None:
    picking, top = listed(*(row(number, here=number % 3 > 0, days=number) for number in range(30))), 0
    for by in (0, 1, 7, 40, -3, -40, 20):
        picking.move(by)
        drawn = screen(picking, (width, height), NOW, get_cwidth, top)
        top, lines = drawn.top, [text_of(line) for line in drawn.lines]
        assert all(width_of(line, get_cwidth) <= width for line in lines)
        assert len(lines) == max(2, height)
        assert len([line for line in lines if line.startswith("> ")]) == 1


def test_this_project_comes_first_what_was_used_last_and_what_has_no_time_at_the_end() -> None:
    picking = listed(row_of(OLD, "/p"), row(1, "old", days=9), row(2, "other", here=False), row(3, "young", days=2))
    lines = shown(picking)
    assert [line[2:].split()[:2] for line in lines[1:4]] == [["2d", "young"], ["1w", "old"], ["?", "(untitled)"]]
    assert lines[4].startswith("── other projects ──")
    assert "other" in lines[5]


def test_a_filter_wants_all_words_of_title_and_preview_in_any_order() -> None:
    picking = listed(row(1, "Nginx proxy"), row(2, None, preview="a proxy"), row(3, "nginx", preview="the PROXY"))
    picking.type_in("proxy ngi")
    assert [item.filename[16:20] for item in picking.shown] == ["0001", "0003"]
    picking.add([row(4, "proxy of nginx"), row(5, "proxy")])
    picking.found(["20250101-000000-0002.json"])
    assert len(picking.shown) == 4
    picking.rub_out(all_of_it=True)
    assert (picking.takes_commands, len(picking.shown)) == (True, 5)


@pytest.mark.parametrize(("answer", "deletes"), [("yes", True), (" Y ", True), ("", False), ("yy", False)])
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
    picking.begin()
    picking.ask()
    assert (picking.filter, picking.asked) == (None, None)
    lines = shown(picking, 40)
    assert ("there is no session yet" in lines[1], lines[-1]) == (True, "n new   q quit")
