"""The one-shot job: a question in, the answer to stdout, both kept in the session."""

import contextlib
import time
from collections.abc import Iterator, Mapping

from gptsh.cli import manage, show
from gptsh.cli.keeper import ByHand, Keeper
from gptsh.cli.options import Flags
from gptsh.cli.prepare import Job, prepare, session_ref, warm
from gptsh.cli.question import read_question
from gptsh.cli.signals import Ended, Endings
from gptsh.cli.title import TitleThread
from gptsh.core import document, sessions, settings
from gptsh.core.messages import Event, Finished, Message, Reasoning, Refusal, Retrying, Text, Usage, words_of
from gptsh.core.models import split_model
from gptsh.core.settings import Settings
from gptsh.core.turn import Ask, Request, Turn, shortcoming
from gptsh.errors import GptshError, OutputError, TimedOut, UsageError
from gptsh.llm.client import Client
from gptsh.render.plain import Writer
from gptsh.render.spinner import Spinner


def ask(flags: Flags, environ: Mapping[str, str]) -> int:
    """Ask, show, save; the exit code. Raises GptshError for every failure, Ended for a signal and the deadline."""
    if flags.here or flags.limit is not None:
        raise UsageError("--here and --limit belong to a list", "add --list-sessions")
    loaded = settings.load(environ, flags.config)
    with Endings(_timeout(flags.timeout) or loaded.timeout) as endings:
        deadline = time.monotonic() + endings.seconds if endings.seconds else None
        return _ask(flags, loaded, Client(loaded, environ, deadline), endings)


def _ask(flags: Flags, loaded: Settings, client: Client, endings: Endings) -> int:
    warm(flags, loaded, client)
    question = read_question(flags, loaded)
    ref = session_ref(flags, loaded)
    if question is None and ref is not None and (flags.title is not None or flags.tag):
        if not _saves(flags, loaded):
            raise UsageError("a label that is not saved is none", "leave out --no-save")
        return manage.label(ref, flags.title, flags.tag)
    if question is None and ref is None:
        raise UsageError("no prompt", "give words or pipe text in; gptsh -h shows how")
    job = prepare(flags, loaded, question, ref, client)
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
