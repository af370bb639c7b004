"""Sessions of this and of other tools brought in: files that nobody vouches for."""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gptsh.cli import stdio
from gptsh.cli.lists import lines_of
from gptsh.cli.options import Flags
from gptsh.core import references
from gptsh.core.adopt import Adopted, Shelf, adopting
from gptsh.core.document import Document
from gptsh.errors import BadSession, UsageError
from gptsh.formats.readers import READERS, reader_of
from gptsh.formats.source import Refused, Source, Unread, walk
from gptsh.render.visible import one_line

_TOLD = 20  # pieces of one file that could not be read, each of which is named
_NAMED = 3  # files of no known format


class _Taken(NamedTuple):
    """A session that was in a source, and what became of it."""

    adopted: Adopted
    source: str
    format: str
    messages: int

    def line(self) -> str:
        """Such as ``imported 7x2m: 9 messages, Config and /nope (nanocoder)``."""
        state, filename, doc, added, completed = self.adopted
        news = {"imported": f"{added} messages", "grown": f"{added} more messages", "known": "nothing new"}[state]
        news += f", {completed} completed" if completed else ""
        title = doc["title"] or doc["stats"]["preview"] or "(untitled)"
        return one_line(f"{state} {filename[references.ID]}: {news}, {title} ({self.format})")

    def fields(self) -> dict[str, Any]:
        """The same for programs."""
        state, filename, doc, added, completed = self.adopted
        told = {"state": state, "session": filename[references.ID], "title": doc["title"], "source": self.source}
        return {**told, "format": self.format, "messages": self.messages, "added": added, "completed": completed}


class _Report:
    """What could not be read, told as it is found."""

    def __init__(self) -> None:
        self.taken = 0
        self._unread: Counter[str] = Counter()
        self._unknown: list[str] = []

    def tell(self, unread: Unread, file: str) -> None:
        """Name a piece that could not be read; of one file not more than a reader could want."""
        self._unread[file] += 1
        if self._unread[file] <= _TOLD:
            stdio.note(f"{unread.where}: {unread.why}")

    def pass_over(self, file: str) -> None:
        """Note a file of no format that is known."""
        self._unknown.append(file)

    def close(self) -> None:
        """Tell how many there were."""
        if total := self._unread.total():
            more = total - sum(min(count, _TOLD) for count in self._unread.values())
            stdio.note(f"not read: {total}{f', {more} of them not named' if more else ''}")
        if self._unknown:
            names = ", ".join(self._unknown[:_NAMED]) + ", …" * (len(self._unknown) > _NAMED)
            stdio.note(f"of no format that is known: {len(self._unknown)} ({names})")


def import_session(flags: Flags) -> int:
    """Take in what a file or a folder has; a line for each session, a note for each piece that cannot be read."""
    path, report = flags.import_session or "", _Report()
    with adopting() as shelf:
        taken = _taken(shelf, _sources(path, report), report)
        try:
            stdio.write_lines(lines_of(flags, taken, _Taken.line, _Taken.fields))
        except BrokenPipeError:  # the reader has what it wanted, the store has not
            for _ in taken:
                pass
    report.close()
    if not report.taken:
        known = ", ".join(reader.name for reader in READERS)
        raise UsageError(f"{path}: nothing that could be imported", f"what is read: {known}")
    return 0


def _sources(path: str, report: _Report) -> Iterator[Source]:
    """The files that a path means. Raises UsageError where there is none."""
    if path == "-":
        yield _piped()
        return
    if not os.path.exists(path):  # unlike Path.exists, False where it cannot be one
        raise UsageError(f"{path}: no such file or folder")
    place = Path(path)
    for file in walk(place) if place.is_dir() else [place]:
        if isinstance(file, Unread):
            report.tell(file, file.where)
            continue
        try:
            yield Source(str(file), file)
        except Refused as err:
            report.tell(Unread(str(file), str(err)), str(file))


def _piped() -> Source:
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("--import-session - reads standard input", "pipe a file in")
    try:
        return Source("stdin", None, bytes(stdio.read_piped(prompted=False)))
    except Refused as err:
        raise UsageError(f"standard input: {err}") from err


def _taken(shelf: Shelf, sources: Iterable[Source], report: _Report) -> Iterator[_Taken]:
    for source in sources:
        reader = reader_of(source)
        if reader is None:
            _tell_unknown(source, report)
            continue
        for found in reader.read(source):
            if isinstance(found, Unread) and found.is_foreign:
                report.pass_over(source.name)
            elif isinstance(found, Unread):
                report.tell(found, source.name)
            elif adopted := _adopted(shelf, found, source, report):
                report.taken += 1
                yield _Taken(adopted, source.name, reader.name, len(found["messages"]))


def _adopted(shelf: Shelf, doc: Document, source: Source, report: _Report) -> Adopted | None:
    try:
        return shelf.adopt(doc)
    except BadSession as err:
        report.tell(source.unread(str(err)), source.name)
        return None


def _tell_unknown(source: Source, report: _Report) -> None:
    """A file that is not even what its name says is worth a word of its own."""
    if source.path is not None and source.path.suffix == ".json" and source.json is None:
        report.tell(source.unread("not JSON, or nested too deeply"), source.name)
    else:
        report.pass_over(source.name)
