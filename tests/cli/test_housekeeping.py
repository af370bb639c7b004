"""Old sessions put away by themselves behind a new one: only where that is configured, and never at its cost."""

import os
import time
from pathlib import Path

import pytest

from tests.support.home import Home
from tests.support.modules import modules_after
from tests.support.sessions import archived, put, session_ids


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
def test_which_are_put_away_behind_a_new_session(
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


@pytest.mark.parametrize("args", ["-s bbbb hi", "--no-save hi", "--dry-run hi", "--list-sessions", "-m no/model hi"])
def test_only_a_new_session_that_was_saved_sends_others_away(home: Home, args: str) -> None:
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
    assert ([name[16:20] for name in archived(home)], copy.read_text()) == (["bbbb", "eeee"], "another")
    assert {"aaaa", "eeee"} < set(session_ids(home))


def test_a_failure_is_one_note_and_costs_nothing(home: Home) -> None:
    configured(home, archive_after_days=1)
    aged(home, "aaaa", 10)
    (home.state / "archive").symlink_to("nowhere")
    run = home.run("-m", "echo", "hi")
    assert (run.stdout, run.code, run.stderr.count("\n")) == ("You said: hi\n", 0, 1)
    assert run.stderr.startswith("gptsh: no old session was archived: ")
    assert len(session_ids(home)) == 2
