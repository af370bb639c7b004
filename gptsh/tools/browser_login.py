"""Receive a login at a remote tool server: from the browser that ``process/browser.py`` opens, or as an address.

The SDK's error texts quote states and bodies, so none of them is shown.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.shared.auth import AuthorizationCodeResult
from pydantic import ValidationError

from gptsh.config.mcp_servers import ToolServer
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


async def log_in(
    server: ToolServer, environ: Mapping[str, str], show: Callable[[str], None], pasted: "asyncio.Queue[str]"
) -> None:
    """Log in at a server, and keep the tokens. Raises ToolServerError.

    ``show`` gets the URL where the user logs in. The browser is then sent to a port of this machine; where it cannot
    reach that, the user may paste its address instead.
    """
    what = f"tool server {server.name}"
    loopback = await asyncio.start_server(lambda reader, writer: _receive(reader, writer, pasted), "127.0.0.1", 0)
    port = loopback.sockets[0].getsockname()[1]
    was_asked = False

    async def show_url(url: str) -> None:
        nonlocal was_asked
        was_asked = True
        show(url)

    async def wait() -> AuthorizationCodeResult:
        query = {key: values[0] for key, values in parse_qs(urlsplit(await pasted.get()).query).items()}
        if "code" not in query:
            reason = query.get("error", "the address has no code")
            raise ToolServerError(f"{what} gave no login: {reason}")
        return AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))

    auth = oauth.login_auth(str(server.url), f"http://127.0.0.1:{port}/callback", show_url, wait, is_new=True)
    headers = {"Accept": "application/json, text/event-stream"}
    try:
        async with (
            loopback,
            http_client(server, environ, auth) as client,
            client.stream("POST", str(server.url), json=_HELLO, headers=headers) as response,
        ):
            status = response.status_code
    except OAuthRegistrationError:
        raise ToolServerError(f"{what}: its authorization server does not accept gptsh as a client") from None
    except OAuthTokenError:
        raise ToolServerError(f"{what}: its authorization server gave no token", "try again") from None
    except (OAuthFlowError, ValidationError):
        foreign = "the state or the issuer of the answer is not that of this login"
        reason = foreign if was_asked else "no usable metadata"
        raise ToolServerError(f"{what}: the login failed: {reason}") from None
    except httpx2.HTTPError as err:
        raise ToolServerError(f"{what} cannot be reached: {type(err).__name__}") from None
    if not was_asked:
        raise ToolServerError(f"{what} asked for no login: it answered {status}")
    if status in _REFUSED:
        raise ToolServerError(f"{what} still refuses after the login: it answered {status}")


async def _receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pasted: "asyncio.Queue[str]") -> None:
    """Answer the browser, and take the address that it was sent to."""
    with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        request = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode("ascii", "replace").split(" ")
        is_callback = len(request) > 1 and request[0] == "GET" and request[1].startswith("/callback?")
        status, body = ("200 OK", _PAGE) if is_callback else ("404 Not Found", b"")
        fields = f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        writer.write(f"HTTP/1.1 {status}\r\n{fields}\r\n".encode() + body)
        await writer.drain()
        writer.close()
        if is_callback:
            pasted.put_nowait(request[1])
