"""The README's scripting section: its blocks run as they stand, its tables name what comes out."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.home import Home
from tests.support.paths import HISTORIES
from tests.support.readme import SCRIPTING, keys_in

BLOCKS = re.findall(r"```sh\n(.*?)```\n\n```text\n(.*?)```\n", SCRIPTING, re.DOTALL)


def test_every_block_of_the_scripting_section_is_run() -> None:
    assert len(BLOCKS) == SCRIPTING.count("```sh") == SCRIPTING.count("```text") > 2


@pytest.mark.skipif(not shutil.which("jq"), reason="the blocks use jq")
@pytest.mark.parametrize(("script", "printed"), BLOCKS)
def test_a_block_prints_what_the_readme_says(home: Home, script: str, printed: str) -> None:
    (home.folder / "bin").mkdir()
    command = home.folder / "bin" / "gptsh"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m gptsh "$@"\n')
    command.chmod(0o755)
    env = {**home.env, "PATH": f"{command.parent}:{home.env['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], env=env, cwd=home.cwd, capture_output=True, text=True, check=False, timeout=60,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (printed, "")


def test_the_keys_of_an_answer_are_those_of_the_readme(lab: Home) -> None:
    told = json.loads(lab.run("-o", "json", "hi").stdout)
    failed = json.loads(lab.run("-o", "json", "-s", "nobody", "hi").stdout)
    assert sorted(told) == sorted(failed) == sorted(keys_in("key of an answer"))
    row = next(line for line in SCRIPTING.splitlines() if line.startswith("| `context` |"))
    assert sorted(told["context"]) == sorted(re.findall("`([a-z_]+)`", row.split("|")[2]))
    assert sorted(failed["error"]) == ["exit_code", "hint", "message"]


def test_the_keys_of_a_list_are_those_of_the_readme(lab: Home) -> None:
    lab.run("hi")
    (item,) = json.loads(lab.run("--list-sessions", "-o", "json").stdout)
    assert sorted(item) == sorted(keys_in("key of a list's item"))


@pytest.mark.slow
def test_the_keys_of_what_is_brought_in_deleted_and_put_away_are_those_of_the_readme(home: Home) -> None:
    brought = home.run("--import-session", str(HISTORIES / "gptsh"), "-o", "jsonl")
    assert sorted(json.loads(brought.stdout)) == sorted(keys_in("key of `--import-session`"))
    for job in ("--archive-session", "--delete-session"):
        (done,) = json.loads(home.run(job, "7x2m", "-o", "json").stdout)
        assert sorted(done) == sorted(keys_in("key of `--delete-session` and `--archive-session`"))


def test_a_search_adds_its_match_to_the_keys_of_a_list(home: Home) -> None:
    home.run("-m", "echo", "hello there")
    (item,) = json.loads(home.run("--search-sessions", "THERE", "-o", "json").stdout)
    assert sorted(item) == sorted([*keys_in("key of a list's item"), "match"])


def test_the_keys_of_models_and_agents_are_those_of_the_readme(lab: Home) -> None:
    for job, heading in (("--list-models", "key of a model"), ("--list-agents", "key of an agent")):
        first = json.loads(lab.run(job, "-o", "json").stdout)[0]
        assert list(first) == keys_in(heading)
