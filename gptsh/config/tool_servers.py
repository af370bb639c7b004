"""Read tool servers (MCP) from config.toml and a Claude-style file, and select those of a run."""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, NamedTuple

from gptsh.config import schema
from gptsh.config.schema import Secret, is_secret_name
from gptsh.errors import ConfigError
from gptsh.files import read_text

SEPARATOR = "__"  # between the names of a server and its tool
_VARIABLE = r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}"
_TRANSPORTS = {"stdio": "command", "http": "url", "streamable-http": "url"}  # the key that each transport needs
_MAX_FILE = 100_000_000  # bytes; other programs keep more than tool servers in such a file
_MIN_SECRET = 8  # characters; a shorter value is not a key, and masking it would hide words


class ToolServer(NamedTuple):
    """A tool server: a program to start, or a URL.

    ``tools`` are patterns of the selected tools; ``secrets`` must not appear in the server's output.
    """

    name: str = ""
    command: Annotated[str | None, schema.TEXT, "The program to start."] = None
    args: Annotated[tuple[str, ...], schema.LIST, "Its arguments."] = ()
    env: Annotated[Mapping[str, str], schema.TEXTS, "Variables for it, added to the usual ones such as `PATH`."] = {}
    url: Annotated[str | None, schema.TEXT, "The server's address, instead of `command`."] = None
    headers: Annotated[Mapping[str, str], schema.TEXTS, "Headers for every request to the URL."] = {}
    type: Annotated[str | None, schema.TEXT, "`stdio`, `http` or `streamable-http`; else by `command` or `url`."] = None
    auto_approve: Annotated[tuple[str, ...], schema.LIST, "Patterns of tools that run without asking you."] = ()
    timeout: Annotated[float | None, schema.SECONDS, "Seconds; default: 30 for its start and 300 for a call."] = None
    tools: tuple[str, ...] = ("*",)
    secrets: frozenset[str] = frozenset()


class Mcp(NamedTuple):
    """The table ``[mcp]``."""

    servers_file: Annotated[str, schema.TEXT, "A Claude-style file of servers, relative to the config file."] = ""
    max_rounds: Annotated[int, schema.POSITIVE, "Requests for one question that may call tools; then exit 5."] = 20
    servers: Annotated[Mapping[str, ToolServer], schema.Tables(ToolServer), "Programs and URLs that offer tools."] = {}


_IN_FILE = ("command", "args", "env", "url", "headers", "type")  # other keys are for other programs
# Rules for values after their variables are replaced.
_RULES = {
    "command": schema.Rule(
        "the name of a program",
        lambda v: isinstance(v, str) and bool(v.strip()),
        show_value=False,
    ),
    "url": schema.Rule(
        "a URL with http:// or https://",
        lambda v: isinstance(v, str) and bool(re.match(r"https?://[^/?#\s]+\S*$", v)),
        show_value=False,
    ),
    "headers": schema.HEADERS,
}


class ToolServers:
    """All tool servers. The file beside the config, and variables, are read on demand.

    Each method raises ConfigError with file or variable, key, and expected value.
    """

    def __init__(self, config: Mcp, file: Path, environ: Mapping[str, str]) -> None:
        self._config, self._file, self._environ = config, file, environ

    @cached_property
    def names(self) -> list[str]:
        """The names of the servers: those in the file beside the config first."""
        return [*self._configured]

    def _resolved(self, name: str) -> ToolServer:
        """Return a server with its variables replaced, and its secrets."""
        server, where = self._configured[name], f"{self._file}: mcp.servers.{name}"
        transport = server.type or ("stdio" if server.command is not None else "http")
        required_key = _TRANSPORTS.get(transport)
        if required_key is None:
            raise ConfigError(f"{where}.type: expected one of {', '.join(_TRANSPORTS)}, not {transport!r}")
        if getattr(server, required_key) is None or None not in (server.command, server.url):
            raise ConfigError(f"{where}: expected either command or url")

        variables: dict[str, str] = {}
        server = self._expanded(server, where, variables)
        for key, rule in _RULES.items():
            value = getattr(server, key)
            if value is not None:
                rule.read(value, f"{where}.{key}")
        return server._replace(
            name=name,
            command=os.path.expanduser(server.command) if server.command is not None else None,
            env={variable: Secret(value) for variable, value in server.env.items()},
            url=Secret(server.url) if server.url is not None else None,
            headers={header: Secret(value) for header, value in server.headers.items()},
            secrets=_secrets_of(server, variables),
        )

    def select(self, names: Iterable[str], on_error: Callable[[ConfigError], None] | None = None) -> list[ToolServer]:
        """Return the servers that the names select, each with the patterns of its tools.

        A name is a server, ``SERVER__TOOL`` or ``SERVER__PATTERN``; ``all`` and ``*`` select every server. ``on_error``
        gets the error of a server whose table is wrong, instead of the caller.
        """
        selected: dict[str, list[str]] = {}
        for name in names:
            if name in ("all", "*") and name not in self.names:
                selected.update((server, ["*"]) for server in self.names)
                continue
            # Names of servers and tools may contain the separator: the longest server wins.
            matches = [server for server in self.names if name == server or name.startswith(server + SEPARATOR)]
            if not matches:
                advice = f"known are {', '.join(self.names)}" if self.names else "add it under [mcp.servers]"
                raise ConfigError(f"there is no tool server {name!r}", advice)
            server = max(matches, key=len)
            selected.setdefault(server, []).append(name[len(server + SEPARATOR) :] or "*")
        servers = []
        for server, patterns in selected.items():
            try:
                servers.append(self._resolved(server)._replace(tools=tuple(patterns)))
            except ConfigError as err:
                if on_error is None:
                    raise
                on_error(err)
        return servers

    @cached_property
    def _configured(self) -> dict[str, ToolServer]:
        """The config file's servers over those of the other file; without a transport they only add keys."""
        servers, defaults = self._servers_in_file(), ToolServer()._asdict()
        for name, server in self._config.servers.items():
            if name in servers and server.command is server.url is server.type is None:
                changes = {key: value for key, value in server._asdict().items() if value != defaults[key]}
                servers[name] = servers[name]._replace(**changes)
            else:
                servers[name] = server
        return servers

    def _servers_in_file(self) -> dict[str, ToolServer]:
        if not self._config.servers_file:
            return {}
        path = self._file.parent / os.path.expanduser(self._config.servers_file)
        where = f"{self._file}: mcp.servers_file: {path}: "
        try:
            content = json.loads(read_text(path, max_bytes=_MAX_FILE))
        except OSError as err:
            raise ConfigError(f"{where}{err.strerror}") from err
        except (ValueError, RecursionError) as err:
            raise ConfigError(f"{where}not JSON: {err}") from err
        tables = content.get("mcpServers") if isinstance(content, dict) else None
        if not isinstance(tables, dict):
            raise ConfigError(f"{where}mcpServers: expected a table")
        for table in tables.values():
            if isinstance(table, dict):
                for key in table.keys() - set(_IN_FILE):
                    del table[key]
        return schema.read_tables(ToolServer, tables, f"{where}mcpServers")

    def _expanded(self, server: ToolServer, where: str, variables: dict[str, str]) -> ToolServer:
        """Return the server with the variables in its values replaced.

        ``variables`` collects what they stand for.
        """

        def expanded(text: str, key: str) -> str:
            return self._expanded_text(text, f"{where}.{key}", variables)

        return server._replace(
            command=None if server.command is None else expanded(server.command, "command"),
            args=tuple(expanded(text, "args") for text in server.args),
            env={name: expanded(text, f"env.{name}") for name, text in server.env.items()},
            url=None if server.url is None else expanded(server.url, "url"),
            headers={name: expanded(text, f"headers.{name}") for name, text in server.headers.items()},
        )

    def _expanded_text(self, text: str, where: str, variables: dict[str, str]) -> str:
        """Return the text with ``${NAME}`` and ``${NAME:-DEFAULT}`` replaced."""

        def replacement(match: re.Match[str]) -> str:
            name, default = match.groups()
            value = self._environ.get(name)
            if value is None and default is None:
                raise ConfigError(f"{where}: the variable {name} is not set", f"set it, or write ${{{name}:-DEFAULT}}")
            variables[name] = value or default or ""
            return variables[name]

        replaced = re.sub(_VARIABLE, replacement, text)
        return text if replaced == text else Secret(replaced)


def _secrets_of(server: ToolServer, variables: Mapping[str, str]) -> frozenset[str]:
    """Return what a server must not print: in its URL, its headers and its variables; whole, and line by line."""
    from urllib.parse import urlsplit

    url = urlsplit(server.url or "")
    login = url.netloc.rpartition("@")[0]
    secrets = {login, login.rpartition(":")[2]}
    for pair in url.query.split("&"):
        secrets.add(pair.partition("=")[2] or pair)
    for value in server.headers.values():
        secrets |= {value, value.split(" ")[-1]}  # a token without its scheme
    for variable, value in {**variables, **server.env}.items():
        if is_secret_name(variable) and not value.startswith("/"):  # a path is not a key
            secrets.add(value)
    lines = {line for value in secrets for line in (value, *value.splitlines())}
    return frozenset(Secret(line) for line in lines if len(line) >= _MIN_SECRET)
