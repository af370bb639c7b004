"""Connect to a model's server: directly or through its proxy, with or without TLS, perhaps before a request exists."""

import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, urlsplit

from gptsh.errors import ConfigError, GptshError, ModelError, TimedOut
from gptsh.llm import certificates
from gptsh.llm.proxies import SOCKS, check_socks_package, connect_socks, host_and_port, proxy_for, proxy_headers
from gptsh.records import NamedTuple

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
    trust: certificates.Trust | None

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
    return Endpoint(url, host, target, proxy, certificates.trust(environ) if is_secure else None)


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
        if time.monotonic() - self._opened_at > _LONGEST_IDLE:
            if isinstance(self._result, HTTPConnection):
                self._result.close()
            return None
        if isinstance(self._result, GptshError):
            raise self._result
        return self._result


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
        # A name in bytes needs no IDNA encoding, whose tables take 1.5 ms to load.
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
