"""Decide whether to retry a request, and how long to wait before.

Only an error imports this file. A request without a field that the server has refused is no retry:
see ``refusals.py``.
"""

import math
import random
import time

from gptsh.config.settings import Network
from gptsh.errors import LoadingModel, ModelError
from gptsh.text import quantity

_FIRST_PAUSE = 0.5  # seconds before the first retry, with jitter
_LATER_PAUSE = 2.0  # before every later one
_JITTER = (0.75, 1.25)  # times the pause: clients that failed together do not come back together
_LOADING_PAUSE = 2.0  # seconds before a server is asked again that is loading its model
_LONGEST_RETRY_AFTER = 30.0  # seconds; if a server asks for a longer pause, the request fails


class Retries:
    """The retries of one request: at most ``retries`` of the config file.

    While a model is loading, any number.

    It is made at the first failure: a model has ``first_byte_timeout`` from then on to load. No
    retry begins after ``deadline`` (``time.monotonic``).
    """

    def __init__(self, network: Network, deadline: float | None) -> None:
        self._most = network.retries
        self._deadline = deadline
        self._count = 0  # of retries so far
        self._loaded_by = time.monotonic() + network.first_byte_timeout

    def next_pause(self, err: ModelError) -> float | None:
        """Count one more retry; return the seconds to wait before it. None: do not retry."""
        now = time.monotonic()
        seconds = err.retry_after or 0
        is_too_late = self._deadline is not None and now + seconds >= self._deadline
        if seconds > _LONGEST_RETRY_AFTER or (seconds and is_too_late):
            wait = quantity(math.ceil(seconds), "second")
            err.args = (str(err).rstrip(" ."), f"the server asks to wait {wait}")
        if isinstance(err, LoadingModel):
            pause = _LOADING_PAUSE
            longest = self._loaded_by - now
        elif err.can_retry and self._count < self._most:
            pause = _LATER_PAUSE if self._count else _FIRST_PAUSE
            pause *= random.uniform(*_JITTER)
            longest = _LONGEST_RETRY_AFTER
            self._count += 1
        else:
            return None
        if err.retry_after is not None:  # the server's own wish
            pause = err.retry_after
        is_too_late = self._deadline is not None and now + pause >= self._deadline
        return None if pause > longest or is_too_late else pause
