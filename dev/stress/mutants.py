"""Mutation tests: change the code in one place at a time and see whether a test fails.

mutmut's operators make the mutants; annotations and decorators are left alone. A hash of a seed and
the mutant's name chooses the sample of each package, so that most of it stays the same when the
code changes. A mutant is written to a copy of the repository. There the tests that reach it run,
the fastest first.
"""

import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import pytest

from dev.stress.table import Row, Table

ROOT = Path(__file__).parent.parent.parent
EQUAL = Path(__file__).with_name("equal.txt")
PACKAGES = ("core", "context", "content")
SEED = 25
_TESTS = ("tests/unit", "tests/cli", "tests/apis", "tests/process", "tests/properties")
_WORKERS = 2
_MAX_SECONDS = 120  # of tests for one mutant
_GOAL = 0.85
_TEST = "COVERAGE_TEST"  # variable with the name of the running test; support/home.py passes COVERAGE_* to processes
_RESULTS = ROOT / "build" / "mutants"  # a mutant that was killed once is not tested again
_TEXT = """\
This changes the code of three packages in one place at a time: it inverts a condition, raises a number, leaves out an
argument. Then the tests that reach this place run, for at most two minutes. If none of them fails, the change has
*survived*: wording, bounds, races and rare cases of merging an import. *Equal* changes do not alter the behaviour
(`dev/stress/equal.txt`). *Share* is the part of a random sample (seed {seed}) that was killed; the changes are those of
mutmut {version}."""


class Mutant(NamedTuple):
    """A change. ``name`` has the file, the function, the old and the new code; ``code`` is the changed file."""

    name: str
    path: str
    lines: range  # of the change
    around: range  # lines of the enclosing function or statement
    constant: str  # that the enclosing statement assigns, if there is no enclosing function
    node: Any
    new: Any
    module: Any

    @property
    def code(self) -> str:
        """The text of the file with the change."""
        return str(self.module.deep_replace(self.node, self.new).code)


def table(number: int) -> Table:
    """Test so many mutants of each package."""
    from importlib.metadata import version

    coverage = Coverage()
    equal = {line for line in EQUAL.read_text().splitlines() if line and not line.startswith("#")}
    rows = []
    for package in PACKAGES:
        mutants = [
            mutant
            for path in sorted((ROOT / "gptsh" / package).glob("*.py"))
            for mutant in mutants_of(path)
        ]
        sample = sorted(
            mutants, key=lambda mutant: hashlib.sha256(f"{SEED} {mutant.name}".encode()).digest()
        )[:number]
        survived = {mutant.name for mutant, killed in results_of(sample, coverage) if not killed}
        survived_equal = survived & equal
        share = 1 - len(survived) / len(sample)
        cells = (
            f"`{package}/`",
            len(mutants),
            len(sample),
            len(sample) - len(survived),
            len(survived_equal),
        )
        rows.append(Row((*cells, len(survived - equal), f"{share:.1%}"), share >= _GOAL))
        (_RESULTS / f"{package}.txt").write_text(
            "".join(f"{name}\n" for name in sorted(survived - equal))
        )
    heads = ("Package", "Mutants", "Sampled", "Killed", "Equal", "Survived", "Share")
    return Table(
        "Tests that miss a change",
        _TEXT.format(seed=SEED, version=version("mutmut")),
        heads,
        rows,
    )


# ---- mutants


class Place(NamedTuple):
    """Where a visitor is in a file."""

    function: str  # the enclosing class and function, "Class.method"
    around: range  # lines of the enclosing function or statement
    constant: str  # that the enclosing statement assigns, if there is no enclosing function


def mutants_of(path: Path) -> list[Mutant]:
    """All mutants of a file."""
    from libcst import parse_module
    from libcst.metadata import MetadataWrapper, PositionProvider

    wrapper = MetadataWrapper(parse_module(path.read_text()))
    finder = _Finder(
        path.relative_to(ROOT).as_posix(), wrapper.module, wrapper.resolve(PositionProvider)
    )
    finder.visit(wrapper.module, Place("", range(0), ""))
    return finder.mutants


class _Finder:
    """Visit the nodes of a module and collect their mutants."""

    def __init__(self, path: str, module: Any, positions: Any) -> None:
        self.mutants: list[Mutant] = []
        self._path = path
        self._module = module
        self._positions = positions
        self._counts: Counter[str] = Counter()  # of each name: the same change may occur twice

    def visit(self, node: Any, place: Place) -> None:
        """Add the mutants of a node and of all below it."""
        import libcst as cst

        if isinstance(node, cst.Annotation | cst.Decorator) or _is_ignored(node):
            return
        place = self._place_in(node, place)
        if node in self._positions:
            self._add_mutants(node, place)
        for child in node.children:
            self.visit(child, place)

    def _place_in(self, node: Any, place: Place) -> Place:
        import libcst as cst

        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            place = place._replace(function=f"{place.function}.{node.name.value}".strip("."))
        if isinstance(node, cst.FunctionDef):
            return place._replace(around=self._lines_of(node), constant="")
        if isinstance(node, cst.SimpleStatementLine) and not place.constant and not place.around:
            words = re.findall(r"\w+", self._code_of(node))
            return place._replace(around=self._lines_of(node), constant=words[0] if words else "")
        return place

    def _add_mutants(self, node: Any, place: Place) -> None:
        from mutmut.mutation.mutators import mutation_operators

        for node_type, operator in mutation_operators:
            if isinstance(node, node_type):
                for new in operator(node):
                    self._add(node, new, place)

    def _add(self, node: Any, new: Any, place: Place) -> None:
        change = f"{self._code_of(node)} -> {self._code_of(new)}"
        name = f"{self._path} {place.function or place.constant}: {change}"
        self._counts[name] += 1
        if self._counts[name] > 1:
            name += f" #{self._counts[name]}"
        mutant = Mutant(
            name,
            self._path,
            lines=self._lines_of(node),
            around=place.around,
            constant=place.constant,
            node=node,
            new=new,
            module=self._module,
        )
        self.mutants.append(mutant)

    def _code_of(self, node: Any) -> str:
        return " ".join(self._module.code_for_node(node).split())

    def _lines_of(self, node: Any) -> range:
        position = self._positions[node]
        return range(position.start.line, position.end.line + 1)


def _is_ignored(node: Any) -> bool:
    """Whether mutmut, too, leaves the node alone: a docstring, or a call of which any change would raise an error."""
    if type(node).__name__ == "Expr":
        return type(node.value).__name__ in ("SimpleString", "ConcatenatedString")
    return type(node).__name__ == "Call" and getattr(node.func, "value", "") in (
        "len",
        "isinstance",
    )


# ---- the tests that reach a place


class Coverage:
    """The tests that reach each line, and the duration of each test, from one run of the quick tests."""

    def __init__(self) -> None:
        from coverage import CoverageData

        data, times = _RESULTS / "coverage", _RESULTS / "times.xml"
        if not (data.exists() and times.exists()):
            _run_tests_with_coverage(data, times)
        self._data = CoverageData(str(data))
        self._data.read()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        for case in ElementTree.parse(times).iter("testcase"):
            if case.find("failure") is not None:  # it would kill every mutant that it reaches
                continue
            name = f"{case.get('classname')}.{case.get('name', '').partition('[')[0]}"
            self._seconds[name] += float(case.get("time") or 0)

    def tests(self, mutant: Mutant) -> list[str]:
        """The names of the tests for a mutant, the fastest first, up to two minutes.

        If coverage has no line of it (a constant, a default, the middle of a statement), the tests of the enclosing
        function or of all lines that name the constant.
        """
        names = (
            self._at(mutant.path, mutant.lines)
            if not mutant.constant
            else self._naming(mutant.constant)
        )
        names = names or self._at(mutant.path, mutant.around)
        chosen, total = [], 0.0
        for test in sorted(
            names & set(self._seconds), key=lambda name: (self._seconds[name], name)
        ):
            total += self._seconds[test]
            if total > _MAX_SECONDS:
                break
            chosen.append(test)
        return chosen

    @functools.cache  # noqa: B019 - there is only one instance
    def _lines(self, path: str) -> dict[int, list[str]]:
        return self._data.contexts_by_lineno(path)

    def _at(self, path: str, lines: range) -> set[str]:
        tests = self._lines(path)
        return {test for line in lines for test in tests.get(line, ()) if test}

    def _naming(self, constant: str) -> set[str]:
        pattern = re.compile(rf"\b{re.escape(constant)}\b")
        tests: set[str] = set()
        for path in (ROOT / "gptsh").rglob("*.py"):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if pattern.search(line):
                    tests |= self._at(path.relative_to(ROOT).as_posix(), range(number, number + 1))
        return tests


def _run_tests_with_coverage(data: Path, times: Path) -> None:
    shutil.rmtree(_RESULTS, ignore_errors=True)
    _RESULTS.mkdir(parents=True)
    config = _RESULTS / "coveragerc"
    config.write_text(
        f"[run]\nsource_pkgs = gptsh\ndata_file = {data}\nrelative_files = true\nparallel = true\npatch = _exit\n"
        f"dynamic_context = test_function\ncontext = ${{{_TEST}-}}\n[paths]\nsource = gptsh\n"
    )
    coverage = [sys.executable, "-m", "coverage"]
    pytest = [
        "-m",
        "pytest",
        "-pdev.stress.mutants",
        f"--junitxml={times}",
        "--timeout=300",
        *_TESTS,
    ]
    env = {**os.environ, "COVERAGE_PROCESS_START": str(config)}  # for the processes of the tests
    subprocess.run(
        [*coverage, "run", f"--rcfile={config}", *pytest], cwd=ROOT, env=env, check=False
    )
    subprocess.run([*coverage, "combine", "-q", f"--rcfile={config}"], cwd=ROOT, check=True)


# ---- testing a mutant


def results_of(sample: list[Mutant], coverage: Coverage) -> Iterator[tuple[Mutant, bool]]:
    """Each mutant, and whether a test failed."""
    record = _RESULTS / "killed.json"
    names: set[str] = set(json.loads(record.read_text())) if record.exists() else set()
    with (
        tempfile.TemporaryDirectory(prefix="gptsh-mutants-") as folder,
        ThreadPoolExecutor(_WORKERS) as pool,
    ):
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(_WORKERS):
            copy = Path(folder) / str(number)
            shutil.copytree(
                ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv*", "build", "__pycache__")
            )
            copies.put(copy)

        def attempt(mutant: Mutant) -> bool:
            if mutant.name in names:
                return True
            copy = copies.get()
            try:
                return _is_killed(mutant, coverage.tests(mutant), copy)
            finally:
                copies.put(copy)

        for mutant, killed in zip(sample, pool.map(attempt, sample), strict=True):
            names |= {mutant.name} if killed else set()
            record.write_text(json.dumps(sorted(names)))
            print("killed  " if killed else "SURVIVED", mutant.name, flush=True)
            yield mutant, killed


def _is_killed(mutant: Mutant, tests: list[str], copy: Path) -> bool:
    if not tests:
        return False
    (copy / mutant.path).write_text(mutant.code)
    chosen = copy / "chosen"
    chosen.write_text("\n".join(tests))
    files = sorted({f"{test.rpartition('.')[0].replace('.', '/')}.py" for test in tests})
    options = ["-x", "-q", "-n0", "-pno:cacheprovider", "-pdev.stress.mutants", f"--rootdir={copy}"]
    env = {**os.environ, "PYTHONPATH": str(copy), "MUTANT_TESTS": str(chosen)}
    command = [sys.executable, "-m", "pytest", *options, *files]
    with tempfile.TemporaryDirectory(prefix="gptsh-mutant-") as temporary:
        env["TMPDIR"] = temporary
        process = subprocess.Popen(
            command,
            cwd=copy,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(timeout=5 * _MAX_SECONDS) not in (
                0,
                pytest.ExitCode.NO_TESTS_COLLECTED,
            )
        except subprocess.TimeoutExpired:
            return True
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and the processes that the tests left
            process.wait()
            (copy / mutant.path).write_text(mutant.module.code)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Hook of pytest: for a mutant, run only its tests, in their order."""
    if "MUTANT_TESTS" not in os.environ:
        return
    order = {
        test: place
        for place, test in enumerate(Path(os.environ["MUTANT_TESTS"]).read_text().splitlines())
    }
    places = [order.get(_name(item), -1) for item in items]
    chosen = [(place, item) for place, item in zip(places, items, strict=True) if place >= 0]
    items[:] = [item for _, item in sorted(chosen, key=lambda pair: pair[0])]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Hook of pytest: name the running test, so that coverage of its processes counts for it."""
    os.environ[_TEST] = _name(item)


def _name(item: Any) -> str:
    return f"{item.module.__name__}.{item.originalname}"
