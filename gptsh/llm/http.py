"""HTTP to a model's server: proxies and CA bundles from the environment, failures as gptsh's errors.

It uses the standard library: importing urllib3 takes as long as Python and click together. Each request has its own
connection and thread (see ``Incoming``). A secure connection may be opened before the request is known. Nothing is
retried here.
"""

import contextlib
import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from gptsh import threads
from gptsh.config.settings import Network
from gptsh.errors import ConfigError, ConnectionLost, GptshError, ModelError, TimedOut
from gptsh.llm import certificates
from gptsh.llm.waiting import Incoming

CONNECT_TIMEOUT = 15.0  # seconds for a connection
_GRACE = 30.0  # seconds that the thread waits longer than the main thread
_CHUNK_SIZE = 1 << 16  # maximum bytes of one read
_SMALL_BODY = 1 << 16  # bytes: how much of an error response is read
_LONGEST_IDLE = 15.0  # seconds that a connection is kept before its request: the server or a router may drop it
_SOCKS = {"socks4": False, "socks4a": True, "socks5": False, "socks5h": True}  # whether the proxy resolves the name
_PORTS = {"http": 80, "https": 443} | dict.fromkeys(_SOCKS, 1080)
_SAFE = "/%:@!$&'()*+,;=~"  # other characters of a path are percent-encoded
# Loopback is never proxied: for a proxy, localhost is its own machine.
_NO_PROXY = "localhost,127.0.0.0/8,::1,0.0.0.0,::"


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


class Response:
    """A response; creating it sends the request in a thread and waits for the head. ``headers`` have lower-case names.

    ``early`` is used while it is open. ``idle`` limits the pauses in the body, ``seconds`` the whole exchange. Raises
    ModelError or TimedOut if no response comes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        early: "EarlyConnection | None",
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
                connection = _connect(self._endpoint)
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
        path = quote(target.path or "/", safe=_SAFE) + (f"?{quote(target.query, safe=_SAFE)}" if target.query else "")
        if proxy and proxy.scheme not in _SOCKS and target.scheme == "http":
            path, headers = f"http://{self._endpoint.host}{path}", {**headers, **_proxy_headers(proxy)}
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
        from gptsh.llm import compression  # noqa: PLC0415 - gptsh asks for none, and few servers send it

        if encoding not in compression.ENCODINGS:
            error = f"{self._endpoint.host} sends its answer in the encoding {encoding}, which gptsh did not ask for"
            raise ModelError(error, "switch compression off in the gateway")
        return compression.decompress(self._received(), self._endpoint.host)

    def _received(self) -> Iterator[bytes]:
        """Yield the body as it was sent."""
        timeout = self._network.first_byte_timeout  # the model may still be loading
        while chunk := self._incoming.next_item(timeout):
            yield chunk
            timeout = self._idle

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


class EarlyConnection:
    """A connection that a thread opens while the request is still being made."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._result: HTTPConnection | GptshError | None = None
        self._opened_at = 0.0  # of ``time.monotonic``
        self._thread = threading.Thread(target=self._open, daemon=True)
        self._is_started = threads.start(self._thread)

    def _open(self) -> None:
        try:
            self._result = _connect(self._endpoint)
        except GptshError as err:
            self._result = err
        self._opened_at = time.monotonic()

    def take(self) -> HTTPConnection | None:
        """Wait for the connection; None if it has become too old. Raises as ``_connect``."""
        if self._is_started:
            self._thread.join()
        if time.monotonic() - self._opened_at > _LONGEST_IDLE:
            if isinstance(self._result, HTTPConnection):
                self._result.close()
            return None
        if isinstance(self._result, GptshError):
            raise self._result
        return self._result


def _connect(endpoint: Endpoint) -> HTTPConnection:
    """Connect, through the proxy if there is one. Its errors are not retried: they would not change soon."""
    try:
        return _connect_once(endpoint)
    except GptshError as err:
        err.may_fall_back = True
        raise


def _connect_once(endpoint: Endpoint) -> HTTPConnection:
    proxy = endpoint.proxy
    try:
        try:
            return _open(endpoint)
        except ssl.SSLCertVerificationError:
            if not (endpoint.trust and endpoint.trust.read_rest()):
                raise
            return _open(endpoint)
    except TimeoutError as err:
        raise TimedOut(f"no connection to {endpoint.host} in time") from err
    except ssl.SSLError as err:
        is_untrusted = isinstance(err, ssl.SSLCertVerificationError)
        todo = "set SSL_CERT_FILE to your CA bundle" if is_untrusted else "does the server use https?"
        raise ModelError(f"no secure connection to {endpoint.host}: {err}", todo, detail=repr(err)) from err
    except (HTTPException, OSError, ValueError) as err:
        if proxy:
            refusal = re.search("Tunnel connection failed: (.*)", str(err))
            what = f"the proxy for {endpoint.host} {f'refused: {refusal[1]}' if refusal else 'cannot be reached'}"
            todo = "see HTTPS_PROXY and NO_PROXY"
        elif isinstance(err, (socket.gaierror, UnicodeError)):
            what, todo = f"the host {endpoint.host} is not known", "is base_url right?"
        else:
            what, todo = f"nothing answers at {endpoint.host}", "is the server running, and base_url right?"
        raise ModelError(what, todo, detail=repr(err)) from err


def _open(endpoint: Endpoint) -> HTTPConnection:
    """Connect. Raises OSError, HTTPException and ValueError."""
    target, proxy, context = endpoint.target, endpoint.proxy, endpoint.trust and endpoint.trust.context
    uses_socks = proxy is not None and proxy.scheme in _SOCKS
    first_hop = proxy if proxy and not uses_socks else target
    connection = HTTPConnection(*_address(first_hop), timeout=CONNECT_TIMEOUT)
    if context:
        connection = HTTPSConnection(*_address(first_hop), timeout=CONNECT_TIMEOUT, context=context)
    if proxy and not uses_socks:
        if target.scheme == "https":
            connection.set_tunnel(*_address(target), _proxy_headers(proxy))
        connection.connect()
        return connection
    name, port = _address(target)
    # A name in bytes needs no IDNA encoding, whose tables take 1.5 ms to load.
    host: Any = name.encode() if name.isascii() else name
    sock = _connect_socks(target, proxy) if proxy else socket.create_connection((host, port), CONNECT_TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sock = context.wrap_socket(sock, server_hostname=target.hostname) if context else sock
    return connection


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
            self._early[endpoint.way] = EarlyConnection(endpoint)

    def send(
        self,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        is_local: bool = False,
        seconds: float | None = None,
    ) -> Response:
        """Send a POST, or a GET without body; wait for the head. Raises ModelError, TimedOut, and as ``endpoint``.

        ``is_local``: to a server of the user's own, which may need longer.
        """
        idle = self._network.idle_seconds(is_local=is_local)
        endpoint = self.endpoint(url)
        early = self._early.pop(endpoint.way, None)
        return Response(endpoint, early, body, headers, self._network, idle, seconds)

    def endpoint(self, url: str) -> Endpoint:
        """Resolve proxy and certificates for a URL. Raises ConfigError for an invalid URL, proxy or CA bundle."""
        host = url.partition("://")[2].partition("/")[0]
        try:
            target, proxy_url = urlsplit(url), proxy_for(url, self._environ)
            proxy = urlsplit(proxy_url) if proxy_url else None
            for parts in (target, proxy or target):
                _address(parts)
        except ValueError as err:
            todo = "see base_url and the proxy variables"
            raise ConfigError(f"the URL or the proxy for {host} is not valid", todo, detail=repr(err)) from err
        if proxy and proxy.scheme == target.scheme == "https":
            raise ConfigError("an https:// proxy cannot lead to an https:// server", "name the proxy as http://")
        if proxy and proxy.scheme in _SOCKS:
            try:
                import socks  # noqa: F401, PLC0415 - few install the package
            except ImportError as err:
                raise ConfigError(
                    "a SOCKS proxy needs the package PySocks", "pip install PySocks, or name an HTTP proxy"
                ) from err
        secure = "https" in (target.scheme, proxy and proxy.scheme)
        return Endpoint(url, host, target, proxy, certificates.trust(self._environ) if secure else None)


def _address(parts: SplitResult) -> tuple[str, int]:
    """The host and the port of a URL. Raises ValueError if it has no host, an unknown scheme or an invalid port."""
    if not parts.hostname or parts.scheme not in _PORTS:
        raise ValueError(f"no host, or an unknown scheme: {parts.scheme}")
    return parts.hostname, parts.port or _PORTS[parts.scheme]


# ---- proxies


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    login = proxy.netloc.rpartition("@")[0]
    return {"Proxy-Authorization": f"Basic {_basic(login)}"} if login else {}


def _basic(login: str) -> str:
    """Encode a login of a proxy URL, which is percent-encoded, for a Basic header."""
    import base64  # noqa: PLC0415 - few proxies need one

    return base64.b64encode(unquote(login).encode()).decode()


def _connect_socks(target: SplitResult, proxy: SplitResult) -> socket.socket:
    """Connect through a SOCKS proxy. Raises OSError."""
    import socks  # noqa: PLC0415 - few install the package

    host, port = _address(proxy)
    sock: socket.socket = socks.create_connection(
        _address(target),
        CONNECT_TIMEOUT,
        proxy_type=socks.SOCKS5 if proxy.scheme.startswith("socks5") else socks.SOCKS4,
        proxy_addr=host,
        proxy_port=port,
        proxy_rdns=_SOCKS[proxy.scheme],
        proxy_username=unquote(proxy.username) if proxy.username else None,
        proxy_password=unquote(proxy.password) if proxy.password else None,
    )
    return sock


def proxy_secrets(environ: Mapping[str, str]) -> set[str]:
    """The users and passwords in the proxies' URLs, even in a URL that cannot be parsed."""
    secrets: set[str] = set()
    for name, value in environ.items():
        if name.lower().endswith("_proxy") and "@" in value:
            login = value.partition("://")[2].rpartition("@")[0]
            secrets |= {login.partition(":")[2], unquote(login), *re.split("[:/?#@]", login)}
            secrets |= {*unquote(login).split(":"), _basic(login)}
    return secrets


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy that the environment names for a URL: ``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY``, ``NO_PROXY``.

    Lower case wins, as in curl. Raises ValueError.
    """
    scheme = url.partition(":")[0].lower()
    names = (f"{scheme}_proxy", "all_proxy")
    proxy = next((v for name in names for v in (environ.get(name), environ.get(name.upper())) if v), None)
    if not proxy:
        return None
    host, port = _address(urlsplit(url))
    exclusions = f"{_NO_PROXY},{environ.get('no_proxy') or environ.get('NO_PROXY') or ''}"
    if any(_excludes(entry, host.rstrip("."), port) for entry in exclusions.replace(",", " ").split()):
        return None
    scheme, mark, address = proxy.rpartition("://")
    return f"{scheme.lower()}{mark}{address}" if mark else f"http://{proxy}"


def _excludes(entry: str, host: str, port: int) -> bool:
    """Whether an entry of ``NO_PROXY`` matches a host: ``*``, a domain with its subdomains, an address or a network."""
    if entry == "*":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip("[]"), strict=False)
    name, _, entry_port = entry.lower().rpartition(":") if re.search(r":[0-9]+$", entry) else (entry.lower(), "", "")
    name = name.strip("[]").removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}")) and entry_port in ("", str(port))
