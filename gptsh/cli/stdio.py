"""The three streams: terminal or pipe, reading what is piped, writing what a person reads on stderr."""

import contextlib
import io
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, TextIO

from gptsh.errors import GptshError, UsageError
from gptsh.render.visible import visible


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person sits at the other end. A stream that the shell closed is nobody."""
    return stream is not None and stream.isatty()


def shows_frames(stream: TextIO | None) -> bool:
    """Whether a line may be drawn over again."""
    return is_terminal(stream) and os.environ.get("TERM", "") not in ("", "dumb")


def byte_stream(stream: TextIO | None) -> BinaryIO:
    """The bytes of a text stream; a closed one swallows them."""
    return stream.buffer if stream is not None else io.BytesIO()


def read_piped() -> str | None:
    """All of standard input as text; None from a terminal, a closed stream, and where there is nothing.

    Raises UsageError when it cannot be read or is binary.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return None
    try:
        data = sys.stdin.buffer.read()
    except OSError as err:
        raise UsageError(f"standard input cannot be read: {err.strerror}", "--no-stdin leaves it alone") from err
    return text_in(data, "standard input") or None


def read_file(path: str) -> str:
    """A text file. Raises UsageError when it cannot be read or is binary."""
    try:
        data = Path(path).read_bytes()
    except OSError as err:
        raise UsageError(f"{path}: {err.strerror}") from err
    return text_in(data, path)


def text_in(data: bytes, source: str) -> str:
    """Bytes as text. What is no UTF-8 survives as surrogates and is said; raises UsageError for a NUL byte."""
    if b"\0" in data:
        raise UsageError(f"{source} is binary ({len(data)} bytes)", "only text can be sent")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        note(f"{source} is not UTF-8 throughout: bytes that are not are kept, and sent as U+FFFD")
        return data.decode("utf-8", "surrogateescape")


def note(text: str) -> None:
    """One line for the person, on stderr. Nobody there to read it is no failure."""
    line = f"gptsh: {text}"
    shown = visible(line) if is_terminal(sys.stderr) else line
    with contextlib.suppress(OSError, AttributeError):
        byte_stream(sys.stderr).write(f"{' '.join(shown.splitlines())}\n".encode("utf-8", "replace"))
        sys.stderr.flush()


def report(err: GptshError, *, debug: bool) -> None:
    """An error: its line, its hint; with ``debug`` the provider's own words and the traceback."""
    note(str(err))
    if err.hint:
        note(err.hint)
    if debug:
        import traceback  # noqa: PLC0415 - only for --debug

        with contextlib.suppress(OSError, AttributeError):
            sys.stderr.write("".join(traceback.format_exception(err)) + (f"{err.detail}\n" if err.detail else ""))


def write_lines(lines: Iterable[str]) -> None:
    """Lines to stdout, each at once, so that a pipe may end early. Raises OSError as the stream does."""
    stream, shown = byte_stream(sys.stdout), is_terminal(sys.stdout)
    for line in lines:
        stream.write(f"{visible(line) if shown else line}\n".encode("utf-8", "replace"))
        stream.flush()


def abandon_stdout() -> None:
    """The reader has left: what is still buffered goes nowhere, also at the interpreter's end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
