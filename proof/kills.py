"""Runs killed at random moments, killed at each system call of a save, and refused the disk at each of them."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from proof.store import KINDS, Kind, Store, store, waited
from proof.table import TALLIED, Table, Tally

_LINE = re.compile(r"(\w+)\((.*)")
# What a disk refuses, and which calls it refuses so.
_REFUSALS = {
    "ENOSPC": ("openat", "write", "fsync", "rename", "mkdir"),
    "EIO": ("read", "write", "fsync", "openat"),
    "EROFS": ("openat", "rename", "unlink", "mkdir"),
}


class Call(NamedTuple):
    """A system call that touches the state folder: its name, and the how many-th of that name it is."""

    name: str
    number: int


def at_random(kills: int) -> Table:
    """So many runs of all kinds are killed, each at a moment of chance."""
    return _of_each_kind("Killed at a random moment", _RANDOM, lambda kind: _killed(kind, kills // len(KINDS) + 1))


def at_each_call() -> Table:
    """A run of each kind is killed before each system call that touches the state folder."""
    return _of_each_kind("Killed at each system call of a save", _CALLS, lambda kind: _at_calls(kind, "signal=KILL"))


def refused() -> Table:
    """A run of each kind meets a disk that refuses one call, at each call that touches the state folder."""
    return _of_each_kind("A disk that fails", _REFUSED, lambda kind: _at_calls(kind, "error"))


def _of_each_kind(title: str, text: str, tried: Callable[[Kind], Tally]) -> Table:
    with ThreadPoolExecutor(2) as lanes:
        return Table(title, text, TALLIED, [tally.row() for tally in lanes.map(tried, KINDS)])


def _killed(kind: Kind, kills: int) -> Tally:
    tally, seed, usual = Tally(kind.name), random.Random(kind.name), 1.0
    with store(kind) as target:
        number = 0
        while tally.tried < kills:
            number += 1
            target.ready()
            started = time.monotonic()
            process = target.start(target.command(number))
            if number % 10 != 1:  # of ten runs one is let live: it is timed, and what it promised is looked for
                time.sleep(usual * seed.uniform(0.3, 1.05))
                process.send_signal(signal.SIGKILL)
            code = waited(process, tally)
            usual = time.monotonic() - started if number % 10 == 1 else usual
            tally.tried += code == -signal.SIGKILL
            target.ended(number, code)
            if number % 25 == 0:
                target.look()
        target.conclude(tally)
    return tally


def _at_calls(kind: Kind, how: str) -> Tally:
    tally = Tally(kind.name)
    with store(kind) as target:
        target.ready()
        calls = _calls(target)
        for number, (call, injection) in enumerate(_injections(calls, how), 1):
            target.ready()
            trace = ["strace", "-qq", "-o", os.devnull, "-e", f"trace={call.name}", "-e"]
            command = [*trace, f"inject={call.name}:{injection}:when={call.number}", *target.command(number)]
            process = target.start(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
            out, err = process.communicate(timeout=100)
            tally.tried += how == "error" or process.returncode == -signal.SIGKILL
            target.ended(number, process.returncode)
            if how == "error":
                silent = process.returncode == 0 or not err
                tally.lost += target.kind.args[-1] == "turn {n}" and b"You said: " not in out and silent
                if b"Traceback" in err:
                    tally.torn += 1
                    sys.stderr.write(err.decode())
            target.look()
        target.conclude(tally)
    return tally


def _injections(calls: list[Call], how: str) -> Iterator[tuple[Call, str]]:
    for call in calls:
        if how != "error":
            yield call, how
            continue
        for error, names in _REFUSALS.items():
            if call.name in names:
                yield call, f"error={error}"


def _calls(target: Store) -> list[Call]:
    """The calls of the main thread that name the state folder, or a file in it."""
    log = Path(tempfile.mkdtemp(prefix="proof-trace-")) / "log"
    trace = ["strace", "-qq", "-y", "-o", str(log), "-e", "trace=%file,%desc"]
    process = target.start([*trace, *target.command(0)])
    assert process.wait(100) == 0
    target.ended(0, 0)
    place, seen, found = str(target.home.state), Counter[str](), []
    for line in log.read_text(errors="replace").splitlines():
        if match := _LINE.match(line):
            name, rest = match.groups()
            seen[name] += 1
            if place in rest:
                found.append(Call(name, seen[name]))
    shutil.rmtree(log.parent)
    return found


_RANDOM = """\
A run is started and gets SIGKILL at a moment of chance between a third of its usual time and a little behind its end.
Of ten runs one lives. *Lost* counts turns whose run ended with 0 and which no session holds. *Torn* counts session
files that are no whole JSON. *Left behind* counts temporary files that are there an hour and a run later."""
_CALLS = """\
`strace` lists the system calls of a run that touch the state folder. For each of them one run is killed right there."""
_REFUSED = """\
At each of these calls one run is refused: the disk is full (ENOSPC), read-only (EROFS) or broken (EIO). *Lost* also
counts a run without its answer on stdout and without a line that says why, *torn* also a traceback."""
