"""Prepare a turn: resolve its agent, model, output and tool servers; own client and tools."""

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from gptsh.config.agents import Agent
from gptsh.config.settings import Settings
from gptsh.config.tool_servers import ToolServer
from gptsh.core.document import Document
from gptsh.errors import ConfigError, GptshError, ToolServerError
from gptsh.llm.client import Client
from gptsh.messages import Tools
from gptsh.models.facts import split_model
from gptsh.render.report import Reporter
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupts
from gptsh.terminal.stdio import STRUCTURED
from gptsh.turn.agents import agent_of, params_for, unknown_import
from gptsh.turn.options import TurnOptions
from gptsh.turn.screen import Output

if TYPE_CHECKING:
    from gptsh.tools.toolbox import Toolbox


_MAX_ROUTED = 3  # models that a request to OpenRouter may name as fallbacks


class Setup(NamedTuple):
    """The agent, output and tool servers of one turn.

    ``fallbacks`` are the agent with each of the models to ask instead of its own. ``notes`` say
    what is not as the user may expect; ``Engine.begin_turn`` prints them.
    """

    agent: Agent  # with the full name of its model
    output: Output
    servers: list[ToolServer]
    fallbacks: tuple[Agent, ...] = ()
    notes: tuple[str, ...] = ()


class Engine:
    """Settings, client and tool servers of a single question or of a conversation.

    If ``keeps_tools`` is true, the tool servers keep running after a turn, for the next turn that
    uses the same ones. If ``sends`` is false, requests are only shown, which needs no key. If
    ``owns_process`` is false, the settings of the process, such as its log, are left alone.
    """

    def __init__(
        self,
        config: Settings,
        environ: Mapping[str, str],
        reporter: Reporter,
        *,
        keeps_tools: bool = False,
        sends: bool = True,
        owns_process: bool = True,
    ) -> None:
        self.settings = config
        self.reporter = reporter
        self.client = Client(config, environ, needs_keys=sends, owns_process=owns_process)
        self._environ = environ
        self._keeps_tools = keeps_tools
        self._sends = sends
        self._owns_process = owns_process
        self._toolbox: Toolbox | None = None
        self._servers: list[ToolServer] = []
        self._printed: set[str] = set()  # notes
        self.limit_cost(None)

    def limit_cost(self, max_cost: float | None) -> None:
        """Limit what requests cost from here on: all of them as ``per_day`` says, and a turn's.

        Raises UsageError for a negative ``max_cost``.
        """
        self.client.budget = None
        if max_cost is not None or self.settings.limits.per_day is not None:
            from gptsh.turn.budget import Budget

            self.client.budget = Budget(self.settings, max_cost)

    def resolve(self, options: TurnOptions, doc: Document | None) -> Setup:
        """Resolve the setup of a turn; send nothing.

        Raises ConfigError and UsageError, whatever the question is: in the output form of the
        turn, and after the notes on its agent, which may explain the failure.
        """
        settings = self.settings
        agent, notes = with_tools(agent_of(settings, options, doc), options, settings, doc)
        unknown = unknown_import(settings, doc)
        if unknown and agent.model and not (options.model or options.agent):
            notes.append(
                f"the imported session used {unknown}, which has no provider here; "
                f"asking {agent.model} instead"
            )
        conflict = settings.agents.conflict(agent.name)
        if conflict:
            notes.append(conflict)
        try:
            setup = self._setup_for(agent, options)
        except GptshError:
            self.print_notes(notes)
            raise
        return setup._replace(notes=(*notes, *setup.notes))

    def _setup_for(self, agent: Agent, options: TurnOptions) -> Setup:
        """Return the setup of an agent, with the notes on its model. Raises as ``resolve``."""
        output = output_of(self.settings, options, agent)
        self.reporter.output = output.form
        if agent.model is None:
            raise self.no_model_error()
        servers = self.settings.tool_servers.select(agent.tools) if agent.tools else []
        agent = self.with_full_model(agent)
        notes = self.adaptations(agent)
        fallbacks = []
        for name in agent.fallback:
            if name != agent.model:
                fallbacks.append(agent._replace(model=name, params=params_for(name, agent)))
        setup = Setup(
            agent,
            output,
            servers=servers,
            fallbacks=tuple(fallbacks),
            notes=tuple(notes),
        )
        return _with_router(setup) if fallbacks else setup

    def begin_turn(self, setup: Setup) -> None:
        """Print the notes of a setup, set the budget of its turn, and connect to its model."""
        self.print_notes(setup.notes)
        agent = setup.agent
        self.limit_cost(agent.max_cost)
        if self._sends:
            self.client.connect_early(agent.model or "", agent.params)

    def with_full_model(self, agent: Agent) -> Agent:
        """Return the agent with the full name of its model. Raises ConfigError."""
        return agent._replace(model=self.client.full_name(agent.model or ""))

    def adaptations(self, agent: Agent) -> list[str]:
        """Return notes on what an agent's model is not sent as the user asked.

        Raises ConfigError if the model cannot be asked.
        """
        notes = self.client.prepare(agent.model or "", agent.params, web=agent.web)
        return [f"{agent.model} {words}" for words in notes]

    def print_notes(self, notes: Iterable[str]) -> None:
        """Print the notes that were not printed yet: each turn of a conversation has the same."""
        for line in notes:
            if line not in self._printed:
                self._printed.add(line)
                stdio.note(line)

    def no_model_error(self) -> ConfigError:
        """Return the error if no model is configured; it lists the ways to choose one."""
        local = self.client.model_lists.local_models()
        offers = f"local models: {', '.join(local)}" if local else "-m echo works offline"
        return ConfigError(
            "no model is chosen",
            "use -m PROVIDER/MODEL, GPTSH_MODEL, a key such as OPENAI_API_KEY, or model under "
            f"[agents.default], which gptsh --init writes; {offers}",
        )

    @contextmanager
    def open_tools(
        self, servers: Sequence[ToolServer], interrupts: Interrupts, *, lenient: bool
    ) -> Iterator[Tools | None]:
        """Start these servers and return their tools; None without servers.

        If one of them fails, all are ended; ``lenient``: one that cannot be used gets a note, and
        the others are used.
        """
        if not servers:
            yield None
            return
        if self._toolbox and (self._servers != [*servers] or self._toolbox.has_ended_server):
            self.close_tools(interrupts)
        try:
            toolbox = self._toolbox or self._start_tools(servers, interrupts, lenient=lenient)
            interrupts.before_kill.append(toolbox.kill)
            yield toolbox
        except ToolServerError:
            self.close_tools(interrupts)
            raise
        finally:
            if self._toolbox and not (self._keeps_tools and self._toolbox.ready):
                self.close_tools(interrupts)

    def _start_tools(
        self, servers: Sequence[ToolServer], interrupts: Interrupts, *, lenient: bool
    ) -> "Toolbox":
        """Start these servers. Raises ToolServerError."""
        from gptsh.tools.toolbox import Toolbox  # takes long, so a signal may interrupt it

        on_error = _note_missing_server if lenient else None
        with interrupts.shielded():
            if self._owns_process:
                warnings.simplefilter("ignore")  # the SDK's
            toolbox = Toolbox(servers, self._environ, lenient=lenient, on_error=on_error)
            self._toolbox = toolbox  # before it starts: if that fails, it is closed
            self._servers = [*servers]
            toolbox.start()
        return toolbox

    def running_tools(self, servers: Sequence[ToolServer]) -> Tools | None:
        """Return the tools of exactly these servers; None if they do not run or list tools yet."""
        toolbox = self._toolbox
        is_ready = toolbox and toolbox.ready and self._servers == [*servers]
        return toolbox if is_ready else None

    def close_tools(self, interrupts: Interrupts) -> None:
        """End the servers, within about two seconds."""
        if self._toolbox:
            with interrupts.ignored():
                self._toolbox.close()
            self._toolbox = None


def _missing_server(err: GptshError) -> str:
    return f"the session continues without some of its tools: {err}"


def _note_missing_server(err: GptshError) -> None:
    stdio.note(_missing_server(err))


def _with_router(setup: Setup) -> Setup:
    """Return the setup in which OpenRouter itself asks the next of its models, as far as it can."""
    agent = setup.agent
    models: list[str] = []  # without the name of the provider, as it wants them
    others: list[Agent] = []
    for fallback in setup.fallbacks:
        provider, model = split_model(fallback.model or "")
        if provider == "openrouter" and len(models) < _MAX_ROUTED:
            models.append(model)
        else:
            others.append(fallback)
    is_routed = split_model(agent.model or "")[0] == "openrouter"
    if not (models and is_routed) or "models" in agent.params:
        return setup
    agent = agent._replace(params={**agent.params, "models": models})
    return setup._replace(agent=agent, fallbacks=tuple(others))


def output_of(settings: Settings, options: TurnOptions, agent: Agent) -> Output:
    """Return how an answer of this agent is shown.

    Raises UsageError for a schema that cannot be used.
    """
    form = options.output or settings.output or agent.output
    if form in STRUCTURED and options.interactive:  # from the configuration, for programs
        form = None
    if form not in STRUCTURED:
        # Markdown is drawn in a pipe only if the command line asks for it.
        on_terminal = stdio.is_terminal(stdio.stdout())
        is_drawn = options.output == "markdown" or (on_terminal and form != "text")
        form = "markdown" if is_drawn else "text"
    schema = None
    if options.schema is not None:
        from gptsh.context.answer_schema import AnswerSchema

        schema = AnswerSchema(options.schema)
    # A program that reads stderr wants the notes, not the reasoning: vim's :%!gptsh puts both
    # into the text.
    shows_reasoning = options.show_reasoning
    if shows_reasoning is None:
        shows_reasoning = form == "jsonl" or stdio.is_terminal(sys.stderr)
    return Output(
        form,
        block=options.block,
        schema=schema,
        reasoning=shows_reasoning,
        streamed=options.stream,
        on_event=options.on_event,
    )


def with_tools(
    agent: Agent,
    options: TurnOptions,
    config: Settings,
    doc: Document | None,
) -> tuple[Agent, list[str]]:
    """Return the agent with the tools of the options, else of the session, else its own.

    Also return a note for each of the session's tool servers that the configuration lacks.
    """
    if options.tools is not None:
        return agent._replace(tools=options.tools), []
    if doc is None or options.chooses_tools:
        return agent, []
    names = doc["meta"].get("mcp_allowed_servers")
    if not isinstance(names, list):
        return agent, []
    known_names = []
    notes = []
    for name in names:
        try:
            if isinstance(name, str) and config.tool_servers.select([name]):
                known_names.append(name)
        except ConfigError as err:
            notes.append(_missing_server(err))
    return agent._replace(tools=tuple(known_names)), notes
