"""Wait for what a thread receives from a server, until a timeout of ``[network]`` or a signal ends the wait."""

import math
import queue
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Generic, TypeVar

from gptsh.errors import TimedOut

_FINAL_WAIT = 5.0  # seconds to wait for usage after a complete answer, or for the body of an error response
Item = TypeVar("Item")


# Set by a program that no longer waits for its answer; signals end the waits of a command.
left: ContextVar[threading.Event | None] = ContextVar("left", default=None)
_LOOK = 0.1  # seconds between two looks whether it is set


class Incoming(Generic[Item]):
    """Items that a thread produces, so that signals and timeouts reach the main thread. Errors name ``host``."""

    def __init__(self, items: Iterator[Item], host: str) -> None:
        self._left = left.get()
        self._queue: queue.SimpleQueue[Item | BaseException | None] = queue.SimpleQueue()
        self._host, self._is_closed = host, False
        self._deadline = math.inf  # of ``time.monotonic``
        thread = threading.Thread(target=self._produce, args=(items,), daemon=True)
        thread.start()

    def _produce(self, items: Iterator[Item]) -> None:
        """In the thread: put each item into the queue, then None, or the error that ended them."""
        try:
            for item in items:
                self._queue.put(item)
                if self._is_closed:
                    break
            self._queue.put(None)
        except BaseException as err:  # noqa: BLE001 - whatever it is: ``next_item`` raises it in the main thread
            self._queue.put(err)

    def next_item(self, timeout: float) -> Item | None:
        """Wait for the next item; None after the last.

        Raises the thread's error, TimedOut, or BrokenPipeError if the program does not wait any more.
        """
        try:
            item = self._get(time.monotonic() + timeout)
        except queue.Empty:
            has_deadline = self._deadline < math.inf
            todo = "" if has_deadline else "raise first_byte_timeout or idle_timeout under [network]"
            raise TimedOut(f"{self._host} went silent", todo) from None
        if isinstance(item, BaseException):
            raise item
        return item

    def _get(self, until: float) -> Item | BaseException | None:
        """Return the next item, or raise queue.Empty at this time of ``time.monotonic``, or at the deadline."""
        until = min(until, self._deadline)
        if self._left is None:
            return self._queue.get(timeout=max(until - time.monotonic(), 0))
        while True:
            if self._left.is_set():
                raise BrokenPipeError
            seconds = max(until - time.monotonic(), 0)
            try:
                return self._queue.get(timeout=min(seconds, _LOOK))
            except queue.Empty:
                if seconds <= _LOOK:
                    raise

    def limit_wait(self, seconds: float = _FINAL_WAIT) -> None:
        """Wait at most ``seconds`` more for all remaining items. Only the first call counts."""
        if self._deadline == math.inf:
            self._deadline = time.monotonic() + seconds

    def close(self) -> None:
        """Stop the thread after its next item."""
        self._is_closed = True
