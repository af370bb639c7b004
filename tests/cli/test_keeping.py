"""Deleting, putting away and pruning sessions, through the command; also while others use them."""

import fcntl
import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import Home, in_mid_answer, texts
from tests.support.server import ModelServer
from tests.support.sessions import archived, change, kept, put

DELETE, ARCHIVE = "--delete-session", "--archive-session"


def point(home: Home, name: str, path: Path) -> Path:
    """An ``@NAME`` at a session."""
    pointer = home.state / "names" / name
    pointer.parent.mkdir(exist_ok=True)
    pointer.write_text(f"{path.name}\n")
    return pointer


def objects(home: Home, *args: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(home.run(*args, "-o", "json").stdout)
    return found


# ---- deleting


def test_a_session_is_deleted_for_good_and_its_name_is_free_again(home: Home) -> None:
    home.run("-m", "echo", "-s", "@work", "--title", "A  Talk", "one")
    home.run("-m", "echo", "other")
    ident = home.docs()[1]["id"]
    (path,) = home.sessions.glob(f"*-{ident}.json")
    leftover = home.sessions / f"{path.name}.4711.abcdef.tmp"
    leftover.write_text("half of it")
    assert home.run(DELETE, "@work") == (f"deleted {ident} A Talk (1 turn, @work)\n", "", 0)
    assert (path.exists(), leftover.exists(), [*(home.state / "names").iterdir()]) == (False, False, [])
    assert home.run("--show-session", ident).code == 2
    assert home.run("-m", "echo", "-s", "@work", "two").code == 0
    assert texts(home.docs()[0]) == ["user: two", "assistant: You said: two"]
    assert len(home.docs()) == 2


def test_all_references_are_resolved_before_anything_is_deleted(home: Home) -> None:
    for ident in ("aaaa", "bbbb", "cccc", "dddd"):
        put(home, ident, 1)
    run = home.run(*(f"{DELETE}={ref}" for ref in ("0", "1", "dddd", "c", "2")))
    assert [line.split()[1] for line in run.stdout.splitlines()] == ["dddd", "cccc", "bbbb"]
    assert (run.stderr, run.code, kept(home)) == ("", 0, ["aaaa"])


@pytest.mark.parametrize("bad", [["9"], ["zzzz"], ["@none"], ["0@1"], ["aaaa@"], [""], ["@"],
                                 ["0", "--yes"], ["0", "--dry-run"], ["0", "word"]])  # fmt: skip
@pytest.mark.parametrize("job", [DELETE, ARCHIVE])
def test_one_bad_reference_or_another_option_is_exit_2_and_nothing_is_done(
    home: Home, job: str, bad: list[str]
) -> None:
    put(home, "aaaa", 1)
    run = home.run(job, "aaaa", job, *bad)
    assert (run.stdout, run.code, len(run.stderr.splitlines())) == ("", 2, 1)
    assert (kept(home), archived(home)) == (["aaaa"], [])


@pytest.mark.parametrize(
    "content", [b'{"version":1,"id":"aaaa","messages":[', b"not JSON", b"", b"[]", b'{"version":99}']
)
def test_what_cannot_be_read_can_be_deleted_and_put_away(home: Home, content: bytes) -> None:
    for ident in ("aaaa", "bbbb", "cccc"):
        put(home, ident, 1).write_bytes(content)
    point(home, "broken", home.sessions / "20250101-000000-aaaa.json")
    assert home.run(DELETE, "aaaa").stdout == "deleted aaaa (not readable, @broken)\n"
    assert home.run(DELETE, "20250101-000000-bbbb.json").stdout == "deleted bbbb (not readable)\n"
    assert home.run(ARCHIVE, "0").stdout == "archived cccc (not readable)\n"
    assert (kept(home), archived(home)) == ([], ["20250101-000000-cccc.json"])


def test_what_stays_of_a_deleted_session_is_said(home: Home) -> None:
    put(home, "aaaa", 1, context={"consolidated": "aaaa-1"}, agent={"name": "scribe", "model": "echo"})
    put(home, "bbbb", 1, context={"consolidated": "bbbb-1"})  # by another tool: there is no memory of ours
    for ident, origin in (("ffff", "aaaa@1"), ("gggg", "aaaa@"), ("hhhh", "aaaa@-1"), ("kkkk", "bbbb@1")):
        put(home, ident, 1, meta={"forked_from": origin})
    (home.state / "memory" / "scribe").mkdir(parents=True)
    home.run(ARCHIVE, "gggg")
    assert home.run(DELETE, "aaaa", DELETE, "hhhh", DELETE, "bbbb").stdout.splitlines() == [
        "deleted aaaa Title of aaaa (1 turn); its forks ffff, gggg stay; what it told the memory of scribe stays",
        "deleted hhhh Title of hhhh (1 turn)",
        "deleted bbbb Title of bbbb (1 turn); its fork kkkk stays",
    ]


def test_programs_get_objects(home: Home) -> None:
    point(home, "work", put(home, "aaaa", 1))
    put(home, "ffff", 1, meta={"forked_from": "aaaa@1"})
    put(home, "gggg", 1).write_text("{")
    one = {"session": "aaaa", "state": "archived", "title": "Title of aaaa", "turns": 1,
           "file": "20250101-000000-aaaa.json", "names": ["@work"], "forks": [], "memory": []}  # fmt: skip
    assert objects(home, ARCHIVE, "aaaa") == [one]
    gone = [json.loads(line) for line in home.run(DELETE, "aaaa", DELETE, "g", "-o", "jsonl").stdout.splitlines()]
    unread = {"session": "gggg", "title": None, "turns": None, "file": "20250101-000000-gggg.json", "names": []}
    assert gone == [{**one, "state": "deleted", "forks": ["ffff"]}, {**one, **unread, "state": "deleted"}]


@pytest.mark.parametrize("form", [[], ["-o", "json"], ["-o", "jsonl"]])
def test_what_cannot_be_deleted_is_exit_1_and_tells_what_was_before(home: Home, form: list[str]) -> None:
    for ident in ("aaaa", "cccc"):
        put(home, ident, 1)
    (home.sessions / "20250101-000000-bbbb.json").mkdir()  # root deletes all but a folder
    pointer = point(home, "work", home.sessions / "20250101-000000-bbbb.json")
    run = home.run(DELETE, "aaaa", DELETE, "bbbb", DELETE, "cccc", *form)
    error, before = run.stderr.splitlines()
    assert "the session cannot be deleted: " in error
    assert "20250101-000000-bbbb.json" in error
    assert (before, run.code, kept(home)) == ("gptsh: done before: aaaa", 1, ["bbbb", "cccc"])
    assert pointer.exists()
    if form == ["-o", "json"]:
        assert [item["session"] for item in json.loads(run.stdout)] == ["aaaa"]
    if form == ["-o", "jsonl"]:
        assert json.loads(run.stdout.splitlines()[1])["error"]["exit_code"] == 1
    first = home.run(DELETE, "bbbb", "-o", "json")
    assert (first.code, json.loads(first.stdout)["error"]["exit_code"]) == (1, 1)


def test_a_link_goes_and_what_it_leads_to_stays(home: Home) -> None:
    path, real = put(home, "aaaa", 1), home.folder / "elsewhere.json"
    path.rename(real)
    path.symlink_to(real)
    line = f"deleted aaaa Title of aaaa (1 turn); it was a link, and {real} stays\n"
    assert home.run(DELETE, "aaaa").stdout == line
    assert (real.exists(), path.is_symlink()) == (True, False)


# ---- putting away


def test_what_was_put_away_is_in_no_list_and_still_found(home: Home) -> None:
    path = put(home, "aaaa", 1)
    point(home, "work", path)
    put(home, "bbbb", 1)
    before = path.read_bytes()
    assert home.run(ARCHIVE, "@work") == ("archived aaaa Title of aaaa (1 turn, @work)\n", "", 0)
    assert [item["id"] for item in objects(home, "--list-sessions")] == ["bbbb"]
    assert home.run("--list-sessions", "--archived").stdout.startswith("[-] aaaa 2")
    assert objects(home, "--list-sessions", "--archived")[0]["index"] is None
    for ref in ("aaaa", "aa", "@work", path.name, "@work@1", "aaaa@"):
        assert "question of aaaa" in home.run("--show-session", ref).stdout
    assert home.run("--show-session", "1").code == 2
    again = home.run(ARCHIVE, "aaaa", ARCHIVE, "@work")
    assert again == ("already archived aaaa Title of aaaa (1 turn, @work)\n", "", 0)
    folder = home.state / "archive"
    assert [entry.read_bytes() for entry in folder.iterdir()] == [before]
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("ref", ["@work", "aaaa", "20250101-000000-aaaa.json"])
def test_asking_brings_it_back_and_a_label_does_not(home: Home, ref: str) -> None:
    point(home, "work", put(home, "aaaa", 1))
    home.run(ARCHIVE, "aaaa")
    assert home.run("-s", ref, "--tag", "t").code == 0
    assert (kept(home), archived(home)) == ([], ["20250101-000000-aaaa.json"])
    assert home.run("-m", "echo", "-s", ref, "and now").code == 0
    assert (kept(home), archived(home)) == (["aaaa"], [])
    assert texts(home.doc())[-1].endswith("and now")
    assert home.doc()["meta"]["tags"] == ["t"]


def test_a_run_whose_session_is_put_away_loses_no_turn(lab: Home, model: ModelServer) -> None:
    process, more = in_mid_answer(lab, model)
    assert lab.run(ARCHIVE, "0").stdout.startswith("archived ")
    assert len(archived(lab)) == 1
    more.set()
    assert (*process.communicate(timeout=30), process.returncode) == (b"second\n", b"", 0)
    assert archived(lab) == []
    assert texts(lab.doc()) == ["user: go", "assistant: first second"]


def test_a_copy_in_the_archive_is_never_overwritten(home: Home) -> None:
    path = put(home, "aaaa", 1)
    copy = home.state / "archive" / path.name
    copy.parent.mkdir()
    copy.write_text("another")
    run = home.run(ARCHIVE, "aaaa")
    assert (run.stdout, run.code) == ("", 1)
    assert "cannot be archived" in run.stderr
    assert str(copy) in run.stderr
    assert (kept(home), copy.read_text()) == (["aaaa"], "another")
    assert home.run(DELETE, "aaaa").code == 0  # for good: both
    assert (kept(home), archived(home)) == ([], [])


def test_a_session_is_found_while_it_moves(home: Home) -> None:
    path = put(home, "aaaa", 1)
    point(home, "work", path)
    (home.state / "archive").mkdir()
    places, dice = [path, home.state / "archive" / path.name], random.Random(4)

    def move() -> None:
        places[0].rename(places[1])
        places.reverse()

    for number in range(40):
        mover = threading.Timer(dice.uniform(0, 0.006), move)
        mover.start()
        assert home.run("--show-session", ("aaaa", "@work", path.name)[number % 3]).code == 0
        mover.join()


# ---- at once


@contextmanager
def locked_for_a_moment(home: Home, meanwhile: Any) -> Iterator[None]:
    """The store's lock is held by another, who does something before it lets go."""
    with open(home.state / ".lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        timer = threading.Timer(0.3, lambda: (meanwhile(), fcntl.flock(lock, fcntl.LOCK_UN)))
        timer.start()
        yield
        timer.join()


def test_what_was_used_since_it_was_chosen_stays(home: Home) -> None:
    path = put(home, "aaaa", 400)
    put(home, "bbbb", 400)
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    with locked_for_a_moment(home, lambda: change(path, "updated_at", now)):
        run = home.run("--prune-sessions", "--older-than", "1y", "--yes")
    assert (run.code, kept(home)) == (0, ["aaaa"])


@pytest.mark.slow
def test_putting_away_while_8_runs_resume_keeps_every_turn(home: Home) -> None:
    home.run("-m", "echo", "-s", "@work", "begin")
    ident = home.doc()["id"]
    runs = [home.start("-m", "echo", "-s", (ident, "@work")[at % 2], f"turn {at}") for at in range(8)]
    times = 0
    while any(process.poll() is None for process in runs):
        times += home.run(ARCHIVE, "@work").stdout.startswith("archived ")
    for process in runs:
        assert (process.communicate(timeout=60)[1], process.returncode) == (b"", 0)
    assert times > 0
    (path,) = [path for folder in (home.sessions, home.state / "archive") for path in folder.iterdir()]
    doc = json.loads(path.read_bytes())
    assert (doc["stats"]["turns"], len(doc["messages"])) == (9, 18)
    assert {text for text in texts(doc) if text.startswith("user: turn")} == {f"user: turn {at}" for at in range(8)}


# ---- pruning


def test_prune_shows_what_would_go_and_does_nothing(home: Home) -> None:
    point(home, "work", put(home, "aaaa", 40))
    for ident, days in (("bbbb", 50), ("cccc", 1), ("dddd", 60)):
        put(home, ident, days)
    prune, old = "--prune-sessions", ("--older-than", "30d")
    run = home.run(prune, *old)
    lines = {line.split()[1]: line for line in home.run("--list-sessions").stdout.splitlines()}
    assert run.stdout.splitlines() == [lines[ident] for ident in ("dddd", "bbbb", "aaaa")]
    assert (run.stderr, run.code) == ("gptsh: 3 sessions would be deleted, @work among them: --yes does it\n", 0)
    listed = {item["id"]: item for item in objects(home, "--list-sessions")}
    assert objects(home, prune, *old) == [listed[ident] for ident in ("dddd", "bbbb", "aaaa")]
    away = home.run(prune, "--keep", "3", "--archive")
    assert away.stderr == "gptsh: 1 session would be archived: --yes does it\n"
    assert home.run(prune, "--keep", "9") == ("", "gptsh: no session would be deleted\n", 0)
    assert len(kept(home)) == 4


def test_prune_deletes_with_yes_and_puts_away_with_archive(home: Home) -> None:
    pointer = point(home, "work", put(home, "aaaa", 60))
    put(home, "bbbb", 40)
    put(home, "cccc", 1)
    old = ("--prune-sessions", "--older-than", "50d", "--yes")
    assert home.run(*old) == ("deleted aaaa Title of aaaa (1 turn, @work)\n", "", 0)
    assert (pointer.exists(), kept(home)) == (False, ["bbbb", "cccc"])
    assert home.run(*old) == ("", "gptsh: no session would be deleted\n", 0)
    away = home.run("--prune-sessions", "--keep", "1", "--archive", "--yes", "-o", "jsonl")
    assert (json.loads(away.stdout)["session"], json.loads(away.stdout)["state"]) == ("bbbb", "archived")
    assert home.run("--prune-sessions", "--keep", "0", "--yes").stdout.startswith("deleted cccc")
    assert archived(home) == ["20250101-000000-bbbb.json"]  # what is there already stays


@pytest.mark.parametrize(
    ("args", "left"),
    [
        ("--keep 2", "ab"), ("--keep 0", ""), ("--older-than 25d", "ab"), ("--keep 3 --older-than 15d", "abc"),
        ("--keep 1 --older-than 25d", "ab"), ("--keep 0 --limit 1", "abc"), ("--keep 0 --limit 0", "abcd"),
        ("--keep 0 -a nobody", "abcd"), ("--keep 1 --tag red", "abc"), ("--keep 0 -m gpt", "acd"),
        ("--keep 0 --here", "abd"),
        ("--older-than 241h", "a"), ("--older-than 239h", ""), ("--older-than 3w", "ab"), ("--older-than 2w", "a"),
        ("--older-than 1y", "abcd"), ("--older-than 039d", "abc"), ("--older-than 100y", "abcd"),
    ],
)  # fmt: skip
def test_prune_takes_those_not_used_for_longest(home: Home, args: str, left: str) -> None:
    put(home, "aaaa", 10)
    put(home, "bbbb", 20, meta={"tags": ["red"]}, agent={"name": "default", "model": "gpt"})
    put(home, "cccc", 30, meta={"project": str(home.cwd)})
    put(home, "dddd", 40, meta={"tags": ["red"]})
    assert home.run("--prune-sessions", *args.split(), "--yes").code == 0
    assert "".join(ident[0] for ident in kept(home)) == left


@pytest.mark.parametrize("age", ["", "30", "d", "30m", "-1d", "0d", "1.5d", " 3d", "3D", "٣d", "²d", "101y",
                                 "1" * 5000 + "d", "30d\n"])  # fmt: skip
def test_another_age_is_exit_2_and_the_forms_are_named(home: Home, age: str) -> None:
    put(home, "aaaa", 400)
    run = home.run("--prune-sessions", "--older-than", age, "--yes")
    assert (run.stdout, run.code, kept(home)) == ("", 2, ["aaaa"])
    assert "12h, 30d, 2w or 1y" in run.stderr


def test_what_cannot_be_read_is_never_pruned(home: Home) -> None:
    path = put(home, "aaaa", 400)
    path.write_bytes(path.read_bytes()[:-10])
    put(home, "bbbb", 400)
    run = home.run("--prune-sessions", "--keep", "0", "--yes")
    assert run.stdout.splitlines() == ["deleted bbbb Title of bbbb (1 turn)"]
    assert run.stderr.startswith(f"gptsh: skipped {path}: ")
    assert kept(home) == ["aaaa"]
