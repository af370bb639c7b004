"""What a person reads page by page, through ``$PAGER`` as git does it."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping

from gptsh.cli import stdio
from gptsh.cli.interrupts import Interrupts, of_a_child
from gptsh.render.plain import able

_USUAL = "less"
# As git sets them: less leaves at once where all fits on a screen, and shows colours; lv shows them, too.
_SETTINGS = {"LESS": "FRX", "LV": "-c"}
_NOT_RUN = (126, 127)  # what a shell says of a command that it cannot run


def show(lines: Callable[[], Iterable[str]]) -> None:
    """Lines that are safe for a terminal, through the pager, else straight out. Who leaves it early has read enough.

    Raises Interrupted for a signal that would end us, once the pager is done: it has the terminal until then.
    """
    command = _pager(os.environ)
    if command is None or not _paged(command, lines()):
        stdio.write_lines(lines(), safe=True)


def _pager(environ: Mapping[str, str]) -> str | None:
    """The command, for the shell; None where there is none."""
    if "PAGER" in environ:
        return environ["PAGER"] if environ["PAGER"].strip() not in ("", "cat") else None
    return _USUAL if able(environ) and shutil.which(_USUAL) else None


def _paged(command: str, lines: Iterable[str]) -> bool:
    """Whether the pager could be run. It is waited for, whatever comes."""
    with Interrupts(None) as interrupts, interrupts.shielded(), of_a_child():
        process = subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.PIPE, env={**_SETTINGS, **os.environ})
        try:
            with interrupts.waiting():
                _feed(process, lines)
        finally:
            if process.stdin:
                process.stdin.close()
            process.wait()
    return process.returncode not in _NOT_RUN


def _feed(process: "subprocess.Popen[bytes]", lines: Iterable[str]) -> None:
    if process.stdin is None:
        return
    descriptor = process.stdin.fileno()
    with contextlib.suppress(BrokenPipeError):  # the person has read enough
        for line in lines:
            stdio.put_all(descriptor, f"{line}\n".encode("utf-8", "replace"))
