"""``project_file``: the nearest AGENTS.md of the repository joins the system prompt of an agent that asks for it."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.home import Home, lab_config
from tests.support.server import ModelServer


@pytest.fixture
def project(home: Home, model: ModelServer) -> Path:
    """A repository, the working folder of a home whose agent reads AGENTS.md."""
    text = lab_config(model).replace(
        'model = "lab/m"\n', 'model = "lab/m"\nproject_file = "AGENTS.md"\n'
    )
    home.configure(text.replace('model = "lab/m"\n', 'model = "lab/m"\nsystem = "Be brief."\n'))
    (home.cwd / ".git").mkdir()
    (home.folder / "AGENTS.md").write_text("above the repository")
    return home.cwd


def system(model: ModelServer) -> str:
    """The system prompt of the last request."""
    first = model.sent[-1]["messages"][0]
    return str(first["content"]) if first["role"] == "system" else ""


def test_the_nearest_file_of_the_repository_joins_the_system_prompt(
    home: Home, project: Path, model: ModelServer
) -> None:
    (project / "sub" / "deep").mkdir(parents=True)
    assert home.run("hi").stderr == ""
    assert system(model) == "Be brief."
    (project / "AGENTS.md").write_text("\ufeffUse tabs.\n")
    home.run("hi", cwd=project / "sub" / "deep")
    assert system(model) == "Be brief.\n\n# AGENTS.md\n\nUse tabs."
    (project / "sub" / "AGENTS.md").write_text("Use blanks.")
    home.run("hi", cwd=project / "sub" / "deep")
    assert system(model) == "Be brief.\n\n# sub/AGENTS.md\n\nUse blanks."
    assert "Use tabs." in home.run("--dry-run", "hi").stdout
    assert {doc["agent"]["system"] for doc in home.docs()} == {"Be brief."}
    home.run("--system", "", "hi")
    assert system(model) == ""
    plain = home.config.read_text().replace('project_file = "AGENTS.md"\n', "")
    home.configure(plain)
    home.run("-s", "0", "--system", "-", "more")
    assert system(model) == "Be brief."


def test_a_change_comes_with_the_next_question_and_moves_up_at_a_compaction(
    home: Home, project: Path, model: ModelServer
) -> None:
    (project / "AGENTS.md").write_text("Use tabs.")
    home.run("one " * 20)
    home.run("-s", "0", "two " * 20)
    (project / "AGENTS.md").write_text("Use blanks.")
    for words in ("three", "four"):
        home.run("-s", "0", f"{words} " * 20)
    sent = [body["messages"] for body in model.sent]
    assert [after[: len(before)] for before, after in pairwise(sent)] == sent[:-1]
    assert ["Use blanks" in json.dumps(asked) for asked in sent[-1][1::2]] == [
        False,
        False,
        True,
        False,
    ]
    assert "AGENTS.md has changed since. It now says:" in json.dumps(sent[-1][5])
    for words in ("five", "six"):
        home.run("-s", "0", f"{words} " * 20)
    for _ in range(6):
        model.unstreamed("They spoke of numbers.")
    assert home.run("-s", "0", "--compact", "--apply").code == 0
    model.forget()
    home.run("-s", "0", "seven")
    assert system(model).startswith("Be brief.\n\n# AGENTS.md\n\nUse blanks.")
    assert "tabs" not in json.dumps(model.sent[-1]["messages"])


def test_a_large_file_is_sent_in_part(home: Home, project: Path, model: ModelServer) -> None:
    (project / "AGENTS.md").write_text("x" * 40_000)
    home.run("hi")
    assert system(model).count("x") == 32_000
    assert system(model).endswith("\n[gptsh: this is the beginning of a file of more than 32 kB]")


@pytest.mark.parametrize("kind", ["a link out of the repository", "a folder", "a dangling link"])
def test_what_is_no_file_of_the_repository_is_a_note(
    home: Home, project: Path, model: ModelServer, kind: str
) -> None:
    path = project / "AGENTS.md"
    if kind == "a folder":
        path.mkdir()
    else:
        path.symlink_to("../AGENTS.md" if kind == "a link out of the repository" else "nowhere")
    run = home.run("hi")
    assert run.stdout == "You said: hi\n"
    assert run.code == 0
    assert run.stderr.count("\n") == 1
    assert "AGENTS.md was not sent" in run.stderr
    assert system(model) == "Be brief."


def test_a_link_within_the_repository_is_followed(
    home: Home, project: Path, model: ModelServer
) -> None:
    (project / "CLAUDE.md").write_text("Use tabs.")
    (project / "AGENTS.md").symlink_to("CLAUDE.md")
    home.run("hi")
    assert system(model) == "Be brief.\n\n# AGENTS.md\n\nUse tabs."
