"""Server-sent events: bytes in, payloads out. On bytes, since JSON may hold U+2028 and other marks of a str's lines."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_SNIFFED = 6  # bytes that tell an event stream from anything else
_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")


def peeked(chunks: Iterator[bytes], content_type: str) -> tuple[bool, Iterator[bytes]]:
    """Whether a body is an event stream, as it begins, and all of it: some servers answer either way."""
    first = start = b""
    while len(start) < _SNIFFED and (chunk := next(chunks, b"")):
        first += chunk
        start = first.lstrip(b"\xef\xbb\xbf \r\n")
        if start.startswith((b":", b"{")):
            break
    streamed = "event-stream" in content_type or start.startswith(_STARTS)
    return streamed and not start.startswith(b"{"), chain([first], chunks)


def payloads(chunks: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Each event as ``(name, data)``, the name empty where the server gives none; cut anywhere by the network.

    Comments keep a connection alive and carry nothing. An event that the end of the stream cuts off before its
    blank line still counts. Source: the WHATWG HTML standard, section 9.2.6.
    """
    name = ""
    data: list[bytes] = []
    for number, line in enumerate(lines(chunks)):
        if not number:
            line = line.removeprefix(_BOM)
        if not line:
            if data:
                yield name, b"\n".join(data)
            name, data = "", []
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    if data:
        yield name, b"\n".join(data)


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without their ends. Only new bytes are searched: an image in one line comes in thousands of chunks."""
    pieces: list[bytes] = []  # of the line that has not ended
    ended_by_return = False
    for chunk in chunks:
        fresh = chunk[1:] if ended_by_return and chunk.startswith(b"\n") else chunk  # the other half of a line end
        if chunk:
            ended_by_return = chunk.endswith(b"\r")
        first, *others = _LINE_END.split(fresh)
        pieces.append(first)
        if others:
            yield b"".join(pieces)
            yield from others[:-1]
            pieces = [others[-1]]
    if rest := b"".join(pieces):
        yield rest
