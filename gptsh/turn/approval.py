"""Ask the user to approve tool calls, and run those that are approved."""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gptsh.core import approvals
from gptsh.errors import Denied, StoreError
from gptsh.jsonio import JsonObject
from gptsh.messages import Call, ServerQuestion, ToolResult, Tools, error_result
from gptsh.terminal import stdio
from gptsh.terminal.asking import ask_choice, marked_lines
from gptsh.text import one_line, shorten

if TYPE_CHECKING:
    from gptsh.render.writer import Spinner
    from gptsh.turn.screen import Screen
    from gptsh.turn.session import Session

NO_TERMINAL = "denied: this tool call needs the user's approval, and there is no terminal to ask on"
BY_USER = "denied: the user did not allow this tool call"
_SHOWN_LINES = 12  # of the arguments, until the user asks for all


class Approval:
    """Runs the tool calls of a turn that are approved.

    What is always approved is kept for the session's file. Names of tools that the model made up
    are added to ``not_offered``; it is sent an error for such a call.
    """

    def __init__(self, tools: Tools, session: "Session", not_offered: list[str]) -> None:
        self._tools = tools
        self._session = session
        self._not_offered = not_offered
        self._denied: list[str] = []  # names of tools
        self._has_terminal = True  # unless a question found none
        self._approved = approvals.approved_in(session.filename)

    def run(self, calls: Sequence[Call], screen: "Screen") -> Iterator[ToolResult]:
        """Yield the denied results, then the others as they arrive.

        Raises ToolServerError after the last result.
        """
        allowed_calls = []
        for call in calls:
            reason = self._ask_to_run(call)
            if reason:
                yield ToolResult(error_result(call, reason))
            else:
                allowed_calls.append(call)
        if not allowed_calls:
            return
        self._show_calls(allowed_calls)
        names = ", ".join(str(call["function"].get("name")) for call in allowed_calls)
        with screen.spinning(f"running {names}") as spinner:
            yield from self._tools.run(allowed_calls, partial(_answer_server, spinner))

    def denial(self) -> Denied | None:
        """Return the failure of a turn in which calls were denied.

        Return None if all of them were approved.
        """
        if not self._denied:
            return None
        names = ", ".join(dict.fromkeys(self._denied))
        way = ""
        if not self._has_terminal:
            way = "approve it on a terminal, or set auto_approve under its [mcp.servers.NAME]"
        return Denied(f"a tool call was denied: {names}", way)

    def _ask_to_run(self, call: Call) -> str | None:
        """Ask the user about a call, if it is not approved; return why it must not run, or None.

        The reason is in words for the model. Waits without limit.
        """
        tool = self._tools.needs_approval(call)
        if tool is None or tool in self._approved:
            return None
        decision = _ask_about(call, tool)
        if decision == "always":
            self._approved.add(tool)
            self._remember(tool)
        if decision in ("yes", "always"):
            return None
        self._denied.append(str(call["function"]["name"]))
        self._has_terminal = decision is not None
        return BY_USER if self._has_terminal else NO_TERMINAL

    def _remember(self, tool: approvals.ServerTool) -> None:
        """Keep an approval for later turns, unless this session is not saved."""
        if self._session.is_saved and self._session.filename:
            try:
                approvals.approve(self._session.filename, tool)
            except StoreError as err:
                stdio.note(str(err))

    def _show_calls(self, calls: Sequence[Call]) -> None:
        """Show on a terminal which tools run, and record the names that do not exist."""
        offered = {tool.name for tool in self._tools.tools()}
        on_terminal = stdio.is_terminal(sys.stderr)  # only a user reads it, no program
        for call in calls:
            name = str(call["function"].get("name"))
            if name not in offered:
                self._not_offered.append(name)
            elif on_terminal:
                line = f"{name} {call['function'].get('arguments', '')}"
                stdio.write_stderr(f"{shorten(line, stdio.width(sys.stderr) - 1)}\n")


def _answer_server(spinner: "Spinner", question: ServerQuestion) -> JsonObject | None:
    """Ask the user what a tool server wants to know, while the spinner is hidden."""
    from gptsh.turn.elicitation import answer_server

    spinner.hide()
    try:
        return answer_server(question)
    finally:
        spinner.show()


def _ask_about(call: Call, tool: approvals.ServerTool) -> str | None:
    """Ask whether a call may run: yes, no or always; None without a terminal.

    Show the arguments as indented JSON, only both ends of long ones, and all of them on request.
    """
    arguments = str(call["function"].get("arguments", ""))
    with contextlib.suppress(ValueError, RecursionError):
        arguments = json.dumps(json.loads(arguments), ensure_ascii=False, indent=2)
    lines = marked_lines(arguments)
    server_name, tool_name = tool
    name = f"{one_line(tool_name)} of {one_line(server_name)}"
    question = f"Run {name}? [y]es, [n]o, [a]lways in this session"
    choices = ("yes", "no", "always")
    if len(lines) > _SHOWN_LINES:
        left_out = f"[{len(lines) - _SHOWN_LINES:,} lines are not shown]"
        ends = [*lines[: _SHOWN_LINES // 2], left_out, *lines[-_SHOWN_LINES // 2 :]]
        decision = ask_choice(_rows_of(ends), f"{question}, [s]how all: ", (*choices, "show"))
        if decision != "show":
            return decision
    return ask_choice(_rows_of(lines), f"{question}: ", choices)


def _rows_of(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
