"""A question to the user that needs an answer now, on the terminal itself, whatever the standard streams are."""

import os
import select
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from gptsh.cli import stdio
from gptsh.cli.modes import line_modes

_TERMINAL = "/dev/tty"
_LONGEST = 1000  # bytes of an answer that is read


def confirmed(question: str) -> bool:
    """Whether the user says yes to a question, which is safe for a terminal."""
    return choice("", f"{question} [y]es, [n]o: ", ("yes", "no")) == "yes"


def choice(told: str, question: str, choices: Sequence[str]) -> str | None:
    """Which of the choices the user types or begins to type, asked again until it is one; the end of input is ``no``.

    ``told`` is shown once, before; both texts are safe for a terminal. None where there is no terminal.
    """
    try:
        terminal = os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return None
    with _closing(terminal):
        with suppress(termios.error):
            termios.tcflush(terminal, termios.TCIFLUSH)  # what was typed before the question is no answer to it
        try:
            stdio.put_all(terminal, told.encode("utf-8", "replace"))
            with line_modes(terminal, on=termios.ECHO | termios.ICANON):  # which a turn of a conversation is without
                return _answer(terminal, question, choices)
        except (OSError, termios.error):  # it went away
            return None


@contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)


def _answer(terminal: int, question: str, choices: Sequence[str]) -> str:
    """Raises OSError."""
    while True:
        stdio.put_all(terminal, question.encode("utf-8", "replace"))
        select.select([terminal], [], [])
        line = os.read(terminal, _LONGEST)
        said = line.decode("utf-8", "replace").strip().lower()
        chosen = [word for word in choices if said and word.startswith(said)]
        if chosen or not line.endswith(b"\n"):
            return chosen[0] if chosen else "no"
