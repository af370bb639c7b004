"""Run ``api_key_command``: a shell command of the config file that prints a provider's key. It may read a keyring."""

import os
import select
import subprocess

from gptsh.config.secret import Secret
from gptsh.errors import ConfigError

_MAX_PRINTED = 1 << 16  # bytes that a command for a key may print
_POLL = 0.02  # seconds until gptsh sees that a command has ended which leaves a program in the background
_BY_HAND = "run it by hand"


def printed_key(command: str, provider: str) -> Secret:
    """The first line that the command prints. Its standard input is empty: gptsh reads the prompt from there."""
    process = subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    with process:
        try:
            printed = _printed(process)
        except BaseException:  # a signal or the deadline, too
            process.kill()
            raise
        if len(printed) > _MAX_PRINTED:
            process.kill()
            raise ConfigError(f"api_key_command of {provider} printed more than {_MAX_PRINTED:,} bytes", _BY_HAND)
    key = printed.decode("utf-8", "replace").partition("\n")[0].strip()
    if process.returncode or not key:
        why = f"exited with {process.returncode}" if process.returncode else "printed no key"
        raise ConfigError(f"api_key_command of {provider} {why}", _BY_HAND)
    return Secret(key)


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
