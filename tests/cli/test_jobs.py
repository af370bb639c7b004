"""Jobs beside asking: which options each takes, what is said of all others, and JSON that can always be read."""

import pytest

from gptsh.cli.entrypoint import main
from gptsh.cli.exporting import EXPORTS
from gptsh.cli.options import EVERYWHERE, FILTERS, JOBS, ONCE, ROWS, TAKES
from gptsh.core.forms import FORMATS
from gptsh.formats.losses import FEATURES
from tests.support.home import Home
from tests.support.modules import modules_after
from tests.support.terminal import Terminal

VALUED = ("--show-session", "--search-sessions", "--export-session", "--import-session", "--delete-session")


def job_of(name: str) -> list[str]:
    return [name, *(["0"] if name in (*VALUED, "--archive-session") else [])]


@pytest.fixture
def one(home: Home) -> Home:
    """A home with a session."""
    assert home.run("-m", "echo", "hello").code == 0
    return home


# ---- what goes with what


def test_every_job_says_what_it_takes_by_names_that_there_are() -> None:
    names = {row.names[0] for row in ROWS}
    assert set(TAKES) == set(JOBS)
    assert {name for takes in (*TAKES.values(), EVERYWHERE, FILTERS) for name in takes} <= names
    assert not {*EVERYWHERE} & {name for takes in TAKES.values() for name in takes}
    of_jobs = {row.names[0] for row in ROWS if row.group == "Manage"} - {*JOBS}
    assert all(any(name in takes for takes in TAKES.values()) for name in of_jobs)
    assert {*VALUED} - {"--delete-session"} == {*ONCE}


ASKING = (["--dry-run"], ["--no-save"], ["-x"], ["--schema", "{}"], ["-p", "a=1"], ["-f", "x"], ["--system", "x"],
          ["-n"], ["--truncate", "tail"], ["--compact"], ["--title", "x"], ["--snapshot", "x"])  # fmt: skip
CHOOSING = (["-a", "x"], ["-m", "x"], ["--tag", "x"], ["--here"], ["--limit", "0"])
SESSION = (["-s", "0"], ["-c"])


@pytest.mark.parametrize("job", JOBS)
def test_what_says_nothing_of_a_job_is_refused(job: str, capfd: pytest.CaptureFixture[str]) -> None:
    for more in (*ASKING, *CHOOSING, *SESSION, ["--timeout", "1"], ["--full"], ["--keep", "0"], ["--archived"]):
        if more[0] in TAKES[job]:
            continue
        assert main([*job_of(job), *more]) == 2
        out, err = capfd.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert err.startswith(f"gptsh: {more[0]} does not go with {job}: ")


def test_an_import_that_is_tried_imports_nothing(home: Home) -> None:
    path = home.folder / "chat.json"
    path.write_text('[{"role": "user", "content": "hi"}]')
    run = home.run("--import-session", str(path), "--dry-run")
    assert run == ("", "gptsh: --dry-run does not go with --import-session: leave one of them out\n", 2)
    assert home.files() == []


@pytest.mark.parametrize("job", [job for job in JOBS if job not in ("--list-models", "--delete-session")])
def test_what_only_says_how_is_taken_by_every_job_and_the_environment_never_fails_one(one: Home, job: str) -> None:
    ident, path = one.doc()["id"], str(one.files()[0])
    value = {"--import-session": [path], "--search-sessions": ["hello"], "--prune-sessions": ["--keep", "9"]}
    args = [job, *value.get(job, [ident] if len(job_of(job)) > 1 else [])]
    how = ["--no-stdin", "--no-stream", "--no-reasoning", "--debug", "--config", str(one.config)]
    one.configure("")
    env = {"GPTSH_SESSION": "@none", "GPTSH_TIMEOUT": "5", "GPTSH_MODEL": "echo", "GPTSH_NO_STDIN": "1"}
    run = one.run(*args, *how, env=env)
    assert run.code == 0, run.stderr
    if job != "--export-session":
        assert one.run(*args, "-o", "json").code == 0
    assert one.run(*args, env={"GPTSH_OUTPUT": "json"}).code == 0


def test_a_form_beside_an_export_is_refused_and_the_way_named(one: Home) -> None:
    run = one.run("--export-session", "0", "-o", "markdown")
    assert run == ("", "gptsh: -o does not go with --export-session: --format names the form\n", 2)


@pytest.mark.parametrize("more", [["--full"], ["--keep", "0"], ["--limit", "0"], ["--archived"], ["--yes"]])
def test_what_belongs_to_a_job_is_refused_in_a_question(home: Home, more: list[str]) -> None:
    run = home.run("-m", "echo", "hi", *more)
    assert (run.stdout, run.code) == ("", 2)
    assert run.stderr.startswith(f"gptsh: {more[0]} does not go with a question: it goes with --")
    assert home.files() == []


def test_a_job_of_one_thing_given_twice_is_refused(one: Home) -> None:
    for job in ONCE:
        run = one.run(job, "0", f"{job}=1")
        assert run == ("", f"gptsh: {job} is given twice: give it once in a run\n", 2)


@pytest.mark.parametrize("job", [*VALUED, "--archive-session"])
@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_value_is_said(one: Home, job: str, value: str) -> None:
    hint = ": --list-sessions lists them all" if job == "--search-sessions" else ""
    assert one.run(f"{job}={value}") == ("", f"gptsh: {job} is empty{hint}\n", 2)


def test_a_word_beside_a_job_tells_how_it_is_meant(one: Home) -> None:
    for args, hint in (
        (["--archive-session", "0", "1"], "give it once for each session"),
        (["--delete-session", "0", "1"], "give it once for each session"),
        (["--search-sessions", "nginx", "502"], "put the words in quotes"),
        (["--import-session", "a", "b"], "name one file or folder"),
    ):
        run = one.run(*args)
        assert (run.stdout, run.code) == ("", 2)
        assert run.stderr.startswith(f"gptsh: {args[0]} takes no prompt: {hint}")


def test_each_format_of_an_export_is_known_everywhere() -> None:
    (row,) = (row for row in ROWS if row.names == ("--format",))
    assert (*row.attributes["type"].choices,) == FORMATS
    assert {*EXPORTS} == {*FORMATS}
    assert all(len(feature.carried) == len(FORMATS) for feature in FEATURES)


def test_an_export_imports_no_reader_and_json_no_portrait(one: Home) -> None:
    readers = {"gptsh.formats.readers", "gptsh.formats.claude_code", "gptsh.core.adopt", "gptsh.cli.importing"}
    for form in FORMATS:
        assert not modules_after(one, "--export-session", "0", "--format", form) & readers, form
    assert "gptsh.core.portrait" not in modules_after(one, "--show-session", "0", "-o", "json")
    assert "gptsh.core.portrait" in modules_after(one, "--show-session", "0")


# ---- forms


def test_a_session_is_rendered_in_a_pipe_for_the_command_line_alone(one: Home) -> None:
    plain = one.run("--show-session", "0").stdout
    assert one.run("--show-session", "0", env={"GPTSH_OUTPUT": "markdown"}).stdout == plain
    assert one.run("--show-session", "0", "-o", "markdown").stdout != plain
    seen, _ = Terminal(one, "--show-session", "0", env={"GPTSH_OUTPUT": "markdown", "PAGER": "cat"}).close()
    assert b"## user" not in seen
