"""``--init``: the file that it writes, which gptsh reads, and the two questions that it asks on a terminal."""

import os
import re
import tomllib
from typing import Any

import pytest

from gptsh.config import settings
from gptsh.models.vendors import VENDORS
from tests.support.home import Home
from tests.support.server import ModelServer
from tests.support.terminal import Terminal

OPENAI = {"OPENAI_API_KEY": "sk-openai-1"}
GPT = VENDORS["openai"].default_model
SNIPPET = '[agents.default]\nsystem = "Answer briefly."\n[providers.lab]\nbase_url = "http://10.0.0.5:8000/v1"\n'


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


def test_without_a_terminal_every_key_is_a_comment_with_its_default(home: Home) -> None:
    run = home.run("--init")
    assert run.code == 0
    assert run.stderr == ""
    assert len(run.stdout.splitlines()) == 3
    assert run.stdout.startswith(f"Wrote {home.config}.\n")
    assert home.config.stat().st_mode & 0o777 == 0o600
    assert home.config.parent.stat().st_mode & 0o777 == 0o700
    assert written(home) == {}
    defaults = settings.load({"HOME": "/"}, os.devnull)
    text = home.config.read_text()
    home.configure(
        "\n".join(re.sub(r'^# (?=\[|[a-z_]+ = (?!…|"…))', "", line) for line in text.splitlines())
    )
    assert home.config.read_text().count("\n# ") < text.count("\n# ") / 2
    uncommented = settings.load({"HOME": "/"}, str(home.config))
    assert uncommented.context == defaults.context
    assert uncommented.network == defaults.network
    assert uncommented.sessions == defaults.sessions
    assert uncommented.agents == defaults.agents
    home.configure(text + SNIPPET)  # a table of the documentation can be added
    assert written(home) == tomllib.loads(SNIPPET)


def test_no_file_is_written_over_and_another_one_can_be_named(home: Home) -> None:
    home.configure("# mine\n")
    refused = (
        f"gptsh: {home.config} already exists: edit it, or name another file with --config PATH\n"
    )
    assert home.run("--init") == ("", refused, 2)
    assert home.config.read_text() == "# mine\n"
    assert home.run("--init", "--config", "new/own.toml").code == 0
    assert home.run("--init", env={"GPTSH_CONFIG": "other.toml"}).code == 0
    assert [path.name for path in sorted(home.cwd.rglob("*.toml"))] == ["own.toml", "other.toml"]
    (home.folder / "file").touch()
    failed = home.run("--init", "--config", str(home.folder / "file" / "x.toml"))
    assert failed.code == 2
    assert failed.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("typed", "env", "model"),
    [
        (["\n", "\n"], OPENAI, f"openai/{GPT}"),
        (["\n", "gpt-x\n"], {"MISTRAL_API_KEY": "sk-1", "GPTSH_MODEL": "echo"}, "mistral/gpt-x"),
        (["opnai\n", "openai\n", "openai/gpt-x\n"], {}, "openai/gpt-x"),
        (["ollama\n", "\n", "qwen3:8b\n"], OPENAI, "ollama/qwen3:8b"),
    ],
)
def test_on_a_terminal_provider_and_model_are_asked_for_and_nothing_else(
    home: Home, typed: list[str], env: dict[str, str], model: str
) -> None:
    seen, code = init(home, *typed, **env)
    assert code == 0, seen
    assert seen.count("]: ") + seen.count("l: ") == len(typed), seen
    assert f'Wrote {home.config}.\ngptsh "hello" asks {model}.\n' in seen
    assert written(home) == {"agents": {"default": {"model": model}}}


@pytest.mark.parametrize(("key", "code"), [("\x04", 2), ("\x03", 130)])
def test_questions_that_are_broken_off_leave_no_file(home: Home, key: str, code: int) -> None:
    assert init(home, "openai\n", key)[1] == code
    assert not home.config.exists()


@pytest.mark.parametrize("form", ["{host}", "{host}/v1", "http://{host}/v1/"])
def test_the_url_of_a_server_is_taken_as_people_type_it(
    home: Home, model: ModelServer, form: str
) -> None:
    model.pages["/v1/models"] = {"data": [{"id": "qwen3-max"}, {"id": "phi"}]}
    host = model.base_url.removeprefix("http://").removesuffix("/v1")
    seen, code = init(home, form.format(host=host) + "\n", "\n")
    assert code == 0
    assert f"http://{host}/v1 lists 2 models: qwen3-max, phi" in seen
    assert 'gptsh "hello" asks server/qwen3-max.' in seen
    assert home.run("hi") == ("You said: hi\n", "", 0)
    assert model.sent[-1]["model"] == "qwen3-max"


def test_a_url_without_a_server_is_said_and_asked_again(home: Home) -> None:
    seen, code = init(home, "127.0.0.1:9\n", "echo\n", "echo\n")
    assert code == 0
    assert "no server at 127.0.0.1:9 lists its models" in seen
