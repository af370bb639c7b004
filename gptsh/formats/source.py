"""Where sessions come from: the bytes of one file, as JSON, as lines of JSON. Nothing in it is trusted.

What is too large or nested too deeply is refused before anything is made of it, and no path that stands in a file is
ever opened.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from json import JSONDecodeError
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from gptsh.core.document import Document
from gptsh.jsonio import parsed_from
from gptsh.messages import timestamp

LARGEST = 100_000_000  # bytes of JSON; in memory it takes ten times that
_TOO_LARGE = f"more than {LARGEST // 1_000_000} MB"
MOST = 500_000  # lines or objects of a file; each takes memory, however short it is
MOST_BROKEN = 1_000  # lines that cannot be read, each told for itself
DEEPEST = 100  # levels of JSON; every reader of the session has to follow
_DATABASE = b"SQLite format 3\0"
_BOM = b"\xef\xbb\xbf"
OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe among the files is not waited for
_BLANK = " \t\r\n\0"  # between values; NUL is what a crash leaves behind
_NO_BYTES = b" \t\r\n\0"
_WRITTEN = re.compile(rb"[^ \t\r\n\0]")
Made = TypeVar("Made")
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


class Shared:
    """What the sources of one walk look at beside them, made once while they stand at the same place."""

    def __init__(self) -> None:
        self._last: tuple[Path, Any] | None = None  # only one: it may be large

    def made(self, path: Path, make: Callable[[], Made]) -> Made:
        """What is made of the file at a path."""
        if self._last is None or self._last[0] != path:
            self._last = None  # gone before the next one is made
            self._last = path, make()
        made: Made = self._last[1]
        return made


class Source:
    """One file, or what was piped: ``name`` is what people read, ``path`` is None for a pipe.

    ``data`` is all of it, of a database the beginning alone; ``shared`` is one for all files of a walk. Raises Refused
    for what is no plain file, too large, or cannot be read.
    """

    def __init__(self, name: str, path: Path | None, data: bytes = b"", shared: Shared | None = None) -> None:
        self.name, self.path, self.shared = name, path, shared or Shared()
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
            values = self._start or [value for _, value in islice(values_in(self.data.removeprefix(_BOM)), 2)]
        except Refused as err:
            return None, str(err)
        is_whole = not self._start or len(list(islice(written_lines(self.data), 2))) == 1
        return values[0] if is_whole and len(values) == 1 else None, ""

    @cached_property
    def _start(self) -> list[Any]:
        """The first values on its first line; none where that does not end with one."""
        for _, start, end in written_lines(self.data):
            try:
                return [value for _, value in islice(values_in(self.data[start:end]), _FIRST)]
            except Refused:
                break
        return []

    @cached_property
    def first(self) -> list[dict[str, Any]]:
        """The objects on its first lines, by which it is told what it is. A line that is no JSON has none."""
        found = list(self._start)
        for _, start, end in islice(written_lines(self.data), 1, _FIRST):
            with suppress(Refused):
                found += [value for _, value in list(islice(values_in(self.data[start:end]), _FIRST))]
        return [value for value in found if isinstance(value, dict)]

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
        return self.split()

    def split(self, most: int = MOST, most_broken: int = MOST_BROKEN) -> tuple[list[Line], list[Unread]]:
        """``lines`` and ``broken`` of the first ``most`` objects and broken lines. Of the latter the first are told."""
        lines: list[Line] = []
        broken: list[Unread] = []
        untold, end = 0, []
        for count, piece in enumerate(self._pieces()):
            if count == most:
                end = [self.unread(f"more than {most} lines: the rest is not read")]
                break
            if isinstance(piece, Line):
                lines.append(piece)
            elif len(broken) < most_broken:
                broken.append(piece)
            else:
                untold += 1
        if untold:
            broken.append(self.unread(f"{untold} more lines that are not JSON objects"))
        return lines, broken + end

    def _pieces(self) -> Iterator[Line | Unread]:
        for number, start, end in written_lines(self.data):
            try:
                for raw, value in values_in(self.data[start:end], number):
                    is_object = isinstance(value, dict)
                    yield Line(number, raw, value) if is_object else self.unread("not a JSON object", number)
            except Refused as err:
                yield self.unread(str(err), number)


def written_lines(data: bytes) -> Iterator[tuple[int, int, int]]:
    """The lines on which something stands: the number of each, counted from 1, and where that begins and ends.

    Blank ones cost no time of their own, however many there are.
    """
    number, at = 1, len(_BOM) if data.startswith(_BOM) else 0
    while found := _WRITTEN.search(data, at):
        start = found.start()
        number += data.count(b"\n", at, start)
        end = data.find(b"\n", start)
        at = len(data) if end < 0 else end
        yield number, start, at


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
        if text.count("{", at, end) + text.count("[", at, end) > DEEPEST:
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
