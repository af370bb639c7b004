"""Carry out the slash commands, a ``do_NAME`` function each.

A function gets the conversation, and the text after the command's name if the command has
arguments. Where an option of the command line does the same, its function is called.
"""

import contextlib
import json
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from gptsh.chat import commands
from gptsh.chat.conversation import Conversation, begin_answer, show_recap
from gptsh.chat.picker import pick
from gptsh.content.attachments import media_of, name_of
from gptsh.core import folders, turns, usage, usage_report
from gptsh.core.document import Document
from gptsh.core.listing import title_of
from gptsh.errors import GptshError, UsageError
from gptsh.llm.servers import without_secret_parameters
from gptsh.manage import lists, removing, show
from gptsh.manage.lists import (
    Filters,
    found_line,
    found_sessions,
    matching_sessions,
    session_line,
)
from gptsh.manage.suggestions import recent_models
from gptsh.messages import (
    Message,
    Part,
    final_answer,
    parts_of,
    text_of,
    text_parts_of,
    user_message,
)
from gptsh.render.lists import agent_line, tool_line
from gptsh.render.markdown import code_blocks
from gptsh.render.session import snapshots_of
from gptsh.terminal import stdio
from gptsh.terminal.stdio import obeys_escapes
from gptsh.text import format_size, one_line, quantity, visible
from gptsh.turn.agents import agent_of, model_of, params_for
from gptsh.turn.attached_files import Files, is_path
from gptsh.turn.engine import with_tools
from gptsh.turn.options import TurnOptions, parse_params
from gptsh.turn.question import template_of
from gptsh.turn.screen import Screen

if TYPE_CHECKING:
    from gptsh.terminal.interrupts import Interrupted

_MAX_MODELS = 8  # that /model lists
_MAX_FILES = 10  # that /file lists after attaching some
_FORMATS = {".html": "html", ".htm": "html", ".json": "json", ".jsonl": "nanobot"}
_EXPORT = "/session export FILE writes it to a file"
_NO_CLIPBOARD = ("linux", "vt100", "vt220")  # values of TERM


def _current_doc(chat: Conversation) -> Document:
    """Return the session as it is now; if its file is lost, as it was before.

    Raises UsageError before the first turn.
    """
    with contextlib.suppress(GptshError):
        chat.refresh()
    if chat.doc is None:
        raise UsageError("there is no session yet", "ask a question first")
    return chat.doc


def _saved_ref(chat: Conversation) -> str:
    """Return the session's reference. Raises UsageError unless the whole session is on disk."""
    _current_doc(chat)
    if chat.session.is_unsaved_fork and chat.origin and chat.saves:
        raise UsageError("this fork is not saved yet", "its first question saves it")
    if chat.ref is None or chat.session.has_unsaved_messages:
        raise UsageError("this session is not on disk", _EXPORT)
    return chat.ref


def _names(chat: Conversation) -> Sequence[str]:
    names = folders.names_by_file()
    filename = chat.session.filename
    return names.get(filename, ()) if filename else ()


def _label(chat: Conversation, labels: TurnOptions, note: str) -> None:
    """Label the session on disk, and say so. Raises UsageError."""
    _saved_ref(chat)
    chat.session.label(labels, chat.settings)
    chat.refresh()
    stdio.note(note)


def _save_before_leaving(chat: Conversation) -> None:
    """Save what an earlier save could not. Raises UsageError if that fails: the user stays."""
    if not chat.save_rest():
        raise UsageError("this session could not be saved, so it stays open", _EXPORT)


def _show_lines(lines: Iterable[str], if_empty: str = "") -> None:
    """Show lines, in the pager if they need more than a screen; if there are none, a note."""
    lists.show(lists.or_note(lines, if_empty), None, safe=True)


# ---- sessions


def do_new(chat: Conversation) -> None:
    """Start a new session, after an agent with a memory has remembered this one.

    If that fails, the new session starts nevertheless. Raises Interrupted for a signal other than
    Ctrl-C, at the end.
    """
    _save_before_leaving(chat)
    interrupted = _remember(chat)
    ref = chat.ref
    note = f"session {ref} is saved" if ref else "a new session"
    names = _names(chat)
    if ref and names:
        note += f"; it keeps the name {names[0]} until you type /name {names[0]}"
    stdio.note(note)
    chat.switch_to(None)
    if interrupted:
        raise interrupted


def _remember(chat: Conversation) -> "Interrupted | None":
    """Consolidate the session into the memory of its agent; a failure is a note.

    Return a signal other than Ctrl-C that interrupted it.
    """
    from gptsh.turn.small_model import consolidate_session

    filename = chat.session.filename
    has_memory = any(agent.memory for agent in chat.settings.agents.readable())
    if not (filename and chat.ref and chat.saves and has_memory):
        return None
    engine = chat.engine
    engine.limit_cost(None)  # it is no part of the last turn
    try:
        return consolidate_session(chat.settings, engine.client, chat.options.timeout, filename)
    except GptshError as err:
        stdio.note(f"the memory was not updated: {err}")
        return None


def do_resume(chat: Conversation, args: str) -> None:
    """Open another session; without a reference the user picks it from the list."""
    ref = args or pick(chat.session.filename)
    if ref == "":  # the user wants a new one
        do_new(chat)
    elif ref:
        _save_before_leaving(chat)
        chat.switch_to(ref)
        chat.forget_agent()
        chat.session.note_new_name()
        if chat.doc:
            show_recap(chat.doc)


def do_sessions(chat: Conversation, args: str) -> None:
    """List the sessions, the current one with a star."""
    lines = []
    line_of = session_line(None, margin=2)
    for item in matching_sessions(Filters(here=not args)):
        star = "*" if item["filename"] == chat.session.filename else " "
        lines.append(f"{star} {line_of(item)}")
    none_here = "this project has no session; /sessions all lists the others"
    _show_lines(lines, "there is no session" if args else none_here)


def do_search(_chat: Conversation, args: str) -> None:
    line_of = found_line(None)
    with Screen().spinning("searching"):
        lines = [line_of(item) for item in found_sessions(args, Filters())]
    _show_lines(lines, "no session has all of these words")


def do_history(chat: Conversation, args: str) -> None:
    doc = _current_doc(chat)
    show.show_document(doc, show.details_of(doc, chat.ref), full=bool(args))


def do_session_info(chat: Conversation) -> None:
    doc = _current_doc(chat)
    filename = chat.session.filename
    path = folders.path_of(filename) if filename and chat.ref else "not on disk"
    details = [
        ("title", title_of(doc)),
        *show.details_of(doc, chat.ref),
        ("file", str(path)),
    ]
    width = max(len(label) for label, _ in details)
    stdio.write_lines(f"{label:<{width}}  {one_line(words)}" for label, words in details)


def do_session_export(chat: Conversation, args: str) -> None:
    """Write the session to a new file with mode 0600; its suffix chooses the format."""
    doc = _current_doc(chat)
    name = args
    if args.startswith(("'", '"')):
        name = " ".join(commands.words_of(args))
    path = os.path.expanduser(name or f"gptsh-{doc['id']}.md")
    suffix = os.path.splitext(path)[1].lower()
    format_name = _FORMATS.get(suffix, "markdown")
    text = "".join(show.convert(doc, chat.ref, format_name))
    try:
        stdio.create_file(path, text)
    except FileExistsError as err:
        raise UsageError(f"{path} already exists", "name another file") from err
    except OSError as err:
        raise UsageError(f"{path}: {err.strerror or err}") from err
    except ValueError as err:  # a NUL character
        raise UsageError(f"{path}: {err}") from err
    size = format_size(os.path.getsize(path))
    stdio.write_lines([f"written to {path} ({size})"])
    note = show.loss_note(format_name, "/session export FILE.json")
    if note:
        stdio.note(note)


def do_session_rename(chat: Conversation, args: str) -> None:
    title = " ".join(args.split())
    _label(chat, TurnOptions(title=title), f"the title is {title}")


def do_name(chat: Conversation, args: str) -> None:
    """Name the session, now or with its first question; without a name show its names."""
    if not args:
        _show_lines(_names(chat), "this session has no name; /name @NAME gives it one")
        return
    folders.filename_of_name(args)  # raises for invalid characters
    if chat.ref is None and chat.saves and not chat.session.has_unsaved_messages:
        chat.options = chat.options._replace(name=args)
        stdio.note(f"the first question will save this session as {args}")
    else:
        _label(chat, TurnOptions(name=args), f"this session is named {args}")


def do_session_archive(chat: Conversation) -> None:
    removing.archive_sessions([_saved_ref(chat)])
    chat.switch_to(None)


def do_session_delete(chat: Conversation) -> None:
    removing.delete_sessions([_saved_ref(chat)])
    if chat.ref is None:  # the user confirmed it
        chat.switch_to(None)


# ---- points of a session


def do_fork(chat: Conversation, args: str) -> None:
    """Switch to a fork, which its first question saves."""
    _current_doc(chat)
    if args:
        _save_before_leaving(chat)
    else:
        chat.save_rest()  # if that fails, the fork still has everything
    _fork(chat, args)


def _fork(chat: Conversation, point: str) -> None:
    """Switch to a fork, and say which. Raises UnknownSession if there is no such point."""
    origin = chat.fork(point)
    turn_count = len(turns.starts_of(chat.doc["messages"] if chat.doc else ()))
    start = f"after turn {turn_count}" if turn_count else "from the beginning"
    way_back = f"; /resume {origin} returns to the whole session" if origin else ""
    stdio.note(f"this is a fork {start}{way_back}")


def do_undo(chat: Conversation) -> None:
    """Fork before the last turn; put its question on the next line, with what was attached."""
    last_turn, point = turns.last_turn(_current_doc(chat)["messages"])
    question = last_turn[0]
    _save_before_leaving(chat)
    _fork(chat, point)

    typed_parts = [part for part in text_parts_of(question) if "source" not in part]
    words = _words_for_prompt(chat, question, typed_parts)
    if words is None:
        chat.prefill = "\n\n".join(part["text"] for part in typed_parts)
    else:
        chat.prefill = words

    attached = tuple(part for part in parts_of(question) if part not in typed_parts)
    uses_prompt = words is not None
    chat.next_question = chat.next_question._replace(uses_prompt=uses_prompt, attached=attached)
    if attached:
        count = quantity(len(attached), "attachment")
        stdio.note(f"{count} attached again; /file - removes all")


def _words_for_prompt(
    chat: Conversation, question: Message, typed_parts: Sequence[Part]
) -> str | None:
    """Return what the user typed of a question that the agent's prompt has made.

    Return None if the prompt does not make the same question of it again: the agent has changed, or
    a name has no value.
    """
    words = question.get("input")
    if isinstance(words, str):
        with contextlib.suppress(GptshError):
            template = template_of(chat.agent(), chat.values, "/agent NAME")
            if template and template.question(words, None) == typed_parts:
                return words
    return None


def do_retry(chat: Conversation, args: str) -> None:
    """Continue an unfinished turn; ask the question of a finished one again, in a fork before it.

    A model that is named answers this turn and the next ones.
    """
    last_turn, point = turns.last_turn(_current_doc(chat)["messages"])
    if args:
        do_model(chat, args)
    next_question = chat.next_question  # of the next line, not of this turn
    try:
        if turns.unfinished(last_turn):
            begin_answer()
            chat.run_turn(None)
        else:
            _ask_in_fork(chat, last_turn[0], point)
    finally:
        chat.next_question = next_question


def _ask_in_fork(chat: Conversation, question: Message, point: str) -> None:
    """Ask a question again in a fork; return to the session if the turn saves no fork."""
    _save_before_leaving(chat)
    session = chat.session
    options = chat.options
    _fork(chat, point)
    fork = chat.session
    begin_answer()
    try:
        chat.run_turn(turns.asked_again(question))
    finally:
        if chat.session is fork:  # the turn failed before its first save
            chat.session = session
            chat.options = options  # with the labels of the session


def do_snapshot(chat: Conversation, args: str) -> None:
    """Take a snapshot with a name; without one list the snapshots."""
    if args:
        note = f"snapshot {args} taken; /fork {args} continues from here"
        _label(chat, TurnOptions(snapshot=args), note)
    else:
        lines = snapshots_of(_current_doc(chat))
        _show_lines(lines, "there is no snapshot yet; /snapshot NAME takes one")


def do_snapshot_delete(chat: Conversation, args: str) -> None:
    removing.delete_snapshot(f"{_saved_ref(chat)}@{args}")
    chat.refresh()


# ---- model, agent, parameters


def do_model(chat: Conversation, args: str) -> None:
    """Choose a model; without one list the current, recent and configured ones."""
    if not args:
        _show_models(chat)
        return

    # A secret parameter goes to no other provider than that of the model that it was set for.
    chosen = chat.options.params
    full_name = chat.settings.providers.full_name(args)
    params = params_for(full_name, chat.agent()._replace(params=chosen))
    options = chat.options._replace(model=args, params=params)
    model = chat.resolve(options).agent.model
    chat.options = options._replace(model=model)
    for name in chosen.keys() - params.keys():
        stdio.note(f"{name} is not sent to {model}; it may be a secret")
    stdio.write_lines([f"{model} will answer from now on"])


def _show_models(chat: Conversation) -> None:
    """Print the current model with a star, then some recent and configured ones."""
    current = chat.agent().model
    others = dict.fromkeys(recent_models(chat.settings))
    others.pop(current or "", None)
    lines = [f"* {one_line(current or 'no model')}"]
    for model in islice(others, _MAX_MODELS):
        lines.append(f"  {one_line(model)}")
    stdio.write_lines(lines)


def do_agent(chat: Conversation, args: str) -> None:
    """Choose an agent, and drop what /model, /system, /param and /tools chose.

    An agent without a model keeps the chosen one. If the agent has a prompt, that makes the next
    question; ``NAME=VALUE`` pairs set its names. If no name is given, list the agents.
    """
    if not args:
        _show_lines(_agent_lines(chat))
        return

    agents = chat.settings.agents
    name = args
    pairs = []
    if args not in agents:
        words = commands.words_of(args)
        pairs = [word for word in words[1:] if "=" in word]
        name = " ".join(word for word in words if word not in pairs)
    options = chat.options.without_agent._replace(agent=name)
    if name in agents and agents[name].model is None:
        options = options._replace(model=chat.options.model)
    agent = chat.resolve(options).agent
    template = template_of(agent, pairs, f"/agent {name}")

    # Nothing has changed until here, where all is known to be right.
    chat.options = options
    chat.values = tuple(pairs)
    chat.next_question = chat.next_question._replace(uses_prompt=True)
    stdio.write_lines([f"{agent.name} will answer from now on, with {agent.model}"])
    if template:
        stdio.note("your next line fills in the agent's prompt")


def _agent_lines(chat: Conversation) -> list[str]:
    """Return a line for each agent, with a star for the current one; note those with errors."""
    current = chat.agent()
    lines = []
    if current.name not in chat.settings.agents:  # the session has it from another config
        lines.append(agent_line(current.name, current.model, default=True))
    for agent in chat.settings.agents.readable(stdio.note):
        model = model_of(chat.settings, agent, agent.model, chat.options.model)
        is_current = agent.name == current.name
        names = agent.prompt_names()
        lines.append(agent_line(agent.name, model, default=is_current, names=names))
    note = chat.settings.agents.note_on_others()
    if note:
        stdio.note(note)
    return lines


def do_system(chat: Conversation, args: str) -> None:
    """Set the system prompt from the next turn on; show it."""
    if args:
        chat.options = chat.options._replace(system="" if args == '""' else args)
    stdio.write_lines([chat.agent().system or "no system prompt"])
    if args:
        stdio.note("it applies from the next turn on")


def do_param(chat: Conversation, args: str) -> None:
    """Set parameters for the next turns, or remove some; show those that are sent."""
    changes, removals = parse_params(commands.words_of(args))
    unknown = removals - chat.agent().params.keys()
    if unknown:
        raise UsageError(f"no parameter {min(unknown)} is sent", "/param shows those that are")

    options = chat.options
    chosen = {**options.params, **changes}
    for key in removals:
        chosen.pop(key, None)
    removed = set(options.removed_params) - changes.keys()
    chat.options = options._replace(params=chosen, removed_params=removed | removals)

    lines = []
    params = without_secret_parameters(dict(chat.agent().params))
    for key, value in sorted(params.items()):
        value_as_json = json.dumps(value, ensure_ascii=False, default=str)
        lines.append(one_line(f"{key} = {value_as_json}"))
    stdio.write_lines(lines or ["no parameters are set; the provider's defaults apply"])
    with contextlib.suppress(GptshError):  # the next turn will report it
        chat.resolve(chat.options)  # notes what the model does not accept


# ---- what is sent


def do_file(chat: Conversation, args: str) -> None:
    """Attach files to the next question, or list them. Patterns and folders become their files."""
    if args == "-":
        chat.next_question = chat.next_question._replace(paths=(), attached=())
    elif args:
        added = [args] if is_path(args) else commands.words_of(args)  # blanks need no quotes
        files = Files()
        # They are read again with the question.
        files.attach((*chat.next_question.paths, *added))
        chat.next_question = chat.next_question._replace(paths=tuple(files.sizes))

    paths = chat.next_question.paths
    attached = chat.next_question.attached
    shown_paths = paths[:_MAX_FILES] if args else paths
    lines = [_part_line(part) for part in attached]
    lines += [_file_line(path) for path in shown_paths]
    count = len(attached) + len(paths)
    if len(lines) < count:
        lines.append(f"… {count - len(lines):,} more; /file lists all")
    stdio.write_lines(lines or ["no file is attached"])
    if args and count:
        stdio.note(f"{quantity(count, 'file')} attached to your next question")


def _part_line(part: Part) -> str:
    """Return the name and the size of what an undone question had attached."""
    name = name_of(part) or "text"
    media = media_of(part)
    if media:
        size = media.description
    else:
        text = str(part.get("text", ""))
        size = format_size(len(text.encode(errors="replace")))
    return f"{one_line(name)}  {one_line(size)}"


def _file_line(path: str) -> str:
    size = "No such file"
    with contextlib.suppress(OSError):
        size = format_size(os.path.getsize(path))
    return f"{one_line(path)}  {size}"


def do_tools(chat: Conversation, args: str) -> None:
    """Choose the tools of the next turns; show them if their servers run, else the servers."""
    settings = chat.settings
    if args:
        chat.options = chat.options._replace(tools=_tools_named(chat, args))
    agent, notes = with_tools(chat.agent(), chat.options, settings, chat.doc)
    for note in notes:
        stdio.note(note)
    servers = settings.tool_servers.select(agent.tools)
    running = chat.engine.running_tools(servers)
    if running:
        stdio.write_lines(map(tool_line, running.tools()))
        for note in running.notes():
            stdio.note(note)
        return

    for server in servers:
        stdio.write_lines([f"{server.name}: {', '.join(server.tools)}"])
    if servers:
        stdio.note("the servers start with the next turn, and then list their tools")
    else:
        stdio.note("no tools")


def _tools_named(chat: Conversation, args: str) -> tuple[str, ...]:
    """Return the tools that the arguments name. Raises ConfigError for an unknown name."""
    if args == "-":  # the agent's own tools
        return agent_of(chat.settings, chat.options, chat.doc).tools
    if args == "none":
        return ()
    stripped = (name.strip() for name in args.split(","))
    names = tuple(name for name in stripped if name)
    chat.settings.tool_servers.select(names)  # raises
    return names


def do_web(chat: Conversation, args: str) -> None:
    """Choose whether the model may search the web from the next turn on; show whether it may."""
    if args:
        options = chat.options._replace(web=args == "on")
        chat.resolve(options)  # raises if the model's provider has no search
        chat.options = options
    may = "may" if chat.agent().web else "may not"
    stdio.write_lines([f"the model {may} search the web"])


def do_context(chat: Conversation) -> None:
    """Show what would be sent, with the attached files and without the next question's text."""
    from gptsh.turn.preview import facts_of

    next_question = chat.next_question
    parts = [*next_question.attached, *Files().attach(next_question.paths)]
    setup, plan = chat.plan_turn(user_message("", parts) if parts else None)
    stdio.write_lines(facts_of(chat.engine, plan))
    if setup.servers and chat.engine.running_tools(setup.servers) is None:
        names = ", ".join(server.name for server in setup.servers)
        stdio.note(f"the tools of {names} are not counted before the next turn starts them")


def do_compact(chat: Conversation, args: str) -> None:
    """Show how the session would be shortened for sending; with ``--apply`` do it."""
    if chat.doc is None or not chat.doc["messages"]:
        raise UsageError("there is nothing to compact yet")
    if args:
        _saved_ref(chat)
    chat.compact(apply=bool(args))


def do_debug_context(chat: Conversation) -> None:
    """Show the last request as JSON, with masked keys."""
    if chat.last_plan is None:
        stdio.note("nothing was sent yet; /context shows what would be")
        return
    from gptsh.turn.preview import request_of

    request = request_of(chat.engine.client, chat.last_plan)
    text = json.dumps(request, indent=2, ensure_ascii=False, default=str)
    _show_lines(visible(text).split("\n"))


# ---- other


def do_copy(chat: Conversation, args: str) -> None:
    """Copy an answer, or a code block of the last one, to the clipboard of the terminal.

    The terminal gets an escape sequence (OSC 52), so this works over ssh, too.
    """
    match = re.fullmatch(r"(?P<code>code)? *(?P<number>[1-9][0-9]{0,8})?", args)
    if not match:
        todo = "expected nothing, a turn's number, code, or code and a number"
        raise UsageError(f"/copy {args}: {todo}")

    messages = _current_doc(chat)["messages"]
    texts = [_last_answer(messages)]
    if match["code"]:
        texts = [block.content for block in code_blocks(texts[0])]
    elif match["number"]:
        texts = [_last_answer(turn) for turn in turns.split_turns(messages)]
    index = int(match["number"]) - 1 if match["number"] else len(texts) - 1
    text = texts[index] if 0 <= index < len(texts) else ""
    if not text:
        raise UsageError("there is no such answer or code block")

    if not obeys_escapes(os.environ) or os.environ.get("TERM") in _NO_CLIPBOARD:
        raise UsageError("this terminal has no clipboard")
    encoded = b64encode(text.encode("utf-8", "replace")).decode()
    stdio.write_pieces([f"\x1b]52;c;{encoded}\x07"], safe=True)
    stdio.note(f"{quantity(len(text), 'character')} sent to the terminal's clipboard")


def _last_answer(messages: Sequence[Message]) -> str:
    """Return the text of the last answer that has some; "" without one."""
    for message in reversed(messages):
        if message["role"] == "assistant":
            text = text_of(final_answer(message))
            if text:
                return text
    return ""


def do_usage(chat: Conversation, args: str) -> None:
    """Show tokens and cost as ``--usage`` does, of this session, or of all."""
    from gptsh.manage.usage import draw_usage, show_usage

    if args:
        show_usage(None, Filters(), None)
        return
    with contextlib.suppress(GptshError):  # its file is lost: what is in memory counts
        chat.refresh()
    sums = [usage.sums_by_day(chat.doc)] if chat.doc else []
    draw_usage(usage_report.count(sums), None)


def do_help(_chat: Conversation, args: str) -> None:
    _show_lines(commands.help_on(args, stdio.width(stdio.stdout())))


def do_exit(chat: Conversation) -> None:
    chat.should_exit = True
