"""Session files as bytes: the lock, atomic replacement, and reading a head without its messages.

``write_document`` begins a new line before the context, the usage and each message. JSON has no line breaks within a
string, so lines of such a file are safe to read alone: a list reads the first, a search those with a word.
"""

import contextlib
import errno
import fcntl
import functools
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import is_
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

from gptsh.content.foreign import normalize_message
from gptsh.core.document import Document, check_message, drop_secrets, parse_document, stats, update_totals
from gptsh.errors import StoreBusy, StoreError
from gptsh.jsonio import encode_json, parse_json, parse_json_fast
from gptsh.messages import Message, just_after
from gptsh.text import format_size

if TYPE_CHECKING:
    from gptsh.core.usage import Counted

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")

LOCK_WAIT = 5.0  # seconds; a save holds the lock for milliseconds
SHORT_LOCK_WAIT = 3.0  # seconds; for a save before the model is asked
_PAUSE, _LONG_PAUSE = 0.005, 0.05  # seconds between two attempts; each costs a network file system several messages
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)  # some NFS, FUSE and WSL mounts
_DAY = 86_400  # seconds
STALE_AFTER = 3600  # seconds; an older temporary file was left by a killed process
_BLOCK = 4096  # bytes; holds the first line of nearly every session
_LARGE = 200_000  # bytes that are parsed in the time of the fast parser's import
_TEMPORARY = re.compile(r".+\.[0-9]+\.[0-9a-f]{6}\.tmp", re.DOTALL)  # as ``_replace`` names them
_TAIL = 64  # bytes; enough for the end of the messages
_USAGE, _MESSAGES, _END = b'"message_usage":', b'"messages":[', b"]}"  # begin lines of our layout
_PIECE = 1_000_000  # bytes copied at once
_MAX_SIZE = 1_000_000_000  # bytes; a larger file is not read
LIST_LIMIT = 200_000_000  # bytes; of a file that a list, a search or the usage would read whole
_OURS = b'{"version":'  # begins every file of our layout
_READ = os.O_RDONLY | os.O_NONBLOCK  # O_NONBLOCK: do not wait for a named pipe in the folder
_IS_LINK = (errno.ELOOP, errno.EMLINK)  # of O_NOFOLLOW; the other one is FreeBSD's
_LEVELS = 4  # folders from a file of the store up to the state folder
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP)  # CIFS and FUSE, for a folder: the names in it are written all the same


def refuse_foreign_links(path: Path | str) -> None:
    """Raise OSError if the path, or one of the folders that lead to it within the store, is a link of another user.

    Such a link could have a file of this user overwritten. One's own links lead to a synced folder, or to another disk.
    """
    for place in (Path(path), *Path(path).parents[:_LEVELS]):
        with contextlib.suppress(FileNotFoundError):
            status = place.lstat()
            if stat.S_ISLNK(status.st_mode) and is_foreign(status):
                raise OSError(errno.ELOOP, "a link of another user", str(place))


def is_foreign(status: os.stat_result) -> bool:
    """Whether a file belongs neither to this user nor to root."""
    return status.st_uid not in (os.geteuid(), 0)


def open_own(path: Path | str, flags: int) -> int:
    """Open a file, with mode 0600 if it is created; by a link only if that is this user's own, or root's.

    Raises OSError.
    """
    try:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as err:
        if err.errno not in _IS_LINK:
            raise
    refuse_foreign_links(path)
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def is_due(stamp: Path, seconds: float) -> bool:
    """Whether so many seconds have passed since this was true for the stamp, an empty file."""
    with contextlib.suppress(OSError):
        if stamp.exists() and time.time() - stamp.stat().st_mtime < seconds:
            return False
        stamp.touch(mode=0o600)
    return True


def _again_if_stale(work: Callable[_Args, _Result]) -> Callable[_Args, _Result]:
    """Let a function run once more after ESTALE: another machine of a network replaced a file meanwhile."""

    @functools.wraps(work)
    def call(*args: _Args.args, **more: _Args.kwargs) -> _Result:
        try:
            return work(*args, **more)
        except OSError as err:
            if err.errno != errno.ESTALE:
                raise
        return work(*args, **more)

    return call


@contextlib.contextmanager
def locked(path: Path, wait: float = LOCK_WAIT, note: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the lock file while the block runs.

    It is no session file: replacing that would leave the lock on a dead inode. A file system without locks gets a
    file beside it; ``note`` receives a line about that, once a day. Raises StoreBusy if another process holds the lock
    for more than ``wait`` seconds, OSError if it cannot be created.
    """
    with contextlib.ExitStack() as stack:
        descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
        stack.callback(os.close, descriptor)
        if os.fstat(descriptor).st_mode & 0o077:
            with contextlib.suppress(PermissionError):  # owned by another user, who shares it on purpose
                os.fchmod(descriptor, 0o600)
        try:
            _take(lambda: _flock(descriptor), path, wait, _PAUSE)
        except OSError as err:
            if err.errno not in _NO_LOCKS:
                raise
            from gptsh.core.lock_files import LockFile  # noqa: PLC0415 - few file systems have no locks

            lock = LockFile(path)
            _take(lock.take, path, wait, _LONG_PAUSE)
            stack.callback(lock.release)
            if note and is_due(path.with_name(f"{path.name}.noted"), _DAY):
                note(f"{path.parent} is on a file system without locks: gptsh uses a lock file there")
        yield


def _take(take: Callable[[], bool], path: Path, wait: float, longest: float) -> None:
    """Try to take a lock until it is taken, with pauses of at most ``longest`` seconds. Raises StoreBusy."""
    deadline, pause = time.monotonic() + wait, 0.001
    while not take():
        if time.monotonic() > deadline:
            raise StoreBusy(f"{path} is locked by another process", "try again")
        time.sleep(pause)
        pause = min(pause * 1.5, longest)


def _flock(descriptor: int) -> bool:
    """Lock an open file; False if another process has locked it. Raises OSError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@_again_if_stale
def replace(path: Path, data: bytes, *, fsync: bool) -> None:
    """Replace the file, or the target of one's own link, atomically with mode 0600. ``fsync`` waits for the disk.

    Raises OSError: the file was not replaced, or may not be on disk yet.
    """
    _replace(path, [data], fsync=fsync)


def _replace(path: Path, pieces: Iterable[bytes], *, fsync: bool) -> None:
    refuse_foreign_links(path)
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f"{target.name}.{os.getpid()}.{os.urandom(3).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with contextlib.ExitStack() as undo:
        undo.callback(temporary.unlink, missing_ok=True)
        with open(descriptor, "wb", buffering=0) as file:
            for piece in pieces:
                view = memoryview(piece)
                while view:
                    view = view[file.write(view) :]
            if fsync:
                _fsync(descriptor)
        os.replace(temporary, target)
        undo.pop_all()
    if fsync:
        sync(target.parent)


@_again_if_stale
def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk; not where a file system has no way to wait.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _fsync(descriptor)
    finally:
        os.close(descriptor)


def _fsync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as err:
        if err.errno not in _NO_SYNC:
            raise


@contextlib.contextmanager
def as_store_error(problem: str, folder: Path) -> Iterator[None]:
    """Raise an OSError of the block as StoreError: ``problem``, then the file or else ``folder``."""
    try:
        yield
    except OSError as err:
        raise StoreError(f"{problem}: {err.filename2 or err.filename or folder}: {err.strerror}") from err


def sweep(folder: Path, names: list[str]) -> None:
    """Remove those temporary files among ``names`` that a killed process left. Other programs have their own."""
    for name in filter(is_temporary, names):
        with contextlib.suppress(OSError):  # another process swept it first
            if time.time() - (folder / name).stat().st_mtime > STALE_AFTER:
                (folder / name).unlink()


def is_temporary(name: str) -> bool:
    """Whether a file is one that is to replace another."""
    return bool(_TEMPORARY.fullmatch(name))


class _Latest(NamedTuple):
    """The file that this process read or wrote last: as long as it has not changed, its messages are known.

    ``start`` and ``end`` are the positions of its first message, and of the byte after its last one.
    """

    path: str
    version: tuple[int, ...]
    messages: list[Message]
    start: int
    end: int


class _Memory(threading.local):
    """What a thread remembers: the file that it read or wrote last."""

    latest: _Latest | None = None


_memory = _Memory()


def _version(status: os.stat_result) -> tuple[int, ...]:
    """What changes with each change of a file: another program replaces it, or writes it."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@_again_if_stale
def write_document(path: Path, doc: Document, *, fsync: bool) -> None:
    """Replace a document's file, with its totals and without secrets. Raises OSError, StoreError if it is not JSON.

    The messages that the file has already are copied from it, since no message ever changes.
    """
    from gptsh.core.usage import message_usage  # noqa: PLC0415 - lists write nothing

    update_totals(doc)
    drop_secrets(doc)
    keys, messages = list(doc), doc["messages"]
    first = {key: doc[key] for key in keys[: keys.index("context")]}
    rest = {key: doc[key] for key in keys if key not in first and key != "messages"}
    with contextlib.ExitStack() as closing:
        source, latest = _unchanged(path, closing)
        known = latest.messages if latest and all(map(is_, latest.messages, messages)) else []
        known = known if len(known) <= len(messages) else []
        try:
            lines = [*map(encode_json, (first, rest)), encode_json(message_usage(doc))]
            new = list(map(encode_json, messages[len(known) :]))
        except ValueError as err:
            raise StoreError(f"the session cannot be saved: {err}") from err
        head = b"%b,\n%b,\n%b%b,\n%b\n" % (lines[0][:-1], lines[1][1:-1], _USAGE, lines[2], _MESSAGES)
        tail = b",\n".join(new)
        separator = b",\n" if known and new else b""
        size = latest.end - latest.start if latest and known else 0
        old = _pieces(source, latest.start, size) if latest and known else ()
        _replace(path, chain([head], old, [separator, tail, b"\n" + _END]), fsync=fsync)
    end = len(head) + size + len(separator) + len(tail)
    _memory.latest = _Latest(os.path.realpath(path), _version(path.stat()), list(messages), len(head), end)


def _unchanged(path: Path, closing: contextlib.ExitStack) -> tuple[int, _Latest | None]:
    """The open file and what is known of it, or None if it is not the latest one or has changed."""
    latest = _memory.latest
    if latest is None or latest.path != os.path.realpath(path):
        return -1, None
    try:
        descriptor = open_own(path, _READ)
    except FileNotFoundError:
        return -1, None
    closing.callback(os.close, descriptor)
    return descriptor, latest if _version(os.fstat(descriptor)) == latest.version else None


def _pieces(descriptor: int, start: int, size: int) -> Iterator[bytes]:
    """A part of a file, a megabyte at a time. Raises OSError if the file is shorter."""
    end = start + size
    while start < end:
        piece = os.pread(descriptor, min(_PIECE, end - start), start)
        if not piece:
            raise OSError(errno.EIO, "the file has become shorter")
        yield piece
        start += len(piece)


def read_bytes(path: Path | str, limit: int = _MAX_SIZE) -> bytes:
    """Return the bytes of a file, in half the time of ``Path.read_bytes``. Raises OSError, also as ``_size`` does."""
    return _read(path, limit)[1]


@_again_if_stale
def _read(path: Path | str, limit: int = _MAX_SIZE) -> tuple[tuple[int, ...], bytes]:
    """The version of a file and its bytes."""
    descriptor = open_own(path, _READ)
    try:
        size, version, data = _size(descriptor, limit), _version(os.fstat(descriptor)), b""
        while len(data) < size and (piece := os.read(descriptor, size - len(data))):  # usually one read
            data += piece
        return version, data
    finally:
        os.close(descriptor)


def _size(descriptor: int, limit: int = _MAX_SIZE) -> int:
    """Return the size of a file in bytes. Raises OSError for a device, a pipe or a file beyond the limit."""
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if status.st_size > limit:
        raise _too_large(limit)
    return status.st_size


def _too_large(limit: int) -> OSError:
    return OSError(errno.EFBIG, f"larger than {format_size(limit)}")


@_again_if_stale
def read_document(path: Path | str, limit: int = _MAX_SIZE) -> tuple[Document, list[str]]:
    """Return the whole document, its id taken from the file name, and the paths of malformed parts, which are left out.

    Of the file that this process read or wrote last, and that has not changed, only the head is read again.
    Raises ValueError if the file is not a session, OSError if it cannot be read.
    """
    with contextlib.ExitStack() as closing:
        descriptor, latest = _unchanged(Path(path), closing)
        if latest:
            head = b"".join(_pieces(descriptor, 0, latest.start))
            doc, malformed = parse_file(head + _END, os.fspath(path))
            doc["messages"] = list(latest.messages)
            doc["stats"] |= stats(doc["messages"], doc["stats"]["preview"])
            return doc, malformed
    version, data = _read(path, limit)
    doc, malformed = parse_file(data, os.fspath(path))
    _memory.latest = None
    if (start := _start_of_messages(data)) is not None and not malformed:
        end = len(data) - len(_END) - 1
        _memory.latest = _Latest(os.path.realpath(path), version, list(doc["messages"]), start, end)
    return doc, malformed


def parse_file(data: bytes, path: str) -> tuple[Document, list[str]]:
    """Return what ``read_document`` does, from the bytes of a file; only the name at the end of ``path`` is used."""
    try:
        value = parse_json_fast(data) if len(data) > _LARGE else parse_json(data.decode())
    except (ValueError, RecursionError) as err:
        raise ValueError(f"not JSON: {err}") from err
    name = path[-25:]  # yyyyMMdd-HHMMSS-id.json
    default_time = f"{name[:4]}-{name[4:6]}-{name[6:8]}T{name[9:11]}:{name[11:13]}:{name[13:15]}.000Z"
    doc, malformed = parse_document(value, name[16:20], default_time)
    if doc["updated_at"] == doc["created_at"]:  # other programs write this; here it would mean never saved
        doc["updated_at"] = just_after(doc["created_at"])
    return doc, malformed


# ---- a part of a file


def read_head(path: str) -> Document:
    """Return the unchecked document up to its context: the first line of the file.

    A file that another program wrote is read whole, up to ``LIST_LIMIT``.
    Raises ValueError if the file is not a session, OSError if it cannot be read.
    """
    data = _beginning(path, lines=1)
    return (data and _head(data, path)) or read_document(path, LIST_LIMIT)[0]


def read_usage(path: str) -> "Counted":
    """Return a document, without its messages if gptsh wrote the file, and the usage of its messages.

    Raises ValueError if the file is not a session, OSError if it cannot be read.
    """
    from gptsh.core import usage  # noqa: PLC0415 - lists need no sums

    data = _beginning(path, lines=3)
    if data and (head := _head(data, path)):
        line = data.split(b"\n", 3)[2]
        with contextlib.suppress(ValueError, RecursionError):  # another program changed the line
            entries = parse_json_fast(line[len(_USAGE) :].removesuffix(b",")) if line.startswith(_USAGE) else None
            if usage.is_message_usage(entries):
                return parse_document({**head, "messages": []}, head["id"])[0], entries
    return usage.counted(read_document(path, LIST_LIMIT)[0])


@_again_if_stale
def _beginning(path: str, lines: int) -> bytes | None:
    """The beginning of a file with so many lines, if there are as many; None if it does not look like ours.

    Raises OSError, also if these lines are too long.
    """
    descriptor = open_own(path, _READ)
    try:
        end = data = os.read(descriptor, _BLOCK)
        if len(data) == _BLOCK:  # otherwise the file ends here
            end = os.pread(descriptor, _TAIL, max(0, _size(descriptor) - _TAIL))
        is_ours = data.startswith(_OURS) and end.rstrip().endswith(_END)
        if not is_ours:  # or it is torn, or has keys after the messages
            return None
        while data.count(b"\n") < lines and (block := os.read(descriptor, len(data))):
            data += block
            if len(data) > LIST_LIMIT:
                raise _too_large(LIST_LIMIT)
        return data
    finally:
        os.close(descriptor)


def _head(data: bytes, path: str) -> Document | None:
    """Return the keys of the first line, or None if another program wrote the file: ours begins with ``version``."""
    line = data[: data.find(b"\n")]
    try:
        head = parse_json_fast(line[:-1] + b"}") if line.endswith(b",") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(head, dict) or next(iter(head), None) != "version" or "id" not in head:
        return None
    head["id"] = path[-9:-5]
    return head


def _start_of_messages(data: bytes) -> int | None:
    """The position of the first message in the bytes of a file, or None if another program wrote it."""
    marker = b"\n" + _MESSAGES + b"\n"
    at = data.find(marker)
    lines = data[:at].split(b"\n") if at > 0 and data.endswith(b"\n" + _END) else ()
    is_ours = len(lines) == 3 and lines[1].startswith(b'"context":') and lines[2].startswith(_USAGE)
    return at + len(marker) if is_ours else None


def parse_some(data: bytes, path: str, is_wanted: Callable[[bytes], bool]) -> tuple[Document, Iterator[Message]]:
    """Return a file's document or its head, and its messages: at least those whose bytes are wanted.

    Raises ValueError if the file is not a session, also while the messages are read.
    """
    start, head = _start_of_messages(data), _head(data, path)
    if start is None or head is None:
        doc, _ = parse_file(data, path)
        return doc, iter(doc["messages"])
    lines = _lines(data, start, len(data) - len(_END) - 1)
    return head, (
        message
        for line in lines
        if is_wanted(line)
        for message in normalize_message(check_message(parse_json_fast(line)))
    )


def _lines(data: bytes, start: int, end: int) -> Iterator[bytes]:
    """The lines of a part of the data, without the commas at their ends."""
    while start < end:
        stop = data.find(b"\n", start, end)
        stop = end if stop < 0 else stop
        yield data[start:stop].removesuffix(b",")
        start = stop + 1
