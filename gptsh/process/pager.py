"""Show long output page by page, through ``$PAGER`` as git does."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable

from gptsh.process import stdio
from gptsh.process.interrupts import Interrupts
from gptsh.render.escapes import obeys_escapes

_DEFAULT_PAGER = "less"
# The same as git's: less shows colours, and quits at once if everything fits on a screen; lv shows colours.
_ENVIRONMENT = {"LESS": "FRX", "LV": "-c"}
_CANNOT_RUN = (126, 127)  # exit codes of a shell for a command that it cannot run


def show(lines: Callable[[], Iterable[str]]) -> None:
    """Show lines that are safe for a terminal in the pager; write them to stdout if it cannot run.

    Raises Interrupted for a signal, but only after the pager, which has the terminal until then.
    """
    default = _DEFAULT_PAGER if obeys_escapes(os.environ) and shutil.which(_DEFAULT_PAGER) else ""
    command = os.environ.get("PAGER", default)
    if command.strip() in ("", "cat") or not _run_pager(command, lines()):
        stdio.write_lines(lines(), safe=True)


def _run_pager(command: str, lines: Iterable[str]) -> bool:
    """Run the pager and wait for its end, even after a signal; return whether it could run."""
    with Interrupts(None) as interrupts, interrupts.shielded(), interrupts.left_to_child():
        process = subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=subprocess.PIPE, env={**_ENVIRONMENT, **os.environ}
        )
        assert process.stdin  # it is a pipe
        try:
            with interrupts.waiting(), contextlib.suppress(BrokenPipeError):
                for line in lines:
                    stdio.write_all(process.stdin.fileno(), f"{line}\n".encode("utf-8", "replace"))
        finally:
            process.stdin.close()
            process.wait()
    return process.returncode not in _CANNOT_RUN
