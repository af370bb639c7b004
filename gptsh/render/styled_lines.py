"""Lines of styled text: as they are, or wrapped at a width; and what is written for them, with escape sequences.

Only ``paint`` makes escape sequences of styles, so no others can occur.
"""

import io
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from gptsh.terminal.stdio import Look
from gptsh.text import row_starts, visible

Line = list[Segment]


@cache
def console() -> Console:
    """What rich measures and wraps with. It writes nothing; each use states its width."""
    return Console(file=io.StringIO(), width=80, height=25, color_system=None, legacy_windows=False, _environ={})


def plain_lines(lines: Sequence[str]) -> list[Line]:
    """Lines without styles."""
    return [[Segment(line)] for line in lines]


def wrapped(text: Text, width: int) -> list[Line]:
    """A text as lines of at most ``width`` columns, broken between words where that is possible."""
    is_short = text.cell_len <= width and not {"\n", "\t"}.intersection(text.plain)
    lines = [text] if is_short else text.wrap(console(), width, overflow="fold")
    for line in lines:
        line.rstrip()
    return [[part for part in Segment.simplify(line.render(console())) if part.text] for line in lines]


def stripped(line: Line) -> Line:
    """The line without the spaces at its end."""
    while line and not line[-1].text.strip():
        line = line[:-1]
    return [*line[:-1], line[-1]._replace(text=line[-1].text.rstrip())] if line else []


def paint(line: Line, look: Look) -> str:
    """A line as text with escape sequences, without its newline."""
    return "".join(_painted(visible(text), style, look) for text, style, _ in line)


def paint_rows(line: Line, width: int, look: Look) -> list[str]:
    """A line as rows of at most ``width`` columns, each as ``paint`` returns it."""
    starts = row_starts("".join(visible(segment.text) for segment in line), width)
    rows, at = [""], 0
    for text, style, _ in line:
        shown = visible(text)
        end = at + len(shown)
        breaks = [start for start in starts if at < start < end]
        for start, stop in pairwise([at, *breaks, end]):
            if start in starts:
                rows.append("")
            rows[-1] += _painted(shown[start - at : stop - at], style, look)
        at = end
    return rows


def _painted(text: str, style: Style | None, look: Look) -> str:
    if style is None or not text or not look.styles:
        return text
    if not look.colors:
        style = style.without_color
    return style.render(text, color_system=ColorSystem.STANDARD)
