"""Connect to one tool server through MCP, list its tools and call them."""

import asyncio
import contextlib
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path

import anyio
import mcp_types
from mcp import Client, MCPError
from mcp.client import (
    CacheConfig,
    CacheEntry,
    CacheKey,
    ClientRequestContext,
    InputRequiredRoundsExceededError,
)
from mcp_types import ListToolsResult
from pydantic import ValidationError

from gptsh import __version__, files
from gptsh.config.schema import mask
from gptsh.config.tool_servers import ToolServer
from gptsh.errors import ConfigError, ToolServerError
from gptsh.files import app_folder
from gptsh.jsonio import JsonObject, as_dict, encode_json
from gptsh.messages import ServerQuestion, Tool
from gptsh.text import shorten
from gptsh.tools import logins
from gptsh.tools.programs import Programs
from gptsh.tools.transports import Pipes, StreamableHttp

# ---- remembered

_DAY = 86_400  # seconds


class Remembered:
    """What is remembered of one server between runs, in a file of the cache folder.

    ``list`` is its list of tools, kept as long as the server says that it stays fresh (``ttlMs``).
    ``is_old`` means that it speaks only a protocol before 2026-07-28; gptsh asks it again after a
    day.

    The SDK uses this object as a store of responses, where an exception is a missing response.
    """

    def __init__(self, server: ToolServer) -> None:
        self.key = _identity_of(server)
        try:
            self._facts = as_dict(json.loads(self._file().read_bytes()))
        except (ConfigError, OSError, ValueError, RecursionError):
            self._facts = {}

    @property
    def is_old(self) -> bool:
        """Whether the server spoke only an older protocol within the last day."""
        age = time.time() - self._facts.get("at", 0)
        is_recent = 0 <= age < _DAY
        return is_recent and bool(self._facts.get("is_old"))

    def set_old(self, is_old: bool) -> None:
        """Remember whether the server speaks only an older protocol."""
        if is_old != self.is_old:
            self._keep(is_old=is_old, at=int(time.time()))

    async def get(self, key: CacheKey) -> CacheEntry | None:
        """Return a list of tools."""
        kept = self._facts.get("list")
        if kept is None or kept["key"] != _as_words(key):
            return None
        tools = ListToolsResult.model_validate(kept["value"], by_name=False)
        return CacheEntry(tools, kept["scope"], kept["expires_at"])

    async def set(self, key: CacheKey, entry: CacheEntry) -> None:
        """Keep a list of tools."""
        if isinstance(entry.value, ListToolsResult):
            kept = {
                "key": _as_words(key),
                "value": entry.value.model_dump(mode="json", by_alias=True, exclude_unset=True),
                "scope": entry.scope,
                "expires_at": entry.expires_at,
            }
            self._keep(list=kept)

    async def delete(self, key: CacheKey) -> None:
        """Forget a list of tools."""
        if as_dict(self._facts.get("list")).get("key") == _as_words(key):
            await self.clear()

    async def clear(self) -> None:
        """Forget the list of tools."""
        self._keep(list=None)

    def _file(self) -> Path:
        return app_folder("cache") / "tool-servers" / f"{self.key[:32]}.json"

    def _keep(self, **facts: object) -> None:
        """Write the file; if that fails, the server is asked again.

        Remove files of other servers that were not written for a day.
        """
        self._facts |= facts
        with contextlib.suppress(OSError, ConfigError):  # also if this user has no home folder
            file = self._file()
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.replace(file, encode_json(self._facts), fsync=False)
            for other in file.parent.iterdir():
                if other.stat().st_mtime < time.time() - _DAY:
                    other.unlink()


def _identity_of(server: ToolServer) -> str:
    """Return a hash of all that decides which tools a server offers."""
    client_id = None  # each login has another one
    login = logins.read_login(server.url) if server.url else None
    if login:
        client_id = login["client"].get("client_id")
    folder = ""
    with contextlib.suppress(OSError):  # raised if the folder was removed
        folder = os.getcwd()  # a program may offer other tools in another folder
    identity = [
        server.command,
        server.args,
        server.env,
        server.url,
        server.headers,
        client_id,
        folder,
    ]
    data = json.dumps(identity).encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()


def _as_words(key: CacheKey) -> list[str]:
    """Return a key of the SDK's cache as JSON has it."""
    return [key.method, key.params_key, key.partition]


# ---- connection
#
# It runs in an asyncio loop. This file is imported late, because the SDK takes more than half a
# second.

AskUser = Callable[[ServerQuestion], Future[JsonObject | None]]  # the answer, as in ``Tools.run``
# The name of a server, and its tools under their own names.
Report = tuple[str, list[Tool] | ToolServerError]

_START_TIMEOUT = 30.0  # seconds to start and to list the tools, unless the config sets a timeout
_CALL_TIMEOUT = 300.0  # seconds of one call, unless the config sets a timeout
_EXIT_TIMEOUT = 0.3  # seconds to wait for the cause after a connection has closed
_MAX_TOOLS = 2000  # of a server
_MAX_PAGES = 200  # of its list
_MAX_CHARACTERS = 4_000_000  # of descriptions and schemas; no window is so large
_LINES_SHOWN = 2  # of stderr in an error's line
_LINES_IN_DETAIL = 20
_WIDTH = 200  # characters of a server's text in an error's line
_STACK = re.compile(r"at .+|Node\.js v[0-9.]+|\^+")  # what Node prints around the reason
_REASON = re.compile(r"(?:Uncaught )?[\w.]*(?:Error|Exception)(?: \[\w+\])?: .+")
# The SDK's messages for a lost connection; servers use its error code for their own errors.
_CLOSED = re.compile("Connection closed|SSE stream (?:ended|failed).*", re.DOTALL)


class Connection:
    """The connection to a tool server, which is one of the running programs or has a URL.

    ``ask`` puts a question to the user.
    """

    def __init__(
        self,
        server: ToolServer,
        environ: Mapping[str, str],
        programs: Programs,
        ask: AskUser,
    ) -> None:
        self._server = server
        self._ask = ask
        self._remembered = Remembered(server)
        self._transport: Pipes | StreamableHttp
        if server.command:
            self._transport = Pipes(server, programs)
        else:
            login = None
            if not server.has_token and logins.read_login(str(server.url)):
                from gptsh.tools.oauth import KeptLogin

                login = KeptLogin(server, environ)
            self._transport = StreamableHttp(server, environ, login)
        self._start_timeout = server.timeout or _START_TIMEOUT
        self._asking = anyio.Lock()  # around each question
        self._calls: set[anyio.CancelScope] = set()  # those that run, each with its deadline
        self.task_tools: list[str] = []  # tools that run only as tasks; gptsh starts none
        self._client: Client | None = None
        self._failure: ToolServerError | None = None

    async def serve(self, report: Callable[[Report], None]) -> None:
        """Connect, report the tools or the error, and stay connected until cancelled."""
        mode = "legacy" if self._remembered.is_old else "auto"
        try:
            is_served = await self._connect(mode, report)
            if not is_served and isinstance(self._transport, Pipes):
                self._transport.start_again()
                await self._connect("legacy", report)
        # The type depends on what the server sends, and the SDK's tasks raise groups of any type.
        # Without a report the main thread would wait forever.
        except Exception as err:  # noqa: BLE001 - see above
            error = await self._error(err, self._start_timeout)
            report((self._server.name, error))

    async def _connect(self, mode: str, report: Callable[[Report], None]) -> bool:
        """Do what ``serve`` does in a mode of the SDK; ``legacy`` skips the protocol of 2026-07-28.

        Return False if the program ended when it was asked for that protocol. Older servers may
        end, because the request comes before ``initialize``.
        """
        key = self._remembered.key
        async with self._transport.streams() as streams, anyio.create_task_group() as tasks:
            client = Client(
                contextlib.nullcontext(streams),
                mode=mode,
                client_info=mcp_types.Implementation(name="gptsh", version=__version__),
                message_handler=self._transport.on_message,
                elicitation_callback=self._elicit,
                cache=CacheConfig(self._remembered, partition=key, target_id=key),
            )
            listed: asyncio.Future[list[Tool]] = asyncio.get_running_loop().create_future()
            tasks.start_soon(self._hold, client, listed)
            try:
                with anyio.fail_after(self._start_timeout):
                    report((self._server.name, await listed))
            # Reported here and not in ``serve``, because the transport may take long to end.
            except Exception as err:  # noqa: BLE001 - see above
                if mode == "auto" and self._has_closed(err):
                    return False
                error = await self._error(err, self._start_timeout)
                report((self._server.name, error))
                tasks.cancel_scope.cancel()
        return True

    async def _hold(self, client: Client, listed: "asyncio.Future[list[Tool]]") -> None:
        """Agree on a protocol version, list the tools, and hold the connection until cancelled."""
        try:
            async with client:
                # The SDK would refuse a result that breaks the tool's schema, but a model can
                # often use it.
                client.session.validate_tool_result = _accept  # type: ignore[method-assign]
                tools = []
                for tool in await _list_tools(client):
                    if tool.execution and tool.execution.task_support == "required":
                        self.task_tools.append(tool.name)
                    else:
                        description = tool.description or tool.title or ""
                        tools.append(Tool(tool.name, description, tool.input_schema))
                self._remembered.set_old(client.session.discover_result is None)
                self._client = client
                listed.set_result(tools)
                await anyio.sleep_forever()
        except Exception as err:  # noqa: BLE001 - as in ``serve``; the other task reports it
            if not listed.done():
                listed.set_exception(err)

    def _has_closed(self, err: BaseException) -> bool:
        """Return whether a program may have ended because it does not know a request."""
        if not isinstance(self._transport, Pipes) or self._transport.fault:
            return False
        err = _cause(err)
        return isinstance(err, MCPError) and err.code == mcp_types.CONNECTION_CLOSED

    async def call(self, tool: str, arguments: JsonObject) -> tuple[JsonObject, int]:
        """Call a tool; return its ``CallToolResult`` and the duration in milliseconds.

        Raises ToolServerError.
        """
        assert self._client  # it has reported its tools
        started = time.monotonic()
        timeout = self._server.timeout or _CALL_TIMEOUT
        try:
            with anyio.fail_after(timeout) as scope:
                self._calls.add(scope)
                try:
                    response = await self._client.call_tool(tool, arguments)
                finally:
                    self._calls.discard(scope)
            result = response.model_dump(mode="json", by_alias=True, exclude_unset=True)
        except TimeoutError as err:
            raise await self._error(err, timeout) from None
        except InputRequiredRoundsExceededError:
            result = _error_result("the server asked for input too often")
        except MCPError as err:
            if err.code == mcp_types.CONNECTION_CLOSED and _CLOSED.fullmatch(err.message):
                raise await self._error(err, timeout) from None
            result = _error_result(err.message)
        except ValidationError:
            result = _error_result("the result cannot be read")
        except ValueError as err:
            result = _error_result(f"the arguments cannot be sent: {err}")
        duration = time.monotonic() - started
        return self._without_secrets(result), round(1000 * duration)

    def _without_secrets(self, value: JsonObject) -> JsonObject:
        """Return what a server sent, with its secrets masked."""
        escaped = [json.dumps(secret, ensure_ascii=False)[1:-1] for secret in self._secrets]
        text = mask(json.dumps(value, ensure_ascii=False), escaped)
        masked: JsonObject = json.loads(text)
        return masked

    # ---- questions

    async def _elicit(
        self,
        context: ClientRequestContext,
        params: mcp_types.ElicitRequestParams,
    ) -> mcp_types.ElicitResult:
        """Put a question of the server to the user, one at a time.

        The timeouts of calls do not run while it waits.
        """
        message = mask(params.message, self._secrets)
        if isinstance(params, mcp_types.ElicitRequestURLParams):
            question = ServerQuestion(self._server.name, message, {}, params.url)
        else:
            form = self._without_secrets(params.requested_schema)
            question = ServerQuestion(self._server.name, message, form)
        async with self._asking:
            asked_at = anyio.current_time()
            deadlines = {scope: scope.deadline for scope in self._calls}
            for scope in deadlines:
                scope.deadline = math.inf
            answer = await asyncio.wrap_future(self._ask(question))
            seconds = anyio.current_time() - asked_at
            for scope, deadline in deadlines.items():
                scope.deadline = deadline + seconds
        if answer is None:
            return mcp_types.ElicitResult(action="decline")
        content = None if question.url else answer
        return mcp_types.ElicitResult(action="accept", content=content)

    # ---- failures

    async def _error(self, err: BaseException, timeout: float) -> ToolServerError:
        """Return the error of a server that can no longer be used, with its last lines."""
        err = _cause(err)
        if self._client is None:
            self._remembered.set_old(False)  # it may speak only the newer protocol now
        if isinstance(err, ToolServerError):
            return err
        if isinstance(err, MCPError):  # the cause may follow
            with anyio.move_on_after(_EXIT_TIMEOUT):
                while self._failure is None and not self._transport.has_ended:
                    await anyio.sleep(_EXIT_TIMEOUT / 30)
        if self._failure:
            return self._failure
        secrets = self._secrets
        reason = mask(self._reason(err, timeout), secrets)
        lines = [mask(line, secrets) for line in self._transport.last_lines()]
        self._failure = ToolServerError(
            f"tool server {self._server.name} {shorten(reason, _WIDTH)}",
            shorten(" / ".join(_last_words(lines)), _WIDTH),
            detail="\n".join(lines[-_LINES_IN_DETAIL:]),
        )
        self._failure.__suppress_context__ = True  # its causes may show a key
        return self._failure

    @property
    def _secrets(self) -> frozenset[str]:
        """The secrets of the config and the tokens, to mask in everything from the server."""
        return self._server.secrets | self._transport.secrets

    def _reason(self, err: BaseException, timeout: float) -> str:
        """Return what the server did wrong, as the end of a sentence that begins with its name."""
        reason = self._transport.reason(err)
        if reason:
            return reason
        match err:
            case TimeoutError():
                return f"did not answer within {timeout:g} s"
            case MCPError(code=mcp_types.CONNECTION_CLOSED):
                return "closed the connection"
            case MCPError():
                return f"refused: {err.message}"
            case ValidationError():
                first = err.errors(include_url=False, include_input=False)[0]
                place = ".".join(map(str, first["loc"]))
                return f"sent an invalid answer: {place}: {first['msg']}"
            case _TooLarge():
                return str(err)
            case RuntimeError():  # only the handshake raises it
                return f"uses another protocol: {err}"
        return f"failed: {err}"


def _last_words(lines: list[str]) -> list[str]:
    """Return the lines of stderr that say why a program ended: an exception, else the last ones."""
    without_stack = [line for line in lines if not _STACK.fullmatch(line)]
    reasons = [line for line in without_stack if _REASON.fullmatch(line)]
    return reasons[-1:] or without_stack[-_LINES_SHOWN:]


class _TooLarge(Exception):
    """A server sent more than gptsh accepts."""


async def _list_tools(client: Client) -> list[mcp_types.Tool]:
    """List the tools, page by page. Raises _TooLarge for too many."""
    tools: list[mcp_types.Tool] = []
    cursor: str | None = None
    characters = 0
    for _ in range(_MAX_PAGES):
        try:
            page = await client.list_tools(cursor=cursor)
        except MCPError as err:
            if err.code != mcp_types.METHOD_NOT_FOUND:
                raise
            return tools  # a server may offer only resources, for example
        for tool in page.tools:
            tools.append(tool)
            description = tool.description or tool.title or ""
            characters += len(description) + len(json.dumps(tool.input_schema))
            if len(tools) > _MAX_TOOLS or characters > _MAX_CHARACTERS:
                limits = f"{_MAX_TOOLS:,} tools, or {_MAX_CHARACTERS:,} characters of them"
                raise _TooLarge(f"lists more than {limits}")
        cursor = page.next_cursor
        if not cursor:
            return tools
    raise _TooLarge(f"lists its tools on more than {_MAX_PAGES} pages")


async def _accept(name: str, result: object) -> None:
    """Accept every result of a tool."""


def _cause(err: BaseException) -> BaseException:
    """Return the first error of a group."""
    while isinstance(err, BaseExceptionGroup):
        err = err.exceptions[0]
    return err


def _error_result(text: str) -> JsonObject:
    return {"content": [{"type": "text", "text": f"error: {text}"}], "isError": True}
