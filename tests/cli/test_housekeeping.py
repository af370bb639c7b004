"""Old sessions put away by themselves behind a new one: only where that is configured, and never at its cost."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gptsh.core import files
from gptsh.core.housekeeping import put_away_old
from gptsh.core.settings import Housekeeping
from gptsh.errors import StoreBusy
from tests.support.home import Home
from tests.support.modules import modules_after
from tests.support.sessions import archived, kept, put

Store = Callable[[], list[dict[str, Any]]]
DAY = 86400


def aged(home: Home, ident: str, days: float, written: float | None = None) -> Path:
    """A session that was last used so many days ago; its file was ``written`` then, or so many days ago."""
    path = put(home, ident, days)
    moment = time.time() - (days if written is None else written) * DAY
    os.utime(path, (moment, moment))
    return path


def configured(home: Home, **rules: int) -> None:
    home.configure("[sessions]\n" + "".join(f"{key} = {value}\n" for key, value in rules.items()))


def ids(home: Home) -> list[str]:
    return [name[16:20] for name in archived(home)]


@pytest.mark.parametrize("rules", [{}, {"archive_after_days": 0, "max_sessions": 0}])
def test_without_a_setting_nothing_is_looked_at(home: Home, rules: dict[str, int]) -> None:
    configured(home, **rules)
    aged(home, "aaaa", 4000)
    loaded = modules_after(home, "-m", "echo", "hi")
    assert not loaded & {"gptsh.core.housekeeping", "gptsh.core.archive"}
    assert not (home.state / "archive").exists()
    assert len(kept(home)) == 2


def test_what_was_not_used_for_so_many_days_is_put_away(home: Home) -> None:
    configured(home, archive_after_days=30)
    aged(home, "aaaa", 31)
    aged(home, "bbbb", 29)
    aged(home, "cccc", 10, written=90)  # copied with an old time: its word counts
    aged(home, "dddd", 90, written=10)  # copied as new: so does this
    before = (home.sessions / "20250101-000000-aaaa.json").read_bytes()
    run = home.run("-m", "echo", "hi")
    assert run == ("You said: hi\n", "", 0)
    assert ids(home) == ["aaaa"]
    assert (home.state / "archive" / "20250101-000000-aaaa.json").read_bytes() == before
    assert len(kept(home)) == 4


def test_the_longest_unused_beyond_so_many_are_put_away(home: Home) -> None:
    configured(home, max_sessions=3)
    for ident, days, written in (("aaaa", 1, 1), ("bbbb", 5, 5), ("cccc", 7, 7), ("dddd", 2, 9), ("eeee", 9, 3)):
        aged(home, ident, days, written)
    home.run("-m", "echo", "hi")
    assert ids(home) == ["bbbb", "cccc", "eeee"]
    assert len(kept(home)) == 3


def test_both_rules_at_once(home: Home) -> None:
    configured(home, max_sessions=2, archive_after_days=30)
    for number, ident in enumerate(("aaaa", "bbbb", "cccc")):
        aged(home, ident, 40 + number)
    home.run("-m", "echo", "hi")
    assert ids(home) == ["aaaa", "bbbb", "cccc"]


def test_the_session_just_used_stays(home: Home) -> None:
    configured(home, max_sessions=1)
    home.run("-m", "echo", "-s", "@one", "one")
    home.run("-m", "echo", "two")
    assert [doc["stats"]["preview"] for doc in home.docs()] == ["two"]
    home.run("-m", "echo", "-s", "@one", "on")  # comes back, and nothing goes for it
    assert len(kept(home)) == 2
    assert archived(home) == []
    home.run("-m", "echo", "-s", "@one@1", "a fork is new")
    assert [doc["stats"]["turns"] for doc in home.docs()] == [2]
    assert len(archived(home)) == 2


@pytest.mark.parametrize("args", [["-s", "bbbb", "hi"], ["-s", "bbbb", "--tag", "t"], ["--no-save", "hi"],
                                  ["--dry-run", "hi"], ["--list-sessions"], ["-m", "no/model", "hi"]])  # fmt: skip
def test_only_a_new_session_that_was_saved_sends_others_away(home: Home, args: list[str]) -> None:
    configured(home, max_sessions=1, archive_after_days=1)
    aged(home, "aaaa", 10)
    aged(home, "bbbb", 20)
    home.run("-m", "echo", *args)
    assert kept(home) == ["aaaa", "bbbb"]


def test_what_cannot_be_read_stays(home: Home) -> None:
    configured(home, max_sessions=1, archive_after_days=1)
    torn = aged(home, "aaaa", 10)
    torn.write_text("{")
    os.utime(torn, (0, 0))
    aged(home, "bbbb", 10)
    (home.sessions / "20240101-000000-cccc.json").symlink_to("nowhere")
    (home.sessions / "20240101-000000-dddd.json").mkdir()
    aged(home, "eeee", 10)
    copy = home.state / "archive" / "20250101-000000-eeee.json"  # then nobody knows which of the two is to stay
    copy.parent.mkdir()
    copy.write_text("another")
    run = home.run("-m", "echo", "hi")
    assert (run.stderr, run.code, ids(home)) == ("", 0, ["bbbb", "eeee"])
    assert copy.read_text() == "another"
    assert {"aaaa", "eeee"} < set(kept(home))


@pytest.mark.parametrize("form", [[], ["-o", "json"]])
def test_a_failure_is_one_note_and_costs_nothing(home: Home, form: list[str]) -> None:
    configured(home, archive_after_days=1)
    aged(home, "aaaa", 10)
    (home.state / "archive").symlink_to("nowhere")
    run = home.run("-m", "echo", "hi", *form)
    assert run.code == 0
    assert (json.loads(run.stdout)["text"] if form else run.stdout.strip()) == "You said: hi"
    assert run.stderr.startswith("gptsh: no old session was archived: ")
    assert len(run.stderr.splitlines()) == 1
    assert len(kept(home)) == 2


def test_it_waits_for_nobody(home: Home, store: Store) -> None:
    aged(home, "aaaa", 10)
    with files.locked(home.state / ".lock"), pytest.raises(StoreBusy):
        put_away_old(Housekeeping(1, 0), "")
    put_away_old(Housekeeping(10**400, 10**400), "")
    assert kept(home) == ["aaaa"]


def test_many_go_over_several_runs_the_longest_unused_first(home: Home, store: Store) -> None:
    for number in range(1200):
        aged(home, f"a{number:03}" if number < 1000 else f"b{number - 1000:03}", 10 + number)
    put_away_old(Housekeeping(5, 0), "")
    assert len(archived(home)) == 1000
    assert kept(home) == [f"a{number:03}" for number in range(200)]
    put_away_old(Housekeeping(5, 0), "")
    assert kept(home) == []
