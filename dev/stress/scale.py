"""How the run time of each command grows with the number and the size of sessions; the curves as SVG."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dev.benchmarks.clocks import run_time
from dev.benchmarks.homes import Home, add_long_session, add_sessions, lab
from dev.stress.table import Row, Table
from tests.support.home import COMMAND

DOCS = Path(__file__).parent.parent.parent / "docs"
_COUNTS = (1_000, 10_000, 100_000)
_SIZES = (1_000_000, 10_000_000, 100_000_000)
_TURNS = (100, 1_000, 10_000)
_ROUNDS = 3
_COLORS = ("#1b6ca8", "#b8336a", "#2e7d32", "#b26a00", "#5e35b1", "#37474f")
_WIDTH, _HEIGHT, _LEFT, _TOP = 640, 320, 60, 20


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


STORE_CURVES = (
    Curve("a list", ("--list-sessions",), 1.15),
    Curve("a search that finds all", ("--search-sessions", "what"), 1.15),
    Curve("a sum", ("--usage",), 1.15),
    Curve("a session shown", ("--show-session", "0"), 0.6),
    Curve("a question to an old session", ("-m", "echo", "-s", "0", "hi"), 0.6),
    Curve("a question to a new session", ("-m", "echo", "hi"), 0.6),
)
SESSION_CURVES = (
    Curve("a list", ("--list-sessions",), 0.3),
    Curve("a session shown", ("--show-session", "0"), 1.15),
    Curve("a session exported", ("--export-session", "0"), 1.15),
    Curve("a question", ("-m", "echo", "-s", "0", "hi"), 1.15),
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
    title: str, unit: str, scales: Sequence[int], curves: Sequence[Curve], fill: Callable[[Home, int], Home]
) -> Table:
    times = [list[float]() for _ in curves]
    with lab() as place:
        for scale in scales:
            home = fill(place.home(), scale)
            for curve, seconds in zip(curves, times, strict=True):
                seconds.append(min(run_time([*COMMAND, *curve.args], home.env) for _ in range(_ROUNDS)))
    measured = [curve._replace(seconds=seconds) for curve, seconds in zip(curves, times, strict=True)]
    name = f"scale-{unit}.svg"
    (DOCS / name).write_text(_svg(unit, scales, measured))
    text = f"Seconds of a process, the minimum of {_ROUNDS}. *Growth* is the exponent over the last factor of ten: "
    text += f"0 is constant, 1 is linear.\n\n![Seconds by the number of {unit}]({name})\n\n"
    rows = [
        Row((c.name, *(f"{s:.2f}" for s in c.seconds), f"{c.growth:.2f}", f"{c.allowed:.2f}"), c.growth <= c.allowed)
        for c in measured
    ]
    return Table(title, text, ("Command", *(f"{scale:,}" for scale in scales), "Growth", "At most"), rows)


def _svg(unit: str, scales: Sequence[int], curves: Sequence[Curve]) -> str:
    """Both axes are logarithmic, so that linear growth is a straight line."""
    times = [second for curve in curves for second in curve.seconds]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))

    def x(scale: float) -> float:
        first, last = math.log10(scales[0]), math.log10(scales[-1])
        return _LEFT + (_WIDTH - _LEFT - 230) * (math.log10(scale) - first) / (last - first)

    def y(second: float) -> float:
        return _TOP + (_HEIGHT - _TOP - 40) * (high - math.log10(second)) / (high - low)

    shapes = [f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>']
    for power in range(low, high + 1):
        at = y(10.0**power)
        shapes.append(f'<path d="M{_LEFT} {at:.0f}H{_WIDTH - 230}" stroke="#ddd"/>')
        shapes.append(f'<text x="{_LEFT - 6}" y="{at + 4:.0f}" text-anchor="end">{10.0**power:g} s</text>')
    for scale in scales:
        shapes.append(f'<text x="{x(scale):.0f}" y="{_HEIGHT - 20}" text-anchor="middle">{scale:,}</text>')
    shapes.append(f'<text x="{_LEFT}" y="{_HEIGHT - 4}">{unit}</text>')
    for number, (color, curve) in enumerate(zip(_COLORS, curves, strict=False)):
        points = " ".join(f"{x(n):.1f},{y(s):.1f}" for n, s in zip(scales, curve.seconds, strict=True))
        shapes.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        label = f"{curve.name}: n^{curve.growth:.2f}"
        shapes.append(f'<text x="{_WIDTH - 222}" y="{_TOP + 14 + 18 * number}" fill="{color}">{label}</text>')
    inner = "\n".join(shapes)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif"'
    return f'{head} font-size="12">\n{inner}\n</svg>\n'
