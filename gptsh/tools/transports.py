"""Send and receive messages of MCP through the pipes of a program, or over HTTP."""

import contextlib
import json
import os
import re
import signal
import ssl
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from itertools import groupby
from typing import IO, TYPE_CHECKING

import anyio
import httpx2
from mcp.client import IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.shared.inbound import MCP_METHOD_HEADER
from pydantic import ValidationError

from gptsh.config.schema import Secret
from gptsh.config.tool_servers import ToolServer
from gptsh.jsonio import as_dict
from gptsh.text import format_size, html_title
from gptsh.tools.logins import LOOPBACK
from gptsh.tools.programs import Programs

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp.client.auth import OAuthClientProvider


# ---- messages with many parts

_MAX_PARTS = 10_000  # of a list in a result; the SDK needs 2 kB of memory for each


def shorten_message(message: str) -> str:
    """Return a message of JSON-RPC, with lists in its result cut to ``_MAX_PARTS``.

    Adjacent texts of a tool's result are joined first, a line each, and a part says how many parts
    were cut. A list of tools is cut, too, and refused where it is read.
    """
    if message.count("{") <= _MAX_PARTS:
        return message
    try:
        content = json.loads(message)
        result = content["result"]
        lists = {key: items for key, items in result.items() if isinstance(items, list)}
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return message  # the SDK reports what is wrong with it
    for key, items in lists.items():
        if len(items) > _MAX_PARTS:
            result[key] = _fewer(items) if key == "content" else items[:_MAX_PARTS]
    return json.dumps(content)


def _fewer(parts: list[object]) -> list[object]:
    """Return the parts with adjacent texts joined, and cut if they are still many."""
    fewer: list[object] = []
    for is_text, group in groupby(parts, _is_text):
        if is_text:
            texts = [as_dict(part)["text"] for part in group]
            fewer.append(_text("\n".join(texts)))
        else:
            fewer.extend(group)
    if len(fewer) > _MAX_PARTS:
        more = len(fewer) - _MAX_PARTS
        fewer[_MAX_PARTS:] = [_text(f"[gptsh: {more:,} more parts are left out here]")]
    return fewer


def _is_text(part: object) -> bool:
    fields = as_dict(part)
    return fields.get("type") == "text" and isinstance(fields.get("text"), str)


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


# ---- pipes

_MAX_LINE = 1 << 26  # characters
_STDERR_TAIL = 20_000  # bytes at the end of stderr that errors quote from
# In JSON: an escaped backslash or a surrogate pair (group 1), else a lone surrogate, which the
# SDK's parser refuses.
_LONE_SURROGATE = re.compile(r"(\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F]..")


class Pipes:
    """MCP over stdin and stdout of a server that is one of the running programs."""

    secrets: frozenset[str] = frozenset()  # the config has all of a program's

    def __init__(self, server: ToolServer, programs: Programs) -> None:
        self._server = server
        self._programs = programs
        self._program = programs[server.name]
        self._stray_line = ""  # the last line on its stdout that is not a message
        self.fault = ""  # what was wrong with its output, in the form of ``reason``

    def start_again(self) -> None:
        """Start a program again that ended when it was asked for the new protocol.

        Raises ToolServerError.
        """
        self._program = self._programs.start_again(self._server)

    @contextlib.asynccontextmanager
    async def streams(self) -> AsyncIterator["TransportStreams"]:
        """Open the SDK's streams over the pipes; close the stdin of the process at the end.

        gptsh uses the SDK's stdio transport for servers, which accepts any two files. The transport
        for clients would start the process itself, after the import of the SDK, and would hide the
        process id that is needed to kill it.
        """
        process = self._program.process
        assert process.stdin
        assert process.stdout
        with process.stdout:
            lines = _Lines(process.stdout, self)
            async with stdio_server(lines, _Requests(process.stdin)) as streams:
                try:
                    yield streams
                finally:
                    with contextlib.suppress(BrokenPipeError):
                        process.stdin.close()

    async def on_message(self, message: IncomingMessage) -> None:
        """Remember a stray line, such as a banner; kill a process that writes a broken message."""
        if isinstance(message, ValidationError):
            line = str(message.errors(include_url=False)[0]["input"]).strip()
            self._stray_line = line or self._stray_line
            # The line as text, or the repr of the parsed JSON.
            if re.search("[\"']jsonrpc[\"']", line):
                self.fault = f"sent a broken message: {line!r}"
                self._program.send_signal(signal.SIGKILL)

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._program.process.poll() is not None

    def reason(self, _err: BaseException) -> str:
        """Return what the program did wrong, as the end of a sentence with its name, or ""."""
        status = self._program.process.poll()
        if self.fault or status is None:
            return self.fault
        if status < 0:
            return f"was ended by {signal.strsignal(-status)}"
        return f"ended with exit status {status}"

    def last_lines(self) -> list[str]:
        """Return the last lines of stderr; if it has none, what else the program printed."""
        file = self._program.stderr.fileno()
        size = os.fstat(file).st_size
        # ``seek`` would move the position for the process, too.
        data = os.pread(file, _STDERR_TAIL, max(0, size - _STDERR_TAIL))
        if size > _STDERR_TAIL:
            # A partial line may start within a key, which could not be masked.
            data = data.partition(b"\n")[2]
        text = data.decode("utf-8", "replace")
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        if not lines and self._stray_line and not self.fault:
            lines = [f"printed {self._stray_line!r}"]
        return lines


class _Lines(anyio.AsyncFile[str]):
    """The stdout of a process, line by line, with lone surrogates as U+FFFD and no endless lists.

    The stream ends at a line that would fill the memory.
    """

    def __init__(self, stdout: IO[str], pipes: Pipes) -> None:
        super().__init__(stdout)
        self._pipes = pipes

    async def readline(self) -> str:
        line = await anyio.to_thread.run_sync(self.wrapped.readline, _MAX_LINE)
        if len(line) == _MAX_LINE:
            self._pipes.fault = "sent a line without end"
            return ""
        return shorten_message(_LONE_SURROGATE.sub(lambda match: match[1] or r"\ufffd", line))


class _Requests(anyio.AsyncFile[str]):
    """The stdin of a process, without an error if the process no longer reads it.

    An error would end the SDK's tasks at once, before they have read the reason on stdout. The end
    of stdout shows that the process ended.
    """

    async def write(self, b: str) -> int:
        with contextlib.suppress(BrokenPipeError):
            await super().write(b)
        return len(b)

    async def flush(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            await super().flush()


# ---- http

_CONNECT_TIMEOUT = 30.0  # seconds
_MAX_EVENT = 1 << 26  # bytes, also of an answer in JSON
_EVENT = b"data:"  # before a message that is an event
_OLD_SSE = "seems to use the old SSE transport; gptsh uses streamable HTTP, often at /mcp"
_PROBE = "server/discover"  # the request that only servers of 2026-07-28 and later know


def http_client(
    server: ToolServer,
    environ: Mapping[str, str],
    auth: httpx2.Auth | None,
) -> httpx2.AsyncClient:
    """Return a client with the server's headers, proxy and certificates."""
    bundle = environ.get("REQUESTS_CA_BUNDLE")  # httpx does not read it
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **server.headers},  # sizes are those of the text
        auth=auth,
        timeout=httpx2.Timeout(_CONNECT_TIMEOUT, read=None),
        # No proxy for this machine, because a proxy's loopback is the proxy's own machine.
        trust_env=httpx2.URL(str(server.url)).host not in LOOPBACK,
        verify=ssl.create_default_context(cafile=bundle) if bundle else True,
    )


class StreamableHttp:
    """MCP's streamable HTTP to a URL, with the server's headers or a login."""

    has_ended = False  # nothing shows that a remote server has ended

    def __init__(
        self,
        server: ToolServer,
        environ: Mapping[str, str],
        login: "OAuthClientProvider | None",
    ) -> None:
        self._server = server
        self._login = login
        self._client = http_client(server, environ, login)
        self._client.event_hooks = {"response": [_shorten, self._raise_for_status]}

    @contextlib.asynccontextmanager
    async def streams(self) -> AsyncIterator["TransportStreams"]:
        """Open the SDK's streams to the URL."""
        connection = streamable_http_client(
            str(self._server.url),
            http_client=self._client,
            max_sse_event_size=_MAX_EVENT,
        )
        async with self._client, connection as streams:
            yield streams

    async def _raise_for_status(self, response: httpx2.Response) -> None:
        """Raise HTTPStatusError, with the body that the SDK leaves out.

        The SDK itself handles a JSON-RPC error and, with a login, a refusal. Older servers refuse
        the probe in many ways, and the SDK then continues with ``initialize``.
        """
        request = response.request
        status = response.status_code
        is_probe = request.headers.get(MCP_METHOD_HEADER) == _PROBE
        is_page = response.headers.get("content-type", "").startswith("text/html")
        is_sse = response.url.path.rstrip("/").endswith("/sse")
        if request.method != "POST" or is_probe:
            return
        if is_sse and (is_page or status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)):
            raise httpx2.HTTPStatusError(_OLD_SSE, request=request, response=response)
        if not response.is_error:
            return
        if self._login and status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return
        content = await response.aread()
        body = content.decode("utf-8", "replace")
        if '"jsonrpc"' in body:
            return
        if status == HTTPStatus.UNAUTHORIZED and not self._server.has_token:
            way = f"run 'gptsh --login {self._server.name}', or set its headers"
            reason = f"requires a login: {way}"
        else:
            text = html_title(body) or ("" if is_page else body)
            reason = f"answered {status} {response.reason_phrase}: {text}".rstrip(": ")
        raise httpx2.HTTPStatusError(reason, request=request, response=response)

    async def on_message(self, message: IncomingMessage) -> None:
        """Ignore what is not an answer."""

    @property
    def secrets(self) -> frozenset[str]:
        """The tokens of the login, to be masked in everything from the server."""
        tokens = self._login.context.current_tokens if self._login else None
        if tokens is None:
            return frozenset()
        texts = (tokens.access_token, tokens.refresh_token)
        return frozenset(Secret(text) for text in texts if text)

    def reason(self, err: BaseException) -> str:
        """Return what the server did wrong, as the end of a sentence with its name, or ""."""
        if self._login and type(err).__name__.startswith("OAuth"):  # its text quotes secrets
            return f"cannot renew its login: run 'gptsh --login {self._server.name}'"
        match err:
            case httpx2.HTTPStatusError():
                return str(err)
            case httpx2.ConnectError() | httpx2.ConnectTimeout():
                return f"cannot be reached: {err}"
        return ""

    def last_lines(self) -> list[str]:
        """Return nothing, because a remote server has no stderr here."""
        return []


async def _shorten(response: httpx2.Response) -> None:
    """Shorten endless lists in the messages of a response."""
    if "content-encoding" not in response.headers:  # gptsh asks for none
        is_json = response.headers.get("content-type", "").startswith("application/json")
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # of an AsyncClient
        response.stream = _Messages(response.stream, is_json=is_json)


class _Messages(httpx2.AsyncByteStream):
    """The body of a response: one message in JSON, or lines of events that may have one."""

    def __init__(self, stream: httpx2.AsyncByteStream, *, is_json: bool) -> None:
        self._stream = stream
        self._is_json = is_json

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks: list[bytes] = []  # of the message or line that has not ended
        size = 0
        async for chunk in self._stream:
            newline = -1 if self._is_json else chunk.rfind(b"\n")
            if newline >= 0:
                chunks.append(chunk[:newline])
                for line in b"".join(chunks).split(b"\n"):
                    yield _shortened(line) + b"\n"
                chunk = chunk[newline + 1 :]
                chunks = []
                size = 0
            chunks.append(chunk)
            size += len(chunk)
            if size > _MAX_EVENT:
                raise httpx2.StreamError(f"an answer of more than {format_size(_MAX_EVENT)}")
        yield _shortened(b"".join(chunks))

    async def aclose(self) -> None:
        await self._stream.aclose()


def _shortened(line: bytes) -> bytes:
    """Return a line of a body with a message that ``shorten_message`` has shortened."""
    field = _EVENT if line.startswith(_EVENT) else b""
    text = line.removeprefix(field).decode("utf-8", "surrogateescape")
    return field + shorten_message(text).encode("utf-8", "surrogateescape")
