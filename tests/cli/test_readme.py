"""The pages: their shell blocks run as they stand; the tables of the one on scripting name what comes out."""

import json
import re
import subprocess
import sys

import pytest

from tests.support.home import Home
from tests.support.paths import HISTORIES, ROOT
from tests.support.programs import needs
from tests.support.readme import SCRIPTING, keys_in, keys_of

PAGES = [path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pair
    for page in PAGES
    for pair in re.findall(r"```sh\n(.*?)```\n\n```text\n(.*?)```\n", page, re.DOTALL)
]
LOOPS = (  # what the page on scripting says of pipes, loops and parts of an answer
    r"""export GPTSH_MODEL=echo
set -o pipefail
gptsh -s nobody "hello" 2>/dev/null | cat || echo "exit $?"
for word in a b; do gptsh "$word" | head -c 6; echo; done
printf 'one\ntwo\n' | while read -r word; do gptsh --no-stdin -s @loop "$word"; done
seq 20 | xargs -P 16 -I{} gptsh --no-stdin -s @many "number {}" >/dev/null
gptsh --show-session @many -o json | jq .stats.turns
seq 20 | xargs -P 8 -I{} gptsh --no-stdin --no-stream --no-save "number {}" | sort -k4n | tail -n 2
printf 'do this:\n~~~sh\nls -l\n~~~\nthen that\n' | gptsh -x
gptsh --schema '{"type": "integer"}' "hello" 2>/dev/null || echo "exit $?"
""",
    """exit 2
You sa
You sa
You said: one
You said: two
20
You said: number 19
You said: number 20
ls -l
exit 5
""",
)
SAMPLE = str(HISTORIES / "gptsh")  # it has session 7x2m
TABLES = [  # in one home: a run for programs, and the table that names the keys of its first item
    (["-m", "echo", "hello there"], "key of an answer"),
    (["-s", "nobody", "hi"], "key of an answer"),
    (["--list-sessions"], "key of a list's item"),
    (["--list-models"], "key of a model"),
]
JOBS = [  # after those: a run, and the row of the other jobs that names its keys
    (["-s", "0", "--tag", "x", "--snapshot", "y"], "`-s REF` with labels and no prompt"),
    (["--list-agents"], "`--list-agents`"),
    (["--import-session", SAMPLE], "`--import-session`"),
    (["--archive-session", "7x2m"], "`--archive-session`"),
    (["--delete-session", "7x2m"], "`--delete-session`"),
]


def test_every_block_of_the_pages_is_run() -> None:
    for fence in ("```sh", "```text"):
        assert len(BLOCKS) == sum(page.count(fence) for page in PAGES) > 0


@pytest.mark.slow
@needs("bash")
@needs("jq")
@pytest.mark.parametrize(("script", "printed"), [*BLOCKS, LOOPS])
def test_a_script_prints_what_the_page_says(home: Home, script: str, printed: str) -> None:
    command = home.folder / "gptsh"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m gptsh "$@"\n')
    command.chmod(0o755)
    line = ["bash", "-c", f'PATH="{home.folder}:$PATH"; exec </dev/null\n{script}']
    done = subprocess.run(
        line, env=home.env, cwd=home.cwd, capture_output=True, text=True, check=False, timeout=60
    )
    usual = re.compile(
        " is a new session$|: waiting to save: "
    )  # the second one on a machine with much to do
    notes = [line for line in done.stderr.splitlines() if not usual.search(line)]
    assert done.stdout == printed
    assert notes == []


def test_the_keys_for_programs_are_those_of_the_page(home: Home) -> None:
    named = [(args, keys_in(heading)) for args, heading in TABLES]
    for args, keys in [*named, *((args, keys_of(job)) for args, job in JOBS)]:
        first = json.loads(home.run(*args, "-o", "json").stdout)
        assert set(first[0] if isinstance(first, list) else first) == set(keys), args
    (match,) = json.loads(home.run("--search-sessions", "THERE", "-o", "json").stdout)
    assert set(match) == {*keys_in("key of a list's item"), "match"}
    context = next(
        line for line in SCRIPTING.splitlines() if line.startswith("| `context` |")
    ).split("|")[2]
    answered = json.loads(home.run("-m", "echo", "-o", "json", "hi").stdout)
    assert set(answered["context"]) == set(re.findall("`([a-z_]+)`", context))
