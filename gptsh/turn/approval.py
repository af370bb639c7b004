"""Ask the user to approve tool calls."""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gptsh.core import approvals
from gptsh.errors import StoreError
from gptsh.jsonio import JsonObject
from gptsh.messages import Call, ServerQuestion, ToolResult, Tools, error_result
from gptsh.terminal import stdio
from gptsh.terminal.asking import ask_choice, marked_lines
from gptsh.text import one_line, shorten

if TYPE_CHECKING:
    from gptsh.turn.screen import Screen
    from gptsh.turn.session import Session

NO_TERMINAL = "denied: this tool call needs the user's approval, and there is no terminal to ask on"
BY_USER = "denied: the user did not allow this tool call"
_SHOWN_LINES = 12  # of the arguments, until the user asks for all


class Approval:
    """Runs the tool calls of a turn that are approved. What is always approved is kept for the session's file."""

    def __init__(self, tools: Tools, session: "Session") -> None:
        self.denied: list[str] = []  # names of tools
        self.not_offered: list[str] = []  # names that the model made up; it is sent an error
        self.has_terminal = True  # unless a question found none
        self._tools, self._session = tools, session
        self._approved = approvals.approved_in(session.filename)

    def run(self, calls: Sequence[Call], screen: "Screen") -> Iterator[ToolResult]:
        """Yield the denied results, then the others as they arrive. Raises ToolServerError after the last result."""
        allowed_calls = []
        for call in calls:
            if reason := self.refusal(call):
                yield ToolResult(error_result(call, reason))
            else:
                allowed_calls.append(call)
        offered = {tool.name for tool in self._tools.tools()}
        offered_calls = [call for call in allowed_calls if call["function"].get("name") in offered]
        self.not_offered += [str(call["function"].get("name")) for call in allowed_calls if call not in offered_calls]
        if stdio.is_terminal(sys.stderr):  # only a user reads it, no program
            for call in offered_calls:
                line = f"{call['function'].get('name', '')} {call['function'].get('arguments', '')}"
                stdio.write_stderr(f"{shorten(line, stdio.width(sys.stderr) - 1)}\n")
        if allowed_calls:
            names = ", ".join(str(call["function"].get("name")) for call in allowed_calls)
            with screen.spinning(f"running {names}") as spinner:

                def answer(question: ServerQuestion) -> JsonObject | None:
                    from gptsh.turn import elicitation

                    spinner.hide()
                    try:
                        return elicitation.answer(question)
                    finally:
                        spinner.show()

                yield from self._tools.run(allowed_calls, answer)

    def refusal(self, call: Call) -> str | None:
        """Ask the user about a call: why it must not run, in words for the model; None if it may. Waits without limit.

        Shows the arguments, JSON indented; of long ones only both ends, and all of them on request.
        """
        tool_key = self._tools.needs_approval(call)
        if tool_key is None or tool_key in self._approved:
            return None
        arguments = str(call["function"].get("arguments", ""))
        with contextlib.suppress(ValueError, RecursionError):
            arguments = json.dumps(json.loads(arguments), ensure_ascii=False, indent=2)
        lines = marked_lines(arguments)
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
            self._approved.add(tool_key)
            self._remember(tool_key)
        if decision in ("yes", "always"):
            return None
        self.denied.append(str(call["function"]["name"]))
        self.has_terminal = decision is not None
        return BY_USER if self.has_terminal else NO_TERMINAL

    def _remember(self, tool: approvals.ServerTool) -> None:
        """Keep an approval for later turns, unless this session is not saved."""
        if self._session.is_saved and self._session.filename:
            try:
                approvals.approve(self._session.filename, tool)
            except StoreError as err:
                stdio.note(str(err))
