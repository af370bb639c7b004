"""config.toml and the environment: what is accepted, and the line for everything else."""

import re

import pytest

from tests.support.home import Home
from tests.support.server import ModelServer
from tests.support.sessions import put

WHOLE = """
default_agent = "default"
[agents]
default = { model = "openai/gpt-4.1", model_small = "openai/gpt-4.1-mini", system = "Answer briefly.", \
tools = ["time"], params = { temperature = 0.7 }, output = "markdown", memory = false }
file = { system_file = "prompts/file.txt" }
[providers]
openai = { api_key_env = "OPENAI_API_KEY", model_small = "openai/gpt-4.1-mini" }
other = { api_key_command = "pass show openai" }
lab = { base_url = "http://10.0.0.5:8000/v1", context_window = 32768, headers = { X-Team = "infra" } }
[sessions]
save = true
titles = "model"
archive_after_days = 0
max_sessions = 0
[context]
compact = "auto"
compact_at = 0.80
reserve = 0.25
keep_messages = 6
summary_tokens = 800
snapshots = 5
[network]
first_byte_timeout = 600
idle_timeout = 120
retries = 2
[mcp]
servers_file = ""
max_rounds = 20
servers.time = { command = "mcp-server-time", args = ["--utc"], env = { TZ = "UTC" }, auto_approve = ["get_*"] }
"""


def test_every_key_is_accepted(home: Home) -> None:
    home.configure(WHOLE)
    assert home.run("-m", "echo", "--no-tools", "hi") == ("You said: hi\n", "", 0)


def test_an_agents_keys_reach_the_model(home: Home, model: ModelServer) -> None:
    home.configure(f"""
[agents.default]
model = "lab/m"
system_file = "prompts/file.txt"
params = {{ temperature = 0.7 }}
[providers.lab]
base_url = "{model.base_url}"
headers = {{ X-Team = "infra" }}
[sessions]
titles = "off"
""")
    (home.config.parent / "prompts").mkdir()
    (home.config.parent / "prompts" / "file.txt").write_text("From a file.\n")
    assert home.run("hi").code == 0
    (asked,) = model.asked
    assert asked.body["messages"][0] == {"role": "system", "content": "From a file.\n"}
    assert (asked.body["temperature"], asked.headers["x-team"]) == (0.7, "infra")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("nonsense = 1", "nonsense: unknown key: expected one of default_agent, agents"),
        ("[agents.a]\nmodell = 'x'", "agents.a.modell: unknown key: expected one of model, model_small"),
        ("[agents.a]\nmodel = 3", "agents.a.model: expected a string, not 3"),
        ("[agents.a]\nmemory = 'yes'", "agents.a.memory: expected true or false, not 'yes'"),
        ("[agents.a]\nparams = [1]", "agents.a.params: expected a table of what JSON can say"),
        ("[agents.a]\ntools = 'time'", "agents.a.tools: expected a list of strings"),
        ("[agents.a]\noutput = 'pdf'", "agents.a.output: expected one of text, markdown, json, jsonl, not 'pdf'"),
        ("agents = 3", "agents: expected a table"),
        ("[agents]\na = 3", "agents.a: expected a table"),
        ("[providers.lab]\nheaders = { X = 1 }", "providers.lab.headers: expected a table of header names and values"),
        ("[sessions]\nsave = 1", "sessions.save: expected true or false, not 1"),
        ("[sessions]\ntitles = 'on'", "sessions.titles: expected one of model, off, not 'on'"),
        ("[context]\nreserve = 2", "context.reserve: expected a number from 0 to 1, not 2"),
        ("[context]\nsnapshots = -1", "context.snapshots: expected a whole number from 0, not -1"),
        ("[network]\nretries = true", "network.retries: expected a whole number from 0, not True"),
        ("[network]\nidle_timeout = 0", "network.idle_timeout: expected a number of seconds above 0, not 0"),
        ("[mcp.servers.x]\ncmd = 'a'", "mcp.servers.x.cmd: unknown key"),
        ("default_agent = 'ghost'", "there is no agent 'ghost': add [agents.ghost]"),
        ("[agents.default]\nsystem_file = 'missing.txt'", "agents.default.system_file: "),
        ('[agents.default]\nsystem_file = "a\\u0000b"', "agents.default.system_file: "),
        ("[agents.a]\nsystem = 'x'\nsystem_file = 'y'", "agents.a: system and system_file exclude each other"),
        ("[agents.a]\nparams = { x = inf }", "agents.a.params: expected a table of what JSON can say"),
        ("[agents.a]\nparams = { x = 2025-01-01 }", "agents.a.params: expected a table of what JSON can say"),
        ("[network]\nidle_timeout = inf", "network.idle_timeout: expected a number of seconds above 0, not inf"),
        ("[providers.lab]\nbase_url = 'http://u:pw@h/v1'", "providers.lab.base_url: expected a URL with http://"),
        ("[providers.lab]\nbase_url = 'http://h/v1?key=K'", "providers.lab.base_url: expected a URL with http://"),
        ("[providers.lab]\napi_key_env = 'sk-live-1'", "providers.lab.api_key_env: expected the name of a variable"),
        ("[providers.lab]\nheaders = 'A: sk-live-1'", "providers.lab.headers: expected a table of header names"),
        ("[providers.lab]\nheaders = { Content-Length = '3' }", "expected a table of header names and values"),
        ("[providers.lab]\nheaders = { 'X:Y' = 'a' }", "expected a table of header names and values"),
        ("x = " + "[" * 20_000, "not TOML"),
        ("not toml", "not TOML"),
        ("a = '\\xff'", "unknown key"),
    ],
)
def test_a_wrong_config_is_exit_2_naming_file_key_and_what_was_expected(home: Home, text: str, line: str) -> None:
    home.configure(text)
    run = home.run("-m", "echo", "hi")
    assert (run.stdout, run.code, run.stderr.count("\n")) == ("", 2, 1)
    assert line in run.stderr
    assert not re.search("sk-live-1|:pw@", run.stderr)
    assert str(home.config) in run.stderr or "no agent" in line or "system_file" in line
    assert not home.state.exists()


def test_a_wrong_config_stops_neither_help_nor_lists(home: Home) -> None:
    home.configure("nonsense = 1")
    for args in (["--help"], ["-h"], ["--version"], ["--list-sessions"]):
        assert home.run(*args).code == 0


def test_config_files_are_found_in_order(home: Home) -> None:
    home.configure("[agents.usual]\n")
    other = home.folder / "other.toml"
    other.write_text("[agents.other]\n")
    named = {"GPTSH_CONFIG": str(other)}
    assert "usual" in home.run("--list-agents").stdout
    assert "other" in home.run("--list-agents", env=named).stdout
    assert "usual" in home.run("--list-agents", "--config", str(home.config), env=named).stdout
    gone = ("", "gptsh: /nowhere.toml: No such file or directory\n", 2)
    assert home.run("--list-agents", "--config", "/nowhere.toml") == gone
    assert home.run("--list-agents", env={"GPTSH_CONFIG": "/nowhere.toml"}) == gone


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"\xef\xbb\xbf" + b'default_agent = "default"\r\n', ""), (b"a = '\xff'", "not TOML"), (None, "Is a directory")],
    ids=["of another editor", "not UTF-8", "a folder"],
)
def test_a_config_file_as_bytes(home: Home, content: bytes | None, said: str) -> None:
    home.config.mkdir(parents=True)
    if content is not None:
        home.config.rmdir()
        home.config.write_bytes(content)
    run = home.run("-m", "echo", "hi")
    assert (run.code, run.stderr.count("\n")) == ((2, 1) if said else (0, 0))
    assert said in run.stderr


def test_no_file_of_the_current_folder_is_read(home: Home) -> None:
    for name in ("config.toml", ".env", "gptsh.toml"):
        (home.cwd / name).write_text("nonsense\nOPENAI_API_KEY=leaked\n")
    assert "no model is chosen" in home.run("hi").stderr


def test_agents_are_listed_with_the_default_marked_and_chosen_by_limit_and_model(home: Home) -> None:
    home.configure('default_agent = "b"\n[agents.a]\nmodel = "gpt-4.1"\n[agents.b]\n')
    assert home.run("--list-agents").stdout == "  a (gpt-4.1)\n* b (no model)\n  default (no model)\n"
    assert home.run("--list-agents", "--limit", "1").stdout == "  a (gpt-4.1)\n"
    for spelling in ("gpt-4.1", "openai/gpt-4.1"):
        assert home.run("--list-agents", "-m", spelling).stdout == "  a (gpt-4.1)\n"


# ---- the environment


@pytest.mark.parametrize(
    ("value", "no"), [("0", True), ("false", True), ("No", True), ("off", True), ("", True), ("1", False)]
)
def test_a_flag_of_the_environment_can_say_no(home: Home, value: str, no: bool) -> None:
    home.run("-m", "echo", "hi", env={"GPTSH_NO_SAVE": value})
    assert bool(home.files()) is no
    failed = home.run("-s", "nope", "x", env={"GPTSH_DEBUG": value})
    assert re.match(r"gptsh: no session 'nope'.*\n", failed.stderr)
    assert ("Traceback" not in failed.stderr) is no


@pytest.mark.parametrize(
    ("env", "line"),
    [
        ({"GPTSH_OUTPUT": "pdf"}, "GPTSH_OUTPUT: expected one of text, markdown, json, jsonl, not 'pdf'"),
        ({"GPTSH_TIMEOUT": "soon"}, "GPTSH_TIMEOUT: expected a number of seconds"),
    ],
)
def test_a_wrong_environment_is_exit_2(home: Home, env: dict[str, str], line: str) -> None:
    run = home.run("-m", "echo", "hi", env=env)
    assert (run.stdout, run.code) == ("", 2)
    assert line in run.stderr


def test_options_are_not_read_from_the_environment(home: Home) -> None:
    env = {f"GPTSH_{name}": "1" for name in ("LIST_SESSIONS", "SHOW_SESSION", "HELP", "TITLE", "LIMIT")}
    assert home.run("-m", "echo", "hi", env=env).stdout == "You said: hi\n"


# ---- agents and models


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("mystery", "no provider is known for the model 'mystery': name it PROVIDER/MODEL"),
        ("ghost/m", "'ghost' of the model 'ghost/m' is no known provider: set base_url under [providers.ghost]"),
        ("opnai/m", "'opnai' of the model 'opnai/m' is no known provider: did you mean openai? Else set base_url"),
        ("openai/", "'' is no name of a model"),
        (f"openai/{'x' * 201}", "is no name of a model"),
        ("/m", "'' of the model '/m' is no known provider"),
    ],
)
def test_a_model_that_cannot_be_routed_is_exit_2(home: Home, model: str, line: str) -> None:
    run = home.run("-m", model, "hi")
    assert (run.stdout, run.code) == ("", 2)
    assert line in run.stderr


def test_a_stored_agent_stands_even_when_its_config_is_gone(lab: Home, model: ModelServer) -> None:
    agent = {"name": "gone", "model": "x", "system": "S", "params": {"seed": 1}}
    put(lab, "aaaa", 1, agent=agent, provider={"name": "lab"})
    assert lab.run("-s", "aaaa", "hi").code == 0
    (sent,) = model.sent
    assert (sent["model"], sent["seed"], sent["messages"][0]) == ("x", 1, {"role": "system", "content": "S"})


def test_an_agent_without_a_model_takes_the_default_agents(home: Home) -> None:
    """Not that of a provider whose key happens to be set: the prompt would go to somebody else."""
    home.configure('default_agent = "work"\n[agents.work]\nmodel = "echo"\n[agents.coder]\nsystem = "You code."\n')
    env = {"OPENAI_API_KEY": "sk-set", "OPENAI_BASE_URL": "http://127.0.0.1:9"}
    assert home.run("-a", "coder", "hi", env=env).stdout == "You said: hi\n"
    assert home.run("hi", env={**env, "GPTSH_AGENT": "coder"}).stdout == "You said: hi\n"
