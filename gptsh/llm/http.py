"""Send a request over HTTP in a thread: connections, timeouts, compression, the response in pieces."""

import contextlib
import math
import queue
import re
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

from gptsh.config.settings import Network
from gptsh.errors import ConfigError, ConnectionLost, GptshError, ModelError, TimedOut
from gptsh.llm import tls
from gptsh.llm.tls import SOCKS, check_socks_package, connect_socks, host_and_port, proxy_for, proxy_headers

# ---- waiting
#
# Wait for what a thread receives from a server, until a timeout of ``[network]`` or a signal ends
# the wait.

_FINAL_WAIT = 5.0  # seconds to wait for usage after a complete answer, or for the body of an error response
Item = TypeVar("Item")


# Set by a program that no longer waits for its answer; signals end the waits of a command.
left: ContextVar[threading.Event | None] = ContextVar("left", default=None)
_LOOK = 0.1  # seconds between two looks whether it is set


class Incoming(Generic[Item]):
    """Items that a thread produces, so that signals and timeouts reach the main thread. Errors name ``host``."""

    def __init__(self, items: Iterator[Item], host: str) -> None:
        self._left = left.get()
        self._queue: queue.SimpleQueue[Item | BaseException | None] = queue.SimpleQueue()
        self._host, self._is_closed = host, False
        self._deadline = math.inf  # of ``time.monotonic``
        thread = threading.Thread(target=self._produce, args=(items,), daemon=True)
        thread.start()

    def _produce(self, items: Iterator[Item]) -> None:
        """In the thread: put each item into the queue, then None, or the error that ended them."""
        try:
            for item in items:
                self._queue.put(item)
                if self._is_closed:
                    break
            self._queue.put(None)
        except BaseException as err:  # noqa: BLE001 - whatever it is: ``next_item`` raises it in the main thread
            self._queue.put(err)

    def next_item(self, timeout: float) -> Item | None:
        """Wait for the next item; None after the last.

        Raises the thread's error, TimedOut, or BrokenPipeError if the program does not wait any more.
        """
        try:
            item = self._get(time.monotonic() + timeout)
        except queue.Empty:
            has_deadline = self._deadline < math.inf
            todo = "" if has_deadline else "raise first_byte_timeout or idle_timeout under [network]"
            raise TimedOut(f"{self._host} went silent", todo) from None
        if isinstance(item, BaseException):
            raise item
        return item

    def _get(self, until: float) -> Item | BaseException | None:
        """Return the next item, or raise queue.Empty at this time of ``time.monotonic``, or at the deadline."""
        until = min(until, self._deadline)
        if self._left is None:
            return self._queue.get(timeout=max(until - time.monotonic(), 0))
        while True:
            if self._left.is_set():
                raise BrokenPipeError
            seconds = max(until - time.monotonic(), 0)
            try:
                return self._queue.get(timeout=min(seconds, _LOOK))
            except queue.Empty:
                if seconds <= _LOOK:
                    raise

    def limit_wait(self, seconds: float = _FINAL_WAIT) -> None:
        """Wait at most ``seconds`` more for all remaining items. Only the first call counts."""
        if self._deadline == math.inf:
            self._deadline = time.monotonic() + seconds

    def close(self) -> None:
        """Stop the thread after its next item."""
        self._is_closed = True


# ---- compression
#
# Decompress a body in gzip or deflate: gptsh asks for neither, but some gateways compress every
# response.

ENCODINGS = ("gzip", "x-gzip", "deflate")
_MAX_PIECE = 1 << 16  # bytes that are decompressed at once: a few bytes may expand to gigabytes
_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS  # forms of ``zlib.decompressobj``
_GZIP_START = b"\x1f\x8b"
_DEFLATE = 8  # the method in the first byte of zlib's form


def decompress(chunks: Iterator[bytes], host: str) -> Iterator[bytes]:
    """Yield the decompressed body in pieces, each as soon as its bytes have arrived; errors name ``host``.

    Raises ConnectionLost if the body ends too early, ModelError if it is damaged, and what ``chunks`` raises.
    """
    start = b""
    while len(start) < len(_GZIP_START) and (chunk := next(chunks, b"")):
        start += chunk
    form = _form(start)
    stream = zlib.decompressobj(form)
    try:
        for data in chain([start], chunks):
            while data:
                if stream.eof:  # gzip may consist of several streams
                    stream = zlib.decompressobj(form)
                yield from _pieces(stream, data)
                data = stream.unused_data
    except zlib.error as err:
        raise ModelError(f"{host} sent an answer that cannot be decompressed: {err}") from err
    if start and not stream.eof:
        raise ConnectionLost(f"the connection to {host} broke off")


def _pieces(stream: "zlib._Decompress", data: bytes) -> Iterator[bytes]:
    """Yield what a decompressor makes of all these bytes."""
    while piece := stream.decompress(data, _MAX_PIECE):
        yield piece
        data = stream.unconsumed_tail


def _form(start: bytes) -> int:
    """The form of a compressed body by its first bytes: some servers call raw deflate what should be zlib's."""
    if start.startswith(_GZIP_START):
        return _GZIP
    is_zlib = len(start) > 1 and start[0] & 15 == _DEFLATE and int.from_bytes(start[:2]) % 31 == 0  # RFC 1950
    return _ZLIB if is_zlib else _RAW


# ---- connections
#
# Connect to a model's server: directly or through its proxy, with or without TLS, perhaps before a
# request exists.

_CONNECT_TIMEOUT = 15.0  # seconds for a connection
_KEEP_ALIVE = {  # seconds, and a number of tries
    "TCP_KEEPIDLE": 60,
    "TCP_KEEPALIVE": 60,  # the same on macOS
    "TCP_KEEPINTVL": 30,
    "TCP_KEEPCNT": 4,
}
_LONGEST_IDLE = 15.0  # seconds that a connection is kept before its request: the server or a router may drop it


class Endpoint(NamedTuple):
    """How to reach a URL: its parts, those of the proxy, and the certificates to trust; None without TLS."""

    url: str
    host: str  # with its port, as in the URL
    target: SplitResult
    proxy: SplitResult | None
    trust: tls.Trust | None

    @property
    def way(self) -> tuple[str, str, SplitResult | None]:
        """What endpoints have in common that can use the same connection."""
        return self.target.scheme, self.host, self.proxy


def endpoint_of(url: str, environ: Mapping[str, str]) -> Endpoint:
    """Resolve proxy and certificates for a URL. Raises ConfigError for an invalid URL, proxy or CA bundle."""
    host = url.partition("://")[2].partition("/")[0]
    try:
        target, proxy_url = urlsplit(url), proxy_for(url, environ)
        proxy = urlsplit(proxy_url) if proxy_url else None
        for parts in (target, proxy or target):
            host_and_port(parts)
    except ValueError as err:
        todo = "see base_url and the proxy variables"
        raise ConfigError(f"the URL or the proxy for {host} is not valid", todo, detail=repr(err)) from err
    if proxy and proxy.scheme == target.scheme == "https":
        raise ConfigError("an https:// proxy cannot lead to an https:// server", "name the proxy as http://")
    if proxy and proxy.scheme in SOCKS:
        check_socks_package()
    is_secure = target.scheme == "https" or (proxy is not None and proxy.scheme == "https")
    return Endpoint(url, host, target, proxy, tls.trust(environ) if is_secure else None)


class EarlyConnection:
    """A connection that a thread opens while the request is still being made."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._result: HTTPConnection | GptshError | None = None
        self._opened_at = 0.0  # of ``time.monotonic``
        self._thread = threading.Thread(target=self._open, daemon=True)
        self._thread.start()

    def _open(self) -> None:
        try:
            self._result = connect(self._endpoint)
        except GptshError as err:
            self._result = err
        self._opened_at = time.monotonic()

    def take(self) -> HTTPConnection | None:
        """Wait for the connection; None if it has become too old. Raises as ``connect``."""
        self._thread.join()
        if isinstance(self._result, HTTPConnection):
            return _if_fresh(self._result, self._opened_at)
        if isinstance(self._result, GptshError) and time.monotonic() - self._opened_at <= _LONGEST_IDLE:
            raise self._result
        return None


class KeptConnection:
    """A connection that is still open after an answer, for the next request of the same turn."""

    def __init__(self, connection: HTTPConnection) -> None:
        self._connection = connection
        self._kept_at = time.monotonic()

    def take(self) -> HTTPConnection | None:
        """Return the connection; None if it has become too old."""
        return _if_fresh(self._connection, self._kept_at)

    def close(self) -> None:
        """Close it, unused."""
        self._connection.close()


def _if_fresh(connection: HTTPConnection, since: float) -> HTTPConnection | None:
    """Return a connection that was idle since then, or close one that has become too old."""
    if time.monotonic() - since <= _LONGEST_IDLE:
        return connection
    connection.close()
    return None


def connect(endpoint: Endpoint) -> HTTPConnection:
    """Connect, through the proxy if there is one. Its errors are not retried: they would not change soon."""
    try:
        return _connect_once(endpoint)
    except GptshError as err:
        err.may_fall_back = True
        raise


def _connect_once(endpoint: Endpoint) -> HTTPConnection:
    """Connect. Raises TimedOut and ModelError, each in words that say what to do."""
    host = endpoint.host
    try:
        try:
            return _open(endpoint)
        except ssl.SSLCertVerificationError:
            if not (endpoint.trust and endpoint.trust.read_rest()):
                raise
            return _open(endpoint)
    except TimeoutError as err:
        raise TimedOut(f"no connection to {host} in time") from err
    except ssl.SSLError as err:
        is_untrusted = isinstance(err, ssl.SSLCertVerificationError)
        todo = "set SSL_CERT_FILE to your CA bundle" if is_untrusted else "does the server use https?"
        raise ModelError(f"no secure connection to {host}: {err}", todo, detail=repr(err)) from err
    except (HTTPException, OSError, ValueError) as err:
        if endpoint.proxy:
            refusal = re.search("Tunnel connection failed: (.*)", str(err))
            failure = f"refused: {refusal[1]}" if refusal else "cannot be reached"
            what, todo = f"the proxy for {host} {failure}", "see HTTPS_PROXY and NO_PROXY"
        elif isinstance(err, (socket.gaierror, UnicodeError)):
            what, todo = f"the host {host} is not known", "is base_url right?"
        else:
            what, todo = f"nothing answers at {host}", "is the server running, and base_url right?"
        raise ModelError(what, todo, detail=repr(err)) from err


def _open(endpoint: Endpoint) -> HTTPConnection:
    """Connect. Raises OSError, HTTPException and ValueError."""
    if endpoint.proxy and endpoint.proxy.scheme not in SOCKS:
        return _open_through_http_proxy(endpoint, endpoint.proxy)
    target, context = endpoint.target, _tls_context(endpoint)
    connection = _unconnected(target, context)
    if endpoint.proxy:
        sock = connect_socks(target, endpoint.proxy, _CONNECT_TIMEOUT)
    else:
        name, port = host_and_port(target)
        # A name in bytes needs no IDNA encoding, whose tables take 1.5 ms to load. The stubs know
        # only names in str.
        host: Any = name.encode() if name.isascii() else name
        sock = socket.create_connection((host, port), _CONNECT_TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _keep_alive(sock)
    connection.sock = context.wrap_socket(sock, server_hostname=target.hostname) if context else sock
    return connection


def _open_through_http_proxy(endpoint: Endpoint, proxy: SplitResult) -> HTTPConnection:
    connection = _unconnected(proxy, _tls_context(endpoint))
    if endpoint.target.scheme == "https":
        connection.set_tunnel(*host_and_port(endpoint.target), proxy_headers(proxy))
    connection.connect()
    _keep_alive(connection.sock)
    return connection


def _keep_alive(sock: socket.socket) -> None:
    """Let the system notice within minutes that the other end of a silent connection is gone, and routers keep it."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _unconnected(first_hop: SplitResult, context: ssl.SSLContext | None) -> HTTPConnection:
    host, port = host_and_port(first_hop)
    if context is None:
        return HTTPConnection(host, port, timeout=_CONNECT_TIMEOUT)
    return HTTPSConnection(host, port, timeout=_CONNECT_TIMEOUT, context=context)


def _tls_context(endpoint: Endpoint) -> ssl.SSLContext | None:
    return endpoint.trust.context if endpoint.trust else None


# ---- http
#
# Send a request over HTTP and receive its response in pieces, by the standard library.
#
# Importing urllib3 takes as long as Python and click together. Each request has its own thread (see
# ``Incoming``), and its own connection, unless one was kept. Nothing is retried here, except on a
# connection that the server has closed before the request.

_GRACE = 30.0  # seconds that the thread waits longer than the main thread
_CHUNK_SIZE = 1 << 16  # maximum bytes of one read
_END_WAIT = 0.05  # seconds for the end of a body, after the last event of an answer
_STALE = 1.0  # seconds within which a server that has closed an idle connection lets a request fail
_SMALL_BODY = 1 << 16  # bytes: how much of an error response is read
_SAFE = "/%:@!$&'()*+,;=~"  # other characters of a path are percent-encoded


class Response:
    """A response; creating it sends the request in a thread and waits for the head. ``headers`` have lower-case names.

    ``opened`` is used while it is open. ``keep`` gets the connection from ``release``, if it can be used again.
    ``idle`` limits the pauses in the body, ``seconds`` the whole exchange. Raises ModelError or TimedOut if no response
    comes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        opened: EarlyConnection | KeptConnection | None,
        body: bytes | None,
        headers: Mapping[str, str],
        network: Network,
        idle: float,
        seconds: float | None,
        keep: Callable[[HTTPConnection], None] | None,
    ) -> None:
        self.url = endpoint.url
        self._endpoint = endpoint
        self._opened = opened
        self._network = network
        self._idle = idle
        self._keep = keep
        self._reusable: HTTPConnection | None = None  # once the whole body was read, if it may be kept
        self._has_ended = threading.Event()
        self._sock: socket.socket | None = None  # http.client drops its reference if the body ends with the connection
        self._incoming = Incoming(self._exchange(body, headers), endpoint.host)
        self.limit_wait = self._incoming.limit_wait
        if seconds is not None:
            self.limit_wait(seconds)
        try:
            head = self._incoming.next_item(network.first_byte_timeout)
        except BaseException:  # also a signal
            self.close()
            raise
        assert isinstance(head, HTTPResponse)  # the first item
        self.status = head.status
        self.headers = {name.lower(): value for name, value in head.getheaders()}

    def _exchange(
        self,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> Iterator[HTTPResponse | bytes]:
        """In the thread: yield the head of the response, then its body in chunks. Raises ModelError or TimedOut."""
        host = self._endpoint.host
        connection = self._opened.take() if self._opened else None
        try:
            response = None
            if connection:
                sent_at = time.monotonic()
                try:
                    response = self._request(connection, body, headers)
                except (ConnectionError, ssl.SSLError):
                    if time.monotonic() - sent_at > _STALE:  # the server may have read the request
                        raise
                    # Else it has closed the connection meanwhile.
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
            if self._keep and not response.will_close:
                response.close()  # or http.client takes it for unread
                self._reusable, connection = connection, None
        except (HTTPException, OSError, ValueError, OverflowError) as err:
            failure = ConnectionLost(f"the connection to {host} broke off", detail=repr(err))
            failure.can_retry = failure.may_fall_back = True
            raise failure from err
        finally:
            self._has_ended.set()
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

        if encoding not in ENCODINGS:
            error = f"{self._endpoint.host} sends its answer in the encoding {encoding}, which gptsh did not ask for"
            raise ModelError(error, "switch compression off in the gateway")
        return decompress(self._received(), self._endpoint.host)

    def _received(self) -> Iterator[bytes]:
        """Yield the body as it was sent. Blank lines alone are no answer, however many drip in."""
        until = time.monotonic() + self._network.first_byte_timeout  # the model may still be loading
        while chunk := self._incoming.next_item(until - time.monotonic()):
            assert isinstance(chunk, bytes)  # the head was the first item
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

    def release(self) -> None:
        """Keep the connection for the next request, if the body has ended; else close it."""
        if self._keep and self._has_ended.wait(_END_WAIT) and self._reusable:
            self._keep(self._reusable)
        else:
            self.close()

    def close(self) -> None:
        """Close the connection even while the thread waits for it: the rest of the answer is not needed."""
        self._incoming.close()
        if self._sock:
            with contextlib.suppress(OSError):  # already closed
                self._sock.shutdown(socket.SHUT_RDWR)
        if self._reusable:
            self._reusable.close()


class Http:
    """Sends requests with one process's network settings and environment."""

    def __init__(self, network: Network, environ: Mapping[str, str]) -> None:
        self._network, self._environ = network, environ
        self._opened: dict[tuple[str, str, SplitResult | None], EarlyConnection | KeptConnection] = {}

    def connect_early(self, url: str) -> None:
        """Open the connection for the next request in a thread, if it is a secure one. Raises as ``endpoint``.

        Others are opened at once, and a small local server may serve only one connection at a time.
        """
        endpoint = self.endpoint(url)
        if endpoint.target.scheme == "https" and endpoint.way not in self._opened:
            with contextlib.suppress(RuntimeError):  # no thread can start
                self._opened[endpoint.way] = EarlyConnection(endpoint)

    def endpoint(self, url: str) -> Endpoint:
        """Resolve proxy and certificates for a URL. Raises ConfigError for an invalid URL, proxy or CA bundle."""
        return endpoint_of(url, self._environ)

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
        """Send a POST, or a GET without body; wait for the head. Raises ModelError, TimedOut, and as ``endpoint``.

        ``is_self_hosted``: to a self-hosted server, which may need longer. ``keeps``: another
        request is likely to follow, so a secure connection stays open.
        """
        idle = self._network.idle_seconds(is_self_hosted=is_self_hosted)
        endpoint = self.endpoint(url)
        opened = self._opened.pop(endpoint.way, None)
        is_secure = endpoint.target.scheme == "https"
        keep = partial(self._keep, endpoint) if keeps and is_secure else None
        return Response(endpoint, opened, body, headers, self._network, idle, seconds, keep)

    def _keep(self, endpoint: Endpoint, connection: HTTPConnection) -> None:
        self._opened[endpoint.way] = KeptConnection(connection)

    def close_kept(self) -> None:
        """Close the connections that were kept: the turn has ended."""
        for way, opened in [*self._opened.items()]:
            if isinstance(opened, KeptConnection):
                del self._opened[way]
                opened.close()
