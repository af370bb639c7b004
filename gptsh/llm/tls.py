"""Choose the certificates to trust and the proxy to connect through."""

import contextlib
import ipaddress
import os
import re
import socket
import ssl
import threading
from collections.abc import Mapping
from functools import cache
from urllib.parse import SplitResult, unquote, urlsplit

from gptsh.errors import ConfigError

# ---- certificates
#
# TLS certificates: which authorities to trust, by ``SSL_CERT_FILE`` and others, else the system's,
# else certifi.
#
# A file of 150 certificates takes 20 to 50 ms to read, without the GIL. So a thread reads it while
# the process starts. A hashed folder takes half a millisecond: OpenSSL reads only the certificate
# that it needs.

_FILES, _FOLDER = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), "SSL_CERT_DIR"
_HASHED = re.compile(r"[0-9a-f]{8}\.\d+")  # the name by which OpenSSL finds one certificate in a folder
_reading = threading.Lock()


class Trust:
    """A TLS context, and the file with further authorities that it has not read.

    The system's file may contain more than its hashed folder, where somebody has added a certificate by hand.
    """

    def __init__(self, context: ssl.SSLContext, unread_file: str | None = None) -> None:
        self.context, self._unread_file = context, unread_file

    def read_rest(self) -> bool:
        """Read the file that was not needed so far; return whether there was one."""
        with _reading:
            if self._unread_file is None:
                return False
            with contextlib.suppress(OSError, ssl.SSLError):
                self.context.load_verify_locations(cafile=self._unread_file)
            self._unread_file = None
            return True


def preload(environ: Mapping[str, str]) -> None:
    """Start to read a file of certificates in a thread; ``trust`` waits for it, and reports its failure."""
    file, folder = _own(environ)
    if not file and _is_hashed(folder or ssl.get_default_verify_paths().capath):
        return

    def read() -> None:
        with contextlib.suppress(ConfigError):
            trust(environ)

    threading.Thread(target=read, daemon=True).start()


def trust(environ: Mapping[str, str]) -> Trust:
    """The trusted authorities, read once in a process. Raises ConfigError if they cannot be read."""
    file, folder = _own(environ)
    with _reading:
        if file or folder:
            return _read_own(file, folder)
        system = ssl.get_default_verify_paths()
        return _read_system(system.cafile, system.capath)


def _own(environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The user's own file and folder of certificates; None: the system's."""
    file = next((environ[name] for name in _FILES if environ.get(name)), None)
    if file and os.path.isdir(file):  # REQUESTS_CA_BUNDLE may name a folder
        return None, file
    return file, environ.get(_FOLDER) or None


def _is_hashed(folder: str | None) -> bool:
    """Whether OpenSSL can find certificates in a folder by their names."""
    with contextlib.suppress(OSError):
        return any(map(_HASHED.fullmatch, os.listdir(folder or "")))
    return False


@cache
def _read_own(file: str | None, folder: str | None) -> Trust:
    try:
        return Trust(ssl.create_default_context(cafile=file, capath=folder))
    except (OSError, ssl.SSLError) as err:
        raise ConfigError(f"the CA bundle {file or folder} cannot be used: {err}") from err


@cache
def _read_system(file: str | None, folder: str | None) -> Trust:
    if _is_hashed(folder):
        return Trust(ssl.create_default_context(capath=folder), file)
    if file or (folder and os.listdir(folder)):
        return Trust(ssl.create_default_context())
    import certifi

    return _read_own(certifi.where(), None)


# ---- proxies
#
# Proxies: which one ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` name for a URL, its login,
# SOCKS by PySocks.

SOCKS = {"socks4": False, "socks4a": True, "socks5": False, "socks5h": True}  # whether the proxy resolves the name
_PORTS = {"http": 80, "https": 443} | dict.fromkeys(SOCKS, 1080)
# Loopback is never proxied: for a proxy, localhost is its own machine.
_NO_PROXY = "localhost,127.0.0.0/8,::1,0.0.0.0,::"


def host_and_port(parts: SplitResult) -> tuple[str, int]:
    """The host and the port of a URL. Raises ValueError if it has no host, an unknown scheme or an invalid port."""
    if not parts.hostname or parts.scheme not in _PORTS:
        raise ValueError(f"no host, or an unknown scheme: {parts.scheme}")
    return parts.hostname, parts.port or _PORTS[parts.scheme]


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy that the environment names for a URL: ``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY``, ``NO_PROXY``.

    Lower case wins, as in curl. Raises ValueError.
    """
    scheme = url.partition(":")[0].lower()
    names = (f"{scheme}_proxy", f"{scheme}_proxy".upper(), "all_proxy", "ALL_PROXY")
    proxy = next(filter(None, map(environ.get, names)), None)
    if proxy is None:
        return None
    host, port = host_and_port(urlsplit(url))
    exclusions = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    entries = f"{_NO_PROXY},{exclusions}".replace(",", " ").split()
    if any(_excludes(entry, host.rstrip("."), port) for entry in entries):
        return None
    scheme, mark, address = proxy.rpartition("://")
    return f"{scheme.lower()}{mark}{address}" if mark else f"http://{proxy}"


def _excludes(entry: str, host: str, port: int) -> bool:
    """Whether an entry of ``NO_PROXY`` matches a host: ``*``, a domain with its subdomains, an address or a network."""
    if entry == "*":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip("[]"), strict=False)
    name = entry.lower()
    if re.search(r":[0-9]+$", name):
        name, _, entry_port = name.rpartition(":")
        if entry_port != str(port):
            return False
    name = name.strip("[]").removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def proxy_headers(proxy: SplitResult) -> dict[str, str]:
    """The header with the login of a proxy's URL, if it has one."""
    login = proxy.netloc.rpartition("@")[0]
    return {"Proxy-Authorization": f"Basic {_basic(login)}"} if login else {}


def check_socks_package() -> None:
    """Raise ConfigError if the package that connects through SOCKS proxies is missing."""
    try:
        import socks  # noqa: F401 - few install the package
    except ImportError as err:
        advice = "pip install PySocks, or name an HTTP proxy"
        raise ConfigError("a SOCKS proxy needs the package PySocks", advice) from err


def connect_socks(target: SplitResult, proxy: SplitResult, seconds: float) -> socket.socket:
    """Connect through a SOCKS proxy. Raises OSError."""
    import socks

    host, port = host_and_port(proxy)
    sock: socket.socket = socks.create_connection(
        host_and_port(target),
        seconds,
        proxy_type=socks.SOCKS5 if proxy.scheme.startswith("socks5") else socks.SOCKS4,
        proxy_addr=host,
        proxy_port=port,
        proxy_rdns=SOCKS[proxy.scheme],
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


def _basic(login: str) -> str:
    """Encode a login of a proxy URL, which is percent-encoded, for a Basic header."""
    import base64

    return base64.b64encode(unquote(login).encode()).decode()
