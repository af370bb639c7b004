"""``python -m dev.stress [PART ...]``: run the stress tests, print a table for each and update docs/reliability.md.

The exit code is 1 if a promise did not hold. ``--quick`` runs a tenth of the random tests and writes no page.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dev.stress import comparison, crowd, hostile, kills, mutants, scale, signals, streams
from dev.stress.table import Table, markdown, summary
from gptsh import __version__

PAGE = Path(__file__).parent.parent.parent / "docs" / "reliability.md"
_KILLS = 2000
# They need other packages and much time, so they must be named.
_ON_REQUEST = ("comparison", "mutants")
_OTHERS = ("Compared with other tools", "Tests that miss a change")  # sections without stress
_INTRO = """\
# Reliability

gptsh promises that no saved turn is lost, no file is torn, no partial answer is taken for a complete one, nothing
hangs, and time and memory stay within bounds. Stress tests tried to break that {summary}:

- **Killed** at [a random moment](#killed-at-a-random-moment) or before [any system
  call](#killed-at-each-system-call-of-a-save) of a save, gptsh has never lost a turn that had ended with exit 0, and
  has left no file that cannot be read.
- **On a [disk that fails](#a-disk-that-fails)** or a [store that disappears](#a-store-damaged-during-an-answer), you
  have the answer, or a line that says what went wrong. Exit 0 always means that the turn is on disk.
- **Cut at [any byte](#streams-that-break)** of its answer, a partial answer is never reported as complete, and what
  was shown is saved. The same is true of [Ctrl-C and other signals](#signals).
- **[64 runs at once](#many-at-once)** write to one session, and all their turns are there.
- **[Huge, broken and hostile input](#attacks)** ends a run by itself, without a traceback. [Escape
  sequences](#escapes-on-a-terminal) do not reach your terminal, and [keys](#keys) are in no output and no file.
- **With [100 times as many sessions](#the-number-of-sessions),** asking and showing take about twice as long. Lists,
  searches and the usage grow in proportion.
- **[Other tools](#compared-with-other-tools)** lost turns, questions or partial answers in the same comparison.

`make stress` repeats the tests on Linux, in half an hour on two cores, and writes this page. It needs `strace`. Models
are servers on the same machine. `make comparison` writes *Compared with other tools*, and `make mutants` writes *Tests
that miss a change*. If a row of a table has several names, its figures are those of each, from the least to the most.
The charts show seconds of a process, the minimum of 3 runs; *growth* is the exponent over the last factor of ten, where
0 is constant and 1 is linear.
"""


def parts(*, quick: bool) -> dict[str, Callable[[], Table]]:
    """The parts by name."""
    return {
        "kills": lambda: kills.at_random_moments(_KILLS // 10 if quick else _KILLS),
        "calls": kills.at_each_system_call,
        "disk": kills.disk_errors,
        "damage": crowd.store_damaged,
        "crowd": lambda: crowd.parallel_writers(64),
        "streams": lambda: streams.every_byte(10 if quick else 1),
        "signals": signals.at_each_stage,
        "attacks": hostile.attacks,
        "escapes": hostile.escapes,
        "keys": hostile.keys,
        "sessions": scale.many,
        "sizes": scale.large,
        "turns": scale.turns,
        "comparison": comparison.table,
        "mutants": lambda: mutants.table(20 if quick else 150),
    }


def _machine() -> str:
    system = f"{platform.system()} {platform.release().partition('-')[0]}"
    versions = f"gptsh {__version__}, Python {platform.python_version()}, {system}"
    return f"{time.strftime('%Y-%m-%d')}, {versions}, {os.cpu_count()} cores"


def _update_page(title: str, section: str) -> None:
    """Replace the section of the page that has this title, or append it."""
    _, *sections = PAGE.read_text().split("\n## ") if PAGE.exists() else [""]
    by_title = {text.partition("\n")[0]: text.rstrip("\n") for text in sections}
    by_title[title] = section.removeprefix("## ").rstrip("\n")
    stress = [text for title, text in by_title.items() if title not in _OTHERS]
    intro = _INTRO.format(summary=summary(stress))
    PAGE.write_text("\n## ".join([intro, *(f"{text}\n" for text in by_title.values())]))


def main() -> int:
    """Print the tables; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m dev.stress", description="Stress tests of gptsh."
    )
    parser.add_argument("parts", nargs="*", help=f"only these of {', '.join(parts(quick=False))}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the random tests")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    available = parts(quick=options.quick)
    if unknown := set(options.parts) - set(available):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    held = True
    for name in options.parts or (name for name in available if name not in _ON_REQUEST):
        started = time.monotonic()
        table = available[name]()
        held = held and all(row.held for row in table.rows)
        section = markdown(table, f"{_machine()}: {(time.monotonic() - started) / 60:.1f} minutes.")
        print(section, flush=True)
        if not options.quick:
            _update_page(table.title, section)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
