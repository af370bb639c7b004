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


def fail(ident: Any, code: int, text: str, **more: Any) -> None:
    """Answer a request with an error."""
    fault = {"code": code, "message": text, **more}
    put(json.dumps({"jsonrpc": "2.0", "id": ident, "error": fault}))


def answer_text(ident: Any, text: str) -> None:
    """Answer a call with a text."""
    answer(ident, {"content": [{"type": "text", "text": text}]})


# ---- tools, which misbehave each in another way


def die(_ident: Any, _given: Any) -> None:
    """End the process."""
    complain(f"about to die\nthe key is {os.environ.get('TOOL_KEY')}\n")
    os._exit(3)


def hang(_ident: Any, _given: Any) -> None:
    """Never answer."""
    time.sleep(60)


def garble(_ident: Any, _given: Any) -> None:
    """Answer with half a document."""
    put('{"jsonrpc": "2.0", "id": ')


def refuse(ident: Any, _given: Any) -> None:
    """Answer with an error."""
    fail(ident, -32000, "not today")


def give(ident: Any, given: Any) -> None:
    """Answer with the given result."""
    answer(ident, given["result"])


def many(ident: Any, given: Any) -> None:
    """Answer with the same block again and again."""
    blocks = ",".join([json.dumps(given["block"])] * given["count"])
    put(f'{{"jsonrpc": "2.0", "id": {json.dumps(ident)}, "result": {{"content": [{blocks}]}}}}')


def tell(ident: Any, given: Any) -> None:
    """Tell how the server was started, and the arguments of the call."""
    facts = {
        "env": dict(os.environ),
        "cwd": os.getcwd(),
        "leads": os.getsid(0) == os.getpid(),
        "given": given,
    }
    answer_text(ident, json.dumps(facts))


def leak(ident: Any, _given: Any) -> None:
    """Write log lines to stdout before the answer."""
    put('cloning into ...\n\n{"level": "info"}')
    answer_text(ident, "done")


def say(ident: Any, given: Any) -> None:
    """Write the given line in Latin-1, with the request's id for ID."""
    line = given["line"].replace("ID", str(ident))
    with writing:
        sys.stdout.buffer.write(line.encode("latin-1") + b"\n")
        sys.stdout.flush()


def ask(ident: Any, given: Any) -> None:
    """Ask the user in the protocols before 2026-07-28, and answer with the reply."""
    replies[ident] = queue.SimpleQueue()
    request = {
        "jsonrpc": "2.0",
        "id": f"q{ident}",
        "method": "elicitation/create",
        "params": given["asked"],
    }
    put(re.sub('"(NaN|Infinity)"', r"\1", json.dumps(request)))
    answer_text(ident, json.dumps(replies[ident].get()))


TOOLS = {
    tool.__name__: tool for tool in (die, hang, garble, refuse, give, many, tell, leak, say, ask)
}


# ---- requests


def call(ident: Any, params: Any) -> None:
    """Answer ``tools/call``, in a thread: a call may hang."""
    if params["name"] == "ask" and IS_MODERN:
        ask_in_result(ident, params)
        return
    tool = TOOLS[params["name"]]
    args = (ident, params.get("arguments") or {})
    threading.Thread(target=tool, args=args, daemon=True).start()


def ask_in_result(ident: Any, params: Any) -> None:
    """Answer a call of ``ask`` in the protocol of 2026-07-28: with a question, then with the reply."""
    if "inputResponses" in params:
        reply = {"reply": params["inputResponses"]["q"], "state": params["requestState"]}
        answer_text(ident, json.dumps(reply))
    else:
        request = {"method": "elicitation/create", "params": params["arguments"]["asked"]}
        result = {
            "resultType": "input_required",
            "inputRequests": {"q": request},
            "requestState": "sealed",
        }
        put(json.dumps({"jsonrpc": "2.0", "id": ident, "result": result}))


def list_tools(ident: Any, params: Any) -> None:
    """Answer ``tools/list``: three a page, endless pages, no names, too many tools, or all at once."""
    if MODE == "lasting":
        with open(f"{sys.argv[2]}.lists", "a") as file:
            file.write("listed\n")
    start = int(params.get("cursor") or 0)
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    tools: list[Any] = [
        {"name": name, "description": f"Will {name}.\nMore.", "inputSchema": schema}
        for name in TOOLS
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


def initialize(ident: Any, _params: Any) -> None:
    """Answer ``initialize``: with another version, late, not at all, or correctly."""
    if MODE == "chatty":
        put("Server listening!\n\n[banner]")
    if IS_MODERN:
        versions = {"supported": ["2026-07-28"], "requested": "2025-11-25"}
        fail(ident, -32022, "too old", data=versions)
    elif MODE == "meet":  # wait until a second server was started
        while len(Path(sys.argv[2]).read_text().split()) < 2:
            time.sleep(0.01)
    if MODE not in ("mute", "modern", "lasting"):
        version = "1999-01-01" if MODE == "foreign" else "2025-06-18"
        answer(ident, {"protocolVersion": version, **HELLO})


def discover(ident: Any, _params: Any) -> None:
    """Answer ``server/discover``, which only servers of 2026-07-28 know."""
    if IS_MODERN:
        answer(ident, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
    elif MODE != "mute":
        fail(ident, -32601, "Method not found")


METHODS = {
    "initialize": initialize,
    "server/discover": discover,
    "tools/list": list_tools,
    "tools/call": call,
}


# ---- the process


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


def refuse_to_discover(method: str) -> None:
    """End the process if its first request is not ``initialize``, as servers in Rust of 2025 do."""
    if method != "initialize":
        complain(f"Error: ExpectedInitializeRequest({method})\n")
        sys.exit(1)


def main() -> None:
    """Read requests until stdin ends; a stubborn server stays."""
    prepare()
    is_first = True
    for line in sys.stdin:
        message = json.loads(line)
        ident = message.get("id")
        method = message.get("method")
        if method is None:  # a reply to a question
            replies[int(ident.removeprefix("q"))].put(message.get("result", message.get("error")))
            continue
        if MODE == "old" and is_first:
            refuse_to_discover(method)
        is_first = False
        if method in METHODS:
            METHODS[method](ident, message.get("params") or {})
    if MODE == "stubborn":
        time.sleep(60)


main()
