"""A tool server with the SDK of either era: mcp 1.x is older than the protocol of 2026-07-28, and 2.x speaks both.

It speaks over stdio, or with the argument ``http`` over HTTP: then it prints its port, and exits at the end of stdin.
"""

import os
import socket
import sys
import threading
from importlib import metadata
from typing import Annotated, Any

from pydantic import BaseModel

IS_OLD = metadata.version("mcp").startswith("1.")
if IS_OLD:
    from mcp.server.fastmcp import Context  # type: ignore[import-not-found, unused-ignore]
    from mcp.server.fastmcp import FastMCP as Sdk
else:
    from mcp.server.mcpserver import MCPServer as Sdk
    from mcp.server.mcpserver.resolve import Elicit, Resolve

server: Any = Sdk("either", log_level="CRITICAL")


class Trip(BaseModel):
    """What the user is asked."""

    city: str
    days: int = 3


if IS_OLD:

    @server.tool()
    async def trip(ctx: "Context") -> str:
        """Ask the user in the middle of the call."""
        result = await ctx.elicit(message="Where to?", schema=Trip)
        return (
            f"{result.data.city} {result.data.days}"
            if result.action == "accept"
            else str(result.action)
        )

else:

    def ask() -> "Elicit[Trip]":
        """What is needed before the call."""
        return Elicit("Where to?", Trip)

    @server.tool()
    def trip(wish: Annotated[Trip, Resolve(ask)]) -> str:
        """Ask the user before the call."""
        return f"{wish.city} {wish.days}"


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def version() -> str:
    """The version of the SDK."""
    return metadata.version("mcp")


def end_with_stdin() -> None:
    """Exit when stdin is closed."""
    sys.stdin.read()
    os._exit(0)


def serve_http() -> None:
    """Serve on a free port."""
    import uvicorn

    app = server.streamable_http_app()
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    threading.Thread(target=end_with_stdin, daemon=True).start()
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run([listening])


if __name__ == "__main__":
    if "http" in sys.argv:
        serve_http()
    else:
        server.run()
