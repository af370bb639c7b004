"""The tools of a run: which ones are offered, which need approval, and the calls, which run in parallel."""

import json
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gptsh.config.tool_servers import SEPARATOR, ToolServer
from gptsh.errors import ConfigError, ToolServerError
from gptsh.messages import Answering, Call, ServerQuestion, Tool, ToolResult, error_result
from gptsh.records import NamedTuple
from gptsh.tools import results
from gptsh.tools.supervisor import Supervisor
from gptsh.tools.tool_names import ToolKey, matches, names_for_model

if TYPE_CHECKING:
    from concurrent.futures import Future

    _Asked = tuple[ServerQuestion, Future[dict[str, Any] | None]]
    _Arrival = Future[tuple[dict[str, Any], int]] | _Asked

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
        running: dict[Future[tuple[dict[str, Any], int]], Call] = {}
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
                    yield ToolResult(results.message(running[arrival], *arrival.result()))
        finally:
            self._arrivals = None
            for future in running:
                future.cancel()
        if failure:
            raise failure

    def _ask(self, question: ServerQuestion) -> "Future[dict[str, Any] | None]":
        """Hand a server's question to ``run``; decline it if no call runs. For the servers' thread."""
        from concurrent.futures import Future

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
            import difflib

            near = difflib.get_close_matches(name, offered, cutoff=0.5) or [*offered][:_MAX_LISTED]
            return f"there is no tool {name!r}" + (f", there is {', '.join(near)}" if near else "")
        arguments = _arguments_of(call)
        if arguments is None:
            return "the arguments are not a JSON object, so the tool was not called"
        return self._supervisor.call(offered[name].server, offered[name].name_on_server, arguments)


def _arguments_of(call: Call) -> dict[str, Any] | None:
    """The arguments of a call; None if they are no JSON object that can be sent."""
    try:
        arguments = json.loads(call["function"].get("arguments") or "{}")
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None
