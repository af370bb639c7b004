"""--import-session: sessions of this and of other tools taken in, from files that nobody vouches for."""

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
from gptsh.core.listing import display_title
from gptsh.core.merge import Imported, Importer, importing
from gptsh.errors import BadSession, UsageError
from gptsh.formats.readers import IGNORED_PATHS, NAMES, read
from gptsh.formats.source import BadInput, Skipped, Source
from gptsh.jsonio import as_dict
from gptsh.text import one_line, quantity

_SHOWN = 20  # pieces of one file that could not be read, each of which is named
_NAMED = 3  # files of no known format
_ENDINGS = (".json", ".jsonl", ".db", ".md", ".yaml", ".gob", "")  # of files that a folder is searched for
_UNKNOWN = "of no format that is known"
_PIPE = "standard input"


class _Taken(NamedTuple):
    """A session that was in a source, and what became of it."""

    imported: Imported
    source: str
    format: str
    messages: int
    name: str | None = None

    def line(self) -> str:
        """Such as ``imported 7x2m: 9 messages, Config and /nope (nanocoder)``."""
        state, filename, doc, added, completed = self.imported
        news = {"imported": "message", "grown": "more message"}.get(state)
        counts = [quantity(added, news) if news else "nothing new", f"{completed} completed" if completed else ""]
        title = display_title(doc["title"], doc["stats"]["preview"])
        what = ", ".join(filter(None, (*counts, title)))
        named = f", {self.name}" if self.name else ""
        return one_line(f"{state} {filename[references.ID]}{named}: {what} ({self.format})")

    def fields(self) -> dict[str, Any]:
        """The same for programs."""
        state, filename, doc, added, completed = self.imported
        found = {"state": state, "session": filename[references.ID], "name": self.name, "title": doc["title"]}
        found |= {"source": self.source, "format": self.format, "messages": self.messages}
        return {**found, "added": added, "completed": completed}


class _Report:
    """What was taken, and what could not be read of which file."""

    def __init__(self) -> None:
        self.taken = 0
        self.could_be: list[str] = []  # names that sessions could have
        self.unread: list[tuple[str, Skipped]] = []

    def close(self, name: str, *, single: bool) -> None:
        """Print it, of a file so many pieces. Raises UsageError where nothing was taken of what has this name."""
        known = f"what is read: {', '.join(NAMES)}"
        if single and not self.taken and len(self.unread) < 2:
            where, why, _ = self.unread[0][1] if self.unread else Skipped(name, "no session is in it")
            raise UsageError(f"{where}: {why}", known if why == _UNKNOWN else "")
        spoilt = Counter[str]()
        for file, unread in self.unread:
            spoilt[file] += not unread.is_foreign
            if not unread.is_foreign and spoilt[file] <= _SHOWN:
                stdio.note(f"{unread.where}: {unread.why}")
        if count := spoilt.total():
            more = sum(max(0, count - _SHOWN) for count in spoilt.values())
            stdio.note(f"not read: {count}{f', {more} of them not named' if more else ''}")
        if foreign := [file for file, unread in self.unread if unread.is_foreign]:
            names = ", ".join(foreign[:_NAMED]) + ", …" * (len(foreign) > _NAMED)
            stdio.note(f"{_UNKNOWN}: {len(foreign)} ({names})")
        if self.could_be:
            stdio.note(f"--name would name them {references.abbreviate(self.could_be)}")
        if not self.taken:
            raise UsageError(f"{name}: nothing that could be imported", known)


def import_session(flags: Flags) -> int:
    """Take in what a file or a folder has; a line for each session, behind them a note for each piece that cannot be
    read. Raises UsageError where nothing was taken.
    """
    path, report = flags.import_session or "", _Report()

    def all_of_it() -> Iterator[_Taken]:
        yield from _taken(importer, _sources(path, report), report, is_named=flags.name)
        report.close(_PIPE if path == "-" else path, single=not os.path.isdir(path))

    with importing() as importer:
        taken = all_of_it()
        try:
            stdio.write_lines(lines_of(flags, taken, _Taken.line, _Taken.fields))
        except BrokenPipeError:  # the reader has what it wanted, the store has not
            for _ in taken:
                pass
    return 0


def _sources(path: str, report: _Report) -> Iterator[Source]:
    """The files that a path means. Raises UsageError where there is none."""
    if path == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("--import-session - reads standard input", "pipe a file in")
        try:
            yield Source(_PIPE, None, bytes(stdio.read_piped(prompted=False)))
        except BadInput as err:
            raise UsageError(f"{_PIPE}: {err}") from err
        return
    if not os.path.exists(path):  # unlike Path.exists, False where it cannot be one
        raise UsageError(f"{path}: no such file or folder")
    for file in _files(path, report) if os.path.isdir(path) else [path]:
        try:
            yield Source(file, Path(file))
        except BadInput as err:
            report.unread.append((file, Skipped(file, str(err))))


def _files(folder: str, report: _Report) -> Iterator[str]:
    """The files under a folder that may hold sessions, hidden ones too, by the alphabet. No link is followed."""
    left = [folder]
    while left:
        here = left.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as err:
            report.unread.append((here, Skipped(here, err.strerror or str(err))))
            continue
        for entry in entries:
            is_named = os.path.splitext(entry.name)[1].lower() in _ENDINGS and not IGNORED_PATHS.search(entry.path)
            if is_named and entry.is_file(follow_symlinks=False):
                yield entry.path
        left += [entry.path for entry in reversed(entries) if entry.is_dir(follow_symlinks=False)]


def _taken(importer: Importer, sources: Iterable[Source], report: _Report, *, is_named: bool) -> Iterator[_Taken]:
    for source in sources:
        form, found = read(source) or ("", iter([_of_no_format(source)]))
        for doc in found:
            if isinstance(doc, Skipped):
                report.unread.append((source.name, doc))
                continue
            try:
                imported = importer.add(doc)
            except BadSession as err:
                report.unread.append((source.name, source.skipped(str(err))))
                continue
            report.taken += 1
            name = _name(importer, imported, report, is_named=is_named)
            yield _Taken(imported, source.name, form, len(doc["messages"]), name)


def _of_no_format(source: Source) -> Skipped:
    """A file that is not even what its name or its beginning says is worth a word of its own."""
    start, ending = source.data.lstrip()[:1], source.path.suffix if source.path else ""
    if start and ending == ".json" and source.json_error:
        return source.skipped(source.json_error)
    meant = start in (b"{", b"[") and ending != ".md"
    why = (source.json_error if meant else "") or (_UNKNOWN if start else "empty")
    return Skipped(source.name, why, is_foreign=True)


def _name(importer: Importer, imported: Imported, report: _Report, *, is_named: bool) -> str | None:
    """The @NAME that a session gets by its key in the other tool, if it is to be named; else one that it could have."""
    key = as_dict(imported.doc["meta"].get("imported")).get("name")
    name = f"@{key}"
    if not isinstance(key, str) or not references.is_name(name):
        return None
    held = references.filename_of_name(name)
    if is_named and held in (None, imported.filename):
        importer.name(name, imported.filename)
        return name
    if is_named:
        stdio.note(f"{name} stays with another session: {str(held)[references.ID]}")
    elif imported.state == "imported" and held is None and name not in report.could_be:
        report.could_be.append(name)
    return None
