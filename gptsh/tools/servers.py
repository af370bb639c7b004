"""The connection to one MCP server, in an asyncio loop. Imported late: the SDK takes more than half a second."""

import asyncio
import contextlib
import json
import math
import os
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from http import HTTPStatus
from typing import IO, TYPE_CHECKING, Any

import anyio
import httpx2
import mcp_types
from mcp import Client, MCPError
from mcp.client import CacheConfig, ClientRequestContext, IncomingMessage, InputRequiredRoundsExceededError
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.shared.inbound import MCP_METHOD_HEADER
from pydantic import ValidationError

from gptsh import __version__
from gptsh.config.mcp_servers import ToolServer
from gptsh.config.secret import Secret, mask
from gptsh.content.tool_calls import ServerQuestion
from gptsh.errors import ToolServerError
from gptsh.messages import Tool
from gptsh.text import shorten
from gptsh.tools import logins
from gptsh.tools.remembered import Remembered
from gptsh.tools.web import http_client

if TYPE_CHECKING:
    from mcp.client.auth import OAuthClientProvider

Process = subprocess.Popen[str]
Ask = Callable[[ServerQuestion], "Future[dict[str, Any] | None]"]  # the answer, as of ``Tools.run``
Report = tuple[str, list[Tool] | ToolServerError]  # the name of a server, and its tools under their own names

_START_TIMEOUT = 30.0  # seconds to start and to list the tools, unless the config sets a timeout
_CALL_TIMEOUT = 300.0  # seconds of one call, likewise
_EXIT_TIMEOUT = 0.3  # seconds: a connection is closed a moment before the process ends, or the SDK names the cause
_MAX_MESSAGE = 1 << 26  # bytes of an event over HTTP, characters of a line
_MAX_TOOLS, _MAX_PAGES = 2000, 200  # of a server
_MAX_CHARACTERS = 4_000_000  # of descriptions and schemas: more than fits into any window
_STDERR_TAIL = 20_000  # bytes at the end of stderr that errors quote from
_LINES = (2, 20)  # of stderr in an error's line, and in its detail
_WIDTH = 200  # characters of a server's text in an error's line
_FIRST_ERROR_STATUS = 400
_PROBE = "server/discover"  # the request that only servers of 2026-07-28 and later know
# In JSON: an escaped backslash or a surrogate pair (group 1), else a lone surrogate, which the SDK's parser refuses.
_LONE_SURROGATE = re.compile(r"(\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F]..")
# The SDK's messages for a lost connection; servers use its error code for their own errors.
_CLOSED = re.compile("Connection closed|SSE stream (?:ended|failed).*", re.DOTALL)


class Server:
    """The connection to a tool server: a process with a file for its stderr, or a URL.

    ``restart`` starts the program again, and returns its process and the file. ``ask`` puts a question to the user.
    """

    def __init__(
        self,
        config: ToolServer,
        environ: Mapping[str, str],
        process: Process | None,
        stderr: IO[bytes] | None,
        restart: Callable[[], tuple[Process, IO[bytes]]],
        ask: Ask,
    ) -> None:
        self._config, self._environ, self._process, self._stderr = config, environ, process, stderr
        self._restart, self._ask, self._remembered = restart, ask, Remembered(config)
        self._asking = anyio.Lock()  # around each question
        self._calls: set[anyio.CancelScope] = set()  # those that run, each with its deadline
        self._client: Client | None = None
        self._login: OAuthClientProvider | None = None
        self._failure: ToolServerError | None = None
        self._stray_line = ""  # the last line on its stdout that is not a message
        self._fault = ""  # what was wrong with its output: the predicate of a sentence with its name

    async def serve(self, report: Callable[[Report], None]) -> None:
        """Connect, report the tools or the error, and stay connected until cancelled."""
        try:
            if await self._connect("legacy" if self._remembered.is_old else "auto", report):
                return
            self._process, self._stderr = self._restart()
            await self._connect("legacy", report)
        # Of any type: it depends on what the server sends, and the SDK's tasks raise groups of anything. Unreported,
        # the main thread would wait for ever.
        except Exception as err:  # noqa: BLE001 - see above
            report((self._config.name, await self._error(err, self._start_timeout)))

    async def _connect(self, mode: str, report: Callable[[Report], None]) -> bool:
        """Serve as ``serve``, with the mode of the SDK: ``legacy`` does not ask for the protocol of 2026-07-28.

        Return False if the process ended when it was asked: older servers may, for want of ``initialize``.
        """
        transport = self._over_pipes(self._process) if self._process else self._over_http()
        async with transport as streams, anyio.create_task_group() as tasks:
            client = Client(
                contextlib.nullcontext(streams),
                mode=mode,
                client_info=mcp_types.Implementation(name="gptsh", version=__version__),
                message_handler=self._on_message,
                elicitation_callback=self._elicit,
                cache=CacheConfig(self._remembered, partition=self._remembered.key, target_id=self._remembered.key),
            )
            listed: asyncio.Future[list[Tool]] = asyncio.get_running_loop().create_future()
            tasks.start_soon(self._hold, client, listed)
            try:
                with anyio.fail_after(self._start_timeout):
                    report((self._config.name, await listed))
            except Exception as err:  # noqa: BLE001 - reported here, as the end of the transport may take long
                if mode == "auto" and self._has_closed(err):
                    return False
                report((self._config.name, await self._error(err, self._start_timeout)))
                tasks.cancel_scope.cancel()
        return True

    async def _hold(self, client: Client, listed: "asyncio.Future[list[Tool]]") -> None:
        """Agree on a protocol version, list the tools, and hold the connection until cancelled."""
        try:
            async with client:
                # The SDK checks a result against the tool's schema: the model can judge it better.
                client.session.validate_tool_result = _accept  # type: ignore[method-assign]
                tools = await _list_tools(client)
                self._remembered.set_old(client.session.discover_result is None)
                self._client = client
                listed.set_result(tools)
                await anyio.sleep_forever()
        except Exception as err:  # noqa: BLE001 - reported by the other task
            if not listed.done():
                listed.set_exception(err)

    def _has_closed(self, err: BaseException) -> bool:
        """Whether the process has closed its stdout, for no other reason than a request that it does not know."""
        err = _cause(err)
        closed = isinstance(err, MCPError) and err.code == mcp_types.CONNECTION_CLOSED
        return closed and self._process is not None and not self._fault

    @property
    def _start_timeout(self) -> float:
        return self._config.timeout or _START_TIMEOUT

    async def call(self, tool: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """Call a tool; return its ``CallToolResult`` and the duration in milliseconds. Raises ToolServerError."""
        assert self._client  # it has reported its tools
        started = time.monotonic()
        timeout = self._config.timeout or _CALL_TIMEOUT
        try:
            with anyio.fail_after(timeout) as scope, self._counted(scope):
                response = await self._client.call_tool(tool, arguments)
            result = response.model_dump(mode="json", by_alias=True, exclude_unset=True)
        except TimeoutError as err:
            raise await self._error(err, timeout) from None
        except InputRequiredRoundsExceededError:
            result = _error_result("the server asked too often")
        except MCPError as err:
            if err.code == mcp_types.CONNECTION_CLOSED and _CLOSED.fullmatch(err.message):
                raise await self._error(err, timeout) from None
            result = _error_result(err.message)
        except ValidationError:
            result = _error_result("the result cannot be read")
        except ValueError as err:
            result = _error_result(f"the arguments cannot be sent: {err}")
        keys = [json.dumps(key, ensure_ascii=False)[1:-1] for key in self._secrets]
        masked_result: dict[str, Any] = json.loads(mask(json.dumps(result, ensure_ascii=False), keys))
        return masked_result, round(1000 * (time.monotonic() - started))

    # ---- questions

    async def _elicit(
        self, context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult:
        """Put a question of the server to the user, one at a time. The calls have as much more time as it takes."""
        message = mask(params.message, self._secrets)
        if isinstance(params, mcp_types.ElicitRequestURLParams):
            question = ServerQuestion(self._config.name, message, {}, params.url)
        else:
            question = ServerQuestion(self._config.name, message, params.requested_schema)
        async with self._asking:
            asked, deadlines = anyio.current_time(), {scope: scope.deadline for scope in self._calls}
            for scope in deadlines:
                scope.deadline = math.inf
            values = await asyncio.wrap_future(self._ask(question))
            for scope, deadline in deadlines.items():
                scope.deadline = deadline + anyio.current_time() - asked
        if values is None:
            return mcp_types.ElicitResult(action="decline")
        return mcp_types.ElicitResult(action="accept", content=None if question.url else values)

    @contextlib.contextmanager
    def _counted(self, scope: anyio.CancelScope) -> Iterator[None]:
        """Count a call among those that run."""
        self._calls.add(scope)
        try:
            yield
        finally:
            self._calls.discard(scope)

    # ---- transports

    @contextlib.asynccontextmanager
    async def _over_pipes(self, process: Process) -> AsyncIterator[Any]:
        """The SDK's streams over the pipes of a process; its stdin is closed at the end.

        This uses the SDK's stdio transport for servers, which accepts any two files. The one for clients starts the
        process itself, only once the SDK is loaded, and hides the process id that is needed to kill it.
        """
        assert process.stdin
        assert process.stdout
        with process.stdout:
            async with stdio_server(_Lines(process.stdout, self._on_endless_line), _Requests(process.stdin)) as streams:
                try:
                    yield streams
                finally:
                    with contextlib.suppress(BrokenPipeError):
                        process.stdin.close()

    async def _on_message(self, message: IncomingMessage) -> None:
        """Remember a line that is not a message, such as a banner; kill a process that writes a broken message."""
        if isinstance(message, ValidationError) and self._process:
            line = str(message.errors(include_url=False)[0]["input"]).strip()
            self._stray_line = line or self._stray_line
            if re.search("[\"']jsonrpc[\"']", line):  # the line as text, or the repr of the parsed JSON
                self._fault = f"sent a broken message: {line!r}"
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def _on_endless_line(self) -> None:
        self._fault = "sent a line without end"

    @contextlib.asynccontextmanager
    async def _over_http(self) -> AsyncIterator[Any]:
        """The SDK's streams to a URL."""
        url, auth = str(self._config.url), None
        if not self._has_token and logins.read(url):
            from gptsh.tools import oauth  # noqa: PLC0415 - few servers have a login

            auth = self._login = oauth.kept_login(self._config)
        client = http_client(self._config, self._environ, auth, [self._raise_for_status])
        connection = streamable_http_client(url, http_client=client, max_sse_event_size=_MAX_MESSAGE)
        async with client, connection as streams:
            yield streams

    async def _raise_for_status(self, response: httpx2.Response) -> None:
        """Raise HTTPStatusError, with the body that the SDK leaves out, unless the body is a JSON-RPC error.

        Older servers refuse the probe in many ways: the SDK goes on with ``initialize``. Where there is a login, the
        SDK deals with a refusal, and with the answers of the authorization server.
        """
        request, status = response.request, response.status_code
        is_probe = request.headers.get(MCP_METHOD_HEADER) == _PROBE
        if request.method != "POST" or status < _FIRST_ERROR_STATUS or is_probe:
            return
        if self._login and (status in (401, 403) or str(request.url) != str(self._config.url)):
            return
        body = (await response.aread()).decode("utf-8", "replace")
        if '"jsonrpc"' not in body:
            reason = f"answered {status} {response.reason_phrase}: {body}".rstrip(": ")
            if status == HTTPStatus.UNAUTHORIZED and not self._has_token:
                reason = f"wants a login: run 'gptsh --login {self._config.name}', or set its headers"
            raise httpx2.HTTPStatusError(reason, request=request, response=response)

    @property
    def _has_token(self) -> bool:
        return any(header.lower() == "authorization" for header in self._config.headers)

    @property
    def _secrets(self) -> frozenset[str]:
        """What is masked in everything from the server: secrets of the config, and tokens."""
        tokens = self._login.context.current_tokens if self._login else None
        held = (tokens.access_token, tokens.refresh_token) if tokens else ()
        return self._config.secrets | {Secret(token) for token in held if token}

    # ---- failures

    async def _error(self, err: BaseException, timeout: float) -> ToolServerError:
        """The error for a server that can no longer be used, with the last lines that it printed."""
        err = _cause(err)
        if self._client is None:
            self._remembered.set_old(False)  # it may since speak the newer protocol alone
        if isinstance(err, ToolServerError):
            return err
        if isinstance(err, MCPError):  # the cause may follow
            with anyio.move_on_after(_EXIT_TIMEOUT):
                while self._failure is None and self._status is None:
                    await anyio.sleep(_EXIT_TIMEOUT / 30)
        if self._failure:
            return self._failure
        reason, secrets = self._reason(err, timeout), self._secrets
        lines = self._last_lines()
        if not lines and self._stray_line and not self._fault:
            lines = [f"printed {self._stray_line!r}"]
        lines = [mask(line, secrets) for line in lines]
        what = f"tool server {self._config.name} {shorten(mask(reason, secrets), _WIDTH)}"
        hint = shorten(" / ".join(lines[-_LINES[0] :]), _WIDTH)
        self._failure = ToolServerError(what, hint, detail="\n".join(lines[-_LINES[1] :]))
        self._failure.__suppress_context__ = True  # its causes may show a key
        return self._failure

    @property
    def _status(self) -> int | None:
        return self._process.poll() if self._process else None

    def _reason(self, err: BaseException, timeout: float) -> str:
        """What the server did wrong: the predicate of a sentence with its name."""
        status = self._status
        match err:
            case _ if self._fault:
                return self._fault
            case _ if status is not None and status < 0:
                return f"was ended by {signal.strsignal(-status)}"
            case _ if status is not None:
                return f"ended with exit status {status}"
            case TimeoutError():
                return f"did not answer within {timeout:g} s"
            case MCPError(code=code, message=message):
                return "closed the connection" if code == mcp_types.CONNECTION_CLOSED else f"refused: {message}"
            case ValidationError():
                first = err.errors(include_url=False, include_input=False)[0]
                return f"sent an invalid answer: {'.'.join(map(str, first['loc']))}: {first['msg']}"
            case _ if self._login and type(err).__name__.startswith("OAuth"):  # its text quotes secrets
                return f"cannot renew its login: run 'gptsh --login {self._config.name}'"
            case httpx2.HTTPStatusError() | _TooLarge():
                return str(err)
            case httpx2.ConnectError() | httpx2.ConnectTimeout():
                return f"cannot be reached: {err}"
            case RuntimeError():  # only the handshake raises it
                return f"speaks another protocol: {err}"
        return f"failed: {err}"

    def _last_lines(self) -> list[str]:
        """The last lines of stderr."""
        if self._stderr is None:
            return []
        size = os.fstat(self._stderr.fileno()).st_size
        # Not with ``seek``: the process shares the position in the file.
        data = os.pread(self._stderr.fileno(), _STDERR_TAIL, max(0, size - _STDERR_TAIL))
        if size > _STDERR_TAIL:
            data = data.partition(b"\n")[2]  # a partial line may start within a key, which could not be masked
        return [line.strip() for line in data.decode("utf-8", "replace").split("\n") if line.strip()]


class _TooLarge(Exception):
    """A server sent more than gptsh accepts."""


class _Lines(anyio.AsyncFile[str]):
    """The stdout of a process, line by line, with lone surrogates as U+FFFD.

    At a line that would fill the memory, it calls ``on_endless_line`` and ends.
    """

    def __init__(self, stdout: IO[str], on_endless_line: Callable[[], None]) -> None:
        super().__init__(stdout)
        self._on_endless_line = on_endless_line

    async def readline(self) -> str:
        line = await anyio.to_thread.run_sync(self.wrapped.readline, _MAX_MESSAGE)
        if len(line) == _MAX_MESSAGE:
            self._on_endless_line()
            return ""
        return _LONE_SURROGATE.sub(lambda match: match[1] or r"\ufffd", line)


class _Requests(anyio.AsyncFile[str]):
    """The stdin of a process. What a process does not read is dropped: the end of its stdout shows that it ended.

    Raised from here, the error would end the SDK's tasks at once, with the reason still unread on stdout.
    """

    async def write(self, b: str) -> int:
        with contextlib.suppress(BrokenPipeError):
            await super().write(b)
        return len(b)

    async def flush(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            await super().flush()


async def _list_tools(client: Client) -> list[Tool]:
    """List the tools. Raises _TooLarge for too many."""
    tools: list[Tool] = []
    cursor: str | None = None
    characters = 0
    for _ in range(_MAX_PAGES):
        try:
            page = await client.list_tools(cursor=cursor)
        except MCPError as err:
            if err.code != mcp_types.METHOD_NOT_FOUND:
                raise
            return tools  # it offers only other things, such as resources
        for tool in page.tools:
            tools.append(Tool(tool.name, tool.description or tool.title or "", tool.input_schema))
            characters += len(tools[-1].description) + len(json.dumps(tool.input_schema))
            if len(tools) > _MAX_TOOLS or characters > _MAX_CHARACTERS:
                raise _TooLarge(f"lists more than {_MAX_TOOLS:,} tools, or {_MAX_CHARACTERS:,} characters of them")
        cursor = page.next_cursor
        if not cursor:
            return tools
    raise _TooLarge(f"lists its tools on more than {_MAX_PAGES} pages")


async def _accept(name: str, result: object) -> None:
    """Accept every result of a tool."""


def _cause(err: BaseException) -> BaseException:
    """The first error of a group."""
    while isinstance(err, BaseExceptionGroup):
        err = err.exceptions[0]
    return err


def _error_result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": f"error: {text}"}], "isError": True}
