"""The tool calls of a turn: the user asked where that is needed, then all carried out at once, and shown."""

import sys
from collections.abc import Iterator, Sequence

from gptsh.cli import stdio
from gptsh.cli.approval import Approval
from gptsh.cli.show import Screen
from gptsh.cli.signals import Endings
from gptsh.core.document import Document
from gptsh.core.messages import Call, ToolResult, shortened
from gptsh.core.turn import Tools, result_of
from gptsh.errors import Denied


class Calls:
    """Carries out the calls of one run. ``made`` are those of the turn so far, whatever came of them."""

    def __init__(self, tools: Tools, doc: Document, screen: Screen, endings: Endings) -> None:
        self.made: list[Call] = []
        self._tools, self._screen, self._endings = tools, screen, endings
        self._approval = Approval(tools, doc)

    def results(self, calls: Sequence[Call]) -> Iterator[ToolResult]:
        """What comes of them: what is denied first, then what runs, as it ends. A signal may end the waiting.

        Raises ToolServerError behind the last result that came.
        """
        self.made += calls
        allowed = []
        for call in calls:
            with self._endings.released():
                why = self._approval.refusal(call)
            if why is None:
                allowed.append(call)
            else:
                yield ToolResult(result_of(call, why))
        for call in allowed:
            _tell(call)
        names = ", ".join(str(call["function"].get("name")) for call in allowed)
        with self._screen.turning(f"running {names}"):
            yield from self._endings.each(self._tools.run(allowed))

    @property
    def denied(self) -> Denied | None:
        """What an answer lacks for which a call was denied."""
        if not self._approval.denied:
            return None
        names = ", ".join(dict.fromkeys(self._approval.denied))
        way = "approve it on a terminal, or set auto_approve under its [mcp.servers.NAME]"
        return Denied(f"a tool call was denied: {names}", way)


def _tell(call: Call) -> None:
    """Say on a terminal what runs; in a pipe nobody reads it."""
    if stdio.is_terminal(sys.stderr):
        function = call["function"]
        said = f"{function.get('name', '')} {function.get('arguments', '')}"
        stdio.say(f"{shortened(said, stdio.width(sys.stderr) - 1)}\n")
