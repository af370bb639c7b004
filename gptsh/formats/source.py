"""The input of an import: the bytes of one file, read piece by piece as one JSON value or as lines of JSON.

No path that a file names is opened. Only what a session consists of is in memory at once: an archive of two gigabytes
takes no more than its largest conversation. Input that is too large or nested too deeply is refused.
"""

import codecs
import io
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
from typing import Any

from gptsh.core.document import Document
from gptsh.jsonio import as_dicts, parse_json_at
from gptsh.messages import timestamp
from gptsh.records import NamedTuple

MAX_VALUE = 100_000_000  # bytes of a JSON value of unknown format; in memory it may need ten times as many
_MAX_FILE = 2_000_000_000  # bytes
_MAX_PIPED = 100_000_000  # bytes; they are in memory
MAX_SESSION = 250_000_000  # bytes of a session whose format is known: 80 MB of Cyrillic in our own Markdown
_TOO_LARGE = f"more than {_MAX_FILE // 1_000_000:,} MB: split it, an array with jq '.[:5000]' and so on"
_SESSION_TOO_LARGE = f"a session of more than {MAX_SESSION // 1_000_000} MB: split it, lines with split -C 200m"
_VALUE_TOO_LARGE = f"a value of more than {MAX_VALUE // 1_000_000} MB: a file of sessions/ can be copied there instead"
_MAX_ITEMS = 250_000  # of an array or object that is read item by item: half a second
_MAX_OPENED = 2_000_000  # brackets of a value that is parsed whole: half a second, and half a gigabyte
_TOO_MANY = f"more than {_MAX_ITEMS:,} items in one array or object: split it"
_BLOCK = 1 << 20  # bytes read at once
_MAX_DEPTH = 100  # levels of JSON; every reader of the session recurses as deep
_MAX_LINE = 100_000_000  # bytes
_DATABASE = b"SQLite format 3\0"
_BOM = b"\xef\xbb\xbf"
_BLANK = " \t\r\n\0"  # between values; a crash can leave NULs in a file
_BLANKS = re.compile(f"[{_BLANK}]*")
_NUMBER_END = re.compile(r"[-+.0-9eE]*\Z")  # a number at the end of the text may go on in the next block
_CUT_LITERAL = 10  # characters: the start of a literal or of an escape that ends with the text may go on behind it
_FIRST = 10  # lines, or items of an array, by which a format is recognised


class Skipped(NamedTuple):
    """Input that cannot be read: ``path`` or ``path:line``, and why. ``is_foreign``: no file of a known tool."""

    where: str
    why: str
    is_foreign: bool = False


Results = Iterator[Document | Skipped]  # the sessions in a file, and the parts of it that cannot be read


class BadInput(ValueError):
    """A file, or a part of one, that cannot be read. Its text gives the reason."""


class TooLarge(BadInput):
    """A file, or a part of one, that is too large to be read."""


class Line(NamedTuple):
    """A JSON object on a line: the line's number, counted from 1, the object's text and its value.

    Only ``Source.lines_as_written`` keeps the text.
    """

    number: int
    raw: str
    value: dict[str, Any]


class Source:
    """One file, or piped input: ``name`` is shown to the user, ``path`` is None for a pipe.

    ``start`` is the beginning of the content, ``size`` its bytes. ``on_read`` is called with the number of bytes that
    were read. Raises BadInput for a file that is not a regular one, too large, or unreadable.
    """

    def __init__(
        self,
        name: str,
        path: Path | None = None,
        data: bytes = b"",
        on_read: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.name, self.path = name, path
        self.json_error = ""  # why ``value`` is not JSON, once it was read
        self.modified = timestamp()
        self.size = len(data)
        self._data, self._on_read = data, on_read
        self._parsed: list[Line | Skipped] = []
        self._unparsed = self._parse_lines()
        with self._open() as file:
            if path is not None:
                status = os.fstat(file.fileno())
                self.size = status.st_size
                with suppress(ValueError, OverflowError):  # a year that no date can have
                    self.modified = timestamp(datetime.fromtimestamp(status.st_mtime, UTC))
            self.start = self._read(file, _BLOCK >> 4)
        if path is None and self.size > _MAX_PIPED:
            raise BadInput(f"more than {_MAX_PIPED // 1_000_000} MB: give the file itself, which may have more")
        if self.size > _MAX_FILE and not self.is_database:
            raise BadInput(_TOO_LARGE)

    # ---- bytes

    @property
    def is_database(self) -> bool:
        """Whether the file is an SQLite database."""
        return self.start.startswith(_DATABASE)

    @property
    def data(self) -> bytes:
        """The whole content. Raises BadInput if it is too large for one session."""
        self._check_size()
        return b"".join(self.blocks())

    def blocks(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the content from ``start`` to ``end`` in pieces. Raises BadInput if it cannot be read."""
        end = self.size if end is None else end
        with self._open() as file:
            file.seek(start)
            while start < end and (block := self._read(file, min(_BLOCK, end - start))):
                start += len(block)
                self._on_read(start)
                yield block

    def _open(self) -> io.RawIOBase | io.BytesIO:
        if self.path is None:
            return io.BytesIO(self._data)
        try:
            return open_regular(self.path)
        except OSError as err:
            raise BadInput(err.strerror or str(err)) from err

    @staticmethod
    def _read(file: Any, size: int) -> bytes:
        try:
            data: bytes = file.read(size)
        except OSError as err:
            raise BadInput(err.strerror or str(err)) from err
        return data

    def _check_size(self) -> None:
        if self.size > MAX_SESSION:
            raise BadInput(_SESSION_TOO_LARGE)

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

    # ---- one JSON value

    @cached_property
    def is_array(self) -> bool:
        """Whether the file is a JSON array, complete or torn."""
        return self.start.removeprefix(_BOM).lstrip(_BLANK.encode()).startswith(b"[")

    @cached_property
    def value(self) -> Any:
        """The JSON value of the whole file; None if the file is an array, or not exactly one value. Raises TooLarge."""
        if self.is_array or self.is_database:
            return None
        try:
            value, is_single = read_value(self.blocks(), levels=2)
        except TooLarge:
            raise
        except BadInput as err:
            self.json_error = str(err)
            return None
        return value if is_single else None

    def items(self) -> Iterator[Any]:
        """Yield the items of the array that the file is, or its one value. Raises BadInput at what is not JSON."""
        if not self.is_array:
            yield self.value
            return
        text = _Text(self.blocks())
        for item in text.items():
            yield item
            text.reset_limit()
        if text.peek():
            raise text.error("something follows the array", text.at)

    @property
    def all_items(self) -> list[Any]:
        """The items of an array that is one session. Raises BadInput as ``items`` does, or if they are too large."""
        self._check_size()
        return [*self.items()]

    @cached_property
    def first_items(self) -> list[dict[str, Any]]:
        """The objects among the first items, by which a format is recognised."""
        found: list[Any] = []
        try:
            found.extend(islice(self.items(), _FIRST))
        except BadInput as err:
            self.json_error = self.json_error or str(err)
        return as_dicts(found)

    # ---- lines of JSON

    @cached_property
    def first(self) -> list[dict[str, Any]]:
        """The objects on the first lines, by which a format of lines is recognised; or the one object of the file."""
        if isinstance(self.value, dict):
            return [self.value]
        return [item.value for item in self._lines(_FIRST)[:_FIRST] if isinstance(item, Line)]

    @property
    def lines(self) -> list[Line]:
        """The JSON objects in order; a line with two objects counts as two. Raises BadInput if they are too large."""
        return [item for item in self._lines() if isinstance(item, Line)]

    @property
    def lines_as_written(self) -> list[Line]:
        """The lines with their text. Raises BadInput as ``lines`` does."""
        self._check_size()
        return [item for item in self._parse_lines() if isinstance(item, Line)]

    @property
    def bad_lines(self) -> list[Skipped]:
        """The lines that are not JSON objects."""
        return [item for item in self._lines() if isinstance(item, Skipped)]

    def _lines(self, limit: int | None = None) -> list[Line | Skipped]:
        """The parsed lines: all of them, or at least ``limit`` if there are so many. Each is parsed once."""
        if limit is None:
            self._check_size()
        new = islice(self._unparsed, None if limit is None else max(limit - len(self._parsed), 0))
        self._parsed.extend(item._replace(raw="") if isinstance(item, Line) else item for item in new)
        return self._parsed

    def _parse_lines(self) -> Iterator[Line | Skipped]:
        if self.is_array or self.is_database:
            return
        for number, data in enumerate(_split(self.blocks()), 1):
            try:
                for raw, value in _json_values(data.removeprefix(_BOM) if number == 1 else data, number):
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


def _split(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines without their ends. Raises BadInput for a line that is too large."""
    pieces: list[bytes] = []  # of the line that has not ended
    size = 0
    for block in blocks:
        first, *others = block.split(b"\n")
        pieces.append(first)
        size += len(first)
        if size > _MAX_LINE:
            raise BadInput(f"a line of more than {_MAX_LINE // 1_000_000} MB")
        if others:
            yield b"".join(pieces)
            yield from others[:-1]
            pieces = [others[-1]]
            size = len(others[-1])
    if size:
        yield b"".join(pieces)


# ---- JSON that is read piece by piece


def read_value(blocks: Iterator[bytes], *, levels: int, max_bytes: int = MAX_VALUE) -> tuple[Any, bool]:
    """The first JSON value in these bytes, and whether it is the only one. Raises BadInput if it is not JSON.

    The text of its outer ``levels`` is never in memory as a whole, only that of an item within them.
    """
    text = _Text(blocks, max_bytes)
    value = text.value(levels)
    return value, not text.peek()


class _Text:
    """JSON text of which only a part is in memory: what is parsed makes room for the next block.

    Every method raises BadInput for bytes that are not UTF-8, and for more than ``max_bytes`` since ``reset_limit``.
    """

    def __init__(self, blocks: Iterator[bytes], max_bytes: int = MAX_VALUE) -> None:
        self._max_bytes = max_bytes
        self._blocks, self._decode = blocks, codecs.getincrementaldecoder("utf-8-sig")()
        self._text, self.at, self._has_ended = "", 0, False
        self._line, self._column = 1, 1  # of the first character of ``_text``
        self._size = 0  # bytes read since the limit was reset

    def reset_limit(self) -> None:
        """Begin a new session: the limit counts from here."""
        self._size = len(self._text) - self.at

    def items(self, levels: int = 0) -> Iterator[Any]:
        """Yield the items of the array that begins here."""
        self._expect("[")
        if not self._accept("]"):
            yield self.value(levels)
            count = 1
            while not self._accept("]"):
                self._expect(",")
                yield self.value(levels)
                count += 1
                if count > _MAX_ITEMS:
                    raise TooLarge(_TOO_MANY)

    def value(self, levels: int = 0) -> Any:
        """The value that begins here. Its outer ``levels`` are read item by item, what is in them is parsed whole."""
        start = self.peek()
        if levels and start == "[":
            return [*self.items(levels - 1)]
        if levels and start == "{":
            return self._object(levels - 1)
        while True:
            try:
                value, end = parse_json_at(self._text, self.at)
            except RecursionError as err:
                raise BadInput("nested too deeply") from err
            except JSONDecodeError as err:
                is_cut = err.msg.startswith("Unterminated string") or len(self._text) - err.pos < _CUT_LITERAL
                if is_cut and self._read_on():
                    continue
                raise self.error("not JSON", err.pos) from err
            except ValueError as err:  # such as NaN
                raise BadInput(f"not JSON: {err}") from err
            if not (isinstance(value, (int, float)) and _NUMBER_END.match(self._text, end) and self._read_on()):
                break
        opened = self._text.count("{", self.at, end) + self._text.count("[", self.at, end)
        if opened > _MAX_DEPTH and _is_deeper(value, _MAX_DEPTH):
            raise BadInput(f"nested more than {_MAX_DEPTH} levels deep")
        self.at = end
        return value

    def _object(self, levels: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        self._expect("{")
        if self._accept("}"):
            return result
        while True:
            if self.peek() != '"':
                raise self.error("not JSON", self.at)
            key = self.value()
            self._expect(":")
            result[key] = self.value(levels)
            if self._accept("}"):
                return result
            self._expect(",")
            if len(result) > _MAX_ITEMS:
                raise TooLarge(_TOO_MANY)

    def peek(self) -> str:
        """The next character that is not blank; "" at the end."""
        while True:
            blanks = _BLANKS.match(self._text, self.at)
            self.at = blanks.end() if blanks else self.at
            if self.at < len(self._text) or not self._read_on():
                return self._text[self.at : self.at + 1]

    def _accept(self, mark: str) -> bool:
        is_next = self.peek() == mark
        self.at += is_next
        return is_next

    def _expect(self, mark: str) -> None:
        if not self._accept(mark):
            raise self.error("not JSON", self.at)

    def error(self, problem: str, position: int) -> BadInput:
        """The error at a position of the text, with its line and column in the file."""
        line, column = self._place(position)
        return BadInput(f"{problem} at line {line} column {column}")

    def _place(self, position: int) -> tuple[int, int]:
        last = self._text.rfind("\n", 0, position)
        if last < 0:
            return self._line, self._column + position
        return self._line + self._text.count("\n", 0, position), position - last

    def _read_on(self) -> bool:
        """Drop what is parsed, and read as much as is left, at least one block; False at the end of the file."""
        self._line, self._column = self._place(self.at)
        pieces = [self._text[self.at :]]
        self._text, wanted, self.at = "", len(pieces[0]), 0
        try:
            while not self._has_ended and (len(pieces) == 1 or wanted > 0):
                block = next(self._blocks, b"")
                self._has_ended = not block
                self._size += len(block)
                if self._size > self._max_bytes:
                    raise TooLarge(_VALUE_TOO_LARGE if self._max_bytes == MAX_VALUE else _SESSION_TOO_LARGE)
                pieces.append(self._decode.decode(block, final=not block))
                wanted -= len(block)
        except UnicodeDecodeError as err:
            raise BadInput("not UTF-8") from err
        self._text = "".join(pieces)
        _check_opened(self._text)
        return len(pieces) > 1


def _json_values(data: bytes, line: int = 1) -> Iterator[tuple[str, Any]]:
    """The text and the value of each JSON value in ``data``. Raises BadInput at the first that is not JSON.

    ``line`` is the number of the first line.
    """
    try:
        text = data.decode().rstrip(_BLANK)
    except UnicodeDecodeError as err:
        raise BadInput("not UTF-8") from err
    _check_opened(text)
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


def _check_opened(text: str) -> None:
    """Raise TooLarge for text with too many brackets: 95 MB of ``{},`` are gigabytes of empty objects."""
    if len(text) > _MAX_OPENED and text.count("{") + text.count("[") > _MAX_OPENED:
        raise TooLarge(f"more than {_MAX_OPENED:,} brackets in one value")


def _is_deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not levels or any(_is_deeper(item, levels - 1) for item in inner if isinstance(item, (dict, list)))
