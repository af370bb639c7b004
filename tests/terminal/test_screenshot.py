"""The README's pictures: they are there, load and run nothing, and show what the program shows now."""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from man.screenshot import COLUMNS, FOLDER, PICTURES, make
from tests.support.paths import ROOT
from tests.support.screens import needs_tmux

SVG = "{http://www.w3.org/2000/svg}"
Cells = dict[tuple[int, int], tuple[str, str]]  # by row and column: the character, and how it looks


def cells(svg: str) -> Cells:
    """What stands where, blanks left out but for those with a colour behind them."""
    tree = ElementTree.fromstring(svg)
    looks = dict(re.findall(r"^\.(\S+) \{ (.*) \}$", tree.findtext(f"{SVG}style") or "", re.MULTILINE))
    seen: Cells = {}
    for rect in tree.iter(f"{SVG}rect"):
        if rect.get("shape-rendering"):
            row, column, width = place(rect, "width")
            seen |= {(row, column + at): (" ", rect.attrib["fill"]) for at in range(width)}
    for element in tree.iter(f"{SVG}text"):
        row, column, _ = place(element, "textLength")
        text = (element.text or "").replace("\N{NO-BREAK SPACE}", " ")
        look = looks[element.attrib["class"]]
        for at, char in enumerate(text, column):
            behind = seen.get((row, at), ("", ""))[1]
            if char != " " or behind:
                seen[row, at] = (char, f"{look} {behind}")
    return seen


def place(element: ElementTree.Element, width: str) -> tuple[int, int, int]:
    """The row, column and columns of an element, from its pixels: a character has 12 of 24.4."""
    x, y, wide = (float(element.attrib[name]) for name in ("x", "y", width))
    return int(y / 24.4), round(x / 12), round(wide / 12)


def lines(seen: Cells) -> Iterator[str]:
    """The text of each line."""
    for row in range(max(row for row, _ in seen) + 1):
        yield "".join(seen.get((row, column), " ")[0] for column in range(COLUMNS)).rstrip()


def test_the_readme_shows_every_picture_and_no_other() -> None:
    shown = re.findall(r"!\[([^]]+)\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    assert [ROOT / path for _, path in shown] == [FOLDER / name for name in PICTURES]
    assert all(len(said) > 80 for said, _ in shown)
    assert all((ROOT / path).is_file() for _, path in shown)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_small_and_loads_and_runs_nothing(name: str) -> None:
    svg = (FOLDER / name).read_text("utf-8")
    assert len(svg) < 60_000
    tags = {element.tag.removeprefix(SVG) for element in ElementTree.fromstring(svg).iter()}
    assert tags == {"svg", "style", "g", "rect", "circle", "text"}
    assert re.findall(r"https?:[^\s\"')]*", svg) == [SVG.strip("{}")]
    assert not re.findall(r"\bon\w+=|url\(|@import|@font-face|href", svg)
    assert not re.findall(r"/(?:tmp|home|root|Users|var|work)\b", svg)


@needs_tmux
@pytest.mark.slow
def test_the_pictures_show_what_the_program_shows(tmp_path: Path) -> None:
    make(tmp_path)
    for name in PICTURES:
        now, committed = (cells((folder / name).read_text("utf-8")) for folder in (tmp_path, FOLDER))
        assert [*lines(committed)] == [*lines(now)], "run `make screenshot`"
        assert committed == now, "run `make screenshot`"
