"""OAuth at remote tool servers, by the SDK's provider: a login, and what later runs need of it.

The SDK's error texts quote states and bodies, so none of them is shown.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, ValidationError

from gptsh.config.mcp_servers import ToolServer
from gptsh.errors import ToolServerError
from gptsh.tools import logins
from gptsh.tools.http_client import http_client

_PAGE = b"You can close this page. gptsh says whether the login worked.\n"
_HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "gptsh", "version": "1"}},
}
_REFUSED = (401, 403)
_ATTEMPTS, _PAUSE = 10, 0.05  # for another run to save what it has just refreshed; seconds between them


class _Storage:
    """The SDK's storage for the login at one server. ``is_new``: an earlier login is not used."""

    def __init__(self, url: str, *, is_new: bool) -> None:
        self.context: OAuthContext | None = None  # of the provider, which is made after its storage
        self._url, self._is_new = url, is_new
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """The kept tokens; sets in the context what the SDK does not keep: when they expire, and where to refresh."""
        login = None if self._is_new else logins.read(self._url)
        if login is None or self.context is None:
            return None
        try:
            self.context.token_expiry_time = login.get("expires_at")
            if metadata := login.get("metadata"):
                self.context.oauth_metadata = OAuthMetadata.model_validate(metadata)
            if resource := login.get("resource"):
                self.context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(resource)
                self.context.auth_server_url = login["issuer"]
            self._client = OAuthClientInformationFull.model_validate(login["client"])
            return OAuthToken.model_validate(login["tokens"])
        except (ValidationError, LookupError):
            return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep new tokens, with the client and the metadata."""
        context = self.context
        if context is None or self._client is None:
            return
        metadata, resource = context.oauth_metadata, context.protected_resource_metadata
        issuer = str(metadata.issuer) if metadata else context.get_authorization_base_url(self._url)
        kept = {
            "tokens": tokens.model_dump(mode="json", exclude_none=True),
            "expires_at": context.token_expiry_time,
            "metadata": metadata and metadata.model_dump(mode="json", exclude_none=True),
            "resource": resource and resource.model_dump(mode="json", exclude_none=True),
        }
        logins.write(self._url, issuer, self._client.model_dump(mode="json", exclude_none=True), kept)
        self._is_new = False

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """As what gptsh is registered."""
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Remember a registration; it is kept with the tokens."""
        self._client = client_info


class _Provider(OAuthClientProvider):
    """The SDK's provider, which also takes what another run has refreshed: many servers take a refresh token once."""

    async def _handle_refresh_response(self, response: httpx2.Response) -> bool:
        before = self.context.current_tokens
        if await super()._handle_refresh_response(response):
            return True
        for _ in range(_ATTEMPTS):
            tokens = await self.context.storage.get_tokens()
            if tokens and before and tokens.refresh_token != before.refresh_token:
                self.context.current_tokens = tokens
                return True
            await asyncio.sleep(_PAUSE)
        return False


def _provider(
    url: str,
    redirect_uri: str,
    show: Callable[[str], Awaitable[None]],
    wait: Callable[[], Awaitable[AuthorizationCodeResult]],
    *,
    is_new: bool,
) -> OAuthClientProvider:
    metadata = OAuthClientMetadata(
        client_name="gptsh", redirect_uris=[AnyUrl(redirect_uri)], token_endpoint_auth_method="none"
    )
    storage = _Storage(url, is_new=is_new)
    provider = _Provider(url, metadata, storage, show, wait)
    storage.context = provider.context
    return provider


def kept_login(server: ToolServer) -> OAuthClientProvider:
    """The auth of a server that has a login: it sends and refreshes the tokens. Raises ToolServerError later."""

    async def ask_for_login(_: str = "") -> None:
        raise login_needed(server.name)

    async def never() -> AuthorizationCodeResult:
        raise login_needed(server.name)

    return _provider(str(server.url), "http://127.0.0.1/callback", ask_for_login, never, is_new=False)


def login_needed(name: str) -> ToolServerError:
    """The error of a server whose login has ended."""
    return ToolServerError(f"tool server {name} wants a new login", f"run 'gptsh --login {name}'")


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

    auth = _provider(str(server.url), f"http://127.0.0.1:{port}/callback", show_url, wait, is_new=True)
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
