"""One tool server as it is spoken to, by the SDK, in an asyncio loop. Imported late: the SDK takes half a second."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

import anyio
import httpx2
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ErrorData,
    Implementation,
    PaginatedRequestParams,
    RequestId,
)
from mcp_types import Tool as ListedTool
from pydantic import ValidationError

from gptsh import __version__
from gptsh.config.mcp_servers import ToolServer
from gptsh.config.secret import masked
from gptsh.errors import ToolServerError
from gptsh.messages import Tool
from gptsh.text import shortened
from gptsh.tools.process import Process
from gptsh.tools.wires import Lost, Streams, by_http, by_pipes

_STARTING = 30.0  # seconds, where the config says nothing
_CALLING = 300.0
_NOTICED = 0.2  # seconds within which the end of a connection is known everywhere
_MOST_PAGES = 1000  # of a list of tools
_WIDTH = 200  # characters of a server's own words in an error's line
_LAST_LINES = 2  # of stderr there
_BY_HTTP = "SSE stream"  # how the SDK's own words begin where an answer broke off
_UNREAD = "Failed to parse"  # the same where it cannot be read
_KNOWN = (Lost, MCPError, ValidationError, TimeoutError, httpx2.HTTPError, OSError)


class Answer(NamedTuple):
    """What a tool gave, in the shape of MCP's ``CallToolResult``, and after how many milliseconds."""

    result: dict[str, Any]
    duration_ms: int


class Connection:
    """A server from its first message to its last. ``failure`` is what has made it useless."""

    def __init__(self, server: ToolServer, process: Process | None, environ: Mapping[str, str]) -> None:
        self.server = server
        self.closing = asyncio.Event()
        self.failure: ToolServerError | None = None
        self._process, self._environ = process, environ
        self._session: ClientSession | None = None
        self._over = asyncio.Event()

    async def serve(self, opened: Callable[[list[Tool]], None]) -> None:
        """Open it, tell its tools, and keep it until it is to be closed. Raises ToolServerError where it fails."""
        try:
            async with (
                self._wire() as (reading, writing),
                ClientSession(dispatcher=_Dispatcher(reading, writing), client_info=_GPTSH) as session,
            ):
                with anyio.fail_after(self.server.timeout or _STARTING):
                    await _shake_hands(session)
                    tools = [
                        Tool(t.name, t.description or t.title or "", t.input_schema) async for t in _listed(session)
                    ]
                self._session = session
                opened(tools)
                await self.closing.wait()
        except (*_KNOWN, BaseExceptionGroup) as err:
            if not self.closing.is_set():
                self.failure = self._in_our_words(err, self.server.timeout or _STARTING)
                raise self.failure from None  # its causes may show a key
        finally:
            self._over.set()

    @property
    def is_open(self) -> bool:
        """Whether its tools are known."""
        return self._session is not None

    def _wire(self) -> AbstractAsyncContextManager[Streams]:
        return by_pipes(self._process) if self._process else by_http(self.server, self._environ)

    async def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        """What a tool gives. Raises ToolServerError for a server that died or hung."""
        started = time.monotonic()
        patience = self.server.timeout or _CALLING
        try:
            with anyio.fail_after(patience):
                result = await self._ask(tool, arguments)
        except MCPError as err:
            if await self._is_lost(err):
                raise self.failure or self._in_our_words(err, patience) from None
            result = _refusal("the result cannot be read" if err.message.startswith(_UNREAD) else err.message)
        except TimeoutError as err:
            raise self._in_our_words(err, patience) from None
        except ValueError as err:  # the SDK cannot write the arguments
            result = _refusal(f"the arguments cannot be sent: {err}")
        return Answer(self._sound(result), round(1000 * (time.monotonic() - started)))

    def _sound(self, result: dict[str, Any]) -> dict[str, Any]:
        """The result without the server's keys, and with the names of such numbers as JSON has none for."""
        keys = [json.dumps(key, ensure_ascii=False)[1:-1] for key in self.server.secrets]
        sound: dict[str, Any] = json.loads(masked(json.dumps(result, ensure_ascii=False), keys), parse_constant=str)
        return sound

    async def _ask(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._session is None or self._over.is_set():
            raise MCPError(CONNECTION_CLOSED, "the connection is closed")
        # Not by ``call_tool``, which holds a result against the tool's own schema: that is the model's to judge.
        asked = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=arguments))
        try:
            await self._session.send_request(asked, CallToolResult)
        except _Given as given:
            return given.result
        raise RuntimeError("the SDK has kept a result to itself")

    async def _is_lost(self, err: MCPError) -> bool:
        """Whether the server is lost. Some use the code of a closed connection for errors of their own."""
        if err.code == CONNECTION_CLOSED:
            with anyio.move_on_after(_NOTICED):
                await self._over.wait()
            return self._over.is_set() or err.message.startswith(_BY_HTTP)
        return False

    # ---- errors

    def _in_our_words(self, error: BaseException, patience: float) -> ToolServerError:
        """What has ended it as one line, the last of its stderr behind it. What nobody expected is raised as it is."""
        cause = _cause(error)
        if cause is None:
            raise error
        secrets = self.server.secrets
        what = masked(f"tool server {self.server.name} {self._how(cause, patience)}", secrets)
        lines = self._last_words(what)
        said = shortened(masked(" / ".join(lines[-_LAST_LINES:]), secrets), _WIDTH)
        return ToolServerError(what, said, detail=masked("\n".join(lines), secrets))

    def _how(self, cause: BaseException, patience: float) -> str:
        ended = self._process.ended if self._process else None
        if ended and isinstance(cause, TimeoutError):  # it has left somebody who holds its output open
            return ended
        return _words(cause, patience, self.server.secrets)

    def _last_words(self, what: str) -> list[str]:
        """The last lines of its stderr; where it has used none, what it has said on stdout."""
        process = self._process
        if process is None:
            return []
        told = bool(process.stderr.lines) or not process.noise or process.noise in what
        return process.stderr.lines if told else [f"printed {process.noise!r}"]


class _Given(Exception):
    """What a tool gave, on its way past the SDK, which would refuse all of it for a piece that it does not know."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__()
        self.result = result


class _Dispatcher(JSONRPCDispatcher[TransportContext]):
    """The SDK's, but for results of tools: they are raised as ``_Given``."""

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        *,
        _related_request_id: RequestId | None = None,
    ) -> dict[str, Any]:
        """The result of a request."""
        result = await super().send_raw_request(method, params, opts, _related_request_id=_related_request_id)
        if method == "tools/call":
            raise _Given(result)
        return result


_GPTSH = Implementation(name="gptsh", version=__version__)


def not_started(server: ToolServer, error: OSError | ValueError) -> ToolServerError:
    """A program that cannot be started."""
    why = error.strerror if isinstance(error, OSError) else error
    return ToolServerError(
        masked(f"tool server {server.name} cannot be started: {why}: {server.command}", server.secrets)
    )


async def _shake_hands(session: ClientSession) -> None:
    """Agree on a protocol."""
    try:
        await _agree(session)
    except RuntimeError as err:
        raise Lost(f"speaks another protocol: {err}") from err


async def _agree(session: ClientSession) -> None:
    """As every server did until 2026, else as those do that know no other way."""
    try:
        await session.initialize()
    except MCPError as err:
        if err.code not in (UNSUPPORTED_PROTOCOL_VERSION, METHOD_NOT_FOUND):
            raise
        await session.discover()


async def _listed(session: ClientSession) -> AsyncIterator[ListedTool]:
    """All pages of its list. A server without tools has none."""
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        try:
            page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        except MCPError as err:
            if err.code != METHOD_NOT_FOUND:
                raise
            return
        for tool in page.tools:
            yield tool
        cursor = page.next_cursor
        if not cursor:
            return
    raise Lost("never ends its list of tools")


def _refusal(what: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": f"error: {what}"}], "isError": True}


def _cause(error: BaseException) -> BaseException | None:
    """What of an exception, or of a group, says most of why a server is lost; None where nothing of it is known."""
    leaves = list(_leaves(error))
    return next((leaf for kind in _KNOWN for leaf in leaves if isinstance(leaf, kind)), None)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _words(cause: BaseException, patience: float, secrets: Collection[str]) -> str:
    """What is wrong, as it goes on behind the server's name; masked before it is cut."""
    match cause:
        case Lost():
            before, said = "", str(cause)
        case TimeoutError():
            before, said = "", f"did not answer within {patience:g} s"
        case MCPError(error=ErrorData(code=code)) if code == CONNECTION_CLOSED:
            before, said = "", "closed the connection"
        case MCPError():
            before, said = "refused: ", cause.message
        case ValidationError():
            first = cause.errors(include_url=False, include_input=False)[0]
            before, said = "answered what MCP does not know: ", f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            before, said = "cannot be reached: ", str(cause)
        case _:
            before, said = "failed: ", str(cause) or repr(cause)
    return before + shortened(masked(said, secrets), _WIDTH)
