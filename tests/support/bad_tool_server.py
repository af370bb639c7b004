"""A tool server over stdio that misbehaves as its first argument and its tools say. It knows MCP by hand.

Where a second argument names a file, the ids of its processes go there, a line each.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else ""
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
MODERN = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"} if MODE == "modern" else {}
HELLO = {"capabilities": {"tools": {}}, "serverInfo": {"name": "bad", "version": "1"}}
writing = threading.Lock()
meeting = threading.Barrier(2, timeout=20)


def put(line: str) -> None:
    """Write one line to stdout."""
    with writing:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def complain(text: str) -> None:
    """Write to stderr."""
    sys.stderr.write(text)
    sys.stderr.flush()


def note(pid: int) -> None:
    """Tell the test of a process."""
    if len(sys.argv) > 2:
        with open(sys.argv[2], "a") as file:
            file.write(f"{pid}\n")


def answer(ident: Any, result: Any) -> None:
    """Answer a request."""
    put(json.dumps({"jsonrpc": "2.0", "id": ident, "result": result}))


def said(text: str, **more: Any) -> dict[str, Any]:
    """The result of a tool that is one text."""
    return {"content": [{"type": "text", "text": text}], **more}


# ---- tools: each takes its request's id and its arguments, and gives its result where it gives one


def _die(_ident: Any, _given: Any) -> None:
    complain(f"about to die\nthe key is {os.environ.get('TOOL_KEY')}\n")
    os._exit(3)


def _hang(_ident: Any, _given: Any) -> None:
    time.sleep(60)


def _garble(_ident: Any, _given: Any) -> None:
    put('{"jsonrpc": "2.0", "id": ')


def _misshape(_ident: Any, _given: Any) -> dict[str, Any]:
    return {"content": "no list"}


def _refuse(ident: Any, _given: Any) -> None:
    put(json.dumps({"jsonrpc": "2.0", "id": ident, "error": {"code": -32000, "message": "not today"}}))


def _big(_ident: Any, _given: Any) -> dict[str, Any]:
    return said("é" * 2_500_000 + ".")


def _fail(_ident: Any, _given: Any) -> dict[str, Any]:
    return said("it failed", isError=True)


def _picture(_ident: Any, _given: Any) -> dict[str, Any]:
    shown = {"type": "image", "data": PICTURE, "mimeType": "image/png"}
    return {"content": [{"type": "text", "text": "see"}, shown]}


def _meet(_ident: Any, given: Any) -> dict[str, Any]:
    """Ends only when another call of it runs."""
    meeting.wait()
    return said(f"met {given['text']}")


def _give(_ident: Any, given: Any) -> Any:
    return given["result"]


def _tell(_ident: Any, given: Any) -> dict[str, Any]:
    tell = {"env": dict(os.environ), "cwd": os.getcwd(), "leads": os.getsid(0) == os.getpid(), "given": given}
    return said(json.dumps(tell))


def _leak(_ident: Any, _given: Any) -> dict[str, Any]:
    """Writes to stdout what belongs elsewhere."""
    put("cloning into ...\n\n")
    put('{"level": "info"}')
    return said("done")


def _say(ident: Any, given: Any) -> None:
    """Writes the line that is given, a byte a letter, with the request's id in the place of ID."""
    with writing:
        sys.stdout.buffer.write(given["line"].replace("ID", str(ident)).encode("latin-1") + b"\n")
        sys.stdout.flush()


TOOLS: dict[str, Callable[[Any, Any], Any]] = {
    name[1:]: globals()[name]
    for name in ("_die", "_hang", "_garble", "_misshape", "_refuse", "_big", "_fail", "_picture", "_meet", "_give",
                 "_tell", "_leak", "_say")
}  # fmt: skip


def _call(ident: Any, params: Any) -> None:
    if MODE == "chatty":
        put("log: a call")
    result = TOOLS[params["name"]](ident, params.get("arguments") or {})
    if result is not None:
        answer(ident, {**result, **({"resultType": "complete"} if MODERN else {})})


# ---- requests


def _listed(ident: Any, params: Any) -> None:
    """``tools/list``: five a page, one twice, without end, without names, or all at once."""
    start = int(params.get("cursor") or 0)
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    tools: list[Any] = [{"name": n, "description": f"Will {n}.\nMore.", "inputSchema": schema} for n in TOOLS]
    pages: dict[str, dict[str, Any]] = {
        "twins": {"tools": [*tools, {**tools[0], "description": "again"}]},
        "nameless": {"tools": [{"name": 7}]},
        "endless": {"tools": [], "nextCursor": str(start + 1)},
        "pages": {"tools": tools[start : start + 5], **({"nextCursor": str(start + 5)} if start < 10 else {})},
    }
    answer(ident, {**pages.get(MODE, {"tools": tools}), **MODERN})


def _initialized(ident: Any, _params: Any) -> None:
    if MODE == "chatty":
        put("Server listening!\n\n[banner]")
    if MODE == "modern":
        fault = {"code": -32022, "message": "too old", "data": {"supported": ["2026-07-28"], "requested": "2025-11-25"}}
        put(json.dumps({"jsonrpc": "2.0", "id": ident, "error": fault}))
    elif MODE != "mute":
        answer(ident, {"protocolVersion": "1999-01-01" if MODE == "foreign" else "2025-06-18", **HELLO})


# ---- starts


def _dies() -> None:
    complain(f"starting\nno database\nthe key is {os.environ.get('TOOL_KEY')}\n")
    sys.exit(3)


def _floods() -> None:
    complain(("x" * 99 + "\n") * 50_000 + "y" * 100_000)


def _deaf() -> None:
    os.close(0)
    time.sleep(60)


def _noise() -> None:
    while True:
        put("noise " * 20)


def _parent() -> None:
    note(subprocess.Popen(["sleep", "60"]).pid)


def _stubborn() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(subprocess.Popen(["sleep", "60"]).pid)  # it ignores SIGTERM, too


def _spells() -> None:
    """The key behind so many other letters, on stderr."""
    complain(f"{'z' * int(os.environ['AT'])} {os.environ['TOOL_KEY']}\n")
    sys.exit(3)


def _prints() -> None:
    """The same on stdout."""
    put(f"{'z' * int(os.environ['AT'])} {os.environ['TOOL_KEY']}")
    sys.exit(3)


def _banner() -> None:
    put("usage: server [--stdio]")
    sys.exit(2)


STARTS = {
    "banner": _banner,
    "dies": _dies,
    "floods": _floods,
    "deaf": _deaf,
    "noise": _noise,
    "parent": _parent,
    "spells": _spells,
    "prints": _prints,
    "stubborn": _stubborn,
}


def main() -> None:
    """Read until stdin ends; stubbornly, go on then."""
    note(os.getpid())
    STARTS.get(MODE, lambda: None)()
    for line in sys.stdin:
        message = json.loads(line)
        ident, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if method == "initialize":
            _initialized(ident, params)
        elif method == "server/discover":
            answer(ident, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **MODERN})
        elif method == "tools/list":
            _listed(ident, params)
        elif method == "tools/call":
            threading.Thread(target=_call, args=(ident, params), daemon=True).start()
    if MODE == "stubborn":
        time.sleep(60)


main()
