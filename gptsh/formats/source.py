"""The input of an import: the bytes of one file, read as one JSON value or as lines of JSON.

No path that a file names is opened. Input that is too large or nested too deeply is refused before it is parsed.
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

MAX_BYTES = 100_000_000  # of JSON; parsed, it needs ten times that much memory
_TOO_LARGE = f"more than {MAX_BYTES // 1_000_000} MB"
_MAX_DEPTH = 100  # levels of JSON; every reader of the session recurses as deep
_DATABASE = b"SQLite format 3\0"
_BOM = b"\xef\xbb\xbf"
_BLANK = " \t\r\n\0"  # between values; a crash can leave NULs in a file
_FIRST_LINES = 10  # by which the reader recognises a format of lines


class Skipped(NamedTuple):
    """Input that cannot be read: ``path`` or ``path:line``, and why. ``is_foreign``: no file of a known tool."""

    where: str
    why: str
    is_foreign: bool = False


Results = Iterator[Document | Skipped]  # the sessions in a file, and the parts of it that cannot be read


class BadInput(ValueError):
    """A file, or a part of one, that cannot be read. Its text gives the reason."""


class Line(NamedTuple):
    """A JSON object on a line: the line's number, counted from 1, the object's text and its value."""

    number: int
    raw: str
    value: dict[str, Any]


class Source:
    """One file, or piped input: ``name`` is shown to the user, ``path`` is None for a pipe.

    ``data`` is the content; of a database only its first bytes. Raises BadInput for a file that is not a regular one,
    too large, or unreadable.
    """

    def __init__(self, name: str, path: Path | None = None, data: bytes = b"") -> None:
        self.name, self.path = name, path
        self.json_error = ""  # why ``value`` is not JSON, once it was read
        self.modified = timestamp()
        self.data = data if path is None else self._bytes(path)
        self._parsed: list[Line | Skipped] = []
        self._unparsed = self._parse_lines()
        if len(self.data) > MAX_BYTES:
            raise BadInput(_TOO_LARGE)

    def _bytes(self, path: Path) -> bytes:
        try:
            with open_regular(path) as file:
                status = os.fstat(file.fileno())
                self.modified = timestamp(datetime.fromtimestamp(status.st_mtime, UTC))
                if (start := file.read(len(_DATABASE))) == _DATABASE:
                    return start
                if status.st_size > MAX_BYTES:
                    raise BadInput(_TOO_LARGE)
                return start + file.read()
        except OSError as err:
            raise BadInput(err.strerror or str(err)) from err

    @property
    def is_database(self) -> bool:
        """Whether the file is an SQLite database."""
        return self.data.startswith(_DATABASE)

    def sibling(self, *names: str) -> "Source | None":
        """A file at a path that the format fixes, relative to this file's folder; None if it cannot be read.

        Never pass a name that a file supplied, unless it was checked to be a hash or an id.
        """
        if self.path is None:
            return None
        path = self.path.parent.joinpath(*names)
        try:
            return Source(str(path), path)
        except BadInput:
            return None

    def skipped(self, why: str, line: int = 0) -> Skipped:
        """A part of this source that cannot be read, with its line if it has one."""
        return Skipped(f"{self.name}:{line}" if line else self.name, why)

    @cached_property
    def value(self) -> Any:
        """The JSON value of the whole file; None if the file is not exactly one."""
        items = self._items(2)
        if items and isinstance(items[0], Line):
            return items[0].value if len(items) == 1 else None
        try:
            values = [value for _, value in islice(_json_values(self.data.removeprefix(_BOM)), 2)]
        except BadInput as err:
            self.json_error = str(err)
            return None
        return values[0] if len(values) == 1 else None

    @cached_property
    def first(self) -> list[dict[str, Any]]:
        """The objects on the first lines, by which a format of lines is recognised; or the one object of the file."""
        if isinstance(self.value, dict):
            return [self.value]
        return [item.value for item in self._items(_FIRST_LINES)[:_FIRST_LINES] if isinstance(item, Line)]

    @property
    def lines(self) -> list[Line]:
        """The JSON objects in order; a line with two objects counts as two."""
        return [item for item in self._items() if isinstance(item, Line)]

    @property
    def bad_lines(self) -> list[Skipped]:
        """The lines that are not JSON objects."""
        return [item for item in self._items() if isinstance(item, Skipped)]

    def _items(self, limit: int | None = None) -> list[Line | Skipped]:
        """The parsed lines: all of them, or at least ``limit`` if there are so many. Each is parsed once."""
        self._parsed.extend(islice(self._unparsed, None if limit is None else max(limit - len(self._parsed), 0)))
        return self._parsed

    def _parse_lines(self) -> Iterator[Line | Skipped]:
        if self.data[:1000].lstrip(b"\xef\xbb\xbf \t\r\n\0").startswith(b"["):  # an array, complete or torn
            return
        for number, data in enumerate(io.BytesIO(self.data.removeprefix(_BOM)), 1):
            try:
                for raw, value in _json_values(data, number):
                    is_object = isinstance(value, dict)
                    yield Line(number, raw, value) if is_object else self.skipped("not a JSON object", number)
            except BadInput as err:
                yield self.skipped(str(err), number)


def open_regular(path: Path) -> io.FileIO:
    """Open a regular file, without waiting if it is a pipe. Raises OSError, and BadInput for any other kind of file."""
    file = io.FileIO(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise BadInput("not a regular file")
    return file


def _json_values(data: bytes, line: int = 1) -> Iterator[tuple[str, Any]]:
    """The text and the value of each JSON value in ``data``. Raises BadInput at the first that is not JSON.

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
        if text.count("{", at, end) + text.count("[", at, end) > _MAX_DEPTH and _is_deeper(value, _MAX_DEPTH):
            raise BadInput(f"nested more than {_MAX_DEPTH} levels deep")
        yield text[at:end], value
        while end < len(text) and text[end] in _BLANK:
            end += 1
        at = end


def _is_deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not levels or any(_is_deeper(item, levels - 1) for item in inner if isinstance(item, (dict, list)))
