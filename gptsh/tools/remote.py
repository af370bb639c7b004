"""Reach tool servers by URL, and store the tokens of their logins."""

import contextlib
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx2
from mcp.client import IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.inbound import MCP_METHOD_HEADER

from gptsh import files
from gptsh.config.schema import Secret
from gptsh.config.tool_servers import ToolServer
from gptsh.core import locks
from gptsh.errors import ConfigError
from gptsh.files import app_folder
from gptsh.jsonio import JsonObject, encode_json
from gptsh.text import format_size
from gptsh.tools.programs import shorten_message

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp.client.auth import OAuthClientProvider


# ---- logins
#
# Logins at remote tool servers, kept in the state folder: a file for each issuer, with its tokens
# by server URL.
#
# A file has ``issuer``, ``client`` (as what gptsh is registered there) and ``servers``: by URL its
# ``tokens``, when they expire, and the metadata of issuer and server, which a refresh needs.

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def is_safe(url: str, server_url: str) -> bool:
    """Whether a login at a server may use a URL: with https, or of this machine if the server is."""
    try:
        target = urlsplit(url)
        hosts = (target.hostname, urlsplit(server_url).hostname)
    except ValueError:
        return False
    is_local = all(host in LOOPBACK for host in hosts)
    return target.scheme == "https" or (target.scheme == "http" and is_local)


def read_login(url: str) -> JsonObject | None:
    """The login at a server: ``issuer``, ``client``, and what is kept for this URL; None without one."""
    for _, content in _files():
        if url in content["servers"]:
            return {"issuer": content["issuer"], "client": content["client"], **content["servers"][url]}
    return None


def write_login(url: str, issuer: str, client: JsonObject, kept: JsonObject) -> None:
    """Keep a login, in place of another one at this server. Raises StoreError."""
    folder = _folder()
    with files.as_store_error("the login cannot be saved", folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locks.locked(folder):
            _remove(url)
            path = folder / f"{hashlib.sha256(issuer.encode()).hexdigest()[:20]}.json"
            content: JsonObject = {"issuer": issuer, "servers": {}} | (_read_file(path) or {})
            content = {**content, "client": client, "servers": {**content["servers"], url: kept}}
            files.replace(path, encode_json(content), fsync=True)


def remove_login(url: str) -> bool:
    """Forget the login at a server; return whether there was one. Raises StoreError."""
    folder = _folder()
    if read_login(url) is None:
        return False
    with files.as_store_error("the login cannot be removed", folder), locks.locked(folder):
        _remove(url)
    return True


def _remove(url: str) -> None:
    for path, content in _files():
        if content["servers"].pop(url, None) is not None:
            if content["servers"]:
                files.replace(path, encode_json(content), fsync=True)
            else:
                path.unlink()


def _folder() -> Path:
    return app_folder("state") / "logins"


def _files() -> Iterator[tuple[Path, JsonObject]]:
    """Each file that can be read, with its content."""
    with contextlib.suppress(OSError, ConfigError):
        for path in sorted(_folder().glob("*.json")):
            if content := _read_file(path):
                yield path, content


def _read_file(path: Path) -> JsonObject | None:
    """The content of a file; None if it is missing or was not written by gptsh."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    sound = isinstance(content, dict) and isinstance(content.get("servers"), dict) and "client" in content
    return content if sound else None


# ---- http client
#
# HTTP clients for tool servers with a URL: headers, proxy, certificates, the timeout of connecting.

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


# ---- streamable http
#
# The transport to a tool server with a URL: MCP's streamable HTTP, with headers or a login; why it
# refused.

FindLogin = Callable[[ToolServer, Mapping[str, str]], "OAuthClientProvider | None"]

_MAX_EVENT = 1 << 26  # bytes, also of an answer in JSON
_EVENT = b"data:"  # before a message that is an event
_FIRST_ERROR_STATUS = 400
_PROBE = "server/discover"  # the request that only servers of 2026-07-28 and later know


class StreamableHttp:
    """The connection to a URL."""

    has_ended = False  # a server far away is not seen to end

    def __init__(self, config: ToolServer, environ: Mapping[str, str], find_login: FindLogin) -> None:
        self._config = config
        self._environ = environ
        self._find_login = find_login
        self._login: OAuthClientProvider | None = None

    @contextlib.asynccontextmanager
    async def streams(self) -> AsyncIterator["TransportStreams"]:
        """The SDK's streams to the URL."""
        if not self._has_token:
            self._login = self._find_login(self._config, self._environ)
        hooks = [_shorten, self._raise_for_status]
        client = http_client(self._config, self._environ, self._login, hooks)
        connection = streamable_http_client(str(self._config.url), http_client=client, max_sse_event_size=_MAX_EVENT)
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


async def _shorten(response: httpx2.Response) -> None:
    """Let a response have messages without endless lists."""
    if "content-encoding" not in response.headers:  # gptsh asks for none
        is_json = response.headers.get("content-type", "").startswith("application/json")
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # of an AsyncClient
        response.stream = _Messages(response.stream, is_json=is_json)


class _Messages(httpx2.AsyncByteStream):
    """The body of a response: one message in JSON, or lines of events that may have one."""

    def __init__(self, stream: httpx2.AsyncByteStream, *, is_json: bool) -> None:
        self._stream = stream
        self._is_json = is_json

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces: list[bytes] = []  # of the message or line that has not ended
        size = 0
        async for piece in self._stream:
            begin, newline, rest = (b"", b"", piece) if self._is_json else piece.rpartition(b"\n")
            if newline:
                for line in b"".join((*pieces, begin)).split(b"\n"):
                    yield _shortened(line) + b"\n"
                pieces = []
                size = 0
            pieces.append(rest)
            size += len(rest)
            if size > _MAX_EVENT:
                raise httpx2.StreamError(f"an answer of more than {format_size(_MAX_EVENT)}")
        yield _shortened(b"".join(pieces))

    async def aclose(self) -> None:
        await self._stream.aclose()


def _shortened(line: bytes) -> bytes:
    mark = _EVENT if line.startswith(_EVENT) else b""
    text = line.removeprefix(mark).decode("utf-8", "surrogateescape")
    return mark + shorten_message(text).encode("utf-8", "surrogateescape")
