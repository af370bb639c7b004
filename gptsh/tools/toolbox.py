"""The tools of a run: servers start in parallel, tools get unique names, calls run in parallel.

The MCP SDK runs in a thread with an asyncio loop. Signals reach the main thread, which waits for that thread and ends
the servers.
"""

import contextlib
import functools
import gc
import hashlib
import importlib.util
import json
import os
import queue
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from gptsh.config.mcp_servers import SEPARATOR, ToolServer
from gptsh.config.secret import mask
from gptsh.content.tool_calls import ServerQuestion, error_result
from gptsh.errors import ConfigError, ToolServerError
from gptsh.messages import Call, Tool, ToolResult
from gptsh.tools import results

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from gptsh.tools.servers import Report, Server

    _Asked = tuple[ServerQuestion, Future[dict[str, Any] | None]]
    _Arrival = Future[tuple[dict[str, Any], int]] | _Asked

ToolKey = tuple[str, str]  # the name of a server, and the tool's name on it

MAX_NAME = 64  # characters; no provider accepts more
_HASH_LENGTH = 8  # characters
_MAX_LISTED = 20  # tools that an error lists
_EXIT_SECONDS = 1.0  # for servers to end after their stdin was closed
_SIGTERM_SECONDS = 0.5  # then, for them to end after SIGTERM
_SIGKILL_SECONDS = 0.3  # then, for the system to remove them
# The variables that servers inherit. Those that a server needs besides, as for a key or a proxy, are in its config.
_INHERITED = re.compile("PATH|HOME|LANG|LANGUAGE|TZ|TMPDIR|USER|LOGNAME|SHELL|TERM|LC_.*")
INSTALL = "run pipx inject gptsh 'mcp>=2.3,<3', or uv tool install '.[mcp]' in the clone; --no-tools leaves tools out"


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
        self._lenient, self._environ, self._on_error = lenient, environ, on_error
        self._configs = {server.name: server for server in servers}
        self._thread = threading.Thread(target=self._run_thread, name="tools", daemon=True)
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._stderr_files: dict[str, IO[bytes]] = {}
        self._reports: queue.SimpleQueue[Report | BaseException] = queue.SimpleQueue()
        self._arrivals: queue.SimpleQueue[_Arrival] | None = None  # for ``run``, while it runs
        self._failed: set[str] = set()  # the servers that ``on_error`` was called for
        self._offered: dict[str, OfferedTool] | None = None
        self._start_lock = threading.Lock()  # around the start of each process, so that ``close`` misses none
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._servers: dict[str, Server] = {}
        self._serve_task: asyncio.Task[Any] | None = None

    # ---- start and end

    def start(self) -> None:
        """Start all servers in parallel, in a thread. Raises ConfigError if the SDK is missing."""
        if self._configs:
            if importlib.util.find_spec("mcp") is None:
                raise ConfigError("tools need the package mcp", INSTALL)
            self._thread.start()

    def _run_thread(self) -> None:
        """Start the processes, import the SDK while they start up, and serve them until ``close``."""
        try:
            for config in self._configs.values():
                with self._start_lock:
                    if config.command and not self._closing:
                        try:
                            self._start_process(config)
                        except ToolServerError as err:
                            self._reports.put((config.name, err))
            import asyncio  # noqa: PLC0415 - 40 ms that only tools need
            import logging  # noqa: PLC0415 - only tools need it
            import warnings  # noqa: PLC0415 - only tools need it

            logging.getLogger().addHandler(logging.NullHandler())  # else Python prints the SDK's log
            warnings.simplefilter("ignore")

            gc.disable()  # collections are a fifth of the import, and the SDK's objects live until the end anyway
            try:
                from gptsh.tools.servers import Server  # noqa: PLC0415 - the SDK takes over half a second
            except ImportError as err:
                raise ConfigError(f"the package mcp cannot be used: {err}", INSTALL) from err
            finally:
                gc.freeze()
                gc.enable()
            asyncio.run(self._serve(Server))
        except BaseException as err:  # noqa: BLE001 - raised in the main thread, which waits for it
            self._reports.put(err)

    def _start_process(self, config: ToolServer) -> None:
        """Start a server with its stderr in a file, in a new process session, which Ctrl-C does not reach."""
        self._stderr_files[config.name] = stderr_file = tempfile.TemporaryFile()  # noqa: SIM115 - closed in ``close``
        try:
            self._processes[config.name] = subprocess.Popen(
                [str(config.command), *config.args],
                env={name: self._environ[name] for name in self._environ if _INHERITED.fullmatch(name)}
                | {**config.env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr_file,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
        except (OSError, ValueError) as err:
            why = err.strerror if isinstance(err, OSError) else err
            what = f"tool server {config.name} cannot be started: {why}: {config.command}"
            has_words = isinstance(err, FileNotFoundError) and " " in str(config.command)
            advice = "command is the program alone: put its arguments into args" if has_words else ""
            raise ToolServerError(mask(what, config.secrets), advice) from None

    def _restart(self, config: ToolServer) -> "tuple[subprocess.Popen[str], IO[bytes]]":
        """Start a program again, in place of its process. Raises ToolServerError."""
        with self._start_lock:
            if self._closing:
                raise ToolServerError(f"tool server {config.name} is being ended")
            _send_signal(self._processes[config.name], signal.SIGKILL)
            self._stderr_files[config.name].close()
            self._start_process(config)
        return self._processes[config.name], self._stderr_files[config.name]

    async def _serve(self, server_class: "type[Server]") -> None:
        """Serve all servers until the task is cancelled."""
        import asyncio  # noqa: PLC0415 - 40 ms that only tools need

        for name, config in self._configs.items():
            process, stderr_file = self._processes.get(name), self._stderr_files.get(name)
            if config.command and process is None:  # it could not be started
                continue
            restart = functools.partial(self._restart, config)
            self._servers[name] = server_class(config, self._environ, process, stderr_file, restart, self._ask)
        if self._closing:
            return
        async with asyncio.TaskGroup() as tasks:
            for server in self._servers.values():
                tasks.create_task(server.serve(self._reports.put))
            self._serve_task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
            await self._loop.create_future()  # until the task is cancelled

    def close(self) -> None:
        """End all servers, within about two seconds. May be called again."""
        if self._closing:
            return
        with self._start_lock:
            self._closing = True
        processes = list(self._processes.values())
        if self._loop and self._serve_task:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._serve_task.cancel)
        else:
            for process in processes:
                if process.stdin:
                    process.stdin.close()
        _wait(_EXIT_SECONDS, lambda: not self._thread.is_alive() and None not in [each.poll() for each in processes])
        for signum, seconds in ((signal.SIGTERM, _SIGTERM_SECONDS), (signal.SIGKILL, _SIGKILL_SECONDS)):
            if not all(map(_has_ended, processes)):
                for process in processes:
                    _send_signal(process, signum)
                _wait(seconds, lambda: all(map(_has_ended, processes)))
        for stderr_file in self._stderr_files.values():
            stderr_file.close()

    def kill(self) -> None:
        """Kill all server processes at once, for a run that is itself being killed."""
        for process in list(self._processes.values()):
            _send_signal(process, signal.SIGKILL)

    @property
    def ready(self) -> bool:
        """Whether all servers have listed their tools."""
        return self._offered is not None

    @property
    def failed(self) -> bool:
        """Whether a server has ended since it listed its tools."""
        running = [process for name, process in self._processes.items() if name not in self._failed]
        return self.ready and any(process.poll() is not None for process in running)

    # ---- the tools

    def tools(self) -> tuple[Tool, ...]:
        """The tools, once all servers are ready. Raises as ``offered``."""
        return tuple(offered.tool for offered in self.offered())

    def offered(self) -> tuple[OfferedTool, ...]:
        """The tools, once all servers are ready. Raises ToolServerError, and ConfigError for a wrong pattern."""
        if self._offered is None:
            listed = self._wait_for_servers()
            # In the order of the config and of each server; of two tools with the same name, the first.
            chosen: dict[ToolKey, Tool] = {}
            for config in (each for name, each in self._configs.items() if name in listed):
                tools = listed[config.name]
                for pattern in config.tools:
                    if pattern == "*" or any(matches(tool.name, [pattern]) for tool in tools):
                        continue
                    self.missing.append(f"{config.name}{SEPARATOR}{pattern}")
                    if not self._lenient:
                        names = ", ".join(tool.name for tool in tools[:_MAX_LISTED]) or "none"
                        way = f"it has {names}; --tools names others, --no-tools does without"
                        raise ConfigError(f"tool server {config.name} has no tool {pattern!r}", way)
                for tool in tools:
                    if matches(tool.name, config.tools):
                        chosen.setdefault((config.name, tool.name), tool)
            self._offered = {}
            for key, name in names_for_model(chosen).items():
                auto_approve = matches(key[1], self._configs[key[0]].auto_approve)
                self._offered[name] = OfferedTool(chosen[key]._replace(name=name), *key, auto_approve)
        return tuple(self._offered.values())

    def _wait_for_servers(self) -> dict[str, list[Tool]]:
        """The tools of each server that can be used. Raises ToolServerError if another has none to report it to."""
        listed: dict[str, list[Tool]] = {}
        while len(listed) + len(self._failed) < len(self._configs):
            report = self._reports.get()
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

    # ---- calls

    def needs_approval(self, call: Call) -> ToolKey | None:
        """The server and the tool of a call that the user has to approve.

        None if the server's configuration allows it, or if there is no such tool.
        """
        offered = (self._offered or {}).get(call["function"]["name"])
        return None if offered is None or offered.auto_approve else (offered.server, offered.name_on_server)

    def run(
        self, calls: Sequence[Call], answer: Callable[[ServerQuestion], dict[str, Any] | None]
    ) -> Iterator[ToolResult]:
        """Run the calls in parallel; yield each result as it arrives. A call that cannot start gets an error result.

        ``answer`` is asked the questions of the servers, as in ``Tools``. Raises ToolServerError, after the results of
        all other calls.
        """
        arrivals: queue.SimpleQueue[_Arrival] = queue.SimpleQueue()
        self._arrivals = arrivals
        outcomes = [(call, self._start_call(call)) for call in calls]
        running = {future: call for call, future in outcomes if not isinstance(future, str)}
        failure: ToolServerError | None = None
        try:
            for call, error in outcomes:
                if isinstance(error, str):
                    yield ToolResult(error_result(call, f"error: {error}"))
            for future in running:
                future.add_done_callback(arrivals.put)
            unfinished = len(running)
            while unfinished:
                arrival = arrivals.get()
                if isinstance(arrival, tuple):
                    question, asked = arrival
                    asked.set_result(answer(question))
                    continue
                unfinished -= 1
                if isinstance(exception := arrival.exception(), ToolServerError):
                    failure = failure or exception
                else:
                    yield ToolResult(results.message(running[arrival], *arrival.result()))
        finally:
            self._arrivals = None
            for future in running:
                future.cancel()
        if failure:
            raise failure

    def _ask(self, question: ServerQuestion) -> "Future[dict[str, Any] | None]":
        """Hand a server's question to ``run``; decline it if no call runs. For the servers' thread."""
        from concurrent.futures import Future  # noqa: PLC0415 - already loaded by the thread

        asked: Future[dict[str, Any] | None] = Future()
        if arrivals := self._arrivals:
            arrivals.put((question, asked))
        else:
            asked.set_result(None)
        return asked

    def _start_call(self, call: Call) -> "Future[tuple[dict[str, Any], int]] | str":
        """Start a call; the future has its ``CallToolResult`` and duration in milliseconds. Or the error as a text."""
        name = call["function"]["name"]
        offered = self._offered or {}
        if name not in offered:
            import difflib  # noqa: PLC0415 - few models invent names

            near = difflib.get_close_matches(name, offered, cutoff=0.5) or [*offered][:_MAX_LISTED]
            return f"there is no tool {name!r}" + (f", there is {', '.join(near)}" if near else "")
        try:
            arguments = json.loads(call["function"].get("arguments") or "{}")
            json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            return "the arguments are not a JSON object, so the tool was not called"
        import asyncio  # noqa: PLC0415 - already loaded by the thread

        assert self._loop  # its thread has reported the tool
        tool = offered[name]
        result = self._servers[tool.server].call(tool.name_on_server, arguments)
        return asyncio.run_coroutine_threadsafe(result, self._loop)


# ---- names


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
        digest = hashlib.sha256("\0".join(key).encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
        hashed_name = f"{name[: MAX_NAME - _HASH_LENGTH - 1]}_{digest}"
        names[key] = name if is_unique and len(name) <= MAX_NAME else hashed_name
    return names


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a tool's name on its server equals a pattern, or matches it as in a shell."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


# ---- processes


def _send_signal(process: "subprocess.Popen[str]", signum: int) -> None:
    """Send a signal to the process group of a server."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS refuses if all are dead
        os.killpg(process.pid, signum)


def _has_ended(process: "subprocess.Popen[str]") -> bool:
    """Whether no process of a server's process group runs."""
    if process.poll() is None:
        return False
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return True
    return False


def _wait(seconds: float, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
