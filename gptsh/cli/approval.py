"""Whether a tool call may run: by configuration, by what was allowed in the session, else as the user says."""

import json

from gptsh.cli import confirm
from gptsh.content.answer import Tools
from gptsh.core.document import Document, approved_tools
from gptsh.messages import Call
from gptsh.text import one_line, visible

_QUESTION = "Run it? [y]es, [n]o, [a]lways in this session: "
NO_TERMINAL = "denied: this tool call needs the user's approval, and there is no terminal to ask on"
BY_USER = "denied: the user did not allow this tool call"


class Approval:
    """Decides about the tool calls of a run. What is allowed for good stands in the session's ``meta``."""

    def __init__(self, tools: Tools, doc: Document) -> None:
        self.denied: list[str] = []  # names of tools
        self._tools, self._doc = tools, doc

    def refusal(self, call: Call) -> str | None:
        """Why a call must not run, for the model to read; None where it may.

        Asks on the terminal, whatever the standard streams are, and waits there for as long as it takes.
        """
        name = str(call["function"].get("name", ""))
        if self._tools.approved(call) or name in approved_tools(self._doc):
            return None
        said = _ask(name, str(call["function"].get("arguments", "")))
        if said == "always":
            self._doc["meta"]["mcp_approved"] = [*approved_tools(self._doc), name]
        if said in ("yes", "always"):
            return None
        self.denied.append(name)
        return NO_TERMINAL if said is None else BY_USER


def _ask(name: str, arguments: str) -> str | None:
    """``yes``, ``no`` or ``always``; None where there is no terminal."""
    asked = f"The model calls {visible(one_line(name))} with\n{visible(_shown(arguments))}\n"
    return confirm.choice(asked, _QUESTION, ("yes", "no", "always"))


def _shown(arguments: str) -> str:
    """The arguments whole, indented where they are JSON. Nothing of them is left out: it is what is decided about."""
    try:
        text = json.dumps(json.loads(arguments), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        text = arguments
    return "\n".join(f"  {line}" for line in text.split("\n"))
