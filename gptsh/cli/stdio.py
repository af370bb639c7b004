"""The three streams: terminal or pipe, reading what is piped, writing what a person or a pipe reads.

Nothing is buffered here: what was written is out, so that no flush can block or fail when the process ends.
"""

import contextlib
import errno
import os
import re
import select
import sys
from collections.abc import Iterable, Iterator
from typing import TextIO

from gptsh.cli.interrupts import shielded, waiting
from gptsh.errors import GptshError, OutputError, UsageError
from gptsh.render.plain import obeys_escapes
from gptsh.text import VisiblePieces

_PIECE = 1 << 16  # bytes of a read
BINARY_LIMIT = 100_000_000  # bytes of what will be refused; it may never end
_USUAL_SIZE = 80, 24  # columns and rows
_LOCAL = 3  # where a terminal's modes have the local ones
_SILENCE = 2.0  # seconds until a person is told what is waited for
_LOOK = 0.2  # seconds until a thread that waits for a reader learns that nobody has patience any more
READER_WAIT = 1.0  # seconds that what is not worth a wait leaves to its reader


def detach_stdout() -> None:
    """Let the reader of stdout see its end, though the process goes on; a terminal stays."""
    out = stdout()
    if out is None or is_terminal(out):
        return
    with contextlib.suppress(OSError):  # then the reader waits
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, out.fileno())
        os.close(nowhere)


def stdout() -> TextIO | None:
    """Standard output itself: ``sys.stdout`` is stderr where litellm works."""
    return sys.__stdout__


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person sits at the other end. A stream that the shell closed is nobody."""
    return stream is not None and stream.isatty()


def shows_frames(stream: TextIO | None) -> bool:
    """Whether a line may be drawn over again."""
    return is_terminal(stream) and obeys_escapes(os.environ)


def is_foreground(terminal: int) -> bool:
    """Whether this process is no background job of a shell there."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # a terminal that controls nothing knows no jobs
        return True


def width(stream: TextIO | None) -> int:
    """Columns of a terminal at this moment; for a pipe those of COLUMNS; else the usual 80."""
    return size(stream)[0]


def size(stream: TextIO | None) -> tuple[int, int]:
    """Columns as ``width``, and rows."""
    if stream is not None and is_terminal(stream):
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(stream.fileno())
            return columns or _USUAL_SIZE[0], rows or _USUAL_SIZE[1]
        return _USUAL_SIZE
    given = os.environ.get("COLUMNS", "")
    return int(given) if re.fullmatch("[1-9][0-9]{0,3}", given) else _USUAL_SIZE[0], _USUAL_SIZE[1]


@contextlib.contextmanager
def line_modes(terminal: int, *, on: int = 0, off: int = 0) -> Iterator[None]:
    """A stretch with these of ``termios``'s local modes on or off; behind it all are as before.

    Raises termios.error where they cannot be set; that the terminal went away meanwhile is none.
    """
    import termios  # noqa: PLC0415 - few runs have a terminal to themselves

    before = termios.tcgetattr(terminal)
    modes = [*before]
    modes[_LOCAL] = modes[_LOCAL] & ~off | on
    termios.tcsetattr(terminal, termios.TCSANOW, modes)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):
            if is_foreground(terminal):  # else it would be stopped, and the shell has set them already
                termios.tcsetattr(terminal, termios.TCSANOW, before)


class Sink:
    """Writes to one of the standard streams, at once and whole. A stream that the shell closed swallows all.

    What a signal broke off goes out before anything else does, or by ``finish``, so that no line is torn.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._patience: float | None = None  # seconds that its reader is waited for; None: for ever
        self._rest = memoryview(b"")  # of what was begun
        self._pieces = VisiblePieces() if is_terminal(stream) else None
        self._descriptor = stream.fileno() if stream is not None else None

    def limit_waiting(self) -> None:
        """From now on a reader that stalls is a TimeoutError, which is an OSError; a second time at once."""
        self._patience = READER_WAIT if self._patience is None else self._patience

    def write(self, text: str) -> None:
        """Write text as UTF-8, on a terminal with its control characters shown. Raises OSError as the stream does."""
        self.draw(self._pieces.visible(text) if self._pieces else text)

    def draw(self, text: str) -> None:
        """Write text that is safe for a terminal, its escape sequences included. Raises OSError as the stream does."""
        data = text.encode("utf-8", "replace")
        self._rest = memoryview(bytes(self._rest) + data if self._rest else data)
        self.finish()

    def finish(self) -> None:
        """Write the rest of what was begun. Raises OSError as the stream does."""
        while self._descriptor is not None and self._rest:
            patience = self._patience
            if not self.is_writable(_LOOK if patience is None else patience):
                if patience is None:
                    continue
                self._patience = 0.0
                raise TimeoutError
            with shielded(), contextlib.suppress(BlockingIOError):  # a stream may be handed down that does not wait
                self._rest = self._rest[os.write(self._descriptor, self._rest[: select.PIPE_BUF]) :]

    @property
    def finished(self) -> bool:
        """Whether nothing of what was begun is left."""
        return not self._rest

    def offer(self, text: str) -> bool:
        """Draw a short text unless its reader stalls, or is gone; whether it was drawn."""
        with contextlib.suppress(OSError):
            if self._descriptor is not None and not self._rest and self.is_writable(0):
                return os.write(self._descriptor, text.encode("utf-8", "replace")) > 0
        return False

    def is_writable(self, wait: float | None) -> bool:
        """Whether a short text can be written without waiting longer than ``wait`` seconds (None: for ever)."""
        return self._descriptor is not None and bool(select.select([], [self._descriptor], [], wait)[1])


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it to a descriptor that waits. Raises OSError."""
    while data:
        data = data[os.write(descriptor, data) :]


# ---- in


def is_pending(stream: TextIO | None) -> bool:
    """Whether a pipe has nothing to read yet, and has not ended."""
    return stream is not None and not stream.isatty() and not select.select([stream.fileno()], [], [], 0)[0]


def read_piped(*, prompted: bool) -> bytearray:
    """All of standard input; nothing from a terminal, and from a stream that is closed or not for reading (nohup).

    Where a prompt was given otherwise (``prompted``), a pipe that stays silent may have been inherited by mistake: a
    note says once how to do without it. Raises UsageError when it cannot be read.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return bytearray()
    descriptor = sys.stdin.fileno()
    try:
        os.read(descriptor, 0)  # what is not for reading fails here; to wait for it would never end
        if prompted and not select.select([descriptor], [], [], _SILENCE)[0]:
            note("still waiting for standard input: --no-stdin does without")
        return _whole(descriptor)
    except OSError as err:
        if err.errno == errno.EBADF:
            return bytearray()
        raise UsageError(f"standard input cannot be read: {err.strerror}", "--no-stdin leaves it alone") from err


def _whole(descriptor: int) -> bytearray:
    """All that can be read; of what is no text little more than BINARY_LIMIT. Raises OSError."""
    data, has_nul = bytearray(), False
    while (piece := _read(descriptor)) and not (has_nul and len(data) > BINARY_LIMIT):
        data += piece  # in place: no list of pieces stands beside the whole
        has_nul = has_nul or b"\0" in piece
    return data


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _PIECE)
    except BlockingIOError:  # a parent handed down a stream that does not wait
        select.select([descriptor], [], [])
        return _read(descriptor)


def read_file(path: str) -> bytearray:
    """A file. Raises UsageError when it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return _whole(file.fileno())
    except OSError as err:
        fetch = f"curl -sSL {path} | gptsh … sends what is there" if path.startswith(("http://", "https://")) else ""
        raise UsageError(f"{path}: {err.strerror}", fetch) from err
    except ValueError as err:
        raise UsageError(f"{path!r}: {err}") from err


# ---- out


def note(text: str) -> None:
    """One line for the person, on stderr. Nobody there to read is no failure."""
    write_stderr(f"gptsh: {' '.join(text.splitlines())}\n")


def write_stderr(text: str) -> None:
    """Write to stderr as far as its reader takes it: no word is worth an answer that waits to be saved."""
    sink = Sink(sys.stderr)
    sink.limit_waiting()
    with contextlib.suppress(OSError):
        sink.write(text)


def report(err: GptshError, *, debug: bool) -> None:
    """An error: its line, its hint; with ``debug`` the provider's own words and the traceback."""
    note(str(err))
    if err.hint:
        note(err.hint)
    if debug:
        import traceback  # noqa: PLC0415 - only for --debug

        write_stderr("".join(traceback.format_exception(err)) + (f"{err.detail}\n" if err.detail else ""))


def write_lines(lines: Iterable[str], *, safe: bool = False, interruptible: bool = False) -> None:
    """Lines to stdout, each at once, so that a pipe may end early. ``safe``: as they are, on a terminal too.

    ``interruptible``: within a shield, too, while the reader stalls. Raises as ``write_pieces``.
    """
    write_pieces((f"{line}\n" for line in lines), safe=safe, interruptible=interruptible)


def write_pieces(pieces: Iterable[str], *, safe: bool = False, interruptible: bool = False) -> None:
    """Text to stdout, each piece at once, with nothing between them.

    Raises BrokenPipeError when the reader has left, OutputError when they cannot be written.
    """
    sink = Sink(stdout())
    put = sink.draw if safe else sink.write
    for piece in pieces:
        try:
            with waiting() if interruptible else contextlib.nullcontext():
                put(piece)
        except BrokenPipeError:
            raise
        except OSError as err:
            raise OutputError(f"the output cannot be written: {err.strerror}") from err
