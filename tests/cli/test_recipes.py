"""The pages of recipes and of other tools: each block and each row runs as it is, with the model ``echo``."""

import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from tests.support.attached import make_png
from tests.support.home import Home
from tests.support.llm_logs import ASKED, STORE
from tests.support.paths import ROOT
from tests.support.programs import needs
from tests.support.terminal import Terminal

RECIPES = (ROOT / "docs" / "recipes.md").read_text()
OTHERS = (ROOT / "docs" / "coming-from.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", RECIPES, re.MULTILINE | re.DOTALL))
CONFIG = """
[aliases]
sonnet = "echo"
[agents.terse]
system = "Be brief."
[mcp.servers.time]
command = "{folder}/mcp-server-time"
"""
ROWS = [
    command
    for row in re.findall(r"^\| .* \| .* \| (.*) \|$", OTHERS, re.MULTILINE)
    for command in re.findall(r"`(gptsh [^`]*)`", row)
]


def program(home: Home, name: str, script: str) -> None:
    """A program of this name on the path."""
    path = home.folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def place(home: Home) -> Home:
    """A home with gptsh on its path and the model ``echo``."""
    home.configure(CONFIG.format(folder=Path(sys.executable).parent))
    program(home, "gptsh", f'exec {sys.executable} -m gptsh "$@"')
    home.env |= {
        "PATH": f"{home.folder / 'bin'}:{home.env['PATH']}",
        "GPTSH_MODEL": "echo",
        "HOME": str(home.folder),
    }
    return home


def shell(home: Home, script: str) -> "subprocess.CompletedProcess[str]":
    """Run a script in the working folder, without a terminal."""
    line = ["bash", "-c", f"exec </dev/null\n{script}"]
    done = subprocess.run(
        line, env=home.env, cwd=home.cwd, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done


def block(heading: str, language: str, number: int = 0) -> str:
    """A block of a recipe."""
    return re.findall(rf"```{language}\n(.*?)```", SECTIONS[heading], re.DOTALL)[number]


COMMIT = "git -c user.name=A -c user.email=a@b.test -c commit.gpgsign=false commit -q"
MESSAGE = "git log -1 --format=%B"


def repository(home: Home) -> None:
    """A repository with a commit on ``main``, which is also ``origin/main``, and a staged change."""
    shell(home, f"git init -qb main && echo one > a.txt && git add . && {COMMIT} -m first")
    shell(home, "git update-ref refs/remotes/origin/main main && git checkout -qb work")
    shell(home, "echo two > a.txt && git add .")


def commit_messages(home: Home) -> None:
    repository(home)
    hook = home.cwd / ".git" / "hooks" / "prepare-commit-msg"
    hook.write_text(block("Commit messages", "bash"))
    hook.chmod(0o755)
    home.env["GIT_EDITOR"] = "true"
    shell(home, COMMIT)
    message = shell(home, MESSAGE).stdout
    assert message.startswith("You said: Write a commit message")
    assert "+two" in message
    shell(home, f"echo three > a.txt; {COMMIT} -am mine")
    assert shell(home, MESSAGE).stdout.strip() == "mine"
    program(home, "gptsh", "exit 1")
    program(home, "write", 'echo own > "$1"')
    home.env["GIT_EDITOR"] = "write"
    shell(home, f"echo four > a.txt; git add .; {COMMIT}")
    assert shell(home, MESSAGE).stdout.strip() == "own"


def pull_request(home: Home) -> None:
    program(home, "gh", 'test "$*" = "pr diff 42" && echo "+a line"')
    (home.cwd / "src").mkdir()
    (home.cwd / "src" / "pages.py").write_text("pages = 1\n")
    shell(home, block("Review a pull request", "bash"))
    assert home.doc()["stats"]["turns"] == 2
    review = (home.cwd / "review.md").read_text()
    assert "+a line" in review
    assert "pages = 1" in review


def triage(home: Home) -> None:
    program(home, "journalctl", "echo disk is full")
    (home.cwd / "app.log").write_text("ERROR a\nok\nERROR a\n")
    out = shell(home, block("Triage a log", "bash")).stdout
    assert "disk is full" in out
    assert "2 ERROR a" in out


def integration(home: Home) -> None:
    repository(home)
    shell(home, f"{COMMIT} -m second")
    program(home, "pipx", 'test "$1" = install')
    (step,) = yaml.safe_load(block("Continuous integration", "yaml"))
    home.env |= {
        "GITHUB_BASE_REF": "main",
        "GITHUB_STEP_SUMMARY": str(home.folder / "summary"),
        "GPTSH_URL": "x",
    }
    shell(home, step["run"])
    assert "+two" in (home.folder / "summary").read_text()
    assert home.docs() == []


def morning(home: Home) -> None:
    (home.folder / ".keys").write_text("export KEY=k\n")
    program(home, "journalctl", 'echo "broken with $KEY"')
    program(home, "mail", f"cat > {home.folder}/sent")
    schedule, _, command = block("A report every morning", "cron").partition("  ")
    assert len(schedule.split()) == 5
    shell(home, command)
    shell(home, command)
    assert "broken with k" in (home.folder / "sent").read_text()
    assert home.doc()["stats"]["turns"] == 2


def vim(home: Home) -> None:
    rc = home.folder / "rc.vim"
    rc.write_text(block("Vim", "vim"))
    (home.cwd / "a.py").write_text("one\ntwo\nthree\n")
    shell(home, f"vim -es -u {rc} a.py -c '1,2Ask it'\"'\"'s short' -c 'wq' || true")
    assert (home.cwd / "a.py").read_text() == "You said: it's short\n\none\ntwo\nthree\n"


def tmux(home: Home) -> None:
    conf = home.folder / "tmux.conf"
    conf.write_text(block("A tmux popup", "tmux"))
    socket = f"tmux -S {home.folder}/socket -f {conf}"
    keys = shell(
        home, f"{socket} new-session -d cat && {socket} list-keys -T prefix; {socket} kill-server"
    ).stdout
    assert re.search(r"prefix +a +display-popup -E .*gptsh -i -s @tmux", keys)
    assert re.search(r"prefix +A +display-popup -E .*capture-pane -p \| gptsh -i", keys)


def rows_of_a_csv(home: Home) -> None:
    (home.cwd / "reviews.csv").write_text("id,text\n1,good\n2,bad\n3,so so\n")
    shell(home, block("Each row of a CSV", "bash"))
    lines = (home.cwd / "answers.jsonl").read_text().splitlines()
    assert (
        lines[1]
        == '{"id":"2","answer":"You said: Positive or negative? One word. bad","cost":null}'
    )
    assert len(lines) == 3
    shell(home, block("Each row of a CSV", "bash", 1))
    rated = (home.cwd / "rated.csv").read_text()
    assert sorted(line.rpartition(". ")[2] for line in rated.splitlines()) == [
        "1,good",
        "2,bad",
        "3,so so",
    ]


CASES: dict[
    str, tuple[str, Callable[[Home], None]]
] = {  # the program that it needs, and how it is tried
    "Commit messages": ("git", commit_messages),
    "Review a pull request": ("bash", pull_request),
    "Triage a log": ("bash", triage),
    "Continuous integration": ("git", integration),
    "A report every morning": ("bash", morning),
    "Vim": ("vim", vim),
    "A tmux popup": ("tmux", tmux),
    "Each row of a CSV": ("jq", rows_of_a_csv),
}


def test_every_recipe_is_tried() -> None:
    assert list(CASES) == list(SECTIONS)


@pytest.mark.slow
@needs("bash")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(program)) for name, (program, _) in CASES.items()]
)
def test_a_recipe_does_what_the_page_says(place: Home, name: str) -> None:
    CASES[name][1](place)


# ---- rows of other tools


@pytest.fixture
def moving(place: Home) -> Home:
    """What the rows speak of: files, prompts, two sessions, and llm with a log."""
    (place.cwd / "notes.txt").write_text("a note about the sunset\n")
    (place.cwd / "shot.png").write_bytes(make_png())
    (place.cwd / "person.json").write_text('{"type": "object"}')
    (place.cwd / "src").mkdir()
    (place.cwd / "src" / "a.py").write_text("a = 1\n")
    agents = place.config.parent / "agents"
    (agents / "summarize").mkdir(parents=True)
    (agents / "summarize" / "system.md").write_text("Sum up.")
    (agents / "translate.md").write_text("Into {lang}: {input}")
    program(place, "llm", f'test "$*" = "logs path" && echo {place.folder}/logs.db')
    with closing(sqlite3.connect(place.folder / "logs.db")) as logs:
        logs.executescript(STORE + ASKED)
    program(place, "editor", 'echo hello > "$1"')
    place.env["EDITOR"] = "editor"
    shell(place, "gptsh -s @work hi; gptsh 'when is sunset?'")
    return place


def test_the_page_has_rows_for_four_tools() -> None:
    assert len(ROWS) > 45
    assert re.findall("^## (.*)", OTHERS, re.MULTILINE)[:-1] == ["llm", "mods", "aichat", "fabric"]


@pytest.mark.slow
@needs("bash")
@pytest.mark.parametrize("command", dict.fromkeys(ROWS))
def test_a_row_for_those_who_come_from_another_tool_runs(moving: Home, command: str) -> None:
    if command == "gptsh -i":
        terminal = Terminal(moving, "-i")
        terminal.until(b"new session")
        terminal.write("\x04")
        assert terminal.close()[1] == 0
        return
    line = ["bash", "-c", f"exec </dev/null\n{command}"]
    done = subprocess.run(
        line,
        env=moving.env,
        cwd=moving.cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    needs_more_than_echo = (
        "--schema" in command or "--block" in command
    )  # whose answers have no JSON and no code
    assert done.returncode == (5 if needs_more_than_echo else 0), done.stderr
    assert "Traceback" not in done.stderr
