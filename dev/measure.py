"""Measure the code as its maintainers judge it: ``python -m dev.measure``, or ``make measure``.

The table has the size of gptsh in syntax nodes, which formatting cannot change, how dense its lines
are, which functions a run calls, what each kind of run loads, and the processor time of imports.

    python -m dev.measure > before.md
    python -m dev.measure --against before.md  # the figures before and now
    python -m dev.measure --package ../other   # the gptsh of another checkout
    python -m dev.measure --functions          # the functions that `gptsh hi` calls
    python -m dev.measure --loads              # writes tests/data/loads.txt
"""

import argparse
import ast
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from dev.benchmarks.rows import FLOOR_COMMAND
from tests.support.home import Home, lab_config
from tests.support.modules import KINDS, TABLE, Run, as_table, loads_of, observe, run_of
from tests.support.paths import ROOT
from tests.support.server import ModelServer

Figures = dict[str, str]
ROUNDS = 15
_ANY = re.compile(r"\bAny\b")
_IMPORT = "import sys\nfor name in sys.argv[1:]: __import__(name)"


class SourceFile(NamedTuple):
    """A file of the package."""

    folder: str
    lines: list[str]
    syntax: list[ast.AST]


def read_package(folder: Path) -> dict[str, SourceFile]:
    """The files of the package gptsh in a folder, by the names of their modules."""
    files = {}
    for path in sorted((folder / "gptsh").rglob("*.py")):
        inside = path.relative_to(folder)
        module = ".".join(inside.with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text()
        syntax = [*ast.walk(ast.parse(text))]
        files[module] = SourceFile(str(inside.parent), lines=text.splitlines(), syntax=syntax)
    return files


def own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement, without those of the statements in it."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                waiting.append(child)


def is_dense(statement: ast.stmt) -> bool:
    """Whether a statement is more than one thought.

    It assigns several values, or its expressions have two of ``for`` and ``if … else``. The filter
    of a comprehension does not count.
    """
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Tuple):
        return isinstance(statement.targets[0], ast.Tuple)
    loops_and_choices = ast.comprehension | ast.IfExp
    return sum(isinstance(node, loops_and_choices) for node in own_nodes(statement)) > 1


def measure_code(files: Mapping[str, SourceFile]) -> Figures:
    """The size of the package and of its folders, and how dense its lines are."""
    nodes: Counter[str] = Counter()
    for file in files.values():
        nodes[file.folder] += len(file.syntax)
    lines = list(chain.from_iterable(file.lines for file in files.values()))
    wide = sum(len(line) > 100 for line in lines)
    syntax = chain.from_iterable(file.syntax for file in files.values())
    dense = sum(isinstance(node, ast.stmt) and is_dense(node) for node in syntax)
    figures = {
        "syntax nodes": f"{nodes.total():,}",
        "files": f"{len(files):,}",
        "lines": f"{len(lines):,}",
        "nodes a line": f"{nodes.total() / len(lines):.1f}",
        "lines over 100 columns, %": f"{100 * wide / len(lines):.1f}",
        "uses of Any": f"{sum(len(_ANY.findall(line)) for line in lines):,}",
        "dense statements": f"{dense:,}",
    }
    for folder, count in sorted(nodes.items()):
        figures[f"nodes in {folder}/*.py"] = f"{count:,}"
    return figures


@contextmanager
def new_home(folder: Path) -> Iterator[tuple[Home, ModelServer]]:
    """A home whose runs use the gptsh in this folder, and the server of its model."""
    # A process in the background, for a title, may still write to the folder that is removed.
    place = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with closing(ModelServer()) as server, place:
        home = Home(Path(place.name))
        home.env["PYTHONPATH"] = str(folder)
        home.configure(lab_config(server))
        yield home, server


def called_functions(folder: Path, args: str) -> list[str]:
    """The functions that a run with these arguments calls. Titles are on, as by default."""
    with new_home(folder) as (home, server):
        home.configure(lab_config(server, more=""))
        if args != "hi":  # a session with a title, so that none is asked for meanwhile
            observe(home, "--title", "Greeting", "hello")
        return observe(home, *args.split(), functions=True).functions


def measure_functions(folder: Path) -> Figures:
    """How many functions each of three runs calls, and in how many files."""
    figures = {}
    for args in ("hi", "-s 0 again", "--list-sessions"):
        functions = called_functions(folder, args)
        files = {function.partition(":")[0] for function in functions}
        figures[f"functions of `gptsh {args}`"] = f"{len(functions):,}"
        figures[f"files of `gptsh {args}`"] = f"{len(files):,}"
    return figures


def runs_of_each_kind(folder: Path) -> dict[str, Run]:
    """What each kind of run does, in a home of its own."""
    runs = {}
    for kind in KINDS:
        with new_home(folder) as (home, server):
            runs[kind] = run_of(kind, home, server)
    return runs


def measure_loads(runs: Mapping[str, Run], files: Mapping[str, SourceFile]) -> Figures:
    """How many files of the package each kind of run loads, and how many syntax nodes they have."""
    figures = {}
    for kind, run in runs.items():
        loaded = [files[module] for module in run.modules if module in files]
        figures[f"files loaded by {kind}"] = f"{len(loaded):,}"
        figures[f"nodes loaded by {kind}"] = f"{sum(len(file.syntax) for file in loaded):,}"
    return figures


def children_seconds() -> float:
    """Seconds of processor time of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure_imports(folder: Path, runs: Mapping[str, Run]) -> Figures:
    """Seconds of processor time of what three kinds of run import, beside the floor.

    They are the minimum of several rounds; a difference of less than 5 ms means nothing.
    """
    commands: dict[str, tuple[str, ...]] = {"the floor": FLOOR_COMMAND}
    for kind in ("help", "list", "question"):
        commands[kind] = (sys.executable, "-c", _IMPORT, *runs[kind].modules)
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    with new_home(folder) as (home, _):
        for _ in range(ROUNDS):
            for name, command in commands.items():
                before = children_seconds()
                subprocess.run(command, env=home.env, cwd=home.cwd, check=True)
                seconds[name].append(children_seconds() - before)
    return {f"CPU seconds, imports of {name}": f"{min(seconds[name]):.3f}" for name in commands}


def measure_suite(folder: Path) -> Figures:
    """Seconds of the quick suite; its own output goes to stderr."""
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q"]
    done = subprocess.run(command, cwd=folder, stdout=sys.stderr, check=False)
    failed = ", failed" if done.returncode else ""
    return {"seconds of the quick suite": f"{time.monotonic() - started:.0f}{failed}"}


def read_figures(path: Path) -> Figures:
    """The figures that an earlier run printed; of two columns of figures, the last."""
    rows = [line[2:-2].split(" | ") for line in path.read_text().splitlines()[2:]]
    return {row[0]: row[-1] for row in rows}


def print_table(figures: Figures, before: Figures | None) -> None:
    """Print the figures, and beside them those of before."""
    if before is None:
        print("| what | figure |\n|---|---:|")
    else:
        print("| what | before | now |\n|---|---:|---:|")
    for name in {**(before or {}), **figures}:
        earlier = [] if before is None else [before.get(name, "")]
        print(f"| {' | '.join([name, *earlier, figures.get(name, '')])} |")


def main() -> None:
    """Print what the command line asks for."""
    about = "Measure the code of gptsh."
    parser = argparse.ArgumentParser(prog="python -m dev.measure", description=about)
    add = parser.add_argument
    add("--against", type=Path, metavar="FILE", help="print these earlier figures, too")
    add("--package", type=Path, metavar="FOLDER", help="where gptsh/ is", default=ROOT)
    add("--suite", action="store_true", help="time the quick suite, too: it takes minutes")
    add("--functions", action="store_true", help="print the functions that `gptsh hi` calls")
    add("--loads", action="store_true", help="write tests/data/loads.txt")
    options = parser.parse_args()
    folder = options.package.resolve()
    if options.loads:
        loads = {kind: loads_of(run) for kind, run in runs_of_each_kind(ROOT).items()}
        TABLE.write_text(as_table(loads))
        return None
    if options.functions:
        return print("\n".join(called_functions(folder, "hi")))
    before = options.against and read_figures(options.against)
    files = read_package(folder)
    runs = runs_of_each_kind(folder)
    figures = measure_code(files) | measure_functions(folder) | measure_loads(runs, files)
    figures |= measure_imports(folder, runs)
    if options.suite:
        figures |= measure_suite(folder)
    return print_table(figures, before)


if __name__ == "__main__":
    main()
