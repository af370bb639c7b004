"""What gptsh remembers of a model's server for a day: the cache file ``servers.json``, by base URL and model.

A process often sends only one prompt. Without the file each process would ask the server for its facts again.
"""

import contextlib
import json
import os
import time
from typing import Any

from gptsh import files
from gptsh.core import locks
from gptsh.errors import ConfigError, StoreBusy
from gptsh.files import app_folder
from gptsh.jsonio import as_dict, encode_json
from gptsh.messages import token_count
from gptsh.models.vendors import Provider

_FILE = "servers.json"
_DAY = 86_400  # seconds
_LOCK_WAIT = 1.0  # seconds
_LARGEST = 10_000_000  # bytes

Entry = dict[str, Any]  # "at", the time at which it was made; the other keys belong to those that write them


class ServerCache:
    """The facts about the servers that this process uses, and the file with those of the last day."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._saved: dict[str, Entry] | None = None  # what the file has; None until it is needed

    def entry(self, provider: Provider) -> Entry:
        """The remembered facts about a server and its model, to be updated in place; see ``save``."""
        key = server_and_model(provider)
        if key not in self._entries:
            saved = self._saved_entries().get(key, {})
            self._entries[key] = {"at": round(time.time()), **saved}
        return self._entries[key]

    def save(self) -> None:
        """Write new facts to the file; if that fails, the servers are asked again."""
        entries = {key: entry for key, entry in self._entries.items() if len(entry) > 1}
        if all(entry == self._saved_entries().get(key) for key, entry in entries.items()):
            return
        copies: dict[str, Entry] = json.loads(json.dumps(entries))
        with contextlib.suppress(OSError, ConfigError, StoreBusy):
            path = app_folder("cache") / _FILE
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locks.locked(path.parent, _LOCK_WAIT):
                self._saved = {**_read(), **copies}
                files.sweep(path.parent, os.listdir(path.parent))
                files.replace(path, encode_json(self._saved), fsync=False)

    def _saved_entries(self) -> dict[str, Entry]:
        if self._saved is None:
            self._saved = _read()
        return self._saved


def server_and_model(provider: Provider) -> str:
    """The name of a server and its model together: what is learned of one model says nothing of another."""
    return f"{provider.base_url} {provider.model}"


def _read() -> dict[str, Entry]:
    """The entries of the file that are at most a day old."""
    try:
        content = json.loads(files.read_bytes(app_folder("cache") / _FILE, _LARGEST))
    except (OSError, ValueError, RecursionError, ConfigError):
        return {}
    now = time.time()
    entries = {key: as_dict(entry) for key, entry in as_dict(content).items()}
    return {key: entry for key, entry in entries.items() if -1 < now - (token_count(entry.get("at")) or 0) < _DAY}
