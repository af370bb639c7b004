"""HTTP to a model: proxies and CA bundles from the environment, two timeouts, failures in our words.

The only file that imports urllib3. One request at a time; nothing is retried here.
"""

import contextlib
import importlib.util
import ipaddress
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import urllib3
from urllib3 import exceptions as wire
from urllib3.connection import HTTPConnection, HTTPSConnection

from gptsh.core.settings import Network
from gptsh.errors import ConfigError, GptshError, ModelError, TimedOut

CONNECT_TIMEOUT = 15.0  # seconds; DNS not counted, which only --timeout bounds
_ERROR_BODY = 1 << 16  # bytes of an error response that are read


class _Plain(HTTPConnection):
    """Keeps the socket at hand: http.client lets go of it for a response that ends with the connection."""

    stream_socket: socket.socket | None = None

    def connect(self) -> None:
        super().connect()
        self.stream_socket = self.sock


class _Secure(HTTPSConnection):
    stream_socket: socket.socket | None = None

    def connect(self) -> None:
        super().connect()
        self.stream_socket = self.sock


class _PlainPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Secure


class Response(NamedTuple):
    """A response whose body is still to come. ``headers`` have lower-case names."""

    url: str
    status: int
    headers: Mapping[str, str]
    raw: urllib3.BaseHTTPResponse
    idle_timeout: float

    def chunks(self) -> Iterator[bytes]:
        """The body as it arrives, decompressed. Raises ModelError or TimedOut when it breaks off or stalls."""
        while chunk := self._next():
            yield chunk
            # The long wait was for the model to begin; from here on silence means trouble.
            if isinstance(self.raw.connection, (_Plain, _Secure)) and self.raw.connection.stream_socket:
                self.raw.connection.stream_socket.settimeout(self.idle_timeout)

    def _next(self) -> bytes:
        with translated(self.url):
            return self.raw.read1()

    def error_body(self) -> bytes:
        """The beginning of the body; empty when even that cannot be read."""
        body = b""
        with contextlib.suppress(GptshError):
            for chunk in self.chunks():
                body += chunk
                if len(body) >= _ERROR_BODY:
                    break
        return body

    def close(self) -> None:
        """Drop the connection; an answer that is not wanted any more is not read to its end."""
        self.raw.close()


class Http:
    """One process's connections to models."""

    def __init__(self, network: Network, environ: Mapping[str, str]) -> None:
        self._network, self._environ = network, environ

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Response:
        """Send and wait for the response's head. Raises ModelError, TimedOut, or ConfigError for a bad proxy or CA."""
        network = self._network
        timeout = urllib3.Timeout(
            connect=min(CONNECT_TIMEOUT, network.first_byte_timeout), read=network.first_byte_timeout
        )
        return self._request("POST", url, body, headers, timeout)

    def get(self, url: str, seconds: float) -> bytes:
        """A small document, within ``seconds`` for each step; empty for any status but 200. Raises as ``post``."""
        response = self._request("GET", url, None, {}, urllib3.Timeout(connect=seconds, read=seconds))
        body = response.error_body() if response.status == 200 else b""  # noqa: PLR2004 - OK
        response.close()
        return body

    def _request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], timeout: urllib3.Timeout
    ) -> Response:
        with translated(url):
            raw = self._manager(url).urlopen(
                method,
                url,
                body=body,
                headers=dict(headers),
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
        lower = {name.lower(): value for name, value in raw.headers.items()}
        return Response(url, raw.status, lower, raw, self._network.idle_timeout)

    def _manager(self, url: str) -> urllib3.PoolManager:
        proxy = proxy_for(url, self._environ)
        secure = url.startswith("https:") or (proxy or "").startswith("https:")
        context = trust(self._environ) if secure else None
        if proxy and proxy.startswith("socks"):
            return _socks(proxy, context)
        manager = (
            urllib3.ProxyManager(proxy, ssl_context=context, proxy_ssl_context=context, proxy_headers=_login(proxy))
            if proxy
            else urllib3.PoolManager(ssl_context=context)
        )
        manager.pool_classes_by_scheme = {"http": _PlainPool, "https": _SecurePool}
        return manager


def _login(proxy: str) -> Mapping[str, str]:
    auth = urllib3.util.parse_url(proxy).auth
    return urllib3.make_headers(proxy_basic_auth=auth) if auth else {}


def _socks(proxy: str, context: ssl.SSLContext | None) -> urllib3.PoolManager:
    if importlib.util.find_spec("socks") is None:
        raise ConfigError("a SOCKS proxy is set", "pip install 'urllib3[socks]', or use an HTTP proxy")
    from urllib3.contrib.socks import SOCKSProxyManager  # noqa: PLC0415 - needs a package that few install

    return SOCKSProxyManager(proxy, ssl_context=context)


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy that the environment names for a URL: ``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY``, ``NO_PROXY``.

    Lower case wins, as in curl. Loopback is never proxied: a proxy's loopback is another machine.
    """
    parts = urllib3.util.parse_url(url)
    host = (parts.host or "").strip("[]")
    names = (f"{parts.scheme}_proxy", "all_proxy")
    proxy = next((v for name in names for v in (environ.get(name), environ.get(name.upper())) if v), None)
    if not proxy or _is_loopback(host):
        return None
    excluded = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if any(_excludes(entry.strip(), host, parts.port) for entry in excluded.split(",")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def _excludes(entry: str, host: str, port: int | None) -> bool:
    """Whether one entry of ``NO_PROXY`` means this host: ``*``, a domain with all below it, an address or a network."""
    if entry == "*":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    name, _, of_port = entry.lower().partition(":")
    name = name.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}")) and of_port in ("", str(port))


def trust(environ: Mapping[str, str]) -> ssl.SSLContext:
    """Whom to believe: ``SSL_CERT_FILE``, ``REQUESTS_CA_BUNDLE``, ``SSL_CERT_DIR``, else the system, else certifi.

    Raises ConfigError when the environment names a bundle that cannot be read.
    """
    file = next((environ[v] for v in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE") if environ.get(v)), None)
    folder = environ.get("SSL_CERT_DIR") or None
    if not file and not folder and not _system_has_bundle():
        import certifi  # noqa: PLC0415 - only where the system has no bundle

        file = certifi.where()
    if file and os.path.isdir(file):  # REQUESTS_CA_BUNDLE may name a folder
        file, folder = None, file
    try:
        return ssl.create_default_context(cafile=file, capath=folder)
    except (OSError, ssl.SSLError) as err:
        raise ConfigError(f"the CA bundle {file or folder} cannot be used: {err}") from err


def _system_has_bundle() -> bool:
    paths = ssl.get_default_verify_paths()
    return bool(paths.cafile or (paths.capath and os.listdir(paths.capath)))


@contextlib.contextmanager
def translated(url: str) -> Iterator[None]:
    """The only lines that know urllib3's exceptions."""
    host = url.partition("://")[2].partition("/")[0].rpartition("@")[2]
    try:
        yield
    except (wire.NewConnectionError, wire.ProxyError, wire.SSLError) as err:
        raise _unreachable(host, err) from err
    except wire.ConnectTimeoutError as err:
        raise TimedOut(f"no connection to {host} within {CONNECT_TIMEOUT:g} s") from err
    except wire.ReadTimeoutError as err:
        raise TimedOut(f"{host} went silent", "raise first_byte_timeout or idle_timeout under [network]") from err
    except wire.LocationValueError as err:
        raise ConfigError(f"no such address: {err}", "see base_url and the proxy variables") from err
    except (wire.HTTPError, OSError) as err:
        failure = ModelError(f"the connection to {host} broke off", detail=repr(err))
        failure.retry = True
        raise failure from err


def _unreachable(host: str, err: wire.HTTPError) -> ModelError:
    """A server that is not there, or not to be believed: waiting two seconds would not change it."""
    if isinstance(err, wire.SSLError):
        return ModelError(f"no secure connection to {host}: {err}", "SSL_CERT_FILE names another CA bundle")
    if isinstance(err, wire.ProxyError):
        return ModelError(f"the proxy for {host} cannot be reached", "see HTTPS_PROXY and NO_PROXY", detail=repr(err))
    if isinstance(err, wire.NameResolutionError):
        return ModelError(f"the host {host} is not known", "is base_url right?", detail=repr(err))
    return ModelError(f"nothing answers at {host}", "is the server running, and base_url right?", detail=repr(err))
