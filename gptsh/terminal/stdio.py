"""Read stdin, write stdout and stderr, print notes; know terminals, and what they can show.

Writes are unbuffered, so that no flush can block or fail when the process ends. While ``silent``,
the process is the caller's: nothing is written, and there is no terminal.
"""

import contextlib
import errno
import os
import re
import select
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import NamedTuple, TextIO

from gptsh.errors import ConfigError, GptshError, OutputError, UsageError
from gptsh.terminal.interrupts import in_main_thread, shielded, waiting
from gptsh.text import VisiblePieces, format_size, one_line, wrapped

# ---- streams

_COLUMNS = 80  # if a stream does not say how many it has
_ROWS = 24
_LOCAL_MODES = 3  # index of the local modes in ``termios.tcgetattr``
_SELECTABLE = 1024  # FD_SETSIZE
_POLL = 0.2  # seconds until a thread that waits for a reader sees a call of ``limit_waiting``
READER_WAIT = 1.0  # seconds that a slow reader gets after ``limit_waiting``

# The notes of a silent process; None: print them.
_collected_notes: ContextVar[list[str] | None] = ContextVar("_collected_notes", default=None)
# The notes that ``notes_later`` holds back; None: print them at once.
_later_notes: ContextVar[list[str] | None] = ContextVar("_later_notes", default=None)


@contextlib.contextmanager
def silent() -> Iterator[list[str]]:
    """Leave the streams and the terminal of the process alone inside this block; collect the notes.

    This applies only to the current thread.
    """
    notes: list[str] = []
    token = _collected_notes.set(notes)
    try:
        yield notes
    finally:
        _collected_notes.reset(token)


@contextlib.contextmanager
def notes_later() -> Iterator[None]:
    """Print the notes of this block at its end: until then a pager has the terminal."""
    lines: list[str] = []
    token = _later_notes.set(lines)
    try:
        yield
    finally:
        _later_notes.reset(token)
        for line in lines:
            note(line)


def is_silent() -> bool:
    """Return whether the process is the caller's, as in ``silent``."""
    return _collected_notes.get() is not None


def stdout() -> TextIO | None:
    """Return the real stdout: ``sys.stdout`` is stderr while litellm runs.

    Return None while ``silent``, as if it were closed.
    """
    return None if is_silent() else sys.__stdout__


def detach_stdout() -> None:
    """End stdout for its reader while the process continues. A terminal is left open."""
    out = stdout()
    if out is None or is_terminal(out):
        return
    with contextlib.suppress(OSError):  # then the reader waits for the process
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(null, out.fileno())
        os.close(null)


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether the stream is a terminal, and neither closed by the shell nor ``silent``."""
    return stream is not None and stream.isatty() and not is_silent()


def shows_colors(stream: TextIO | None) -> bool:
    """Return whether the stream is a terminal with colours.

    Elsewhere lists, notes and errors are plain text, as in a pipe.
    """
    return is_terminal(stream) and terminal_style(os.environ, terminal=True).colors


def shows_frames(stream: TextIO | None) -> bool:
    """Return whether the stream is a terminal that can redraw a line."""
    return is_terminal(stream) and obeys_escapes(os.environ)


def is_foreground(terminal: int) -> bool:
    """Return whether this process is not a background job of the terminal's shell."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # not the controlling terminal: it has no jobs
        return True


def width(stream: TextIO | None) -> int:
    """Return the columns of a terminal now; for a pipe those of COLUMNS; else 80."""
    return size(stream)[0]


def size(stream: TextIO | None) -> tuple[int, int]:
    """Return columns (as ``width``) and rows."""
    columns = 0
    rows = 0
    if stream is not None and is_terminal(stream):
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(stream.fileno())
    elif re.fullmatch("[1-9][0-9]{0,3}", os.environ.get("COLUMNS", "")):
        columns = int(os.environ["COLUMNS"])
    return columns or _COLUMNS, rows or _ROWS


@contextlib.contextmanager
def line_modes(terminal: int, *, on: int = 0, off: int = 0) -> Iterator[None]:
    """Switch local modes of ``termios`` on or off inside this block, and restore them at its end.

    Raises termios.error if they cannot be set. A terminal that is gone at the end is ignored.
    """
    import termios

    old_modes = termios.tcgetattr(terminal)
    modes = [*old_modes]
    modes[_LOCAL_MODES] = (modes[_LOCAL_MODES] & ~off) | on
    termios.tcsetattr(terminal, termios.TCSANOW, modes)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):
            # A background job would be stopped, and the shell has restored them already.
            if is_foreground(terminal):
                termios.tcsetattr(terminal, termios.TCSANOW, old_modes)


def _is_ready(descriptor: int, event: int, wait: float | None) -> bool:
    """Return whether a descriptor can be read (``POLLIN``) or written within ``wait`` seconds.

    If ``wait`` is None, there is no limit. ``select`` knows no descriptor above 1,023, and ``poll``
    no terminal of some versions of macOS.
    """
    if descriptor >= _SELECTABLE:
        poller = select.poll()
        poller.register(descriptor, event)
        return bool(poller.poll(None if wait is None else wait * 1000))
    reads = [descriptor] if event == select.POLLIN else []
    writes = [descriptor] if event == select.POLLOUT else []
    return any(select.select(reads, writes, [], wait))


class Sink:
    """Writes whole texts to a standard stream, unbuffered.

    A stream that the shell closed fails as a full disk does. Control characters are made visible
    on a terminal, and on stderr in any case: it is for people. The rest of a write that a signal
    interrupted is written before the next text, or by ``finish``.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._max_wait: float | None = None  # seconds to wait for a slow reader; None: no limit
        self._unwritten = memoryview(b"")
        if is_silent():
            stream = None
        is_for_people = stream is sys.stderr or is_terminal(stream)
        self._pieces = VisiblePieces() if is_for_people else None
        self._descriptor = stream.fileno() if stream is not None else None

    def limit_waiting(self) -> None:
        """From now on raise TimeoutError (an OSError) if the reader stalls for READER_WAIT.

        After the first such error, do not wait any more.
        """
        if self._max_wait is None:
            self._max_wait = READER_WAIT

    def write(self, text: str) -> None:
        """Write text as UTF-8, for people with visible control characters.

        Raises OSError as the stream does.
        """
        self.draw(self._pieces.visible(text) if self._pieces else text)

    def draw(self, text: str) -> None:
        """Write text as it is, escape sequences included. Raises OSError as the stream does."""
        if self._descriptor is None:
            raise OSError(errno.EBADF, "the stream is closed")
        data = text.encode("utf-8", "replace")
        self._unwritten = memoryview(bytes(self._unwritten) + data if self._unwritten else data)
        self.finish()

    def finish(self) -> None:
        """Write what is unwritten. Raises OSError as the stream does."""
        while self._unwritten:
            descriptor = self._descriptor
            if descriptor is None:  # another thread has called ``abandon``
                return
            max_wait = self._max_wait
            if not self.is_writable(_POLL if max_wait is None else max_wait):
                if max_wait is None:
                    continue
                self._max_wait = 0.0
                raise TimeoutError
            piece = self._unwritten
            # Where a signal ends a wait for the reader, all goes out in one write: parallel runs
            # then do not mix their lines.
            if max_wait is not None or not in_main_thread():
                piece = piece[: select.PIPE_BUF]
            # An inherited stream may be non-blocking.
            with shielded(), contextlib.suppress(BlockingIOError):
                self._unwritten = self._unwritten[os.write(descriptor, piece) :]

    def abandon(self) -> None:
        """Write nothing more, not even the rest of what another thread is writing."""
        self._descriptor = None

    @property
    def is_written(self) -> bool:
        """Whether nothing is unwritten."""
        return not self._unwritten

    def offer(self, text: str) -> bool:
        """Draw a short text unless the reader stalls or is gone; return whether it was drawn."""
        with contextlib.suppress(OSError):
            if self._descriptor is not None and self.is_written and self.is_writable(0):
                return os.write(self._descriptor, text.encode("utf-8", "replace")) > 0
        return False

    def is_writable(self, wait: float | None) -> bool:
        """Return whether a short text can be written within ``wait`` seconds (None: no limit)."""
        return self._descriptor is not None and _is_ready(self._descriptor, select.POLLOUT, wait)


def write_all(descriptor: int, text: str) -> None:
    """Write all of a text to a blocking descriptor. Raises OSError."""
    data = text.encode("utf-8", "replace")
    while data:
        data = data[os.write(descriptor, data) :]


# ---- input

INPUT_LIMIT = 100_000_000  # bytes of one source: it may never end
_PIECE = 1 << 16  # bytes per read
_FIRST_CHECK = 8000  # bytes of text, 2,000 tokens: with more, the model's window matters
_CHECK_EVERY = 1_000_000  # bytes read between two checks of what was read
_NOTE_AFTER = 2.0  # seconds of a silent pipe until a note says what gptsh waits for

Check = Callable[[bytearray], object]  # gets the beginning of a long source, and may raise


def is_pending(stream: TextIO | None) -> bool:
    """Return whether a pipe is still open and has nothing to read yet."""
    if stream is None or stream.isatty():
        return False
    return not _is_ready(stream.fileno(), select.POLLIN, 0)


def is_pipe(stream: TextIO | None) -> bool:
    """Return whether the stream is a pipe that can be read, not a file or /dev/null."""
    if stream is None:
        return False
    with contextlib.suppress(OSError):
        os.read(stream.fileno(), 0)  # fails if it is closed, or write-only
        return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    return False


def read_piped(*, prompted: bool, check: Check | None = None) -> bytearray:
    """Read all of stdin; b"" from a terminal, or from a closed or write-only stream (nohup).

    If there is a prompt already (``prompted``), a silent pipe may have been inherited by mistake: a
    note then names ``--no-stdin``. Raises UsageError if stdin cannot be read or is too large, and
    as ``check``.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return bytearray()
    descriptor = sys.stdin.fileno()
    try:
        # This fails for a write-only stream, which ``select`` would wait for without end.
        os.read(descriptor, 0)
        if prompted and not _is_ready(descriptor, select.POLLIN, _NOTE_AFTER):
            note("still waiting for piped input; --no-stdin skips it")
        return _read_all(descriptor, "standard input", check)
    except OSError as err:
        if err.errno == errno.EBADF:
            return bytearray()
        problem = f"standard input cannot be read: {err.strerror}"
        raise UsageError(problem, "add --no-stdin to ignore it") from err


def read_file(path: str, check: Check | None = None) -> bytearray:
    """Read a file. Raises UsageError if it cannot be read or is too large, and as ``check``."""
    try:
        with open(path, "rb", buffering=0) as file:
            return _read_all(file.fileno(), path, check)
    except OSError as err:
        is_url = path.startswith(("http://", "https://"))
        advice = f"curl -sSL {path} | gptsh … sends what is there" if is_url else ""
        raise UsageError(f"{path}: {err.strerror}", advice) from err
    except ValueError as err:
        raise UsageError(f"{path!r}: {err}") from err


def _read_all(descriptor: int, name: str, check: Check | None) -> bytearray:
    """Read to the end. Raises OSError, UsageError for more than INPUT_LIMIT, and as ``check``."""
    data = bytearray()
    next_check = _FIRST_CHECK
    while True:
        try:
            piece = os.read(descriptor, _PIECE)
        except BlockingIOError:  # an inherited stream may be non-blocking
            _is_ready(descriptor, select.POLLIN, None)
            continue
        if not piece:
            return data
        data += piece  # in place: a list of pieces would double the memory
        if len(data) > INPUT_LIMIT:
            problem = f"{name} is larger than {format_size(INPUT_LIMIT)}"
            raise UsageError(problem, "tail -c 1000000 gives its end")
        if check and len(data) > next_check:
            check(data)
            next_check = len(data) + _CHECK_EVERY


# ---- output

_NOTE_END = 2000  # characters of a long note at both ends; a server's reason may have megabytes


def create_file(path: str | os.PathLike[str], text: str) -> None:
    """Write a new file with mode 0600, whole or not at all.

    Raises OSError, which is FileExistsError if it exists.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError:
        os.unlink(path)
        raise


def note(text: str) -> None:
    """Print a note of one line on stderr; it is lost if stderr has no reader.

    A very long note loses its middle. On a terminal it continues in the next row between two words,
    and is dim if that has colours.
    """
    line = _note_line(text)
    for notes in (_collected_notes.get(), _later_notes.get()):
        if notes is not None:
            notes.append(line)
            return
    rows = _note_rows(f"gptsh: {line}")
    write_stderr("\n".join(rows) + "\n", safe=True)


def _note_rows(line: str) -> list[str]:
    if not is_terminal(sys.stderr):
        return [line]
    columns = width(sys.stderr)
    if not shows_colors(sys.stderr):
        return wrapped(line, columns)
    return [styled(row, DIM) for row in wrapped(_with_tilde(line), columns)]


def _note_line(text: str) -> str:
    line = one_line(text)
    if len(line) > 2 * _NOTE_END:
        return f"{line[:_NOTE_END]} […] {line[-_NOTE_END:]}"
    return line


def _with_tilde(text: str) -> str:
    """Return the text with ``~/`` at the start of paths in the home folder, except in quotes."""
    home = os.path.expanduser("~").rstrip("/")

    def shorten_path(path: re.Match[str]) -> str:
        is_inside = home and path[0].startswith(f"{home}/")
        return f"~{path[0][len(home) :]}" if is_inside else path[0]

    return re.sub(r"(?<![^\s(])/\S*", shorten_path, text)


def write_stderr(text: str, *, safe: bool = False) -> None:
    """Write to stderr, but give up on a slow reader: the answer may still have to be saved.

    ``safe``: keep escape sequences.
    """
    if is_silent():
        return
    sink = Sink(sys.stderr)
    sink.limit_waiting()
    with contextlib.suppress(OSError):
        if safe:
            sink.draw(text)
        else:
            sink.write(text)


def report(err: GptshError, *, debug: bool) -> None:
    """Print an error and its hint; with ``debug`` also the traceback and the server's response."""
    if shows_colors(sys.stderr):
        write_stderr("".join(f"{row}\n" for row in _error_rows(err)), safe=True)
    else:
        note(str(err))
    if err.hint:
        note(err.hint)
    if debug:
        import traceback

        lines = traceback.format_exception(err)
        if err.detail:
            lines.append(f"{err.detail}\n")
        write_stderr("".join(lines))


def _error_rows(err: GptshError) -> Iterator[str]:
    """Yield the rows of an error on a terminal with colours: the problem, then the advice."""
    prefix = "gptsh:"
    arrow = "  → "
    columns = width(sys.stderr)
    problem = _with_tilde(_note_line(err.problem))
    first, *others = wrapped(f"{prefix} {problem}", columns)
    yield styled(prefix, ERROR) + styled(first.removeprefix(prefix), BOLD)
    for row in others:
        yield styled(row, BOLD)
    if err.advice:
        advice = _with_tilde(_note_line(err.advice))
        margin = arrow
        for row in wrapped(advice, columns - len(arrow)):
            yield f"{margin}{row}"
            margin = " " * len(arrow)


def write_lines(lines: Iterable[str], *, safe: bool = False, interruptible: bool = False) -> None:
    """Write lines to stdout, each as it comes. ``safe``: keep escape sequences on a terminal.

    ``interruptible``: a wait for a slow reader can be interrupted inside a shield. Raises as
    ``write_pieces``.
    """
    write_pieces((f"{line}\n" for line in lines), safe=safe, interruptible=interruptible)


def write_pieces(
    pieces: Iterable[str],
    *,
    safe: bool = False,
    interruptible: bool = False,
) -> None:
    """Write pieces of text to stdout, with ``safe`` and ``interruptible`` as in ``write_lines``.

    Raises BrokenPipeError if the reader has left, OutputError if stdout cannot be written.
    """
    sink = Sink(stdout())
    write = sink.draw if safe else sink.write
    allow_signals = waiting if interruptible else contextlib.nullcontext
    for piece in pieces:
        with output_errors(), allow_signals():
            write(piece)


@contextlib.contextmanager
def output_errors() -> Iterator[None]:
    """Raise an OSError of the block as OutputError; BrokenPipeError stays: the reader has left."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as err:
        raise OutputError(f"the output cannot be written: {err.strerror}") from err


# ---- escape sequences

# Styles.
BOLD = "1"
DIM = "2"
ERROR = "1;31"

END_OF_FRAME = "\x1b[?2026l"  # ends a synchronised update: the terminal shows the frame at once
# Erases all rows from the cursor on, which is in the first column. The first row is erased
# separately: tmux copies the screen to its scrollback if a program erases it from the first column
# of the first row.
ERASE_DOWN = "\x1b[K\x1b[C\x1b[J\r"


def styled(text: str, style: str) -> str:
    """Return a text in a style, for a terminal that has it."""
    return f"\x1b[{style}m{text}\x1b[0m" if text else ""


class TerminalStyle(NamedTuple):
    """What may be written: escape sequences at all (bold, dim, …), colours, 256 colours."""

    styles: bool
    colors: bool
    many_colors: bool = False


def obeys_escapes(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal that TERM names obeys escape sequences."""
    return environ.get("TERM", "") not in ("", "dumb")


def speaks_utf8(environ: Mapping[str, str]) -> bool:
    """Return whether the locale has characters beyond ASCII."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        locale = environ.get(name)
        if locale:  # the first one that is set decides
            return bool(re.search("utf-?8", locale, re.IGNORECASE))
    return False


_TRUE_COLOR = ("truecolor", "24bit")  # values of COLORTERM


def terminal_style(environ: Mapping[str, str], *, terminal: bool) -> TerminalStyle:
    """Allow styles on a terminal that is not dumb, or with FORCE_COLOR.

    NO_COLOR removes the colours.
    """
    is_forced = environ.get("FORCE_COLOR", "").lower() not in ("", "0", "false")
    styles = is_forced or (terminal and obeys_escapes(environ))
    colors = styles and not environ.get("NO_COLOR")
    has_many = "256color" in environ.get("TERM", "") or environ.get("COLORTERM", "") in _TRUE_COLOR
    return TerminalStyle(styles, colors, many_colors=colors and has_many)


PLAIN = TerminalStyle(styles=False, colors=False)


# ---- formats

STRUCTURED = ("json", "jsonl")  # for programs
OUTPUTS = ("text", "markdown", *STRUCTURED)
FORMATS = ("json", "markdown", "html", "openai", "nanobot")  # for the export of sessions
ENDS = ("head", "tail", "middle")  # of a text: what ``--truncate`` cuts


def output_from(environ: Mapping[str, str]) -> str | None:
    """Return the output format in ``GPTSH_OUTPUT``, or None if it is not set.

    Raises ConfigError for an unknown one.
    """
    output = environ.get("GPTSH_OUTPUT") or None
    if output and output not in OUTPUTS:
        raise ConfigError(f"GPTSH_OUTPUT: expected one of {', '.join(OUTPUTS)}, not {output!r}")
    return output
