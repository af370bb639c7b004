"""The bytes of a session file: the order of its lines, written and read whole, or only its head for a list.

``write_document`` begins a new line before the context, the usage and each message. JSON has no line breaks within a
string, so lines of such a file are safe to read alone: a list reads the first, a search those with a word.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import is_
from pathlib import Path
from typing import TYPE_CHECKING

from gptsh.core.document import (
    Document,
    check_message,
    drop_secrets,
    parse_counted,
    parse_document,
    stats,
    update_totals,
)
from gptsh.core.files import (
    MAX_SIZE,
    READ,
    Version,
    again_if_stale,
    open_own,
    read_version,
    replace_pieces,
    size_of,
    too_large,
    version_of,
)
from gptsh.errors import StoreError
from gptsh.jsonio import encode_json, parse_json, parse_json_fast
from gptsh.messages import Message, just_after
from gptsh.records import NamedTuple

if TYPE_CHECKING:
    from gptsh.core.usage import Counted

LIST_LIMIT = 200_000_000  # bytes; of a file that a list, a search or the usage would read whole
_BLOCK = 4096  # bytes; holds the first line of nearly every session
_LARGE = 200_000  # bytes that are parsed in the time of the fast parser's import
_TAIL = 64  # bytes; enough for the end of the messages
_USAGE, _MESSAGES, _END = b'"message_usage":', b'"messages":[', b"]}"  # begin lines of our layout
_PIECE = 1_000_000  # bytes copied at once
_OURS = b'{"version":'  # begins every file of our layout


class _KnownFile(NamedTuple):
    """A file whose messages are known as long as it has not changed.

    ``start`` and ``end`` are the positions of its first message, and of the byte after its last one.
    """

    path: str
    version: Version
    messages: Sequence[Message]
    start: int
    end: int


class _LatestFile(threading.local):
    """The file that a thread read or wrote last."""

    _known: _KnownFile | None = None

    def remember(self, path: Path | str, version: Version, messages: Sequence[Message], start: int, end: int) -> None:
        """Record the messages of a file, and where they stand in it."""
        self._known = _KnownFile(os.path.realpath(path), version, list(messages), start, end)

    def forget(self) -> None:
        """Record that nothing is known of any file."""
        self._known = None

    @contextlib.contextmanager
    def opened(self, path: Path) -> Iterator[tuple[int, _KnownFile | None]]:
        """Open a file in the block if it is the latest one; yield what is known of it, None if it has changed."""
        known = self._known
        if known is None or known.path != os.path.realpath(path):
            yield -1, None
            return
        try:
            descriptor = open_own(path, READ)
        except FileNotFoundError:
            yield -1, None
            return
        try:
            yield descriptor, known if version_of(os.fstat(descriptor)) == known.version else None
        finally:
            os.close(descriptor)


_latest = _LatestFile()


@again_if_stale
def write_document(path: Path, doc: Document, *, fsync: bool) -> None:
    """Replace a document's file, with its totals and without secrets. Raises OSError, StoreError if it is not JSON.

    The messages that the file has already are copied from it, since no message ever changes.
    """
    from gptsh.core.message_usage import message_usage

    update_totals(doc)
    drop_secrets(doc)
    keys, messages = list(doc), doc["messages"]
    first = {key: doc[key] for key in keys[: keys.index("context")]}
    rest = {key: doc[key] for key in keys if key not in first and key != "messages"}
    with _latest.opened(path) as (source, known):
        start = end = count = 0
        if known and 0 < len(known.messages) <= len(messages) and all(map(is_, known.messages, messages)):
            start, end, count = known.start, known.end, len(known.messages)
        try:
            lines = [*map(encode_json, (first, rest)), encode_json(message_usage(doc))]
            new = list(map(encode_json, messages[count:]))
        except ValueError as err:
            raise StoreError(f"the session cannot be saved: {err}") from err
        head = b"%b,\n%b,\n%b%b,\n%b\n" % (lines[0][:-1], lines[1][1:-1], _USAGE, lines[2], _MESSAGES)
        separator = b",\n" if count and new else b""
        tail = separator + b",\n".join(new)
        replace_pieces(path, chain([head], _pieces(source, start, end - start), [tail, b"\n" + _END]), fsync=fsync)
    size = len(head) + end - start + len(tail)
    _latest.remember(path, version_of(path.stat()), messages, len(head), size)


def _pieces(descriptor: int, start: int, size: int) -> Iterator[bytes]:
    """A part of a file, a megabyte at a time. Raises OSError if the file is shorter."""
    end = start + size
    while start < end:
        piece = os.pread(descriptor, min(_PIECE, end - start), start)
        if not piece:
            raise OSError(errno.EIO, "the file has become shorter")
        yield piece
        start += len(piece)


@again_if_stale
def read_document(path: Path | str, limit: int = MAX_SIZE) -> tuple[Document, list[str]]:
    """Return the whole document, its id taken from the file name, and the paths of malformed parts, which are left out.

    Of the file that this thread read or wrote last, and that has not changed, only the head is read again.
    Raises ValueError if the file is not a session, OSError if it cannot be read.
    """
    with _latest.opened(Path(path)) as (descriptor, known):
        if known:
            head = b"".join(_pieces(descriptor, 0, known.start))
            doc, malformed = parse_file(head + _END, os.fspath(path))
            doc["messages"] = list(known.messages)
            doc["stats"] |= stats(doc["messages"], doc["stats"]["preview"])
            return doc, malformed
    version, data = read_version(path, limit)
    doc, malformed = parse_file(data, os.fspath(path))
    start = None if malformed else _start_of_messages(data)
    if start is None:
        _latest.forget()
    else:
        _latest.remember(path, version, doc["messages"], start, len(data) - len(_END) - 1)
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
    """Return a document and the usage of its messages; if gptsh wrote the file, only the keys that a sum needs.

    Raises ValueError if the file is not a session, OSError if it cannot be read.
    """
    from gptsh.core import message_usage, usage

    data = _beginning(path, lines=3)
    if data and (head := _head(data, path)):
        line = data.split(b"\n", 3)[2]
        with contextlib.suppress(ValueError, RecursionError):  # another program changed the line
            entries = parse_json_fast(line[len(_USAGE) :].removesuffix(b",")) if line.startswith(_USAGE) else None
            if message_usage.is_message_usage(entries):
                return parse_counted(head), entries
    return usage.counted(read_document(path, LIST_LIMIT)[0])


@again_if_stale
def _beginning(path: str, lines: int) -> bytes | None:
    """The beginning of a file with so many lines, if there are as many; None if it does not look like ours.

    Raises OSError, also if these lines are too long.
    """
    descriptor = open_own(path, READ)
    try:
        end = data = os.read(descriptor, _BLOCK)
        if len(data) == _BLOCK:  # otherwise the file ends here
            end = os.pread(descriptor, _TAIL, max(0, size_of(descriptor) - _TAIL))
        is_ours = data.startswith(_OURS) and end.rstrip().endswith(_END)
        if not is_ours:  # or it is torn, or has keys after the messages
            return None
        while data.count(b"\n") < lines and (block := os.read(descriptor, len(data))):
            data += block
            if len(data) > LIST_LIMIT:
                raise too_large(LIST_LIMIT)
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
    from gptsh.content.foreign import normalize_message

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
