"""The budgets of gptsh, measured side by side in one run: ``python -m dev.benchmarks``, or ``make bench``.

Rounds of a row and of its yardstick alternate, and their medians are compared, so that a drift of the machine's speed
affects both. A budget in seconds is scaled by the machine's own floor. Times are wall time of new processes with warm
caches. Bytecode is compiled first, as pip does. The exit code is 1 if a row misses its budget.
``python -m dev.benchmarks litellm list`` measures only the rows with one of these words in their names.
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

from dev.benchmarks.clocks import MeasurementError
from dev.benchmarks.homes import Lab, lab
from dev.benchmarks.rows import ROWS, Row

ROOT = Path(__file__).parent.parent.parent


def measure(row: Row, lab: Lab, rounds: int) -> bool:
    """Print one row; return whether it keeps its budget."""
    figures, yardsticks = [], []
    try:
        row.measure(lab)  # creates its home and warms the caches
        row.yardstick.measure(lab)
        for _ in range(rounds):
            yardsticks.append(row.yardstick.measure(lab))
            figures.append(row.measure(lab))
    except (MeasurementError, OSError) as failure:
        reason = str(failure).replace("|", "/")[:200]
        print(f"| {row.name} | | | | | | | {row.budget.text} | NO: {reason} |", flush=True)
        return False
    median, yardstick = statistics.median(figures), statistics.median(yardsticks)
    budget = row.budget
    figure = budget.figure(median, yardstick)
    holds = figure <= budget.limit
    cells = [f"{figure:.{row.digits}f}" for figure in (min(figures), median, max(figures))]
    cells += [
        f"{row.yardstick.name} {yardstick:.{row.digits}f}",
        budget.form.format(figure),
        budget.text,
    ]
    print(
        f"| {row.name} | {row.unit} | {' | '.join(cells)} | {'yes' if holds else 'NO'} |",
        flush=True,
    )
    return holds


def describe(chosen: list[Row]) -> None:
    """Print the head of the table: the machine, the versions, the yardsticks and the column titles."""
    print(
        f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {platform.system()}, ",
        end="",
    )
    print(f"{os.cpu_count()} cores, litellm {_version('litellm')}, llm {_version('llm')}\n")
    for yardstick in dict.fromkeys(row.yardstick for row in chosen):
        print(f"- {yardstick.name}: {yardstick.what}")
    print("\n| work | unit | min | median | max | yardstick | figure | budget | holds |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def choose(words: list[str]) -> list[Row]:
    """The rows whose name contains one of the words; without words, all rows."""
    return [row for row in ROWS if not words or any(word in row.name for word in words)]


def main() -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m dev.benchmarks", description="Measure the budgets of gptsh."
    )
    parser.add_argument(
        "words", nargs="*", help="only the rows with one of these words in their names"
    )
    parser.add_argument("--rounds", type=int, help="rounds of every row")
    options = parser.parse_args()
    chosen = choose(options.words)
    if not chosen:
        parser.error(f"no such row: there are {', '.join(row.name for row in ROWS)}")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(ROOT / "gptsh", quiet=1)
    describe(chosen)
    with lab() as place:
        results = [measure(row, place, options.rounds or row.rounds) for row in chosen]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
