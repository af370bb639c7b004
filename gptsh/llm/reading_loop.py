"""The loop that reads an answer of any API: payloads in, events out, until it is complete, partial or empty."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gptsh.content.answer import Answer
from gptsh.errors import ConnectionLost, GptshError, ModelError, NoAnswer, TimedOut, TooLong
from gptsh.messages import Event, Finished


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
            events = answer.new_events()
            is_empty = is_empty and not events
            yield from events
            if is_last:
                break
            if answer.finished:
                limit_wait()
    except (ModelError, TimedOut, TooLong) as err:
        failure = err
    reader.end()
    answer.end()
    events = answer.new_events()
    is_empty = is_empty and events in ([], [Finished(None)])
    if is_empty and isinstance(failure, ConnectionLost):
        raise NoAnswer("the server answered nothing", detail=failure.detail)
    yield from events
    if not answer.finished:
        raise failure
