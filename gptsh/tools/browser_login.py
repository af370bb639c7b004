"""Receive a login at a remote tool server: from the browser that ``terminal/programs.py`` opens, or as an address.

The SDK's error texts quote states and bodies, so none of them is shown.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.shared.auth import AuthorizationCodeResult
from pydantic import ValidationError

from gptsh.config.tool_servers import ToolServer
from gptsh.errors import ToolServerError
from gptsh.tools import oauth
from gptsh.tools.http_client import http_client

_PAGE = b"You can close this page. gptsh says whether the login worked.\n"
_HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "gptsh", "version": "1"}},
}
_REFUSED = (401, 403)
_MAX_SECONDS = 30  # until the server answers, and until a browser has sent its request


async def log_in(
    server: ToolServer,
    environ: Mapping[str, str],
    show: Callable[[str], None],
    addresses: "asyncio.Queue[str]",
    note: Callable[[str], None],
) -> None:
    """Log in at a server, and keep the tokens. Raises ToolServerError.

    ``show`` gets the URL where the user logs in. The browser is then sent to a port of this
    machine; where it cannot reach that, the user may paste its address instead. An address without
    the state of this login is ignored, since any page in the browser can send one; ``note`` says so
    of a pasted one.
    """
    what = f"tool server {server.name}"
    state = ""

    def is_ours(address: str) -> bool:
        return bool(state) and _query_of(address).get("state") == state

    loopback = await asyncio.start_server(partial(_receive, addresses, is_ours), "127.0.0.1", 0)
    port = loopback.sockets[0].getsockname()[1]

    async def show_url(url: str) -> None:
        nonlocal state
        state = _query_of(url)["state"]
        show(url)

    async def wait() -> AuthorizationCodeResult:
        while not is_ours(address := await addresses.get()):
            note("this address is not that of the last page of the login")
        query = _query_of(address)
        if "code" not in query:
            reason = query.get("error", "the address has no code")
            raise ToolServerError(f"{what} gave no login: {reason}")
        return AuthorizationCodeResult(code=query["code"], state=state, iss=query.get("iss"))

    redirect_uri = f"http://127.0.0.1:{port}/callback"
    auth = oauth.login_auth(server, environ, redirect_uri, show_url, wait, is_new=True)
    headers = {"Accept": "application/json, text/event-stream"}
    try:
        async with (
            loopback,
            http_client(server, environ, auth) as client,
            client.stream(
                "POST",
                str(server.url),
                json=_HELLO,
                headers=headers,
                timeout=_MAX_SECONDS,
            ) as response,
        ):
            status = response.status_code
    except OAuthRegistrationError:
        raise ToolServerError(f"{what}: its authorization server does not accept gptsh as a client") from None
    except OAuthTokenError:
        raise ToolServerError(f"{what}: its authorization server gave no token", "try again") from None
    except (OAuthFlowError, ValidationError):
        foreign = "the issuer of the answer is not that of this login"
        reason = foreign if state else "no usable metadata"
        raise ToolServerError(f"{what}: the login failed: {reason}") from None
    except httpx2.HTTPError as err:
        raise ToolServerError(f"{what} cannot be reached: {type(err).__name__}") from None
    if not state:
        raise ToolServerError(f"{what} asked for no login: it answered {status}")
    if status in _REFUSED:
        raise ToolServerError(f"{what} still refuses after the login: it answered {status}")


def _query_of(address: str) -> dict[str, str]:
    """Return the query of an address; of a name that stands there twice, the last value."""
    try:
        return {key: values[-1] for key, values in parse_qs(urlsplit(address).query).items()}
    except ValueError:
        return {}


async def _receive(
    addresses: "asyncio.Queue[str]",
    is_ours: Callable[[str], bool],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Answer the browser, and take the address that it was sent to if it is that of this login."""
    with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        async with asyncio.timeout(_MAX_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        method, address, *_ = [*head.split(b"\r\n")[0].decode("ascii", "replace").split(" "), ""]
        is_callback = method == "GET" and address.startswith("/callback?") and is_ours(address)
        status, body = ("200 OK", _PAGE) if is_callback else ("404 Not Found", b"")
        fields = f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        writer.write(f"HTTP/1.1 {status}\r\n{fields}\r\n".encode() + body)
        await writer.drain()
        writer.close()
        if is_callback:
            addresses.put_nowait(address)
