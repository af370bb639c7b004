"""Choose the certificates to trust and the proxy to connect through."""

import contextlib
import ipaddress
import os
import re
import ssl
import threading
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from gptsh.errors import ConfigError

# ---- certificates
#
# Which authorities to trust: by ``SSL_CERT_FILE`` and others, else the system's, else certifi's.
#
# A file of 150 certificates takes 20 to 50 ms to read, without the GIL. So a thread reads it while
# the process starts. A hashed folder takes half a millisecond: OpenSSL reads only the certificate
# that it needs.

_FILES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_FOLDER = "SSL_CERT_DIR"
_HASHED = r"[0-9a-f]{8}\.\d+"  # the name by which OpenSSL finds one certificate in a folder
_reading = threading.Lock()


class Trust(NamedTuple):
    """A TLS context, and the system's file of authorities, where only its folder was read.

    The file may contain more, where somebody has added a certificate by hand.
    """

    context: ssl.SSLContext
    unread_file: str | None


def preload(environ: Mapping[str, str]) -> None:
    """Start to read a file of certificates in a thread.

    ``trust`` waits for it, and reports its failure.
    """
    file, folder = _own_bundle(environ)
    if not file and _is_hashed(folder or ssl.get_default_verify_paths().capath):
        return

    threading.Thread(target=_read_in_advance, args=(environ,), daemon=True).start()


def _read_in_advance(environ: Mapping[str, str]) -> None:
    with contextlib.suppress(ConfigError):
        trust(environ)


def trust(environ: Mapping[str, str]) -> Trust:
    """Return the trusted authorities, read once in a process. Raises ConfigError if that fails."""
    file, folder = _own_bundle(environ)
    with _reading:
        return _read(file, folder, ssl.get_default_verify_paths())


def _own_bundle(environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the user's own file and folder of certificates; None: the system's."""
    folder = environ.get(_FOLDER) or None
    for name in _FILES:
        path = environ.get(name)
        if path and os.path.isdir(path):  # REQUESTS_CA_BUNDLE may name a folder
            return None, path
        if path:
            return path, folder
    return None, folder


def _is_hashed(folder: str | None) -> bool:
    """Return whether OpenSSL can find certificates in a folder by their names."""
    with contextlib.suppress(OSError):
        return any(re.fullmatch(_HASHED, name) for name in os.listdir(folder or ""))
    return False


@cache
def _read(file: str | None, folder: str | None, system: ssl.DefaultVerifyPaths) -> Trust:
    unread_file = None
    if not file and not folder:
        if _is_hashed(system.capath):
            folder = system.capath
            unread_file = system.cafile
        elif not system.cafile and not (system.capath and os.listdir(system.capath)):
            import certifi

            file = certifi.where()
    try:
        return Trust(ssl.create_default_context(cafile=file, capath=folder), unread_file)
    except OSError as err:
        raise ConfigError(f"cannot load the CA bundle {file or folder}: {err}") from err


# ---- proxies
#
# Which proxy ``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` name for a URL.

_PORTS = {"http": 80, "https": 443}
# Loopback is never proxied: for a proxy, localhost is its own machine.
_NO_PROXY = "localhost,127.0.0.0/8,::1,0.0.0.0,::"


def host_and_port(parts: SplitResult) -> tuple[str, int]:
    """Return the host and the port of a URL.

    Raises ValueError if it has no host, an unknown scheme or an invalid port.
    """
    if not parts.hostname or parts.scheme not in _PORTS:
        raise ValueError(f"no host, or an unknown scheme: {parts.scheme}")
    return parts.hostname, parts.port or _PORTS[parts.scheme]


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy that the environment names for a URL, in lower case first, as curl does.

    Raises ValueError if the URL is not valid.
    """
    scheme = url.partition(":")[0].lower()
    name = f"{scheme}_proxy"
    proxy = _first_set(environ, name, name.upper(), "all_proxy", "ALL_PROXY")
    if not proxy:
        return None
    host, port = host_and_port(urlsplit(url))
    host = host.rstrip(".")
    exclusions = _first_set(environ, "no_proxy", "NO_PROXY")
    for entry in f"{_NO_PROXY},{exclusions}".replace(",", " ").split():
        if _excludes(entry, host, port):
            return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _first_set(environ: Mapping[str, str], *names: str) -> str:
    """Return the value of the first of these variables that is set and not empty, else ""."""
    for name in names:
        value = environ.get(name)
        if value:
            return value
    return ""


def _excludes(entry: str, host: str, port: int) -> bool:
    """Return whether an entry of ``NO_PROXY`` matches a host.

    An entry is ``*``, a domain with its subdomains, an address or a network.
    """
    if entry == "*":
        return True
    with contextlib.suppress(ValueError):
        network = ipaddress.ip_network(entry.strip("[]"), strict=False)
        return ipaddress.ip_address(host) in network
    domain = entry.lower().removesuffix(f":{port}").strip("[]").removeprefix("*").strip(".")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def proxy_headers(proxy: SplitResult) -> dict[str, str]:
    """Return the header with the login of a proxy's URL, if it has one."""
    login = proxy.netloc.rpartition("@")[0]
    return {"Proxy-Authorization": f"Basic {_basic(login)}"} if login else {}


def proxy_secrets(environ: Mapping[str, str]) -> set[str]:
    """Return the users and passwords in the proxies' URLs, even in a URL that cannot be parsed."""
    secrets: set[str] = set()
    for name, value in environ.items():
        if not name.lower().endswith("_proxy") or "@" not in value:
            continue
        login = value.partition("://")[2].rpartition("@")[0]
        plain = unquote(login)
        secrets.update(re.split("[:/?#@]", login))
        secrets.update(plain.split(":"))
        secrets |= {plain, login.partition(":")[2], _basic(login)}
    return secrets


def _basic(login: str) -> str:
    """Encode a login of a proxy URL, which is percent-encoded, for a Basic header."""
    import base64

    return base64.b64encode(unquote(login).encode()).decode()
