"""What is listed: sessions, what they used, agents, models, tools; a session labelled."""

import os
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from gptsh.cli import stdio
from gptsh.cli.lists import current_project, filtered, is_chosen, lines_of, passing, session_object, together
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

_NARROWEST = 40  # columns that a match is not made to fit into


def list_sessions(flags: Flags) -> int:
    """Print a line for each session that the filters let through, as it is read; one on stderr for each unreadable."""
    line = partial(listing_line, aligned=stdio.is_terminal(stdio.stdout()))
    stdio.write_lines(together(lines_of(flags, passing(flags), line, session_object)))
    return 0


def search_sessions(flags: Flags) -> int:
    """Print two lines for each session that is found and that the filters let through, as it is found.

    The exit code: 1 when there is none.
    """
    items = found_sessions(flags)
    first = next(items, None)
    terminal = stdio.is_terminal(stdio.stdout())
    style = look(os.environ, terminal=terminal)
    drawing = (terminal or style.styles) and flags.output not in ("text", *STRUCTURED)
    line = partial(found_drawn, look=style) if drawing else found_lines
    every = chain(() if first is None else (first,), items)
    stdio.write_lines(together(lines_of(flags, every, line, session_object)), safe=drawing)
    return 1 if first is None else 0


def found_sessions(flags: Flags) -> Iterator["Found"]:
    """The sessions that are found, with a passage that fits into a line, as they are found."""
    from gptsh.core.search import search  # noqa: PLC0415 - a list searches for nothing

    room = max(_NARROWEST, stdio.width(stdio.stdout())) - len(INDENT)
    return filtered(flags, search(flags.search_sessions or "", room, archived=flags.archived))


def show_usage(flags: Flags) -> int:
    """Print what was used and paid by day and by model: a table, or JSON where ``-o`` asks for it."""
    from gptsh.core import usage  # noqa: PLC0415 - a list sums up nothing

    report = usage.count(_documents(flags), flags.model, flags.limit)
    if flags.model and not report.models:
        stdio.note(f"nothing found with a model like {flags.model}")
    if flags.output in STRUCTURED:
        from gptsh.render import structured  # noqa: PLC0415 - as in ``lines_of``

        stdio.write_lines(map(structured.line, usage.rows(report) if flags.output == "jsonl" else [report._asdict()]))
        return 0
    draw_usage(report, flags)
    return 0


def draw_usage(report: "Report", flags: Flags) -> None:
    """Print sums as a table."""
    from gptsh.render.usage import drawn, plain  # noqa: PLC0415 - a list draws nothing

    out = stdio.stdout()
    drawing = stdio.is_terminal(out) and flags.output != "text"
    lines = drawn(report, stdio.width(out), look(os.environ, terminal=True)) if drawing else plain(report)
    stdio.write_lines(lines, safe=drawing)


def _documents(flags: Flags) -> Iterator[Document]:
    here = current_project() if flags.here else None
    for doc in [sessions.load_at(flags.session)] if flags.session else listing.scan_documents():
        if isinstance(doc, Unreadable):
            stdio.note(f"skipped {doc.path}: {doc.cause}")
        elif is_chosen(flags, here, doc["agent"].get("name"), doc["meta"].get("project"), doc["meta"]["tags"]):
            yield doc


def label(ref: str, flags: Flags, keep: int, doc: Document | None = None) -> int:
    """Set the title by hand, add tags, take a snapshot, of which so many are kept; nothing is asked.

    ``doc`` is the session where it was read already.
    """
    if references.split_ref(ref)[1] is not None:
        raise UsageError(f"{ref}: a point cannot be labelled", "label the session, or ask from the point")
    filename = references.filename_of(ref)
    doc = doc or sessions.load_session(filename)
    if flags.snapshot is not None:
        from gptsh.context.tokens import estimate  # noqa: PLC0415 - a list takes none
        from gptsh.core import snapshots  # noqa: PLC0415 - the same

        snapshots.record(doc, keep, name=flags.snapshot, tokens=estimate(doc["messages"]))
    sessions.save_session(doc, title=flags.title, tags=flags.tag, at=filename, keep_snapshots=keep)
    return 0


def list_agents(flags: Flags) -> int:
    """Print a line for each agent: its name, its model, and a star for the one that is used by default."""
    from gptsh.config import settings  # noqa: PLC0415 - a list of sessions needs no config

    loaded = settings.load(os.environ, flags.config)
    default = loaded.agent or loaded.default_agent
    agents = [(name, agent.model) for name, agent in loaded.agents.items()]
    chosen = (agent for agent in agents if matches_model(agent[1], flags.model))
    items = ((name, model, name == default) for name, model in islice(chosen, flags.limit))
    keys = ("name", "model", "default")
    stdio.write_lines(
        lines_of(flags, items, lambda item: agent_line(*item), lambda item: dict(zip(keys, item, strict=True)))
    )
    return 0


def list_models(flags: Flags) -> int:
    """Print a line for each model that can be asked from here, as it is found."""
    from gptsh.config import settings  # noqa: PLC0415 - a list of sessions needs no config
    from gptsh.llm.client import Client  # noqa: PLC0415 - nor a network

    loaded = settings.load(os.environ, flags.config)
    listed = Client(loaded, os.environ).servers.catalog(stdio.note)
    items = islice((item for item in listed if (flags.model or "") in item["model"]), flags.limit)
    stdio.write_lines(lines_of(flags, items, model_line, dict))
    return 0


def list_tools(flags: Flags) -> int:
    """Print a line for each tool: those of ``--tools``, else of the agent that ``-a`` names, else of all servers."""
    from gptsh.cli.interrupts import Interrupts  # noqa: PLC0415 - a list of sessions waits for nobody
    from gptsh.config import settings  # noqa: PLC0415 - nor needs a config
    from gptsh.tools.toolbox import Toolbox  # noqa: PLC0415 - nor tools

    loaded = settings.load(os.environ, flags.config)
    asked = settings.Overrides(flags.agent)
    own = ("all",) if flags.agent is None else settings.choose_agent(loaded, asked, None).tools
    toolbox = Toolbox(loaded.tool_servers.select(flags.select_tools(own)), os.environ)
    with Interrupts(None) as interrupts:
        try:
            toolbox.start()
            offered = toolbox.offered()
        finally:
            with interrupts.shielded():
                toolbox.close()
    items = islice(offered, flags.limit)
    stdio.write_lines(lines_of(flags, items, lambda item: tool_line(item.tool), _tool_object))
    return 0


def _tool_object(item: "OfferedTool") -> dict[str, Any]:
    tool = item.tool._asdict()
    return {"name": tool.pop("name"), "server": item.server, **tool, "auto_approve": item.auto_approve}
