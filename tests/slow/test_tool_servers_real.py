"""Tool servers by the SDK of each era, over stdio and HTTP: mcp 2.x here, and mcp 1.x beside nanobot.

nanobot's environment is ``.venv-nanobot``, or the one whose Python ``NANOBOT_PYTHON`` names.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.home import Home, lab_config
from tests.support.paths import ROOT, SUPPORT
from tests.support.server import ModelServer
from tests.support.terminal import Terminal
from tests.support.tools import calling

pytestmark = pytest.mark.servers

SERVER = SUPPORT / "either_sdk_server.py"


@pytest.fixture(params=["1", "2"])
def era(request: pytest.FixtureRequest) -> str:
    """The first number of the SDK's version."""
    return str(request.param)


@pytest.fixture
def python(era: str) -> str:
    """A Python that has the SDK of this era."""
    if era == "2":
        return sys.executable
    found = os.environ.get("NANOBOT_PYTHON") or str(ROOT / ".venv-nanobot" / "bin" / "python")
    assert Path(found).exists(), "make servers installs nanobot"
    return found


@pytest.fixture(params=["stdio", "http"])
def table(request: pytest.FixtureRequest, python: str) -> Iterator[str]:
    """The table of the server in the config."""
    if request.param == "stdio":
        yield f'command = {json.dumps(python)}\nargs = ["{SERVER}"]'
        return
    command = [python, str(SERVER), "http"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        yield f'url = "http://127.0.0.1:{int(process.stdout.readline())}/mcp"'


def configure(home: Home, model: ModelServer, table: str, *calls: tuple[str, str]) -> None:
    """Configure the server, and let the model call some of its tools, each with its arguments."""
    text = f'{lab_config(model)}[mcp.servers.either]\n{table}\nauto_approve = ["*"]\n'
    home.configure(text.replace('model = "lab/m"', 'model = "lab/m"\ntools = ["either"]'))
    made = [
        {
            "index": at,
            "id": name,
            "type": "function",
            "function": {"name": f"either__{name}", "arguments": arguments},
        }
        for at, (name, arguments) in enumerate(calls)
    ]
    model.script(*calling(*made))
    model.say("done")


def results(home: Home) -> dict[str, str]:
    """The results of the only session, by tool."""
    return {m["tool_call_id"]: m["content"] for m in home.doc()["messages"] if m["role"] == "tool"}


def test_a_server_of_each_era_over_each_transport(
    home: Home, model: ModelServer, era: str, table: str
) -> None:
    configure(home, model, table, ("add", '{"a": 1, "b": 2}'), ("version", "{}"))
    assert home.run("go") == ("done\n", "", 0)
    assert results(home)["add"] == "3"
    assert results(home)["version"][0] == era


def test_each_era_asks_the_user_over_each_transport(
    home: Home, model: ModelServer, table: str
) -> None:
    configure(home, model, table, ("trip", "{}"))
    terminal = Terminal(home, "go")
    terminal.until(rb"\| Where to\?\r\neither asks you this. Answer it\? .*: ")
    terminal.write("y\n")
    terminal.until(rb"\| City\r\nAnswer \(text\): ")
    terminal.write("Prague\n")
    terminal.until(rb"\| default: 3\r\nAnswer \(a whole number, empty for the default\): ")
    terminal.write("\n")
    assert terminal.close()[1] == 0
    assert results(home) == {"trip": "Prague 3"}


def test_without_a_terminal_each_era_is_declined(
    home: Home, model: ModelServer, table: str
) -> None:
    configure(home, model, table, ("trip", "{}"))
    run = home.run("go")
    assert run.code == 0
    assert "declined a question from tool server either" in run.stderr
    assert "decline" in results(home)["trip"]
