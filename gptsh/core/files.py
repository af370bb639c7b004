"""Session files as bytes: the lock, the replace that cannot tear, reading a head without the messages."""

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from gptsh.core.document import KEYS, Document, complete, count
from gptsh.errors import StoreBusy, StoreError
from gptsh.jsonio import encoded, parsed, parsed_from
from gptsh.messages import just_after
from gptsh.text import shown_size

LOCK_WAIT = 10.0  # seconds; a save holds the lock for milliseconds
SHORT_LOCK_WAIT = 3.0  # seconds; for a save that a model's answer waits for
STALE_AFTER = 3600  # seconds until a temporary file is taken for the leftover of a killed process
_BLOCK = 4096  # bytes; holds the head of nearly every session
_TAIL = 64  # bytes; the end of the messages must be found in them
_PIECE = 1 << 16  # bytes of a read; holds nearly every session
_MESSAGES = b',"messages":['  # as our own writer leaves it
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


def replace(path: Path, data: bytes, *, durable: bool) -> None:
    """Put ``data`` in the place of the file, whole or not at all; 0600. ``durable`` waits for the disk.

    A symbolic link stays one: what it points to is replaced. Its name is durable after ``sync`` of the folder.
    Raises OSError, and then nothing was replaced.
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
            if durable:
                os.fsync(descriptor)
        os.replace(temporary, target)
        undo.pop_all()


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


def write_document(path: Path, doc: Document, *, durable: bool) -> None:
    """Count a document anew, and put it in the place of its file. Raises OSError, StoreError for what is no JSON."""
    count(doc)
    known = {key: doc[key] for key in KEYS}
    rest = {key: item for key, item in doc.items() if key != "messages"}
    try:
        data = encoded({**known, **rest, "messages": doc["messages"]})
    except ValueError as err:
        raise StoreError(f"the session cannot be saved: {err}") from err
    replace(path, data, durable=durable)


def read_bytes(path: Path | str) -> bytes:
    """All of a file; half the time of ``Path.read_bytes``. Raises OSError, also as ``_sized``."""
    descriptor = os.open(path, _READ)
    pieces = []
    try:
        _sized(descriptor)
        while piece := os.read(descriptor, _PIECE):
            pieces.append(piece)
    finally:
        os.close(descriptor)
    return b"".join(pieces)


def _sized(descriptor: int) -> int:
    """The bytes of a file. Raises OSError for a device or a pipe, and for what memory may have no room for."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):  # of which the system itself says so
        raise OSError(errno.EINVAL, "not a regular file")
    if status.st_size > _MOST:
        raise OSError(errno.EFBIG, f"larger than {shown_size(_MOST)}")
    return status.st_size


def read_document(path: Path | str) -> tuple[Document, list[str]]:
    """The whole document, its id that of the file name, and the places of what is malformed, which is left out.

    Raises ValueError when it is no session, OSError when it cannot be read.
    """
    data = read_bytes(path)
    try:
        value = parsed(data.decode("utf-8"))
    except (ValueError, RecursionError) as err:
        raise ValueError(f"not JSON: {err}") from err
    name = os.fspath(path)[-25:]  # yyyyMMdd-HHMMSS-id.json
    moment = f"{name[:4]}-{name[4:6]}-{name[6:8]}T{name[9:11]}:{name[11:13]}:{name[13:15]}.000Z"
    doc, malformed = complete(value, name[16:20], moment)
    if doc["updated_at"] == doc["created_at"]:  # as other programs leave them; here it means never saved
        doc["updated_at"] = just_after(doc["created_at"])
    return doc, malformed


def parse(data: bytes, path: str) -> tuple[Document, Iterator[object]]:
    """What the bytes of a file hold: the head of its document, and its messages, each parsed when its turn has come.

    Raises ValueError when it is no session, also between its messages.
    """
    head = _head(data, path) if data.endswith(b"]}") else None
    if head is None:
        doc, _ = read_document(path)
        return doc, iter(doc["messages"])
    return head, _messages(data[data.find(_MESSAGES) + len(_MESSAGES) :].decode())


def _messages(text: str) -> Iterator[object]:
    at = 0
    while text[at] != "]":
        try:
            message, at = parsed_from(text, at)
        except (ValueError, RecursionError) as err:
            raise ValueError(f"not JSON: {err}") from err
        yield message
        at += text[at] == ","


def read_head(path: str) -> Document:
    """The document without its messages, unchecked, read from the first block of the file where that holds it.

    A file that our writer did not leave is read whole. Raises ValueError when it is no session, OSError when it cannot
    be read.
    """
    descriptor = os.open(path, _READ)
    try:
        end = data = os.read(descriptor, _BLOCK)
        if len(data) == _BLOCK:  # else that was all
            size = _sized(descriptor)
            while _MESSAGES not in data and (more := os.read(descriptor, len(data))):
                data += more
            end = os.pread(descriptor, _TAIL, max(0, size - _TAIL))
    finally:
        os.close(descriptor)
    head = _head(data, path) if end.rstrip().endswith(b"]}") else None  # else it is torn, or keys follow the messages
    return head or read_document(path)[0]


def _head(data: bytes, path: str) -> Document | None:
    """The keys before the messages, as our own writer leaves them: ``version`` first; None where it looks otherwise.

    No string holds the mark, since its quotes would be escaped, and in an inner object the braces would not match.
    """
    end = data.find(_MESSAGES)
    try:
        head, _ = parsed_from(data[:end].decode() + "}") if end > 0 else (None, 0)
    except (ValueError, RecursionError):
        return None
    if not isinstance(head, dict) or next(iter(head), None) != "version" or "id" not in head:
        return None
    return {**head, "id": path[-9:-5]}
