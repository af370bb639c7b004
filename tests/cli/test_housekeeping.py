"""Old sessions archived by themselves after a new one: only where that is configured, and never at its cost."""

import json
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import COMMAND, Home, texts
from tests.support.modules import modules_after
from tests.support.programs import needs
from tests.support.sessions import archived, change, put, session_ids


def aged(home: Home, ident: str, days: float) -> Path:
    """A session that was used so many days ago, as its file says and the file's time."""
    path = put(home, ident, days)
    moment = time.time() - days * 86400
    os.utime(path, (moment, moment))
    return path


def configured(home: Home, **rules: int) -> None:
    home.configure("[sessions]\n" + "".join(f"{key} = {value}\n" for key, value in rules.items()))


@pytest.mark.parametrize(
    ("rules", "ages", "gone"),
    [
        ({"archive_after_days": 30}, {"aaaa": 31, "bbbb": 29}, ["aaaa"]),
        ({"max_sessions": 3}, {"aaaa": 1, "bbbb": 5, "cccc": 2, "dddd": 9}, ["bbbb", "dddd"]),
        ({"max_sessions": 2, "archive_after_days": 30}, {"aaaa": 40, "bbbb": 41}, ["aaaa", "bbbb"]),
    ],
)
def test_which_are_archived_after_a_new_session(
    home: Home, rules: dict[str, int], ages: dict[str, float], gone: list[str]
) -> None:
    configured(home, **rules)
    before = {ident: aged(home, ident, days).read_bytes() for ident, days in ages.items()}
    assert home.run("-m", "echo", "hi") == ("You said: hi\n", "", 0)
    assert [name[16:20] for name in archived(home)] == gone
    assert len(session_ids(home)) == len(ages) - len(gone) + 1
    for name in archived(home):
        assert (home.state / "archive" / name).read_bytes() == before[name[16:20]]


@pytest.mark.parametrize("rules", [{}, {"archive_after_days": 0, "max_sessions": 0}])
def test_without_a_setting_nothing_is_looked_at(home: Home, rules: dict[str, int]) -> None:
    configured(home, **rules)
    aged(home, "aaaa", 4000)
    assert "gptsh.core.retention" not in modules_after(home, "-m", "echo", "hi")
    assert not (home.state / "archive").exists()
    assert len(session_ids(home)) == 2


@pytest.mark.parametrize(
    "args", ["-s bbbb hi", "--no-save hi", "--dry-run hi", "--list-sessions", "-m no/model hi"]
)
def test_only_a_new_session_that_was_saved_archives_others(home: Home, args: str) -> None:
    configured(home, max_sessions=1, archive_after_days=1)
    aged(home, "aaaa", 10)
    aged(home, "bbbb", 20)
    home.run("-m", "echo", *args.split())
    assert session_ids(home) == ["aaaa", "bbbb"]


def test_what_cannot_be_read_or_lies_there_already_stays(home: Home) -> None:
    configured(home, max_sessions=1, archive_after_days=1)
    torn, _, twice = (aged(home, ident, 10) for ident in ("aaaa", "bbbb", "eeee"))
    torn.write_text("{")
    os.utime(torn, (0, 0))
    copy = home.state / "archive" / twice.name  # then nobody knows which of the two is to stay
    copy.parent.mkdir()
    copy.write_text("another")
    assert home.run("-m", "echo", "hi")[1:] == ("", 0)
    assert [name[16:20] for name in archived(home)] == ["bbbb", "eeee"]
    assert copy.read_text() == "another"
    assert {"aaaa", "eeee"} < set(session_ids(home))


def test_a_failure_is_one_note_and_costs_nothing(home: Home) -> None:
    configured(home, archive_after_days=1)
    aged(home, "aaaa", 10)
    (home.state / "archive").symlink_to("nowhere")
    run = home.run("-m", "echo", "hi")
    assert run.stdout == "You said: hi\n"
    assert run.code == 0
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith("gptsh: no old session was archived: ")
    assert len(session_ids(home)) == 2


# ---- the same session in both folders


@pytest.fixture
def twice(home: Home) -> Home:
    """A home with one session that has the turn ``one`` in the archive, and the turn ``two`` among the sessions."""
    home.run("-m", "echo", "hi")
    (path,) = home.files()
    before = path.read_bytes()
    home.run("-s", "0", "one")
    copy = home.state / "archive" / path.name
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    path.write_bytes(before)
    copy.rename(copy.with_suffix(".away"))
    home.run("-s", "0", "two")
    copy.with_suffix(".away").rename(copy)
    return home


BOTH = ["user: hi", "user: one", "user: two"]


def questions(doc: Any) -> list[str]:
    return sorted(text for text in texts(doc) if text.startswith("user: "))


def test_of_a_session_in_both_folders_that_among_the_sessions_goes_on(twice: Home) -> None:
    assert twice.run("-s", "0", "three")[1:] == ("", 0)
    assert questions(twice.doc()) == ["user: hi", "user: three", "user: two"]
    assert len(archived(twice)) == 1
    assert twice.run("--delete-session", twice.doc()["id"], "--yes").code == 0
    assert archived(twice) == twice.files() == []


def test_archiving_it_joins_the_two(twice: Home) -> None:
    assert twice.run("--archive-session", "0")[1:] == ("", 0)
    (name,) = archived(twice)
    assert questions(json.loads((twice.state / "archive" / name).read_bytes())) == BOTH
    assert twice.files() == []


def test_automatic_archiving_joins_the_two(twice: Home) -> None:
    configured(twice, max_sessions=1)
    assert twice.run("-m", "echo", "new")[1:] == ("", 0)
    (name,) = archived(twice)
    assert questions(json.loads((twice.state / "archive" / name).read_bytes())) == BOTH
    assert questions(twice.doc()) == ["user: new"]


def test_another_session_of_the_same_name_is_neither_joined_nor_replaced(twice: Home) -> None:
    (name,) = archived(twice)
    other = twice.state / "archive" / name
    change(other, "created_at", "2020-01-01T00:00:00.000Z")
    before = other.read_bytes()
    assert twice.run("-s", "0", "three")[1:] == ("", 0)
    run = twice.run("--archive-session", "0")
    assert run.code == 1
    assert run.stderr == f"gptsh: the session cannot be archived: {other}: File exists\n"
    assert other.read_bytes() == before
    assert questions(twice.doc()) == ["user: hi", "user: three", "user: two"]


def test_an_archive_that_is_a_link_to_the_sessions_loses_none(home: Home) -> None:
    home.run("-m", "echo", "hi")
    (home.state / "archive").symlink_to(home.sessions)
    home.run("-s", "0", "more")
    home.run("--archive-session", "0")
    assert questions(home.doc()) == ["user: hi", "user: more"]


# ---- folders on another disk


@pytest.fixture(params=["archive", "sessions"])
def two_disks(home: Home, request: pytest.FixtureRequest) -> Iterator[Home]:
    """A home whose folder ``archive`` or ``sessions`` is a link to another file system."""
    shared = Path("/dev/shm")
    if not (
        shared.is_dir()
        and shared.stat().st_dev != home.folder.stat().st_dev
        and os.access(shared, os.W_OK)
    ):
        pytest.skip("there is no second file system")
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        home.state.mkdir(parents=True)
        (home.state / request.param).symlink_to(folder)
        yield home


def test_a_session_is_archived_on_another_disk_and_comes_back(two_disks: Home) -> None:
    path = aged(two_disks, "aaaa", 40)
    before = path.read_bytes()
    moment = path.stat().st_mtime_ns
    run = two_disks.run("--archive-session", "aaaa")
    assert run.stderr == ""
    assert run.code == 0
    kept = two_disks.state / "archive" / path.name
    assert kept.read_bytes() == before
    assert kept.stat().st_mtime_ns == moment
    assert kept.stat().st_mode & 0o777 == 0o600
    assert archived(two_disks) == [path.name]
    assert os.listdir(two_disks.sessions) == []
    assert two_disks.run("-m", "echo", "-s", "aaaa", "more")[1:] == ("", 0)
    assert questions(two_disks.doc()) == ["user: more", "user: question of aaaa"]
    assert archived(two_disks) == []


def test_sessions_are_archived_on_another_disk(two_disks: Home) -> None:
    configured(two_disks, archive_after_days=30)
    aged(two_disks, "aaaa", 40)
    assert two_disks.run("-m", "echo", "hi") == ("You said: hi\n", "", 0)
    assert [name[16:20] for name in archived(two_disks)] == ["aaaa"]
    assert two_disks.run("--list-sessions").stdout.count("\n") == 1


@needs("bash")
def test_a_disk_that_is_full_costs_no_session(two_disks: Home) -> None:
    path = aged(two_disks, "aaaa", 40)
    change(path, "title", "x" * 100_000)
    before = path.read_bytes()
    limited = f"trap '' XFSZ; ulimit -f 64; exec {shlex.join(COMMAND)} --archive-session aaaa"  # 64 kB a file
    env = {**two_disks.env, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        ["bash", "-c", limited], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("gptsh: the session cannot be archived: ")
    assert path.read_bytes() == before
    assert archived(two_disks) == []
