"""The one-shot job: a question in, the answer to stdout, both kept in the session."""

import sys
from collections.abc import Mapping
from typing import NamedTuple

from gptsh.cli import stdio
from gptsh.cli.interrupts import Interrupted, Interrupts
from gptsh.cli.opening import Opened, open_session, session_ref
from gptsh.cli.options import Flags
from gptsh.cli.plan import Plan, Planner, Respondent, begin, chooses_tools, refuse_answered, resolve
from gptsh.cli.question import read_question, reads_stdin
from gptsh.cli.reporter import Reporter
from gptsh.cli.session import Session
from gptsh.cli.show import Form
from gptsh.cli.toolboxes import Toolboxes
from gptsh.cli.turn import Turn
from gptsh.cli.wanted import NOT_SAVED, check_snapshot, saves, seconds_of
from gptsh.config import settings
from gptsh.config.settings import Sessions, Settings
from gptsh.core import document, references
from gptsh.core.document import Document
from gptsh.errors import GptshError, StoreBusy, ToolServerError, UsageError
from gptsh.llm.client import Client
from gptsh.messages import Message
from gptsh.render import structured
from gptsh.render.lists import FACTS, context_lines


class App(NamedTuple):
    """What questions are asked with, whether one of them or a conversation."""

    settings: Settings
    client: Client
    tools: Toolboxes
    reporter: Reporter


def app_for(loaded: Settings, environ: Mapping[str, str], reporter: Reporter, *, keeps_tools: bool) -> App:
    """What one question is asked with, or the many of a conversation, which ``keeps_tools`` from one to the next."""
    return App(loaded, Client(loaded, environ), Toolboxes(environ, keeps=keeps_tools), reporter)


class Asking:
    """One question asked, or a session compacted by hand: from who answers to what is done behind the answer.

    ``session`` and ``turn`` say how far it came, also where it failed.
    """

    def __init__(self, app: App, flags: Flags, interrupts: Interrupts) -> None:
        self.session: Session | None = None
        self.turn: Turn | None = None
        self._app, self._flags, self._interrupts = app, flags, interrupts

    def run(self, question: Message | None, opened: Opened, who: Respondent | None = None) -> int:
        """All of it; the exit code. Raises GptshError for every failure, Interrupted for a signal and the deadline."""
        app, flags, interrupts = self._app, self._flags, self._interrupts
        app.client.deadline = interrupts.deadline
        if question is None and not flags.compact:
            refuse_answered(opened)
        who = who or resolve(flags, app.settings, opened.doc, app.client, app.reporter)
        doc, happened = begin(flags, app.settings, question, opened, who)
        session = self.session = session_of(flags, app.settings, doc, opened.at)
        if flags.compact and question is None:
            from gptsh.cli.compact import compact  # noqa: PLC0415 - few runs compact by hand

            planner = Planner(app.settings, app.client, doc, who, flags, None)
            return compact(planner, session, happened, flags, app.client, interrupts, app.reporter)
        is_new, resumed = document.is_unsaved(doc), opened.doc is not None and not chooses_tools(flags)
        with app.tools.lent(who.servers, interrupts, lenient=resumed) as tools:
            try:
                planner = Planner(app.settings, app.client, doc, who, flags, tools)
                if flags.dry_run:
                    return print_request(app.client, planner.first(), who.form)
                self.turn = Turn(app.settings, app.client, session, planner, tools, interrupts, app.reporter)
            except (ToolServerError, Interrupted) as err:
                if who.servers:  # which may take their time
                    with interrupts.over():
                        session.save(durable=True)
                    err.hint = session.how_to_go_on(None)
                raise
            code = self.turn.run(happened)
        if is_new:
            archive_old(app.settings.sessions, session, interrupts)
        return code


def session_of(flags: Flags, loaded: Settings, doc: Document, at: str | None) -> Session:
    """The session of a document that was read from ``at``, or is to get that name."""
    return Session(
        doc,
        at,
        title=flags.title,
        tags=flags.tag,
        keep_snapshots=loaded.context.snapshots,
        moves=not flags.compact,
        saves=saves(flags, loaded) and not flags.dry_run,
        talking=flags.interactive,
    )


def print_request(client: Client, plan: Plan, form: Form) -> int:
    """Print model, API, window and tokens; for a program the request itself, its keys masked. Nothing is sent."""
    request, report = plan.request, plan.context.report()
    model, wire = request.model, client.wire(request)
    if form.structured:
        shown = {"model": model, "wire": wire, **client.preview(request), "context": report, "error": None}
        stdio.write_lines([structured.line(shown)])
    else:
        stdio.write_facts(context_lines(wire, report, request), FACTS)
    return 0


def ask(flags: Flags, environ: Mapping[str, str], reporter: Reporter) -> int:
    """Ask, show, save; the exit code. Raises GptshError for every failure, Interrupted for signal and deadline."""
    reporter.asks = bool(flags.prompt) or not flags.compact
    loaded = settings.load(environ, flags.config)
    reporter.output = flags.output or loaded.output or settings.likely_agent(loaded, flags.agent).output
    check_snapshot(flags, loaded)
    app = app_for(loaded, environ, reporter, keeps_tools=False)
    with Interrupts(seconds_of(flags, loaded)) as interrupts:
        return _ask(flags, app, interrupts)


def _ask(flags: Flags, app: App, interrupts: Interrupts) -> int:
    loaded = app.settings
    ref = session_ref(flags, loaded)
    opened, who = open_session(ref), None
    reads = reads_stdin(flags, loaded) and not stdio.is_terminal(sys.stdin)
    waits = reads and stdio.is_awaited(sys.stdin)
    if flags.prompt or flags.file or (reads and not flags.labels):  # what is wrong is said while the pipe is whole
        who = resolve(flags, loaded, opened.doc, app.client, app.reporter)
    question = read_question(flags, loaded)
    if waits:
        opened = open_session(ref)  # it may have grown meanwhile
    app.reporter.asks = question is not None or not flags.compact
    if flags.compact or flags.apply:
        _check_compact(flags, loaded, ref, asks=question is not None)
    elif question is None and ref is not None and flags.labels and not flags.dry_run:
        if not saves(flags, loaded):
            raise UsageError("--title, --tag and --snapshot need a saved session", NOT_SAVED)
        from gptsh.cli.manage import label  # noqa: PLC0415 - few runs label alone

        return label(ref, flags, loaded.context.snapshots)
    if question is None and ref is None:
        raise UsageError("no prompt", "give words or pipe text in; gptsh -h shows how")
    return Asking(app, flags, interrupts).run(question, opened, who)


def archive_old(rules: Sessions, session: Session, interrupts: Interrupts) -> None:
    """Put old sessions away behind a turn that began a new one, where that is configured.

    The run is over: its reader has the end of the answer, and a signal comes too late.
    """
    if not ((rules.archive_after_days or rules.max_sessions) and session.is_kept and session.name):
        return
    from gptsh.core import retention  # noqa: PLC0415 - few configure it

    stdio.let_go()
    with interrupts.over():
        try:
            retention.archive_old(rules, session.name)
        except StoreBusy:  # the next new session does it
            return
        except (GptshError, OSError) as err:
            stdio.note(f"no old session was archived: {err}")


def _check_compact(flags: Flags, loaded: Settings, ref: str | None, *, asks: bool) -> None:
    """Raise UsageError for what ``--compact`` and ``--apply`` cannot do."""
    if not flags.compact:
        raise UsageError("--apply goes with --compact")
    if ref is None or references.is_new_name(ref):
        raise UsageError("--compact needs a session", "name one with -s REF, or -c")
    if asks and not flags.apply:
        raise UsageError("--compact shows, and asks nothing", "leave out the prompt, or add --apply")
    if flags.labels and not flags.apply:
        raise UsageError("--compact shows, and changes nothing", "add --apply, or leave out --title, --tag, --snapshot")
    if flags.apply and not saves(flags, loaded):
        raise UsageError("--apply needs a saved session", NOT_SAVED)
    if flags.apply and not asks and references.split_ref(ref)[1] is not None:
        raise UsageError(f"{ref}: a point cannot be compacted", "compact the session, or ask from the point")
