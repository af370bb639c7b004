"""Where sessions come from: the bytes of one file, as JSON, as lines of JSON. Nothing in it is trusted.

What is too large or nested too deeply is refused before anything is made of it, and no path that stands in a file is
ever opened.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from io import BytesIO
from json import JSONDecodeError
from pathlib import Path
from typing import Any, NamedTuple

from gptsh.core.document import Document
from gptsh.core.files import parsed_from
from gptsh.core.messages import timestamp

LARGEST = 100_000_000  # bytes of JSON; in memory it takes ten times that
_TOO_LARGE = f"more than {LARGEST // 1_000_000} MB"
DEEPEST = 100  # levels of JSON; every reader of the session has to follow
_DATABASE = b"SQLite format 3\0"
_BOM = b"\xef\xbb\xbf"
OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe among the files is not waited for
_BLANK = " \t\r\n\0"  # between values; NUL is what a crash leaves behind
_NO_BYTES = b" \t\r\n\0"
_FIRST = 10  # lines by which a format of lines is told


class Unread(NamedTuple):
    """What could not be read: where, as ``path`` or ``path:line``, and why. ``is_foreign``: another program's file."""

    where: str
    why: str
    is_foreign: bool = False


class Refused(ValueError):
    """A source, or a piece of one, that is not taken. Its text says why."""


class Line(NamedTuple):
    """An object that stands on a line: the line's number, counted from 1, its text, and what it says."""

    number: int
    raw: str
    value: dict[str, Any]


class Source:
    """One file, or what was piped: ``name`` is what people read, ``path`` is None for a pipe.

    ``data`` is all of it, of a database the beginning alone. Raises Refused for what is no plain file, too large, or
    cannot be read.
    """

    def __init__(self, name: str, path: Path | None, data: bytes = b"") -> None:
        self.name, self.path = name, path
        self.modified = timestamp()
        self.data = data if path is None else self._read(path)
        if len(self.data) > LARGEST:
            raise Refused(_TOO_LARGE)

    def _read(self, path: Path) -> bytes:
        try:
            with open(os.open(path, OPEN), "rb") as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode):
                    raise Refused("no plain file")
                self.modified = timestamp(datetime.fromtimestamp(found.st_mtime, UTC))
                start = file.read(len(_DATABASE))
                if start == _DATABASE:
                    return start
                if found.st_size > LARGEST:
                    raise Refused(_TOO_LARGE)
                file.seek(0)
                return file.read()  # at once: many sessions may share a file, which is read for each
        except OSError as err:
            raise Refused(err.strerror or str(err)) from err

    @property
    def is_database(self) -> bool:
        """Whether it is an SQLite database."""
        return self.data.startswith(_DATABASE)

    def beside(self, *names: str) -> "Source | None":
        """A file at a place that the format sets, seen from this one's folder; None where there is none.

        Never a name that a file gave, unless it was checked to be a hash or an id.
        """
        if self.path is None:
            return None
        path = self.path.parent.joinpath(*names)
        try:
            return Source(str(path), path)
        except Refused:
            return None

    def unread(self, why: str, line: int | None = None) -> Unread:
        """What could not be read of it."""
        return Unread(self.name if line is None else f"{self.name}:{line}", why)

    @cached_property
    def text(self) -> str | None:
        """The whole of it as text; None where it is no UTF-8."""
        try:
            return self.data.removeprefix(_BOM).decode()
        except UnicodeDecodeError:
            return None

    @cached_property
    def json(self) -> Any:
        """The whole of it as one JSON value; None where it is none, or none that is taken."""
        return self._one[0]

    @property
    def fault(self) -> str:
        """Why it is no JSON, or none that is taken; empty where it is, and where it is empty."""
        return self._one[1]

    @cached_property
    def _one(self) -> tuple[Any, str]:
        try:
            values = list(values_in(self.data.removeprefix(_BOM)))
        except Refused as err:
            return None, str(err)
        return values[0][1] if len(values) == 1 else None, ""

    @cached_property
    def first(self) -> list[dict[str, Any]]:
        """The objects on its first lines, by which it is told what it is. A line that is no JSON has none."""
        found: list[dict[str, Any]] = []
        seen = 0
        file = BytesIO(self.data.removeprefix(_BOM))
        while seen < _FIRST and (data := file.readline()):
            seen += bool(data.strip(_NO_BYTES))
            with suppress(Refused):
                found += [value for _, value in list(values_in(data)) if isinstance(value, dict)]
        return found

    @property
    def lines(self) -> list[Line]:
        """The objects on its lines, in order; two on one line are two."""
        return self._split[0]

    @property
    def broken(self) -> list[Unread]:
        """What stands on its lines and is no JSON object."""
        return self._split[1]

    @cached_property
    def _split(self) -> tuple[list[Line], list[Unread]]:
        lines: list[Line] = []
        broken: list[Unread] = []
        for number, data in enumerate(self.data.removeprefix(_BOM).split(b"\n"), 1):
            try:
                for raw, value in values_in(data, number):
                    if isinstance(value, dict):
                        lines.append(Line(number, raw, value))
                    else:
                        broken.append(self.unread("not a JSON object", number))
            except Refused as err:
                broken.append(self.unread(str(err), number))
        return lines, broken


def values_in(data: bytes, line: int = 1) -> Iterator[tuple[str, Any]]:
    """The JSON values that stand behind each other, each with its text. Raises Refused at the first that is none.

    ``line`` is the number of the first line.
    """
    try:
        text = data.rstrip(_NO_BYTES).decode()
    except UnicodeDecodeError as err:
        raise Refused("not UTF-8") from err
    at = len(text) - len(text.lstrip(_BLANK))
    while at < len(text):
        try:
            value, end = parsed_from(text, at)
        except RecursionError as err:
            raise Refused("nested too deeply") from err
        except JSONDecodeError as err:
            raise Refused(f"not JSON at line {line + err.lineno - 1} column {err.colno}") from err
        except ValueError as err:  # such as NaN
            raise Refused(f"not JSON: {err}") from err
        _refuse_deep(value)
        yield text[at:end], value
        at = end
        while at < len(text) and text[at] in _BLANK:
            at += 1


def _refuse_deep(value: Any) -> None:
    """Raise Refused for what has too many levels."""
    level = [value]
    for _ in range(DEEPEST):
        tables = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, (dict, list))]
        level = [child for table in tables for child in table]
        if not level:
            return
    raise Refused(f"nested more than {DEEPEST} levels deep")


class Reader(NamedTuple):
    """A format that is read: its name, whether a source is of it, and the sessions in one, whole documents.

    ``read`` tells what it cannot read beside them; of a file that only belongs to a session it may find nothing.
    """

    name: str
    recognises: Callable[[Source], bool]
    read: Callable[[Source], Iterator[Document | Unread]]


def walk(folder: Path) -> Iterator[Path | Unread]:
    """The files under a folder that may hold sessions, hidden ones too, by the alphabet. No link is followed."""
    left = [folder]
    while left:
        here = left.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as err:
            yield Unread(str(here), err.strerror or str(err))
            continue
        yield from (Path(e.path) for e in entries if e.is_file(follow_symlinks=False) and _may_hold(e.name))
        left += [Path(e.path) for e in reversed(entries) if e.is_dir(follow_symlinks=False)]


def _may_hold(name: str) -> bool:
    return name.lower().endswith((".json", ".jsonl", ".db", ".md"))
