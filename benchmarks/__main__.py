"""The budgets of gptsh, measured side by side in one run: ``python -m benchmarks``, or ``make bench``.

Each row runs a command and the floor (Python with click and platformdirs) in turn, A B A B, and compares medians, so
that a machine whose speed drifts does not decide. Times are wall time of fresh processes with warm caches; bytecode is
compiled first, as an installation by pip does. Exit 1 when a row misses its budget.
"""

import compileall
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.server import ModelServer

ROOT = Path(__file__).parent.parent
FLOOR = [sys.executable, "-c", "import click, platformdirs"]
GPTSH = [str(Path(sys.executable).parent / "gptsh")]
ROUNDS = 25


class Row(NamedTuple):
    """What is measured, and what it may cost: a factor of the floor, or seconds over it."""

    name: str
    measure: Callable[[], float]
    factor: float | None = None
    over: float | None = None


class Home(NamedTuple):
    """A user's home for one kind of row."""

    folder: Path
    env: dict[str, str]

    @property
    def sessions(self) -> Path:
        return self.folder / "state" / "gptsh" / "sessions"


@contextmanager
def homes() -> Iterator[Callable[[str, str], Home]]:
    """A maker of homes that are gone at the end."""
    with tempfile.TemporaryDirectory() as top:

        def make(name: str, config: str) -> Home:
            folder = Path(top) / name
            (folder / "config" / "gptsh").mkdir(parents=True)
            (folder / "config" / "gptsh" / "config.toml").write_text(config)
            env = {
                "PATH": os.environ["PATH"],
                "HOME": str(folder),
                "XDG_STATE_HOME": str(folder / "state"),
                "XDG_CONFIG_HOME": str(folder / "config"),
            }
            return Home(folder, env)

        yield make


def whole(command: list[str], env: dict[str, str] | None = None) -> float:
    """Seconds of a whole run, its output thrown away."""
    started = time.perf_counter()
    subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def first_byte(command: list[str], env: dict[str, str]) -> float:
    """Seconds from the start of the process to the first byte on its stdout."""
    started = time.perf_counter()
    with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout
        os.read(process.stdout.fileno(), 1)
        took = time.perf_counter() - started
        process.stdout.read()
    assert process.returncode == 0
    return took


def fill(home: Home, count: int) -> None:
    """Sessions of a usual size, one a second."""
    whole([*GPTSH, "-m", "echo", "--title", "A Session Like Any Other", "what is it " * 40], home.env)
    (first,) = home.sessions.iterdir()
    doc = json.loads(first.read_bytes())
    for number in range(count - 1):
        stamp = time.gmtime(1_500_000_000 + number)
        ident = f"{number // 1296 % 36 + 10:x}"[-1] + f"{number % 1296:03x}"
        doc["id"] = ident
        doc["created_at"] = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", stamp)
        name = f"{time.strftime('%Y%m%d-%H%M%S', stamp)}-{ident}.json"
        (home.sessions / name).write_text(json.dumps(doc, separators=(",", ":")))


def rows(make: Callable[[str, str], Home], server: ModelServer) -> list[Row]:
    """The rows, their homes made and filled."""
    lab = f'[agents.default]\nmodel = "lab/m"\n[providers.lab]\nbase_url = "{server.base_url}"\n'
    usual = make("usual", lab + '[sessions]\ntitles = "off"\n')
    fill(usual, 20)
    many, most = make("many", ""), make("most", "")
    fill(many, 10_000)
    fill(most, 100_000)
    show = [*GPTSH, "--show-session", "0"]
    return [
        Row("--help", lambda: whole([*GPTSH, "--help"], usual.env), factor=1.5),
        Row("--list-sessions", lambda: whole([*GPTSH, "--list-sessions"], usual.env), factor=1.5),
        Row("-s REF resolution", lambda: whole(show, usual.env), factor=1.5),
        Row("first answer byte, direct", lambda: first_byte([*GPTSH, "hello"], usual.env), factor=2.5),
        Row("list 10,000 sessions", lambda: whole([*GPTSH, "--list-sessions"], many.env), over=0.25),
        Row("its first line", lambda: first_byte([*GPTSH, "--list-sessions"], many.env), over=0.02),
        Row("resolve 0 among 100,000", lambda: whole(show, most.env), over=0.15),
    ]


def measure(row: Row) -> bool:
    """Print one row; whether it holds."""
    row.measure()
    floors, times = [], []
    for _ in range(ROUNDS):
        floors.append(whole(FLOOR))
        times.append(row.measure())
    floor, median = statistics.median(floors), statistics.median(times)
    ratio, over = median / floor, median - floor
    holds = ratio <= row.factor if row.factor is not None else over <= (row.over or 0)
    budget = f"<= {row.factor:g} x" if row.factor is not None else f"<= +{row.over:g} s"
    figures = f"{min(times):.3f} | {median:.3f} | {max(times):.3f} | {floor:.3f} | {ratio:.2f} x | {over:+.3f} s"
    print(f"| {row.name} | {figures} | {budget} | {'yes' if holds else 'NO'} |", flush=True)
    return holds


def main() -> int:
    """Print the table; the exit code."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(ROOT / "gptsh", quiet=1)
    server = ModelServer()
    print(
        f"Python {platform.python_version()}, {platform.system()}, {os.cpu_count()} cores, {ROUNDS} rounds; seconds\n"
    )
    print("| work | min | median | max | floor | ratio | over | budget | holds |")
    print("|---|---|---|---|---|---|---|---|---|")
    with homes() as make:
        held = [measure(row) for row in rows(make, server)]
    server.close()
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
