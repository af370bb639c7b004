"""Commands of a conversation about what is sent: files, tools, what the next turn would send, and the last one did."""

import os
import stat
from collections.abc import Iterator, Sequence

from gptsh.cli import stdio
from gptsh.cli.ask import agent_for, attached
from gptsh.cli.options import Flags
from gptsh.cli.plan import with_tools
from gptsh.cli.slash.commands import words_of
from gptsh.cli.talk import Talk
from gptsh.config.mcp_servers import SEPARATOR, ToolServer
from gptsh.errors import UsageError
from gptsh.messages import user_message
from gptsh.render.lists import tool_line
from gptsh.text import counted, one_line, shown_size

_NONE, _OWN = "none", "-"  # tools


def attach(talk: Talk, args: str) -> None:
    """``/file``: what waits for the next question; or files that go with it, ``-`` being none."""
    if args == "-":
        talk.flags = talk.flags._replace(file=())
    elif paths := [os.path.expanduser(path) for path in words_of(args)]:
        files = tuple(dict.fromkeys((*talk.flags.file, *map(_regular, paths))))
        attached(files)
        talk.flags = talk.flags._replace(file=files)
    stdio.write_lines(map(_waiting, talk.flags.file) if talk.flags.file else ["no file waits"])
    if args and talk.flags.file:
        count = len(talk.flags.file)
        stdio.note(f"{counted(count, 'file')} {'waits' if count == 1 else 'wait'} for your next question")


def _regular(path: str) -> str:
    """The path. Raises UsageError for a pipe or a device: it cannot be read now and again with the question."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return path  # reading it tells
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UsageError(f"{path} is no regular file")
    return path


def _waiting(path: str) -> str:
    try:
        size = shown_size(os.path.getsize(path))
    except OSError as err:
        size = str(err.strerror)
    return f"{one_line(path)}  {size}"


def choose_tools(talk: Talk, args: str) -> None:
    """``/tools``: those of the next turn; or others from now on."""
    flags = _with_tools(talk, args) if args else talk.flags
    known = talk.settings.tool_servers
    if args:
        known.chosen(flags.tools_of(()))
    talk.flags = flags
    agent = agent_for(flags, talk.settings, talk.doc)
    servers = known.chosen(with_tools(agent, flags, talk.settings, talk.doc).tools)
    running = talk.app.running(servers)
    if not servers:
        stdio.write_lines(["no tools"])
    elif running:
        stdio.write_lines(map(tool_line, running.tools()))
    else:
        stdio.write_lines(f"{server.name}{_of(server)}" for server in servers)
        stdio.note("what their tools are is known once they run, with the next turn")


def _with_tools(talk: Talk, args: str) -> Flags:
    """The flags with the tools of a list. Raises UsageError for one that contradicts itself."""
    names, known = [name.strip() for name in args.split(",")], talk.settings.tool_servers
    if len(names) > 1 and (odd := [name for name in (_NONE, _OWN) if name in names and name not in known]):
        raise UsageError(f"/tools {odd[0]} stands alone", f"leave out {odd[0]}, or all the others")
    if args == _OWN:
        args = ",".join(agent_for(talk.flags, talk.settings, talk.doc).tools) or _NONE
    if args == _NONE and _NONE not in known:
        return talk.flags._replace(tools=None, no_tools=True)
    return talk.flags._replace(tools=args, no_tools=False)


def _of(server: ToolServer) -> str:
    """Which of a server's tools are wanted, where that is not all of them."""
    return "" if "*" in server.tools else f"{SEPARATOR}{f', {server.name}{SEPARATOR}'.join(server.tools)}"


def show_context(talk: Talk, _args: str) -> None:
    """``/context``: what would be sent next, whatever the question is going to be."""
    from gptsh.cli.plan import print_request  # noqa: PLC0415 - no other command tells it

    files = talk.flags.file
    who, planner = talk.planned(user_message("", attached(files)) if files else None)
    print_request(talk.app.client, planner.first(), who.form)
    if who.servers and talk.app.running(who.servers) is None:
        stdio.note(f"without the tools of {_named(who.servers)}, which start with the next turn")


def _named(servers: Sequence[ToolServer]) -> str:
    return ", ".join(server.name for server in servers)


def compact(talk: Talk, args: str) -> None:
    """``/compact``: what a compaction would do to what is sent; with ``--apply`` it does it."""
    applies = args in ("--apply", "apply")
    if args and not applies:
        raise UsageError(f"/compact takes --apply, not {args}")
    if talk.doc is None or not talk.doc["messages"]:
        raise UsageError("there is nothing to compact yet")
    if applies and not talk.saves:
        raise UsageError("/compact --apply needs a saved session", "this conversation is not to be kept")
    if applies and talk.in_memory:
        raise UsageError("/compact --apply needs a saved session", "the next turn saves this one")
    talk.turn(None, talk.flags._replace(compact=True, apply=applies))


def show_sent(talk: Talk, _args: str) -> None:
    """``/debug context``: the last request to the model, for reading."""
    from gptsh.cli.pager import show  # noqa: PLC0415 - few commands are so long
    from gptsh.render.lists import sent_lines  # noqa: PLC0415 - the same
    from gptsh.render.plain import look  # noqa: PLC0415 - the same

    if talk.place.sent is None:
        stdio.note("nothing was sent yet: /context tells what would be")
        return
    sent, request = talk.place.sent[:2]
    client, bold = talk.app.client, look(os.environ, terminal=True).styles
    wire, preview = client.wire(request), client.preview(request)

    def lines() -> Iterator[str]:
        return sent_lines(wire, sent.report(), request, preview, bold=bold)

    show(lines)
