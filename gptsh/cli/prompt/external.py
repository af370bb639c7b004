"""A text changed in the user's own editor."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from gptsh.cli.interrupts import of_a_child
from gptsh.errors import UsageError

_USUAL = ("editor", "nano", "vi")


def edited(text: str, terminal: int) -> str:
    """The text as ``$VISUAL`` or ``$EDITOR`` leaves it, which has the terminal of that descriptor until it ends.

    Raises UsageError where it cannot be run or fails; OSError where there is no room for the text.
    """
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - few edit

    command = _editor(os.environ)
    with TemporaryDirectory(prefix="gptsh-") as folder:  # for its owner alone; backups of the editor go with it
        path = Path(folder) / "message.md"
        path.write_bytes(f"{text}\n".encode("utf-8", "replace"))
        _run(command, str(path), terminal)
        changed = path.read_bytes().decode("utf-8", "replace")
    return changed.removesuffix("\n")


def _editor(environ: Mapping[str, str]) -> str:
    """The command, for the shell."""
    for command in (environ.get("VISUAL", ""), environ.get("EDITOR", "")):
        if command.strip():
            return command
    found = next(filter(shutil.which, _USUAL), None)
    if found is None:
        raise UsageError("there is no editor", "name one in $EDITOR")
    return found


def _run(command: str, path: str, terminal: int) -> None:
    argv = ["/bin/sh", "-c", f'{command} "$@"', command, path]
    with of_a_child():
        code = subprocess.run(argv, stdin=terminal, check=False).returncode
    if code:
        raise UsageError(f"{command} failed, and the line is as it was")
