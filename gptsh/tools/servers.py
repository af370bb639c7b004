"""One MCP server as the SDK talks to it, in an asyncio loop. Imported late: the SDK takes half a second and more."""

import contextlib
import json
import os
import re
import signal
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import IO, Any

import anyio
import httpx2
import mcp_types
from mcp import ClientSession, MCPError
from mcp.client import IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from pydantic import ValidationError

from gptsh import __version__
from gptsh.config.mcp_servers import ToolServer
from gptsh.config.secret import mask
from gptsh.errors import ToolServerError
from gptsh.messages import Tool
from gptsh.text import shorten

Opened = tuple[str, list[Tool]]  # the name of a server that is ready, and its tools under their own names

_STARTING = 30.0  # seconds, where the config names none
_CALLING = 300.0
_CONNECTING = 30.0
_EXITING = 0.3  # seconds until the exit status of a process, or what broke a connection, is known
_LARGEST = 1 << 26  # bytes of an event over HTTP, characters of a line
_MOST_TOOLS, _MOST_PAGES = 2000, 200  # of a server
_MOST_CHARACTERS = 4_000_000  # of their descriptions and schemas: more than any window holds
_TAIL = 20_000  # bytes at the end of stderr that are looked at
_LINES = (2, 20)  # of stderr in an error's line, and in its detail
_WIDTH = 200  # characters of a server's own words in an error's line
_LOOPBACK = ("localhost", "127.0.0.1", "::1")  # never proxied: a proxy's loopback is another machine
_REFUSED = 400  # and above: status of a refusal
_CLOSED = ("Connection closed", "SSE stream")  # the SDK's words for an end; servers use its code for their own errors


class Server:
    """A tool server from its first message to its last: a process and the file with its stderr, or a URL."""

    def __init__(
        self,
        config: ToolServer,
        environ: Mapping[str, str],
        process: "subprocess.Popen[str] | None",
        stderr: IO[bytes] | None,
    ) -> None:
        self._config, self._environ, self._process, self._stderr = config, environ, process, stderr
        self._session: ClientSession | None = None
        self._failure: ToolServerError | None = None
        self._stray = ""  # the last line on its stdout that was no message
        self._garbled = False  # that line was to be one

    async def serve(self, report: Callable[[Opened | ToolServerError], None]) -> None:
        """Connect, report the tools or what failed, and stay connected until cancelled."""
        transport = self._over_pipes(self._process) if self._process else self._over_http()
        us = mcp_types.Implementation(name="gptsh", version=__version__)
        patience = self._config.timeout or _STARTING
        try:
            async with (
                transport as (incoming, outgoing),
                ClientSession(incoming, outgoing, client_info=us, message_handler=self._on_message) as session,
            ):
                try:
                    with anyio.fail_after(patience):
                        tools = await _tools(session)
                except Exception as err:  # noqa: BLE001 - reported before the transport ends, which may take long
                    report(await self._failed(err, patience))
                    return
                self._session = session
                report((self._config.name, tools))
                await anyio.sleep_forever()
        except Exception as err:  # noqa: BLE001 - the SDK's transports raise groups of anything
            report(await self._failed(err, patience))

    async def call(self, tool: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """A tool's ``CallToolResult``, and after how many milliseconds. Raises ToolServerError."""
        assert self._session  # it has reported its tools
        started = time.monotonic()
        patience = self._config.timeout or _CALLING
        # Not ``call_tool``, which holds a result against the tool's own schema: that is for the model to judge.
        request = mcp_types.CallToolRequest(params=mcp_types.CallToolRequestParams(name=tool, arguments=arguments))
        try:
            with anyio.fail_after(patience):
                found = await self._session.send_request(request, mcp_types.CallToolResult)
            result = found.model_dump(mode="json", by_alias=True, exclude_unset=True)
        except TimeoutError as err:
            raise await self._failed(err, patience) from None
        except MCPError as err:
            if err.code == mcp_types.CONNECTION_CLOSED and err.message.startswith(_CLOSED):
                raise await self._failed(err, patience) from None
            result = _error(err.message)
        except ValidationError:
            result = _error("the result cannot be read")
        except ValueError as err:
            result = _error(f"the arguments cannot be sent: {err}")
        keys = [json.dumps(key, ensure_ascii=False)[1:-1] for key in self._config.secrets]
        masked_result: dict[str, Any] = json.loads(mask(json.dumps(result, ensure_ascii=False), keys))
        return masked_result, round(1000 * (time.monotonic() - started))

    # ---- transports

    @contextlib.asynccontextmanager
    async def _over_pipes(self, process: "subprocess.Popen[str]") -> AsyncIterator[Any]:
        """The SDK's streams over the pipes of a process, whose input ends with them.

        The SDK's stdio transport for servers takes any two files; that for clients starts the process itself, when the
        SDK is loaded, and does not give its id, without which a run cannot kill it.
        """
        assert process.stdin
        assert process.stdout
        with process.stdout, contextlib.suppress(BrokenPipeError):
            async with stdio_server(_Lines(process.stdout), anyio.wrap_file(process.stdin)) as streams:
                try:
                    yield streams
                finally:
                    with contextlib.suppress(BrokenPipeError):
                        process.stdin.close()

    async def _on_message(self, message: IncomingMessage) -> None:
        """Remember a line that is no message, as a banner; kill a process that writes half a message."""
        if isinstance(message, ValidationError) and self._process:
            line = str(message.errors(include_url=False)[0]["input"]).strip()
            self._stray = line or self._stray
            if re.search("[\"']jsonrpc[\"']", line):  # as text, or parsed where it is JSON
                self._garbled = True
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    @contextlib.asynccontextmanager
    async def _over_http(self) -> AsyncIterator[Any]:
        """The SDK's streams to a URL."""
        url = httpx2.URL(str(self._config.url))
        bundle = self._environ.get("REQUESTS_CA_BUNDLE")  # which httpx does not know
        client = httpx2.AsyncClient(
            headers=dict(self._config.headers),
            timeout=httpx2.Timeout(_CONNECTING, read=None),
            trust_env=url.host not in _LOOPBACK,
            verify=ssl.create_default_context(cafile=bundle) if bundle else True,
            event_hooks={"response": [_refuse]},
        )
        async with client, streamable_http_client(str(url), http_client=client, max_sse_event_size=_LARGEST) as streams:
            yield streams

    # ---- failures

    async def _failed(self, err: BaseException, patience: float) -> ToolServerError:
        """Why the server is of no use any more, with its last words."""
        while isinstance(err, BaseExceptionGroup):
            err = err.exceptions[0]
        if isinstance(err, MCPError):
            with anyio.move_on_after(_EXITING):
                while self._failure is None and self._status is None:
                    await anyio.sleep(_EXITING / 30)
        if self._failure:
            return self._failure
        reason, secrets = self._reason(err, patience), self._config.secrets
        lines = self._last_lines() or ([] if self._garbled or not self._stray else [f"printed {self._stray!r}"])
        lines = [mask(line, secrets) for line in lines]
        what = f"tool server {self._config.name} {shorten(mask(reason, secrets), _WIDTH)}"
        said = shorten(" / ".join(lines[-_LINES[0] :]), _WIDTH)
        self._failure = ToolServerError(what, said, detail="\n".join(lines[-_LINES[1] :]))
        self._failure.__suppress_context__ = True  # its causes may show a key
        return self._failure

    @property
    def _status(self) -> int | None:
        return self._process.poll() if self._process else None

    def _reason(self, err: BaseException, patience: float) -> str:
        """What is wrong, as it goes on behind the server's name."""
        status = self._status
        match err:
            case _ if self._garbled:
                return f"answered what is no JSON-RPC: {self._stray!r}"
            case _ if status is not None and status < 0:
                return f"was ended by {signal.strsignal(-status)}"
            case _ if status is not None:
                return f"ended with exit status {status}"
            case TimeoutError():
                return f"did not answer within {patience:g} s"
            case MCPError(code=code, message=message):
                return "closed the connection" if code == mcp_types.CONNECTION_CLOSED else f"refused: {message}"
            case ValidationError():
                first = err.errors(include_url=False, include_input=False)[0]
                return f"answered what MCP does not know: {'.'.join(map(str, first['loc']))}: {first['msg']}"
            case httpx2.HTTPStatusError() | _TooMuch():
                return str(err)
            case httpx2.ConnectError() | httpx2.ConnectTimeout():
                return f"cannot be reached: {err}"
            case RuntimeError():  # from the handshake alone
                return f"speaks another protocol: {err}"
        return f"failed: {err}"

    def _last_lines(self) -> list[str]:
        """The last lines of stderr."""
        if self._stderr is None:
            return []
        size = os.fstat(self._stderr.fileno()).st_size
        # Not by ``seek``: the process shares the position.
        data = os.pread(self._stderr.fileno(), _TAIL, max(0, size - _TAIL))
        if size > _TAIL:
            data = data.partition(b"\n")[2]  # what is left of a line may begin within a key
        return [line.strip() for line in data.decode("utf-8", "replace").split("\n") if line.strip()]


class _TooMuch(Exception):
    """A server sends more than anybody has a use for."""


class _Lines(anyio.AsyncFile[str]):
    """The lines of a process. Raises _TooMuch for one that would take all memory."""

    async def readline(self) -> str:
        line = await anyio.to_thread.run_sync(self.wrapped.readline, _LARGEST)
        if len(line) == _LARGEST:
            raise _TooMuch("sent a line without end")
        return line


async def _tools(session: ClientSession) -> list[Tool]:
    """Agree on a protocol and list the tools. Raises _TooMuch where there is no end of them."""
    try:
        await session.initialize()
    except MCPError as err:
        if err.code not in (mcp_types.UNSUPPORTED_PROTOCOL_VERSION, mcp_types.METHOD_NOT_FOUND):
            raise
        await session.discover()  # servers of 2026 may know no other way
    tools: list[Tool] = []
    cursor: str | None = None
    characters = 0
    for _ in range(_MOST_PAGES):
        try:
            page = await session.list_tools(params=mcp_types.PaginatedRequestParams(cursor=cursor) if cursor else None)
        except MCPError as err:
            if err.code != mcp_types.METHOD_NOT_FOUND:
                raise
            return tools  # it offers something else, such as resources
        for tool in page.tools:
            tools.append(Tool(tool.name, tool.description or tool.title or "", tool.input_schema))
            characters += len(tools[-1].description) + len(json.dumps(tool.input_schema))
            if len(tools) > _MOST_TOOLS or characters > _MOST_CHARACTERS:
                raise _TooMuch(f"lists more than {_MOST_TOOLS:,} tools, or {_MOST_CHARACTERS:,} characters of them")
        cursor = page.next_cursor
        if not cursor:
            return tools
    raise _TooMuch(f"lists its tools on more than {_MOST_PAGES} pages")


async def _refuse(response: httpx2.Response) -> None:
    """Raise HTTPStatusError for a refusal that is none of MCP's, with the words that the SDK leaves out."""
    if response.request.method == "POST" and response.status_code >= _REFUSED:
        body = (await response.aread()).decode("utf-8", "replace")
        if '"jsonrpc"' not in body:
            said = f"answered {response.status_code} {response.reason_phrase}: {body}"
            raise httpx2.HTTPStatusError(said.rstrip(": "), request=response.request, response=response)


def _error(what: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": f"error: {what}"}], "isError": True}
