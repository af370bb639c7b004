"""Spoilt samples of every format: whatever a file holds, it is read or told, and nothing that it names is touched."""

import json
import os
import shutil
import sys
import tempfile
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import vocabulary
from tests.support.apis import exercise
from tests.support.histories import corrupted, lines, read_sample, states
from tests.support.home import Home
from tests.support.paths import HISTORIES

SECRET = "/etc/hostname"  # what spoilt files name, and nobody may open
FOLDERS = {
    "claude_code": "projects/-home-u-my-proj/00000000-0000-4000-8000-000000000700.jsonl",
    "codelet/.fspec": "messages/messages.jsonl",
    "codelet": "envelopes_full.jsonl",
    "nanocoder/sessions": "5f0c2f3e-9a55-4d0e-8f1b-3c1f7a2b4d6e.json",
    "ollm/sessions": "550e8400-0000-4000-8000-000000000001.json",
    "nanobot_py_2026-02/sessions": "telegram_12345678.jsonl",
    "gptsh/sessions": "20251027-091530-7x2m.json",
    "chatgpt": "conversations.json",
    "claude_ai": "conversations.json",
    "deepseek": "conversations.json",
}  # a folder of samples, and the file of it that is spoilt


class Watch:
    """What Python opens, writes, runs or calls while it is on."""

    WRITES = (
        "os.mkdir",
        "os.rename",
        "os.remove",
        "os.rmdir",
        "os.link",
        "os.symlink",
        "os.truncate",
        "os.chmod",
    )
    NEVER = (
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.fork",
        "socket.connect",
        "exec",
    )

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.wrote: list[str] = []
        self.ran: list[str] = []
        self.is_on = False

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.is_on:
            return
        if event in self.NEVER and not (event == "exec" and hasattr(args[0], "co_filename")):
            self.ran.append(event)
        if event == "open" and isinstance(args[0], (str, bytes)):
            writes = isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            (self.wrote if writes else self.opened).append(os.fsdecode(args[0]))
        elif event in self.WRITES:
            self.wrote += [
                os.fsdecode(arg) for arg in args[:2] if isinstance(arg, (str, bytes, os.PathLike))
            ]


WATCH = Watch()
sys.addaudithook(WATCH)  # it stays for good


def survives(home: Home, path: str) -> None:
    """The run ends well or with a word; what it took in can be loaded, exported and asked in, and is known again."""
    WATCH.opened = []
    WATCH.wrote = []
    WATCH.ran = []
    WATCH.is_on = True
    env = {"TMPDIR": str(home.folder / "tmp")}
    (home.folder / "tmp").mkdir()
    try:
        run = home.run("--import-session", path, env=env)
    finally:
        WATCH.is_on = False
    assert run.code in (0, 2)
    assert "Traceback" not in run.stderr
    assert run.code == 0 or (run.stderr and not home.files())
    assert SECRET not in WATCH.opened
    assert WATCH.ran == []
    allowed = (
        str(home.state.parent),
        env["TMPDIR"],
    )  # the streams of the run are in the test's own temporary folder
    elsewhere = [
        path for path in WATCH.wrote if os.path.isabs(path) and not path.startswith(allowed)
    ]
    assert set(elsewhere) <= {tempfile.gettempdir()}
    assert list((home.folder / "tmp").iterdir()) == []
    for doc, form in zip(home.docs(), cycle(("openai", "nanobot", "markdown"))):
        exercise(doc, "lab", "anthropic")
        assert home.run("--export-session", doc["id"], "--format", form).code == 0
    again = home.run("--import-session", path)
    assert set(states(again)) <= {"known", "grown"}
    assert not home.files() or home.run("--list-sessions").stderr == ""


PLACES = [*vocabulary.ODD, SECRET, f"file://{SECRET}", f"../../../../..{SECRET}"]


@settings(max_examples=6)
@given(data=st.data())
@pytest.mark.parametrize("folder", FOLDERS)
def test_whatever_a_file_holds_it_is_read_or_told(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, folder: str
) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    copy = Path(shutil.copytree(HISTORIES / folder, home.folder / "in" / folder))
    value = data.draw(corrupted(read_sample(f"{folder}/{FOLDERS[folder]}")))
    is_lines = FOLDERS[folder].endswith("l")
    text = lines(*value if isinstance(value, list) else [value]) if is_lines else json.dumps(value)
    place = data.draw(st.sampled_from(PLACES))
    if data.draw(st.booleans()):
        text = text.replace(
            data.draw(st.sampled_from(["/home/u", "toolu_01", "synthetic"])),
            json.dumps(place)[1:-1],
        )
    raw = text.encode("utf-8", "surrogatepass")  # half a character is no UTF-8
    if data.draw(st.integers(0, 3)) == 0:  # bytes that are cut, or of no encoding
        at = data.draw(st.integers(0, len(raw)))
        raw = (
            raw[:at]
            + data.draw(st.sampled_from([b"", b"\0\xff", b"[" * 5000, b"\r\n", b'"']))
            + raw[at + 1 :]
        )
    (copy / FOLDERS[folder]).write_bytes(raw)
    survives(home, str(copy))
