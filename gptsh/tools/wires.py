"""How a tool server is reached: over the pipes of its process, or by streamable HTTP. Imported late: it loads the SDK.

Either ends with ``Lost`` in its group of exceptions when the server is.
"""

import contextlib
import json
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from gptsh.config.mcp_servers import ToolServer
from gptsh.config.secret import masked
from gptsh.jsonio import as_dict
from gptsh.text import shortened
from gptsh.tools.process import Process

Streams = tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]

_PIECE = 1 << 16  # bytes of a read
_LONGEST = 1 << 26  # bytes of a message
_MOST_NOISE = 1 << 20  # bytes between two messages that are none
_LAST_WORDS = 0.3  # seconds for what a process that has ended still says
_SHOWN = 80  # characters
_MOST_DIGITS = 4000
_DEEPEST = 200  # levels of lists and tables in each other, as the SDK takes them
_CONNECTING = 30.0  # seconds; how long an answer may take is not known here
_LOOPBACK = ("localhost", "127.0.0.1", "::1")  # never proxied: a proxy's loopback is another machine
_REFUSED = 400  # and above: status of a refusal
_ACCEPTED = 202


class Lost(Exception):
    """The server is of no use any more; the text says why, as it goes on behind the server's name."""


# ---- pipes


@contextlib.asynccontextmanager
async def by_pipes(process: Process) -> AsyncIterator[Streams]:
    """The streams of a process. Behind them its input ends."""
    sink, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, source = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with sink, incoming, outgoing, source, anyio.create_task_group() as tasks:
            silent = anyio.Event()
            tasks.start_soon(_keep_errors, process, silent)
            tasks.start_soon(_read, process, sink, silent)
            tasks.start_soon(_write, process, source)
            yield incoming, outgoing
            tasks.cancel_scope.cancel()
    finally:
        process.close_input()


async def _keep_errors(process: Process, silent: anyio.Event) -> None:
    while data := await _some(process.errors):
        process.stderr.feed(data)
    silent.set()


async def _read(
    process: Process, sink: MemoryObjectSendStream[SessionMessage | Exception], silent: anyio.Event
) -> None:
    """Pass each message on. What else stands on a line, as a banner does, is passed over, as long as it is not much."""
    noise = 0
    async for line in _lines(process):
        message = _message(line, process.secrets)
        if message is not None:
            with contextlib.suppress(anyio.BrokenResourceError):  # nobody asks any more
                await sink.send(SessionMessage(message))
            noise = 0
        elif line.strip():
            process.noise = _shown(line, process.secrets)
            noise += len(line)
            if noise > _MOST_NOISE:
                raise Lost(f"answers what is no JSON-RPC, such as {process.noise!r}")
    with anyio.move_on_after(_LAST_WORDS):
        await silent.wait()
        while process.ended is None:
            await anyio.sleep(_LAST_WORDS / 30)
    raise Lost(process.ended or "closed its output")


async def _lines(process: Process) -> AsyncIterator[bytes]:
    """The lines of its output."""
    pieces: list[bytes] = []
    size = 0
    while data := await _some(process.output):
        *lines, rest = data.split(b"\n")
        for line in lines:
            yield b"".join((*pieces, line))
            pieces, size = [], 0
        pieces.append(rest)
        size += len(rest)
        if size > _LONGEST:
            raise Lost(f"answers with a line of more than {_LONGEST:,} bytes")


def _message(line: bytes, secrets: Collection[str]) -> JSONRPCMessage | None:
    """The message on a line; None for what does not claim to be one. Raises Lost for what only claims it."""
    if b'"jsonrpc"' not in line:
        return None
    with contextlib.suppress(ValueError):
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    try:
        found = json.loads(line.decode("utf-8", "surrogateescape"), parse_int=_number)
    except (ValueError, RecursionError) as err:
        raise Lost(f"answered what is no JSON-RPC: {_shown(line, secrets)!r}") from err
    return _answer(as_dict(found))


def _answer(found: Mapping[str, Any]) -> JSONRPCMessage | None:
    """An answer that the SDK cannot read: one odd result is the matter of its call alone. None for what is no answer.

    Half a letter and a byte that is no UTF-8 are let through, as surrogates.
    """
    ident, result = found.get("id"), found.get("result")
    if "method" in found or not isinstance(ident, (int, str)):
        return None
    if isinstance(result, dict) and not _is_deep(result):
        return JSONRPCResponse.model_construct(jsonrpc="2.0", id=ident, result=result)
    said = as_dict(found.get("error")).get("message")
    why = said.encode("utf-8", "replace").decode() if isinstance(said, str) else "the result cannot be read"
    return JSONRPCError(jsonrpc="2.0", id=ident, error=ErrorData(code=PARSE_ERROR, message=why))


def _number(digits: str) -> int | str:
    """A whole number; one of more digits than Python reads stays what it is written as."""
    return int(digits) if len(digits) <= _MOST_DIGITS else digits


def _is_deep(value: Any) -> bool:
    """Whether lists and tables stand in each other so often that a file of them could not be read again."""
    level = [value]
    for _ in range(_DEEPEST):
        tables = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, (dict, list))]
        level = [inner for items in tables for inner in items]
        if not level:
            return False
    return True


def _shown(data: bytes, secrets: Collection[str]) -> str:
    """The beginning of what a server said, the secrets masked before anything is cut off."""
    return shortened(masked(data[:_PIECE].decode("utf-8", "replace"), secrets), _SHOWN)


async def _some(descriptor: int) -> bytes:
    """What can be read, at least a byte of it; empty at the end."""
    await anyio.wait_readable(descriptor)
    return os.read(descriptor, _PIECE)


async def _write(process: Process, source: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async for item in source:
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        rest = memoryview(f"{text}\n".encode())
        while rest:
            await anyio.wait_writable(process.input)
            try:
                rest = rest[os.write(process.input, rest) :]
            except BlockingIOError:
                continue
            except BrokenPipeError as err:
                await anyio.sleep(2 * _LAST_WORDS)  # if it has ended, that is told
                raise Lost("closed its input") from err


# ---- HTTP


@contextlib.asynccontextmanager
async def by_http(server: ToolServer, environ: Mapping[str, str]) -> AsyncIterator[Streams]:
    """The streams of a server that has a URL."""
    url = httpx2.URL(str(server.url))
    client = httpx2.AsyncClient(
        headers=dict(server.headers),
        timeout=httpx2.Timeout(_CONNECTING, read=None),
        trust_env=url.host not in _LOOPBACK,
        verify=_trust(environ),
        event_hooks={"response": [_refusing(server.secrets)]},
    )
    async with client, streamable_http_client(str(url), http_client=client, max_sse_event_size=_LONGEST) as streams:
        yield streams


def _trust(environ: Mapping[str, str]) -> ssl.SSLContext | bool:
    """Whom to believe, as the rest of gptsh does: one of these variables is not known to httpx."""
    bundle = environ.get("REQUESTS_CA_BUNDLE")
    if not bundle or environ.get("SSL_CERT_FILE"):
        return True
    return ssl.create_default_context(**{"capath" if os.path.isdir(bundle) else "cafile": bundle})  # type: ignore[arg-type]


def _refusing(secrets: Collection[str]) -> Callable[[httpx2.Response], Awaitable[None]]:
    """What raises Lost for an answer to a request that is none of MCP's."""

    async def refuse(response: httpx2.Response) -> None:
        if not await _is_fit(response):
            said = _shown(await response.aread(), secrets)
            raise Lost(f"answered {response.status_code} {response.reason_phrase}: {said}".strip(": "))

    return refuse


async def _is_fit(response: httpx2.Response) -> bool:
    """Whether the SDK can make something of an answer."""
    sent = json.loads(response.request.content or b"null") if response.request.method == "POST" else None
    if not isinstance(sent, dict) or not {"id", "method"} <= set(sent) or response.has_redirect_location:
        return True
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.status_code < _REFUSED and (
        kind in ("application/json", "text/event-stream") or response.status_code == _ACCEPTED
    ):
        return True
    return kind == "application/json" and b'"jsonrpc"' in await response.aread()
