"""OAuth at remote tool servers, by the SDK's provider: tokens from the files of logins, sent, refreshed and kept."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from http import HTTPStatus

import httpx2
from mcp.client.auth import OAuthClientProvider
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

from gptsh.config.tool_servers import ToolServer
from gptsh.errors import ToolServerError
from gptsh.jsonio import as_dict, as_str, parse_json
from gptsh.text import format_size
from gptsh.tools import logins
from gptsh.tools.http_client import http_client

_MAX_ANSWER = 1_000_000  # bytes of an answer of a login
_MAX_SECONDS = 30  # until such an answer is complete
# The URLs of metadata that a login goes to, or that say whose metadata it is.
_URL_KEYS = "issuer|resource|authorization_servers|jwks_uri|.*_endpoint"
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
    """The SDK's provider, whose own requests go to safe URLs alone, and whose answers are bounded.

    It also takes what another run has refreshed: many servers take a refresh token once.
    """

    def __init__(
        self,
        server: ToolServer,
        environ: Mapping[str, str],
        metadata: OAuthClientMetadata,
        storage: _Storage,
        show: Callable[[str], Awaitable[None]],
        wait: Callable[[], Awaitable[AuthorizationCodeResult]],
    ) -> None:
        self._server = server
        self._environ = environ

        async def show_safe(url: str) -> None:
            self._check("authorization_endpoint", url)
            await show(url)

        super().__init__(str(server.url), metadata, storage, show_safe, wait)

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
        """Send a request of the login; return its response with the body. Raises ToolServerError."""
        self._check("address", str(request.url))
        request.headers["accept-encoding"] = "identity"  # the limit is that of the text
        try:
            async with (
                asyncio.timeout(_MAX_SECONDS),
                http_client(self._server, self._environ, None) as client,
            ):
                response = await client.send(request, stream=True)
                content = await self._read(response)
        except TimeoutError:
            raise self._error(f"has no answer within {_MAX_SECONDS} s") from None
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
                raise self._error(f"has an answer of more than {format_size(_MAX_ANSWER)}")
        await response.stream.aclose()  # type: ignore[union-attr]
        response.stream = httpx2.ByteStream(bytes(content))
        response.headers.pop("content-encoding", None)
        return bytes(content)

    def _check(self, key: str, url: str) -> None:
        """Raise ToolServerError for a URL that a login must not go to."""
        if not logins.is_safe(url, str(self._server.url)):
            raise self._error(f"has a URL without https:// ({key})")

    def _error(self, problem: str) -> ToolServerError:
        return ToolServerError(f"the login at tool server {self._server.name} {problem}")

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
    """Yield the URLs that matter, each with its key. The SDK refuses what is no metadata."""
    try:
        content = parse_json(metadata.decode())
    except (ValueError, RecursionError):
        return
    for key, value in as_dict(content).items():
        if re.fullmatch(_URL_KEYS, key):
            for url in value if isinstance(value, list) else [value]:
                yield key, as_str(url)


def login_auth(
    server: ToolServer,
    environ: Mapping[str, str],
    redirect_uri: str,
    show: Callable[[str], Awaitable[None]],
    wait: Callable[[], Awaitable[AuthorizationCodeResult]],
    *,
    is_new: bool,
) -> OAuthClientProvider:
    """The auth of a server. ``show`` gets the URL of a login, ``wait`` returns its code.

    ``is_new``: an earlier login is not used.
    """
    metadata = OAuthClientMetadata(
        client_name="gptsh", redirect_uris=[AnyUrl(redirect_uri)], token_endpoint_auth_method="none"
    )
    storage = _Storage(str(server.url), is_new=is_new)
    auth = _Provider(server, environ, metadata, storage, show, wait)
    storage.context = auth.context
    return auth


def kept_login(server: ToolServer, environ: Mapping[str, str]) -> OAuthClientProvider:
    """The auth of a server that has a login: it sends and refreshes the tokens. Raises ToolServerError later."""

    async def ask_for_login(_: str = "") -> None:
        raise login_needed(server.name)

    async def never() -> AuthorizationCodeResult:
        raise login_needed(server.name)

    redirect_uri = "http://127.0.0.1/callback"
    return login_auth(server, environ, redirect_uri, ask_for_login, never, is_new=False)


def login_needed(name: str) -> ToolServerError:
    """The error of a server whose login has ended."""
    return ToolServerError(f"tool server {name} wants a new login", f"run 'gptsh --login {name}'")
