"""What questions are asked with, and who answers: agent, model, key, form and tools, before a question is read."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from gptsh.cli import stdio
from gptsh.cli.interrupts import Interrupts
from gptsh.cli.options import Flags
from gptsh.cli.reporter import Reporter
from gptsh.cli.session import agent_for
from gptsh.cli.show import Form
from gptsh.config.forms import STRUCTURED
from gptsh.config.mcp_servers import ToolServer
from gptsh.config.settings import Agent, Settings
from gptsh.content.answer import Tools
from gptsh.core.document import Document
from gptsh.errors import ConfigError, ToolServerError, UsageError
from gptsh.llm.client import Client
from gptsh.models.facts import similar_parameter

if TYPE_CHECKING:
    from gptsh.tools.toolbox import Toolbox


class TurnSetup(NamedTuple):
    """Who answers, in which form, with the tools of which servers."""

    agent: Agent  # its model under its full name
    form: Form
    servers: list[ToolServer]


class App:
    """Settings, client and tool servers, be it for one question or those of a conversation.

    With ``keeps_tools`` the servers go on behind a turn, for the next one that wants the same.
    """

    def __init__(
        self, loaded: Settings, environ: Mapping[str, str], reporter: Reporter, *, keeps_tools: bool = False
    ) -> None:
        self.settings, self.reporter = loaded, reporter
        self.client = Client(loaded, environ)
        self._environ, self._keeps = environ, keeps_tools
        self._box: Toolbox | None = None
        self._servers: list[ToolServer] = []

    def resolve(self, flags: Flags, stored: Document | None) -> TurnSetup:
        """Who answers. What can end in exit 2 whatever is asked ends here: ConfigError and UsageError.

        A note says what the model refuses. The reporter learns the form of the output. Markdown is for a person: in a
        pipe it is rendered only where the command line itself asks for it.
        """
        agent = with_tools(agent_for(flags, self.settings, stored), flags, self.settings, stored)
        output = flags.output or self.settings.output or agent.output
        if output in STRUCTURED and flags.interactive:  # what is configured is for programs
            output = None
        if output not in STRUCTURED:
            person = stdio.is_terminal(stdio.stdout())
            output = "markdown" if flags.output == "markdown" or (person and output != "text") else "text"
        if flags.extract and flags.schema is not None:
            raise UsageError("-x and --schema exclude each other", "JSON loses its fence by --schema alone")
        shape = None
        if flags.schema is not None:
            from gptsh.context.answer_schema import AnswerSchema  # noqa: PLC0415 - few answers have one

            shape = AnswerSchema(flags.schema)
        self.reporter.output = output
        if agent.model is None:
            raise self.no_model_error()
        servers = self.settings.tool_servers.select(agent.tools) if agent.tools else []
        model = self.client.servers.full_name(agent.model)
        if left_out := self.client.prepare(model, agent.params, tools=bool(agent.tools)):
            stdio.note(f"{model} takes no {', '.join(left_out)}: left out")
        for name in agent.params:
            if near := similar_parameter(name):
                stdio.note(f"the parameter {name} is sent as it is: did you mean {near}?")
        form = Form(output, flags.extract, shape, not flags.no_reasoning)
        return TurnSetup(agent._replace(model=model), form, servers)

    def no_model_error(self) -> ConfigError:
        """What is wrong where nothing says which model is asked: the ways to say it."""
        near = self.client.servers.local_models()
        ways = (
            "use -m PROVIDER/MODEL, GPTSH_MODEL, a key such as OPENAI_API_KEY, or model under [agents.default], which "
        )
        ways += "gptsh --init writes"
        offered = f"; local models: {', '.join(near)}" if near else "; -m echo works offline"
        return ConfigError("no model is chosen", ways + offered)

    @contextmanager
    def open_tools(
        self, servers: Sequence[ToolServer], interrupts: Interrupts, *, lenient: bool
    ) -> Iterator[Tools | None]:
        """The tools of these servers; None where there are none. Where one of them fails, none goes on behind it."""
        if not servers:
            yield None
            return
        if self._box and (self._servers != [*servers] or self._box.failed):
            self.close_tools(interrupts)
        try:
            if self._box is None:
                from gptsh.tools.toolbox import Toolbox  # noqa: PLC0415 - few runs have tools

                with interrupts.shielded():
                    self._box, self._servers = Toolbox(servers, self._environ, lenient=lenient), [*servers]
                    self._box.start()
            interrupts.before_kill.append(self._box.kill)
            yield self._box
        except ToolServerError:
            self.close_tools(interrupts)
            raise
        finally:
            if self._box and not (self._keeps and self._box.ready):
                self.close_tools(interrupts)

    def running_tools(self, servers: Sequence[ToolServer]) -> Tools | None:
        """The tools of exactly these servers, where they run already and have listed their tools."""
        return self._box if self._box and self._box.ready and self._servers == [*servers] else None

    def close_tools(self, interrupts: Interrupts) -> None:
        """End the servers, within some two seconds."""
        if self._box:
            with interrupts.ignored():
                self._box.close()
            self._box = None


def with_tools(agent: Agent, flags: Flags, loaded: Settings, stored: Document | None) -> Agent:
    """The agent with the tools that are wanted: the command line's, else the session's, else its own."""
    names = None if stored is None or flags.chooses_tools else stored["meta"].get("mcp_allowed_servers")
    if not isinstance(names, list):
        return agent._replace(tools=flags.select_tools(agent.tools))
    known = []
    for name in names:  # as far as they are still configured
        try:
            known += [name] if isinstance(name, str) and loaded.tool_servers.select([name]) else []
        except ConfigError as err:
            stdio.note(f"the session goes on without some of its tools: {err}")
    return agent._replace(tools=tuple(known))
