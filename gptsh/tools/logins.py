"""Store the logins at remote tool servers, in the state folder: a file for each issuer, with its tokens by server URL.

A file has ``issuer``, ``client`` (as what gptsh is registered there) and ``servers``: by URL its
``tokens``, when they expire, and the metadata of issuer and server, which a refresh needs.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gptsh import files
from gptsh.core import locks
from gptsh.errors import ConfigError
from gptsh.files import app_folder
from gptsh.jsonio import JsonObject, encode_json

if TYPE_CHECKING:
    pass

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def is_safe(url: str, server_url: str) -> bool:
    """Whether a login at a server may use a URL: with https, or of this machine if the server is."""
    try:
        target = urlsplit(url)
        hosts = (target.hostname, urlsplit(server_url).hostname)
    except ValueError:
        return False
    is_local = all(host in LOOPBACK for host in hosts)
    return target.scheme == "https" or (target.scheme == "http" and is_local)


def read_login(url: str) -> JsonObject | None:
    """The login at a server: ``issuer``, ``client``, and what is kept for this URL; None without one."""
    for _, content in _files():
        if url in content["servers"]:
            return {
                "issuer": content["issuer"],
                "client": content["client"],
                **content["servers"][url],
            }
    return None


def write_login(url: str, issuer: str, client: JsonObject, kept: JsonObject) -> None:
    """Keep a login, in place of another one at this server. Raises StoreError."""
    folder = _folder()
    with files.as_store_error("the login cannot be saved", folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locks.locked(folder):
            _remove(url)
            path = folder / f"{hashlib.sha256(issuer.encode()).hexdigest()[:20]}.json"
            content: JsonObject = {"issuer": issuer, "servers": {}} | (_read_file(path) or {})
            content = {**content, "client": client, "servers": {**content["servers"], url: kept}}
            files.replace(path, encode_json(content), fsync=True)


def remove_login(url: str) -> bool:
    """Forget the login at a server; return whether there was one. Raises StoreError."""
    folder = _folder()
    if read_login(url) is None:
        return False
    with files.as_store_error("the login cannot be removed", folder), locks.locked(folder):
        _remove(url)
    return True


def _remove(url: str) -> None:
    for path, content in _files():
        if content["servers"].pop(url, None) is not None:
            if content["servers"]:
                files.replace(path, encode_json(content), fsync=True)
            else:
                path.unlink()


def _folder() -> Path:
    return app_folder("state") / "logins"


def _files() -> Iterator[tuple[Path, JsonObject]]:
    """Each file that can be read, with its content."""
    with contextlib.suppress(OSError, ConfigError):
        for path in sorted(_folder().glob("*.json")):
            if content := _read_file(path):
                yield path, content


def _read_file(path: Path) -> JsonObject | None:
    """The content of a file; None if it is missing or was not written by gptsh."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    sound = isinstance(content, dict) and isinstance(content.get("servers"), dict) and "client" in content
    return content if sound else None
