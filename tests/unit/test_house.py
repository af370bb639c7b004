"""The house: imports point down, libraries stay in their room, the start is light."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import gptsh
from gptsh.cli.options import ROWS
from gptsh.core.providers import PROVIDERS
from tests.support.home import Home
from tests.support.modules import MARKDOWN, modules_after
from tests.support.paths import ROOT

FILES = sorted((ROOT / "gptsh").rglob("*.py"))
LAYER = {"errors": 0, "core": 1, "context": 2, "llm": 3, "tools": 3, "formats": 3, "render": 3, "cli": 4}
ROOMS = {
    "click": {"cli"},
    "urllib3": {"llm/http.py"},
    "tiktoken": {"context/tokens.py"},
    "certifi": {"llm/http.py"},
    "litellm": {"llm/litellm_bridge.py"},
    "filetype": {"core/kinds.py"},
    "rich": {"render/terminal.py"},
    "pygments": {"render/terminal.py", "render/hypertext.py"},
    "markdown_it": {"render/terminal.py", "render/blocks.py", "render/dialect.py", "render/hypertext.py"},
    "prompt_toolkit": {"cli/prompt/editor.py", "cli/prompt/picker.py", "cli/prompt/tty.py"},
    "mcp": {"tools/session.py", "tools/wires.py"},
    "mcp_types": {"tools/session.py", "tools/wires.py"},
    "anyio": {"tools/session.py", "tools/wires.py"},
    "httpx2": {"tools/session.py", "tools/wires.py"},
    "platformdirs": {"core"},
    "jsonschema": {"core/shape.py"},
    "referencing": {"core/shape.py"},
    "jsonschema_specifications": {"core/shape.py"},
}


def test_the_forms_of_output_are_named_in_one_place() -> None:
    assert [path.name for path in FILES if re.search('"json", *"jsonl"', path.read_text())] == ["forms.py"]


def imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down_and_libraries_stay_in_their_room(path: Path) -> None:
    inside = path.relative_to(ROOT / "gptsh")
    here = inside.parts[0].removesuffix(".py")
    for name in imports(path):
        there = name.split(".")[1] if name.startswith("gptsh.") else None
        if there in LAYER and here in LAYER and there != here:
            assert LAYER[there] < LAYER[here], f"{inside} imports {name}: up or sideways"
        rooms = ROOMS.get(name.split(".")[0])
        assert rooms is None or {inside.parts[0], str(inside)} & rooms, f"{inside} imports {name} outside its room"


@pytest.mark.parametrize("args", [["--help"], ["-h"], ["--version"], ["--list-sessions"], ["--show-session", "0"],
                                  ["--usage"], ["--usage", "-o", "json"]])  # fmt: skip
def test_what_sends_nothing_imports_no_network_and_no_terminal_library(home: Home, args: list[str]) -> None:
    home.run("-m", "echo", "hello")
    loaded = modules_after(home, *args)
    assert not loaded & MARKDOWN
    unwanted = {"litellm", "urllib3", "ssl", "asyncio", "prompt_toolkit", "tomllib", "gptsh.llm", "gptsh.tools"}
    assert not loaded & unwanted


def test_echo_imports_no_network(home: Home) -> None:
    unwanted = {"litellm", "urllib3", "ssl", "asyncio", "filetype", "jsonschema", "gptsh.tools", *MARKDOWN}
    assert not modules_after(home, "-m", "echo", "hi") & unwanted


UNNEEDED = {
    "litellm", "asyncio", "httpx", "httpx2", "anyio", "mcp", "prompt_toolkit", "filetype", "jsonschema", "gptsh.tools",
    *MARKDOWN,
}  # fmt: skip


def test_a_direct_provider_imports_no_litellm(lab: Home) -> None:
    assert not modules_after(lab, "hi") & UNNEEDED


def test_only_markdown_imports_what_renders_it(home: Home) -> None:
    assert modules_after(home, "-m", "echo", "-o", "markdown", "hi") >= MARKDOWN


def test_no_two_options_share_a_name() -> None:
    names = [name for row in ROWS for name in row.names]
    assert len(names) == len(set(names))


def test_the_short_help_names_only_options_that_exist(home: Home) -> None:
    short = home.run("-h").stdout
    assert len(short.splitlines()) <= 20
    names = {name for row in ROWS for name in row.names}
    assert set(re.findall(r"(?<![\w\"-])--?[a-z][a-z-]*", short)) <= names


def test_help_shows_every_option_in_its_group(home: Home) -> None:
    shown = home.run("--help").stdout
    assert all(row.help.endswith(".") for row in ROWS)
    for row in ROWS:
        assert any(name in shown for name in row.names)
    assert [line for line in shown.splitlines() if re.fullmatch(r"[A-Z]\w+:", line)] == [
        "Ask:", "Answer:", "Session:", "Manage:", "Other:",
    ]  # fmt: skip


def test_changelog_and_version_agree(home: Home) -> None:
    top = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert top
    assert top[1] == gptsh.__version__
    assert home.run("--version").stdout == f"gptsh {gptsh.__version__}\n"


def test_every_dependency_has_both_bounds_and_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    extras = [name for names in project["optional-dependencies"].values() for name in names]
    for requirement in [*project["dependencies"], *extras]:
        line = next(line for line in text.splitlines() if requirement in line)
        assert ">=" in requirement, requirement
        assert "#" in line, requirement
        assert "<" in requirement, requirement


def test_the_console_script_and_the_module_are_one_program(home: Home) -> None:
    script = Path(sys.executable).parent / "gptsh"
    done = subprocess.run([script, "--version"], env=home.env, capture_output=True, text=True, check=True)
    assert done.stdout == home.run("--version").stdout


def test_the_readmes_commands_are_those_that_ci_runs() -> None:
    """``make try`` and ``make test`` run them, in fresh clones."""
    commands = re.findall(r"```sh\n(python3 -m venv .*)\n```", (ROOT / "README.md").read_text())
    assert commands == re.findall("^(?:TRY|TEST) := (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(commands) == 2


def test_default_models_stand_in_the_packaged_model_table() -> None:
    spec = importlib.util.find_spec("litellm")
    assert spec
    assert spec.submodule_search_locations
    table = Path(spec.submodule_search_locations[0]) / "model_prices_and_context_window_backup.json"
    known = json.loads(table.read_text())
    for provider, endpoint in PROVIDERS.items():
        if endpoint.default_model:
            assert {endpoint.default_model, f"{provider}/{endpoint.default_model}"} & set(known), provider
