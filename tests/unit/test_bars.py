"""The bar chart of the first page: its bars are as long as their figures, and any name is shown as it is."""

from xml.etree import ElementTree

from dev.stress.bars import bars

SVG = "{http://www.w3.org/2000/svg}"


def test_bars_are_as_long_as_their_figures_and_names_are_shown_as_they_are() -> None:
    rows = [("gptsh", 0.5), ("a <b> & c", 2.0), ("last", 1.0)]
    root = ElementTree.fromstring(bars("Seconds", rows))
    widths = [float(rect.attrib["width"]) for rect in root.iter(f"{SVG}rect")]
    assert [width / widths[1] for width in widths] == [0.25, 1, 0.5]
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts[1:] == ["gptsh", "0.50 s", "a <b> & c", "2.00 s", "last", "1.00 s"]
