"""Deleting, putting away and pruning sessions, through the command; also while others use them."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.core import archive, files, references
from gptsh.core.listing import list_sessions
from gptsh.errors import StoreBusy, UnknownSession
from tests.support.home import COMMAND, Home, Result, in_mid_answer, texts
from tests.support.server import ModelServer
from tests.support.sessions import START, archived, kept, put

Store = Callable[[], list[dict[str, Any]]]


def point(home: Home, name: str, path: Path) -> Path:
    """An ``@NAME`` at a session."""
    pointer = home.state / "names" / name
    pointer.parent.mkdir(exist_ok=True)
    pointer.write_text(f"{path.name}\n")
    return pointer


def objects(run: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run.stdout)
    return found


# ---- deleting


def test_a_session_is_deleted_for_good_and_its_name_is_free_again(home: Home) -> None:
    home.run("-m", "echo", "-s", "@work", "--title", "A  Talk", "one")
    home.run("-m", "echo", "other")
    ident = home.docs()[1]["id"]
    (path,) = home.sessions.glob(f"*-{ident}.json")
    leftover = home.sessions / f"{path.name}.4711.abcdef.tmp"
    leftover.write_text("half of it")
    run = home.run("--delete-session", "@work")
    assert run == (f"deleted {ident} A Talk (1 turn, @work)\n", "", 0)
    assert not path.exists()
    assert not leftover.exists()
    assert not list((home.state / "names").iterdir())
    assert home.run("--show-session", ident).code == 2
    assert home.run("-m", "echo", "-s", "@work", "two").code == 0
    assert texts(home.docs()[0]) == ["user: two", "assistant: You said: two"]
    assert len(home.docs()) == 2


def test_all_references_are_resolved_before_anything_is_deleted(home: Home) -> None:
    for ident in ("aaaa", "bbbb", "cccc", "dddd"):
        put(home, ident, 1)
    newest = [item["id"] for item in objects(home.run("--list-sessions", "-o", "json"))]
    run = home.run(*(f"--delete-session={ref}" for ref in ("0", "1", newest[0], newest[1][:1], "2")))
    assert [line.split()[1] for line in run.stdout.splitlines()] == newest[:3]
    assert (run.stderr, run.code) == ("", 0)
    assert kept(home) == newest[3:]


@pytest.mark.parametrize("bad", ["9", "zzzz", "@none", "0@1", "aaaa@", "", "@"])
@pytest.mark.parametrize("job", ["--delete-session", "--archive-session"])
def test_one_bad_reference_is_exit_2_and_nothing_is_done(home: Home, job: str, bad: str) -> None:
    put(home, "aaaa", 1)
    run = home.run(job, "aaaa", job, bad)
    assert (run.stdout, run.code, len(run.stderr.splitlines())) == ("", 2, 1)
    assert (kept(home), archived(home)) == (["aaaa"], [])


@pytest.mark.parametrize("more", [["--dry-run"], ["-s", "0"], ["-c"], ["-n"], ["--here"], ["-a", "x"], ["-m", "x"],
                                  ["--tag", "x"], ["--limit", "1"], ["--yes"], ["--archive"], ["--archived"], ["x"],
                                  ["--title", "x"]])  # fmt: skip
@pytest.mark.parametrize("job", ["--delete-session", "--archive-session"])
def test_what_could_be_meant_otherwise_is_exit_2(home: Home, job: str, more: list[str]) -> None:
    put(home, "aaaa", 1)
    run = home.run(job, "0", *more)
    assert (run.stdout, run.code, len(run.stderr.splitlines())) == ("", 2, 1)
    assert (kept(home), archived(home)) == (["aaaa"], [])


@pytest.mark.parametrize("content", [b'{"version":1,"id":"aaaa","messages":[', b"not JSON", b"", b"[]"])
def test_what_cannot_be_read_can_be_deleted_and_put_away(home: Home, content: bytes) -> None:
    for ident in ("aaaa", "bbbb", "cccc"):
        put(home, ident, 1).write_bytes(content)
    point(home, "broken", home.sessions / "20250101-000000-aaaa.json")
    assert home.run("--delete-session", "aaaa").stdout == "deleted aaaa (not readable, @broken)\n"
    assert home.run("--delete-session", "20250101-000000-bbbb.json").stdout == "deleted bbbb (not readable)\n"
    assert home.run("--archive-session", "0").stdout == "archived cccc (not readable)\n"
    assert (kept(home), archived(home)) == ([], ["20250101-000000-cccc.json"])


def test_what_stays_of_a_deleted_session_is_said(home: Home) -> None:
    remembered = {"context": {"consolidated": "aaaa-1"}, "agent": {"name": "scribe", "model": "echo"}}
    put(home, "aaaa", 1, **remembered)
    put(home, "ffff", 1, meta={"forked_from": "aaaa@1"})
    put(home, "gggg", 1, meta={"forked_from": "aaaa@"})
    put(home, "hhhh", 1, meta={"forked_from": "aaaa@-1"})
    put(home, "kkkk", 1, meta={"forked_from": "bbbb@1"})
    (home.state / "memory" / "scribe").mkdir(parents=True)
    home.run("--archive-session", "gggg")
    run = home.run("--delete-session", "aaaa", "--delete-session", "hhhh")
    assert run.stdout.splitlines() == [
        "deleted aaaa Title of aaaa (1 turn); its forks ffff, gggg stay; what it told the memory of scribe stays",
        "deleted hhhh Title of hhhh (1 turn)",
    ]
    put(home, "bbbb", 1, context={"consolidated": "bbbb-1"})  # by another tool: there is no memory of ours
    assert home.run("--delete-session", "bbbb").stdout == "deleted bbbb Title of bbbb (1 turn); its fork kkkk stays\n"


def test_programs_get_objects(home: Home) -> None:
    point(home, "work", put(home, "aaaa", 1))
    put(home, "ffff", 1, meta={"forked_from": "aaaa@1"})
    put(home, "gggg", 1).write_text("{")
    (away,) = objects(home.run("--archive-session", "aaaa", "-o", "json"))
    gone = [
        json.loads(line)
        for line in home.run("--delete-session", "aaaa", "--delete-session", "gggg", "-o", "jsonl").stdout.splitlines()
    ]
    one = {"session": "aaaa", "state": "archived", "title": "Title of aaaa", "turns": 1,
           "file": "20250101-000000-aaaa.json", "names": ["@work"], "forks": [], "memory": []}  # fmt: skip
    assert away == one
    assert gone[0] == {**one, "state": "deleted", "forks": ["ffff"]}
    assert gone[1] == {"session": "gggg", "state": "deleted", "title": None, "turns": None,
                       "file": "20250101-000000-gggg.json", "names": [], "forks": [], "memory": []}  # fmt: skip


def test_a_title_cannot_break_its_line(home: Home) -> None:
    put(home, "aaaa", 1, title="a\nb\x1b[31m\u2028c")
    run = home.run("--delete-session", "0")
    assert run.stdout.encode().count(b"\n") == 1
    assert run.stdout.startswith("deleted aaaa a b")


@pytest.mark.parametrize("form", [[], ["-o", "json"], ["-o", "jsonl"]])
def test_what_cannot_be_deleted_is_exit_1_and_tells_what_was_before(home: Home, form: list[str]) -> None:
    for ident in ("aaaa", "cccc"):
        put(home, ident, 1)
    point(home, "work", home.sessions / "20250101-000000-bbbb.json")
    (home.sessions / "20250101-000000-bbbb.json").mkdir()  # root deletes all but a folder
    refs = ("aaaa", "bbbb", "cccc")
    run = home.run(*(f"--delete-session={ref}" for ref in refs), *form)
    assert run.code == 1
    assert kept(home) == ["bbbb", "cccc"]
    assert "the session cannot be deleted: " in run.stderr
    assert "20250101-000000-bbbb.json" in run.stderr.splitlines()[0]
    assert run.stderr.splitlines()[1] == "gptsh: done before: aaaa"
    assert (home.state / "names" / "work").exists()
    if form == ["-o", "json"]:
        assert [item["session"] for item in json.loads(run.stdout)] == ["aaaa"]
    if form == ["-o", "jsonl"]:
        assert json.loads(run.stdout.splitlines()[1])["error"]["exit_code"] == 1


@pytest.mark.parametrize("job", ["--delete-session", "--archive-session"])
def test_where_the_first_one_fails_the_error_is_the_object(home: Home, job: str) -> None:
    (home.sessions / "20250101-000000-bbbb.json").mkdir(parents=True)
    (home.state / "archive" / "20250101-000000-bbbb.json").mkdir(parents=True)
    run = home.run(job, "bbbb", "-o", "json")
    assert (run.code, json.loads(run.stdout)["error"]["exit_code"]) == (1, 1)


def test_a_link_goes_and_what_it_leads_to_stays(home: Home) -> None:
    path, real = put(home, "aaaa", 1), home.folder / "elsewhere.json"
    path.rename(real)
    path.symlink_to(real)
    run = home.run("--delete-session", "aaaa")
    assert run.stdout == f"deleted aaaa Title of aaaa (1 turn); it was a link, and {real} stays\n"
    assert real.exists()
    assert not path.is_symlink()


def test_a_session_of_a_newer_version_may_be_deleted_and_put_away(home: Home) -> None:
    put(home, "aaaa", 1, version=99)
    put(home, "bbbb", 1, version=99)
    assert home.run("--archive-session", "bbbb").code == 0
    assert home.run("--delete-session", "aaaa", "--delete-session", "bbbb").code == 0
    assert (kept(home), archived(home)) == ([], [])


@pytest.mark.parametrize("count", [110, pytest.param(250, marks=pytest.mark.slow)])  # more than one batch
def test_a_reader_that_leaves_does_not_end_the_deleting(home: Home, count: int) -> None:
    for number in range(count):
        put(home, f"a{number:03}", 1)
    args = " ".join(f"--delete-session a{number:03}" for number in range(count))
    script = f"{' '.join(COMMAND)} {args} | head -1"
    done = subprocess.run(["bash", "-c", script], env=home.env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("deleted a000 Title of a000 (1 turn)\n", "")
    assert kept(home) == []


def test_a_run_whose_session_is_deleted_says_so_and_makes_none(lab: Home, model: ModelServer) -> None:
    process, more = in_mid_answer(lab, model)
    assert lab.run("--delete-session", "0").stdout.startswith("deleted ")
    more.set()
    out, err = process.communicate(timeout=30)
    assert (out, process.returncode) == (b"second\n", 1)
    assert b"deleted meanwhile" in err
    assert (kept(lab), archived(lab)) == ([], [])


def test_a_store_that_is_locked_is_exit_1(home: Home, store: Store) -> None:
    path = put(home, "aaaa", 1)
    with files.locked(home.state / ".lock"):
        changes = archive.put_away([archive.Target(path.name)], wait=0)
        with pytest.raises(StoreBusy):
            next(changes)
    assert kept(home) == ["aaaa"]


# ---- putting away


@pytest.mark.slow
def test_what_was_put_away_is_in_no_list_and_still_found(home: Home) -> None:
    path = put(home, "aaaa", 1)
    point(home, "work", path)
    put(home, "bbbb", 1)
    before = path.read_bytes()
    assert home.run("--archive-session", "@work") == ("archived aaaa Title of aaaa (1 turn, @work)\n", "", 0)
    assert home.run("--list-sessions").stdout.split()[1] == "bbbb"
    listed = home.run("--list-sessions", "--archived").stdout
    assert listed.startswith("[-] aaaa 2")
    assert objects(home.run("--list-sessions", "--archived", "-o", "json"))[0]["index"] is None
    for ref in ("aaaa", "aa", "@work", path.name, "@work@1", "aaaa@"):
        assert "question of aaaa" in home.run("--show-session", ref).stdout
    assert home.run("--show-session", "1").code == 2
    again = home.run("--archive-session", "aaaa", "--archive-session", "@work")
    assert again == ("already archived aaaa Title of aaaa (1 turn, @work)\n", "", 0)
    folder = home.state / "archive"
    assert [entry.read_bytes() for entry in folder.iterdir()] == [before]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert home.run("--usage", "-o", "json").code == 0


@pytest.mark.parametrize("ref", ["@work", "aaaa", "20250101-000000-aaaa.json"])
def test_asking_brings_it_back_and_a_label_does_not(home: Home, ref: str) -> None:
    point(home, "work", put(home, "aaaa", 1))
    home.run("--archive-session", "aaaa")
    assert home.run("-s", ref, "--tag", "t").code == 0
    assert (kept(home), archived(home)) == ([], ["20250101-000000-aaaa.json"])
    assert home.run("-m", "echo", "-s", ref, "and now").code == 0
    assert (kept(home), archived(home)) == (["aaaa"], [])
    assert texts(home.doc())[-1].endswith("and now")
    assert home.doc()["meta"]["tags"] == ["t"]
    assert home.run("--list-sessions").stdout.startswith("[0] aaaa")


def test_a_run_whose_session_is_put_away_loses_no_turn(lab: Home, model: ModelServer) -> None:
    process, more = in_mid_answer(lab, model)
    assert lab.run("--archive-session", "0").stdout.startswith("archived ")
    assert len(archived(lab)) == 1
    more.set()
    out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == (b"second\n", b"", 0)
    assert archived(lab) == []
    assert texts(lab.doc()) == ["user: go", "assistant: first second"]


def test_a_copy_in_the_archive_is_never_overwritten(home: Home) -> None:
    path = put(home, "aaaa", 1)
    copy = home.state / "archive" / path.name
    copy.parent.mkdir()
    copy.write_text("another")
    run = home.run("--archive-session", "aaaa")
    assert (run.stdout, run.code) == ("", 1)
    assert "cannot be archived" in run.stderr
    assert str(copy) in run.stderr
    assert (kept(home), copy.read_text()) == (["aaaa"], "another")
    assert home.run("--delete-session", "aaaa").code == 0  # for good: both
    assert (kept(home), archived(home)) == ([], [])


def test_a_session_is_found_while_it_moves(home: Home, store: Store) -> None:
    path = put(home, "aaaa", 1)
    point(home, "work", path)
    (home.state / "archive").mkdir()
    places, both = [path, home.state / "archive" / path.name], threading.Barrier(2)

    def move() -> None:
        for _ in range(900):
            both.wait()
            places[0].rename(places[1])
            places.reverse()
            both.wait()

    mover = threading.Thread(target=move)
    mover.start()
    found = []
    for number in range(900):
        both.wait()
        try:
            found.append(references.filename_of(("aaaa", "@work", path.name)[number % 3]))
        except UnknownSession:
            found.append("nothing")
        both.wait()
    mover.join()
    assert set(found) == {path.name}


# ---- at once


def resumes(home: Home, count: int, ref: str) -> "list[subprocess.Popen[bytes]]":
    return [home.start("-m", "echo", "-s", ref, f"turn {number}") for number in range(count)]


def test_deleting_while_8_runs_resume_recreates_nothing(home: Home) -> None:
    home.run("-m", "echo", "begin")
    ident = home.doc()["id"]
    runs = resumes(home, 8, ident)
    while len(texts(home.doc())) < 6:  # some of them are in the middle
        time.sleep(0.01)
    assert home.run("--delete-session", ident).code == 0
    for process in runs:
        _, err = process.communicate(timeout=60)
        assert process.returncode in (0, 1, 2)
        assert b"Traceback" not in err
        assert err.count(b"\n") <= 2
    assert list(home.sessions.iterdir()) == []
    assert archived(home) == []


@pytest.mark.slow
def test_putting_away_while_8_runs_resume_keeps_every_turn(home: Home) -> None:
    home.run("-m", "echo", "-s", "@work", "begin")
    runs = resumes(home, 4, home.doc()["id"]) + resumes(home, 4, "@work")
    times = 0
    while any(process.poll() is None for process in runs):
        times += home.run("--archive-session", "@work").stdout.startswith("archived ")
    for process in runs:
        assert (process.communicate(timeout=60)[1], process.returncode) == (b"", 0)
    assert times > 0
    folders = (home.sessions, home.state / "archive")
    (path,) = [path for folder in folders for path in folder.iterdir()]
    doc = json.loads(path.read_bytes())
    assert doc["stats"]["turns"] == 9
    assert {text for text in texts(doc) if text.startswith("user: turn")} == {
        f"user: turn {number}" for number in range(4)
    }
    assert len(doc["messages"]) == 18


# ---- pruning


@pytest.mark.slow
def test_prune_shows_what_would_go_and_does_nothing(home: Home) -> None:
    point(home, "work", put(home, "aaaa", 40))
    for ident, days in (("bbbb", 50), ("cccc", 1), ("dddd", 60)):
        put(home, ident, days)
    run = home.run("--prune-sessions", "--older-than", "30d")
    lines = {line.split()[1]: line for line in home.run("--list-sessions").stdout.splitlines()}
    assert run.stdout.splitlines() == [lines[ident] for ident in ("dddd", "bbbb", "aaaa")]
    assert (run.stderr, run.code) == ("gptsh: 3 sessions would be deleted, @work among them: --yes does it\n", 0)
    assert len(kept(home)) == 4
    shown = objects(home.run("--prune-sessions", "--older-than", "30d", "-o", "json"))
    listed = objects(home.run("--list-sessions", "-o", "json"))
    assert sorted(shown, key=lambda item: item["id"]) == sorted(
        (item for item in listed if item["id"] != "cccc"), key=lambda item: item["id"]
    )
    named = home.run("--prune-sessions", "--older-than", "30d", "--archive")
    assert named.stderr == "gptsh: 3 sessions would be archived, @work among them: --yes does it\n"
    away = home.run("--prune-sessions", "--keep", "3", "--archive")
    assert away.stderr == "gptsh: 1 session would be archived: --yes does it\n"
    assert home.run("--prune-sessions", "--keep", "9") == ("", "gptsh: no session would be deleted\n", 0)


def test_prune_deletes_with_yes_and_frees_names(home: Home) -> None:
    pointer = point(home, "work", put(home, "aaaa", 40))
    put(home, "bbbb", 1)
    run = home.run("--prune-sessions", "--older-than", "4w", "--yes")
    assert run == ("deleted aaaa Title of aaaa (1 turn, @work)\n", "", 0)
    assert kept(home) == ["bbbb"]
    assert not pointer.exists()
    assert home.run("--prune-sessions", "--older-than", "4w", "--yes") == (
        "",
        "gptsh: no session would be deleted\n",
        0,
    )


def test_prune_puts_away_with_archive(home: Home) -> None:
    put(home, "aaaa", 40)
    put(home, "bbbb", 1)
    run = home.run("--prune-sessions", "--keep", "1", "--archive", "--yes", "-o", "jsonl")
    assert json.loads(run.stdout)["state"] == "archived"
    assert (kept(home), archived(home)) == (["bbbb"], ["20250101-000000-aaaa.json"])
    again = home.run("--prune-sessions", "--keep", "0", "--older-than", "1h", "--yes")  # what is there already stays
    assert again.stdout.startswith("deleted bbbb")
    assert archived(home) == ["20250101-000000-aaaa.json"]


@pytest.mark.parametrize(
    ("args", "left"),
    [
        (["--keep", "2"], ["aaaa", "bbbb"]),
        (["--keep", "0"], []),
        (["--older-than", "25d"], ["aaaa", "bbbb"]),
        (["--keep", "3", "--older-than", "15d"], ["aaaa", "bbbb", "cccc"]),
        (["--keep", "1", "--older-than", "25d"], ["aaaa", "bbbb"]),
        (["--keep", "0", "--limit", "1"], ["aaaa", "bbbb", "cccc"]),
        (["--keep", "0", "--limit", "0"], ["aaaa", "bbbb", "cccc", "dddd"]),
        (["--keep", "0", "-a", "nobody"], ["aaaa", "bbbb", "cccc", "dddd"]),
        (["--keep", "1", "--tag", "red"], ["aaaa", "bbbb", "cccc"]),
        (["--keep", "0", "-m", "gpt"], ["aaaa", "cccc", "dddd"]),
        (["--keep", "0", "--here"], ["aaaa", "bbbb", "dddd"]),
    ],
)
def test_prune_takes_those_not_used_for_longest(home: Home, args: list[str], left: list[str]) -> None:
    put(home, "aaaa", 10)
    put(home, "bbbb", 20, meta={"tags": ["red"]}, agent={"name": "default", "model": "gpt"})
    put(home, "cccc", 30, meta={"project": str(home.cwd)})
    put(home, "dddd", 40, meta={"tags": ["red"]})
    assert home.run("--prune-sessions", *args, "--yes").code == 0
    assert kept(home) == left


@pytest.mark.parametrize("age", ["", "30", "d", "30m", "-1d", "0d", "1.5d", " 3d", "3D", "٣d", "²d", "101y",
                                 "1" * 5000 + "d", "30d\n"])  # fmt: skip
def test_another_age_is_exit_2_and_the_forms_are_named(home: Home, age: str) -> None:
    put(home, "aaaa", 400)
    run = home.run("--prune-sessions", "--older-than", age, "--yes")
    assert (run.stdout, run.code, kept(home)) == ("", 2, ["aaaa"])
    assert "12h, 30d, 2w or 1y" in run.stderr


@pytest.mark.parametrize("args", [[], ["--yes"], ["--archive"], ["--limit", "1"], ["--here"], ["--keep", "-1"],
                                  ["--keep", "1", "--dry-run"], ["--keep", "1", "-s", "0"], ["--keep", "1", "-c"],
                                  ["--keep", "1", "--archived"], ["--keep", "1", "x"]])  # fmt: skip
def test_prune_that_does_not_say_which_is_exit_2(home: Home, args: list[str]) -> None:
    put(home, "aaaa", 400)
    run = home.run("--prune-sessions", *args)
    assert (run.stdout, run.code, kept(home)) == ("", 2, ["aaaa"])


def test_what_cannot_be_read_is_never_pruned(home: Home) -> None:
    path = put(home, "aaaa", 400)
    path.write_bytes(path.read_bytes()[:-10])
    put(home, "bbbb", 400)
    run = home.run("--prune-sessions", "--keep", "0", "--yes")
    assert run.stdout.splitlines() == ["deleted bbbb Title of bbbb (1 turn)"]
    assert run.stderr.startswith(f"gptsh: skipped {path}: ")
    assert kept(home) == ["aaaa"]


def test_what_was_used_or_put_away_since_it_was_chosen_stays(home: Home, store: Store) -> None:
    for ident in ("aaaa", "bbbb", "cccc", "dddd"):
        put(home, ident, 400)
    chosen = [archive.Target(item["filename"], item["updated_at"]) for item in list_sessions()]
    home.run("-m", "echo", "-s", "aaaa", "again")
    home.run("--archive-session", "bbbb")
    home.run("--delete-session", "cccc")
    states = {change.filename[16:20]: change.state for change in archive.delete(chosen)}
    assert states == {"aaaa": "used", "bbbb": "used", "cccc": "gone", "dddd": "deleted"}
    assert (kept(home), archived(home)) == (["aaaa"], ["20250101-000000-bbbb.json"])


SUMMARIES = st.lists(st.integers(0, 100), max_size=30).map(
    lambda hours: [
        {"filename": f"{number:04}", "updated_at": (START + timedelta(hours=hour)).isoformat()}
        for number, hour in enumerate(hours)
    ]
)


def place(item: Any) -> tuple[str, str]:
    return item["updated_at"], item["filename"]


@given(SUMMARIES, st.none() | st.integers(0, 40), st.none() | st.integers(0, 100), st.none() | st.integers(0, 40))
def test_only_what_both_conditions_let_go_is_pruned(
    items: list[Any], keep: int | None, hours: int | None, limit: int | None
) -> None:
    before = None if hours is None else START + timedelta(hours=hours)
    going = archive.to_prune(items, keep, before, limit)
    whole = archive.to_prune(items, keep, before, None)
    assert going == whole[:limit]
    used = [datetime.fromisoformat(item["updated_at"]) for item in whole]
    assert used == sorted(used)
    assert before is None or all(moment < before for moment in used)
    stays = [item for item in items if item not in whole]
    assert len(stays) >= min(keep or 0, len(items))
    for item in stays:
        moment = datetime.fromisoformat(item["updated_at"])
        later = sum(place(other) > place(item) for other in items)
        assert (before is not None and moment >= before) or later < (keep or 0)


@pytest.mark.parametrize(
    ("text", "hours"), [("1h", 1), ("30d", 720), ("2w", 336), ("1y", 8760), ("100y", 876_000), ("007d", 168)]
)
def test_ages(text: str, hours: int) -> None:
    assert archive.age(text) == timedelta(hours=hours)


def test_what_is_no_file_among_the_names_is_passed_over(home: Home) -> None:
    home.run("-m", "echo", "-s", "@work", "one")
    (home.state / "names" / "folder").mkdir()
    os.mkfifo(home.state / "names" / "pipe")
    assert home.run("--export-session", "0", "--format", "nanobot").code == 0
    assert home.run("--delete-session", "@work").code == 0
    assert home.files() == []
