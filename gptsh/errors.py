"""Define every failure that gptsh reports, each class with its exit code.

GptshError                      1
├── UsageError                  2   options, prompt, unreadable input
│   ├── ConfigError             2   config file and environment, missing keys
│   ├── UnknownSession          2   a reference to no session, or to several
│   └── BadSession              2   a session file that cannot be read or written
├── OutputError                 1   stdout cannot be written
├── StoreError                  1   the state folder cannot be written
│   ├── StoreBusy               1   another process held the store's lock for too long
│   └── SessionGone             1   deleted between reading and saving
├── ModelError                  1   the model or the network failed
│   ├── EmptyAnswer             1   the model finished without any text
│   ├── ConnectionLost          1   the connection ended before the answer was complete
│   ├── LoadingModel            1   the server is not ready: it loads its model
│   └── NoAnswer                1   a response with status 200 without any part of an answer
├── ToolServerError             3   a tool server died, hung or sent a broken message
├── Denied                      4   a tool call was denied
├── Incomplete                  5   truncated, filtered, refused, or too many rounds of tools
│   ├── Filtered                5   the provider's filter refused the question
│   └── SchemaMismatch          5   the answer does not conform to --schema
├── TooLong                     6   the input does not fit the model's window
├── TooExpensive                6   a request may cost more than a ceiling allows
└── TimedOut                  124   --timeout, or an API that sent nothing for too long
"""

from typing import Any


class GptshError(Exception):
    """A failure that is reported in one line; on a terminal with colours the advice has its own.

    ``problem`` is what was wrong, ``advice`` what the user can do; ``detail`` is shown only with
    --debug. ``hint`` is a second line: how to go on with the session. ``answer``, for callers of
    ``gptsh.ask``, is what had arrived. ``reported``: stdout has the error as JSON already.
    ``may_fall_back``: the server or the model is not available, and another model may answer.
    """

    exit_code = 1
    may_fall_back = False

    def __init__(self, problem: str, advice: str = "", *, detail: str = "") -> None:
        if advice:
            problem = problem.rstrip(" .")  # a server's own sentence may end it
        super().__init__(problem, advice)
        self.detail = detail
        self.hint = ""
        self.answer: Any = None
        self.reported = False

    @property
    def problem(self) -> str:
        """What was wrong. ``args`` has it, then the advice."""
        return str(self.args[0])

    @property
    def advice(self) -> str:
        """What the user can do, or ""."""
        return str(self.args[1])

    def __str__(self) -> str:
        """Return both on one line."""
        return f"{self.problem}: {self.advice}" if self.advice else self.problem


class UsageError(GptshError):
    """The request cannot be carried out as given."""

    exit_code = 2


class ConfigError(UsageError):
    """The config file or the environment is wrong, or something is missing there."""


class UnknownSession(UsageError, ValueError):
    """A reference names no session, or several. The store's callers expect a ValueError."""


class BadSession(UsageError):
    """A session file cannot be read, is not a session, or was written by a newer gptsh."""


class OutputError(GptshError):
    """The output cannot be written to stdout."""


class StoreError(GptshError):
    """The session cannot be written."""


class StoreBusy(StoreError):
    """Another process held the lock for too long."""


class SessionGone(StoreError):
    """The session was deleted after it was read."""


class ModelError(GptshError):
    """The model or the network failed.

    ``status`` is the HTTP status, if there was a response. ``can_retry``: the same request may
    succeed soon, after ``retry_after`` seconds if the server named a time. ``refuses_images``: the
    same request may succeed without those of the session.
    """

    status: int | None = None
    can_retry: bool = False
    retry_after: float | None = None
    refuses_images: bool = False


class EmptyAnswer(ModelError):
    """The model finished without any text."""


class ConnectionLost(ModelError):
    """The connection or the stream ended before the answer was complete."""


class LoadingModel(ModelError):
    """The server is not ready yet, because it is loading its model."""

    may_fall_back = True


class NoAnswer(ModelError):
    """A response with status 200 without text, finish reason or error."""


class ToolServerError(GptshError):
    """A tool server failed. ``detail`` has the last lines of its stderr."""

    exit_code = 3


class Denied(GptshError):
    """A tool call was denied, by the user or because there is no terminal to ask on."""

    exit_code = 4


class Incomplete(GptshError):
    """There is an answer, but not a complete one."""

    exit_code = 5


class Filtered(Incomplete):
    """The provider's filter refused the question instead of answering it."""


class SchemaMismatch(Incomplete):
    """The answer is complete, but does not conform to ``--schema``."""


class TooLong(GptshError):
    """The input does not fit the model's window.

    ``window`` and ``prompt`` are in tokens, from the server's refusal, or None. ``window`` may be
    for the prompt alone, and ``prompt`` may include tokens for the answer.
    """

    exit_code = 6
    window: int | None = None
    prompt: int | None = None


class TooExpensive(GptshError):
    """A request may cost more than ``max_cost`` or ``per_day`` allows; it was not sent."""

    exit_code = 6


class TimedOut(GptshError):
    """The time limit was reached."""

    exit_code = 124
