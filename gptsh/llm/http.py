"""HTTP to a model: proxies and CA bundles from the environment, two timeouts, failures in our words.

The only file that imports urllib3. One request at a time; nothing is retried here.
"""

import base64
import contextlib
import importlib.util
import ipaddress
import math
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

import urllib3
from urllib3 import exceptions as wire

from gptsh.config.settings import Network
from gptsh.content.answer import LAST_WAIT
from gptsh.errors import BrokenOff, ConfigError, GptshError, ModelError, TimedOut

CONNECT_TIMEOUT = 15.0  # seconds; name resolution not counted, which --timeout bounds
_LONGEST_LABEL = 63  # characters between two dots of a host name (RFC 1035)
_SMALL_BODY = 1 << 16  # bytes of an error response that are read
_LISTING = 1 << 25  # bytes of a document such as a list of models, unless told otherwise
_SHORTEST_WAIT = 0.001  # seconds; 0 would be not to wait at all
_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR")
_Result = TypeVar("_Result")


class _Patient:
    """A connection that keeps its socket at hand and waits for a slow server, not only for a slow network."""

    patience: float  # seconds for sending the request and for the first byte of the response
    sock: socket.socket | None
    stream_socket: socket.socket | None = None  # http.client lets go of it for a body that ends with the connection

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        self.stream_socket = self.sock
        if self.sock:
            self.sock.settimeout(self.patience)  # else the time to connect would bound the sending of a large prompt


def _patient_pools(manager: urllib3.PoolManager, patience: float) -> dict[str, Any]:
    """The manager's kinds of pool, with connections that are patient."""
    pools = {}
    kinds: dict[str, Any] = manager.pool_classes_by_scheme
    for scheme, pool in kinds.items():
        connection = type("Patient", (_Patient, pool.ConnectionCls), {"patience": patience})
        pools[scheme] = type("PatientPool", (pool,), {"ConnectionCls": connection})
    return pools


class Response:
    """A response whose body is still to come. ``headers`` have lower-case names."""

    def __init__(self, url: str, raw: urllib3.BaseHTTPResponse, idle_timeout: float) -> None:
        self.url, self.status = url, raw.status
        self.headers = {name.lower(): value for name, value in raw.headers.items()}
        self._raw, self._idle_timeout = raw, idle_timeout
        self._until = math.inf  # of ``time.monotonic``; keep-alives do not move it

    def chunks(self) -> Iterator[bytes]:
        """The body as it arrives, decompressed. Raises ModelError or TimedOut when it breaks off or stalls."""
        while chunk := self._next():
            yield chunk
            self._wait_at_most(self._idle_timeout)  # the long wait was for the model to begin

    def _next(self) -> bytes:
        if time.monotonic() > self._until:
            raise TimedOut(f"{self.url} does not come to an end")
        with translated(self.url):
            return self._raw.read1()

    def _wait_at_most(self, seconds: float) -> None:
        if isinstance(self._raw.connection, _Patient) and self._raw.connection.stream_socket:
            self._raw.connection.stream_socket.settimeout(seconds)

    def hurry(self, seconds: float = LAST_WAIT) -> None:
        """What still comes is not worth a longer wait; the first call counts."""
        if self._until == math.inf:
            self._until = time.monotonic() + seconds
            self._idle_timeout = min(self._idle_timeout, seconds)
            self._wait_at_most(self._idle_timeout)

    def small_body(self, limit: int = _SMALL_BODY) -> bytes:
        """The beginning of the body, as far as it comes soon; empty when even that cannot be read."""
        body = b""
        self.hurry()
        with contextlib.suppress(GptshError):
            for chunk in self.chunks():
                body += chunk
                if len(body) >= limit:
                    break
        return body

    def close(self) -> None:
        """Drop the connection; an answer that is not wanted any more is not read to its end."""
        self._raw.close()


class _Errand(threading.Thread, Generic[_Result]):
    """Work that blocks where Python cannot be interrupted (name resolution): done aside, so that signals are heard."""

    def __init__(self, work: Callable[[], _Result]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._result: _Result | None = None
        self._error: GptshError | None = None

    def run(self) -> None:
        try:
            self._result = self._work()
        except GptshError as err:
            self._error = err

    def wait(self, seconds: float | None = None) -> _Result | None:
        """The result, or the error raised here; None where it is not done in time, and then left to itself."""
        self.start()
        self.join(seconds)
        if self._error:
            raise self._error
        return self._result


class Http:
    """One process's connections to models."""

    def __init__(self, network: Network, environ: Mapping[str, str]) -> None:
        self._network, self._environ = network, environ
        self._context: ssl.SSLContext | None = None

    def manager(self, url: str) -> urllib3.PoolManager:
        """What reaches a URL: directly or by proxy. Raises ConfigError for a bad URL, proxy or CA bundle."""
        with translated(url):
            _check_host(url)
            return self._manager(url)

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Response:
        """Send and wait for the response's head. Raises ModelError or TimedOut, and as ``manager``."""
        patience = self._network.first_byte_timeout
        timeout = urllib3.Timeout(connect=min(CONNECT_TIMEOUT, patience), read=patience)
        response = _Errand(lambda: self._request("POST", url, body, headers, timeout)).wait()
        assert response is not None, "the thread has reported why"
        return response

    def fetch(
        self,
        url: str,
        seconds: float,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        most: int | None = None,
    ) -> bytes:
        """A document within ``seconds`` in all, by POST where there is a body; empty for any status but 200.

        ``most`` bounds the bytes that are read. Raises as ``post``.
        """
        until, timeout = time.monotonic() + seconds, urllib3.Timeout(connect=seconds, read=seconds)
        limit = most or _LISTING

        def read() -> bytes:
            response = self._request("GET" if body is None else "POST", url, body, headers, timeout)
            response.hurry(max(until - time.monotonic(), _SHORTEST_WAIT))
            document = response.small_body(limit) if response.status == 200 else b""  # OK
            response.close()
            return document[:limit]  # the last piece may have been a large one

        document = _Errand(read).wait(seconds)
        if document is None:
            raise TimedOut(f"{_host(url)} does not answer in time")
        return document

    def _request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], timeout: urllib3.Timeout
    ) -> Response:
        manager = self.manager(url)
        with translated(url):
            raw = manager.urlopen(
                method,
                url,
                body=body,
                headers=dict(headers),
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
        return Response(url, raw, self._network.idle_timeout)

    def _manager(self, url: str) -> urllib3.PoolManager:
        proxy = proxy_for(url, self._environ)
        if proxy:
            _check_host(proxy)
        secure = url.startswith("https:") or (proxy or "").startswith("https:")
        context = self._trust() if secure else None
        if proxy is None:
            manager = urllib3.PoolManager(ssl_context=context)
        elif proxy.startswith("socks"):
            manager = _socks(proxy, context)
        else:
            manager = urllib3.ProxyManager(
                proxy, ssl_context=context, proxy_ssl_context=context, proxy_headers=_login(proxy)
            )
        manager.pool_classes_by_scheme = _patient_pools(manager, self._network.first_byte_timeout)
        return manager

    def _trust(self) -> ssl.SSLContext:
        """One for all: reading the CA bundle takes 15 ms, and it is needed before the question is saved and after."""
        self._context = self._context or trust(self._environ)
        return self._context


def _check_host(url: str) -> None:
    """Raise urllib3's LocationParseError for a host that no resolver would take."""
    host = urllib3.util.parse_url(url).host or ""
    if not all(0 < len(label) <= _LONGEST_LABEL for label in host.rstrip(".").split(".")):
        raise wire.LocationParseError(url)


def proxy_secrets(environ: Mapping[str, str]) -> set[str]:
    """What of the proxies' addresses must not be shown: user and password, also of one that cannot be parsed."""
    secrets: set[str] = set()
    for name, value in environ.items():
        if name.lower().endswith("_proxy") and "@" in value:
            login = value.partition("://")[2].rpartition("@")[0]
            secrets |= {login.partition(":")[2], unquote(login), *re.split("[:/?#@]", login)}
            secrets |= {*unquote(login).split(":"), base64.b64encode(unquote(login).encode()).decode()}
    return secrets


def _login(proxy: str) -> Mapping[str, str]:
    auth = urllib3.util.parse_url(proxy).auth
    return urllib3.make_headers(proxy_basic_auth=unquote(auth)) if auth else {}


def _socks(proxy: str, context: ssl.SSLContext | None) -> urllib3.PoolManager:
    if importlib.util.find_spec("socks") is None:
        raise ConfigError("a SOCKS proxy is set", "pip install 'urllib3[socks]', or use an HTTP proxy")
    from urllib3.contrib.socks import SOCKSProxyManager  # noqa: PLC0415 - needs a package that few install

    if proxy.partition("://")[0] not in ("socks4", "socks4a", "socks5", "socks5h"):
        raise ConfigError("the proxy has no scheme that is known", "socks5h://, http:// or https://")
    return SOCKSProxyManager(proxy, ssl_context=context)


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy that the environment names for a URL: ``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY``, ``NO_PROXY``.

    Lower case wins, as in curl. Loopback is never proxied: a proxy's loopback is another machine.
    """
    parts = urllib3.util.parse_url(url)
    host = (parts.host or "").strip("[]").rstrip(".")
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme or "")
    names = (f"{parts.scheme}_proxy", "all_proxy")
    proxy = next((v for name in names for v in (environ.get(name), environ.get(name.upper())) if v), None)
    if not proxy or _is_loopback(host):
        return None
    excluded = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if any(_excludes(entry, host, port) for entry in excluded.replace(",", " ").split()):
        return None
    scheme, mark, address = proxy.rpartition("://")
    return f"{scheme.lower()}{mark}{address}" if mark else f"http://{proxy}"


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        return address.is_loopback or address.is_unspecified
    return host == "localhost" or host.endswith(".localhost")


def _excludes(entry: str, host: str, port: int | None) -> bool:
    """Whether one entry of ``NO_PROXY`` means this host: ``*``, a domain with all below it, an address or a network."""
    if entry == "*":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip("[]"), strict=False)
    name, _, of_port = entry.lower().rpartition(":") if re.search(r":[0-9]+$", entry) else (entry.lower(), "", "")
    name = name.strip("[]").removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}")) and of_port in ("", str(port))


def trust(environ: Mapping[str, str]) -> ssl.SSLContext:
    """Whom to believe: ``SSL_CERT_FILE``, ``REQUESTS_CA_BUNDLE``, ``SSL_CERT_DIR``, else the system, else certifi.

    Raises ConfigError when the environment names a bundle that cannot be read.
    """
    file = next((environ[v] for v in _BUNDLES[:2] if environ.get(v)), None)
    folder = environ.get(_BUNDLES[2]) or None
    if not file and not folder and not _system_has_bundle():
        import certifi  # noqa: PLC0415 - only where the system has no bundle

        file = certifi.where()
    if file and os.path.isdir(file):  # REQUESTS_CA_BUNDLE may name a folder
        file, folder = None, file
    try:
        return ssl.create_default_context(cafile=file, capath=folder)
    except (OSError, ssl.SSLError) as err:
        raise ConfigError(f"the CA bundle {file or folder} cannot be used: {err}") from err


def named_trust(environ: Mapping[str, str]) -> ssl.SSLContext | None:
    """Whom the environment names to be believed; None where it names nobody. Raises ConfigError as ``trust``."""
    return trust(environ) if any(environ.get(v) for v in _BUNDLES) else None


def _system_has_bundle() -> bool:
    paths = ssl.get_default_verify_paths()
    return bool(paths.cafile or (paths.capath and os.listdir(paths.capath)))


@contextlib.contextmanager
def translated(url: str) -> Iterator[None]:
    """The only lines that know the exceptions of urllib3 and of http.client below it."""
    host = _host(url)
    try:
        yield
    except (wire.NewConnectionError, wire.ProxyError, wire.SSLError) as err:
        raise _unreachable(host, err) from err
    except wire.ConnectTimeoutError as err:
        raise TimedOut(f"no connection to {host} in time") from err
    except wire.ReadTimeoutError as err:
        raise TimedOut(f"{host} went silent", "raise first_byte_timeout or idle_timeout under [network]") from err
    except wire.LocationValueError as err:
        raise ConfigError(f"no way to {host}", "see base_url and the proxy variables", detail=repr(err)) from err
    except (wire.HTTPError, HTTPException, OSError, OverflowError, ValueError) as err:
        if any(isinstance(cause, TimeoutError) for cause in (err, *err.args)):
            raise TimedOut(f"{host} does not take the request", "raise first_byte_timeout under [network]") from err
        failure = BrokenOff(f"the connection to {host} broke off", detail=repr(err))
        failure.retry = True
        raise failure from err


def _host(url: str) -> str:
    """With its port, as the user wrote it."""
    return url.partition("://")[2].partition("/")[0]


def _unreachable(host: str, err: wire.HTTPError) -> ModelError:
    """A server that is not there, or not to be believed: waiting two seconds would not change it."""
    why = repr(err)
    if isinstance(err, wire.SSLError):
        todo = "SSL_CERT_FILE names another CA bundle" if "certificate" in why.lower() else "does it speak https?"
        return ModelError(f"no secure connection to {host}: {err}", todo, detail=why)
    if isinstance(err, wire.ProxyError):
        refused = re.search(r"Tunnel connection failed: ([^')]*)", why)
        said = f"refused: {refused[1]}" if refused else "cannot be reached"
        return ModelError(f"the proxy for {host} {said}", "see HTTPS_PROXY and NO_PROXY", detail=why)
    if isinstance(err, wire.NameResolutionError):
        return ModelError(f"the host {host} is not known", "is base_url right?", detail=why)
    return ModelError(f"nothing answers at {host}", "is the server running, and base_url right?", detail=why)
