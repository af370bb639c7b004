"""A bar chart as SVG, readable on light and dark pages, without scripts or fonts from elsewhere."""

from collections.abc import Sequence
from html import escape

_WIDTH, _ROW, _TOP = 520, 38, 42
_NAMES, _FIGURES = 130, 70  # columns for the names on the left and the figures on the right
_STYLE = (
    "text{fill:#1f2328}.bar{fill:#afb8c1}.ours{fill:#1a7f37}.ours-name{font-weight:bold}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.bar{fill:#6e7681}.ours{fill:#3fb950}}"
)


def bars(title: str, rows: Sequence[tuple[str, float]]) -> str:
    """The chart of these names and seconds; the first bar is the one that is compared with the others."""
    longest = max(seconds for _, seconds in rows)
    shapes = [f'<text x="0" y="20" font-size="15">{escape(title)}</text>']
    for number, (name, seconds) in enumerate(rows):
        y = _TOP + _ROW * number
        width = (_WIDTH - _NAMES - _FIGURES) * seconds / longest
        kinds = ("ours", "ours-name") if number == 0 else ("bar", "name")
        shapes += [
            f'<text class="{kinds[1]}" x="{_NAMES - 10}" y="{y + 19}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="{kinds[0]}" x="{_NAMES}" y="{y}" width="{width:.1f}" height="28" rx="3"/>',
            f'<text class="{kinds[1]}" x="{_NAMES + width + 8:.1f}" y="{y + 19}">{seconds:.2f} s</text>',
        ]
    height = _TOP + _ROW * len(rows)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"'
    head += ' font-family="system-ui, sans-serif" font-size="14">'
    return "\n".join([head, f"<title>{escape(title)}</title>", f"<style>{_STYLE}</style>", *shapes, "</svg>", ""])
