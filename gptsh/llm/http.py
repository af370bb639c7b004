"""Send a request over HTTP in a thread, and receive its response in pieces.

The standard library does it: importing urllib3 takes as long as Python and click together. Nothing
is retried here, except on a connection that the server has closed before the request.
"""

import contextlib
import math
import queue
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

from gptsh.config.settings import Network
from gptsh.errors import ConfigError, ConnectionLost, GptshError, ModelError, TimedOut
from gptsh.llm import tls
from gptsh.llm.tls import host_and_port, proxy_for, proxy_headers
from gptsh.terminal.interrupts import receive

# ---- waiting
#
# Wait for what a thread receives from a server, until a timeout of ``[network]`` or a signal ends
# the wait.

_FINAL_WAIT = 5.0  # seconds for usage after a complete answer, or for the body of an error
Item = TypeVar("Item")


class Incoming(Generic[Item]):
    """Items that a thread produces, so that signals and timeouts reach the main thread.

    Errors name ``host``. ``is_closed`` stops the thread after its next item.
    """

    def __init__(self, items: Iterator[Item], host: str) -> None:
        self.is_closed = False
        self._host = host
        self._queue: queue.SimpleQueue[Item | BaseException | None] = queue.SimpleQueue()
        self._deadline = math.inf  # of ``time.monotonic``
        thread = threading.Thread(target=self._produce, args=(items,), daemon=True)
        thread.start()

    def _produce(self, items: Iterator[Item]) -> None:
        """In the thread: put each item into the queue, then None, or the error that ended them."""
        try:
            for item in items:
                self._queue.put(item)
                if self.is_closed:
                    break
            self._queue.put(None)
        except BaseException as err:  # noqa: BLE001 - ``next_item`` raises it in the main thread
            self._queue.put(err)

    def next_item(self, timeout: float) -> Item | None:
        """Wait for the next item; None after the last.

        Raises the thread's error, TimedOut, and as ``receive``.
        """
        seconds = min(timeout, self._deadline - time.monotonic())
        try:
            item = receive(self._queue, seconds)
        except queue.Empty:
            advice = ""
            if self._deadline == math.inf:
                advice = "raise first_byte_timeout or idle_timeout under [network]"
            raise TimedOut(f"timed out waiting for {self._host}", advice) from None
        if isinstance(item, BaseException):
            raise item
        return item

    def limit_wait(self, seconds: float = _FINAL_WAIT) -> None:
        """Wait at most ``seconds`` more for all remaining items. Only the first call counts."""
        if self._deadline == math.inf:
            self._deadline = time.monotonic() + seconds


# ---- compression
#
# gptsh asks for none, but some gateways compress every response.

_ENCODINGS = ("gzip", "x-gzip", "deflate")
_MAX_PIECE = 1 << 16  # bytes that are decompressed at once: a few bytes may expand to gigabytes
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS  # of ``zlib.decompressobj``
_RAW = -zlib.MAX_WBITS
_FIRST_OF_GZIP = 0x1F
_DEFLATE = 8  # the lower half of the first byte of zlib's form; no raw deflate begins with it


def decompress(chunks: Iterator[bytes], host: str) -> Iterator[bytes]:
    """Yield a body in gzip or deflate as plain bytes, each piece as soon as it has arrived.

    Raises ConnectionLost if it ends too early, ModelError if it is damaged, and what ``chunks``
    raises; each names ``host``.
    """
    stream = None
    try:
        for chunk in chunks:
            data = chunk
            while data:
                if stream is None or stream.eof:  # gzip may consist of several streams
                    # Some servers call raw deflate what should be zlib's form.
                    is_wrapped = data[0] == _FIRST_OF_GZIP or data[0] & 15 == _DEFLATE
                    stream = zlib.decompressobj(_GZIP_OR_ZLIB if is_wrapped else _RAW)
                while piece := stream.decompress(data, _MAX_PIECE):
                    yield piece
                    data = stream.unconsumed_tail
                data = stream.unused_data
    except zlib.error as err:
        raise ModelError(f"cannot decompress the response of {host}: {err}") from err
    if stream and not stream.eof:
        raise ConnectionLost(f"the connection to {host} was lost")


# ---- connections
#
# Connect to a model's server: directly or through its proxy, with or without TLS, perhaps before
# there is a request.

_CONNECT_TIMEOUT = 15.0  # seconds
_KEEP_ALIVE = {  # seconds, and a number of tries
    "TCP_KEEPIDLE": 60,
    "TCP_KEEPALIVE": 60,  # the same on macOS
    "TCP_KEEPINTVL": 30,
    "TCP_KEEPCNT": 4,
}
# Seconds that an idle connection is kept: the server or a router may drop it.
_LONGEST_IDLE = 15.0


class Endpoint(NamedTuple):
    """How to reach a URL: its parts, those of the proxy, and the certificates to trust."""

    host: str  # with its port, as in the URL
    target: SplitResult
    proxy: SplitResult | None
    trust: tls.Trust | None  # None without TLS


class OpenConnection:
    """A connection for the next request: one that a thread opens, or one that is still open."""

    def __init__(self, endpoint: Endpoint, connection: HTTPConnection | None = None) -> None:
        self._since = time.monotonic()
        self._result: HTTPConnection | GptshError | None = connection
        self._thread: threading.Thread | None = None
        if connection is None:
            self._thread = threading.Thread(target=self._open, args=(endpoint,), daemon=True)
            self._thread.start()

    def _open(self, endpoint: Endpoint) -> None:
        try:
            self._result = connect(endpoint)
        except GptshError as err:
            self._result = err
        self._since = time.monotonic()

    def take(self) -> HTTPConnection | None:
        """Wait for the connection; None if it has become too old. Raises as ``connect``."""
        if self._thread:
            self._thread.join()
        is_fresh = time.monotonic() - self._since <= _LONGEST_IDLE
        if is_fresh and isinstance(self._result, GptshError):
            raise self._result
        connection = self._result
        if not isinstance(connection, HTTPConnection):
            return None
        if not is_fresh:
            connection.close()
            return None
        return connection

    def close(self) -> None:
        """Close it, unless a thread still opens it."""
        if isinstance(self._result, HTTPConnection):
            self._result.close()


def connect(endpoint: Endpoint) -> HTTPConnection:
    """Connect, through the proxy if there is one. Raises TimedOut and ModelError.

    These errors are not retried, because they would not change soon.
    """
    try:
        try:
            return _open(endpoint)
        except ssl.SSLCertVerificationError:
            if endpoint.trust is None or endpoint.trust.unread_file is None:
                raise
            with contextlib.suppress(OSError):
                endpoint.trust.context.load_verify_locations(endpoint.trust.unread_file)
            return _open(endpoint)
    except (HTTPException, OSError, ValueError) as err:
        from gptsh.llm.failures import no_connection

        raise no_connection(err, endpoint.host, has_proxy=endpoint.proxy is not None) from err


def _open(endpoint: Endpoint) -> HTTPConnection:
    """Connect. Raises OSError, HTTPException and ValueError."""
    target = endpoint.target
    proxy = endpoint.proxy
    host, port = host_and_port(proxy or target)
    context = endpoint.trust.context if endpoint.trust else None
    if context is None:
        connection = HTTPConnection(host, port, timeout=_CONNECT_TIMEOUT)
    else:
        connection = HTTPSConnection(host, port, timeout=_CONNECT_TIMEOUT, context=context)
    if proxy:
        if context:
            connection.set_tunnel(*host_and_port(target), proxy_headers(proxy))
        connection.connect()
    else:
        # A name in bytes needs no IDNA encoding, whose tables take 8 ms to load. The stubs know
        # only names in str.
        name: Any = host.encode() if host.isascii() else host
        sock = socket.create_connection((name, port), _CONNECT_TIMEOUT)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sock = context.wrap_socket(sock, server_hostname=host) if context else sock
    # The system notices within minutes that the other end of a silent connection is gone.
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        if hasattr(socket, option):
            connection.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection


# ---- http

_GRACE = 30.0  # seconds that the thread waits longer than the main thread
_CHUNK_SIZE = 1 << 16  # maximum bytes of one read
_END_WAIT = 0.05  # seconds for the end of a body, after the last event of an answer
_STALE = 1.0  # seconds within which a request fails on a connection that the server has closed
_SMALL_BODY = 1 << 16  # bytes: how much of an error response is read
_SAFE = "/%:@!$&'()*+,;=~"  # other characters of a path are percent-encoded


class HttpRequest(NamedTuple):
    """A request, and how long its response may take: timeouts are in seconds."""

    endpoint: Endpoint
    body: bytes | None  # None: a GET
    headers: Mapping[str, str]
    first_byte_timeout: float
    idle_timeout: float  # of each pause in the body
    total_timeout: float | None


class Response:
    """A response; creating it sends the request in a thread and waits for the head.

    ``headers`` have lower-case names. ``opened`` is used if it is still open. ``keep`` gets the
    connection from ``release``, if it can be used again. Raises ModelError or TimedOut if no
    response comes.
    """

    def __init__(
        self,
        request: HttpRequest,
        opened: OpenConnection | None,
        keep: Callable[[HTTPConnection], None] | None,
    ) -> None:
        self._request = request
        self._keep = keep
        self._reusable: HTTPConnection | None = None  # once the whole body was read
        self._has_ended = threading.Event()
        # http.client drops its reference if the body ends with the connection.
        self._sock: socket.socket | None = None
        self._incoming = Incoming(self._exchange(opened), request.endpoint.host)
        self.limit_wait = self._incoming.limit_wait
        if request.total_timeout is not None:
            self.limit_wait(request.total_timeout)
        try:
            head = self._incoming.next_item(request.first_byte_timeout)
        except BaseException:  # also a signal
            self.close()
            raise
        assert isinstance(head, HTTPResponse)  # the first item
        self.status = head.status
        self.headers = {name.lower(): value for name, value in head.getheaders()}

    def _exchange(self, opened: OpenConnection | None) -> Iterator[HTTPResponse | bytes]:
        """In the thread: yield the head of the response, then its body in chunks.

        Raises ModelError or TimedOut.
        """
        connection = None
        try:
            connection, response = self._begin(opened)
            yield response
            while chunk := response.read1(_CHUNK_SIZE):
                yield chunk
            if response.length:  # bytes missing
                raise IncompleteRead(b"", response.length)
            if self._keep and not response.will_close:
                response.close()  # or http.client takes it for unread
                self._reusable = connection
                connection = None
        except (HTTPException, OSError, ValueError, OverflowError) as err:
            problem = f"the connection to {self._request.endpoint.host} was lost"
            failure = ConnectionLost(problem, detail=repr(err))
            failure.can_retry = True
            failure.may_fall_back = True
            raise failure from err
        finally:
            self._has_ended.set()
            if connection:
                connection.close()

    def _begin(self, opened: OpenConnection | None) -> tuple[HTTPConnection, HTTPResponse]:
        """Send the request on an open connection, or else on a new one.

        Raises as ``_send`` and ``connect``.
        """
        connection = opened.take() if opened else None
        if connection:
            sent_at = time.monotonic()
            try:
                return connection, self._send(connection)
            except (ConnectionError, ssl.SSLError):
                if time.monotonic() - sent_at > _STALE:  # the server may have read the request
                    raise
        # There was none, or the server has closed it since.
        connection = connect(self._request.endpoint)
        return connection, self._send(connection)

    def _send(self, connection: HTTPConnection) -> HTTPResponse:
        """Send the request; return the head of the response. A failure closes the connection.

        Raises HTTPException, OSError and ValueError.
        """
        request = self._request
        target = request.endpoint.target
        proxy = request.endpoint.proxy
        headers = {**request.headers}
        path = quote(target.path or "/", safe=_SAFE)
        if target.query:
            path += f"?{quote(target.query, safe=_SAFE)}"
        if proxy and target.scheme == "http":
            path = f"http://{request.endpoint.host}{path}"
            headers |= proxy_headers(proxy)
        method = "GET" if request.body is None else "POST"
        self._sock = connection.sock
        self._sock.settimeout(max(request.first_byte_timeout, request.idle_timeout) + _GRACE)
        try:
            # A server that refuses a large request may answer and close before it has read it all.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, request.body, headers)
            return connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def chunks(self) -> Iterator[bytes]:
        """Return the pieces of the body as they arrive, decompressed.

        Raises ModelError or TimedOut if it breaks off or stalls, ModelError for an unknown
        compression.
        """
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        if encoding in ("identity", ""):
            return self._received()
        host = self._request.endpoint.host
        if encoding not in _ENCODINGS:
            problem = f"{host} compressed its response with {encoding}, which is not supported"
            raise ModelError(problem, "turn off compression in the gateway")
        return decompress(self._received(), host)

    def _received(self) -> Iterator[bytes]:
        """Yield the body as it was sent. Blank lines alone are no answer, however many drip in."""
        # The model may still be loading.
        until = time.monotonic() + self._request.first_byte_timeout
        while chunk := self._incoming.next_item(until - time.monotonic()):
            assert isinstance(chunk, bytes)  # the head was the first item
            yield chunk
            if not chunk.isspace():
                until = time.monotonic() + self._request.idle_timeout

    def small_body(self) -> bytes:
        """Return the beginning of the body, as much as arrives soon."""
        body = b""
        self.limit_wait()
        with contextlib.suppress(GptshError):
            for chunk in self.chunks():
                body += chunk
                if len(body) >= _SMALL_BODY:
                    break
        return body

    def release(self) -> None:
        """Keep the connection for the next request, if the body has ended; else close it."""
        if self._keep and self._has_ended.wait(_END_WAIT) and self._reusable:
            self._keep(self._reusable)
        else:
            self.close()

    def close(self) -> None:
        """Close the connection even while the thread waits for it."""
        self._incoming.is_closed = True
        if self._sock:
            with contextlib.suppress(OSError):  # already closed
                self._sock.shutdown(socket.SHUT_RDWR)
        if self._reusable:
            self._reusable.close()


class Http:
    """Sends requests with one process's network settings and environment."""

    def __init__(self, network: Network, environ: Mapping[str, str]) -> None:
        self._network = network
        self._environ = environ
        self._opened: dict[str, OpenConnection] = {}  # secure ones, by host

    def endpoint(self, url: str) -> Endpoint:
        """Resolve proxy and certificates for a URL.

        Raises ConfigError for an invalid URL, proxy or CA bundle.
        """
        host = url.partition("://")[2].partition("/")[0]
        try:
            target = urlsplit(url)
            host_and_port(target)
        except ValueError as err:
            advice = "it must be a URL such as http://localhost:8000/v1"
            raise ConfigError(f"invalid base_url {host!r}", advice, detail=repr(err)) from err
        proxy = None
        try:
            proxy_url = proxy_for(url, self._environ)
            if proxy_url:
                proxy = urlsplit(proxy_url)
                host_and_port(proxy)
                if proxy.scheme != "http":
                    raise ValueError(f"unsupported proxy scheme: {proxy.scheme}")
        except ValueError as err:
            problem = f"invalid proxy for {host}"
            advice = "check the proxy variables; a proxy must be http://, SOCKS is not supported"
            raise ConfigError(problem, advice, detail=repr(err)) from err
        trust = tls.trust(self._environ) if target.scheme == "https" else None
        return Endpoint(host, target, proxy, trust)

    def connect_early(self, url: str) -> None:
        """Open a secure connection for the next request in a thread. Raises as ``endpoint``."""
        endpoint = self.endpoint(url)
        if endpoint.host not in self._opened:
            with contextlib.suppress(RuntimeError):  # no thread can start
                self._opened[endpoint.host] = OpenConnection(endpoint)

    def send(
        self,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        is_self_hosted: bool = False,
        seconds: float | None = None,
        keeps: bool = False,
    ) -> Response:
        """Send a POST, or a GET without body, and wait for the head of the response.

        ``is_self_hosted``: to a self-hosted server, which may need longer. ``keeps``: another
        request is likely to follow, so a secure connection stays open. Raises ModelError, TimedOut,
        and as ``endpoint``.
        """
        endpoint = self.endpoint(url)
        opened = None
        keep = None
        if endpoint.trust:
            opened = self._opened.pop(endpoint.host, None)
            keep = partial(self._keep, endpoint) if keeps else None
        request = HttpRequest(
            endpoint,
            body,
            headers=headers,
            first_byte_timeout=self._network.first_byte_timeout,
            idle_timeout=self._network.idle_seconds(is_self_hosted=is_self_hosted),
            total_timeout=seconds,
        )
        return Response(request, opened, keep)

    def _keep(self, endpoint: Endpoint, connection: HTTPConnection) -> None:
        self._opened[endpoint.host] = OpenConnection(endpoint, connection)

    def close_kept(self) -> None:
        """Close the connections that were kept or opened early: the turn has ended."""
        while self._opened:
            _, opened = self._opened.popitem()
            opened.close()
