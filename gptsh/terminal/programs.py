"""Start the editor, the pager or the browser, and hand the terminal to it."""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from gptsh.errors import UsageError
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupts
from gptsh.terminal.stdio import obeys_escapes

# ---- editor
#
# Let the user write a text in an editor of their own, on the terminal, even if the standard streams
# are pipes.

_TERMINAL = "/dev/tty"
_DEFAULT = "vi"
_SCISSORS = "# ------------------------ >8 ------------------------"
_RULE = "# gptsh asks what is above this line. If that is empty, gptsh asks nothing."
_MAX_COMMENT = 500  # lines


def edit(text: str) -> str:
    """Open a text in $VISUAL, $EDITOR or vi; return what the user has made of it, without its last newline.

    Raises UsageError if the editor fails, OSError if it cannot be started, or its file cannot be written or read.
    """
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or _DEFAULT
    path = save(text)
    try:
        with contextlib.ExitStack() as cleanup:
            terminal = subprocess.DEVNULL
            with contextlib.suppress(OSError):  # an editor with a window needs no terminal
                terminal = os.open(_TERMINAL, os.O_RDWR)
                cleanup.callback(os.close, terminal)
            argv = [*shlex.split(command), path]
            done = subprocess.run(argv, stdin=terminal, stdout=terminal, stderr=terminal, check=False)
        if done.returncode:
            raise UsageError(
                f"the editor {command} ended with exit status {done.returncode}",
                "set VISUAL or EDITOR",
            )
        return Path(path).read_bytes().decode("utf-8", "surrogateescape").removesuffix("\n")
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def write_question(words: str, about: str, comment: str) -> str:
    """Let the user write a question, which begins as ``words``, above a ``comment`` about something; return it.

    Raises as ``edit``.
    """
    quoted: list[str] = []
    if comment.strip():
        lines = comment.strip("\n").split("\n")
        quoted = ["#", f"# {about}:", "#", *(f"# {line}".rstrip() for line in lines[:_MAX_COMMENT])]
        if len(lines) > _MAX_COMMENT:
            quoted.append(f"# [{len(lines) - _MAX_COMMENT:,} more lines]")
    edited = edit("\n".join([words, "", _SCISSORS, _RULE, *quoted]) + "\n")
    question, _, _ = f"\n{edited}".partition(f"\n{_SCISSORS}")
    return question.strip("\n")


def save(text: str) -> str:
    """Write a text to a new temporary file that only the user can read; return its path. Raises OSError."""
    descriptor, path = tempfile.mkstemp(prefix="gptsh-", suffix=".md")
    with open(descriptor, "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
    return path


# ---- pager
#
# Show long output page by page, through ``$PAGER`` as git does.

_DEFAULT_PAGER = "less"
# The same as git's: less shows colours, and quits at once if everything fits on a screen; lv shows colours.
_ENVIRONMENT = {"LESS": "FRX", "LV": "-c"}
_CANNOT_RUN = (126, 127)  # exit codes of a shell for a command that it cannot run


def show_in_pager(lines: Callable[[], Iterable[str]]) -> None:
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


# ---- browser
#
# Open a URL in the user's browser, if there is one with windows of its own.


def open_url(url: str) -> bool:
    """Open a URL; return whether a browser was started. One that would draw on this terminal is not."""
    has_windows = sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
    if not has_windows:
        return False
    import webbrowser

    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False
