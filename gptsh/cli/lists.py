"""List agents, models and tools: ``--list-agents``, ``--list-models``, ``--list-tools``."""

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from gptsh.cli.jobs import chosen_tools
from gptsh.cli.options import Flags
from gptsh.config import settings
from gptsh.config.settings import Settings
from gptsh.errors import GptshError, ToolServerError
from gptsh.jsonio import JsonObject
from gptsh.manage import lists
from gptsh.messages import matches_model
from gptsh.render.lists import agent_line, model_line, model_table, tool_line
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupts
from gptsh.turn.agents import agent_of, model_of
from gptsh.turn.options import TurnOptions

if TYPE_CHECKING:
    from gptsh.tools.toolbox import OfferedTool


def list_agents(flags: Flags) -> int:
    """Print a line for each agent: its name, model and the names of its prompt.

    A star marks the default agent.
    """
    config = settings.load(os.environ, flags.config)
    default_agent = config.agent or config.default_agent
    agents: list[JsonObject] = []
    for agent in config.agents.readable(stdio.note):
        model = model_of(config, agent, agent.model)
        if not matches_model(model, flags.model):
            continue
        fields = {
            "name": agent.name,
            "model": model,
            "default": agent.name == default_agent,
            "names": agent.prompt_names(),
        }
        agents.append(fields)
    _note_on_agents(config)

    none = f"no agent has a model that matches {flags.model}" if flags.model else ""
    items = lists.or_note(agents[: flags.limit], none)
    lines = lists.lines_of(items, lambda item: agent_line(**item), dict, flags.output)
    lists.show(lines, flags.output)
    return 0


def _note_on_agents(config: Settings) -> None:
    """Print notes on files of agents that are not read, and on files that are none."""
    notes = [config.agents.conflict(name) for name in config.agents]
    notes.append(config.agents.note_on_others())
    for note in notes:
        if note:
            stdio.note(note)


def list_models(flags: Flags) -> int:
    """Print a line for each model that can be used with the keys and servers at hand."""
    from gptsh.llm.client import Client

    config = settings.load(os.environ, flags.config)
    models = Client(config, os.environ).model_lists.rows(flags.model or "", stdio.note)
    none = f"no available model matches {flags.model}" if flags.model else ""
    items = lists.or_note(islice(models, flags.limit), none)
    if lists.shows_rows(flags.output):
        table = model_table(items, stdio.width(stdio.stdout()))
        lists.show(table, flags.output, safe=True)
    else:
        lists.show(lists.lines_of(items, model_line, dict, flags.output), flags.output)
    return 0


def list_tools(flags: Flags) -> int:
    """Print a line for each tool of ``--tools``, else of the agent of ``-a``, else of all servers.

    A server that cannot be used hides no other: its error follows the tools of the others, and the
    run exits with 3.
    """
    from gptsh.tools.toolbox import Toolbox

    config = settings.load(os.environ, flags.config)
    chosen = _chosen_tools(flags, config)
    failures: list[GptshError] = []
    servers = config.tool_servers.select(chosen, failures.append)
    if failures and not servers:
        raise failures[0]

    warnings.simplefilter("ignore")  # the SDK's
    toolbox = Toolbox(servers, os.environ, on_error=failures.append)
    with Interrupts(None) as interrupts:
        try:
            toolbox.start()
            offered = toolbox.offered()
        finally:
            with interrupts.shielded():
                toolbox.close()

    for note in toolbox.notes():
        stdio.note(note)
    items: Iterable[OfferedTool] = islice(offered, flags.limit)
    if failures:
        items = _then_raise(items, failures, debug=flags.debug)
    else:
        items = lists.or_note(items, _no_tools(flags, config))
    lines = lists.lines_of(items, lambda item: tool_line(item.tool), _tool_object, flags.output)
    lists.show(lines, flags.output)
    return 0


def _chosen_tools(flags: Flags, config: Settings) -> Sequence[str]:
    """Return the tools of the options, else those of the agent of ``-a``, else all."""
    chosen = chosen_tools(flags)
    if chosen is not None:
        return chosen
    if flags.agent is None:
        return ("all",)
    return agent_of(config, TurnOptions(agent=flags.agent), None).tools


def _no_tools(flags: Flags, config: Settings) -> str:
    """Return the note on an empty list of tools."""
    if not config.tool_servers.names:
        return "no tool servers: add one under [mcp.servers.NAME] in config.toml"
    if flags.no_tools:
        return "--no-tools leaves no tools"
    if flags.agent is not None:
        return f"agent {flags.agent} has no tools"
    return "the servers have no tools"


def _then_raise(
    offered: Iterable["OfferedTool"],
    failures: Sequence[GptshError],
    *,
    debug: bool,
) -> Iterator["OfferedTool"]:
    """Yield the tools, then report all failures but the last, which is raised with exit code 3."""
    yield from offered
    *others, last = failures
    for failure in others:
        stdio.report(failure, debug=debug)
    last.exit_code = ToolServerError.exit_code
    raise last


def _tool_object(item: "OfferedTool") -> dict[str, object]:
    tool = item.tool._asdict()
    return {
        "name": tool.pop("name"),
        "server": item.server,
        **tool,
        "auto_approve": item.auto_approve,
    }
