"""Every failure that is reported, each class with its exit code.

GptshError                      1
├── UsageError                  2   options, prompt, unreadable input
│   ├── ConfigError             2   config file and environment, missing keys
│   ├── UnknownSession          2   a session reference that names none or several (also a ValueError)
│   └── BadSession              2   a session file that cannot be read or must not be written
├── OutputError                 1   stdout cannot be written
├── StoreError                  1   the state folder cannot be written
│   ├── StoreBusy               1   other processes held its lock for too long
│   └── SessionGone             1   deleted between reading and saving
├── ModelError                  1   the model or the network failed
│   ├── EmptyAnswer             1   the model finished without a word
│   ├── BrokenOff               1   the connection or the stream ended before the answer did
│   └── NoAnswer                1   a response of status 200 without any of an answer
├── ToolServerError             3   a tool server died, hung or answered garbage
├── Denied                      4   a tool call was denied
├── Incomplete                  5   cut, filtered or refused, or too many rounds of tools
│   └── Misshapen               5   not what --schema asks
├── TooLong                     6   the input does not fit the model's window
└── TimedOut                  124   --timeout, or a api that went silent
"""


class GptshError(Exception):
    """A failure that is reported in one line.

    ``what`` says what was wrong, ``todo`` what to do about it; ``detail`` is shown with --debug only.
    ``hint`` is a second line, set by whoever knows where the user can go on. ``reported``: stdout has its JSON already.
    """

    exit_code = 1

    def __init__(self, what: str, todo: str = "", *, detail: str = "") -> None:
        super().__init__(f"{what}: {todo}" if todo else what)
        self.detail = detail
        self.hint = ""
        self.reported = False


class UsageError(GptshError):
    """What was asked for cannot be done as asked."""

    exit_code = 2


class ConfigError(UsageError):
    """The config file or the environment is wrong or lacks something."""


class UnknownSession(UsageError, ValueError):
    """A reference names no session, or more than one. A ValueError too, as callers of the store expect."""


class BadSession(UsageError):
    """A session file is unreadable, is no session, or was written by a newer gptsh."""


class OutputError(GptshError):
    """What was asked for cannot be written to stdout."""


class StoreError(GptshError):
    """The session could not be written."""


class StoreBusy(StoreError):
    """Other processes held the lock for too long."""


class SessionGone(StoreError):
    """The session was deleted since it was read."""


class ModelError(GptshError):
    """The model or the network failed.

    ``status`` is the HTTP status where there was one; ``retry`` says that the same request may do better soon,
    after ``after`` seconds where the server named a time.
    """

    status: int | None = None
    retry: bool = False
    after: float | None = None


class EmptyAnswer(ModelError):
    """The model finished without saying anything."""


class BrokenOff(ModelError):
    """The connection or the stream ended before the answer did."""


class NoAnswer(ModelError):
    """A response of status 200 without any of an answer: no word, no reason for ending, no error."""


class ToolServerError(GptshError):
    """A tool server cannot be used. ``detail`` has the last lines of its stderr."""

    exit_code = 3


class Denied(GptshError):
    """A tool call was denied, by the user or for want of a terminal to ask on."""

    exit_code = 4


class Incomplete(GptshError):
    """There is an answer, but not the whole of it."""

    exit_code = 5


class Misshapen(Incomplete):
    """The answer is whole, and not what ``--schema`` asks."""


class TooLong(GptshError):
    """The input does not fit the model's window.

    ``window`` and ``prompt`` are in tokens, as a server's refusal names them; None where it does not. That window may
    be one for the prompt alone, and the prompt one with its answer.
    """

    exit_code = 6
    window: int | None = None
    prompt: int | None = None


class TimedOut(GptshError):
    """Time ran out."""

    exit_code = 124
