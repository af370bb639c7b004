"""Start the tool servers of a run, offer their tools to the model, call them, and turn results into messages."""

import base64
import contextlib
import functools
import gc
import hashlib
import importlib.util
import json
import queue
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from gptsh.config.tool_servers import SEPARATOR, ToolServer
from gptsh.content.attachments import SENDABLE, detect_type, media_part
from gptsh.errors import ConfigError, ToolServerError
from gptsh.jsonio import JsonObject
from gptsh.messages import Answering, Call, Message, Part, ServerQuestion, Tool, ToolResult, error_result
from gptsh.text import format_size
from gptsh.tools.programs import Processes

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from gptsh.tools.connection import AskUser, Connection, Report

    _Asked = tuple[ServerQuestion, Future[JsonObject | None]]
    # The ``CallToolResult`` of a call, and its duration in milliseconds.
    _Outcome = Future[tuple[JsonObject, int]]
    _Arrival = _Outcome | _Asked


# ---- tool names
#
# The names of tools: made unique and valid for every provider, ``SERVER__TOOL``; matched by
# patterns.

ToolKey = tuple[str, str]  # the name of a server, and the tool's name on it

_MAX_NAME = 64  # characters; no provider accepts more
_HASH_LENGTH = 8  # characters


def names_for_model(tools: Iterable[ToolKey]) -> dict[ToolKey, str]:
    """Unique names ``SERVER__TOOL`` with characters that every provider accepts, whatever the order of the tools.

    A hash replaces the end of a long name, and is added to equal names. Of tools with equal names, the only one
    without replaced characters keeps its name.
    """
    full_names = {key: SEPARATOR.join(key) for key in tools}
    safe_names = {key: re.sub("[^a-zA-Z0-9_-]", "_", name) for key, name in full_names.items()}
    counts = Counter(safe_names.values())
    unchanged_counts = Counter(name for key, name in safe_names.items() if name == full_names[key])
    names = {}
    for key, name in safe_names.items():
        is_unique = counts[name] == 1 or (name == full_names[key] and unchanged_counts[name] == 1)
        names[key] = name if is_unique and len(name) <= _MAX_NAME else _hashed(name, key)
    return names


def _hashed(name: str, key: ToolKey) -> str:
    """The name with a hash of server and tool at its end, within the longest length."""
    digest = hashlib.sha256("\0".join(key).encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
    return f"{name[: _MAX_NAME - _HASH_LENGTH - 1]}_{digest}"


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a tool's name on its server equals a pattern, or matches it as in a shell."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


# ---- results
#
# The result of a tool as a message for the model: its text, its media, what no model accepts.


def result_message(call: Call, result: JsonObject, duration_ms: int) -> Message:
    """Turn a ``CallToolResult`` of MCP into a message with the role ``tool``.

    ``raw`` has structured content that the text does not repeat, and the ``blocks`` that no model accepts.
    """
    blocks: list[JsonObject] = result.get("content") or []
    structured = result.get("structuredContent")
    parts = [_part(block) for block in blocks]
    content: str | list[Part] = [part or _text(_placeholder(block)) for block, part in zip(blocks, parts, strict=True)]
    if all(block["type"] == "text" for block in blocks):
        content = "\n".join(block["text"] for block in blocks)
        if not content and structured is not None:
            content = json.dumps(structured, ensure_ascii=False)
    result_message: Message = {
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
    if unsent := [block for block, part in zip(blocks, parts, strict=True) if part is None]:
        raw["blocks"] = unsent
    if raw:
        result_message["raw"] = raw
    return result_message


def _part(block: JsonObject) -> Part | None:
    """A block as a part of a message; None for a type that no model accepts."""
    match block:
        case {"type": "text", "text": text}:
            return _text(text)
        case {"type": "image" | "audio", "data": data}:
            return _media(data)
        case {"type": "resource", "resource": {"uri": uri, "blob": data}}:
            return _media(data, uri)
        case {"type": "resource", "resource": {"uri": uri, "text": text}}:
            return _text(f"{uri}:\n{text}")
    link = (block.get("title") or block.get("name"), block.get("uri"), block.get("description"))
    return _text(" ".join(item for item in link if item))


def _text(text: str) -> Part:
    return {"type": "text", "text": text}


def _media(data: str, uri: str = "") -> Part | None:
    """A part for base64 data. As with ``-f`` the bytes decide the type; only data with a URI may be text."""
    content = _bytes(data)
    kind = detect_type(content) if content else None
    if content and kind is None and uri:
        return _text(f"{uri}:\n{content.decode(errors='surrogateescape')}")
    if content is None or kind not in SENDABLE:
        return None
    part = media_part(uri, kind, content)
    if not uri:
        part.pop("source")
    return part


def _bytes(data: str) -> bytes | None:
    """Decode base64; None if it is not valid."""
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        return None


def _placeholder(block: JsonObject) -> str:
    """The text that replaces data for the model, such as ``[application/zip, 3 bytes]``, after the URI of a file."""
    data = block.get("resource", block)
    content = _bytes(data.get("blob") or data.get("data", ""))
    size = "no base64" if content is None else format_size(len(content))
    placeholder = f"[{data.get('mimeType') or 'application/octet-stream'}, {size}]"
    return f"{data['uri']}:\n{placeholder}" if "uri" in data else placeholder


def _repeats(content: str | list[Part], structured: object) -> bool:
    """Whether the text repeats the structured content; the SDK wraps a bare value as ``{"result": …}``."""
    if not isinstance(content, str):
        return False
    values = [structured]
    if isinstance(structured, dict) and set(structured) == {"result"}:
        values.append(structured["result"])
    try:
        return content in values or json.loads(content) in values
    except (ValueError, RecursionError):
        return False


# ---- supervisor
#
# The thread in which the MCP SDK serves all tool servers: start it, take its reports, hand it
# calls, end it.
#
# The thread has an asyncio loop. Signals reach the main thread, which waits for that thread and
# ends the servers.

INSTALL = "run pipx inject gptsh 'mcp>=2.3,<3', or uv tool install '.[mcp]' in the clone; --no-tools leaves tools out"


class Supervisor:
    """Serves some tool servers, from ``start`` to ``close``. ``ask`` puts a server's question to the user."""

    def __init__(self, servers: Sequence[ToolServer], environ: Mapping[str, str], ask: "AskUser") -> None:
        self._servers, self._environ, self._ask = servers, environ, ask
        self._processes = Processes(environ)
        self._thread = threading.Thread(target=self._run, name="tools", daemon=True)
        self._reports: queue.SimpleQueue[Report | BaseException] = queue.SimpleQueue()
        self._connections: dict[str, Connection] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serve_task: asyncio.Task[None] | None = None
        self._is_closing = False

    # ---- for the main thread

    def start(self) -> None:
        """Start all servers in parallel, in the thread. Raises ConfigError if the SDK is missing."""
        if importlib.util.find_spec("mcp") is None:
            raise ConfigError("tools need the package mcp", INSTALL)
        self._thread.start()

    def next_report(self) -> "Report":
        """Wait for the next server to list its tools or to fail. Raises what has ended the thread."""
        report = self._reports.get()
        if isinstance(report, BaseException):
            raise report
        return report

    def call(self, server: str, tool: str, arguments: JsonObject) -> "_Outcome":
        """Start a call of a tool that a server has reported; see ``Connection.call``."""
        import asyncio

        assert self._loop  # its thread has reported the tool
        return asyncio.run_coroutine_threadsafe(self._connections[server].call(tool, arguments), self._loop)

    def any_ended(self, besides: Collection[str]) -> bool:
        """Whether a program has ended, ``besides`` those of these servers."""
        return self._processes.any_ended(besides)

    def close(self) -> None:
        """End all servers, within about two seconds. May be called again."""
        if self._is_closing:
            return
        self._is_closing = True
        self._processes.forbid_starts()
        if self._loop and self._serve_task:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._serve_task.cancel)
        else:
            self._processes.close_stdin()
        self._processes.end(self._thread.is_alive)

    def kill(self) -> None:
        """Kill all programs at once, for a run that is itself being killed."""
        self._processes.kill()

    # ---- the thread

    def _run(self) -> None:
        """Start the programs, import the SDK while they start up, and serve them until ``close``."""
        try:
            self._start_programs()
            import asyncio

            connection_class = _import_connection()
            asyncio.run(self._serve(connection_class))
        except BaseException as err:  # noqa: BLE001 - raised in the main thread, which waits for it
            self._reports.put(err)

    def _start_programs(self) -> None:
        for config in self._servers:
            if config.command:
                try:
                    self._processes.start(config)
                except ToolServerError as err:
                    self._reports.put((config.name, err))

    async def _serve(self, connection_class: "type[Connection]") -> None:
        """Serve all servers until the task is cancelled."""
        import asyncio

        for config in self._servers:
            program = self._processes.get(config.name)
            if config.command and program is None:  # it could not be started
                continue
            start_again = functools.partial(self._processes.start_again, config)
            self._connections[config.name] = connection_class(config, self._environ, program, start_again, self._ask)
        if self._is_closing:
            return
        async with asyncio.TaskGroup() as tasks:
            for connection in self._connections.values():
                tasks.create_task(connection.serve(self._reports.put))
            self._serve_task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
            await self._loop.create_future()  # until the task is cancelled


def _import_connection() -> "type[Connection]":
    """Import the SDK, quietly and quickly. Raises ConfigError if it cannot be imported."""
    import logging
    import warnings

    logging.getLogger().addHandler(logging.NullHandler())  # else Python prints the SDK's log
    is_collecting = gc.isenabled()
    gc.disable()  # collections are a fifth of the import, and the SDK's objects live until the end anyway
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


# ---- toolbox
#
# The tools of a run: which ones are offered, which need approval, and the calls, which run in
# parallel.

_MAX_LISTED = 20  # tools that an error lists


class OfferedTool(NamedTuple):
    """A tool with its name for the model, its server, and ``name_on_server``."""

    tool: Tool
    server: str
    name_on_server: str
    auto_approve: bool


class Toolbox:
    """The tools of some servers. ``start`` starts the servers, ``close`` ends them.

    ``lenient``: a pattern that matches no tool is added to ``missing`` as ``SERVER__PATTERN``, and is not an error.
    ``on_error`` gets the error of a server that cannot be used, instead of the caller; the others are used.
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
        self._lenient, self._on_error = lenient, on_error
        self._configs = {server.name: server for server in servers}
        self._supervisor = Supervisor(servers, environ, self._ask)
        self._arrivals: queue.SimpleQueue[_Arrival] | None = None  # for ``run``, while it runs
        self._failed: set[str] = set()  # the servers that ``on_error`` was called for
        self._offered: dict[str, OfferedTool] | None = None

    def start(self) -> None:
        """Start all servers in parallel. Raises ConfigError if the SDK is missing."""
        if self._configs:
            self._supervisor.start()

    def close(self) -> None:
        """End all servers, within about two seconds. May be called again."""
        self._supervisor.close()

    def kill(self) -> None:
        """Kill all server processes at once, for a run that is itself being killed."""
        self._supervisor.kill()

    @property
    def ready(self) -> bool:
        """Whether all servers have listed their tools."""
        return self._offered is not None

    @property
    def has_ended_server(self) -> bool:
        """Whether a server has ended since it listed its tools: the next turn starts all again."""
        return self.ready and self._supervisor.any_ended(besides=self._failed)

    # ---- the tools

    def tools(self) -> tuple[Tool, ...]:
        """The tools, once all servers are ready. Raises as ``offered``."""
        return tuple(offered.tool for offered in self.offered())

    def offered(self) -> tuple[OfferedTool, ...]:
        """The tools, once all servers are ready. Raises ToolServerError, and ConfigError for a wrong pattern."""
        if self._offered is None:
            listed = self._wait_for_servers()
            self._offered = self._named(self._selected(listed))
        return tuple(self._offered.values())

    def _wait_for_servers(self) -> dict[str, list[Tool]]:
        """The tools of each server that can be used. Raises ToolServerError if another has none to report it to."""
        listed: dict[str, list[Tool]] = {}
        while len(listed) + len(self._failed) < len(self._configs):
            server, result = self._supervisor.next_report()
            if not isinstance(result, ToolServerError):
                listed[server] = result
            elif self._on_error is None:
                raise result
            elif server not in self._failed:
                self._failed.add(server)
                listed.pop(server, None)
                self._on_error(result)
        return listed

    def _selected(self, listed: Mapping[str, Sequence[Tool]]) -> dict[ToolKey, Tool]:
        """The tools that the patterns select, in the order of the config and of each server."""
        selected: dict[ToolKey, Tool] = {}
        for server, config in self._configs.items():
            if server not in listed:
                continue
            self._check_patterns(config, listed[server])
            for tool in listed[server]:
                if matches(tool.name, config.tools):
                    selected.setdefault((server, tool.name), tool)  # of two with the same name, the first
        return selected

    def _check_patterns(self, config: ToolServer, tools: Sequence[Tool]) -> None:
        """Note each pattern without a tool as missing. Raises ConfigError for it unless this is lenient."""
        for pattern in config.tools:
            if pattern == "*" or any(matches(tool.name, [pattern]) for tool in tools):
                continue
            self.missing.append(f"{config.name}{SEPARATOR}{pattern}")
            if not self._lenient:
                names = ", ".join(tool.name for tool in tools[:_MAX_LISTED]) or "none"
                way = f"it has {names}; --tools names others, --no-tools does without"
                raise ConfigError(f"tool server {config.name} has no tool {pattern!r}", way)

    def _named(self, tools: Mapping[ToolKey, Tool]) -> dict[str, OfferedTool]:
        """The tools by their names for the model."""
        named = {}
        for (server, name_on_server), name in names_for_model(tools).items():
            tool = tools[server, name_on_server]._replace(name=name)
            auto_approve = matches(name_on_server, self._configs[server].auto_approve)
            named[name] = OfferedTool(tool, server, name_on_server, auto_approve)
        return named

    # ---- calls

    def needs_approval(self, call: Call) -> ToolKey | None:
        """The server and the tool of a call that the user has to approve.

        None if the server's configuration allows it, or if there is no such tool.
        """
        offered = (self._offered or {}).get(call["function"]["name"])
        return None if offered is None or offered.auto_approve else (offered.server, offered.name_on_server)

    def run(self, calls: Sequence[Call], answer: Answering) -> Iterator[ToolResult]:
        """Run the calls in parallel; yield each result as it arrives. A call that cannot start gets an error result.

        ``answer`` is asked the questions of the servers, as in ``Tools``. Raises ToolServerError, after the results of
        all other calls.
        """
        arrivals: queue.SimpleQueue[_Arrival] = queue.SimpleQueue()
        self._arrivals = arrivals
        running: dict[_Outcome, Call] = {}
        not_started: list[ToolResult] = []
        for call in calls:
            outcome = self._start_call(call)
            if isinstance(outcome, str):
                not_started.append(ToolResult(error_result(call, f"error: {outcome}")))
            else:
                running[outcome] = call
        failure: ToolServerError | None = None
        try:
            yield from not_started
            for future in running:
                future.add_done_callback(arrivals.put)
            unfinished = len(running)
            while unfinished:
                arrival = arrivals.get()
                if isinstance(arrival, tuple):
                    question, asked = arrival
                    if asked.set_running_or_notify_cancel():  # else its server has ended
                        asked.set_result(answer(question))
                    continue
                unfinished -= 1
                if isinstance(exception := arrival.exception(), ToolServerError):
                    failure = failure or exception
                else:
                    yield ToolResult(result_message(running[arrival], *arrival.result()))
        finally:
            self._arrivals = None
            for future in running:
                future.cancel()
        if failure:
            raise failure

    def _ask(self, question: ServerQuestion) -> "Future[JsonObject | None]":
        """Hand a server's question to ``run``; decline it if no call runs. For the servers' thread."""
        from concurrent.futures import Future

        asked: Future[JsonObject | None] = Future()
        if arrivals := self._arrivals:
            arrivals.put((question, asked))
        else:
            asked.set_result(None)
        return asked

    def _start_call(self, call: Call) -> "_Outcome | str":
        """Start a call; the future has its ``CallToolResult`` and duration in milliseconds. Or the error as a text."""
        name = call["function"]["name"]
        offered = self._offered or {}
        if name not in offered:
            import difflib

            near = difflib.get_close_matches(name, offered, cutoff=0.5) or [*offered][:_MAX_LISTED]
            return f"there is no tool {name!r}" + (f", there is {', '.join(near)}" if near else "")
        arguments = _arguments_of(call)
        if arguments is None:
            return "the arguments are not a JSON object, so the tool was not called"
        return self._supervisor.call(offered[name].server, offered[name].name_on_server, arguments)


def _arguments_of(call: Call) -> JsonObject | None:
    """The arguments of a call; None if they are no JSON object that can be sent."""
    try:
        arguments = json.loads(call["function"].get("arguments") or "{}")
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None
