"""Carry out the slash commands, a ``do_NAME`` function each.

Each ``do_…`` function gets the conversation and the text after the command's name. Where an option of the command line
does the same, its function is called.
"""

import contextlib
import json
import os
import re
from base64 import b64encode
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from gptsh.chat import commands
from gptsh.chat.conversation import show_recap
from gptsh.chat.picker import pick
from gptsh.core import folders, turns, usage
from gptsh.core.document import Document
from gptsh.core.listing import title_of
from gptsh.errors import GptshError, UsageError
from gptsh.llm.servers import without_secret_parameters
from gptsh.manage import removing, show
from gptsh.manage.lists import Filters, found_sessions, matching_sessions
from gptsh.manage.suggestions import recent_models
from gptsh.messages import Message, Part, final_answer, parts_of, text_of, text_parts_of, user_message
from gptsh.render.lists import agent_line, found_drawn, listing_line, tool_line
from gptsh.render.markdown import code_blocks
from gptsh.render.session import snapshots_of
from gptsh.terminal import programs, stdio
from gptsh.terminal.stdio import obeys_escapes, terminal_style
from gptsh.text import format_size, one_line, quantity, visible
from gptsh.turn.engine import with_tools
from gptsh.turn.options import TurnOptions, agent_of, model_of, params_for, parse_params
from gptsh.turn.question import Files, is_path, template_of
from gptsh.turn.screen import Screen

if TYPE_CHECKING:
    from gptsh.chat.conversation import Conversation

_MAX_MODELS = 8  # that /model lists
_MAX_FILES = 10  # that /file lists after attaching some
_FORMATS = {".html": "html", ".htm": "html", ".json": "json", ".jsonl": "nanobot"}
_NO_CLIPBOARD = ("linux", "vt100", "vt220")  # values of TERM


def _current_doc(chat: "Conversation") -> Document:
    """The session as it is now; if its file is lost, as it was before. Raises UsageError before the first turn."""
    with contextlib.suppress(GptshError):
        chat.refresh()
    if chat.doc is None:
        raise UsageError("there is no session yet", "its first question begins it")
    return chat.doc


def _saved_ref(chat: "Conversation") -> str:
    """The session's reference. Raises UsageError unless the whole session is on disk."""
    _current_doc(chat)
    if chat.ref is None and chat.origin and chat.saves:
        raise UsageError("this fork is not saved yet", "its first question saves it")
    if chat.ref is None or chat.is_unsaved:
        raise UsageError("this session is not on disk", "/session export FILE keeps it in a file")
    return chat.ref


def _label(chat: "Conversation", labels: TurnOptions) -> None:
    """Label the session on disk. Raises UsageError."""
    _saved_ref(chat)
    chat.session.label(labels, chat.settings)


def _save_before_leaving(chat: "Conversation") -> None:
    """Save what an earlier save could not. Raises UsageError if that fails: the user stays in the session."""
    if not chat.save_rest():
        raise UsageError("this session is not on disk, and stays open", "/session export FILE keeps it in a file")


def _show_lines(lines: Sequence[str], if_empty: str) -> None:
    if lines:
        programs.show_in_pager(lambda: lines)
    else:
        stdio.note(if_empty)


# ---- sessions


def do_new(chat: "Conversation", _args: str) -> None:
    """Consolidate the session into the agent's memory, then start a new one, even if the first part fails.

    Raises Interrupted for a signal other than Ctrl-C during the consolidation.
    """
    from gptsh.turn.small_model import consolidate_session

    _save_before_leaving(chat)
    at, interrupted = chat.session.location, None
    if at and chat.ref and chat.saves and any(agent.memory for agent in chat.settings.agents.readable()):
        try:
            interrupted = consolidate_session(chat.settings, chat.engine.client, chat.options.timeout, at)
        except GptshError as err:
            stdio.note(f"not remembered yet: {err}")
    names = folders.names_by_file().get(at or "", ())
    still_named = f"; {names[0]} still names it: /name {names[0]} moves the name" if names else ""
    stdio.note(f"session {chat.ref} is saved{still_named}" if chat.ref else "a new session")
    chat.switch_to(None)
    if interrupted:
        raise interrupted


def do_resume(chat: "Conversation", args: str) -> None:
    """Open another session; without a reference the user picks it from the list."""
    ref = args or pick(chat.session.location)
    if ref == "":
        do_new(chat, "")
    elif ref:
        _save_before_leaving(chat)
        chat.switch_to(ref)
        chat.forget_agent()
        chat.session.note_new_name()
        if chat.doc:
            show_recap(chat.doc)


def do_sessions(chat: "Conversation", args: str) -> None:
    """List the sessions, the current one with a star."""
    lines = [
        f"{'*' if item['filename'] == chat.session.location else ' '} {listing_line(item)}"
        for item in matching_sessions(Filters(here=not args))
    ]
    _show_lines(lines, "there is no session" if args else "this project has no session: /sessions all lists all")


def do_search(_chat: "Conversation", args: str) -> None:
    style = terminal_style(os.environ, terminal=True)
    with Screen().spinning("searching"):
        lines = [found_drawn(item, style) for item in found_sessions(args, Filters())]
    _show_lines(lines, "no session has all of these words")


def do_history(chat: "Conversation", args: str) -> None:
    doc = _current_doc(chat)
    show.show_document(doc, show.details_of(doc, chat.ref), full=bool(args))


def do_session_info(chat: "Conversation", _args: str) -> None:
    doc, at = _current_doc(chat), chat.session.location
    details = [("title", title_of(doc)), *show.details_of(doc, chat.ref)]
    details.append(("file", str(folders.path_of(at))) if chat.ref and at else ("not on disk", "the session"))
    width = max(len(label) for label, _ in details)
    stdio.write_lines(f"{label:<{width}}  {one_line(value)}" for label, value in details)


def do_session_export(chat: "Conversation", args: str) -> None:
    """Write the session to a new file with mode 0600; its suffix chooses the format. A partial file is removed."""
    doc = _current_doc(chat)
    name = " ".join(commands.words_of(args)) if args.startswith(("'", '"')) else args
    path = os.path.expanduser(name or f"gptsh-{doc['id']}.md")
    format_name = _FORMATS.get(os.path.splitext(path)[1].lower(), "markdown")
    text = "".join(show.convert(doc, chat.ref, format_name))
    try:
        stdio.create_file(path, text)
    except FileExistsError as err:
        raise UsageError(f"{path} is there already", "name another file") from err
    except (OSError, ValueError) as err:
        raise UsageError(f"{path}: {getattr(err, 'strerror', None) or err}") from err
    stdio.write_lines([f"written to {path} ({format_size(os.path.getsize(path))})"])
    if note := show.loss_note(format_name, "/session export FILE.json"):
        stdio.note(note)


def do_session_rename(chat: "Conversation", args: str) -> None:
    title = " ".join(args.split())
    _label(chat, TurnOptions(title=title))
    chat.refresh()
    stdio.note(f"the title is {title}")


def do_name(chat: "Conversation", args: str) -> None:
    """Name the session, now or with its first question; without a name show its names."""
    if not args:
        at = chat.session.location
        _show_lines(folders.names_by_file().get(at or "", ()), "no name yet: /name @NAME gives one")
        return
    folders.filename_of_name(args)  # raises for invalid characters
    if chat.ref is None and chat.saves and not chat.is_unsaved:
        chat.options = chat.options._replace(name=args)
        stdio.note(f"{args} will name this session, which its first question saves")
        return
    _label(chat, TurnOptions(name=args))
    chat.refresh()
    stdio.note(f"{args} names this session")


def do_session_archive(chat: "Conversation", _args: str) -> None:
    removing.archive_sessions([_saved_ref(chat)])
    chat.switch_to(None)


def do_session_delete(chat: "Conversation", _args: str) -> None:
    removing.delete_sessions([_saved_ref(chat)])
    if chat.ref is None:  # the user confirmed it
        chat.switch_to(None)


# ---- points of a session


def do_fork(chat: "Conversation", args: str) -> None:
    """Switch to a fork, which its first question saves."""
    _current_doc(chat)
    if args:
        _save_before_leaving(chat)
    else:
        chat.save_rest()  # if that fails, the fork still has everything
    _note_fork(chat.fork(args), chat)


def do_undo(chat: "Conversation", _args: str) -> None:
    """Fork before the last turn, and put its question on the next line.

    Where the agent's prompt makes the same question again of what the user typed, the line has only that.
    """
    (question, *_), point = turns.last_turn(_current_doc(chat)["messages"])
    _save_before_leaving(chat)
    origin = chat.fork(point)
    typed_parts = [part for part in text_parts_of(question) if "source" not in part]
    chat.prefill = "\n\n".join(part["text"] for part in typed_parts)
    if words := _words_for_prompt(chat, question, typed_parts):
        chat.prefill, chat.uses_prompt = words, True
    if attachments := len(parts_of(question)) - len(typed_parts):
        hint = f": in session {origin} /retry asks with all of it" if origin else ""
        stdio.note(f"{quantity(attachments, 'attachment')} of the question left out{hint}")
    _note_fork(origin, chat)


def _words_for_prompt(chat: "Conversation", question: Message, parts: list[Part]) -> str:
    """What the user typed, if the agent's prompt still makes these parts of it; else nothing."""
    words = question.get("input")
    if not isinstance(words, str):
        return ""
    with contextlib.suppress(GptshError):  # the agent is gone, or a name has no value
        template = template_of(chat.agent(), chat.values, "/agent NAME")
        if template and template.question(words, None) == parts:
            return words
    return ""


def do_retry(chat: "Conversation", args: str) -> None:
    """Continue an unfinished turn in place; ask the question of a finished one again, in a fork before that turn.

    A model that is named answers this turn and the next ones.
    """
    last_turn, point = turns.last_turn(_current_doc(chat)["messages"])
    if args:
        do_model(chat, args)
    paths = chat.paths  # attached for the next question, not for this one
    try:
        if turns.unfinished(last_turn):
            chat.run_turn(None)
            return
        _save_before_leaving(chat)
        before_fork = chat.session, chat.is_unsaved
        _note_fork(chat.fork(point), chat)
        fork = chat.session
        try:
            chat.run_turn(turns.asked_again(last_turn[0]))
        finally:
            if chat.session is fork:  # the turn failed before its first save
                chat.session, chat.is_unsaved = before_fork
    finally:
        chat.paths = paths


def _note_fork(origin: str | None, chat: "Conversation") -> None:
    turn_count = len(turns.starts_of(chat.doc["messages"] if chat.doc else ()))
    hint = f"; session {origin} keeps all: /resume {origin}" if origin else ""
    stdio.note(f"a fork after turn {turn_count}{hint}" if turn_count else f"a fork from the beginning{hint}")


def do_snapshot(chat: "Conversation", args: str) -> None:
    """Take a snapshot with a name; without one list the snapshots."""
    doc = _current_doc(chat)
    if args:
        _label(chat, TurnOptions(snapshot=args))
        chat.refresh()
        stdio.note(f"snapshot {args} taken: /fork {args} continues from here")
    else:
        _show_lines([*snapshots_of(doc)], "there is no snapshot yet: /snapshot NAME takes one")


def do_snapshot_delete(chat: "Conversation", args: str) -> None:
    removing.delete_snapshot(f"{_saved_ref(chat)}@{args}")
    chat.refresh()


# ---- model, agent, parameters


def do_model(chat: "Conversation", args: str) -> None:
    if args:
        chosen = chat.options.params
        agent = chat.agent()._replace(params=chosen)
        params = params_for(chat.settings.providers.full_name(args), agent)
        options = chat.options._replace(model=args, params=params)
        model = chat.engine.resolve(options, chat.doc).agent.model
        chat.options = options._replace(model=model)
        for name in chosen.keys() - params.keys():
            stdio.note(f"{model} does not get {name}: it may be a secret")
        stdio.write_lines([f"the next answer is from {model}"])
        return
    current = chat.agent().model
    others = dict.fromkeys(model for model in recent_models(chat.settings) if model != current)
    lines = [f"* {one_line(current or 'no model')}"]
    stdio.write_lines([*lines, *(f"  {one_line(model)}" for model in islice(others, _MAX_MODELS))])


def do_agent(chat: "Conversation", args: str) -> None:
    """Choose an agent, and drop what /model, /system, /param and /tools chose; keep the model if it names none.

    If the agent has a prompt, that makes the next question; ``NAME=VALUE`` pairs set its names.
    """
    agents = chat.settings.agents
    if not args:
        current, chosen = chat.agent(), chat.options.model
        lines = []
        for agent in agents.readable(stdio.note):
            model = model_of(chat.settings, agent, agent.model, chosen)
            lines.append(agent_line(agent.name, model, agent.name == current.name, agent.prompt_names()))
        if current.name not in agents:
            lines.insert(0, agent_line(current.name, current.model, True))
        _show_lines(lines, "")
        return
    words = [args] if args in agents else commands.words_of(args)
    pairs = [word for word in words[1:] if "=" in word]
    name = " ".join(word for word in words if word not in pairs)
    keeps_model = name in agents and agents[name].model is None
    model = chat.options.model if keeps_model else None
    options = chat.options.without_agent._replace(agent=name, model=model)
    agent = chat.engine.resolve(options, chat.doc).agent
    template = template_of(agent, pairs, f"/agent {name}")
    chat.options, chat.values, chat.uses_prompt = options, tuple(pairs), True
    stdio.write_lines([f"the next answer is from {agent.name}, with {agent.model}"])
    if template:
        stdio.note("its prompt makes your next question")


def do_system(chat: "Conversation", args: str) -> None:
    if args:
        chat.options = chat.options._replace(system="" if args == '""' else args)
    stdio.write_lines([chat.agent().system or "no system prompt"])
    if args:
        stdio.note("it applies from the next turn on")


def do_param(chat: "Conversation", args: str) -> None:
    pairs = commands.words_of(args)
    changes, removals = parse_params(pairs)
    if unknown := sorted(removals - chat.agent().params.keys()):
        raise UsageError(f"no parameter {unknown[0]} is sent", "/param shows those that are")
    old = chat.options
    chosen = {key: value for key, value in old.params.items() if key not in removals} | changes
    removed = (set(old.removed_params) - changes.keys()) | removals
    chat.options = old._replace(params=chosen, removed_params=removed)
    params = without_secret_parameters(dict(chat.agent().params))
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False, default=str)}" for key, value in sorted(params.items())]
    stdio.write_lines(map(one_line, lines or ["no parameters: the provider's defaults apply"]))
    with contextlib.suppress(GptshError):  # the next turn will report it
        chat.engine.resolve(chat.options, chat.doc)  # for its notes about parameters that the model does not accept


# ---- what is sent


def do_file(chat: "Conversation", args: str) -> None:
    """Attach files to the next question, or list those that are attached. Patterns and folders become their files."""
    attached, paths = Files(), chat.paths
    if args:
        values = [args] if is_path(args) else commands.words_of(args)  # a path with blanks needs no quotes
        attached.attach(() if args == "-" else (*paths, *values))  # they are read again with the question
        paths = tuple(attached.sizes)
    lines = []
    for path in paths[: _MAX_FILES if args else None]:
        size = format_size(os.path.getsize(path)) if os.path.exists(path) else "No such file"
        lines.append(f"{one_line(path)}  {size}")
    if more := len(paths) - len(lines):
        lines.append(f"… {more:,} more: /file lists all")
    chat.paths = paths
    stdio.write_lines(lines or ["no file is attached"])
    if args and paths:
        stdio.note(f"{quantity(len(paths), 'file')} attached to your next question")


def do_tools(chat: "Conversation", args: str) -> None:
    tool_servers, options = chat.settings.tool_servers, chat.options
    if args == "-":  # the agent's own tools
        options = options._replace(tools=agent_of(chat.settings, options, chat.doc).tools)
    elif args == "none":
        options = options._replace(tools=())
    elif args:
        options = options._replace(tools=tuple(filter(None, map(str.strip, args.split(",")))))
        tool_servers.select(options.tools or ())  # raises for an unknown name
    chat.options = options
    servers = tool_servers.select(with_tools(chat.agent(), options, chat.settings, chat.doc).tools)
    if running := chat.engine.running_tools(servers):
        stdio.write_lines(map(tool_line, running.tools()))
        return
    for server in servers:
        stdio.write_lines([f"{server.name}: {', '.join(server.tools)}"])
    stdio.note("the servers start with the next turn, and then list their tools" if servers else "no tools")


def do_web(chat: "Conversation", args: str) -> None:
    """Let the model search the web from the next turn on, or not; without a word show which."""
    if args not in ("", "on", "off"):
        raise UsageError(f"/web {args}: expected on or off")
    if args:
        options = chat.options._replace(web=args == "on")
        chat.engine.resolve(options, chat.doc)  # raises if the model's provider has no search
        chat.options = options
    stdio.write_lines(["the model may search the web" if chat.agent().web else "the model does not search the web"])


def do_context(chat: "Conversation", _args: str) -> None:
    """Show what would be sent, with the attached files and without the next question's text."""
    from gptsh.turn.preview import facts_of

    setup, plan = chat.plan_turn(user_message("", Files().attach(chat.paths)) if chat.paths else None)
    stdio.write_lines(facts_of(chat.engine, plan))
    if setup.servers and chat.engine.running_tools(setup.servers) is None:
        names = ", ".join(server.name for server in setup.servers)
        stdio.note(f"without the tools of {names}, which start with the next turn")


def do_compact(chat: "Conversation", args: str) -> None:
    if chat.doc is None or not chat.doc["messages"]:
        raise UsageError("there is nothing to compact yet")
    if args:
        _saved_ref(chat)
    chat.compact(apply=bool(args))


def do_debug_context(chat: "Conversation", _args: str) -> None:
    if chat.last_plan is None:
        stdio.note("nothing was sent yet: /context shows what would be")
        return
    from gptsh.turn.preview import request_of

    text = json.dumps(request_of(chat.engine.client, chat.last_plan), indent=2, ensure_ascii=False, default=str)
    programs.show_in_pager(lambda: visible(text).split("\n"))


# ---- other


def do_copy(chat: "Conversation", args: str) -> None:
    """Copy an answer, or a code block of the last one, to the terminal's clipboard with OSC 52, also over ssh."""
    match = re.fullmatch(r"(code)? *([1-9][0-9]{0,8})?", args)
    if not match:
        raise UsageError(f"/copy {args}: expected nothing, a turn's number, code, or code and a number")
    messages = _current_doc(chat)["messages"]
    wants_code, number = match[1], int(match[2] or 0)
    if number and not wants_code:
        starts = turns.starts_of(messages)
        messages = messages[starts[number - 1] : [*starts, None][number]] if number <= len(starts) else []
    answers = (text_of(final_answer(message)) for message in reversed(messages) if message["role"] == "assistant")
    text = next(filter(None, answers), "")
    if wants_code:
        blocks = [block.content for block in code_blocks(text)]
        text = blocks[number - 1] if number <= len(blocks) and blocks else ""
    if not text:
        raise UsageError("there is no such answer, or no such block of code, to copy")
    if not obeys_escapes(os.environ) or os.environ.get("TERM") in _NO_CLIPBOARD:
        raise UsageError("this terminal has no clipboard")
    stdio.write_pieces([f"\x1b]52;c;{b64encode(text.encode('utf-8', 'replace')).decode()}\x07"], safe=True)
    stdio.note(f"{quantity(len(text), 'character')} sent to the clipboard of the terminal")


def do_usage(chat: "Conversation", args: str) -> None:
    """Show tokens and cost as ``--usage`` does, of this session, or of all."""
    from gptsh.manage.usage import draw_usage, show_usage

    if args:
        show_usage(None, Filters(), None)
        return
    with contextlib.suppress(GptshError):
        chat.refresh()
    draw_usage(usage.count([usage.sums_by_day(chat.doc)] if chat.doc else []), None)


def do_help(_chat: "Conversation", args: str) -> None:
    lines = commands.help_on(args, stdio.width(stdio.stdout()))
    programs.show_in_pager(lambda: lines)


def do_exit(chat: "Conversation", _args: str) -> None:
    chat.should_exit = True
