"""List agents, models and tools: ``--list-agents``, ``--list-models``, ``--list-tools``."""

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from gptsh.cli.jobs import chosen_tools
from gptsh.cli.options import Flags
from gptsh.config import settings
from gptsh.errors import GptshError, ToolServerError
from gptsh.manage import lists
from gptsh.messages import matches_model
from gptsh.render.lists import agent_line, model_line, tool_line
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupts
from gptsh.turn.options import TurnOptions, choose_agent, model_of

if TYPE_CHECKING:
    from gptsh.tools.toolbox import OfferedTool


def list_agents(flags: Flags) -> int:
    """Print a line for each agent: its name, model and the names of its prompt; a star marks the default agent."""
    config = settings.load(os.environ, flags.config)
    default = config.agent or config.default_agent
    agents = [
        (agent.name, model_of(config, agent, agent.model), agent.prompt_names())
        for agent in config.agents.readable(stdio.note)
    ]
    for name in config.agents:
        if note := config.agents.conflict(name):
            stdio.note(note)
    matching_agents = (agent for agent in agents if matches_model(agent[1], flags.model))
    items = lists.or_note(
        ((name, model, name == default, names) for name, model, names in islice(matching_agents, flags.limit)),
        f"no agent has a model like {flags.model}" if flags.model else "",
    )
    keys = ("name", "model", "default", "names")
    stdio.write_lines(
        lists.lines_of(
            items, lambda item: agent_line(*item), lambda item: dict(zip(keys, item, strict=True)), flags.output
        )
    )
    return 0


def list_models(flags: Flags) -> int:
    """Print a line for each model that can be used with the keys and servers at hand."""
    from gptsh.llm.client import Client

    config = settings.load(os.environ, flags.config)
    models = Client(config, os.environ).model_lists.rows(flags.model or "", stdio.note)
    none = f"no key or server offers a model like {flags.model} now" if flags.model else ""
    items = lists.or_note(islice(models, flags.limit), none)
    stdio.write_lines(lists.lines_of(items, model_line, dict, flags.output))
    return 0


def list_tools(flags: Flags) -> int:
    """Print a line for each tool of ``--tools``, else of the agent that ``-a`` names, else of all servers.

    A server that cannot be used hides no other: its error follows the tools of the others, and is exit 3.
    """
    from gptsh.tools.toolbox import Toolbox

    config = settings.load(os.environ, flags.config)
    default: tuple[str, ...] = ("all",)
    if flags.agent is not None:
        default = choose_agent(config, TurnOptions(agent=flags.agent), None).tools
    chosen, failures = chosen_tools(flags), list[GptshError]()
    servers = config.tool_servers.select(default if chosen is None else chosen, failures.append)
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
    if not config.tool_servers.names:
        none = "there is no tool server: [mcp.servers.NAME] in config.toml adds one"
    else:
        whose = (
            "--no-tools leaves" if flags.no_tools else f"agent {flags.agent} has" if flags.agent else "the servers have"
        )
        none = f"{whose} no tools"
    shown = islice(offered, flags.limit)
    items = _then_raise(shown, failures, debug=flags.debug) if failures else lists.or_note(shown, none)
    stdio.write_lines(lists.lines_of(items, lambda item: tool_line(item.tool), _tool_object, flags.output))
    return 0


def _then_raise(
    offered: Iterable["OfferedTool"], failures: Sequence[GptshError], *, debug: bool
) -> Iterator["OfferedTool"]:
    """Yield the tools, then report all failures but the last, which is raised with the exit code of a tool server."""
    yield from offered
    *others, last = failures
    for failure in others:
        stdio.report(failure, debug=debug)
    last.exit_code = ToolServerError.exit_code
    raise last


def _tool_object(item: "OfferedTool") -> dict[str, object]:
    tool = item.tool._asdict()
    return {"name": tool.pop("name"), "server": item.server, **tool, "auto_approve": item.auto_approve}
