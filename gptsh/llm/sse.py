"""Encode requests and read answers: JSON, server-sent events, the thread that waits for data, and the reading loop.

Lines are split as bytes: JSON may contain U+2028 and other characters at which a str's lines end.
"""

import contextlib
import json
import math
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Generic, TypeVar

from gptsh import threads
from gptsh.content.answer import Answer
from gptsh.errors import ConnectionLost, GptshError, ModelError, NoAnswer, TimedOut, TooLong
from gptsh.jsonio import as_dict
from gptsh.llm.errors import message_in, reported_error
from gptsh.messages import Event, Finished
from gptsh.text import is_unicode

ADVICE = "is the base URL right?"
_FINAL_WAIT = 5.0  # seconds to wait for usage after a complete answer, or for the body of an error response
_PIECE = 1_000_000  # characters of a text that are encoded at once
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def encode(payload: Any) -> bytes:
    """Encode JSON as UTF-8. U+FFFD replaces a lone surrogate, which comes from an undecodable byte of a pipe.

    Long texts are encoded in pieces: whole, the text of the JSON would take up to four bytes per character.
    """
    return b"".join(_encoded(payload))


def _encoded(value: Any) -> Iterator[bytes]:
    """The JSON of a value, in pieces."""
    if isinstance(value, dict):
        separator = b"{"
        for key, item in value.items():
            yield b"%b%b:" % (separator, _encode_whole(key))
            yield from _encoded(item)
            separator = b","
        yield b"}" if value else b"{}"
    elif isinstance(value, (list, tuple)):
        separator = b"["
        for item in value:
            yield separator
            yield from _encoded(item)
            separator = b","
        yield b"]" if value else b"[]"
    elif isinstance(value, str) and len(value) > _PIECE:
        yield b'"'
        for start in range(0, len(value), _PIECE):
            yield _encode_whole(value[start : start + _PIECE])[1:-1]
        yield b'"'
    else:
        yield _encode_whole(value)


def _encode_whole(value: Any) -> bytes:
    text = _encoder.encode(value)
    if is_unicode(text):
        return text.encode()
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def load(data: bytes) -> dict[str, Any]:
    """Parse a JSON object, with infinities as null.

    Raises NoAnswer if there is no data, ModelError or TooLong for an error that is not in an object: Google sends a
    list of one error.
    """
    if not data.strip():
        raise NoAnswer("the server's answer is empty", ADVICE)
    try:
        payload = _parse(data)
    except (ValueError, RecursionError) as err:
        raise ModelError(f"the response is not JSON: {err}", ADVICE, detail=debug_text(data)) from err
    if isinstance(payload, dict):
        return payload
    if reason := message_in(payload):
        first = as_dict(payload[0]) if isinstance(payload, list) else {}
        raise reported_error(first.get("error") or reason, first)
    raise ModelError("the response is not a JSON object", ADVICE)


def as_object(arguments: str) -> dict[str, Any]:
    """The arguments of a tool call as an object; anything else is wrapped in one."""
    if not arguments.strip():
        return {}
    with contextlib.suppress(ValueError, RecursionError):
        value = _parse(arguments.encode("utf-8", "surrogatepass"))
        if isinstance(value, dict):
            return value
    return {"arguments": arguments}


def _parse(data: bytes) -> Any:
    return json.loads(data, parse_constant=lambda _: None, parse_float=_finite)


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None  # 1e999 is infinite, and could not be saved


def debug_text(data: bytes) -> str:
    """The beginning of a body, for --debug."""
    return data[:2000].decode("utf-8", "replace")


# ---- waiting

Item = TypeVar("Item")


class Incoming(Generic[Item]):
    """Items that a thread produces, so that signals and timeouts reach the main thread. Errors name ``host``.

    If no thread can start, the caller waits for each item, and only the timeouts of the socket apply.
    """

    def __init__(self, items: Iterator[Item], host: str) -> None:
        self._queue: queue.SimpleQueue[Item | BaseException | None] = queue.SimpleQueue()
        self._host, self._is_closed = host, False
        self._deadline = math.inf  # of ``time.monotonic``
        thread = threading.Thread(target=self._produce, args=(items,), daemon=True)
        self._unthreaded = None if threads.start(thread) else items

    def _produce(self, items: Iterator[Item]) -> None:
        try:
            for item in items:
                self._queue.put(item)
                if self._is_closed:
                    break
            self._queue.put(None)
        except BaseException as err:  # noqa: BLE001 - ``next_item`` raises it in the main thread
            self._queue.put(err)

    def next_item(self, timeout: float) -> Item | None:
        """Wait for the next item; None after the last. Raises the thread's error, or TimedOut."""
        if self._unthreaded is not None:
            return next(self._unthreaded, None)
        seconds_left = min(timeout, self._deadline - time.monotonic())
        try:
            item = self._queue.get(timeout=max(seconds_left, 0))
        except queue.Empty:
            todo = "raise first_byte_timeout or idle_timeout under [network]" if self._deadline == math.inf else ""
            raise TimedOut(f"{self._host} went silent", todo) from None
        if isinstance(item, BaseException):
            raise item
        return item

    def limit_wait(self, seconds: float = _FINAL_WAIT) -> None:
        """Wait at most ``seconds`` more for all remaining items. Only the first call counts."""
        if self._deadline == math.inf:
            self._deadline = time.monotonic() + seconds

    def close(self) -> None:
        """Stop the thread after its next item."""
        self._is_closed = True


# ---- server-sent events

_LINE_END = re.compile(rb"\r\n|\n|\r")
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
    first = start = b""
    while len(start) < _SNIFFED and (chunk := next(chunks, b"")):
        first += chunk
        start = first.lstrip(b"\xef\xbb\xbf \r\n")
        if start.startswith((b":", b"{")):
            break
    chunks = chain([first], chunks)
    if start.startswith((b"{", b"[")) or not ("event-stream" in content_type or start.startswith(_STARTS)):
        body = b"".join(chunks)
        yield from as_stream(load(body), body)
        return
    for name, data in events(chunks):
        if data.strip() == b"[DONE]":
            yield DONE
            return
        if data.strip():
            payload = load(data)
            if name == "error":
                payload["error"] = payload.get("error") or error_fields(payload)
            yield payload


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
    """Split into lines without their ends. Only new bytes are searched: an image comes in thousands of chunks."""
    pieces: list[bytes] = []  # of the line that has not ended
    ended_by_return = False
    for chunk in chunks:
        # A "\n" at the start is the second half of a line end that was split.
        rest = chunk[1:] if ended_by_return and chunk.startswith(b"\n") else chunk
        if chunk:
            ended_by_return = chunk.endswith(b"\r")
        first, *others = _LINE_END.split(rest)
        pieces.append(first)
        if others:
            yield b"".join(pieces)
            yield from others[:-1]
            pieces = [others[-1]]
    if last := b"".join(pieces):
        yield last


# ---- an answer


class Reader:
    """Writes the payloads of one answer into an ``Answer``. Each API has its own."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def add(self, payload: dict[str, Any]) -> bool:
        """Read one object from the server; whether it was the last. Raises ModelError or TooLong for an error in it."""
        raise NotImplementedError

    def end(self) -> None:
        """Write what is known only at the end, also of a partial answer."""


def read(
    payloads: Iterable[dict[str, Any]], reader: Reader, limit_wait: Callable[[], None] = lambda: None
) -> Iterator[Event]:
    """Read an answer and yield its events as they come. ``limit_wait`` is called once only usage may still come.

    After the events it raises ModelError, TimedOut or TooLong for an error in the answer, ConnectionLost for a partial
    one, NoAnswer for an empty one. Errors after a complete answer are ignored.
    """
    answer, is_empty = reader.answer, True
    failure: GptshError = ConnectionLost("the stream broke off before the answer was complete")
    try:
        for payload in payloads:
            is_last = reader.add(payload)
            new = answer.new_events()
            is_empty = is_empty and not new
            yield from new
            if is_last:
                break
            if answer.finished:
                limit_wait()
    except (ModelError, TimedOut, TooLong) as err:
        failure = err
    reader.end()
    answer.end()
    new = answer.new_events()
    if is_empty and isinstance(failure, ConnectionLost) and new in ([], [Finished(None)]):
        raise NoAnswer("the server answered nothing", detail=failure.detail)
    yield from new
    if not answer.finished:
        raise failure
