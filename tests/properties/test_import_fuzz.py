"""Spoilt files of every format: read without an exception, nothing written outside the store, nothing left behind."""

import json
import os
import socket
from pathlib import Path

import pytest

from gptsh.formats.readers import READERS
from gptsh.formats.source import Source, Unread, walk
from tests.support.fuzz_imports import SAMPLES, SECRET, Yard, samples, spoilt
from tests.support.home import Home

QUICK, ALL, GROUPS = 300, 10_000, 20


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Yard:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Yard(tmp_path)


def try_all(yard: Yard, seeds: range) -> None:
    for seed in seeds:
        item = spoilt(seed)
        try:
            yard.take(item)
        except Exception as err:
            err.add_note(f"seed {seed}: {item.place} ({item.done})")
            raise
    assert yard.documents > len(seeds) / 4
    assert yard.unread > len(seeds) / 10


@pytest.mark.slow
def test_a_few_hundred_spoilt_files(yard: Yard) -> None:
    try_all(yard, range(QUICK))


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_ten_thousand_spoilt_files(yard: Yard, group: int) -> None:
    size = ALL // GROUPS
    try_all(yard, range(QUICK + group * size, QUICK + (group + 1) * size))


@pytest.mark.parametrize("place", [place for place in samples() if (SAMPLES / place).exists()])
def test_no_two_formats_claim_one_sample(place: str) -> None:
    source = Source(place, SAMPLES / place)
    assert len([reader.name for reader in READERS if reader.recognises(source)]) <= 1


# ---- folders


def trapped(folder: Path) -> Path:
    """A folder of what must not be followed, waited for or read: links, pipes, sockets, devices, circles."""
    inner = folder / "deep" / ".hidden"
    inner.mkdir(parents=True)
    (folder / SECRET).write_text("{}")
    (inner / "link.json").symlink_to(folder / SECRET)
    (inner / "gone.json").symlink_to("/nowhere/at/all")
    (inner / "endless.jsonl").symlink_to("/dev/zero")
    (inner / "circle").symlink_to(folder)
    (inner / "itself.json").symlink_to("itself.json")
    os.mkfifo(inner / "pipe.json")
    os.mkfifo(inner / "pipe.db")
    (inner / "folder.json").mkdir()
    (inner / "logs.db-wal").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(inner, os.O_RDONLY)  # a socket's path must be short
        listener.bind(f"/proc/self/fd/{here}/socket.json")
        os.close(here)
    (inner / "odd \udcff\n\x1b[31m.json").write_text("{")
    (inner / "logs.db").write_bytes(samples()["llm/logs.db"])
    (inner / "sparse.db").write_bytes(b"SQLite format 3\0")
    os.truncate(inner / "sparse.db", 5_000_000_000)
    (inner / "sparse.json").write_bytes(b"[")
    os.truncate(inner / "sparse.json", 5_000_000_000)
    (inner / "empty.json").write_bytes(b"")
    (inner / "closed.json").write_bytes(b"{}")
    (inner / "closed.json").chmod(0)
    return folder


def test_a_walk_through_traps_finds_the_plain_files_alone(tmp_path: Path) -> None:
    found = list(walk(trapped(tmp_path)))
    assert not [item for item in found if isinstance(item, Unread)]
    names = sorted(item.name for item in found if isinstance(item, Path))
    assert names == sorted(
        ["odd \udcff\n\x1b[31m.json", "logs.db", "sparse.db", "sparse.json", "empty.json", "closed.json"]
    )


def outside(home: Home) -> set[str]:
    """All that is in the home but for the store."""
    state = home.state.parent
    return {str(path) for path in home.folder.rglob("*") if not path.is_relative_to(state)}


def test_the_command_goes_through_traps(home: Home) -> None:
    trapped(home.folder / "traps")
    (home.folder / "tmp").mkdir()
    before = outside(home)
    run = home.run("--import-session", str(home.folder / "traps"), env={"TMPDIR": str(home.folder / "tmp")})
    assert (run.code, [line.split()[0] for line in run.stdout.splitlines()]) == (0, ["imported"])
    assert "sparse.db: no plain file, or more than 4000 MB" in run.stderr
    assert "sparse.json: more than 100 MB" in run.stderr
    assert "Traceback" not in run.stderr
    assert outside(home) == before


# ---- the real command


def test_the_command_takes_dozens_of_spoilt_files_at_once(home: Home) -> None:
    there, temporary = home.folder / "files", home.folder / "tmp"
    temporary.mkdir()
    for seed in range(0, 4000, 50):
        item = spoilt(seed)
        path = there / str(seed) / item.place
        path.parent.mkdir(parents=True)
        path.write_bytes(item.data)
    before = outside(home)
    first = home.run("--import-session", str(there), env={"TMPDIR": str(temporary)})
    assert (first.code, "Traceback" in first.stderr) == (0, False), first.stderr
    assert len(home.docs()) > 10
    again = home.run("--import-session", str(there), "-o", "json", env={"TMPDIR": str(temporary)})
    assert (again.code, "Traceback" in again.stderr) == (0, False), again.stderr
    assert {item["state"] for item in json.loads(again.stdout)} <= {"known", "grown"}
    assert {path.parent for path in home.state.rglob("*.json")} == {home.sessions}
    for args in (["--list-sessions"], ["--usage"], ["--search-sessions", "the"]):
        run = home.run(*args)
        assert (run.code, "Traceback" in run.stderr) == (0, False), run.stderr
    assert outside(home) == before


@pytest.mark.parametrize("seed", range(7, 7000, 700))
def test_the_command_takes_a_spoilt_file_that_is_piped(home: Home, seed: int) -> None:
    run = home.run("--import-session", "-", stdin=spoilt(seed).data)
    assert run.code in (0, 2)
    assert "Traceback" not in run.stderr
    if run.code == 2:
        assert home.files() == []
