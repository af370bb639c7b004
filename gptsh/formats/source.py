"""Where sessions come from: the bytes of one file, as one JSON value or as lines of JSON. No path in a file is opened.

What is too large or nested too deeply is refused before anything is made of it.
"""

import io
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from json import JSONDecodeError
from pathlib import Path
from typing import Any, NamedTuple

from gptsh.core.document import Document
from gptsh.jsonio import parse_json_at
from gptsh.messages import timestamp

LARGEST = 100_000_000  # bytes of JSON; in memory it takes ten times that
_TOO_LARGE = f"more than {LARGEST // 1_000_000} MB"
_DEEPEST = 100  # levels of JSON; every reader of the session has to follow
_DATABASE = b"SQLite format 3\0"
_BOM = b"\xef\xbb\xbf"
_BLANK = " \t\r\n\0"  # between values; NUL is what a crash leaves behind
_FIRST = 10  # lines by which a format of lines is recognised


class Skipped(NamedTuple):
    """What could not be read: where, as ``path`` or ``path:line``, and why. ``is_foreign``: another program's file."""

    where: str
    why: str
    is_foreign: bool = False


Results = Iterator[Document | Skipped]  # the sessions of a file, and what of it could not be read


class BadInput(ValueError):
    """A file, or a piece of one, that is not read. Its text gives the reason."""


class Line(NamedTuple):
    """An object that stands on a line: the line's number, counted from 1, its text, and its value."""

    number: int
    raw: str
    value: dict[str, Any]


class Source:
    """One file, or what was piped: ``name`` is what people read, ``path`` is None for a pipe.

    ``data`` is all of it, of a database the beginning alone. Raises BadInput for what is no plain file, too large, or
    cannot be read.
    """

    def __init__(self, name: str, path: Path | None = None, data: bytes = b"") -> None:
        self.name, self.path = name, path
        self.json_error = ""  # why ``value`` is not JSON, once it was read
        self.modified = timestamp()
        self.data = data if path is None else self._bytes(path)
        self._read: list[Line | Skipped] = []
        self._unread = self._by_line()
        if len(self.data) > LARGEST:
            raise BadInput(_TOO_LARGE)

    def _bytes(self, path: Path) -> bytes:
        try:
            with open_plain(path) as file:
                found = os.fstat(file.fileno())
                self.modified = timestamp(datetime.fromtimestamp(found.st_mtime, UTC))
                if (start := file.read(len(_DATABASE))) == _DATABASE:
                    return start
                if found.st_size > LARGEST:
                    raise BadInput(_TOO_LARGE)
                return start + file.read()
        except OSError as err:
            raise BadInput(err.strerror or str(err)) from err

    @property
    def is_database(self) -> bool:
        """Whether it is an SQLite database."""
        return self.data.startswith(_DATABASE)

    def sibling(self, *names: str) -> "Source | None":
        """A file at a place that the format sets, seen from this one's folder; None where there is none.

        Never a name that a file gave, unless it was checked to be a hash or an id.
        """
        if self.path is None:
            return None
        path = self.path.parent.joinpath(*names)
        try:
            return Source(str(path), path)
        except BadInput:
            return None

    def skipped(self, why: str, line: int = 0) -> Skipped:
        """What could not be read of it."""
        return Skipped(f"{self.name}:{line}" if line else self.name, why)

    @cached_property
    def value(self) -> Any:
        """The one JSON value that it is; None where it is none, or more than one."""
        first = self._pieces(2)
        if first and isinstance(first[0], Line):
            return first[0].value if len(first) == 1 else None
        try:
            found = [value for _, value in islice(_values_in(self.data.removeprefix(_BOM)), 2)]
        except BadInput as err:
            self.json_error = str(err)
            return None
        return found[0] if len(found) == 1 else None

    @cached_property
    def first(self) -> list[dict[str, Any]]:
        """The objects on its first lines, by which a format of lines is recognised; the whole where it is one."""
        if isinstance(self.value, dict):
            return [self.value]
        return [piece.value for piece in self._pieces(_FIRST)[:_FIRST] if isinstance(piece, Line)]

    @property
    def lines(self) -> list[Line]:
        """The objects on its lines, in order; two on one line are two."""
        return [piece for piece in self._pieces() if isinstance(piece, Line)]

    @property
    def broken(self) -> list[Skipped]:
        """What stands on its lines and is no JSON object."""
        return [piece for piece in self._pieces() if isinstance(piece, Skipped)]

    def _pieces(self, most: int | None = None) -> list[Line | Skipped]:
        """What stands on its lines, read once, and no further than ``most`` where that is enough."""
        self._read.extend(islice(self._unread, None if most is None else max(most - len(self._read), 0)))
        return self._read

    def _by_line(self) -> Iterator[Line | Skipped]:
        if self.data[:1000].lstrip(b"\xef\xbb\xbf \t\r\n\0").startswith(b"["):  # a list, whole or torn
            return
        for number, data in enumerate(io.BytesIO(self.data.removeprefix(_BOM)), 1):
            try:
                for raw, value in _values_in(data, number):
                    is_object = isinstance(value, dict)
                    yield Line(number, raw, value) if is_object else self.skipped("not a JSON object", number)
            except BadInput as err:
                yield self.skipped(str(err), number)


def open_plain(path: Path) -> io.FileIO:
    """Open a plain file; a pipe among the files is not waited for. Raises OSError, BadInput for what is none."""
    file = io.FileIO(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise BadInput("no plain file")
    return file


def _values_in(data: bytes, line: int = 1) -> Iterator[tuple[str, Any]]:
    """The JSON values that stand behind each other, each with its text. Raises BadInput at the first that is none.

    ``line`` is the number of the first line.
    """
    try:
        text = data.decode().rstrip(_BLANK)
    except UnicodeDecodeError as err:
        raise BadInput("not UTF-8") from err
    at = len(text) - len(text.lstrip(_BLANK))
    while at < len(text):
        try:
            value, end = parse_json_at(text, at)
        except RecursionError as err:
            raise BadInput("nested too deeply") from err
        except JSONDecodeError as err:
            raise BadInput(f"not JSON at line {line + err.lineno - 1} column {err.colno}") from err
        except ValueError as err:  # such as NaN
            raise BadInput(f"not JSON: {err}") from err
        if text.count("{", at, end) + text.count("[", at, end) > _DEEPEST and _is_deep(value, _DEEPEST):
            raise BadInput(f"nested more than {_DEEPEST} levels deep")
        yield text[at:end], value
        while end < len(text) and text[end] in _BLANK:
            end += 1
        at = end


def _is_deep(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not levels or any(_is_deep(item, levels - 1) for item in inner if isinstance(item, (dict, list)))
