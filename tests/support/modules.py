"""What a run loads, and which functions it calls.

tests/data/loads.txt has what each kind of run loads; ``python -m dev.measure --loads`` writes it.
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

from tests.support.home import Home, lab_config
from tests.support.paths import DATA, ROOT
from tests.support.server import ModelServer
from tests.support.terminal import Terminal
from tests.support.tools import call, calling, configure

TABLE = DATA / "loads.txt"
KINDS = {
    "help": ["--help"],
    "list": ["--list-sessions"],
    "show": ["--show-session", "0"],
    "usage": ["--usage"],
    "export": ["--export-session", "0"],
    "echo": ["-m", "echo", "hi"],
    "question": ["hi"],  # asked of a server with chat completions
    "terminal": ["hi"],  # the same on a terminal, where the answer is drawn
    "-i": ["-i"],  # a conversation: one question, and a command that ends it
    "tools": ["hi"],  # a question for which the model calls a tool
}
_MORE = 'context_window = 8000\n[sessions]\ntitles = "off"\n'
_IMPORTED = re.compile(r"^ *(?:from|import) (\w+)", re.MULTILINE)
# Of Python's own modules the table has only these, which take long to import.
_SLOW = {"asyncio", "http.client", "ssl"}
_PROBE = """
import sys, threading
report, profiles, *args = sys.argv[1:]
sys.argv = ["gptsh", *args]
before = set(sys.modules)
functions = set()

def note(frame, event, _arg):
    code = frame.f_code
    if event != "call" or not code.co_filename.startswith(package):
        return
    is_class_body = "__qualname__" in code.co_names
    if not is_class_body and not code.co_name.startswith("<"):
        functions.add(f"{code.co_filename[len(package):]}:{code.co_firstlineno} {code.co_qualname}")

import gptsh
from gptsh.cli.entrypoint import main
package = gptsh.__file__.removesuffix("__init__.py")
if profiles:
    threading.setprofile(note)
    sys.setprofile(note)
try:
    sys.exit(main(args))
finally:
    sys.setprofile(None)
    for thread in threading.enumerate():
        if "(_load)" in thread.name:  # the thread that imports while the user types
            thread.join()
    with open(report, "w") as file:
        print(*[name for name in list(sys.modules) if name not in before], file=file)
        print(*sorted(functions.copy()), sep="\\n", file=file)
"""


class Run(NamedTuple):
    """What a run did."""

    modules: list[str]  # in the order of their import, without those that Python itself starts with
    functions: list[str]  # "FILE:LINE NAME", without lambdas, comprehensions and class bodies


def probe(home: Home, *, functions: bool = False) -> list[str]:
    """The command that runs gptsh with the arguments that follow, for ``read_run``."""
    report = str(home.folder / "run")
    return [sys.executable, "-c", _PROBE, report, "functions" if functions else ""]


def read_run(home: Home) -> Run:
    """What the last run of ``probe`` did."""
    modules, *functions = (home.folder / "run").read_text().splitlines()
    return Run(modules.split(), list(filter(None, functions)))


def observe(home: Home, *args: str, functions: bool = False) -> Run:
    """Run gptsh with these arguments in a pipe."""
    command = [*probe(home, functions=functions), *args]
    done = subprocess.run(
        command,
        env=home.env,
        cwd=home.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return read_run(home)


def modules_after(home: Home, *args: str) -> set[str]:
    """The modules that a run imports."""
    return set(observe(home, *args).modules)


def run_of(kind: str, home: Home, model: ModelServer) -> Run:
    """Start a run of this kind, in a home with a session, and return what it did."""
    home.configure(lab_config(model, _MORE))
    home.run("-m", "echo", "hello")
    if kind == "tools":
        configure(home, model)
        model.script(*calling(call("add", a=1, b=2)))
    if kind not in ("terminal", "-i"):
        return observe(home, *KINDS[kind])
    terminal = Terminal(home, *KINDS[kind], command=probe(home))
    if kind == "-i":
        terminal.until(b"lab/m")
        terminal.write("hi\r")
        terminal.until(b"8,000")  # the status line gets the window last
        terminal.write("exit\r")
    seen, code = terminal.close()
    assert code == 0, seen
    return read_run(home)


def loads_of(run: Run) -> set[str]:
    """What a run has loaded of gptsh, of the libraries that gptsh imports, and of the slow modules of Python.

    What those libraries import themselves depends on their versions.
    """
    loaded = {name if name.startswith("gptsh") else name.partition(".")[0] for name in run.modules}
    text = "\n".join(path.read_text() for path in (ROOT / "gptsh").rglob("*.py"))
    imported = set(_IMPORTED.findall(text)) - sys.stdlib_module_names
    return {name for name in loaded if name.partition(".")[0] in imported} | _SLOW.intersection(
        run.modules
    )


def as_table(loads: Mapping[str, set[str]]) -> str:
    """A line for each module: its name and the kinds of run that load it."""
    lines = []
    for name in sorted(set().union(*loads.values())):
        kinds = [kind if name in modules else " " * len(kind) for kind, modules in loads.items()]
        lines.append(f"{name:32} {' '.join(kinds)}".rstrip())
    return "\n".join(lines) + "\n"


def read_table() -> dict[str, set[str]]:
    """The modules of each kind of run, as the table has them."""
    loads: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for line in TABLE.read_text().splitlines():
        name, *kinds = line.split()
        for kind in kinds:
            loads[kind].add(name)
    return loads
