"""The budgets of gptsh, measured side by side in one run: ``python -m benchmarks``, or ``make bench``.

Each row is measured in turn with its yardstick, A B A B, and medians are compared, so that a machine whose speed drifts
does not decide. Times are wall time of fresh processes with warm caches; bytecode is compiled first, as an installation
by pip does. Exit 1 when a row misses its budget. ``python -m benchmarks litellm list`` measures the rows with one of
these words in their names.
"""

import argparse
import compileall
import os
import platform
import statistics
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.clocks import Failed
from benchmarks.homes import Lab, lab
from benchmarks.rows import ROWS, Row

ROOT = Path(__file__).parent.parent


def measure(row: Row, lab: Lab, rounds: int) -> bool:
    """Print one row; whether it holds."""
    taken, yardsticks = [], []
    try:
        row.measure(lab)  # makes what it works on, and warms the caches
        row.yardstick.measure(lab)
        for _ in range(rounds):
            yardsticks.append(row.yardstick.measure(lab))
            taken.append(row.measure(lab))
    except (Failed, OSError) as failure:
        word = str(failure).replace("|", "/")[:200]
        print(f"| {row.name} | | | | | | | | {row.budget.text} | NO: {word} |", flush=True)
        return False
    median, yardstick = statistics.median(taken), statistics.median(yardsticks)
    holds = row.budget.holds(median, yardstick)
    figures = [f"{figure:.{row.digits}f}" for figure in (min(taken), median, max(taken))]
    figures.append(f"{row.yardstick.name} {yardstick:.{row.digits}f}")
    figures += [f"{median / yardstick:.2f} x", f"{median - yardstick:+.{row.digits}f}"]
    print(f"| {' | '.join([row.name, row.unit, *figures, row.budget.text])} | {'yes' if holds else 'NO'} |", flush=True)
    return holds


def describe(chosen: list[Row]) -> None:
    """What stands above the rows: the machine, the versions, the yardsticks, the head of the table."""
    print(f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {platform.system()}, ", end="")
    print(f"{os.cpu_count()} cores, litellm {_version('litellm')}, llm {_version('llm')}\n")
    for yardstick in dict.fromkeys(row.yardstick for row in chosen):
        print(f"- {yardstick.name}: {yardstick.what}")
    print("\n| work | unit | min | median | max | yardstick | ratio | over | budget | holds |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def choose(words: list[str]) -> list[Row]:
    """The rows whose name has one of the words; all without words."""
    return [row for row in ROWS if not words or any(word in row.name for word in words)]


def main() -> int:
    """Print the table; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the budgets of gptsh.")
    parser.add_argument("words", nargs="*", help="only the rows with one of these words in their names")
    parser.add_argument("--rounds", type=int, help="this many rounds of every row")
    options = parser.parse_args()
    chosen = choose(options.words)
    if not chosen:
        parser.error(f"no such row: there are {', '.join(row.name for row in ROWS)}")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(ROOT / "gptsh", quiet=1)
    describe(chosen)
    with lab() as place:
        held = [measure(row, place, options.rounds or row.rounds) for row in chosen]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
