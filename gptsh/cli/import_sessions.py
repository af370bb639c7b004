"""Import the files and folders of ``--import-session``, and report progress."""

import os
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from gptsh.cli.options import Flags
from gptsh.core import folders
from gptsh.core.document import Document
from gptsh.core.folders import abbreviate
from gptsh.core.listing import title_of
from gptsh.errors import BadSession, GptshError, UsageError
from gptsh.formats.importer import IGNORED_PATHS, NAMES, Imported, Importer, importing, read
from gptsh.formats.source import BadInput, Skipped, Source
from gptsh.jsonio import as_dict
from gptsh.manage.lists import ChangeWriter
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, Interrupts
from gptsh.text import one_line, quantity, truncate_end

_SUFFIXES = (".json", ".jsonl", ".db", ".md", ".yaml", ".gob", "")  # that are read in a folder
_MAX_NOTES = 20  # for the unreadable parts of one file
_UNKNOWN = "unknown format"
_FORMATS = f"known formats: {', '.join(NAMES)}"
_STDIN = "standard input"
_DELAY = 1.0  # seconds before the bar is drawn: short work needs none
_PERIOD = 0.1  # seconds between two drawings
_CELLS = 20  # of the bar
_ERASE = "\r\x1b[K"


def import_session(flags: Flags) -> int:
    """Import files and folders; print a line for each session, then notes on what is not read.

    Raises UsageError if nothing was imported.
    """
    is_piped = flags.import_session == "-" and not flags.prompt
    with Interrupts(None) as interrupts:
        piped = _read_pipe() if is_piped else None  # a signal may end this wait
        with interrupts.shielded(), importing() as importer:
            writer = ChangeWriter(_Row.line, _Row.fields, flags.output, interruptible=True)
            run = _Import(flags, importer, interrupts)
            with writer:
                run.read_all(piped, writer.write)
    if run.stopped_by:
        run.stopped_by.hint = run.progress()
        run.stopped_by.reported = True
        raise run.stopped_by
    return 0


def _read_pipe() -> bytes:
    """Return all of standard input. Raises UsageError if that is a terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("--import-session - reads standard input", "pipe a file in")
    return bytes(stdio.read_piped(prompted=False))


class _Row(NamedTuple):
    """A line of the output: a session of a source, and what the import did with it."""

    imported: Imported
    source: str
    format: str
    messages: int
    name: str | None

    def line(self) -> str:
        """Return the line for users, such as ``imported 7x2m: 9 messages, Config (nanocoder)``."""
        imported = self.imported
        if imported.state == "imported":
            news = quantity(imported.added, "message")
        elif imported.state == "grown":
            news = quantity(imported.added, "more message")
        else:
            news = "nothing new"
        facts = [news]
        if imported.completed:
            facts.append(f"{imported.completed} completed")
        facts.append(title_of(imported.doc))

        session = imported.filename[folders.ID]
        if self.name:
            session += f", {self.name}"
        return one_line(f"{imported.state} {session}: {', '.join(facts)} ({self.format})")

    def fields(self) -> dict[str, object]:
        """Return the object for programs."""
        return {
            "state": self.imported.state,
            "session": self.imported.filename[folders.ID],
            "name": self.name,
            "title": self.imported.doc["title"],
            "source": self.source,
            "format": self.format,
            "messages": self.messages,
            "added": self.imported.added,
            "completed": self.imported.completed,
        }


# ---- the import


class _Import:
    """An import: it reads the paths, counts the sessions, and keeps what it did not read."""

    def __init__(self, flags: Flags, importer: Importer, interrupts: Interrupts) -> None:
        self.stopped_by: Interrupted | None = None
        self._paths = [flags.import_session or "", *flags.prompt]
        self._importer = importer
        self._interrupts = interrupts
        self._keeps_keys = flags.keep_keys
        self._states = Counter[str]()
        self._possible_names: dict[str, None] = {}  # that --keep-keys would give
        self._unread = _Unread()
        self._bar = _Bar()

    def read_all(self, piped: bytes | None, report: Callable[[_Row], object]) -> None:
        """Import all sessions, then print notes on what was not read; ``report`` gets each row.

        A signal ends it between two sessions. Raises UsageError if nothing was imported.
        """
        try:
            for source in self._sources(piped):
                for doc, format_name in self._sessions_in(source):
                    row = self._add(doc, source, format_name)
                    if row is None:
                        continue
                    if stdio.is_terminal(stdio.stdout()):
                        self._bar.hide()
                    report(row)
                    self._draw_bar()
                    self._interrupts.check()
        except Interrupted as interrupt:
            self.stopped_by = interrupt
            return
        except GptshError as err:
            err.hint = err.hint or self.progress()
            raise
        finally:
            self._bar.hide()
        self._finish()

    def progress(self) -> str:
        """Return the line about a stopped import; "" if it had not read a session yet."""
        if not self._states:
            return ""
        return f"stopped after {self._totals()}; run the same command again to continue"

    def _sources(self, piped: bytes | None) -> Iterator[Source]:
        """Yield the readable files of the paths. Raises UsageError if one does not exist."""
        if piped is not None:
            yield Source(_STDIN, None, piped)
            return
        files: dict[str, None] = {}  # each once, even if two paths lead to it
        for path in self._paths:
            if os.path.isdir(path):
                files |= dict.fromkeys(self._files_in(path))
            elif os.path.exists(path):  # unlike Path.exists, False for an invalid path
                files[path] = None
            else:
                raise UsageError(f"{path}: no such file or folder")
        self._bar.all_files = len(files)
        for file in files:
            try:
                yield Source(file, Path(file), on_read=self._on_read)
            except BadInput as err:
                self._unread.add(file, Skipped(file, str(err)))
            self._bar.read_files += 1
            self._bar.share = 0.0

    def _files_in(self, folder: str) -> Iterator[str]:
        """Yield the files under a folder that may contain sessions, hidden ones too, by name.

        Links are not followed.
        """
        for path, names, files in os.walk(folder, onerror=self._skip_folder):
            names.sort()  # in place: ``walk`` follows this order
            for name in names:
                subfolder = os.path.join(path, name)
                if os.path.islink(subfolder):
                    self._unread.left_out.append(subfolder)
            for name in sorted(files):
                file = os.path.join(path, name)
                if _may_be_session(file):
                    yield file
                else:
                    self._unread.left_out.append(file)

    def _skip_folder(self, err: OSError) -> None:
        self._unread.add(err.filename, Skipped(err.filename, err.strerror or str(err)))

    def _on_read(self, share: float) -> None:
        self._interrupts.check()
        self._bar.share = share
        self._draw_bar()

    def _draw_bar(self) -> None:
        self._bar.draw(quantity(self._states.total(), "session"))

    def _sessions_in(self, source: Source) -> Iterator[tuple[Document, str]]:
        """Yield each session of a source and its format; record what cannot be read."""
        try:
            found = read(source)
            if found is None:
                self._unread.add(source.name, _unknown(source))
                return
            format_name, results = found
            for result in results:
                if isinstance(result, Skipped):
                    self._unread.add(source.name, result)
                else:
                    yield result, format_name
        except BadInput as err:
            self._unread.add(source.name, source.skipped(str(err)))

    def _add(self, doc: Document, source: Source, format_name: str) -> _Row | None:
        """Take a session into the store; return its row, None if the store's file is unreadable."""
        try:
            imported = self._importer.add(doc)
        except BadSession as err:
            self._unread.add(source.name, source.skipped(str(err)))
            return None
        self._states[imported.state] += 1
        return _Row(
            imported,
            source.name,
            format=format_name,
            messages=len(doc["messages"]),
            name=self._name(imported),
        )

    def _name(self, imported: Imported) -> str | None:
        """With --keep-keys, name a session by its key in the other tool and return the name."""
        name = _name_of_key(imported.doc)
        if name is None:
            return None
        owner = folders.filename_of_name(name)
        if not self._keeps_keys:
            if imported.state == "imported" and owner is None:
                self._possible_names[name] = None
            return None
        if owner is not None and owner != imported.filename:
            self._bar.hide()
            stdio.note(f"{name} already names another session: {owner[folders.ID]}")
            return None
        self._importer.name(name, imported.filename)
        return name

    def _finish(self) -> None:
        """Print notes about what was not read, and the totals of several sessions.

        Raises UsageError if nothing was imported.
        """
        count = self._states.total()
        names = ", ".join(_STDIN if path == "-" else path for path in self._paths)
        is_one_file = len(self._paths) == 1 and not os.path.isdir(names)
        if not count and is_one_file:
            self._refuse_file(names)

        self._unread.write_notes()
        if self._possible_names:
            names = abbreviate([*self._possible_names])
            stdio.note(f"with --keep-keys they would be named {names}")
        if not count:
            raise UsageError(f"{names}: found nothing to import", _FORMATS)
        if count > 1:
            stdio.note(self._totals())

    def _refuse_file(self, name: str) -> None:
        """Raise UsageError if there is one reason why nothing in a file was imported."""
        parts = self._unread.parts()
        if not parts:
            raise UsageError(f"{name} contains no session")
        if len(parts) == 1:
            part = parts[0]
            advice = _FORMATS if part.why == _UNKNOWN else ""
            raise UsageError(f"{part.where}: {part.why}", advice)

    def _totals(self) -> str:
        """Return the numbers of sessions in one line."""
        parts = []
        for state in ("imported", "grown", "known"):
            count = self._states[state]
            if count:
                parts.append(f"{count:,} {state}")
        return f"{quantity(self._states.total(), 'session')}: {', '.join(parts)}"


def _name_of_key(doc: Document) -> str | None:
    """Return the key that a session has in the other tool as an ``@NAME``, if it can be one."""
    key = as_dict(doc["meta"].get("imported")).get("name")
    name = f"@{key}"
    is_valid = isinstance(key, str) and folders.is_name(name)
    return name if is_valid else None


def _may_be_session(file: str) -> bool:
    """Return whether a file in a folder can be a session, by its name and kind."""
    suffix = os.path.splitext(file)[1].lower()
    if suffix not in _SUFFIXES or IGNORED_PATHS.search(file):
        return False
    return stat.S_ISREG(os.lstat(file).st_mode)


def _unknown(source: Source) -> Skipped:
    """Say why a file of no known format is skipped: for JSON, its syntax error."""
    first_byte = source.start.lstrip()[:1]
    if first_byte in (b"{", b"[") and source.json_error:
        is_foreign = source.path is None or source.path.suffix != ".json"
        return Skipped(source.name, source.json_error, is_foreign)
    return Skipped(source.name, _UNKNOWN if first_byte else "empty", is_foreign=True)


# ---- what is not read


class _Unread:
    """What an import has not read, and why."""

    def __init__(self) -> None:
        self.left_out: list[str] = []  # files and links that cannot be a session by name or kind
        self._foreign: list[Skipped] = []
        self._counts = Counter[str]()  # of the other parts, by file
        self._noted: list[tuple[str, Skipped]] = []  # those with a note, each with its file

    def add(self, file: str, skipped: Skipped) -> None:
        """Record a part of a file that cannot be read."""
        if skipped.is_foreign:
            self._foreign.append(skipped)
            return
        self._counts[file] += 1
        if self._counts[file] <= _MAX_NOTES:
            self._noted.append((file, skipped))

    def parts(self) -> list[Skipped]:
        """Return the parts that are not read, those of unknown formats last."""
        noted = [skipped for _, skipped in self._noted]
        return noted + self._foreign

    def write_notes(self) -> None:
        """Print notes on all that was not read."""
        for why, group in groupby(self._noted, key=lambda entry: entry[1].why):
            entries = list(group)
            files = list(dict.fromkeys(file for file, _ in entries))
            if len(files) > _MAX_NOTES:  # of a tool whose sessions are not read
                stdio.note(f"{abbreviate(files)}: {why}")
                continue
            for _, skipped in entries:
                stdio.note(f"{skipped.where}: {why}")
        unread = self._counts.total()
        if unread:
            unnamed = unread - len(self._noted)
            note = f"{quantity(unread, 'input')} could not be read"
            if unnamed:
                note += f"; {unnamed:,} {'is' if unnamed == 1 else 'are'} not listed above"
            stdio.note(note)
        if self._foreign:
            names = abbreviate([skipped.where for skipped in self._foreign])
            count = quantity(len(self._foreign), "file")
            stdio.note(f"skipped {count} of an {_UNKNOWN} ({names})")
        if self.left_out:
            names = abbreviate(self.left_out)
            what = "1 file that cannot be a session"
            if len(self.left_out) != 1:
                what = f"{len(self.left_out):,} files that cannot be sessions"
            stdio.note(f"skipped {what}, judging by name or type ({names})")


# ---- the bar


class _Bar:
    """A progress bar on stderr, if that is a terminal. Ctrl-S there does not block it."""

    def __init__(self) -> None:
        self.all_files = 1
        self.read_files = 0
        self.share = 0.0  # of the current file that is read, from 0 to 1
        self._screen = stdio.Sink(sys.stderr) if stdio.shows_frames(sys.stderr) else None
        self._next_drawing = time.monotonic() + _DELAY
        self._is_drawn = False

    def draw(self, text: str) -> None:
        """Draw which share is done, and a text, unless that was done a moment ago."""
        now = time.monotonic()
        if self._screen is None or now < self._next_drawing:
            return
        self._next_drawing = now + _PERIOD
        share = (self.read_files + self.share) / self.all_files
        bar = "#" * round(share * _CELLS)
        line = f"[{bar:-<{_CELLS}}] {share:.0%}, {text}"
        line = truncate_end(line, stdio.width(sys.stderr) - 1)
        if self._screen.offer(_ERASE + line):
            self._is_drawn = True

    def hide(self) -> None:
        """Erase the bar before other output; the next ``draw`` draws it again."""
        if self._screen and self._is_drawn:
            self._is_drawn = not self._screen.offer(_ERASE)
            self._next_drawing = 0.0
