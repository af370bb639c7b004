"""A correct tool server over stdio in plain JSON-RPC, so that it starts fast.

Its tools are its functions; an argument goes before their names.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

PREFIX = "".join(sys.argv[1:])
_MET = threading.Barrier(2)
_LOCK = threading.Lock()


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


def meet(name: str) -> str:
    """Wait for another call of this tool."""
    _MET.wait(20)
    return f"{name} met"


def fail(why: str) -> str:
    """Say that it failed."""
    raise ValueError(why)


def repeat(text: str, times: int) -> str:
    """A text, many times."""
    return text * times


def note(path: str) -> str:
    """Append to a file."""
    with open(path, "a") as file:
        file.write("noted\n")
    return "done"


def environment() -> str:
    """The names of the variables that it sees."""
    return " ".join(sorted(os.environ))


def die() -> str:
    """End in the middle of a call, with a last word on stderr."""
    sys.stderr.write("the disk is full\n")
    sys.stderr.flush()
    os._exit(7)


def hang(path: str) -> str:
    """Say in a file that it has begun, and come back a minute later, or once that file is gone."""
    note(path)
    end = time.monotonic() + 60
    while os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.01)
    return "back"


TOOLS: dict[str, Callable[..., str]] = {
    tool.__name__: tool for tool in (add, meet, fail, repeat, note, environment, die, hang)
}


def described(tool: Callable[..., str]) -> dict[str, Any]:
    """A tool in the form of ``tools/list``."""
    kinds = {
        name: {"type": "integer" if kind is int else "string"}
        for name, kind in tool.__annotations__.items()
    }
    kinds.pop("return")
    schema = {"type": "object", "properties": kinds, "required": list(kinds)}
    return {"name": PREFIX + tool.__name__, "description": tool.__doc__, "inputSchema": schema}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None for an unknown method."""
    if method == "initialize":
        capabilities = {"tools": {}}
        info = {"name": "good", "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": capabilities,
            "serverInfo": info,
        }
    if method == "tools/list":
        return {"tools": [described(tool) for tool in TOOLS.values()]}
    if method == "tools/call":
        tool = TOOLS[params["name"].removeprefix(PREFIX)]
        try:
            text = tool(**params.get("arguments") or {})
            failed = False
        except (ValueError, TypeError, OSError) as err:
            text = str(err)
            failed = True
        return {"content": [{"type": "text", "text": text}], "isError": failed}
    return None


def handle(request: dict[str, Any]) -> None:
    """Answer one request."""
    result = answer(request["method"], request.get("params") or {})
    outcome: dict[str, Any] = {"result": result}
    if result is None:
        outcome = {"error": {"code": -32601, "message": "Method not found"}}
    with _LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            threading.Thread(target=handle, args=(request,), daemon=True).start()
