"""Import the files and folders of ``--import-session``: find what to read, import each, report progress."""

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
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
from gptsh.render.writer import Sink
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, Interrupts
from gptsh.text import one_line, quantity, truncate_end, visible

# ---- progress
#
# A progress bar on stderr for work that takes longer than a second; only on a terminal.

_DELAY = 1.0  # seconds: short work needs no bar
_PERIOD = 0.1  # seconds between two drawings of a bar that nothing has erased
_CELLS = 20
_ERASE = "\r\x1b[K"


class Bar:
    """Draws how much of the work is done. With ``screen`` None it draws nothing.

    Call ``hide`` before other output. A terminal paused by Ctrl-S does not block it.
    """

    def __init__(self, screen: Sink | None, width: Callable[[], int]) -> None:
        self._screen, self._width = screen, width
        self._since = time.monotonic() + _DELAY
        self._is_drawn = False

    def draw(self, share: float, text: str) -> None:
        """Draw the share of the work that is done, from 0 to 1, and a text behind it."""
        if self._screen and (now := time.monotonic()) >= self._since:
            self._since = now + _PERIOD
            cells = round(share * _CELLS)
            line = f"[{'#' * cells}{'-' * (_CELLS - cells)}] {share:.0%}, {visible(one_line(text))}"
            self._is_drawn |= self._screen.offer(f"{_ERASE}{truncate_end(line, self._width() - 1)}")

    def hide(self) -> None:
        """Erase the bar until it is drawn again."""
        if self._screen and self._is_drawn:
            self._is_drawn = not self._screen.offer(_ERASE)
            self._since = 0.0


# ---- importing
#
# ``--import-session``: import sessions of this and of other tools from untrusted files.

_MAX_NOTES = 20  # for the unreadable parts of one file
_MAX_FILES = 3  # of unknown formats that a note names
_SUFFIXES = (".json", ".jsonl", ".db", ".md", ".yaml", ".gob", "")  # of the files that are read in a folder
_UNKNOWN = "unknown format"
_PIPE = "standard input"


class _Row(NamedTuple):
    """A line of the output: a session of a source, and what the import did with it."""

    imported: Imported
    source: str
    format: str
    messages: int
    name: str | None = None

    def line(self) -> str:
        """The line for users, such as ``imported 7x2m: 9 messages, Config and /nope (nanocoder)``."""
        state, filename, doc, added, completed = self.imported
        news = {"imported": "message", "grown": "more message"}.get(state)
        counts = [quantity(added, news) if news else "nothing new", f"{completed} completed" if completed else ""]
        title = display_title(doc["title"], doc["stats"]["preview"])
        what = ", ".join(filter(None, (*counts, title)))
        named = f", {self.name}" if self.name else ""
        return one_line(f"{state} {filename[folders.ID]}{named}: {what} ({self.format})")

    def fields(self) -> dict[str, object]:
        """The object for programs."""
        state, filename, doc, added, completed = self.imported
        session = {"state": state, "session": filename[folders.ID], "name": self.name, "title": doc["title"]}
        source = {"source": self.source, "format": self.format, "messages": self.messages}
        return {**session, **source, "added": added, "completed": completed}


class _Report:
    """The number of imported sessions, and the input that was skipped, each with the name of its file."""

    def __init__(self) -> None:
        self.states = Counter[str]()
        self.possible_names: list[str] = []  # that --keep-keys would give
        self.skipped: list[tuple[str, Skipped]] = []

    @property
    def imported(self) -> int:
        """The number of sessions that were imported or known."""
        return self.states.total()

    def totals(self) -> str:
        """The numbers of sessions in one line."""
        parts = [f"{self.states[state]:,} {state}" for state in ("imported", "grown", "known") if self.states[state]]
        return f"{quantity(self.imported, 'session')}: {', '.join(parts)}"

    def stopped(self) -> str:
        """The line about an import that was stopped; "" if it had not read a session yet."""
        return f"stopped after {self.totals()}; the same command goes on" if self.imported else ""

    def finish(self, name: str, *, single: bool) -> None:
        """Print notes about a file or folder (``single``: a file), and the totals of several sessions.

        Raises UsageError if nothing was imported.
        """
        formats = f"known formats: {', '.join(NAMES)}"
        if single and not self.imported and len(self.skipped) < 2:
            where, why, _ = self.skipped[0][1] if self.skipped else Skipped(name, "no session is in it")
            raise UsageError(f"{where}: {why}", formats if why == _UNKNOWN else "")
        unreadable = Counter[str]()  # parts by file
        for file, skipped in self.skipped:
            unreadable[file] += not skipped.is_foreign
            if not skipped.is_foreign and unreadable[file] <= _MAX_NOTES:
                stdio.note(f"{skipped.where}: {skipped.why}")
        if total := unreadable.total():
            more = sum(max(0, count - _MAX_NOTES) for count in unreadable.values())
            stdio.note(f"not read: {total}{f', {more} of them not named' if more else ''}")
        if foreign := [file for file, skipped in self.skipped if skipped.is_foreign]:
            names = ", ".join(foreign[:_MAX_FILES]) + ", …" * (len(foreign) > _MAX_FILES)
            stdio.note(f"{_UNKNOWN}: {len(foreign)} ({names})")
        if self.possible_names:
            stdio.note(f"--keep-keys would name them {folders.abbreviate(self.possible_names)}")
        if not self.imported:
            raise UsageError(f"{name}: nothing that could be imported", formats)
        if self.imported > 1:
            stdio.note(self.totals())


class _Progress:
    """The bar of an import: how many bytes of all files are read, and how many sessions there were."""

    def __init__(self, report: _Report) -> None:
        self._report = report
        self._bar = Bar(
            stdio.Sink(sys.stderr) if stdio.shows_frames(sys.stderr) else None, lambda: stdio.width(sys.stderr)
        )
        self._total = self._done = self._position = 0  # bytes

    def begin(self, sizes: Iterable[int]) -> None:
        """Set the sizes of the files."""
        self._total = sum(sizes)

    def next_file(self, size: int) -> None:
        """A file is read."""
        self._done += size
        self._position = 0

    def read_to(self, position: int) -> None:
        """A file is read up to this position. A file is read more than once: its format is recognised first."""
        self._position = max(self._position, position)
        self.draw()

    def draw(self) -> None:
        """Draw the bar."""
        share = min(1.0, (self._done + self._position) / max(1, self._total))
        self._bar.draw(share, quantity(self._report.imported, "session"))

    def before_line(self) -> None:
        """Erase the bar before a line on stdout, if that is a terminal, too."""
        if stdio.is_terminal(stdio.stdout()):
            self._bar.hide()

    def hide(self) -> None:
        """Erase the bar before other output."""
        self._bar.hide()


def import_session(flags: Flags) -> int:
    """Import files and folders; print a line for each session, then a note for each part that cannot be read.

    Raises UsageError if nothing was imported.
    """
    paths = [flags.import_session or "", *flags.prompt]
    report = _Report()
    progress, interrupts, stopped = _Progress(report), Interrupts(None), list[Interrupted]()

    def on_read(position: int) -> None:
        interrupts.check()
        progress.read_to(position)

    def rows() -> Iterator[_Row]:
        sources = _files_in(paths, report, progress, on_read) if piped is None else _pipe(piped)
        try:
            for row in _rows(importer, sources, report, progress, is_named=flags.keep_keys):
                progress.before_line()
                yield row
                progress.draw()
                interrupts.check()
        except Interrupted as interrupt:  # between two sessions
            stopped.append(interrupt)
            return
        except GptshError as err:
            err.hint = err.hint or report.stopped()
            raise
        finally:
            progress.hide()
        names = [_PIPE if path == "-" else path for path in paths]
        report.finish(", ".join(names), single=len(paths) == 1 and not os.path.isdir(paths[0]))

    with interrupts:
        piped = _read_pipe() if paths == ["-"] else None  # a signal may end this wait
        with interrupts.shielded(), importing() as importer:
            try:
                write_changes(rows(), _Row.line, _Row.fields, flags.output, interruptible=True)
            except Interrupted as interrupt:  # while a reader of stdout is slow
                stopped.append(interrupt)
    if stopped:
        stopped[0].hint, stopped[0].reported = report.stopped(), True
        raise stopped[0]
    return 0


def _read_pipe() -> bytes:
    """All of standard input. Raises UsageError if that is a terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("--import-session - reads standard input", "pipe a file in")
    return bytes(stdio.read_piped(prompted=False))


def _pipe(data: bytes) -> Iterator[Source]:
    """What was piped in. Raises UsageError if it cannot be read."""
    try:
        yield Source(_PIPE, None, data)
    except BadInput as err:
        raise UsageError(f"{_PIPE}: {err}") from err


def _files_in(
    paths: list[str], report: _Report, progress: _Progress, on_read: Callable[[int], None]
) -> Iterator[Source]:
    """The readable files of these paths. Raises UsageError if one does not exist."""
    files: dict[str, int] = {}
    for path in paths:
        if not os.path.exists(path):  # unlike Path.exists, False for an invalid path
            raise UsageError(f"{path}: no such file or folder")
        for file in _files(path, report) if os.path.isdir(path) else [path]:
            files[file] = _size(file)
    progress.begin(files.values())
    for file, size in files.items():
        try:
            yield Source(file, Path(file), on_read=on_read)
        except BadInput as err:
            report.skipped.append((file, Skipped(file, str(err))))
        progress.next_file(size)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # reading it reports why
        return 0


def _files(folder: str, report: _Report) -> Iterator[str]:
    """The files under a folder that may contain sessions, hidden ones too, sorted by name. Links are not followed."""
    folders = [folder]
    while folders:
        folder = folders.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as err:
            report.skipped.append((folder, Skipped(folder, err.strerror or str(err))))
            continue
        for entry in entries:
            may_match = os.path.splitext(entry.name)[1].lower() in _SUFFIXES and not IGNORED_PATHS.search(entry.path)
            if may_match and entry.is_file(follow_symlinks=False):
                yield entry.path
        folders += [entry.path for entry in reversed(entries) if entry.is_dir(follow_symlinks=False)]


def _rows(
    importer: Importer, sources: Iterable[Source], report: _Report, progress: _Progress, *, is_named: bool
) -> Iterator[_Row]:
    """Import the sessions of all sources, and record in ``report`` what cannot be read."""
    for source in sources:
        try:
            format_name, results = read(source) or ("", iter([_unknown(source)]))
        except BadInput as err:
            report.skipped.append((source.name, source.skipped(str(err))))
            continue
        for doc in results:
            if isinstance(doc, Skipped):
                report.skipped.append((source.name, doc))
                continue
            try:
                imported = importer.add(doc)
            except BadSession as err:
                report.skipped.append((source.name, source.skipped(str(err))))
                continue
            report.states[imported.state] += 1
            name = _name(importer, imported, report, progress, is_named=is_named)
            yield _Row(imported, source.name, format_name, len(doc["messages"]), name)


def _unknown(source: Source) -> Skipped:
    """The reason why a file of no known format is skipped; for one that looks like JSON, its syntax error."""
    start, suffix = source.start.lstrip()[:1], source.path.suffix if source.path else ""
    if start and suffix == ".json" and source.json_error:
        return source.skipped(source.json_error)
    looks_like_json = start in (b"{", b"[") and suffix != ".md"
    why = (source.json_error if looks_like_json else "") or (_UNKNOWN if start else "empty")
    return Skipped(source.name, why, is_foreign=True)


def _name(
    importer: Importer, imported: Imported, report: _Report, progress: _Progress, *, is_named: bool
) -> str | None:
    """With --keep-keys, name a session @KEY by its key in the other tool and return the name; else only record it."""
    key = as_dict(imported.doc["meta"].get("imported")).get("name")
    name = f"@{key}"
    if not isinstance(key, str) or not folders.is_name(name):
        return None
    owner = folders.filename_of_name(name)
    if is_named and owner in (None, imported.filename):
        importer.name(name, imported.filename)
        return name
    if is_named:
        progress.hide()
        stdio.note(f"{name} already names another session: {str(owner)[folders.ID]}")
    elif imported.state == "imported" and owner is None and name not in report.possible_names:
        report.possible_names.append(name)
    return None
