"""Many turns of one session in one process, as the command carries them out: ``many_turns.py TURNS``.

What a tool gives is made here; all else is the code of the command, its HTTP and its file included.
"""

import os
import random
import sys
from collections.abc import Iterator, Sequence

from gptsh.cli.keeper import ByHand, Keeper
from gptsh.cli.prepare import draft, prepare
from gptsh.cli.run import Run
from gptsh.cli.signals import Endings

from gptsh.cli.opening import open_session
from gptsh.cli.options import Flags, build
from gptsh.cli.reporter import Reporter
from gptsh.core import settings
from gptsh.core.messages import Call, Tool, ToolResult, user_message
from gptsh.llm.client import Client

_WORDS = ("parser", "reads", "line", "from", "file", "and", "keeps", "what", "cannot", "tell", "apart", "until", "next")
_QUESTION, _LINES = 30, 40  # words of a question, lines of a file


class Files:
    """A tool server with one tool, which reads a file: see ``core.turn.Tools``."""

    missing: list[str] = []  # noqa: RUF012 - nothing is ever added

    def tools(self) -> tuple[Tool, ...]:
        """The tool."""
        parameters = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
        return (Tool("fs__read_file", "Read a file.", parameters),)

    def approved(self, _call: Call) -> bool:
        """It does no harm."""
        return True

    def run(self, calls: Sequence[Call]) -> Iterator[ToolResult]:
        """A file of code for each call, another one each time."""
        for call in calls:
            lines = [f"    {_said(4).replace(' ', '_')} = {_said(2).replace(' ', '.')}({at})" for at in range(_LINES)]
            result = {"tool_call_id": call["id"], "name": call["function"]["name"], "content": "\n".join(lines)}
            yield ToolResult({"role": "tool", "duration_ms": 1, **result})


def _said(words: int) -> str:
    return " ".join(random.choice(_WORDS) for _ in range(words))


def _turn(words: str, *args: str) -> None:
    argv = [*args, words]
    given = build().make_context("gptsh", argv).params
    flags = Flags(**{name: given[name] for name in Flags._fields})
    loaded, reporter = settings.load(os.environ), Reporter(argv)
    with Endings(None) as endings:
        client = Client(loaded, os.environ)
        drafted = draft(flags, loaded, user_message(words, ()), open_session(flags.session), client, reporter)
        keeper = Keeper(drafted.doc, ByHand(None, (), drafted.at, loaded.context.snapshots), enabled=True)
        Run(prepare(drafted, flags, Files()), keeper, endings, reporter).carry_out()


random.seed(0)
for number in range(int(sys.argv[1])):
    _turn(f"{number}: {_said(_QUESTION)}?", "-s", "@long")
