"""Files of other users where the store is: no link of theirs is followed, and a note says whose the folder is."""

import os
import stat
from pathlib import Path

import pytest

from tests.support.home import Home, lab_config
from tests.support.server import ModelServer
from tests.support.sessions import put


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file, folder or link belong to another user: root can do so, and others become another user."""
    if os.geteuid() == 0:
        os.lchown(path, 54_321, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)


def test_a_name_that_is_a_link_of_another_user_has_no_file_overwritten(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(home, "aaaa", 1)
    mine = home.folder / "mine"
    link = home.state / "names" / "doc"
    mine.write_text("precious")
    link.parent.mkdir()
    link.symlink_to(mine)
    give_away(link, monkeypatch)
    run = home.run("-s", "aaaa", "--name", "@doc")
    assert run.code == 2
    assert run.stdout == ""
    assert f"{link}: a link of another user" in run.stderr
    assert mine.read_text() == "precious"


@pytest.mark.parametrize("name", ["sessions", "archive"])
def test_a_folder_that_is_a_link_of_another_user_is_neither_changed_nor_written_to(
    home: Home, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    target = home.folder / "public"
    link = home.state / name
    target.mkdir(mode=0o755)
    if name == "archive":
        put(home, "aaaa", 1)
    home.state.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    give_away(link, monkeypatch)
    run = home.run(*(["--archive-session", "aaaa"] if name == "archive" else ["-m", "echo", "hi"]))
    assert run.code == 1
    assert run.stderr.splitlines()[0].endswith(f"{link}: a link of another user")
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    assert [*target.iterdir()] == []


def test_a_lock_that_is_a_link_of_another_user_is_not_opened(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.run("-m", "echo", "hi")
    mine = home.folder / "mine"
    link = home.state / ".claims"
    mine.touch(mode=0o644)
    link.unlink()
    link.symlink_to(mine)
    give_away(link, monkeypatch)
    assert home.run("-s", "0", "-m", "echo", "more").stdout == "You said: more\n"
    assert stat.S_IMODE(mine.stat().st_mode) == 0o644


def test_a_memory_that_is_a_link_of_another_user_is_not_sent(
    home: Home, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.configure(lab_config(model).replace('"lab/m"\n', '"lab/m"\nmemory = true\n'))
    secret = home.folder / "secret"
    link = home.state / "memory" / "default" / "MEMORY.md"
    secret.write_text("my diary")
    link.parent.mkdir(parents=True)
    link.symlink_to(secret)
    assert home.run("hi").code == 0
    assert "my diary" in str(model.sent[-1])
    give_away(link, monkeypatch)
    run = home.run("hi")
    assert f"{link}: a link of another user" in run.stderr
    assert "my diary" not in str(model.sent[-1])


def test_own_links_are_followed(home: Home) -> None:
    for name in ("sessions", "archive", "names"):
        (home.folder / "synced" / name).mkdir(parents=True)
        home.state.mkdir(parents=True, exist_ok=True)
        (home.state / name).symlink_to(home.folder / "synced" / name)
    assert home.run("-s", "@doc", "-m", "echo", "hi").code == 0
    assert home.run("-s", "@doc", "-m", "echo", "more") == ("You said: more\n", "", 0)
    assert home.run("--archive-session", "@doc").code == 0
    assert [
        len([*(home.folder / "synced" / name).iterdir()])
        for name in ("sessions", "archive", "names")
    ] == [0, 1, 1]


def test_the_folder_of_all_may_be_a_link_of_the_user(home: Home) -> None:
    (home.folder / "dotfiles").mkdir()
    home.state.parent.mkdir(parents=True, exist_ok=True)
    home.state.symlink_to(home.folder / "dotfiles")
    assert home.run("-m", "echo", "hi") == ("You said: hi\n", "", 0)
    assert home.run("-s", "0", "--title", "T").code == home.run("--archive-session", "0").code == 0


def test_a_folder_of_another_user_is_said_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.run("-m", "echo", "hi")
    give_away(home.state, monkeypatch)
    line = f"gptsh: {home.state} belongs to another user: gptsh follows only your own links there\n"
    assert home.run("-m", "echo", "hi") == ("You said: hi\n", line, 0)
    assert home.run("-m", "echo", "hi") == ("You said: hi\n", "", 0)


def test_a_folder_that_stays_open_to_others_is_said_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.run("-m", "echo", "hi")
    home.sessions.chmod(0o777)
    monkeypatch.setattr(
        os, "chmod", lambda *_args, **_more: None
    )  # as on CIFS, FAT and some WSL mounts
    line = f"gptsh: {home.sessions} can be changed by other users: gptsh follows only your own links there\n"
    assert home.run("-m", "echo", "hi") == ("You said: hi\n", line, 0)
    assert home.run("-m", "echo", "hi") == ("You said: hi\n", "", 0)
