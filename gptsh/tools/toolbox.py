"""The tools of one run: servers started at once, their tools offered under unique names, called in parallel.

The SDK lives in a thread of its own, with an asyncio loop. Signals reach the main thread, which only ever waits for
that one, and which ends the servers.
"""

import contextlib
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
from gptsh.content.answer import error_result
from gptsh.errors import ConfigError, ToolServerError
from gptsh.messages import Call, Tool, ToolResult
from gptsh.tools import results

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from gptsh.tools.servers import Opened, Server

Own = tuple[str, str]  # the name of a server, and that of its tool

LONGEST = 64  # characters of a name; no provider takes more
_HASH = 8  # characters
_FEW = 20  # tools, all of which are listed in an error
_LEAVING = 1.0  # seconds in which servers end, once their input has ended
_AT_SIGTERM = 0.5  # seconds more
_AT_SIGKILL = 0.3  # seconds until the system has removed them
# What a server gets of the user's environment. A key, a proxy or a path that one needs is named in its entry.
_INHERITED = re.compile("PATH|HOME|LANG|LANGUAGE|TZ|TMPDIR|USER|LOGNAME|SHELL|TERM|LC_.*")
_INSTALL = "pip install 'mcp>=2.2,<3' beside gptsh, or leave tools out with --no-tools"


class Offered(NamedTuple):
    """A tool as it is offered: ``tool`` under its name for the model, ``own`` its name on its server."""

    tool: Tool
    server: str
    own: str
    auto_approve: bool


class Toolbox:
    """The tools of the servers that are wanted. Nothing is started before ``start``, and ``close`` ends all.

    ``lenient``: a pattern that fits no tool is no failure, but one of ``missing``, as ``SERVER__PATTERN``.
    """

    def __init__(self, servers: Sequence[ToolServer], environ: Mapping[str, str], *, lenient: bool = False) -> None:
        self.missing: list[str] = []
        self._lenient, self._environ = lenient, environ
        self._configs = {server.name: server for server in servers}
        self._thread = threading.Thread(target=self._work, name="tools", daemon=True)
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._errlogs: dict[str, IO[bytes]] = {}
        self._opened: queue.SimpleQueue[Opened | BaseException] = queue.SimpleQueue()
        self._offered: dict[str, Offered] | None = None
        self._starting = threading.Lock()  # held while a process is started, so that ``close`` knows of it
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._servers: dict[str, Server] = {}
        self._main: asyncio.Task[Any] | None = None

    # ---- from start to end

    def start(self) -> None:
        """Start all servers, in parallel and in a thread of its own. Raises ConfigError where the SDK is missing."""
        if self._configs:
            if importlib.util.find_spec("mcp") is None:
                raise ConfigError("tools need the package mcp", _INSTALL)
            self._thread.start()

    def _work(self) -> None:
        """Start the processes, which load what they need while this one loads the SDK, and talk to them."""
        try:
            for config in self._configs.values():
                with self._starting:
                    if config.command and not self._closing:
                        self._start_process(config)
            import asyncio  # noqa: PLC0415 - 40 ms that only tools need
            import logging  # noqa: PLC0415 - the SDK loads it in any case
            import warnings  # noqa: PLC0415 - the same

            logging.getLogger().addHandler(logging.NullHandler())  # else Python prints what the SDK logs
            warnings.simplefilter("ignore")

            gc.disable()  # what the SDK makes stays until the end: to look through it is a fifth of its import
            try:
                from gptsh.tools.servers import Server  # noqa: PLC0415 - the SDK: half a second and more
            except ImportError as err:
                raise ConfigError(f"the package mcp cannot be used: {err}", _INSTALL) from err
            finally:
                gc.freeze()
                gc.enable()
            asyncio.run(self._serve(Server))
        except BaseException as err:  # noqa: BLE001 - raised in the main thread, which waits for it
            self._opened.put(err)

    def _start_process(self, config: ToolServer) -> None:
        """Start a server in a session of its own, out of reach of the terminal's Ctrl-C, its stderr in a file."""
        self._errlogs[config.name] = errlog = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the toolbox
        try:
            self._processes[config.name] = subprocess.Popen(
                [str(config.command), *config.args],
                env={name: self._environ[name] for name in self._environ if _INHERITED.fullmatch(name)}
                | {**config.env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errlog,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
        except (OSError, ValueError) as err:
            why = err.strerror if isinstance(err, OSError) else err
            what = f"tool server {config.name} cannot be started: {why}: {config.command}"
            raise ToolServerError(mask(what, config.secrets)) from None

    async def _serve(self, connect: "Callable[..., Server]") -> None:
        import asyncio  # noqa: PLC0415 - as above

        for name, config in self._configs.items():
            process, errlog = self._processes.get(name), self._errlogs.get(name)
            self._servers[name] = connect(config, self._environ, process, errlog)
        if self._closing:
            return
        async with asyncio.TaskGroup() as tasks:
            for server in self._servers.values():
                tasks.create_task(server.serve(self._opened.put))
            self._main, self._loop = asyncio.current_task(), asyncio.get_running_loop()
            await self._loop.create_future()  # until it is cancelled

    def close(self) -> None:
        """End all servers, within some two seconds. May be called again."""
        if self._closing:
            return
        with self._starting:
            self._closing = True
        processes = list(self._processes.values())
        if self._loop and self._main:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._main.cancel)
        else:
            for process in processes:
                if process.stdin:
                    process.stdin.close()
        _wait(_LEAVING, lambda: not self._thread.is_alive() and None not in [each.poll() for each in processes])
        for signum, seconds in ((signal.SIGTERM, _AT_SIGTERM), (signal.SIGKILL, _AT_SIGKILL)):
            if not all(map(_is_gone, processes)):
                for process in processes:
                    _send(process, signum)
                _wait(seconds, lambda: all(map(_is_gone, processes)))
        for errlog in self._errlogs.values():
            errlog.close()

    def kill(self) -> None:
        """End all server processes at once, wherever the run is; for a run that is itself ended so."""
        for process in list(self._processes.values()):
            _send(process, signal.SIGKILL)

    @property
    def ready(self) -> bool:
        """Whether all servers have listed their tools."""
        return self._offered is not None

    @property
    def failed(self) -> bool:
        """Whether a server has ended since it listed its tools."""
        return self.ready and any(process.poll() is not None for process in self._processes.values())

    # ---- what is offered

    def tools(self) -> tuple[Tool, ...]:
        """The tools, as soon as all servers are ready. Raises as ``offered``."""
        return tuple(offered.tool for offered in self.offered())

    def offered(self) -> tuple[Offered, ...]:
        """The tools, as soon as all servers are ready. Raises ToolServerError, and ConfigError for a wrong pattern."""
        if self._offered is None:
            listed: dict[str, list[Tool]] = {}
            while len(listed) < len(self._configs):
                opened = self._opened.get()
                if isinstance(opened, BaseException):
                    raise opened
                listed[opened[0]] = opened[1]
            # In the order of the config and of each server; of two tools of one name the first.
            found: dict[Own, Tool] = {}
            for config in self._configs.values():
                tools = listed[config.name]
                for pattern in config.tools:
                    if pattern == "*" or any(matches(tool.name, [pattern]) for tool in tools):
                        continue
                    self.missing.append(f"{config.name}{SEPARATOR}{pattern}")
                    if not self._lenient:
                        known = ", ".join(tool.name for tool in tools[:_FEW]) or "none"
                        way = f"it has {known}; --tools names others, --no-tools does without"
                        raise ConfigError(f"tool server {config.name} has no tool {pattern!r}", way)
                for tool in tools:
                    if matches(tool.name, config.tools):
                        found.setdefault((config.name, tool.name), tool)
            self._offered = {}
            for (server, own), name in names_for_model(found).items():
                approved = matches(own, self._configs[server].auto_approve)
                self._offered[name] = Offered(found[server, own]._replace(name=name), server, own, approved)
        return tuple(self._offered.values())

    # ---- calls

    def approved(self, call: Call) -> bool:
        """Whether a call needs no question, by the patterns of its server; nor does one that will not be made."""
        offered = (self._offered or {}).get(call["function"]["name"])
        return offered is None or offered.auto_approve

    def run(self, calls: Sequence[Call]) -> Iterator[ToolResult]:
        """Make the calls, all in parallel; each result as it comes. A call that cannot be made has that as its result.

        Raises ToolServerError, behind the results of all others.
        """
        made = [(call, self._begin(call)) for call in calls]
        begun = {future: call for call, future in made if not isinstance(future, str)}
        failure: ToolServerError | None = None
        try:
            yield from (ToolResult(error_result(call, f"error: {why}")) for call, why in made if isinstance(why, str))
            done: queue.SimpleQueue[Future[tuple[dict[str, Any], int]]] = queue.SimpleQueue()
            for future in begun:
                future.add_done_callback(done.put)
            for _ in begun:
                future = done.get()
                if isinstance(error := future.exception(), ToolServerError):
                    failure = failure or error
                else:
                    yield ToolResult(results.message(begun[future], *future.result()))
        finally:
            for future in begun:
                future.cancel()
        if failure:
            raise failure

    def _begin(self, call: Call) -> "Future[tuple[dict[str, Any], int]] | str":
        """Begin a call, which results in a ``CallToolResult`` and milliseconds; or why it cannot be made."""
        name = call["function"]["name"]
        known = self._offered or {}
        if name not in known:
            import difflib  # noqa: PLC0415 - few models make up a name

            near = difflib.get_close_matches(name, known, cutoff=0.5) or [*known][:_FEW]
            return f"there is no tool {name!r}" + (f", there is {', '.join(near)}" if near else "")
        try:
            arguments = json.loads(call["function"].get("arguments") or "{}")
            json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            return "the arguments are no JSON object, so the tool was not called"
        import asyncio  # noqa: PLC0415 - the thread has loaded it

        assert self._loop  # it has reported the tool
        return asyncio.run_coroutine_threadsafe(
            self._servers[known[name].server].call(known[name].own, arguments), self._loop
        )


# ---- names


def names_for_model(tools: Iterable[Own]) -> dict[Own, str]:
    """A name for each tool: ``SERVER__TOOL`` of letters that every provider takes, unique, whatever their order.

    A hash is added where that is too long, or two would have one name: to each that does not have this very name.
    """
    wanted = {own: SEPARATOR.join(own) for own in tools}
    plain = {own: re.sub("[^a-zA-Z0-9_-]", "_", name) for own, name in wanted.items()}
    exact = Counter(name for own, name in plain.items() if name == wanted[own])
    all_of = Counter(plain.values())
    names = {}
    for own, name in plain.items():
        is_unique = all_of[name] == 1 or (name == wanted[own] and exact[name] == 1)
        digest = hashlib.sha256("\0".join(own).encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
        names[own] = name if is_unique and len(name) <= LONGEST else f"{name[: LONGEST - _HASH - 1]}_{digest}"
    return names


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a tool's own name is one of the patterns, or fits one, as a shell would match it."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


# ---- processes


def _send(process: "subprocess.Popen[str]", signum: int) -> None:
    """Send a signal to a process and to all that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS refuses where all are dead
        os.killpg(process.pid, signum)


def _is_gone(process: "subprocess.Popen[str]") -> bool:
    """Whether neither a process nor anything that it has started runs any more."""
    if process.poll() is None:
        return False
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return True
    return False


def _wait(seconds: float, done: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not done() and time.monotonic() < until:
        time.sleep(0.01)
