"""OAuth at remote tool servers, by the SDK's provider: tokens from the files of logins, sent, refreshed and kept."""

import asyncio
from collections.abc import Awaitable, Callable

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

from gptsh.config.mcp_servers import ToolServer
from gptsh.errors import ToolServerError
from gptsh.tools import logins

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


def login_auth(
    url: str,
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
    storage = _Storage(url, is_new=is_new)
    auth = _Provider(url, metadata, storage, show, wait)
    storage.context = auth.context
    return auth


def kept_login(server: ToolServer) -> OAuthClientProvider:
    """The auth of a server that has a login: it sends and refreshes the tokens. Raises ToolServerError later."""

    async def ask_for_login(_: str = "") -> None:
        raise login_needed(server.name)

    async def never() -> AuthorizationCodeResult:
        raise login_needed(server.name)

    return login_auth(str(server.url), "http://127.0.0.1/callback", ask_for_login, never, is_new=False)


def login_needed(name: str) -> ToolServerError:
    """The error of a server whose login has ended."""
    return ToolServerError(f"tool server {name} wants a new login", f"run 'gptsh --login {name}'")
