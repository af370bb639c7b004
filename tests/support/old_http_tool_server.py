"""A tool server over HTTP as of 2025, in this process: a session id, and no request that is not of its protocol."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Handler(BaseHTTPRequestHandler):
    """Answers ``initialize``, and with the id that this gave, also the list and calls."""

    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_POST(self) -> None:
        """Answer one request in JSON; refuse one without the session's id in plain text."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method = message["method"]
        self.server.methods.append(method)
        if method != "initialize" and self.headers.get("Mcp-Session-Id") != "s-1":
            self._reply(400, b"Bad Request: no valid session id", "text/plain")
        elif "id" not in message:
            self._reply(202, b"", "text/plain")
        else:
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": _RESULTS[method]}
            self._reply(200, json.dumps(reply).encode(), "application/json")

    def do_GET(self) -> None:
        """It sends no messages unasked."""
        self._reply(405, b"", "text/plain")

    def _reply(self, status: int, body: bytes, media_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Mcp-Session-Id", "s-1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.methods: list[str] = []


_RESULTS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "old", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "greet", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "hello"}]},
}


@contextmanager
def old_server() -> Iterator[tuple[str, list[str]]]:
    """The URL of a running server, and the methods that it was asked for."""
    server = _Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp", server.methods
    finally:
        server.shutdown()
        server.server_close()
