"""The layers: imports point down, each library has its files, the start is light, the docs are true."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import gptsh
from gptsh.cli.options import ROWS
from gptsh.models.vendors import VENDORS
from tests.support.home import Home
from tests.support.modules import KINDS, loads_of, modules_after, read_table, run_of
from tests.support.paths import ROOT
from tests.support.server import ModelServer

FILES = sorted((ROOT / "gptsh").rglob("*.py"))
LAYERS = [
    {"errors", "jsonio", "text"},
    {"files", "messages", "terminal"},
    {"models"},
    {"content"},
    {"config"},
    {"core"},
    {"context"},
    {"llm", "tools", "formats", "render"},
    {"manage"},
    {"turn"},
    {"api"},
    {"chat"},
    {"cli"},
]
LAYER = {package: level for level, packages in enumerate(LAYERS) for package in packages}
MAY_IMPORT = {  # library: packages and files
    "click": {"cli", "chat/commands.py"},
    "tiktoken": {"context/tokens.py", "llm/litellm_bridge.py"},
    "certifi": {"llm/tls.py"},
    "litellm": {"llm/litellm_bridge.py"},
    "filetype": {"content/attachments.py"},
    "ijson": {"formats/source.py"},
    "jiter": {"jsonio.py"},
    "wcwidth": {"text.py"},
    "rich": {
        "render/drawing.py",
    },
    "pygments": {"render/drawing.py", "render/html.py"},
    "markdown_it": {
        "render/markdown.py",
        "render/drawing.py",
        "render/html.py",
    },
    "prompt_toolkit": {
        "chat/completion.py",
        "chat/picker.py",
        "chat/prompt.py",
        "chat/terminal_io.py",
    },
    "mcp": {
        "tools/connection.py",
        "tools/transports.py",
        "tools/oauth.py",
    },
    "mcp_types": {"tools/connection.py"},
    "anyio": {"tools/connection.py", "tools/transports.py"},
    "httpx2": {
        "tools/transports.py",
        "tools/oauth.py",
    },
    "platformdirs": {"files.py"},
    "jsonschema": {"context/answer_schema.py"},
    "jsonschema_specifications": {"context/answer_schema.py"},
    "referencing": {"context/answer_schema.py"},
}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def faults(path: Path) -> Iterator[str]:
    """What a file imports though it may not."""
    inside = path.relative_to(ROOT / "gptsh")
    here = inside.parts[0].removesuffix(".py")
    for name in imports(path):
        there = name.split(".")[1] if name.startswith("gptsh.") else ""
        up = there in LAYER and here in LAYER and there != here and LAYER[there] >= LAYER[here]
        if up:
            yield f"{inside} imports {name}: up or sideways"
        allowed = MAY_IMPORT.get(name.split(".")[0])
        if allowed is not None and not {inside.parts[0], str(inside)} & allowed:
            yield f"{inside} imports {name} outside its files"


def test_imports_point_down_and_libraries_stay_in_their_files() -> None:
    assert [fault for path in FILES for fault in faults(path)] == []


def own_modules() -> dict[str, Path]:
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in FILES}


def imported_modules(path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """The files of gptsh that a file imports, also within functions and for types alone."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [
                name if (name := f"{node.module}.{alias.name}") in modules else node.module
                for alias in node.names
            ]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        yield from (name for name in names if name in modules)


def test_no_files_import_each_other_in_a_circle() -> None:
    modules = own_modules()
    order = TopologicalSorter(
        {name: {*imported_modules(path, modules)} - {name} for name, path in modules.items()}
    )
    order.prepare()  # raises CycleError


# ---- what a run loads


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_run_loads_what_the_table_says(
    home: Home, model: ModelServer, kind: str
) -> None:
    loaded = loads_of(run_of(kind, home, model))
    listed = read_table()[kind]
    added = sorted(loaded - listed)
    missing = sorted(listed - loaded)
    assert not added + missing, (
        f"added: {added}; missing: {missing}; if intended: python -m dev.measure --loads"
    )


NETWORK = {"litellm", "http.client", "urllib3", "ssl", "asyncio", "gptsh.llm"}
TOOLS = {"mcp", "anyio", "httpx", "httpx2", "gptsh.tools"}
MARKDOWN = {
    "rich",
    "markdown_it",
    "pygments",
    "gptsh.render.drawing",
    "gptsh.render.markdown",
}
QUIET = (
    NETWORK | TOOLS | MARKDOWN | {"prompt_toolkit", "tomllib"}
)  # what sends nothing and draws nothing needs none
LOADS: list[
    tuple[list[str], set[str]]
] = [  # arguments that the table lacks, and what must not be loaded
    (["-h"], QUIET),
    (["--version"], QUIET),
    (["--usage", "-o", "json"], QUIET),
    (["--show-session", "0", "-o", "json"], QUIET | {"gptsh.core.usage"}),
    (["--export-session", "0", "--format", "html"], NETWORK | {"gptsh.formats.importer", "ijson"}),
]


@pytest.mark.parametrize(
    ("args", "unwanted"),
    LOADS,
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_not_needed_is_not_imported(
    home: Home, args: list[str], unwanted: set[str]
) -> None:
    home.run("-m", "echo", "hello")
    assert not modules_after(home, *args) & unwanted


def test_only_markdown_imports_what_renders_it(home: Home) -> None:
    assert modules_after(home, "-m", "echo", "-o", "markdown", "hi") >= MARKDOWN


def test_completion_imports_no_network(home: Home) -> None:
    home.configure('[agents.terse]\nmodel = "lab/q"\n')
    home.env |= {"_GPTSH_COMPLETE": "bash_complete", "COMP_WORDS": "gptsh -m ", "COMP_CWORD": "2"}
    assert not modules_after(home) & (NETWORK | {"subprocess"})


# ---- the help, the version, the package


def test_help_shows_every_option_in_its_group_and_no_two_share_a_name(home: Home) -> None:
    names = [name for row in ROWS for name in row.names]
    assert len(names) == len(set(names))
    shown = home.run("--help").stdout
    short = home.run("-h").stdout
    assert [row.names for row in ROWS if not any(name in shown for name in row.names)] == []
    groups = [line for line in shown.splitlines() if re.fullmatch(r"[A-Z]\w+:", line)]
    assert groups == [
        "Examples:",
        "Ask:",
        "Answer:",
        "Session:",
        "Manage:",
        "Other:",
        "Maintenance:",
    ]
    assert len(short.splitlines()) <= 20
    assert re.search(r"TAB.*_GPTSH_COMPLETE=bash_source gptsh", shown)
    assert set(re.findall(r"(?<![\w\"-])--?[a-z][a-z-]*", short)) <= set(names)


def test_changelog_version_script_and_module_are_of_one_program(home: Home) -> None:
    top = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert top
    assert top[1] == gptsh.__version__
    home.forks = False
    assert home.process("--version").stdout == f"gptsh {gptsh.__version__}\n"
    script = Path(sys.executable).parent / "gptsh"
    done = subprocess.run(
        [script, "--version"], env=home.env, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"gptsh {gptsh.__version__}\n"


def test_every_dependency_has_both_bounds_and_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    extras = [name for names in project["optional-dependencies"].values() for name in names]
    for requirement in [*project["dependencies"], *extras]:
        line = next(line for line in text.splitlines() if requirement in line)
        assert all(mark in requirement for mark in (">=", "<")), requirement
        assert "#" in line, requirement


def test_the_readmes_commands_are_those_that_ci_runs() -> None:
    """``make try`` and ``make test`` run them, in fresh clones."""
    commands = re.findall(r"```sh\n(python3 -m venv .*)\n```", (ROOT / "README.md").read_text())
    assert commands == re.findall(
        "^(?:TRY|TEST) := (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert len(commands) == 2


def test_default_models_are_in_the_packaged_model_table() -> None:
    spec = importlib.util.find_spec("litellm")
    assert spec
    assert spec.submodule_search_locations
    table = Path(spec.submodule_search_locations[0]) / "model_prices_and_context_window_backup.json"
    known = json.loads(table.read_text())
    for name, vendor in VENDORS.items():
        if vendor.default_model:
            found = [
                known.get(key) for key in (vendor.default_model, f"{name}/{vendor.default_model}")
            ]
            entries = list(filter(None, found))
            assert entries, name
            assert not any(entry.get("deprecation_date") for entry in entries), name
