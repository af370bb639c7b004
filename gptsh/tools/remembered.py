"""What gptsh remembers of a tool server between runs, in a file of the cache folder for each server.

``list`` is its list of tools for as long as the server says that it stays fresh (``ttlMs``). ``is_old``: it speaks only
a protocol before 2026-07-28; gptsh asks it again after a day.
"""

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from mcp.client import CacheEntry, CacheKey
from mcp_types import ListToolsResult
from pydantic import ValidationError

from gptsh import files
from gptsh.config.tool_servers import ToolServer
from gptsh.errors import ConfigError
from gptsh.files import app_folder
from gptsh.jsonio import encode_json
from gptsh.tools import logins

_DAY = 86_400  # seconds


class Remembered:
    """The facts about one server. For the SDK it is a store of responses, which keeps lists of tools alone."""

    def __init__(self, server: ToolServer) -> None:
        login = logins.read(str(server.url)) if server.url else None
        client = login["client"].get("client_id") if login else None  # another one for each login
        folder = ""
        with contextlib.suppress(OSError):  # it was removed
            folder = os.getcwd()  # where a program runs may decide what it offers
        identity = [server.command, server.args, {**server.env}, server.url, {**server.headers}, client, folder]
        self.key = hashlib.sha256(json.dumps(identity).encode("utf-8", "surrogatepass")).hexdigest()
        self._path: Path | None = None
        with contextlib.suppress(ConfigError):  # this user has no home folder
            self._path = app_folder("cache") / "tool-servers" / f"{self.key[:32]}.json"
        self._facts = self._read()

    @property
    def is_old(self) -> bool:
        """Whether the server spoke only an older protocol within the last day."""
        return self._facts.get("is_old") is True and 0 <= time.time() - self._facts["at"] < _DAY

    def set_old(self, is_old: bool) -> None:
        """Remember whether the server speaks only an older protocol."""
        if is_old != self.is_old:
            self._write({**self._facts, "is_old": is_old, "at": int(time.time())})

    async def get(self, key: CacheKey) -> CacheEntry | None:
        """Return a list of tools."""
        kept = self._facts.get("list")
        if not isinstance(kept, dict) or kept.get("key") != [key.method, key.params_key, key.partition]:
            return None
        try:
            value = ListToolsResult.model_validate(kept["value"], by_name=False)
            return CacheEntry(value, kept["scope"], float(kept["expires_at"]))
        except (ValidationError, LookupError, TypeError, ValueError):
            return None

    async def set(self, key: CacheKey, entry: CacheEntry) -> None:
        """Keep a list of tools."""
        if isinstance(entry.value, ListToolsResult):
            kept = {
                "key": [key.method, key.params_key, key.partition],
                "value": entry.value.model_dump(mode="json", by_alias=True, exclude_unset=True),
                "scope": entry.scope,
                "expires_at": entry.expires_at,
            }
            self._write({**self._facts, "list": kept})

    async def delete(self, key: CacheKey) -> None:
        """Forget a list of tools."""
        if self._facts.get("list", {}).get("key") == [key.method, key.params_key, key.partition]:
            await self.clear()

    async def clear(self) -> None:
        """Forget the list of tools."""
        self._write({name: fact for name, fact in self._facts.items() if name != "list"})

    def _read(self) -> dict[str, Any]:
        try:
            facts = json.loads(self._path.read_bytes()) if self._path else {}
        except (OSError, ValueError, RecursionError):
            return {}
        sound = (
            isinstance(facts, dict) and isinstance(facts.get("at", 0), int) and isinstance(facts.get("list", {}), dict)
        )
        return facts if sound else {}

    def _write(self, facts: dict[str, Any]) -> None:
        """Write the file; if that fails, the server is asked again. Files that nothing wrote for a day are removed."""
        self._facts = facts
        if self._path is None:
            return
        with contextlib.suppress(OSError):
            folder = self._path.parent
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.replace(self._path, encode_json(facts), fsync=False)
            for other in folder.iterdir():
                if other.stat().st_mtime < time.time() - _DAY:
                    other.unlink()
