"""Change the code in one place at a time, and see whether a test fails: what no test would miss.

The places and changes are those of mutmut's operators, but for annotations and decorators. Of all mutants of a room so
many are tried, chosen by a seed and by what they say, so that most of a sample outlives a change of the code. A mutant
is written into a copy of the repository, where the tests run that reach it, the fastest first.
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

from proof.table import Row, Table

ROOT = Path(__file__).parent.parent
EQUAL = Path(__file__).with_name("equal.txt")
ROOMS = ("core", "context", "content")
SEED = 25
_TESTS = ("tests/unit", "tests/cli", "tests/wires", "tests/process", "tests/properties")
_WORKERS = 2
_MOST = 120  # seconds of tests for one mutant
_GOAL = 0.85
_TEST = "COVERAGE_TEST"  # in the environment, the test that runs; support/home.py hands COVERAGE_ on to processes
_KEPT = ROOT / "build" / "mutants"  # what was found out; what was killed once is not tried again
_TEXT = """\
The code of three rooms is changed in one place at a time: a condition turned, a number raised, an argument left out.
Then the tests run that reach that place, the fastest first, for two minutes at most. A change that makes none of them
fail has *survived*. Each survivor was read once: most became a test, some a line less. *Equal* are those that nobody
could tell from the code as it is; `proof/equal.txt` has them. What is left no test holds yet: words, bounds, races, and
corners of how an import is joined. *Share* is killed of sampled, the equal ones included. The sample is one of chance
(seed {seed}), the changes are those of mutmut {version}."""


class Mutant(NamedTuple):
    """A change: its ``name`` says file, function and what becomes what; ``code`` is that of the whole file."""

    name: str
    path: str
    lines: range  # where it stands
    around: range  # the function or statement around it
    constant: str  # assigned there, where it stands in no function
    node: Any
    new: Any
    module: Any

    @property
    def code(self) -> str:
        """The file with the change."""
        return str(self.module.deep_replace(self.node, self.new).code)


def table(number: int) -> Table:
    """What became of so many mutants of each room."""
    from importlib.metadata import version  # noqa: PLC0415 - mutmut is for this alone

    reached = Reached()
    equal = {line for line in EQUAL.read_text().splitlines() if line and not line.startswith("#")}
    rows = []
    for room in ROOMS:
        mutants = [mutant for path in sorted((ROOT / "gptsh" / room).glob("*.py")) for mutant in mutants_of(path)]
        sample = sorted(mutants, key=lambda one: hashlib.sha256(f"{SEED} {one.name}".encode()).digest())[:number]
        survived = {mutant.name for mutant, killed in tried(sample, reached) if not killed}
        alike = survived & equal
        share = 1 - len(survived) / len(sample)
        cells = (f"`{room}/`", len(mutants), len(sample), len(sample) - len(survived), len(alike))
        rows.append(Row((*cells, len(survived - alike), f"{share:.1%}"), share >= _GOAL))
        (_KEPT / f"{room}.txt").write_text("".join(f"{name}\n" for name in sorted(survived - alike)))
    heads = ("Room", "Mutants", "Sampled", "Killed", "Equal", "Survived", "Share")
    return Table("Tests that miss a change", _TEXT.format(seed=SEED, version=version("mutmut")), heads, rows)


# ---- mutants


def mutants_of(path: Path) -> list[Mutant]:
    """All mutants of a file."""
    import libcst as cst  # noqa: PLC0415 - it comes with mutmut, which is for this alone
    from libcst.metadata import MetadataWrapper, PositionProvider  # noqa: PLC0415 - as above
    from mutmut.mutation.mutators import mutation_operators  # noqa: PLC0415 - as above

    wrapper = MetadataWrapper(cst.parse_module(path.read_text()))
    module, places = wrapper.module, wrapper.resolve(PositionProvider)
    name = path.relative_to(ROOT).as_posix()
    found: list[Mutant] = []
    seen: Counter[str] = Counter()

    def words(node: cst.CSTNode) -> str:
        return " ".join(module.code_for_node(node).split())

    def span(node: cst.CSTNode) -> range:
        return range(places[node].start.line, places[node].end.line + 1)

    def visit(node: cst.CSTNode, inside: str, around: range, constant: str) -> None:
        if isinstance(node, cst.Annotation | cst.Decorator) or _says_little(node):
            return
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            inside = f"{inside}.{node.name.value}".strip(".")
        if isinstance(node, cst.FunctionDef):
            around, constant = span(node), ""
        elif isinstance(node, cst.SimpleStatementLine) and not constant and not around:
            around, constant = span(node), next(iter(re.findall(r"\w+", words(node))), "")
        for kind, operator in mutation_operators:
            for new in operator(node) if isinstance(node, kind) and node in places else ():
                said = f"{name} {inside or constant}: {words(node)} -> {words(new)}"
                seen[said] += 1
                said += f" #{seen[said]}" if seen[said] > 1 else ""
                found.append(Mutant(said, name, span(node), around, constant, node, new, module))
        for child in node.children:
            visit(child, inside, around, constant)

    visit(module, "", range(0), "")
    return found


def _says_little(node: Any) -> bool:
    """What mutmut leaves alone, too: a docstring, and a call that can hardly be changed but to one that fails."""
    if type(node).__name__ == "Expr":
        return type(node.value).__name__ in ("SimpleString", "ConcatenatedString")
    return type(node).__name__ == "Call" and getattr(node.func, "value", "") in ("len", "isinstance")


# ---- the tests that reach a place


class Reached:
    """Which tests reach which lines, and how long each takes: one run of the quick tests tells it."""

    def __init__(self) -> None:
        from coverage import CoverageData  # noqa: PLC0415 - as a test needs it

        data, times = _KEPT / "coverage", _KEPT / "times.xml"
        if not (data.exists() and times.exists()):
            _measured(data, times)
        self._data = CoverageData(str(data))
        self._data.read()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        for case in ElementTree.parse(times).iter("testcase"):
            if case.find("failure") is not None:  # it would kill whatever it reaches
                continue
            name = f"{case.get('classname')}.{case.get('name', '').partition('[')[0]}"
            self._seconds[name] += float(case.get("time") or 0)

    def tests(self, mutant: Mutant) -> list[str]:
        """The names of the tests for a mutant, the fastest first, as far as two minutes go.

        Where no line of it counts as run (a constant, a default, the middle of a statement), those of the function
        around it, or of all lines that name the constant.
        """
        found = self._at(mutant.path, mutant.lines) if not mutant.constant else self._naming(mutant.constant)
        found = found or self._at(mutant.path, mutant.around)
        chosen, spent = [], 0.0
        for test in sorted(found & set(self._seconds), key=lambda one: (self._seconds[one], one)):
            spent += self._seconds[test]
            if spent > _MOST:
                break
            chosen.append(test)
        return chosen

    @functools.cache  # noqa: B019 - there is one of these
    def _lines(self, path: str) -> dict[int, list[str]]:
        return self._data.contexts_by_lineno(path)

    def _at(self, path: str, lines: range) -> set[str]:
        known = self._lines(path)
        return {test for line in lines for test in known.get(line, ()) if test}

    def _naming(self, constant: str) -> set[str]:
        pattern = re.compile(rf"\b{re.escape(constant)}\b")
        found: set[str] = set()
        for path in (ROOT / "gptsh").rglob("*.py"):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if pattern.search(line):
                    found |= self._at(path.relative_to(ROOT).as_posix(), range(number, number + 1))
        return found


def _measured(data: Path, times: Path) -> None:
    shutil.rmtree(_KEPT, ignore_errors=True)
    _KEPT.mkdir(parents=True)
    rules = _KEPT / "coveragerc"
    rules.write_text(
        f"[run]\nsource_pkgs = gptsh\ndata_file = {data}\nrelative_files = true\nparallel = true\npatch = _exit\n"
        f"dynamic_context = test_function\ncontext = ${{{_TEST}-}}\n[paths]\nsource = gptsh\n"
    )
    coverage = [sys.executable, "-m", "coverage"]
    pytest = ["-m", "pytest", "-pproof.mutants", f"--junitxml={times}", "--timeout=300", *_TESTS]
    env = {**os.environ, "COVERAGE_PROCESS_START": str(rules)}  # of what pytest and the tests start
    subprocess.run([*coverage, "run", f"--rcfile={rules}", *pytest], cwd=ROOT, env=env, check=False)
    subprocess.run([*coverage, "combine", "-q", f"--rcfile={rules}"], cwd=ROOT, check=True)


# ---- a mutant tried


def tried(sample: list[Mutant], reached: Reached) -> Iterator[tuple[Mutant, bool]]:
    """Each mutant, and whether a test failed."""
    kept = _KEPT / "killed.json"
    known: set[str] = set(json.loads(kept.read_text())) if kept.exists() else set()
    with tempfile.TemporaryDirectory(prefix="gptsh-mutants-") as folder, ThreadPoolExecutor(_WORKERS) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(_WORKERS):
            copy = Path(folder) / str(number)
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv*", "build", "__pycache__"))
            copies.put(copy)

        def attempt(mutant: Mutant) -> bool:
            if mutant.name in known:
                return True
            copy = copies.get()
            try:
                return _is_killed(mutant, reached.tests(mutant), copy)
            finally:
                copies.put(copy)

        for mutant, killed in zip(sample, pool.map(attempt, sample), strict=True):
            known |= {mutant.name} if killed else set()
            kept.write_text(json.dumps(sorted(known)))
            print("killed  " if killed else "SURVIVED", mutant.name, flush=True)
            yield mutant, killed


def _is_killed(mutant: Mutant, tests: list[str], copy: Path) -> bool:
    if not tests:
        return False
    (copy / mutant.path).write_text(mutant.code)
    chosen = copy / "chosen"
    chosen.write_text("\n".join(tests))
    files = sorted({f"{test.rpartition('.')[0].replace('.', '/')}.py" for test in tests})
    plain = ["-x", "-q", "-n0", "-pno:cacheprovider", "-pproof.mutants", f"--rootdir={copy}"]
    env = {**os.environ, "PYTHONPATH": str(copy), "MUTANT_TESTS": str(chosen)}
    command = [sys.executable, "-m", "pytest", *plain, *files]
    with tempfile.TemporaryDirectory(prefix="gptsh-mutant-") as temporary:
        env["TMPDIR"] = temporary
        process = subprocess.Popen(
            command, cwd=copy, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            return process.wait(timeout=5 * _MOST) not in (0, pytest.ExitCode.NO_TESTS_COLLECTED)
        except subprocess.TimeoutExpired:
            return True
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with what a test has started and left
            process.wait()
            (copy / mutant.path).write_text(mutant.module.code)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In the pytest of a mutant: only its tests, in their order."""
    if "MUTANT_TESTS" not in os.environ:
        return
    order = {test: place for place, test in enumerate(Path(os.environ["MUTANT_TESTS"]).read_text().splitlines())}
    places = [order.get(_name(item), -1) for item in items]
    chosen = [(place, item) for place, item in zip(places, items, strict=True) if place >= 0]
    items[:] = [item for _, item in sorted(chosen, key=lambda one: one[0])]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where the tests are measured: what a test starts counts as reached by it."""
    os.environ[_TEST] = _name(item)


def _name(item: Any) -> str:
    return f"{item.module.__name__}.{item.originalname}"
