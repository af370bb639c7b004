"""A tool server over HTTP that wants a login, and its authorization server, both by MCP's SDK. It prints its port.

It consents to every login at once. An argument says how it misbehaves.
"""

import asyncio
import os
import secrets
import socket
import sys
import threading
import time
from typing import Any

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

LIFETIME = 3600
FAULT = "".join(sys.argv[1:])


class Provider:
    """Gives codes and tokens, and keeps them in memory."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.refresh_tokens: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        code = AuthorizationCode(
            code=secrets.token_hex(16), scopes=params.scopes or [], expires_at=time.time() + 60,
            client_id=client.client_id, code_challenge=params.code_challenge, redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=True, resource=params.resource,
        )  # fmt: skip
        self.codes[code.code] = code
        answers = {
            "denied": {"error": "access_denied", "state": params.state},
            "issuer": {"code": code.code, "state": params.state, "iss": "https://evil.example/"},
        }
        good = {"code": code.code, "state": params.state, "iss": str(issuer)}
        return construct_redirect_uri(str(params.redirect_uri), **answers.get(FAULT, good))

    async def load_authorization_code(
        self, _: Any, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, _: Any, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        return self.issue(authorization_code)

    async def load_refresh_token(self, _: Any, refresh_token: str) -> RefreshToken | None:
        if FAULT == "slow":
            await asyncio.sleep(1)  # so that others ask meanwhile
        return self.refresh_tokens.pop(refresh_token, None)

    async def exchange_refresh_token(
        self, _: Any, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        return self.issue(refresh_token)

    def issue(self, grant: AuthorizationCode | RefreshToken) -> OAuthToken:
        access = f"access-{secrets.token_hex(8)}"
        refresh = f"refresh-{secrets.token_hex(8)}"
        common: Any = {
            "client_id": grant.client_id,
            "scopes": grant.scopes,
            "resource": grant.resource,
        }
        self.tokens[access] = AccessToken(
            token=access, expires_at=int(time.time()) + LIFETIME, **common
        )
        self.refresh_tokens[refresh] = RefreshToken(token=refresh, **common)
        return OAuthToken(access_token=access, expires_in=LIFETIME, refresh_token=refresh)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: Any) -> None:
        self.tokens.pop(token.token, None)


def end_with_stdin() -> None:
    """Exit when stdin is closed."""
    sys.stdin.read()
    os._exit(0)


listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen()
issuer = AnyHttpUrl(f"http://127.0.0.1:{listening.getsockname()[1]}")
server = MCPServer(
    "guarded",
    log_level="CRITICAL",
    auth_server_provider=Provider(),
    auth=AuthSettings(
        issuer_url=issuer,
        resource_server_url=AnyHttpUrl(f"{issuer}mcp"),
        client_registration_options=ClientRegistrationOptions(enabled=True),
        validate_token_resource=True,
    ),
)


@server.tool()
def whoami() -> str:
    """Who is logged in."""
    return "you"


sys.stdout.write(f"{listening.getsockname()[1]}\n")
sys.stdout.flush()
threading.Thread(target=end_with_stdin, daemon=True).start()
uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="critical")).run([listening])
