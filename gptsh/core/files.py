"""Session files as bytes: the lock, the replace that cannot tear, reading a head without the messages."""

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gptsh.core.document import Document, checked_message, complete, update_totals
from gptsh.errors import StoreBusy, StoreError
from gptsh.jsonio import encoded, parsed, parsed_from
from gptsh.messages import Message, just_after
from gptsh.text import shown_size

LOCK_WAIT = 10.0  # seconds; a save holds the lock for milliseconds
SHORT_LOCK_WAIT = 3.0  # seconds; for a save that a model's answer waits for
STALE_AFTER = 3600  # seconds until a temporary file is taken for the leftover of a killed process
_BLOCK = 4096  # bytes; holds the head of nearly every session
_TAIL = 64  # bytes; the end of the messages must be found in them
_CONTEXT, _MESSAGES, _MESSAGE = b',"context":{', b',"messages":[', b'{"id":"'  # as our own writer begins them
_MOST = 1_000_000_000  # bytes of a file that is read at all
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe that lies among the sessions is not waited for


@contextlib.contextmanager
def locked(path: Path, wait: float = LOCK_WAIT) -> Iterator[None]:
    """Hold the lock file. Not a session's own file: replacing that would leave the lock on a dead inode.

    Raises StoreBusy when another process holds it for longer than ``wait`` seconds, OSError when it cannot be made.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until, pause = time.monotonic() + wait, 0.001
    try:
        if os.fstat(descriptor).st_mode & 0o077:
            with contextlib.suppress(PermissionError):  # somebody else's, and shared on purpose
                os.fchmod(descriptor, 0o600)
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise StoreBusy(f"{path} is locked by another process", "try again") from None
            time.sleep(pause)
            pause = min(pause * 1.5, 0.005)
        yield
    finally:
        os.close(descriptor)


def replace(path: Path, data: bytes, *, fsync: bool) -> None:
    """Put ``data`` in the place of the file, whole or not at all; 0600. ``fsync`` waits for the disk.

    A symbolic link stays one: what it points to is replaced.
    Raises OSError: nothing was replaced, or nobody knows whether that is on the disk.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f"{target.name}.{os.getpid()}.{os.urandom(3).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with contextlib.ExitStack() as undo:
        undo.callback(temporary.unlink, missing_ok=True)
        with open(descriptor, "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            if fsync:
                os.fsync(descriptor)
        os.replace(temporary, target)
        undo.pop_all()
    if fsync:
        sync(target.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def as_store_error(what: str, folder: Path) -> Iterator[None]:
    """Raise an OSError as StoreError: ``what`` was wrong, and with which file, else in which folder."""
    try:
        yield
    except OSError as err:
        raise StoreError(f"{what}: {err.filename2 or err.filename or folder}: {err.strerror}") from err


def sweep(folder: Path, names: list[str]) -> None:
    """Remove the temporary files among ``names`` that a killed process left behind."""
    for name in names:
        if name.endswith(".tmp"):
            with contextlib.suppress(OSError):  # another process swept it first
                if time.time() - (folder / name).stat().st_mtime > STALE_AFTER:
                    (folder / name).unlink()


def write_document(path: Path, doc: Document, *, fsync: bool) -> None:
    """Count a document anew, and put it in the place of its file. Raises OSError, StoreError for what is no JSON."""
    update_totals(doc)
    head = {key: value for key, value in doc.items() if key != "messages"}
    try:  # the messages last, so that a list reads the head alone; apart, since text that is all ASCII is quicker
        data = b'%b,"messages":%b}' % (encoded(head)[:-1], encoded(doc["messages"]))
    except ValueError as err:
        raise StoreError(f"the session cannot be saved: {err}") from err
    replace(path, data, fsync=fsync)


def read_bytes(path: Path | str) -> bytes:
    """All of a file; half the time of ``Path.read_bytes``. Raises OSError, also as ``_size``."""
    descriptor = os.open(path, _READ)
    try:
        size, data = _size(descriptor), b""
        while len(data) < size and (piece := os.read(descriptor, size - len(data))):  # one read, on most file systems
            data += piece
    finally:
        os.close(descriptor)
    return data


def _size(descriptor: int) -> int:
    """The bytes of a file. Raises OSError for a device or a pipe, and for what memory may have no room for."""
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if status.st_size > _MOST:
        raise OSError(errno.EFBIG, f"larger than {shown_size(_MOST)}")
    return status.st_size


def read_document(path: Path | str) -> tuple[Document, list[str]]:
    """The whole document, its id that of the file name, and the places of what is malformed, which is left out.

    Raises ValueError when it is no session, OSError when it cannot be read.
    """
    try:
        value = parsed(read_bytes(path).decode())
    except (ValueError, RecursionError) as err:
        raise ValueError(f"not JSON: {err}") from err
    name = os.fspath(path)[-25:]  # yyyyMMdd-HHMMSS-id.json
    moment = f"{name[:4]}-{name[4:6]}-{name[6:8]}T{name[9:11]}:{name[11:13]}:{name[13:15]}.000Z"
    doc, malformed = complete(value, name[16:20], moment)
    if doc["updated_at"] == doc["created_at"]:  # as other programs leave them; here it means never saved
        doc["updated_at"] = just_after(doc["created_at"])
    return doc, malformed


def parse(data: bytes, lowered: bytes, path: str, needles: Sequence[bytes]) -> tuple[Document, Iterator[Message]]:
    """What the bytes of a file hold: its document up to the context, and its messages, at least those with a needle.

    ``lowered`` is the same in small letters, as the needles are; without any, all messages. Raises ValueError when it
    is no session, also between its messages.
    """
    head, start = _head(data, path), data.find(_MESSAGES + _MESSAGE)
    if head is None or start < 0 or not data.endswith(b"}]}"):
        head, _ = read_document(path)
        return head, iter(head["messages"])
    return head, _messages(data, lowered, start + len(_MESSAGES), path, needles)


def _messages(data: bytes, lowered: bytes, start: int, path: str, needles: Sequence[bytes]) -> Iterator[Message]:
    """Each message with a needle, parsed when its turn has come. Where that fails, all of them once more."""
    between, last = b"}," + _MESSAGE, len(data) - len(b"]}")  # no text holds what is between them
    try:
        while start < last:
            places = (
                [place for needle in needles if (place := lowered.find(needle, start)) >= 0] if needles else [start]
            )
            if not places:
                return
            begin = lowered.rfind(between, start, min(places))
            end = lowered.find(between, min(places)) + 1 or last
            yield checked_message(parsed(data[start if begin < 0 else begin + 2 : end].decode()))
            start = end + 1
    except (ValueError, RecursionError):  # something in a message begins with an id, too
        yield from read_document(path)[0]["messages"]


def read_head(path: str) -> Document:
    """The document up to its context, unchecked, read from the first block of the file where that holds it.

    A file that our writer did not leave is read whole. Raises ValueError when it is no session, OSError when it cannot
    be read.
    """
    descriptor = os.open(path, _READ)
    try:
        end = data = os.read(descriptor, _BLOCK)
        if len(data) == _BLOCK:  # else that was all
            size = _size(descriptor)
            while _CONTEXT not in data and (more := os.read(descriptor, len(data))):
                data += more
            end = os.pread(descriptor, _TAIL, max(0, size - _TAIL))
    finally:
        os.close(descriptor)
    head = _head(data, path) if end.rstrip().endswith(b"]}") else None  # else it is torn, or keys follow the messages
    return head or read_document(path)[0]


def _head(data: bytes, path: str) -> Document | None:
    """The keys before the context, as our own writer leaves them: ``version`` first; None where it looks otherwise.

    No string holds the mark, since its quotes would be escaped, and in an inner object the braces would not match.
    """
    end = data.find(_CONTEXT)
    try:
        head: Any = parsed_from(f"{data[:end].decode()}}}")[0] if end > 0 else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(head, dict) or next(iter(head), None) != "version" or "id" not in head:
        return None
    head["id"] = path[-9:-5]
    return head
