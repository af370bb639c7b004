"""Decide whether to retry a request, and how long to wait before.

Only an error imports this file. A request without a field that the server has refused is no retry:
see ``refusals.py``.
"""

import math
import random
import time
from typing import NamedTuple

from gptsh.config.settings import Network
from gptsh.errors import LoadingModel, ModelError
from gptsh.text import quantity

_FIRST_PAUSE = 0.5  # seconds before the first retry, with jitter
_LATER_PAUSE = 2.0  # before every later one
_JITTER = (0.75, 1.25)  # times the pause: clients that failed together do not come back together
_LOADING_PAUSE = 2.0  # seconds before a server is asked again that is loading its model
_LONGEST_RETRY_AFTER = 30.0  # seconds; if a server asks for a longer pause, the request fails


class Decision(NamedTuple):
    """What to do after a failure: wait ``pause`` seconds and retry, or report it if that is None.

    ``advice`` says how long the server asks to wait, if that is longer than gptsh likes to.
    """

    pause: float | None
    advice: str = ""


class Retries:
    """The retries of one request.

    There are at most ``retries`` of the config file, but any number while a model is loading. It
    may load for ``first_byte_timeout``, from the first failure on, when this object is made. No
    retry begins after ``deadline`` (``time.monotonic``).
    """

    def __init__(self, network: Network, deadline: float | None) -> None:
        self._most = network.retries
        self._deadline = deadline
        self._count = 0  # of retries so far
        self._loaded_by = time.monotonic() + network.first_byte_timeout

    def decide(self, err: ModelError) -> Decision:
        """Decide whether to retry after an error, and count the retry."""
        now = time.monotonic()
        advice = ""
        seconds = err.retry_after
        if seconds and (seconds > _LONGEST_RETRY_AFTER or self._is_too_late(now + seconds)):
            advice = f"the server asks you to wait {quantity(math.ceil(seconds), 'second')}"

        if isinstance(err, LoadingModel):
            pause = _LOADING_PAUSE
            longest = self._loaded_by - now
        elif err.can_retry and self._count < self._most:
            pause = _LATER_PAUSE if self._count else _FIRST_PAUSE
            pause *= random.uniform(*_JITTER)
            longest = _LONGEST_RETRY_AFTER
            self._count += 1
        else:
            return Decision(None, advice)
        if err.retry_after is not None:  # the server knows better
            pause = err.retry_after
        if pause > longest or self._is_too_late(now + pause):
            return Decision(None, advice)
        return Decision(pause, advice)

    def _is_too_late(self, time_of_retry: float) -> bool:
        return self._deadline is not None and time_of_retry >= self._deadline
