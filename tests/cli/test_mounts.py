"""File systems that lack something: no fsync of a folder, no locks, files that another machine replaces."""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import Home, texts


def refuse(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    when: Callable[..., bool],
    error: int,
    *,
    once: bool = False,
) -> list[object]:
    """Let calls of a function of ``os`` fail ``when`` their arguments say so; returns those arguments."""
    real = getattr(os, name)
    refused: list[object] = []

    def call(*args: Any, **more: Any) -> Any:
        if when(*args) and not (once and refused):
            refused.append(args)
            raise OSError(error, os.strerror(error))
        return real(*args, **more)

    monkeypatch.setattr(os, name, call)
    return refused


def is_of(descriptor: int, path: Path) -> bool:
    """Whether a descriptor is of a file, or of a temporary file for it."""
    return os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(path))


def is_folder(descriptor: int) -> bool:
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


@pytest.mark.parametrize("error", [errno.EINVAL, errno.ENOTSUP])
def test_where_a_folder_cannot_be_synced_a_turn_counts_as_saved(
    home: Home, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    refused = refuse(monkeypatch, "fsync", is_folder, error)
    assert home.run("-m", "echo", "hi") == ("You said: hi\n", "", 0)
    assert refused
    assert texts(home.doc()) == ["user: hi", "assistant: You said: hi"]
    assert home.run("--archive-session", "0").code == 0


def test_a_folder_that_a_broken_disk_does_not_sync_is_a_failure(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, "fsync", is_folder, errno.EIO)
    run = home.run("-m", "echo", "hi")
    assert run.stdout == "You said: hi\n"
    assert run.code == 1
    assert run.stderr.startswith("gptsh: the session cannot be saved: ")


@pytest.mark.parametrize("name", ["replace", "read", "fsync"])
def test_a_stale_handle_is_tried_once_more(
    home: Home, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    home.run("-m", "echo", "hi")
    (path,) = home.files()

    def is_of_session(*args: Any) -> bool:
        return str(args[1]) == str(path) if name == "replace" else is_of(args[0], path)

    refused = refuse(monkeypatch, name, is_of_session, errno.ESTALE, once=True)
    assert home.run("-s", "0", "-m", "echo", "more") == ("You said: more\n", "", 0)
    assert refused
    assert len(texts(home.doc())) == 4
    assert list(home.state.rglob("*.tmp")) == []


def test_a_list_reads_a_stale_file_once_more(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.run("-m", "echo", "hi")
    (path,) = home.files()
    listed = home.run("--list-sessions")
    refused = refuse(
        monkeypatch, "read", lambda descriptor, _: is_of(descriptor, path), errno.ESTALE, once=True
    )
    assert home.run("--list-sessions") == listed
    assert refused


def test_a_handle_that_stays_stale_is_a_failure(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.run("-m", "echo", "hi")
    refuse(monkeypatch, "replace", lambda _, target: str(target).endswith(".json"), errno.ESTALE)
    run = home.run("-s", "0", "-m", "echo", "more")
    assert run.stdout == "You said: more\n"
    assert run.code == 1
    assert run.stderr.startswith("gptsh: the session cannot be saved: ")
    assert "Stale file handle" in run.stderr


# ---- no locks


def without_locks(monkeypatch: pytest.MonkeyPatch, error: int = errno.ENOLCK) -> None:
    def flock(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.mark.parametrize("error", [errno.ENOTSUP, errno.ENOLCK, errno.EINVAL])
def test_without_locks_everything_is_saved_and_a_note_says_so_once_a_day(
    home: Home, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    without_locks(monkeypatch, error)
    run = home.run("-m", "echo", "hi")
    note = f"gptsh: {home.state} is on a file system without locks: do not run gptsh twice at the same time there\n"
    assert run == ("You said: hi\n", note, 0)
    assert home.run("-s", "0", "-m", "echo", "more") == ("You said: more\n", "", 0)
    assert len(texts(home.doc())) == 4
    os.utime(home.state / ".unlocked.noted", (time.time() - 90_000,) * 2)
    assert home.run("-s", "0", "--tag", "work").stderr == note
    assert home.run("--archive-session", "0").code == 0


def test_where_only_files_can_be_locked_a_file_is(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS."""
    locked: list[str] = []
    flock = fcntl.flock

    def of_files(descriptor: int, operation: int) -> None:
        if is_folder(descriptor):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        locked.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", of_files)
    assert home.run("-m", "echo", "hi") == ("You said: hi\n", "", 0)
    assert set(locked) == {".lock"}
