"""Lists of sessions: their lines, their filters, and what they are not for."""

import json
import re
import sys
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.support.home import Home
from tests.support.programs import needs
from tests.support.sessions import change, put
from tests.support.terminal import Terminal


@pytest.fixture
def four(home: Home) -> Home:
    """Four sessions of one moment, the newest first by their ids: dddd, cccc, bbbb, aaaa."""
    put(
        home,
        "aaaa",
        1,
        title="First One",
        provider={"name": "openai"},
        agent={"name": "other", "model": "gpt-4.1"},
    )
    put(home, "bbbb", 2, title=None, agent={"name": "default", "model": "openai/gpt-4.1"})
    put(home, "cccc", 3, meta={"tags": ["red"], "project": str(home.cwd)})
    put(home, "dddd", 4, meta={"tags": ["red", "blue"]})
    return home


def test_a_list_is_newest_first_in_stable_columns_and_local_time(four: Home) -> None:
    for path in four.files():
        change(path, "updated_at", "2025-10-27T23:15:30.000Z")
    change(four.files()[0], "agent", {"name": "a\nb", "model": "x\n[9] fake"})
    run = four.run("--list-sessions", env={"TZ": "Asia/Tokyo"})
    assert run.stdout.splitlines() == [
        "[0] dddd 2025-10-28 08:15 Title of dddd (a b|x [9] fake)",
        "[1] cccc 2025-10-28 08:15 Title of cccc (default|echo)",
        '[2] bbbb 2025-10-28 08:15 "question of bbbb" (default|openai/gpt-4.1)',
        "[3] aaaa 2025-10-28 08:15 First One (other|gpt-4.1)",
    ]
    assert run.stderr == ""
    assert run.code == 0


@pytest.mark.parametrize(
    "args", [["--list-sessions"], ["--usage"], ["--search-sessions", "question"]]
)
def test_a_part_of_a_model_name_chooses_and_what_none_has_is_a_note(
    four: Home, args: list[str]
) -> None:
    assert four.run(*args, "-m", "pt-4").stdout
    assert (
        four.run(*args, "-m", "nobody").stderr == "gptsh: nothing found with a model like nobody\n"
    )


@pytest.mark.parametrize(
    ("args", "indexes"),
    [
        ("", "0123"), ("--limit 2", "01"), ("--limit 0", ""), ("--here", "1"),
        ("--tag red", "01"), ("--tag red --tag blue", "0"), ("--tag red --limit 1", "0"),
        ("-a other", "3"), ("-a nobody", ""), ("-m echo", "01"), ("-m echo -a default --limit 3", "01"),
        ("-m gpt-4.1", "23"), ("-m openai/gpt-4.1", "23"),  # in either spelling
    ],
)  # fmt: skip
def test_filters_leave_holes_and_never_renumber(four: Home, args: str, indexes: str) -> None:
    run = four.run("--list-sessions", *args.split())
    assert re.findall(r"^\[(\d)\]", run.stdout, re.MULTILINE) == [*indexes]
    note = "gptsh: nothing found with the agent nobody\n" if "nobody" in args else ""
    assert run.stderr == note
    assert run.code == 0


@pytest.mark.parametrize(
    "job", ["--list-sessions", "--search-sessions question", "--prune-sessions --keep 0"]
)
@pytest.mark.parametrize(
    ("since", "idents"),
    [
        ("36h", ["aaaa"]),
        ("60h", ["bbbb", "aaaa"]),
        ("1w", ["cccc", "bbbb", "aaaa"]),
        ("2020-01-01", [*"abcd"]),
    ],
)
def test_since_keeps_what_was_used_then_or_later(
    four: Home, job: str, since: str, idents: list[str]
) -> None:
    change(four.files()[0], "updated_at", "2024-10-27T23:15:30.000Z")
    run = four.run(*job.split(), "--since", since, "-o", "jsonl")
    found = {(item["id"], item["index"]) for item in map(json.loads, run.stdout.splitlines())}
    indexes = {"a": 3, "b": 2, "c": 1, "d": 0}
    assert found == {(ident[0] * 4, indexes[ident[0]]) for ident in idents}
    assert run.code == 0


@pytest.mark.parametrize("day", ["2026-11-01", "today"])
def test_since_a_day_begins_at_local_midnight(four: Home, day: str) -> None:
    zone = {"TZ": "Asia/Tokyo"}
    today = datetime.now(ZoneInfo("Asia/Tokyo")).date()
    midnight = datetime.combine(
        date(2026, 11, 1) if day != "today" else today, time(), ZoneInfo("Asia/Tokyo")
    )
    for at, path in enumerate(four.files()):
        used = midnight.astimezone(UTC) + timedelta(minutes=at - 2)
        change(path, "updated_at", used.isoformat().replace("+00:00", "Z"))
    listed = four.run("--list-sessions", "--since", day, env=zone).stdout
    assert re.findall(r"^\[(\d)\]", listed, re.MULTILINE) == ["2", "3"]


@pytest.mark.parametrize(
    "since", ["", "30", "0d", "1.5d", "2026-13-01", "2026-11-1", "tomorrow", "0001-01-01"]
)
@pytest.mark.parametrize("job", ["--list-sessions", "--usage"])
def test_an_unreadable_since_is_exit_2_and_the_forms_are_named(
    four: Home, job: str, since: str
) -> None:
    run = four.run(job, "--since", since, env={"TZ": "Asia/Tokyo"})
    assert run.code == 2
    assert run.stdout == ""
    assert "12h, 30d, 2w or 1y, or a day: 2026-11-01, today or yesterday" in run.stderr


EMPTY = [
    (["--list-sessions"], 'there is no session yet: gptsh "hello" starts one'),
    (["--list-sessions", "--archived"], "no session is archived"),
    (["--list-sessions", "--tag", "x"], "nothing found with the tag x"),
    (["--list-sessions", "--tag", "x", "-a", "me", "-m", "gpt", "--here"],
     "nothing found with the tag x, with the agent me, with a model like gpt, in this project"),
    (["--list-sessions", "--since", "2026-11-01"], "nothing found since 2026-11-01 00:00"),
    (["--list-agents", "-m", "gpt"], "no agent has a model that matches gpt"),
    (["--list-models", "-m", "gpt"], "no available model matches gpt"),
    (["--list-tools"], "no tool servers: add one under [mcp.servers.NAME] in config.toml"),
    (["--list-tools", "-a", "default"], "no tool servers: "),
]  # fmt: skip


@pytest.mark.parametrize(("args", "note"), EMPTY)
def test_an_empty_list_says_so_in_its_own_words(home: Home, args: list[str], note: str) -> None:
    run = home.run(*args)
    assert run.stdout == ""
    assert run.code == 0
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith(f"gptsh: {note}")


def test_an_agent_without_tools_is_named(home: Home) -> None:
    home.configure('[mcp.servers.time]\ncommand = "mcp-server-time"\n')
    assert home.run("--list-tools", "-a", "default") == (
        "",
        "gptsh: agent default has no tools\n",
        0,
    )


def test_an_untitled_session_shows_its_words_and_what_was_piped_into_them(home: Home) -> None:
    home.run(
        "-m", "echo", "write a commit message", stdin="diff --git a/README.md b/README.md\n+one\n"
    )
    home.run("-m", "echo", stdin="only a pipe")
    (home.cwd / "notes.txt").write_text("some notes\n")
    home.run("-m", "echo", "-f", "notes.txt", "sum this up")
    titles = re.findall(r'"(.*)" \(', home.run("--list-sessions").stdout)
    assert titles[:2] == ["sum this up: notes.txt", "only a pipe"]
    assert titles[2].startswith("write a commit message: diff --git a/README.md")


def test_on_a_terminal_without_colours_a_list_has_the_same_lines_as_in_a_pipe(home: Home) -> None:
    home.run("-m", "echo", "-s", "@work", "one")
    home.run("-s", "@work@1", "two")
    listed = home.run("--list-sessions").stdout
    seen, _ = Terminal(home, "--list-sessions", env={"NO_COLOR": "1"}, columns=200).close()
    assert seen.decode().replace("\r\n", "\n") == listed
    endings = [line.partition(" (default|echo)")[2] for line in listed.splitlines()]
    assert re.fullmatch(r" \[fork of \w{4}@1\]", endings[0])
    assert endings[1] == " [@work]"


# ---- longer than the screen

MARKS = {"PAGER": "sed 's/^/=/'", "NO_COLOR": "1"}
LONG_LISTS = [
    ["--list-sessions"], ["--search-sessions", "question"], ["--prune-sessions", "--keep", "0"], ["--usage"],
    ["--usage", "-o", "text"], ["--list-agents"],
]  # fmt: skip


@pytest.fixture
def thirty(home: Home) -> Home:
    """More sessions, days and agents than a screen of 24 rows has."""
    home.configure("".join(f"[agents.a{at}]\nmodel = 'echo'\n" for at in range(30)))
    for at in range(30):
        path = put(home, f"s{at:03}", at)
        doc = json.loads(path.read_bytes())
        answer = {**doc["messages"][0], "id": "a", "role": "assistant", "model": "echo"}
        change(path, "messages", [*doc["messages"], answer])
    return home


@pytest.mark.parametrize("args", LONG_LISTS, ids=" ".join)
def test_what_is_longer_than_the_screen_goes_to_the_pager(thirty: Home, args: list[str]) -> None:
    seen, code = Terminal(thirty, *args, env=MARKS, columns=120).close()
    lines = seen.decode().splitlines()
    assert code == 0
    assert len([line for line in lines if line.startswith("=")]) >= 30
    assert lines[0].startswith("=")


@pytest.mark.parametrize("args", [["--limit", "23"], ["-o", "json"]], ids=" ".join)
def test_what_fits_on_the_screen_or_is_for_programs_goes_to_no_pager(
    thirty: Home, args: list[str]
) -> None:
    seen, _ = Terminal(thirty, "--list-sessions", *args, env=MARKS, columns=120).close()
    expected = thirty.run("--list-sessions", *args).stdout
    assert seen.decode().replace("\r\n", "\n") == expected


def test_a_row_that_the_terminal_wraps_counts_as_the_rows_it_takes(thirty: Home) -> None:
    seen, _ = Terminal(thirty, "--list-sessions", "--limit", "13", env=MARKS, columns=40).close()
    assert seen.count(b"\n=") == 12


@pytest.mark.parametrize("pager", ["no-such-pager", ""])
def test_without_a_pager_a_long_list_is_written_whole(thirty: Home, pager: str) -> None:
    for args in (["--list-sessions"], ["--search-sessions", "question"]):
        env = {"PAGER": pager, "NO_COLOR": "1"}
        seen, code = Terminal(thirty, *args, env=env, columns=200).close()
        found = re.findall(r"(?m)^\[(\d+)\]", seen.decode())
        assert found == [str(at) for at in range(30)]
        assert code == 0


SLOW_LIST = """
from gptsh.manage import lists
from gptsh.terminal import stdio

def lines():
    for number in range(40):
        yield f"line {number}"
        if number == 30:
            stdio.note("skipped one")

lists.show(lines(), None)
"""


def test_a_note_about_a_long_list_comes_after_the_pager(home: Home) -> None:
    terminal = Terminal(home, command=[sys.executable, "-c", SLOW_LIST], env=MARKS, columns=120)
    assert terminal.close()[0].decode().splitlines()[-2:] == ["=line 39", "gptsh: skipped one"]


@needs("less")
def test_less_is_the_pager_of_lists_and_leaving_it_is_no_failure(thirty: Home) -> None:
    terminal = Terminal(thirty, "--list-sessions", columns=120)
    terminal.until(rb"\n:")
    terminal.write("q")
    seen, code = terminal.close()
    assert code == 0
    assert b"[29]" not in seen
    assert b"gptsh:" not in seen
