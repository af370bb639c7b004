"""TLS certificates: which authorities to trust, by ``SSL_CERT_FILE`` and others, else the system's, else certifi.

A file of 150 certificates takes 20 to 50 ms to read, without the GIL. So a thread reads it while the process starts.
A hashed folder takes half a millisecond: OpenSSL reads only the certificate that it needs.
"""

import contextlib
import os
import re
import ssl
import threading
from collections.abc import Mapping
from functools import cache

from gptsh.errors import ConfigError

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
