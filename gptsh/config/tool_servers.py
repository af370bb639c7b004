"""Read tool servers (MCP) from config.toml and a Claude-style file, and select those of a run."""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, NamedTuple

from gptsh.config.schema import (
    HEADERS,
    LIST,
    POSITIVE,
    SECONDS,
    TEXT,
    TEXTS,
    Secret,
    Tables,
    is_secret_header,
    is_secret_name,
    read,
    text_like,
)
from gptsh.errors import ConfigError
from gptsh.files import read_text
from gptsh.jsonio import as_dict

SEPARATOR = "__"  # between the names of a server and its tool
_VARIABLE = r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}"
# The key that each transport needs.
_TRANSPORTS = {"stdio": "command", "http": "url", "streamable-http": "url"}
_MAX_FILE = 100_000_000  # bytes; other programs keep more than tool servers in such a file
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'  # of JSON
_COMMENT = r"//[^\n]*|/\*.*?\*/"
_LAST_COMMA = r",(?=\s*[}\]])"
_MIN_SECRET = 8  # characters; a shorter value is not a key, and masking it would hide words


# fmt: off
class ToolServer(NamedTuple):
    """A tool server: a program to start, or a URL.

    ``tools`` are patterns of the selected tools; ``secrets`` must not appear in its output.
    """

    name: str = ""
    command: Annotated[str | None, TEXT, "The program to start."] = None
    args: Annotated[tuple[str, ...], LIST, "Its arguments."] = ()
    env: Annotated[Mapping[str, str], TEXTS,
        "Variables for it, added to the usual ones such as `PATH`."] = {}
    url: Annotated[str | None, TEXT, "The server's address, instead of `command`."] = None
    headers: Annotated[Mapping[str, str], TEXTS, "Headers for every request to the URL."] = {}
    type: Annotated[str | None, TEXT,
        "`stdio`, `http` or `streamable-http`; else by `command` or `url`."] = None
    auto_approve: Annotated[tuple[str, ...], LIST,
        "Patterns of tools that run without asking you."] = ()
    timeout: Annotated[float | None, SECONDS,
        "Seconds; default: 30 for its start and 300 for a call."] = None
    tools: tuple[str, ...] = ("*",)
    secrets: frozenset[str] = frozenset()

    @property
    def has_token(self) -> bool:
        """Whether its headers have a token, so that it needs no login."""
        return any(header.lower() == "authorization" for header in self.headers)


class Mcp(NamedTuple):
    """The table ``[mcp]``."""

    servers_file: Annotated[str, TEXT,
        "A Claude-style file of servers, relative to the config file."] = ""
    max_rounds: Annotated[int, POSITIVE,
        "Requests for one question that may call tools; then exit 5."] = 20
    servers: Annotated[Mapping[str, ToolServer], Tables(ToolServer),
        "Programs and URLs that offer tools."] = {}
# fmt: on


# In a Claude-style file; its other keys are for other programs.
_KEYS_IN_FILE = ("command", "args", "env", "url", "headers", "type")
# Rules for values after their variables are replaced.
_RULES = {
    "command": text_like(r"(?s).*\S.*", "the name of a program"),
    "url": text_like(r"https?://[^/?#\s]+\S*", "a URL with http:// or https://"),
    "headers": HEADERS,
}


class ToolServers:
    """All tool servers. The file beside the config, and variables, are read on demand.

    Each method raises ConfigError with file or variable, key, and expected value.
    """

    def __init__(self, config: Mcp, file: Path, environ: Mapping[str, str]) -> None:
        self._config = config
        self._file = file
        self._environ = environ
        self._disabled: list[str] = []  # by the file beside the config

    @property
    def names(self) -> list[str]:
        """The names of the servers: those in the file beside the config first."""
        return [*self._configured]

    def select(
        self,
        names: Iterable[str],
        on_error: Callable[[ConfigError], None] | None = None,
    ) -> list[ToolServer]:
        """Return the servers that the names select, each with the patterns of its tools.

        A name is a server, ``SERVER__TOOL`` or ``SERVER__PATTERN``; ``all`` and ``*`` select every
        server. ``on_error`` gets the error of a server whose table is wrong, instead of the caller.
        """
        selected: dict[str, list[str]] = {}
        for name in names:
            if name in ("all", "*"):
                for server_name in self._configured:
                    selected[server_name] = ["*"]
            else:
                server_name, pattern = self._find(name)
                selected.setdefault(server_name, []).append(pattern)

        servers = []
        for server_name, patterns in selected.items():
            try:
                server = self._resolve(server_name)
            except ConfigError as err:
                if on_error is None:
                    raise
                on_error(err)
                continue
            servers.append(server._replace(tools=tuple(patterns)))
        return servers

    def _find(self, name: str) -> tuple[str, str]:
        """Return the server that a name selects, and the pattern of its tools."""
        matches = [server for server in self._configured if _is_of(name, server)]
        if matches:
            # Names of servers and tools may contain the separator: the longest server wins.
            server = max(matches, key=len)
            pattern = name[len(server + SEPARATOR) :]
            return server, pattern or "*"
        advice = "add it under [mcp.servers]"
        if self._configured:
            advice = f"choose from {', '.join(self._configured)}"
        if any(_is_of(name, server) for server in self._disabled):
            advice = f"it is disabled in {self._config.servers_file}"
        raise ConfigError(f"there is no tool server {name!r}", advice)

    @cached_property
    def _configured(self) -> dict[str, ToolServer]:
        """The config file's servers over those of the other file.

        A table without a transport only adds keys.
        """
        servers = self._servers_in_file()
        for name, server in self._config.servers.items():
            has_transport = (server.command, server.url, server.type) != (None, None, None)
            if has_transport:
                servers[name] = server
            elif name in servers:
                added = {key: value for key, value in server._asdict().items() if value}
                servers[name] = servers[name]._replace(**added)
            elif name not in self._disabled:
                servers[name] = server
        return servers

    def _servers_in_file(self) -> dict[str, ToolServer]:
        """Return the servers in the file beside the config that are not disabled there."""
        if not self._config.servers_file:
            return {}
        path = self._file.parent / os.path.expanduser(self._config.servers_file)
        where = f"{self._file}: mcp.servers_file: {path}: "
        try:
            content = _parse(read_text(path, max_bytes=_MAX_FILE))
        except OSError as err:
            raise ConfigError(f"{where}{err.strerror}") from err
        except (ValueError, RecursionError) as err:
            raise ConfigError(f"{where}not JSON: {err}") from err
        tables = content.get("mcpServers") if isinstance(content, dict) else None
        if not isinstance(tables, dict):
            raise ConfigError(f"{where}mcpServers: expected a table")
        servers = {}
        for name, table in tables.items():
            if as_dict(table).get("disabled") is True:
                self._disabled.append(name)
                continue
            if isinstance(table, dict):
                table = {key: table[key] for key in _KEYS_IN_FILE if key in table}
            servers[name] = read(ToolServer, table, f"{where}mcpServers.{name}.")
        return servers

    def _resolve(self, name: str) -> ToolServer:
        """Return a server with its variables replaced, and its secrets."""
        server = self._configured[name]
        where = f"{self._file}: mcp.servers.{name}"
        _check_transport(server, where)

        variables = _Variables(self._environ, where)
        command = server.command
        if command:
            command = os.path.expanduser(variables.expand(command, "command"))
        url = server.url
        if url:
            url = variables.expand(url, "url")
        server = server._replace(
            name=name,
            command=command,
            args=tuple(variables.expand(text, "args") for text in server.args),
            env=variables.expand_all(server.env, "env"),
            url=url,
            headers=variables.expand_all(server.headers, "headers"),
        )
        for key, rule in _RULES.items():
            value = getattr(server, key)
            if value is not None:
                rule.read(value, f"{where}.{key}")
        return server._replace(secrets=_secrets_of(server, variables.values))


def _is_of(name: str, server: str) -> bool:
    """Return whether a name selects this server, or a tool of it."""
    return (name + SEPARATOR).startswith(server + SEPARATOR)


def _check_transport(server: ToolServer, where: str) -> None:
    """Raise ConfigError unless a server has the key that its transport needs, and no other."""
    transport = server.type or ("http" if server.command is None else "stdio")
    required_key = _TRANSPORTS.get(transport)
    if required_key is None:
        expected = ", ".join(_TRANSPORTS)
        problem = f"{where}.type: expected one of {expected}, not {transport!r}"
        advice = "gptsh does not support the old SSE transport" if transport == "sse" else ""
        raise ConfigError(problem, advice)
    has_both = server.command is not None and server.url is not None
    if has_both or getattr(server, required_key) is None:
        raise ConfigError(f"{where}: expected either command or url")


class _Variables:
    """Replaces ``${NAME}`` and ``${NAME:-DEFAULT}`` in the table ``where``.

    ``values`` are those of the variables that were replaced.
    """

    def __init__(self, environ: Mapping[str, str], where: str) -> None:
        self.values: dict[str, str] = {}
        self._environ = environ
        self._where = where

    def expand(self, text: str, key: str) -> Secret:
        """Return the text of a key with its variables replaced. Raises ConfigError."""

        def value_of(match: re.Match[str]) -> str:
            name, default = match.groups()
            value = self._environ.get(name)
            if value is None and default is None:
                problem = f"{self._where}.{key}: the variable {name} is not set"
                raise ConfigError(problem, f"set it, or write ${{{name}:-DEFAULT}}")
            # As in a shell, a variable that is empty has its default.
            self.values[name] = value or default or ""
            return self.values[name]

        return Secret(re.sub(_VARIABLE, value_of, text))

    def expand_all(self, texts: Mapping[str, str], key: str) -> dict[str, str]:
        """Return the texts of a table with their variables replaced."""
        return {name: self.expand(text, f"{key}.{name}") for name, text in texts.items()}


def _parse(text: str) -> object:
    """Parse JSON that may have comments and commas before a closing bracket, as editors write it.

    Raises ValueError and RecursionError.
    """
    try:
        return json.loads(text)
    except ValueError:
        # A string is replaced by itself, so that nothing in it is removed.
        text = re.sub(f"({_STRING})|{_COMMENT}", r"\1", text, flags=re.DOTALL)
        text = re.sub(f"({_STRING})|{_LAST_COMMA}", r"\1", text)
        return json.loads(text)


def _secrets_of(server: ToolServer, variables: Mapping[str, str]) -> frozenset[str]:
    """Return the secrets in a server's URL, headers and variables, whole and line by line."""
    from urllib.parse import urlsplit

    url = urlsplit(server.url or "")
    login = url.netloc.rpartition("@")[0]
    secrets = {login, login.rpartition(":")[2]}
    for pair in url.query.split("&"):
        _, _, value = pair.partition("=")
        secrets.add(value or pair)
    for header, value in server.headers.items():
        if is_secret_header(header, value):
            secrets |= {value, value.split(" ")[-1]}  # a token without its scheme
    for variable, value in {**variables, **server.env}.items():
        if is_secret_name(variable) and not value.startswith("/"):  # a path is not a key
            secrets.add(value)
    for value in list(secrets):
        secrets.update(value.splitlines())
    return frozenset(Secret(text) for text in secrets if len(text) >= _MIN_SECRET)
