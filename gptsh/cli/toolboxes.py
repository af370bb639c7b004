"""The tool servers of a process: started when a turn wants them, ended with the turn or with the conversation."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gptsh.cli.interrupts import Interrupts
from gptsh.config.mcp_servers import ToolServer
from gptsh.content.answer import Tools
from gptsh.errors import ToolServerError

if TYPE_CHECKING:
    from gptsh.tools.toolbox import Toolbox


class Toolboxes:
    """Lends a turn its tools. With ``keeps`` their servers go on behind it, for the next turn that wants the same."""

    def __init__(self, environ: Mapping[str, str], *, keeps: bool = False) -> None:
        self._environ, self._keeps = environ, keeps
        self._box: Toolbox | None = None
        self._servers: list[ToolServer] = []

    @contextmanager
    def lent(self, servers: Sequence[ToolServer], interrupts: Interrupts, *, lenient: bool) -> Iterator[Tools | None]:
        """The tools of these servers; None where there are none. Where one of them fails, none goes on behind it."""
        if not servers:
            yield None
            return
        if self._box and (self._servers != [*servers] or self._box.failed):
            self.close(interrupts)
        try:
            box = self._box or self._started(servers, lenient=lenient)
            interrupts.before_kill.append(box.kill)
            yield box
        except ToolServerError:
            self.close(interrupts)
            raise
        finally:
            if self._box and not (self._keeps and self._box.ready):
                self.close(interrupts)

    def running(self, servers: Sequence[ToolServer]) -> Tools | None:
        """The tools of just these servers, where they run and have told them."""
        return self._box if self._box and self._box.ready and self._servers == [*servers] else None

    def _started(self, servers: Sequence[ToolServer], *, lenient: bool) -> "Toolbox":
        from gptsh.tools.toolbox import Toolbox  # noqa: PLC0415 - few runs have tools

        self._box, self._servers = Toolbox(servers, self._environ, lenient=lenient), [*servers]
        self._box.start()
        return self._box

    def close(self, interrupts: Interrupts) -> None:
        """End the servers, within some two seconds."""
        if self._box:
            with interrupts.over():
                self._box.close()
            self._box = None
