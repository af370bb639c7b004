"""Ask the user to confirm something, on the terminal itself, even if the standard streams are pipes."""

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
from gptsh.cli.interrupts import Interrupted
from gptsh.content.answer import Tools, error_result
from gptsh.core.document import Document
from gptsh.messages import Call, ToolResult
from gptsh.text import one_line, shorten, visible

if TYPE_CHECKING:
    from gptsh.cli.show import Screen

NO_TERMINAL = "denied: this tool call needs the user's approval, and there is no terminal to ask on"
BY_USER = "denied: the user did not allow this tool call"
_MARK = "| "  # before each line of a call's arguments, so that none of them looks like a line of gptsh
_SHOWN_LINES = 12  # of the arguments, until the user asks for all
_TERMINAL = "/dev/tty"
_MAX_INPUT = 1000  # bytes of the line that the user types


def confirm(question: str) -> bool:
    """Ask a yes-or-no question (safe for a terminal); return whether the user types yes."""
    return ask_choice("", f"{question} [y/N] ", ("yes", "no"), blank="no") == "yes"


def ask_choice(intro: str, question: str, choices: Sequence[str], blank: str = "") -> str | None:
    """Ask until the user types one of the choices or its beginning; return it, or None without a terminal.

    The end of input means ``no``, an empty line means ``blank``. ``intro`` is shown once, before the question; both are
    safe for a terminal.
    """
    try:
        terminal = os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return None
    try:
        with contextlib.suppress(termios.error):
            termios.tcflush(terminal, termios.TCIFLUSH)  # keys typed before the question do not answer it
        stdio.write_all(terminal, intro.encode("utf-8", "replace"))
        with stdio.line_modes(terminal, on=termios.ECHO | termios.ICANON):  # a turn of a conversation switches them off
            while True:
                stdio.write_all(terminal, question.encode("utf-8", "replace"))
                try:
                    select.select([terminal], [], [])
                except Interrupted:
                    stdio.write_all(terminal, b"\n")  # after the question
                    raise
                line = os.read(terminal, _MAX_INPUT)
                word_start = line.decode("utf-8", "replace").strip().lower() or blank
                matches = [word for word in choices if word_start and word.startswith(word_start)]
                if matches or not line.endswith(b"\n"):
                    return matches[0] if matches else "no"
    except (OSError, termios.error):  # the terminal is gone
        return None
    finally:
        os.close(terminal)


class Approval:
    """Runs the tool calls of a turn that are approved. Permanent approvals are in the session's ``meta``."""

    def __init__(self, tools: Tools, doc: Document) -> None:
        self.denied: list[str] = []  # names of tools
        self.has_terminal = True  # unless a question found none
        self._tools, self._doc = tools, doc

    def run(self, calls: Sequence[Call], screen: "Screen") -> Iterator[ToolResult]:
        """Yield the denied results, then the others as they arrive. Raises ToolServerError after the last result."""
        allowed_calls = []
        for call in calls:
            if reason := self.refusal(call):
                yield ToolResult(error_result(call, reason))
            else:
                allowed_calls.append(call)
        if stdio.is_terminal(sys.stderr):  # only a user reads it, no program
            for call in allowed_calls:
                line = f"{call['function'].get('name', '')} {call['function'].get('arguments', '')}"
                stdio.write_stderr(f"{shorten(line, stdio.width(sys.stderr) - 1)}\n")
        if allowed_calls:
            names = ", ".join(str(call["function"].get("name")) for call in allowed_calls)
            with screen.spinning(f"running {names}"):
                yield from self._tools.run(allowed_calls)

    def refusal(self, call: Call) -> str | None:
        """Why a call must not run, in words for the model; None if it may run. Waits for the user without limit.

        Shows the arguments, JSON indented; of long ones only both ends, and all of them on request.
        """
        tool_key, approved = self._tools.needs_approval(call), self._doc["meta"].get("mcp_approved") or []
        if tool_key is None or [*tool_key] in approved:
            return None
        arguments = str(call["function"].get("arguments", ""))
        with contextlib.suppress(ValueError, RecursionError):
            arguments = json.dumps(json.loads(arguments), ensure_ascii=False, indent=2)
        lines = [f"{_MARK}{piece}" for line in visible(arguments).split("\n") for piece in _pieces(line)]
        shown_lines = lines
        if len(lines) > _SHOWN_LINES:
            left_out = f"[{len(lines) - _SHOWN_LINES:,} lines are not shown]"
            shown_lines = [*lines[: _SHOWN_LINES // 2], left_out, *lines[-_SHOWN_LINES // 2 :]]
        server, tool = map(one_line, tool_key)
        question = f"Run {tool} of {server}? [y]es, [n]o, [a]lways in this session"
        decision: str | None = "show"
        while decision == "show":
            has_more = shown_lines != lines
            choices = ("yes", "no", "always", "show") if has_more else ("yes", "no", "always")
            intro = "".join(f"{line}\n" for line in shown_lines)
            decision = ask_choice(intro, f"{question}{', [s]how all' if has_more else ''}: ", choices)
            shown_lines = lines
        if decision == "always":
            self._doc["meta"]["mcp_approved"] = [*approved, [*tool_key]]
        if decision in ("yes", "always"):
            return None
        self.denied.append(str(call["function"]["name"]))
        self.has_terminal = decision is not None
        return BY_USER if self.has_terminal else NO_TERMINAL


def _pieces(line: str) -> list[str]:
    """Split a line to fit the width of the terminal, so that each row has its mark."""
    room = max(20, shutil.get_terminal_size().columns - len(_MARK) - 1)
    room = room if line.isascii() else room // 2  # a character may be two columns wide
    return [line[at : at + room] for at in range(0, len(line), room)] or [""]
