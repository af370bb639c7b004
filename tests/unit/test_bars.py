"""The pages of dev/stress: bars as long as their figures, labels at their lines, legible anywhere, results first."""

import itertools
import re
from xml.etree import ElementTree

import pytest

from dev.stress import scale
from dev.stress.bars import bars
from dev.stress.table import Row, Table, markdown, summary
from tests.support.paths import ROOT

SVG = "{http://www.w3.org/2000/svg}"


def test_bars_are_as_long_as_their_figures_and_names_are_shown_as_they_are() -> None:
    rows = [("gptsh", 0.5), ("a <b> & c", 2.0), ("last", 1.0)]
    root = ElementTree.fromstring(bars("Seconds", rows))
    _, *shapes = root.iter(f"{SVG}rect")
    widths = [float(rect.attrib["width"]) for rect in shapes]
    assert [width / widths[1] for width in widths] == [0.25, 1, 0.5]
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts[1:] == ["gptsh", "0.50 s", "a <b> & c", "2.00 s", "last", "1.00 s"]


@pytest.mark.parametrize("unit", ["turns", "bytes", "sessions"])
def test_each_label_is_led_to_from_the_end_of_its_line_and_covers_no_other(unit: str) -> None:
    root = ElementTree.fromstring((ROOT / "docs" / f"scale-{unit}.svg").read_text())
    lines = {
        line.attrib["stroke"]: line.attrib["points"].split()[-1]
        for line in root.iter(f"{SVG}polyline")
    }
    leaders = {
        path.attrib["stroke"]: path.attrib["d"]
        for path in root.iter(f"{SVG}path")
        if "L" in path.attrib["d"]
    }
    labels = {
        text.attrib["fill"]: float(text.attrib["y"])
        for text in root.iter(f"{SVG}text")
        if "fill" in text.attrib
    }
    assert len(lines) >= 4
    for color, end in lines.items():
        start, target = re.findall(r"[\d.]+ [\d.]+", leaders[color])
        assert [float(part) for part in start.split()] == pytest.approx(
            [float(part) for part in end.split(",")]
        )
        assert float(target.split()[1]) + 5 == pytest.approx(labels[color])
    heights = sorted(labels.values())
    assert min(below - above for above, below in itertools.pairwise(heights)) >= 19


def test_labels_that_would_leave_the_picture_are_moved_up() -> None:
    assert scale._spread([100.0, 101.0]) == [100.0, 120.0]
    low, lower = scale._spread([289.0, 290.0])
    assert low == lower - 20
    assert lower <= 290


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "docs").glob("*.svg")))
def test_a_picture_has_a_background_of_its_own_and_asks_for_no_theme(name: str) -> None:
    text = (ROOT / "docs" / name).read_text()
    root = ElementTree.fromstring(text)
    first = next(root.iter(f"{SVG}rect"))
    assert first.attrib["fill"].lower() in {"#0d1117", "#0d1117ff"}
    assert float(first.attrib["width"]) >= 0.95 * float(root.attrib["viewBox"].split()[2])
    assert "prefers-color-scheme" not in text


def test_the_page_of_stress_tests_begins_with_what_each_tried_and_folds_its_rows() -> None:
    rows = [Row(("one", 35)), Row(("two", 5), held=False), Row(("other", 350))]
    section = markdown(Table("A disk that fails", "What.", ("What", "Tried"), rows), "Today.")
    assert "<summary>390 tried, all but 1 held. Today.</summary>" in section
    assert (
        section.index("<details")
        < section.index("| one<br>other | 35 to 350 | yes |\n| two | 5 | **no** |")
        < section.index("</details>")
    )
    assert summary([section, section]) == "780 times, and it did not hold 2 times"
