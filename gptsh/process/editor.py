"""Let the user write a text in an editor of their own, on the terminal, even if the standard streams are pipes."""

import contextlib
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from gptsh.errors import UsageError

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
            raise UsageError(f"the editor {command} ended with exit status {done.returncode}", "set VISUAL or EDITOR")
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
