"""Read a stream of server-sent events: its bytes as lines, its lines as events, the JSON objects in them.

Lines are split as bytes: JSON may contain U+2028 and other characters at which a str's lines end.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from gptsh.errors import ModelError
from gptsh.llm.json_bodies import ADVICE, debug_text, load
from gptsh.text import format_size

_LINE_END = re.compile(rb"\r\n|\n|\r")
_LONGEST_LINE = 200_000_000  # bytes; a line may be an image
_BOM = b"\xef\xbb\xbf"
_SNIFFED = 6  # bytes that distinguish an event stream from anything else
_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
DONE: dict[str, Any] = {}  # in place of ``data: [DONE]``


def objects(
    chunks: Iterator[bytes], content_type: str, as_stream: Callable[[dict[str, Any], bytes], Iterator[dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a body, and DONE for ``[DONE]``. Raises ModelError.

    Some servers ignore whether streaming was requested: the beginning of the body shows what it is. ``as_stream``
    splits a body that is one object into those that a stream would have sent.
    """
    read, beginning = _sniff(chunks)
    chunks = chain([read], chunks)
    is_json = beginning.startswith((b"{", b"["))
    is_stream = "event-stream" in content_type or beginning.startswith(_STARTS)
    if is_json or not is_stream:
        body = b"".join(chunks)
        yield from as_stream(load(body), body)
        return
    for name, data in events(chunks):
        text = data.strip()
        if text == b"[DONE]":
            yield DONE
            return
        if text:
            payload = load(data)
            if name == "error":
                payload["error"] = payload.get("error") or error_fields(payload)
            yield payload


def _sniff(chunks: Iterator[bytes]) -> tuple[bytes, bytes]:
    """Read as much of a body as shows what it is. Return that, and its beginning without blanks."""
    read = beginning = b""
    while len(beginning) < _SNIFFED and (chunk := next(chunks, b"")):
        read += chunk
        beginning = read.lstrip(_BOM + b" \r\n")
        if beginning.startswith((b":", b"{")):
            break
    return read, beginning


def error_fields(error: dict[str, Any]) -> Any:
    """The message and code of a payload that is itself an error; True if it has none."""
    return {key: error[key] for key in ("message", "detail", "msg", "code", "type") if key in error} or True


def events(chunks: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Parse server-sent events into ``(name, data)``; the name is often empty. Chunks may be split anywhere.

    An event without its final blank line counts too. Source: the WHATWG HTML standard, section 9.2.6.
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
        elif field and not line.isascii():  # no comment and no known field: damaged on its way
            raise ModelError(f"the response is no event stream: {line[:20]!r}", ADVICE, detail=debug_text(line))
        elif field == b"event":
            name = value.decode()
    if data:
        yield name, b"\n".join(data)


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Split into lines without their ends. Only new bytes are searched: an image comes in thousands of chunks.

    Raises ModelError for a line that would fill the memory.
    """
    pieces: list[bytes] = []  # of the line that has not ended
    size = 0  # of the pieces
    ended_by_return = False
    for chunk in chunks:
        # A "\n" at the start is the second half of a line end that was split.
        rest = chunk[1:] if ended_by_return and chunk.startswith(b"\n") else chunk
        if chunk:
            ended_by_return = chunk.endswith(b"\r")
        first, *others = _LINE_END.split(rest)
        pieces.append(first)
        size += len(first)
        if size > _LONGEST_LINE:
            raise ModelError(f"the response has a line of more than {format_size(_LONGEST_LINE)}", ADVICE)
        if others:
            size = len(others[-1])
            yield b"".join(pieces)
            yield from others[:-1]
            pieces = [others[-1]]
    if last := b"".join(pieces):
        yield last
