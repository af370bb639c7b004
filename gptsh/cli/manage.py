"""The options that list sessions, usage, agents, models and tools, or that label a session."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from gptsh.cli import lists, stdio
from gptsh.cli.options import Flags
from gptsh.config.forms import STRUCTURED
from gptsh.core import listing, references, sessions
from gptsh.core.document import Document
from gptsh.core.listing import Unreadable
from gptsh.errors import GptshError, ToolServerError, UsageError
from gptsh.models.names import matches_model
from gptsh.render.list_lines import INDENT, agent_line, found_drawn, found_lines, listing_line, model_line, tool_line
from gptsh.render.plain import look

if TYPE_CHECKING:
    from gptsh.core.search import Found
    from gptsh.core.snapshots import SessionEvent
    from gptsh.core.usage import Counted, Report
    from gptsh.tools.toolbox import OfferedTool

_BAR_WIDTH = 20  # columns
_BAR_STEP = 100  # sessions that are counted before the bar changes
_MIN_WIDTH = 40  # columns for the passage of a found session, even on a narrower terminal


def list_sessions(flags: Flags) -> int:
    """Print a line for each session that matches the filters; an unreadable one gets a note."""
    line = partial(listing_line, aligned=stdio.is_terminal(stdio.stdout()))
    none_yet = "no session is archived" if flags.archived else 'there is no session yet: gptsh "hello" starts one'
    items = lists.or_note(lists.matching_sessions(flags), lists.nothing_found(flags, none_yet))
    stdio.write_lines(lists.batches(lists.lines_of(flags, items, line, lists.session_object)))
    return 0


def search_sessions(flags: Flags) -> int:
    """Print two lines for each session that contains the words and matches the filters; return 1 if there is none."""
    items = lists.or_note(found_sessions(flags), lists.nothing_found(flags))
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

    report = usage.count(counted(flags), flags.model, flags.limit)
    if not report.models and (note := lists.nothing_found(flags)):
        stdio.note(note)
    if flags.output in STRUCTURED:
        from gptsh.render import structured  # noqa: PLC0415 - only JSON needs it

        stdio.write_lines(map(structured.line, usage.rows(report) if flags.output == "jsonl" else [report._asdict()]))
        return 0
    draw_usage(report, flags)
    return 0


def draw_usage(report: "Report", flags: Flags) -> None:
    """Print tokens and cost as a table."""
    from gptsh.render.usage_table import drawn, plain  # noqa: PLC0415 - only the table needs it

    out = stdio.stdout()
    is_rendered = stdio.is_terminal(out) and flags.output != "text"
    lines = drawn(report, stdio.width(out), look(os.environ, terminal=True)) if is_rendered else plain(report)
    stdio.write_lines(lines, safe=is_rendered)


def counted(flags: Flags) -> Iterator[tuple[float, "Counted"]]:
    """The sessions to count with their file times, and on a terminal a bar of how many are counted.

    A fork comes after its origin, which names the model of old answers. A limit needs the newest file first.
    """
    from gptsh.core import copies, usage  # noqa: PLC0415 - lists need no sums
    from gptsh.render.spinner import Spinner  # noqa: PLC0415 - lists wait for nothing

    if flags.session:
        yield 0.0, usage.counted(sessions.load_at(flags.session))
        return
    here = lists.current_project() if flags.here else None
    paths = listing.files_to_count(newest_first=flags.limit is not None)
    screen = stdio.Sink(sys.stderr) if stdio.shows_frames(sys.stderr) else None
    with Spinner(screen, lambda: stdio.width(sys.stderr), "") as spinner:
        for number, (changed, path) in enumerate(paths):
            if number % _BAR_STEP == 0:
                bar = "█" * (number * _BAR_WIDTH // len(paths))
                spinner.set_text(f"counting sessions {bar:░<{_BAR_WIDTH}} {number:,} of {len(paths):,}")
            item = listing.try_read(path, copies.read_usage)
            if isinstance(item, Unreadable):
                spinner.hide()
                stdio.note(f"skipped {item.path}: {item.cause}")
                spinner.show()
            elif item and lists.matches_filters(
                flags,
                here,
                item[0]["agent"].get("name"),
                item[0]["meta"].get("project"),
                item[0]["meta"]["tags"],
            ):
                yield changed, item


def label(ref: str, flags: Flags, keep: int, doc: Document | None = None) -> "list[SessionEvent]":
    """Set the title, add tags, name and take a snapshot of a session without asking a question.

    ``keep`` is the number of snapshots that the session keeps; ``doc`` is its document, if already read. Returns what
    happened; the last event, ``done``, has the labels.
    """
    from gptsh.cli.session import save_labelled  # noqa: PLC0415 - a list saves nothing

    if references.split_ref(ref)[1] is not None:
        raise UsageError(f"{ref}: a point cannot be labelled", "label the session, or ask from the point")
    filename = references.filename_of(ref)
    doc, events = doc or sessions.load_session(filename), []
    if flags.snapshot is not None:
        from gptsh.context.tokens import estimate  # noqa: PLC0415 - only snapshots need it
        from gptsh.core import snapshots  # noqa: PLC0415 - only snapshots need it

        events = snapshots.record(doc, keep, name=flags.snapshot, tokens=estimate(doc["messages"]))
    save_labelled(doc, flags, filename)
    names = references.names_by_file().get(filename, [])
    labels = {"title": doc["title"], "tags": doc["meta"]["tags"], "names": names, "snapshot": flags.snapshot}
    saved = {"session": doc["id"]}
    return [*events, ("session_saved", saved), ("done", {**saved, **labels, "error": None})]


def write_events(events: "Sequence[SessionEvent]", output: str | None) -> None:
    """Write the events for ``-o jsonl``, what the last one reports for ``-o json``, else nothing."""
    if output in STRUCTURED:
        from gptsh.render import structured  # noqa: PLC0415 - only JSON needs it

        lines = [{"type": kind, **fields} for kind, fields in events] if output == "jsonl" else [events[-1][1]]
        stdio.write_lines(map(structured.line, lines))


def list_agents(flags: Flags) -> int:
    """Print a line for each agent: its name, model and the names of its prompt; a star marks the default agent."""
    from gptsh.config import agent_choice, settings  # noqa: PLC0415 - a list of sessions needs no config

    config = settings.load(os.environ, flags.config)
    default = config.agent or config.default_agent
    agents = [
        (agent.name, agent_choice.model_of(config, agent, agent.model), agent.prompt_names())
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
        lists.lines_of(flags, items, lambda item: agent_line(*item), lambda item: dict(zip(keys, item, strict=True)))
    )
    return 0


def list_models(flags: Flags) -> int:
    """Print a line for each model that can be used with the keys and servers at hand."""
    from gptsh.config import settings  # noqa: PLC0415 - a list of sessions needs no config
    from gptsh.llm.client import Client  # noqa: PLC0415 - a list of sessions needs no network

    config = settings.load(os.environ, flags.config)
    models = Client(config, os.environ).servers.catalog(flags.model or "", stdio.note)
    none = f"no key or server offers a model like {flags.model} now" if flags.model else ""
    items = lists.or_note(islice(models, flags.limit), none)
    stdio.write_lines(lists.lines_of(flags, items, model_line, dict))
    return 0


def list_tools(flags: Flags) -> int:
    """Print a line for each tool of ``--tools``, else of the agent that ``-a`` names, else of all servers.

    A server that cannot be used hides no other: its error follows the tools of the others, and is exit 3.
    """
    from gptsh.cli.interrupts import Interrupts  # noqa: PLC0415 - a list of sessions waits for nothing
    from gptsh.config import agent_choice, settings  # noqa: PLC0415 - a list of sessions needs no config
    from gptsh.tools.toolbox import Toolbox  # noqa: PLC0415 - a list of sessions needs no tools

    config = settings.load(os.environ, flags.config)
    default: tuple[str, ...] = ("all",)
    if flags.agent is not None:
        default = agent_choice.choose_agent(config, agent_choice.Overrides(flags.agent), None).tools
    failures: list[GptshError] = []
    servers = config.tool_servers.select(flags.select_tools(default), failures.append)
    if failures and not servers:
        raise failures[0]
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
        chosen = (
            "--no-tools leaves" if flags.no_tools else f"agent {flags.agent} has" if flags.agent else "the servers have"
        )
        none = f"{chosen} no tools"
    shown = islice(offered, flags.limit)
    items = _then_raise(shown, failures, debug=flags.debug) if failures else lists.or_note(shown, none)
    stdio.write_lines(lists.lines_of(flags, items, lambda item: tool_line(item.tool), _tool_object))
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


def _tool_object(item: "OfferedTool") -> dict[str, Any]:
    tool = item.tool._asdict()
    return {"name": tool.pop("name"), "server": item.server, **tool, "auto_approve": item.auto_approve}
