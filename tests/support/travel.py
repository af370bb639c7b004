"""Sessions that were continued on two machines: the files that a sync tool leaves."""

import json
from pathlib import Path
from typing import Any

from tests.support.home import Home

SYNCTHING = "{stem}.sync-conflict-20261123-101112-ABCDEFG.json"
DROPBOX = "{stem} (Ann's conflicted copy 2026-11-23).json"
ICLOUD = "{stem} 2.json"
GIT = "{stem}.json~HEAD"
COPY_NAMES = (SYNCTHING, DROPBOX, ICLOUD, GIT, "{stem}.json~", "{stem}-LAPTOP.json")


def named(path: Path, form: str) -> Path:
    """The path of a copy of a session."""
    return path.with_name(form.format(stem=path.stem))


def continued_twice(home: Home, form: str = SYNCTHING, *more: str) -> tuple[Path, Path]:
    """A session of ``one`` and, on the other machine, ``there``; then here ``here``: its file, and the copy beside it.

    ``more`` are arguments of the turn on the other machine.
    """
    home.run("-m", "echo", "one")
    (path,) = home.files()
    base = path.read_bytes()
    home.run("-s", "0", *more, "there")
    there = path.read_bytes()
    path.write_bytes(base)
    home.run("-s", "0", "here")
    copy = named(path, form)
    copy.write_bytes(there)
    return path, copy


def questions(doc: dict[str, Any]) -> list[str]:
    """The words of each question, in the order of the file."""
    return [message["content"] for message in doc["messages"] if message["role"] == "user"]


def shown(home: Home, ref: str = "0") -> list[str]:
    """The questions of a session as ``--show-session`` shows it."""
    return questions(json.loads(home.run("--show-session", ref, "-o", "json").stdout))
