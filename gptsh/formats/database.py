"""An SQLite database of another tool, read on a private copy: no statement of its own is carried out, work is bounded.

What such a file may be up to is none of ours: views, triggers, generated columns and virtual tables are never touched,
a cell may hold anything, and pages may point to each other in circles.
"""

import contextlib
import os
import stat
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptsh.formats.source import LARGEST, OPEN, Refused, Source
from gptsh.text import is_unicode

if TYPE_CHECKING:
    import sqlite3

LARGEST_DATABASE = 4_000_000_000  # bytes
_STEPS = 1_000  # of SQLite's machine between two looks at the limits
_FREE_STEPS, _STEPS_PER_BYTE = 20_000_000, 10
_QUERY = 100  # steps that any query may take: a short one ends before anybody looks
_FREE_SECONDS, _BYTES_PER_SECOND = 20.0, 2_000_000  # within SQLite
_FREE_BYTES, _TIMES_READ = 1_000_000_000, 10  # a text that stands there once may be in many sessions
_BLOCK = 1 << 20
_COLUMN_NAME, _COLUMN_HIDDEN = 1, 6  # of what ``table_xinfo`` tells
_MB = 1_000_000
_NUMBER = "rowid"
_NUMBERS = (_NUMBER, "_rowid_", "oid")  # each is a row's number where no column has its name
_LARGEST_INT = 1 << 63

Row = dict[str, Any]  # by column; a value is None, an int, a float, a str (with surrogates for odd bytes) or bytes


@contextlib.contextmanager
def opened(source: Source, tables: Collection[str]) -> Iterator["Database"]:
    """Open a copy of the database, and of what its last writer has not merged into it yet; the copy is gone behind it.

    ``tables`` are those that are of interest. Raises Refused for what is no database or too large.
    """
    import sqlite3  # noqa: PLC0415 - a folder without a database needs none

    with tempfile.TemporaryDirectory(prefix="gptsh-") as folder:
        copy = Path(folder, "copy.db")
        size, mode = _copied(source, copy)
        with _refusing(), contextlib.closing(sqlite3.connect(f"{copy.as_uri()}?{mode}", uri=True)) as connection:
            yield Database(connection, size, tables)


def _copied(source: Source, copy: Path) -> tuple[int, str]:
    """Bytes that were copied, and how the copy is opened."""
    alone = "mode=ro&immutable=1"
    if source.path is None:
        copy.write_bytes(source.data)
        return len(source.data), alone
    size, log = _copy(source.path, copy), Path(f"{source.path}-wal")
    if not log.is_file():
        return size, alone
    return size + _copy(log, copy.with_name(f"{copy.name}-wal")), "mode=rw"


def _copy(path: Path, copy: Path) -> int:
    try:
        with open(os.open(path, OPEN), "rb") as file, copy.open("xb") as new:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_DATABASE:
                raise Refused(f"no plain file, or more than {LARGEST_DATABASE // _MB} MB")
            left = found.st_size  # and not what is written behind it meanwhile
            while left and (data := file.read(min(left, _BLOCK))):
                left -= new.write(data)
    except OSError as err:
        raise Refused(err.strerror or str(err)) from err
    return found.st_size


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    import sqlite3  # noqa: PLC0415 - as above

    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as err:  # the latter where SQLite's complaint quotes odd bytes
        raise Refused(f"not readable as a database: {err}") from err


class Database:
    """Tables of a database, row by row. Whatever goes wrong in it is raised as Refused."""

    def __init__(self, connection: "sqlite3.Connection", size: int, tables: Collection[str]) -> None:
        self._connection = connection
        self._steps = _FREE_STEPS + _STEPS_PER_BYTE * size
        self._seconds = _FREE_SECONDS + size / _BYTES_PER_SECOND
        self._bytes = _FREE_BYTES + _TIMES_READ * size
        self._since = 0.0
        self._left = self._bytes  # of one session
        self._secure()
        self._numbers: dict[str, str] = {}  # what a table calls the number of a row
        self._columns = {name: self._stored(name) for name in self._plain() if name in tables}

    def _secure(self) -> None:
        import sqlite3  # noqa: PLC0415 - as above

        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST)
        self._connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        for setting in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON"):
            self._connection.execute(f"PRAGMA {setting}")
        self._connection.set_progress_handler(self._is_over, _STEPS)
        allowed = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_PRAGMA}
        self._connection.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY
        )

    def _is_over(self) -> bool:
        """Whether a query is to be ended: it goes in circles, or each of its steps is a long one."""
        self._steps -= _STEPS
        return self._steps < 0 or time.monotonic() - self._since > self._seconds

    def _plain(self) -> list[str]:
        """The names of what is a table and nothing else."""
        rows = self._asked("SELECT type, name, sql FROM sqlite_master")
        return [
            name
            for kind, name, sql in rows
            if kind == "table" and isinstance(sql, str) and not sql.lstrip().upper().startswith("CREATE VIRTUAL")
        ]

    def _stored(self, table: str) -> list[str]:
        """The columns of a table that stand in the file; a generated one is code, and one may hide a row's number."""
        found = list(self._asked(f'PRAGMA table_xinfo("{table}")'))
        names = {row[_COLUMN_NAME].lower() for row in found}
        number = next((name for name in _NUMBERS if name not in names), None)
        if number is None:
            raise Refused(f"the rows of the table {table} cannot be told apart")
        self._numbers[table] = number
        plain = [row[_COLUMN_NAME] for row in found if not row[_COLUMN_HIDDEN]]
        return [name for name in plain if name.lower() != _NUMBER]

    def has(self, *tables: str) -> bool:
        """Whether there are tables of these names."""
        return all(table in self._columns for table in tables)

    def start(self) -> None:
        """Begin a session: what one may hold is limited."""
        self._left = LARGEST

    def index(self, table: str, *columns: str) -> list[Row]:
        """These columns of all rows, with the number of each row, unsorted. They are of no session."""
        self._left = self._bytes
        return list(self.rows(table, (_NUMBER, *columns)))

    def row(self, table: str, number: int) -> Row:
        """The row of this number, every column of it; empty where there is none."""
        return next(self.rows(table, rowid=number), {})

    def rows(self, table: str, columns: Collection[str] = (), **wanted: Any) -> Iterator[Row]:
        """The rows whose columns have these values, unsorted: sorting is work that nothing bounds.

        ``columns`` are those that are wanted, all by default; one that the table has not is left out.
        """
        known = [_NUMBER, *self._columns.get(table, ())]
        if table not in self._columns or not wanted.keys() <= set(known) or not all(map(_fits, wanted.values())):
            return
        asked = [name for name in known if not columns or name in columns]
        names = {name: self._numbers[table] if name == _NUMBER else _quoted(name) for name in known}
        listed, held = ", ".join(names[name] for name in asked), " AND ".join(f"{names[name]} = ?" for name in wanted)
        where = f" WHERE {held}" if held else ""
        for cells in self._asked(f'SELECT {listed} FROM "{table}"{where}', *wanted.values()):  # names of ours
            yield dict(zip(asked, cells, strict=True))

    def _asked(self, statement: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        with _refusing(), contextlib.closing(self._connection.cursor()) as cursor:
            self._steps -= _QUERY
            self._since = time.monotonic()
            cursor.execute(statement, values)
            while cells := cursor.fetchone():
                self._count(sum(len(cell) for cell in cells if isinstance(cell, (str, bytes))))
                yield cells
                self._since = time.monotonic()
            self._count(0)

    def _count(self, size: int) -> None:
        self._seconds -= time.monotonic() - self._since
        self._left -= size
        self._bytes -= size
        if self._left < 0 <= self._bytes:
            raise Refused(f"a session of more than {LARGEST // _MB} MB")
        if self._bytes < 0 or self._steps < 0:
            raise Refused("its sessions are many times larger than the file")


def _fits(value: object) -> bool:
    """Whether a cell can hold a value."""
    return -_LARGEST_INT <= value < _LARGEST_INT if isinstance(value, int) else is_unicode(str(value))


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
