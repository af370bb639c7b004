"""Server-sent events: bytes in, payloads out. On bytes, since JSON may hold U+2028 and other marks of a str's lines."""

import re
from collections.abc import Iterable, Iterator

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


def payloads(chunks: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Each event as ``(name, data)``, the name empty where the server gives none; cut anywhere by the network.

    Comments keep a connection alive and carry nothing. An event that the end of the stream cuts off before its
    blank line still counts. Source: the WHATWG HTML standard, section 9.2.6.
    """
    name = ""
    data: list[bytes] = []
    for line in _lines(chunks):
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


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest, first = b"", True
    for chunk in chunks:
        rest += chunk
        if first and len(rest) >= len(_BOM):
            rest, first = rest.removeprefix(_BOM), False
        if first:
            continue
        held = rest.endswith(b"\r")  # the line feed of this line end may come with the next chunk
        *lines, rest = _LINE_END.split(rest[:-1] if held else rest)
        yield from lines
        rest += b"\r" if held else b""
    yield from (line for line in _LINE_END.split(rest.removeprefix(_BOM) if first else rest) if line)
