"""``python -m proof [PART ...]``: try the promises and print a table each; all of them write docs/reliability.md.

Exit 1 where a promise did not hold. ``--quick`` tries a tenth of what is tried by chance, to see that all parts run.
"""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gptsh import __version__
from proof import crowd, hostile, kills, scale, signals, streams
from proof.table import Table, markdown

PAGE = Path(__file__).parent.parent / "docs" / "reliability.md"
_KILLS = 2000
_INTRO = """\
# Reliability

What gptsh promises was tried until it should break. `make proof` repeats all of it on Linux, in half an hour on two
cores, and writes this page. It needs `strace`. Models are servers on this machine.

{machine}

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
    }


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
    tables, held = [], True
    for name in options.parts or known:
        started = time.monotonic()
        table = known[name]()
        held = held and all(row.held for row in table.rows)
        tables.append(markdown(table, time.monotonic() - started))
        print(tables[-1], flush=True)
    if not options.parts and not options.quick:
        machine = f"{time.strftime('%Y-%m-%d')}: gptsh {__version__}, Python {platform.python_version()}, "
        machine += f"{platform.system()} {platform.release()}, {os.cpu_count()} cores."
        PAGE.write_text(_INTRO.format(machine=machine) + "\n".join(tables))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
