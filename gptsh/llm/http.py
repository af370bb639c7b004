"""HTTP to a model: proxies and CA bundles from the environment, failures in our words. The only file with urllib3.

Each request has a thread, see ``Incoming``; nothing is retried here.
"""

import base64
import contextlib
import importlib.util
import io
import ipaddress
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from functools import cached_property
from http.client import HTTPException
from typing import Any
from urllib.parse import unquote

import urllib3
from urllib3 import exceptions as wire

from gptsh.config.settings import Network
from gptsh.errors import BrokenOff, ConfigError, GptshError, ModelError, TimedOut
from gptsh.llm.sse import Incoming

CONNECT_TIMEOUT = 15.0  # seconds for a connection
_GRACE = 30.0  # seconds that the thread waits longer than who asked
_SMALL_BODY = 1 << 16  # bytes of an error response that are read
_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR")


class Response:
    """A response whose body is still to come. ``headers`` have lower-case names."""

    def __init__(self, url: str, incoming: Incoming[Any], network: Network) -> None:
        self.url, self._incoming, self._network = url, incoming, network
        head: Any = incoming.take(network.first_byte_timeout)
        self.status: int = head.status
        self.headers: dict[str, str] = {name.lower(): value for name, value in head.headers.items()}

    def chunks(self) -> Iterator[bytes]:
        """The body as it arrives, decompressed. Raises ModelError or TimedOut when it breaks off or stalls."""
        patience = self._network.first_byte_timeout  # for the model to begin
        while chunk := self._incoming.take(patience):
            yield chunk
            patience = self._network.idle_timeout

    def hurry(self) -> None:
        """What still comes is not worth a long wait."""
        self._incoming.hurry()

    def small_body(self) -> bytes:
        """The beginning of the body, as far as it comes soon."""
        body = b""
        self.hurry()
        with contextlib.suppress(GptshError):
            for chunk in self.chunks():
                body += chunk
                if len(body) >= _SMALL_BODY:
                    break
        return body

    def close(self) -> None:
        """Drop the connection as soon as a byte comes: an answer that is not wanted is not read to its end."""
        self._incoming.close()


class Http:
    """One process's connections to models."""

    def __init__(self, network: Network, environ: Mapping[str, str]) -> None:
        self._network, self._environ = network, environ

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Response:
        """Send and wait for the response's head. Raises ModelError or TimedOut, and as ``manager``."""
        exchange = _exchange(self.manager(url), "POST", url, body, headers, self._patience)
        return Response(url, Incoming(exchange, _host(url)), self._network)

    def fetch(self, url: str, seconds: float, headers: Mapping[str, str], body: bytes | None, most: int) -> bytes:
        """A document of at most so many bytes within ``seconds`` in all; empty for any status but 200.

        It is asked for by POST where there is a body. Raises as ``post``.
        """
        method = "GET" if body is None else "POST"
        incoming = Incoming(_exchange(self.manager(url), method, url, body, headers, self._patience), _host(url))
        incoming.hurry(seconds)
        response, document = Response(url, incoming, self._network), bytearray()
        for chunk in response.chunks() if response.status == 200 else ():  # OK
            document += chunk
            if len(document) >= most:
                break
        response.close()
        return bytes(document[:most])

    @property
    def _patience(self) -> float:
        return max(self._network.first_byte_timeout, self._network.idle_timeout) + _GRACE

    def manager(self, url: str) -> urllib3.PoolManager:
        """What reaches a URL: directly or by proxy. Raises ConfigError for a bad URL, proxy or CA bundle."""
        with _translated(url):
            proxy = proxy_for(url, self._environ)
            if not all(urllib3.util.parse_url(address).host for address in (url, proxy or url)):
                raise wire.LocationParseError(url)
            context = self._context if url.startswith("https:") or (proxy or "").startswith("https:") else None
            manager = urllib3.PoolManager(ssl_context=context)
            if proxy and proxy.startswith("socks"):
                if importlib.util.find_spec("socks") is None:
                    raise ConfigError("a SOCKS proxy is set", "pip install 'urllib3[socks]', or use an HTTP proxy")
                from urllib3.contrib.socks import SOCKSProxyManager  # noqa: PLC0415 - needs a package that few have

                manager = SOCKSProxyManager(proxy, ssl_context=context)
            elif proxy:
                login = urllib3.util.parse_url(proxy).auth
                headers = urllib3.make_headers(proxy_basic_auth=unquote(login)) if login else {}
                manager = urllib3.ProxyManager(
                    proxy, ssl_context=context, proxy_ssl_context=context, proxy_headers=headers
                )
        return manager

    @cached_property
    def _context(self) -> ssl.SSLContext:
        """Whom to believe: ``SSL_CERT_FILE``, ``REQUESTS_CA_BUNDLE``, ``SSL_CERT_DIR``, else the system, else certifi.

        Reading a bundle takes 15 ms. Raises ConfigError when the environment names one that cannot be read.
        """
        file = next((self._environ[name] for name in _BUNDLES[:2] if self._environ.get(name)), None)
        folder = self._environ.get(_BUNDLES[2]) or None
        system = ssl.get_default_verify_paths()
        if not (file or folder or system.cafile or (system.capath and os.listdir(system.capath))):
            import certifi  # noqa: PLC0415 - only where the system has no bundle

            file = certifi.where()
        if file and os.path.isdir(file):  # REQUESTS_CA_BUNDLE may name a folder
            file, folder = None, file
        try:
            return ssl.create_default_context(cafile=file, capath=folder)
        except (OSError, ssl.SSLError) as err:
            raise ConfigError(f"the CA bundle {file or folder} cannot be used: {err}") from err


def _exchange(
    manager: urllib3.PoolManager, method: str, url: str, body: bytes | None, headers: Mapping[str, str], patience: float
) -> Iterator[Any]:
    """A request made: the head of the response, then its body in pieces."""
    length = {"content-length": str(len(body))} if body is not None else {}
    with _translated(url):
        raw = manager.urlopen(
            method,
            url,
            # In pieces, each of which may take as long as a connection: the time is for all of one.
            body=None if body is None else io.BytesIO(body),
            headers={**headers, **length},
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=patience),
            retries=False,
            redirect=False,
            preload_content=False,
        )
        try:
            yield raw
            while chunk := raw.read1():
                yield chunk
        finally:
            raw.close()


# ---- proxies


def proxy_secrets(environ: Mapping[str, str]) -> set[str]:
    """What of the proxies' addresses must not be shown: user and password, also of one that cannot be parsed."""
    secrets: set[str] = set()
    for name, value in environ.items():
        if name.lower().endswith("_proxy") and "@" in value:
            login = value.partition("://")[2].rpartition("@")[0]
            secrets |= {login.partition(":")[2], unquote(login), *re.split("[:/?#@]", login)}
            secrets |= {*unquote(login).split(":"), base64.b64encode(unquote(login).encode()).decode()}
    return secrets


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


# ---- failures


@contextlib.contextmanager
def _translated(url: str) -> Iterator[None]:
    """The only lines that know the exceptions of urllib3 and of http.client below it.

    A server that is not there, or not to be believed, is not asked again: two seconds would not change it.
    """
    host = _host(url)
    try:
        yield
    except wire.SSLError as err:
        is_stranger = "certificate" in repr(err).lower()
        todo = "SSL_CERT_FILE names another CA bundle" if is_stranger else "does it speak https?"
        raise ModelError(f"no secure connection to {host}: {err}", todo, detail=repr(err)) from err
    except wire.ProxyError as err:
        refused = re.search(r"Tunnel connection failed: ([^')]*)", repr(err))
        said = f"refused: {refused[1]}" if refused else "cannot be reached"
        raise ModelError(f"the proxy for {host} {said}", "see HTTPS_PROXY and NO_PROXY", detail=repr(err)) from err
    except wire.NameResolutionError as err:
        raise ModelError(f"the host {host} is not known", "is base_url right?", detail=repr(err)) from err
    except wire.NewConnectionError as err:
        todo = "is the server running, and base_url right?"
        raise ModelError(f"nothing answers at {host}", todo, detail=repr(err)) from err
    except wire.ConnectTimeoutError as err:
        raise TimedOut(f"no connection to {host} in time") from err
    except wire.LocationValueError as err:
        raise ConfigError(f"no way to {host}", "see base_url and the proxy variables", detail=repr(err)) from err
    except (wire.HTTPError, HTTPException, OSError, ValueError, OverflowError) as err:
        failure = BrokenOff(f"the connection to {host} broke off", detail=repr(err))
        failure.retry = True
        raise failure from err


def _host(url: str) -> str:
    """With its port, as the user wrote it."""
    return url.partition("://")[2].partition("/")[0]
