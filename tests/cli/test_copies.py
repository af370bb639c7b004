"""Copies of sessions that sync tools leave: shown, searched, joined, deleted and archived with their session."""

import json
import os
import sys

import pytest

from tests.support.home import Home
from tests.support.sessions import archived, change
from tests.support.travel import COPY_NAMES, DROPBOX, ICLOUD, continued_twice, named, questions, shown

ALL = ["one", "there", "here"]


def names(home: Home) -> list[str]:
    return sorted(os.listdir(home.sessions))


@pytest.mark.parametrize("form", COPY_NAMES)
def test_a_session_is_shown_with_the_turns_of_its_copy_and_the_next_save_joins_them(home: Home, form: str) -> None:
    path, copy = continued_twice(home, form)
    assert shown(home) == ALL
    assert copy.exists()
    run = home.run("-s", "0", "more")
    assert (run.stderr, run.code) == ("", 0)
    assert questions(home.doc()) == [*ALL, "more"]
    assert names(home) == [path.name]


def test_lists_searches_usage_and_the_project_see_the_joined_session(home: Home) -> None:
    path, copy = continued_twice(home, DROPBOX)
    (row,) = json.loads(home.run("--list-sessions", "-o", "json").stdout)
    assert (row["turns"], row["messages"], row["id"]) == (3, 6, path.name[16:20])
    (found,) = json.loads(home.run("--search-sessions", "one there", "-o", "json").stdout)
    assert found["turns"] == 3
    assert json.loads(home.run("--usage", "-o", "json").stdout)["total"]["answers"] == 3
    change(copy, "meta.used_in", {str(home.cwd): "2099-01-01T00:00:00.000Z"})
    home.run("-m", "echo", "another session")
    assert home.run("-c", "--dry-run", "-o", "json", "more").code == 0
    assert len(json.loads(home.run("-c", "-o", "json", "more").stdout)["session"]) == 4
    assert [len(doc["messages"]) for doc in home.docs()] == [2, 8]


def test_join_copies_joins_all_and_says_what(home: Home) -> None:
    path, copy = continued_twice(home)
    second = named(path, ICLOUD)
    second.write_bytes(copy.read_bytes())
    ident, moment = path.name[16:20], path.stat().st_mtime_ns
    os.utime(copy, ns=(0, 0))
    os.utime(second, ns=(0, 0))
    run = home.run("--join-copies")
    assert run == (f'joined 2 copies into {ident} "one" (3 turns)\n', "", 0)
    assert (names(home), questions(home.doc())) == ([path.name], ALL)
    assert path.stat().st_mtime_ns == moment + 10**9  # joining is no use, but rsync -u must not undo it
    assert home.run("--join-copies") == ("", "gptsh: no session has a copy\n", 0)


def test_join_copies_reports_json(home: Home) -> None:
    path, copy = continued_twice(home)
    (item,) = json.loads(home.run("--join-copies", "-o", "json").stdout)
    expected = {"session": path.name[16:20], "state": "joined", "turns": 3, "file": path.name, "copies": [copy.name]}
    assert {key: item[key] for key in expected} == expected


def test_both_sides_join_the_two_files_to_the_same_bytes(home: Home) -> None:
    path, copy = continued_twice(home, DROPBOX, "--title", "There", "--tag", "work")
    here, there = path.read_bytes(), copy.read_bytes()
    home.run("--join-copies")
    joined = path.read_bytes()
    path.write_bytes(there)
    copy.write_bytes(here)
    home.run("--join-copies")
    assert path.read_bytes() == joined
    assert (home.doc()["title"], home.doc()["meta"]["tags"]) == ("There", ["work"])


def test_the_title_of_the_newer_file_wins_and_the_tags_of_both_stay(home: Home) -> None:
    home.run("-m", "echo", "--title", "First", "one")
    (path,) = home.files()
    base = path.read_bytes()
    home.run("-s", "0", "--title", "Older", "--tag", "a")
    older = path.read_bytes()
    path.write_bytes(base)
    home.run("-s", "0", "--title", "Newer", "--tag", "b")
    named(path, ICLOUD).write_bytes(older)
    home.run("--join-copies")
    assert (home.doc()["title"], sorted(home.doc()["meta"]["tags"])) == ("Newer", ["a", "b"])


def test_a_session_of_which_both_files_were_renamed_is_still_there(home: Home) -> None:
    path, copy = continued_twice(home)
    other = path.rename(named(path, DROPBOX))
    ident = path.name[16:20]
    (row,) = json.loads(home.run("--list-sessions", "-o", "json").stdout)
    assert (row["id"], row["turns"]) == (ident, 3)
    assert shown(home, ident) == shown(home, path.name) == ALL
    assert home.run("-s", ident, "more")[1:] == ("", 0)
    assert (names(home), questions(home.doc())) == ([path.name], [*ALL, "more"])
    path.rename(other)
    path.with_name(copy.name).write_bytes(other.read_bytes())
    assert home.run("--join-copies").code == 0
    assert (names(home), questions(home.doc())) == ([path.name], [*ALL, "more"])


@pytest.mark.parametrize("renamed", [False, True])
def test_deleting_takes_the_copies_along(home: Home, renamed: bool) -> None:
    path, _copy = continued_twice(home)
    named(path, ICLOUD).write_bytes(b"half of i")
    if renamed:
        path.rename(named(path, DROPBOX))
    run = home.run("--delete-session", path.name[16:20])
    assert (run.stdout, run.code) == (f'deleted {path.name[16:20]} "one" (3 turns)\n', 0)
    assert [name for name in names(home) if ".json" in name] == []


def test_archiving_takes_the_copies_along(home: Home) -> None:
    path, _ = continued_twice(home)
    assert home.run("--archive-session", "0").code == 0
    assert (names(home), archived(home)) == ([], [path.name])
    assert shown(home, path.name[16:20]) == ALL


def test_a_copy_in_the_archive_is_joined_when_the_session_comes_back(home: Home) -> None:
    path, copy = continued_twice(home)
    data = copy.read_bytes()
    copy.unlink()
    home.run("--archive-session", "0")
    (home.state / "archive" / copy.name).write_bytes(data)
    assert shown(home, path.name[16:20]) == ALL
    home.run("-s", path.name[16:20], "more")
    assert (names(home), archived(home), questions(home.doc())) == ([path.name], [], [*ALL, "more"])


def test_a_copy_that_is_torn_or_of_another_session_is_left_alone_and_named(home: Home) -> None:
    path, copy = continued_twice(home)
    torn, other = named(path, ICLOUD), named(path, DROPBOX)
    torn.write_bytes(copy.read_bytes()[:-9])
    other.write_bytes(copy.read_bytes())
    change(other, "created_at", "2020-01-01T00:00:00.000Z")
    before = torn.read_bytes(), other.read_bytes()
    run = home.run("--join-copies")
    notes = run.stderr.splitlines()
    assert (len(notes), run.code) == (2, 0)
    assert f"{torn} was not joined: not JSON: " in notes[0]
    assert f"{other} was not joined: it is another session" in notes[1]
    assert run.stdout.startswith("joined 1 copy into ")
    assert len(home.run("-s", "0", "more").stderr.splitlines()) == 2
    assert (torn.read_bytes(), other.read_bytes()) == before
    home.run("--delete-session", path.name[16:20])
    assert [name for name in names(home) if ".json" in name] == [other.name]


def test_names_that_are_no_copies_are_no_sessions(home: Home) -> None:
    path, _ = continued_twice(home, "{stem}.json.4711.abcdef.tmp")
    for form in (".{stem}.json.swp", "{stem}.txt", ".syncthing.{stem}.json.tmp", "~syncthing~{stem}.json.tmp"):
        named(path, form).write_bytes(path.read_bytes())
    assert shown(home) == ["one", "here"]
    assert json.loads(home.run("--list-sessions", "-o", "json").stdout)[0]["turns"] == 2


def test_a_copy_of_a_newer_version_keeps_the_session_readable_and_unwritten(home: Home) -> None:
    path, copy = continued_twice(home)
    change(copy, "version", 2)
    before = path.read_bytes()
    assert shown(home) == ALL
    assert home.run("-s", "0", "more").code == 2
    assert "was not joined: it was written by a newer gptsh" in home.run("--join-copies").stderr
    assert path.read_bytes() == before


def test_a_summary_of_other_turns_is_not_used_for_the_joined_ones(home: Home) -> None:
    path, _copy = continued_twice(home)
    doc = json.loads(path.read_bytes())
    last = doc["messages"][-1]["id"]
    summary = {"id": "s", "first": doc["messages"][0]["id"], "last": last, "messages": 4, "text": "x"}
    change(path, "context.summaries", [summary])
    change(path, "context.compaction", {"id": "c", "strategy": "summary", "upto": last, "summary": "s", "at": "2026"})
    home.run("--join-copies")
    assert (home.doc()["context"]["summaries"], home.doc()["context"]["compaction"]) == ([], None)


_listed: list[str] = []
sys.addaudithook(lambda event, args: _listed.append(str(args[0])) if event == "os.listdir" else None)


@pytest.mark.parametrize(("args", "times"), [(("-s", "0", "two"), 1), (("two",), 1)])
def test_a_run_lists_the_sessions_once(home: Home, args: tuple[str, ...], times: int) -> None:
    home.run("-m", "echo", "one")
    _listed.clear()
    home.run("-m", "echo", *args)
    assert _listed.count(str(home.sessions)) == times


@pytest.mark.parametrize("key", ["id", "created_at", "version"])
def test_the_merge_driver_joins_two_versions_of_one_session_only(home: Home, key: str) -> None:
    path, copy = continued_twice(home)
    ours, theirs = path.rename(home.cwd / "ours"), copy.rename(home.cwd / "theirs")
    assert home.run("--merge-driver", "none", "ours", "theirs") == ("", "", 0)
    assert questions(json.loads(ours.read_bytes())) == ALL
    change(theirs, key, {"id": "zzzz", "created_at": "2020-01-01T00:00:00.000Z", "version": 2}[key])
    before = ours.read_bytes()
    run = home.run("--merge-driver", "none", "ours", "theirs")
    assert (run.code, len(run.stderr.splitlines()), ours.read_bytes()) == (2, 1, before)
    assert home.run("--merge-driver", "none", "ours", "missing").code == 1
