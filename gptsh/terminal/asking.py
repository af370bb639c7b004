"""Ask the user for a choice or a line on the terminal itself, even if stdin is a pipe."""

import contextlib
import os
import shutil
import termios
from collections.abc import Callable, Sequence
from typing import TypeVar

from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted
from gptsh.text import visible

Answer = TypeVar("Answer")

_MARGIN = "| "  # before each row of text that is not from gptsh
_MIN_COLUMNS = 20  # of that text
_TERMINAL = "/dev/tty"
_MAX_INPUT = 4096  # bytes of the line that the user types: a terminal keeps no more


def confirm(question: str) -> bool:
    """Ask a yes-or-no question (safe for a terminal); return whether the user types yes."""
    return ask_choice("", f"{question} [y/N] ", ("yes", "no"), blank="no") == "yes"


def ask_choice(
    intro: str,
    question: str,
    choices: Sequence[str],
    blank: str = "",
) -> str | None:
    """Ask until the user types one of the choices or its beginning; return it.

    Return None if there is no terminal. The end of input means ``no``, an empty line means
    ``blank``. ``intro`` is shown once, before the question; both are safe for a terminal.
    """

    def read(line: str) -> str:
        word_start = line.lower() or blank
        for word in choices:
            if word_start and word.startswith(word_start):
                return word
        raise ValueError

    return ask_line(intro, question, read, at_end="no")


def ask_line(
    intro: str,
    question: str,
    read: Callable[[str], Answer],
    at_end: Answer,
) -> Answer | None:
    """Ask until ``read`` returns a value of the stripped line; return it.

    ``read`` raises ValueError, whose message is shown. None without a terminal. The end of input
    means ``at_end``.
    """
    if stdio.is_silent():
        return None
    try:
        terminal = os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return None
    try:
        with contextlib.suppress(termios.error):
            # Keys typed before the question do not answer it.
            termios.tcflush(terminal, termios.TCIFLUSH)
        stdio.write_all(terminal, intro)
        # A turn of a conversation switches these modes off.
        with stdio.line_modes(terminal, on=termios.ECHO | termios.ICANON):
            return _ask_until_valid(terminal, question, read, at_end)
    except (OSError, termios.error):  # the terminal is gone
        return None
    finally:
        os.close(terminal)


def _ask_until_valid(
    terminal: int, question: str, read: Callable[[str], Answer], at_end: Answer
) -> Answer:
    """Ask on an open terminal, as ``ask_line``. Raises OSError, Interrupted."""
    while True:
        stdio.write_all(terminal, question)
        try:
            line = os.read(terminal, _MAX_INPUT)
        except Interrupted:
            stdio.write_all(terminal, "\n")  # what follows is not on the line of the question
            raise
        has_ended = not line.endswith(b"\n")
        if has_ended and not line.strip():
            return at_end
        try:
            return read(line.decode("utf-8", "replace").strip())
        except ValueError as err:
            if has_ended:
                return at_end
            for reason in err.args:
                stdio.write_all(terminal, f"{reason}\n")


def marked_lines(text: str) -> list[str]:
    """Split text of a model or a server into rows for a terminal.

    Each row begins with a bar, so that none looks like a line of gptsh.
    """
    columns = max(_MIN_COLUMNS, shutil.get_terminal_size().columns - len(_MARGIN) - 1)
    rows = []
    for line in visible(text).split("\n"):
        # A character may be two columns wide.
        length = columns if line.isascii() else columns // 2
        for start in range(0, max(1, len(line)), length):
            rows.append(_MARGIN + line[start : start + length])
    return rows
