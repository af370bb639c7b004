"""What was typed at the prompt, across conversations: a file with one JSON string per line, the newest last."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from gptsh.config.folders import own_folder
from gptsh.core import files
from gptsh.core.references import make_private
from gptsh.errors import StoreBusy
from gptsh.jsonio import encoded, parsed

MOST = 1 << 20  # bytes of the file; beyond them its older half goes
LONGEST = 100_000  # bytes of an entry; a longer one is not kept
_LOCK_WAIT = 0.2  # seconds; the user waits for the answer
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK


def typed_file() -> Path:
    """``${XDG_STATE_HOME:-~/.local/state}/gptsh/typed.jsonl``. Raises ConfigError for a user without a home."""
    return own_folder("state") / "typed.jsonl"


def read() -> list[str]:
    """All that was typed, oldest first, what was typed twice in a row once; nothing where there is no file.

    A line that is no JSON string is skipped. Raises OSError, and ConfigError as ``typed_file``.
    """
    try:
        descriptor = os.open(typed_file(), _READ)
    except FileNotFoundError:
        return []
    try:
        data = _newest(descriptor, MOST)
    finally:
        os.close(descriptor)
    entries: list[str] = []
    for text in _decoded(data):
        if entries[-1:] != [text]:
            entries.append(text)
    return entries


def append(text: str) -> None:
    """Keep what was typed, in one write behind all else; one that is too long is not kept.

    Raises OSError, and ConfigError as ``typed_file``.
    """
    line = encoded(text) + b"\n"
    if len(line) > LONGEST:
        return
    path = typed_file()
    make_private(path.parent)
    try:
        with files.locked(path.parent / ".lock", _LOCK_WAIT):
            if _put(path, line) > MOST:
                _trim(path)
    except StoreBusy:  # the lock only keeps a trim from losing the line
        _put(path, line)


def _put(path: Path, line: bytes) -> int:
    """Write a line to the end; how large the file is now. A torn line before it is ended first."""
    descriptor = os.open(path, _APPEND, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        torn = size and os.pread(descriptor, 1, size - 1) != b"\n"
        return size + os.write(descriptor, b"\n" + line if torn else line)
    finally:
        os.close(descriptor)


def _trim(path: Path) -> None:
    """Leave the newest lines alone, half of what there may be; under the store's lock."""
    descriptor = os.open(path, _READ)
    try:
        kept = _newest(descriptor, MOST // 2)
    finally:
        os.close(descriptor)
    files.replace(path, kept, durable=False)


def _newest(descriptor: int, most: int) -> bytes:
    """The last whole lines of a file, ``most`` bytes of them at most."""
    status = os.fstat(descriptor)
    if stat.S_ISCHR(status.st_mode):  # it may never end
        return b""
    left = status.st_size - most
    if left <= 0:
        return _all(descriptor)
    os.lseek(descriptor, left - 1, os.SEEK_SET)  # the byte before tells whether a line begins there
    return _all(descriptor).partition(b"\n")[2]


def _all(descriptor: int) -> bytes:
    return b"".join(iter(lambda: os.read(descriptor, 1 << 16), b""))


def _decoded(data: bytes) -> Iterator[str]:
    for line in data.split(b"\n"):
        try:
            text = parsed(line.decode("utf-8"))
        except (ValueError, RecursionError):
            continue
        if isinstance(text, str) and text:
            yield text
