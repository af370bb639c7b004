"""The line that is typed at the prompt of a conversation, on a terminal that obeys no escape sequences."""

import os

from gptsh.cli import stdio
from gptsh.cli.interrupts import Interrupted, Interrupts
from gptsh.cli.prompt.past import Past
from gptsh.cli.talk import Talk

PROMPT = "> "
GOES_ON = "  "  # in front of the further lines of a message
_PIECE = 1 << 16  # bytes of a read; the terminal gives a line at most


def goes_on(text: str) -> bool:
    """Whether another line is to follow: behind a backslash, unless it stands behind one of its own."""
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


class PlainEditor:
    """Reads lines as the terminal itself lets them be edited."""

    def __init__(self, talk: Talk, interrupts: Interrupts, terminal: int) -> None:
        self._interrupts, self._past, self._terminal = interrupts, Past(talk), terminal
        self._typed = b""  # of lines that were not read yet

    def read(self, suggested: str = "") -> str:
        """As ``Editor.read``; what is suggested stands above the line, which cannot begin with it here."""
        lines: list[str] = []
        if suggested:
            stdio.note("the question, to be typed again:")
            stdio.write_lines(suggested.split("\n"))
        self._interrupts.forget_ctrl_c()
        try:
            self._read_into(lines)
        except Interrupted as ended:
            self._interrupts.forget_ctrl_c()
            if ended.by_user:
                stdio.write_pieces(["\n"])
                return ""
            self._past.keep("\n".join(lines))
            raise
        except (EOFError, OSError) as err:
            self._past.keep("\n".join(lines))
            raise EOFError from err
        self._past.keep("\n".join(lines))
        return "\n".join(lines)

    def _read_into(self, lines: list[str]) -> None:
        """Lines until one is the last. Raises Interrupted, EOFError, OSError; those that were whole stay."""
        while True:
            stdio.write_pieces([GOES_ON if lines else PROMPT])
            line = self._line()
            if not goes_on(line):
                lines.append(line)
                return
            lines.append(line[:-1])

    def _line(self) -> str:
        while b"\n" not in self._typed:
            with self._interrupts.waiting():
                piece = os.read(self._terminal, _PIECE)
            if not piece and not self._typed:
                raise EOFError
            self._typed += piece or b"\n"
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode("utf-8", "surrogateescape")
