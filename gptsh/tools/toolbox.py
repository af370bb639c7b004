"""Start the tool servers of a run, offer their tools to the model, and call them."""

import base64
import contextlib
import gc
import hashlib
import importlib.util
import json
import queue
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from gptsh.config.tool_servers import SEPARATOR, ToolServer
from gptsh.content.attachments import SENDABLE, detect_type, media_part
from gptsh.errors import ConfigError, ToolServerError
from gptsh.jsonio import JsonObject
from gptsh.messages import (
    Answering,
    Call,
    Message,
    Part,
    ServerQuestion,
    Tool,
    ToolResult,
    error_result,
)
from gptsh.terminal.interrupts import receive
from gptsh.text import format_size
from gptsh.tools.programs import Programs

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from gptsh.tools.connection import Connection, Report

    # The ``CallToolResult`` of a call, and its duration in milliseconds.
    _Outcome = Future[tuple[JsonObject, int]]

# ---- names

ToolKey = tuple[str, str]  # the name of a server, and the tool's name on it

_MAX_NAME = 64  # characters; no provider accepts more
_HASH_LENGTH = 8  # characters


def names_for_model(tools: Iterable[ToolKey]) -> dict[ToolKey, str]:
    """Return unique names ``SERVER__TOOL`` with characters that every provider accepts.

    A hash replaces the end of a long name, and is added to names that would be equal. So a name
    does not depend on the order of the tools.
    """
    safe_names = {key: re.sub("[^a-zA-Z0-9_-]", "_", SEPARATOR.join(key)) for key in tools}
    counts = Counter(safe_names.values())
    names = {}
    for key, name in safe_names.items():
        if counts[name] > 1 or len(name) > _MAX_NAME:
            identity = "\0".join(key).encode("utf-8", "surrogatepass")
            digest = hashlib.sha256(identity).hexdigest()[:_HASH_LENGTH]
            name = f"{name[: _MAX_NAME - _HASH_LENGTH - 1]}_{digest}"
        names[key] = name
    return names


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a tool's name on its server equals a pattern, or matches it as in a shell."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


# ---- results


def result_message(call: Call, result: JsonObject, duration_ms: int) -> Message:
    """Turn a ``CallToolResult`` of MCP into a message with the role ``tool``.

    ``raw`` has structured content that the text does not repeat, and the ``blocks`` that no model
    accepts.
    """
    blocks: list[JsonObject] = result.get("content") or []
    structured = result.get("structuredContent")
    content: str | list[Part]
    unsent = []
    if all(block["type"] == "text" for block in blocks):
        content = "\n".join(block["text"] for block in blocks)
        if not content and structured is not None:
            content = json.dumps(structured, ensure_ascii=False)
    else:
        content = []
        for block in blocks:
            converted = _convert(block)
            content.append(converted.part)
            if not converted.is_accepted:
                unsent.append(block)

    message: Message = {
        "role": "tool",
        "tool_call_id": call["id"],
        "name": call["function"]["name"],
        "content": content,
        "is_error": result.get("isError") is True,
        "duration_ms": duration_ms,
    }
    raw: JsonObject = {}
    if structured is not None and not _repeats(content, structured):
        raw["structured"] = structured
    if unsent:
        raw["blocks"] = unsent
    if raw:
        message["raw"] = raw
    return message


class _Converted(NamedTuple):
    """A block as a part of a message. What no model accepts is a placeholder there."""

    part: Part
    is_accepted: bool = True


def _convert(block: JsonObject) -> _Converted:
    """Return a block of a result as a part."""
    match block:
        case {"type": "text", "text": text}:
            return _text(text)
        case {"type": "image" | "audio", "data": data}:
            return _media(block, data)
        case {"type": "resource", "resource": {"blob": data} as resource}:
            return _media(resource, data)
        case {"type": "resource", "resource": {"uri": uri, "text": text}}:
            return _text(f"{uri}:\n{text}")
    # A link to a resource.
    title = block.get("title") or block.get("name")
    link = [title, block.get("uri"), block.get("description")]
    return _text(" ".join(text for text in link if text))


def _text(text: str) -> _Converted:
    return _Converted({"type": "text", "text": text})


def _media(source: JsonObject, data: str) -> _Converted:
    """Return base64 data as a part; the bytes decide its type. Only data with a URI may be text.

    The placeholder for data that no model accepts is such as ``[application/zip, 3 bytes]``.
    """
    uri = source.get("uri", "")
    heading = f"{uri}:\n" if uri else ""
    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        content = b""
    media_type = detect_type(content) if content else None
    if content and media_type is None and uri:
        return _text(heading + content.decode(errors="surrogateescape"))
    if media_type in SENDABLE:
        part = media_part(uri, media_type, content)
        if not uri:
            part.pop("source")
        return _Converted(part)
    size = format_size(len(content))
    if data and not content:  # the decoding has failed
        size = "invalid base64"
    mime_type = source.get("mimeType") or "application/octet-stream"
    placeholder = {"type": "text", "text": f"{heading}[{mime_type}, {size}]"}
    return _Converted(placeholder, is_accepted=False)


def _repeats(content: str | list[Part], structured: object) -> bool:
    """Return whether the text repeats structured content, which may be in ``result``."""
    if not isinstance(content, str):
        return False
    values = [structured]
    if isinstance(structured, dict) and set(structured) == {"result"}:
        values.append(structured["result"])
    try:
        return content in values or json.loads(content) in values
    except (ValueError, RecursionError):
        return False


# ---- toolbox
#
# The MCP SDK serves all servers in a thread with an asyncio loop. Signals reach the main thread,
# which waits for reports and results of that thread, and ends the servers.

INSTALL = (
    "run pipx inject gptsh 'mcp>=2.3,<3', or uv tool install '.[mcp]' in the clone; "
    "--no-tools leaves tools out"
)
_NO_TASKS = "runs only as a task, which gptsh does not support"
_MAX_LISTED = 20  # tools that an error lists


class _Asked(NamedTuple):
    """A question of a server, and where it waits for the user's answer: None to decline."""

    question: ServerQuestion
    answer: "Future[JsonObject | None]"


class _CannotStart(Exception):
    """A call that cannot be started. Its text tells the model why."""


class OfferedTool(NamedTuple):
    """A tool with its name for the model, its server, and ``name_on_server``."""

    tool: Tool
    server: str
    name_on_server: str
    auto_approve: bool


class Toolbox:
    """Tools of servers, which ``start`` starts and ``close`` ends.

    A pattern that matches no tool is added to ``missing`` as ``SERVER__PATTERN``; it is an error
    unless ``lenient``. If a server cannot be used, ``on_error`` gets the error and the others are
    used; without ``on_error`` it is raised.
    """

    def __init__(
        self,
        servers: Sequence[ToolServer],
        environ: Mapping[str, str],
        *,
        lenient: bool = False,
        on_error: Callable[[ToolServerError], None] | None = None,
    ) -> None:
        self.missing: list[str] = []
        self._lenient = lenient
        self._on_error = on_error
        self._environ = environ
        self._servers = {server.name: server for server in servers}
        self._failed: set[str] = set()  # the servers that ``on_error`` was called for
        self._offered: dict[str, OfferedTool] | None = None  # by their names for the model

        self._programs = Programs(environ)
        self._thread = threading.Thread(target=self._run, name="tools", daemon=True)
        self._reports: queue.SimpleQueue[Report | BaseException] = queue.SimpleQueue()
        # While ``run`` runs: the calls that have ended, and questions of servers.
        self._arrivals: queue.SimpleQueue[_Outcome | _Asked] | None = None
        self._connections: dict[str, Connection] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serve_task: asyncio.Task[None] | None = None
        self._is_closing = False

    # ---- start and end

    def start(self) -> None:
        """Start all servers in parallel. Raises ConfigError if the SDK is missing."""
        if not self._servers:
            return
        if importlib.util.find_spec("mcp") is None:
            raise ConfigError("tools need the package mcp", INSTALL)
        self._thread.start()

    def close(self) -> None:
        """End all servers, within about two seconds. May be called again."""
        if self._is_closing:
            return
        self._is_closing = True
        self._programs.forbid_starts()
        if self._loop and self._serve_task:
            with contextlib.suppress(RuntimeError):  # raised if the loop has ended
                self._loop.call_soon_threadsafe(self._serve_task.cancel)
        else:
            self._programs.close_stdin()
        self._programs.end(self._thread.is_alive)

    def kill(self) -> None:
        """Kill all programs at once, for a run that is itself being killed."""
        self._programs.kill()

    @property
    def ready(self) -> bool:
        """Whether all servers have listed their tools."""
        return self._offered is not None

    @property
    def has_ended_server(self) -> bool:
        """Whether a server has ended since it listed its tools, so that all must start again."""
        return self.ready and self._programs.any_ended(besides=self._failed)

    # ---- the thread

    def _run(self) -> None:
        """Start the programs, import the SDK while they start up, and serve them until the end."""
        try:
            for server in self._servers.values():
                if server.command:
                    try:
                        self._programs.start(server)
                    except ToolServerError as err:
                        self._reports.put((server.name, err))
            import asyncio

            asyncio.run(self._serve(_import_connection()))
        except BaseException as err:  # noqa: BLE001 - raised in the main thread, which waits for it
            self._reports.put(err)

    async def _serve(self, connection_class: "type[Connection]") -> None:
        """Serve all servers until the task is cancelled."""
        import asyncio

        for name, server in self._servers.items():
            # A program that could not be started has already been reported.
            if not server.command or name in self._programs:
                connection = connection_class(server, self._environ, self._programs, self._ask)
                self._connections[name] = connection
        if self._is_closing:
            return
        async with asyncio.TaskGroup() as tasks:
            for connection in self._connections.values():
                tasks.create_task(connection.serve(self._reports.put))
            self._serve_task = asyncio.current_task()
            self._loop = asyncio.get_running_loop()
            await self._loop.create_future()  # until the task is cancelled

    def _ask(self, question: ServerQuestion) -> "Future[JsonObject | None]":
        """Hand a server's question to ``run``; decline it if no call runs."""
        from concurrent.futures import Future

        answer: Future[JsonObject | None] = Future()
        arrivals = self._arrivals  # read once, because the main thread may set it to None
        if arrivals:
            arrivals.put(_Asked(question, answer))
        else:
            answer.set_result(None)
        return answer

    # ---- the tools

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools, once all servers are ready. Raises what ``offered`` raises."""
        return tuple(offered.tool for offered in self.offered())

    def offered(self) -> tuple[OfferedTool, ...]:
        """Return the tools, once all servers are ready.

        Raises ToolServerError, and ConfigError for a wrong pattern.
        """
        if self._offered is None:
            self._offered = self._select(self._wait_for_servers())
        return tuple(self._offered.values())

    def notes(self) -> Iterator[str]:
        """Yield a note for each selected tool that ``offered`` had to leave out."""
        for server, connection in self._connections.items():
            for tool in connection.task_tools:
                if matches(tool, self._servers[server].tools):
                    yield f"{server}{SEPARATOR}{tool} is not offered because it {_NO_TASKS}"

    def _wait_for_servers(self) -> dict[str, list[Tool]]:
        """Return the tools of each server that can be used. Raises what has ended the thread."""
        listed: dict[str, list[Tool]] = {}
        while len(listed) + len(self._failed) < len(self._servers):
            report = receive(self._reports)
            if isinstance(report, BaseException):
                raise report
            server, result = report
            if not isinstance(result, ToolServerError):
                listed[server] = result
            elif self._on_error is None:
                raise result
            elif server not in self._failed:
                self._failed.add(server)
                listed.pop(server, None)
                self._on_error(result)
        return listed

    def _select(self, listed: Mapping[str, Sequence[Tool]]) -> dict[str, OfferedTool]:
        """Return the tools that the patterns select, by their names for the model.

        The tools have the order of the config and of each server.
        """
        selected: dict[ToolKey, Tool] = {}
        for name, server in self._servers.items():
            tools = listed.get(name)
            if tools is None:
                continue
            self._check_patterns(server, tools)
            for tool in tools:
                if matches(tool.name, server.tools):
                    # Of two tools with the same name, the first.
                    selected.setdefault((name, tool.name), tool)

        offered = {}
        for key, name in names_for_model(selected).items():
            server_name, name_on_server = key
            auto_approve = matches(name_on_server, self._servers[server_name].auto_approve)
            tool = selected[key]._replace(name=name)
            offered[name] = OfferedTool(tool, server_name, name_on_server, auto_approve)
        return offered

    def _check_patterns(self, server: ToolServer, tools: Sequence[Tool]) -> None:
        """Add each pattern without a tool to ``missing``. Raises ConfigError unless lenient."""
        for pattern in server.tools:
            if pattern == "*" or any(matches(tool.name, [pattern]) for tool in tools):
                continue
            self.missing.append(f"{server.name}{SEPARATOR}{pattern}")
            if self._lenient:
                continue
            if pattern in self._connections[server.name].task_tools:
                raise ConfigError(f"{server.name}{SEPARATOR}{pattern} {_NO_TASKS}")
            names = ", ".join(tool.name for tool in tools[:_MAX_LISTED]) or "none"
            advice = f"it has {names}; choose with --tools, or add --no-tools"
            raise ConfigError(f"tool server {server.name} has no tool {pattern!r}", advice)

    # ---- calls

    def needs_approval(self, call: Call) -> ToolKey | None:
        """Return the server and the tool of a call that the user has to approve.

        Return None if the server's configuration allows it, or if there is no such tool.
        """
        offered = (self._offered or {}).get(call["function"]["name"])
        if offered is None or offered.auto_approve:
            return None
        return offered.server, offered.name_on_server

    def run(self, calls: Sequence[Call], answer: Answering) -> Iterator[ToolResult]:
        """Run the calls in parallel; yield each result as it arrives.

        A call that cannot start gets an error result. ``answer`` answers the questions of the
        servers, as in ``Tools``. Raises ToolServerError after the results of all other calls.
        """
        arrivals: queue.SimpleQueue[_Outcome | _Asked] = queue.SimpleQueue()
        self._arrivals = arrivals
        running: dict[_Outcome, Call] = {}
        not_started: list[ToolResult] = []
        for call in calls:
            try:
                running[self._start_call(call)] = call
            except _CannotStart as err:
                not_started.append(ToolResult(error_result(call, f"error: {err}")))

        failure: ToolServerError | None = None
        try:
            yield from not_started
            for future in running:
                future.add_done_callback(arrivals.put)
            unfinished = len(running)
            while unfinished:
                arrival = receive(arrivals)
                if isinstance(arrival, _Asked):
                    if arrival.answer.set_running_or_notify_cancel():  # False: its server has ended
                        arrival.answer.set_result(answer(arrival.question))
                    continue
                unfinished -= 1
                error = arrival.exception()
                if isinstance(error, ToolServerError):
                    failure = failure or error
                else:
                    yield ToolResult(result_message(running[arrival], *arrival.result()))
        finally:
            self._arrivals = None
            for future in running:
                future.cancel()
        if failure:
            raise failure

    def _start_call(self, call: Call) -> "_Outcome":
        """Start a call, see ``Connection.call``. Raises _CannotStart."""
        name = call["function"]["name"]
        offered = (self._offered or {}).get(name)
        if offered is None:
            raise _CannotStart(self._no_tool(name))
        arguments = _arguments_of(call)
        if arguments is None:
            raise _CannotStart("the arguments are not a JSON object, so the tool was not called")
        import asyncio

        assert self._loop  # its thread has reported the tool
        connection = self._connections[offered.server]
        coroutine = connection.call(offered.name_on_server, arguments)
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _no_tool(self, name: str) -> str:
        """Return what the model is told of a tool that does not exist."""
        import difflib

        offered = list(self._offered or ())
        similar = difflib.get_close_matches(name, offered, cutoff=0.5)
        if similar:
            return f"there is no tool {name!r}; did you mean {' or '.join(similar)}?"
        if offered:
            return f"there is no tool {name!r}; choose from {', '.join(offered[:_MAX_LISTED])}"
        return f"there is no tool {name!r}"


def _arguments_of(call: Call) -> JsonObject | None:
    """Return the arguments of a call; None if they are not a JSON object that can be sent."""
    try:
        arguments = json.loads(call["function"].get("arguments") or "{}")
        # Raises ValueError for NaN and for half a surrogate pair, which MCP cannot send.
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        return None
    if arguments is None:  # as some models write it
        return {}
    return arguments if isinstance(arguments, dict) else None


def _import_connection() -> "type[Connection]":
    """Import the SDK, quietly and quickly. Raises ConfigError if it cannot be imported."""
    import logging
    import warnings

    logging.getLogger().addHandler(logging.NullHandler())  # without one Python prints SDK logs
    is_collecting = gc.isenabled()
    gc.disable()  # collections are a fifth of the import, and the SDK's objects stay anyway
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from gptsh.tools.connection import Connection
    except ImportError as err:
        raise ConfigError(f"the package mcp cannot be used: {err}", INSTALL) from err
    finally:
        gc.freeze()
        if is_collecting:
            gc.enable()
    return Connection
