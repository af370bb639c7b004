"""A store under test, and the kinds of runs that write to it.

These promises are checked: the turn of a run that ended with 0 is on disk, existing sessions are still there, and every
file is complete JSON.
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

from dev.stress.table import Tally
from tests.support.home import COMMAND, Home, lab_config
from tests.support.server import ModelServer
from tests.support.tools import call, calling, configure

TIMEOUT = 60  # seconds after which a run counts as hung
_TURN = re.compile(r"(?:first|turn) \d+")
_OLD = {"created_at": "2020-01-01T00:00:00.000Z", "updated_at": "2020-01-01T00:00:00.000Z"}


class Kind(NamedTuple):
    """One kind of run: its arguments, and the sessions that exist before it."""

    name: str
    args: tuple[str, ...]  # ``{n}`` is the number of the run
    words: int = 0  # in the session ``@s``, which exists before the runs
    old: int = 0  # number of old sessions before each run


KINDS = (
    Kind("a new session", ("turn {n}",)),
    Kind("a resumed session", ("-s", "@s", "turn {n}"), words=1),
    Kind("a resumed session of 1 MB", ("-s", "@s", "turn {n}"), words=80_000),
    Kind("a round of tools", ("-s", "@s", "--tools", "good", "turn {n}"), words=1),
    Kind("a compaction", ("-s", "@s", "--compact", "--apply", "turn {n}"), words=9_000),
    Kind("an import", ("--import-session", "import.json")),
    Kind("sessions archived", ("--prune-sessions", "--older-than", "30d", "--archive", "--yes"), old=5),
    Kind("sessions deleted", ("--prune-sessions", "--older-than", "30d", "--yes"), old=5),
)  # fmt: skip


class Store:
    """A home under test, its model server, and the turns and sessions that must be in it."""

    def __init__(self, folder: Path, kind: Kind) -> None:
        self.kind = kind
        self.home = Home(folder)
        self.home.env["PYTHONDONTWRITEBYTECODE"] = "1"
        self.model = ModelServer()
        if "good" in kind.args:
            configure(self.home, self.model)
        else:
            small = '[agents.default]\nmodel = "lab/m"\nmodel_small = "lab/small"\n'
            text = lab_config(self.model)
            self.home.configure(text.replace('[agents.default]\nmodel = "lab/m"\n', small))
        self.acknowledged: list[str] = []
        self.torn = self.lost = 0
        if kind.words:
            for at in range(4):  # a compaction needs several turns
                self._process("-s", "@s", stdin=f"first {at} " + "lorem ipsum " * (kind.words // 4))
        else:
            self._process("first 0")
        self.acknowledged += ["first 0"]
        self._first = self.home.docs()[0]
        self._runs = 0
        self._imported: set[str] = set()  # ids

    def close(self) -> None:
        """Stop the server and the remaining processes."""
        self.home.end()
        self.model.close()

    def prepare(self) -> None:
        """Restore the state before a run. An old session that is neither stored nor archived counts as lost."""
        for number in range(self.kind.old):
            path = self.home.sessions / f"20200101-00000{number}-old{number}.json"
            archived = self.home.state / "archive" / path.name
            is_gone = not path.exists() and not archived.exists()
            self.lost += is_gone and self._runs > 0 and "--archive" in self.kind.args
            archived.unlink(missing_ok=True)
            for mark in self.home.sessions.glob(f"{path.stem}.*.deleted"):  # it would stay deleted
                mark.unlink()
            if not path.exists():
                doc = self._first | _OLD | {"id": f"old{number}"}
                path.write_text(json.dumps(doc, separators=(",", ":")))
                os.utime(path, (1_577_836_800,) * 2)
        self._runs += 1
        messages = [
            message | {"id": f"{self._runs}-{message['role']}"}
            for message in self._first["messages"]
        ]
        to_import = self._first | {"id": f"i{self._runs:03}", "messages": messages}
        (self.home.cwd / "import.json").write_text(json.dumps(to_import))
        self.model.forget()
        if "good" in self.kind.args:
            self.model.script(*calling(call("echo", text="hi")))

    def command(self, number: int) -> list[str]:
        """The command of run ``number``."""
        return [*COMMAND, *(arg.format(n=f"{number:05}") for arg in self.kind.args)]

    def start(self, command: list[str], **more: Any) -> "subprocess.Popen[bytes]":
        """Start a run."""
        pipes = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
            **more,
        }
        return subprocess.Popen(command, env=self.home.env, cwd=self.home.cwd, **pipes)

    def record_exit(self, number: int, code: int) -> None:
        """Record what must be on disk after a run that ended with this exit code."""
        if code == 0 and self.kind.args[-1] == "turn {n}":
            self.acknowledged.append(f"turn {number:05}")
        if code == 0 and "--import-session" in self.kind.args:
            self._imported.add(f"i{self._runs:03}")

    def check(self) -> None:
        """Count the files that are torn, and the acknowledged turns and imported sessions that are missing."""
        turns, ids = set(), set()
        for path in [
            *self.home.sessions.glob("*.json"),
            *(self.home.state / "archive").glob("*.json"),
        ]:
            try:
                messages = json.loads(path.read_bytes())["messages"]
            except (ValueError, KeyError, FileNotFoundError):
                self.torn += path.exists()
                continue
            ids.add(path.name[16:20])
            for question, answer in pairwise(messages):
                if (question["role"], answer["role"]) == ("user", "assistant"):
                    turns.update(_TURN.findall(json.dumps(question["content"])))
        self.lost += len({*self.acknowledged} - turns) + len(self._imported - ids)

    def finish(self, tally: Tally) -> None:
        """Add what is lost, torn and left behind to the tally."""
        self.prepare()
        self.check()
        tally.lost, tally.torn, tally.left = (
            tally.lost + self.lost,
            tally.torn + self.torn,
            self._leftovers(),
        )

    def _leftovers(self) -> int:
        """The number of temporary files that still exist after an hour and another run."""
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
    """A store in a temporary folder, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="gptsh-"))
    target = None
    try:
        target = Store(folder, kind)
        yield target
    finally:
        if target:
            target.close()
        shutil.rmtree(folder, ignore_errors=True)


def exit_code_of(process: "subprocess.Popen[bytes]", tally: Tally) -> int:
    """Wait for the exit code. A run that hangs is counted and killed."""
    try:
        return process.wait(TIMEOUT)
    except subprocess.TimeoutExpired:
        tally.hung += 1
        process.kill()
        return process.wait()
