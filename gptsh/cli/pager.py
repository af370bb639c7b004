"""What a person reads page by page, through ``$PAGER`` as git does it."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable

from gptsh.cli import stdio
from gptsh.cli.interrupts import Interrupts
from gptsh.render.plain import obeys_escapes

_USUAL = "less"
# As git sets them: less leaves at once where all fits on a screen, and shows colours; lv shows them, too.
_SETTINGS = {"LESS": "FRX", "LV": "-c"}
_NOT_RUN = (126, 127)  # what a shell says of a command that it cannot run


def show(lines: Callable[[], Iterable[str]]) -> None:
    """Lines that are safe for a terminal, through the pager, else straight out. Who leaves it early has read enough.

    Raises Interrupted for a signal that would end us, once the pager is done: it has the terminal until then.
    """
    usual = _USUAL if obeys_escapes(os.environ) and shutil.which(_USUAL) else ""
    command = os.environ.get("PAGER", usual)
    if command.strip() in ("", "cat") or not _paged(command, lines()):
        stdio.write_lines(lines(), safe=True)


def _paged(command: str, lines: Iterable[str]) -> bool:
    """Whether the pager could be run. It is waited for, whatever comes."""
    with Interrupts(None) as interrupts, interrupts.shielded(), interrupts.left_to_child():
        process = subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.PIPE, env={**_SETTINGS, **os.environ})
        assert process.stdin  # it is a pipe
        try:
            with interrupts.waiting(), contextlib.suppress(BrokenPipeError):
                for line in lines:
                    stdio.write_all(process.stdin.fileno(), f"{line}\n".encode("utf-8", "replace"))
        finally:
            process.stdin.close()
            process.wait()
    return process.returncode not in _NOT_RUN
