"""Send a request over HTTP and receive its response in pieces, by the standard library.

Importing urllib3 takes as long as Python and click together. Each request has its own connection and thread (see
``Incoming``). Nothing is retried here, except on a connection that the server has closed before the request.
"""

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from typing import Any
from urllib.parse import SplitResult, quote

from gptsh.config.settings import Network
from gptsh.errors import ConnectionLost, GptshError, ModelError
from gptsh.llm.connections import EarlyConnection, Endpoint, connect, endpoint_of
from gptsh.llm.proxies import SOCKS, proxy_headers
from gptsh.llm.waiting import Incoming

_GRACE = 30.0  # seconds that the thread waits longer than the main thread
_CHUNK_SIZE = 1 << 16  # maximum bytes of one read
_SMALL_BODY = 1 << 16  # bytes: how much of an error response is read
_SAFE = "/%:@!$&'()*+,;=~"  # other characters of a path are percent-encoded


class Response:
    """A response; creating it sends the request in a thread and waits for the head. ``headers`` have lower-case names.

    ``early`` is used while it is open. ``idle`` limits the pauses in the body, ``seconds`` the whole exchange. Raises
    ModelError or TimedOut if no response comes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        early: EarlyConnection | None,
        body: bytes | None,
        headers: Mapping[str, str],
        network: Network,
        idle: float,
        seconds: float | None,
    ) -> None:
        self.url, self._endpoint, self._early, self._network = endpoint.url, endpoint, early, network
        self._idle = idle
        self._sock: socket.socket | None = None  # http.client drops its reference if the body ends with the connection
        self._incoming = Incoming(self._exchange(body, headers), endpoint.host)
        self.limit_wait = self._incoming.limit_wait
        if seconds is not None:
            self.limit_wait(seconds)
        try:
            head: Any = self._incoming.next_item(network.first_byte_timeout)
        except BaseException:  # also a signal
            self.close()
            raise
        self.status: int = head.status
        self.headers: dict[str, str] = {name.lower(): value for name, value in head.getheaders()}

    def _exchange(self, body: bytes | None, headers: Mapping[str, str]) -> Iterator[Any]:
        """In the thread: yield the head of the response, then its body in chunks. Raises ModelError or TimedOut."""
        host = self._endpoint.host
        connection = self._early.take() if self._early else None
        try:
            response = None
            if connection:
                with contextlib.suppress(ConnectionError, ssl.SSLError):  # closed by the server meanwhile
                    response = self._request(connection, body, headers)
            if response is None:
                if connection:
                    connection.close()
                connection = connect(self._endpoint)
                response = self._request(connection, body, headers)
            yield response
            while chunk := response.read1(_CHUNK_SIZE):
                yield chunk
            if response.length:  # bytes missing
                raise IncompleteRead(b"", response.length)
        except (HTTPException, OSError, ValueError, OverflowError) as err:
            failure = ConnectionLost(f"the connection to {host} broke off", detail=repr(err))
            failure.can_retry = failure.may_fall_back = True
            raise failure from err
        finally:
            if connection:
                connection.close()

    def _request(self, connection: HTTPConnection, body: bytes | None, headers: Mapping[str, str]) -> HTTPResponse:
        """Send the request; return the head of the response. Raises HTTPException, OSError and ValueError."""
        target, proxy = self._endpoint.target, self._endpoint.proxy
        path = quote(target.path or "/", safe=_SAFE)
        if target.query:
            path += f"?{quote(target.query, safe=_SAFE)}"
        if proxy and proxy.scheme not in SOCKS and target.scheme == "http":
            path, headers = f"http://{self._endpoint.host}{path}", {**headers, **proxy_headers(proxy)}
        self._sock = connection.sock
        self._sock.settimeout(max(self._network.first_byte_timeout, self._idle) + _GRACE)
        # A server that refuses a large request may answer and close before it has read all of it.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.request("GET" if body is None else "POST", path, body, dict(headers))
        return connection.getresponse()

    def chunks(self) -> Iterator[bytes]:
        """Return the pieces of the body as they arrive, decompressed.

        Raises ModelError or TimedOut if it breaks off or stalls, ModelError for an unknown compression.
        """
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        if encoding in ("identity", ""):
            return self._received()
        from gptsh.llm import compression

        if encoding not in compression.ENCODINGS:
            error = f"{self._endpoint.host} sends its answer in the encoding {encoding}, which gptsh did not ask for"
            raise ModelError(error, "switch compression off in the gateway")
        return compression.decompress(self._received(), self._endpoint.host)

    def _received(self) -> Iterator[bytes]:
        """Yield the body as it was sent. Blank lines alone are no answer, however many drip in."""
        until = time.monotonic() + self._network.first_byte_timeout  # the model may still be loading
        while chunk := self._incoming.next_item(until - time.monotonic()):
            yield chunk
            if not chunk.isspace():
                until = time.monotonic() + self._idle

    def small_body(self) -> bytes:
        """The beginning of the body, as much as arrives soon."""
        body = b""
        self.limit_wait()
        with contextlib.suppress(GptshError):
            for chunk in self.chunks():
                body += chunk
                if len(body) >= _SMALL_BODY:
                    break
        return body

    def close(self) -> None:
        """Close the connection even while the thread waits for it: the rest of the answer is not needed."""
        self._incoming.close()
        if self._sock:
            with contextlib.suppress(OSError):  # already closed
                self._sock.shutdown(socket.SHUT_RDWR)


class Http:
    """Sends requests with one process's network settings and environment."""

    def __init__(self, network: Network, environ: Mapping[str, str]) -> None:
        self._network, self._environ = network, environ
        self._early: dict[tuple[str, str, SplitResult | None], EarlyConnection] = {}

    def connect_early(self, url: str) -> None:
        """Open the connection for the next request in a thread, if it is a secure one. Raises as ``endpoint``.

        Others are opened at once, and a small local server may serve only one connection at a time.
        """
        endpoint = self.endpoint(url)
        if endpoint.target.scheme == "https" and endpoint.way not in self._early:
            with contextlib.suppress(RuntimeError):  # no thread can start
                self._early[endpoint.way] = EarlyConnection(endpoint)

    def endpoint(self, url: str) -> Endpoint:
        """Resolve proxy and certificates for a URL. Raises ConfigError for an invalid URL, proxy or CA bundle."""
        return endpoint_of(url, self._environ)

    def send(
        self,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        is_own_server: bool = False,
        seconds: float | None = None,
    ) -> Response:
        """Send a POST, or a GET without body; wait for the head. Raises ModelError, TimedOut, and as ``endpoint``.

        ``is_own_server``: to a server of the user's own, which may need longer.
        """
        idle = self._network.idle_seconds(is_own_server=is_own_server)
        endpoint = self.endpoint(url)
        early = self._early.pop(endpoint.way, None)
        return Response(endpoint, early, body, headers, self._network, idle, seconds)
