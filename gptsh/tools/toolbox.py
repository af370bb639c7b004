"""The tools of one run: offered to the model under names of ours, called in parallel, ended with the run."""

import json
import queue
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gptsh.config.mcp_servers import SEPARATOR, ToolServer
from gptsh.content.answer import result_of
from gptsh.errors import ConfigError, ToolServerError
from gptsh.messages import Call, Tool, ToolResult
from gptsh.text import is_unicode
from gptsh.tools import results
from gptsh.tools.names import matches, names_for_model
from gptsh.tools.worker import Opened, Worker

if TYPE_CHECKING:
    from concurrent.futures import Future

    from gptsh.tools.session import Answer

_FEW = 20  # tools, all of which are named to a model that has called another one


class Offered(NamedTuple):
    """A tool as it is offered: ``tool`` under its name for the model, ``own`` its name on its server."""

    tool: Tool
    server: str
    own: str
    auto_approve: bool


class Toolbox:
    """The tools of the servers that are wanted. Nothing is started before ``start``, and ``close`` ends all.

    Where it is ``lenient``, a pattern that means no tool is none of its failures: once the tools are known, ``missing``
    has those patterns, as ``SERVER__PATTERN``.
    """

    def __init__(self, servers: Sequence[ToolServer], environ: Mapping[str, str], *, lenient: bool = False) -> None:
        self.missing: list[str] = []
        self._lenient = lenient
        self._servers = {server.name: server for server in servers}
        self._worker = Worker(servers, environ) if servers else None
        self._offered: dict[str, Offered] | None = None

    def start(self) -> None:
        """Begin all servers, in parallel and in a thread of its own. Raises ConfigError where the SDK is missing."""
        if self._worker:
            self._worker.start()

    def close(self) -> None:
        """End all servers, within some two seconds. May be called again."""
        if self._worker:
            self._worker.stop()

    def kill(self) -> None:
        """End all server processes at once, wherever the run is; for a run that is itself ended so."""
        if self._worker:
            self._worker.kill()

    @property
    def ready(self) -> bool:
        """Whether all servers have told their tools."""
        return self._offered is not None

    @property
    def failed(self) -> bool:
        """Whether a server has ended since it told its tools."""
        return self.ready and self._worker is not None and not self._worker.opened.empty()

    def tools(self) -> tuple[Tool, ...]:
        """The tools, as soon as all servers are ready. Raises as ``offered``."""
        return tuple(offered.tool for offered in self.offered())

    def offered(self) -> tuple[Offered, ...]:
        """The tools and what is known of them here, as soon as all servers are ready.

        Raises ToolServerError for the first server that fails, ConfigError for a pattern that means no tool, unless the
        toolbox is lenient.
        """
        if self._offered is None:
            found = self._opened()
            names = names_for_model(found)
            self._offered = {name: self._offer(own, name, found[own]) for own, name in names.items()}
        return tuple(self._offered.values())

    def _offer(self, own: tuple[str, str], name: str, tool: Tool) -> Offered:
        approved = matches(own[1], self._servers[own[0]].auto_approve)
        return Offered(tool._replace(name=name), *own, auto_approve=approved)

    def _opened(self) -> dict[tuple[str, str], Tool]:
        """The tools that are wanted, by server and own name, in the order of the config and of each server."""
        told: dict[str, list[Tool]] = {}
        while self._worker and len(told) < len(self._servers):
            item = self._worker.take(self._worker.opened)
            if not isinstance(item, Opened):
                raise item
            told[item.server] = item.tools
        found: dict[tuple[str, str], Tool] = {}
        for name, server in self._servers.items():
            for tool in self._wanted(server, told[name]):
                found.setdefault((name, tool.name), tool)
        return found

    def _wanted(self, server: ToolServer, tools: Sequence[Tool]) -> list[Tool]:
        """The tools that the patterns mean. Raises ConfigError for a pattern that means none, unless that is noted."""
        for pattern in server.tools:
            if pattern == "*" or any(matches(tool.name, [pattern]) for tool in tools):
                continue
            self.missing.append(f"{server.name}{SEPARATOR}{pattern}")
            if not self._lenient:
                known = ", ".join(tool.name for tool in tools[:_FEW]) or "none"
                way = f"it has {known}; --tools names others, --no-tools does without"
                raise ConfigError(f"tool server {server.name} has no tool {pattern!r}", way)
        return [tool for tool in tools if matches(tool.name, server.tools)]

    def approved(self, call: Call) -> bool:
        """Whether a call needs no question, by the patterns of its server; nor does one that will not be made."""
        offered = self._named(call)
        return offered is None or offered.auto_approve

    def _named(self, call: Call) -> Offered | None:
        return (self._offered or {}).get(call["function"]["name"])

    def run(self, calls: Sequence[Call]) -> Iterator[ToolResult]:
        """Make the calls, all in parallel; each result as it comes. A call that cannot be made results in saying so.

        Raises ToolServerError for a server that died, hung or answered garbage, behind the results of all others.
        """
        made = [(call, self._begin(call)) for call in calls]
        begun = {future: call for call, future in made if not isinstance(future, str)}
        try:
            yield from (ToolResult(result_of(call, f"error: {why}")) for call, why in made if isinstance(why, str))
            failure = yield from self._results(begun)
        finally:
            for future in begun:
                future.cancel()
        if failure:
            raise failure

    def _results(self, begun: "dict[Future[Answer], Call]") -> Generator[ToolResult, None, ToolServerError | None]:
        """The results of calls, and the first failure of a server."""
        done: queue.SimpleQueue[Future[Answer]] = queue.SimpleQueue()
        failure = None
        for future in begun:
            future.add_done_callback(done.put)
        for _ in begun:
            future = self._taken(done)
            if isinstance(error := future.exception(), ToolServerError):
                failure = failure or error
            else:
                yield ToolResult(results.message(begun[future], *future.result()))
        return failure

    def _taken(self, done: "queue.SimpleQueue[Future[Answer]]") -> "Future[Answer]":
        assert self._worker is not None  # there was something to begin
        return self._worker.take(done)

    def _begin(self, call: Call) -> "Future[Answer] | str":
        """Begin a call; or why it cannot be made."""
        offered = self._named(call)
        if offered is None or self._worker is None:
            return self._unknown(call["function"]["name"])
        arguments = _arguments(call["function"].get("arguments"))
        if isinstance(arguments, str):
            return f"{arguments}, so the tool was not called"
        return self._worker.call(offered.server, offered.own, arguments)

    def _unknown(self, name: str) -> str:
        import difflib  # noqa: PLC0415 - few models make up a name

        known = list(self._offered or {})
        near = difflib.get_close_matches(name, known, cutoff=0.5) or known[:_FEW]
        return f"there is no tool {name!r}" + (f", there is {', '.join(near)}" if near else "")


def _arguments(text: Any) -> dict[str, Any] | str:
    """Arguments as the model wrote them, nothing at all as none; or what is wrong with them."""
    try:
        found = json.loads(text or "{}")
        written = json.dumps(found, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        found, written = None, ""
    if not isinstance(found, dict) or not is_unicode(written):
        return "the arguments are no JSON object"
    try:
        json.dumps(found, allow_nan=False)
    except ValueError:
        return "the arguments have a number that JSON does not know, such as NaN, or one that is too large"
    return found
