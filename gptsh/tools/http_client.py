"""HTTP clients for tool servers with a URL: headers, proxy, certificates, the timeout of connecting."""

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence

import httpx2

from gptsh.config.tool_servers import ToolServer
from gptsh.tools.logins import LOOPBACK

_CONNECT_TIMEOUT = 30.0  # seconds


def http_client(
    server: ToolServer,
    environ: Mapping[str, str],
    auth: httpx2.Auth | None,
    hooks: Sequence[Callable[[httpx2.Response], Awaitable[None]]] = (),
) -> httpx2.AsyncClient:
    """A client with the server's headers; ``hooks`` see each response."""
    bundle = environ.get("REQUESTS_CA_BUNDLE")  # httpx does not read it
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **server.headers},  # sizes are those of the text
        auth=auth,
        timeout=httpx2.Timeout(_CONNECT_TIMEOUT, read=None),
        # A proxy is not asked for this machine: its own loopback is another one.
        trust_env=httpx2.URL(str(server.url)).host not in LOOPBACK,
        verify=ssl.create_default_context(cafile=bundle) if bundle else True,
        event_hooks={"response": [*hooks]},
    )
