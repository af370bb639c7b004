"""Tool servers of the tests, calls of their tools, and whether a process is running."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.support.home import Home, lab_config
from tests.support.paths import SUPPORT
from tests.support.server import ModelServer, chunk, event

SERVER = SUPPORT / "tool_server.py"
MORE = """[sessions]
titles = "off"
[mcp.servers.good]
command = {python}
args = [{server}]
auto_approve = [{approved}]
"""


def configure(home: Home, model: ModelServer, approved: str = '"*"', more: str = "") -> None:
    """Configure an agent with the tools of the good server."""
    text = MORE.format(
        python=json.dumps(sys.executable), server=json.dumps(str(SERVER)), approved=approved
    )
    home.configure(
        lab_config(model, text + more).replace(
            'model = "lab/m"', 'model = "lab/m"\ntools = ["good"]'
        )
    )


def call(tool: str, number: int = 1, **arguments: Any) -> dict[str, Any]:
    """A tool call of a model."""
    function = {"name": f"good__{tool}", "arguments": json.dumps(arguments)}
    return {"index": number - 1, "id": f"call_{number}", "type": "function", "function": function}


def calling(*calls: dict[str, Any], text: str = "") -> list[bytes]:
    """A stream with tool calls."""
    first = [event(chunk({"content": text}))] if text else []
    return [
        *first,
        event(chunk({"tool_calls": list(calls)})),
        event(chunk({}, "tool_calls")),
        event(b"[DONE]"),
    ]


def roles(doc: dict[str, Any]) -> list[str]:
    return [message["role"] for message in doc["messages"]]


BAD = SUPPORT / "bad_tool_server.py"
HTTP = SUPPORT / "http_tool_server.py"


def is_running(pid: int) -> bool:
    """Whether a process is running; a zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # on Linux, the process has ended
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path("/proc/self").exists()
