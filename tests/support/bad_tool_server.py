"""A tool server over stdio that misbehaves: its first argument and its tools set how. Written without an MCP library.

If the second argument names a file, the server appends the ids of its processes, a line each.
"""

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else ""
TTL = 60_000 if MODE == "lasting" else 0
IS_MODERN = MODE in ("modern", "lasting")
MODERN = {"resultType": "complete", "ttlMs": TTL, "cacheScope": "public"} if IS_MODERN else {}
HELLO = {"capabilities": {"tools": {}}, "serverInfo": {"name": "bad", "version": "1"}}
TOOLS = ("die", "hang", "garble", "refuse", "give", "many", "tell", "leak", "say", "ask")
writing = threading.Lock()
replies: dict[int, queue.SimpleQueue[Any]] = {}  # to questions, by the call


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
    """Record the id of a process for the test."""
    if len(sys.argv) > 2:
        with open(sys.argv[2], "a") as file:
            file.write(f"{pid}\n")


def answer(ident: Any, result: Any) -> None:
    """Answer a request."""
    put(json.dumps({"jsonrpc": "2.0", "id": ident, "result": {**result, **MODERN}}))


def called(ident: Any, tool: str, given: Any) -> None:
    """Run a tool; each misbehaves in another way."""
    if tool == "die":
        complain(f"about to die\nthe key is {os.environ.get('TOOL_KEY')}\n")
        os._exit(3)
    elif tool == "hang":
        time.sleep(60)
    elif tool == "garble":
        put('{"jsonrpc": "2.0", "id": ')
    elif tool == "refuse":
        put(
            json.dumps(
                {"jsonrpc": "2.0", "id": ident, "error": {"code": -32000, "message": "not today"}}
            )
        )
    elif tool == "give":
        answer(ident, given["result"])
    elif tool == "many":  # the same block again and again
        blocks = ",".join([json.dumps(given["block"])] * given["count"])
        put(f'{{"jsonrpc": "2.0", "id": {json.dumps(ident)}, "result": {{"content": [{blocks}]}}}}')
    elif tool == "tell":
        facts = {
            "env": dict(os.environ),
            "cwd": os.getcwd(),
            "leads": os.getsid(0) == os.getpid(),
            "given": given,
        }
        answer(ident, {"content": [{"type": "text", "text": json.dumps(facts)}]})
    elif tool == "leak":  # log lines on stdout
        put('cloning into ...\n\n{"level": "info"}')
        answer(ident, {"content": [{"type": "text", "text": "done"}]})
    elif tool == "say":  # the given line in Latin-1, with the request's id for ID
        with writing:
            sys.stdout.buffer.write(
                given["line"].replace("ID", str(ident)).encode("latin-1") + b"\n"
            )
            sys.stdout.flush()
    elif tool == "ask" and not MODERN:
        replies[ident] = queue.SimpleQueue()
        request = {
            "jsonrpc": "2.0",
            "id": f"q{ident}",
            "method": "elicitation/create",
            "params": given["asked"],
        }
        put(re.sub('"(NaN|Infinity)"', r"\1", json.dumps(request)))
        answer(ident, {"content": [{"type": "text", "text": json.dumps(replies[ident].get())}]})


def asked(ident: Any, params: Any) -> None:
    """Answer a call of ``ask`` in the protocol of 2026-07-28: with a question, then with the reply."""
    if "inputResponses" in params:
        reply = {"reply": params["inputResponses"]["q"], "state": params["requestState"]}
        answer(ident, {"content": [{"type": "text", "text": json.dumps(reply)}]})
    else:
        request = {"method": "elicitation/create", "params": params["arguments"]["asked"]}
        put(json.dumps({"jsonrpc": "2.0", "id": ident, "result": {
            "resultType": "input_required", "inputRequests": {"q": request}, "requestState": "sealed"}}))  # fmt: skip


def listed(ident: Any, params: Any) -> None:
    """Answer ``tools/list``: three a page, endless pages, no names, too many tools, or all at once."""
    if MODE == "lasting":
        with open(f"{sys.argv[2]}.lists", "a") as file:
            file.write("listed\n")
    start = int(params.get("cursor") or 0)
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    tools: list[Any] = [
        {"name": n, "description": f"Will {n}.\nMore.", "inputSchema": schema} for n in TOOLS
    ]
    pages: dict[str, dict[str, Any]] = {
        "tasks": {
            "tools": [
                {**tools[0], "execution": {"taskSupport": "required"}},
                {**tools[1], "execution": {"taskSupport": "optional"}},
            ]
        },
        "nameless": {"tools": [{"name": 7}]},
        "many": {"tools": tools * 300},
        "wordy": {"tools": [{**tools[0], "description": "x" * 5_000_000}]},
        "endless": {"tools": [], "nextCursor": str(start + 1)},
        "pages": {
            "tools": tools[start : start + 3],
            **({"nextCursor": str(start + 3)} if start < 9 else {}),
        },
    }
    answer(ident, pages.get(MODE, {"tools": tools}))


def initialized(ident: Any) -> None:
    """Answer ``initialize``: with another version, late, not at all, or correctly."""
    if MODE == "chatty":
        put("Server listening!\n\n[banner]")
    if IS_MODERN:
        fault = {
            "code": -32022,
            "message": "too old",
            "data": {"supported": ["2026-07-28"], "requested": "2025-11-25"},
        }
        put(json.dumps({"jsonrpc": "2.0", "id": ident, "error": fault}))
    elif MODE == "meet":  # wait until a second server was started
        while len(Path(sys.argv[2]).read_text().split()) < 2:
            time.sleep(0.01)
    if MODE not in ("mute", "modern", "lasting"):
        answer(
            ident, {"protocolVersion": "1999-01-01" if MODE == "foreign" else "2025-06-18", **HELLO}
        )


def prepare() -> None:
    """Misbehave before the first request, if the mode says so."""
    note(os.getpid())
    if MODE == "dies":
        complain(f"starting\nno database\nthe key is {os.environ.get('TOOL_KEY')}\n")
        sys.exit(3)
    elif MODE == "banner":
        put("usage: server [--stdio]")
        sys.exit(2)
    elif MODE == "deaf":
        os.close(0)
        time.sleep(60)
    elif MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        note(subprocess.Popen(["sleep", "60"]).pid)  # a child ignores SIGTERM, too
    while MODE == "noise":
        put("noise " * 20)
    while MODE == "flood":
        sys.stdout.write("x" * 65536)


def main() -> None:
    """Read requests until stdin ends; a stubborn server stays."""
    prepare()
    greeted = False
    for line in sys.stdin:
        message = json.loads(line)
        ident, method, params = (
            message.get("id"),
            message.get("method"),
            message.get("params") or {},
        )
        if method is None:
            replies[int(ident.removeprefix("q"))].put(message.get("result", message.get("error")))
            continue
        if MODE == "old" and not greeted:
            if method != "initialize":  # as servers in Rust of 2025
                complain(f"Error: ExpectedInitializeRequest({method})\n")
                sys.exit(1)
            greeted = True
        if method == "initialize":
            initialized(ident)
        elif method == "server/discover" and IS_MODERN:
            answer(ident, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
        elif method == "server/discover" and MODE != "mute":
            put(
                json.dumps(
                    {
                        "jsonrpc": "2.0",
                        "id": ident,
                        "error": {"code": -32601, "message": "Method not found"},
                    }
                )
            )
        elif method == "tools/list":
            listed(ident, params)
        elif method == "tools/call" and params["name"] == "ask" and MODERN:
            asked(ident, params)
        elif method == "tools/call":
            args = (ident, params["name"], params.get("arguments") or {})
            threading.Thread(target=called, args=args, daemon=True).start()
    if MODE == "stubborn":
        time.sleep(60)


main()
