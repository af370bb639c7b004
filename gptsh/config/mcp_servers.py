"""The tool servers that the config file names, and those of a Claude-style file beside it: read when one is wanted."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from gptsh.config.schema import EXPANDED, SERVERS_FILE, check
from gptsh.config.secret import Secret, is_telling
from gptsh.errors import ConfigError

PARTED = "__"  # between a server and its tool
_EVERY = ("all", "*")
# What a server gets of the user's environment beside the LC_ variables. A key, a proxy or a path that one needs is
# named in its entry.
_INHERITED = ("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_WIRES = {"stdio": "command", "http": "url", "streamable-http": "url", "sse": "url"}  # the key that each one needs
_OWN = ("command", "url", "type")  # who sets one of them sets them all
_TELLING = 8  # characters; a shorter value is no key, and to mask it would hide words
_TELLING_HEADERS = ("authorization", "proxy-authorization", "cookie")  # beside those that tell it by their name's end


class ToolServer(NamedTuple):
    """A tool server: a program that is started, or a URL. ``timeout`` is in seconds, None for the usual ones.

    ``auto_approve`` are patterns of tools that need no question, ``tools`` those of the tools that are wanted.
    """

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    url: str | None = None
    headers: Mapping[str, str] = {}
    auto_approve: tuple[str, ...] = ()
    timeout: float | None = None
    tools: tuple[str, ...] = ("*",)
    secrets: frozenset[str] = frozenset()  # what must not be shown to the user, in whatever the server says
    keys: frozenset[str] = frozenset()  # those of them that are keys by their names: nor may the model read them


class ToolServers(Mapping[str, ToolServer]):
    """Every tool server by name. The file beside the config is read, and variables are looked up, when it is asked.

    ``config`` is the table ``[mcp]``. Asking raises ConfigError naming file or variable, key, and what was expected.
    """

    def __init__(self, config: Mapping[str, Any], folder: Path, environ: Mapping[str, str]) -> None:
        self._config, self._folder, self._environ = config, folder, environ

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __contains__(self, name: object) -> bool:
        return name in self._tables

    def __getitem__(self, name: str) -> ToolServer:
        table, where = self._tables[name], f"mcp.servers.{name}"
        _check_wire(name, table)
        looked_up: dict[str, str] = {}
        known = {key: self._expanded(table[key], f"{where}.{key}", looked_up) for key in EXPANDED if key in table}
        check(known, EXPANDED, where)
        env, headers = known.get("env", {}), known.get("headers", {})
        values = [*looked_up.items(), *env.items(), *_of_headers(headers), *_of_url(known.get("url", ""))]
        return ToolServer(
            name,
            command=os.path.expanduser(known["command"]) if "command" in known else None,
            args=tuple(known.get("args", ())),
            env={variable: Secret(value) for variable, value in env.items()},
            url=Secret(known["url"]) if "url" in known else None,
            headers={header: Secret(value) for header, value in headers.items()},
            auto_approve=tuple(table.get("auto_approve", ())),
            timeout=table.get("timeout"),
            secrets=_long(value for _, value in values),
            keys=_long(value for name, value in values if is_telling(name) and not value.startswith("/")),  # no paths
        )

    def chosen(self, names: Iterable[str]) -> list[ToolServer]:
        """The servers that the names choose, each with the patterns of its tools that are wanted.

        A name is that of a server, ``SERVER__TOOL`` or ``SERVER__PATTERN``; ``all`` and ``*`` are every server.
        """
        wanted: dict[str, list[str]] = {}
        for name in names:
            if name in _EVERY and name not in self:
                wanted.update((server, ["*"]) for server in self)
            else:
                server, pattern = self._split(name)
                wanted.setdefault(server, []).append(pattern)
        return [self[server]._replace(tools=tuple(patterns)) for server, patterns in wanted.items()]

    def _split(self, name: str) -> tuple[str, str]:
        """The server of a name and the pattern of its tools. Server and tool may have the mark between them, too."""
        if name in self:
            return name, "*"
        servers = [server for server in self if name.startswith(server + PARTED)]
        if not servers:
            known = f"known are {', '.join(self)}" if self else "add it under [mcp.servers] in config.toml"
            raise ConfigError(f"there is no tool server {name!r}", known)
        server = max(servers, key=len)
        return server, name.removeprefix(server + PARTED)

    @cached_property
    def _tables(self) -> dict[str, dict[str, Any]]:
        """The config file's tables over those of the other file, of which they may set single keys."""
        tables = dict(self._of_file())
        for name, own in self._config.get("servers", {}).items():
            others = tables.get(name, {})
            if any(key in own for key in _OWN):
                others = {}
            tables[name] = {**others, **own}
        return tables

    def _of_file(self) -> dict[str, dict[str, Any]]:
        named = self._config.get("servers_file")
        if not named:
            return {}
        path = self._folder / os.path.expanduser(named)
        try:
            found = json.loads(path.read_bytes())
        except OSError as err:
            raise ConfigError(f"mcp.servers_file: {path}: {err.strerror}") from err
        except (ValueError, RecursionError) as err:
            raise ConfigError(f"mcp.servers_file: {path}: not JSON: {err}") from err
        return _checked(found, path)

    def _expanded(self, value: Any, where: str, looked_up: dict[str, str]) -> Any:
        """The value with ``${NAME}`` and ``${NAME:-DEFAULT}`` in its texts replaced.

        ``looked_up`` gets the variables that a server does not get anyway: they may hold a key.
        """
        if isinstance(value, list):
            return [self._expanded(text, where, looked_up) for text in value]
        if isinstance(value, dict):
            return {key: self._expanded(text, f"{where}.{key}", looked_up) for key, text in value.items()}

        def of_variable(found: re.Match[str]) -> str:
            name, default = found.groups()
            text = self._environ.get(name)
            if text is None and default is None:
                raise ConfigError(f"{where}: the variable {name} is not set", f"set it, or write ${{{name}:-DEFAULT}}")
            if text and not is_inherited(name):
                looked_up[name] = text
            return text or default or ""

        text = _VARIABLE.sub(of_variable, value)
        return text if text == value else Secret(text)


def is_inherited(variable: str) -> bool:
    """Whether every tool server that is started gets this variable of the user's environment."""
    return variable in _INHERITED or variable.startswith("LC_")


def _of_headers(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The values of headers, whole and without the scheme in front of a token, under telling names."""
    for header, value in headers.items():
        name = "token" if header.lower() in _TELLING_HEADERS else header
        yield from ((name, said) for said in (value, *value.split()[-1:]))


def _of_url(url: str) -> Iterator[tuple[str, str]]:
    """The login and the query of a URL, under the names that they have there, escaped as they are and without."""
    login = re.split("[/?#]", url.partition("://")[2], maxsplit=1)[0].rpartition("@")[0]
    found = [("password", said) for said in (login, *login.split(":"))]
    for pair in url.partition("#")[0].partition("?")[2].split("&"):
        name, _, value = pair.partition("=")
        found.append((name, value or name))  # some are a key and nothing else
    for name, said in found:
        yield from ((name, said), (name, unquote_plus(said)))


def _long(values: Iterable[str]) -> frozenset[str]:
    """The values, and the lines of those that have several, without the short ones."""
    return frozenset(Secret(part) for value in values for part in (value, *value.splitlines()) if len(part) >= _TELLING)


def _checked(found: Any, path: Path) -> dict[str, dict[str, Any]]:
    """The servers of a Claude-style file. Keys that other programs have put there are theirs."""
    where = f"mcp.servers_file: {path}: "
    if not isinstance(found, dict) or not isinstance(found.get("mcpServers"), dict):
        raise ConfigError(f"{where}mcpServers: expected a table")
    rules = SERVERS_FILE["mcpServers"].table
    tables = {
        name: {key: value for key, value in table.items() if key in rules} if isinstance(table, dict) else table
        for name, table in found["mcpServers"].items()
    }
    check({"mcpServers": tables}, SERVERS_FILE, where)
    return tables


def _check_wire(name: str, table: Mapping[str, Any]) -> None:
    """Raises ConfigError for what names none or two ways to reach a server, or one that is not spoken here."""
    kind = table.get("type", "stdio" if "command" in table else "http")
    needs = _WIRES.get(kind)
    if needs is None:
        raise ConfigError(f"mcp.servers.{name}.type: expected one of {', '.join(_WIRES)}, not {kind!r}")
    if kind == "sse":
        raise ConfigError(f"tool server {name} is reached by sse, which is no more spoken", "give its http URL")
    if needs not in table or len({"command", "url"} & set(table)) > 1:
        raise ConfigError(f"mcp.servers.{name}: expected either command or url")
