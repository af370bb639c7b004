"""Proxies: which one ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` name for a URL, its login, SOCKS by PySocks."""

import contextlib
import ipaddress
import re
import socket
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit

from gptsh.errors import ConfigError

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
