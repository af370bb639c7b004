"""First steps: what ``--init`` asks and writes, which is read without an error; notes about what was likely meant."""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gptsh.config import settings
from gptsh.models.providers import PROVIDERS
from tests.support.home import Home
from tests.support.paths import ROOT
from tests.support.server import ModelServer
from tests.support.terminal import Terminal

OPENAI = {"OPENAI_API_KEY": "sk-openai-1"}
GPT = PROVIDERS["openai"].default_model
SERVER = "http://10.0.0.5:8000/v1"


def init(home: Home, *typed: str, **env: str) -> tuple[str, int]:
    """What a terminal shows of the questions and these answers, and the exit code."""
    terminal = Terminal(home, "--init", env=env, columns=200)
    for answer in typed:
        terminal.until(rb"\]: \Z|\w: \Z")
        terminal.seen += b"\n"
        terminal.write(answer)
    seen, code = terminal.close()
    return seen.decode().replace("\r\n", "\n"), code


def written(home: Home) -> dict[str, Any]:
    """What the file sets; gptsh reads it."""
    assert home.run("-m", "echo", "--no-save", "hi").code == 0
    return {key: table for key, table in tomllib.loads(home.config.read_text()).items() if table}


def test_without_a_terminal_every_key_stands_there_as_a_comment_with_its_default(home: Home) -> None:
    run = home.run("--init")
    assert (run.code, run.stderr, len(run.stdout.splitlines())) == (0, "", 3)
    assert run.stdout.startswith(f"{home.config} is written.\n")
    assert (home.config.stat().st_mode & 0o777, home.config.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert written(home) == {}
    defaults, text = settings.load({"HOME": "/"}, os.devnull), home.config.read_text()
    home.configure("\n".join(re.sub(r'^# (?=\[|[a-z_]+ = (?!…|"…))', "", line) for line in text.splitlines()))
    assert home.config.read_text().count("\n# ") < text.count("\n# ") / 2
    uncommented = settings.load({"HOME": "/"}, str(home.config))
    assert (uncommented.context, uncommented.network) == (defaults.context, defaults.network)
    assert (uncommented.sessions, uncommented.agents) == (defaults.sessions, defaults.agents)


def test_the_first_question_fits_what_it_found(home: Home) -> None:
    question = "Which provider do you want to ask?\n"
    assert f"{question}Type a name (" in init(home, "\x04", PATH="/nowhere")[0]
    assert "\nOr type another name (" in init(home, "\x04", **OPENAI)[0]


def test_no_file_is_written_over_and_another_one_can_be_named(home: Home) -> None:
    home.configure("# mine\n")
    refused = f"gptsh: {home.config} is there already: edit it, or name another file with --config PATH\n"
    assert home.run("--init") == ("", refused, 2)
    assert home.config.read_text() == "# mine\n"
    assert home.run("--init", "--config", "new/own.toml").code == 0
    assert home.run("--init", env={"GPTSH_CONFIG": "other.toml"}).code == 0
    assert [path.name for path in sorted(home.cwd.rglob("*.toml"))] == ["own.toml", "other.toml"]
    (home.folder / "file").touch()
    failed = home.run("--init", "--config", str(home.folder / "file" / "x.toml"))
    assert (failed.code, failed.stderr.count("\n")) == (2, 1)


ANSWERS: list[tuple[list[str], dict[str, str], dict[str, Any], str]] = [  # typed, environment, set, said at the end
    (["\n", "\n"], OPENAI, {"agents": {"default": {"model": f"openai/{GPT}"}}}, f'gptsh "hello" asks openai/{GPT};'),
    (["mistral\n", "GET_IT\n", "m\n"], OPENAI,
     {"agents": {"default": {"model": "mistral/m"}}, "providers": {"mistral": {"api_key_env": "GET_IT"}}},
     "export GET_IT=… sets the key."),
    (["opnai\n", "openai\n", "sk-live-1\n", "AKIA7EXAMPLE\n", "cat /dev/null\n", "openai/gpt-x\n"], {},
     {"agents": {"default": {"model": "openai/gpt-x"}}, "providers": {"openai": {"api_key_command": "cat /dev/null"}}},
     'gptsh "hello" asks openai/gpt-x;'),
    (["azure\n", "\n", "m\n"], {"AZURE_API_KEY": "sk-1"}, {"agents": {"default": {"model": "azure/m"}}},
     "export AZURE_API_BASE=… sets the address of your server."),
    (["openai\n", "KEY\n", "m\n"], {"KEY": "sk-1"},
     {"agents": {"default": {"model": "openai/m"}}, "providers": {"openai": {"api_key_env": "KEY"}}},
     'gptsh "hello" asks openai/m;'),
    (["http://u:p@h/v1\n", f"{SERVER}\n", "my lab\n", "lab2\n", "\n", "\n", "big\n"], {},
     {"agents": {"default": {"model": "lab2/big"}}, "providers": {"lab2": {"base_url": SERVER}}},
     'gptsh "hello" asks lab2/big;'),
]  # fmt: skip


@pytest.mark.parametrize(("typed", "env", "expected", "said"), ANSWERS)
def test_a_provider_and_a_model_are_asked_for_and_never_a_key(
    home: Home, typed: list[str], env: dict[str, str], expected: dict[str, Any], said: str
) -> None:
    seen, code = init(home, *typed, **env, OLLAMA_API_BASE="http://127.0.0.1:9")
    assert code == 0, seen
    assert f"{home.config} is written.\n" in seen
    assert said in seen
    assert written(home) == expected
    assert not re.search("sk-|AKIA", home.config.read_text())


def test_a_local_server_that_answers_is_offered_with_its_models(home: Home, model: ModelServer) -> None:
    model.pages["/v1/models"] = {"data": [{"id": "qwen3:8b"}, {"id": "gemma"}]}
    seen, _ = init(home, "2\n", "\n", OLLAMA_API_BASE=model.base_url, **OPENAI)
    assert re.search(r"1  openai +OPENAI_API_KEY is set\n  2  ollama +answers", seen)
    assert "ollama/gemma\n" in seen
    assert written(home)["agents"]["default"] == {"model": "ollama/qwen3:8b"}


def test_a_server_that_does_not_answer_is_named_and_the_file_is_written(home: Home) -> None:
    seen, code = init(home, "http://127.0.0.1:9/v1\n", "\n", "\n", "m\n", PATH="/nowhere")
    assert code == 0
    assert seen.count("nothing answers at 127.0.0.1:9: is the server running, and base_url right?\n") == 1
    assert f"{home.config} is written.\n" in seen
    assert written(home)["providers"] == {"lab": {"base_url": "http://127.0.0.1:9/v1"}}


def test_no_word_of_the_questions_is_broken_between_two_rows(home: Home) -> None:
    terminal = Terminal(home, "--init", env={"PATH": "/nowhere"}, columns=50)
    terminal.until(rb"\]: \Z")
    terminal.write("no such provider\n")
    terminal.until(rb"(?s)such.*\]: \Z")
    terminal.write("\x04")
    rows = terminal.close()[0].decode().split("\r\n")
    assert "Type a name (openai, anthropic, gemini, mistral," in rows
    assert [row for row in rows if len(row) > 50] == []


@pytest.mark.parametrize(("key", "code"), [("\x04", 2), ("\x03", 130)])
def test_questions_that_are_broken_off_leave_no_file(home: Home, key: str, code: int) -> None:
    assert init(home, "openai\n", key)[1] == code
    assert not Path(home.config).exists()


@pytest.mark.parametrize(
    ("typed", "option"),
    [("models", "--list-models"), ("list-sessions", "--list-sessions"), ("help", "--help"), ("usage", "--usage"),
     ("init", "--init"), ("help me", None), ("Models", None), ("file", None), ("new", None)],
)  # fmt: skip
def test_a_word_that_is_a_name_of_ours_gets_a_note_and_is_asked(home: Home, typed: str, option: str | None) -> None:
    note = f"gptsh: {typed!r} goes to the model as a question; the option is gptsh {option}" if option else ""
    seen, code = Terminal(home, "-m", "echo", "-o", "text", typed, columns=200).close()
    assert (seen.decode(), code) == (f"{note}\r\n"[0 if note else 2 :] + f"You said: {typed}\r\n", 0)
    assert home.run("-m", "echo", typed) == (f"You said: {typed}\n", f"{note}\n"[0 if note else 1 :], 0)
    assert home.run("-m", "echo", typed, stdin="of this").stderr == ""  # a question about what is piped in
    assert len(home.files()) == 3


def test_a_word_that_is_the_path_of_a_file_gets_a_note_and_is_asked(home: Home) -> None:
    (home.cwd / "notes.txt").write_text("some text\n")
    (home.cwd / "notes").write_text("some text\n")
    (home.config.parent / "agents").mkdir(parents=True)
    (home.config.parent / "agents" / "sum.md").write_text("Sum up: {input}\n")
    note = "gptsh: 'notes.txt' goes to the model as words; -f notes.txt sends the file\n"
    assert home.run("-m", "echo", "notes.txt") == ("You said: notes.txt\n", note, 0)
    assert home.run("-m", "echo", "-a", "sum", "notes.txt").stderr == note
    for args, stdin in ((["notes"], None), (["notes.txt"], "piped"), (["read", "notes.txt"], None)):
        assert home.run("-m", "echo", *args, stdin=stdin).stderr == ""


SNIPPET = '[agents.default]\nsystem = "Answer briefly."\n[providers.lab]\nbase_url = "http://10.0.0.5:8000/v1"\n'


def test_a_table_of_the_documentation_can_be_added_to_the_written_file(home: Home) -> None:
    home.run("--init")
    home.configure(home.config.read_text() + SNIPPET)
    assert written(home) == tomllib.loads(SNIPPET)


def test_a_table_or_key_that_is_there_twice_is_an_error_with_both_lines(home: Home) -> None:
    init(home, "\n", "\n", **OPENAI)
    written_lines = home.config.read_text().split("\n")
    first, last = (
        written_lines.index(next(line for line in written_lines if line.startswith("[agents"))) + 1,
        len(written_lines),
    )
    home.configure(home.config.read_text() + SNIPPET)
    told = f"[agents.default] in line {last} is already in line {first}: add the keys there"
    assert home.run("-m", "echo", "hi") == ("", f"gptsh: {home.config}: {told}\n", 2)
    for text, expected in (
        ("[a]\nx = 1\n[b]\nx = 1\nx = 2 # more\n", "x in line 5 is already in line 4: leave out one of them"),
        ("default_agent = 'a'\ndefault_agent = 'b'\n", "default_agent in line 2 is already in line 1: leave out"),
        ("[agents.'a b']\n[ agents.\"a b\" ]\n", '[agents."ab"] in line 2 is already in line 1: add the keys'),
        ("agents = {}\n[agents]\n", "not TOML: Cannot declare ('agents',) twice"),
    ):
        home.configure(text)
        assert home.run("-m", "echo", "hi").stderr.startswith(f"gptsh: {home.config}: {expected}"), text


@pytest.mark.parametrize(
    ("args", "way"),
    [((), "gptsh -i opens a conversation"), (("-c",), "continue it with gptsh -i -s"), (("-s", "@x"), "with gptsh -i")],
)
def test_without_a_question_on_a_terminal_the_conversation_is_named(
    home: Home, args: tuple[str, ...], way: str
) -> None:
    home.run("-m", "echo", "-s", "@x", "hi")
    seen, code = Terminal(home, "-m", "echo", *args, columns=200).close()
    assert (code, seen.count(b"gptsh: no prompt")) == (2, 1)
    assert way in seen.decode()
    assert "gptsh -i" not in home.run("-m", "echo", *args).stderr


def test_a_parameter_that_nobody_knows_is_sent_as_it_is(lab: Home, model: ModelServer) -> None:
    for name in ("temprature", "maxTokens", "top_k", "x_own"):
        assert lab.run("-p", f"{name}=1", "hi") == ("You said: hi\n", "", 0)
        assert model.sent[-1][name] == 1


def test_a_url_in_the_place_of_a_file_gets_the_way_to_send_what_is_there(home: Home) -> None:
    run = home.run("-m", "echo", "-f", "https://example.org/a.txt", "sum it up")
    assert (run.code, run.stdout, run.stderr.count("\n")) == (2, "", 1)
    assert (
        "https://example.org/a.txt: No such file or directory: curl -sSL https://example.org/a.txt | gptsh"
        in run.stderr
    )


def test_installed_tool_servers_are_offered_with_the_lines_of_the_page(home: Home) -> None:
    page = (ROOT / "docs" / "tools.md").read_text()
    (block,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    servers = tomllib.loads(block)["mcp"]["servers"]
    commands = home.folder / "bin"
    commands.mkdir()
    env = {**OPENAI, "PATH": f"{commands}:{home.env['PATH']}"}
    for name in servers:
        (commands / servers[name]["command"]).write_text("#!/bin/sh\n")
        (commands / servers[name]["command"]).chmod(0o755)
    seen, code = init(home, "\n", "\n", "files, web\n", "time sql\n", **env)
    assert ("  time   mcp-server-time\n" in seen, code) == (True, 0)
    assert "'web' is not one of them: type files, git, time, fetch, sql, all or none" in seen
    assert 'gptsh --tools time,sql "…" offers the model their tools.' in seen
    assert written(home)["mcp"]["servers"] == {name: servers[name] for name in ("time", "sql")}
    home.config.unlink()
    init(home, "\n", "\n", "all\n", **env)
    assert written(home)["mcp"]["servers"] == servers
    home.config.unlink()
    init(home, "\n", "\n", "\n", **env)
    assert "mcp" not in written(home)
