"""--list-tools, --tools and --no-tools through the command, with a tool server of ours."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable

import pytest

from gptsh.core import settings
from tests.support.answers import responses
from tests.support.completion import offered
from tests.support.home import Home, wait_for
from tests.support.modules import modules_after
from tests.support.paths import ROOT
from tests.support.readme import keys_in
from tests.support.server import ModelServer, Script
from tests.support.terminal import Terminal
from tests.support.tools import BAD, is_running

LACKING = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "mcp":
            raise ModuleNotFoundError("No module named 'mcp'")
sys.meta_path.insert(0, Finder())
"""
WAY = "--tools names others, --no-tools does without"
NAMES = ["die", "hang", "garble", "misshape", "refuse", "big", "fail", "picture", "meet", "give", "tell", "leak", "say"]


def entry(home: Home, name: str, mode: str = "", more: str = "") -> str:
    """A table of the config for the server that misbehaves."""
    args = json.dumps([str(BAD), mode, str(home.folder / "pids")])
    return f"[mcp.servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n{more}\n"


@pytest.fixture
def two(home: Home) -> Home:
    """A home with two servers, and an agent that has one tool of one of them."""
    agents = '[agents.few]\ntools = ["one__f*"]\n[agents.none]\n'
    home.configure(agents + entry(home, "one", more='auto_approve = ["f*"]') + entry(home, "two"))
    return home


def pids(home: Home) -> list[int]:
    """The servers that were started."""
    file = home.folder / "pids"
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "tools"),
    [
        ([], [f"{server}__{name}" for server in ("one", "two") for name in NAMES]),
        (["-a", "few"], ["one__fail"]),
        (["-a", "none"], []),
        (["--tools", "two__big , one__fail,"], ["two__big", "one__fail"]),
        (["-a", "few", "--tools", "all", "--limit", "2"], ["one__die", "one__hang"]),
        (["--no-tools"], []),
    ],
)
def test_the_list(two: Home, args: list[str], tools: list[str]) -> None:
    done = two.run("--list-tools", *args)
    assert (done.stderr, done.code) == ("", 0)
    assert done.stdout.splitlines() == [f"{name}  Will {name.partition('__')[2]}." for name in tools]
    assert not any(map(is_running, pids(two)))
    assert not two.files()


@pytest.mark.slow
def test_the_list_for_programs(two: Home) -> None:
    done = two.run("--list-tools", "-a", "few", "-o", "json")
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    (told,) = json.loads(done.stdout)
    assert told == {
        "name": "one__fail", "server": "one", "description": "Will fail.\nMore.", "parameters": schema,
        "auto_approve": True,
    }  # fmt: skip
    assert list(told) == keys_in("key of a tool")
    lines = two.run("--list-tools", "--tools", "one__fail,two__fail", "-o", "jsonl").stdout.splitlines()
    assert [(json.loads(line)["server"], json.loads(line)["auto_approve"]) for line in lines] == [
        ("one", True), ("two", False),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "said", "code"),
    [
        (["--tools", "nix"], "there is no tool server 'nix': known are one, two", 2),
        (["--tools", "one__nix"], f"tool server one has no tool 'nix': it has {', '.join(NAMES)}; {WAY}", 2),
        (["-a", "nobody"], "there is no agent 'nobody': known are few, none, default", 2),
        (["--tools", "one", "--no-tools"], "--tools and --no-tools exclude each other", 2),
        (["--tools", " "], "--tools is empty", 2),
        (["words"], "--list-tools takes no prompt", 2),
    ],
)
def test_what_is_asked_wrong(two: Home, args: list[str], said: str, code: int) -> None:
    assert two.run("--list-tools", *args) == ("", f"gptsh: {said}\n", code)


def test_tools_and_no_tools_exclude_each_other_in_a_question_too(two: Home) -> None:
    assert two.run("-m", "echo", "--tools", "one", "--no-tools", "hi").code == 2


@pytest.mark.slow
def test_a_server_that_fails_is_exit_3_with_its_last_words_and_without_its_keys(home: Home) -> None:
    home.configure(entry(home, "bad", "dies", 'env = { TOOL_KEY = "${MY_KEY}" }') + entry(home, "good", "stubborn"))
    done = home.run("--list-tools", "-o", "json", env={"MY_KEY": "sk-very-secret"})
    words = "tool server bad ended with exit status 3: no database / the key is ***"
    assert (done.stderr, done.code) == (f"gptsh: {words}\n", 3)
    assert json.loads(done.stdout) == {"error": {"message": words, "hint": None, "exit_code": 3}}
    assert not any(map(is_running, pids(home)))
    whole = home.run("--list-tools", "--debug", "--tools", "bad", env={"MY_KEY": "sk-very-secret"})
    assert "\nstarting\nno database\nthe key is ***\n" in whole.stderr
    assert "very-secret" not in whole.stdout + whole.stderr
    missing = home.run("--list-tools", "--tools", "bad")
    assert (missing.code, missing.stderr.count("\n")) == (2, 1)
    assert "mcp.servers.bad.env.TOOL_KEY: the variable MY_KEY is not set" in missing.stderr


@pytest.mark.slow
def test_debug_shows_no_key_of_a_url_or_of_its_headers(home: Home, model: ModelServer) -> None:
    said = b"no /mcp?key=literal-1 for token-of-mine"
    model.pages["/mcp?key=literal-1"] = Script(403, {"Content-Type": "text/plain"}, (said,), "length")
    url = f"http://127.0.0.1:{model.port}/mcp?key=literal-1"
    home.configure(f'[mcp.servers.web]\nurl = "{url}"\nheaders = {{ Authorization = "Bearer token-of-mine" }}\n')
    done = home.run("--list-tools", "--debug")
    assert (done.code, done.stderr.count("no /mcp?key=*** for ***")) == (3, 2)
    assert "Traceback" in done.stderr
    assert "literal-1" not in done.stdout + done.stderr
    assert "token-of-mine" not in done.stdout + done.stderr


def _by_signal(home: Home) -> int:
    process = home.start("--list-tools")
    _wait_for_server(home)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    return wait_for(process)


def _by_terminal(home: Home) -> int:
    terminal = Terminal(home, "--list-tools")
    _wait_for_server(home)
    time.sleep(0.1)
    os.write(terminal.fd, b"\x03")
    return terminal.close()[1]


def _wait_for_server(home: Home) -> None:
    until = time.monotonic() + 30
    while not pids(home) and time.monotonic() < until:
        time.sleep(0.01)
    assert pids(home)


@pytest.mark.slow
@pytest.mark.parametrize("interrupted", [_by_signal, _by_terminal])
def test_ctrl_c_leaves_no_server_behind(home: Home, interrupted: Callable[[Home], int]) -> None:
    home.configure(entry(home, "mute", "mute"))
    assert interrupted(home) == 130
    assert not any(map(is_running, pids(home)))


@pytest.mark.parametrize(
    ("config", "file"),
    [
        ('[mcp]\nservers_file = "servers.json"\n', "not JSON"),
        ('[mcp]\nservers_file = "nowhere.json"\n', None),
        ('[mcp.servers.s]\ntimeout = 5\n', None),
    ],
)  # fmt: skip
def test_a_broken_server_is_no_matter_where_no_tools_are_wanted(home: Home, config: str, file: str | None) -> None:
    home.configure(config)
    if file:
        (home.config.parent / "servers.json").write_text(file)
    assert home.run("-m", "echo", "hi") == ("You said: hi\n", "", 0)
    assert home.run("--list-sessions").code == 0
    assert home.run("--list-agents").code == 0
    assert home.run("--list-tools").code == 2


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('[mcp.servers.s]\ncommand = 1\n', "mcp.servers.s.command: expected a string, not 1"),
        ('[mcp.servers.s]\ntimeout = 0\n', "mcp.servers.s.timeout: expected a number of seconds above 0, not 0"),
        ('[mcp.servers.s]\ntype = "http"\n',
         "mcp.servers.s.type: unknown key: expected one of command, args, env, url, headers, auto_approve, timeout"),
    ],
)  # fmt: skip
def test_the_config_file_is_held_against_the_schema(home: Home, config: str, said: str) -> None:
    home.configure(config)
    assert home.run("--list-agents") == ("", f"gptsh: {home.config}: {said}\n", 2)


@pytest.mark.slow
@pytest.mark.parametrize(("missing", "said"), [("mcp", "tools need the package mcp"),
                                              ("mcp_types", "the package mcp cannot be used: ")])  # fmt: skip
def test_without_the_sdk_a_line_says_what_to_install(two: Home, missing: str, said: str) -> None:
    lacking = two.folder / "lacking"
    lacking.mkdir()
    (lacking / "sitecustomize.py").write_text(f'import sys\nsys.modules["{missing}"] = None\n')
    env = {"PYTHONPATH": f"{lacking}:{two.env['PYTHONPATH']}"}
    done = two.process("--list-tools", env=env)
    assert (done.stdout, done.code) == ("", 2)
    assert done.stderr.startswith(f"gptsh: {said}")
    assert done.stderr.endswith(": pip install 'mcp>=2.2,<3' beside gptsh, or leave tools out with --no-tools\n")
    assert not any(map(is_running, pids(two)))
    assert two.process("-m", "echo", "hi", env=env).code == 0


@pytest.mark.slow
def test_without_the_sdk_openais_responses_say_what_to_install(home: Home, model: ModelServer) -> None:
    home.configure(f'[providers.openai]\nbase_url = "{model.base_url}"\n')
    lacking = home.folder / "lacking"
    lacking.mkdir()
    (lacking / "sitecustomize.py").write_text(LACKING)
    env = {"PYTHONPATH": f"{lacking}:{home.env['PYTHONPATH']}", "PYTHONWARNINGS": "ignore", "OPENAI_API_KEY": "sk"}
    model.script(*responses("Hello."))
    done = home.process("-m", "openai/gpt-5.3-codex", "hi", env=env)
    said = "gptsh: openai needs a Python package: No module named 'mcp': pip install 'mcp>=2.2,<3' beside gptsh"
    assert (done.stdout, done.stderr.splitlines()[0], done.code) == ("", said, 1)


def test_nothing_of_tools_is_loaded_where_none_are_used(two: Home) -> None:
    loaded = modules_after(two, "-m", "echo", "hi")
    assert not {name for name in loaded if name.split(".")[0] in ("mcp", "asyncio") or name.startswith("gptsh.tools")}


def test_tab_offers_tool_servers(two: Home) -> None:
    assert offered(two, "gptsh --tools ") == ["one", "two", "all"]
    assert offered(two, "gptsh --tools one,t") == ["one,two"]


def test_the_readmes_example_of_a_config_is_taken(home: Home) -> None:
    readme = (ROOT / "README.md").read_text()
    section = readme.partition("\n## Tools\n")[2].partition("\n## ")[0]
    example = "\n".join(line[4:] for line in section.splitlines() if line.startswith("    "))
    config, _, file = example[example.index("[agents.default]") :].partition("\n{\n")
    home.configure(config)
    (home.config.parent / "mcp_servers.json").write_text("{\n" + file)
    environ = {"HOME": "/h", "GITHUB_TOKEN": "token", "TRACKER_TOKEN": "token"}
    loaded = settings.load(environ, str(home.config))
    assert [server.name for server in loaded.tool_servers.chosen(["all"])] == ["git", "github", "time", "tracker"]
    assert [server.tools for server in loaded.tool_servers.chosen(loaded.agents["default"].tools)] == [
        ("*",),
        ("git_log",),
    ]
