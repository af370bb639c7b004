"""How the run time of each command grows with the number and the size of sessions; the curves as SVG."""

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dev.benchmarks.clocks import run_time
from dev.benchmarks.homes import Home, add_long_session, add_sessions, lab
from dev.stress.bars import card
from dev.stress.table import Row, Table
from tests.support.home import COMMAND

DOCS = Path(__file__).parent.parent.parent / "docs"
_COUNTS = (1_000, 10_000, 100_000)
_SIZES = (1_000_000, 10_000_000, 100_000_000)
_TURNS = (100, 1_000, 10_000)
_ROUNDS = 3
_COLORS = ("#58a6ff", "#ff7b72", "#3fb950", "#d29922", "#bc8cff", "#39c5cf")
_GRID = "#30363d"
_WIDTH, _HEIGHT, _LEFT, _TOP, _LABELS = 760, 350, 76, 60, 290  # _LABELS: the column on the right
_LINE = 20  # between two labels


class Curve(NamedTuple):
    """The seconds of one command at each scale."""

    name: str
    args: tuple[str, ...]
    allowed: float  # maximum exponent of its growth: 0 is constant, 1 is linear
    seconds: Sequence[float] = ()

    @property
    def growth(self) -> float:
        """The exponent of its growth over the last factor of ten."""
        *_, before, last = self.seconds
        return math.log10(last / before)

    @property
    def label(self) -> str:
        """Its name, and how many times as long it takes with ten times as much."""
        times = f"{10**self.growth:.1f}x for 10x" if self.growth >= 0.1 else "flat"
        return f"{self.name}: {times}"


STORE_CURVES = (
    Curve("list the sessions", ("--list-sessions",), 1.15),
    Curve("search, a word in all", ("--search-sessions", "what"), 1.15),
    Curve("sum up the usage", ("--usage",), 1.15),
    Curve("show a session", ("--show-session", "0"), 0.6),
    Curve("ask in an old session", ("-m", "echo", "-s", "0", "hi"), 0.6),
    Curve("ask in a new session", ("-m", "echo", "hi"), 0.6),
)
SESSION_CURVES = (
    Curve("list the sessions", ("--list-sessions",), 0.3),
    Curve("show a session", ("--show-session", "0"), 1.15),
    Curve("export a session", ("--export-session", "0"), 1.15),
    Curve("ask a question", ("-m", "echo", "-s", "0", "hi"), 1.15),
)


def many() -> Table:
    """Run times by the number of sessions."""
    return _table("The number of sessions", "sessions", _COUNTS, STORE_CURVES, add_sessions)


def large() -> Table:
    """Run times by the size of a session of 1,000 messages."""
    return _table("The size of a session", "bytes", _SIZES, SESSION_CURVES, add_long_session)


def turns() -> Table:
    """Run times by the number of turns of a session."""

    def fill(home: Home, turns: int) -> Home:
        return add_long_session(home, 2000 * turns, 2 * turns)

    return _table("The turns of a session", "turns", _TURNS, SESSION_CURVES, fill)


def _table(
    title: str,
    unit: str,
    scales: Sequence[int],
    curves: Sequence[Curve],
    fill: Callable[[Home, int], Home],
) -> Table:
    times = [list[float]() for _ in curves]
    with lab() as place:
        for scale in scales:
            home = fill(place.home(), scale)
            for curve, seconds in zip(curves, times, strict=True):
                seconds.append(
                    min(run_time([*COMMAND, *curve.args], home.env) for _ in range(_ROUNDS))
                )
    measured = [
        curve._replace(seconds=seconds) for curve, seconds in zip(curves, times, strict=True)
    ]
    name = f"scale-{unit}.svg"
    (DOCS / name).write_text(_svg(unit, scales, measured))
    text = f"![Seconds by the number of {unit}]({name})"
    rows = [
        Row(
            (c.name, *(f"{s:.2f}" for s in c.seconds), f"{c.growth:.2f}", f"{c.allowed:.2f}"),
            c.growth <= c.allowed,
        )
        for c in measured
    ]
    return Table(
        title,
        text,
        ("Command", *(f"{scale:,}" for scale in scales), "Growth", "At most"),
        rows,
    )


def _svg(unit: str, scales: Sequence[int], curves: Sequence[Curve]) -> str:
    """Both axes are logarithmic, so that linear growth is a straight line. Each label is at the end of its line."""
    times = [second for curve in curves for second in curve.seconds]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    right = _WIDTH - _LABELS

    def x(scale: float) -> float:
        first, last = math.log10(scales[0]), math.log10(scales[-1])
        return _LEFT + (right - _LEFT) * (math.log10(scale) - first) / (last - first)

    def y(second: float) -> float:
        return _TOP + (_HEIGHT - _TOP - 60) * (high - math.log10(second)) / (high - low)

    title = f"Seconds of a command, by the number of {unit}"
    shapes = [f'<text x="20" y="34" font-size="15">{title}</text>']
    for power in range(low, high + 1):
        at = y(10.0**power)
        shapes.append(f'<path d="M{_LEFT} {at:.0f}H{right}" stroke="{_GRID}"/>')
        shapes.append(
            f'<text x="{_LEFT - 8}" y="{at + 5:.0f}" text-anchor="end">{10.0**power:g} s</text>'
        )
    for scale in scales:
        shapes.append(
            f'<text x="{x(scale):.0f}" y="{_HEIGHT - 34}" text-anchor="middle">{scale:,}</text>'
        )
    shapes.append(
        f'<text x="{(_LEFT + right) // 2}" y="{_HEIGHT - 12}" text-anchor="middle">{unit}</text>'
    )
    ends = _spread([y(curve.seconds[-1]) for curve in curves])
    for color, curve, end in zip(_COLORS, curves, ends, strict=False):
        points = " ".join(
            f"{x(n):.1f},{y(s):.1f}" for n, s in zip(scales, curve.seconds, strict=True)
        )
        shapes.append(
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>'
        )
        leader = f"M{right} {y(curve.seconds[-1]):.1f}L{right + 14} {end:.1f}"
        shapes.append(f'<path d="{leader}" stroke="{color}" fill="none"/>')
        shapes.append(
            f'<text x="{right + 18}" y="{end + 5:.1f}" fill="{color}">{curve.label}</text>'
        )
    return card(title, _WIDTH, _HEIGHT, shapes)


def _spread(heights: Sequence[float]) -> list[float]:
    """The heights in the same order, moved apart until a line of text fits between each two."""
    order = sorted(range(len(heights)), key=lambda at: heights[at])
    moved = list(heights)
    for above, below in itertools.pairwise(order):
        moved[below] = max(moved[below], moved[above] + _LINE)
    too_far = max(0.0, moved[order[-1]] - (_HEIGHT - 60))
    moved[order[-1]] -= too_far
    for below, above in zip(order[::-1], order[-2::-1], strict=False):
        moved[above] = min(moved[above], moved[below] - _LINE)
    return moved
