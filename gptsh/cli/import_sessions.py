"""Import the files and folders of ``--import-session``, and report progress."""

import os
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from gptsh.cli.options import Flags
from gptsh.core import folders
from gptsh.core.listing import display_title
from gptsh.errors import BadSession, GptshError, UsageError
from gptsh.formats.importer import IGNORED_PATHS, NAMES, Imported, Importer, importing, read
from gptsh.formats.source import BadInput, Skipped, Source
from gptsh.jsonio import as_dict
from gptsh.manage.lists import write_changes
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, Interrupts
from gptsh.text import one_line, quantity, truncate_end

_MAX_NOTES = 20  # for the unreadable parts of one file
_SUFFIXES = (
    ".json",
    ".jsonl",
    ".db",
    ".md",
    ".yaml",
    ".gob",
    "",
)  # of the files that are read in a folder
_UNKNOWN = "unknown format"
_PIPE = "standard input"
_DELAY = 1.0  # seconds before the bar is drawn: short work needs none
_PERIOD = 0.1  # seconds between two drawings
_CELLS = 20  # of the bar
_ERASE = "\r\x1b[K"


class _Row(NamedTuple):
    """A line of the output: a session of a source, and what the import did with it."""

    imported: Imported
    source: str
    format: str
    messages: int
    name: str | None

    def line(self) -> str:
        """The line for users, such as ``imported 7x2m: 9 messages, Config (nanocoder)``."""
        state, filename, doc, added, completed = self.imported
        facts = ["nothing new"]
        if state != "known":
            facts = [quantity(added, "message" if state == "imported" else "more message")]
        if completed:
            facts.append(f"{completed} completed")
        title = display_title(doc["title"], doc["stats"]["preview"])
        if title:
            facts.append(title)
        named = f", {self.name}" if self.name else ""
        news = ", ".join(facts)
        return one_line(f"{state} {filename[folders.ID]}{named}: {news} ({self.format})")

    def fields(self) -> dict[str, object]:
        """The object for programs."""
        state, filename, doc, added, completed = self.imported
        return {
            "state": state,
            "session": filename[folders.ID],
            "name": self.name,
            "title": doc["title"],
            "source": self.source,
            "format": self.format,
            "messages": self.messages,
            "added": added,
            "completed": completed,
        }


class _Import:
    """An import: the number of its sessions, what was skipped, and a bar on a terminal.

    A terminal paused by Ctrl-S does not block the bar.
    """

    def __init__(self, flags: Flags, interrupts: Interrupts) -> None:
        self.stopped_by: Interrupted | None = None
        self.paths = [flags.import_session or "", *flags.prompt]
        self._keeps_keys = flags.keep_keys
        self._interrupts = interrupts
        self._states = Counter[str]()
        self._possible_names: list[str] = []  # that --keep-keys would give
        self._unread = Counter[str]()  # parts by file
        self._notes: list[tuple[str, Skipped]] = []  # the unread parts that are named, by file
        self._foreign: list[Skipped] = []
        self._left_out: list[str] = []  # of folders: what cannot be a session by its name or kind
        self._screen = stdio.Sink(sys.stderr) if stdio.shows_frames(sys.stderr) else None
        self._next_drawing = time.monotonic() + _DELAY
        self._is_drawn = False
        self._all_files = 1
        self._read_files = 0
        self._share = 0.0  # of the current file that is read

    # ---- reading

    def rows(self, importer: Importer, piped: bytes | None) -> Iterator[_Row]:
        """Import all sessions, then print notes on what was not read.

        A signal ends it between two sessions. Raises UsageError if nothing was imported.
        """
        try:
            for source in self._sources(piped):
                for row in self._rows_of(source, importer):
                    if stdio.is_terminal(stdio.stdout()):
                        self._hide()
                    yield row
                    self._draw()
                    self._interrupts.check()
        except Interrupted as interrupt:
            self.stopped_by = interrupt
            return
        except GptshError as err:
            err.hint = err.hint or self.stopped()
            raise
        finally:
            self._hide()
        self._finish()

    def _sources(self, piped: bytes | None) -> Iterator[Source]:
        """The readable files of the paths. Raises UsageError if one does not exist."""
        if piped is not None:
            yield Source(_PIPE, None, piped)
            return
        files: dict[str, None] = {}
        for path in self.paths:
            if not os.path.exists(path):  # unlike Path.exists, False for an invalid path
                raise UsageError(f"{path}: no such file or folder")
            files |= dict.fromkeys(self._files_in(path) if os.path.isdir(path) else [path])
        self._all_files = len(files)
        for file in files:
            try:
                yield Source(file, Path(file), on_read=self._on_read)
            except BadInput as err:
                self._skip(file, Skipped(file, str(err)))
            self._read_files += 1
            self._share = 0.0

    def _on_read(self, share: float) -> None:
        self._interrupts.check()
        self._share = share
        self._draw()

    def _files_in(self, folder: str) -> Iterator[str]:
        """The files under a folder that may contain sessions, hidden ones too, sorted by name.

        Links are not followed.
        """

        def skip(err: OSError) -> None:
            self._skip(err.filename, Skipped(err.filename, err.strerror or str(err)))

        for path, names, files in os.walk(folder, onerror=skip):
            names.sort()
            places = [os.path.join(path, name) for name in names]
            self._left_out += filter(os.path.islink, places)
            for name in sorted(files):
                file = os.path.join(path, name)
                has_suffix = os.path.splitext(name)[1].lower() in _SUFFIXES
                may_match = has_suffix and not IGNORED_PATHS.search(file)
                if may_match and stat.S_ISREG(os.lstat(file).st_mode):
                    yield file
                else:
                    self._left_out.append(file)

    def _rows_of(self, source: Source, importer: Importer) -> Iterator[_Row]:
        """Import the sessions of a source, and record what cannot be read."""
        try:
            format_name, results = read(source) or ("", [_unknown(source)])
            for doc in results:
                if isinstance(doc, Skipped):
                    self._skip(source.name, doc)
                    continue
                try:
                    imported = importer.add(doc)
                except BadSession as err:
                    self._skip(source.name, source.skipped(str(err)))
                    continue
                self._states[imported.state] += 1
                name = self._name(imported, importer)
                count = len(doc["messages"])
                yield _Row(imported, source.name, format_name, messages=count, name=name)
        except BadInput as err:
            self._skip(source.name, source.skipped(str(err)))

    def _name(self, imported: Imported, importer: Importer) -> str | None:
        """With --keep-keys, name a session by its key in the other tool and return the name."""
        key = as_dict(imported.doc["meta"].get("imported")).get("name")
        name = f"@{key}"
        if not isinstance(key, str) or not folders.is_name(name):
            return None
        owner = folders.filename_of_name(name)
        if not self._keeps_keys:
            if imported.state == "imported" and owner is None and name not in self._possible_names:
                self._possible_names.append(name)
            return None
        if owner not in (None, imported.filename):
            self._hide()
            stdio.note(f"{name} already names another session: {str(owner)[folders.ID]}")
            return None
        importer.name(name, imported.filename)
        return name

    # ---- reporting

    def _skip(self, file: str, skipped: Skipped) -> None:
        if skipped.is_foreign:
            self._foreign.append(skipped)
            return
        self._unread[file] += 1
        if self._unread[file] <= _MAX_NOTES:
            self._notes.append((file, skipped))

    def _finish(self) -> None:
        """Print notes about what was not read, and the totals of several sessions.

        Raises UsageError if nothing was imported.
        """
        count = self._states.total()
        name = ", ".join(_PIPE if path == "-" else path for path in self.paths)
        formats = f"known formats: {', '.join(NAMES)}"
        if not count and len(self.paths) == 1 and not os.path.isdir(name):
            skipped = [*(note for _, note in self._notes), *self._foreign]
            reasons = [f"{where}: {why}" for where, why, _ in skipped]
            if len(reasons) < 2:
                reason = reasons[0] if reasons else f"{name}: no session is in it"
                raise UsageError(reason, formats if reason.endswith(_UNKNOWN) else "")

        for why, group in groupby(self._notes, lambda note: note[1].why):
            notes = [*group]
            files = [*dict.fromkeys(file for file, _ in notes)]
            places = [skipped.where for _, skipped in notes]
            if len(files) > _MAX_NOTES:  # of a tool whose sessions are not read
                places = [folders.abbreviate(files)]
            for place in places:
                stdio.note(f"{place}: {why}")
        if unread := self._unread.total():
            unnamed = unread - len(self._notes)
            stdio.note(f"not read: {unread}{f', {unnamed} of them not named' if unnamed else ''}")
        if self._foreign:
            names = folders.abbreviate([skipped.where for skipped in self._foreign])
            stdio.note(f"{_UNKNOWN}: {len(self._foreign)} ({names})")
        if self._left_out:
            names = folders.abbreviate(self._left_out)
            stdio.note(f"no session by name or kind of file: {len(self._left_out)} ({names})")
        if self._possible_names:
            stdio.note(f"--keep-keys would name them {folders.abbreviate(self._possible_names)}")
        if not count:
            raise UsageError(f"{name}: nothing that could be imported", formats)
        if count > 1:
            stdio.note(self._totals())

    def _totals(self) -> str:
        """The numbers of sessions in one line."""
        states = [state for state in ("imported", "grown", "known") if self._states[state]]
        parts = ", ".join(f"{self._states[state]:,} {state}" for state in states)
        return f"{quantity(self._states.total(), 'session')}: {parts}"

    def stopped(self) -> str:
        """The line about an import that was stopped; "" if it had not read a session yet."""
        return f"stopped after {self._totals()}; the same command goes on" if self._states else ""

    # ---- the bar

    def _draw(self) -> None:
        """Draw how much of the files is read, and how many sessions there were."""
        now = time.monotonic()
        if self._screen and now >= self._next_drawing:
            self._next_drawing = now + _PERIOD
            share = (self._read_files + self._share) / self._all_files
            bar = "#" * round(share * _CELLS)
            line = f"[{bar:-<{_CELLS}}] {share:.0%}, {quantity(self._states.total(), 'session')}"
            line = truncate_end(line, stdio.width(sys.stderr) - 1)
            self._is_drawn |= self._screen.offer(_ERASE + line)

    def _hide(self) -> None:
        """Erase the bar before other output; the next ``_draw`` draws it again."""
        if self._screen and self._is_drawn:
            self._is_drawn = not self._screen.offer(_ERASE)
            self._next_drawing = 0.0


def import_session(flags: Flags) -> int:
    """Import files and folders; print a line for each session, then notes on what is not read.

    Raises UsageError if nothing was imported.
    """
    with Interrupts(None) as interrupts:
        run = _Import(flags, interrupts)
        piped = _read_pipe() if run.paths == ["-"] else None  # a signal may end this wait
        with interrupts.shielded(), importing() as importer:
            try:
                write_changes(
                    run.rows(importer, piped),
                    _Row.line,
                    _Row.fields,
                    flags.output,
                    interruptible=True,
                )
            except Interrupted as interrupt:  # while a reader of stdout is slow
                run.stopped_by = interrupt
    if run.stopped_by:
        run.stopped_by.hint = run.stopped()
        run.stopped_by.reported = True
        raise run.stopped_by
    return 0


def _read_pipe() -> bytes:
    """All of standard input. Raises UsageError if that is a terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("--import-session - reads standard input", "pipe a file in")
    return bytes(stdio.read_piped(prompted=False))


def _unknown(source: Source) -> Skipped:
    """Why a file of no known format is skipped; for one that looks like JSON, its syntax error."""
    start = source.start.lstrip()[:1]
    if start in (b"{", b"[") and source.json_error:
        is_foreign = source.path is None or source.path.suffix != ".json"
        return Skipped(source.name, source.json_error, is_foreign)
    return Skipped(source.name, _UNKNOWN if start else "empty", is_foreign=True)
