"""A question that is ready to be asked: its session, its agent, its model. Nothing is saved or sent here."""

import contextlib
import json
import os
import sys
from typing import Any, NamedTuple

from gptsh.cli import manage, stdio
from gptsh.cli.options import Flags
from gptsh.cli.question import reads_stdin
from gptsh.core import context, document, references, sessions, settings
from gptsh.core.document import Document
from gptsh.core.messages import Message, safe_params
from gptsh.core.schema import is_json
from gptsh.core.settings import Agent, Settings, Wanted
from gptsh.core.turn import Request
from gptsh.errors import ConfigError, GptshError, UsageError
from gptsh.llm.client import Client


class Job(NamedTuple):
    """A question that is ready to be asked. Nothing has been saved or sent yet."""

    settings: Settings
    client: Client
    agent: Agent
    doc: Document
    request: Request
    question: str  # the id of the message that is answered
    at: str | None  # the file that the session was read from, or the @NAME that the first save creates
    markdown: bool
    reasoning: bool


def session_ref(flags: Flags, loaded: Settings) -> str | None:
    """The session that the command line, else the environment names; None for a new one."""
    if flags.continue_:
        latest = sessions.latest_in_project(manage.current_project())
        if latest is None:
            raise UsageError("no session was used in this project yet", "start one, or see --list-sessions")
        return latest
    if flags.session is not None:
        return flags.session
    return None if flags.new else loaded.session


def _open(ref: str | None) -> tuple[Document | None, str | None]:
    """The document to go on with (None: a new one), and its file name or the ``@NAME`` that it is to get."""
    if ref is None:
        return None, None
    base, point = references.split_ref(ref)
    if point is None and references.is_new_name(ref):
        return None, ref
    if point is not None:
        return sessions.fork_session(sessions.load_at(ref), point), None
    filename = references.filename_of(base)
    doc = sessions.load_session(filename)
    sessions.refuse_newer(doc, filename)
    return doc, filename


def _agent(flags: Flags, loaded: Settings, stored: Document | None) -> Agent:
    wanted = Wanted(flags.agent, flags.model, flags.system, _params(flags.param))
    return settings.choose_agent(loaded, wanted, settings.stored_agent(stored) if stored else None)


def warm(flags: Flags, loaded: Settings, client: Client) -> None:
    """While standard input is waited for, load what asking will need. What is wrong here will be said in its time."""
    if not (reads_stdin(flags, loaded) and stdio.is_awaited(sys.stdin)):
        return
    with contextlib.suppress(GptshError):
        agent = _agent(flags, loaded, _open(session_ref(flags, loaded))[0])
        if agent.model:
            client.warm(agent.model)


def prepare(flags: Flags, loaded: Settings, question: Message | None, ref: str | None, client: Client) -> Job:
    """Everything that can end in exit 2, before anything is saved."""
    stored, at = _open(ref)
    if question is None and (stored is None or not document.unanswered(stored["messages"])):
        raise UsageError(
            f"no prompt, and session {ref} has no question without an answer", "give words or pipe text in"
        )
    agent = _agent(flags, loaded, stored)
    if agent.model is None:
        raise _no_model(client)
    output = flags.output or loaded.output or agent.output
    _refuse_output(output)
    # Markdown is for a person: in a pipe it is rendered only where the command line itself asks for it.
    markdown = flags.output == "markdown" or (stdio.is_terminal(stdio.answers_to()) and output != "text")
    model = client.named(agent.model)
    agent = agent._replace(model=model)
    if left_out := client.prepare(model, agent.params):
        stdio.note(f"{model} takes no {', '.join(left_out)}: left out")
    doc = _document(stored, agent, loaded)
    if question is not None:
        sessions.append_messages(doc, [question], None)
    request = Request(model, context.build(doc["messages"], agent.system), dict(agent.params), not flags.no_stream)
    asked = doc["messages"][document.turns(doc["messages"])[-1]]["id"]
    return Job(loaded, client, agent, doc, request, asked, at, markdown, reasoning=not flags.no_reasoning)


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


def _no_model(client: Client) -> ConfigError:
    near = client.local_models()
    ways = "use -m PROVIDER/MODEL, GPTSH_MODEL, agents.default.model in config.toml, or a key such as OPENAI_API_KEY"
    offered = f"; here answer: {', '.join(near)}" if near else "; -m echo works offline"
    return ConfigError("no model is chosen", ways + offered)


def _refuse_output(output: str | None) -> None:
    if output in ("json", "jsonl"):
        raise ConfigError(f"output {output!r} is not built yet", "use text")


def _params(pairs: tuple[str, ...]) -> dict[str, Any]:
    """``KEY=VALUE`` pairs; a value is JSON where it can be read so, else a string."""
    params: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UsageError(f"-p {pair!r}: expected KEY=VALUE")
        try:
            parsed = json.loads(value, parse_constant=str)
        except (ValueError, RecursionError):
            parsed = value
        params[key] = parsed if is_json(parsed) else value
    return params
