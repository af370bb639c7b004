"""Log in to a remote tool server with OAuth in a browser, and refresh its tokens."""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

import httpx2
from mcp.client.auth import (
    OAuthClientProvider,
    OAuthFlowError,
    OAuthRegistrationError,
    OAuthTokenError,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from gptsh.config.tool_servers import ToolServer
from gptsh.errors import ToolServerError
from gptsh.jsonio import JsonObject, as_dict, as_str, parse_json
from gptsh.text import format_size
from gptsh.tools import logins
from gptsh.tools.transports import http_client

# ---- tokens

_MAX_ANSWER = 1_000_000  # bytes of an answer of a login
_MAX_SECONDS = 30  # until such an answer is complete
# The URLs of metadata that a login goes to, or that say whose metadata it is.
_URL_KEYS = "issuer|resource|authorization_servers|jwks_uri|.*_endpoint"
_ATTEMPTS = 10  # to read the tokens that another run has just refreshed
_PAUSE = 0.05  # seconds between them


def _json_of(model: BaseModel | None) -> JsonObject:
    return model.model_dump(mode="json", exclude_none=True) if model else {}


class KeptLogin(OAuthClientProvider):
    """The auth of a server that has a login: it sends and refreshes the tokens.

    This class is the SDK's provider and the storage of its tokens. Its own requests go to safe URLs
    alone, their answers are bounded, and it takes what another run has refreshed: many servers take
    a refresh token once. Raises ToolServerError if the server wants a new login.
    """

    def __init__(
        self,
        server: ToolServer,
        environ: Mapping[str, str],
        redirect_uri: str = "http://127.0.0.1/callback",
    ) -> None:
        self._server = server
        self._environ = environ
        self._url = str(server.url)
        metadata = OAuthClientMetadata(
            client_name="gptsh",
            redirect_uris=[AnyUrl(redirect_uri)],
            token_endpoint_auth_method="none",
        )
        super().__init__(self._url, metadata, self, self._show, self.wait_for_code)

    async def _show(self, url: str) -> None:
        self._check("authorization_endpoint", url)
        self.show(url)

    def show(self, url: str) -> None:
        """Show the user the URL of a login."""
        problem = f"tool server {self._server.name} requires a new login"
        raise ToolServerError(problem, f"run 'gptsh --login {self._server.name}'")

    async def wait_for_code(self) -> AuthorizationCodeResult:
        """Wait until the user has logged in."""
        raise NotImplementedError  # ``show`` has raised

    # ---- the storage

    async def get_tokens(self) -> OAuthToken | None:
        """Return the kept tokens.

        Sets in the context what the SDK does not keep: when they expire, and where to refresh.
        """
        login = logins.read_login(self._url)
        if login is None:
            return None
        context = self.context
        try:
            context.token_expiry_time = login.get("expires_at")
            if metadata := login.get("metadata"):
                context.oauth_metadata = OAuthMetadata.model_validate(metadata)
            if resource := login.get("resource"):
                resource = ProtectedResourceMetadata.model_validate(resource)
                context.protected_resource_metadata = resource
                context.auth_server_url = login["issuer"]
            return OAuthToken.model_validate(login["tokens"])
        except (ValidationError, LookupError):
            return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep new tokens, with the client and the metadata."""
        context = self.context
        metadata = context.oauth_metadata
        issuer = str(metadata.issuer) if metadata else context.get_authorization_base_url(self._url)
        login = {
            "issuer": issuer,
            "client": _json_of(context.client_info),
            "tokens": _json_of(tokens),
            "expires_at": context.token_expiry_time,
            "metadata": _json_of(metadata),
            "resource": _json_of(context.protected_resource_metadata),
        }
        logins.write_login(self._url, login)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return gptsh's registration as a client of the server."""
        login = logins.read_login(self._url)
        return OAuthClientInformationFull.model_validate(login["client"]) if login else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Do nothing, because a registration is kept with the tokens."""

    # ---- the requests

    async def async_auth_flow(
        self,
        request: httpx2.Request,
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the request to the tool server; send those of the login here."""
        flow = super().async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is request:
                    response = yield outgoing
                    if response.status_code == HTTPStatus.UNAUTHORIZED:
                        await self._read(response)
                else:
                    response = await self._send(outgoing)
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request of the login; return its response, with the body.

        Raises ToolServerError.
        """
        self._check("address", str(request.url))
        # Not compressed, so that the limit is that of the text.
        request.headers["accept-encoding"] = "identity"
        try:
            async with (
                asyncio.timeout(_MAX_SECONDS),
                http_client(self._server, self._environ, None) as client,
            ):
                response = await client.send(request, stream=True)
                content = await self._read(response)
        except TimeoutError:
            raise self._error(f"got no answer within {_MAX_SECONDS} s") from None
        if request.method == "GET":
            for key, url in _urls_in(content):
                self._check(key, url)
        return response

    async def _read(self, response: httpx2.Response) -> bytes:
        """Read the body of a response, which has it from then on. Raises ToolServerError."""
        content = bytearray()
        async for piece in response.stream:  # type: ignore[union-attr] # of an asynchronous client
            content += piece
            if len(content) > _MAX_ANSWER:
                raise self._error(f"got an answer of more than {format_size(_MAX_ANSWER)}")
        await response.stream.aclose()  # type: ignore[union-attr]
        response.stream = httpx2.ByteStream(bytes(content))
        response.headers.pop("content-encoding", None)
        return bytes(content)

    def _check(self, key: str, url: str) -> None:
        """Raise ToolServerError for a URL that a login must not go to."""
        if not logins.is_safe(url, str(self._server.url)):
            raise self._error(f"has a URL without https:// ({key})")

    def _error(self, problem: str) -> ToolServerError:
        return ToolServerError(f"the login to tool server {self._server.name} {problem}")

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


def _urls_in(metadata: bytes) -> Iterator[tuple[str, str]]:
    """Yield the URLs to check, each with its key. The SDK refuses all that is not metadata."""
    try:
        content = parse_json(metadata.decode())
    except (ValueError, RecursionError):
        return
    for key, value in as_dict(content).items():
        if re.fullmatch(_URL_KEYS, key):
            urls = value if isinstance(value, list) else [value]
            for url in urls:
                yield key, as_str(url)


# ---- login
#
# The SDK's error texts quote states and bodies, so none of them is shown.

_PAGE = b"You can close this page. gptsh says whether the login worked.\n"
_HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "gptsh", "version": "1"},
    },
}
_MAX_LOGIN_SECONDS = 30  # until the server answers, and until a browser has sent its request


class _NewLogin(KeptLogin):
    """A login in the browser, which is then sent to a port of this machine.

    ``show_user`` gets the URL where the user logs in. ``addresses`` gets those that the user
    pastes, where the browser cannot reach the port. An address without the state of this login is
    ignored, since any page in the browser can send one; ``note`` says so of a pasted one.
    """

    state = ""

    def __init__(
        self,
        server: ToolServer,
        environ: Mapping[str, str],
        port: int,
        show_user: Callable[[str], None],
        addresses: "asyncio.Queue[str]",
        note: Callable[[str], None],
    ) -> None:
        super().__init__(server, environ, f"http://127.0.0.1:{port}/callback")
        self._show_user = show_user
        self._addresses = addresses
        self._note = note

    async def get_tokens(self) -> None:
        """Return none, because an earlier login is not used."""

    async def get_client_info(self) -> None:
        """Return none, as ``get_tokens``."""

    def show(self, url: str) -> None:
        """Show the user the URL of the login."""
        self.state = _query_of(url)["state"]
        self._show_user(url)

    async def wait_for_code(self) -> AuthorizationCodeResult:
        """Wait for the address that the browser is sent to; return the code in it."""
        while not self._is_ours(address := await self._addresses.get()):
            self._note("this address is not that of the last page of the login")
        query = _query_of(address)
        if "code" not in query:
            reason = query.get("error", "the address has no code")
            raise ToolServerError(f"tool server {self._server.name} refused the login: {reason}")
        return AuthorizationCodeResult(code=query["code"], state=self.state, iss=query.get("iss"))

    def _is_ours(self, address: str) -> bool:
        return bool(self.state) and _query_of(address).get("state") == self.state

    async def receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the browser, and take the address that it was sent to if it is ours."""
        # The last two are raised if a browser leaves early or its request never ends.
        with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_MAX_LOGIN_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            request = re.match(r"GET (/callback\?\S*) ", head.decode("ascii", "replace"))
            address = request[1] if request else ""
            is_ours = self._is_ours(address)
            status = "200 OK" if is_ours else "404 Not Found"
            body = _PAGE if is_ours else b""
            fields = f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"HTTP/1.1 {status}\r\n{fields}Connection: close\r\n\r\n".encode() + body)
            await writer.drain()
            writer.close()
            if is_ours:
                self._addresses.put_nowait(address)


async def log_in(
    server: ToolServer,
    environ: Mapping[str, str],
    show: Callable[[str], None],
    addresses: "asyncio.Queue[str]",
    note: Callable[[str], None],
) -> None:
    """Log in at a server as ``_NewLogin``, and keep the tokens. Raises ToolServerError."""
    what = f"tool server {server.name}"
    authority = f"{what}: its authorization server"
    # The server calls this only once there is a login.
    loopback = await asyncio.start_server(lambda *pair: login.receive(*pair), "127.0.0.1", 0)
    port = loopback.sockets[0].getsockname()[1]
    login = _NewLogin(server, environ, port, show, addresses, note)
    try:
        async with loopback, http_client(server, environ, login) as client:
            request = client.build_request(
                "POST",
                str(server.url),
                json=_HELLO,
                headers={"Accept": "application/json, text/event-stream"},
                timeout=_MAX_LOGIN_SECONDS,
            )
            response = await client.send(request, stream=True)
            await response.aclose()
    except OAuthRegistrationError:
        raise ToolServerError(f"{authority} does not accept gptsh as a client") from None
    except OAuthTokenError:
        raise ToolServerError(f"{authority} sent no token", "try again") from None
    except (OAuthFlowError, ValidationError):
        foreign = "the issuer of the answer is not that of this login"
        reason = foreign if login.state else "no usable metadata"
        raise ToolServerError(f"{what}: the login failed: {reason}") from None
    except httpx2.HTTPError as err:
        raise ToolServerError(f"{what} cannot be reached: {type(err).__name__}") from None
    status = response.status_code
    if not login.state:
        raise ToolServerError(f"{what} does not ask for a login: it answered {status}")
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise ToolServerError(
            f"{what} still refuses requests after the login: it answered {status}"
        )


def _query_of(address: str) -> dict[str, str]:
    """Return the query of an address; of a name that is in it twice, the last value."""
    try:
        return dict(parse_qsl(urlsplit(address).query))
    except ValueError:
        return {}
