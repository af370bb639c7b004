"""The thread in which the MCP SDK serves all tool servers: start it, take its reports, hand it calls, end it.

The thread has an asyncio loop. Signals reach the main thread, which waits for that thread and ends the servers.
"""

import contextlib
import functools
import gc
import importlib.util
import queue
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gptsh.config.tool_servers import ToolServer
from gptsh.errors import ConfigError, ToolServerError
from gptsh.tools.processes import Processes

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from gptsh.tools.connection import AskUser, Connection, Report

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
        self._serve_task: asyncio.Task[Any] | None = None
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

    def call(self, server: str, tool: str, arguments: dict[str, Any]) -> "Future[tuple[dict[str, Any], int]]":
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
