"""The options that list sessions, usage, agents, models and tools, or that label a session."""

import os
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from gptsh.cli import lists, stdio
from gptsh.cli.options import Flags
from gptsh.config.forms import STRUCTURED
from gptsh.core import listing, references, sessions
from gptsh.core.document import Document
from gptsh.core.listing import Unreadable
from gptsh.errors import UsageError
from gptsh.models.names import matches_model
from gptsh.render.lists import INDENT, agent_line, found_drawn, found_lines, listing_line, model_line, tool_line
from gptsh.render.plain import look

if TYPE_CHECKING:
    from gptsh.core.search import Found
    from gptsh.core.usage import Report
    from gptsh.tools.toolbox import OfferedTool

_MIN_WIDTH = 40  # columns for the passage of a found session, even on a narrower terminal


def list_sessions(flags: Flags) -> int:
    """Print a line for each session that matches the filters; an unreadable one gets a note."""
    line = partial(listing_line, aligned=stdio.is_terminal(stdio.stdout()))
    stdio.write_lines(lists.batches(lists.lines_of(flags, lists.matching_sessions(flags), line, lists.session_object)))
    return 0


def search_sessions(flags: Flags) -> int:
    """Print two lines for each session that contains the words and matches the filters; return 1 if there is none."""
    items = found_sessions(flags)
    first = next(items, None)
    on_terminal = stdio.is_terminal(stdio.stdout())
    style = look(os.environ, terminal=on_terminal)
    is_rendered = (on_terminal or style.styles) and flags.output not in ("text", *STRUCTURED)
    line = partial(found_drawn, look=style) if is_rendered else found_lines
    found = chain(() if first is None else (first,), items)
    stdio.write_lines(lists.batches(lists.lines_of(flags, found, line, lists.session_object)), safe=is_rendered)
    return 1 if first is None else 0


def found_sessions(flags: Flags) -> Iterator["Found"]:
    """The sessions that contain the words and match the filters, each with a passage of one line."""
    from gptsh.core.search import search  # noqa: PLC0415 - lists need no search

    room = max(_MIN_WIDTH, stdio.width(stdio.stdout())) - len(INDENT)
    return lists.filter_sessions(flags, search(flags.search_sessions or "", room, archived=flags.archived))


def show_usage(flags: Flags) -> int:
    """Print tokens and cost by day and by model: a table, or JSON with ``-o``."""
    from gptsh.core import usage  # noqa: PLC0415 - lists need no sums

    report = usage.count(_documents(flags), flags.model, flags.limit)
    if flags.model and not report.models:
        stdio.note(f"nothing found with a model like {flags.model}")
    if flags.output in STRUCTURED:
        from gptsh.render import structured  # noqa: PLC0415 - only JSON needs it

        stdio.write_lines(map(structured.line, usage.rows(report) if flags.output == "jsonl" else [report._asdict()]))
        return 0
    draw_usage(report, flags)
    return 0


def draw_usage(report: "Report", flags: Flags) -> None:
    """Print tokens and cost as a table."""
    from gptsh.render.usage import drawn, plain  # noqa: PLC0415 - only the table needs it

    out = stdio.stdout()
    is_rendered = stdio.is_terminal(out) and flags.output != "text"
    lines = drawn(report, stdio.width(out), look(os.environ, terminal=True)) if is_rendered else plain(report)
    stdio.write_lines(lines, safe=is_rendered)


def _documents(flags: Flags) -> Iterator[Document]:
    here = lists.current_project() if flags.here else None
    for doc in [sessions.load_at(flags.session)] if flags.session else listing.scan_documents():
        if isinstance(doc, Unreadable):
            stdio.note(f"skipped {doc.path}: {doc.cause}")
        elif lists.matches_filters(
            flags, here, doc["agent"].get("name"), doc["meta"].get("project"), doc["meta"]["tags"]
        ):
            yield doc


def label(ref: str, flags: Flags, keep: int, doc: Document | None = None) -> int:
    """Set the title, add tags and take a snapshot of a session without asking a question.

    ``keep`` is the number of snapshots that the session keeps; ``doc`` is its document, if already read.
    """
    if references.split_ref(ref)[1] is not None:
        raise UsageError(f"{ref}: a point cannot be labelled", "label the session, or ask from the point")
    filename = references.filename_of(ref)
    doc = doc or sessions.load_session(filename)
    if flags.snapshot is not None:
        from gptsh.context.tokens import estimate  # noqa: PLC0415 - only snapshots need it
        from gptsh.core import snapshots  # noqa: PLC0415 - only snapshots need it

        snapshots.record(doc, keep, name=flags.snapshot, tokens=estimate(doc["messages"]))
    sessions.save_session(doc, title=flags.title, tags=flags.tag, at=filename, keep_snapshots=keep)
    return 0


def list_agents(flags: Flags) -> int:
    """Print a line for each agent: its name and model; a star marks the default agent."""
    from gptsh.config import settings  # noqa: PLC0415 - a list of sessions needs no config

    config = settings.load(os.environ, flags.config)
    default = config.agent or config.default_agent
    agents = [(name, agent.model) for name, agent in config.agents.items()]
    matching_agents = (agent for agent in agents if matches_model(agent[1], flags.model))
    items = ((name, model, name == default) for name, model in islice(matching_agents, flags.limit))
    keys = ("name", "model", "default")
    stdio.write_lines(
        lists.lines_of(flags, items, lambda item: agent_line(*item), lambda item: dict(zip(keys, item, strict=True)))
    )
    return 0


def list_models(flags: Flags) -> int:
    """Print a line for each model that can be used with the keys and servers at hand."""
    from gptsh.config import settings  # noqa: PLC0415 - a list of sessions needs no config
    from gptsh.llm.client import Client  # noqa: PLC0415 - a list of sessions needs no network

    config = settings.load(os.environ, flags.config)
    models = Client(config, os.environ).servers.catalog(stdio.note)
    items = islice((item for item in models if (flags.model or "") in item["model"]), flags.limit)
    stdio.write_lines(lists.lines_of(flags, items, model_line, dict))
    return 0


def list_tools(flags: Flags) -> int:
    """Print a line for each tool of ``--tools``, else of the agent that ``-a`` names, else of all servers."""
    from gptsh.cli.interrupts import Interrupts  # noqa: PLC0415 - a list of sessions waits for nothing
    from gptsh.config import settings  # noqa: PLC0415 - a list of sessions needs no config
    from gptsh.tools.toolbox import Toolbox  # noqa: PLC0415 - a list of sessions needs no tools

    config = settings.load(os.environ, flags.config)
    default: tuple[str, ...] = ("all",)
    if flags.agent is not None:
        default = settings.choose_agent(config, settings.Overrides(flags.agent), None).tools
    toolbox = Toolbox(config.tool_servers.select(flags.select_tools(default)), os.environ)
    with Interrupts(None) as interrupts:
        try:
            toolbox.start()
            offered = toolbox.offered()
        finally:
            with interrupts.shielded():
                toolbox.close()
    items = islice(offered, flags.limit)
    stdio.write_lines(lists.lines_of(flags, items, lambda item: tool_line(item.tool), _tool_object))
    return 0


def _tool_object(item: "OfferedTool") -> dict[str, Any]:
    tool = item.tool._asdict()
    return {"name": tool.pop("name"), "server": item.server, **tool, "auto_approve": item.auto_approve}
