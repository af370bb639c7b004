"""HTTP to a model's server: proxies and CA bundles from the environment, failures as gptsh's errors.

It uses the standard library: importing urllib3 takes as long as Python and click together. Each request has its own
connection and thread (see ``Incoming``). Nothing is retried here.
"""

import contextlib
import ipaddress
import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPSConnection, IncompleteRead
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from gptsh.config.settings import Network
from gptsh.errors import ConfigError, ConnectionLost, GptshError, ModelError, TimedOut
from gptsh.llm.sse import Incoming

CONNECT_TIMEOUT = 15.0  # seconds for a connection
_GRACE = 30.0  # seconds that the thread waits longer than the main thread
_CHUNK_SIZE = 1 << 16  # maximum bytes of one read
_SMALL_BODY = 1 << 16  # bytes: how much of an error response is read
_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR")
_SOCKS = {"socks4": False, "socks4a": True, "socks5": False, "socks5h": True}  # whether the proxy resolves the name
_PORTS = {"http": 80, "https": 443} | dict.fromkeys(_SOCKS, 1080)
_SAFE = "/%:@!$&'()*+,;=~"  # other characters of a path are percent-encoded
# Loopback is never proxied: for a proxy, localhost is its own machine.
_NO_PROXY = "localhost,127.0.0.0/8,::1,0.0.0.0,::"


class Endpoint(NamedTuple):
    """How to reach a URL: its parts, those of the proxy, and the TLS context."""

    url: str
    host: str  # with its port, as in the URL
    target: SplitResult
    proxy: SplitResult | None
    context: ssl.SSLContext | None


class Response:
    """A response; creating it sends the request in a thread and waits for the head. ``headers`` have lower-case names.

    ``seconds`` limits the whole exchange. Raises ModelError or TimedOut if no response comes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        body: bytes | None,
        headers: Mapping[str, str],
        network: Network,
        seconds: float | None,
    ) -> None:
        self.url, self._endpoint, self._network = endpoint.url, endpoint, network
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
        target, proxy, host = self._endpoint.target, self._endpoint.proxy, self._endpoint.host
        path = quote(target.path or "/", safe=_SAFE)
        if proxy and proxy.scheme not in _SOCKS and target.scheme == "http":
            path, headers = f"http://{host}{path}", {**headers, **_proxy_headers(proxy)}
        connection = _connect(self._endpoint)
        self._sock = connection.sock
        self._sock.settimeout(max(self._network.first_byte_timeout, self._network.idle_timeout) + _GRACE)
        try:
            # A server that refuses a large request may answer and close before it has read all of it.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request("GET" if body is None else "POST", path, body, dict(headers))
            response = connection.getresponse()
            yield response
            while chunk := response.read1(_CHUNK_SIZE):
                yield chunk
            if response.length:  # bytes missing
                raise IncompleteRead(b"", response.length)
        except (HTTPException, OSError, ValueError, OverflowError) as err:
            failure = ConnectionLost(f"the connection to {host} broke off", detail=repr(err))
            failure.can_retry = True
            raise failure from err
        finally:
            connection.close()

    def chunks(self) -> Iterator[bytes]:
        """Yield the body as it arrives. Raises ModelError or TimedOut if it breaks off or stalls."""
        timeout = self._network.first_byte_timeout  # the model may still be loading
        while chunk := self._incoming.next_item(timeout):
            yield chunk
            timeout = self._network.idle_timeout

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


def _connect(endpoint: Endpoint) -> HTTPConnection:
    """Connect, through the proxy if there is one. Its errors are not retried: they would not change soon."""
    target, proxy, context = endpoint.target, endpoint.proxy, endpoint.context
    uses_socks = proxy is not None and proxy.scheme in _SOCKS
    first_hop = proxy if proxy and not uses_socks else target
    connection = HTTPConnection(*_address(first_hop), timeout=CONNECT_TIMEOUT)
    if context:
        connection = HTTPSConnection(*_address(first_hop), timeout=CONNECT_TIMEOUT, context=context)
    try:
        if proxy and not uses_socks:
            if target.scheme == "https":
                connection.set_tunnel(*_address(target), _proxy_headers(proxy))
            connection.connect()
        else:
            name, port = _address(target)
            # A name in bytes needs no IDNA encoding, whose tables take 1.5 ms to load.
            host: Any = name.encode() if name.isascii() else name
            sock = _connect_socks(target, proxy) if proxy else socket.create_connection((host, port), CONNECT_TIMEOUT)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sock = context.wrap_socket(sock, server_hostname=target.hostname) if context else sock
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
    return connection


class Http:
    """Sends requests with one process's network settings and environment."""

    def __init__(self, network: Network, environ: Mapping[str, str]) -> None:
        self._network, self._environ = network, environ

    def send(self, url: str, body: bytes | None, headers: Mapping[str, str], seconds: float | None = None) -> Response:
        """Send a POST, or a GET without body; wait for the head. Raises ModelError, TimedOut, and as ``endpoint``."""
        return Response(self.endpoint(url), body, headers, self._network, seconds)

    def endpoint(self, url: str) -> Endpoint:
        """Resolve proxy and TLS context for a URL. Raises ConfigError for an invalid URL, proxy or CA bundle."""
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
        return Endpoint(url, host, target, proxy, self._context if secure else None)

    @cached_property
    def _context(self) -> ssl.SSLContext:
        """The trusted CAs: from the environment, else the system, else certifi. Raises ConfigError."""
        file = next((self._environ[name] for name in _BUNDLES[:2] if self._environ.get(name)), None)
        folder = self._environ.get(_BUNDLES[2]) or None
        system = ssl.get_default_verify_paths()
        if not (file or folder or system.cafile or (system.capath and os.listdir(system.capath))):
            import certifi  # noqa: PLC0415 - only if the system has no bundle

            file = certifi.where()
        if file and os.path.isdir(file):  # REQUESTS_CA_BUNDLE may name a folder
            file, folder = None, file
        try:
            return ssl.create_default_context(cafile=file, capath=folder)
        except (OSError, ssl.SSLError) as err:
            raise ConfigError(f"the CA bundle {file or folder} cannot be used: {err}") from err


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
