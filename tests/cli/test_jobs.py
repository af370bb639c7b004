"""Jobs beside asking: which options each takes, what is said of all others, and JSON that can always be read."""

import json

import pytest

from gptsh.cli.options import JOBS, ROWS
from tests.support.home import Home

VALUED = (
    "--show-session",
    "--search-sessions",
    "--export-session",
    "--import-session",
    "--delete-session",
)
NAMED = (*VALUED, "--archive-session", "--delete-snapshot")
VALUES = {**dict.fromkeys(NAMED, "0"), "--shell-integration": "bash",
          "--login": "web", "--logout": "web"}  # fmt: skip
ASKING = (["--dry-run"], ["--no-save"], ["-x"], ["--schema", "{}"], ["-p", "a=1"], ["-f", "x"], ["--system", "x"],
          ["-n"], ["--truncate", "tail"], ["--compact"], ["--title", "x"], ["--snapshot", "x"])  # fmt: skip
OTHERS = (["-a", "x"], ["-m", "x"], ["--tag", "x"], ["--here"], ["--limit", "0"], ["-s", "0"], ["-c"],
          ["--timeout", "1"], ["--full"], ["--keep", "0"], ["--archived"])  # fmt: skip


@pytest.fixture
def one(home: Home) -> Home:
    """A home with a session."""
    assert home.run("-m", "echo", "hello").code == 0
    return home


@pytest.mark.parametrize("job", JOBS)
def test_what_says_nothing_of_a_job_is_refused(home: Home, job: str) -> None:
    jobs_of = {row.names[0]: row.jobs for row in ROWS}
    for more in (*ASKING, *OTHERS):
        if job not in jobs_of[more[0]]:
            run = home.run(job, *VALUES.get(job, "").split(), *more)
            assert run.stdout == ""
            assert run.code == 2
            assert run.stderr.count("\n") == 1
            assert run.stderr.startswith(f"gptsh: {more[0]} cannot be used with {job}: ")
    assert not home.state.exists()


@pytest.mark.parametrize(
    "job",
    sorted(
        JOBS.keys()
        - {
            "--init",
            "--list-models",
            "--delete-session",
            "--delete-snapshot",
            "--login",
            "--logout",
        }
    ),
)
def test_options_of_output_suit_every_job_and_the_environment_fails_none(
    one: Home, job: str
) -> None:
    one.configure("")
    value = {"--import-session": [str(one.files()[0])], "--search-sessions": ["hello"],
             "--prune-sessions": ["--keep", "9"], "--shell-integration": ["bash"]}  # fmt: skip
    args = [job, *value.get(job, [one.doc()["id"]] if job in NAMED else [])]
    how = ["--no-stdin", "--no-stream", "--no-reasoning", "--debug", "--config", str(one.config)]
    env = {
        "GPTSH_SESSION": "@none",
        "GPTSH_TIMEOUT": "5",
        "GPTSH_MODEL": "echo",
        "GPTSH_NO_STDIN": "1",
    }
    run = one.run(*args, *how, env=env)
    assert run.code == 0, run.stderr
    if job not in ("--export-session", "--shell-integration"):
        told = one.run(*args, "-o", "json")
        assert told.code == 0
        json.loads(told.stdout)
    assert one.run(*args, env={"GPTSH_OUTPUT": "json"}).code == 0


REFUSED: list[tuple[list[str], str]] = [  # arguments, and how stderr begins
    *[([f"{option}={blank}"], f"{option} is empty")
      for option in (*NAMED, "--login", "--logout", "--session", "--file") for blank in ("", " ")],
    *[(["-m", "echo", "hi", *more], f"{more[0]} cannot be used with a question: use it with --")
      for more in (["--full"], ["--keep", "0"], ["--limit", "0"], ["--archived"], ["--yes"])],
    (["--export-session", "0", "-o", "markdown"], "-o cannot be used with --export-session: use --format"),
    (["--archive-session", "0", "1"], "--archive-session takes no prompt: give it once for each session"),
    (["--search-sessions", "nginx", "502"], "--search-sessions takes no prompt: put the words in quotes"),
    (["-i"], "-i needs a terminal, but stdout is not one"),
    (["-i", "-o", "json"], "-i and -o json cannot be used together"),
    (["-i", "-x", "hi"], "-x cannot be used with -i: leave out -i to ask once"),
    (["-i", "--list-sessions"], "-i cannot be used with --list-sessions"),
    (["-i", "--dry-run"], "--dry-run cannot be used with -i"),
    *[(["-r", other], "") for other in ("-c", "-n", "--list-sessions")],
    (["--import-session", "a", "--dry-run"], "--dry-run cannot be used with --import-session: leave one of them out"),
]  # fmt: skip


def test_what_belongs_elsewhere_is_refused_and_the_way_named(one: Home) -> None:
    before = one.files()[0].read_bytes()
    for args, said in REFUSED:
        run = one.run(*args)
        assert bool(run.stdout) == ("json" in args), args
        assert run.code == 2, args
        assert run.stderr.count("\n") == 1, args
        assert run.stderr.startswith(f"gptsh: {said}")
    assert [path.read_bytes() for path in one.files()] == [before]
