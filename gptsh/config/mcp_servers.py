"""Tool servers: those of the config file, and those of a Claude-style file beside it, read when one is wanted."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from gptsh.config import schema
from gptsh.config.secret import Secret, is_secret_name
from gptsh.errors import ConfigError

SEPARATOR = "__"  # between a server and its tool
_VARIABLE = r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}"
_TRANSPORTS = {"stdio": "command", "http": "url", "streamable-http": "url"}  # the key that each one needs
_SHORTEST_SECRET = 8  # characters; a shorter value is no key, and to mask it would hide words


class ToolServer(NamedTuple):
    """A tool server: a program that is started, or a URL.

    ``tools`` are patterns of the tools that are wanted, ``secrets`` what nobody may read in what the server writes.
    """

    name: str = ""
    command: Annotated[str | None, schema.TEXT, "The program that is started."] = None
    args: Annotated[tuple[str, ...], schema.LIST, "Its arguments."] = ()
    env: Annotated[Mapping[str, str], schema.TEXTS, "Variables for it, beside the usual ones such as `PATH`."] = {}
    url: Annotated[str | None, schema.TEXT, "The server's address, in place of `command`."] = None
    headers: Annotated[Mapping[str, str], schema.TEXTS, "Headers for every request to the URL."] = {}
    type: Annotated[str | None, schema.TEXT, "`stdio`, `http` or `streamable-http`; else by `command` or `url`."] = None
    auto_approve: Annotated[tuple[str, ...], schema.LIST, "Patterns of tools that are called without a question."] = ()
    timeout: Annotated[float | None, schema.SECONDS, "Seconds; else 30 for its start and 300 for a call."] = None
    tools: tuple[str, ...] = ("*",)
    secrets: frozenset[str] = frozenset()


class Mcp(NamedTuple):
    """The table ``[mcp]``."""

    servers_file: Annotated[str, schema.TEXT, "A Claude-style file of servers, from the folder of the config file."] = (
        ""
    )
    max_rounds: Annotated[int, schema.POSITIVE, "Requests of one question that may call tools; then exit 5."] = 20
    servers: Annotated[Mapping[str, ToolServer], schema.Tables(ToolServer), "Programs and URLs that offer tools."] = {}


_EXPANDED = ("command", "args", "env", "url", "headers")  # their texts may have variables
_IN_FILE = (*_EXPANDED, "type")  # other keys are other programs'
# What some must be when these are replaced.
_RULES = {
    "command": schema.Rule("the name of a program", lambda v: bool(v.strip()), shown=False),
    "url": schema.Rule(
        "a URL with http:// or https://", lambda v: bool(re.match(r"https?://[^/?#\s]+\S*$", v)), shown=False
    ),
    "headers": schema.HEADERS,
}


class ToolServers:
    """Every tool server. The file beside the config is read, and variables are looked up, when it is asked.

    Asking raises ConfigError naming file or variable, key, and what was expected.
    """

    def __init__(self, config: Mcp, file: Path, environ: Mapping[str, str]) -> None:
        self._config, self._file, self._environ = config, file, environ

    @cached_property
    def names(self) -> list[str]:
        """Their names: those of the file beside the config, then its own."""
        return [*self._configured]

    def _resolved(self, name: str) -> ToolServer:
        """A server with its variables replaced, and what nobody may read of it."""
        server, where = self._configured[name], f"{self._file}: mcp.servers.{name}"
        transport = server.type or ("stdio" if server.command is not None else "http")
        needs = _TRANSPORTS.get(transport)
        if needs is None:
            raise ConfigError(f"{where}.type: expected one of {', '.join(_TRANSPORTS)}, not {transport!r}")
        if getattr(server, needs) is None or None not in (server.command, server.url):
            raise ConfigError(f"{where}: expected either command or url")

        variables: dict[str, str] = {}
        found: dict[str, Any] = {}
        for key in _EXPANDED:
            if (value := getattr(server, key)) is not None:
                found[key] = self._expanded(value, f"{where}.{key}", variables)
        for key in _RULES.keys() & found.keys():
            _RULES[key].read(found[key], f"{where}.{key}")
        server = server._replace(name=name, **found)
        from urllib.parse import urlsplit  # noqa: PLC0415 - only tool servers need it

        url = urlsplit(server.url or "")
        login = url.netloc.rpartition("@")[0]
        secrets = {login, login.rpartition(":")[2], *(pair.partition("=")[2] or pair for pair in url.query.split("&"))}
        for value in server.headers.values():
            secrets |= {value, value.split(" ")[-1]}  # a token without its scheme
        for variable, value in {**variables, **server.env}.items():
            secrets |= {value} if is_secret_name(variable) and not value.startswith("/") else set()  # a path is no key
        lines = {line for value in secrets for line in (value, *value.splitlines())}
        return server._replace(
            command=os.path.expanduser(server.command) if server.command is not None else None,
            env={variable: Secret(value) for variable, value in server.env.items()},
            url=Secret(server.url) if server.url is not None else None,
            headers={header: Secret(value) for header, value in server.headers.items()},
            secrets=frozenset(Secret(line) for line in lines if len(line) >= _SHORTEST_SECRET),
        )

    def select(self, names: Iterable[str]) -> list[ToolServer]:
        """The servers that the names choose, each with the patterns of its tools that are wanted.

        A name is that of a server, ``SERVER__TOOL`` or ``SERVER__PATTERN``; ``all`` and ``*`` are every server.
        """
        wanted: dict[str, list[str]] = {}
        for name in names:
            if name in ("all", "*") and name not in self.names:
                wanted.update((server, ["*"]) for server in self.names)
                continue
            # A server and a tool may have the separator in their names, too: the longest server wins.
            servers = [server for server in self.names if name == server or name.startswith(server + SEPARATOR)]
            if not servers:
                known = f"known are {', '.join(self.names)}" if self.names else "add it under [mcp.servers]"
                raise ConfigError(f"there is no tool server {name!r}", known)
            server = max(servers, key=len)
            wanted.setdefault(server, []).append(name[len(server + SEPARATOR) :] or "*")
        return [self._resolved(server)._replace(tools=tuple(patterns)) for server, patterns in wanted.items()]

    @cached_property
    def _configured(self) -> dict[str, ToolServer]:
        """The config file's servers over those of the other file. One that sets no transport adds to the other's."""
        servers, unset = self._of_file(), ToolServer()._asdict()
        for name, own in self._config.servers.items():
            if name in servers and own.command is own.url is own.type is None:
                changes = {key: value for key, value in own._asdict().items() if value != unset[key]}
                servers[name] = servers[name]._replace(**changes)
            else:
                servers[name] = own
        return servers

    def _of_file(self) -> dict[str, ToolServer]:
        if not self._config.servers_file:
            return {}
        path = self._file.parent / os.path.expanduser(self._config.servers_file)
        where = f"{self._file}: mcp.servers_file: {path}: "
        try:
            found = json.loads(path.read_bytes())
        except OSError as err:
            raise ConfigError(f"{where}{err.strerror}") from err
        except (ValueError, RecursionError) as err:
            raise ConfigError(f"{where}not JSON: {err}") from err
        listed = found.get("mcpServers") if isinstance(found, dict) else None
        if not isinstance(listed, dict):
            raise ConfigError(f"{where}mcpServers: expected a table")
        for table in listed.values():
            if isinstance(table, dict):
                for key in table.keys() - set(_IN_FILE):
                    del table[key]
        servers: dict[str, ToolServer] = schema.Tables(ToolServer).read(listed, f"{where}mcpServers")
        return servers

    def _expanded(self, value: Any, where: str, variables: dict[str, str]) -> Any:
        """The value with ``${NAME}`` and ``${NAME:-DEFAULT}`` in its texts replaced. ``variables`` gets those used."""
        if isinstance(value, tuple):
            return tuple(self._expanded(text, where, variables) for text in value)
        if isinstance(value, Mapping):
            return {key: self._expanded(text, f"{where}.{key}", variables) for key, text in value.items()}

        def of_variable(found: re.Match[str]) -> str:
            name, default = found.groups()
            text = self._environ.get(name)
            if text is None and default is None:
                raise ConfigError(f"{where}: the variable {name} is not set", f"set it, or write ${{{name}:-DEFAULT}}")
            variables[name] = text or default or ""
            return variables[name]

        text = re.sub(_VARIABLE, of_variable, value)
        return text if text == value else Secret(text)
