"""What goes out to a model and comes in: a thread that waits for it, JSON whole or in events, the loop that reads it.

Lines are cut on bytes, since JSON may hold U+2028 and other marks of a str's lines.
"""

import json
import math
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Generic, TypeVar

from gptsh.content.answer import LAST_WAIT, Answer
from gptsh.errors import ConnectionLost, GptshError, ModelError, NoAnswer, TimedOut, TooLong
from gptsh.llm.errors import message_in
from gptsh.messages import Event, Finished
from gptsh.text import is_unicode

ADVICE = "is the base URL right?"


def encode(payload: Any) -> bytes:
    """JSON as it is sent. A lone surrogate (an undecodable byte of a pipe) is no UTF-8: U+FFFD goes in its place."""
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if is_unicode(text):  # without copies of two or four bytes a letter: it may hold images
        return text.encode()
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def load(data: bytes) -> dict[str, Any]:
    """A JSON object, its infinities as null. Raises NoAnswer for nothing, ModelError for anything else."""
    if not data.strip():
        raise NoAnswer("the server's answer is empty", ADVICE)
    try:
        payload = json.loads(data, parse_constant=lambda _: None, parse_float=_finite)
    except (ValueError, RecursionError) as err:
        raise ModelError(f"the response is garbage: {err}", ADVICE, detail=shown(data)) from err
    if not isinstance(payload, dict):
        said = message_in(payload)
        raise ModelError(f"the provider reported: {said}" if said else "the response is no JSON object", ADVICE)
    return payload


def as_object(arguments: str) -> dict[str, Any]:
    """The arguments of a tool call as an object; what is none is wrapped in one."""
    if not arguments.strip():
        return {}
    try:
        return load(arguments.encode("utf-8", "surrogatepass"))
    except ModelError:
        return {"arguments": arguments}


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None  # 1e999 could not be saved


def shown(data: bytes) -> str:
    """What --debug tells of a body."""
    return data[:2000].decode("utf-8", "replace")


# ---- waiting

Item = TypeVar("Item")


class Incoming(Generic[Item]):
    """What a thread brings, item by item, so that the main thread hears signals and its clock. ``who`` is named."""

    def __init__(self, items: Iterator[Item], who: str) -> None:
        self._brought: queue.SimpleQueue[Item | BaseException | None] = queue.SimpleQueue()
        self._who, self._until, self._closed = who, math.inf, False  # until: of ``time.monotonic``
        threading.Thread(target=self._bring, args=(items,), daemon=True).start()

    def _bring(self, items: Iterator[Item]) -> None:
        try:
            for item in items:
                self._brought.put(item)
                if self._closed:
                    break
            self._brought.put(None)
        except BaseException as err:  # noqa: BLE001 - it is raised again where it is waited for
            self._brought.put(err)

    def take(self, seconds: float) -> Item | None:
        """The next item, None behind the last. Raises what ended the work, TimedOut where nothing comes in time."""
        left = min(seconds, self._until - time.monotonic())
        try:
            item = self._brought.get(timeout=max(left, 0))
        except queue.Empty:
            todo = "raise first_byte_timeout or idle_timeout under [network]" if self._until == math.inf else ""
            raise TimedOut(f"{self._who} went silent", todo) from None
        if isinstance(item, BaseException):
            raise item
        return item

    def hurry(self, seconds: float = LAST_WAIT) -> None:
        """What still comes is not worth more seconds in all; the first call counts."""
        if self._until == math.inf:
            self._until = time.monotonic() + seconds

    def close(self) -> None:
        """Take no more: the work ends with the next item."""
        self._closed = True


# ---- server-sent events

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_SNIFFED = 6  # bytes that tell an event stream from anything else
_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
DONE: dict[str, Any] = {}  # stands for ``data: [DONE]``


def objects(
    chunks: Iterator[bytes], content_type: str, whole: Callable[[dict[str, Any], bytes], Iterator[dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """The objects of a body, DONE behind ``[DONE]``. Raises ModelError.

    Some servers answer in events or ``whole``, whatever they were asked: the beginning of the body shows it.
    """
    first = start = b""
    while len(start) < _SNIFFED and (chunk := next(chunks, b"")):
        first += chunk
        start = first.lstrip(b"\xef\xbb\xbf \r\n")
        if start.startswith((b":", b"{")):
            break
    chunks = chain([first], chunks)
    if start.startswith(b"{") or not ("event-stream" in content_type or start.startswith(_STARTS)):
        body = b"".join(chunks)
        yield from whole(load(body), body)
        return
    for name, data in payloads(chunks):
        if data.strip() == b"[DONE]":
            yield DONE
            return
        if data.strip():
            payload = load(data)
            if name == "error":
                payload["error"] = payload.get("error") or words_of(payload)
            yield payload


def words_of(error: dict[str, Any]) -> Any:
    """What an error says that stands bare in the place of an answer."""
    return {key: error[key] for key in ("message", "detail", "msg", "code", "type") if key in error} or True


def payloads(chunks: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Each event as ``(name, data)``, the name often empty; cut anywhere by the network. Comments carry nothing.

    An event that the end cuts off before its blank line still counts. Source: the WHATWG HTML standard, section 9.2.6.
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
        elif field and not line.isascii():  # neither a comment nor what any server sends: it was spoilt on its way
            raise ModelError(f"the response is garbage: {line[:20]!r}", ADVICE, detail=shown(line))
        elif field == b"event":
            name = value.decode()
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


# ---- an answer


class Reader:
    """Writes one answer of an API into an ``Answer``."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def take(self, payload: dict[str, Any]) -> bool:
        """One object that the server sent; whether it was the last. Raises ModelError or TooLong for an error in it."""
        raise NotImplementedError

    def end(self) -> None:
        """Write what is known only now, however it ended."""


def read(
    payloads: Iterable[dict[str, Any]], reader: Reader, hurry: Callable[[], None] = lambda: None
) -> Iterator[Event]:
    """What is seen of an answer, as it comes. ``hurry`` is called when only usage may still come.

    Raises ModelError, TimedOut or TooLong for an error inside, BrokenOff for an answer that is not whole, NoAnswer for
    none, behind what came before. Trouble behind a whole answer takes nothing from it.
    """
    answer, is_empty = reader.answer, True
    failure: GptshError = ConnectionLost("the stream broke off before the answer was complete")
    try:
        for payload in payloads:
            is_last = reader.take(payload)
            news = answer.new_events()
            is_empty = is_empty and not news
            yield from news
            if is_last:
                break
            if answer.finished:
                hurry()
    except (ModelError, TimedOut, TooLong) as err:
        failure = err
    reader.end()
    answer.end()
    news = answer.new_events()
    if is_empty and isinstance(failure, ConnectionLost) and news in ([], [Finished(None)]):
        raise NoAnswer("the server answered nothing", detail=failure.detail)
    yield from news
    if not answer.finished:
        raise failure
