"""File systems that lack something: no fsync of a folder, no locks, files that another machine replaces."""

import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import Home, texts


def refuse(
    monkeypatch: pytest.MonkeyPatch, name: str, when: Callable[..., bool], error: int, *, once: bool = False
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


def test_a_folder_that_a_broken_disk_does_not_sync_is_a_failure(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "fsync", is_folder, errno.EIO)
    run = home.run("-m", "echo", "hi")
    assert (run.stdout, run.code) == ("You said: hi\n", 1)
    assert run.stderr.startswith("gptsh: the session cannot be saved: ")


@pytest.mark.parametrize("name", ["replace", "pread", "fsync"])
def test_a_stale_handle_is_tried_once_more(home: Home, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
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
    refused = refuse(monkeypatch, "read", lambda descriptor, _: is_of(descriptor, path), errno.ESTALE, once=True)
    assert home.run("--list-sessions") == listed
    assert refused


def test_a_handle_that_stays_stale_is_a_failure(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.run("-m", "echo", "hi")
    refuse(monkeypatch, "replace", lambda _, target: str(target).endswith(".json"), errno.ESTALE)
    run = home.run("-s", "0", "-m", "echo", "more")
    assert (run.stdout, run.code) == ("You said: more\n", 1)
    assert run.stderr.startswith("gptsh: the session cannot be saved: ")
    assert "Stale file handle" in run.stderr


# ---- no locks


def without_locks(monkeypatch: pytest.MonkeyPatch, error: int = errno.ENOLCK) -> None:
    def flock(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", flock)


def names_in(home: Home) -> list[str]:
    """The files beside the sessions."""
    return sorted(path.name for path in home.state.iterdir() if path.is_file())


def lock_of(home: Home, owner: str, seconds: float = 0) -> Path:
    """A lock file that is so many seconds old."""
    path = home.state / ".lock.owner"
    path.write_text(f"{owner}\n")
    moment = time.time() - seconds
    os.utime(path, (moment, moment))
    return path


@pytest.mark.parametrize("error", [errno.ENOTSUP, errno.ENOLCK, errno.EINVAL])
def test_without_locks_everything_is_saved_and_a_note_says_so_once_a_day(
    home: Home, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    without_locks(monkeypatch, error)
    run = home.run("-m", "echo", "hi")
    note = f"gptsh: {home.state} is on a file system without locks: gptsh uses a lock file there\n"
    assert run == ("You said: hi\n", note, 0)
    assert names_in(home) == [".claims", ".lock", ".lock.noted"]
    assert home.run("-s", "0", "-m", "echo", "more") == ("You said: more\n", "", 0)
    assert len(texts(home.doc())) == 4
    os.utime(home.state / ".lock.noted", (time.time() - 90_000,) * 2)
    assert home.run("-s", "0", "--tag", "work").stderr == note
    assert home.run("--archive-session", "0").code == 0
    assert home.run("--delete-session", "@work", "--yes").code == 2


def test_the_lock_of_a_process_that_is_gone_or_two_minutes_old_is_taken_over(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_locks(monkeypatch)
    home.run("-m", "echo", "hi")
    for owner, seconds in ((f"{machine(home)} 4194304 aa", 0), ("elsewhere 1 bb", 121), ("", 121)):
        lock_of(home, owner, seconds)
        assert home.run("-s", "0", "-m", "echo", "more") == ("You said: more\n", "", 0)
        assert names_in(home) == [".claims", ".lock", ".lock.noted"]
    assert len(texts(home.doc())) == 8


def machine(home: Home) -> str:
    """What a lock file of this machine begins with."""
    seen: list[str] = []
    lock = home.state / ".lock.owner"
    with pytest.MonkeyPatch.context() as patch:
        replace = os.replace
        patch.setattr(os, "replace", lambda *names: (seen.append(lock.read_text()), replace(*names)))
        home.run("-s", "0", "--tag", "seen")
    return seen[0].split()[0]


@pytest.mark.parametrize("owner", ["elsewhere 1 cc", "{here} {pid} dd", ""])
def test_the_lock_of_a_process_that_may_run_is_waited_for(
    home: Home, monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    without_locks(monkeypatch)
    home.run("-m", "echo", "hi")
    lock = lock_of(home, owner.format(here=machine(home), pid=os.getpid()))
    threading.Timer(0.2, lock.unlink).start()
    started = time.monotonic()
    assert home.run("-s", "0", "-m", "echo", "more") == ("You said: more\n", "", 0)
    assert time.monotonic() - started > 0.15


def test_a_lock_that_another_took_over_stays_with_that_one(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    without_locks(monkeypatch)
    home.run("-m", "echo", "hi")
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *names: (lock_of(home, "elsewhere 1 ee"), replace(*names)))
    assert home.run("-s", "0", "--tag", "work").code == 0
    assert (home.state / ".lock.owner").read_text() == "elsewhere 1 ee\n"
