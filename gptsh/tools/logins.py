"""Store the logins at remote tool servers, in the state folder: a file for each server's URL.

A file has ``issuer``, ``client`` (as what gptsh is registered there), ``tokens``, when they expire,
and the metadata of issuer and server, which a refresh needs.
"""

import hashlib
import json
from pathlib import Path
from urllib.parse import urlsplit

from gptsh import files
from gptsh.errors import ConfigError
from gptsh.files import app_folder
from gptsh.jsonio import JsonObject, encode_json

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def is_safe(url: str, server_url: str) -> bool:
    """Return whether a login at a server may use a URL: with https, or on the machine of both."""
    try:
        target = urlsplit(url)
        hosts = (target.hostname, urlsplit(server_url).hostname)
    except ValueError:
        return False
    is_local = all(host in LOOPBACK for host in hosts)
    return target.scheme == "https" or (target.scheme == "http" and is_local)


def read_login(url: str) -> JsonObject | None:
    """Return the login at a server; None without one, or if gptsh did not write the file."""
    try:
        login = json.loads(_file(url).read_bytes())
    except (ConfigError, OSError, ValueError, RecursionError):
        return None
    return login if isinstance(login, dict) and "client" in login else None


def write_login(url: str, login: JsonObject) -> None:
    """Keep a login, in place of another one at this server. Raises StoreError."""
    file = _file(url)
    with files.as_store_error("the login cannot be saved", file):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.replace(file, encode_json(login), fsync=True)


def remove_login(url: str) -> bool:
    """Forget the login at a server; return whether there was one. Raises StoreError."""
    if read_login(url) is None:
        return False
    file = _file(url)
    with files.as_store_error("the login cannot be removed", file):
        file.unlink()
    return True


def _file(url: str) -> Path:
    digest = hashlib.sha256(url.encode()).hexdigest()
    return app_folder("state") / "logins" / f"{digest[:20]}.json"
