"""Read and write the bytes of a session file: whole, or only its first line for a list.

``write_document`` begins a new line before the context and before each message. JSON has no line breaks within a
string, so lines of such a file are safe to read alone: a list reads the first, a search those with a word.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gptsh.core.document import Document, check_message, drop_secrets, parse_document
from gptsh.errors import StoreError
from gptsh.files import MAX_SIZE, READ, again_if_stale, open_own, read_bytes, replace_pieces, size_of, too_large
from gptsh.jsonio import JsonObject, encode_json, parse_json, parse_json_fast
from gptsh.messages import Message, just_after

Head = Mapping[str, object]  # the unchecked keys of a document, at least those before its context
LIST_LIMIT = 200_000_000  # bytes; of a file that a list, a search or the usage would read whole
_BATCH = 100  # messages that are written at once
_BLOCK = 4096  # bytes; holds the first line of nearly every session
_LARGE = 200_000  # bytes that are parsed in the time of the fast parser's import
_TAIL = 64  # bytes; enough for the end of the messages
_OURS = b'{"version":'  # begins every file of our layout
_MESSAGES = b'"messages":['  # its third line
_END = b"]}"  # its last line


@again_if_stale
def write_document(path: Path, doc: Document, *, fsync: bool) -> None:
    """Replace a document's file, without secrets; its totals are those of ``usage.update_totals``.

    Raises OSError, StoreError if it is not JSON.
    """
    drop_secrets(doc)
    try:
        replace_pieces(path, _encode(doc), fsync=fsync)
    except ValueError as err:
        raise StoreError(f"the session cannot be saved: {err}") from err


def _encode(doc: Document) -> Iterator[bytes]:
    """The bytes of a document, a hundred messages at a time. Raises ValueError if it is not JSON."""
    start = list(doc).index("context")
    items = list(doc.items())
    head = dict(items[:start])
    rest = {key: value for key, value in items[start:] if key != "messages"}
    first_line = encode_json(head)[:-1]
    second_line = encode_json(rest)[1:-1]
    yield b"%b,\n%b,\n%b\n" % (first_line, second_line, _MESSAGES)
    separator = b""
    messages = doc["messages"]
    for start in range(0, len(messages), _BATCH):
        lines = [encode_json(message) for message in messages[start : start + _BATCH]]
        yield separator + b",\n".join(lines)
        separator = b",\n"
    yield b"\n" + _END


@again_if_stale
def read_document(path: Path | str, limit: int = MAX_SIZE) -> tuple[Document, list[str]]:
    """Return the whole document, its id taken from the file name, and the paths of malformed parts, which are left out.

    Raises ValueError if the file is not a session, OSError if it cannot be read.
    """
    return parse_file(read_bytes(path, limit), os.fspath(path))


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


def read_head(path: str) -> Head:
    """Return the unchecked document up to its context: the first line of the file.

    A file that another program wrote is read whole, up to ``LIST_LIMIT``.
    Raises ValueError if the file is not a session, OSError if it cannot be read.
    """
    data = _beginning(path)
    return (data and _head(data, path)) or read_document(path, LIST_LIMIT)[0]


@again_if_stale
def _beginning(path: str) -> bytes | None:
    """The beginning of a file with its first line; None if it does not look like ours.

    Raises OSError, also if the line is too long.
    """
    descriptor = open_own(path, READ)
    try:
        end = data = os.read(descriptor, _BLOCK)
        if len(data) == _BLOCK:  # otherwise the file ends here
            end = os.pread(descriptor, _TAIL, max(0, size_of(descriptor) - _TAIL))
        is_ours = data.startswith(_OURS) and end.rstrip().endswith(_END)
        if not is_ours:  # or it is torn, or has keys after the messages
            return None
        while b"\n" not in data:
            block = os.read(descriptor, len(data))
            if not block:
                break
            data += block
            if len(data) > LIST_LIMIT:
                raise too_large(LIST_LIMIT)
        return data
    finally:
        os.close(descriptor)


def _head(data: bytes, path: str) -> JsonObject | None:
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
    is_ours = len(lines) == 2 and lines[1].startswith(b'"context":')
    return at + len(marker) if is_ours else None


def parse_some(
    data: bytes,
    path: str,
    is_wanted: Callable[[bytes], bool],
) -> tuple[Head, Iterator[Message]]:
    """Return a file's document or its head, and its messages: at least those whose bytes are wanted.

    Raises ValueError if the file is not a session, also while the messages are read.
    """
    from gptsh.content.shapes import normalize_message

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
