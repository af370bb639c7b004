"""config.toml and the environment: what is accepted, and the line for everything else."""

import json
import os
import re

import pytest

from tests.support.home import Home, lab_config
from tests.support.server import ModelServer, answer
from tests.support.sessions import put


def test_an_agents_keys_reach_the_model(home: Home, model: ModelServer) -> None:
    agent = 'model = "lab/m"\nsystem_file = "prompts/file.txt"\nparams = { temperature = 0.7 }'
    lab = f'base_url = "{model.base_url}"\nheaders = {{ X-Team = "infra" }}'
    home.configure(
        f'[agents.default]\n{agent}\n[providers.lab]\n{lab}\n[sessions]\ntitles = "off"\n'
    )
    (home.config.parent / "prompts").mkdir()
    (home.config.parent / "prompts" / "file.txt").write_text("From a file.\n")
    assert home.run("hi").code == 0
    (asked,) = model.requests
    assert asked.body["messages"][0] == {"role": "system", "content": "From a file.\n"}
    assert asked.body["temperature"] == 0.7
    assert asked.headers["x-team"] == "infra"


def test_a_system_file_may_have_a_byte_order_mark_or_be_blank(
    lab: Home, model: ModelServer
) -> None:
    lab.configure(
        f'{lab.config.read_text()}[agents.filed]\nmodel = "lab/m"\nsystem_file = "s.txt"\n'
    )
    for text, roles in (("\ufeffBe brief.", ["Be brief.", "hi"]), (" \n", ["hi"])):
        (lab.config.parent / "s.txt").write_text(text)
        assert lab.run("-a", "filed", "hi").code == 0
        assert [message["content"] for message in model.sent[-1]["messages"]] == roles


def test_a_system_file_is_a_regular_file_of_at_most_1_mb(home: Home) -> None:
    for name, problem in (
        ("pipe", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        ("large", "larger than 1.0 MB"),
        ("n" * 300, "File name too long"),
    ):
        home.configure(f'[agents.default]\nsystem_file = "{name}"\n')
        path = home.config.parent / name
        if name == "pipe":
            os.mkfifo(path)
        elif name == "large":
            path.write_text("x" * 1_000_001)
        where = f"check system_file under [agents.default] in {home.config}"
        error = f"gptsh: {path}: {problem}: {where}\n"
        assert home.run("-m", "echo", "hi") == ("", error, 2)


def test_a_config_file_may_be_a_pipe_but_has_an_end(home: Home) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"[agents.piped]\n")
    os.close(writer)
    assert "piped" in home.run("--list-agents", "--config", f"/dev/fd/{reader}").stdout
    os.close(reader)
    for option in ("--config", "--schema"):
        run = home.run("-m", "echo", option, "/dev/zero", "hi")
        assert run.code == 2
        assert "/dev/zero: larger than 1.0 MB" in run.stderr


@pytest.mark.parametrize("pair", ["stream=false", "model=other", "messages=[]"])
def test_a_field_that_gptsh_sets_is_no_parameter(lab: Home, model: ModelServer, pair: str) -> None:
    run = lab.run("-p", pair, "hi")
    assert run.code == 2
    assert f"gptsh sets {pair.partition('=')[0]} itself: use " in run.stderr
    assert model.requests == []


def test_a_refusal_shows_the_numbers_of_parameters_and_no_key(
    lab: Home, model: ModelServer
) -> None:
    model.refuse(400, {"error": {"message": "max_tokens is too large: 1500; the key is sk-12345"}})
    run = lab.run("-p", "max_tokens=1500", "-p", "api_key=sk-12345", "hi")
    assert "too large: 1500; the key is ***" in run.stderr


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("nonsense = 1", "nonsense: unknown key: expected one of default_agent, aliases"),
        ("[agents.a]\nmodell = 'x'", "agents.a.modell: unknown key: did you mean model?"),
        ("[agents.a]\nmodel = 3", "agents.a.model: expected a string, not 3"),
        ("[agents.a]\ntools = 'time'", "agents.a.tools: expected a list of strings"),
        (
            "[agents.a]\nparams = { stream = false }",
            "agents.a.params: expected a table of what JSON can express, without",
        ),
        (
            "[agents.a]\noutput = 'pdf'",
            "agents.a.output: expected one of text, markdown, json, jsonl, not 'pdf'",
        ),
        ("[sessions]\nsave = 1", "sessions.save: expected true or false, not 1"),
        ("[context]\nreserve = 2", "context.reserve: expected a number from 0 to 1, not 2"),
        (
            "[network]\nretries = true",
            "network.retries: expected a whole number, 0 or more, not True",
        ),
        ("[mcp.servers.x]\ncmd = 'a'", "mcp.servers.x.cmd: unknown key"),
        (
            "[mcp.servers.x]\ntimeout = 0",
            "mcp.servers.x.timeout: expected a number of seconds above 0, not 0",
        ),
        ("default_agent = 'ghost'", "there is no agent 'ghost': add [agents.ghost]"),
        (
            "[agents.default]\nsystem_file = 'missing.txt'",
            "missing.txt: No such file or directory: check system_file",
        ),
        (
            "[agents.a]\nsystem = 'x'\nsystem_file = 'y'",
            "agents.a: system and system_file cannot be used together",
        ),
        (
            "[providers.lab]\nbase_url = 'http://u:pw@h/v1'",
            "providers.lab.base_url: expected a URL with http://",
        ),
        (
            "[providers.lab]\nbase_url = 'http://h/v1?key=K'",
            "providers.lab.base_url: expected a URL with http://",
        ),
        (
            "[providers.lab]\napi_key_env = 'sk-live-1'",
            "providers.lab.api_key_env: expected the name of a variable",
        ),
        (
            "[providers.lab]\nheaders = { Content-Length = '3' }",
            "expected a table of header names and values",
        ),
        (
            "[providers.lab.prices]\ninput = 'free'",
            "prices.input: expected an amount in USD, 0 or more, not 'free'",
        ),
        (
            "[providers.lab.prices]\nprompt = 1",
            "lab.prices.prompt: unknown key: expected one of input, output",
        ),
        (
            "[providers.lab.prices.m]\nin = 1",
            "providers.lab.prices.m.in: unknown key: expected one of input, output",
        ),
        ("not toml", "not TOML"),
    ],
)
def test_a_wrong_config_is_exit_2_naming_file_key_and_what_was_expected(
    home: Home, text: str, line: str
) -> None:
    home.configure(text)
    run = home.run("-m", "echo", "hi")
    assert run.stdout == ""
    assert run.code == 2
    assert run.stderr.count("\n") == 1
    assert line in run.stderr
    assert not re.search("sk-live-1|:pw@", run.stderr)
    assert str(home.config) in run.stderr
    assert not home.state.exists()


NO_KEYS = "this file may be shared, so it must not contain keys; set api_key_env or api_key_command"


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("api_key = 'sk-live-1'", f"{NO_KEYS} under [providers.NAME]"),
        ("[providers.openai]\napi_key = 'sk-live-1'", NO_KEYS),
        ("[providers.openai]\ntoken = 'sk-live-1'", NO_KEYS),
        ("[agents.a]\nOPENAI_API_KEY = 'sk-live-1'", f"{NO_KEYS} under [providers.NAME]"),
        ("model = 'openai/gpt-4.1'", "did you mean model under [agents.default]?"),
        ("[providers.openai]\nmodel = 'gpt-4.1'", "did you mean model under [agents.default]?"),
        ("[agents.a]\nidle_timeout = 9", "did you mean idle_timeout under [network]?"),
        ("[agents.a]\ndefault_agent = 'b'", "did you mean default_agent above all tables?"),
        ("[agents.a]\ntemperature = 0", "write params = { temperature = … }"),
        ("[agents.a]\nmaxTokens = 9", "write params = { max_tokens = … }"),
        ("temprature = 0", "write params = { temperature = … } under [agents.default]"),
        ("[agents.a]\ntop_k = 9", "write params = { top_k = … }"),
        ("[agents.a]\nmax_completion_tokens = 9", "write params = { max_completion_tokens = … }"),
        ("[network]\nretry = 9", "did you mean retries?"),
        ("[agent.x]", "did you mean [agents.x]?"),
        ("[provider.x]", "did you mean [providers.x]?"),
        ("[alias]", "did you mean [aliases]?"),
        ("[mcpServers]", "did you mean [mcp.servers.NAME]?"),
        ("[mcp.server.time]\ncommand = 'c'", "did you mean [mcp.servers.time]?"),
        ("[providers.lab]\nendpoint = 'http://h/v1'", "did you mean base_url?"),
        ("[providers.lab.prices.gpt-4.1]\ninput = 1", "put quotes around a name that has a dot"),
    ],
)
def test_an_unknown_key_names_the_one_that_was_likely_meant(
    home: Home, text: str, advice: str
) -> None:
    home.configure(text)
    run = home.run("-m", "echo", "hi")
    assert run.stderr.endswith(f": unknown key: {advice}\n")
    assert run.stderr.startswith(f"gptsh: {home.config}: ")
    assert "sk-live-1" not in run.stderr
    assert run.code == 2


def test_a_key_where_a_table_belongs_is_told_its_table(home: Home) -> None:
    home.configure("[agents]\nmodel = 'm'")
    run = home.run("-m", "echo", "hi")
    assert run.stderr.endswith(
        ": agents.model: expected a table: its keys belong under [agents.NAME]\n"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\nmodel = gpt-4.1\n", 'model in line 2 needs quotes: write model = "…"'),
        ("model = 4.1-mini\n", 'model in line 1 needs quotes: write model = "…"'),
        ("model = “gpt-4.1”\n", 'model in line 1 needs quotes: write model = "…"'),
        (
            "base_url = http://h/v1 # mine\n",
            'base_url in line 1 needs quotes: write base_url = "…"',
        ),
        (
            "params = { seed = 1, effort = low }\n",
            'effort in line 1 needs quotes: write effort = "…"',
        ),
        ("tools = [time]\n", 'tools in line 1 needs quotes: write "…"'),
        ("tools = [\n time,\n]\n", 'line 2 needs quotes: write "…"'),
        ("save = False\n", "save in line 1 needs false in small letters"),
        ("model =\n", "model in line 1 has no value"),
        ('model = "gpt-4.1\n', "model in line 1 needs a closing quote"),
        ("retries = .5\n", "not TOML: Invalid value (at line 1, column 11)"),
    ],
)
def test_a_value_without_quotes_is_an_error_with_its_line_and_key(
    home: Home, text: str, problem: str
) -> None:
    home.configure(text)
    run = home.run("-m", "echo", "hi")
    assert run.stderr == f"gptsh: {home.config}: {problem}\n"
    assert run.code == 2


def test_an_error_that_speaks_of_a_key_says_the_path_of_the_file_to_programs_too(
    lab: Home, model: ModelServer
) -> None:
    other = lab.config.rename(lab.folder / "other.toml")
    model.refuse(401, {"error": {"message": "under [context]"}})
    run = lab.run("-o", "json", "--config", str(other), "hi")
    line = f"lab refused the key (401): under [context]: check api_key_env under [providers.lab] in {other}"
    assert json.loads(run.stdout)["error"]["message"] == line
    assert run.stderr.splitlines()[0] == f"gptsh: {line}"


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
    assert home.run("--list-agents", env={"GPTSH_CONFIG": "/nowhere.toml"}) == gone


@pytest.mark.parametrize(
    ("content", "code"), [(b'\xef\xbb\xbfdefault_agent = "default"\r\n', 0), (b"a = '\xff'", 2)]
)
def test_a_config_file_as_bytes(home: Home, content: bytes, code: int) -> None:
    home.config.parent.mkdir(parents=True, exist_ok=True)
    home.config.write_bytes(content)
    run = home.run("-m", "echo", "hi")
    assert run.code == code
    assert ("not TOML" in run.stderr) == (code == 2)


def test_no_file_of_the_current_folder_is_read(home: Home) -> None:
    for name in ("config.toml", ".env", "gptsh.toml"):
        (home.cwd / name).write_text("nonsense\nOPENAI_API_KEY=leaked\n")
    assert "no model is chosen" in home.run("hi").stderr


def test_agents_are_listed_with_the_default_marked_and_chosen_by_limit_and_model(
    home: Home,
) -> None:
    home.configure('default_agent = "b"\n[agents.a]\nmodel = "gpt-4.1"\n[agents.b]\n')
    assert home.run("--list-agents").stdout == (
        "  a (openai/gpt-4.1)\n* b (no model)\n  default (no model)\n  shell (no model)\n"
    )
    assert home.run("--list-agents", "--limit", "1").stdout == "  a (openai/gpt-4.1)\n"
    for spelling in ("gpt-4.1", "openai/gpt-4.1"):
        assert home.run("--list-agents", "-m", spelling).stdout == "  a (openai/gpt-4.1)\n"


@pytest.mark.parametrize(
    ("value", "no"), [("0", True), ("No", True), ("off", True), ("", True), ("1", False)]
)
def test_a_flag_of_the_environment_can_say_no(home: Home, value: str, no: bool) -> None:
    home.run("-m", "echo", "hi", env={"GPTSH_NO_SAVE": value})
    assert bool(home.files()) is no
    failed = home.run("-s", "nope", "x", env={"GPTSH_DEBUG": value})
    assert re.match(r"gptsh: no session 'nope'.*\n", failed.stderr)
    assert ("Traceback" not in failed.stderr) is no


def test_a_stored_agent_is_used_even_when_its_config_is_gone(lab: Home, model: ModelServer) -> None:
    agent = {"name": "gone", "model": "x", "system": "S", "params": {"seed": 1}}
    put(lab, "aaaa", 1, agent=agent, provider={"name": "lab"})
    assert lab.run("-s", "aaaa", "hi").code == 0
    (sent,) = model.sent
    assert sent["model"] == "x"
    assert sent["seed"] == 1
    assert sent["messages"][0] == {"role": "system", "content": "S"}


def test_an_agent_without_a_model_takes_the_default_agents(home: Home) -> None:
    """Not that of a provider whose key happens to be set: the prompt would go to somebody else."""
    home.configure(
        'default_agent = "work"\n[agents.work]\nmodel = "echo"\n[agents.coder]\nsystem = "You code."\n'
    )
    env = {"OPENAI_API_KEY": "sk-set", "OPENAI_BASE_URL": "http://127.0.0.1:9"}
    assert home.run("-a", "coder", "hi", env=env).stdout == "You said: hi\n"
    assert home.run("hi", env={**env, "GPTSH_AGENT": "coder"}).stdout == "You said: hi\n"


PRICES = "[providers.lab.prices]\ninput = 2\noutput = 10\ncached = 0\n[providers.lab.prices.big]\noutput = 20\n"
USED = {
    "prompt_tokens": 1000,
    "completion_tokens": 100,
    "prompt_tokens_details": {"cached_tokens": 400},
}


@pytest.mark.parametrize(
    ("name", "usage", "usd"),
    [
        ("m", USED, (600 * 2 + 100 * 10) / 1e6),
        ("big", USED, (600 * 2 + 100 * 20) / 1e6),  # which has the rest from all
        ("m", {**USED, "cost": 0.5}, 0.5),  # what the server states wins
        (
            "m",
            {**USED, "cost": 0.0},
            (600 * 2 + 100 * 10) / 1e6,
        ),  # but for 0: a proxy's word for an unknown price
    ],
)
def test_a_self_hosted_server_has_the_prices_that_the_config_file_sets(
    home: Home, model: ModelServer, name: str, usage: dict[str, object], usd: float
) -> None:
    home.configure(lab_config(model) + PRICES)
    model.say("Yes.", usage=usage)
    assert home.run("-m", f"lab/{name}", "hi").code == 0
    assert home.doc()["usage"]["cost"] == pytest.approx(usd)
    model.pages["/v1/models"] = {"data": [{"id": name}]}
    (shown,) = json.loads(home.run("--list-models", "-m", "lab/", "-o", "json").stdout)
    assert shown["price_in"] == pytest.approx(2e-6)
    assert shown["price_out"] == pytest.approx(20e-6 if name == "big" else 10e-6)


@pytest.mark.parametrize(("stated", "usd"), [("0.125", 0.125), ("None", 600 * 2e-6 + 100 * 1e-5)])
def test_litellms_proxy_states_the_cost_of_a_whole_answer_in_a_header(
    home: Home, model: ModelServer, stated: str, usd: float
) -> None:
    home.configure(lab_config(model) + PRICES)
    whole = {"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}], "usage": USED}
    headers = {"Content-Type": "application/json", "x-litellm-response-cost": stated}
    model.script(json.dumps(whole).encode(), headers=headers)
    assert home.run("--no-stream", "hi").stdout == "Yes.\n"
    assert home.doc()["usage"]["cost"] == pytest.approx(usd)


@pytest.mark.parametrize("tables", ["{small}[providers.openai]\n", "[providers.openai]\n{small}"])
def test_a_bare_small_model_is_of_the_same_provider(
    hosted: Home, model: ModelServer, tables: str
) -> None:
    more = tables.format(small='model_small = "small"\n')
    hosted.configure(f'[agents.default]\nmodel = "openai/gpt-4.1"\n{more}')
    first, *rest = answer("first ", "second")[1:]
    model.script(first, 0.3, *rest, model="gpt-4.1")  # the title is asked meanwhile
    assert hosted.run("hi").code == 0
    assert [body["model"] for body in model.sent] == ["gpt-4.1", "small"]


def test_a_bare_name_is_made_full_when_it_is_configured(home: Home) -> None:
    models = {"a": "gpt-4.1", "g": "gemini-2.5-pro", "x": "mystery"}
    home.configure(
        "".join(f'[agents.{name}]\nmodel = "{model}"\n' for name, model in models.items())
    )
    assert home.run("--list-agents").stdout.splitlines()[:3] == [
        "  a (openai/gpt-4.1)", "  g (vertex_ai/gemini-2.5-pro)", "  x (mystery)",
    ]  # fmt: skip
    listed = home.run("--list-agents", env={"GEMINI_API_KEY": "k"}).stdout
    assert "g (gemini/gemini-2.5-pro)" in listed  # the API whose key is set


def test_an_alias_is_its_model_wherever_a_model_is_named(home: Home, model: ModelServer) -> None:
    aliases = '[aliases]\nquick = "lab/q"\n"gpt-4.1" = "lab/own"\nagain = "quick"\n[agents.a]\nmodel = "quick"\n'
    home.configure(lab_config(model) + aliases)
    for args, variables in (
        (["-m", "quick"], {}),
        (["-a", "a"], {}),
        ([], {"GPTSH_MODEL": "quick"}),
    ):
        assert home.run(*args, "hi", env=variables).code == 0
        assert model.sent[-1]["model"] == "q"
        assert home.docs()[0]["agent"]["model"] == "lab/q"
    assert home.run("-m", "gpt-4.1", "hi").code == 0
    assert model.sent[-1]["model"] == "own"
    assert "unknown provider of model 'quick'" in home.run("-m", "again", "hi").stderr


def test_what_a_session_stores_is_no_alias(home: Home, model: ModelServer) -> None:
    home.configure(lab_config(model))
    home.run("hi")
    home.configure(lab_config(model) + '[aliases]\nm = "lab/other"\n')
    home.run("-s", "0", "more")
    assert [request["model"] for request in model.sent] == ["m", "m"]
    assert home.run("-s", "0", "-m", "m", "more").code == 0
    assert model.sent[-1]["model"] == "other"
    assert home.doc()["agent"]["model"] == "lab/other"


@pytest.mark.parametrize("alias", ['"a/b" = "lab/m"', 'echo = "lab/m"', '" " = "lab/m"', "a = 1"])
def test_an_alias_is_a_name_without_a_slash(home: Home, alias: str) -> None:
    home.configure(f"[aliases]\n{alias}\n")
    expected = (
        "aliases: expected a table of short names, without a slash and not echo, and their models"
    )
    assert home.run("hi") == ("", f"gptsh: {home.config}: {expected}\n", 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[a]\nx = 1\n[b]\nx = 1\nx = 2 # more\n",
            "x in line 5 is already in line 4: leave out one of them",
        ),
        (
            "default_agent = 'a'\ndefault_agent = 'b'\n",
            "default_agent in line 2 is already in line 1: leave out",
        ),
        (
            "[agents.default]\nmodel = 'x'\n[agents.default]\n",
            "[agents.default] in line 3 is already in line 1: add",
        ),
        (
            '[agents."a b"]\n [agents."a b"] # again\n',
            '[agents."a b"] in line 2 is already in line 1: add the keys',
        ),
        ("agents = {}\n[agents]\n", "not TOML: Cannot declare ('agents',) twice"),
    ],
)
def test_a_table_or_key_that_is_there_twice_is_an_error_with_both_lines(
    home: Home, text: str, expected: str
) -> None:
    home.configure(text)
    run = home.run("-m", "echo", "hi")
    assert run.code == 2, run.stderr
    assert run.stderr.startswith(f"gptsh: {home.config}: {expected}")
