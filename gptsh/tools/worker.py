"""The thread in which tool servers are spoken to. Signals are the main thread's, which only ever waits on a queue."""

import contextlib
import importlib.util
import queue
import signal
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gptsh.config.mcp_servers import ToolServer
from gptsh.errors import ConfigError
from gptsh.messages import Tool
from gptsh.tools.process import Process, end

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from gptsh.tools.session import Answer, Connection

_SIGN_OF_LIFE = 1.0  # seconds between two looks at the thread
_CLOSING = 0.5  # seconds for the farewell of a server that has a URL
_JOINING = 0.8  # seconds for the thread, the farewell included
Item = TypeVar("Item")


class Opened(NamedTuple):
    """A server that is ready, and its tools under their own names."""

    server: str
    tools: list[Tool]


class Worker:
    """The servers of one run: started at once, all in parallel; ``opened`` gets each as it is ready, or its failure."""

    def __init__(self, servers: Sequence[ToolServer], environ: Mapping[str, str]) -> None:
        self._servers, self._environ = servers, environ
        self._thread = threading.Thread(target=self._work, name="tools", daemon=True)
        self._processes: dict[str, Process] = {}
        self._connections: dict[str, Connection] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._stopping = threading.Event()
        self._stopped = False
        self._crash: BaseException | None = None
        self.opened: queue.SimpleQueue[Opened | BaseException] = queue.SimpleQueue()

    def start(self) -> None:
        """Begin. Raises ConfigError where the SDK is not installed."""
        if importlib.util.find_spec("mcp") is None:
            raise _no_sdk()
        self._thread.start()

    def take(self, items: "queue.SimpleQueue[Item]") -> Item:
        """The next item that the thread hands over. May be interrupted by a signal; a crash there is raised here."""
        while True:
            try:
                return items.get(timeout=_SIGN_OF_LIFE)
            except queue.Empty:
                if not self._thread.is_alive():
                    raise RuntimeError("the thread of the tool servers has ended") from self._crash

    def call(self, server: str, tool: str, arguments: dict[str, Any]) -> "Future[Answer]":
        """Begin a call; its future has the answer, or raises ToolServerError."""
        import asyncio  # noqa: PLC0415 - 40 ms; the thread has loaded it

        assert self._loop is not None  # it has opened
        return asyncio.run_coroutine_threadsafe(self._connections[server].call(tool, arguments), self._loop)

    def stop(self) -> None:
        """End the servers and the thread, within some two seconds."""
        if self._stopped:
            return
        self._stopping.set()
        loop, stop = self._loop, self._stop
        if loop and stop:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(stop.set)
        if self._thread.ident is not None:
            self._thread.join(_JOINING)
        processes = list(self._processes.values())
        end(processes)
        if not self._thread.is_alive():  # else it may be about to use their streams
            for process in processes:
                process.close()
        self._stopped = True

    def kill(self) -> None:
        """Send SIGKILL to the servers and to all that they have started."""
        for process in list(self._processes.values()):
            process.send(signal.SIGKILL)

    # ---- in the thread

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        self._crash = error
        return True  # it is raised where it is waited for

    def _work(self) -> None:
        with self:
            # The processes first: they load what they need while this one loads the SDK.
            errors = self._start_processes()
            _be_quiet()
            import asyncio  # noqa: PLC0415 - 40 ms that only tools need

            try:
                from gptsh.tools.session import Connection, not_started  # noqa: PLC0415 - the SDK: half a second
            except ImportError as err:
                self.opened.put(_no_sdk(err))
                return
            for server in self._servers:
                if server.name in errors:
                    self.opened.put(not_started(server, errors[server.name]))
            asyncio.run(self._serve(Connection))

    def _start_processes(self) -> dict[str, OSError | ValueError]:
        errors: dict[str, OSError | ValueError] = {}
        for server in self._servers:
            if server.command and not self._stopping.is_set():
                try:
                    self._processes[server.name] = Process(server, self._environ)
                except (OSError, ValueError) as err:
                    errors[server.name] = err
        return errors

    async def _serve(self, connection: "type[Connection]") -> None:
        import asyncio  # noqa: PLC0415 - as above

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        for server in self._servers:
            if server.url or server.name in self._processes:
                self._connections[server.name] = connection(server, self._processes.get(server.name), self._environ)
        serving = [asyncio.create_task(self._open(one)) for one in self._connections.values()]
        for task in serving:
            task.add_done_callback(self._over)
        if not self._stopping.is_set():
            await self._stop.wait()
        for one, task in zip(self._connections.values(), serving, strict=True):
            one.closing.set()
            if not one.is_open:
                task.cancel()
        if serving:
            await asyncio.wait(serving, timeout=_CLOSING)

    async def _open(self, connection: "Connection") -> None:
        await connection.serve(lambda tools: self.opened.put(Opened(connection.server.name, tools)))

    def _over(self, served: "asyncio.Task[None]") -> None:
        """A failure is told to whoever waits for the server to open; behind that each call meets it by itself."""
        if not served.cancelled() and (error := served.exception()):
            self.opened.put(error)


def _no_sdk(why: ImportError | None = None) -> ConfigError:
    """The SDK is missing, or not one that is understood."""
    what = "tools need the package mcp" if why is None else f"the package mcp cannot be used: {why}"
    return ConfigError(what, "pip install 'mcp>=2.2,<3' beside gptsh, or leave tools out with --no-tools")


def _be_quiet() -> None:
    """Nothing of what the SDK and its libraries log or warn of is for the user."""
    import logging  # noqa: PLC0415 - the SDK has it in any case
    import warnings  # noqa: PLC0415 - the same

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
