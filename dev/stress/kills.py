"""Kill runs at random moments and at each system call of a save, and make each such call fail."""

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

from dev.stress.store import KINDS, Kind, Store, exit_code_of, store
from dev.stress.table import TALLY_HEADS, Table, Tally

_LINE = re.compile(r"(\w+)\((.*)")
# Errors of a disk, and the system calls that can fail with them.
_DISK_ERRORS = {
    "ENOSPC": ("openat", "write", "fsync", "rename", "mkdir"),
    "EIO": ("read", "write", "fsync", "openat"),
    "EROFS": ("openat", "rename", "unlink", "mkdir"),
}


class Call(NamedTuple):
    """A system call on the state folder: the ``number``-th call of that name."""

    name: str
    number: int


def at_random_moments(kills: int) -> Table:
    """Kill so many runs of all kinds, each at a random moment."""
    return _for_each_kind(
        "Killed at a random moment", _RANDOM, lambda kind: _killed(kind, kills // len(KINDS) + 1)
    )


def at_each_system_call() -> Table:
    """For each kind and each system call on the state folder, kill a run before that call."""
    return _for_each_kind(
        "Killed at each system call of a save", _CALLS, lambda kind: _at_calls(kind, "signal=KILL")
    )


def disk_errors() -> Table:
    """For each kind and each system call on the state folder, let that call of a run fail."""
    return _for_each_kind("A disk that fails", _REFUSED, lambda kind: _at_calls(kind, "error"))


def _for_each_kind(title: str, text: str, test: Callable[[Kind], Tally]) -> Table:
    with ThreadPoolExecutor(2) as threads:
        return Table(title, text, TALLY_HEADS, [tally.row() for tally in threads.map(test, KINDS)])


def _killed(kind: Kind, kills: int) -> Tally:
    tally, rng, usual = Tally(kind.name), random.Random(kind.name), 1.0
    with store(kind) as target:
        number = 0
        while tally.tried < kills:
            number += 1
            target.prepare()
            started = time.monotonic()
            process = target.start(target.command(number))
            if number % 10 != 1:  # one run of ten is not killed but timed
                time.sleep(usual * rng.uniform(0.3, 1.05))
                process.send_signal(signal.SIGKILL)
            code = exit_code_of(process, tally)
            usual = time.monotonic() - started if number % 10 == 1 else usual
            tally.tried += code == -signal.SIGKILL
            target.record_exit(number, code)
            if number % 25 == 0:
                target.check()
        target.finish(tally)
    return tally


def _at_calls(kind: Kind, how: str) -> Tally:
    tally = Tally(kind.name)
    with store(kind) as target:
        target.prepare()
        calls = _calls(target)
        for number, (call, injection) in enumerate(_injections(calls, how), 1):
            target.prepare()
            trace = ["strace", "-qq", "-o", os.devnull, "-e", f"trace={call.name}", "-e"]
            command = [
                *trace,
                f"inject={call.name}:{injection}:when={call.number}",
                *target.command(number),
            ]
            process = target.start(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
            out, err = process.communicate(timeout=100)
            tally.tried += how == "error" or process.returncode == -signal.SIGKILL
            target.record_exit(number, process.returncode)
            if how == "error":
                silent = process.returncode == 0 or not err
                tally.lost += (
                    target.kind.args[-1] == "turn {n}" and b"You said: " not in out and silent
                )
                if b"Traceback" in err:
                    tally.torn += 1
                    sys.stderr.write(err.decode())
            target.check()
        target.finish(tally)
    return tally


def _injections(calls: list[Call], how: str) -> Iterator[tuple[Call, str]]:
    for call in calls:
        if how != "error":
            yield call, how
            continue
        for error, names in _DISK_ERRORS.items():
            if call.name in names:
                yield call, f"error={error}"


def _calls(target: Store) -> list[Call]:
    """The system calls of the main thread with the state folder, or a file in it, as an argument."""
    log = Path(tempfile.mkdtemp(prefix="gptsh-trace-")) / "log"
    trace = ["strace", "-qq", "-y", "-o", str(log), "-e", "trace=%file,%desc"]
    process = target.start([*trace, *target.command(0)])
    assert process.wait(100) == 0
    target.record_exit(0, 0)
    folder, counts, calls = str(target.home.state), Counter[str](), []
    for line in log.read_text(errors="replace").splitlines():
        if match := _LINE.match(line):
            name, rest = match.groups()
            counts[name] += 1
            if folder in rest:
                calls.append(Call(name, counts[name]))
    shutil.rmtree(log.parent)
    return calls


_RANDOM = """\
Each run gets SIGKILL at a random moment between a third of its usual time and shortly after its end. One run in ten is
not killed. *Lost* counts turns that are in no session although their run ended with 0. *Torn* counts session files with
incomplete JSON. *Left behind* counts temporary files that still exist an hour and a run later."""
_CALLS = """\
`strace` lists the system calls of a run on the state folder. For each call, one run gets killed just before it."""
_REFUSED = """\
Each of these calls fails in one run: the disk is full (ENOSPC), read-only (EROFS) or broken (EIO). *Lost* also counts
runs with neither the answer on stdout nor an error message, *torn* also tracebacks."""
