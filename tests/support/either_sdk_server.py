"""A tool server with the SDK of either era: mcp 1.x is older than the protocol of 2026-07-28, and 2.x speaks both.

It speaks over stdio, or with the argument ``http`` over HTTP: then it prints its port, and exits at the end of stdin.
"""

import os
import socket
import sys
import threading
from importlib import metadata

if metadata.version("mcp").startswith("1."):
    from mcp.server.fastmcp import FastMCP as Sdk  # type: ignore[import-not-found, unused-ignore]
else:
    from mcp.server.mcpserver import MCPServer as Sdk

server = Sdk("either", log_level="CRITICAL")


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
    import uvicorn  # noqa: PLC0415 - stdio needs none

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
