"""Run the command that prints a key, and mask secrets in errors and previews."""

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Collection

from gptsh.config.schema import MASK, NOT_SECRET, Secret, mask, names_secrets
from gptsh.errors import ConfigError, GptshError
from gptsh.jsonio import JsonObject

# ---- key command
#
# Run ``api_key_command``: a shell command of the config file that prints a provider's key. It may
# read a keyring.

_MAX_PRINTED = 1 << 16  # bytes that a command for a key may print
_POLL = 0.02  # seconds until gptsh sees that a command has ended which leaves a program in the background
_BY_HAND = "run it by hand"


def printed_key(command: str, provider: str) -> Secret:
    """Return the first line that the command prints. Raises ConfigError if there is none.

    Its standard input is empty: gptsh reads the prompt from there. It is killed with a signal or the deadline. Without
    a terminal all its processes are; with one they stay in the group that may ask there for a passphrase.
    """
    own_group = None if _has_terminal() else 0
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, process_group=own_group
    )
    with process:
        try:
            printed = _printed(process)
        except BaseException:  # a signal or the deadline, too
            _kill(process, in_group=own_group is not None)
            raise
        if len(printed) > _MAX_PRINTED:
            _kill(process, in_group=own_group is not None)
            raise ConfigError(f"api_key_command of {provider} printed more than {_MAX_PRINTED:,} bytes", _BY_HAND)
    key = printed.decode("utf-8", "replace").partition("\n")[0].strip()
    if process.returncode or not key:
        why = f"exited with {process.returncode}" if process.returncode else "printed no key"
        raise ConfigError(f"api_key_command of {provider} {why}", _BY_HAND)
    return Secret(key)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _kill(process: subprocess.Popen[bytes], *, in_group: bool) -> None:
    if not in_group:
        process.kill()
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _printed(process: subprocess.Popen[bytes]) -> bytes:
    """What a process prints until it has ended, or until it is too much.

    A program that it leaves in the background, such as an agent that keeps a passphrase, may keep its stdout open.
    """
    data, output = b"", process.stdout.fileno() if process.stdout else -1
    poller = select.poll()  # select knows no descriptor above 1,023
    poller.register(output, select.POLLIN)
    while len(data) <= _MAX_PRINTED:
        has_ended = process.poll() is not None  # before the pipe is looked at: what was printed is in it
        if poller.poll(0 if has_ended else _POLL * 1000):
            piece = os.read(output, _MAX_PRINTED)
            if not piece:
                process.wait()
                break
            data += piece
        elif has_ended:
            break
    return data


# ---- masking
#
# Mask keys and other secrets in an error, and in a request that is shown: ``***`` in their place.
#
# Headers are masked in ``servers.py``; ``config/schema.py`` knows which names are secret.

_WIDTH = 400  # characters of an error line


def without_secrets(err: GptshError, secrets: Collection[str]) -> GptshError:
    """The same error, with secrets masked wherever they could be shown, then shortened to one line."""
    text = mask(str(err), secrets)
    err.args = (text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…",)
    err.detail = mask(err.detail, secrets)
    cause: BaseException | None = err
    while cause is not None:  # --debug shows the causes
        if cause.__cause__ is not None and mask(repr(cause.__cause__), secrets) != repr(cause.__cause__):
            cause.__cause__ = cause.__context__ = None
        cause = cause.__cause__
    return err


def without_secret_parameters(request: JsonObject, *, hide: bool = False) -> JsonObject:
    """A request with every text masked whose key names a secret or headers. Numbers are not secret."""
    masked = {}
    for name, value in request.items():
        is_plain = name in NOT_SECRET
        masked[name] = value if is_plain else _masked(value, hide=hide or names_secrets(name))
    return masked


def _masked(value: object, *, hide: bool) -> object:
    """A value of a request, likewise. ``hide``: its own texts are secret."""
    if isinstance(value, str):
        return MASK if hide else value
    if isinstance(value, list):
        return [_masked(item, hide=hide) for item in value]
    if isinstance(value, dict):
        return without_secret_parameters(value, hide=hide)
    return value
