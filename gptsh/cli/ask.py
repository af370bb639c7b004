"""The one-shot job: a question in, the answer to stdout, both kept in the session."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gptsh.cli import manage, show, stdio
from gptsh.cli.keeper import ByHand, Keeper
from gptsh.cli.options import Flags
from gptsh.cli.signals import Ended, Endings
from gptsh.cli.title import TitleThread
from gptsh.core import context, document, references, sessions, settings
from gptsh.core.document import Document
from gptsh.core.messages import (
    Event,
    Finished,
    Message,
    Reasoning,
    Refusal,
    Retrying,
    Text,
    Usage,
    is_unicode,
    safe_params,
    user_message,
    words_of,
)
from gptsh.core.models import split_model
from gptsh.core.schema import is_json
from gptsh.core.settings import Agent, Settings, Wanted
from gptsh.core.turn import Ask, Request, Turn, shortcoming
from gptsh.errors import ConfigError, GptshError, OutputError, TimedOut, UsageError
from gptsh.llm.client import Client
from gptsh.render.plain import Writer
from gptsh.render.spinner import Spinner


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


def ask(flags: Flags, environ: Mapping[str, str]) -> int:
    """Ask, show, save; the exit code. Raises GptshError for every failure, Ended for a signal and the deadline."""
    if flags.here or flags.limit is not None:
        raise UsageError("--here and --limit belong to a list", "add --list-sessions")
    loaded = settings.load(environ, flags.config)
    with Endings(_timeout(flags.timeout) or loaded.timeout) as endings:
        deadline = time.monotonic() + endings.seconds if endings.seconds else None
        return _ask(flags, loaded, Client(loaded, environ, deadline), endings)


def _ask(flags: Flags, loaded: Settings, client: Client, endings: Endings) -> int:
    _warm(flags, loaded, client)
    question = _question(flags, loaded)
    ref = _session_ref(flags, loaded)
    if question is None and ref is not None and (flags.title is not None or flags.tag):
        if not _saves(flags, loaded):
            raise UsageError("a label that is not saved is none", "leave out --no-save")
        return manage.label(ref, flags.title, flags.tag)
    if question is None and ref is None:
        raise UsageError("no prompt", "give words or pipe text in; gptsh -h shows how")
    job = _prepare(flags, loaded, question, ref, client)
    by_hand = ByHand(flags.title, flags.tag, job.at)
    keeper = Keeper(job.doc, by_hand, enabled=_saves(flags, loaded))
    return _carry_out(job, keeper, endings)


def _saves(flags: Flags, loaded: Settings) -> bool:
    return loaded.save and not flags.no_save


def _timeout(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return settings.positive_seconds(text)
    except ValueError as err:
        raise UsageError(f"--timeout: {err}") from err


# ---- the question


def _question(flags: Flags, loaded: Settings) -> Message | None:
    """Words, files and piped text as one message; None where there is nothing of the kind."""
    read = [(path, stdio.read_file(path)) for path in flags.file]
    if _reads_stdin(flags, loaded) and (piped := stdio.read_piped()).strip():
        read.append(("stdin", piped))
    attached = [(source, stdio.text_in(data, source)) for source, data in read]
    if odd := [source for source, text in attached if not is_unicode(text)]:
        stdio.note(f"not UTF-8 throughout: {', '.join(odd)}: the other bytes are kept, and sent as U+FFFD")
    words = " ".join(flags.prompt)
    return user_message(words, attached) if words.strip() or attached else None


def _reads_stdin(flags: Flags, loaded: Settings) -> bool:
    return loaded.read_stdin and not flags.no_stdin


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


# ---- the session


def _session_ref(flags: Flags, loaded: Settings) -> str | None:
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


def _warm(flags: Flags, loaded: Settings, client: Client) -> None:
    """While standard input is waited for, load what asking will need. What is wrong here will be said in its time."""
    if not (_reads_stdin(flags, loaded) and stdio.is_awaited(sys.stdin)):
        return
    with contextlib.suppress(GptshError):
        agent = _agent(flags, loaded, _open(_session_ref(flags, loaded))[0])
        if agent.model:
            client.warm(agent.model)


def _prepare(flags: Flags, loaded: Settings, question: Message | None, ref: str | None, client: Client) -> Job:
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


# ---- the answer


def _carry_out(job: Job, keeper: Keeper, endings: Endings) -> int:
    """Save the question, ask, show, save the answer, wait for the title; then say what went wrong.

    Signals are held back throughout, but where the answer and the title are waited for.
    """
    title = _title_thread(job, keeper)
    turn = Turn(_interruptible(job.client.ask, endings), job.request)
    screen = show.Screen(f"waiting for {job.request.model}", endings.released)
    with endings.held():
        keeper.save(durable=False)
        writer = screen.writer(markdown=job.markdown, reasoning=job.reasoning)
        failure: BaseException | None = GptshError("a fault of gptsh")  # until it is known to be none
        try:
            failure = _show(turn, writer, screen.spinner, title, endings)
        finally:
            message = _keep(turn.message(_why(failure, turn)), job, keeper)
        _finish_line(writer, screen, failure)
        if title and isinstance(failure, (type(None), BrokenPipeError)):
            keeper.keep_title(_wait_for(title, endings), _cost(job.settings, title.model, title.usage))
        _raise(failure or (shortcoming(message) if message else None), keeper.where(message))
    return 1 if keeper.failed else 0


def _interruptible(ask: Ask, endings: Endings) -> Ask:
    """Ask so that a signal ends the waiting for an event, and nothing else: what was taken is shown and kept."""

    def asked(request: Request) -> Iterator[Event]:
        events = ask(request)
        while True:
            with endings.released():
                event = next(events, None)
            if event is None:
                return
            yield event

    return asked


def _show(
    turn: Turn, writer: Writer, spinner: Spinner, title: TitleThread | None, endings: Endings
) -> BaseException | None:
    """Write the answer as it comes; what ended it before its time, or None."""
    try:
        with spinner:
            _write(turn, writer, spinner, title)
    except (GptshError, Ended, OSError) as err:
        whole = turn.finished and isinstance(err, Ended) and err.by_deadline  # only the usage did not come in time
        return None if whole else err
    finally:
        endings.disarm()
    return None


def _write(turn: Turn, writer: Writer, spinner: Spinner, title: TitleThread | None) -> None:
    for event in turn:
        if isinstance(event, Retrying):
            spinner.say(f"{event.why}; again in {event.seconds:.1f} s")
        elif isinstance(event, (Text, Reasoning, Refusal)):
            spinner.say("the answer comes")
            if title:
                title.start()
            writer.write(event)
        elif isinstance(event, Finished):  # usage may be long in coming, or never come
            writer.write(event)
    writer.close()


def _finish_line(writer: Writer, screen: show.Screen, failure: BaseException | None) -> None:
    """End the line of a partial answer, so that the error stands on its own; a reader that stalls is not waited for."""
    screen.lose_patience()
    if not isinstance(failure, OSError):
        with contextlib.suppress(OSError):
            writer.close()


def _why(failure: BaseException | None, turn: Turn) -> str | None:
    """The finish reason of an answer that we know is partial; None for a whole one."""
    match failure:
        case None:
            return None
        case Ended() | OSError() if turn.finished:
            return None
        case TimedOut() | Ended(by_deadline=True):
            return "timeout"
        case GptshError():
            return "error"
    return "interrupted"


def _keep(message: Message | None, job: Job, keeper: Keeper) -> Message | None:
    """Save the answer, with where it came from; nothing where nothing came."""
    if message is None:
        return None
    message["agent"], message["model"] = job.agent.name, job.request.model
    message["provider"], message["parent"] = job.doc["provider"]["name"], job.question
    usage = message.get("usage")
    cost = _cost(job.settings, job.request.model, usage)
    sessions.append_messages(job.doc, [message], {"tokens": usage, "cost": cost})
    keeper.save(durable=True)
    return message


def _cost(loaded: Settings, model: str, usage: Usage | None) -> float | None:
    """USD for one call; None where it is not known."""
    if usage is None:
        return None
    from gptsh.core import pricing  # noqa: PLC0415 - the answer is out; the request need not wait for it

    return pricing.cost(settings.facts_of(loaded, model), usage["raw"])


def _title_thread(job: Job, keeper: Keeper) -> TitleThread | None:
    """The thread that will ask for a title; None where the session has one, or none is wanted."""
    messages = job.doc["messages"]
    starts = document.turns(messages)
    first_turn = len(starts) == 1 and document.unanswered(messages)
    small = settings.small_model(job.settings, job.agent)
    offline = "echo" in (job.doc["provider"]["name"], split_model(small or "echo")[0])
    if not job.settings.titles or not first_turn or not keeper.wants_title or small is None or offline:
        return None
    return TitleThread(words_of(messages[starts[0]]), small, job.client.ask)


def _wait_for(title: TitleThread, endings: Endings) -> str | None:
    try:
        with endings.released():
            return title.wait()
    except Ended as ended:
        if not ended.by_user:
            raise
    return None  # the answer is complete and saved: Ctrl-C only means that the title is not worth the wait


def _raise(failure: BaseException | None, where: str) -> None:
    match failure:
        case None | BrokenPipeError():
            return
        case OSError():
            failure = OutputError(f"the answer cannot be written: {failure.strerror}")
            failure.hint = where
        case GptshError() | Ended():
            failure.hint = where
    raise failure
