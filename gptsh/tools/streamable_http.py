"""The transport to a tool server with a URL: MCP's streamable HTTP, with headers or a login; why it refused."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client import IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.inbound import MCP_METHOD_HEADER

from gptsh.config.mcp_servers import ToolServer
from gptsh.config.secret import Secret
from gptsh.tools import logins
from gptsh.tools.http_client import http_client

if TYPE_CHECKING:
    from mcp.client.auth import OAuthClientProvider

_MAX_EVENT = 1 << 26  # bytes
_FIRST_ERROR_STATUS = 400
_PROBE = "server/discover"  # the request that only servers of 2026-07-28 and later know


class StreamableHttp:
    """The connection to a URL."""

    has_ended = False  # a server far away is not seen to end

    def __init__(self, config: ToolServer, environ: Mapping[str, str]) -> None:
        self._config, self._environ = config, environ
        self._login: OAuthClientProvider | None = None

    @contextlib.asynccontextmanager
    async def streams(self) -> AsyncIterator[Any]:
        """The SDK's streams to the URL."""
        url, auth = str(self._config.url), None
        if not self._has_token and logins.read(url):
            from gptsh.tools import oauth

            auth = self._login = oauth.kept_login(self._config, self._environ)
        client = http_client(self._config, self._environ, auth, [self._raise_for_status])
        connection = streamable_http_client(url, http_client=client, max_sse_event_size=_MAX_EVENT)
        async with client, connection as streams:
            yield streams

    async def _raise_for_status(self, response: httpx2.Response) -> None:
        """Raise HTTPStatusError, with the body that the SDK leaves out, unless the body is a JSON-RPC error.

        Older servers refuse the probe in many ways: the SDK goes on with ``initialize``. Where there is a login, the
        SDK deals with a refusal.
        """
        request, status = response.request, response.status_code
        is_probe = request.headers.get(MCP_METHOD_HEADER) == _PROBE
        if request.method != "POST" or status < _FIRST_ERROR_STATUS or is_probe:
            return
        if self._login and status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return
        body = (await response.aread()).decode("utf-8", "replace")
        if '"jsonrpc"' in body:
            return
        reason = f"answered {status} {response.reason_phrase}: {body}".rstrip(": ")
        if status == HTTPStatus.UNAUTHORIZED and not self._has_token:
            reason = f"wants a login: run 'gptsh --login {self._config.name}', or set its headers"
        raise httpx2.HTTPStatusError(reason, request=request, response=response)

    @property
    def _has_token(self) -> bool:
        return any(header.lower() == "authorization" for header in self._config.headers)

    async def on_message(self, message: IncomingMessage) -> None:
        """Ignore what is not an answer."""

    @property
    def secrets(self) -> frozenset[str]:
        """The tokens of the login, to be masked in everything from the server."""
        tokens = self._login.context.current_tokens if self._login else None
        if tokens is None:
            return frozenset()
        return frozenset(Secret(token) for token in (tokens.access_token, tokens.refresh_token) if token)

    def reason(self, err: BaseException) -> str:
        """What the server did wrong: the predicate of a sentence with its name; "" if that is no error of HTTP."""
        if self._login and type(err).__name__.startswith("OAuth"):  # its text quotes secrets
            return f"cannot renew its login: run 'gptsh --login {self._config.name}'"
        match err:
            case httpx2.HTTPStatusError():
                return str(err)
            case httpx2.ConnectError() | httpx2.ConnectTimeout():
                return f"cannot be reached: {err}"
        return ""

    def last_lines(self) -> list[str]:
        """Nothing: its stderr is far away."""
        return []
