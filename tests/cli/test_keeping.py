"""Deleting, archiving and pruning sessions, through the command; also while others use them."""

import json
import re
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import Home, start_answer, texts
from tests.support.server import ModelServer
from tests.support.sessions import archived, change, lock_held, put, session_ids
from tests.support.terminal import Terminal

DELETE = "--delete-session"
ARCHIVE = "--archive-session"


def point(home: Home, name: str, path: Path) -> Path:
    """An ``@NAME`` at a session."""
    pointer = home.state / "names" / name
    pointer.parent.mkdir(exist_ok=True)
    pointer.write_text(f"{path.name}\n")
    return pointer


def objects(home: Home, *args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(home.run(*args, "-o", "json").stdout)
    return found


def test_a_session_is_deleted_for_good_and_its_name_is_free_again(home: Home) -> None:
    home.run("-m", "echo", "-s", "@work", "--title", "A  Talk", "one")
    (path,) = home.files()
    ident = home.doc()["id"]
    leftover = home.sessions / f"{path.name}.4711.abcdef.tmp"
    leftover.write_text("half of it")
    assert home.run(DELETE, "@work") == (f"deleted {ident} A Talk (1 turn, @work)\n", "", 0)
    assert [*home.sessions.iterdir(), *(home.state / "names").iterdir()] == []
    assert home.run("--show-session", ident).code == 2
    assert home.run("-m", "echo", "-s", "@work", "two").code == 0
    assert texts(home.doc()) == ["user: two", "assistant: You said: two"]


def test_all_references_are_resolved_before_anything_is_deleted(home: Home) -> None:
    for ident in ("aaaa", "bbbb", "cccc", "dddd"):
        put(home, ident, 1)
    run = home.run(*(f"{DELETE}={ref}" for ref in ("0", "1", "dddd", "c", "2")), "--yes")
    assert [line.split()[1] for line in run.stdout.splitlines()] == ["dddd", "cccc", "bbbb"]
    assert run.stderr == ""
    assert run.code == 0
    assert session_ids(home) == ["aaaa"]


@pytest.mark.parametrize("bad", ["zzzz", "@none", "0@1", "", "0 --keep 1", "0 --dry-run", "0 word"])
@pytest.mark.parametrize("job", [DELETE, ARCHIVE])
def test_one_bad_reference_or_another_option_is_exit_2_and_nothing_is_done(
    home: Home, job: str, bad: str
) -> None:
    put(home, "aaaa", 1)
    run = home.run(job, "aaaa", job, *bad.split(" "))
    assert run.stdout == ""
    assert run.code == 2
    assert len(run.stderr.splitlines()) == 1
    assert session_ids(home) == ["aaaa"]
    assert archived(home) == []


def test_an_index_is_deleted_by_a_script_with_yes_alone(home: Home) -> None:
    put(home, "aaaa", 1)
    run = home.run(DELETE, "0")
    assert run.code == 2
    assert session_ids(home) == ["aaaa"]
    assert "index 0 changes with each new session: use the id aaaa, or add --yes" in run.stderr
    assert home.run(DELETE, "0", "--yes").code == 0
    assert session_ids(home) == []


@pytest.mark.parametrize(("said", "left"), [("n", ["aaaa"]), ("", ["aaaa"]), ("y", [])])
def test_on_a_terminal_deleting_asks_first(home: Home, said: str, left: list[str]) -> None:
    put(home, "aaaa", 1)
    terminal = Terminal(home, DELETE, "0")
    terminal.until(rb"Delete session aaaa Title of aaaa \(1 turn\) permanently\? \[y/N\] ")
    terminal.write(f"{said}\n" if said else "\x04")
    assert terminal.close()[1] == 0
    assert session_ids(home) == left


def test_sessions_without_any_answer_are_pruned_after_an_hour(home: Home) -> None:
    home.configure('[providers.lab]\nbase_url = "http://127.0.0.1:9/v1"\n')
    home.run("-m", "echo", "answered")
    for words in ("one", "two", "now"):
        assert home.run("-m", "lab/m", words).code == 1
    for path in home.files():
        data = path.read_bytes()
        if b'"now"' not in data:
            path.write_bytes(re.sub(rb'"updated_at":"20..', b'"updated_at":"2020', data))
    assert len(home.run("--prune-sessions", "--unanswered").stdout.splitlines()) == 2
    assert home.run("--prune-sessions", "--unanswered", "--yes").code == 0
    assert [texts(doc)[0] for doc in home.docs()] == ["user: now", "user: answered"]


def test_what_cannot_be_read_can_be_deleted_and_archived(home: Home) -> None:
    for ident, content in (
        ("aaaa", b'{"version":1,"id":"aaaa","messages":['),
        ("bbbb", b""),
        ("cccc", b"not JSON"),
    ):
        put(home, ident, 1).write_bytes(content)
    point(home, "broken", home.sessions / "20250101-000000-aaaa.json")
    assert home.run(DELETE, "aaaa").stdout == "deleted aaaa (not readable, @broken)\n"
    assert home.run(DELETE, "20250101-000000-bbbb.json").stdout == "deleted bbbb (not readable)\n"
    assert home.run(ARCHIVE, "0").stdout == "archived cccc (not readable)\n"
    assert session_ids(home) == []
    assert archived(home) == ["20250101-000000-cccc.json"]


def test_what_cannot_be_deleted_is_exit_1_and_tells_what_was_before(home: Home) -> None:
    put(home, "aaaa", 1)
    put(home, "cccc", 1)
    (home.sessions / "20250101-000000-bbbb.json").mkdir()  # root deletes all but a folder
    point(home, "work", home.sessions / "20250101-000000-bbbb.json")
    run = home.run(DELETE, "aaaa", DELETE, "bbbb", DELETE, "cccc", "-o", "json")
    error, before = run.stderr.splitlines()
    assert re.search("the session cannot be deleted: .*20250101-000000-bbbb.json", error)
    assert before == "gptsh: already done: aaaa"
    assert run.code == 1
    assert session_ids(home) == ["bbbb", "cccc"]
    assert "Is a directory" in home.run("--show-session", "@work").stderr  # the name is not free
    assert [item["session"] for item in json.loads(run.stdout)] == ["aaaa"]
    first = home.run(DELETE, "bbbb", "-o", "json")
    assert first.code == 1
    assert json.loads(first.stdout)["error"]["exit_code"] == 1


def test_what_was_archived_is_in_no_list_and_still_found(home: Home) -> None:
    path = put(home, "aaaa", 1)
    _ = put(home, "bbbb", 1)
    point(home, "work", path)
    before = path.read_bytes()
    assert home.run(ARCHIVE, "@work") == ("archived aaaa Title of aaaa (1 turn, @work)\n", "", 0)
    assert [item["id"] for item in objects(home, "--list-sessions")] == ["bbbb"]
    assert home.run("--list-sessions", "--archived").stdout.startswith("[-] aaaa 2")
    assert home.run("--search-sessions", "question of aaaa") == ("", "", 1)
    assert home.run("--search-sessions", "question of aaaa", "--archived").stdout.startswith(
        "[-] aaaa 2"
    )
    for ref in ("aa", "@work", path.name, "@work@1", "aaaa@"):
        assert "question of aaaa" in home.run("--show-session", ref).stdout
    assert home.run("--show-session", "1").code == 2
    assert home.run(ARCHIVE, "aaaa") == (
        "already archived aaaa Title of aaaa (1 turn, @work)\n",
        "",
        0,
    )
    assert [entry.read_bytes() for entry in (home.state / "archive").iterdir()] == [before]
    assert (home.state / "archive").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("ref", ["@work", "aaaa", "20250101-000000-aaaa.json"])
def test_asking_brings_it_back_and_a_label_does_not(home: Home, ref: str) -> None:
    point(home, "work", put(home, "aaaa", 1))
    home.run(ARCHIVE, "aaaa")
    assert home.run("-s", ref, "--tag", "t").code == 0
    assert session_ids(home) == []
    assert archived(home) == ["20250101-000000-aaaa.json"]
    assert home.run("-m", "echo", "-s", ref, "and now").code == 0
    assert session_ids(home) == ["aaaa"]
    assert archived(home) == []
    assert texts(home.doc())[-1].endswith("and now")
    assert home.doc()["meta"]["tags"] == ["t"]


def test_a_run_whose_session_is_archived_loses_no_turn(lab: Home, model: ModelServer) -> None:
    process, more = start_answer(lab, model)
    assert lab.run(ARCHIVE, "0").stdout.startswith("archived ")
    assert len(archived(lab)) == 1
    more.set()
    assert (*process.communicate(timeout=30), process.returncode) == (b"second\n", b"", 0)
    assert archived(lab) == []
    assert texts(lab.doc()) == ["user: go", "assistant: first second"]


def test_a_copy_in_the_archive_is_never_overwritten(home: Home) -> None:
    copy = home.state / "archive" / put(home, "aaaa", 1).name
    copy.parent.mkdir()
    copy.write_text("another")
    run = home.run(ARCHIVE, "aaaa")
    assert run.stdout == ""
    assert run.code == 1
    assert str(copy) in run.stderr
    assert session_ids(home) == ["aaaa"]
    assert copy.read_text() == "another"
    assert home.run(DELETE, "aaaa").code == 0  # for good: both
    assert session_ids(home) == []
    assert archived(home) == []


def test_what_is_archived_between_being_found_and_being_read_is_read_there(home: Home) -> None:
    path = put(home, "aaaa", 1)
    home.run(ARCHIVE, "aaaa")
    path.symlink_to("nowhere")  # it is found, and then not there
    assert "Title of aaaa" in home.run("--show-session", "aaaa").stdout
    (home.state / "archive" / path.name).unlink()
    run = home.run("--show-session", "aaaa")
    assert run.code == 2
    assert run.stderr.startswith(f"gptsh: {path}: No such file or directory")


def test_what_was_used_since_it_was_chosen_stays(home: Home) -> None:
    path = put(home, "aaaa", 400)
    _ = put(home, "bbbb", 400)
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    with lock_held(home) as release:  # another run, which uses the one before it lets go
        threading.Timer(0.3, lambda: (change(path, "updated_at", now), release())).start()
        run = home.run("--prune-sessions", "--older-than", "1y", "--yes")
    assert run.code == 0
    assert session_ids(home) == ["aaaa"]


def test_prune_shows_what_would_go_and_does_nothing(home: Home) -> None:
    point(home, "work", put(home, "aaaa", 40))
    for ident, days in (("bbbb", 50), ("cccc", 1), ("dddd", 60)):
        put(home, ident, days)
    prune = "--prune-sessions"
    old = ("--older-than", "30d")
    run = home.run(prune, *old)
    lines = {line.split()[1]: line for line in home.run("--list-sessions").stdout.splitlines()}
    assert run.stdout.splitlines() == [lines[ident] for ident in ("dddd", "bbbb", "aaaa")]
    assert (
        run.stderr == "gptsh: 3 sessions would be deleted, @work among them; add --yes to do it\n"
    )
    assert run.code == 0
    assert [item["id"] for item in objects(home, prune, *old)] == ["dddd", "bbbb", "aaaa"]
    assert (
        home.run(prune, "--keep", "3", "--archive").stderr
        == "gptsh: 1 session would be archived; add --yes to do it\n"
    )
    assert len(session_ids(home)) == 4


def test_prune_deletes_with_yes_and_archives_with_archive(home: Home) -> None:
    pointer = point(home, "work", put(home, "aaaa", 60))
    put(home, "bbbb", 40)
    old = ("--prune-sessions", "--older-than", "50d", "--yes")
    assert home.run(*old) == ("deleted aaaa Title of aaaa (1 turn, @work)\n", "", 0)
    assert not pointer.exists()
    assert home.run("--show-session", "@work").code == 2
    assert session_ids(home) == ["bbbb"]
    assert home.run(*old) == ("", "gptsh: no session would be deleted\n", 0)
    away = home.run("--prune-sessions", "--keep", "0", "--archive", "--yes", "-o", "jsonl")
    assert json.loads(away.stdout)["session"] == "bbbb"
    assert json.loads(away.stdout)["state"] == "archived"
    assert home.run("--prune-sessions", "--keep", "0", "--yes").code == 0
    assert archived(home) == ["20250101-000000-bbbb.json"]  # what is there already stays


def test_prune_reaches_archived_sessions_with_archived_alone(home: Home) -> None:
    for ident, days in (("aaaa", 60), ("bbbb", 40), ("cccc", 60)):
        put(home, ident, days)
    home.run(ARCHIVE, "aaaa", ARCHIVE, "bbbb")
    old = ("--prune-sessions", "--archived", "--older-than", "50d")
    run = home.run(*old)
    assert run.stdout[:8] == "[-] aaaa"
    assert run.stderr == "gptsh: 1 session would be deleted; add --yes to do it\n"
    assert home.run(*old, "--archive").code == 2
    assert home.run(*old, "--yes") == ("deleted aaaa Title of aaaa (1 turn)\n", "", 0)
    assert session_ids(home) == ["cccc"]
    assert archived(home) == ["20250101-000000-bbbb.json"]


@pytest.mark.parametrize(
    ("args", "left"),
    [
        ("--keep 2", "ab"), ("--keep 0", ""), ("--older-than 25d", "ab"), ("--keep 3 --older-than 15d", "abc"),
        ("--keep 1 --older-than 25d", "ab"), ("--keep 0 --limit 1", "abc"), ("--keep 1 --tag red", "abc"),
        ("--keep 0 -m gpt", "acd"), ("--keep 0 --here", "abd"), ("--older-than 241h", "a"), ("--older-than 239h", ""),
        ("--older-than 3w", "ab"), ("--older-than 1y", "abcd"),
    ],
)  # fmt: skip
def test_prune_takes_those_not_used_for_longest(home: Home, args: str, left: str) -> None:
    put(home, "aaaa", 10)
    put(home, "bbbb", 20, meta={"tags": ["red"]}, agent={"name": "default", "model": "gpt"})
    put(home, "cccc", 30, meta={"project": str(home.cwd)})
    put(home, "dddd", 40, meta={"tags": ["red"]})
    assert home.run("--prune-sessions", *args.split(), "--yes").code == 0
    assert "".join(ident[0] for ident in session_ids(home)) == left


@pytest.mark.parametrize(
    "age", ["", "30", "30m", "-1d", "0d", "1.5d", "²d", "101y", "1" * 5000 + "d", "30d\n"]
)
def test_another_age_is_exit_2_and_the_forms_are_named(home: Home, age: str) -> None:
    put(home, "aaaa", 400)
    run = home.run("--prune-sessions", "--older-than", age, "--yes")
    assert run.stdout == ""
    assert run.code == 2
    assert session_ids(home) == ["aaaa"]
    assert "12h, 30d, 2w or 1y" in run.stderr


def test_what_cannot_be_read_is_never_pruned(home: Home) -> None:
    path = put(home, "aaaa", 400)
    path.write_bytes(path.read_bytes()[:-10])
    put(home, "bbbb", 400)
    run = home.run("--prune-sessions", "--keep", "0", "--yes")
    assert run.stdout.splitlines() == ["deleted bbbb Title of bbbb (1 turn)"]
    assert run.stderr.startswith(f"gptsh: skipped {path}: ")
    assert session_ids(home) == ["aaaa"]


def test_what_was_asked_in_a_deleted_session_leaves_the_history_of_the_prompt(home: Home) -> None:
    home.run("-m", "echo", "my secret\nin two lines")
    home.run("-s", "0", "more of it")
    typed = home.state / "typed"
    entry = "\n# 2026-11-28 10:00:00.000000\n+"
    others = f"{entry}hello\n{entry}my secret\n{entry}last\n"
    typed.write_text(f"{entry}my secret\n+in two lines\n{entry}more of it\n{others}")
    assert home.run(DELETE, "0", "--yes").code == 0
    assert typed.read_text() == others
