"""What each slash command of a conversation does; ``commands.py`` has their table.

Each is called with the conversation and the text behind its name. What is a job of the command line is done by it.
"""

import contextlib
import json
import os
import re
from base64 import b64encode
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from gptsh.cli import commands, exporting, manage, pager, reading, removing, stdio
from gptsh.cli.app import with_tools
from gptsh.cli.ask import file_parts, time_limit
from gptsh.cli.complete import models_at_hand
from gptsh.cli.lists import passing
from gptsh.cli.memory import remember_left
from gptsh.cli.options import Flags
from gptsh.cli.picker import pick
from gptsh.cli.preview import print_request, request_of
from gptsh.cli.session import agent_for, parse_params
from gptsh.cli.show import Screen
from gptsh.core import document, references, usage
from gptsh.core.document import Document
from gptsh.core.listing import title_of
from gptsh.errors import GptshError, UsageError
from gptsh.formats import losses
from gptsh.llm.errors import without_secret_parameters
from gptsh.messages import Message, parts_of, text_of, text_parts_of, user_message
from gptsh.render.details import snapshots_of
from gptsh.render.lists import agent_line, found_drawn, listing_line, tool_line
from gptsh.render.markdown import code_blocks
from gptsh.render.plain import look, obeys_escapes
from gptsh.text import format_size, one_line, quantity, visible

if TYPE_CHECKING:
    from gptsh.cli.repl import Conversation

_FEW = 8  # models that are shown
_FORMATS = {".html": "html", ".htm": "html", ".json": "json", ".jsonl": "nanobot"}
_NO_CLIPBOARD = ("linux", "vt100", "vt220")


def _current(talk: "Conversation") -> Document:
    """The session as it is now, or as it was before its file was lost. Raises UsageError before its first turn."""
    with contextlib.suppress(GptshError):
        talk.refresh()
    if talk.doc is None:
        raise UsageError("there is no session yet", "its first question begins it")
    return talk.doc


def _on_disk(talk: "Conversation") -> str:
    """What means the session for a job of the command line. Raises UsageError where not all of it is on disk."""
    _current(talk)
    if talk.ref is None or talk.ahead:
        raise UsageError("this session is not on disk", "/session export FILE keeps it in a file")
    return talk.ref


def _before_leaving(talk: "Conversation") -> None:
    """Try once more to save what is not on disk. Raises UsageError where it cannot be, and the user stays."""
    if not talk.keep():
        raise UsageError("this session is not on disk, and stays", "/session export FILE keeps it in a file")


def _paged(lines: Sequence[str], nothing: str) -> None:
    if lines:
        pager.show(lambda: lines)
    else:
        stdio.note(nothing)


# ---- sessions


def do_new(talk: "Conversation", _args: str) -> None:
    """What is new in the session is remembered first, whatever becomes of that.

    Raises Interrupted for a signal other than Ctrl-C that ended the making of a memory.
    """
    _before_leaving(talk)
    at, ended = talk.session.at, None
    if at and talk.ref and talk.saves and any(agent.memory for agent in talk.settings.agents.values()):
        try:
            ended = remember_left(talk.settings, talk.app.client, time_limit(talk.flags, talk.settings), at)
        except GptshError as err:
            stdio.note(f"not remembered yet: {err}")
    stdio.note(f"session {talk.ref} is kept" if talk.ref else "a new session")
    talk.go_to(None)
    if ended:
        raise ended


def do_resume(talk: "Conversation", args: str) -> None:
    """Without a reference the session is picked from the list."""
    ref = args or pick(talk.session.at)
    if ref == "":
        do_new(talk, "")
    elif ref:
        _before_leaving(talk)
        talk.go_to(ref)
        talk.flags = talk.flags.without_agent_options
        if talk.doc is None:
            stdio.note(f"{ref} will be a new session")
        talk.show_recap()


def do_sessions(talk: "Conversation", args: str) -> None:
    """A star stands before the current one."""
    lines = [
        visible(f"{'*' if item['filename'] == talk.session.at else ' '} {listing_line(item, aligned=True)}")
        for item in passing(Flags(here=not args))
    ]
    _paged(lines, "no session is kept" if args else "no session of this project is kept: /sessions all lists all")


def do_search(_talk: "Conversation", args: str) -> None:
    how = look(os.environ, terminal=True)
    with Screen().spinning("searching"):
        lines = [found_drawn(item, how) for item in manage.found_sessions(Flags(search_sessions=args))]
    _paged(lines, "no session has all of these words")


def do_history(talk: "Conversation", args: str) -> None:
    doc = _current(talk)
    reading.show_document(doc, reading.facts_of(doc, talk.ref), talk.flags._replace(full=bool(args)))


def do_session_info(talk: "Conversation", _args: str) -> None:
    doc, at = _current(talk), talk.session.at
    facts = [("title", title_of(doc)), *reading.facts_of(doc, talk.ref)]
    facts.append(("file", str(references.path_of(at))) if talk.ref and at else ("not on disk", "the session"))
    width = max(len(label) for label, _ in facts)
    stdio.write_lines(f"{label:<{width}}  {one_line(value)}" for label, value in facts)


def do_session_export(talk: "Conversation", args: str) -> None:
    """A new file for the user alone, whole or not at all; its suffix decides the format, else it is Markdown."""
    doc = _current(talk)
    path = os.path.expanduser(args or f"gptsh-{doc['id']}.md")
    form = _FORMATS.get(os.path.splitext(path)[1].lower(), "markdown")
    text = "".join(exporting.exported(doc, talk.ref, form))
    try:
        with open(path, "x", encoding="utf-8", errors="replace", opener=partial(os.open, mode=0o600)) as file:
            try:
                file.write(text)
            except OSError:
                os.unlink(path)
                raise
    except FileExistsError as err:
        raise UsageError(f"{path} is there already, and stays as it is", "name another file") from err
    except (OSError, ValueError) as err:
        raise UsageError(f"{path}: {getattr(err, 'strerror', None) or err}") from err
    stdio.write_lines([f"written to {path} ({format_size(os.path.getsize(path))})"])
    if note := losses.note(doc, form, "/session export FILE.json"):
        stdio.note(note)


def do_session_rename(talk: "Conversation", args: str) -> None:
    title = " ".join(args.split())
    manage.label(_on_disk(talk), Flags(title=title), talk.settings.context.snapshots)
    talk.refresh()
    stdio.note(f"the title is {title}")


def do_session_archive(talk: "Conversation", _args: str) -> None:
    removing.archive_sessions(Flags(archive_session=(_on_disk(talk),)))
    talk.go_to(None)


def do_session_delete(talk: "Conversation", _args: str) -> None:
    removing.delete_sessions(Flags(delete_session=(_on_disk(talk),)))
    if talk.ref is None:
        talk.go_to(None)


# ---- points of a session


def do_fork(talk: "Conversation", args: str) -> None:
    """The fork is on no disk before its first question."""
    _current(talk)
    if args:
        _before_leaving(talk)
    else:
        talk.keep()  # and where that fails the fork has it all
    _note_fork(talk.fork(args), talk)


def do_undo(talk: "Conversation", _args: str) -> None:
    """The question of the last turn is what the next line begins with."""
    (question, *_), before = _last_turn(talk)
    _before_leaving(talk)
    origin = talk.fork(before)
    typed = [part for part in text_parts_of(question) if "source" not in part]
    talk.suggested = "\n\n".join(part["text"] for part in typed)
    if left := len(parts_of(question)) - len(typed):
        again = f": in session {origin} /retry asks with all of it" if origin else ""
        stdio.note(f"{quantity(left, 'attachment')} of the question left out{again}")
    _note_fork(origin, talk)


def do_retry(talk: "Conversation", _args: str) -> None:
    """A turn that has not ended goes on in place; else its question is asked in a fork before it."""
    last, before = _last_turn(talk)
    waiting = talk.flags.file  # for the next question
    try:
        if document.unfinished(last):
            talk.turn(None, talk.flags)
            return
        _before_leaving(talk)
        was = talk.session, talk.ahead
        _note_fork(talk.fork(before), talk)
        fork = talk.session
        try:
            talk.turn({"role": "user", "content": last[0]["content"]}, talk.flags)
        finally:
            if talk.session is fork:  # nothing came of it
                talk.session, talk.ahead = was
    finally:
        talk.flags = talk.flags._replace(file=waiting)


def _last_turn(talk: "Conversation") -> tuple[list[Message], str]:
    """The messages of the last turn, and the point before it. Raises UsageError where there is none."""
    messages = _current(talk)["messages"]
    starts = document.turns(messages)
    if not starts:
        raise UsageError("there is no turn yet")
    return messages[starts[-1] :], str(len(starts) - 1)


def _note_fork(origin: str | None, talk: "Conversation") -> None:
    turns = len(document.turns(talk.doc["messages"] if talk.doc else ()))
    stays = f"; session {origin} keeps all: /resume {origin}" if origin else ""
    stdio.note(f"a fork after turn {turns}{stays}" if turns else f"a fork from the beginning{stays}")


def do_snapshot(talk: "Conversation", args: str) -> None:
    """With a name one is taken, without they are listed."""
    doc = _current(talk)
    if args:
        manage.label(_on_disk(talk), Flags(snapshot=args), talk.settings.context.snapshots)
        talk.refresh()
        stdio.note(f"snapshot {args} taken: /fork {args} goes on from here")
    else:
        _paged([*snapshots_of(doc)], "there is no snapshot yet: /snapshot NAME takes one")


def do_snapshot_delete(talk: "Conversation", args: str) -> None:
    removing.delete_snapshot(Flags(delete_snapshot=f"{_on_disk(talk)}@{args}"))
    talk.refresh()


# ---- who answers, and how


def do_model(talk: "Conversation", args: str) -> None:
    if args:
        model = talk.app.resolve(talk.flags._replace(model=args), talk.doc).agent.model
        talk.flags = talk.flags._replace(model=model)
        stdio.write_lines([f"{model} answers next"])
        return
    now = talk.agent().model
    others = islice(dict.fromkeys(model for model in models_at_hand(talk.settings) if model != now), _FEW)
    stdio.write_lines([f"* {one_line(now or 'no model')}", *(f"  {one_line(model)}" for model in others)])


def do_agent(talk: "Conversation", args: str) -> None:
    """Another one counts with all that it is. Where it has no model of its own, the chosen one stays."""
    known = talk.settings.agents
    if not args:
        now = talk.agent()
        lines = [agent_line(name, agent.model, name == now.name) for name, agent in known.items()]
        stdio.write_lines([*([] if now.name in known else [agent_line(now.name, now.model, True)]), *lines])
        return
    name = args if args in known else " ".join(commands.words_of(args))
    flags = talk.flags.without_agent_options._replace(agent=name)
    if name in known and known[name].model is None:
        flags = flags._replace(model=talk.flags.model)
    agent = talk.app.resolve(flags, talk.doc).agent
    talk.flags = flags
    stdio.write_lines([f"{agent.name} answers next, with {agent.model}"])


def do_system(talk: "Conversation", args: str) -> None:
    if args:
        talk.flags = talk.flags._replace(system="" if args == '""' else args)
    stdio.write_lines([talk.agent().system or "no system prompt"])
    if args:
        stdio.note("it holds from the next turn on")


def do_param(talk: "Conversation", args: str) -> None:
    pairs = commands.words_of(args)
    given, without = parse_params(pairs)
    if unsent := sorted(without - talk.agent().params.keys()):
        raise UsageError(f"no parameter {unsent[0]} is sent", "/param shows those that are")
    kept = [pair for pair in talk.flags.param if pair.partition("=")[0] not in without | given.keys()]
    talk.flags = talk.flags._replace(param=(*kept, *pairs))
    params = without_secret_parameters(dict(talk.agent().params))
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False, default=str)}" for key, value in sorted(params.items())]
    stdio.write_lines(map(one_line, lines or ["no parameters: the provider's own"]))
    with contextlib.suppress(GptshError):  # then a turn will say what is wrong
        talk.app.resolve(talk.flags, talk.doc)


# ---- what is sent


def do_file(talk: "Conversation", args: str) -> None:
    """They are read now, since what is wrong with them is said now, and again with the question."""
    whole = os.path.expanduser(args)
    paths = [whole] if os.path.exists(whole) else map(os.path.expanduser, commands.words_of(args))
    files = () if args == "-" else tuple(dict.fromkeys((*talk.flags.file, *paths)))
    if args:
        file_parts(files)
    talk.flags = talk.flags._replace(file=files)
    for path in files:
        size = format_size(os.path.getsize(path)) if os.path.exists(path) else "No such file"
        stdio.write_lines([f"{one_line(path)}  {size}"])
    if not files:
        stdio.write_lines(["no file waits"])
    elif args:
        stdio.note(f"{quantity(len(files), 'file')} {'wait' if files[1:] else 'waits'} for your next question")


def do_tools(talk: "Conversation", args: str) -> None:
    known, flags = talk.settings.tool_servers, talk.flags
    if args == "-":
        args = ",".join(agent_for(flags._replace(tools=None, no_tools=False), talk.settings, talk.doc).tools) or "none"
    if args == "none":
        flags = flags._replace(tools=None, no_tools=True)
    elif args:
        flags = flags._replace(tools=args, no_tools=False)
        known.select(flags.select_tools(()))
    talk.flags = flags
    servers = known.select(with_tools(talk.agent(), flags, talk.settings, talk.doc).tools)
    if running := talk.app.running_tools(servers):
        stdio.write_lines(map(tool_line, running.tools()))
        return
    for server in servers:
        stdio.write_lines([f"{server.name}: {', '.join(server.tools)}"])
    stdio.note("what their tools are is known once they run, with the next turn" if servers else "no tools")


def do_context(talk: "Conversation", _args: str) -> None:
    """Whatever the question is going to be."""
    files = talk.flags.file
    who, plan = talk.planned(user_message("", file_parts(files)) if files else None)
    print_request(talk.app.client, plan, who.form)
    if who.servers and talk.app.running_tools(who.servers) is None:
        names = ", ".join(server.name for server in who.servers)
        stdio.note(f"without the tools of {names}, which start with the next turn")


def do_compact(talk: "Conversation", args: str) -> None:
    if talk.doc is None or not talk.doc["messages"]:
        raise UsageError("there is nothing to compact yet")
    if args:
        _on_disk(talk)
    talk.turn(None, talk.flags._replace(compact=True, apply=bool(args)))


def do_debug_context(talk: "Conversation", _args: str) -> None:
    if talk.sent is None:
        stdio.note("nothing was sent yet: /context shows what would be")
        return
    shown = json.dumps(request_of(talk.app.client, talk.sent), indent=2, ensure_ascii=False, default=str)
    pager.show(lambda: visible(shown).split("\n"))


# ---- other


def do_copy(talk: "Conversation", args: str) -> None:
    """Into the clipboard of the terminal, by the sequence OSC 52, which goes through ssh, too."""
    found = re.fullmatch(r"(code)? *([1-9][0-9]{0,8})?", args)
    if not found:
        raise UsageError(f"/copy {args}: expected nothing, a turn's number, code, or code and a number")
    messages = _current(talk)["messages"]
    starts, number = document.turns(messages), int(found[2] or 0)
    if number and not found[1]:
        messages = messages[starts[number - 1] : [*starts, None][number]] if number <= len(starts) else []
    said = (text_of(message) for message in reversed(messages) if message["role"] == "assistant")
    text = next(filter(None, said), "")
    if found[1]:
        blocks = code_blocks(text)
        text = blocks[number - 1] if number <= len(blocks) and blocks else ""
    if not text:
        raise UsageError("there is no such answer, or no such block of code, to copy")
    if not obeys_escapes(os.environ) or os.environ.get("TERM") in _NO_CLIPBOARD:
        raise UsageError("this terminal has no clipboard")
    stdio.write_pieces([f"\x1b]52;c;{b64encode(text.encode('utf-8', 'replace')).decode()}\x07"], safe=True)
    stdio.note(f"{quantity(len(text), 'character')} sent to the clipboard of the terminal")


def do_usage(talk: "Conversation", args: str) -> None:
    """As ``--usage``, of this session alone unless ``all`` is wanted."""
    if args:
        manage.show_usage(Flags())
        return
    with contextlib.suppress(GptshError):
        talk.refresh()
    manage.draw_usage(usage.count([talk.doc] if talk.doc else []), Flags())


def do_help(_talk: "Conversation", args: str) -> None:
    lines = commands.help_on(args, stdio.width(stdio.stdout()))
    pager.show(lambda: lines)


def do_exit(talk: "Conversation", _args: str) -> None:
    talk.over = True
