"""A question that is ready to be asked: its session, its agent, its model. Nothing is saved or sent here."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gptsh.cli import stdio
from gptsh.cli.opening import Opened
from gptsh.cli.options import Flags
from gptsh.cli.reporter import Reporter
from gptsh.cli.sending import Sending
from gptsh.cli.show import Form
from gptsh.cli.wanted import agent_for
from gptsh.core import context, cuts, document, references, sessions, settings
from gptsh.core.choice import Choice
from gptsh.core.context import Context, Room
from gptsh.core.cuts import Cut
from gptsh.core.document import Document
from gptsh.core.forms import STRUCTURED
from gptsh.core.media import ABILITIES, NAMES, Kind, media_in
from gptsh.core.messages import Message, safe_params
from gptsh.core.models import facts
from gptsh.core.providers import DIRECT
from gptsh.core.settings import Agent, Settings
from gptsh.core.shape import Shape, in_words
from gptsh.core.tokens import Count, of_system
from gptsh.core.tool_servers import ToolServer
from gptsh.core.turn import Request, Tools
from gptsh.errors import ConfigError, StoreError, UsageError
from gptsh.llm.client import Client

if TYPE_CHECKING:
    from gptsh.core.snapshots import Happening

_SHARE = 0.6  # of the room: a question that is cut leaves the rest to what was said before it
ASK_FROM = 2000  # tokens of a prompt, or of prompt and answer; fewer fit any model, whose window is not looked up


class Reached(NamedTuple):
    """Who answers, in which form, with which tools: all that is known of a run before its question is read."""

    agent: Agent
    form: Form
    servers: list[ToolServer]


class Draft(NamedTuple):
    """A question in its session, and who is to answer it; whether it fits is not known yet."""

    settings: Settings
    client: Client
    doc: Document
    agent: Agent
    at: str | None  # the file that the session was read from, or the @NAME that the first save creates
    form: Form
    servers: list[ToolServer]
    resumed: bool  # the session says which tools there are, not the command line or the configuration
    happened: "list[Happening]"  # to be told once the question is saved


class Job(NamedTuple):
    """A question that is ready to be asked. Nothing has been saved or sent yet."""

    settings: Settings
    client: Client
    doc: Document
    sending: Sending
    spoken: list[Message]  # of the session, see ``Sending.spoken``
    choice: Choice
    context: Context
    request: Request
    question: str  # the id of the message that is answered
    form: Form
    tools: Tools | None
    happened: "list[Happening]"


def equipped(flags: Flags, loaded: Settings, stored: Document | None) -> Agent:
    """Who answers, with the tools that are wanted: the command line's, else the session's, else the agent's own.

    Raises as ``agent_for``.
    """
    agent = agent_for(flags, loaded, stored)
    names = None if stored is None or _says_tools(flags) else stored["meta"].get("mcp_allowed_servers")
    if not isinstance(names, list):
        return agent._replace(tools=flags.tools_of(agent.tools))
    return agent._replace(tools=_configured(names, loaded))


def _says_tools(flags: Flags) -> bool:
    """Whether the command line says which tools there are to be, from now on."""
    return flags.no_tools or flags.tools is not None or flags.agent is not None


def _configured(names: list[Any], loaded: Settings) -> tuple[str, ...]:
    """The tools that a session was given, as far as they are still configured."""
    known = []
    for name in names:
        try:
            known += [name] if isinstance(name, str) and loaded.tool_servers.chosen([name]) else []
        except ConfigError as err:
            stdio.note(f"the session goes on without some of its tools: {err}")
    return tuple(known)


def reach(flags: Flags, loaded: Settings, stored: Document | None, client: Client, reporter: Reporter) -> Reached:
    """What can end in exit 2 whatever is asked: agent, model, key, parameters, schema, tools.

    ``reporter`` learns the form of the output. Raises ConfigError and UsageError.
    """
    agent = equipped(flags, loaded, stored)
    form = _form(flags, loaded, agent)
    reporter.output = form.output
    agent, servers = reached(agent, loaded, client)
    return Reached(agent, form, servers)


def draft(
    flags: Flags, loaded: Settings, question: Message | None, opened: Opened, client: Client, known: Reached
) -> Draft:
    """The question in its session. Raises UsageError; nothing is saved.

    Without a question the session is taken as it stands.
    """
    ref, stored, at = opened
    agent, form, servers = known
    doc = _document(stored, agent, loaded)
    resumed = stored is not None and not _says_tools(flags)
    if not resumed:
        doc["meta"] = {**doc["meta"], "mcp_allowed_servers": list(agent.tools)}
    happened = _positions(flags, loaded, doc, ref)
    if question is not None:
        sessions.append_messages(doc, [question], None)
    return Draft(loaded, client, doc, agent, at, form, servers, resumed, happened)


def refuse_answered(opened: Opened) -> None:
    """Raise UsageError where a session has no question without an answer, which could be asked again."""
    if opened.doc is None or not document.unfinished(opened.doc["messages"]):
        raise UsageError(
            f"no prompt, and session {opened.ref} has no question without an answer", "give words or pipe text in"
        )


def reached(agent: Agent, loaded: Settings, client: Client) -> tuple[Agent, list[ToolServer]]:
    """The agent, its model under its full name, and the servers of its tools. A note says what the model refuses.

    Raises ConfigError for what keeps it from being asked, as far as that is known without asking it.
    """
    if agent.model is None:
        raise no_model(client)
    servers = loaded.tool_servers.chosen(agent.tools) if agent.tools else []
    agent = agent._replace(model=client.named(agent.model))
    if left_out := client.prepare(agent.model or "", agent.params, tools=bool(agent.tools)):
        stdio.note(f"{agent.model} takes no {', '.join(left_out)}: left out")
    return agent, servers


def _positions(flags: Flags, loaded: Settings, doc: Document, ref: str | None) -> "list[Happening]":
    """What is to be told of snapshots: that the session was forked from one, and that one is taken, which is done."""
    happened: list[Happening] = []
    point = references.split_ref(ref)[1] if ref else None
    if point and not document.is_numbered(point):
        origin, _ = references.split_ref(doc["meta"]["forked_from"])
        happened.append(("snapshot_restored", {"snapshot": point, "session": origin}))
    if flags.snapshot is not None:
        from gptsh.core import snapshots  # noqa: PLC0415 - few runs take one

        size = snapshots.size_of(doc)
        happened += snapshots.record(doc, loaded.context.snapshots, name=flags.snapshot, tokens=size)
    return happened


def prepare(drafted: Draft, flags: Flags, tools: Tools | None) -> Job:
    """What is sent, with the tools that are offered. Raises TooLong and ToolServerError; nothing is saved yet."""
    loaded, client, doc, form = drafted.settings, drafted.client, drafted.doc, drafted.form
    sending, spoken = sending_for(drafted, flags, tools)
    choice = sending.chosen(spoken, doc["context"], compacts=flags.compact)
    if flags.truncate is not None and (choice.size.safe > (sending.room.prompt or 0) or choice.shortened.questions):
        doc["messages"] = _truncated(sending, doc["messages"], flags.truncate)
        spoken = sending.spoken(doc["messages"])
        choice = sending.chosen(spoken, doc["context"], compacts=flags.compact)
    advice = _advice(sending, doc["messages"], cut=flags.truncate is not None) + _too_much_memory(sending, choice)
    sending = sending._replace(advice=advice)
    built, request = sending.built(choice, doc["messages"])
    asked = next((message["id"] for message in doc["messages"][_asked_at(doc["messages"]) :]), "")
    return Job(loaded, client, doc, sending, spoken, choice, built, request, asked, form, tools, drafted.happened)


def sending_for(drafted: Draft, flags: Flags, tools: Tools | None) -> tuple[Sending, list[Message]]:
    """How the session is sent, and its messages as the model can read them. Raises ToolServerError, UsageError."""
    loaded, client, messages = drafted.settings, drafted.client, drafted.doc["messages"]
    lacks = _lacks(client, drafted.agent.model or "", messages)
    sending = _sending(drafted, stream=not flags.no_stream)._replace(lacks=lacks)
    if tools:
        sending = sending._replace(tools=tools.tools(), max_rounds=loaded.max_rounds)
        if tools.missing:
            stdio.note(f"the session goes on without some of its tools: {', '.join(tools.missing)}")
    spoken = sending.spoken(messages)
    size = sending.measured(spoken, limit=ASK_FROM)
    sending = sending._replace(room=_room(sending, size, flags, loaded, client))
    return _with_less_memory(sending, drafted), spoken


def _form(flags: Flags, loaded: Settings, agent: Agent) -> Form:
    """Markdown is for a person: in a pipe it is rendered only where the command line itself asks for it."""
    output = flags.output or loaded.output or agent.output
    if output in STRUCTURED and flags.interactive:  # what is configured is for programs
        output = None
    if output not in STRUCTURED:
        person = stdio.is_terminal(stdio.answers_to())
        output = "markdown" if flags.output == "markdown" or (person and output != "text") else "text"
    if flags.extract and flags.schema is not None:
        raise UsageError("-x and --schema exclude each other", "JSON loses its fence by --schema alone")
    shape = None if flags.schema is None else Shape(flags.schema)
    return Form(output, flags.extract, shape, not flags.no_reasoning)


def _sending(drafted: Draft, *, stream: bool) -> Sending:
    agent, form, loaded = drafted.agent, drafted.form, drafted.settings
    memory = _memory(agent)
    system, schema = _asked_for(drafted, memory, None)
    provider = settings.provider_of(loaded, agent.model or "")[0].name
    return Sending(agent, provider, system, schema, stream, form.structured, loaded.context, memory=memory)


def _asked_for(drafted: Draft, memory: str, window: int | None) -> tuple[str | None, dict[str, Any] | None]:
    """The system prompt and the schema that are sent into a window.

    A schema goes as a field where the model is known to take it, in words where not, as both where none knows.
    """
    agent, shape = drafted.agent, drafted.form.shape
    provider, name = settings.provider_of(drafted.settings, agent.model or "")
    system, schema = agent.system, None
    if memory:
        from gptsh.core.memory import in_system  # noqa: PLC0415 - few agents have one

        system = in_system(system, memory, window)
    if shape:
        # Ollama takes one for every model, and shows it to none.
        takes = None if provider.wire == "ollama" else facts(provider.name, name).can("response_schema")
        if takes or (takes is None and provider.wire in DIRECT):
            schema = shape.schema
        if not takes:
            system = in_words(system, shape.schema)
    return system, schema


def _memory(agent: Agent) -> str:
    """What the agent remembers. A memory that cannot be read is worth a note, and no answer."""
    if not agent.memory or agent.system == "":
        return ""
    from gptsh.core import memory  # noqa: PLC0415 - few agents have one

    try:
        return memory.known(agent.name)
    except StoreError as err:
        stdio.note(str(err))
        return ""


def _with_less_memory(sending: Sending, drafted: Draft) -> Sending:
    """With no more of the memory than a small window has room for, once that is known."""
    if not sending.memory or sending.room.window is None:
        return sending
    return sending._replace(system=_asked_for(drafted, sending.memory, sending.room.window)[0])


def _too_much_memory(sending: Sending, choice: Choice) -> str:
    """What else can be done about a prompt that does not fit, and of which the memory is the larger part."""
    prompt, window = sending.room.prompt, sending.room.window
    if not sending.memory or prompt is None or choice.size.safe <= prompt:
        return ""
    from gptsh.core import memory  # noqa: PLC0415 - few agents have one

    told = memory.in_system(None, sending.memory, window) or ""
    file = memory.folder_of(sending.agent.name) / "MEMORY.md"
    return f"; most of it is {file}, the agent's memory" if 2 * of_system(told) > choice.size.likely else ""


def _lacks(client: Client, model: str, messages: Sequence[Message]) -> frozenset[Kind]:
    """The kinds of attachments in the session that the model is known not to take; a note says how many there are,
    those among them that cannot be said in its dialect.

    Raises UsageError where the question that is asked has one.
    """
    asked = next(iter(messages[_asked_at(messages) :]), None)
    found = [(message, part, media) for message in messages for part, media in media_in(message)]
    carried = [(part, media) for message, part, media in found if message["role"] != "assistant"]
    kinds = [(message is asked, media.kind) for message, _, media in found]
    lacks = frozenset(kind for kind in {kind for _, kind in kinds} if client.can(model, ABILITIES[kind]) is False)
    if refused := sorted({NAMES[kind] for is_asked, kind in kinds if is_asked and kind in lacks}):
        raise UsageError(f"{model} takes no {', no '.join(refused)}", "choose another model with -m")
    odd = [media.kind for part, media in carried if media.kind not in lacks and not client.takes(model, part)]
    if left := len(odd) + sum(kind in lacks for _, kind in kinds):
        what = "1 attachment" if left == 1 else f"{left} attachments"
        names = sorted({*(NAMES[kind] for kind in lacks), *(f"{NAMES[kind]} of that form" for kind in odd)})
        stdio.note(f"{what} of the session not sent: {model} takes no {', no '.join(names)}")
    return lacks


def _room(sending: Sending, size: Count, flags: Flags, loaded: Settings, client: Client) -> Room:
    """What the model's window leaves. For a prompt that fits any it is looked up only where it is told."""
    asks = size.safe > ASK_FROM or flags.truncate is not None
    least = context.least_window(size.safe, sending.agent.params, loaded.context.reserve)
    if asks or least > ASK_FROM or flags.dry_run or sending.reports:
        window = client.window(sending.model, ask=asks)
    else:
        window = settings.provider_of(loaded, sending.model)[0].context_window
    if flags.truncate is not None and window is None:
        way = f"set context_window under [providers.{sending.provider}]"
        raise UsageError(f"--truncate: the window of {sending.model} is not known", way)
    return context.room_for(window, sending.agent.params, loaded.context.reserve)


def _truncated(sending: Sending, messages: list[Message], end: str) -> list[Message]:
    """The messages, their piped and attached text cut until all fits or nothing is left to cut.

    Where the session can be compacted that is the text of the question alone, and what was said before keeps its share
    of the room, or all that it takes if that is less.
    """
    limit = sending.room.prompt or 0
    before, own = _parted(sending, messages)
    if before:
        rest = round(sending.rules.compact_at * limit) - (_safe(sending, before) - _safe(sending, []))
        limit = max(round(_SHARE * limit), rest)
    room = limit - _safe(sending, cuts.without(own))
    size = _safe(sending, own)
    made: list[Cut] = []
    while size > limit and (cut := cuts.cut(own, room, end)):
        own, made = cut
        size = _safe(sending, own)
        room -= max(1, size - limit)  # where more was reported of what stays than is estimated
    for one in made:
        stdio.note(f"{one.source}: {one.removed:,} of {one.whole:,} characters cut from its {end}")
    return [*before, *own]


def _parted(sending: Sending, messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """What a compaction can shorten, and behind it what only a cut can: the question, or all where none is allowed."""
    asked = _asked_at(messages) if sending.rules.compact else 0
    return messages[:asked], messages[asked:]


def _asked_at(messages: Sequence[Message]) -> int:
    """Where the question stands that is answered; behind all messages where none is."""
    return document.turns(messages)[-1] if document.unfinished(messages) else len(messages)


def _advice(sending: Sending, messages: list[Message], *, cut: bool) -> str:
    """What else can be done about a prompt that does not fit."""
    advice = ""
    if not sending.rules.compact and _asked_at(messages):
        advice += '; compact = "auto" under [context] sends less of the session'
    if not cut and any(map(cuts.attached, _parted(sending, messages)[1])):
        advice += "; --truncate cuts what is piped or attached"
    return advice


def _safe(sending: Sending, messages: Sequence[Message]) -> int:
    return sending.measured(sending.spoken(messages), limit=sending.room.prompt).safe


def _document(stored: Document | None, agent: Agent, loaded: Settings) -> Document:
    """The session's document, its agent and provider those of this turn."""
    info = {
        "name": agent.name,
        "model": agent.model,
        "model_small": agent.model_small,
        "params": safe_params(agent.params),
        "system": agent.system,
    }
    provider = {"name": settings.provider_of(loaded, agent.model or "")[0].name}
    if stored is not None:
        return {**stored, "agent": {**stored["agent"], **info}, "provider": {**stored["provider"], **provider}}
    try:
        cwd = os.getcwd()
    except FileNotFoundError:
        cwd = None
    return sessions.new_session_doc(info, provider, output=agent.output, mcp_allowed_servers=list(agent.tools), cwd=cwd)


def no_model(client: Client) -> ConfigError:
    """What is wrong where nothing says which model is asked: the ways to say it."""
    near = client.local_models()
    ways = "use -m PROVIDER/MODEL, GPTSH_MODEL, agents.default.model in config.toml, or a key such as OPENAI_API_KEY"
    offered = f"; here answer: {', '.join(near)}" if near else "; -m echo works offline"
    return ConfigError("no model is chosen", ways + offered)
