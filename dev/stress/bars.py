"""A bar chart as SVG on its own card, so that it looks the same on any page; it loads nothing."""

from collections.abc import Sequence
from html import escape

CARD, INK, DIM, OURS = (
    "#0d1117",
    "#e6edf3",
    "#6e7681",
    "#3fb950",
)  # the colours of the pictures of a terminal
_WIDTH, _ROW, _TOP, _MARGIN = 560, 38, 62, 20
_NAMES, _FIGURES = 150, 90  # columns for the names on the left and the figures on the right


def bars(title: str, rows: Sequence[tuple[str, float]]) -> str:
    """The chart of these names and seconds; the first bar is the one that is compared with the others."""
    longest = max(seconds for _, seconds in rows)
    shapes = [f'<text x="{_MARGIN}" y="36" font-size="15">{escape(title)}</text>']
    for number, (name, seconds) in enumerate(rows):
        y = _TOP + _ROW * number
        width = (_WIDTH - _NAMES - _FIGURES) * seconds / longest
        color = DIM if number else OURS
        weight = "normal" if number else "bold"
        text = f'<text font-weight="{weight}" y="{y + 19}"'
        shapes += [
            f'{text} x="{_NAMES - 10}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{_NAMES}" y="{y}" width="{width:.1f}" height="28" rx="3" fill="{color}"/>',
            f'{text} x="{_NAMES + width + 8:.1f}">{seconds:.2f} s</text>',
        ]
    return card(title, _WIDTH, _TOP + _ROW * len(rows) + _MARGIN - 10, shapes)


def card(title: str, width: int, height: int, shapes: Sequence[str]) -> str:
    """The shapes as a picture with a dark background, which hides whether the page is light or dark."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
    head += f' font-family="system-ui, sans-serif" font-size="14" fill="{INK}">'
    background = f'<rect width="{width}" height="{height}" rx="8" fill="{CARD}"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", background, *shapes, "</svg>", ""])
