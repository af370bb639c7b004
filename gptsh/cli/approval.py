"""Questions to the user that need an answer now: on the terminal itself, whatever the standard streams are."""

import contextlib
import json
import os
import select
import shutil
import sys
import termios
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gptsh.cli import stdio
from gptsh.content.answer import Tools, error_result
from gptsh.core.document import Document
from gptsh.messages import Call, ToolResult
from gptsh.text import one_line, shorten, visible

if TYPE_CHECKING:
    from gptsh.cli.show import Screen

NO_TERMINAL = "denied: this tool call needs the user's approval, and there is no terminal to ask on"
BY_USER = "denied: the user did not allow this tool call"
_MARK = "| "  # before each line of a call's arguments, so that none of them passes for a line of ours
_LINES = 12  # of arguments that are shown at first
_TERMINAL = "/dev/tty"
_LONGEST = 1000  # bytes of an answer that is read


def confirm(question: str) -> bool:
    """Whether the user says yes to a question, which is safe for a terminal."""
    return ask_choice("", f"{question} [y/N] ", ("yes", "no"), blank="no") == "yes"


def ask_choice(told: str, question: str, choices: Sequence[str], blank: str = "") -> str | None:
    """Which of the choices the user types or begins to type, asked again until it is one; the end of input is ``no``.

    ``blank`` is what an empty line chooses.
    ``told`` is shown once, before; both texts are safe for a terminal. None where there is no terminal.
    """
    try:
        terminal = os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return None
    try:
        with contextlib.suppress(termios.error):
            termios.tcflush(terminal, termios.TCIFLUSH)  # what was typed before the question is no answer to it
        stdio.write_all(terminal, told.encode("utf-8", "replace"))
        with stdio.line_modes(terminal, on=termios.ECHO | termios.ICANON):  # which a conversation's turn is without
            while True:
                stdio.write_all(terminal, question.encode("utf-8", "replace"))
                select.select([terminal], [], [])
                line = os.read(terminal, _LONGEST)
                said = line.decode("utf-8", "replace").strip().lower() or blank
                chosen = [word for word in choices if said and word.startswith(said)]
                if chosen or not line.endswith(b"\n"):
                    return chosen[0] if chosen else "no"
    except (OSError, termios.error):  # it went away
        return None
    finally:
        os.close(terminal)


class Approval:
    """Runs the tool calls of a turn that may run. What is allowed for good stands in the session's ``meta``."""

    def __init__(self, tools: Tools, doc: Document) -> None:
        self.denied: list[str] = []  # names of tools
        self._tools, self._doc = tools, doc

    def run(self, calls: Sequence[Call], screen: "Screen") -> Iterator[ToolResult]:
        """What is denied first, then what runs, as it ends. Raises ToolServerError behind the last result that came."""
        allowed = []
        for call in calls:
            if why := self.refusal(call):
                yield ToolResult(error_result(call, why))
            else:
                allowed.append(call)
        if stdio.is_terminal(sys.stderr):  # in a pipe nobody reads it
            for call in allowed:
                said = f"{call['function'].get('name', '')} {call['function'].get('arguments', '')}"
                stdio.write_stderr(f"{shorten(said, stdio.width(sys.stderr) - 1)}\n")
        names = ", ".join(str(call["function"].get("name")) for call in allowed)
        with screen.spinning(f"running {names}"):
            yield from self._tools.run(allowed)

    def refusal(self, call: Call) -> str | None:
        """Why a call must not run, for the model to read; None where it may. Waits for the user as long as it takes.

        The arguments are shown, indented where they are JSON; of long ones both ends, and all of them on request.
        """
        name, arguments = str(call["function"].get("name", "")), str(call["function"].get("arguments", ""))
        if self._tools.approved(call) or name in (self._doc["meta"].get("mcp_approved") or ()):
            return None
        with contextlib.suppress(ValueError, RecursionError):
            arguments = json.dumps(json.loads(arguments), ensure_ascii=False, indent=2)
        lines = [f"{_MARK}{piece}" for line in visible(arguments).split("\n") for piece in _pieces(line)]
        folded = lines
        if len(lines) > _LINES:
            left_out = f"[{len(lines) - _LINES:,} lines are not shown]"
            folded = [*lines[: _LINES // 2], left_out, *lines[-_LINES // 2 :]]
        server, _, tool = visible(one_line(name)).rpartition("__")
        question = f"Run {tool} of {server or 'no server'}? [y]es, [n]o, [a]lways in this session"
        said: str | None = "show"
        while said == "show":
            more = folded != lines
            choices = ("yes", "no", "always", "show") if more else ("yes", "no", "always")
            told = "".join(f"{line}\n" for line in folded)
            said = ask_choice(told, f"{question}{', [s]how all' if more else ''}: ", choices)
            folded = lines
        if said == "always":
            self._doc["meta"]["mcp_approved"] = [*(self._doc["meta"].get("mcp_approved") or ()), name]
        if said in ("yes", "always"):
            return None
        self.denied.append(name)
        return NO_TERMINAL if said is None else BY_USER


def _pieces(line: str) -> list[str]:
    """A line cut to the width of the terminal: one that the terminal breaks would go on without its mark."""
    room = max(20, shutil.get_terminal_size().columns - len(_MARK) - 1)
    room = room if line.isascii() else room // 2  # a character may be two columns wide
    return [line[at : at + room] for at in range(0, len(line), room)] or [""]
