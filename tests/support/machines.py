"""Two machines with a store each, and the ways in which tools sync them; what must be in both stores afterwards."""

import json
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tests.support.home import Home
from tests.support.travel import questions

WAYS = {
    "newer": "the newer file wins, the older one is renamed",
    "older": "the older file wins, the newer one is renamed",
    "both": "both files are renamed",
    "git": "`git merge` with `--merge-driver`",
    "rsync": "`rsync -u -b --suffix=~$(date +%s)` in both directions",
}
ACTIONS = ("turn",) * 6 + ("new", "new", "title", "tag", "fork", "delete", "archive", "join") + ("sync",) * 3
_FOLDERS = ("sessions", "archive")
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where a save does not wait for a disk
_POPULAR = 4  # sessions that are used: the newest, so that conflicts are frequent
_ROUNDS = 8  # syncs after which both stores must be equal


class Step(NamedTuple):
    """One step: what one of the machines does, with a session of chance."""

    machine: int
    action: str
    choice: int


class Entry(NamedTuple):
    """A file as a sync tool sees it."""

    time: int
    data: bytes


def random_steps(seed: int, number: int) -> Iterator[Step]:
    """Yield so many steps of chance."""
    chance = random.Random(seed)
    for _ in range(number):
        yield Step(chance.randrange(2), chance.choice(ACTIONS), chance.randrange(1000))


class Machines:
    """Two machines that are synced in one of the WAYS.

    ``turns`` has the questions that were answered in each session, by file name; ``deleted`` those that a machine had
    deleted; ``tags`` those that were set. ``conflicts`` counts files that both machines had changed.
    """

    def __init__(self, folder: Path, way: str) -> None:
        self.way = way
        self.homes = []
        for name in ("a", "b"):
            (folder / name).mkdir()
            self.homes.append(Home(folder / name))
        self.turns: dict[str, set[str]] = defaultdict(set)
        self.tags: dict[str, set[str]] = defaultdict(set)
        self.deleted: dict[str, set[str]] = defaultdict(set)
        self.conflicts = self._number = self._syncs = 0
        self._synced: dict[str, bytes] = {}

    # ---- what the machines do

    def do(self, step: Step) -> None:
        """Carry out one step; each command must succeed."""
        home = self.homes[step.machine]
        self._number += 1
        if step.action == "sync":
            self.sync()
            return
        if step.action == "join":
            self._run(home, "--join-copies")
            return
        names = self.sessions(home)
        if step.action == "new" or not names:
            before = {path.name for path in home.files()}
            self._run(home, "-m", "echo", f"words {self._number}")
            (name,) = {path.name for path in home.files()} - before
            self.turns[name].add(f"words {self._number}")
            return
        name = names[-1 - step.choice % min(len(names), _POPULAR)]
        getattr(self, f"_{step.action}")(home, name)

    def _turn(self, home: Home, name: str) -> None:
        self._run(home, "-m", "echo", "-s", name, f"words {self._number}")
        self.turns[name].add(f"words {self._number}")

    def _title(self, home: Home, name: str) -> None:
        self._run(home, "-s", name, "--title", f"title {self._number}")

    def _tag(self, home: Home, name: str) -> None:
        self._run(home, "-s", name, "--tag", f"tag{self._number}")
        self.tags[name].add(f"tag{self._number}")

    def _fork(self, home: Home, name: str) -> None:
        before = {path.name for path in home.files()}
        inherited = questions(self._document(home, f"{name}@1"))
        tags = self._document(home, name)["meta"]["tags"]
        self._run(home, "-m", "echo", "-s", f"{name}@1", f"words {self._number}")
        (fork,) = {path.name for path in home.files()} - before
        self.turns[fork] |= {*inherited, f"words {self._number}"}
        self.tags[fork] |= {*tags}

    def _delete(self, home: Home, name: str) -> None:
        self.deleted[name] |= {*questions(self._document(home, name))}
        self._run(home, "--delete-session", name)

    def _archive(self, home: Home, name: str) -> None:
        self._run(home, "--archive-session", name)

    def sessions(self, home: Home) -> list[str]:
        """The file names of the sessions that the machine shows, also of archived ones."""
        names = set()
        for more in ((), ("--archived",)):
            rows = json.loads(self._run(home, "--list-sessions", *more, "-o", "json"))
            names |= {self._filename(home, row) for row in rows}
        return sorted(names)

    def _filename(self, home: Home, row: dict[str, Any]) -> str:
        stamp = row["created_at"][:19].replace("-", "").replace(":", "").replace("T", "-")
        return f"{stamp}-{row['id']}.json"

    def _document(self, home: Home, ref: str) -> dict[str, Any]:
        doc: dict[str, Any] = json.loads(self._run(home, "--show-session", ref, "-o", "json"))
        return doc

    def _run(self, home: Home, *args: str) -> str:
        done = home.run(*args)
        assert done.code == 0, (args, done)
        return done.stdout

    # ---- what the tool does

    def sync(self) -> None:
        """Make both stores equal, as the tool does."""
        self._syncs += 1
        if self.way == "rsync":
            self._copy_newer(*self.homes)
            self._copy_newer(*reversed(self.homes))
            return
        mine, theirs = (dict(_entries(home)) for home in self.homes)
        for path in sorted({*mine, *theirs}):
            a, b, base = mine.get(path), theirs.get(path), self._synced.get(path)
            if (a and a.data) != (b and b.data):
                if a and b and base not in (a.data, b.data):
                    self.conflicts += 1
                    self._resolve(path, a, b)
                elif a and (b is None or b.data == base) and a.data != base:
                    _write(self.homes[1], path, a)
                elif b and b.data != base:
                    _write(self.homes[0], path, b)
                else:  # one has deleted it, and the other has not changed it
                    for home in self.homes:
                        (home.state / path).unlink(missing_ok=True)
        self._synced = {path: entry.data for path, entry in _entries(self.homes[0])}

    def _resolve(self, path: str, a: Entry, b: Entry) -> None:
        """Both have changed a file."""
        older, newer = sorted((a, b))
        stem = path.removesuffix(".json")
        if self.way == "git":
            merged = self._merge(path, a, b)
            results = {path: merged}
        elif self.way == "both":
            results = {f"{stem} (a {self._syncs}).json": a, f"{stem} (b {self._syncs}).json": b}
        else:
            wins, loses = (newer, older) if self.way == "newer" else (older, newer)
            results = {path: wins, f"{stem}.sync-conflict-{self._syncs}.json": loses}
        for home in self.homes:
            (home.state / path).unlink(missing_ok=True)
            for name, entry in results.items():
                _write(home, name, entry)

    def _merge(self, path: str, a: Entry, b: Entry) -> Entry:
        home = self.homes[0]
        for name, data in (("base", self._synced.get(path, b"")), ("ours", a.data), ("theirs", b.data)):
            (home.cwd / name).write_bytes(data)
        self._run(home, "--merge-driver", "base", "ours", "theirs")
        return Entry(max(a.time, b.time), (home.cwd / "ours").read_bytes())

    def _copy_newer(self, source: Home, target: Home) -> None:
        """Copy what is newer, or missing there; what is replaced becomes a backup."""
        present = dict(_entries(target))
        for path, entry in _entries(source):
            there = present.get(path)
            if there is None:
                _write(target, path, entry)
            elif entry.data != there.data and entry.time >= there.time:
                self.conflicts += 1
                _write(target, f"{path}~{self._syncs}", there)
                _write(target, path, entry)

    # ---- what must be so in the end

    def settle(self) -> None:
        """Sync and join until both stores are equal. Raises AssertionError if that takes too many rounds."""
        for _ in range(_ROUNDS):
            self.sync()
            before = [{path: entry.data for path, entry in _entries(home)} for home in self.homes]
            for home in self.homes:
                self._run(home, "--join-copies")
            after = [{path: entry.data for path, entry in _entries(home)} for home in self.homes]
            if self.way == "rsync":  # it brings back what one has removed; nothing is left of that after a join
                if [_sessions(files) for files in before] == [_sessions(files) for files in after]:
                    return
            elif before == after:
                return
        raise AssertionError(f"{self.way}: the stores are not equal after {_ROUNDS} syncs")

    def faults(self) -> Iterator[tuple[Literal["lost", "doubled", "left", "returned", "differs"], str]]:
        """Yield what is wrong in the settled stores."""
        documents = []
        for home in self.homes:
            shown = {name: self._document(home, name) for name in self.sessions(home)}
            documents.append(shown)
            for name, turns in self.turns.items():
                words = questions(shown[name]) if name in shown else []
                kept = turns - self.deleted[name]
                yield from (("lost", f"{name}: {each}") for each in kept - {*words})
                yield from (("doubled", f"{name}: {each}") for each in {*words} if words.count(each) > 1)
                if words and not kept:
                    yield "returned", name
                if name in shown and name not in self.deleted:
                    tags = {*shown[name]["meta"]["tags"]}
                    yield from (("lost", f"{name}: {tag}") for tag in self.tags[name] - tags)
            yield from (("left", name) for path, _ in _entries(home) if (name := _copy_name(path)))
        if documents[0] != documents[1]:
            yield "differs", ", ".join(sorted(documents[0].keys() ^ documents[1].keys()) or ["a document"])


def _sessions(entries: dict[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in entries.items() if path.endswith(".json")}


def _copy_name(path: str) -> str:
    name = os.path.basename(path)
    return name if ".json" in name and len(name) != len("20250101-000000-aaaa.json") else ""


def _entries(home: Home) -> Iterator[tuple[str, Entry]]:
    """The synced files of a machine; temporary files are ignored, as the documentation advises."""
    for folder in _FOLDERS:
        for path in sorted((home.state / folder).glob("*")):
            if path.suffix != ".tmp":
                yield f"{folder}/{path.name}", Entry(path.stat().st_mtime_ns, path.read_bytes())


def _write(home: Home, path: str, entry: Entry) -> None:
    target = home.state / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(entry.data)
    os.utime(target, ns=(entry.time, entry.time))
