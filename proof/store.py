"""Runs that write to a store, each of a kind: what is killed, refused the disk, or started by the dozen.

What counts is what a user was promised: an answer whose run ended with 0 is on disk, a session that was there before
still is, and every file is whole.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from proof.table import Tally
from tests.support.home import COMMAND, Home, lab_config
from tests.support.server import ModelServer
from tests.support.tools import call, calling, configure

PATIENCE = 60  # seconds after which a run counts as hung
_TURN = re.compile(r"(?:first|turn) \d+")
_OLD = {"created_at": "2020-01-01T00:00:00.000Z", "updated_at": "2020-01-01T00:00:00.000Z"}


class Kind(NamedTuple):
    """One kind of run: what its home has at first, what it is started with, and what ``gptsh`` must still have."""

    name: str
    args: tuple[str, ...]  # ``{n}`` is the number of the run
    words: int = 0  # of a session ``@s`` that is there before
    old: int = 0  # so many sessions of long ago are there before each run


KINDS = (
    Kind("a new session", ("turn {n}",)),
    Kind("a session goes on", ("-s", "@s", "turn {n}"), words=1),
    Kind("a session of 1 MB goes on", ("-s", "@s", "turn {n}"), words=80_000),
    Kind("a round of tools", ("-s", "@s", "--tools", "good", "turn {n}"), words=1),
    Kind("a compaction", ("-s", "@s", "--compact", "--apply", "turn {n}"), words=9_000),
    Kind("a title", ("-m", "lab/titled", "turn {n}")),
    Kind("an import", ("--import-session", "import.json")),
    Kind("sessions archived", ("--prune-sessions", "--older-than", "30d", "--archive", "--yes"), old=5),
    Kind("sessions deleted", ("--prune-sessions", "--older-than", "30d", "--yes"), old=5),
)  # fmt: skip


class Store:
    """A home under attack, its model server, and what must be found in it."""

    def __init__(self, folder: Path, kind: Kind) -> None:
        self.kind = kind
        self.home = Home(folder)
        self.home.env["PYTHONDONTWRITEBYTECODE"] = "1"
        self.model = ModelServer()
        if "good" in kind.args:
            configure(self.home, self.model)
        else:
            small = '[agents.default]\nmodel = "lab/m"\nmodel_small = "lab/small"\n'
            text = lab_config(self.model, "" if kind.name == "a title" else '[sessions]\ntitles = "off"\n')
            self.home.configure(text.replace('[agents.default]\nmodel = "lab/m"\n', small))
        self.acknowledged: list[str] = []
        self.torn = self.lost = 0
        if kind.words:
            for at in range(4):  # a compaction needs turns to leave out
                self._process("-s", "@s", stdin=f"first {at} " + "lorem ipsum " * (kind.words // 4))
        else:
            self._process("first 0")
        self.acknowledged += ["first 0"]
        self._first = self.home.docs()[0]
        self._runs = 0
        self._imported: set[str] = set()  # ids

    def close(self) -> None:
        """End the server, and what is left of processes."""
        self.home.end()
        self.model.close()

    def ready(self) -> None:
        """As it is before each run. What was to be archived and is nowhere counts as lost."""
        for number in range(self.kind.old):
            path = self.home.sessions / f"20200101-00000{number}-old{number}.json"
            archived = self.home.state / "archive" / path.name
            is_gone = not path.exists() and not archived.exists()
            self.lost += is_gone and self._runs > 0 and "--archive" in self.kind.args
            archived.unlink(missing_ok=True)
            if not path.exists():
                doc = self._first | _OLD | {"id": f"old{number}"}
                path.write_text(json.dumps(doc, separators=(",", ":")))
                os.utime(path, (1_577_836_800,) * 2)
        self._runs += 1
        messages = [message | {"id": f"{self._runs}-{message['role']}"} for message in self._first["messages"]]
        brought = self._first | {"id": f"i{self._runs:03}", "messages": messages}
        (self.home.cwd / "import.json").write_text(json.dumps(brought))
        self.model.forget()
        if "good" in self.kind.args:
            self.model.script(*calling(call("echo", text="hi")))

    def command(self, number: int) -> list[str]:
        """What the run of a number is started with."""
        return [*COMMAND, *(arg.format(n=f"{number:05}") for arg in self.kind.args)]

    def start(self, command: list[str], **more: Any) -> "subprocess.Popen[bytes]":
        """Start a run."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **more}
        return subprocess.Popen(command, env=self.home.env, cwd=self.home.cwd, **pipes)

    def ended(self, number: int, code: int) -> None:
        """Note what a run that ended so promised."""
        if code == 0 and self.kind.args[-1] == "turn {n}":
            self.acknowledged.append(f"turn {number:05}")
        if code == 0 and "--import-session" in self.kind.args:
            self._imported.add(f"i{self._runs:03}")

    def look(self) -> None:
        """Count files that are torn, and what was acknowledged and is nowhere: turns, and imported sessions."""
        found, there = set(), set()
        for path in [*self.home.sessions.glob("*.json"), *(self.home.state / "archive").glob("*.json")]:
            try:
                messages = json.loads(path.read_bytes())["messages"]
            except (ValueError, KeyError, FileNotFoundError):
                self.torn += path.exists()
                continue
            there.add(path.name[16:20])
            for question, answer in pairwise(messages):
                if (question["role"], answer["role"]) == ("user", "assistant"):
                    found.update(_TURN.findall(json.dumps(question["content"])))
        self.lost += len({*self.acknowledged} - found) + len(self._imported - there)

    def conclude(self, tally: Tally) -> None:
        """Add what is lost, torn and left behind at the end to the tally."""
        self.ready()
        self.look()
        tally.lost, tally.torn, tally.left = tally.lost + self.lost, tally.torn + self.torn, self.left()

    def left(self) -> int:
        """Temporary files that are still there after an hour and one more run."""
        for path in self.home.state.rglob("*.tmp"):
            os.utime(path, (time.time() - 7200,) * 2)
        self._process("-m", "echo", "and now?")
        self._process("--list-sessions")
        return len(list(self.home.state.rglob("*.tmp")))

    def _process(self, *args: str, stdin: str | None = None) -> None:
        done = self.home.process(*args, stdin=stdin)
        assert done.code == 0, (args, done)


@contextmanager
def store(kind: Kind) -> Iterator[Store]:
    """A store in a folder of its own, gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="proof-"))
    made = None
    try:
        made = Store(folder, kind)
        yield made
    finally:
        if made:
            made.close()
        shutil.rmtree(folder, ignore_errors=True)


def waited(process: "subprocess.Popen[bytes]", tally: Tally) -> int:
    """The exit code; a run that does not end is counted and killed."""
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        tally.hung += 1
        process.kill()
        return process.wait()
