"""``python -m proof [PART ...]``: try the promises, print a table each, and put it into docs/reliability.md.

Exit 1 where a promise did not hold. ``--quick`` tries a tenth of what is tried by chance, and writes no page.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gptsh import __version__
from proof import crowd, hostile, kills, mutants, peers, scale, signals, streams
from proof.table import Table, markdown

PAGE = Path(__file__).parent.parent / "docs" / "reliability.md"
_KILLS = 2000
_NAMED = ("peers", "mutants")  # they take other packages and their time: only where they are named
_INTRO = """\
# Reliability

What gptsh promises was tried until it should break. `make proof` repeats it on Linux, in half an hour on two cores, and
writes this page. It needs `strace`. Models are servers on the same machine. *Beside other tools* is made by
`make peers`, and *Tests that miss a change* by `make mutants`.
"""


def parts(*, quick: bool) -> dict[str, Callable[[], Table]]:
    """What can be tried, by name."""
    return {
        "kills": lambda: kills.at_random(_KILLS // 10 if quick else _KILLS),
        "calls": kills.at_each_call,
        "disk": kills.refused,
        "vanished": crowd.vanished,
        "crowd": lambda: crowd.at_once(64),
        "streams": lambda: streams.every_byte(10 if quick else 1),
        "signals": signals.each,
        "hurtful": hostile.bounded,
        "escapes": hostile.escapes,
        "keys": hostile.keys,
        "sessions": scale.many,
        "sizes": scale.large,
        "turns": scale.turns,
        "peers": peers.beside,
        "mutants": lambda: mutants.table(20 if quick else 150),
    }


def _machine() -> str:
    system = f"{platform.system()} {platform.release().partition('-')[0]}"
    made = f"gptsh {__version__}, Python {platform.python_version()}, {system}"
    return f"{time.strftime('%Y-%m-%d')}, {made}, {os.cpu_count()} cores"


def _keep(title: str, section: str) -> None:
    """Put a section into the page in the place of the one of its title, else at the end."""
    page = PAGE.read_text() if PAGE.exists() else _INTRO
    _, *sections = page.split("\n## ")
    by_title = {one.partition("\n")[0]: one.rstrip("\n") for one in sections}
    by_title[title] = section.removeprefix("## ").rstrip("\n")
    PAGE.write_text("\n## ".join([_INTRO, *(f"{one}\n" for one in by_title.values())]))


def main() -> int:
    """Print the tables; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m proof", description="Try the promises of gptsh.")
    parser.add_argument("parts", nargs="*", help=f"only these of {', '.join(parts(quick=False))}")
    parser.add_argument("--quick", action="store_true", help="a tenth of what is tried by chance")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    known = parts(quick=options.quick)
    if unknown := set(options.parts) - set(known):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    held = True
    for name in options.parts or (name for name in known if name not in _NAMED):
        started = time.monotonic()
        table = known[name]()
        held = held and all(row.held for row in table.rows)
        section = markdown(table, f"{_machine()}: {(time.monotonic() - started) / 60:.1f} minutes.")
        print(section, flush=True)
        if not options.quick:
            _keep(table.title, section)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
