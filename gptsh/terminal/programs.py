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

_TERMINAL = "/dev/tty"  # which an editor gets even if the standard streams are pipes
_DEFAULT = "vi"
_SCISSORS = "# ------------------------ >8 ------------------------"
_RULE = "# gptsh asks what is above this line. If that is empty, gptsh asks nothing."
_MAX_COMMENT = 500  # lines


def edit(text: str) -> str:
    """Open a text in $VISUAL, $EDITOR or vi; return it as edited, without its last newline.

    Raises UsageError if the editor fails, OSError if it cannot be started, or its file cannot be
    written or read.
    """
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or _DEFAULT
    path = save(text)
    try:
        code = _run_editor([*shlex.split(command), path])
        if code:
            problem = f"the editor {command} ended with exit status {code}"
            raise UsageError(problem, "set VISUAL or EDITOR")
        return Path(path).read_bytes().decode("utf-8", "surrogateescape").removesuffix("\n")
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _run_editor(command: list[str]) -> int:
    """Run a command on the terminal itself, and return its exit code."""
    try:
        terminal = os.open(_TERMINAL, os.O_RDWR)
    except OSError:  # an editor with a window needs no terminal
        terminal = os.open(os.devnull, os.O_RDWR)
    try:
        done = subprocess.run(
            command,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            check=False,
        )
        return done.returncode
    finally:
        os.close(terminal)


def write_question(words: str, about: str, comment: str) -> str:
    """Let the user write a question above a ``comment`` about something; return it.

    The question begins as ``words``. Raises as ``edit``.
    """
    text = [words, "", _SCISSORS, _RULE]
    if comment.strip():
        lines = comment.strip("\n").split("\n")
        text += ["#", f"# {about}:", "#"]
        text += [f"# {line}".rstrip() for line in lines[:_MAX_COMMENT]]
        if len(lines) > _MAX_COMMENT:
            text.append(f"# [{len(lines) - _MAX_COMMENT:,} more lines]")
    edited = edit("\n".join(text) + "\n")
    question, _, _ = f"\n{edited}".partition(f"\n{_SCISSORS}")
    return question.strip("\n")


def save(text: str) -> str:
    """Write a text to a new temporary file of this user alone; return its path. Raises OSError."""
    descriptor, path = tempfile.mkstemp(prefix="gptsh-", suffix=".md")
    with open(descriptor, "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
    return path


# ---- pager

_DEFAULT_PAGER = "less"
# As git has it: less shows colours, and quits at once if all fits on a screen; lv shows colours.
_ENVIRONMENT = {"LESS": "FRX", "LV": "-c"}
_CANNOT_RUN = (126, 127)  # exit codes of a shell for a command that it cannot run


def show_in_pager(lines: Callable[[], Iterable[str]]) -> None:
    """Show lines in ``$PAGER``, or on stdout if it cannot run. They are safe for a terminal.

    Raises Interrupted for a signal, but only after the pager, which has the terminal until then.
    """
    has_default = obeys_escapes(os.environ) and shutil.which(_DEFAULT_PAGER)
    command = os.environ.get("PAGER", _DEFAULT_PAGER if has_default else "")
    if command.strip() in ("", "cat") or not _run_pager(command, lines()):
        stdio.write_lines(lines(), safe=True)


def _run_pager(command: str, lines: Iterable[str]) -> bool:
    """Run the pager and wait for its end, even after a signal; return whether it could run."""
    with (
        Interrupts(None) as interrupts,
        interrupts.shielded(),
        interrupts.child_gets_ctrl_c(),
        stdio.notes_later(),
    ):
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            env={**_ENVIRONMENT, **os.environ},
        )
        assert process.stdin  # it is a pipe
        try:
            with interrupts.waiting(), contextlib.suppress(BrokenPipeError):
                for line in lines:
                    stdio.write_all(process.stdin.fileno(), f"{line}\n")
        finally:
            process.stdin.close()
            process.wait()
    return process.returncode not in _CANNOT_RUN


# ---- browser


def open_url(url: str) -> bool:
    """Open a URL in the user's browser; return whether one was started.

    One that would draw on this terminal is not.
    """
    has_windows = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    if not has_windows and sys.platform != "darwin":
        return False
    import webbrowser

    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False
