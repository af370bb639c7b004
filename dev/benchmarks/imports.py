"""Print the modules that a start imports: ``python -m dev.benchmarks.imports``, measured by ``-X importtime``."""

import re
import subprocess
import sys
from collections import Counter
from typing import NamedTuple

from dev.benchmarks.homes import Lab, lab

_LINE = re.compile(r"import time: +(\d+) \| +\d+ \| *(\S+)")  # microseconds of the module itself
_ROUNDS = 9


class Imports(NamedTuple):
    """By top-level package: the number of modules that one start imports, and their own microseconds."""

    modules: Counter[str]
    times: Counter[str]


def imports_of(args: list[str], place: Lab) -> Imports:
    """The imports of the fastest of several starts."""
    starts = []
    for _ in range(_ROUNDS):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "gptsh", *args],
            env=place.direct.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
        )  # fmt: skip
        start = Imports(Counter(), Counter())
        for microseconds, module in _LINE.findall(done.stderr):
            package = module.partition(".")[0]
            package = "Python itself" if package in sys.stdlib_module_names else package
            start.modules[package] += 1
            start.times[package] += int(microseconds)
        starts.append(start)
    return min(starts, key=lambda start: start.times.total())


def main() -> None:
    """Print the table."""
    print("| start | modules | ms | of these |\n|---|---|---|---|")
    with lab() as place:
        for name, args in {
            "-h": ["-h"],
            "--list-sessions": ["--list-sessions"],
            "a prompt": ["what is it"],
        }.items():
            start = imports_of(args, place)
            total = start.times.total()
            shares = [
                f"{p} {start.modules[p]}, {t / total:.0%}"
                for p, t in start.times.most_common()
                if t > total / 50
            ]
            print(
                f"| {name} | {start.modules.total()} | {total / 1000:.1f} | {'; '.join(shares)} |"
            )


if __name__ == "__main__":
    main()
