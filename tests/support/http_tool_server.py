"""A tool server over streamable HTTP with MCP's SDK. It prints its port and exits at the end of stdin.

It requires the token in ``TOOL_TOKEN``. With the argument ``json`` it answers in JSON, else in events.
"""

import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp_types import ResourceLink
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse

server = MCPServer("near", log_level="CRITICAL")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def long(size: int) -> str:
    """A long text."""
    return "x" * size


@server.tool()
def links(count: int) -> list[ResourceLink]:
    """Links, each in its own part."""
    return [
        ResourceLink(type="resource_link", name="n", uri=f"x:{number}") for number in range(count)
    ]


@server.tool()
def die() -> str:
    """End without an answer."""
    os._exit(1)


class TokenCheck:
    """Refuses requests without the token; the path ``/page`` answers in HTML."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        inner: Callable[..., Awaitable[None]] = self.app
        if scope["type"] == "http":
            request = Request(scope)
            if request.headers.get("authorization") != f"Bearer {os.environ['TOOL_TOKEN']}":
                inner = JSONResponse({"error": "who are you?"}, 401)
            elif request.url.path == "/page":
                inner = PlainTextResponse("<html>hello", media_type="text/html")
        await inner(scope, receive, send)


def end_with_stdin() -> None:
    """Exit when stdin is closed."""
    sys.stdin.read()
    os._exit(0)


app = server.streamable_http_app(json_response="json" in sys.argv)
app.user_middleware.insert(0, Middleware(TokenCheck))
listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen()  # early connections wait
sys.stdout.write(f"{listening.getsockname()[1]}\n")
sys.stdout.flush()
threading.Thread(target=end_with_stdin, daemon=True).start()
uvicorn.Server(uvicorn.Config(app, log_level="critical")).run([listening])
