"""--login and --logout: the login at a remote tool server."""

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

from gptsh.cli.options import Flags
from gptsh.errors import ConfigError, UsageError
from gptsh.terminal import stdio
from gptsh.text import one_line

if TYPE_CHECKING:
    import asyncio

    from gptsh.config.tool_servers import ToolServer


def log_in(flags: Flags) -> int:
    """Log in at the server, in the browser or by a pasted address, and keep the tokens."""
    server = _server(flags, flags.login or "", "--login")
    if importlib.util.find_spec("mcp") is None:
        from gptsh.tools.toolbox import INSTALL

        raise ConfigError("tools need the package mcp", INSTALL)
    import asyncio
    import logging

    logging.getLogger().addHandler(logging.NullHandler())  # else Python prints the SDK's log, which quotes secrets
    asyncio.run(_log_in(server))
    stdio.note(f"you are logged in at tool server {server.name}; --logout {server.name} forgets it")
    return 0


def log_out(flags: Flags) -> int:
    """Forget the login at the server."""
    from gptsh.tools import remote

    server = _server(flags, flags.logout or "", "--logout")
    if not remote.remove_login(str(server.url)):
        raise UsageError(f"there is no login at tool server {server.name}")
    stdio.note(f"the login at tool server {server.name} is forgotten")
    return 0


def _server(flags: Flags, name: str, option: str) -> "ToolServer":
    """The server with this name. Raises UsageError if it has no login."""
    from gptsh.config import settings
    from gptsh.tools import remote

    config = settings.load(os.environ, flags.config)
    if name not in config.tool_servers.names:
        known = ", ".join(config.tool_servers.names)
        raise ConfigError(f"there is no tool server {name!r}", f"known are {known}" if known else "")
    (server,) = config.tool_servers.select([name])
    if server.url is None:
        raise UsageError(f"{option}: tool server {name} is a program: only one with a url has a login")
    if not remote.is_safe(server.url, server.url):
        raise UsageError(f"{option}: the url of tool server {name} begins with http://", "a login needs https://")
    if any(header.lower() == "authorization" for header in server.headers):
        raise UsageError(f"{option}: tool server {name} has a header Authorization", "remove it from its headers")
    return server


async def _log_in(server: "ToolServer") -> None:
    import asyncio

    from gptsh.terminal.programs import open_url
    from gptsh.tools import oauth

    pasted: asyncio.Queue[str] = asyncio.Queue()

    def show(url: str) -> None:
        stdio.write_stderr(f"Log in at tool server {server.name}:\n{one_line(url)}\n")
        way = "the browser opens it" if open_url(url) else "open it in a browser"
        stdio.write_stderr(f"({way}; if its last page cannot be reached, paste the address of that page here)\n")
        _take_lines(pasted)

    await oauth.log_in(server, os.environ, show, pasted, stdio.note)


def _take_lines(pasted: "asyncio.Queue[str]") -> None:
    """Put each line of stdin into the queue, if there is a stdin that can be waited for."""
    import asyncio

    if sys.stdin is None:
        return
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()

    def take() -> None:
        line = sys.stdin.readline()
        if line.strip():
            pasted.put_nowait(line.strip())
        elif not line:
            loop.remove_reader(descriptor)

    try:
        loop.add_reader(descriptor, take)
    except OSError:  # a file, or /dev/null
        return
