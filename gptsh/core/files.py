"""Session files as bytes: the lock, atomic replacement, and reading a head without its messages."""

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from gptsh.core.document import Document, check_message, parse_document, update_totals
from gptsh.errors import StoreBusy, StoreError
from gptsh.jsonio import encode_json, parse_json, parse_json_fast
from gptsh.messages import Message, just_after
from gptsh.text import format_size

LOCK_WAIT = 10.0  # seconds; a save holds the lock for milliseconds
SHORT_LOCK_WAIT = 3.0  # seconds; for a save before the model is asked
STALE_AFTER = 3600  # seconds; an older temporary file was left by a killed process
_BLOCK = 4096  # bytes; holds the head of nearly every session
_LARGE = 200_000  # bytes that are parsed in the time of the fast parser's import
_TAIL = 64  # bytes; enough for the end of the messages
_CONTEXT, _MESSAGES, _MESSAGE = b',"context":{', b',"messages":[', b'{"id":"'  # as ``write_document`` writes them
_MAX_SIZE = 1_000_000_000  # bytes; a larger file is not read
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # O_NONBLOCK: do not wait for a named pipe in the folder


@contextlib.contextmanager
def locked(path: Path, wait: float = LOCK_WAIT) -> Iterator[None]:
    """Hold the lock file while the block runs.

    It is no session file: replacing that would leave the lock on a dead inode. Raises StoreBusy if another process
    holds the lock for more than ``wait`` seconds, OSError if it cannot be created.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline, pause = time.monotonic() + wait, 0.001
    try:
        if os.fstat(descriptor).st_mode & 0o077:
            with contextlib.suppress(PermissionError):  # owned by another user, who shares it on purpose
                os.fchmod(descriptor, 0o600)
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StoreBusy(f"{path} is locked by another process", "try again") from None
            time.sleep(pause)
            pause = min(pause * 1.5, 0.005)
        yield
    finally:
        os.close(descriptor)


def replace(path: Path, data: bytes, *, fsync: bool) -> None:
    """Replace the file, or the target of a symbolic link, atomically with mode 0600. ``fsync`` waits for the disk.

    Raises OSError: the file was not replaced, or may not be on disk yet.
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
    """Wait until a file, or the names in a folder, are on disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def as_store_error(problem: str, folder: Path) -> Iterator[None]:
    """Raise an OSError of the block as StoreError: ``problem``, then the file or else ``folder``."""
    try:
        yield
    except OSError as err:
        raise StoreError(f"{problem}: {err.filename2 or err.filename or folder}: {err.strerror}") from err


def sweep(folder: Path, names: list[str]) -> None:
    """Remove those temporary files among ``names`` that a killed process left."""
    for name in names:
        if name.endswith(".tmp"):
            with contextlib.suppress(OSError):  # another process swept it first
                if time.time() - (folder / name).stat().st_mtime > STALE_AFTER:
                    (folder / name).unlink()


def write_document(path: Path, doc: Document, *, fsync: bool) -> None:
    """Update a document's totals and replace its file. Raises OSError, or StoreError if it is not JSON."""
    update_totals(doc)
    head = {key: value for key, value in doc.items() if key != "messages"}
    try:  # messages last: a list reads only the head. Apart: encoding is faster if all of a text is ASCII
        data = b'%b,"messages":%b}' % (encode_json(head)[:-1], encode_json(doc["messages"]))
    except ValueError as err:
        raise StoreError(f"the session cannot be saved: {err}") from err
    replace(path, data, fsync=fsync)


def read_bytes(path: Path | str) -> bytes:
    """Return the bytes of a file, in half the time of ``Path.read_bytes``. Raises OSError, also as ``_size`` does."""
    descriptor = os.open(path, _READ)
    try:
        size, data = _size(descriptor), b""
        while len(data) < size and (piece := os.read(descriptor, size - len(data))):  # usually one read
            data += piece
    finally:
        os.close(descriptor)
    return data


def _size(descriptor: int) -> int:
    """Return the size of a file in bytes. Raises OSError for a device, a pipe or a file beyond ``_MAX_SIZE``."""
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if status.st_size > _MAX_SIZE:
        raise OSError(errno.EFBIG, f"larger than {format_size(_MAX_SIZE)}")
    return status.st_size


def read_document(path: Path | str) -> tuple[Document, list[str]]:
    """Return the whole document, its id taken from the file name, and the paths of malformed parts, which are left out.

    Raises ValueError if the file is not a session, OSError if it cannot be read.
    """
    try:
        data = read_bytes(path)
        value = parse_json_fast(data) if len(data) > _LARGE else parse_json(data.decode())
    except (ValueError, RecursionError) as err:
        raise ValueError(f"not JSON: {err}") from err
    name = os.fspath(path)[-25:]  # yyyyMMdd-HHMMSS-id.json
    default_time = f"{name[:4]}-{name[4:6]}-{name[6:8]}T{name[9:11]}:{name[11:13]}:{name[13:15]}.000Z"
    doc, malformed = parse_document(value, name[16:20], default_time)
    if doc["updated_at"] == doc["created_at"]:  # other programs write this; here it would mean never saved
        doc["updated_at"] = just_after(doc["created_at"])
    return doc, malformed


def parse(data: bytes, lowered: bytes, path: str, needles: Sequence[bytes]) -> tuple[Document, Iterator[Message]]:
    """Return a file's document up to its context, and its messages: at least those that contain one of ``needles``.

    ``lowered`` is ``data`` in lower case, as the needles are; without needles, all messages are returned.
    Raises ValueError if the file is not a session, also while the messages are read.
    """
    head, start = _head(data, path), data.find(_MESSAGES + _MESSAGE)
    if head is None or start < 0 or not data.endswith(b"}]}"):
        head, _ = read_document(path)
        return head, iter(head["messages"])
    return head, _messages(data, lowered, start + len(_MESSAGES), path, needles)


def _messages(data: bytes, lowered: bytes, start: int, path: str, needles: Sequence[bytes]) -> Iterator[Message]:
    """Parse each message that contains a needle, one at a time. If that fails, return all messages."""
    separator, stop = b"}," + _MESSAGE, len(data) - len(b"]}")  # no JSON string contains this separator
    try:
        while start < stop:
            matches = (
                [match for needle in needles if (match := lowered.find(needle, start)) >= 0] if needles else [start]
            )
            if not matches:
                return
            begin = lowered.rfind(separator, start, min(matches))
            end = lowered.find(separator, min(matches)) + 1 or stop
            yield check_message(parse_json_fast(data[start if begin < 0 else begin + 2 : end]))
            start = end + 1
    except (ValueError, RecursionError):  # a message contains an object that begins with an id, too
        yield from read_document(path)[0]["messages"]


def read_head(path: str) -> Document:
    """Return the unchecked document up to its context, from the first block of the file if that is enough.

    A file that another program wrote is read whole.
    Raises ValueError if the file is not a session, OSError if it cannot be read.
    """
    descriptor = os.open(path, _READ)
    try:
        end = data = os.read(descriptor, _BLOCK)
        if len(data) == _BLOCK:  # otherwise the file ends here
            size = _size(descriptor)
            while _CONTEXT not in data and (block := os.read(descriptor, len(data))):
                data += block
            end = os.pread(descriptor, _TAIL, max(0, size - _TAIL))
    finally:
        os.close(descriptor)
    is_ours = end.rstrip().endswith(b"]}")  # otherwise it is incomplete, or has keys after the messages
    return (_head(data, path) if is_ours else None) or read_document(path)[0]


def _head(data: bytes, path: str) -> Document | None:
    """Return the keys before the context, or None if another program wrote the file: ours begins with ``version``.

    No string contains ``_CONTEXT``: its quotes would be escaped. In an inner object the braces would not match.
    """
    end = data.find(_CONTEXT)
    try:
        head = parse_json_fast(data[:end] + b"}") if end > 0 else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(head, dict) or next(iter(head), None) != "version" or "id" not in head:
        return None
    head["id"] = path[-9:-5]
    return head
